"""What a run says of the provider's cache: what it read, wrote and saved, and why it missed (promise bill:cached)."""

from collections.abc import Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from flat_agents import flat_agent
from thoroughness import spread
from turnwise import Agent, Journal, MaxCost, Prices, RunResult, Settings, read_prices
from turnwise.lab import Lab
from turnwise.lab.script import Script, ScriptedCall, ScriptedFault, ScriptedStep
from turnwise.rules.pricing import ZERO
from turnwise.rules.prompt_room import ModelLimits
from turnwise.rules.retries import RetryPolicy
from turnwise.running.watcher_events import RequestFinished, WatcherEvent
from turnwise.testing import FakeClock
from turnwise.turn.config import Deadlines
from turnwise.turn.events import PrepareStep, StepPrepared

INSTRUCTIONS = "Answer from the parts of the document alone. " * 180  # 2,000 tokens
ROW = {"input": 3, "output": 15, "cache_read": "0.3", "cache_write": "3.75", "cache_write_1h": 6}
PRICES = Prices(user=read_prices({"anthropic:*": ROW}, named="the table", source="this test"))


def read(path: str) -> str:
    """Read a part."""
    return f"{path}: the quick brown fox jumps over the lazy dog. " * 40


def look(path: str) -> str:
    """Look at a part."""
    return path


def reading(count: int, *, forced: str = "So far: parts.", **more: Any) -> Script:
    calls = [ScriptedCall(name="read", arguments={"path": f"part-{number}"}) for number in range(1, count + 1)]
    steps = (*[ScriptedStep(calls=(call,)) for call in calls], ScriptedStep(text="Done."))
    return Script(name="reads", title="reads", steps=steps, forced=forced, **more)


def agent_at(lab: Lab, *, tools: Sequence[Any] = (read, look), model: str = "anthropic:reads", **more: Any) -> Agent:
    options: dict[str, Any] = {
        "instructions": INSTRUCTIONS,
        "prices": PRICES,
        "max_steps": 40,
        "base_url": "http://lab",
    }
    return flat_agent(model, tools=tools, api_key="k", transport=lab.transport(), **{**options, **more})


@pytest.mark.promise("bill:cached")
async def test_the_result_says_what_caches_were_read_written_and_saved() -> None:
    """Sums of what the lab counted; the saving is what the same tokens would have cost without a cache."""
    lab = Lab([reading(8)])
    result = await agent_at(lab).run("Read.")
    told = [one.usage for one in lab.requests if one.usage is not None]
    assert result.caches.read_tokens == sum([usage.cache_read_tokens for usage in told]) > 20_000
    assert result.caches.written_tokens == sum([usage.cache_write_tokens for usage in told]) > 5_000
    assert result.caches.saved_usd is not None
    assert float(result.caches.saved_usd) == pytest.approx(
        (result.caches.read_tokens * 2.7 - result.caches.written_tokens * 0.75) / 1_000_000
    )
    assert result.cache_missed == ()
    last = told[-1]
    assert (result.caches.unread_tokens, last.cache_write_tokens > 100) == (last.cache_write_tokens, True)
    assert result.caches.unread_usd is not None
    assert float(result.caches.unread_usd) == pytest.approx(last.cache_write_tokens * 0.75 / 1_000_000)


