"""The line that waits says what is happening, for how long, and what was spent so far (issue 15, 7)."""

from decimal import Decimal

from turnwise.coding_agent.progress_line import HOW_TO_STOP, WaitBounds, Waiting
from turnwise.running.watcher_events import (
    AttemptDiscarded,
    CallAnswered,
    ChildSeen,
    FrameSeen,
    RequestFinished,
    RequestStarted,
    StepStarted,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    WatcherEvent,
)
from turnwise.vocab import (
    CallForming,
    FinishReason,
    Message,
    ReasoningDelta,
    Response,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolResult,
    Usage,
)

BASH = ToolCall(id="c1", name="bash", arguments="{}")
READ = ToolCall(id="c2", name="read", arguments="{}")
ANSWER = Response(
    message=Message(role="assistant", parts=()),
    finish=FinishReason.STOP,
    usage=Usage(input_tokens=12_000, output_tokens=345),
)


def finished(number: int = 1, *, usd: str | None = "0.0123", sent: bool = True) -> RequestFinished:
    price = None if usd is None else Decimal(usd)
    return RequestFinished(number, ANSWER if sent else None, None, 1.0, sent=sent, usd=price)


def started(number: int = 1, *, step: int = 1) -> RequestStarted:
    return RequestStarted(number=number, step=step, purpose="step", model="m")


def line(*told: tuple[float, WatcherEvent], at: float, columns: int = 100) -> str:
    waiting = Waiting(WaitBounds(max_steps=20, first_event_s=120, idle_s=90))
    for now_s, seen in told:
        waiting.saw(seen, now_s=now_s)
    return waiting.show(now_s=at, columns=columns).removesuffix(HOW_TO_STOP)


def test_the_key_that_stops_is_named_where_there_is_room() -> None:
    """Proves: it is the first to give way, and is gone once the turn stops."""
    waiting = Waiting(WaitBounds(max_steps=20))
    waiting.saw(started(), now_s=0)
    assert waiting.show(now_s=4, columns=80) == "step 1 of 20: waiting for m, 4 s · Ctrl-C stops"
    assert waiting.show(now_s=4, columns=47) == "step 1 of 20: waiting for m, 4 s · Ctrl-C stops"
    assert waiting.show(now_s=4, columns=46) == "step 1 of 20: waiting for m, 4 s"
    for seen in (finished(), ToolStarted(BASH), ToolProgress(BASH, "part 1")):
        waiting.saw(seen, now_s=5)
    whole = "step 1 of 20: bash runs, 1 s: part 1 · 1 request, 12,345 tokens, $0.0123"
    assert waiting.show(now_s=6, columns=80) == whole
    assert waiting.show(now_s=6, columns=100) == f"{whole} · Ctrl-C stops"
    waiting.stopping(now_s=7)
    assert waiting.show(now_s=8, columns=100).startswith(
        "step 1 of 20: stopping (Ctrl-C again ends turnwise at once), 1 s"
    )
    assert "Ctrl-C stops" not in waiting.show(now_s=8, columns=200)


def test_each_wait_says_what_it_is_and_for_how_long() -> None:
    """Proves: a request without an answer, reasoning, a call that is written, a tool that runs, and the wait before a retry."""
    request, reasoning = (10.0, started(step=3)), (13.0, FrameSeen(1, ReasoningDelta("hm")))
    writes = (14.0, FrameSeen(1, ToolCallDelta(name="write", arguments='{"path')))
    more = (15.0, FrameSeen(1, ToolCallDelta(arguments="x" * 1_994)))
    assert line(request, at=14.9) == "step 3 of 20: waiting for m, 4 s"
    assert line(request, at=30) == "step 3 of 20: waiting for m, 20 s, giving up at 120 s"
    assert line(request, reasoning, at=15) == "step 3 of 20: reasoning, 2 s"
    assert (
        line(request, reasoning, writes, more, at=16) == "step 3 of 20: writing a call of write (2,000 characters), 2 s"
    )
    assert line(request, (11.0, FrameSeen(1, TextDelta("a"))), at=12) == "step 3 of 20: answering, 1 s"
    assert line(request, (11.0, AttemptDiscarded(1, None, 8.0)), at=12) == "step 3 of 20: trying again in 7 s"
    assert line((0.0, StepStarted(1)), (0.0, ToolStarted(READ)), at=2) == "step 1 of 20: read runs, 2 s"
    assert line((0.0, ToolStarted(READ)), (1.0, ToolStarted(BASH)), at=400) == "2 calls run, 6 min 40 s"


