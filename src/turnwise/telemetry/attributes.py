"""What spans say of a run, a request and a call, from the turn's own books. No text of a user, model or tool is in it."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec
from opentelemetry.util.types import AttributeValue

from turnwise.journal.ledger import CANCELLED as ENDED_BY_US
from turnwise.journal.ledger import Ledger, LedgerEntry
from turnwise.rules.answer_room import FAILED
from turnwise.running.watcher_events import ObservedTurn
from turnwise.telemetry import names
from turnwise.turn.config import TurnResult
from turnwise.turn.events import SendRequest
from turnwise.vocab import (
    Fault,
    File,
    Message,
    Part,
    ProviderItem,
    Reasoning,
    Refusal,
    Repair,
    Response,
    Text,
    ToolCall,
    ToolResult,
    ToolSpec,
    Usage,
)
from turnwise.vocab.json_values import without_nones

# Messages as the conventions write them: JSON text, without keys, and of a bounded size.


MOST_OF_A_TEXT = 16_384  # characters; a whole file in a result is the exporter's largest attribute else
MOST_OF_AN_ATTRIBUTE = (
    262_144  # bytes; each request's span has its whole prompt, so a long run would grow with its square
)
MOST_OF_A_NAME = 256  # characters of a name or an id: endpoints and models write these, too
LONGEST_KEY = 4_096  # characters: a key that begins before a cut ends in these

Item = dict[str, object]
Source = TypeVar("Source")


class Contents:
    """Writes contents for attributes. `scrub` removes the key from a text."""

    def __init__(self, scrub: Callable[[str], str]) -> None:
        self._scrub = scrub

    def text(self, text: str) -> str:
        """The text without keys; of a longer one its beginning, and how much is missing."""
        shown = scrubbed(text, most=MOST_OF_A_TEXT, scrub=self._scrub)
        return shown if len(text) <= MOST_OF_A_TEXT else f"{shown} ... ({len(text) - MOST_OF_A_TEXT} more characters)"

    def messages(self, messages: Sequence[Message]) -> str:
        """The newest parts of the messages, as many as there is room for."""
        room = _Room()
        kept = [self._message(one, parts=room.newest(self._part, one.parts)) for one in reversed(messages)]
        return _json([one for one in reversed(kept) if one["parts"]])

    def answer(self, message: Message, *, finish: str) -> str:
        """One message of the model, with the reason why it ended."""
        return _json(
            [{**self._message(message, parts=_Room().first(self._part, message.parts)), "finish_reason": finish}]
        )

    def instructions(self, texts: Sequence[Text]) -> str:
        """The system prompt."""
        return _json(_Room().first(self._part, texts))

    def tools(self, tools: Sequence[ToolSpec]) -> str:
        """What the model was told of the tools."""
        return _json(_Room().first(self._tool, tools))

    def result(self, result: ToolResult) -> str:
        """What the model reads of a call."""
        return self.text("\n".join([one.text if isinstance(one, Text) else "(a file)" for one in result.content]))

    def _message(self, message: Message, *, parts: list[Item]) -> Item:
        return {"role": message.role, "parts": parts}

    def _tool(self, tool: ToolSpec) -> Item:
        return {"type": "function", "name": self._name(tool.name), "description": self.text(tool.description)}

    def _part(self, part: Part) -> Item:
        match part:
            case Text(text=text) | Refusal(text=text):
                return {"type": "text", "content": self.text(text)}
            case Reasoning(text=text):
                return {"type": "reasoning", "content": self.text(text)}
            case ToolCall():
                arguments = self.text(part.arguments)
                return {
                    "type": "tool_call",
                    "id": self._name(part.id),
                    "name": self._name(part.name),
                    "arguments": arguments,
                }
            case ToolResult():
                return {"type": "tool_call_response", "id": self._name(part.call_id), "response": self.result(part)}
            case File():
                return {"type": "file", "mime_type": self._name(part.media_type)}
            case ProviderItem(kind=kind):
                return {"type": "provider_item", "kind": self._name(kind)}

    def _name(self, name: str) -> str:
        return scrubbed(name, most=MOST_OF_A_NAME, scrub=self._scrub)


class _Room:
    """What is left of one attribute. It ends with the first item for which there is no room."""

    def __init__(self) -> None:
        self._left = MOST_OF_AN_ATTRIBUTE

    def first(self, write: Callable[[Source], Item], sources: Iterable[Source]) -> list[Item]:
        kept: list[Item] = []
        for source in sources:
            if self._left <= 0:
                break
            item = write(source)
            self._left -= len(msgspec.json.encode(item)) + _BESIDE
            if self._left > 0:
                kept.append(item)
        return kept

    def newest(self, write: Callable[[Source], Item], sources: Sequence[Source]) -> list[Item]:
        self._left -= _BESIDE
        return self.first(write, reversed(sources))[::-1]


_BESIDE = 64  # bytes around a part or a message: its role, commas, brackets


def scrubbed(text: str, *, most: int, scrub: Callable[[str], str]) -> str:
    """No more than the first `most` characters, without keys and without the half of one at the cut."""
    if len(text) <= most:
        return scrub(text)[:most]
    cut = text[: most + LONGEST_KEY]
    shown = scrub(cut)
    return (shown if cut == text else shown[: max(len(shown) - LONGEST_KEY, 0)])[:most]


def _json(items: Sequence[Item]) -> str:
    return msgspec.json.encode(items).decode()


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
    return without_nones(known) | server_of(turn.base_url)


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
