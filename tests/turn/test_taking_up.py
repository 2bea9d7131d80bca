"""Taking up what an earlier run left: where each answer goes, whatever stands around it (issue 18: mutants that no test noticed).

Events in, commands out.
"""

import pytest
from msgspec.structs import replace

from pairing import pairing_faults
from turn.playing import ASK, CONFIG, call, play, results_in, says
from turn.test_pending_calls import PENDING, WORD, YES, handed_in, play_started
from turnwise.turn.config import Approval, OneAsk
from turnwise.turn.events import TurnStarted
from turnwise.turn.programs import listed_digests
from turnwise.vocab import Message, StopReason, Text

MODELS_WORD = Message("assistant", (Text("The client is slow today."),))
NEXT_WORD = Message("user", (Text("and quietly"),))


@pytest.mark.promise("wait:ask", "step:history-healed")
@pytest.mark.parametrize(
    ("input", "words"),
    [
        ((WORD, handed_in("c")), (WORD,)),
        ((WORD, handed_in("c"), NEXT_WORD), (WORD, NEXT_WORD)),
        ((MODELS_WORD, handed_in("c"), WORD), (MODELS_WORD, WORD)),
    ],
)
def test_words_before_a_result_that_is_handed_in_stand_behind_all_results(
    input: tuple[Message, ...], words: tuple[Message, ...]
) -> None:
    """Proves: the allowed call runs whoever's words stand between it and its answer, and nothing comes between calls and
    results."""
    played = play([says("Done.")], input=input, earlier=PENDING, approvals=(YES,))
    assert [[plan.call.id for plan in plans] for plans in played.ran] == [["a"]]
    request = played.requests[0].request
    assert request.messages[: len(PENDING)] == PENDING and request.messages[len(PENDING) + 1 :] == words
    assert results_in(request.messages) == {"a": "did a", "c": "from the client"}
    assert pairing_faults(request, family="openai_chat") == ()


@pytest.mark.promise("wait:ask", "keep:replay")
def test_an_approval_does_not_answer_a_call_that_waits_for_the_client() -> None:
    """Proves: in a journal of before, too, its tool is not here, so the call goes on waiting for its result."""
    played = play([], input=(), earlier=PENDING, approvals=(replace(YES, call_id="c"),))
    assert (played.ran, played.requests, played.result.stop_reason) == ([], [], StopReason.WAITING)
    assert [one.id for one in played.result.pending] == ["c"]


MISFIT = '{"road":"a"}'


@pytest.mark.promise("wait:ask", "step:every-call-answered")
@pytest.mark.parametrize("decided", [True, False])
def test_a_call_that_fits_its_tool_no_more_is_told_so_once_it_is_decided(decided: bool) -> None:
    """Proves: allowed, it has a result that says what does not fit; undecided, it waits, as another run may know its tool."""
    earlier = (ASK, Message("assistant", (call("a"), call("b", arguments=MISFIT))))
    approvals = (YES, Approval(call_id="b", verdict="allow")) if decided else (YES,)
    started = TurnStarted(config=CONFIG, input=(), history=earlier, approvals=approvals, keeps_waiting=True)
    played = play_started(started, *([says("Done.")] if decided else []))
    assert [[plan.call.id for plan in plans] for plans in played.ran] == [["a"]]
    texts = results_in(played.result.messages)
    assert list(texts) == (["a", "b"] if decided else ["a"])
    assert [one.id for one in played.result.pending] == ([] if decided else ["b"])
    assert not decided or "`road`" in texts["b"]


@pytest.mark.promise("wait:ask")
def test_what_was_shown_of_a_call_is_what_its_history_says_or_a_newer_ask() -> None:
    """Proves: marks of calls that wait are listed, those of calls that have a result are not, and an ask stands before a mark."""
    calls = (call("a", asked="shown"), call("b", asked="older"), call("c", "client"))
    history = (ASK, Message("assistant", calls))
    ask = OneAsk(call=call("b"), arguments="{}", subject="read", digest="newer")
    assert listed_digests(history, asks=()) == {"a": "shown", "b": "older"}
    assert listed_digests(history, asks=(ask,)) == {"a": "shown", "b": "newer"}
    assert listed_digests((*history, handed_in("a")), asks=()) == {"b": "older"}
    assert listed_digests((*history, WORD), asks=(ask,)) == {"b": "newer"}
