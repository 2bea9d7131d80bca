"""Histories from the vendors' own messages, and back: the JSON of four APIs on one side, `Message` on the other."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast, get_args

import msgspec

from turnwise.agent.run_input import Instructions, check_history
from turnwise.base.exact_json import NotExact, exact_json
from turnwise.errors import CallerError
from turnwise.relay.client_request import GEMINI_PATHS
from turnwise.relay.translation import INNER
from turnwise.rules.history import heal
from turnwise.vocab import (
    ArgumentsState,
    File,
    Message,
    Opaque,
    Part,
    ProviderItem,
    Reasoning,
    Refusal,
    Repair,
    Request,
    Text,
    ToolCall,
    ToolResult,
)
from turnwise.wire.family import MODULES, USUAL, BadRequest
from turnwise.wire.family import family as family_named
from turnwise.wire.json_fields import UNREADABLE, is_object, read_fields
from turnwise.wire.profiles import FamilyName, builtin_profiles
from turnwise.wire.relay_facts import NOT_CARRIED, relay_facts

# Which vendor's API a list of messages was written for, told from the messages alone.


FAMILIES: tuple[FamilyName, ...] = get_args(FamilyName)


def family_of(messages: Sequence[object]) -> FamilyName:
    """The family of messages that only one API takes. Messages of plain texts read alike in three of them: the usual one.

    Raises CallerError where the messages look like more than one, or may be of several that read them otherwise.
    """
    seen: dict[FamilyName, int] = {}  # with the first message that looks like it
    for place, message in enumerate(messages):
        if (found := _family_of(_said(message))) is not None:
            seen.setdefault(found, place)
    if len(seen) > 1:
        said = " and ".join([f"`messages[{place}]` like `{family}`" for family, place in seen.items()])
        raise CallerError(f"the messages mix APIs: {said}. Say which it is with `family=`")
    for family in seen:
        return family
    _check_all_alike(messages)
    return USUAL


def _check_all_alike(messages: Sequence[object]) -> None:
    """Raise CallerError for a field beside plain texts: it belongs to one API, and the messages do not tell to which."""
    for place, message in enumerate(messages):
        fields = _said(message)
        content = fields.pop("content", None)
        blocks = cast("list[object]", content) if isinstance(content, list) else []
        beside = [key for key in fields if key != "role"]
        beside += [key for block in blocks for key in _said(block) if key not in ("type", "text")]
        if beside:
            raise CallerError(
                f"`messages[{place}]` has `{beside[0]}`, and nothing tells which API the messages are for: say it with `family=`"
            )


def _said(value: object) -> dict[str, object]:
    if not isinstance(value, Mapping):
        return {}
    fields = cast("Mapping[str, object]", value)
    return {key: field for key, field in fields.items() if field not in (None, [], {})}


def _family_of(message: Mapping[str, object]) -> FamilyName | None:
    for name in reversed(FAMILIES):  # what came later has the plainer marks
        if relay_facts(name).own_message(message):
            return name
    content = message.get("content")
    blocks = cast("list[object]", content) if isinstance(content, list) else []
    return next((found for block in blocks if (found := _family_of_block(_said(block))) is not None), None)


def _family_of_block(fields: Mapping[str, object]) -> FamilyName | None:
    word = fields.get("type")
    for name in FAMILIES:
        facts = relay_facts(name)
        if (isinstance(word, str) and word in facts.own_blocks) or facts.own_block(fields):
            return name
    return None


# What of a history is not the same in another API's messages, found by reading them again and told by name.


Fact = tuple[str, str]
"""Something that a history holds: what became of it where it is missing, in words, and its value."""

TEXT, THOUGHT = "text is left out", "reasoning is left out"
_JOINED = frozenset({TEXT, THOUGHT})  # an API may join the pieces of these: they are looked for in all of its text


def losses_between(given: Sequence[Message], kept: Sequence[Message], *, of: Sequence[Message]) -> tuple[Repair, ...]:
    """What `given` holds and `kept` does not: each kind once, with its first message and how often it was lost. The places are
    those in `of`, from which `given` was made.

    Order, the bounds between neighbouring texts and messages, and white space do not count.
    """
    numbers = _places(given, of=of)
    there = Counter([fact for message in kept for fact in _facts(message)])
    joined = {word: _squeezed([value for kind, value in there if kind == word]) for word in _JOINED}
    lost: Counter[str] = Counter()
    places: dict[str, int] = {}
    for place, message in zip(numbers, given, strict=True):
        for fact in _facts(message):
            if there[fact] > 0:
                there[fact] -= 1
            elif fact[0] not in _JOINED or _squeezed([fact[1]]) not in joined[fact[0]]:
                lost[fact[0]] += 1
                places.setdefault(fact[0], place)
    return tuple([not_kept(word, place=f"messages[{places[word]}]", times=times) for word, times in lost.items()])


def _places(given: Sequence[Message], *, of: Sequence[Message]) -> list[int]:
    """Where each message stood before some were changed, added or left out."""
    places: list[int] = []
    there, last = {id(message): place for place, message in enumerate(of)}, -1
    for message in given:
        last = there.get(id(message), min(last + 1, len(of) - 1))
        places.append(last)
    return places


def field_losses(opaque: Opaque | None, *, place: str) -> list[Repair]:
    """The fields of a text that goes on as a plain string."""
    return [not_kept(word, place=place) for word, _ in _fields(opaque)]


def not_kept(word: str, *, place: str, times: int = 1) -> Repair:
    return Repair(NOT_CARRIED, f"`{place}`", word if times == 1 else f"{word} ({times} times)")


def _squeezed(texts: Sequence[str]) -> str:
    return "".join(["".join(text.split()) for text in texts])


def _facts(message: Message) -> Iterator[Fact]:
    for part in message.parts:
        if message.role == "system" and isinstance(part, Text):
            yield "a system message in mid-conversation goes as the user's", part.text
        yield from _facts_of(part)


def _facts_of(part: Part) -> Iterator[Fact]:
    match part:
        case Text(text=text, citations=citations, opaque=opaque):
            yield from [(TEXT, _shortened_line(text))] if text.strip() else []
            yield from [("citations are left out", citation.raw) for citation in citations]
            yield from _fields(opaque)
        case Reasoning(text=text, opaque=opaque):
            if text.strip():
                yield THOUGHT, text
            elif opaque is not None:
                yield "reasoning without a text is left out", _shortened_line(opaque.json)
            yield from _fields(opaque)
        case Refusal(text=text, opaque=opaque):
            yield "a refusal goes as plain text", text
            yield from _fields(opaque)
        case File():
            yield from _file(part)
        case ToolCall():
            yield from _call(part)
        case ToolResult(content=content, is_error=is_error, opaque=opaque):
            yield "a result is left out", ""
            if is_error:
                yield "only its text says that a result is an error", ""
            for inner in content:
                yield from _facts_of(inner)
            yield from _fields(opaque)
        case ProviderItem(family=family, kind=kind, json=json):
            yield f"`{kind}`, an item of `{family}`, is left out", _shortened_line(json)


def _file(file: File) -> Iterator[Fact]:
    value = (file.data or b"").hex() or file.url or file.file_id or ""
    yield "a file is left out, or a line of text stands in its place", value
    if file.name is not None:
        yield "the name of a file is left out", file.name
    yield from _fields(file.opaque)


def _call(call: ToolCall) -> Iterator[Fact]:
    yield "a call is left out", call.name
    yield "the id of a call is written otherwise", call.id
    if call.state is not ArgumentsState.COMPLETE:
        yield "arguments that are not complete go as `{}`", call.arguments
    elif call.free_form:
        yield "a free-form call goes as JSON, with its text in `input`", call.arguments
    else:
        yield "arguments that are no JSON object are written otherwise", _shortened_line(call.arguments)
    yield from _fields(call.opaque)


def _fields(opaque: Opaque | None) -> Iterator[Fact]:
    if opaque is None:
        return
    try:
        fields = read_fields(opaque.json)
    except UNREADABLE:
        fields = {"opaque": msgspec.Raw(opaque.json.encode())}
    silent = relay_facts(opaque.family).silent if opaque.family in MODULES else frozenset[str]()
    for key, raw in fields.items():
        inner = read_fields(raw) if key in INNER and is_object(raw) else {key: raw}
        for name, value in inner.items():
            if name not in silent:
                yield (
                    f"`{name}`, which only `{opaque.family}` reads, is left out",
                    _shortened_line(bytes(value).decode()),
                )


def _shortened_line(text: str) -> str:
    """JSON in one way of writing; any other text as it is."""
    if text[:1] not in ("{", "["):
        return text
    try:
        return msgspec.json.encode(msgspec.json.decode(text), order="sorted").decode()
    except UNREADABLE:
        return text


_MODEL = "model"  # a body has to name one; it says nothing here


class ImportedHistory(msgspec.Struct, frozen=True, kw_only=True):
    """A history that `messages_from` has read.

    - `messages` are for `history=` of a run.
    - `instructions` are for `Agent(instructions=...)`. They stood before the first message or beside the messages.
    - `losses` say what is in neither; `where` is the place of the message in the list that was read.
    """

    family: FamilyName
    messages: tuple[Message, ...]
    instructions: tuple[str, ...] = ()
    losses: tuple[Repair, ...] = ()


class ExportedHistory(msgspec.Struct, frozen=True, kw_only=True):
    """A history that `messages_to` has written: plain JSON values, as the vendor's SDK takes them.

    - `messages` are for the SDK's `messages` (`openai_chat`, `anthropic_messages`), `input` (`openai_responses`) or
      `contents` (`gemini`).
    - `instructions` are for its `system`, `instructions` or `system_instruction`. None: there are none, or they are the
      first messages (`openai_chat`).
    - `losses` say what is missing; `where` is the place of the `Message`.
    """

    family: FamilyName
    messages: list[Any]  # each SDK has its own types of messages
    instructions: Any = None
    losses: tuple[Repair, ...] = ()


def messages_from(
    messages: Sequence[object], *, family: FamilyName | None = None, instructions: object = None
) -> ImportedHistory:
    """Read a history that was written for a vendor's SDK or API.

    - `messages` are dicts, or the SDK's own objects: `messages` of Chat Completions and Anthropic, `input` of the
      Responses API, `contents` of Gemini.
    - `instructions` is what stood beside them (`system`, `instructions`, `system_instruction`).
    - `family` is needed only if the messages look like more than one API's.

    Data of that API alone (signatures, its own tools) is kept and goes back to that API only; `messages_to` reports
    what another API would not get. Raises CallerError that names the first unreadable message.
    """
    plain = _plain_list(messages)
    found = family_of(plain) if family is None else _checked_family(family)
    beside = None if instructions is None else _plain(instructions, what="`instructions`")
    try:
        request = _read(plain, family=found, instructions=beside)
    except BadRequest as error:
        raise _unreadable(plain, family=found, instructions=beside, error=error, guessed=family is None) from None
    return ImportedHistory(
        family=found,
        messages=request.messages,
        instructions=tuple([text.text for text in request.system]),
        losses=_losses_of_reading(plain, request=request, family=found),
    )


def messages_to(
    messages: Sequence[Message], *, family: FamilyName, instructions: str | Sequence[str] = ()
) -> ExportedHistory:
    """Write a history (`RunResult.history`) as messages of a vendor's SDK or API, and report what they cannot hold.

    The messages are those that a run would send. A call without a result gets a result that says so, and `losses` lists
    it. Raises CallerError for a value that is no `Message`, and for an unknown family.
    """
    name = _checked_family(family)
    check_history(messages, what="`messages`")
    system = Instructions(instructions).texts
    healed = heal(messages, family=name, traits=family_named(name).traits)
    request = Request(model=_MODEL, messages=healed.messages, system=system, stream=False)
    call = family_named(name).encode_request(request, builtin_profiles()[name])
    body = cast("dict[str, Any]", msgspec.json.decode(call.body))
    again = family_named(name).decode_request(call.body, call.path)
    # A system message at the beginning is read as one of the instructions.
    leading = tuple([Message("system", (text,)) for text in again.system[len(system) :]])
    lost = losses_between(healed.messages, (*leading, *again.messages), of=messages)
    return ExportedHistory(
        family=name,
        messages=body[relay_facts(name).history],
        instructions=body.get(relay_facts(name).beside),
        losses=(*healed.repairs, *lost),
    )


def _checked_family(name: str) -> FamilyName:
    if name not in FAMILIES:
        raise CallerError(f"`family` must be {', '.join(FAMILIES[:-1])} or {FAMILIES[-1]}, not {name!r:.60}")
    return name


def _plain_list(messages: object) -> list[object]:
    if isinstance(messages, Mapping):
        raise CallerError("`messages` is one object: give the list of messages in it, and `instructions=` beside it")
    if isinstance(messages, str | bytes) or not isinstance(messages, Sequence):
        raise CallerError(f"`messages` must be a list of messages, not {type(messages).__name__}")
    for place, message in enumerate(cast("Sequence[object]", messages)):
        if isinstance(message, Message):
            raise CallerError(f"`messages[{place}]` is a `Message` already: give the list as `history=`")
    return cast("list[object]", _plain(list(cast("Sequence[object]", messages)), what="`messages`"))


def _plain(value: object, *, what: str) -> object:
    """It as JSON has it, with the SDKs' objects as dicts and bytes as base64."""
    try:
        plain = msgspec.to_builtins(value, enc_hook=_dumped)
        return msgspec.json.decode(exact_json(plain))
    except (NotExact, TypeError, ValueError, RecursionError) as error:
        raise CallerError(f"{what} holds what JSON cannot carry: {error}") from None


