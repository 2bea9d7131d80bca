"""The service behind the doors: routes, fallbacks, counts, passed paths, and what a route changes of an answer."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec
import pytest

from gateway.calling import call_of
from gateway.relayed import FAMILIES, Gathered, naively, profile_of
from lab.failing import DEADLINES, settled
from turnwise.assembly.response_reading import read_body
from turnwise.base.clock import sleep
from turnwise.endpoints.endpoints import Endpoint
from turnwise.endpoints.transport import HttpReply, HttpRequest, Take
from turnwise.errors import MissingKey
from turnwise.gateway.client_bounds import Bounds
from turnwise.gateway.client_limits import LimitedClient
from turnwise.gateway.config import GatewayConfig, GatewayRoute, UpstreamAddress, upstream_of
from turnwise.gateway.doors import ClientCall, ClientGone
from turnwise.gateway.service import RelayService, ServiceMeans
from turnwise.lab import Lab
from turnwise.lab.script import Script, ScriptedCall, ScriptedStep
from turnwise.testing import FakeClock
from turnwise.testing.frames import frames_of
from turnwise.testing.scripted_model import STREAM, Reply, ScriptedTransport, Stall
from turnwise.testing.wire_conformance import encode_stream
from turnwise.vocab import FinishReason, Message, Request, Response, Text, ToolCall, calls_of, text_of
from turnwise.wire.family import HttpCall
from turnwise.wire.family import family as find_family
from turnwise.wire.model_lists import read_model_list
from turnwise.wire.profiles import FamilyName
from turnwise.wire.relay_facts import ListedModel, relay_facts
from waits import HANG_S
from whole_streams import read_stream

READ = {"name": "read", "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}}
PATCH = '*** Begin Patch\n*** Add File: a.txt\n+"two" words\n*** End Patch\n'
CHAT_TOOLS = [{"type": "function", "function": READ}]


def lab_at(
    family: FamilyName = "openai_chat", *, host: str = "lab.invalid", model: str | None = None
) -> UpstreamAddress:
    version = "v1beta" if family == "gemini" else "v1"
    return UpstreamAddress(url=f"http://{host}/{version}", family=family, model=model, key_env="LAB_KEY")


def chat(model: str, *, stream: bool = True, **more: object) -> ClientCall:
    body = {"model": model, "stream": stream, "messages": [{"role": "user", "content": "Look."}], **more}
    return ClientCall(
        id="tw-1", path="/v1/chat/completions", body=msgspec.json.encode(body), family="openai_chat", kind="generate"
    )


def service(lab: Lab, *routes: GatewayRoute, clock: FakeClock, env: Mapping[str, str] | None = None) -> RelayService:
    means = ServiceMeans(
        transport=lab.transport(), clock=clock, env={"LAB_KEY": "k"} if env is None else env, deadlines=DEADLINES
    )
    return RelayService(GatewayConfig(routes=routes), means=means, forward_key=False)


def asked(call: ClientCall, *routes: GatewayRoute, scripts: Sequence[Script] = ()) -> tuple[Gathered, list[str]]:
    """The answer, and the models that the lab was asked for."""

    async def run() -> tuple[Gathered, list[str]]:
        async with Lab(scripts=scripts) as lab:
            clock, outlet = FakeClock(), Gathered()
            await settled(service(lab, *routes, clock=clock).answer(call, outlet), clock=clock)
            return outlet, [one.model for one in lab.requests]

    return asyncio.run(run())


def json_of(outlet: Gathered) -> dict[str, object]:
    return msgspec.json.decode(b"".join(outlet.pieces), type=dict[str, object])


def test_an_alias_and_a_pattern_choose_the_route() -> None:
    """The first route that has the name serves it; a name of no route is told with 404."""
    first = GatewayRoute(models=("gpt-*",), aliases={"fast": "plain-answer"}, upstream=lab_at())
    outlet, models = asked(chat("fast"), first)
    assert (outlet.status, models) == (200, ["plain-answer"])
    outlet, models = asked(chat("claude"), first)
    assert (outlet.status, models) == (404, [])
    assert "claude" in b"".join(outlet.pieces).decode()


def test_a_fallback_answers_where_the_first_upstream_cannot() -> None:
    """The client sees one answer, whichever upstream gave it."""
    route = GatewayRoute(upstream=lab_at(model="fault-500"), fallbacks=(lab_at(model="plain-answer"),), retry=0)
    outlet, models = asked(chat("any"), route)
    assert (outlet.status, models) == (200, ["fault-500", "plain-answer"])


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    "case", ["fault-html", "fault-401", "fault-429", "fault-500", "fault-529", "fault-silence", "fault-random-bytes"]
)
def test_any_failure_before_the_first_word_leads_to_the_fallback(case: str, stream: bool) -> None:
    """A web page with status 200, and a silence through which a stream got comments, too."""
    route = GatewayRoute(upstream=lab_at(model=case), fallbacks=(lab_at(model="plain-answer"),), retry=0)
    outlet, models = asked(chat("any", stream=stream), route)
    body = b"".join(outlet.pieces)
    assert (outlet.status, models, b"error" in body) == (200, [case, "plain-answer"], False)
    if stream:
        assert body.endswith(b"data: [DONE]\n\n") and body.count(b"[DONE]") == 1


def test_no_fallback_is_asked_for_what_the_request_itself_is_guilty_of() -> None:
    """Another upstream would say the same of it."""
    route = GatewayRoute(upstream=lab_at(), fallbacks=(lab_at(),))
    outlet, models = asked(chat("plain-answer", store=True), route)
    assert (outlet.status, models) == (400, [])
    assert "`store`" in b"".join(outlet.pieces).decode()


def test_a_fallback_that_cannot_carry_the_request_hides_no_fault() -> None:
    """The client learns why the upstream failed that could have answered, not what another family lacks."""
    first = lab_at("openai_chat", model="fault-401")
    route = GatewayRoute(upstream=first, fallbacks=(lab_at("anthropic_messages"),), retry=0)
    outlet, models = asked(chat("any", stream=False, n=1, seed=7, logit_bias={"50256": -100}), route)
    assert (outlet.status, models) == (502, ["fault-401"])
    assert json_of(outlet)["error"] == {
        "message": "the upstream refused the gateway's own key (HTTP 401): its operator finds the upstream's words in the log",
        "type": "server_error",
        "param": None,
        "code": "upstream_key_refused",
    }


@pytest.mark.parametrize("family", FAMILIES)
def test_a_stream_that_nobody_asked_for_is_a_whole_answer_for_the_client(family: FamilyName) -> None:
    """Some servers stream whatever the request says."""
    said = Response(message=Message("assistant", (Text("All good."),)), finish=FinishReason.STOP)
    here = find_family(family)
    stream = encode_stream(here, frames_of(said), request=Request(model="m", messages=(), stream=True))
    call = chat("m", stream=False)

    async def run() -> Gathered:
        means = ServiceMeans(
            transport=ScriptedTransport([Reply(pieces=(stream,))]), clock=FakeClock(), env={"LAB_KEY": "k"}
        )
        there = RelayService(
            GatewayConfig(routes=(GatewayRoute(upstream=lab_at(family)),)), means=means, forward_key=False
        )
        outlet = Gathered()
        await asyncio.wait_for(there.answer(call, outlet), HANG_S)
        return outlet

    outlet = asyncio.run(run())
    assert (outlet.status, outlet.headers["content-type"]) == (200, "application/json")
    got = read_body(b"".join(outlet.pieces), family=find_family("openai_chat"), profile=profile_of("openai_chat"))[0]
    assert (text_of(got.message), got.finish, got.repairs) == ("All good.", FinishReason.STOP, ())


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("upstream", FAMILIES)
def test_a_client_that_takes_one_call_at_a_time_gets_one(upstream: FamilyName, stream: bool) -> None:
    """The calls after the first are left out, whatever the model was asked for; the finish reason stays that of calls."""
    route = GatewayRoute(upstream=lab_at(upstream), one_call_at_a_time=True)
    outlet, _ = asked(chat("parallel-calls", stream=stream, tools=CHAT_TOOLS), route)
    body = b"".join(outlet.pieces)
    if stream:
        assert [call[1:] for call in naively(body, client="openai_chat").calls] == [("read", '{"path":"notes.txt"}')]
        assert b'"finish_reason":"tool_calls"' in body
    else:
        choices = json_of(outlet)["choices"]
        assert isinstance(choices, list)
        assert len(choices[0]["message"]["tool_calls"]) == 1
        assert "calls_left_out" in outlet.headers["turnwise-repairs"]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("upstream", ["openai_chat", "anthropic_messages", "gemini"])
def test_a_free_form_call_comes_back_as_text(upstream: FamilyName, stream: bool) -> None:
    """Codex's `apply_patch` takes text. An upstream that knows JSON tools alone gets an object with one string, and the client
    gets the string."""
    body = {
        "model": "patches",
        "stream": stream,
        "input": "Write the patch.",
        "tools": [{"type": "custom", "name": "apply_patch", "description": "Apply a patch."}],
    }
    call = ClientCall(
        id="tw-1", path="/v1/responses", body=msgspec.json.encode(body), family="openai_responses", kind="generate"
    )
    step = ScriptedStep(calls=(ScriptedCall(name="apply_patch", arguments={"input": PATCH}),))
    script = Script(name="patches", title="patches", steps=(step,))
    outlet, models = asked(call, GatewayRoute(upstream=lab_at(upstream)), scripts=[script])
    assert (outlet.status, len(models)) == (200, 1)
    whole = b"".join(outlet.pieces)
    profile = profile_of("openai_responses")
    if stream:
        got = read_stream([whole], family=find_family("openai_responses"), profile=profile)
    else:
        got = read_body(whole, family=find_family("openai_responses"), profile=profile)[0]
    (patch,) = calls_of(got.message)
    assert (patch.name, patch.free_form, patch.arguments, got.repairs) == ("apply_patch", True, PATCH, ())


def test_a_route_that_does_not_heal_passes_what_comes() -> None:
    """Every byte of the upstream's stream, faults included."""
    plain = GatewayRoute(upstream=lab_at(), heal=False)
    outlet, models = asked(chat("shared-index", tools=CHAT_TOOLS), plain)
    assert models == ["shared-index"]
    calls = naively(b"".join(outlet.pieces), client="openai_chat").calls
    assert [name for _, name, _ in calls] == ["readread"], "both calls on one index, as they came"