@pytest.mark.promise("bill:cached")
@pytest.mark.parametrize("model", ["anthropic:reads", "openrouter:anthropic/reads", "openai:reads", "gemini:reads"])
async def test_a_session_that_is_gone_on_with_reads_what_its_last_turn_wrote(model: str) -> None:
    """In time all of it, but for what was said since; after its time nothing, which is no miss of the new turn."""
    name = model.partition(":")[0]
    base = {"anthropic": "http://lab", "gemini": "http://lab/v1beta"}.get(name, "http://lab/v1")
    lab = Lab([reading(3)])
    with Journal(None, clock=FakeClock()) as journal:
        agent = agent_at(lab, model=model, base_url=base, journal=journal)
        first = await agent.run("Read.")
        for pause_s, hits in ((60, True), (7_200, False)):
            before = lab.requests[-1].usage
            lab.pass_time(pause_s)
            result = await agent.run("Again.", session=first.session)
            usage = result.ledger[0].usage
            assert before is not None and usage is not None
            kept = before.cache_read_tokens + before.cache_write_tokens
            assert usage.cache_read_tokens >= kept - 128 if hits else usage.cache_read_tokens == 0
            assert usage.cache_read_tokens > 3_000 or not hits
            assert result.cache_missed == ()


async def test_a_write_that_is_never_read_is_a_loss() -> None:
    """One request writes, and nobody comes back: an hour costs twice the input, and both are shown as less than nothing."""
    for cache, factor in (("auto", 0.75), ("1h", 3.0)):
        lab = Lab([reading(0)])
        result = await agent_at(lab, cache=cache).run("Read.")
        assert (result.caches.read_tokens, result.caches.written_tokens > 1_500) == (0, True)
        assert result.caches.saved_usd is not None
        assert result.caches.saved_usd < ZERO
        assert float(result.caches.saved_usd) == pytest.approx(-result.caches.written_tokens * factor / 1_000_000)
        assert result.caches.unread_tokens == result.caches.written_tokens
        assert result.caches.unread_usd == -result.caches.saved_usd


@pytest.mark.promise("bill:cached", "bill:plans")
@pytest.mark.parametrize(
    ("model", "base"),
    [
        ("anthropic:reads", "http://lab"),
        ("openrouter:anthropic/reads", "http://lab/v1"),
        ("litellm:claude/reads", "http://lab/v1"),
    ],
)
async def test_an_hour_costs_an_hour_at_gateways_that_do_not_say_so(model: str, base: str) -> None:
    """Usage of Chat Completions tells no time to live: what was asked for holds."""
    prices = Prices(user=read_prices({"*": ROW}, named="the table", source="this test"))
    result = await agent_at(Lab([reading(3)]), model=model, base_url=base, prices=prices, cache="1h").run("Read.")
    caches = result.caches
    assert caches.saved_usd is not None and caches.unread_usd is not None
    assert float(caches.saved_usd) == pytest.approx((caches.read_tokens * 2.7 - caches.written_tokens * 3) / 1_000_000)
    assert float(caches.unread_usd) == pytest.approx(caches.unread_tokens * 3 / 1_000_000)


@pytest.mark.promise("bill:cached", "bill:plans")
@pytest.mark.parametrize("more", [{"cache": "1h"}, {"extra": {"cache_control": {"type": "ephemeral", "ttl": "1h"}}}])
@pytest.mark.parametrize("by_step", [False, True])
async def test_a_limit_of_cost_foresees_the_price_of_an_hour(more: dict[str, Any], by_step: bool) -> None:
    """A prompt of 20,000 tokens costs 0.12 dollars to write for an hour, and 0.075 for five minutes: the limit lies between."""
    spent: dict[bool, tuple[int, bool]] = {}
    for hour in (False, True):
        lab = Lab([reading(3)])
        limits, settings = MaxCost(Decimal("0.115")), Settings(max_output_tokens=100)
        given = {"limits": limits, "settings": settings, "instructions": INSTRUCTIONS * 10, "room": "off"}
        if by_step:
            given["prepare_step"] = lambda view: StepPrepared(model="reads")
        result = await agent_at(lab, **given, **(more if hour else {})).run("Read.")
        assert result.cost.usd <= Decimal("0.115")
        spent[hour] = (len(lab.requests), result.stop_reason == "budget")
    assert spent[True] == (0, True)
    assert spent[False][0] >= 1


