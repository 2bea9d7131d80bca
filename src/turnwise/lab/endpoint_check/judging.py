"""Observations in, findings out. Pure: it takes what was seen as data and knows no server."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, cast
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from turnwise.assembly.text_calls.syntaxes import MARKERS
from turnwise.lab.endpoint_check.probes import NAMES
from turnwise.lab.endpoint_check.shapes import OF_THE_WAY, ORDER, LearnedField, Observed, Weight, meaning_of, shapes_of
from turnwise.rules.schema import Misfits, decode_strictly, judge_output, schema_errors
from turnwise.vocab import (
    ArgumentsState,
    FaultKind,
    FinishReason,
    Reasoning,
    Response,
    ToolCall,
    ToolSpec,
    calls_of,
    refusal_of,
    text_of,
)
from turnwise.wire.profiles import Profile

CheckOutcome = Literal["fine", "faults", "no_server", "stopped"]
REFUSED = ("wrong-model", "wrong-key")
"""The probes that a good server refuses."""
CHARACTERS_A_TOKEN = 10  # more than any tokenizer makes of words: so much text is past its limit
_FENCE = re.compile(r"\A```[A-Za-z0-9]*\s*(.*?)(?:```)?\Z", re.DOTALL)
FIRST_EVENT_MARGIN = 3.0  # a server is slower on another day


class ProbeVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """One probe: the worst of what it showed, and the words for `found` where there is more to say than that."""

    probe: str
    weight: Weight
    seen: tuple[str, ...]
    found: str
    seconds: float


class ProfileChange(msgspec.Struct, frozen=True, kw_only=True):
    """A field of the profile that should have another value, and what showed it."""

    field: str
    value: object
    why: str


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """`seen` names each thing once, with the probes that showed it, the gravest first. `unasked` are the probes that were
    not sent, `unanswered` the one that was sent when the check was stopped."""

    outcome: CheckOutcome
    verdicts: tuple[ProbeVerdict, ...]
    seen: Mapping[str, tuple[str, ...]]
    changes: tuple[ProfileChange, ...]
    unasked: tuple[str, ...]
    unanswered: tuple[str, ...] = ()


def judge(
    observations: Sequence[Observed],
    *,
    profile: Profile,
    learned: Sequence[LearnedField] = (),
    asked: Sequence[str] = NAMES,
    stopped: bool = False,
    pending: str | None = None,
) -> Judgement:
    """What the answers say of the endpoint. `profile` is the one that they were asked with, `asked` all that were to be sent,
    `pending` one that was sent and not waited for."""
    by_name = {observed.probe: observed for observed in observations}
    verdicts = tuple([_verdict(observed, family=profile.family) for observed in observations])
    seen: dict[str, tuple[str, ...]] = {}
    for verdict in verdicts:
        for name in verdict.seen:
            seen[name] = (*seen.get(name, ()), verdict.probe)
    if learned:
        seen["refused_field"] = tuple([one.field for one in learned])
    graded = sorted(seen.items(), key=lambda item: -ORDER.index(meaning_of(item[0]).weight))
    return Judgement(
        outcome=_outcome(observations, verdicts=verdicts, stopped=stopped),
        verdicts=verdicts,
        seen=MappingProxyType(dict(graded)),
        changes=tuple(_changes(by_name, seen=seen, profile=profile, learned=learned)),
        unasked=tuple([name for name in asked if name not in by_name and name != pending]),
        unanswered=() if pending is None else (pending,),
    )


def has_answered(observations: Sequence[Observed]) -> bool:
    """Whether a response of this API came to any of them; to those that ask for a refusal alone, a refusal is one."""
    ordinary = [observed for observed in observations if observed.probe not in REFUSED]
    if not ordinary:
        return any(observed.answered or _is_refused(observed) for observed in observations)
    return any(observed.answered for observed in ordinary)


def _is_refused(observed: Observed) -> bool:
    """In words of this API: other servers have pages that do not exist."""
    return observed.fault is not None and observed.fault.kind not in OF_THE_WAY and observed.marks.look == "json"


def _outcome(observations: Sequence[Observed], *, verdicts: Sequence[ProbeVerdict], stopped: bool) -> CheckOutcome:
    if stopped:
        return "stopped"
    if not has_answered(observations):
        return "no_server"
    return "faults" if any(verdict.weight == "broken" for verdict in verdicts) else "fine"


def _verdict(observed: Observed, *, family: str) -> ProbeVerdict:
    if observed.probe in REFUSED:
        seen = [] if observed.answered else list(_odd(observed, family=family))
    else:
        seen = shapes_of(observed, family=family)
    if observed.answered and observed.response is not None:
        lacks = LACKS.get(observed.probe)
        seen += [] if lacks is None else lacks(observed, observed.response)
        if observed.probe not in REFUSED:
            seen += _of_any(observed, observed.response)
    if observed.waited:
        seen.append("asked_to_wait")
    seen = list(dict.fromkeys(seen))
    return ProbeVerdict(
        probe=observed.probe,
        weight=_gravest(seen),
        seen=tuple(seen),
        found=_found(observed),
        seconds=observed.seconds,
    )


def _gravest(seen: Sequence[str]) -> Weight:
    weights: list[Weight] = [meaning_of(name).weight for name in seen]
    return ORDER[max([ORDER.index(weight) for weight in weights], default=0)]


def _odd(observed: Observed, *, family: str) -> Iterator[str]:
    """A refusal that does not say what is wrong; what is no refusal at all is told as of any other request."""
    if observed.fault is not None and observed.fault.kind in OF_THE_WAY and not _has_error_status(observed):
        yield from shapes_of(observed, family=family)
        return
    wanted = {
        "wrong-model": {FaultKind.NOT_FOUND, FaultKind.BAD_REQUEST},
        "wrong-key": {FaultKind.AUTH},
    }[observed.probe]
    if observed.fault is not None and observed.fault.kind not in wanted:
        yield "odd_refusal"


def _has_error_status(observed: Observed) -> bool:
    return observed.marks.status is not None and observed.marks.status >= 300


def _found(observed: Observed) -> str:
    """Figures of an answer, or the words of a refusal."""
    response, fault = observed.response, observed.fault
    if fault is not None:
        status = f"HTTP {fault.status}"
        return fault.message if fault.status is None or status in fault.message else f"{status}: {fault.message}"
    if response is None:
        return ""
    parts = [_said(response)]
    if (usage := response.usage) is not None:
        parts.append(f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out")
        if usage.cache_read_tokens:
            parts.append(f"{usage.cache_read_tokens:,} from the cache")
    if observed.first_event_s is not None:
        parts.append(f"first piece after {observed.first_event_s:.1f} s")
    return ", ".join([part for part in parts if part])


def _said(response: Response) -> str:
    calls = calls_of(response.message)
    if not calls:
        return f"ends with {response.finish}"
    states = [call.state for call in calls if call.state is not ArgumentsState.COMPLETE]
    word = "call" if len(calls) == 1 else "calls"
    return f"{len(calls)} {word}{f' ({states[0]})' if states else ''}, ends with {response.finish}"


def _of_any(observed: Observed, response: Response) -> Iterator[str]:
    """What may be wrong with any answer, whatever was asked."""
    message, request = response.message, observed.request
    calls, text = calls_of(message), text_of(message)
    offered = {tool.name for tool in request.tools}
    is_whole = observed.fault is None and response.finish is not FinishReason.CUT
    if is_whole and not calls and not text.strip() and not refusal_of(message):
        yield "no_room" if response.finish is FinishReason.LENGTH else "empty_answer"
    if any(call.name not in offered for call in calls):
        yield "call_unasked"
    if not calls and offered and MARKERS.search(text):
        # Where tools are forbidden, turnwise reads no call in the text: it is no answer.
        yield "disobeyed" if request.tool_choice == "none" else "call_in_text"
    if response.finish is FinishReason.CONTENT_FILTER:
        yield "filtered"
    elif response.finish is FinishReason.REFUSAL or refusal_of(message):
        yield "declined"
    if is_whole and _is_cut_early(observed, response):
        yield "cut_early"
    if is_whole and response.usage is None:
        yield "no_usage"


def _is_cut_early(observed: Observed, response: Response) -> bool:
    """It says that the limit cut it, and has not used half of it. Some servers count no reasoning."""
    usage, limit = response.usage, observed.request.settings.max_output_tokens or 0
    if usage is None or "output_tokens" in usage.untold or response.finish is not FinishReason.LENGTH:
        return False
    return usage.output_tokens * 2 < limit and not any(isinstance(part, Reasoning) for part in response.message.parts)


def _lacks_of_call(observed: Observed, response: Response) -> list[str]:
    calls = calls_of(response.message)
    if not calls:
        return ["no_call"]
    offered = {tool.name: tool for tool in observed.request.tools}
    if any(call.name in offered and not _fits(call, tool=offered[call.name]) for call in calls):
        return ["misfit"]
    return []


def _fits(call: ToolCall, *, tool: ToolSpec) -> bool:
    """A call that is not whole is told elsewhere."""
    if call.state is not ArgumentsState.COMPLETE:
        return True
    try:
        return not schema_errors(tool.parameters, value=decode_strictly(call.arguments))
    except ValueError:
        return False


def _lacks_of_parallel(observed: Observed, response: Response) -> list[str]:
    calls = calls_of(response.message)
    return ["one_call"] if len(calls) == 1 else _lacks_of_call(observed, response)


def _lacks_of_limit(observed: Observed, response: Response) -> list[str]:
    limit = observed.request.settings.max_output_tokens or 0
    said = len(text_of(response.message))
    spent = 0 if response.usage is None else response.usage.output_tokens
    if spent > 2 * limit or said > limit * CHARACTERS_A_TOKEN:
        return ["limit_ignored"]
    if spent >= limit and response.finish is not FinishReason.LENGTH:
        return ["limit_unsaid"]
    return []


def _lacks_of_output(observed: Observed, response: Response) -> list[str]:
    schema = observed.request.output
    assert schema is not None, "the probe wants one"
    fits = judge_output(text_of(response.message), output=schema, finish=response.finish)
    return ["output_misfit"] if isinstance(fits, Misfits) else [repair.kind for repair in fits.repairs]


def _lacks_of_cache(_: Observed, response: Response) -> list[str]:
    return ["no_cache"] if response.usage is not None and not response.usage.cache_read_tokens else []


LACKS: Mapping[str, Callable[[Observed, Response], list[str]]] = MappingProxyType(
    {
        "call": _lacks_of_call,
        "call-body": _lacks_of_call,
        "parallel": _lacks_of_parallel,
        "forced": lambda _, response: ["disobeyed"] if calls_of(response.message) else [],
        "limit": _lacks_of_limit,
        "cut-call": _lacks_of_limit,
        "output": _lacks_of_output,
        "cache-again": _lacks_of_cache,
        "wrong-model": lambda _, __: ["any_model"],
        "wrong-key": lambda _, __: ["any_key"],
    }
)
"""What each probe asks for and may not get. The arguments: its answer, and the response in it."""


def _changes(
    by_name: Mapping[str, Observed],
    *,
    seen: Mapping[str, tuple[str, ...]],
    profile: Profile,
    learned: Sequence[LearnedField],
) -> Iterator[ProfileChange]:
    """What the profile should say: only what an answer showed."""
    for one in learned:
        yield ProfileChange(field=one.field, value=one.value, why=f"it refused the other way: {one.why}")
    said = {one.field for one in learned}
    if "disobeyed" in seen and profile.tool_choice_none == "send":
        yield ProfileChange(
            field="tool_choice_none", value="drop_tools", why="it calls tools although they are forbidden"
        )
    if _ignores_schema(by_name.get("output")) and profile.output != "none" and "output" not in said:
        yield ProfileChange(field="output", value="none", why="it was sent a schema, and its answer is no JSON")
    if "call_in_text" in seen and not profile.calls_in_text:
        yield ProfileChange(field="calls_in_text", value=True, why="its answers hold calls that are written as text")
    key = by_name.get("wrong-key")
    if key is not None and key.answered and profile.key_required:
        yield ProfileChange(field="key_required", value=False, why="it answers without a key that holds")
    if key is not None and key.fault is not None and key.fault.kind is FaultKind.AUTH and not profile.key_required:
        yield ProfileChange(field="key_required", value=True, why="it refuses a key that does not hold")
    slowest = max([observed.first_event_s or 0.0 for observed in by_name.values()], default=0.0)
    if slowest * FIRST_EVENT_MARGIN > profile.first_event_s:
        seconds = float(round(slowest * FIRST_EVENT_MARGIN))
        yield ProfileChange(field="first_event_s", value=seconds, why=f"its first piece came after {slowest:.0f} s")


def _ignores_schema(observed: Observed | None) -> bool:
    """A server that keeps to a schema writes JSON, however weak the model is; one that answers in words does not know it."""
    if observed is None or observed.response is None or observed.response.finish is not FinishReason.STOP:
        return False
    text = text_of(observed.response.message).strip()
    inner = _FENCE.sub(r"\1", text).strip()
    return bool(text) and not inner.startswith(("{", "[")) and not _is_json(inner)


def _is_json(text: str) -> bool:
    try:
        decode_strictly(text)
    except ValueError:
        return False
    return True


# A profile as the TOML of a row, as `profiles.toml` has them; what is written here reads back as the same profile.


def profile_with(
    profile: Profile, *, changes: Sequence[ProfileChange], base_url: str, api_key_env: str | None
) -> Profile:
    """The profile with what was seen. At an address of its own it gets a name of its own; the query of the address, which may
    hold a key, is left out."""
    address = base_url.partition("?")[0]
    changed = replace(profile, **{change.field: change.value for change in changes})
    if address != profile.base_url:
        changed = replace(changed, name=name_of(address), title="", base_url=address)
    if api_key_env:
        changed = replace(changed, api_key_env=(api_key_env,))
    return changed


def name_of(address: str) -> str:
    """`https://api.example.com/v1` -> `api-example-com`: a name that can stand before the colon of a model."""
    host = urlsplit(address).netloc.lower().rpartition("@")[2]
    return re.sub(r"[^a-z0-9]+", "-", host).strip("-") or "endpoint"


def write_row(profile: Profile, *, table: str = "") -> str:
    """The row: the family, and every field that differs from the family's own API. `table`: what stands before its name."""
    plain = Profile(name=profile.name, family=profile.family)
    lines = [f"[{table}{_key(profile.name)}]", f"family = {_value(profile.family)}"]
    for field in profile.__struct_fields__:
        value: object = getattr(profile, field)
        if field not in ("name", "family") and value != getattr(plain, field):
            lines.append(f"{field} = {_value(value)}")
    return "\n".join(lines) + "\n"


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _value(name)


def _value(value: object) -> str:
    """TOML's basic strings take all that JSON's do; DEL alone has to be escaped besides."""
    match msgspec.to_builtins(value):
        case bool() as flag:
            return str(flag).lower()
        case str() as text:
            return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
        case int() | float() as number:
            return repr(number)
        case None:
            raise AssertionError("TOML has no null: a field that is None is left out")
        case values:
            return _inline(values)


def _inline(values: object) -> str:
    if isinstance(values, list | tuple):
        return f"[{', '.join([_value(one) for one in cast('Sequence[object]', values)])}]"
    pairs = [f"{_value(key)} = {_value(one)}" for key, one in cast("dict[str, object]", values).items()]
    return f"{{ {', '.join(pairs)} }}"