def test_a_count_comes_from_the_upstream_or_is_called_an_estimate() -> None:
    """The header says which."""
    body = msgspec.json.encode({"model": "x", "messages": [{"role": "user", "content": "How long is this?"}]})
    call = ClientCall(id="tw-1", path="/v1/messages/count_tokens", body=body, family="anthropic_messages", kind="count")
    outlet, models = asked(call, GatewayRoute(upstream=lab_at()))
    assert (outlet.status, models, outlet.headers["turnwise-estimated"]) == (200, [], "true")
    assert json_of(outlet)["input_tokens"] != 0


def test_the_output_of_a_route_is_capped() -> None:
    """What the client asks for is lowered to the route's cap; the response ends there."""
    route = GatewayRoute(upstream=lab_at(), max_output_tokens=200, continues=False)
    outlet, _ = asked(chat("writer-answer", max_completion_tokens=4000), route)
    assert b'"finish_reason":"length"' in b"".join(outlet.pieces)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_list_of_models_has_its_familys_shape(family: FamilyName) -> None:
    """Our own reader of such lists finds the names again, and since when there is each."""
    facts = relay_facts(family)
    rows = [
        facts.model_row(ListedModel(name=name, created_s=7, created_at="1970-01-01T00:00:07Z")) for name in ("a", "b:c")
    ]
    found = read_model_list(msgspec.json.encode(facts.model_list(rows)))
    since = {"gemini": None, "anthropic_messages": "1970-01-01T00:00:07Z"}.get(family, 7)
    assert [(model.name, model.created) for model in found] == [("a", since), ("b:c", since)]


