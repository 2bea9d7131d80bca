"""Both of OpenAI's APIs behind one upstream: each request goes to the one that can serve it, and `stop` works at both."""

import asyncio
import json
import logging
from collections.abc import Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import openai
import pytest

from gateway.relayed import Gathered
from gateway.served_gateway import served_gateway
from lab.failing import DEADLINES, settled
from relay.asking_relay import PATHS, TOOLS, ask, plain
from terminal.running import running_lab
from turnwise.gateway.accounts import FIELDS, RequestLine
from turnwise.gateway.config import GatewayConfig, GatewayRoute, UpstreamAddress
from turnwise.gateway.doors import ClientCall
from turnwise.gateway.service import RelayService, ServiceMeans
from turnwise.relay.openai_apis import choose_api
from turnwise.testing import FakeClock, Reply, ScriptedTransport, Stall
from turnwise.vocab import Finished, FinishReason, Frame, Request, Started, TextDelta, Usage, UsageReported
from turnwise.wire.family import family
from turnwise.wire.profiles import builtin_profiles

CHAT_ROW = builtin_profiles()["openai-chat"]
TOOL = TOOLS["openai_chat"]
NO_TOOLS_IN_CHAT = (
    "Function tools with reasoning_effort are not supported for m-1 in /v1/chat/completions."
    " Please use /v1/responses instead."
)
ONLY_RESPONSES = "This model is only supported in v1/responses and not in v1/chat/completions."
NO_STOP = "Unsupported parameter: 'stop' is not supported with this model."
JSON = {"content-type": "application/json"}

# What clients send: smolagents' CodeAgent, LangChain's ReAct agent, an agent of the AI SDK.
SMOLAGENTS = {"stop": ["Observation:", "Calling tools:"], "messages": [{"role": "user", "content": "hi"}]}
LANGCHAIN = {"stop": ["\nObservation:"], "temperature": 0.0, "n": 1, "stream": True}
AI_SDK = {"stop": ["END"], "tools": TOOL, "tool_choice": "auto", "stream": True}

CHOSEN: list[tuple[str, dict[str, Any], str]] = [
    ("gpt-4o", {}, "chat"),
    ("gpt-5.6", {}, "chat"),
    ("gpt-6.1-sol", {"reasoning_effort": "none"}, "chat"),
    ("gpt-6.1-sol", {"reasoning_effort": "high"}, "responses"),
    ("gpt-4o", {"tools": TOOL}, "responses"),
    ("gpt-4o", {"tools": TOOL, "n": 2}, "chat"),
    ("gpt-4o", {"tools": TOOL, "n": 1, "logprobs": False, "logit_bias": {}, "modalities": ["text"]}, "responses"),
    ("gpt-4o", {"tools": TOOL, "logprobs": True}, "chat"),
    ("gpt-4o", {"tools": TOOL, "seed": 7}, "chat"),
    ("gpt-5.2", {"tools": TOOL, "logit_bias": {"5": 1}, "reasoning_effort": "low"}, "chat"),
    ("gpt-5.4-2026-03-05", {"tools": TOOL, "n": 2}, "chat"),
    ("gpt-5.4", {"tools": TOOL, "n": 2, "reasoning_effort": "low"}, "responses"),
    ("gpt-5.6-terra", {"tools": TOOL, "n": 2}, "responses"),
    ("gpt-5.6-terra", {"tools": TOOL, "n": 2, "reasoning_effort": "none"}, "chat"),
    ("gpt-6.1-sol", {"tools": TOOL, "n": 2}, "responses"),
    ("gpt-6-astra", {"n": 2}, "chat"),
    ("gpt-9", {"tools": TOOL, "n": 2}, "chat"),
    ("gpt-9", {"tools": TOOL, "n": 2, "reasoning_effort": "low"}, "responses"),
    ("gpt-4o-audio-preview", {"tools": TOOL}, "chat"),
    ("gpt-4o", {"modalities": ["text", "audio"], "audio": {"voice": "ash", "format": "mp3"}}, "chat"),
    ("gpt-4o-search-preview", {"web_search_options": {}}, "chat"),
    ("gpt-5.4-pro", {"stop": ["x"]}, "responses"),
    ("gpt-5-codex", {}, "responses"),
    ("ft:gpt-4o:org::id", {"tools": TOOL}, "responses"),
    ("gpt-4o", SMOLAGENTS, "chat"),
    ("gpt-5-mini", SMOLAGENTS, "chat"),
    ("gpt-4o", LANGCHAIN, "chat"),
    ("gpt-4o", AI_SDK, "chat"),
    ("gpt-5.6", AI_SDK, "responses"),
    ("gpt-5", {"stop": "x", "reasoning_effort": "low"}, "responses"),
]


