"""The request for the rest of a cut answer: the body as it was sent, with what going on needs changed in it; and what a
cut answer is, if nothing continues it."""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from turnwise.relay.edits import CAPPED_FIELDS, spelled
from turnwise.rules.continuation import hold_back
from turnwise.rules.schema import is_whole_json
from turnwise.rules.truncation import Cut
from turnwise.vocab import ArgumentsState, Fault, FaultKind, FinishReason, Request, Response, calls_of
from turnwise.wire.family import HttpCall
from turnwise.wire.json_fields import (
    Fields,
    first_byte,
    is_null,
    is_object,
    read_fields,
    read_items,
    write_array,
    write_object,
)
from turnwise.wire.profiles import Profile
from turnwise.wire.registry import family
from turnwise.wire.relay_facts import NO_CALL, relay_facts

_LEGACY = {"tools": "functions", "tool_choice": "function_call"}  # as Chat Completions had them before


def continued_call(sent: HttpCall, *, before: Request, after: Request, profile: Profile) -> HttpCall:
    """The call for `after`, which goes on behind the answer to `before`: that one was `sent`."""
    encode = family(profile.family).encode_request
    first, second = encode(before, profile), encode(after, profile)
    if sent.body == first.body:
        return replace(sent, body=second.body)
    fields, old, new = map(read_fields, (sent.body, first.body, second.body))
    changed = relay_facts(profile.family).changed
    history, *places = changed
    if len(profile.tool_choices) < 4:  # a choice in words stands behind the messages: it was for that request alone
        first, second = [encode(replace(one, tool_choice="auto"), profile) for one in (before, after)]
    _go_on(fields, read_fields(first.body), read_fields(second.body), name=history)
    if "tools" in old and "tools" not in new:
        places = [place for place in places if changed[place] is not NO_CALL]
        for name in ("tools", "tool_choice", "toolConfig", "parallel_tool_calls", *_LEGACY.values()):
            fields.pop(spelled(fields, name), None)
    if relay_facts(profile.family).has_dialects:
        places = _as_sent(places, fields, old, new, profile=profile)
    for place in places:
        _change(fields, old, new, place=place)
    return replace(sent, body=write_object(fields))


def _go_on(fields: Fields, old: Fields, new: Fields, *, name: str) -> None:
    before, after = read_items(old[name]), read_items(new[name])
    said = fields.get(name)
    items = before if said is None or first_byte(said) != b"[" else read_items(said)  # Responses takes a text alone
    fields[name] = msgspec.Raw(write_array([*items, *after[len(before) :]]))


def _as_sent(places: Sequence[str], fields: Fields, old: Fields, new: Fields, *, profile: Profile) -> list[str]:
    """The places, and what stands there, under the names that the body has for them."""
    names = _LEGACY if not is_null(fields.get("functions")) and is_null(fields.get("tools")) else {}
    limits = [name for name in CAPPED_FIELDS["openai_chat"] if not is_null(fields.get(name))]
    for said in (old, new):
        for name in names:
            if name in said:
                said[names[name]] = said.pop(name)
        if limits and (limit := said.pop(profile.max_tokens_field, None)) is not None:
            said.update(dict.fromkeys(limits, limit))
    return [names.get(place, place) for place in places]


def _change(fields: Fields, old: Fields, new: Fields, *, place: str) -> None:
    """What is another in `new` than in `old` becomes that; a field that was sent under no name of ours stays."""
    name, _, below = place.partition(".")
    key = spelled(fields, name)
    was, now, own = old.get(name), new.get(name), fields.get(key)
    if was == now:
        return
    insides = [read_fields(raw) if raw is not None and is_object(raw) else {} for raw in (own, was, now)]
    if below or (own is not None and now is not None and all(insides)):
        inside, before, after = insides
        for one in [below] if below else [*dict.fromkeys((*before, *after))]:
            _change(inside, before, after, place=one)
        if inside or own is not None:
            fields[key] = msgspec.Raw(write_object(inside))
    elif now is None:
        fields.pop(key, None)
    elif was is None or own is not None:
        fields[key] = now


def within_cap(request: Request, *, left_tokens: int | None) -> Request:
    """The request with an output limit of what is left, and without reasoning that would need all of that."""
    if left_tokens is None:
        return request
    settings = request.settings
    limit = min(left_tokens, settings.max_output_tokens or left_tokens)
    reasoning = settings.reasoning_tokens if (settings.reasoning_tokens or 0) < limit else None
    settings = replace(settings, max_output_tokens=limit, reasoning_tokens=reasoning)
    return replace(request, settings=settings)


def honest(response: Response) -> Response:
    """A call that stops in its middle met a limit, whatever the provider's word for the end was."""
    if response.finish in (FinishReason.LENGTH, FinishReason.CUT) or not has_cut_call(response):
        return response
    return replace(response, finish=FinishReason.LENGTH)


def too_short(cut: Cut) -> Fault | None:
    """The error in place of a cut call of which too little arrived to go on from. One that looks whole is left out instead."""
    for call in [one.call for one in cut.calls]:
        said = call.arguments
        if not said.strip() or is_whole_json(said) or hold_back(said, kind="text" if call.free_form else "json"):
            continue
        message = (
            f"the output limit cut the call of `{call.name}` after {len(said)} characters, too few to continue from"
        )
        return Fault(kind=FaultKind.SERVER, message=f"{message}: allow more output", status=502)
    return None


def has_cut_call(response: Response) -> bool:
    return any(call.state is ArgumentsState.TRUNCATED for call in calls_of(response.message))


def is_unfinished(response: Response) -> bool:
    """Whether a response that broke off has still no end after it was continued."""
    return response.finish in (FinishReason.LENGTH, FinishReason.CUT) or has_cut_call(response)
