"""The loop guard: what runs, what is told, what is remembered, when the answer is forced."""

import json
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tables import each
from thoroughness import examples
from turnwise.rules.loops import (
    BROKEN_STEPS,
    POLLS,
    POLLS_TOLD,
    REMEMBERED_STEPS,
    RUNS,
    Loop,
    LoopGuard,
    call_key,
    remembered_result,
    result_key,
    stem_of,
    why_it_ends,
    word,
)
from turnwise.vocab import ArgumentsState, File, Text, ToolCall, ToolResult

Answer = Callable[[ToolCall, int], str]
CONTENT = '{"path":"big.txt","content":"line 1\\nline 2\\n'


def call(id: str, arguments: str = "{}", name: str = "read") -> ToolCall:
    return ToolCall(id=id, name=name, arguments=arguments)


def cut(id: str, arguments: str, name: str = "write") -> ToolCall:
    return ToolCall(id=id, name=name, arguments=arguments, state=ArgumentsState.TRUNCATED)


def same(_: ToolCall, __: int) -> str:
    return "as ever"


def changing(_: ToolCall, ran: int) -> str:
    return f"{ran} % done"


class Played(NamedTuple):
    """`ran` and `remembered` count calls; `told` are the steps (from 1) that were told; `steps` what was asked before the
    answer was forced, and `ends` why it was."""

    ran: int
    remembered: int
    told: list[int]
    steps: int
    ends: Loop | None
    guard: LoopGuard


def play(asked: Sequence[Sequence[ToolCall]], *, answer: Answer = same, spared: tuple[str, ...] = ()) -> Played:
    """The model asks as it likes; the turn does as the guard says."""
    guard, ran, remembered = LoopGuard(), 0, 0
    told: list[int] = []
    given_before: dict[str, ToolResult] = {}
    for number, calls in enumerate(asked, start=1):
        verdict = guard.before(calls)
        results: list[ToolResult] = []
        for one in calls:
            if one.id in verdict.remembered:
                remembered += 1
                assert verdict.remembered[one.id] in given_before, "it remembers a result that was there"
                continue
            whole = one.state is ArgumentsState.COMPLETE
            ran += whole
            said = answer(one, ran) if whole else f"Not run: cut after {len(one.arguments)} characters"
            results.append(ToolResult(call_id=one.id, name=one.name, content=(Text(said),), is_error=not whole))
        given_before |= {result.call_id: result for result in results}
        guard, tell = guard.after(verdict, results=results, spared=spared)
        if tell is not None:
            told.append(number)
        if verdict.ends is not None:
            return Played(ran, remembered, told, number, verdict.ends, guard)
    return Played(ran, remembered, told, len(asked), None, guard)


def cycle(*names: str, steps: int) -> list[list[ToolCall]]:
    return [[call(f"c{step}", json.dumps({"path": names[step % len(names)]}))] for step in range(steps)]


@pytest.mark.promise("loop:repeat", "loop:cycle")
@pytest.mark.parametrize(
    ("names", "told", "forced"),
    [(("a",), [3, 4], 7), (("a", "b"), [6, 7, 8], 11), (("a", "b", "c"), [9, 10, 11, 12], 15)],
)
def test_a_circle_is_told_then_remembered_then_ended(names: tuple[str, ...], told: list[int], forced: int) -> None:
    """Proves: of fifty steps in a circle each call runs four times, the word comes with the third, and the answer is forced
    with request 7, 11 or 15."""
    played = play(cycle(*names, steps=50))
    assert (played.ran, played.remembered) == (RUNS * len(names), REMEMBERED_STEPS)
    assert (played.told, played.steps + 1) == (told, forced)
    assert played.ends == Loop(kind="repeat", steps=forced - 1, period=len(names), tools=("read",))


@pytest.mark.promise("loop:repeat", "loop:cycle")
def test_a_circle_is_found_after_work_that_went_on() -> None:
    """Proves: what came before a loop neither hides nor hastens it."""
    work = [[call(f"w{step}", json.dumps({"line": step}))] for step in range(10)]
    for names in (("a",), ("a", "b"), ("a", "b", "c")):
        played = play([*work, *cycle(*names, steps=50)])
        ran = RUNS * len(names)
        assert (played.ran - len(work), played.steps - len(work)) == (ran, ran + REMEMBERED_STEPS), names


