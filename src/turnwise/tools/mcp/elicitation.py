"""What a server asks a person in the middle of a call -> asks of that call, and the answers in the form that it wants."""

import asyncio
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, cast

from mcp_types import (
    AudioContent,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestFormParams,
    ElicitRequestParams,
    ElicitRequestURLParams,
    ElicitResult,
    ImageContent,
    SamplingMessage,
    TextContent,
)

from turnwise.running.working_call import ModelQuestion, NoAnswer, OwnModel
from turnwise.settings.mcp_files import is_web_address
from turnwise.tools.mcp.offered_tools import content_parts
from turnwise.turn.config import Approval
from turnwise.vocab import File, Text
from turnwise.vocab.json_values import array_or_empty

MAX_FIELDS = 20
MAX_QUESTION = 2000  # characters; of what is longer nobody is asked
MAX_OPTIONS = 20
MAX_ASKS = 40  # of one call: two long forms
MAX_DECLINED = 3  # after so many refusals, the person is not asked again in that call
# How a person leaves out a field that need not be filled in: an empty line says no to the whole form.
LEFT_EMPTY, EMPTY = "leave it empty", "-"
TRIES = 2  # an answer that does not fit is asked for once more

YES_OR_NO = ("yes", "no")
FieldValue = str | int | float | bool | list[str] | None


class Asker(Protocol):
    """A call at work: its context asks a person."""

    async def ask(self, question: str, *, options: Sequence[str] = ..., why: str = ...) -> Approval: ...


def says_yes(answer: Approval) -> bool:
    """Whether the answer to a question with the options `YES_OR_NO` is yes. Words that are neither are no."""
    return answer.verdict == "allow" and answer.text.strip().lower() in ("", "y", "yes")


class PatientAsker:
    """Asks for one call, as often as a person may be asked. Then nobody answers."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker
        self._asked = self._declined = 0

    async def ask(self, question: str, *, options: Sequence[str] = (), why: str = "") -> Approval:
        if self._asked >= MAX_ASKS or self._declined >= MAX_DECLINED:
            return Approval(call_id="", verdict="deny", by="default")
        self._asked += 1
        answer = await self._asker.ask(question, options=options, why=why)
        self._declined += answer.verdict != "allow"
        return answer


class _Declined(Exception):
    """The person said no, or nobody answered: `action` is the word for that."""

    def __init__(self, answer: Approval) -> None:
        self.action = "decline" if answer.by == "person" else "cancel"


async def elicit(params: ElicitRequestParams, *, server: str, asker: Asker) -> ElicitResult:
    """The person's answer. Where nobody is there it is `cancel`; nothing is ever filled in for them."""
    said = params.message
    why = f"the MCP server `{server}` asks"
    try:
        if isinstance(params, ElicitRequestURLParams):
            if not is_web_address(params.url) or _is_too_long(said, params.url):
                return ElicitResult(action="cancel")
            await _agreed(asker, f"{said}\nOpen this address yourself if you agree: {params.url}", why=why)
            return ElicitResult(action="accept")
        return ElicitResult(action="accept", content=await _filled(params, said=said, asker=asker, why=why))
    except _Declined as declined:
        return ElicitResult(action="decline" if declined.action == "decline" else "cancel")


async def _filled(params: ElicitRequestFormParams, *, said: str, asker: Asker, why: str) -> dict[str, FieldValue]:
    fields = _table(params.requested_schema.get("properties"))
    if len(fields) > MAX_FIELDS or _is_too_long(said):
        raise _Declined(Approval(call_id="", verdict="deny", by="default"))
    needed = params.requested_schema.get("required")
    required = array_or_empty(needed)
    if not fields:
        await _agreed(asker, said, why=why)
        return {}
    content: dict[str, FieldValue] = {}
    for name, field in fields.items():
        value = await _field(name, _table(field), said=said, asker=asker, why=why, is_needed=name in required)
        if value is not None:
            content[name] = value
    return content


async def _agreed(asker: Asker, question: str, *, why: str) -> None:
    answer = await asker.ask(question, options=YES_OR_NO, why=why)
    if answer.by != "person" or not says_yes(answer):
        raise _Declined(answer)


