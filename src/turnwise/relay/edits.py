"""The client's own body, changed only where the gateway has to: each other field goes up with the very bytes of its value."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from turnwise.relay.client_request import ClientRequest
from turnwise.relay.client_tools import PlainTools
from turnwise.relay.dialects import fit_fields, fit_functions, fit_tools, heal_messages
from turnwise.relay.terms import RouteTerms, UpstreamRequest, capped, not_carried, told_adapted
from turnwise.rules.continuation import hold_back
from turnwise.rules.schema import is_whole_json
from turnwise.rules.truncation import Cut
from turnwise.vocab import (
    ArgumentsState,
    Fault,
    FaultKind,
    FinishReason,
    Opaque,
    Reasoning,
    Repair,
    Request,
    Response,
    Settings,
    calls_of,
)
from turnwise.wire.anthropic_messages.thinking import may_think_by_budget
from turnwise.wire.family import HttpCall
from turnwise.wire.gemini.fields import camel
from turnwise.wire.generations import adapt_claude, adapt_gpt, generation_of, say_in_words
from turnwise.wire.json_fields import (
    UNREADABLE,
    Fields,
    encode,
    fields_in,
    first_byte,
    is_null,
    is_object,
    object_at,
    read_fields,
    read_items,
    string_of,
    write_array,
    write_object,
)
from turnwise.wire.openai_responses.request import ENCRYPTED_REASONING, wants_encrypted_reasoning
from turnwise.wire.profiles import Profile
from turnwise.wire.registry import family
from turnwise.wire.relay_facts import FALSE, NO_CALL, relay_facts

# Reasoning that another family's model had, in a history for an upstream of the client's own family.
#
# A route may have answered with another family's model before. Its reasoning went to the client as thinking, without the data
# that the client's family asks for. The provider refuses a request that has it: Anthropic wants a signature, and OpenAI looks for
# an item that it never stored.


BECAUSE = "reasoning without the provider's own data is refused"


def without_unsigned_thinking(fields: Fields, request: Request) -> list[Repair]:
    """Takes thinking blocks without a signature out of a body of Anthropic's API."""
    if not any(_is_unsigned(part) for message in request.messages for part in message.parts):
        return []
    messages: list[bytes] = []
    for raw in read_items(fields["messages"]):
        message = read_fields(raw)
        content = message.get("content")
        if content is None or bytes(memoryview(content)[:1]) != b"[":
            messages.append(bytes(raw))
        elif kept := _kept(content, is_stale=_is_unsigned_block):
            messages.append(write_object({**message, "content": write_array(kept)}))
    fields["messages"] = msgspec.Raw(write_array(messages))
    told = [not_carried("messages.content.thinking", because=BECAUSE)]
    thinking = fields.get("thinking")
    is_budget = thinking is not None and is_object(thinking) and string_of(read_fields(thinking), "type") == "enabled"
    if is_budget and not may_think_by_budget(request.messages):
        fields["thinking"] = msgspec.Raw(b'{"type":"disabled"}')
        told.append(
            not_carried("thinking", because="a turn that began without the provider's thinking goes on without")
        )
    return told


def without_unstored_reasoning(fields: Fields, request: Request) -> list[Repair]:
    """Takes reasoning items that neither carry their content nor are stored out of a body of the Responses API."""
    has_any = any(type(part) is Reasoning for message in request.messages for part in message.parts)
    if not has_any or bytes(fields.get("store", b"")) != b"false":
        return []
    items = read_items(fields["input"])
    kept = _kept(fields["input"], is_stale=_is_bare_reasoning)
    if len(kept) == len(items):
        return []
    fields["input"] = msgspec.Raw(write_array(kept))
    return [not_carried("input.reasoning", because=BECAUSE)]


def _kept(array: msgspec.Raw, *, is_stale: Callable[[Fields], bool]) -> list[bytes]:
    return [bytes(raw) for raw in read_items(array) if not (is_object(raw) and is_stale(read_fields(raw)))]


def _is_unsigned(part: object) -> bool:
    if type(part) is not Reasoning:
        return False
    return _lacks(fields_in(part.opaque, family="anthropic_messages"), ("signature", "data"))


def _is_unsigned_block(block: Fields) -> bool:
    return string_of(block, "type") == "thinking" and not string_of(block, "signature")


def _is_bare_reasoning(item: Fields) -> bool:
    return string_of(item, "type") == "reasoning" and _lacks(item, ("encrypted_content", "content"))


def _lacks(fields: Fields, keys: Iterable[str]) -> bool:
    return all(is_null(fields.get(key)) for key in keys)