@pytest.mark.promise("loop:repeat")
def test_equal_calls_side_by_side_are_no_loop() -> None:
    """Proves: the unit is the step; what runs together in one response is counted once, in any order."""
    many = [call(f"c{number}") for number in range(50)]
    assert play([many]).ran == 50
    two = [[call(f"x{step}", '{"a":1}'), call(f"y{step}", '{"a":2}')][:: 1 if step % 2 else -1] for step in range(50)]
    played = play(two)
    assert (played.ran, played.remembered, played.steps) == (8, 4, RUNS + REMEMBERED_STEPS)


@pytest.mark.promise("loop:polling")
@pytest.mark.parametrize("period", [1, 2])
def test_a_status_tool_whose_answer_changes_thirty_times_is_left_alone(period: int) -> None:
    """Proves: changing results are progress, with or without a wait in between; the wait's own `ok` makes no loop."""
    names = ("status", "sleep")[:period]

    def answer(one: ToolCall, ran: int) -> str:
        return "ok" if "sleep" in one.arguments else f"{ran} % done"

    played = play(cycle(*names, steps=31 * period), answer=answer)
    assert (played.ran, played.told, played.ends) == (31 * period, [], None)


@pytest.mark.promise("loop:polling")
def test_answers_that_come_back_in_turn_are_changes_too() -> None:
    """Proves: `pending`, `retrying`, `pending` is a status that changes, no cycle of period 2 or 3."""
    for words in (("pending", "retrying"), ("one", "two", "three")):
        played = play(cycle("status", steps=31), answer=lambda _, ran, words=words: words[ran % len(words)])
        assert (played.ran, played.told, played.ends) == (31, [], None)


class Jobs:
    """Jobs whose state changes after so many looks at them, on and on; `looks` counts them."""

    def __init__(self, *patience: int) -> None:
        self.patience = dict(zip("abc", patience, strict=False))
        self.looks = dict.fromkeys(self.patience, 0)

    def answer(self, one: ToolCall, _: int) -> str:
        job = json.loads(one.arguments)["path"]
        self.looks[job] += 1
        return f"state {(self.looks[job] - 1) // self.patience[job]}"


@pytest.mark.promise("loop:polling")
@settings(max_examples=examples(100))
@given(st.lists(st.integers(1, RUNS - 1), min_size=1, max_size=3))
def test_jobs_that_are_asked_in_rotation_may_stay_as_they_are_for_as_many_looks_as_one_job(patience: list[int]) -> None:
    """Proves: one to three jobs whose state changes with every fourth look at the latest are looked at until the cap of polling,
    and no result is from memory. From a tester: three jobs, and the turn ended before the second was done."""
    jobs, asked = Jobs(*patience), 30 * len(patience)
    played = play(cycle(*jobs.patience, steps=asked), answer=jobs.answer)
    assert (played.ran, played.remembered, played.ends) == (asked, 0, None)
    assert set(jobs.looks.values()) == {30}


@pytest.mark.promise("loop:polling")
@pytest.mark.parametrize("still", [("b",), ("b", "c")])
def test_one_job_that_changes_keeps_a_rotation_from_being_a_loop(still: tuple[str, ...]) -> None:
    """Proves: the others that stay as they are hear nothing while one moves, as they would in one step together."""

    def answer(one: ToolCall, ran: int) -> str:
        return "waiting" if json.loads(one.arguments)["path"] in still else f"{ran} % done"

    names = ("a", *still)
    played = play(cycle(*names, steps=40), answer=answer)
    assert (played.ran, played.told, played.ends) == (40, [], None)


@pytest.mark.promise("loop:polling")
def test_answers_that_come_back_in_turn_within_a_round_are_changes() -> None:
    """Proves: a status that says `pending` and `retrying` in turn is no loop where something else stands between two looks,
    or stands beside them."""
    turns = ("pending", "retrying")
    looks = {"n": 0}

    def answer(one: ToolCall, _: int) -> str:
        if "status" not in one.arguments:
            return "ok"
        looks["n"] += 1
        return turns[looks["n"] % 2]

    played = play(cycle("status", "status", "sleep", steps=39), answer=answer)
    assert (played.ran, played.told, played.ends) == (39, [], None)
    both = [
        [call(f"s{step}", '{"path":"status"}'), call(f"o{step}", json.dumps({"path": f"beside {step % 2}"}))]
        for step in range(40)
    ]
    played = play(both, answer=answer)
    assert (played.ran, played.told, played.ends) == (80, [], None)


