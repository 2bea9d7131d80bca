"""What `turnwise check` says of answers that are nearly right (issue 16, findings 2 and 5 to 15)."""

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import msgspec
import pytest

from tables import each
from terminal.checked import BASES, check_transport, judged, profile_of
from terminal.test_check_faults import answer
from turnwise.endpoints.endpoints import Endpoint, build_http_request
from turnwise.endpoints.transport import HttpReply, HttpRequest
from turnwise.lab import Lab
from turnwise.lab.endpoint_check.judging import Judgement, judge
from turnwise.lab.endpoint_check.probes import INVENTED, OWN_CALL_BYTES, PROBES, SoFar, estimate
from turnwise.lab.endpoint_check.running import Course
from turnwise.lab.endpoint_check.shapes import Marks, Observed, meaning_of
from turnwise.testing import FakeClock, Reply, ScriptedTransport
from turnwise.vocab import Fault, FaultKind, FinishReason, Message, Refusal, Request, Response, Settings, Text, Usage

FAMILIES = ("openai_chat", "openai_responses", "anthropic_messages", "gemini")
SO_FAR = SoFar(model="m")
JSON = {"content-type": "application/json"}


def observed(probe: str, *parts: object, finish: FinishReason = FinishReason.STOP, out: int = 5) -> Observed:
    request = next(one for one in PROBES if one.name == probe).build(SO_FAR)
    message = Message("assistant", tuple(parts))  # pyright: ignore[reportArgumentType]
    response = Response(message=message, finish=finish, usage=Usage(input_tokens=20, output_tokens=out))
    return Observed(probe=probe, request=request, response=response, answered=True)


def failed(probe: str, kind: FaultKind, *, status: int | None = None, look: str = "nothing") -> Observed:
    request = next(one for one in PROBES if one.name == probe).build(SO_FAR)
    marks = Marks(status=status, look=look)  # pyright: ignore[reportArgumentType]
    return Observed(probe=probe, request=request, fault=Fault(kind=kind, message="no", status=status), marks=marks)


def of_chat(*observations: Observed) -> Judgement:
    return judge(observations, profile=profile_of("openai_chat"))


async def course_of(replies: Callable[[HttpRequest], Reply], *, only: tuple[str, ...] = ()) -> Course:
    probes = [probe for probe in PROBES if not only or probe.name in only]
    transport = ScriptedTransport([replies] * 40)
    return await check_transport(transport, profile=profile_of("openai_chat"), probes=probes)


def chat_call(arguments: str, *, call_id: str = "call_7", finish: str = "tool_calls") -> Reply:
    function = {"name": "get_weather", "arguments": arguments}
    calls = [{"id": call_id, "type": "function", "function": function}]
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": None, "tool_calls": calls},
        "finish_reason": finish,
    }
    usage = {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25}
    told = {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}
    return Reply(pieces=(json.dumps(told).encode(),), headers=JSON)


def chat_stream(*, content_type: str = "text/event-stream", ends: bool = True) -> Reply:
    told = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    piece = {
        **told,
        "choices": [{"index": 0, "delta": {"content": "ready"}, "finish_reason": "stop" if ends else None}],
    }
    event = b"data: %b\n\n" % json.dumps(piece).encode()
    return Reply(pieces=(event + b"data: [DONE]\n\n" if ends else event * 2,), headers={"content-type": content_type})


@pytest.mark.parametrize("call_id", ["call_7", "call_" + "7" * 100_000])
@pytest.mark.parametrize("size", [5, 100_000])
async def test_what_is_sent_is_never_more_than_was_said_before(size: int, call_id: str) -> None:
    """Proves: a call of any size, with an id of any size, makes no request larger than the estimate."""
    sent: list[int] = []

    def reply(request: HttpRequest) -> Reply:
        sent.append(len(request.body))
        return chat_call(json.dumps({"city": "O" * size}), call_id=call_id)

    names = ("call", "result", "forced")
    course = await course_of(reply, only=names)
    endpoint = Endpoint(profile=profile_of("openai_chat"), base_url="http://x/v1")
    probes = [probe for probe in PROBES if probe.name in names]
    told = estimate(probes, so_far=SO_FAR, endpoint=endpoint, row=None)
    assert len(sent) == 3 and sum(sent) / 3 <= told.input_tokens
    assert (
        max(sent)
        <= len(endpoint.family.encode_request(probes[2].build(SO_FAR), endpoint.profile).body) + OWN_CALL_BYTES
    )
    own = course.so_far.said.parts[0]
    assert (own != INVENTED) is (len(call_id) < 100)  # a small call, or the invented one with the small id