TRUE = msgspec.Raw(b"true")
MIN_BUDGET_TOKENS = 1024  # the least thinking budget that Anthropic's API takes
CAPPED_FIELDS = {
    "openai_chat": ("max_completion_tokens", "max_tokens"),
    "openai_responses": ("max_output_tokens",),
    "anthropic_messages": ("max_tokens",),
}

_count = msgspec.json.Decoder(int, strict=False)  # 64-bit integers of Gemini may come as strings, others write 1.0


def edited(asked: ClientRequest, *, terms: RouteTerms, profile: Profile) -> UpstreamRequest:
    """The client's request for an upstream of its own family."""
    request = replace(asked.request, model=terms.model or asked.request.model, lessons=terms.lessons)
    fields = dict(asked.fields)
    told: list[Repair] = []
    plain = PlainTools(request)
    adds_usage = False
    match profile.family:
        case "openai_chat":
            adds_usage = _ask_for_usage(fields, request, profile=profile)
            plain, tools_told = fit_tools(fields, request, profile=profile)
            request, told = plain.request, [*fit_fields(fields, profile=profile), *tools_told]
            told += heal_messages(fields, request, profile=profile.taught(terms.lessons) if terms.lessons else profile)
        case "openai_responses":
            request = _settle_storing(fields, request, asked=asked, profile=profile)
            told += without_unstored_reasoning(fields, request)
            request, tools_told = fit_functions(fields, request)
            told += tools_told
        case "anthropic_messages":
            told += without_unsigned_thinking(fields, request)
        case "gemini":
            pass
    if terms.max_output_tokens is not None:
        request, lowered = _cap(fields, request, most=terms.max_output_tokens, profile=profile)
        told += lowered
    if terms.one_call_at_a_time and request.tools:
        request = _forbid_parallel_calls(fields, request, profile=profile)
    _name_model(fields, request, profile=profile)
    _lay_under(fields, profile)
    told += adapt(fields, request, profile=profile)
    return UpstreamRequest(
        call=replace(_empty_call(request, profile), body=write_object(fields)),
        request=request,
        tools=plain.tools,
        told=tuple(told),
        keeps_bytes=True,
        adds_usage=adds_usage,
    )


def adapt(fields: Fields, request: Request, *, profile: Profile) -> list[Repair]:
    """What the model would refuse goes up in another form, or not at all. Other fields keep their bytes."""
    row = generation_of(request.model, "claude" if profile.family == "anthropic_messages" else "gpt")
    if row is None:
        return []
    before = {key: bytes(raw) for key, raw in fields.items()}
    after = dict(before)
    match profile.family:
        case "anthropic_messages":
            found = [*say_in_words(after, row), *adapt_claude(after, row)]
        case "openai_responses":
            found = adapt_gpt(after, row, is_chat=False)
        case "openai_chat" if profile.reasoning_request in (None, "reasoning_effort"):
            found = adapt_gpt(after, row, is_chat=True)
        case _:
            return []
    for key in [key for key in fields if key not in after]:
        del fields[key]
    fields.update({key: msgspec.Raw(raw) for key, raw in after.items() if raw != before.get(key)})
    return told_adapted(found, client=profile.family)


def _empty_call(request: Request, profile: Profile) -> HttpCall:
    """Path and headers, which the family's own encoder knows."""
    bare = Request(model=request.model, messages=(), stream=request.stream)
    return family(profile.family).encode_request(bare, profile)


def _name_model(fields: Fields, request: Request, *, profile: Profile) -> None:
    if profile.family == "gemini":
        return
    if profile.model_in_body:
        _put(fields, "model", encode(request.model))
    else:
        fields.pop("model", None)


def _put(fields: Fields, key: str, value: bytes) -> None:
    fields[key] = msgspec.Raw(value)


def _lay_under(fields: Fields, profile: Profile) -> None:
    """What the endpoint wants in every body: the client's own word counts more, but a null takes the field away."""
    for key, value in (read_fields(profile.body) if profile.body else {}).items():
        if is_null(value):
            fields.pop(key, None)
        else:
            fields.setdefault(key, value)


# --- one family at a time


def _ask_for_usage(fields: Fields, request: Request, *, profile: Profile) -> bool:
    """Whether the gateway asks for the usage of a stream that the client did not ask for: without it the cost stays
    unknown."""
    if not request.stream or not profile.stream_usage:
        return False
    options = object_at(fields, "stream_options")
    if options.get("include_usage") == TRUE:
        return False
    _put(fields, "stream_options", write_object({**options, "include_usage": TRUE}))
    return True


