"""What a relay asks next behind an answer that was cut or broke off, what it may still spend, and what its client is told."""

import json

import pytest
from msgspec.structs import replace

from relay.test_early_words import FAMILY_PROFILES, MESSAGE, anthropic, block, chat, told
from turnwise.assembly.response_reading import ResponseReader
from turnwise.relay.client_exchange import ClientSide, Relay, RelayEnd, RelayRules, RelayStep, Send, UpstreamSide
from turnwise.relay.edits import continued_call
from turnwise.vocab import (
    ArgumentsState,
    Fault,
    FaultKind,
    FinishReason,
    Frame,
    Message,
    Request,
    Response,
    Settings,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolSpec,
    Usage,
    calls_of,
)
from turnwise.wire.family import family
from turnwise.wire.profiles import Limits, builtin_profiles

WHOLE = '{"text":"The quick brown fox jumps over the lazy dog, again and again, and then it sleeps."}'
CUT, REST = WHOLE[:70], WHOLE[20:]
NAME = "openai_chat"
USAGE = {"input_tokens": 1, "output_tokens": 1}
GONE = Fault(kind=FaultKind.DISCONNECTED, message="gone")


def relay(*, most_output: int | None = None, limit: int = 4000, stream: bool = True) -> Relay:
    there, profile = family(NAME), builtin_profiles()[FAMILY_PROFILES[NAME]]
    request = Request(
        model="m",
        messages=(Message("user", (Text("Write it."),)),),
        tools=(ToolSpec(name="write", parameters='{"type":"object"}'),),
        settings=Settings(max_output_tokens=limit),
        stream=stream,
    )
    upstream = UpstreamSide(request=request, call=there.encode_request(request, profile), family=there, profile=profile)
    rules = RelayRules(most_output_tokens=most_output)
    return Relay(upstream=upstream, client=ClientSide(request=request, family=there), rules=rules)


def says(text: str, *, tokens: int, finish: FinishReason = FinishReason.STOP) -> Response:
    return Response(
        message=Message("assistant", (Text(text),)), finish=finish, usage=Usage(input_tokens=10, output_tokens=tokens)
    )


def call(arguments: str, *, tokens: int, finish: FinishReason) -> Response:
    state = ArgumentsState.COMPLETE if arguments == WHOLE else ArgumentsState.TRUNCATED
    one = ToolCall(id="c", name="write", arguments=arguments, state=state)
    return replace(says("", tokens=tokens, finish=finish), message=Message("assistant", (one,)))


def ended(relay: Relay, reply: Response | None, fault: Fault | None = None) -> RelayStep:
    return relay.ended(reply, fault, waited_s=0, jitter=0.5)


def send(step: RelayStep) -> tuple[str, int | None]:
    assert isinstance(step.next, Send), step.next
    return step.next.purpose, step.next.request.settings.max_output_tokens


def shown(relay: Relay, *frames: Frame) -> None:
    """The client has been told this."""
    encoder = family(NAME).stream_encoder(Request(model="m", messages=(), stream=True))
    reader = relay.reader()
    for frame in frames:
        reader.feed(encoder.encode(frame))


def test_each_continuation_may_spend_what_the_route_has_left_and_the_client_is_told_the_sum() -> None:
    """Proves: of 1,000 tokens 600 and 300 are spent, so the second continuation gets 100, and nothing is asked for beyond them.
    From mutants: no test noticed what was subtracted, or a limit of one in place of none."""
    one = relay(most_output=1000, limit=600, stream=False)
    step = ended(one, call(CUT[:60], tokens=600, finish=FinishReason.LENGTH))
    assert send(step) == ("continue", 400)
    step = ended(one, says(CUT[20:], tokens=300, finish=FinishReason.LENGTH))
    assert send(step) == ("continue", 100)
    step = ended(one, says(REST, tokens=40))
    assert isinstance(step.next, RelayEnd) and step.next.response is not None
    [written] = calls_of(step.next.response.message)
    assert (written.arguments, written.state) == (WHOLE, ArgumentsState.COMPLETE)
    assert step.next.response.usage == Usage(input_tokens=10, output_tokens=940)

    spent = relay(most_output=1000, limit=990, stream=False)
    step = ended(spent, call(CUT, tokens=990, finish=FinishReason.LENGTH))
    assert isinstance(step.next, RelayEnd) and step.next.response is not None
    assert (step.next.response.finish, step.next.repairs) == (FinishReason.LENGTH, ())


