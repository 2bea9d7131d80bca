"""The calls of one response: run together, each answered once, in order."""

import pytest
from msgspec.structs import replace

from families import of_family, traits_of
from turn.playing import ASK, CONFIG, PATH, READ, call, cut, done, play, results_in, says, session_messages
from turnwise.errors import BadTool, CallerError
from turnwise.rules.history import check_input, unique_id
from turnwise.turn.config import ToolOffer
from turnwise.turn.events import PlannedCall, ResponseReceived, StepPrepared, ToolsFinished, TurnStarted
from turnwise.turn.machine import Turn, restore
from turnwise.vocab import (
    ArgumentsState,
    FinishReason,
    Message,
    NamedTool,
    OutputSchema,
    Repair,
    Settings,
    StopReason,
    Text,
    ToolResult,
    ToolSpec,
    Usage,
    calls_of,
)


@pytest.mark.promise("step:parallel-together", "step:one-request")
def test_parallel_calls_run_together_and_one_request_carries_all_results_in_call_order() -> None:
    """Whatever order they finish in (deep-chat sent one follow-up for each)."""
    backwards = ToolsFinished(results=(result("b", "two"), result("a", "one")))
    played = play([says(call("a"), call("b", "write")), backwards, says("Done.")])
    assert played.ran == [
        (
            PlannedCall(call=call("a"), arguments=PATH, timeout_s=120.0),
            PlannedCall(call=call("b", "write"), arguments=PATH, timeout_s=5.0, exclusive=True),
        )
    ]
    assert len(played.requests) == 2
    assert played.requests[1].request.messages[-1] == Message("tool", (result("a", "one"), result("b", "two", "write")))


def result(id: str, text: str, name: str = "read") -> ToolResult:
    return ToolResult(call_id=id, name=name, content=(Text(text),))


@pytest.mark.promise("step:every-call-answered", "cut:named", "cut:complete-sibling", "cut:never-run")
def test_every_kind_of_failed_call_has_its_own_words_and_complete_ones_run() -> None:
    """Denied, unknown, cut, malformed, mismatched, lost: six results that a model can act on, one follow-up."""
    broken = call("malformed", arguments='{"path": nope}', state=ArgumentsState.INVALID, reason="unexpected `n` at 9")
    response = says(
        call("fine"),
        call("denied", "write"),
        call("unknown", "wriet"),
        cut("cut"),
        broken,
        call("mismatch", arguments='{"path": 3, "more": true}'),
        call("lost"),
        finish=FinishReason.LENGTH,
    )
    config = replace(CONFIG, allowed=("none", "read"), allow_hint="run it with `--allow {tool}`")
    only_one = ToolsFinished(results=(result("fine", "text"), result("fine", "twice"), result("who", "?")))
    played = play([response, only_one, says("Done.")], config=config)
    assert [plan.call.id for plan in played.ran[0]] == ["fine", "lost"]
    assert results_in(played.result.messages) == {
        "fine": "text",
        "denied": (
            "Denied: `write` was not run, because its effect (`write`) is not allowed in this run. Only the user can allow "
            "it: run it with `--allow write`. Do not call it again; go on without it, or say what you would have done."
        ),
        "unknown": (
            "Not run: no tool `wriet` is on offer in this step. Did you mean `write`? On offer: `read`, `write`, `client`."
        ),
        "cut": (
            "Not run: the arguments of this call of `read` were cut off (cut inside the string at `$.path` after 1 character; "
            "10 characters of the arguments had arrived), because the response reached its limit of output tokens. Nothing "
            "was changed. The same call would be cut again. Work in smaller pieces: several calls whose arguments are much "
            "shorter; how long a response may get is not known here, for example the first part now and the rest added by "
            "later calls, one response each."
        ),
        "malformed": (
            "Not run: the arguments of this call of `read` are not valid JSON (unexpected `n` at 9). They began: "
            '{"path": nope}. Send the call again with one JSON object as its arguments, strings escaped.'
        ),
        "mismatch": (
            "Not run: the arguments do not fit the parameters of `read`. Correct all of these and call again:\n"
            "- `$.path`: expected string, got 3\n- `$`: unexpected: `more` (allowed: `path`)"
        ),
        "lost": "No result was reported for this call. The tool may or may not have run.",
    }
    assert [repair.kind for repair in played.result.repairs] == [
        "arguments_emptied",
        "arguments_emptied",
        "stray_result",
        "stray_result",
    ]
    back = {part.id: part.arguments for part in calls_of(played.requests[1].request.messages[1])}
    assert (back["cut"], back["malformed"], back["fine"]) == ("{}", "{}", PATH)
    assert played.result.stop_reason is StopReason.ANSWERED


