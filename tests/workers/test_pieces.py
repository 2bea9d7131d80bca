"""The text that a worker streams reaches those who follow its turns elsewhere, in pieces."""

import asyncio
import json

import psycopg
import pytest

from flat_agents import flat_agent
from turnwise import Journal, submit_turn, watch_session
from turnwise.agent.followed_session import NewPieces
from turnwise.journal.postgres.news import channel_of
from turnwise.replay.replayed_events import SessionEvent, TextPiece
from turnwise.running.watcher_events import FrameSeen, RequestFinished, RequestStarted, StepStarted, TurnFinished
from turnwise.terminal.status import EventLines
from turnwise.testing.scripted_model import BASE_URL, Reply, ScriptedTransport, Stall
from turnwise.turn.config import TurnResult
from turnwise.vocab import NO_USAGE, StopReason, TextDelta
from turnwise.workers.pieces import MOST_AT_ONCE, MOST_CHARACTERS, TurnPieces
from turnwise.workers.worker import Worker
from waits import HANG_S

ENDED = TurnResult(
    text="k", stop_reason=StopReason.ANSWERED, complete=True, steps=1, requests=1, usage=NO_USAGE, messages=()
)


def chunk(text: str, **more: object) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None, **more}
    return f"data: {json.dumps({'id': 'a', 'model': 'm', 'choices': [choice]})}\n\n".encode()


@pytest.mark.promise("keep:machines")
async def test_followers_elsewhere_get_the_text_in_pieces_and_then_whole(postgres_dsn: str) -> None:
    """Proves: each piece comes while the response is still open; a follower that comes late gets the text from its beginning, and
    the first one gets nothing twice; the whole text comes behind the pieces; without `pieces` none comes."""
    Journal(postgres_dsn).close()
    first, second = asyncio.Event(), asyncio.Event()
    pieces = (
        chunk("One "),
        Stall(until=first),
        chunk("two "),
        Stall(until=second),
        chunk("three.", finish_reason="stop"),
    )
    transport = ScriptedTransport([Reply(pieces=(*pieces, b"data: [DONE]\n\n"))])
    session = await submit_turn(postgres_dsn, "Count.", agent="clerk")

    async def follow(until: dict[str, asyncio.Event]) -> list[SessionEvent]:
        found: list[SessionEvent] = []
        said = ""
        async for event in watch_session(postgres_dsn, session, pieces=bool(until)):
            found.append(event)
            if isinstance(event.seen, TextPiece):
                assert event.seen.at == len(said)
                said += event.seen.text
                if said in until:
                    until[said].set()
        return found

    async def follow_late() -> list[SessionEvent]:
        await first.wait()
        return await follow({"One two ": second})

    clerk = flat_agent("openai_chat:m", base_url=BASE_URL, transport=transport)
    worker = Worker(postgres_dsn, agents={"clerk": clerk})
    async with asyncio.timeout(HANG_S), asyncio.TaskGroup() as group:
        early = group.create_task(follow({"One ": first}))
        late, plain = group.create_task(follow_late()), group.create_task(follow({}))
        working = group.create_task(worker.run())
        await asyncio.wait([early, late, plain])
        worker.stop()
        await working
    for told in (early.result(), late.result()):
        texts = [one.seen for one in told if isinstance(one.seen, TextPiece | FrameSeen)]
        assert isinstance(texts[-1], FrameSeen) and texts[-1].frame == TextDelta("One two three.", block="text0")
        assert all(isinstance(one, TextPiece) for one in texts[:-1])
        assert [one for one in told if not isinstance(one.seen, TextPiece)] == plain.result()
        assert [one.number for one in told] == sorted([one.number for one in told])
    assert isinstance(plain.result()[-1].seen, TurnFinished)


def test_a_turn_sends_bounded_pieces_that_cannot_be_guessed() -> None:
    """Proves: while nobody follows, nothing wakes the sender; a long text goes in several pieces, each of fewer bytes than
    PostgreSQL takes, whatever its characters are; a new request begins at 0; and a channel is not the turn's id."""
    woken: list[None] = []
    pieces = TurnPieces(wake=lambda: woken.append(None))
    text = "\x01\ud83d\u4e2d" * 3000
    pieces.see("t", (TextDelta(text),), number=1)
    assert woken == []
    pieces.begin_again()
    found: list[tuple[str, str]] = []
    while sent := pieces.take():
        assert len(sent) <= MOST_AT_ONCE
        found += sent
    assert (
        all(len(piece.encode()) < 8000 and channel == channel_of("t") for channel, piece in found)
        and channel_of("t") != "t"
    )
    told = [json.loads(piece) for _, piece in found]
    assert "".join([part for _, _, part in told]) == text.replace("\ud83d", "?")
    assert [at for _, at, _ in told] == list(range(0, len(text), MOST_CHARACTERS))
    pieces.see("t", (TextDelta("New."),), number=2)
    assert [json.loads(piece) for _, piece in pieces.take()] == [[2, 0, "New."]]