def _dumped(value: object) -> object:
    """An object of an SDK (they are pydantic models), as the API has it."""
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError(f"a {type(value).__name__}")
    return dump(by_alias=True, exclude_none=True)


def _read(messages: list[object], *, family: FamilyName, instructions: object) -> Request:
    """Raises BadRequest."""
    _check_words(messages, family=family)
    facts = relay_facts(family)
    body: dict[str, object] = {facts.history: messages}
    if not facts.model_in_path:
        body |= {"model": _MODEL, "max_tokens": 1}
    if instructions is None:
        return family_named(family).decode_request(msgspec.json.encode(body), GEMINI_PATHS[False])
    if not facts.beside:
        leading = _read([{"role": "system", "content": instructions}], family=family, instructions=None)
        request = _read(messages, family=family, instructions=None)
        return msgspec.structs.replace(request, system=(*leading.system, *request.system))
    body[facts.beside] = facts.as_beside(instructions)
    return family_named(family).decode_request(msgspec.json.encode(body), GEMINI_PATHS[False])


def _check_words(messages: list[object], *, family: FamilyName) -> None:
    """Raise BadRequest for another API's message that the reader would take, and then make no calls or no texts of it."""
    facts = relay_facts(family)
    others = {word: name for name in FAMILIES if name != family for word in relay_facts(name).call_blocks}
    for place, message in enumerate(messages):
        if not isinstance(message, dict):
            continue
        fields = cast("dict[str, object]", message)
        if why := facts.why_foreign(fields):
            raise BadRequest(f"`{facts.history}[{place}]` {why}")
        content = fields.get("content")
        for block in cast("list[object]", content) if isinstance(content, list) else []:
            word = cast("dict[str, object]", block).get("type") if isinstance(block, dict) else None
            if isinstance(word, str) and word in others:
                raise BadRequest(f"it has a block `{word}`, which is `{others[word]}`")