def test_a_call_that_is_written_into_the_text_says_its_size_until_it_is_decided() -> None:
    """Proves: issue 16, A: the terminal shows that a call is being written, and how long it is; what was words is an answer."""
    told = [(10.0, started()), (11.0, FrameSeen(1, TextDelta("I look. "))), (13.0, FrameSeen(1, CallForming("", 17)))]
    assert line(*told, at=14) == "step 1 of 20: writing a call (17 characters), 1 s"
    more = (15.0, FrameSeen(1, CallForming("", 12_345)))
    assert line(*told, more, at=16) == "step 1 of 20: writing a call (12,345 characters), 3 s"
    call = (16.0, FrameSeen(1, ToolCallDelta(block="c", id="c", name="read", arguments='{"path": 1}')))
    assert line(*told, more, call, at=17) == "step 1 of 20: writing a call of read (11 characters), 1 s"
    assert line(*told, (16.0, FrameSeen(1, TextDelta("<tool_"))), at=17) == "step 1 of 20: answering, 1 s"


def test_a_stream_that_stalls_counts_from_its_last_sign() -> None:
    """Proves: 'nothing for 12 s, giving up at 90 s'; once that has passed nothing is claimed; a further piece ends it."""
    told = [(0.0, started()), (3.0, FrameSeen(1, TextDelta("a")))]
    assert line(*told, at=15.9) == "step 1 of 20: nothing for 12 s, giving up at 90 s"
    assert line(*told, at=100) == "step 1 of 20: nothing for 97 s"
    assert line(*told, (16.0, FrameSeen(1, TextDelta("b"))), at=17) == "step 1 of 20: answering, 14 s"


def test_a_command_shows_its_last_line_beside_what_was_spent() -> None:
    """Proves: cleaned, cut to what there is room for; what was spent gives way first, and money last of it."""
    hostile = ToolProgress(BASH, "compiling \x1b[2J a\u202eb.c " + "x" * 100)
    told = [(0.0, started()), (1.0, finished()), (1.0, ToolStarted(BASH)), (2.0, ToolProgress(BASH, "part 1 of 12"))]
    spent = "1 request, 12,345 tokens, $0.0123"
    assert line(*told, at=5) == f"step 1 of 20: bash runs, 4 s: part 1 of 12 · {spent}"
    assert line(*told, at=5, columns=60) == "step 1 of 20: bash runs, 4 s: part 1 of 12 · $0.0123"
    assert line(*told, at=5, columns=48) == "step 1 of 20: bash runs, 4 s: part 1 of 12"
    seen = line(*told, (3.0, hostile), at=5, columns=100)
    assert len(seen) == 100 and "compiling <U+001B>[2J a<U+202E>" in seen and seen.endswith(spent)
    result = ToolResult(call_id="c1", name="bash", content=())
    assert line(*told, (5.0, ToolFinished(result, 4.0)), at=6) == ""
    assert line(*told, (5.0, CallAnswered(BASH, result)), at=6) == ""
    for columns in range(1, 120):
        assert len(line(*told, at=5, columns=columns)) <= columns


def test_what_was_spent_is_honest() -> None:
    """Proves: sub-agents count, a request that never left does not, and an unknown price is said."""
    child = [(1.0, ChildSeen("c2", ("general",), started())), (2.0, ChildSeen("c2", ("general",), finished(usd=None)))]
    wait = (9.0, ToolStarted(READ))
    assert line((0.0, started()), (1.0, finished(sent=False, usd=None)), wait, at=9) == "step 1 of 20: read runs, 0 s"
    assert line((0.0, started()), (1.0, finished(usd=None)), wait, at=9).endswith(
        "1 request, 12,345 tokens, cost unknown"
    )
    assert line((0.0, started()), (1.0, finished()), *child, wait, at=9).endswith(
        "2 requests, 24,690 tokens, at least $0.0123"
    )