def _settle_storing(fields: Fields, request: Request, *, asked: ClientRequest, profile: Profile) -> Request:
    """Who says nothing about storing relies on the provider for its reasoning: it comes back encrypted then, so that the client
    can send it again."""
    if not asked.keeps_nothing:
        return request
    if not profile.stateless:  # the endpoint knows neither field, and stores nothing
        fields.pop("store", None)
        return request
    if not wants_encrypted_reasoning(request.model, effort=request.settings.reasoning_effort):
        return request
    included = _items(fields.get("include"))
    wanted = encode(ENCRYPTED_REASONING)
    if wanted in [bytes(item) for item in included]:
        return request
    both = encode([*included, msgspec.Raw(wanted)])
    _put(fields, "include", both)
    return with_extra(request, {**extra_of(request), "include": msgspec.Raw(both)}, family=profile.family)


def _forbid_parallel_calls(fields: Fields, request: Request, *, profile: Profile) -> Request:
    match profile.family:
        case "openai_chat" | "openai_responses" if profile.sends_parallel_tool_calls:
            fields["parallel_tool_calls"] = FALSE
        case "anthropic_messages":
            choice = object_at(fields, "tool_choice") or {"type": msgspec.Raw(b'"auto"')}
            if string_of(choice, "type") == "none":
                return request
            _put(fields, "tool_choice", write_object({**choice, "disable_parallel_tool_use": TRUE}))
        case _:  # the API has no word for it
            pass
    return replace(request, parallel_tool_calls=False)


# --- the cap on output


def _cap(fields: Fields, request: Request, *, most: int, profile: Profile) -> tuple[Request, list[Repair]]:
    """A limit above `most`, or none, becomes `most`."""
    told = (
        _cap_gemini(fields, most=most)
        if profile.family == "gemini"
        else _cap_fields(fields, most=most, profile=profile)
    )
    if profile.family == "anthropic_messages":
        told += _lower_budget(fields, most=most)
    return replace(request, settings=lowered(request.settings, most=most)), told


def lowered(settings: Settings, *, most: int) -> Settings:
    own = settings.max_output_tokens
    return replace(settings, max_output_tokens=most if own is None else min(own, most))


def _cap_fields(fields: Fields, *, most: int, profile: Profile) -> list[Repair]:
    names = [name for name in CAPPED_FIELDS[profile.family] if not is_null(fields.get(name))]
    if not names:
        name = profile.max_tokens_field if profile.family == "openai_chat" else CAPPED_FIELDS[profile.family][0]
        _put(fields, name, encode(most))
        return []
    told: list[Repair] = []
    for name in names:
        if _is_above(fields[name], most):
            _put(fields, name, encode(most))
            told.append(capped(name, most))
    return told


def _cap_gemini(fields: Fields, *, most: int) -> list[Repair]:
    config_name = spelled(fields, "generationConfig")
    config = object_at(fields, config_name)
    name = spelled(config, "maxOutputTokens")
    own = config.get(name)
    if not is_null(own) and own is not None and not _is_above(own, most):
        return []
    config[name] = msgspec.Raw(encode(most))
    _put(fields, config_name, write_object(config))
    return [] if is_null(own) else [capped(f"{config_name}.{name}", most)]


def spelled(fields: Mapping[str, msgspec.Raw], name: str) -> str:
    """The key as the client spells it: ProtoJSON takes camelCase and snake_case. The last counts, as everywhere."""
    return next((key for key in reversed(list(fields)) if camel(key) == name), name)


def _lower_budget(fields: Fields, *, most: int) -> list[Repair]:
    """Anthropic's API refuses a thinking budget that reaches `max_tokens`."""
    thinking = object_at(fields, "thinking")
    budget = thinking.get("budget_tokens")
    if budget is None or not _is_above(budget, most - 1):
        return []
    if most > MIN_BUDGET_TOKENS:
        thinking["budget_tokens"] = msgspec.Raw(encode(most - 1))
        _put(fields, "thinking", write_object(thinking))
    else:
        _put(fields, "thinking", b'{"type":"disabled"}')
    return [capped("thinking.budget_tokens", most)]


def _is_above(raw: msgspec.Raw, most: int) -> bool:
    """What is no whole number is left to the upstream to refuse. Some servers take -1 for no limit at all."""
    try:
        return not 0 <= _count.decode(raw) <= most
    except UNREADABLE:
        return False


# --- fields


def _items(raw: msgspec.Raw | None) -> list[msgspec.Raw]:
    try:
        return [] if is_null(raw) or raw is None else read_items(raw)
    except UNREADABLE:
        return []


def extra_of(request: Request) -> Fields:
    """The body fields that have no word in the vocabulary."""
    return {} if request.extra is None else read_fields(request.extra.json)


def with_extra(request: Request, fields: Mapping[str, msgspec.Raw], *, family: str) -> Request:
    return replace(request, extra=Opaque(family, write_object(fields).decode()) if fields else None)


# The request for the rest of a cut answer: the body as it was sent, with what going on needs changed in it; and what a
# cut answer is, if nothing continues it.


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
