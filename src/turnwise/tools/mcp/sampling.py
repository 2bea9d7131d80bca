"""What a server asks the model in the middle of a call (sampling) -> a question for the run's own model, and its answer."""

import asyncio
from collections.abc import Iterable
from typing import Protocol

from mcp_types import (
    AudioContent,
    CreateMessageRequestParams,
    CreateMessageResult,
    ImageContent,
    SamplingMessage,
    TextContent,
)

from turnwise.running.own_model import ModelQuestion, NoAnswer, OwnModel
from turnwise.tools.mcp.elicitation import YES_OR_NO, Asker, PatientAsker, says_yes
from turnwise.tools.mcp.result_contents import content_parts
from turnwise.vocab import File, Text

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