@pytest.mark.parametrize("again", ["whole", "fault", "nothing", "another"])
def test_a_call_that_broke_off_and_could_not_be_continued_is_asked_for_once_more(again: str) -> None:
    """Proves: what broke off is continued; where that fails, the request goes once more, and its answer counts if it begins as
    the client knows it. Else the client gets what ended the first one as its error."""
    one = relay()
    shown(one, ToolCallDelta(block="0", index=0, id="c", name="write", arguments=CUT))
    step = ended(one, call(CUT, tokens=30, finish=FinishReason.CUT), GONE)
    assert send(step)[0] == "continue"
    step = ended(one, says("I will not go on.", tokens=5))
    assert send(step)[0] == "retry"
    fault = Fault(kind=FaultKind.OVERLOADED, message="later") if again == "fault" else None
    other = call(WHOLE, tokens=35, finish=FinishReason.TOOL_CALLS)
    reply = {"whole": other, "another": says("No call at all.", tokens=5)}.get(again)
    end = ended(one, reply, fault).next
    assert isinstance(end, RelayEnd)
    if again == "whole":
        assert end.fault is None and end.response is not None
        assert [written.arguments for written in calls_of(end.response.message)] == [WHOLE]
    else:
        assert end.fault is not None and end.fault.kind is GONE.kind


def test_a_text_that_broke_off_is_continued_behind_what_the_client_has() -> None:
    """Proves: the client's bytes and what follows are one text, once."""
    story = "The quick brown fox jumps over the lazy dog, again and again, and then it sleeps until noon."
    one = relay()
    shown(one, TextDelta(story[:70]))
    step = ended(one, says(story[:70], tokens=20, finish=FinishReason.CUT), GONE)
    assert send(step)[0] == "continue"
    end = ended(one, says(story[20:], tokens=20)).next
    assert isinstance(end, RelayEnd) and end.fault is None and end.response is not None
    assert [part.text for part in end.response.message.parts if isinstance(part, Text)] == [story]


def test_a_last_event_without_its_blank_line_goes_out_as_it_came() -> None:
    """Proves: what the gateway does not know stays in it. From a mutant: nothing noticed that it was written anew."""
    stream = [chat({"content": "Hi."}), chat({}, finish="stop", x_vendor=7).rstrip(b"\n")]
    for early in (False, True):
        assert b'"x_vendor": 7}\n\n' in told(NAME, stream, early=early).out


def test_of_two_beginnings_before_a_word_the_client_gets_the_second() -> None:
    """Proves: a gateway behind ours that fell back to another model is read as that model's answer."""
    first, second = (anthropic("message_start", message={**MESSAGE, "id": id, "usage": USAGE}) for id in ("m1", "m2"))
    begin = anthropic("content_block_start", index=0, content_block={"type": "text", "text": ""})
    end = [
        anthropic("content_block_stop", index=0),
        anthropic("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 1}),
        anthropic("message_stop"),
    ]
    out = told("anthropic_messages", [first, second, begin, block(0, "Hi."), *end], early=False).out
    assert out.count(b"event: message_start") == 1 and b'"m2"' in out and b'"m1"' not in out


def test_a_reader_tells_its_end_and_where_nothing_more_can_be_read() -> None:
    """Proves: a finish word that comes alone ends the response, and a line without an end the reading."""
    profile = builtin_profiles()[FAMILY_PROFILES[NAME]]
    reader = ResponseReader(family(NAME), profile=profile)
    reader.feed(chat({"content": "Hi."}))
    assert not reader.finished
    reader.feed(chat({}, finish="stop"))
    assert reader.finished and not reader.failed
    endless = ResponseReader(family(NAME), profile=profile, limits=Limits(line_bytes=1000))
    endless.feed(chat({"content": "Hi."}))
    endless.feed(b"data: " + b"x" * 2000)
    assert (endless.faulted, endless.failed, endless.finished) == (True, True, False)


def continued(name: str, sent: dict[str, object], *, before: Request, after: Request) -> dict[str, object]:
    """The body of the request for the rest, where `sent` went up with it."""
    profile = builtin_profiles()[FAMILY_PROFILES[name]]
    call = family(name).encode_request(before, profile)
    body = {**json.loads(call.body), **sent}
    return json.loads(
        continued_call(replace(call, body=json.dumps(body).encode()), before=before, after=after, profile=profile).body
    )


def test_the_request_for_the_rest_keeps_what_a_client_added_and_drops_what_calls_tools() -> None:
    """Proves: fields that we do not know stay, also beside one of ours that changes; an upstream that knows no `none` is offered
    no tools. From mutants: no test of the relay reached either."""
    asked = Message("user", (Text("Write it."),))
    said = (asked, Message("assistant", (Text("The quick"),)), Message("user", (Text("Go on."),)))
    tool = ToolSpec(name="write", parameters='{"type":"object"}')
    before = Request(model="m", messages=(asked,), tools=(tool,), tool_choice="auto", stream=True)
    after = replace(before, messages=said, tools=(), tool_choice="auto")
    body = continued("openai_chat", {"tool_choice": "auto", "x_own": 1}, before=before, after=after)
    assert (body["x_own"], "tools" in body, "tool_choice" in body) == (1, False, False)
    settings = Settings(max_output_tokens=9000, reasoning_tokens=4000)
    before = replace(before, settings=settings, tools=())
    after = replace(before, messages=said, settings=replace(settings, reasoning_tokens=1024))
    thinking = {"type": "enabled", "budget_tokens": 4000, "display": "own"}
    body = continued("anthropic_messages", {"thinking": thinking}, before=before, after=after)
    assert body["thinking"] == {**thinking, "budget_tokens": 1024}