async def _field(
    name: str, field: Mapping[str, object], *, said: str, asker: Asker, why: str, is_needed: bool
) -> FieldValue:
    """One field's value; None for an optional field that was left empty."""
    options = _options(field)
    about = _text(field.get("description")) or _text(field.get("title"))
    title = f"{name}: {about}" if about and about != name else name
    if _is_too_long(title, _text(field.get("default"))) or _is_too_long(*options):
        raise _Declined(Approval(call_id="", verdict="deny", by="default"))
    choices = (*options, LEFT_EMPTY) if options and not is_needed else tuple(options)
    title += "" if is_needed or options else f" (`{EMPTY}` leaves it empty)"
    if default := _default(field, options=options):  # the first choice: an empty line says no to the whole form
        title += f" [{default}]"
        choices = (default, *[one for one in choices if one != default])
    question = f"{said}\n{title}"
    for _ in range(TRIES):
        answer = await asker.ask(question, options=choices, why=why)
        if answer.verdict != "allow" or answer.by != "person":
            raise _Declined(answer)
        text = answer.text.strip()
        if not is_needed and text not in options and text in ("", EMPTY, LEFT_EMPTY):
            return None
        value = _read(text, field, options=options)
        if value is not None:
            return value
        question = f"{said}\n{title}\nThat was no {_text(field.get('type')) or 'such value'}; once more:"
    raise _Declined(Approval(call_id="", verdict="deny", by="default"))


def _options(field: Mapping[str, object]) -> dict[str, str]:
    """What is offered, and the value of each."""
    if field.get("type") == "boolean":
        return {"yes": "true", "no": "false"}
    table = _table(field.get("items")) if field.get("type") == "array" else field
    found: dict[str, str] = {}
    for one in [*array_or_empty(table.get("oneOf")), *array_or_empty(table.get("anyOf"))][:MAX_OPTIONS]:
        choice = _table(one)
        found[_text(choice.get("title")) or _text(choice.get("const"))] = _text(choice.get("const"))
    titles = array_or_empty(table.get("enumNames"))
    for at, value in enumerate(array_or_empty(table.get("enum"))[:MAX_OPTIONS]):
        title = _text(titles[at]) if at < len(titles) else ""
        found[title or _text(value)] = _text(value)
    found.pop("", None)  # a value that is no text, and has no title
    return found


def _default(field: Mapping[str, object], *, options: Mapping[str, str]) -> str:
    """The text that a person would type for the field's `default`; empty where it has none, or none that it may hold."""
    value, titles = field.get("default"), {const: title for title, const in options.items()}
    given = array_or_empty(value) or [value]
    words = [str(one).lower() if isinstance(one, bool) else str(one) for one in given if one is not None]
    text = ", ".join([titles.get(word, word) for word in words])
    return text if text == text.strip() and _read(text, field, options=options) == value else ""


def _is_too_long(*texts: str) -> bool:
    """A person could not be shown all of it: nobody is asked."""
    return sum(map(len, texts)) > MAX_QUESTION


def _read(text: str, field: Mapping[str, object], *, options: Mapping[str, str]) -> FieldValue:
    """The typed value; None if the text is not such a value."""
    kind = field.get("type", "string")
    chosen = options.get(text, text)
    if kind == "boolean":
        words = {"true": True, "yes": True, "y": True, "false": False, "no": False, "n": False}
        return words.get(chosen.lower())
    if kind == "array":
        values = [options.get(one.strip(), one.strip()) for one in text.split(",")]
        return values if not options or set(values) <= set(options.values()) else None
    if kind in ("integer", "number"):
        try:
            number = int(text) if kind == "integer" else float(text)
        except ValueError:
            return None
        return number if math.isfinite(number) else None  # JSON has no others
    return chosen if not options or chosen in options.values() else None


def _table(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value) if isinstance(value, Mapping) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


# What a server asks the model in the middle of a call (sampling) -> a question for the run's own model, and its answer.


