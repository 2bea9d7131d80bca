"""Where the upstream fails, breaks off or is cut: the right answer, or one clean error of the client's family."""

import json

import pytest

from gateway.relayed import FAMILIES, Answer, ask, naively, relayed, relayed_over, said, strictly
from tables import each
from turnwise.lab import builtin_scripts, families
from turnwise.lab.gateway_check import told_error
from turnwise.lab.script import Script, ScriptedFault, ScriptedStep
from turnwise.relay.client_exchange import RelayRules
from turnwise.rules.retries import NO_RETRY
from turnwise.testing import Reply, ScriptedTransport
from turnwise.testing.frames import frames_of
from turnwise.testing.wire_conformance import encode_stream
from turnwise.vocab import Fault, FaultKind, FinishReason, Message, Response, ToolCall, text_of
from turnwise.wire.family import family

SCRIPTS = builtin_scripts()
PAIRS = [(upstream, client) for upstream in FAMILIES for client in FAMILIES]
PASSING = [
    (name, upstream, client)
    for name in ("fault-once-429", "fault-once-503", "fault-once-torn-event")
    for upstream, client in PAIRS
    if SCRIPTS[name].speaks(upstream)
]
REFUSED = {
    "fault-401": (1, FaultKind.AUTH),
    "fault-429": (4, FaultKind.RATE_LIMITED),
    "fault-500": (4, FaultKind.SERVER),
    "fault-html": (1, None),
    "fault-random-bytes": (1, None),
    "fault-endless-line": (1, None),
}


def whole(answer: Answer, *, client: str) -> Response:
    got = strictly(answer, client=client)
    assert isinstance(got, Response), got
    assert (got.repairs, got.fault, got.lost) == ((), None, False)
    return got


def one_error(answer: Answer, *, client: str) -> Fault:
    """The error with which an answer ends; nothing in it looks like an end of its own."""
    got = strictly(answer, client=client)
    if isinstance(got, Fault):  # nothing had been sent
        assert answer.status >= 400
        assert told_error(answer.body) == got.message
        return got
    assert isinstance(got, Response)
    assert got.fault is not None
    assert families.FAMILIES[client].read_strictly(answer.body).error == got.fault.message, (
        "one error, and nothing behind it"
    )
    assert not naively(answer.body, client=client).ended
    assert family(client).finish_reasons.get(got.provider_finish or "") in (None, FinishReason.ERROR)
    return got.fault


@pytest.mark.promise("heal:every-case")
@each(("upstream", "client"), PAIRS)
@each("name", list(REFUSED), meeting="each")
def test_a_failure_before_the_first_word_is_an_answer_with_its_status(name: str, upstream: str, client: str) -> None:
    """It is asked for again where that may help; then the client gets the error in its own family's form."""
    requests, kind = REFUSED[name]
    answer = relayed(ask(name), upstream=upstream, client=client)
    assert answer.status >= 400
    assert answer.requests == requests
    assert answer.end.fault is not None
    if kind is not None:
        got = strictly(answer, client=client)
        assert isinstance(got, Fault)
        assert got.kind is kind


@pytest.mark.promise("heal:every-case")
@each(("name", "upstream", "client"), PASSING)
def test_a_failure_that_passes_is_not_seen_by_the_client(name: str, upstream: str, client: str) -> None:
    """One request more, and an answer that is whole. Of a stream with a hole the part before it stays; what follows comes from
    the next response, which begins alike."""
    answer = relayed(ask(name), upstream=upstream, client=client)
    assert answer.requests == 2
    assert text_of(whole(answer, client=client).message) == SCRIPTS[name].steps[0].text
    assert "asked_again" in {repair.kind for repair in answer.end.repairs}


