"""Running tools: what a tool does wrong becomes a result, and nothing it does keeps the step waiting."""

import asyncio
import dataclasses
import gc
import json
import math
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from datetime import date
from decimal import Decimal
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from turnwise.base.activity import Activity
from turnwise.errors import ToolFault
from turnwise.running.tool_output import MAX_FILE_BYTES, MAX_TEXT_CHARACTERS, TOOL_FAILED, cut_middle, result_of
from turnwise.running.tools import Arguments, Around, Tool, ToolRun
from turnwise.testing import FakeClock
from turnwise.turn.config import ToolOffer
from turnwise.turn.events import PlannedCall
from turnwise.vocab import File, Text, ToolCall, ToolResult, ToolSpec
from waits import HANG_S


def planned(name: str, *, arguments: str = "{}", exclusive: bool = False, free_form: bool = False) -> PlannedCall:
    call = ToolCall(id=f"id-{name}", name=name, arguments=arguments, free_form=free_form)
    return PlannedCall(call=call, arguments=arguments, timeout_s=10, exclusive=exclusive)


def tool_run(
    clock: FakeClock, calls: list[PlannedCall], **functions: Callable[[Arguments], object]
) -> tuple[ToolRun, list[str]]:
    seen: list[str] = []
    tools = {
        name: Tool(offer=ToolOffer(spec=ToolSpec(name=name)), function=function) for name, function in functions.items()
    }

    async def finished(result: ToolResult) -> None:
        seen.append(f"finish {result.name}")

    run = ToolRun(
        tuple(calls),
        tools=tools,
        clock=clock,
        on_start=lambda call: seen.append(f"start {call.name}"),
        on_finish=finished,
    )
    return run, seen


async def one(function: Callable[[Arguments], object], *, arguments: str = "{}", free_form: bool = False) -> ToolResult:
    run, _ = tool_run(FakeClock(), [planned("it", arguments=arguments, free_form=free_form)], it=function)
    (result,) = await asyncio.wait_for(run.run(), HANG_S)
    return result


def said(result: ToolResult) -> str:
    return "".join([part.text for part in result.content if isinstance(part, Text)])


@dataclasses.dataclass
class Point:
    x: int


@dataclasses.dataclass
class Measured:
    value: float


class Reading(BaseModel):
    value: float


class Model(BaseModel):
    amount: Decimal


class Shapeless:
    pass


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        ("", "(no output)"),
        (None, "(no output)"),
        (b"caf\xc3\xa9 \xff", "café \\xff"),
        (bytearray(b"caf\xe9.txt"), "caf\\xe9.txt"),
        ({"a": [1, None, True]}, '{"a":[1,null,true]}'),
        ([Point(1), {"p": Point(2)}], '[{"x":1},{"p":{"x":2}}]'),
        (Model(amount=Decimal("1.5")), '{"amount":"1.5"}'),
        ("lone \ud800 surrogate", "lone \\ud800 surrogate"),
        (Text("a name: caf\udce9"), "a name: caf\\udce9"),
        ({"name": "caf\udce9", "\udce9": None}, '{"name":"caf\\\\udce9","\\\\udce9":null}'),
        (float("nan"), '"NaN"'),
        (
            {"mean": float("nan"), "range": (float("-inf"), None, float("inf"))},
            '{"mean":"NaN","range":["-Infinity",null,"Infinity"]}',
        ),
        (Measured(float("inf")), '{"value":"Infinity"}'),
        (Reading(value=float("nan")), '{"value":"NaN"}'),
        (Text("as it is"), "as it is"),
        (False, "false"),
        (
            {"a": b"caf\xc3\xa9 \xff", b"k": [bytearray(b"x"), (memoryview(b"y"),)]},
            '{"a":"café \\\\xff","k":["x",["y"]]}',
        ),
        ([{"deep": {"er": b"\x89PNG"}}, float("nan")], '[{"deep":{"er":"\\\\x89PNG"}},"NaN"]'),
        ({1: "a", 2: {"x": 2**70}}, '{"1":"a","2":{"x":1180591620717411303424}}'),
    ],
)
def test_value_becomes_text(value: object, text: str) -> None:
    """Text as it is, bytes as UTF-8 with what is none of it written out, the rest as JSON."""
    call = ToolCall(id="1", name="t")
    assert result_of(call, value) == ToolResult(call_id="1", name="t", content=(Text(text),))
    msgspec.json.encode(result_of(call, value))