@pytest.mark.promise("loop:cycle")
@pytest.mark.parametrize("names", ["aab", "aba", "abb"])
def test_a_round_that_holds_a_call_twice_is_a_cycle_too(names: str) -> None:
    """Proves: it ends as late as any cycle of three, and each of its steps has run four times."""
    played = play(cycle(*names, steps=50))
    assert (played.ran, played.remembered, played.steps) == (12, 2, 14)


@pytest.mark.promise("loop:polling")
def test_polling_has_its_own_cap() -> None:
    """Proves: told once, late; then the answer is forced, and every call of it has run."""
    played = play(cycle("status", steps=200), answer=changing)
    assert (played.ran, played.remembered, played.told, played.steps) == (POLLS, 0, [POLLS_TOLD], POLLS)
    assert played.ends == Loop(kind="polling", steps=POLLS, period=1, tools=("read",))


def test_a_tool_that_is_meant_to_be_repeated_runs_until_the_cap_of_polling() -> None:
    """Proves: a key press that always says `ok` can be spared by its owner."""
    played = play(cycle("down", steps=200), spared=("read",))
    assert (played.ran, played.told, played.steps) == (POLLS, [POLLS_TOLD], POLLS)


@pytest.mark.promise("loop:repeat")
def test_a_test_run_between_edits_is_no_loop() -> None:
    """Proves: the same failing result over and over is no circle while something new is tried in between."""
    steps = [
        [call(f"c{step}", "{}" if step % 2 else json.dumps({"edit": step}), "bash" if step % 2 else "edit")]
        for step in range(40)
    ]
    played = play(steps)
    assert (played.ran, played.told, played.ends) == (40, [], None)


@pytest.mark.promise("loop:repeat")
def test_a_new_result_breaks_the_circle() -> None:
    """Proves: counting starts again once a call returned something else."""
    played = play(cycle("a", steps=12), answer=lambda _, ran: f"state {(ran - 1) // 3}")
    assert (played.ran, played.remembered, played.told, played.ends) == (12, 0, [3, 6, 9, 12], None)


CUTS = [CONTENT[:length] for length in (44, 20, 33, 25, 28, 41)]
REWORDED = [
    '{"path":"big.txt","content":"Once',
    '{"path":"big.txt","content":"In the beg',
    '{"path":"big.txt","content":"',
]
OBJECTS = ['{"path":"big.txt"}', '{ "path":"big.txt"}', '{"path":"big.txt"}']


@pytest.mark.promise("loop:cut-variants")
@pytest.mark.parametrize("variants", [CUTS, REWORDED, OBJECTS[:1], ['{"path":"bi', *CUTS]])
def test_cut_variants_are_one_call(variants: list[str]) -> None:
    """Proves: cut elsewhere, worded otherwise behind the same keys, or handed out as an object: the sixth in a row ends it."""
    played = play([[cut(f"c{step}", variants[step % len(variants)])] for step in range(50)])
    assert (played.ran, played.remembered, played.told, played.steps) == (0, 0, [3, 4, 5, 6], BROKEN_STEPS)
    assert played.ends == Loop(kind="broken", steps=BROKEN_STEPS, period=1, tools=("write",))


@pytest.mark.promise("loop:cut-variants")
def test_cut_calls_of_different_things_are_told_later_and_end_as_soon() -> None:
    """Proves: another file or another tool is another call, so its first notices are no repetition; but each attempt costs a
    whole output limit, so the sixth in a row ends it. From a tester: 41 requests and 328,000 tokens for nothing."""
    files = play([[cut(f"c{step}", f'{{"path":"{step}.txt","content":"line')] for step in range(20)])
    assert (files.told, files.steps) == ([4, 5, 6], BROKEN_STEPS)
    assert files.ends == Loop(kind="broken", steps=BROKEN_STEPS, period=1, tools=("write",))
    tools = play([[cut(f"c{step}", CONTENT, name=f"write_{step}")] for step in range(20)])
    assert tools.told == [4, 5, 6] and tools.ends is not None and tools.steps == BROKEN_STEPS