@pytest.mark.parametrize(("model", "fields", "api"), CHOSEN)
def test_a_client_of_chat_goes_where_all_that_it_asks_for_is_served(
    model: str, fields: dict[str, Any], api: str
) -> None:
    """Proves: to Chat Completions if only that has what is asked, or neither tools nor reasoning are; else to Responses, as newer
    models refuse tools with reasoning in Chat Completions; and models that one API does not have go to the other."""
    asked = ask("openai_chat", {**plain("openai_chat"), "model": model, **fields})
    assert choose_api(asked, model=model, chat=CHAT_ROW) == api


@pytest.mark.parametrize("source", ["openai_responses", "anthropic_messages", "gemini"])
def test_other_clients_go_to_responses_unless_the_model_is_not_there(source: str) -> None:
    """Proves: they ask for nothing that only Chat Completions has."""
    asked = ask(source, plain(source))
    assert choose_api(asked, model="gpt-4o", chat=CHAT_ROW) == "responses"
    assert choose_api(asked, model="gpt-audio-mini", chat=CHAT_ROW) == "chat"


class Answers(NamedTuple):
    outlets: list[Gathered]
    transport: ScriptedTransport

    @property
    def paths(self) -> list[str]:
        return [one.url.partition("/v1/")[2] for one in self.transport.requests]

    def body(self, number: int = -1) -> bytes:
        return b"".join(self.outlets[number].pieces)

    def sent(self, number: int = -1) -> dict[str, Any]:
        return json.loads(self.transport.requests[number].body)


async def answers(
    bodies: Sequence[dict[str, Any]],
    replies: Sequence[Reply],
    *,
    source: str = "openai_chat",
    fixed: bool = False,
    at_once: bool = False,
) -> Answers:
    """One request after the other, or all `at_once`, to one gateway before OpenAI; `fixed`: its route names the API."""
    clock, transport, outlets = FakeClock(), ScriptedTransport(replies), list[Gathered]()
    calls: list[Coroutine[Any, Any, None]] = []
    means = ServiceMeans(transport=transport, clock=clock, env={"K": "k"}, deadlines=DEADLINES)
    address = UpstreamAddress(
        url="https://api.openai.com/v1", key_env="K", family="openai_responses" if fixed else None
    )
    config = GatewayConfig(routes=(GatewayRoute(upstream=address, retry=0),))
    service = RelayService(config, means=means, forward_key=False)
    for body in bodies:
        content = json.dumps({**plain(source), "model": "m-1", **body}).encode()
        call = ClientCall(id="tw-1", path=PATHS[source], body=content, family=source, kind="generate")  # pyright: ignore[reportArgumentType]
        outlets.append(Gathered())
        calls.append(service.answer(call, outlets[-1]))
    for one in [together(calls)] if at_once else calls:
        await settled(one, clock=clock)
    return Answers(outlets, transport)


async def together(calls: Sequence[Coroutine[Any, Any, None]]) -> None:
    await asyncio.gather(*calls)


def says(api: str, *texts: str, ends: bool = True) -> Reply:
    """A stream of that API; one that does not end waits for ever."""
    name = "openai_chat" if api == "chat" else "openai_responses"
    encoder = family(name).stream_encoder(Request(model="m-1", messages=(), stream=True))
    frames: list[Frame] = [Started("r1", "m-1"), *[TextDelta(text) for text in texts]]
    if not ends:
        return Reply(pieces=(*map(encoder.encode, frames), Stall()))
    frames += [UsageReported(Usage(input_tokens=5, output_tokens=7)), Finished(FinishReason.STOP)]
    return Reply(pieces=(*map(encoder.encode, frames), encoder.finish()))