@pytest.mark.parametrize(
    "value",
    [
        {1: "a", "1": "b"},
        [{"deep": {2: b"x", "2": float("nan")}}],
        {1.5: 1, "1.5": 2},
        {b"k": 1, "k": 2},
        {date(2020, 1, 1): 1, "2020-01-01": 2},
    ],
)
def test_keys_that_are_one_text_in_json_are_refused(value: object) -> None:
    """Proves: no result is JSON with a key twice, of which a reader takes the last and a model perhaps the first."""
    result = result_of(ToolCall(id="1", name="t"), value)
    assert result.is_error
    assert "cannot be turned into JSON: two keys are the same text" in said(result)


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats()
    | st.text(st.characters(), max_size=4)
    | st.text(st.sampled_from("a\ud800\udce9\\"), max_size=4),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.sampled_from("a\ud800\\n"), max_size=2), inner)
    ),
    max_leaves=12,
)


def written(value: Any) -> Any:
    """What a reader of the JSON text has to find: JSON's own values as they are, others as text."""
    match value:
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case str():
            return value.encode("utf-8", "backslashreplace").decode()
        case list():
            return [written(item) for item in cast("list[Any]", value)]
        case dict():
            return {written(key): written(item) for key, item in cast("dict[Any, Any]", value).items()}
        case _:
            return value


@given(st.lists(plain, min_size=1, max_size=3))
def test_nothing_of_a_value_is_changed_in_silence(value: list[Any]) -> None:
    """Proves for any plain value: what JSON cannot carry (`nan`, infinities, halves of characters) is text in the result, and
    all else is as it was. From a tester: they came as `null` and `?`."""
    result = result_of(ToolCall(id="1", name="t"), value)
    if result.is_error:
        assert "two keys are the same text" in said(result)
        return
    assert json.loads(said(result)) == written(value)


def test_a_value_as_deep_as_json_goes_may_hold_what_json_cannot_carry() -> None:
    """Proves: it is written, or the result says why not; nothing recurses without end."""
    for depth in (100, 500, 900, 100_000):
        deep: object = float("nan")
        for _ in range(depth):
            deep = [deep]
        result = result_of(ToolCall(id="1", name="t"), deep)
        assert said(result).count("[") == depth if not result.is_error else "cannot be turned into JSON" in said(result)


def test_files_and_texts_stay_parts() -> None:
    """A list that holds a part is a list of parts."""
    call, picture = ToolCall(id="1", name="t"), File(media_type="image/png", data=b"\x89PNG")
    assert result_of(call, ["see:", picture]).content == (Text("see:"), picture)
    assert result_of(call, picture).content == (picture,)
    huge = result_of(call, File(media_type="image/png", data=bytes(MAX_FILE_BYTES + 1)))
    assert huge.is_error and "too large" in said(huge)


def test_what_cannot_be_json_says_so() -> None:
    """Unknown types, cycles and raising serialisers are error results that name the type."""
    circle: list[object] = []
    circle.append(circle)

    class Broken:
        def to_dict(self) -> object:
            raise ValueError("not today")

    for value, text in ((Shapeless(), "`Shapeless`"), (circle, "`list`"), (Broken(), "`Broken`"), ({1, "a"}, "")):
        result = result_of(ToolCall(id="1", name="t"), value)
        assert result.is_error == (text != "") and text in said(result)


def test_long_output_keeps_head_and_tail() -> None:
    """The note says how much is left out; several texts share the limit."""
    text = "a" * 100_000 + "b" * 100_000
    short = cut_middle(text, limit=MAX_TEXT_CHARACTERS)
    assert short.startswith("aaa") and short.endswith("bbb")
    assert "[... 134,464 characters left out ...]" in short and len(short) < MAX_TEXT_CHARACTERS + 60
    both = result_of(ToolCall(id="1", name="t"), [Text(text), Text("c" * 10), Text(text)])
    assert [len(part.text) < MAX_TEXT_CHARACTERS // 3 + 60 for part in both.content if isinstance(part, Text)] == [
        True,
        True,
        True,
    ]