def test_pieces_are_given_once_and_never_behind_their_response() -> None:
    """Proves: a piece that was sent again gives only what is new; one that was lost leaves a gap that `at` tells; one that comes
    behind its response is dropped; and a request that is sent again begins at 0."""
    new = NewPieces()

    def given(*heard: tuple[int, int, str]) -> list[tuple[int, str]]:
        found = new.of([("t", *one) for one in heard], number=7)
        return [(one.seen.at, one.seen.text) for one in found if isinstance(one.seen, TextPiece) and one.number == 7]

    def tell(seen: RequestStarted | RequestFinished | TurnFinished) -> None:
        new.follow(SessionEvent(number=1, turn="t", time=0.0, seen=seen))

    tell(RequestStarted(number=1, step=1, purpose="step", model="m"))
    assert given((1, 0, "ab"), (1, 0, "abc"), (1, 1, "bc")) == [(0, "ab"), (2, "c")]
    assert given((1, 5, "f"), (1, 0, "abcdef")) == [(5, "f")]
    tell(RequestStarted(number=1, step=1, purpose="step", model="m"))
    assert given((1, 0, "xy")) == [(0, "xy")]
    tell(RequestFinished(1, None, None, 0.0))
    assert given((1, 2, "z"), (2, 0, "k")) == [(0, "k")]
    tell(TurnFinished(ENDED))
    assert given((2, 0, "kl")) == []


@pytest.mark.promise("keep:machines")
async def test_a_piece_that_others_send_harms_no_follower(postgres_dsn: str) -> None:
    """Proves: whatever stands on a turn's channel, its follower goes on to the end of the turn."""
    Journal(postgres_dsn).close()
    go = asyncio.Event()
    reply = Reply(pieces=(chunk("One"), Stall(until=go), chunk(".", finish_reason="stop"), b"data: [DONE]\n\n"))
    clerk = flat_agent("openai_chat:m", base_url=BASE_URL, transport=ScriptedTransport([reply]))
    session = await submit_turn(postgres_dsn, "Count.", agent="clerk")
    worker = Worker(postgres_dsn, agents={"clerk": clerk})
    working = asyncio.ensure_future(worker.run())
    last: object = None
    async with asyncio.timeout(HANG_S):
        async for event in watch_session(postgres_dsn, session, pieces=True):
            last = event.seen
            if isinstance(event.seen, TextPiece):
                with psycopg.connect(postgres_dsn, autocommit=True) as connection:
                    for payload in ("", "{}", "[1]", '[1,"a",2]', "[9,9,null]"):
                        connection.execute("select pg_notify(%s, %s)", (channel_of(event.turn), payload))
                go.set()
    worker.stop()
    await working
    assert isinstance(last, TurnFinished) and last.result.text == "One."


def test_pieces_stand_in_one_line_and_the_whole_text_says_nothing_twice(capsys: pytest.CaptureFixture[str]) -> None:
    """Proves: for people, pieces of a response follow each other, other lines may come between them, and the whole text is told
    only if a piece was lost; as JSON each piece is an object with its place."""

    def told(*seen: TextPiece | FrameSeen | StepStarted, as_json: bool = False) -> list[str]:
        show = EventLines(as_json=as_json)
        for one in seen:
            show(SessionEvent(number=3, turn="t", time=0.0, seen=one))
        return capsys.readouterr().out.splitlines()

    one, two = TextPiece(request=1, at=0, text="One "), TextPiece(request=1, at=4, text="two\n\x1b[1m")
    whole = FrameSeen(1, TextDelta("One two\n\x1b[1m"))
    step = StepStarted(2)
    shown = told(one, two, whole, step)
    assert (
        len(shown) == 2 and shown[0].startswith("  says: One two") and "\x1b" not in shown[0] and shown[1] == "  step 2"
    )
    assert [line[:12] for line in told(one, step, two, whole)] == ["  says: One ", "  step 2", "  says: two<"]
    assert [line[:15] for line in told(two, step, whole)] == ["  step 2", "  says: One two"]
    (line,) = told(two, as_json=True)
    assert json.loads(line) == {"event": "text_piece", "request": 1, "at": 4, "text": two.text, "n": 3, "turn": "t"}
