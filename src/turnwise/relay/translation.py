"""A client's request as the upstream reads it: the same body where both speak one family, else by way of the shared vocabulary.

Nothing is dropped in silence. What the upstream's family cannot carry is refused if the answer would be another one without it,
else it is told by name (`UpstreamRequest.told`).
"""

from collections import Counter
from collections.abc import Iterator, Mapping

import msgspec
from msgspec.structs import replace

from turnwise.relay.client_request import ClientRequest, RequestRefused
from turnwise.relay.client_tools import callable_tools, fit_names
from turnwise.relay.dialects import (
    fit_beginning,
    fit_calls,
    fit_output,
    fit_settings,
    fit_tool,
    left_out,
    reshaped,
    with_user,
)
from turnwise.relay.edits import edited, lowered
from turnwise.relay.stops import serve_stops
from turnwise.relay.terms import RouteTerms, UpstreamRequest, told_adapted
from turnwise.vocab import (
    ArgumentsState,
    Caching,
    File,
    Message,
    Opaque,
    Part,
    ProviderItem,
    Reasoning,
    Refusal,
    Repair,
    Request,
    Settings,
    Text,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from turnwise.wire.family import family
from turnwise.wire.files import takes_file
from turnwise.wire.gemini.parts import is_own_file
from turnwise.wire.json_fields import (
    UNREADABLE,
    Fields,
    compact_text,
    encode,
    extra_of,
    fields_in,
    is_null,
    is_object,
    read_fields,
    read_items,
    string_of,
)
from turnwise.wire.offers import fitted_tool
from turnwise.wire.profiles import FamilyName, Profile
from turnwise.wire.relay_facts import TOLD, RelayFacts, capped, not_carried, relay_facts

# --- fields of the body that have no word in the shared vocabulary: `rules` in each family's `relay_facts.py`
#
# A field that stands in no table is told and left out: a field that came later than this code must neither stop a client nor
# vanish in silence.

NOTHING_SAID = frozenset({"null", "false", "[]", "{}", '""'})
"""Values that ask for nothing, in any field; but an empty object may switch a tool on (`web_search_options`)."""


def carry_extra(request: Request, *, source: FamilyName, target: FamilyName) -> tuple[Opaque | None, list[Repair]]:
    """The further fields of a body as `target` says them, and what it cannot say. Raises RequestRefused."""
    own, other = relay_facts(source), relay_facts(target)
    carried: dict[str, object] = {}
    told: list[Repair] = []
    fields = extra_of(request)
    for name, raw in walk(fields, parents=own.parents):
        rule = own.rules.get(name, TOLD)
        text = compact_text(raw)
        place = other.takes.get(rule.means)
        if rule.ours or text in rule.harmless or (text in NOTHING_SAID and not (rule.refuses and text == "{}")):
            continue
        if _is_json_mode(name, raw, source=own):
            place, raw = _json_mode(name, target=other)
        elif request.output is not None and name in ("response_format", "text.format"):
            rule = TOLD  # the schema itself goes; what else stands beside it (`description`) does not
        elif name == "include":
            _refuse_logprobs(raw)
        if place is not None:
            _put_at(carried, place, raw)
        elif rule.refuses:
            raise RequestRefused(f"`{name}` cannot be carried to {other.title}, which serves this model", field=name)
        else:
            told.append(not_carried(name, because=f"{other.title} does not have it"))
    return (Opaque(target, encode(carried).decode()) if carried else None), told


def walk(fields: Fields, *, parents: frozenset[str], above: str = "") -> Iterator[tuple[str, msgspec.Raw]]:
    """The fields by dotted names; the objects named by `parents` are taken apart."""
    for key, raw in fields.items():
        name = above + key
        if name in parents and is_object(raw):
            yield from walk(read_fields(raw), parents=parents, above=f"{name}.")
        else:
            yield name, raw


def _put_at(fields: dict[str, object], place: str, raw: msgspec.Raw) -> None:
    parent, _, key = place.rpartition(".")
    below = fields.setdefault(parent, {}) if parent else fields
    assert isinstance(below, dict)
    below[key] = raw


def _is_json_mode(name: str, raw: msgspec.Raw, *, source: RelayFacts) -> bool:
    place, value = source.json_mode or ("", b"")
    if name != place:
        return False
    if not is_object(raw):
        return bytes(raw) == value
    return string_of(read_fields(raw), "type") == "json_object"


def _json_mode(name: str, *, target: RelayFacts) -> tuple[str, msgspec.Raw]:
    if target.json_mode is None:
        raise RequestRefused(
            f"`{name}` asks for JSON without a schema, which {target.title} does not have: give a schema", field=name
        )
    place, value = target.json_mode
    return place, msgspec.Raw(value)


def _refuse_logprobs(raw: msgspec.Raw) -> None:
    try:
        words = msgspec.json.decode(raw, type=list[str])
    except UNREADABLE:
        return
    if "message.output_text.logprobs" in words:
        raise RequestRefused("`include` asks for `logprobs`, which cannot be carried", field="include")


# --- tools and history: what the other family's encoder leaves out, found and told by name
#
# What belongs to the family that made it (signatures, encrypted reasoning, items of server-side tools) stays behind. What a
# person or a tool said is never left out: where the other family has no form for it, the request is refused.

INNER = frozenset({"message", "content_part", "function", "custom", "functionDeclaration"})
"""Keys of opaque data under which the fields of the message, of the content part or of the function stand."""

WHOLE = frozenset({"content", "parts"})
"""Keys of a result's opaque data that hold all of its content, because there is more in it than texts and files."""

MISPLACED: dict[str, tuple[type, ...]] = {
    "user": (ToolCall, Reasoning, Refusal),
    "system": (ToolCall, ToolResult, Reasoning, Refusal),
    "assistant": (ToolResult,),
}
"""Parts that no API takes in a message of that role; the encoders pass over them."""

NAMED: dict[type, str] = {
    ToolCall: "a call",
    ToolResult: "a result",
    Reasoning: "reasoning",
    Refusal: "a refusal",
}

CACHE_MARK = "cache_control"


class Crossing:
    """One request on its way from `source` to the family of `profile`. What is left out is counted by name."""

    def __init__(self, request: Request, *, source: FamilyName, profile: Profile) -> None:
        self._request = request
        self._family = source
        self._source = relay_facts(source)
        self._profile = profile
        self._target = relay_facts(profile.family)
        self._left_out: Counter[tuple[str, str]] = Counter()
        self.cache_marks: list[msgspec.Raw] = []  # as the client wrote them

    def tools(self) -> tuple[ToolSpec, ...]:
        """The tools without what belongs to their family. Raises RequestRefused for one that runs on the provider's server."""
        return tuple([self._tool(tool) for tool in self._request.tools])

    def read_history(self) -> None:
        """Raises RequestRefused for what a person or a tool said and the target has no form for."""
        history = self._source.history
        for text in self._request.system:
            self._part(text, where=self._source.system, role="system")
        messages = self._request.messages
        for message in messages:
            self._message(message, where=history)
        if messages and messages[-1].role == "assistant" and not self._profile.accepts_prefill:
            self._leave_out(f"{history}[-1]", "the upstream may not go on with a message of the assistant")

    def read_bare_messages(self, fields: Fields) -> None:
        """Fields of a message that says nothing else: the vocabulary has no part that could hold them. Raises RequestRefused for
        one that stands for an answer that was spoken."""
        if not self._source.saying or all(message.parts for message in self._request.messages):
            return
        for raw in read_items(fields[self._source.history]):
            own = {key: value for key, value in read_fields(raw).items() if key != "role" and _is_said(value)}
            if own.keys() & self._source.saying:
                continue
            if "audio" in own:
                self._refuse("messages.audio", because="the answer that it names is stored at its provider")
            for key in own:
                self._leave_out(f"messages.{key}")

    def told(self) -> list[Repair]:
        return [
            not_carried(field, because=because if count == 1 else f"{because} ({count} times)")
            for (field, because), count in self._left_out.items()
        ]

    def _leave_out(self, field: str, because: str = "") -> None:
        self._left_out[field, because or f"{self._target.title} does not have it"] += 1

    def _refuse(self, field: str, *, because: str) -> None:
        raise RequestRefused(f"`{field}` cannot be carried to {self._target.title}: {because}", field=field)

    # --- tools

    def _tool(self, tool: ToolSpec) -> ToolSpec:
        if self._source.is_served(fields_in(tool.opaque, family=self._family)):
            self._refuse(
                "tools",
                because=f"`{tool.name}` runs at the provider that defines it; switch it off in the client",
            )
        self._take_fields(tool.opaque, where="tools")
        tool, is_loosened = fit_tool(tool, source=self._source, target=self._target)
        if is_loosened:
            self._leave_out("tools.strict", "strict mode wants each property required and no others allowed")
        if tool.strict and not (self._target.strict_tools and self._profile.strict_tools):
            self._leave_out("tools.strict")
        return replace(tool, opaque=None)

    # --- messages

    def _message(self, message: Message, *, where: str) -> None:
        if message.role == "system" and not self._target.keeps_system(self._profile):
            self._leave_out(f"{where}.role", "a system message in mid-conversation goes as the user's")
        for part in message.parts:
            self._part(part, where=where, role=message.role)

    def _part(self, part: Part, *, where: str, role: str) -> None:
        if type(part) in MISPLACED.get(role, ()):
            self._refuse(where, because=f"a message of the {role} cannot hold {NAMED[type(part)]}")
        match part:
            case Text(citations=citations):
                self._take_fields(part.opaque, where=where)
                if citations:
                    self._leave_out(f"{where}.citations", "citations belong to the provider that made them")
            case Refusal():
                self._take_fields(part.opaque, where=where)
            case Reasoning():
                self._reasoning(part, where=where)
            case File():
                self._file(part, where=where, role=role)
            case ToolCall():
                self._call(part, where=where)
            case ToolResult():
                self._result(part, where=where)
            case ProviderItem():
                self._item(part, where=where, role=role)

    def _reasoning(self, part: Reasoning, *, where: str) -> None:
        if not (self._replays and part.text):
            self._leave_out(f"{where}.reasoning", "reasoning goes back to the family that had it alone")
        elif part.opaque is not None:
            self._leave_out(f"{where}.reasoning", "its text goes, and what its family signed does not")

    @property
    def _replays(self) -> bool:
        """Whether the endpoint wants the text of reasoning back, which is its own then: DeepSeek and others refuse the results of
        a turn without it."""
        return self._target.has_dialects and self._profile.reasoning_replay is not None

    def without_reasoning(self, request: Request) -> Request:
        """The request without what another family's model thought and what its provider's tools did, and without messages that
        held nothing else."""
        left_out = (ProviderItem,) if self._replays else (Reasoning, ProviderItem)
        if not any(isinstance(part, left_out) for one in request.messages for part in one.parts):
            return request
        kept: list[Message] = []
        for message in request.messages:
            parts = tuple([part for part in message.parts if not isinstance(part, left_out)])
            if parts or not message.parts:
                kept.append(Message(message.role, parts))
        return replace(request, messages=tuple(kept))

    def _file(self, file: File, *, where: str, role: str) -> None:
        self._take_fields(file.opaque, where=where)
        if file.file_id is not None:
            self._refuse(f"{where}.file", because="the file id is another provider's: send the file itself")
        # With the gateway's key, Google opens a file of anybody by its address.
        if file.url is not None and (
            not file.url.startswith(("https://", "http://", "data:")) or is_own_file(file.url)
        ):
            self._refuse(f"{where}.file", because="the file's address is another provider's: send the file itself")
        if role == "assistant" and not self._target.assistant_files:
            self._leave_out(f"{where}.file", "the API takes no files from an assistant")
        elif not takes_file(file, self._profile) or (
            file.media_type.startswith(("audio/", "video/")) and not self._target.hears
        ):
            self._leave_out(f"{where}.file", "the upstream takes no such files; a line of text stands in its place")
        elif file.name is not None and not self._names(file):
            self._leave_out(f"{where}.file.name")

    def _names(self, file: File) -> bool:
        """Whether the file's name goes along: of a document that comes itself."""
        named = self._target.file_names
        if named == "never" or file.media_type.startswith(("image/", "audio/", "video/")):
            return False
        return named == "always" or file.data is not None or self._profile.document_part != "file"

    def _call(self, call: ToolCall, *, where: str) -> None:
        self._take_fields(call.opaque, where=where)
        if call.state is not ArgumentsState.COMPLETE or not (call.free_form or _is_object(call.arguments)):
            because = "arguments that are no JSON object go as `{}`"
            if self._target.object_arguments or call.state is not ArgumentsState.COMPLETE:
                self._leave_out(f"{where}.arguments", because)

    def _result(self, result: ToolResult, *, where: str) -> None:
        own = fields_in(result.opaque, family=self._family)
        if any(key in WHOLE for key in own):
            self._refuse(f"{where}.tool_result", because="it holds more than texts and files")
        self._take_fields(result.opaque, where=where)
        for part in result.content:
            self._part(part, where=where, role="tool")
        if result.is_error and not self._says_error(result):
            self._leave_out(f"{where}.is_error", "the text alone says what failed")

    def _says_error(self, result: ToolResult) -> bool:
        says = self._target.error_results
        words = [isinstance(part, Text) and bool(part.text.strip()) for part in result.content]
        return says == "always" or (says == "texts" and bool(words) and all(words))

    def _item(self, item: ProviderItem, *, where: str, role: str) -> None:
        if item.kind in self._source.sealed:
            self._refuse(f"{where}.{item.kind}", because="what it stands for can be read by its provider alone")
        if role != "assistant" or item.kind == "item_reference":
            self._refuse(f"{where}.{item.kind}", because="it has no such content")
        self._leave_out(f"{where}.{item.kind}", "it belongs to the provider that made it")

    # --- fields without a word of ours

    def _take_fields(self, opaque: Opaque | None, *, where: str) -> None:
        for key, raw in self._own(opaque):
            if key == CACHE_MARK:
                self.cache_marks.append(raw)
            else:
                self._leave_out(f"{where}.{key}")

    def _own(self, opaque: Opaque | None) -> Iterator[tuple[str, msgspec.Raw]]:
        for key, raw in fields_in(opaque, family=self._family).items():
            if key in INNER and is_object(raw):
                yield from [(below, value) for below, value in read_fields(raw).items() if _is_said(value)]
            elif key not in self._source.silent and _is_said(raw):
                yield key, raw


def _is_said(raw: msgspec.Raw) -> bool:
    return len(memoryview(raw)) > 5 or bytes(raw).decode() not in NOTHING_SAID


def _is_object(text: str) -> bool:
    try:
        read_fields(text)
    except UNREADABLE:
        return False
    return True


def hours(marks: list[msgspec.Raw]) -> bool:
    """Whether one of the client's cache marks asks for an hour."""
    return any(is_object(mark) and string_of(read_fields(mark), "ttl") == "1h" for mark in marks)


def translate(asked: ClientRequest, *, terms: RouteTerms, profile: Profile) -> UpstreamRequest:
    """The request as it goes to the endpoint of `profile`. Raises RequestRefused, and nothing else."""
    learned = profile.taught(terms.lessons) if terms.lessons else profile
    served = serve_stops(asked, model=terms.model or asked.request.model, profile=learned)
    way = edited if asked.asked.family == profile.family else _crossed
    found = way(served.asked, terms=terms, profile=profile)
    return replace(found, stops=served.sequences, told=(*found.told, *served.told)) if served.told else found


def _crossed(asked: ClientRequest, *, terms: RouteTerms, profile: Profile) -> UpstreamRequest:
    """The request for an endpoint of another family."""
    source, target = asked.asked.family, profile.family
    own, other = relay_facts(source), relay_facts(target)
    request = own.in_words(asked.request)
    plain = own.plain_tools(request)
    request = plain.request
    model = terms.model or request.model
    extra, told = carry_extra(request, source=source, target=target)
    request, begun_told = fit_beginning(request, field=own.history, target=target)
    crossing = Crossing(request, source=source, profile=profile)
    tools = crossing.tools()
    crossing.read_history()
    crossing.read_bare_messages(asked.fields)
    told += begun_told + crossing.told()
    cache = _caching(request, crossing)
    if cache is not None and profile.cache_way(model) == "unasked":
        field = "prompt_cache_key" if cache.key else "cache_control"
        told.append(not_carried(field, because="the upstream keeps prompts unasked, or not at all"))
        cache = None
    names = own.setting_names
    settings, settings_told = fit_settings(request.settings, names=names, target=target)
    output, output_told = fit_output(request.output, field=names["output"], target=target)
    if (most := terms.max_output_tokens) is not None and (request.settings.max_output_tokens or 0) > most:
        settings_told.append(capped(names["limit"], most))
    wanted = fit_calls(
        replace(
            crossing.without_reasoning(request),
            model=model,
            lessons=terms.lessons,
            tools=tools,
            parallel_tool_calls=False if terms.one_call_at_a_time and tools else request.parallel_tool_calls,
            output=output,
            settings=_capped(settings, terms=terms, profile=profile),
            extra=extra,
            cache=cache,
            # Nothing tells how a conversation began. No reasoning of the upstream's comes back from another family's client, so
            # a conversation from before this loses none.
            system_in_input=profile.leads_input(model),
        ),
        target=target,
    )
    wanted, uncallable = callable_tools(wanted)
    told += [left_out(name) for name in uncallable]
    fitted = fit_names(replace(plain, request=wanted), profile=profile)
    wanted = fitted.request
    if other.has_dialects:
        told += reshaped(wanted, profile.taught(terms.lessons) if terms.lessons else profile)
        wanted = with_user(wanted, profile)
    call = family(target).encode_request(wanted, profile)
    dialect = other.tool_schemas or profile.tool_schemas
    lost = {tool.name: found.lost for tool in wanted.tools if (found := fitted_tool(tool, dialect)).lost}
    told += [
        not_carried("tools.parameters", because=f"{other.title} takes no {what}")
        for what in dict.fromkeys(lost.values())
    ]
    told += settings_told + output_told
    told += told_adapted(
        [one for one in call.adapted if one.setting != "prefill"], client=source
    )  # told with the history
    named = {one.where for one in told}
    unsaid = _unsaid(wanted, asked=request, body=read_fields(call.body), names=names, target=other)
    told += [one for one in unsaid if one.where not in named]
    return UpstreamRequest(call=call, request=wanted, told=tuple(told), tools=fitted.tools)


def _capped(settings: Settings, *, terms: RouteTerms, profile: Profile) -> Settings:
    if terms.max_output_tokens is None:
        return settings
    if settings.max_output_tokens is None and (usual := profile.sent_max_tokens) is not None:
        settings = replace(settings, max_output_tokens=usual)
    return lowered(settings, most=terms.max_output_tokens)


def _caching(request: Request, crossing: Crossing) -> Caching | None:
    """The client's wish that the provider keeps the prompt: its marks, or its key."""
    extra = extra_of(request)
    marks = list(crossing.cache_marks)
    if not is_null(extra.get("cache_control")):
        marks.append(extra["cache_control"])
    key = string_of(extra, "prompt_cache_key") or ""
    lasting = string_of(extra, "prompt_cache_retention") == "24h"
    if not marks and not key and is_null(extra.get("prompt_cache_retention")):
        return None
    return Caching(hour=lasting or hours(marks), key=key)


def _unsaid(
    wanted: Request, *, asked: Request, body: Fields, names: Mapping[str, str], target: RelayFacts
) -> list[Repair]:
    """The settings that the encoded body does not have, though the client said them."""
    told: list[Repair] = []
    for setting in _said(wanted, asked=asked, has_tools="tools" in body):
        if not any(_stands(body, place) for place in target.places.get(setting, ())):
            because = f"{target.title}, or this endpoint of it, does not take it here"
            if setting == "output":
                because = "the endpoint takes no schema, the model is told in words"
            told.append(not_carried(names[setting], because=because))
    return told


def _said(request: Request, *, asked: Request, has_tools: bool) -> list[str]:
    settings = request.settings
    forbids_by_leaving_out = request.tool_choice == "none" and bool(request.tools) and not has_tools
    thinks = settings.reasoning_tokens is not None or settings.reasoning_effort not in (None, "none")
    said = {
        "temperature": settings.temperature is not None,
        "top_p": settings.top_p is not None,
        "stop": bool(settings.stop),
        "seed": settings.seed is not None,
        "reasoning": thinks,
        "tool_choice": request.tool_choice != "auto" and not forbids_by_leaving_out,
        "parallel": asked.parallel_tool_calls is False,
        "output": request.output is not None,
    }
    return [name for name, is_said in said.items() if is_said]


def _stands(fields: Fields, place: str) -> bool:
    key, _, below = place.partition(".")
    raw = fields.get(key)
    if raw is None or is_null(raw):
        return False
    return not below or (is_object(raw) and _stands(read_fields(raw), below))