def _unreadable(
    messages: list[object], *, family: FamilyName, instructions: object, error: BadRequest, guessed: bool
) -> CallerError:
    """With the first message that cannot be read: some readers do not name it."""
    place, said = "`instructions`", str(error)
    for count in range(len(messages) + 1):
        try:
            _read(messages[:count], family=family, instructions=instructions)
        except BadRequest as first:
            place, said = f"`messages[{count - 1}]`" if count else place, str(first)
            break
    fix = "If it is another API's, say which with `family=`" if guessed else "Give it as that API has it"
    return CallerError(f"{place} cannot be read as {relay_facts(family).title}: {said}. {fix}")


def _losses_of_reading(messages: list[object], *, request: Request, family: FamilyName) -> tuple[Repair, ...]:
    lost = [loss for text in request.system for loss in field_losses(text.opaque, place="instructions")]
    facts = relay_facts(family)
    if facts.bare_messages and not all(message.parts for message in request.messages):
        lost += _bare_fields(messages, family=family)
    if read := facts.message_fields:
        lost += [
            not_kept(f"`{key}` is left out", place=f"messages[{place}]")
            for place, message in enumerate(messages)
            for key in sorted(cast("dict[str, object]", message).keys() - read)
        ]
    return tuple(dict.fromkeys(lost))


def _bare_fields(messages: list[object], *, family: FamilyName) -> list[Repair]:
    """Fields of messages that say nothing else: no part could hold them."""
    lost: list[Repair] = []
    for place, message in enumerate(messages):
        fields = cast("dict[str, object]", message)
        (read,) = _read([message], family=family, instructions=None).messages or (Message("system", (Text(""),)),)
        if not read.parts:
            said = [key for key, value in fields.items() if key not in ("role", "content") and value]
            lost += [not_kept(f"`{key}` is left out", place=f"messages[{place}]") for key in said]
    return lost