@pytest.mark.promise("cut:named")
@pytest.mark.parametrize("name", ["functions.read", " read ", "Read", "raed", "read<|channel|>commentary"])
def test_a_name_that_can_only_mean_one_tool_that_changes_nothing_runs(name: str) -> None:
    """Under the right name, which is what goes into history; the repair is recorded."""
    played = play([says(call("a", name)), says("Done.")])
    assert [plan.call.name for plan in played.ran[0]] == ["read"]
    assert [part.name for part in calls_of(played.requests[1].request.messages[1])] == ["read"]
    assert played.result.repairs == (Repair("tool_name", "call a", f"`{name}` is `read`"),)
    assert (played.result.requests, played.result.complete) == (2, True)


@pytest.mark.promise("cut:named")
def test_a_name_is_only_suggested_for_a_tool_that_changes_something_or_is_not_on_offer() -> None:
    """Nothing is written by a guess, and `prepare_step` has the last word about what may be called."""
    played = play([says(call("a", "functions.write")), says("Done.")])
    assert not played.ran
    assert "Did you mean `write`?" in results_in(played.result.messages)["a"]
    hidden = play(
        [says(call("a", "Read")), says("Done.")],
        prepare=[StepPrepared(tools=("write",))],
        config=replace(CONFIG, prepares_steps=True),
    )
    assert not hidden.ran
    forced = play([says(call("a", "Read")), says("Done.")], config=replace(CONFIG, max_steps=1))
    assert not forced.ran


@pytest.mark.promise("step:incomplete-response")
@pytest.mark.parametrize("finish", [FinishReason.LENGTH, FinishReason.CUT, FinishReason.ERROR, FinishReason.STOP])
def test_a_response_that_ended_too_soon_loses_no_complete_call(finish: FinishReason) -> None:
    """Complete calls run whatever the finish reason claims."""
    played = play([says(call("a"), cut("b"), finish=finish), says("Done.")])
    assert [plan.call.id for plan in played.ran[0]] == ["a"]
    assert list(results_in(played.result.messages)) == ["a", "b"]


def test_a_response_whose_calls_may_not_run_goes_straight_to_the_next_request() -> None:
    """There is nothing to run; the results say why."""
    played = play([says(call("a", "nothing")), says("Sorry.")])
    assert played.ran == []
    assert len(played.requests) == 2


@pytest.mark.promise("assembly:empty-then-real")
def test_glued_objects_become_calls_of_their_own_only_if_all_fit() -> None:
    """Two whole objects under one name: the schema decides."""
    both = call("a", state=ArgumentsState.INVALID, alternatives=(PATH, '{"path":"b"}'))
    played = play([says(both), says("Done.")])
    assert [(plan.call.id, plan.arguments) for plan in played.ran[0]] == [("a", PATH), ("a_2", '{"path":"b"}')]
    assert calls_of(played.result.messages[1]) == (call("a"), call("a_2", arguments='{"path":"b"}'))
    assert [repair.kind for repair in played.result.repairs] == ["glued_calls"]

    one = call("a", state=ArgumentsState.INVALID, alternatives=(PATH, '{"other":"b"}'))
    played = play([says(one), says("Done.")])
    assert played.ran == []
    assert results_in(played.result.messages)["a"].startswith("Not run: this call of `read` held 2 JSON objects")


@pytest.mark.promise("assembly:id-twice")
def test_ids_that_repeat_are_made_unique_and_every_call_runs() -> None:
    """In one response and over steps (openai-agents runs the first only)."""
    played = play([says(call("a"), call("a")), says(call("a"), call("")), says("Done.")])
    assert [[plan.call.id for plan in plans] for plans in played.ran] == [["a", "a_2"], ["a_3", "call_1"]]
    texts = results_in(played.result.messages)
    assert texts == {"a": "did a", "a_2": "did a_2", "a_3": "did a_3", "call_1": "did call_1"}


def test_free_form_tools_get_text_in_every_family() -> None:
    """Where the family has no free-form calls they come as JSON with one string."""
    patch = ToolOffer(spec=ToolSpec(name="patch", free_form=True))
    config = replace(CONFIG, tools=(patch,))
    response = says(
        call("a", "patch", "*** Begin", free_form=True),
        call("b", "patch", '{"input":"*** Begin"}'),
        call("c", "patch", '{"text":"x"}'),
    )
    played = play([response, says("Done.")], config=config)
    assert [plan.arguments for plan in played.ran[0]] == ["*** Begin", "*** Begin"]
    assert "`$.input`: expected string" in results_in(played.result.messages)["c"]