@pytest.mark.promise("bill:cached")
async def test_a_miss_says_how_long_nothing_was_read() -> None:
    """A tool that took longer than the provider keeps a prompt: nothing of ours changed, so the time is told."""
    clock, lab = FakeClock(), Lab([reading(6)])

    async def slow(path: str) -> str:
        """Read a part."""
        if path == "part-4":
            lab.pass_time(301)
            await clock.advance(301)
        return read(path)

    seen: list[WatcherEvent] = []
    agent = agent_at(lab, tools=[renamed(slow)], clock=clock, deadlines=Deadlines(tool_s=1_000))
    result = await agent.run("Read.", watch=seen.append)
    (missed,) = result.cache_missed
    assert (missed.number, missed.read_tokens, missed.changed_at) == (5, 0, None)
    assert missed.since_hit_s == pytest.approx(301)
    assert missed.expected_tokens > 3_000
    told = [one.cache_missed for one in seen if isinstance(one, RequestFinished) and one.cache_missed is not None]
    assert told == [missed]
    assert result.prefix_changes == ()


def renamed(function: Any) -> Any:
    function.__name__ = "read"
    return function


async def test_an_hour_outlives_a_slow_tool() -> None:
    lab = Lab([reading(6)])

    def slow(path: str) -> str:
        """Read a part."""
        lab.pass_time(1_000)
        return read(path)

    result = await agent_at(lab, tools=[renamed(slow)], cache="1h").run("Read.")
    assert result.cache_missed == ()
    lab.reset()
    short = await agent_at(lab, tools=[renamed(slow)]).run("Read.")
    assert [one.number for one in short.cache_missed] == [2, 3, 4, 5, 6, 7]


@pytest.mark.promise("bill:cached")
async def test_a_miss_of_ours_says_where_the_first_changed_byte_is() -> None:
    """Other tools for one step change the body near its beginning, and back again."""
    lab = Lab([reading(6)])

    def prepare(view: PrepareStep) -> StepPrepared | None:
        return StepPrepared(tools=("read",)) if view.step == 4 else None

    result = await agent_at(lab, prepare_step=prepare).run("Read.")
    assert [one.number for one in result.cache_missed] == [4]  # what was kept before is read again afterwards
    (missed,) = result.cache_missed
    assert missed.since_hit_s is None
    assert missed.changed_at is not None
    before, after = (one.body for one in lab.requests[2:4])
    assert before[: missed.changed_at] == after[: missed.changed_at]
    assert before[missed.changed_at] != after[missed.changed_at]


@pytest.mark.promise("bill:cached", "step:prefix-stable")
async def test_each_break_of_the_prefix_says_what_it_cost() -> None:
    """By the provider's own count: what it had kept, less what it read. The ledger's entry of that request says it, too."""
    lab = Lab([reading(6)])

    def prepare(view: PrepareStep) -> StepPrepared | None:
        return StepPrepared(tools=("read",)) if view.step == 4 else None

    result = await agent_at(lab, prepare_step=prepare).run("Read.")
    first, second = result.prefix_changes
    told = [one.usage for one in lab.requests]
    assert told[2] is not None
    lost = told[2].cache_read_tokens + told[2].cache_write_tokens
    assert first == f"request 4: tools: {lost:,} tokens read anew"
    assert second.startswith("request 5: tools")
    noted = {one.number: one.price_note for one in result.ledger if "read anew" in one.price_note}
    assert sorted(noted) == [4, 5]
    assert noted[4].endswith(f"; {lost:,} tokens read anew, as the prompt has changed")


def is_explained(result: RunResult) -> bool:
    """Each miss is of a request whose beginning changed, and says so; each cost that is told is a miss or less than one."""
    named = {int(change.split()[1].removesuffix(":")) for change in result.prefix_changes}
    return all(missed.number in named for missed in result.cache_missed)