async def test_the_models_of_the_configuration_are_listed() -> None:
    """Aliases, plain names, and what an upstream lists that serves any name."""
    async with Lab() as lab:
        route = GatewayRoute(models=("gpt-5",), aliases={"fast": "gpt-5-mini"}, upstream=lab_at())
        fixed = GatewayRoute(upstream=lab_at(model="big"))
        there = service(lab, route, fixed, clock=FakeClock())
        found = read_model_list(await there.models(listing()) or b"")
        assert [model.name for model in found] == ["fast", "gpt-5", "big"]
        one = msgspec.json.decode(await there.models(listing(model="fast")) or b"")
        assert one == {"id": "fast", "object": "model", "created": found[0].created, "owned_by": "turnwise"}
        assert await there.models(listing(model="fas")) is None


def listing(**more: Any) -> ClientCall:
    said = {"id": "tw-1", "path": "/v1/models", "body": b"", "family": "openai_chat", "kind": "passed", **more}
    return ClientCall(**said)


@pytest.mark.parametrize("family", FAMILIES)
async def test_a_key_is_shown_the_models_that_it_may_name(family: FamilyName) -> None:
    """Proves: aliases count by the client's name for a model, the patterns of key and team both hold, a route of another client
    is not there, and what is not in the list cannot be asked for by its name; the request itself would be refused, too."""
    routes = (
        GatewayRoute(models=("gpt-5", "gpt-5-mini"), aliases={"fast": "gpt-5-mini"}, upstream=lab_at()),
        GatewayRoute(models=("secret",), upstream=lab_at(), one_client="ann"),
        GatewayRoute(models=("claude-*",), upstream=lab_at(model="big")),
    )
    patterns = {"all": (), "mini": (("*-mini", "fast"),), "both": (("gpt-*",), ("*-mini",)), "none": (("o9",),)}
    shown: dict[str, list[str]] = {}
    async with Lab() as lab:
        there = service(lab, *routes, clock=FakeClock())
        for name, models in patterns.items():
            client = LimitedClient(name=name, models=models)
            asking = {"family": family, "client": name, "is_only_client": False, "limits": client}
            shown[name] = [one.name for one in read_model_list(await there.models(listing(**asking)) or b"")]
            for model in ("fast", "gpt-5", "gpt-5-mini", "secret", "big", "claude-x"):
                is_there = await there.models(listing(**asking, model=model)) is not None
                assert is_there is (shown[name].count(model) == 1)
        own = await there.models(listing(family=family, client="ann", is_only_client=False, model="secret"))
        assert own is not None
    assert shown == {
        "all": ["fast", "gpt-5", "gpt-5-mini"],
        "mini": ["fast", "gpt-5-mini"],
        "both": ["gpt-5-mini"],
        "none": [],
    }


