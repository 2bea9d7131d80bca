"""The client's own body, changed only where the gateway has to: each other field goes up with the very bytes of its value."""

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from turnwise.relay.client_request import ClientRequest
from turnwise.relay.client_tools import PlainTools
from turnwise.relay.dialects import fit_fields, fit_functions, fit_tools, heal_messages
from turnwise.relay.stale_reasoning import without_unsigned_thinking, without_unstored_reasoning
from turnwise.relay.terms import RouteTerms, UpstreamRequest, capped, told_adapted
from turnwise.vocab import Opaque, Repair, Request, Settings
from turnwise.wire.family import HttpCall
from turnwise.wire.gemini.fields import camel
from turnwise.wire.generations import adapt_claude, adapt_gpt, generation_of, say_in_words
from turnwise.wire.json_fields import (
    UNREADABLE,
    Fields,
    encode,
    is_null,
    object_at,
    read_fields,
    read_items,
    string_of,
    write_object,
)
from turnwise.wire.openai_responses.request import ENCRYPTED_REASONING, wants_encrypted_reasoning
from turnwise.wire.profiles import Profile
from turnwise.wire.registry import family
from turnwise.wire.relay_facts import FALSE

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