OUTSIDE = "a model is asked only inside of a tool's call"
MAX_CHARACTERS = 200_000  # of all texts: 60,000 tokens
MAX_BLOCKS = 100
LEAVE_S = 0.5  # as long as a cancelled tool may tidy up
_REFUSED = ("tools", "tool_choice")


class AskingCall(Asker, Protocol):
    """The context of a call: it asks a person, and tells how the call gets on."""

    def report(self, text: str) -> None: ...


class CallAtServer:
    """A call that a server works on, and what the server may ask meanwhile: a person, and the `model`."""

    def __init__(self, context: AskingCall, *, model: OwnModel | None, server: str) -> None:
        self.asker = PatientAsker(context)
        self._context, self._model, self._server = context, model, server
        self._sampling: set[asyncio.Task[CreateMessageResult]] = set()

    @property
    def may_sample(self) -> bool:
        return self._model is not None

    async def sample(self, params: CreateMessageRequestParams) -> CreateMessageResult:
        """The model's answer; the end of the call ends the wait for it. Raises NoAnswer."""
        task = asyncio.create_task(self._sample(params), name=f"sampling for {self._server}")
        self._sampling.add(task)
        task.add_done_callback(self._sampling.discard)
        try:
            await asyncio.wait([task])
        finally:
            task.cancel()
        if task.cancelled():
            raise NoAnswer("the call has ended")
        return task.result()

    async def leave(self) -> None:
        """The call is over: no answer of the model is waited for any more, and what was spent on one is counted."""
        tasks = tuple(self._sampling)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=LEAVE_S)

    async def _sample(self, params: CreateMessageRequestParams) -> CreateMessageResult:
        if self._model is None:
            raise NoAnswer(OUTSIDE)
        parts = tuple(_parts(params, server=self._server))
        question = ModelQuestion(server=self._server, parts=parts, max_tokens=params.max_tokens, ask=self._ask)
        answer = await self._model.answer(question, tell=self._context.report)
        stop = "maxTokens" if answer.is_cut else "endTurn"
        content = TextContent(text=answer.text)
        return CreateMessageResult(role="assistant", content=content, model=answer.model, stop_reason=stop)

    async def _ask(self, question: str) -> bool:
        why = f"the MCP server `{self._server}` asks the model"
        return says_yes(await self.asker.ask(question, options=YES_OR_NO, why=why))


def _parts(params: CreateMessageRequestParams, *, server: str) -> list[Text | File]:
    """Its system prompt and its messages as one message's parts, each under the word for who is meant to say it."""
    for name in _REFUSED:
        if getattr(params, name) is not None:
            raise NoAnswer(f"`{'toolChoice' if name == 'tool_choice' else name}` is not taken: the model has no tools")
    if params.max_tokens < 1:
        raise NoAnswer("`maxTokens` must be 1 or more")
    if not params.messages:
        raise NoAnswer("`messages` is empty")
    if sum(len(one.content_as_list) for one in params.messages) > MAX_BLOCKS:
        raise NoAnswer(f"`messages` hold more than {MAX_BLOCKS} parts")
    found: list[Text | File] = [Text(f"[a request of the MCP server `{server}`: its own words, not the user's]")]
    if params.system_prompt:
        found.append(Text(f"[system]\n{params.system_prompt}"))
    for message in params.messages:
        found += [Text(f"[{message.role}]"), *_said(message)]
    if sum(len(one.text) for one in found if isinstance(one, Text)) > MAX_CHARACTERS:
        raise NoAnswer(f"its texts have more than {MAX_CHARACTERS:,} characters")
    return found


def _said(message: SamplingMessage) -> Iterable[Text | File]:
    for block in message.content_as_list:
        if isinstance(block, AudioContent) or not isinstance(block, TextContent | ImageContent):
            raise NoAnswer(f"contents of the type `{block.type}` are not taken: only `text` and `image`")
        if isinstance(block, ImageContent) and not block.mime_type.startswith("image/"):
            raise NoAnswer("an image has a `mimeType` that begins with `image/`")
        (part,) = content_parts([block])
        if isinstance(block, ImageContent) and isinstance(part, Text):
            raise NoAnswer("an image is empty, or no base64")
        yield part