def test_a_missing_key_is_told_before_anything_is_served() -> None:
    """The error names the variable."""

    async def run() -> None:
        async with Lab() as lab:
            service(lab, GatewayRoute(upstream=lab_at()), clock=FakeClock(), env={})

    with pytest.raises(MissingKey, match="LAB_KEY"):
        asyncio.run(run())


def test_a_stream_over_http_1_0_is_refused_before_it_costs_anything() -> None:
    """Its end could not be told. A whole answer has its length."""
    old = msgspec.structs.replace(chat("plain-answer"), takes_streams=False)
    outlet, models = asked(old, GatewayRoute(upstream=lab_at()))
    assert (outlet.status, models) == (505, [])
    assert "proxy_http_version 1.1" in b"".join(outlet.pieces).decode()
    whole = msgspec.structs.replace(chat("plain-answer", stream=False), takes_streams=False)
    outlet, models = asked(whole, GatewayRoute(upstream=lab_at()))
    assert (outlet.status, models) == (200, ["plain-answer"])
    assert outlet.headers["content-length"] == str(len(b"".join(outlet.pieces)))


@pytest.mark.parametrize("stream", [True, False])
def test_an_answer_past_the_bound_is_an_error(stream: bool) -> None:
    """`[bounds]` says how much of one answer the gateway holds."""

    async def run() -> Gathered:
        async with Lab() as lab:
            clock, outlet = FakeClock(), Gathered()
            means = ServiceMeans(transport=lab.transport(), clock=clock, env={"LAB_KEY": "k"}, deadlines=DEADLINES)
            config = GatewayConfig(routes=(GatewayRoute(upstream=lab_at()),), bounds=Bounds(response_bytes=400))
            there = RelayService(config, means=means, forward_key=False)
            await settled(there.answer(chat("writer-answer", stream=stream), outlet), clock=clock)
            return outlet

    outlet = asyncio.run(run())
    assert b"the response is longer than" in b"".join(outlet.pieces)
    assert outlet.status == 200 if stream else outlet.status >= 400


