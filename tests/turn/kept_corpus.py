"""Sessions with recorded responses, made from the recordings where they lie: nothing of them is kept but digests.

Each recorded stream begins a session, and those after it of the same family go on with it as long as the turn asks for more;
each recorded conversation is one. A session's name is a digest, too: `find` says which recording it is of.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from families import of_family
from recordings import decode, rows
from stand_ins import make_stand_ins
from turn.kept_sessions import digest_of, form_of
from turn.kept_tries import said_by_tool
from turnwise.assembly.response_reading import read_body
from turnwise.lab.replay import RECORDED_AS, load_recording
from turnwise.rules.retries import RetryPolicy
from turnwise.turn.config import ToolOffer, TurnConfig
from turnwise.turn.events import (
    Command,
    Event,
    FinishTurn,
    ResponseReceived,
    RunTools,
    SendRequest,
    ToolsFinished,
    TurnStarted,
    Wait,
    WaitOver,
)
from turnwise.turn.machine import Turn, fold_session
from turnwise.vocab import FinishReason, Message, Response, Text, ToolSpec, calls_of
from turnwise.wire.family import family as find_family
from turnwise.wire.profiles import builtin_profiles
from whole_streams import read_stream

# What the machine does with a response does not depend on its family; of those that came later, no digests are kept.
KEPT_OF = ("openai_chat", "openai_responses", "anthropic_messages", "gemini")
IN_A_SESSION = 5  # recorded responses; then the model answers
TURNS = 2
ANY = '{"type":"object","properties":{}}'
ANSWER = Response(message=Message("assistant", (Text("That is all."),)), finish=FinishReason.STOP)


class Recorded(NamedTuple):
    """What one session is told. `about` is a path, for people: it is never kept."""

    about: str
    family: str
    stream: bool
    responses: tuple[Response, ...]
    kind: str = "recording"

    @property
    def name(self) -> str:
        return f"{self.kind} {digest_of(self.about.encode())}"

    @property
    def told(self) -> str:
        return digest_of(form_of([self.family, self.stream, self.responses]))


def stood_in() -> Iterator[Recorded]:
    """The same of the streams that stand in for the recorded ones."""
    with TemporaryDirectory() as folder:
        for one in recorded_in(make_stand_ins(Path(folder))):
            yield one._replace(kind="stand-in")


def recorded_in(corpus: Path) -> Iterator[Recorded]:
    found: dict[str, list[tuple[str, Response]]] = {}
    for row in [one for one in rows(corpus) if one.family in KEPT_OF]:
        found.setdefault(row.family, []).append((row.file, decode(row)))
    for family, read in found.items():
        responses = [response for _, response in read]
        for at, (file, _) in enumerate(read):
            yield Recorded(file, family, True, tuple(responses[at : at + IN_A_SESSION]))
    for path in sorted((corpus / "conversations").glob("*.json")):
        if (conversation := _conversation(path)) is not None:
            yield conversation


def _conversation(path: Path) -> Recorded | None:
    family_name = json.loads(path.read_bytes())["family"]
    if RECORDED_AS.get(family_name, family_name) not in KEPT_OF:
        return None
    recording = load_recording(path)
    family, profile = find_family(recording.family), builtin_profiles()[recording.family]
    bodies = [exchange.response.body.encode() for exchange in recording.exchanges]
    responses = [
        read_stream([body], family=family, profile=profile)
        if recording.streamed
        else read_body(body, family=family, profile=profile)[0]
        for body in bodies
    ]
    return Recorded(path.name, recording.family, recording.streamed, tuple(responses))


def played(recorded: Recorded) -> tuple[tuple[Event, ...], ...]:
    """Turns until all is told: tools say the same on every machine, and waits are over at once."""
    coming = list(recorded.responses)
    config = _config(recorded)
    journals: list[tuple[Event, ...]] = []
    while coming and len(journals) < TURNS:
        started = TurnStarted(config=config, input=(Message("user", (Text("Go on."),)),), keeps_waiting=True)
        turn, command = Turn.start(started, earlier=fold_session(journals).carried)
        events: list[Event] = [started]
        while not isinstance(command, FinishTurn):
            events.append(_next(command, coming=coming))
            command = turn.receive(events[-1])
        journals.append(tuple(events))
    return tuple(journals)


def _next(command: Command, *, coming: list[Response]) -> Event:
    match command:
        case SendRequest(number=number):
            response = coming.pop(0) if coming else ANSWER
            return ResponseReceived(number=number, response=response, jitter=0.5)
        case RunTools(calls=planned):
            return ToolsFinished(results=tuple([said_by_tool(plan) for plan in planned]))
        case Wait():
            return WaitOver()
        case _:
            raise AssertionError(f"nobody asked for {command}")


def _config(recorded: Recorded) -> TurnConfig:
    return TurnConfig(
        session_id="s",
        turn_id="t",
        model="m",
        tools=_offers(recorded.responses),
        stream=recorded.stream,
        max_steps=6,
        retry=RetryPolicy(attempts=2),
        **of_family(recorded.family),
        profile=recorded.family,
        recover="continue",
        room="compact",
        default_max_tokens=builtin_profiles()[recorded.family].sent_max_tokens,
    )


def _offers(responses: Sequence[Response]) -> tuple[ToolOffer, ...]:
    """Every tool that is called, for any arguments."""
    calls = [call for response in responses for call in calls_of(response.message)]
    kinds = {call.name: call.free_form for call in calls if call.name}
    return tuple(
        [
            ToolOffer(spec=ToolSpec(name=name, parameters=ANY, free_form=free_form), effect="read")
            for name, free_form in kinds.items()
        ]
    )