@pytest.mark.promise("bill:cached", "end:forced-answer")
async def test_a_forced_answer_says_what_it_costs() -> None:
    """Anthropic keeps tools and system text; what it kept of the messages rests on tool choice."""
    lab = Lab([reading(12)])
    result = await agent_at(lab, max_steps=8).run("Read.")
    assert result.stop_reason == "step_limit"
    (change,) = result.prefix_changes
    assert change.startswith("request 8: tool choice: ")
    assert [one.number for one in result.cache_missed] == [8]
    assert is_explained(result)
    usage = lab.requests[-1].usage
    assert usage is not None
    assert usage.cache_read_tokens > 1_500  # tools and system text


@pytest.mark.promise("bill:cached")
async def test_a_fallback_says_what_it_costs() -> None:
    """Another model has a cache of its own."""
    fails = ScriptedFault(kind="status", status=503, message="busy")
    steps = (*reading(6).steps[:3], ScriptedStep(text="x", fault=fails))
    lab = Lab(
        [
            Script(name="reads", title="fails", steps=steps),
            Script(name="other", title="x", steps=(ScriptedStep(text="Done."),)),
        ]
    )
    result = await agent_at(lab, fallbacks=["other"], retry=RetryPolicy(attempts=1)).run("Read.")
    assert (result.text, [change.split(": ")[1] for change in result.prefix_changes]) == ("Done.", ["model"])
    assert result.prefix_changes[0].endswith(" tokens read anew")
    assert is_explained(result)


def write(path: str, content: str, append: bool = False) -> str:
    """Write a file."""
    return f"{path}: {len(content)} characters{' more' if append else ''}"


@pytest.mark.promise("bill:cached", "cut:continued")
async def test_a_continuation_reads_what_was_kept_and_each_miss_is_explained() -> None:
    """The rest of a cut call is asked for behind the same prompt; what is for that request only stands behind the newest mark."""
    lab = Lab()
    result = await agent_at(lab, model="anthropic:cut-call", tools=[read, write]).run("Write it.")
    assert result.requests_by_purpose["continue"] >= 1
    assert is_explained(result)
    told = [entry.usage for entry in result.ledger if entry.purpose == "continue"]
    assert [usage is not None and usage.cache_read_tokens > 1_500 for usage in told] == [True] * len(told)


LONG_RUNS = spread(
    ["anthropic:reads", "openrouter:anthropic/reads", "openai:reads", "gemini:reads"], one_of=2, name="long runs"
)


@pytest.mark.costly
@pytest.mark.promise("bill:cached")
@pytest.mark.parametrize(
    "model",
    LONG_RUNS,
)
async def test_three_hundred_steps_in_a_small_room_keep_hitting_between_summaries(model: str) -> None:
    """Done-when 3: under 32,000 tokens; every miss is explained by a change that is named, and all other steps read."""
    name = model.partition(":")[0]
    base = {"anthropic": "http://lab", "gemini": "http://lab/v1beta"}.get(name, "http://lab/v1")
    lab = Lab([reading(299, summarises="Write a summary")])
    agent = flat_agent(
        model,
        tools=[read, look],
        instructions=INSTRUCTIONS,
        max_steps=300,
        model_limits=LIMITS,
        base_url=base,
        api_key="k",
        transport=lab.transport(),
    )
    result = await agent.run("Read.")
    assert result.steps == 300
    assert any(change.partition(": ")[2].startswith("compaction") for change in result.prefix_changes)
    assert is_explained(result)
    named = {int(change.split()[1].removesuffix(":")) for change in result.prefix_changes}
    missed = {one.number for one in result.cache_missed}
    assert max([one.input_tokens for one in usages(result)]) <= 32_000
    quiet = [
        (before.usage, now.usage)
        for before, now in pairwise(result.ledger)
        if now.number not in named | missed and before.usage is not None and now.usage is not None
    ]
    assert len(quiet) > 200
    for before, now in quiet:
        kept = before.cache_read_tokens + before.cache_write_tokens
        # the lab counts all bytes, those behind and between the messages as well; OpenAI's steps are 128 tokens
        assert now.cache_read_tokens >= (kept if "anthropic" in model else before.input_tokens * 0.97 - 300)
    share = sum([one.cache_read_tokens for one in usages(result)]) / sum([one.input_tokens for one in usages(result)])
    assert share > 0.8


