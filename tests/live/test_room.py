"""A prompt that does not fit a real window: recognised, summarised, answered."""

import pytest

from live.asking import bench, each_endpoint
from live.conftest import SMALL_WINDOW_TOKENS
from live.serving import LiveServer
from live.talks import MANY_PLACES
from turnwise import StopReason


@pytest.mark.promise("cut:budget", "bill:wire")
@each_endpoint
async def test_a_prompt_past_the_window_is_summarised_and_answered(small: LiveServer, family: str) -> None:
    """Proves: the server's refusal is read as an overflow with its window; the request for a summary is taken; the prompt after
    it fits; and the counts are the server's, for which a refused request has no tokens."""
    async with bench(family, server=small) as at:
        result = await at.agent(room="compact", recover="off").run("Say hello.", history=MANY_PLACES)
        at.check(result, statuses=[400, 200, 200])
        assert result.requests_by_purpose == {"step": 1, "compact": 1, "retry": 1}
        assert result.stop_reason is StopReason.ANSWERED
        # What each cost rests on the server's cache.
        changes = [change.split(": ")[:2] for change in result.prefix_changes]
        assert changes == [["request 2", "compaction"], ["request 3", "compaction"]]
        assert b'"n_ctx":%d' % SMALL_WINDOW_TOKENS in at.exchanges[0].received
        last = result.ledger[-1].usage
        assert last is not None and last.input_tokens + last.output_tokens <= SMALL_WINDOW_TOKENS
        assert len(result.history) < len(result.messages)
