"""What spans say of a run, a request and a call, from the turn's own books. No text of a user, model or tool is in it."""

from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from opentelemetry.util.types import AttributeValue

from turnwise.journal.ledger import CANCELLED as ENDED_BY_US
from turnwise.journal.ledger import Ledger, LedgerEntry
from turnwise.rules.stop import FAILED
from turnwise.running.observers import ObservedTurn
from turnwise.telemetry import names
from turnwise.telemetry.contents import MOST_OF_A_NAME, scrubbed
from turnwise.turn.commands import SendRequest
from turnwise.turn.config import TurnResult
from turnwise.vocab import Fault, Repair, Response, ToolCall, Usage

Attributes = dict[str, AttributeValue]

MOST_IN_A_LIST = 64
PORTS = {"https": 443, "http": 80}


def provider_of(profile: str) -> str:
    """The conventions' name of a provider."""
    return names.PROVIDERS.get(profile, profile)


def server_of(url: str) -> Attributes:
    """Host and port of an endpoint; nothing else of its URL, which may hold a key."""
    try:
        found = urlsplit(url)
        host, port = found.hostname, found.port or PORTS.get(found.scheme)
    except ValueError:
        return {}
    if not host:
        return {}
    known: Attributes = {names.SERVER_ADDRESS: host}
    if port:
        known[names.SERVER_PORT] = port
    return known


def of_run(turn: ObservedTurn, *, agent_name: str) -> Attributes:
    """What is known of a run when it begins."""
    config = turn.config
    known: Attributes = {
        names.OPERATION: names.INVOKE_AGENT,
        names.PROVIDER: provider_of(turn.provider),
        names.REQUEST_MODEL: config.model,
        names.RUN_ID: config.turn_id,
        **server_of(turn.base_url),
    }
    if agent_name:
        known[names.AGENT_NAME] = agent_name
    if config.session_id:
        known[names.CONVERSATION] = config.session_id
    if turn.path:
        known[names.RUN_PATH] = list(turn.path)
    if turn.is_resumed:
        known[names.RUN_RESUMED] = True
    return known


def of_result(result: TurnResult, *, ledger: Ledger, turn_id: str) -> Attributes:
    """How a run ended, and what it used and cost without its sub-agents, which have spans of their own."""
    cost = ledger.cost(turn=turn_id)
    known: Attributes = {
        names.STOP_REASON: str(result.stop_reason),
        names.COMPLETE: result.complete,
        names.STEPS: result.steps,
        names.REQUESTS: result.requests,
        names.SUBAGENTS: len(result.children),
        **of_usage(result.usage),
        **of_repairs(result.repairs),
    }
    if cost.requests and not cost.is_unknown:
        known[names.COST_USD] = float(cost.usd)
    if cost.unknown:
        known[names.COST_UNKNOWN] = cost.unknown
    if cost.at_least:
        known[names.COST_AT_LEAST] = cost.at_least
    return known


def error_of_result(result: TurnResult) -> str:
    """Why a run failed or was cancelled; empty where it came to an end of its own, also without a complete answer."""
    if result.stop_reason not in FAILED:
        return ""
    return str(result.stop_reason if result.fault is None else result.fault.kind)


def of_request(order: SendRequest, *, turn: ObservedTurn) -> Attributes:
    """What is known of a request when it leaves."""
    request, settings = order.request, order.request.settings
    known: dict[str, AttributeValue | None] = {
        names.OPERATION: names.CHAT,
        names.PROVIDER: provider_of(turn.provider),
        names.CONVERSATION: turn.config.session_id or None,
        names.REQUEST_MODEL: request.model,
        names.REQUEST_STREAM: request.stream,
        names.REQUEST_MAX_TOKENS: settings.max_output_tokens,
        names.REQUEST_TEMPERATURE: settings.temperature,
        names.REQUEST_TOP_P: settings.top_p,
        names.REQUEST_SEED: settings.seed,
        names.REQUEST_STOP: list(settings.stop) or None,
        names.OUTPUT_TYPE: None if request.output is None else "json",
        names.NUMBER: order.number,
        names.STEP: order.step,
        names.PURPOSE: order.purpose,
        names.RETRY_OF: order.retry_of,
    }
    return {name: value for name, value in known.items() if value is not None} | server_of(turn.base_url)


def of_entry(entry: LedgerEntry) -> Attributes:
    """What the ledger says of a request that has ended."""
    known: Attributes = {} if entry.usage is None else of_usage(entry.usage)
    if entry.usd is not None:
        known[names.COST_USD] = float(entry.usd)
    if entry.cache_missed_tokens:
        known[names.CACHE_MISSED_TOKENS] = entry.cache_missed_tokens
    return known


def of_response(response: Response) -> Attributes:
    """What a response says of itself."""
    known: dict[str, AttributeValue | None] = {
        names.FINISH_REASONS: [str(response.finish)],
        names.PROVIDER_FINISH: response.provider_finish,
        names.RESPONSE_ID: response.id,
        names.RESPONSE_MODEL: response.model,
    }
    return {name: value for name, value in known.items() if value} | of_repairs(response.repairs)


def of_call(call: ToolCall) -> Attributes:
    """What is known of a call when it starts."""
    return {
        names.OPERATION: names.EXECUTE_TOOL,
        names.TOOL_NAME: call.name,
        names.TOOL_CALL_ID: call.id,
        names.TOOL_TYPE: "function",
    }


def of_fault(fault: Fault) -> Attributes:
    """What failed, without the provider's words: these may quote the prompt."""
    return {} if fault.status is None else {names.STATUS_CODE: fault.status}


def error_of_entry(entry: LedgerEntry | None) -> str:
    """Why a request without an answer of its own ended."""
    outcome = None if entry is None else entry.outcome
    return names.CANCELLED if outcome in (None, ENDED_BY_US) else outcome


def of_usage(usage: Usage) -> Attributes:
    """Tokens by kind; a count that the provider did not report is left out."""
    counts = {
        "input_tokens": names.INPUT_TOKENS,
        "output_tokens": names.OUTPUT_TOKENS,
        "reasoning_tokens": names.REASONING_TOKENS,
        "cache_read_tokens": names.CACHE_READ_TOKENS,
        "cache_write_tokens": names.CACHE_WRITE_TOKENS,
    }
    return {name: getattr(usage, count) for count, name in counts.items() if count not in usage.untold}


def of_repairs(repairs: Sequence[Repair]) -> Attributes:
    """How many repairs there were, and of which kinds."""
    if not repairs:
        return {}
    return {names.REPAIRS: len(repairs), names.REPAIR_KINDS: sorted({one.kind for one in repairs})}


def bounded(known: Attributes, *, scrub: Callable[[str], str]) -> Attributes:
    """The same, without the endpoint's key and of a bounded size: ids, models and finish reasons are the endpoint's own texts."""
    return {name: _bounded(value, scrub=scrub) for name, value in known.items()}


def _bounded(value: AttributeValue, *, scrub: Callable[[str], str]) -> AttributeValue:
    if isinstance(value, str):
        return scrubbed(value, most=MOST_OF_A_NAME, scrub=scrub)
    if isinstance(value, Sequence) and (texts := [one for one in value[:MOST_IN_A_LIST] if isinstance(one, str)]):
        return [scrubbed(text, most=MOST_OF_A_NAME, scrub=scrub) for text in texts]
    return value
