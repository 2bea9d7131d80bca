"""What the front door promises: types that checkers know, groups of options that a run may replace, streams, agents as tools."""

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pydantic
import pytest

from turnwise import (
    Agent,
    Approval,
    Asking,
    BadTool,
    CallerError,
    FrameSeen,
    Journal,
    MaxCost,
    MaxRequests,
    MaxSteps,
    MaxTokens,
    Model,
    ModelLimits,
    OutputMismatch,
    PermissionRule,
    Policy,
    Prices,
    RunContext,
    RunFinished,
    SafetyOptions,
    Settings,
    StopReason,
    Subagents,
    ToolSpec,
    read_prices,
    tool,
)
from turnwise.agent.agent import inside
from turnwise.agent.agent_options import GROUP_OF
from turnwise.agent.agent_setup import over, steps_and_limits
from turnwise.lab import Lab
from turnwise.testing import ScriptedModel, call


class Fruit(pydantic.BaseModel):
    name: str
    count: int


def scripted(*answers: object, **more: object) -> tuple[Agent, ScriptedModel]:
    model = ScriptedModel(answers)  # pyright: ignore[reportArgumentType]
    return Agent(model, **more), model  # pyright: ignore


def test_an_output_is_a_value_of_its_type_and_the_text_without_one() -> None:
    agent, _ = scripted('{"name": "pear", "count": 3}', output_type=Fruit)
    assert agent.run_sync("Which?").output == Fruit(name="pear", count=3)
    plain, _ = scripted("A pear.")
    result = plain.run_sync("Which?")
    assert result.output == result.text == result.output_or_none == "A pear."
    text, _ = scripted("A pear.", output_type=str)
    assert text.run_sync("Which?").output == "A pear.", "no schema is asked for"


def test_an_output_that_is_not_there_raises_with_the_bill() -> None:
    """Proves: nobody works on with None for a value; what it cost is told all the same."""
    agent, _ = scripted("no", "no", "no", output_type=Fruit)
    result = agent.run_sync("Which?")
    assert result.output_or_none is None and not result.complete
    with pytest.raises(OutputMismatch, match="does not fit the output type") as caught:
        assert result.output
    error = caught.value
    assert (error.text, error.stop_reason, error.requests) == (result.text, result.stop_reason, result.requests)
    assert (error.usage, error.cost_usd) == (result.usage, result.cost_usd)


@pytest.mark.parametrize("wanted", [Fruit | None, type(None), {"type": "null"}])
def test_none_is_an_answer_where_the_type_admits_it(wanted: object) -> None:
    """Proves: None that the model gave is the output, and no answer is another thing: the former was taken for the latter."""
    said = "null" if isinstance(wanted, dict) else '{"value": null}'
    agent, model = scripted(said, "no", "no", "no", output_type=wanted)
    result = agent.run_sync("Which?")
    assert (result.output, result.output_or_none, result.has_output, result.complete) == (None, None, True, True)
    none = agent.run_sync("Which?")
    assert (none.output_or_none, none.has_output, len(model.requests)) == (None, False, 4)
    with pytest.raises(OutputMismatch):
        assert none.output


def test_a_run_that_waits_has_no_output_yet() -> None:
    ask = ToolSpec(name="ask", description="Ask.", parameters='{"type":"object"}')
    agent, _ = scripted(call("ask"), tools=[ask])
    result = agent.run_sync("Go.")
    assert result.stop_reason is StopReason.WAITING and result.output_or_none is None
    with pytest.raises(OutputMismatch, match="calls wait"):
        assert result.output


def test_a_run_may_ask_for_another_type_than_its_agent() -> None:
    agent, model = scripted('{"value": [1, 2]}', "Plain.")
    assert agent.run_sync("Numbers.", output_type=list[int]).output == [1, 2]
    assert agent.run_sync("Words.").output == "Plain." and len(model.asked) == 2


