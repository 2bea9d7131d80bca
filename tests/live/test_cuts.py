"""Real cuts: a limit of 24 tokens falls into a text and into a call. Nothing cut runs, nothing is joined on a guess, and the end
says what is missing."""

import json

import pytest

from live.asking import arguments_in, bench, calls_made, each_endpoint, is_whole, told, written
from live.serving import LiveServer
from live.talks import POEMS, SHORT
from turnwise import StopReason

either_way = pytest.mark.parametrize("stream", [True, False], ids=["stream", "body"])


@pytest.mark.promise("cut:text-continued", "end:reason")
@each_endpoint
@pytest.mark.parametrize("stream", [True], ids=["stream"])
async def test_a_cut_text_is_continued_from_its_end_or_stands_as_cut(
    live: LiveServer, family: str, stream: bool
) -> None:
    """Proves: the request to continue is taken; each piece of the text is one that the server wrote, in order; where the model
    did not go on from the cut, the first piece stands alone and the answer is not complete."""
    async with bench(family, server=live) as at:
        result = await at.agent(settings=SHORT, stream=stream).run("Tell me about the sea.")
        at.check(result)
        first, *more = [written(one) for one in at.exchanges]
        assert result.requests_by_purpose == {"step": 1, "continue": len(more)} and more
        assert result.stop_reason is StopReason.ANSWERED and result.text.startswith(first.strip())
        rest = result.text[len(first.rstrip()) :]
        refused = any(repair.kind == "continuation_refused" for repair in result.repairs)
        assert rest.strip() in "".join(more) and (rest or refused)
        if refused:
            assert not result.complete and result.why_incomplete


@pytest.mark.promise("cut:never-run", "cut:named", "end:never-empty")
@each_endpoint
@either_way
async def test_a_cut_call_never_runs(live: LiveServer, family: str, stream: bool) -> None:
    """Proves: its arguments stop in mid-JSON; the model is told so, the history stays whole, and the turn ends with words. The
    Responses endpoint says `completed` of this, which is seen through."""
    async with bench(family, server=live) as at:
        agent = at.agent(tools=[at.save()], settings=SHORT, stream=stream)
        result = await agent.run("Save a poem of the hill.", history=POEMS)
        at.check(result)
        assert len(calls_made(result)) >= 1 and "cut off" in told(result)[0] and told(result)[0].startswith("Not run")
        assert calls_made(result)[0].arguments == "{}"
        if stream:
            assert not is_whole(arguments_in(at.exchanges[0])) and arguments_in(at.exchanges[0]).startswith('{"text')
        whole = [json.loads(call.arguments).get("text") for call in calls_made(result)[1:]]
        assert [text for text in at.ran if text not in whole] == []
        assert result.stop_reason in (StopReason.ANSWERED, StopReason.LOOP)