class Slow(Gathered):
    """An outlet whose client takes the status only once `reads` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = asyncio.Event()
        self.asked = asyncio.Event()

    async def start(self, status: int, headers: Sequence[tuple[str, str]]) -> None:
        self.asked.set()
        await self.reads.wait()
        await super().start(status, headers)


async def test_a_comment_and_an_answer_at_once_have_one_status() -> None:
    """The comment waits for a slow client when the first words arrive: they wait behind it."""
    words = asyncio.Event()
    said = Response(message=Message("assistant", (Text("Late."),)), finish=FinishReason.STOP)
    stream = encode_stream(
        find_family("openai_chat"), frames_of(said), request=Request(model="m", messages=(), stream=True)
    )
    clock, outlet = FakeClock(), Slow()
    transport = ScriptedTransport([Reply(pieces=(Stall(until=words), stream))])
    means = ServiceMeans(transport=transport, clock=clock, env={"LAB_KEY": "k"})
    there = RelayService(GatewayConfig(routes=(GatewayRoute(upstream=lab_at()),)), means=means, forward_key=False)
    answering = asyncio.ensure_future(there.answer(chat("m"), outlet))
    while not outlet.asked.is_set():
        await clock.advance(1)
    words.set()
    for _ in range(20):
        await clock.advance(0)
    outlet.reads.set()
    await asyncio.wait_for(answering, HANG_S)
    body = b"".join(outlet.pieces)
    assert body.startswith(b": keep-alive\n\n")
    assert naively(body, client="openai_chat").text == "Late."


class Pumped:
    """A transport that gives a stream's chunks out of the socket's own callback, some seconds apart by the clock."""

    def __init__(self, chunks: Sequence[bytes], *, apart_s: float, clock: FakeClock) -> None:
        self._chunks, self._apart_s, self._clock = chunks, apart_s, clock

    @contextlib.asynccontextmanager
    async def send(self, request: HttpRequest, /) -> AsyncGenerator[HttpReply]:
        left = list(self._chunks)

        async def come() -> AsyncGenerator[bytes]:
            while left:
                await sleep(self._clock, seconds=self._apart_s)
                yield left.pop(0)

        async def pump(take: Take) -> None:
            while left:
                await sleep(self._clock, seconds=self._apart_s)
                if not take(left.pop(0)):
                    return

        yield HttpReply(status=200, headers=STREAM, chunks=come(), pump=pump)


@pytest.mark.parametrize(("apart_s", "comments"), [(8, 0), (20, 4)])
def test_a_stream_that_goes_on_has_no_comments_between(apart_s: int, comments: int) -> None:
    """Proves: pieces that are written past `send` count as sent; only where 15 s go by without any, a comment comes."""
    calls = tuple(ToolCall(id=f"call_{at}", name="read", arguments='{"path":"a.txt"}') for at in range(6))
    said = Response(message=Message("assistant", calls), finish=FinishReason.TOOL_CALLS)
    asked = Request(model="m", messages=(), stream=True)
    events = encode_stream(find_family("openai_chat"), frames_of(said), request=asked).split(b"\n\n")[:-1]
    share = -(-len(events) // 4)
    chunks = [b"".join([each + b"\n\n" for each in events[at : at + share]]) for at in range(0, len(events), share)]
    clock, outlet = FakeClock(), Gathered()
    means = ServiceMeans(transport=Pumped(chunks, apart_s=apart_s, clock=clock), clock=clock, env={"LAB_KEY": "k"})
    there = RelayService(GatewayConfig(routes=(GatewayRoute(upstream=lab_at()),)), means=means, forward_key=False)
    asyncio.run(settled(there.answer(chat("m", tools=CHAT_TOOLS), outlet), clock=clock))
    body = b"".join(outlet.pieces)
    assert (len(chunks), body.count(b": keep-alive"), body.endswith(b"data: [DONE]\n\n")) == (4, comments, True)


@pytest.mark.parametrize(
    ("upstream", "up"),
    [
        ("anthropic_messages", [("anthropic-beta", "b-1"), ("anthropic-version", "2099-01-01")]),
        ("openai_chat", []),
    ],
)
def test_a_clients_header_takes_the_place_of_our_own(upstream: FamilyName, up: list[tuple[str, str]]) -> None:
    """Proves: where the upstream speaks the client's family, its listed headers go up once each, and ours beside them; another
    API gets none of them."""
    transport = ScriptedTransport([Reply(status=400, headers={}, pieces=(b"{}",))])
    means = ServiceMeans(transport=transport, clock=FakeClock(), env={"LAB_KEY": "k"})
    there = RelayService(
        GatewayConfig(routes=(GatewayRoute(upstream=lab_at(upstream)),)), means=means, forward_key=False
    )
    headers = (("anthropic-version", "2099-01-01"), ("anthropic-beta", "b-1"))
    call = msgspec.structs.replace(call_of("anthropic_messages", "m", stream=False), headers=headers)
    asyncio.run(asyncio.wait_for(there.answer(call, Gathered()), HANG_S))
    (sent,) = transport.requests
    names = [name.lower() for name, _ in sent.headers]
    assert len(names) == len(set(names)) and {"content-type"} <= set(names)
    assert sorted([field for field in sent.headers if field[0].startswith("anthropic-")]) == up


@pytest.mark.parametrize("key", ["sk-theirs", ""])
def test_a_forwarded_key_is_the_clients_own_and_no_other(key: str) -> None:
    """Proves: with `--forward-key` the upstream gets what the client showed for it, and nothing where it showed nothing."""
    transport = ScriptedTransport([Reply(status=400, headers={}, pieces=(b"{}",))])
    means = ServiceMeans(transport=transport, clock=FakeClock(), env={"LAB_KEY": "k"})
    there = RelayService(GatewayConfig(routes=(GatewayRoute(upstream=lab_at()),)), means=means, forward_key=True)
    call = msgspec.structs.replace(chat("m"), client_key=key)
    asyncio.run(asyncio.wait_for(there.answer(call, Gathered()), HANG_S))
    (sent,) = transport.requests
    assert dict(sent.headers).get("authorization") == (f"Bearer {key}" if key else None)


async def test_a_gateway_that_is_ended_has_closed_its_requests_upstream() -> None:
    """What runs for a client is over before its answer is: the ledger has its end, the connection is closed."""
    begun = asyncio.Event()

    def silence(_: HttpRequest) -> Reply:
        begun.set()
        return Reply(pieces=(Stall(),))

    transport = ScriptedTransport([silence])
    means = ServiceMeans(transport=transport, clock=FakeClock(), env={"LAB_KEY": "k"})
    there = RelayService(GatewayConfig(routes=(GatewayRoute(upstream=lab_at()),)), means=means, forward_key=False)
    answering = asyncio.ensure_future(there.answer(chat("m"), Gathered()))
    await asyncio.wait_for(begun.wait(), HANG_S)
    answering.cancel()
    await asyncio.wait([answering])
    assert (answering.cancelled(), transport.open) == (True, 0)


class Leaving(Gathered):
    """An outlet whose client leaves with the first piece."""

    def __init__(self) -> None:
        super().__init__()
        self.left = asyncio.Event()

    async def send(self, data: bytes) -> None:
        self.left.set()
        await asyncio.Event().wait()

    async def gone(self) -> None:
        await self.left.wait()


async def test_a_client_that_leaves_ends_the_request_upstream() -> None:
    """Nothing goes on for nobody."""
    async with Lab() as lab:
        clock = FakeClock()
        there = service(lab, GatewayRoute(upstream=lab_at()), clock=clock)
        answering: Callable[[], Awaitable[None]] = lambda: there.answer(chat("fault-stall"), Leaving())  # noqa: E731
        with pytest.raises(ClientGone):
            await asyncio.wait_for(answering(), HANG_S)
        assert len(lab.requests) == 1


def test_a_passed_path_goes_where_its_model_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the model's own route, which has to list the path; an alias is translated, all else goes up as it came."""
    path, seen = "/v1/embeddings", list[tuple[str, str, dict[str, object]]]()

    async def ask(_: object, endpoint: Endpoint, sent: HttpCall, *, whole_s: float) -> bytes:
        seen.append((endpoint.base_url, sent.path, msgspec.json.decode(sent.body)))
        return b"{}"

    def passed(**fields: object) -> Gathered:
        body = msgspec.json.encode({"input": "x", "big": 1, **fields})
        call = ClientCall(id="tw-1", path=path, body=body, family="openai_chat", kind="passed")
        return asked(call, *routes)[0]

    monkeypatch.setattr(RelayService, "_ask_upstream", ask)
    routes = (
        GatewayRoute(models=("gpt-*",), upstream=lab_at(host="first.invalid"), passes=(path,)),
        GatewayRoute(
            models=("embed-*",), aliases={"small": "embed-1"}, upstream=lab_at(host="second.invalid"), passes=(path,)
        ),
        GatewayRoute(models=("other",), upstream=lab_at(host="third.invalid")),
        GatewayRoute(upstream=lab_at(host="fourth.invalid"), models=("own",), passes=(path,), one_client="ann"),
    )
    assert [passed(model="small").status, passed(model="embed-2").status, passed().status] == [200, 200, 200]
    assert seen == [
        ("http://second.invalid/v1", path, {"input": "x", "big": 1, "model": "embed-1"}),
        ("http://second.invalid/v1", path, {"input": "x", "big": 1, "model": "embed-2"}),
        ("http://first.invalid/v1", path, {"input": "x", "big": 1}),
    ]
    refused = [passed(model=name) for name in ("other", "own", "nobody")]
    assert [one.status for one in refused] == [404, 404, 404] and len(seen) == 3
    assert b"does not list" in b"".join(refused[0].pieces)
    stored = passed(model="small", image={"file_id": "file-1"})
    assert (stored.status, len(seen)) == (400, 3) and b"`file_id` in `image`" in b"".join(stored.pieces)