def test_a_run_may_replace_the_model_and_the_instructions() -> None:
    lab = Lab()
    agent = Agent(
        Model(
            "openai_chat:plain-answer",
            base_url="http://lab/v1",
            transport=lab.transport(),
            settings=Settings(temperature=0.5),
        ),
        instructions="Be kind.",
    )
    agent.run_sync("Hi.")
    agent.run_sync("Hi.", model="openai_chat:read-then-answer", instructions="Be brief.")
    agent.run_sync("Hi.", settings=Settings(seed=4))
    sent = [json.loads(one.body) for one in lab.requests]
    assert [one["model"] for one in sent[:2]] == ["plain-answer", "read-then-answer"]
    assert ["Be kind." in one.body.decode() for one in lab.requests[:2]] == [True, False]
    assert ["Be brief." in one.body.decode() for one in lab.requests[:2]] == [False, True]
    assert (sent[-1]["temperature"], sent[-1]["seed"]) == (0.5, 4)
    assert "Be kind." in lab.requests[-1].body.decode(), "the agent itself did not change"


def test_a_model_of_another_provider_does_not_get_the_agents_key() -> None:
    """Proves: OpenAI's key is not sent to Anthropic because a run named another model; the rest of the options holds."""
    given = {
        "api_key": "sk-of-openai",
        "base_url": "http://openai.invalid",
        "extra": {"x": 1},
        "settings": Settings(seed=1),
    }
    recovery = {"fallbacks": ["gpt-5-mini"], "room": "off"}
    agent = {"model": Model("openai:gpt-5", **given, limits=ModelLimits(max_output_tokens=9)), "recovery": recovery}
    merged = over(agent, {"model": "anthropic:claude-opus-4-5"})  # pyright: ignore[reportArgumentType]
    assert merged.get("model") == Model("anthropic:claude-opus-4-5", settings=Settings(seed=1))
    assert merged.get("recovery") == {"room": "off"}
    same = over(agent, {"model": "openai:gpt-5-mini"})  # pyright: ignore[reportArgumentType]
    assert same.get("model") == Model("openai:gpt-5-mini", **given) and same.get("recovery") == recovery
    own = Model("openai:other", base_url="http://elsewhere.invalid")
    whole = over(agent, {"model": own, "settings": Settings(seed=2)})  # pyright: ignore[reportArgumentType]
    assert whole.get("model") == Model("openai:other", base_url=own.base_url, settings=Settings(seed=2))
    assert whole.get("recovery") == {"room": "off"}, "they are models of another endpoint"


def test_what_a_run_replaces_in_a_group_leaves_the_rest_of_it() -> None:
    policy = Policy(attended=True)
    agent = {"model": "openai:m", "policy": policy, "safety": {"max_subagents": 3, "script": False}}
    merged = over(agent, {"safety": {"script": True}, "limits": MaxRequests(2)})  # pyright: ignore[reportArgumentType]
    assert merged.get("safety") == {"max_subagents": 3, "script": True} and merged.get("limits") == MaxRequests(2)
    assert merged.get("policy") == policy


@pytest.mark.parametrize(
    ("limits", "steps", "others"),
    [
        (None, 20, None),
        (MaxSteps(8), 8, None),
        (MaxSteps(100), 100, None),
        (MaxSteps(8) | MaxTokens(9), 8, MaxTokens(9)),
        (MaxRequests(3) | MaxSteps(8) | MaxTokens(9) | MaxSteps(5), 5, MaxRequests(3) | MaxTokens(9)),
        (MaxSteps(8) & MaxTokens(9), 20, MaxSteps(8) & MaxTokens(9)),
        (MaxRequests(3), 20, MaxRequests(3)),
    ],
)
def test_a_cap_of_steps_stands_among_the_limits(limits: object, steps: int, others: object) -> None:
    assert steps_and_limits(limits) == (steps, others)  # pyright: ignore[reportArgumentType]


def test_no_option_stands_in_two_groups() -> None:
    from turnwise.agent.agent_options import GROUPS

    assert sum(len(kind.__annotations__) for kind in GROUPS.values()) == len(GROUP_OF)


async def test_the_text_of_a_run_comes_as_it_is_said_and_the_result_after_it() -> None:
    agent, _ = scripted("It is a long answer in several words.")
    async with agent.stream("Go.") as run:
        with pytest.raises(CallerError, match="no result yet"):
            assert run.result
        said = [text async for text in run.text()]
    assert "".join(said) == run.result.text == "It is a long answer in several words."