_ATTEMPTS = st.lists(st.sampled_from(["cut", "joined", "read", "error", "lost", "wrote", "same tool"]), max_size=40)


@pytest.mark.promise("loop:cut-variants")
@given(_ATTEMPTS)
def test_six_cut_attempts_without_progress_between_them_end_the_turn(attempts: list[str]) -> None:
    """Proves for any order of steps, whatever varies in them: the answer is forced by the sixth attempt in vain since something
    was written or a call of that tool ran, and not before. From a tester: a path that varied hid the loop for 40 steps."""
    guard, row = LoopGuard(), 0
    for number, kind in enumerate(attempts):
        arguments = f'{{"path":"{number}","content":"'
        in_vain = kind in ("cut", "joined")
        name = {"read": "look", "error": "write", "wrote": "edit"}.get(kind, "write")
        one = call(f"c{number}", arguments + '"}', name)
        if kind in ("cut", "lost"):
            state = ArgumentsState.TRUNCATED if kind == "cut" else ArgumentsState.LOST
            one = msgspec.structs.replace(one, arguments=arguments, state=state)
        verdict = guard.before([one], joined={one.id} if kind == "joined" else ())
        row += in_vain
        assert (verdict.ends is not None) == (in_vain and row >= BROKEN_STEPS)
        if verdict.ends is not None:
            assert verdict.ends.kind == "broken"
            return
        failed = in_vain or kind in ("error", "lost")
        said = ToolResult(call_id=one.id, name=name, content=(Text(f"{number}"),), is_error=failed)
        guard, _ = guard.after(verdict, results=[said], idle={"look"})
        if kind in ("wrote", "same tool"):
            row = 0


