"""Every request that turnwise makes is taken by a real server, every stream and body of its three endpoints understood.

The server's own counters (`/metrics`) judge the usage, and the bytes that came judge the texts. What a model of 135 million
parameters says is no matter here.
"""

import json

import pytest

from live.asking import arguments_in, bench, calls_made, each_endpoint, told, written
from live.serving import LiveServer
from live.talks import FRUIT, FRUITS, GREEDY, ONE_BY_ONE, TWO_AT_ONCE
from turnwise import FrameSeen, StopReason
from turnwise.vocab import TextDelta

either_way = pytest.mark.parametrize("stream", [True, False], ids=["stream", "body"])


@pytest.mark.promise("assembly:stream-equals-body", "bill:wire")
@each_endpoint
@either_way
async def test_a_text_is_what_the_server_wrote(live: LiveServer, family: str, stream: bool) -> None:
    """Proves: with instructions; the same words from the stream and the body, shown as they come."""
    shown: list[str] = []
    async with bench(family, server=live) as at:
        agent = at.agent(instructions="You are brief.", stream=stream)
        result = await agent.run(
            "Say hello.",
            watch=lambda seen: (
                isinstance(seen, FrameSeen) and isinstance(seen.frame, TextDelta) and shown.append(seen.frame.text)
            ),
        )
        at.check(result)
        assert result.text == written(at.exchanges[0]).strip()
        assert not stream or "".join(shown).strip() == result.text
        assert result.stop_reason is StopReason.ANSWERED and result.requests == 1
        assert result.complete == (result.usage.output_tokens < 60)


@pytest.mark.promise("step:sequential", "step:prefix-stable", "bill:wire")
@each_endpoint
@either_way
async def test_a_call_runs_once_and_its_result_is_answered(live: LiveServer, family: str, stream: bool) -> None:
    """Proves: the second request begins with the first one's prompt, which the server has in its cache to the last token."""
    async with bench(family, server=live) as at:
        result = await at.agent(tools=[at.weather()], stream=stream).run("Weather in Oslo?", history=ONE_BY_ONE)
        at.check(result)
        assert result.stop_reason is StopReason.ANSWERED and result.complete and not result.repairs
        assert at.ran == [json.loads(call.arguments)["city"] for call in calls_made(result)]
        assert told(result) == ["snow"] and result.requests_by_purpose == {"step": 2}
        first, second = [entry.usage for entry in result.ledger]
        assert first is not None and second is not None
        assert first.input_tokens <= second.cache_read_tokens < second.input_tokens
        assert result.text == written(at.exchanges[1]).strip()
        if stream:
            assert arguments_in(at.exchanges[0]) == calls_made(result)[0].arguments


@pytest.mark.promise("step:parallel-together")
@each_endpoint
async def test_two_calls_run_together_and_one_request_has_both_results(live: LiveServer, family: str) -> None:
    """Proves: parallel calls of a real stream are two, each with its result."""
    async with bench(family, server=live) as at:
        result = await at.agent(tools=[at.weather()]).run("Weather in Oslo and Lima?", history=TWO_AT_ONCE)
        at.check(result)
        first = calls_made(result)[:2]
        assert len(first) == len(at.ran[:2]) == 2 and told(result)[:2] == ["snow", "snow"]
        assert arguments_in(at.exchanges[0]) == "".join([call.arguments for call in first])
        sent = at.exchanges[1].sent.decode()
        assert all(sent.count(f'"{call.id}"') == 2 for call in first)


@each_endpoint
async def test_a_structured_answer_is_had_or_said_to_be_missing(live: LiveServer, family: str) -> None:
    """Proves: the schema is taken in each family's own form. The Chat endpoint obeys it, the others do not look at it."""
    async with bench(family, server=live) as at:
        result = await at.agent(output_type=FRUIT, recover="off").run("Two plums as JSON.", history=FRUITS)
        at.check(result)
        assert (result.output is not None) == result.complete
        if family == "openai_chat":
            assert result.complete and result.requests == 1
        if result.complete:
            assert set(result.output) == {"name", "count"}  # pyright: ignore[reportArgumentType]
        else:
            assert result.why_incomplete


@pytest.mark.promise("end:forced-answer", "end:cap", "end:reason")
@each_endpoint
async def test_the_last_step_forbids_tools_and_ends_with_an_answer(live: LiveServer, family: str) -> None:
    """Proves: `tool_choice` none is taken; the prompt before it stays in the cache; the answer says that it was forced."""
    async with bench(family, server=live) as at:
        result = await at.agent(tools=[at.weather()], max_steps=2).run("Weather in Oslo?", history=ONE_BY_ONE)
        at.check(result)
        assert result.stop_reason is StopReason.STEP_LIMIT and not result.complete and result.why_incomplete
        assert len(at.ran) == 1 and at.exchanges[1].body["tool_choice"] in ("none", {"type": "none"})
        first, second = [entry.usage for entry in result.ledger][:2]
        assert first is not None and second is not None and first.input_tokens <= second.cache_read_tokens


@each_endpoint
async def test_a_second_turn_finds_the_first_in_the_cache(live: LiveServer, family: str) -> None:
    """Proves: what goes back of a real answer (opaque items of Responses among it) is the prompt that the server knows."""
    async with bench(family, server=live) as at:
        agent = at.agent(settings=GREEDY, recover="off")
        first = await agent.run("Name a colour.")
        second = await agent.run("And another.", history=first.history)
        assert [one.status for one in at.exchanges] == [200, 200] and second.fault is None
        assert second.usage.cache_read_tokens >= first.usage.input_tokens