class OfAnotherApi:
    """Whatever is asked, the lab answers in the words of another family."""

    def __init__(self, family: str) -> None:
        self._lab = Lab().transport()
        self._endpoint = Endpoint(profile=profile_of(family), base_url=f"http://lab{BASES.get(family, '/v1')}")

    def send(self, request: HttpRequest) -> AbstractAsyncContextManager[HttpReply]:
        stream = b'"stream":true' in request.body or "stream" in request.url
        asked = Request(
            model="plain-answer",
            messages=(Message("user", (Text("x"),)),),
            stream=stream,
            settings=Settings(max_output_tokens=100),
        )
        call = self._endpoint.family.encode_request(asked, self._endpoint.profile)
        return self._lab.send(build_http_request(self._endpoint, call, connect_s=1))


@each("other", FAMILIES)
@each("family", FAMILIES)
async def test_an_answer_of_another_api_is_no_server_and_named(family: str, other: str) -> None:
    """Proves: exit code 6 as documented, after three requests, whichever two of the four APIs meet."""
    course = await check_transport(OfAnotherApi(other), profile=profile_of(family))
    judgement = judged(course)
    if family == other:
        assert judgement.outcome == "fine" and "other_api" not in judgement.seen
        return
    assert judgement.outcome == "no_server" and course.requests == 3
    assert list(judgement.seen) == ["other_api"] and other in judgement.verdicts[0].found


@each("body", ["null", '"ready"', "7", "[]", "{}", '{"hello": 1}', '{"usage": {}}', '{"choices": []}', '{"id": "1"}'])
async def test_json_that_says_nothing_here_is_other_json(body: str) -> None:
    course = await course_of(lambda _: Reply(pieces=(body.encode(),), headers=JSON))
    judgement = judged(course)
    assert judgement.outcome == "no_server" and course.requests == 3 and "other_json" in judgement.seen
    assert {"broke_off", "lost_piece", "damaged_body"}.isdisjoint(judgement.seen)


@pytest.mark.parametrize("family", FAMILIES)
async def test_a_web_page_is_only_that(family: str) -> None:
    """Over Responses it was a lost piece and a damaged body, too."""
    page = Reply(pieces=(b"<!DOCTYPE html><html>It works!</html>",), headers={"content-type": "text/html"})
    judgement = judged(await check_transport(ScriptedTransport([page] * 3), profile=profile_of(family)))
    assert list(judgement.seen) == ["html"]


async def test_a_body_for_a_stream_and_a_stream_for_a_body_are_named() -> None:
    bodies = judged(await course_of(lambda _: answer("ready"), only=("body", "stream")))
    assert bodies.seen["body_for_stream"] == ("stream",) and bodies.outcome == "fine"
    streams = judged(await course_of(lambda _: chat_stream(), only=("body", "stream")))
    assert streams.seen["stream_for_body"] == ("body",) and "body_for_stream" not in streams.seen
    labelled = judged(await course_of(lambda _: chat_stream(content_type="application/json"), only=("stream",)))
    assert labelled.seen["wrong_type"] == ("stream",)


def test_a_refusal_alone_is_an_answer_of_a_healthy_server() -> None:
    for probe, kind in (("wrong-key", FaultKind.AUTH), ("wrong-model", FaultKind.NOT_FOUND)):
        assert of_chat(failed(probe, kind, status=401, look="json")).outcome == "fine"
        assert of_chat(failed(probe, kind, status=404, look="html")).outcome == "no_server"
    assert of_chat(failed("body", FaultKind.SERVER), failed("wrong-key", FaultKind.AUTH)).outcome == "no_server"


@each("probe", ["wrong-model", "wrong-key"])
@each(
    "kind", [FaultKind.TIMEOUT, FaultKind.DISCONNECTED, FaultKind.UNREACHABLE, FaultKind.PROTOCOL, FaultKind.TOO_LARGE]
)
def test_no_answer_is_no_odd_refusal(probe: str, kind: FaultKind) -> None:
    judgement = of_chat(observed("body", Text("ready")), failed(probe, kind))
    assert list(judgement.seen) == [str(kind)] and judgement.outcome == "faults"
    page = of_chat(observed("body", Text("ready")), failed(probe, FaultKind.PROTOCOL, status=302))
    assert list(page.seen) == ["odd_refusal"]


async def test_a_stream_of_two_equal_events_that_breaks_off_was_not_sent_twice() -> None:
    seen = judged(await course_of(lambda _: chat_stream(ends=False), only=("stream",))).seen
    assert "sent_twice" not in seen and "broke_off" in seen


PIECE = b'data: {"id":"1","choices":[{"index":0,"delta":{"content":"word "},"finish_reason":null}]}\n\n'