@pytest.mark.promise("heal:every-case")
@each(("upstream", "client"), PAIRS)
@each("name", ["fault-reset", "fault-stall", "fault-error-in-stream", "fault-silence"], meeting="each")
def test_an_answer_that_breaks_off_for_good_ends_with_one_error(name: str, upstream: str, client: str) -> None:
    """What was sent cannot be taken back, and no continuation joins: the end does not look whole. Where nothing was sent but a
    comment in the silence, the error stands in the stream, too."""
    one_error(relayed(ask(name), upstream=upstream, client=client), client=client)


@pytest.mark.costly
@pytest.mark.promise("heal:every-case")
@each(("upstream", "client"), [pair for pair in PAIRS if pair[0] != "gemini"])
@each("name", ["writer-file", "writer-false-finish", "writer-beside-read"], meeting="each")
def test_a_cut_call_arrives_whole(name: str, upstream: str, client: str) -> None:
    """The upstream's limit falls in a file of 40 KB: the rest is asked for before the client sees an end, and joined."""
    answer = relayed(ask(name), upstream=upstream, client=client)
    got = whole(answer, client=client)
    assert got.finish is FinishReason.TOOL_CALLS
    assert answer.requests > 1
    want = relayed(ask(name, limit_tokens=100_000), upstream=upstream, client=client)
    assert want.requests == 1
    assert [call[1:] for call in said(got)] == [call[1:] for call in said(whole(want, client=client))]
    naive = [(name, json.loads(arguments)) for _, name, arguments in naively(answer.body, client=client).calls]
    assert naive == [call[1:] for call in said(got)]


@pytest.mark.promise("heal:every-case")
@pytest.mark.parametrize("client", FAMILIES)
def test_a_cut_call_that_came_as_an_object_is_left_out(client: str) -> None:
    """Gemini hands out the keys that were whole when the limit fell: a client that runs them writes half a file."""
    answer = relayed(ask("cut-call"), upstream="gemini", client=client)
    got = whole(answer, client=client)
    assert (got.finish, said(got)) == (FinishReason.LENGTH, [])


@pytest.mark.promise("heal:every-case")
@each(("upstream", "client"), PAIRS)
def test_a_text_that_the_clients_own_limit_cuts_is_not_continued(upstream: str, client: str) -> None:
    """Who asks for a few tokens gets a few, and the true finish reason."""
    answer = relayed(ask("writer-answer", limit_tokens=500), upstream=upstream, client=client)
    assert answer.requests == 1
    assert whole(answer, client=client).finish is FinishReason.LENGTH


@pytest.mark.promise("heal:every-case")
@each(("upstream", "client"), PAIRS)
def test_a_text_that_the_server_cuts_by_itself_is_continued(upstream: str, client: str) -> None:
    """The server has a cap of its own, which the client knows nothing of."""
    answer = relayed(
        ask("writer-answer", limit_tokens=500), upstream=upstream, client=client, rules=RelayRules(continues="all")
    )
    assert answer.requests > 1
    assert whole(answer, client=client).finish in (FinishReason.STOP, FinishReason.LENGTH)
    assert {"continued_text", "continuation_refused"} & {repair.kind for repair in answer.end.repairs}


@pytest.mark.promise("heal:every-case")
@pytest.mark.parametrize("client", FAMILIES)
def test_nothing_is_asked_for_again_where_the_route_says_so(client: str) -> None:
    """`retry = 0` and `continue = false` cost one request, whatever comes."""
    rules = RelayRules(continues="off", retries=NO_RETRY)
    for name in ("fault-once-429", "writer-file", "fault-once-torn-event"):
        assert relayed(ask(name), upstream="openai_chat", client=client, rules=rules).requests == 1


