"""Recorded tool conversations of real providers, run by an agent over real sockets: the recorded answers, in the recorded
number of requests."""

import json
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from flat_agents import flat_agent
from turnwise import Text, Tool, ToolFault
from turnwise.assembly.response_reading import read_body
from turnwise.lab import Lab
from turnwise.lab.replay import NOT_COMPARED, UNREPLAYABLE, RecordedConversation, load_recording
from turnwise.turn.config import ToolOffer
from turnwise.vocab import Request, ToolResult, text_of
from turnwise.wire import family as registry
from turnwise.wire.profiles import builtin_profiles
from whole_streams import read_stream

FAMILIES = {"anthropic", "openai_chat", "openai_responses", "gemini"}

BASES = {"gemini": "/v1beta", "anthropic_messages": ""}  # Anthropic's base URL has no version


def recordings(corpus: Path) -> list[Path]:
    """Those of our families."""
    paths = sorted((corpus / "conversations").glob("*.json"))
    return [path for path in paths if json.loads(path.read_text(encoding="utf-8"))["family"] in FAMILIES]


def recorded_requests(recording: RecordedConversation) -> list[Request]:
    family = registry.family(recording.family)
    return [
        family.decode_request(bytes(exchange.request.body), exchange.request.path) for exchange in recording.exchanges
    ]


def recorded_results(requests: list[Request]) -> dict[str, deque[ToolResult]]:
    """What each tool answered, in call order, by the tool's name; out of the last request, which repeats the others."""
    found: dict[str, deque[ToolResult]] = defaultdict(deque)
    start = len(requests[0].messages)
    for message in requests[-1].messages[start:]:
        for part in message.parts:
            if isinstance(part, ToolResult):
                found[part.name].append(part)
    return found


def recorded_answer(recording: RecordedConversation) -> str:
    family, profile = registry.family(recording.family), builtin_profiles()[recording.family]
    body = recording.exchanges[-1].response.body.encode()
    if recording.streamed:
        return text_of(read_stream([body], family=family, profile=profile).message)
    return text_of(read_body(body, family=family, profile=profile)[0].message)


def answering(results: deque[ToolResult]) -> Callable[[dict[str, object]], Awaitable[object]]:
    async def answer(arguments: dict[str, object]) -> object:
        result = results.popleft()
        if result.is_error:
            raise ToolFault("".join(part.text for part in result.content if isinstance(part, Text)))
        return list(result.content)

    return answer


@pytest.mark.costly
@pytest.mark.promise("step:sequential", "step:parallel-together", "step:one-request", "step:every-call-answered")
async def test_recorded_conversations_reach_the_recorded_answer_in_the_recorded_number_of_requests(
    corpus: Path,
) -> None:
    """The lab refuses a request that differs from the recorded one in messages, calls or results, but for NOT_COMPARED."""
    played: list[str] = []
    for path in recordings(corpus):
        recording = load_recording(path)
        if recording.name in UNREPLAYABLE:
            continue
        requests = recorded_requests(recording)
        results = recorded_results(requests)
        first = requests[0]
        async with Lab(conversation=path) as lab:
            agent = flat_agent(
                f"{recording.family}:{first.model or 'recorded'}",
                base_url=lab.url + BASES.get(recording.family, "/v1"),
                instructions=[text.text for text in first.system],
                tools=[
                    Tool(offer=ToolOffer(spec=spec), function=answering(results[spec.name])) for spec in first.tools
                ],
                stream=recording.streamed,
            )
            result = await agent.run(first.messages[-1], history=first.messages[:-1])
            refused = [received.refused for received in lab.requests if received.refused]
            assert refused == [], f"{recording.name}: {refused}"
            assert result.text == recorded_answer(recording), recording.name
            assert result.complete, recording.name
            assert (result.requests, lab.count()) == (len(requests), len(requests)), recording.name
            assert all(not left for left in results.values()), (
                f"{recording.name}: not every recorded result was asked for"
            )
        played.append(recording.name)
    assert len(played) == len(recordings(corpus)) - len(UNREPLAYABLE), played


def test_the_unreplayable_are_named_with_their_reason(corpus: Path) -> None:
    """Each stands in the corpus, and the list of fields that are not compared says why."""
    names = {path.stem for path in recordings(corpus)}
    assert set(UNREPLAYABLE) <= names
    assert all(reason for reason in UNREPLAYABLE.values())
    assert all(why for why in NOT_COMPARED.values())


async def test_a_request_that_differs_from_the_recorded_one_is_refused(corpus: Path) -> None:
    """The comparison can fail: another result than the recorded one gets a 400, and the turn ends as provider_failed."""
    path = next(path for path in recordings(corpus) if path.stem not in UNREPLAYABLE)
    recording = load_recording(path)
    first = recorded_requests(recording)[0]

    async def wrong(arguments: dict[str, object]) -> object:
        return "another result than the recorded one"

    async with Lab(conversation=path) as lab:
        agent = flat_agent(
            f"{recording.family}:{first.model or 'recorded'}",
            base_url=lab.url + BASES.get(recording.family, "/v1"),
            instructions=[text.text for text in first.system],
            tools=[Tool(offer=ToolOffer(spec=spec), function=wrong) for spec in first.tools],
            stream=recording.streamed,
        )
        result = await agent.run(first.messages[-1], history=first.messages[:-1])
    assert result.stop_reason == "provider_failed"
    assert result.fault is not None and result.fault.status == 400