@pytest.mark.promise("step:client-tools")
def test_client_side_calls_end_the_run_as_waiting_and_their_results_resume_it_in_one_request() -> None:
    """Local ones run first; the resumed request holds all results in call order."""
    response = says("Your turn.", call("a", "client", "{}"), call("b"), call("c", "client", "{}"))
    first = play([response])
    assert first.result.stop_reason is StopReason.WAITING
    assert first.result.pending == (call("a", "client", "{}"), call("c", "client", "{}"))
    assert results_in(first.result.messages) == {"b": "did b"}
    assert [plan.call.id for plan in first.ran[0]] == ["b"]

    earlier = session_messages([first.events])
    assert earlier == first.result.messages
    handed = Message("tool", (result("c", "from c", ""), result("a", "from a", "")))
    check_input((handed,), history=earlier)
    second = play([says("Thanks.")], input=(handed,), earlier=earlier)
    assert len(second.requests) == 1
    assert second.requests[0].request.messages == (
        ASK,
        response.message,
        Message("tool", (result("a", "from a", "client"), result("b", "did b"), result("c", "from c", "client"))),
    )
    assert second.result.text == "Thanks."


@pytest.mark.promise("step:client-tools")
def test_results_that_do_not_match_the_pending_calls_are_the_callers_mistake() -> None:
    """Said before anything is sent; a plain message instead goes on without them."""
    earlier = session_messages([play([says(call("a", "client", "{}"), call("b", "client", "{}"))]).events])

    def check(*results: ToolResult) -> None:
        check_input((Message("tool", results),), history=earlier)

    with pytest.raises(CallerError, match="no pending call has the id `x`; the session waits for: a, b"):
        check(result("x", ""))
    with pytest.raises(CallerError, match="two results for one call"):
        check(result("a", ""), result("b", ""), result("b", ""))
    with pytest.raises(CallerError, match="nothing to send"):
        check()
    check_input((ASK,), history=earlier)
    played = play([says("ok")], earlier=earlier)
    assert list(results_in(played.requests[0].request.messages)) == ["a", "b"]


def test_a_turn_killed_while_tools_ran_leaves_calls_with_results_that_say_so() -> None:
    """What was decided at once keeps its words; what had started may have run."""
    played = play([says(call("a"), call("b", "gone")), says("Done.")])
    journal = played.events[:2]
    left = session_messages([journal])
    texts = results_in(left)
    assert texts["a"].startswith(
        "The run was interrupted before a result was recorded. The tool may or may not have run"
    )
    assert texts["b"].startswith("Not run: no tool `gone`")
    turn, commands = restore(journal)
    assert turn.result is None
    assert len(commands) == 2


def test_the_fold_of_a_session_is_what_each_next_turn_starts_from() -> None:
    """Imported history, two turns, one after the other."""
    imported = (Message("user", (Text("before"),)), Message("assistant", (Text("yes"),)))
    first = play([says(call("a")), says("One.")], history=imported)
    earlier = session_messages([first.events])
    assert earlier == (*imported, *first.result.messages)
    second = play([says("Two.")], earlier=earlier)
    assert second.requests[0].request.messages == (*earlier, ASK)
    assert second.requests[0].taken_ids == frozenset({"a"})


def test_a_session_that_changes_its_family_is_folded_to_the_same_ids() -> None:
    """`x:1` goes to Anthropic under another id, so a call that comes back with that one needs a third, live and folded."""
    first = play([says(call("x:1")), says("One.")])
    known = unique_id("x:1", taken=(), traits=traits_of("anthropic_messages"))
    second = play(
        [says(call(known)), says("Two.")],
        config=replace(CONFIG, **of_family("anthropic_messages")),
        earlier=first.result.messages,
    )
    assert list(results_in(second.result.messages)) == [f"{known}_2"]
    assert session_messages([first.events, second.events]) == (*first.result.messages, *second.result.messages)


@pytest.mark.promise("step:history-healed", "step:prefix-stable")
def test_an_id_too_long_for_the_family_is_cut_when_it_arrives() -> None:
    """vLLM's ids have 46 characters, OpenAI takes 40 (opencode#12653); the next turn finds nothing to mend."""
    long = "chatcmpl-tool-" + "0123456789abcdef" * 2
    fit = unique_id(long, taken=(), traits=CONFIG.traits)
    first = play([says(call(long)), says("One.")])
    assert [planned.call.id for planned in first.ran[0]] == [fit]
    assert list(results_in(first.result.messages)) == [fit] and len(fit) == 40
    assert "call_id" in [repair.kind for repair in first.result.repairs]
    second = play([says("Two.")], earlier=first.result.messages)
    assert second.result.repairs == ()