@pytest.mark.promise("heal:every-case")
@each(("upstream", "client"), PAIRS)
def test_where_the_rest_is_lost_too_the_answer_is_asked_for_anew(upstream: str, client: str) -> None:
    """The connection breaks in mid-answer, and again in the rest. The third response begins with what the client knows, so the
    client sees one whole answer."""
    text = "The answer has two sentences. Nothing of them is lost on the way."
    broken = ScriptedStep(text=text, faults=(ScriptedFault(kind="reset", at="text"),))
    script = Script(name="breaks-twice", title="breaks twice", steps=(broken,))
    answer = relayed(ask("breaks-twice"), upstream=upstream, client=client, scripts=[script])
    assert answer.requests == 3
    assert text_of(whole(answer, client=client).message) == text
    assert naively(answer.body, client=client).text == text


def cut_short(family_name: str, *, stream: bool) -> bytes:
    """A call of which the limit left seven characters, with the finish reason that says so."""
    half = '{"path"'
    match family_name:
        case "openai_chat":
            call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "read", "arguments": half}}
            told = {"tool_calls": [call]}
            choice = {"index": 0, "finish_reason": "length", ("delta" if stream else "message"): told}
            events: list[dict[str, object]] = [{"id": "c", "choices": [choice]}]
        case "openai_responses":
            item = {"type": "function_call", "id": "f", "call_id": "c1", "name": "read", "arguments": half}
            body = {
                "id": "r",
                "status": "incomplete",
                "incomplete_details": {"reason": "max_output_tokens"},
                "output": [{**item, "status": "incomplete"}],
            }
            added = {"type": "response.output_item.added", "output_index": 0, "item": {**item, "arguments": ""}}
            piece = {"type": "response.function_call_arguments.delta", "item_id": "f", "output_index": 0, "delta": half}
            events = [added, piece, {"type": "response.incomplete", "response": body}] if stream else [body]
        case _:
            block = {"type": "tool_use", "id": "t", "name": "read", "input": {}}
            events = [
                {"type": "message_start", "message": {"id": "m", "model": "m", "usage": {"input_tokens": 3}}},
                {"type": "content_block_start", "index": 0, "content_block": block},
                {
                    "type": "content_block_delta",
                    "index": 0,
                    "delta": {"type": "input_json_delta", "partial_json": half},
                },
                {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}, "usage": {"output_tokens": 9}},
                {"type": "message_stop"},
            ]
    if not stream:
        return json.dumps(events[0]).encode()
    return b"".join([f"data: {json.dumps(event)}\n\n".encode() for event in events])


@pytest.mark.promise("heal:every-case", "cut:never-run")
@each("passes", [True, False], ids=["then whole", "each time"])
@each(
    ("upstream", "stream"),
    [("openai_chat", True), ("openai_chat", False), ("openai_responses", True), ("anthropic_messages", True)],
)
@each("client", FAMILIES)
def test_a_call_cut_after_a_few_characters_is_asked_for_again_or_one_error(
    client: str, upstream: str, stream: bool, passes: bool
) -> None:
    """Issue 40: below 40 characters nothing can be continued, and the client got half a call without an error."""
    kind = {"content-type": "text/event-stream" if stream else "application/json"}
    whole_one = Response(
        message=Message("assistant", (ToolCall(id="c1", name="read", arguments='{"path":"a"}'),)),
        finish=FinishReason.TOOL_CALLS,
    )
    there, request = family(upstream), ask("m", stream=stream, limit_tokens=None)
    good = (
        encode_stream(there, frames_of(whole_one), request=request) if stream else there.encode_body(whole_one, request)
    )
    short = Reply(headers=kind, pieces=(cut_short(upstream, stream=stream),))
    transport = ScriptedTransport([short, Reply(headers=kind, pieces=(good,)) if passes else short])
    answer = relayed_over(transport, request, upstream=upstream, client=client)
    assert answer.requests == 2
    if passes:
        got = strictly(answer, client=client, stream=stream)
        assert isinstance(got, Response) and got.fault is None
        assert [call[1:] for call in said(got)] == [("read", {"path": "a"})]
    else:
        assert answer.end.fault is not None
        assert "cut the call of `read` after 7 characters" in answer.end.fault.message
