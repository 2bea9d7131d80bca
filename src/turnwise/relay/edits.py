"""The client's own body, changed only where the gateway has to: each other field goes up with the very bytes of its value.

So is the request for the rest of a cut answer: the body as it was sent, with what going on needs changed in it.
"""

from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from turnwise.relay.client_request import ClientRequest
from turnwise.relay.dialects import fit_fields, fit_functions, fit_tools, heal_messages
from turnwise.relay.terms import RouteTerms, UpstreamRequest, told_adapted
from turnwise.rules.continuation import hold_back
from turnwise.rules.recovery import Cut
from turnwise.rules.schema import is_whole_json
from turnwise.vocab import (
    ArgumentsState,
    Fault,
    FaultKind,
    FinishReason,
    Repair,
    Request,
    Response,
    Settings,
    calls_of,
)
from turnwise.wire.family import HttpCall, family
from turnwise.wire.gemini.parts import camel
from turnwise.wire.json_fields import (
    Fields,
    bytes_of,
    encode,
    first_byte,
    is_null,
    is_object,
    object_at,
    read_fields,
    read_items,
    write_array,
    write_object,
)
from turnwise.wire.profiles import Profile
from turnwise.wire.relay_facts import NO_CALL, TRUE, ClientTool, capped, is_above, relay_facts


def edited(asked: ClientRequest, *, terms: RouteTerms, profile: Profile) -> UpstreamRequest:
    """The client's request for an upstream of its own family."""
    request = replace(asked.request, model=terms.model or asked.request.model, lessons=terms.lessons)
    fields = dict(asked.fields)
    told: list[Repair] = []
    tools: Mapping[str, ClientTool] = {}
    adds_usage = False
    facts = relay_facts(profile.family)
    request, told = facts.settle(fields, request, profile, asked.keeps_nothing)
    if facts.has_dialects:
        adds_usage = _ask_for_usage(fields, request, profile=profile)
        plain, tools_told = fit_tools(fields, request, profile=profile)
        request, tools = plain.request, plain.tools
        told += [*fit_fields(fields, profile=profile), *tools_told]
        told += heal_messages(fields, request, profile=profile.taught(terms.lessons) if terms.lessons else profile)
    if facts.flat_tools:
        request, tools_told = fit_functions(fields, request)
        told += tools_told
    if (most := terms.max_output_tokens) is not None:
        told += [*_cap_fields(fields, most=most, profile=profile), *facts.cap_reasoning(fields, most)]
        request = replace(request, settings=lowered(request.settings, most=most))
    if terms.one_call_at_a_time and request.tools:
        facts.forbid_parallel(fields, profile)
        request = replace(request, parallel_tool_calls=False)
    if profile.model_in_body and not facts.model_in_path:
        fields["model"] = msgspec.Raw(encode(request.model))
    elif not facts.model_in_path:
        fields.pop("model", None)
    _lay_under(fields, profile)
    told += adapt(fields, request, profile=profile)
    # Path and headers, which the family's own encoder knows.
    bare = Request(model=request.model, messages=(), stream=request.stream)
    return UpstreamRequest(
        call=replace(family(profile.family).encode_request(bare, profile), body=write_object(fields)),
        request=request,
        tools=tools,
        told=tuple(told),
        keeps_bytes=True,
        adds_usage=adds_usage,
    )


def adapt(fields: Fields, request: Request, *, profile: Profile) -> list[Repair]:
    """What the model would refuse goes up in another form, or not at all. Other fields keep their bytes."""
    adapter = relay_facts(profile.family).adapter(request.model, profile)
    if adapter is None:
        return []
    before = bytes_of(fields)
    after = dict(before)
    found = adapter(after)
    for key in [key for key in fields if key not in after]:
        del fields[key]
    fields.update({key: msgspec.Raw(raw) for key, raw in after.items() if raw != before.get(key)})
    return told_adapted(found, client=profile.family)


def _lay_under(fields: Fields, profile: Profile) -> None:
    """What the endpoint wants in every body: the client's own word counts more, but a null takes the field away."""
    for key, value in (read_fields(profile.body) if profile.body else {}).items():
        if is_null(value):
            fields.pop(key, None)
        else:
            fields.setdefault(key, value)


def _ask_for_usage(fields: Fields, request: Request, *, profile: Profile) -> bool:
    """Whether the gateway asks for the usage of a stream that the client did not ask for: without it the cost stays
    unknown."""
    if not request.stream or not profile.stream_usage:
        return False
    options = object_at(fields, "stream_options")
    if options.get("include_usage") == TRUE:
        return False
    fields["stream_options"] = msgspec.Raw(write_object({**options, "include_usage": TRUE}))
    return True


def lowered(settings: Settings, *, most: int) -> Settings:
    own = settings.max_output_tokens
    return replace(settings, max_output_tokens=most if own is None else min(own, most))


def _cap_fields(fields: Fields, *, most: int, profile: Profile) -> list[Repair]:
    """A limit above `most`, or none, becomes `most`."""
    facts = relay_facts(profile.family)
    parents = [part.rpartition(".")[0] for part in facts.limits]
    parent = parents[0] and spelled(fields, parents[0])
    inside = object_at(fields, parent) if parent else fields
    names = [spelled(inside, place.rpartition(".")[2]) for place in facts.limits]
    said = [name for name in names if not is_null(inside.get(name))]
    above = [name for name in said if is_above(inside[name], most)]
    own = profile.max_tokens_field if facts.has_dialects else names[0]
    changed = dict.fromkeys(above if said else [own], msgspec.Raw(encode(most)))
    inside.update(changed)
    if parent and changed:
        fields[parent] = msgspec.Raw(write_object(inside))
    return [capped(f"{parent}.{name}" if parent else name, most) for name in above]


def spelled(fields: Mapping[str, msgspec.Raw], name: str) -> str:
    """The key as the client spells it: ProtoJSON takes camelCase and snake_case. The last counts, as everywhere."""
    return next((key for key in reversed(list(fields)) if camel(key) == name), name)


# --- fields


# --- the rest of a cut answer, and what that is if nothing continues it

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
    limits = [name for name in relay_facts(profile.family).limits if not is_null(fields.get(name))]
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