@pytest.mark.promise("loop:cut-variants")
def test_a_cut_call_in_turn_with_a_whole_one_is_a_cycle() -> None:
    """Proves: reading in between does not hide that the same write is cut again and again."""
    steps = [[call(f"c{step}")] if step % 2 else [cut(f"c{step}", CUTS[step // 2 % 3])] for step in range(50)]
    played = play(steps)
    assert (played.ran, played.steps) == (RUNS, 2 * RUNS + REMEMBERED_STEPS)


@pytest.mark.promise("cut:split")
def test_a_retry_after_a_split_notice_is_never_blocked() -> None:
    """Proves: the whole call after its cut variants runs, be it the same, the first piece of it, or one of many pieces."""
    whole = json.dumps({"path": "big.txt", "content": "line 1\nline 2\nline 3\n"}, separators=(",", ":"))
    piece = json.dumps({"path": "big.txt", "content": "line 1\n"}, separators=(",", ":"))
    for cuts in range(1, BROKEN_STEPS):
        first = [[cut(f"cut{number}", whole[: 40 - number])] for number in range(cuts)]
        for retry in (whole, piece):
            played = play([*first, [call("again", retry, "write")]])
            assert (played.ran, played.remembered, played.ends) == (1, 0, None)
        pieces = [[call(f"p{number}", json.dumps({"append": number}), "write")] for number in range(20)]
        played = play([*first, *pieces])
        assert (played.ran, [step for step in played.told if step > cuts], played.ends) == (20, [], None)


@pytest.mark.promise("cut:split")
def test_a_model_that_halves_its_piece_is_not_taken_for_one_that_changes_nothing() -> None:
    """Proves: five cut attempts that look the same (each fills the limit), then the piece that fits: 32 times the limit."""
    piece = json.dumps({"path": "big.txt", "content": "line 1\n"}, separators=(",", ":"))
    attempts = [[cut(f"cut{number}", CONTENT[:44])] for number in range(5)]
    played = play([*attempts, [call("fits", piece, "write")]])
    assert (played.ran, played.ends) == (1, None)


@pytest.mark.promise("cut:split")
def test_a_piece_that_ran_starts_the_count_of_cut_attempts_anew() -> None:
    """Proves: a model that tries the whole rest again after each piece makes progress, and is left alone."""
    steps: list[list[ToolCall]] = []
    for number in range(8):
        steps += [[cut(f"cut{number}{attempt}", CONTENT[:44])] for attempt in range(BROKEN_STEPS - 1)]
        steps.append([call(f"p{number}", json.dumps({"append": number}), "write")])
    played = play(steps)
    assert (played.ran, played.steps, played.ends) == (8, len(steps), None)


@each(
    ("arguments", "stem"),
    [
        ('{"path":"a","content":"x', '{"path":"a"} "content"'),
        ('{"path":"a","edits":[{"old":"x","new":', '{"path":"a"} "edits"'),
        ('{"path":"a","content"', '{"path":"a"} '),
        ('{"a":{"b":1},"c":tru', '{"a":{"b":1}} "c"'),
        (r'{"say":"\"}, {\"","c":"', r'{"say":"\"}, {\""} "c"'),
        ('{"path":"a"}', '{"path":"a"}'),
        ('{"path":"a"', ""),
        ('{"content":"x, y', ""),
        ("[1,2", ""),
        ("", ""),
        ('{"a":"' + "x" * 10_000 + '","b":"', ""),
    ],
)
def test_the_stem_is_what_stood_whole_before_the_cut(arguments: str, stem: str) -> None:
    """Proves: strings, escapes and nesting do not mislead it, and its look is bounded."""
    assert stem_of(arguments) == stem


@pytest.mark.promise("loop:repeat")
def test_calls_are_equal_by_what_they_say() -> None:
    """Proves: key order and spaces do not matter, tools and values do; text that is no JSON counts as it stands."""
    assert call_key(call("1", '{"a":1,"b":[2]}')) == call_key(call("2", ' { "b": [2], "a": 1 } '))
    for spelt in ("1.0", "1e0", "1.00", "10e-1", "0.1E1"):
        assert call_key(call("1", f'{{"a":[{spelt}]}}')) == call_key(call("2", '{"a":[1]}'))
    different = [
        *['{"a":1.5}', '{"a":0}', '{"a":null}', '{"a":true}', '{"a":1e999}', '{"a":1e998}', '{"a":1e300}', '{"a":-1}'],
        *[f'{{"a":{2**64 + more}}}' for more in (0, 10**6)],
    ]
    different += ['{"a":1}', '{"a":"1"}', '{"a":[1]}', "{}", "nope", '{"a":1}{"a":1}', "[" * 100_000, '"\ud800"']
    keys = [call_key(call("1", arguments)) for arguments in different]
    keys += [call_key(call("1", name="write")), call_key(ToolCall(id="1", name="read", arguments="{}", free_form=True))]
    assert len(set(keys)) == len(keys)


@pytest.mark.promise("loop:repeat")
def test_results_are_equal_by_what_they_say() -> None:
    """Proves: ids do not matter; texts, files, their order and being an error do."""
    png = File(media_type="image/png", data=b"1")
    contents: list[tuple[Text | File, ...]] = [
        (),
        (Text("a"),),
        (Text("a"), Text("b")),
        (Text("ab"),),
        (png,),
        (File(media_type="image/png", data=b"2"),),
        (File(media_type="image/png", url="https://x/y.png"),),
        (png, Text("a")),
        (Text("a"), png),
    ]
    results = [
        ToolResult(call_id="1", name="read", content=content, is_error=is_error)
        for content in contents
        for is_error in (True, False)
    ]
    assert len({result_key(result) for result in results}) == len(results)
    assert [result_key(msgspec.structs.replace(result, call_id="2")) for result in results] == [
        result_key(result) for result in results
    ]


@pytest.mark.promise("loop:repeat")
def test_a_remembered_result_never_passes_for_a_change() -> None:
    """Proves: what read comes back as it was; what would have changed something is an error that says that it did not."""
    earlier = ToolResult(call_id="c1", name="read", content=(Text("status: draft"),))
    read = remembered_result(call("c5"), earlier=earlier, changes=False)
    assert (read.call_id, read.is_error, read.content[1:]) == ("c5", False, earlier.content)
    assert read.content[0] == Text(
        "Not run again: this same call of `read` has been made over and over in this turn and gave the same result each time, "
        "so this is that result. Do something else, or answer from what you have. The result was:"
    )
    wrote = remembered_result(call("c5", name="write"), earlier=earlier, changes=True)
    assert wrote.is_error
    assert "what it does was not done again" in msgspec.json.encode(wrote).decode()


def test_the_words_say_what_was_seen() -> None:
    """Proves: each kind of loop has its sentence, with the tools and the number."""
    one = Loop(kind="repeat", steps=4, period=1, tools=("read",))
    assert word(one) == (
        "(Note: the call of `read` came 4 times in a row, with the same result each time. It will not change by being "
        "repeated. Do something else, or answer from what you have.)"
    )
    assert why_it_ends(Loop(kind="repeat", steps=6, period=2, tools=("read", "list"))) == (
        "The turn was going in circles: the last 4 steps each repeated the step 2 before, with the same result."
    )
    assert why_it_ends(Loop(kind="broken", steps=4, period=1, tools=("write",))) == (
        "The turn was going in circles: the call of `write` did not arrive whole 4 times in a row."
    )
    assert why_it_ends(Loop(kind="polling", steps=50, period=1, tools=("status",))) == (
        "The turn was going in circles: the call of `status` came again and again for 50 steps."
    )


texts = st.sampled_from(["{}", '{"a":1}', '{"a":2}', '{"a":1,"b":"x', '{"a":1,"b":"y', '{"a'])
calls = st.builds(
    ToolCall,
    id=st.just(""),
    name=st.sampled_from(["read", "write"]),
    arguments=texts,
    state=st.sampled_from(ArgumentsState),
)
arrived = calls.filter(lambda one: one.state is not ArgumentsState.LOST)
sequences = st.lists(st.lists(calls, min_size=1, max_size=3), max_size=40)


def numbered(asked: list[list[ToolCall]]) -> list[list[ToolCall]]:
    return [
        [msgspec.structs.replace(one, id=f"c{step}_{place}") for place, one in enumerate(calls)]
        for step, calls in enumerate(asked)
    ]


@settings(max_examples=examples(100))
@given(asked=sequences)
def test_the_guard_is_small_plain_data_that_repeats_itself(asked: list[list[ToolCall]]) -> None:
    """Proves: whatever was asked, its state is three steps, encodes and decodes equal, and is a function of the events."""
    played = play(numbered(asked))
    assert len(played.guard.recent) <= 3
    assert msgspec.json.decode(msgspec.json.encode(played.guard), type=LoopGuard) == played.guard
    assert play(numbered(asked)) == played


@pytest.mark.promise("loop:repeat", "loop:cycle")
@settings(max_examples=examples(100))
@given(asked=sequences, period=st.integers(1, 3), repeated=st.lists(arrived, min_size=3, max_size=3))
def test_no_circle_outlasts_the_guard(asked: list[list[ToolCall]], period: int, repeated: list[ToolCall]) -> None:
    """Proves: whatever went before, a circle of up to three steps is over within five rounds and the steps from memory."""
    circle = [[repeated[step % period]] for step in range((RUNS + 1) * period + REMEMBERED_STEPS)]
    assert play(numbered([*asked, *circle])).ends is not None


@pytest.mark.promise("loop:polling")
@settings(max_examples=examples(50))
@given(beside=st.lists(arrived, max_size=2), period=st.integers(1, 3))
def test_a_call_that_is_lost_on_the_way_is_no_circle_of_the_model(beside: list[ToolCall], period: int) -> None:
    """Proves: a gateway that breaks each attempt is not blamed on the model, alone or beside other calls; only the cap of calls
    that are made on and on ends it."""
    lost = [ToolCall(id="", name="read", arguments=name, state=ArgumentsState.LOST) for name in "abc"]
    for steps, kind in ((2 * POLLS_TOLD // 3, None), (3 * POLLS, "polling")):
        played = play(numbered([[lost[step % period], *beside] for step in range(steps)]))
        assert (played.ends and played.ends.kind, played.remembered) == (kind, 0)
        assert kind is not None or played.told == []


@pytest.mark.promise("loop:polling")
@settings(max_examples=examples(100))
@given(asked=sequences)
def test_nothing_is_remembered_while_results_change(asked: list[list[ToolCall]]) -> None:
    """Proves: a call whose result changes each time always runs."""
    whole = [
        [msgspec.structs.replace(one, state=ArgumentsState.COMPLETE) for one in calls] for calls in numbered(asked)
    ]
    played = play(whole, answer=changing)
    assert (played.ran, played.remembered, played.ends) == (sum(map(len, whole)), 0, None)
