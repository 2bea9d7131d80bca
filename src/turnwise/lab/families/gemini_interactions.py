"""Gemini's Interactions API, as the lab plays it and as its clients read it."""

import msgspec

from turnwise.lab.caches import PromptPieces
from turnwise.lab.families.family import (
    CallSeen,
    Conversation,
    LabFamily,
    Offered,
    ResultSeen,
    SentMessage,
    StreamReading,
    StrictEvent,
    ToldError,
    arguments_object,
    canonical,
    events_of,
    files_of,
    join,
    naive_events,
    plain,
    rule,
    shaped,
    texts_of,
)
from turnwise.lab.raw import Raw, dig, dump, rows, table, text
from turnwise.lab.strict.gemini_interactions import CONTENTS, JUDGE
from turnwise.lab.strict.thinking import sign
from turnwise.vocab import NO_USAGE, Opaque, Reasoning, Response


def read_interaction(body: dict[str, Raw]) -> Conversation:
    said: list[SentMessage] = []
    if system := text(body.get("system_instruction")):
        said.append(SentMessage(role="system", texts=(system,)))
    given = body.get("input")
    if isinstance(given, str):
        said.append(SentMessage(role="user", texts=(given,)))
    for step in [given] if isinstance(given, dict) else rows(given):
        if (one := step_said(table(step))) is not None:
            said.append(one)
    tools = [table(tool) for tool in rows(body.get("tools"))]
    config = table(body.get("generation_config"))
    declared = [Offered(name=text(one.get("name")), schema=one.get("parameters")) for one in tools if one.get("name")]
    return Conversation(
        said=join(said),
        tools=tuple(declared),
        eager=frozenset([one.name for one in declared]),
        forbids=config.get("tool_choice") == "none",
        output_schema=dig(body, "response_format", "schema"),
    )


def step_said(step: dict[str, Raw]) -> SentMessage | None:
    content = step.get("content")
    match text(step.get("type")):
        case "user_input":
            return SentMessage(role="user", texts=texts_of(content), files=files_of(content))
        case "model_output":
            return SentMessage(role="assistant", texts=texts_of(content))
        case "function_call":
            call = CallSeen(
                id=text(step.get("id")), name=text(step.get("name")), arguments=canonical(step.get("arguments"))
            )
            return SentMessage(role="assistant", calls=(call,))
        case "function_result":
            result = step.get("result")
            shown = dump(result).decode() if isinstance(result, dict) else plain(result)
            seen = ResultSeen(id=text(step.get("call_id")), name=text(step.get("name")), content=shown)
            return SentMessage(role="results", results=(seen,))
        case kind if kind in CONTENTS:
            return SentMessage(role="user", texts=texts_of([step]), files=files_of([step]))
        case _:
            return None


def prompt_of_interaction(body: Raw) -> PromptPieces:
    fields = table(body)
    found = [dump(fields.get(name)) for name in ("tools", "system_instruction")]
    return PromptPieces([*found, *[dump(step) for step in rows(fields.get("input"))]])


class PlayedStep(msgspec.Struct, frozen=True):
    type: str = ""
    id: str = ""
    name: str = ""


class Delta(msgspec.Struct, frozen=True):
    type: str = ""
    text: str = ""
    arguments: str = ""


class Interaction(msgspec.Struct, frozen=True):
    status: str = ""


class InteractionEvent(msgspec.Struct, frozen=True):
    event_type: str
    index: int = 0
    step: PlayedStep = PlayedStep()
    delta: Delta = Delta()
    interaction: Interaction | None = None
    error: ToldError | None = None

    @property
    def failure(self) -> str:
        return "" if self.event_type != "error" else self.error.message if self.error else "an error without words"

    @property
    def status(self) -> str:
        ends = self.event_type == "interaction.completed" and self.interaction is not None
        return self.interaction.status if ends and self.interaction is not None else ""


_WORDS = {"completed": "stop", "incomplete": "length", "requires_action": "calls", "failed": "failed"}


def reading_of(steps: list[tuple[PlayedStep, list[str]]], *, status: str, error: str) -> StreamReading:
    calls = [(step.id, step.name, "".join(pieces) or "{}") for step, pieces in steps if step.type == "function_call"]
    said = "".join(["".join(pieces) for step, pieces in steps if step.type == "model_output"])
    word = _WORDS.get(status, status)
    return StreamReading(said, calls, "calls" if calls and word == "stop" else word, error)