LIMITS = ModelLimits(context_window_tokens=32_000, max_output_tokens=2_000)


@pytest.mark.promise("bill:cached")
@pytest.mark.parametrize("model", ["anthropic:reads", "openai:reads", "gemini:reads"])
async def test_a_summary_misses_nothing_that_is_new(model: str) -> None:
    """What stands behind the summary was never kept at that place: the request after it is no miss, and of the two things that
    changed the summary has the cost."""
    name = model.partition(":")[0]
    base = {"anthropic": "http://lab", "gemini": "http://lab/v1beta"}.get(name, "http://lab/v1")
    lab = Lab([reading(40, summarises="Write a summary")])
    limits = ModelLimits(context_window_tokens=14_000, max_output_tokens=1_500)
    result = await agent_at(lab, model=model, base_url=base, model_limits=limits).run("Read.")
    after = [now.number for before, now in pairwise(result.ledger) if before.purpose == "compact" != now.purpose]
    assert after
    assert not {one.number for one in result.cache_missed} & {*after}
    for number in after:
        named = [change for change in result.prefix_changes if change.startswith(f"request {number}: ")]
        assert named[0].startswith(f"request {number}: compaction")


def usages(result: RunResult) -> list[Any]:
    return [entry.usage for entry in result.ledger if entry.usage is not None]


@pytest.mark.promise("bill:cached")
@pytest.mark.parametrize("model", ["anthropic", "openai"])
async def test_sub_agents_of_one_kind_share_their_beginning(model: str) -> None:
    """The second one reads the system text and tools that the first one wrote."""
    tasks: list[dict[str, object]] = [{"agent": "reader", "prompt": f"Read part {number}."} for number in (1, 2)]
    steps = tuple([ScriptedStep(calls=(ScriptedCall(name="task", arguments=task),)) for task in tasks])
    lead = Script(name="lead", title="hands out tasks", steps=(*steps, ScriptedStep(text="Done.")))
    lab = Lab([lead, reading(1)])
    base = "http://lab" if model == "anthropic" else "http://lab/v1"
    given: dict[str, Any] = {"base_url": base, "api_key": "k", "transport": lab.transport()}
    reader = flat_agent(f"{model}:reads", tools=[read], instructions=INSTRUCTIONS, description="reads", **given)
    result = await flat_agent(f"{model}:lead", agents={"reader": reader, "other": reader}, **given).run("Go.")
    assert result.text == "Done."
    first = [entry for entry in result.ledger if entry.path and entry.number == 1]
    reads = [entry.usage.cache_read_tokens for entry in first if entry.usage is not None]
    assert (len(reads), reads[0]) == (2, 0)
    assert reads[1] > 1_500


async def test_sub_agents_of_gpt_5_6_share_no_beginning() -> None:
    """OpenAI, "When changing content prevents reuse": it reads at breakpoints, and turnwise sets none of its own there."""
    tasks: list[dict[str, object]] = [{"agent": "reader", "prompt": f"Read part {number}."} for number in (1, 2)]
    steps = tuple([ScriptedStep(calls=(ScriptedCall(name="task", arguments=task),)) for task in tasks])
    lead = Script(name="lead", title="hands out tasks", steps=(*steps, ScriptedStep(text="Done.")))
    lab = Lab([lead, named(reading(1), "gpt-5.6-reads")])
    given: dict[str, Any] = {"base_url": "http://lab/v1", "api_key": "k", "transport": lab.transport()}
    reader = flat_agent("openai:gpt-5.6-reads", tools=[read], instructions=INSTRUCTIONS, description="reads", **given)
    result = await flat_agent("openai:lead", agents={"reader": reader}, **given).run("Go.")
    reads = [entry.usage.cache_read_tokens for entry in result.ledger if entry.path and entry.usage is not None]
    assert len(reads) == 4
    assert (reads[0], reads[2]) == (0, 0)
    assert min(reads[1], reads[3]) > 1_500


