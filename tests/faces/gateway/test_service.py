"""The service behind the doors: routes, fallbacks, counts, passed paths, and what a route changes of an answer."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec
import pytest

from faces.gateway.relayed import FAMILIES, Gathered, naively, profile_of
from lab.failing import DEADLINES, settled
from turnwise.errors import MissingKey
from turnwise.faces.gateway.calls import ClientCall, ClientGone
from turnwise.faces.gateway.config import GatewayConfig, GatewayRoute, UpstreamAddress
from turnwise.faces.gateway.service import RelayService, ServiceMeans, write_models
from turnwise.lab import Lab
from turnwise.lab.script import Script, ScriptedCall, ScriptedStep
from turnwise.relay.response_reading import read_body
from turnwise.testing import FakeClock
from turnwise.vocab import calls_of
from turnwise.wire.model_lists import read_model_list
from turnwise.wire.profiles import FamilyName
from turnwise.wire.registry import family as find_family
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


def test_no_fallback_is_asked_for_what_the_request_itself_is_guilty_of() -> None:
    """Another upstream would say the same of it."""
    route = GatewayRoute(upstream=lab_at(), fallbacks=(lab_at(),))
    outlet, models = asked(chat("plain-answer", store=True), route)
    assert (outlet.status, models) == (400, [])
    assert "`store`" in b"".join(outlet.pieces).decode()


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
    """Our own reader of such lists finds the names again."""
    assert [model.name for model in read_model_list(write_models(["a", "b:c"], family=family))] == ["a", "b:c"]


async def test_the_models_of_the_configuration_are_listed() -> None:
    """Aliases, plain names, and what an upstream lists that serves any name."""
    async with Lab() as lab:
        route = GatewayRoute(models=("gpt-5",), aliases={"fast": "gpt-5-mini"}, upstream=lab_at())
        fixed = GatewayRoute(upstream=lab_at(model="big"))
        there = service(lab, route, fixed, clock=FakeClock())
        found = read_model_list(await there.models("openai_chat"))
        assert [model.name for model in found] == ["fast", "gpt-5", "big"]


def test_a_missing_key_is_told_before_anything_is_served() -> None:
    """The error names the variable."""

    async def run() -> None:
        async with Lab() as lab:
            service(lab, GatewayRoute(upstream=lab_at()), clock=FakeClock(), env={})

    with pytest.raises(MissingKey, match="LAB_KEY"):
        asyncio.run(run())


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