def read_naively(body: bytes) -> StreamReading:
    status = error = ""
    steps: dict[int, tuple[PlayedStep, list[str]]] = {}
    for event in naive_events(body, as_type=InteractionEvent):
        status, error = event.status or status, event.failure or error
        if event.event_type == "step.start":
            steps[event.index] = (event.step, [])
        elif event.event_type == "step.delta":
            steps[event.index][1].append(event.delta.arguments or event.delta.text)
    return reading_of([*steps.values()], status=status, error=error)


# What a step of a kind is made of.
_PIECES = {
    "text": "model_output",
    "text_annotation_delta": "model_output",
    "image": "model_output",
    "arguments_delta": "function_call",
    "thought_summary": "thought",
    "thought_signature": "thought",
}


def read_strictly(body: bytes) -> StreamReading:
    """Raises BrokenRule."""
    answer = _Answer()
    for event in events_of(body):
        answer.add(event)
    rule(bool(answer.status or answer.error), "the stream ends without `interaction.completed`")
    return reading_of(answer.steps, status=answer.status, error=answer.error)


class _Answer:
    """What has come of one interaction."""

    def __init__(self) -> None:
        self.steps: list[tuple[PlayedStep, list[str]]] = []
        self.status = self.error = ""
        self._is_open = self._has_begun = False

    def add(self, event: StrictEvent) -> None:
        if event.data == b"[DONE]":
            rule(event.name == "done" and bool(self.status or self.error), "`[DONE]` comes before the end")
            return
        one = shaped(event.data, as_type=InteractionEvent)
        rule(not (self.status or self.error), "something follows the end")
        rule(event.name == one.event_type, f"an event of type `{one.event_type}` is named `{event.name}`")
        is_first = one.event_type in ("interaction.created", "error")
        rule(self._has_begun != is_first or bool(one.failure), f"`{one.event_type}` is not in its place")
        self._has_begun, self.error = True, one.failure
        is_there = self._is_open and one.index == len(self.steps) - 1
        match one.event_type:
            case "step.start":
                rule(not self._is_open, "a step begins before the one before it has ended")
                rule(one.index == len(self.steps), f"a step has index {one.index}, and {len(self.steps)} is the next")
                is_named = one.step.type != "function_call" or bool(one.step.id and one.step.name)
                rule(is_named, "a call begins without an id or a name")
                self.steps.append((one.step, []))
                self._is_open = True
            case "step.delta":
                rule(is_there, "a delta came for a step that is not open")
                step, pieces = self.steps[-1]
                wanted = _PIECES.get(one.delta.type, step.type)
                rule(step.type == wanted, f"a `{one.delta.type}` came for a step of type `{step.type}`")
                pieces.append(one.delta.arguments or one.delta.text)
            case "step.stop":
                rule(is_there, "an end came for a step that is not open")
                self._is_open = False
            case "interaction.completed":
                self._close(one.status)
            case _:
                pass

    def _close(self, status: str) -> None:
        rule(not self._is_open, "the interaction ends with a step that has not ended")
        rule(status in _WORDS, f"there is no status `{status}` at an end")
        calls = reading_of(self.steps, status=status, error="").calls
        rule(status != "requires_action" or bool(calls), "the status asks for an action, and there is no call")
        for _, _, arguments in calls if status in ("completed", "requires_action") else ():
            arguments_object(arguments)
        rule(len({id for id, _, _ in calls}) == len(calls), "two calls have one id")
        self.status = status


def unsaid_end(response: Response) -> tuple[str, ...]:
    usage = {"total_output_tokens": (response.usage or NO_USAGE).output_tokens}
    interaction = {"id": response.id or "", "object": "interaction", "model": response.model or "", "usage": usage}
    return (dump({"event_type": "interaction.completed", "interaction": interaction}).decode(),)


FAMILY = LabFamily(
    judge=JUDGE,
    title="Gemini Interactions",
    routes=(("/interactions", False),),
    strict_paths=r"/v1(?:beta|alpha)?/interactions",
    read=read_interaction,
    prompt=prompt_of_interaction,
    least_cached_tokens=2048,
    thought=lambda said, made, sealed: Reasoning(said, Opaque(JUDGE.name, dump({"signature": sign(said)}).decode())),
    cut_calls="object",  # of a body; in a stream `arguments_delta` brings the text, and how a cut call ends is not recorded
    names_events=True,
    unsaid_end=unsaid_end,
    error_event=lambda rejected: {"event_type": "error", **table(JUDGE.error(rejected))},
    read_naively=read_naively,
    read_strictly=read_strictly,
)