def named(script: Script, name: str) -> Script:
    return replace(script, name=name)


async def test_the_cache_of_gpt_5_6_is_written_unless_extra_switches_it_off() -> None:
    """`cache` says what is asked for; this one keeps prompts unasked, and writing costs."""
    explicit = {"prompt_cache_options": {"mode": "explicit"}}
    said: dict[str, tuple[bool, bool]] = {}
    for name, more in {"auto": {}, "1h": {"cache": "1h"}, "off": {"cache": "off"}, "none": {"extra": explicit}}.items():
        lab = Lab([named(reading(2), "gpt-5.6-reads")])
        result = await agent_at(lab, model="openai:gpt-5.6-reads", base_url="http://lab/v1", **more).run("Read.")
        assert [one.status for one in lab.requests] == [200] * 3
        said[name] = (result.caches.written_tokens > 0, b"prompt_cache_key" in lab.requests[0].body)
        assert all(b"prompt_cache_retention" not in one.body for one in lab.requests)
    assert said == {"auto": (True, True), "1h": (True, True), "off": (True, False), "none": (False, True)}


@pytest.mark.promise("bill:cached")
@pytest.mark.parametrize(
    "model",
    [f"{name}:reads" for name in ("openai", "openai-chat", "azure", "azure-responses", "mistral", "xai-responses")]
    + ["openai:gpt-5.6-reads"],
)
async def test_runs_and_sessions_of_one_agent_read_as_much_with_a_key_as_without(model: str) -> None:
    """Questions without a session, and one that goes on with a history: `auto` is never worse than `off`."""
    read: dict[str, list[int]] = {}
    for cache in ("auto", "off"):
        lab = Lab([named(reading(2), model.partition(":")[2])])
        agents = [agent_at(lab, model=model, base_url="http://lab/v1", cache=cache) for _ in range(2)]
        results = [await agent.run(f"Question {place}.") for place, agent in enumerate((*agents, agents[0]))]
        await agents[1].run("Again.", history=results[0].history)
        read[cache] = [one.usage.cache_read_tokens for one in lab.requests if one.usage is not None]
    assert len(read["auto"]) == 12
    assert all(auto >= off for auto, off in zip(read["auto"], read["off"], strict=True)), read
    assert read["auto"][-3] > 2_000


@pytest.mark.promise("bill:cached")
@pytest.mark.parametrize(
    ("model", "base"), [("anthropic:reads", "http://lab"), ("openrouter:anthropic/reads", "http://lab/v1")]
)
async def test_what_nothing_can_read_is_not_written(model: str, base: str) -> None:
    """Anthropic keeps messages for their tool choice: a summary's request and a forced answer mark tools and system text alone,
    and write nothing; the steps around them read what steps have left."""
    lab = Lab([reading(40, summarises="Write a summary")])
    limits = ModelLimits(context_window_tokens=14_000, max_output_tokens=1_500)
    result = await agent_at(lab, model=model, base_url=base, model_limits=limits, max_steps=30).run("Read.")
    asides = [
        one
        for one in lab.requests
        if b'"tool_choice":"none"' in one.body or b'"tool_choice":{"type":"none"' in one.body
    ]
    assert result.requests_by_purpose["compact"] >= 1
    assert len(asides) == result.requests_by_purpose["compact"] + 1
    for one in asides:
        assert one.usage is not None
        assert (one.usage.cache_write_tokens, one.usage.cache_read_tokens > 1_500) == (0, True)
        assert b'"cache_control"' in one.body
    assert is_explained(result)
