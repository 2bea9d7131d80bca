"""Recorded conversations, played to our own reading and writing of each family over real sockets."""

import json
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from stand_ins import are_stand_ins
from turnwise.assembly.response_reading import read_body
from turnwise.errors import CallerError
from turnwise.lab import Lab
from turnwise.lab.replay import RECORDED_AS, UNREPLAYABLE, load_recording
from turnwise.vocab import Message, Response, ToolResult, calls_of
from turnwise.wire.family import MODULES
from turnwise.wire.family import family as find_family
from turnwise.wire.profiles import builtin_profiles
from whole_streams import read_stream


def recordings(corpus: Path) -> list[Path]:
    """Those of one turn each, and whole: what was elided from a body cannot be said again."""
    found = [path for path in sorted((corpus / "conversations").glob("*.json")) if "multi-turn" not in path.name]
    found = [path for path in found if b"...[elided " not in path.read_bytes()]
    return [path for path in found if RECORDED_AS.get(family_of(path), family_of(path)) in MODULES]


def family_of(path: Path) -> str:
    return json.loads(path.read_text(encoding="utf-8"))["family"]


def with_results(call_ids: list[tuple[str, str]], recorded: Message) -> Message:
    """The recorded results as the answers to our calls: by place, as the recorded client gave them in call order."""
    results = [part for part in recorded.parts if isinstance(part, ToolResult)]
    answers = [
        msgspec.structs.replace(result, call_id=id, name=name)
        for (id, name), result in zip(call_ids, results, strict=True)
    ]
    return Message("tool", tuple(answers))


async def post(session: aiohttp.ClientSession, url: str, body: bytes) -> tuple[int, bytes]:
    async with session.post(url, data=body, headers={"content-type": "application/json"}) as answer:
        return answer.status, await answer.read()


@pytest.mark.promise("step:one-request", "step:history-healed")
async def test_recorded_conversations_are_reached_in_the_recorded_number_of_requests(corpus: Path) -> None:
    """Proves: the first recorded request decoded is the start; each later request of ours says what the recorded one
    said, by the lab's own raw reading; the recorded answers come back, streamed and not, to the end."""
    played = 0
    async with aiohttp.ClientSession() as session:
        for path in recordings(corpus):
            recording = load_recording(path)
            if recording.name in UNREPLAYABLE:
                continue
            family, profile = find_family(recording.family), builtin_profiles()[recording.family]
            bodies = [bytes(exchange.request.body) for exchange in recording.exchanges]
            request = family.decode_request(bodies[0], recording.exchanges[0].request.path)
            request = msgspec.structs.replace(request, model=request.model or "recorded", stream=recording.streamed)
            async with Lab(conversation=path) as lab:
                for number, exchange in enumerate(recording.exchanges):
                    call = family.encode_request(request, profile)
                    base = lab.url + ("" if call.path.startswith(("/v1", "/v2", "/api")) else "/v1")
                    status, body = await post(session, base + call.path, call.body)
                    assert (status, body.decode()) == (200, exchange.response.body), path.name
                    response: Response = (
                        read_stream([body], family=family, profile=profile)
                        if recording.streamed
                        else read_body(body, family=family, profile=profile)[0]
                    )
                    calls = calls_of(response.message)
                    if number == len(recording.exchanges) - 1:
                        assert calls == ()
                        break
                    after = family.decode_request(bodies[number + 1], exchange.request.path).messages
                    answered = with_results([(call.id, call.name) for call in calls], after[-1])
                    messages = (*request.messages, response.message, answered)
                    request = msgspec.structs.replace(request, messages=messages)
                assert [(one.status, one.step) for one in lab.requests] == [
                    (200, step) for step in range(1, len(recording.exchanges) + 1)
                ]
            played += 1
    assert played == (13 if are_stand_ins(corpus) else 14)


async def test_recorded_requests_find_their_own_answers_and_others_get_the_difference(corpus: Path) -> None:
    """Proves: the recorded bodies themselves are answered in any order, and one changed word is refused with what differs."""
    path = corpus / "conversations" / "openai-chat-xai-plain-fantasy-multi-tool.json"
    recording = load_recording(path)
    bodies: list[dict[str, Any]] = [json.loads(bytes(exchange.request.body)) for exchange in recording.exchanges]
    async with Lab(conversation=path) as lab, aiohttp.ClientSession() as session:
        url = f"{lab.url}/v1/chat/completions"
        for number in (1, 0, 1):
            assert await post(session, url, json.dumps(bodies[number]).encode()) == (
                200,
                recording.exchanges[number].response.body.encode(),
            )
        bodies[1]["messages"][-1]["content"] = "7"
        status, body = await post(session, url, json.dumps(bodies[1]).encode())
        assert status == 400
        assert json.loads(body)["error"]["message"] == (
            "no recorded request says this; the nearest differs:\n--- recorded\n+++ received\n@@ -5,2 +5,2 @@\n"
            " result 1: 5\n-result 2: 6\n+result 2: 7"
        )
        status, body = await post(session, url, json.dumps({**bodies[0], "stream": True}).encode())
        assert (status, json.loads(body)["error"]["message"]) == (400, "this conversation was recorded not streamed")
        assert [one.status for one in lab.requests] == [200, 200, 200, 400, 400]


def test_those_that_cannot_be_played_as_one_turn_are_named(corpus: Path) -> None:
    """Proves: the list of exceptions names recordings that exist, and no more than the recordings' README does."""
    names = {path.stem for path in recordings(corpus)}
    assert set(UNREPLAYABLE) <= names
    assert len(names) == (17 if are_stand_ins(corpus) else 18) and len(UNREPLAYABLE) == 4


def test_a_file_that_is_no_conversation_is_a_callers_mistake(tmp_path: Path) -> None:
    """Proves: one clear line for a wrong file."""
    wrong = tmp_path / "wrong.json"
    wrong.write_text("{}")
    with pytest.raises(CallerError, match=r"is no recorded conversation: Object missing required field `family`"):
        Lab(conversation=wrong)