class Slowly:
    """A stream that brings a word every so many seconds, for as long as it is read."""

    def __init__(self, *, pause_s: float) -> None:
        self._pause_s = pause_s
        self.clock = FakeClock()

    @asynccontextmanager
    async def send(self, request: HttpRequest) -> AsyncGenerator[HttpReply]:
        async def chunks() -> AsyncGenerator[bytes]:
            while True:
                yield PIECE
                await self.clock.sleep(self._pause_s)

        yield HttpReply(status=200, headers={"content-type": "text/event-stream"}, chunks=chunks())


@each("finish", list(FinishReason))
@each("probe", ["body", "stream"])
def test_an_answer_in_words_has_to_end_as_one(probe: str, finish: FinishReason) -> None:
    """Proves: what is no `stop` leaves a mark, also where words came."""
    verdict = of_chat(observed(probe, Text("rea"), finish=finish, out=10)).verdicts[0]
    named = {
        FinishReason.STOP: (),
        FinishReason.LENGTH: ("cut_early",),
        FinishReason.CONTENT_FILTER: ("filtered",),
        FinishReason.REFUSAL: ("declined",),
        FinishReason.CUT: ("broke_off",),
    }
    if finish in named:
        assert verdict.seen == named[finish]
    declined = of_chat(observed(probe, Refusal("I cannot"))).verdicts[0]
    assert declined.seen == ("declined",) and declined.weight == "broken"


def test_an_answer_that_reaches_its_limit_is_not_cut_early() -> None:
    limited = observed("limit", Text("one two three"), finish=FinishReason.LENGTH, out=16)
    assert "cut_early" not in of_chat(limited).seen


async def test_a_finish_reason_that_says_stop_with_calls_is_named_in_a_body_too() -> None:
    said = judged(await course_of(lambda _: chat_call('{"city":"Oslo"}', finish="stop"), only=("call-body",)))
    assert said.seen["stop_with_calls"] == ("call-body",)


async def test_a_forced_answer_that_is_a_call_as_text_disobeys() -> None:
    """turnwise reads no call in a forced answer: tools have to be left out of the request there."""
    text = '<tool_call>\n{"name":"get_weather","arguments":{"city":"Oslo"}}\n</tool_call>'
    judgement = judged(await course_of(lambda _: answer(text), only=("forced",)))
    assert "disobeyed" in judgement.seen and "call_in_text" not in judgement.seen
    assert ("tool_choice_none", "drop_tools") in [(change.field, change.value) for change in judgement.changes]


JSON_ANSWERS = [
    "```\n{}\n```",
    "```json\n{}\n```",
    "```JSON\n{}```",
    "{}",
    '["Oslo"]',
    '```\n["Oslo"]\n```',
    '"Oslo"',
    "null",
]


@each("text", [one.replace("{}", '{"name":"Oslo","country":"Norway"}') for one in JSON_ANSWERS])
def test_json_of_any_kind_is_no_reason_to_send_no_schema(text: str) -> None:
    assert of_chat(observed("output", Text(text))).changes == ()


@pytest.mark.parametrize("text", ["Oslo.", "```\nOslo\n```", "Here it is:\n```json\n{}\n```"])
def test_words_where_a_schema_was_sent_change_the_profile(text: str) -> None:
    assert [change.field for change in of_chat(observed("output", Text(text))).changes] == ["output"]


@pytest.mark.parametrize("message", ["HTTP 404: the answer began with 'x'", "the answer began with 'x'"])
def test_the_status_is_said_once(message: str) -> None:
    one = failed("body", FaultKind.NOT_FOUND, status=404)
    one = msgspec.structs.replace(one, fault=Fault(kind=FaultKind.NOT_FOUND, message=message, status=404))
    assert of_chat(one).verdicts[0].found == "HTTP 404: the answer began with 'x'"


def test_a_request_that_was_sent_is_not_among_those_not_asked() -> None:
    judgement = judge(
        [observed("body", Text("ready"))], profile=profile_of("openai_chat"), stopped=True, pending="stream"
    )
    assert judgement.unanswered == ("stream",) and judgement.unasked[0] == "call"


@pytest.mark.parametrize(("pause_s", "name"), [(10, "too_slow"), (29, "too_slow"), (10_000, "fell_silent")])
async def test_a_steady_answer_that_takes_too_long_is_not_called_silent(pause_s: float, name: str) -> None:
    slowly = Slowly(pause_s=pause_s)
    probes = [probe for probe in PROBES if probe.name == "stream"]
    course = await check_transport(slowly, profile=profile_of("openai_chat"), probes=probes, clock=slowly.clock)
    assert list(judged(course).seen) == [name] and meaning_of(name).weight == "broken"