def test_a_result_without_content_says_that_there_was_none() -> None:
    """Strict servers refuse empty text blocks, and a model wonders."""
    played = play([says(call("a")), says("ok")], run=lambda plan: replace(done(plan), content=(Text(" "),)))
    assert results_in(played.result.messages) == {"a": "(no output)"}


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"max_steps": 0}, CallerError, "`max_steps` is 0"),
        ({"tools": (READ, READ)}, CallerError, "two tools are called `read`"),
        ({"tool_choice": NamedTool("gone")}, CallerError, "names `gone`"),
        ({"tools": (ToolOffer(spec=ToolSpec(name="x", parameters='{"type":3}')),)}, BadTool, "tool `x`"),
        ({"output": OutputSchema(schema="[]")}, CallerError, "a JSON Schema is an object"),
        ({"output": OutputSchema(schema='{"$ref":"http://127.0.0.1:9/x"}')}, CallerError, "are not fetched"),
    ],
)
def test_a_configuration_that_cannot_work_is_the_callers_mistake(
    change: dict[str, object], error: type[CallerError], match: str
) -> None:
    """Said before the first request."""
    with pytest.raises(error, match=match):
        Turn.start(TurnStarted(config=replace(CONFIG, **change), input=(ASK,)))


def test_named_tools_that_are_not_on_offer_in_a_step_fall_back_to_auto() -> None:
    """APIs refuse a choice that names what they were not given."""
    played = play(
        [says("ok")],
        config=replace(CONFIG, prepares_steps=True, tool_choice=NamedTool("write")),
        prepare=[StepPrepared(tools=("read",))],
    )
    assert played.requests[0].request.tool_choice == "auto"
    assert played.requests[0].request.tools == (READ.spec,)


def test_a_choice_that_forces_a_call_holds_until_a_tool_has_been_called() -> None:
    """`required` in every step could only end at the cap; `none` stays, and a step's own choice always holds."""
    played = play([says(call("a")), says("Done.")], config=replace(CONFIG, tool_choice="required"))
    assert [sent.request.tool_choice for sent in played.requests] == ["required", "auto"]
    forced = replace(CONFIG, tool_choice=NamedTool("read"), prepares_steps=True)
    played = play(
        [says(call("a")), says("Done.")], config=forced, prepare=[StepPrepared(), StepPrepared(tool_choice="required")]
    )
    assert [sent.request.tool_choice for sent in played.requests] == [NamedTool("read"), "required"]
    played = play([says("Done.")], config=replace(CONFIG, tool_choice="none"))
    assert [sent.request.tool_choice for sent in played.requests] == ["none"]


@pytest.mark.promise("step:every-call-answered")
def test_a_pending_call_beside_a_running_one_is_answered_too_when_the_run_is_killed() -> None:
    """After the crash nobody will hand in its result together with the others'."""
    started = TurnStarted(config=CONFIG, input=(ASK,))
    turn, _ = Turn.start(started)
    turn.receive(ResponseReceived(number=1, response=says(call("a"), call("b", "client", "{}"))))
    assert results_in(turn.left_behind()).keys() == {"a", "b"}


@pytest.mark.promise("cut:never-run")
@pytest.mark.parametrize("finish", [FinishReason.TOOL_CALLS, FinishReason.STOP, FinishReason.CUT])
@pytest.mark.parametrize("arguments", ["{}", PATH])
def test_a_call_that_may_hide_a_cut_does_not_run_where_all_tokens_were_used(
    finish: FinishReason, arguments: str
) -> None:
    """A server that hands out an object, or nothing, and a false finish reason: only the token count tells (Chat)."""
    free = ToolOffer(spec=ToolSpec(name="free", parameters='{"type":"object"}'), effect="read")
    config = replace(CONFIG, settings=Settings(max_output_tokens=100), recover="split", tools=(READ, free))
    at_limit = replace(
        says(call("whole"), call("last", "free", arguments), finish=finish),
        usage=Usage(input_tokens=1, output_tokens=100),
        may_hide_cut=("last",),
    )
    played = play([at_limit, says("Done.")], config=config)
    assert [[plan.call.id for plan in plans] for plans in played.ran] == [["whole"]]
    assert " cut off " in results_in(played.result.messages)["last"]
    below = replace(at_limit, usage=Usage(input_tokens=1, output_tokens=99), finish=FinishReason.TOOL_CALLS)
    again = play([below, says("Done.")], config=config)
    assert [[plan.call.id for plan in plans] for plans in again.ran] == [["whole", "last"]]
