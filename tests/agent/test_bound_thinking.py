"""Sessions whose model binds its thinking to what stood before it (promise step:bound-thinking)."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from msgspec.structs import replace

from agent.test_cache_refusals import Picky
from flat_agents import flat_agent
from turnwise import Agent, Journal, MaxCost, MaxRequests, Prices, StepChanges, read_prices
from turnwise.base.clock import SystemClock
from turnwise.endpoints.transport import HttpReply, HttpRequest
from turnwise.lab import Lab
from turnwise.lab.provider import Received
from turnwise.lab.script import Binding, Script, ScriptedCall, ScriptedStep
from turnwise.replay.session_fork import fork
from turnwise.turn.config import TurnConfig
from turnwise.turn.events import PrepareStep
from turnwise.turn.history import Carried
from turnwise.turn.request_plan import Sent
from turnwise.vocab import Message, Reasoning, Request, StopReason, Text
from turnwise.wire.openai_responses.request import encode_request as encode_responses
from turnwise.wire.profiles import builtin_profiles

BETA = "thinking-binding-controls-2026-08-01"
SETTING = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
ROW = {"input": 3, "output": 15}
PRICES = Prices(user=read_prices({"anthropic:*": ROW}, named="the table", source="this test"))
BOUND, FREE = "claude-sonnet-5-5", "claude-sonnet-4-6"


def read(path: str) -> str:
    """Read a part."""
    return f"{path}: the quick brown fox."


def look(path: str) -> str:
    """Look at a part."""
    return path


def reread(path: str) -> str:
    """Read a part once more: a tool that has changed, which breaks every prefix."""
    return read(path)


reread.__name__ = "read"


def thinking(name: str = BOUND, *, reads: int = 2, binds: Binding = "refuses", tool: str = "read") -> Script:
    calls = [ScriptedCall(name=tool, arguments={"path": f"part-{number}"}) for number in range(reads)]
    steps = [ScriptedStep(reasoning=f"Thought {at}.", calls=(call,)) for at, call in enumerate(calls)]
    end = ScriptedStep(reasoning="Now it is plain.", text="Done.")
    return Script(name=name, title="thinks", steps=(*steps, end), binds=binds)


def agent_at(lab: Lab, *, model: str = f"anthropic:{BOUND}", **more: Any) -> Agent:
    given: dict[str, Any] = {"instructions": "Be brief.", "tools": [read], "transport": lab.transport(), **more}
    return flat_agent(model, api_key="k", **{"base_url": "http://lab", **given})


class Beta:
    """A lab behind a proxy that sends the header of the beta."""

    def __init__(self, lab: Lab) -> None:
        self._inner = lab.transport()

    @asynccontextmanager
    async def send(self, request: HttpRequest, /) -> AsyncGenerator[HttpReply]:
        async with self._inner.send(replace(request, headers=(*request.headers, ("anthropic-beta", BETA)))) as reply:
            yield reply


def settings(lab: Lab) -> list[bool]:
    """Of each request: whether it asked for stale thinking to be dropped, in the field and in the header together."""
    found: list[bool] = []
    for one in lab.requests:
        asks = "block_binding" in json.loads(one.body).get("thinking", {})
        assert asks == (BETA in one.betas)
        found.append(asks)
    return found


def thoughts(one: Received) -> int:
    blocks = [block for message in json.loads(one.body)["messages"] for block in message["content"]]
    return sum(block["type"] == "thinking" for block in blocks)


@pytest.mark.promise("step:bound-thinking")
@pytest.mark.parametrize("stream", [True, False])
async def test_a_session_with_a_changed_tool_lives_on(stream: bool) -> None:
    """The refused request is sent again once, with the setting and its beta, and all that is stale is dropped: no more. Every
    later request has the setting, in the turns after it too. Nothing is asked before the refusal."""
    lab = Lab([thinking()])
    with Journal(None, clock=SystemClock()) as journal:
        given = {"journal": journal, "stream": stream}
        first = await agent_at(lab, **given).run("Read.")
        assert (first.text, settings(lab)) == ("Done.", [False] * 3)
        second = await agent_at(lab, tools=[reread], **given).run("Again.", session=first.session)
        assert (second.text, second.stop_reason) == ("Done.", StopReason.ANSWERED)
        assert settings(lab) == [*[False] * 4, *[True] * 3]
        third = await agent_at(lab, tools=[reread], **given).run("Once more.", session=first.session)
        assert (third.text, settings(lab)[7:]) == ("Done.", [True] * 3)
    assert [one.status for one in lab.requests] == [200] * 3 + [400] + [200] * 6
    stale = ("messages.1.content.0", "messages.3.content.0", "messages.5.content.0")
    assert [one.dropped for one in lab.requests[4:]] == [stale] * 6
    assert second.requests_by_purpose == {"step": 3, "retry": 1}
    assert [one.outcome for one in second.ledger] == ["bad_request", "ok", "ok", "ok"]
    told = [repair for repair in second.repairs if repair.kind in ("stale_thinking", "thinking_dropped")]
    assert [(one.kind, one.where) for one in told] == [
        ("stale_thinking", "request 1"),
        *[("thinking_dropped", stale[0])] * 3,
    ]
    assert told[1].what.endswith("3 x prefix_binding_mismatch")
    assert [told[1].what in one.price_note for one in second.ledger] == [False, True, True, True]
    assert second.prefix_changes[1:] == ("request 2: stale thinking",)


@pytest.mark.promise("step:bound-thinking")
async def test_tools_that_change_within_a_turn_are_survived() -> None:
    """`prepare_step` offers one tool more: what was thought before is stale, what is thought afterwards stays."""

    def prepare(view: PrepareStep) -> StepChanges:
        return StepChanges(tools=("read",) if view.step < 3 else ("read", "look"))

    lab = Lab([thinking(reads=4)])
    result = await agent_at(lab, tools=[read, look], prepare_step=prepare).run("Read.")
    assert (result.text, [one.status for one in lab.requests]) == ("Done.", [200, 200, 400, 200, 200, 200])
    stale = ("messages.1.content.0", "messages.3.content.0")
    assert [one.dropped for one in lab.requests[3:]] == [stale] * 3


@pytest.mark.promise("step:bound-thinking", "end:budget")
@pytest.mark.parametrize(
    "limits", [{"limits": MaxRequests(1)}, {"max_steps": 1}, {"limits": MaxCost(Decimal("0.02")), "prices": PRICES}]
)
async def test_a_mended_refusal_does_not_use_up_the_last_request(limits: dict[str, Any]) -> None:
    """With one request in the limits, at the cap of steps, and as the last that is affordable: the model answers, and both
    requests are told."""
    lab = Lab([thinking(reads=0)])
    with Journal(None, clock=SystemClock()) as journal:
        first = await agent_at(lab, journal=journal, tools=()).run("Think.")
        changed = agent_at(lab, journal=journal, tools=[look], **limits)
        lab.reset()
        result = await changed.run("Again.", session=first.session)
    assert (result.text, [one.status for one in lab.requests]) == ("Done.", [400, 200])
    assert (result.requests, [one.outcome for one in result.ledger]) == (2, ["bad_request", "ok"])


@pytest.mark.promise("step:bound-thinking")
async def test_where_the_setting_is_not_taken_stale_thinking_is_left_out() -> None:
    """From the first stale block on, which the provider named, and in every later request; later thinking goes back whole."""
    lab = Lab([thinking(binds="uncontrolled")])

    def prepare(view: PrepareStep) -> StepChanges:
        return StepChanges(tools=("read",) if view.step < 3 else ("read", "look"))

    with Journal(None, clock=SystemClock()) as journal:
        agent = agent_at(lab, tools=[read, look], prepare_step=prepare, journal=journal)
        first = await agent.run("Read.")
        assert (first.text, [one.status for one in lab.requests]) == ("Done.", [200, 200, 400, 400, 200])
        assert [thoughts(one) for one in lab.requests] == [0, 1, 2, 2, 0]
        assert settings(lab) == [False, False, False, True, False]
        plain = agent_at(lab, tools=[read, look], journal=journal)
        second = await plain.run("Again.", session=first.session)
    assert (second.text, [one.status for one in lab.requests[5:]]) == ("Done.", [200] * 3)
    assert [thoughts(one) for one in lab.requests[5:]] == [1, 2, 3]
    assert [one.kind for one in first.repairs] == ["stale_thinking"] * 2


@pytest.mark.promise("step:bound-thinking")
@pytest.mark.parametrize(
    "says",
    [
        f"Unexpected value(s) `{BETA}` for the `anthropic-beta` header.",
        'BedrockException - {"message":"invalid beta flag"}',
    ],
)
async def test_a_server_that_refuses_the_beta_of_the_setting_costs_one_refusal_more(says: str) -> None:
    """Proves: a proxy that does not know the beta ends no session; stale thinking is left out, in later turns at once."""
    lab = Lab([thinking()])
    server = Picky(lab, lambda body: (400, says) if "block_binding" in body["thinking"] else None)
    with Journal(None, clock=SystemClock()) as journal:
        first = await agent_at(lab, journal=journal, transport=server).run("Read.")
        for _ in range(2):
            changed = agent_at(lab, journal=journal, transport=server, tools=[reread])
            assert (await changed.run("Again.", session=first.session)).text == "Done."
    assert [one.status for one in lab.requests] == [200] * 3 + [400] + [200] * 6
    assert len(server.bodies) == len(lab.requests) + 1
    assert not any(one.dropped for one in lab.requests)


@pytest.mark.promise("step:bound-thinking")
async def test_a_setting_of_the_caller_stands() -> None:
    """Who asks for the error gets it; nothing is sent again."""
    lab = Lab([thinking()])
    own = {"thinking": {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "error"}}}
    with Journal(None, clock=SystemClock()) as journal:
        given = {"journal": journal, "transport": Beta(lab), "extra": own}
        first = await agent_at(lab, **given).run("Read.")
        second = await agent_at(lab, tools=[reread], **given).run("Again.", session=first.session)
    assert (second.stop_reason, second.fault is not None and second.fault.binding) == (StopReason.PROVIDER_FAILED, "")
    assert [one.status for one in lab.requests] == [200] * 3 + [400]


@pytest.mark.promise("step:bound-thinking")
async def test_another_model_and_back() -> None:
    """A model that does not bind gets no setting; back at the first one it is sent again."""
    lab = Lab([thinking(), thinking(FREE, binds="")])
    with Journal(None, clock=SystemClock()) as journal:
        first = await agent_at(lab, journal=journal).run("Read.")
        agent = agent_at(lab, journal=journal, tools=[reread])
        for number, model in enumerate((None, f"anthropic:{FREE}", None)):
            other = agent if model is None else agent_at(lab, journal=journal, model=model)
            result = await other.run(f"Turn {number}.", session=first.session)
            assert result.text == "Done."
    assert [one.status for one in lab.requests] == [200] * 3 + [400] + [200] * 9
    assert settings(lab) == [*[False] * 4, *[True] * 3, *[False] * 3, *[True] * 3]


@pytest.mark.promise("step:bound-thinking")
@pytest.mark.parametrize("stream", [True, False])
async def test_reasoning_that_openai_drops_in_silence_is_told(stream: bool) -> None:
    """A tool more makes the reasoning before it stale; the repair counts the items and names the reason."""

    def prepare(view: PrepareStep) -> StepChanges:
        return StepChanges(tools=("read",) if view.step < 3 else ("read", "look"))

    lab = Lab([thinking("gpt-6.2-sol")])
    given = {"tools": [read, look], "prepare_step": prepare, "base_url": "http://lab/v1", "stream": stream}
    result = await agent_at(lab, model="openai:gpt-6.2-sol", **given).run("Read.")
    assert (result.text, [one.status for one in lab.requests]) == ("Done.", [200] * 3)
    begins = [json.loads(one.body)["input"][0] for one in lab.requests]
    assert [one["role"] for one in begins] == ["developer"] * 3
    assert [(one.kind, one.what) for one in result.repairs] == [
        ("thinking_dropped", "the provider left reasoning out of the prompt: 2 x prefix_mismatch")
    ]


PLACES: dict[str, dict[str, Any]] = {
    "gpt-6.2-sol": {"model": "openai:gpt-6.2-sol", "base_url": "http://lab/v1"},
    BOUND: {"model": f"anthropic:{BOUND}"},
}


def said(body: dict[str, Any]) -> list[Any]:
    """The items or messages of a body, without marks for the cache, of which each request has others."""
    return unmarked(body.get("input") or body["messages"])


def unmarked(value: Any) -> Any:
    if isinstance(value, list):
        return [unmarked(one) for one in value]
    if isinstance(value, dict):
        return {key: unmarked(one) for key, one in value.items() if key != "cache_control"}
    return value


def told_behind(body: dict[str, Any]) -> list[str]:
    """What each item or message of instructions ends with: their last line, or the name of a tool."""
    told = [one for one in said(body) if one.get("role") in ("system", "developer")]
    last = [(one.get("content") or one["tools"])[-1] for one in told]
    tools = [block.get("tool", {}).get("definition", block) for block in last]
    return [tool.get("name") or tool["text"].rpartition("\n")[2] for tool in tools]


@pytest.mark.promise("step:bound-thinking", "step:prefix-stable")
@pytest.mark.parametrize("name", PLACES)
async def test_changed_instructions_are_told_behind_the_messages_where_the_model_takes_them(name: str) -> None:
    """Proves: GPT-6.2 has them as one more item of the instructions, Claude behind the user's words, once; nothing before it
    changes, so no reasoning is dropped and no prefix breaks. The first instructions are told again when they come back."""
    lab = Lab([thinking(name)])
    asked = ["Be brief.", "Be thorough.", "Be thorough.", "Be brief."]
    with Journal(None, clock=SystemClock()) as journal:
        given: dict[str, Any] = {"journal": journal, **PLACES[name]}
        results = [await agent_at(lab, instructions=asked[0], **given).run("Read.")]
        for words in asked[1:]:
            agent = agent_at(lab, instructions=words, **given)
            results.append(await agent.run("Again.", session=results[0].session))
    bodies = [json.loads(one.body) for one in lab.requests]
    assert all(said(after)[: len(said(before))] == said(before) for before, after in pairwise(bodies))
    assert [one.dropped for one in lab.requests] == [()] * len(bodies)
    assert [result.prefix_changes for result in results] == [()] * 4
    first = [text["text"] for text in bodies[-1].get("system", [])]
    assert [*first, *told_behind(bodies[-1])] == ["Be brief.", "Be thorough.", "Be brief."]


@pytest.mark.promise("step:bound-thinking")
@pytest.mark.parametrize("name", PLACES)
async def test_removed_instructions_are_told_as_removed(name: str) -> None:
    """Proves: the model is told once that no instructions hold any more, and others that come later are told as ever."""
    lab = Lab([thinking(name)])
    with Journal(None, clock=SystemClock()) as journal:
        given: dict[str, Any] = {"journal": journal, **PLACES[name]}
        session = (await agent_at(lab, instructions="Be brief.", **given).run("Read.")).session
        for words in ["", "", "Be kind."]:
            await agent_at(lab, instructions=words, **given).run("Again.", session=session)
    last = json.dumps(json.loads(lab.requests[-1].body))
    assert last.count("None of the earlier ones hold any more.") == 1
    assert last.count("From now on those of this message hold") == last.count("Be kind.") == 1


@pytest.mark.promise("step:bound-thinking", "step:prefix-stable")
@pytest.mark.parametrize("name", PLACES)
async def test_a_new_tool_goes_behind_the_messages_where_the_model_takes_it(name: str) -> None:
    """Proves: GPT-6.2 and Claude get a tool that the session did not have behind the messages. All that stands before it stays
    byte for byte, no reasoning is dropped, and the tool works. It stands there in later turns and in a fork, each of them with
    the session read from its file again. Without the tool its item goes."""
    labs = [Lab([thinking(name, tool=tool)]) for tool in ("read", "look", "read", "read", "read")]
    offered = [[read], [look, read], [look, read], [look, read], [read]]
    ids = iter([f"fork-{number}" for number in range(9)])
    with TemporaryDirectory() as folder:
        session, results = None, list[Any]()
        for lab, tools in zip(labs, offered, strict=True):
            with Journal(Path(folder) / "journal.db", clock=SystemClock()) as journal:
                if lab is labs[3]:
                    session = fork(journal, journal.find_session(session or ""), new_id=lambda: next(ids)).session
                agent = agent_at(lab, tools=tools, journal=journal, max_steps=9, **PLACES[name])
                result = await (agent.run("Go on.", session=session) if session else agent.run("Go on."))
                results.append(result)
                session = result.session
    bodies = [[json.loads(one.body) for one in lab.requests] for lab in labs]
    kept = [body for lot in bodies[:4] for body in lot]
    assert all(unmarked(body["tools"]) == unmarked(kept[0]["tools"]) for body in kept)
    assert {body.get("prompt_cache_key") for body in kept} == {kept[0].get("prompt_cache_key")}
    assert all(said(after)[: len(said(before))] == said(before) for before, after in pairwise(kept))
    assert [one.dropped for lab in labs[:4] for one in lab.requests] == [()] * len(kept)
    assert [result.prefix_changes for result in results[:4]] == [()] * 4
    assert [one for one in told_behind(kept[-1]) if one != "Be brief."] == ["look"]
    assert json.dumps(said(bodies[1][-1])[-2:]).count("part-1") == 2  # the call, and what the tool answered
    assert results[1].text == "Done." and not results[1].repairs
    assert [one for one in told_behind(bodies[4][0]) if one != "Be brief."] == []
    assert results[4].prefix_changes[0].startswith("request 1: tools")
    betas = ["inline-tools-2026-09-15" in one.betas for lab in labs for one in lab.requests]
    assert betas == [name == BOUND and "look" in told_behind(body) for lot in bodies for body in lot]


@pytest.mark.promise("step:bound-thinking")
@pytest.mark.parametrize(
    "says",
    [
        "tool_addition/tool_removal is not supported on this model",
        "messages.7: role 'system' is not supported on this model",
        "Unexpected value(s) `inline-tools-2026-09-15` for the `anthropic-beta` header.",
        'BedrockException - {"message":"invalid beta flag"}',
        "{'errors': [{'loc': ['body', 'messages', 7, 'role'], 'msg': \"Input should be 'user' or 'assistant'\"}]}",
    ],
)
async def test_a_server_that_takes_nothing_behind_messages_costs_one_refusal(says: str) -> None:
    """Proves: the refused request goes again with the tool in front and the instructions as the user's text, and the session's
    later requests do so at once; thinking that this makes stale is dropped as ever."""
    lab = Lab([thinking()])
    roles = [{"user", "assistant"}, {"user", "assistant", "system"}]
    server = Picky(lab, lambda body: (400, says) if {one["role"] for one in body["messages"]} == roles[1] else None)
    with Journal(None, clock=SystemClock()) as journal:
        first = await agent_at(lab, journal=journal, transport=server).run("Read.")
        for _ in range(2):
            more = agent_at(lab, journal=journal, transport=server, tools=[read, look], instructions="Be thorough.")
            result = await more.run("Again.", session=first.session)
            assert result.text == "Done."
    bodies = [json.loads(one.body) for one in lab.requests]
    assert [one.status for one in lab.requests] == [200] * 3 + [400] + [200] * 6
    assert len(server.bodies) == len(bodies) + 1
    assert all("look" in [tool["name"] for tool in body["tools"]] for body in bodies[3:])
    assert json.dumps(said(bodies[-1])).count("Be thorough.") == 1


async def test_a_refused_beta_of_a_users_own_teaches_nothing() -> None:
    """Proves: a request that tells nothing among its messages is not sent again for words that speak of another beta."""
    server = Picky(Lab([thinking()]), lambda body: (400, "invalid beta flag"))
    result = await agent_at(Lab([thinking()]), transport=server).run("Read.")
    assert (result.stop_reason, len(server.bodies), result.repairs) == (StopReason.PROVIDER_FAILED, 1, ())


def test_instructions_lead_the_input_where_the_model_reads_others_behind_it() -> None:
    """GPT-6.2 and later, with a vendor before the name too; every other model, and what does not ask for it, has the field."""
    for model, asks, leads in (
        ("gpt-6.2-sol", True, True),
        ("openai/gpt-6.2-astra", True, True),
        ("gpt-6.1-sol", True, False),
        ("gpt-6.2-sol", False, False),
    ):
        request = Request(
            model=model, messages=(Message("user", (Text("Hi."),)),), system=(Text("Be brief."),), system_in_input=asks
        )
        body = json.loads(encode_responses(request, builtin_profiles()["openai"]).body)
        assert ("instructions" in body) != leads
        assert (body["input"][0].get("role") == "developer") == leads


def test_a_session_that_began_with_the_field_keeps_it_until_a_summary() -> None:
    """Another model has nothing to lose by it."""
    config = TurnConfig(session_id="s", turn_id="t", model="gpt-6.2-sol", system_in_input=True)
    request = Request(model="gpt-6.2-sol", messages=())
    carried = Carried(sent=Sent(request=request, own=0, tools=()))
    assert not carried.fit(config).system_in_input
    assert replace(carried, gave_way=True).fit(config).system_in_input
    assert carried.fit(replace(config, model="gpt-6.2-astra")).system_in_input
    new = replace(request, system_in_input=True)
    assert Carried(sent=Sent(request=new, own=0, tools=())).fit(config).system_in_input


async def test_a_session_shows_what_the_model_says_between_calls_from_its_first_request_on() -> None:
    """Proves: each request of the session asks for it, a later turn's too, and after a refusal beside the setting for stale
    thinking; what came is told as reasoning. A session that began without it goes on without, another model's begins with it."""
    lab = Lab([thinking()])
    with Journal(None, clock=SystemClock()) as journal:
        first = await agent_at(lab, journal=journal).run("Read.")
        second = await agent_at(lab, tools=[reread], journal=journal).run("Again.", session=first.session)
    asked = [json.loads(one.body)["thinking"] for one in lab.requests]
    shown = {"type": "adaptive", "display": "summarized"}
    assert asked == [*[shown] * 4, *[{**SETTING, **shown}] * 3]
    said = [part.text for message in second.messages for part in message.parts if isinstance(part, Reasoning)]
    assert said[-3:] == ["Thought 0.", "Thought 1.", "Now it is plain."]
    config = TurnConfig(session_id="s", turn_id="t", model=BOUND, shows_thinking=True)
    before = Request(model=BOUND, messages=())
    for gave_way in (False, True):
        for shows in (False, True):
            sent = Sent(request=replace(before, shows_thinking=shows), own=0, tools=())
            carried = Carried(sent=sent, gave_way=gave_way)
            assert carried.fit(config).shows_thinking == shows
            assert carried.fit(replace(config, model="claude-opus-5-5")).shows_thinking