def test_result_of_many_parts_is_bounded() -> None:
    """70,000 parts leave the first and last, and a note; nothing of the size limit turns around at zero."""
    call = ToolCall(id="1", name="t")
    result = result_of(call, [Text(f"{number}:" + "x" * 130) for number in range(70_000)])
    texts = [part.text for part in result.content if isinstance(part, Text)]
    assert (len(texts), texts[0][:2], texts[50], texts[-1][:6]) == (
        *(101, "0:", "[... 69,900 parts left out ...]"),
        "69999:",
    )
    assert len(msgspec.json.encode(result)) < MAX_TEXT_CHARACTERS
    long = result_of(call, [Text("x" * 10_000) for _ in range(70_000)])
    assert len(msgspec.json.encode(long)) < MAX_TEXT_CHARACTERS * 1.2
    assert cut_middle("abc", limit=0) == cut_middle("abc", limit=1) == "\n[... 3 characters left out ...]\n"


def test_files_of_a_result_share_one_limit() -> None:
    """What the providers take is a size for the request, not for each file."""
    halves = [File(media_type="image/png", data=bytes(MAX_FILE_BYTES // 2 + 1)) for _ in range(2)]
    assert said(result_of(ToolCall(id="1", name="t"), halves)) == "`t` returned files of 20971522 bytes: too large"


class Marked(str):
    """As numpy's and markupsafe's strings are."""


def test_what_a_part_holds_is_checked() -> None:
    """Structs take anything; a journal that fails on it later would end the turn."""
    call = ToolCall(id="1", name="t")
    assert result_of(call, Marked("a")).content == result_of(call, Text(Marked("a"))).content == (Text("a"),)
    assert type(result_of(call, Text(Marked("a"))).content[0].text) is str  # type: ignore[union-attr]
    picture = File(media_type="image/png", data=bytearray(b"PNG"))  # type: ignore[arg-type]
    assert result_of(call, picture).content == (File(media_type="image/png", data=b"PNG"),)
    for wrong in (
        Text(5),
        File(media_type=None, data=b""),
        File(media_type="a/b", name="\ud800"),
        File(media_type="a/b", data=9),
    ):  # type: ignore[arg-type]
        result = result_of(call, wrong)
        assert result.is_error and "cannot be turned into JSON" in said(result)
        msgspec.json.encode(result)


async def test_large_value_is_made_into_text_outside_the_loop() -> None:
    """A plain function's in its own thread, an async one's in another, so nobody waits for a slow serialiser."""
    where: set[bool] = set()

    class Slow:
        def to_dict(self) -> object:
            where.add(threading.current_thread() is threading.main_thread())
            return {}

    async def later(_: Arguments) -> object:
        return [Slow()] * 1001

    assert said(await one(lambda _: Slow())) == "{}"
    assert (await one(later)).is_error is False
    assert where == {False}


async def test_exceptions_are_results_without_a_traceback() -> None:
    """Class alone; ToolFault in its own words; sys.exit and a self-made cancellation end the tool, not the turn."""

    def fail(_: Arguments) -> object:
        raise KeyError("colour")

    def refuse(_: Arguments) -> object:
        raise ToolFault("there is no such colour; try `red`")

    async def cancel(_: Arguments) -> object:
        raise asyncio.CancelledError

    outcomes = [await one(function) for function in (fail, refuse, lambda _: sys.exit(3), cancel)]
    assert [(result.is_error, said(result)) for result in outcomes] == [
        (True, f"KeyError: {TOOL_FAILED}"),
        (True, "there is no such colour; try `red`"),
        (True, f"SystemExit: {TOOL_FAILED}"),
        (True, "`it` cancelled itself"),
    ]


class Mute(Exception):
    """Its text cannot be had."""

    def __str__(self) -> str:
        raise ValueError("no words")


class MuteFault(Mute, ToolFault):
    pass


class Panic(BaseException):
    """As a Rust extension raises it (pyo3's PanicException), or gevent its Timeout."""


@pytest.mark.promise("step:every-call-answered")
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("awaited", [False, True])
@pytest.mark.parametrize(
    ("error", "text"),
    [
        (Mute(), f"Mute: {TOOL_FAILED}"),
        (MuteFault(), "(its message cannot be shown: ValueError)"),
        (Panic("index out of bounds"), f"Panic: {TOOL_FAILED}"),
        (KeyboardInterrupt(), f"KeyboardInterrupt: {TOOL_FAILED}"),
        (SystemExit(3), f"SystemExit: {TOOL_FAILED}"),
        (GeneratorExit(), f"GeneratorExit: {TOOL_FAILED}"),
        (StopIteration(Mute()), f"StopIteration: {TOOL_FAILED}"),
        (asyncio.CancelledError(), "`it` cancelled itself"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
async def test_whatever_a_tool_raises_is_its_result(
    error: BaseException, text: str, awaited: bool, exclusive: bool
) -> None:
    """In a thread or in the loop, alone or beside others: its siblings keep their results."""

    def fail(_: Arguments) -> object:
        raise error

    async def fail_later(_: Arguments) -> object:
        raise error

    calls = [planned("sibling"), planned("it", exclusive=exclusive)]
    run, _ = tool_run(FakeClock(), calls, sibling=lambda _: "fine", it=fail_later if awaited else fail)
    results = await asyncio.wait_for(run.run(), HANG_S)
    assert [(said(result), result.is_error) for result in results] == [("fine", False), (text, True)]


@pytest.mark.promise("step:every-call-answered")
@pytest.mark.parametrize("exclusive", [False, True])
async def test_tool_that_cancels_its_own_task_has_a_result(exclusive: bool) -> None:
    """Nobody else cancelled anything, so the step goes on."""

    async def cancel(_: Arguments) -> object:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)
        return "never"

    calls = [planned("it", exclusive=exclusive), planned("sibling")]
    run, _ = tool_run(FakeClock(), calls, sibling=lambda _: "fine", it=cancel)
    results = await asyncio.wait_for(run.run(), HANG_S)
    assert [said(result) for result in results] == ["`it` cancelled itself", "fine"]


async def test_arguments_arrive_decoded() -> None:
    """JSON as a dict; free-form text as `input`."""
    assert said(await one(lambda given: sorted(given.items()), arguments='{"b": 1, "a": "ü"}')) == '[["a","ü"],["b",1]]'
    assert said(await one(lambda given: given, arguments="*** Begin", free_form=True)) == '{"input":"*** Begin"}'


async def test_plain_function_runs_in_its_own_thread_and_may_give_an_awaitable() -> None:
    """Blocking code does not block the loop; parallel ones do not queue up behind a pool."""
    together = threading.Barrier(40, timeout=HANG_S)
    calls = [
        msgspec.structs.replace(planned("wait"), call=ToolCall(id=str(number), name="wait")) for number in range(40)
    ]
    run, _ = tool_run(FakeClock(), calls, wait=lambda _: f"thread {together.wait() >= 0}")
    results = await asyncio.wait_for(run.run(), HANG_S)
    assert {said(result) for result in results} == {"thread True"}

    async def later() -> str:
        return "awaited"

    assert said(await one(lambda _: later())) == "awaited"


@pytest.mark.promise("wait:tool")
async def test_stuck_thread_is_abandoned_at_its_deadline() -> None:
    """It cannot be stopped, and the result says so; the step goes on without it."""
    clock, release = FakeClock(), threading.Event()
    run, seen = tool_run(clock, [planned("stuck")], stuck=lambda _: release.wait(HANG_S))
    running = asyncio.create_task(run.run())
    await clock.until_waiting(10)
    await clock.advance(10)
    (result,) = await asyncio.wait_for(running, HANG_S)
    release.set()
    assert (said(result), result.is_error) == ("timed out after 10 s, may still be running", True)
    assert seen == ["start stuck", "finish stuck"]


@pytest.mark.promise("wait:tool")
async def test_tool_that_ignores_its_cancellation_is_abandoned() -> None:
    """After the deadline and half a second to settle its result is there, though it runs on."""
    clock, release = FakeClock(), asyncio.Event()

    async def stubborn(_: Arguments) -> str:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return "late"

    run, _ = tool_run(clock, [planned("stubborn")], stubborn=stubborn)
    running = asyncio.create_task(run.run())
    await clock.until_waiting(10)
    await clock.advance(10.5)
    (result,) = await asyncio.wait_for(running, HANG_S)
    assert said(result) == "timed out after 10 s, may still be running"
    release.set()
    await clock.advance(0)


async def test_abandoned_tool_is_kept_until_it_ends() -> None:
    """asyncio holds tasks weakly: without us, garbage collection would end it at any moment, in mid-work."""
    clock = FakeClock()
    waiting: list[weakref.ref[asyncio.Future[None]]] = []

    async def stubborn(_: Arguments) -> str:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            release: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            waiting.append(weakref.ref(release))
            await release
        return "late"

    run, _ = tool_run(clock, [planned("stubborn")], stubborn=stubborn)
    running = asyncio.create_task(run.run())
    await clock.until_waiting(10)
    await clock.advance(10.5)
    await asyncio.wait_for(running, HANG_S)
    gc.collect()
    release = waiting[0]()
    assert release is not None
    release.set_result(None)
    del release
    await clock.advance(0)
    gc.collect()
    assert waiting[0]() is None


async def test_cancelled_run_keeps_what_had_finished() -> None:
    """Every tool still running is cancelled and has settled when the cancellation goes on."""
    begun, settled = asyncio.Event(), asyncio.Event()

    async def slow(_: Arguments) -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            settled.set()
        return ""

    async def fast(_: Arguments) -> str:
        return "done"

    calls = [planned("slow"), planned("fast"), planned("after", exclusive=True)]
    run, seen = tool_run(FakeClock(), calls, slow=slow, fast=fast, after=fast)
    running = asyncio.create_task(run.run())
    await begun.wait()
    for _ in range(20):  # passes of the loop in which `fast` ends
        await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert settled.is_set()
    assert [said(result) for result in run.finished] == ["done"]
    assert seen == ["start slow", "start fast", "finish fast"]


@pytest.mark.promise("wait:tool")
@pytest.mark.parametrize("last_first", [False, True], ids=["in order", "last first"])
@pytest.mark.parametrize("leap_s", [10.0, 60.0])
async def test_a_tool_that_ends_by_its_own_deadline_brings_what_it_has(leap_s: float, last_first: bool) -> None:
    """Proves: where both deadlines fall together, or a late loop finds them at once, the tool's own counts first; one that
    does not keep it is ended after its grace."""
    clock = FakeClock()

    async def keeps(_: Arguments) -> str:
        await clock.sleep(10.0)
        return "timed out after 10 s, and this is what came"

    async def does_not(_: Arguments) -> str:
        await clock.sleep(1_000.0)
        return "never"

    for function, expected in ((keeps, "this is what came"), (does_not, "timed out after 10 s and was stopped")):
        tool = Tool(offer=ToolOffer(spec=ToolSpec(name="it")), function=function, grace_s=5.0)
        run = ToolRun((planned("it"),), tools={"it": tool}, clock=clock, on_start=lambda _: None)
        task = asyncio.create_task(run.run())
        await clock.leap(leap_s, last_first=last_first)
        await clock.advance(6.0)
        (result,) = await asyncio.wait_for(task, HANG_S)
        assert said(result).endswith(expected)


@pytest.mark.promise("keep:machines")
@pytest.mark.parametrize("exclusive", [(False,), (True,), (False, False), (True, True), (False, True)], ids=str)
async def test_a_call_is_open_from_before_its_beginning_is_written(exclusive: tuple[bool, ...]) -> None:
    """While the beginning of a call is being written, its turn does not rest: handed over in that moment, nobody would know
    whether the call ran."""
    activity = Activity(on_rest=lambda: None)
    rested: list[bool] = []

    async def before(_: Sequence[PlannedCall]) -> None:
        rested.append(activity.rests)

    calls = tuple([planned(f"t{at}", exclusive=alone) for at, alone in enumerate(exclusive)])
    tools = {
        one.call.name: Tool(offer=ToolOffer(spec=ToolSpec(name=one.call.name)), function=lambda _: "done")
        for one in calls
    }
    run = ToolRun(
        calls,
        tools=tools,
        clock=FakeClock(),
        on_start=lambda _: None,
        before=before,
        around=Around(activity=activity),
    )
    with activity.resting():
        await asyncio.wait_for(run.run(), HANG_S)
        assert rested and not any(rested) and activity.rests