def refuses(message: str, *, status: int = 400) -> Reply:
    error = {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": None}}
    return Reply(status=status, headers=JSON, pieces=(json.dumps(error).encode(),))


STREAM = {"stream": True}


@pytest.mark.promise("heal:told")
async def test_each_request_is_sent_to_its_api_and_a_header_names_it() -> None:
    """Proves: one upstream, two paths; a client of Chat Completions gets its own body up there. A route that names the family
    keeps every request at one API, and says nothing of a choice."""
    bodies = [{**STREAM, "seed": 7}, {**STREAM, "tools": TOOL}]
    found = await answers(bodies, [says("chat", "Hi."), says("responses", "Hi.")])
    assert found.paths == ["chat/completions", "responses"]
    assert [one.headers["turnwise-api"] for one in found.outlets] == ["openai-chat", "openai"]
    assert (found.sent(0)["seed"], b"Hi." in found.body(0), b"Hi." in found.body(1)) == (7, True, True)
    kept = await answers(bodies, [says("responses", "Hi.")] * 2, fixed=True)
    assert kept.paths == ["responses"] * 2 and "turnwise-api" not in kept.outlets[0].headers


@pytest.mark.parametrize(("message", "status"), [(NO_TOOLS_IN_CHAT, 400), (ONLY_RESPONSES, 404)])
async def test_what_chat_refuses_goes_to_responses_and_later_requests_do_so_at_once(message: str, status: int) -> None:
    """Proves: a model that the table does not know costs one refused request, the client gets its answer, and a repair tells."""
    asked = {**STREAM, "tools": TOOL, "seed": 7}
    found = await answers(
        [asked, asked], [refuses(message, status=status), says("responses", "A"), says("responses", "B")]
    )
    assert found.paths == ["chat/completions", "responses", "responses"]
    assert [(one.status, one.headers["turnwise-api"]) for one in found.outlets] == [(200, "openai")] * 2
    assert b"A" in found.body(0) and b"B" in found.body(1)


@pytest.mark.parametrize(
    ("body", "status"),
    [(b'{"detail":"Not Found"}', 404), (b'{"detail":"Method Not Allowed"}', 405), (b"404 page not found\n", 404)],
)
async def test_a_server_without_chat_is_asked_by_responses(body: bytes, status: int) -> None:
    """Proves: a path that is not there costs one request, and later requests go to Responses at once; a model that is not found
    teaches nothing."""
    kind = JSON if body.startswith(b"{") else {"content-type": "text/plain"}
    found = await answers(
        [STREAM, STREAM],
        [Reply(status=status, headers=kind, pieces=(body,)), says("responses", "A"), says("responses", "B")],
    )
    assert found.paths == ["chat/completions", "responses", "responses"]
    assert b"A" in found.body(0) and b"B" in found.body(1)
    error = {"error": {"message": "Not found", "type": "invalid_request_error", "code": "model_not_found"}}
    model = Reply(status=404, headers=JSON, pieces=(json.dumps(error).encode(),))
    found = await answers([STREAM, STREAM], [model, says("chat", "A")])
    assert found.paths == ["chat/completions"] * 2 and found.outlets[0].status == 404


async def test_two_requests_that_are_refused_at_once_are_both_answered() -> None:
    """Proves: the refusal of one may be learned while the other one is on its way; both go on to Responses."""
    asked = {**STREAM, "tools": TOOL, "seed": 7}
    replies = [refuses(NO_TOOLS_IN_CHAT)] * 2 + [says("responses", "A"), says("responses", "B")]
    found = await answers([asked, asked], replies, at_once=True)
    assert found.paths == ["chat/completions"] * 2 + ["responses"] * 2
    assert [(one.status, one.headers["turnwise-api"]) for one in found.outlets] == [(200, "openai")] * 2


async def test_what_neither_api_gives_is_refused_by_its_name() -> None:
    """Proves: the client reads which field it is, by the table or once it is learned, and not which API was tried."""
    asked = {"n": 2, "tools": TOOL}
    found = await answers([asked, {**asked, "reasoning_effort": "low"}], [refuses(NO_TOOLS_IN_CHAT)])
    assert found.paths == ["chat/completions"]
    for number in (0, 1):
        error = json.loads(found.body(number))["error"]
        assert (found.outlets[number].status, error["param"]) == (400, "n")


async def test_another_refusal_stays_one() -> None:
    """Proves: only OpenAI's own sentences move a request, and a sentence that quotes one does not."""
    found = await answers([STREAM], [refuses(f"You said: {NO_TOOLS_IN_CHAT}")])
    assert (found.paths, found.outlets[0].status) == (["chat/completions"], 400)


@pytest.mark.promise("heal:told")
async def test_a_sequence_ends_the_answer_and_the_request_upstream(caplog: pytest.LogCaptureFixture) -> None:
    """Proves: the upstream would never end, and the client has its whole answer; nothing is open any more, nothing was asked for
    again, and the log counts a request whose tokens nobody told."""
    caplog.set_level(logging.INFO, "turnwise")
    asked = {**STREAM, "tools": TOOL, "stop": ["\nObservation:"], "model": "gpt-5.6"}
    found = await answers([asked], [says("responses", "Act: look\nObs", "ervation", ": a cat", ends=False)])
    lines = [json.loads(one[6:]) for one in found.body().decode().split("\n\n") if one.startswith("data: {")]
    text = "".join(one["choices"][0]["delta"].get("content") or "" for one in lines)
    assert (text, lines[-1]["choices"][0]["finish_reason"]) == ("Act: look", "stop")
    assert found.body().endswith(b"data: [DONE]\n\n") and "stop" not in found.sent()
    assert (len(found.transport.requests), found.transport.open) == (1, 0)
    (line,) = [getattr(one, FIELDS) for one in caplog.records if hasattr(one, FIELDS)]
    assert isinstance(line, RequestLine)
    assert (line.end, line.without_usage, line.repairs, line.provider) == ("whole", 1, {"stop_served": 1}, "openai")


async def test_a_model_that_refuses_stop_is_served_all_the_same_and_remembered() -> None:
    """Proves: of an unknown model one request is refused; it goes up again without the field, and so does the next."""
    asked = {**STREAM, "stop": "STOP"}
    replies = [refuses(NO_STOP), says("chat", "One. STOP two."), says("chat", "Three. STOP four.")]
    found = await answers([asked, asked], replies)
    assert found.paths == ["chat/completions"] * 3
    assert ["stop" in found.sent(number) for number in range(3)] == [True, False, False]
    for number, said, left in ((0, b"One. ", b"two"), (1, b"Three. ", b"four")):
        assert (
            said in found.body(number)
            and left not in found.body(number)
            and b'"finish_reason":"stop"' in found.body(number)
        )


def choice(index: int, text: str, finish: str | None = None) -> bytes:
    one = {"index": index, "delta": {"content": text} if text else {}, "finish_reason": finish}
    return (
        b"data: "
        + json.dumps({"id": "c", "object": "chat.completion.chunk", "model": "m-1", "choices": [one]}).encode()
        + b"\n\n"
    )


async def test_several_answers_pass_as_they_come_streamed_and_not() -> None:
    """Proves: the second answer is not lost where it goes on behind the end of the first, and a body keeps both."""
    pieces = [choice(0, "A"), choice(1, "B"), choice(0, "", "stop"), *[choice(1, "b")] * 3, choice(1, "", "length")]
    done = b"data: [DONE]\n\n"
    whole = {
        "id": "c",
        "object": "chat.completion",
        "model": "m-1",
        "choices": [
            {"index": number, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
            for number, text in enumerate("AB")
        ],
    }
    body = json.dumps(whole).encode()
    replies = [Reply(pieces=(*pieces, done)), Reply(headers=JSON, pieces=(body,))]
    found = await answers([{**STREAM, "n": 2}, {"n": 2}], replies)
    assert (found.body(0), found.body(1)) == (b"".join([*pieces, done]), body)


CONFIG = """
[[route]]
upstream = {{ url = "{url}/v1", provider = "openai", key_env = "LAB_KEY" }}
"""


@pytest.mark.costly
def test_openais_own_client_stops_where_it_says(tmp_path: Path) -> None:
    """Proves: through a real gateway before the lab, whose Responses API knows no `stop` and refuses it; streamed and not."""
    with running_lab() as lab:
        (tmp_path / "gateway.toml").write_text(CONFIG.format(url=lab.url))
        with served_gateway(
            tmp_path, "--config", str(tmp_path / "gateway.toml"), upstream=None, env={"LAB_KEY": "k"}
        ) as gateway:
            client = openai.OpenAI(base_url=f"http://127.0.0.1:{gateway.port}/v1", api_key="k", max_retries=0)
            said = [{"role": "user", "content": "hi"}]
            asks = client.chat.completions.create
            create: Any = partial(asks, model="plain-answer", reasoning_effort="low", tools=TOOL, messages=said)
            whole = create().choices[0].message.content
            stop = whole[len(whole) // 2 :][:3]
            said = whole[: whole.index(stop)]
            for asked in (stop, [stop, "never said"]):
                one = create(stop=asked).choices[0]
                assert (one.message.content, one.finish_reason) == (said, "stop")
                chunks = [chunk.choices[0] for chunk in create(stop=asked, stream=True) if chunk.choices]
                assert "".join([one.delta.content or "" for one in chunks]) == said
                assert [one.finish_reason for one in chunks if one.finish_reason] == ["stop"]
