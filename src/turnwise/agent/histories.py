"""Histories from the vendors' own messages, and back: the JSON of four APIs on one side, `Message` on the other."""

from collections.abc import Mapping, Sequence
from typing import Any, cast, get_args

import msgspec

from turnwise.agent.history_families import family_of
from turnwise.agent.history_losses import field_losses, losses_between, not_kept
from turnwise.agent.instructions import Instructions
from turnwise.agent.run_input import check_history
from turnwise.base.exact_json import NotExact, exact_json
from turnwise.errors import CallerError
from turnwise.relay.client_request import GEMINI_PATHS
from turnwise.rules.history import heal
from turnwise.vocab import Message, Repair, Request, Text
from turnwise.wire.family import BadRequest
from turnwise.wire.profiles import FamilyName, builtin_profiles
from turnwise.wire.registry import family as family_named
from turnwise.wire.relay_facts import relay_facts

FAMILIES: tuple[FamilyName, ...] = get_args(FamilyName)
_MODEL = "model"  # a body has to name one; it says nothing here
_INSTRUCTIONS: dict[FamilyName, str] = {
    "openai_responses": "instructions",
    "anthropic_messages": "system",
    "gemini": "systemInstruction",
}
"""Where an API takes instructions beside the messages. In Chat Completions they are the first messages."""

_READ_OF_MESSAGE: dict[FamilyName, frozenset[str]] = {
    "anthropic_messages": frozenset({"role", "content"}),
    "gemini": frozenset({"role", "parts"}),
}
"""All that a message of the family has. In the other two its further fields are kept with its parts."""


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
    healed = heal(messages, family=name)
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
        instructions=body.get(_INSTRUCTIONS.get(name, "")),
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
    body: dict[str, object] = {relay_facts(family).history: messages}
    if family != "gemini":  # has them in the path, or not at all
        body |= {"model": _MODEL, "max_tokens": 1}
    if instructions is None:
        return family_named(family).decode_request(msgspec.json.encode(body), GEMINI_PATHS[False])
    if family == "openai_chat":
        leading = _read([{"role": "system", "content": instructions}], family=family, instructions=None)
        request = _read(messages, family=family, instructions=None)
        return msgspec.structs.replace(request, system=(*leading.system, *request.system))
    body[_INSTRUCTIONS[family]] = _as_content(instructions) if family == "gemini" else instructions
    return family_named(family).decode_request(msgspec.json.encode(body), GEMINI_PATHS[False])


def _check_words(messages: list[object], *, family: FamilyName) -> None:
    """Raise BadRequest for another API's message that the reader would take, and then make no calls or no texts of it."""
    for place, message in enumerate(messages):
        if not isinstance(message, dict):
            continue
        fields = cast("dict[str, object]", message)
        if family == "gemini" and "content" in fields and "parts" not in fields:
            raise BadRequest(f"`contents[{place}]` has `content` in place of `parts`")
        content = fields.get("content")
        for block in cast("list[object]", content) if isinstance(content, list) else []:
            word = cast("dict[str, object]", block).get("type") if isinstance(block, dict) else None
            if family != "anthropic_messages" and word in ("tool_use", "tool_result"):
                raise BadRequest(f"it has a block `{word}`, which is `anthropic_messages`")


def _as_content(instructions: object) -> object:
    """Gemini's SDK takes a text, too; the API takes parts."""
    return {"parts": [{"text": instructions}]} if isinstance(instructions, str) else instructions


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
    if family == "openai_chat" and not all(message.parts for message in request.messages):
        lost += _bare_fields(messages)
    if family in _READ_OF_MESSAGE:
        lost += [
            not_kept(f"`{key}` is left out", place=f"messages[{place}]")
            for place, message in enumerate(messages)
            for key in sorted(cast("dict[str, object]", message).keys() - _READ_OF_MESSAGE[family])
        ]
    return tuple(dict.fromkeys(lost))


def _bare_fields(messages: list[object]) -> list[Repair]:
    """Fields of Chat Completions messages that say nothing else: no part could hold them."""
    lost: list[Repair] = []
    for place, message in enumerate(messages):
        fields = cast("dict[str, object]", message)
        (read,) = _read([message], family="openai_chat", instructions=None).messages or (
            Message("system", (Text(""),)),
        )
        if not read.parts:
            said = [key for key, value in fields.items() if key not in ("role", "content") and value]
            lost += [not_kept(f"`{key}` is left out", place=f"messages[{place}]") for key in said]
    return lost