def test_a_model_that_ends_is_one_line_in_the_log_and_one_more_when_it_has_ended(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A model of the configuration at the start, a client's at its first request; nothing for a server of one's own."""
    last_day_s = 1_796_947_200.0 - 60  # before 2026-12-11
    ends, ended = [f"gateway: openai:gpt-5 {word} on 2026-12-11; use gpt-6.1-sol" for word in ("ends", "ended")]
    routes = GatewayRoute(upstream="openai:gpt-5", models=("a",)), GatewayRoute(upstream=lab_at(), models=("gpt-5",))

    def told() -> list[str]:
        return [line for line in caplog.messages if "2026-12-11" in line]

    async def run() -> None:
        async with Lab() as lab:
            clock = FakeClock(now=last_day_s)
            there = service(lab, *routes, clock=clock, env={"LAB_KEY": "k", "OPENAI_API_KEY": "k"})
            assert told() == [ends]
            for _ in range(2):
                await settled(there.answer(chat("gpt-5"), Gathered()), clock=clock)
            assert told() == [ends]
            upstream = upstream_of("openai:*")
            for seconds, said in ((0, [ends]), (120, [ends, ended])):
                await clock.advance(seconds)
                there._warn_of_end("gpt-5-2025-08-07", upstream)
                assert told() == said

    asyncio.run(run())