async def test_the_events_of_a_run_end_with_its_result_also_without_a_block() -> None:
    agent, _ = scripted("Yes.", "No.")
    async with agent.stream("Go.") as run:
        events = [event async for event in run.events()]
    assert isinstance(events[-1], RunFinished) and events[-1].result is run.result
    loose = [event async for event in agent.stream("Go.")]
    assert isinstance(loose[-1], RunFinished) and any(isinstance(event, FrameSeen) for event in loose)


async def test_what_nobody_reads_is_skipped_by_finish() -> None:
    agent, _ = scripted("Yes.", "No.")
    async with agent.stream("Go.") as run:
        assert (await run.finish()).text == "Yes."
    async with agent.stream("Go.") as run:
        pass
    with pytest.raises(CallerError, match="no result yet"):
        assert run.result, "it was cancelled"


def test_an_agent_is_a_tool_of_another_and_its_answer_the_result() -> None:
    """Proves: the result is the JSON of the output type; the bill has both, and the path names the tool."""
    child, below = scripted('{"name": "pear", "count": 3}', output_type=Fruit)
    lead, above = scripted(call("pick", prompt="Pick one."), "A pear.", tools=[child.as_tool("pick", "Picks a fruit.")])
    result = lead.run_sync("Which fruit?")
    assert result.text == "A pear." and [one.path for one in result.ledger] == [(), ("pick",), ()]
    assert '{"name": "pear", "count": 3}' in str(result.new_messages)
    assert len(below.asked) == 1 and "Picks a fruit." in str(above.asked[0].tools)


@pytest.mark.parametrize(
    ("name", "description", "words"), [("no name", "x", "is no name for a tool"), ("pick", " ", "needs a description")]
)
def test_an_agent_that_cannot_be_a_tool_says_why(name: str, description: str, words: str) -> None:
    agent, _ = scripted()
    with pytest.raises(BadTool, match=words):
        agent.as_tool(name, description)


def test_agents_that_cannot_be_handed_tasks_say_why() -> None:
    agent, _ = scripted()
    for made, words in (
        (lambda: Subagents({}), "is empty"),
        (lambda: Subagents([agent]), "wants a dict"),  # pyright: ignore[reportArgumentType]
        (lambda: Subagents({"one": agent}, {"two": "x"}), "`two`, which is none of: one"),
    ):
        with pytest.raises(CallerError, match=words):
            made()


def test_the_price_of_an_agent_behind_a_tool_counts_for_a_limit_of_cost() -> None:
    """Proves: a parent with a limit of cost is refused where a price below it is not known."""
    rows = {"openai_chat:scripted": {"input": "1", "output": "2"}}
    prices = Prices(user=read_prices(rows, named="ours", source="test"))
    child, _ = scripted("Pear.")
    lead, _ = scripted("A.", tools=[child.as_tool("pick", "Picks.")], observation={"prices": prices})
    with pytest.raises(CallerError, match="price"):
        lead.run_sync("Which?", limits=MaxCost(Decimal("1")))


@pytest.fixture
def ran() -> Iterator[list[str]]:
    yield []


def test_tools_of_a_run_replace_those_of_the_agent(ran: list[str]) -> None:
    @tool
    def one() -> str:
        ran.append("one")
        return "1"

    @tool
    def two() -> str:
        ran.append("two")
        return "2"

    agent, model = scripted(call("two"), "Done.", tools=[one])
    assert agent.run_sync("Go.", tools=[two]).text == "Done." and ran == ["two"]
    assert "one" not in [spec.name for spec in model.asked[0].tools]


def test_an_agent_that_was_narrowed_for_a_turn_cannot_be_widened_by_a_run() -> None:
    """Proves: what a worker took away (effects, limits) does not come back with an option of the run."""
    agent, model = scripted("Done.", "Done.")
    narrow = inside(agent).keeping(None, config=inside(agent).config, effects=["read"])
    assert inside(narrow).config.allowed == ("read",)
    with pytest.raises(CallerError, match="narrowed for one turn: its runs cannot replace `safety`"):
        narrow.run_sync("Go.", safety={"allowed": ["write"]})
    assert narrow.run_sync("Go.").text == "Done." and len(model.asked) == 1


@pytest.mark.parametrize("effect", ["write", "execute"])
def test_an_approver_without_a_policy_is_refused_where_a_tool_acts(effect: str) -> None:
    """A newcomer bought unasked: their tools took a context, so the approver might have been for those that ask by themselves."""

    @tool(effect=effect)  # pyright: ignore[reportArgumentType, reportCallIssue]
    def buy(context: RunContext, item: str) -> str:
        return item

    with pytest.raises(CallerError, match="never asked about the tool `buy`: without a `policy`"):
        scripted(tools=[buy], safety={"approver": lambda asking: []})


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (PermissionRule(verdict="ask", effect="wirte"), "`effect` is `wirte`; it must be one of: none, read, write"),
        (PermissionRule(verdict="aks"), "`verdict` is `aks`; it must be one of: allow, ask, deny"),  # pyright: ignore
    ],
)
def test_a_rule_with_a_slip_is_refused_where_the_agent_is_made(rule: PermissionRule, words: str) -> None:
    """Proves: a misspelt effect does not leave writing unasked."""
    with pytest.raises(CallerError, match=f"`policy.rules.0.`: {words}"):
        scripted(policy=Policy(rules=(rule,), attended=True))


def test_a_tool_of_an_unknown_effect_is_refused() -> None:
    with pytest.raises(BadTool, match="`effect` is `wriet`; it must be one of: none, read, write, execute"):
        tool(effect="wriet")  # pyright: ignore


def test_a_limit_joined_with_what_is_none_is_a_type_error() -> None:
    for join in (lambda: MaxRequests(6) | 5, lambda: MaxSteps(6) & None):  # pyright: ignore
        with pytest.raises(TypeError, match="unsupported operand"):
            join()
    with pytest.raises(CallerError, match=r"joined with `\|`"):
        scripted(limits=[MaxRequests(6), MaxSteps(3)])


def test_an_option_that_stands_beside_the_groups_says_so() -> None:
    with pytest.raises(
        CallerError, match=r"`limits` is no option of `safety`. It stands beside the groups: `Agent\(limits"
    ):
        scripted(safety={"limits": MaxRequests(3)})


def test_what_waits_says_how_to_go_on() -> None:
    ask = ToolSpec(name="ask", description="Ask.", parameters='{"type":"object"}')
    agent, _ = scripted(call("ask"), tools=[ask])
    result = agent.run_sync("Go.")
    with pytest.raises(
        OutputMismatch, match=r"`result.asks` with `approvals=`, other calls of `result.pending` with `results=`"
    ):
        assert result.output
    with pytest.raises(CallerError, match="or `approvals` for asks that wait"):
        agent.run_sync(history=result.history)


def test_the_asks_of_a_session_are_read_and_answered_in_another_process(tmp_path: Path) -> None:
    """A newcomer found no way from a session's id to its asks. Two journals over one file stand for the two processes."""
    bought: list[str] = []

    @tool(effect="write")
    def buy(item: str) -> str:
        bought.append(item)
        return "bought"

    def later(asking: Asking) -> list[Approval]:
        return [Approval(call_id=ask.call.id, verdict="later") for ask in asking.asks]

    policy, safety = Policy(attended=True), SafetyOptions(approver=later)
    with Journal(tmp_path / "turns.db") as journal:
        agent, _ = scripted(call("buy", item="pear"), tools=[buy], policy=policy, safety=safety, journal=journal)
        first = agent.run_sync("Buy a pear.")
        assert agent.open_asks(first.session) == first.asks != ()
    with Journal(tmp_path / "turns.db") as journal:
        agent, _ = scripted("Done.", tools=[buy], policy=policy, safety=safety, journal=journal)
        asks = agent.open_asks(first.session)
        assert [(ask.call.name, ask.arguments) for ask in asks] == [("buy", '{"item":"pear"}')]
        answers = [Approval(call_id=ask.call.id, verdict="allow", digest=ask.digest) for ask in asks]
        second = agent.run_sync(session=first.session, approvals=answers)
        assert (second.text, bought, agent.open_asks(first.session)) == ("Done.", ["pear"], ())
    alone, _ = scripted()
    with pytest.raises(CallerError, match="needs a journal"):
        alone.open_asks(first.session)
