"""The lab keeps prompts as each provider documents it; the sources stand in `lab/caches.py`."""

import asyncio
from typing import Any

import pytest

from flat_agents import flat_agent
from tables import each
from turnwise.lab import Lab
from turnwise.lab.caches import CacheUse, PromptCaches
from turnwise.lab.families import FAMILIES
from turnwise.lab.families.openai_chat import has_breakpoints
from turnwise.lab.script import Script, ScriptedFault, ScriptedStep
from turnwise.rules.retries import RetryPolicy

MARK, HOUR = {"type": "ephemeral"}, {"type": "ephemeral", "ttl": "1h"}
LONG = "word " * 1024  # 5,120 bytes, 1,280 tokens
ANSWER = Script(name="answer", title="answers", steps=(ScriptedStep(text="Yes."),))


def body(*texts: str, marks: dict[int, Any] | None = None, **more: Any) -> dict[str, Any]:
    """A request whose one message has these texts, some of them marked."""
    blocks: list[Any] = [{"type": "text", "text": text} for text in texts]
    for place, mark in (marks or {}).items():
        blocks[place] = {**blocks[place], "cache_control": mark}
    return {"model": "m", "messages": [{"role": "user", "content": blocks}], **more}


def take(caches: PromptCaches, asked: Any, *, family: str = "anthropic_messages", least: int | None = None) -> CacheUse:
    least = FAMILIES[family].least_cached_tokens if least is None else least
    return caches.take(FAMILIES[family].prompt(asked), model="m", least_tokens=least)


def test_a_prompt_is_kept_only_where_a_mark_asks_for_it() -> None:
    """Anthropic: and it costs a write; the next one with that beginning reads it, with a mark or without a longer one."""
    caches = PromptCaches()
    assert take(caches, body(LONG)) == CacheUse()
    first = take(caches, body(LONG, marks={0: MARK}))
    assert (first.read, first.hour) == (0, 0)
    assert first.written > 1280
    second = take(caches, body(LONG, "and?", marks={1: MARK}))
    assert second.read == first.written
    assert 0 < second.written < 30
    assert take(caches, body("x" + LONG, marks={0: MARK})).read == 0


def test_a_prompt_below_the_least_size_is_not_kept() -> None:
    caches = PromptCaches()
    for _ in range(2):
        assert take(caches, body("short", marks={0: MARK}))[:2] == (0, 0)
        assert take(caches, body(LONG, marks={0: MARK}), least=4096)[:2] == (0, 0)


def test_marks_are_no_part_of_what_is_compared() -> None:
    caches = PromptCaches()
    written = take(caches, body(LONG, "b", marks={1: MARK})).written
    found = take(caches, body(LONG, "b", marks={0: HOUR, 1: MARK}))
    assert (found.read, found.written) == (written, 0)
    bytes_of_marks = len(',"cache_control":{"type":"ephemeral"}') + len(
        ',"cache_control":{"type":"ephemeral","ttl":"1h"}'
    )
    assert found.marked == bytes_of_marks


@pytest.mark.parametrize(("more", "is_found"), [(19, True), (20, False)])
def test_a_mark_looks_back_over_twenty_blocks(more: int, is_found: bool) -> None:
    """Anthropic, "20-block lookback": the marked block counts as the first."""
    texts = [str(number) for number in range(more)]
    for marks, expected in (({more: MARK}, is_found), ({0: MARK, more: MARK}, True)):
        caches = PromptCaches()
        take(caches, body(LONG, marks={0: MARK}))
        assert (take(caches, body(LONG, *texts, marks=marks)).read > 0) is expected


@pytest.mark.parametrize(("mark", "kept_s"), [(MARK, 300), (HOUR, 3600)])
def test_what_is_kept_lives_from_its_last_use(mark: dict[str, str], kept_s: int) -> None:
    caches = PromptCaches()
    first = take(caches, body(LONG, marks={0: mark}))
    assert first.hour == (first.written if mark is HOUR else 0)
    for _ in range(3):
        caches.now_s += kept_s - 1
        assert take(caches, body(LONG, marks={0: mark})).read > 0
    caches.now_s += kept_s
    assert take(caches, body(LONG, marks={0: mark})).read == 0


def test_tools_come_before_the_system_text_and_that_before_messages() -> None:
    """What changes in one costs what stands behind it; tool choice and thinking cost the messages alone."""
    tool: dict[str, Any] = {"name": "t", "description": LONG, "input_schema": {"type": "object"}, "cache_control": MARK}
    system: list[Any] = [{"type": "text", "text": LONG, "cache_control": MARK}]
    plain = body(LONG, marks={0: MARK}, tools=[tool], system=system)
    caches = PromptCaches()
    whole = take(caches, plain).written
    assert take(caches, plain).read == whole
    changes: tuple[dict[str, Any], ...] = (
        {"messages": body("x", marks={0: MARK})["messages"]},
        {"tool_choice": {"type": "none"}},
        {"thinking": {"type": "enabled", "budget_tokens": 1024}},
        {"system": [{"type": "text", "text": "x", "cache_control": MARK}]},
        {"tools": [{**tool, "name": "u"}]},
    )
    read = [take(caches, {**plain, **changed}).read for changed in changes]
    assert read[0] == read[1] == read[2] > read[3] > read[4] == 0


def test_the_field_at_the_top_marks_the_last_block() -> None:
    caches = PromptCaches()
    written = take(caches, body(LONG, "b", cache_control=MARK)).written
    assert take(caches, body(LONG, "b", marks={1: MARK})).read == written


@pytest.mark.parametrize("last", ["user", "tool"])
def test_openrouters_field_at_the_top_marks_the_last_block(last: str) -> None:
    """OpenRouter docs, "Prompt Caching": breakpoints go to the last block of the request that may be marked."""
    said: list[Any] = [{"role": last, "content": [{"type": "text", "text": LONG}, {"type": "text", "text": ""}]}]
    asked: dict[str, Any] = {"model": "anthropic/m", "messages": said, "cache_control": MARK}
    caches = PromptCaches()
    written = take(caches, asked, family="openai_chat").written
    assert written > 1_280
    assert take(caches, asked, family="openai_chat").read == written
    longer = {**asked, "messages": [*said, {"role": "user", "content": "and?"}]}
    assert take(caches, longer, family="openai_chat").read == written


def test_openai_keeps_prompts_unasked_in_steps_of_128_tokens() -> None:
    caches = PromptCaches()
    asked: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": LONG}]}
    assert take(caches, asked, family="openai_chat") == CacheUse()
    longer: dict[str, Any] = {
        "model": "m",
        "messages": [*asked["messages"], {"role": "assistant", "content": "x" * 600}],
    }
    assert take(caches, longer, family="openai_chat") == CacheUse(read=1280)
    assert take(caches, {**longer, "prompt_cache_key": "k"}, family="openai_chat").read == 0
    caches.now_s += 300
    assert take(caches, longer, family="openai_chat").read == 0
    day = {**longer, "prompt_cache_retention": "24h"}
    take(caches, day, family="openai_chat")
    caches.now_s += 80_000
    assert take(caches, day, family="openai_chat").read > 1280


def asked_of_gpt(*texts: str, marks: tuple[int, ...] = (), **more: Any) -> dict[str, Any]:
    """A conversation at GPT-5.6: the user says each of the texts, the model answers between them."""
    messages: list[Any] = []
    for place, text in enumerate(texts):
        mark = {"prompt_cache_breakpoint": {"mode": "explicit"}} if place in marks else {}
        messages.append({"role": "user", "content": [{"type": "text", "text": text, **mark}]})
        messages.append({"role": "assistant", "content": "Yes."})
    return {"model": "gpt-5.6-sol", "prompt_cache_key": "k", "messages": messages[:-1], **more}


def test_gpt_5_6_keeps_prompts_up_to_the_latest_message_and_reads_them_there_only() -> None:
    """OpenAI, "Prompt caching for GPT-5.6 and later models": exact, without steps of 128 tokens; written is what is new."""
    caches = PromptCaches()
    first = take(caches, asked_of_gpt(LONG), family="openai_chat")
    assert (first.read, first.written > 1280) == (0, True)
    second = take(caches, asked_of_gpt(LONG, "and?"), family="openai_chat")
    assert (second.read, 0 < second.written < 60) == (first.written, True)
    third = take(caches, asked_of_gpt(LONG, "and?", "then?"), family="openai_chat")
    assert third.read == second.read + second.written
    assert take(caches, asked_of_gpt(LONG + "x"), family="openai_chat").read == 0
    tools: list[Any] = [{"type": "function", "function": {"name": "f"}}]
    others: tuple[dict[str, Any], ...] = ({"prompt_cache_key": "other"}, {"tools": tools}, {"model": "gpt-5.6-luna"})
    for more in others:
        asked = {**asked_of_gpt(LONG, "and?"), **more}
        assert caches.take(FAMILIES["openai_chat"].prompt(asked), model=asked["model"], least_tokens=1024).read == 0


def shared(question: str, *, marked: bool) -> list[Any]:
    mark = {"prompt_cache_breakpoint": {"mode": "explicit"}} if marked else {}
    return [
        {"role": "developer", "content": [{"type": "text", "text": LONG, **mark}]},
        {"role": "user", "content": question},
    ]


def test_gpt_5_6_falls_back_to_no_beginning_that_nobody_marked() -> None:
    """The same guide, "When changing content prevents reuse": another question behind the same instructions, with a breakpoint
    behind them and without; and `explicit` keeps what is marked alone."""
    for marks, is_read in (((), False), ((0,), True)):
        caches = PromptCaches()
        take(caches, {**asked_of_gpt(LONG), "messages": shared("one", marked=bool(marks))}, family="openai_chat")
        found = take(
            caches, {**asked_of_gpt(LONG), "messages": shared("two", marked=bool(marks))}, family="openai_chat"
        )
        assert (found.read > 0) is is_read
    explicit: dict[str, Any] = {"prompt_cache_options": {"mode": "explicit"}}
    caches = PromptCaches()
    for _ in range(2):
        assert take(caches, asked_of_gpt(LONG, "one", **explicit), family="openai_chat") == CacheUse()
    assert take(caches, asked_of_gpt(LONG, "one", marks=(0,), **explicit), family="openai_chat").written > 1280
    found = take(caches, asked_of_gpt(LONG, "two", marks=(0,), **explicit), family="openai_chat")
    assert (found.read > 1280, found.written) == (True, 0)


def test_gpt_5_6_keeps_a_prompt_for_thirty_minutes_from_its_last_use() -> None:
    caches = PromptCaches()
    take(caches, asked_of_gpt(LONG), family="openai_chat")
    for _ in range(3):
        caches.now_s += 1_799
        assert take(caches, asked_of_gpt(LONG), family="openai_chat").read > 1280
    caches.now_s += 1_800
    assert take(caches, asked_of_gpt(LONG), family="openai_chat").read == 0
    for _ in range(2):
        assert take(caches, asked_of_gpt("short"), family="openai_chat") == CacheUse()


@each(
    ("model", "expected"),
    [
        *[
            (name, True)
            for name in ("gpt-5.6", "gpt-5.6-sol", "openai/gpt-5.10", "gpt-6", "gpt-6-mini", "gpt-5.7-turn")
        ],
        *[(name, False) for name in ("gpt-5", "gpt-5.5-pro", "gpt-4.1", "gpt-5-mini", "o3", "turn", "gpt-4o")],
    ],
)
def test_which_models_keep_prompts_at_breakpoints(model: str, expected: bool) -> None:
    assert has_breakpoints(model) is expected


def test_gpt_5_6_takes_results_of_tools_for_messages_in_responses_too() -> None:
    caches = PromptCaches()
    items: list[Any] = [{"role": "user", "content": LONG}]
    reads: list[tuple[int, int]] = []
    for number in range(3):
        prompt = FAMILIES["openai_responses"].prompt({"model": "gpt-5.6", "input": items})
        use = caches.take(prompt, model="gpt-5.6", least_tokens=1024)
        reads.append((use.read, use.written))
        items = [
            *items,
            {"type": "function_call", "call_id": f"c{number}", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": f"c{number}", "output": "x" * 400},
        ]
    assert [read for read, _ in reads] == [0, reads[0][1], sum(reads[1])]
    assert all(written > 100 for _, written in reads)


def test_gemini_keeps_prompts_unasked_from_its_least_size_on() -> None:
    def asked(*texts: str) -> dict[str, Any]:
        return {"contents": [{"role": "user", "parts": [{"text": text} for text in texts]}]}

    for text, least, is_found in ((LONG, None, False), (LONG + LONG, None, True), (LONG + LONG, 4096, False)):
        caches = PromptCaches()
        take(caches, asked(text), family="gemini", least=least)
        assert (take(caches, asked(text, "more"), family="gemini", least=least).read > 0) is is_found


@pytest.mark.parametrize("model", ["anthropic:answer", "openai:answer"])
async def test_what_is_written_can_be_read_once_its_response_begins(model: str) -> None:
    """Anthropic docs, "Prompt caching": an entry is available after the first response begins, so requests that are sent together
    all write; the one after them reads."""
    lab = Lab([ANSWER])
    base = "http://lab" if model.startswith("anthropic") else "http://lab/v1"
    agent = flat_agent(model, instructions=LONG * 2, base_url=base, api_key="k", transport=lab.transport())
    together = await asyncio.gather(*[agent.run("Is it?") for _ in range(3)])
    assert [one.usage.cache_read_tokens for one in together] == [0, 0, 0]
    assert (await agent.run("Is it?")).usage.cache_read_tokens > 2_000


@pytest.mark.parametrize("model", ["anthropic:answer", "openai:answer"])
@pytest.mark.parametrize("on_socket", [False, True])
async def test_a_failed_request_keeps_nothing(model: str, on_socket: bool) -> None:
    fails = ScriptedStep(text="Yes.", faults=(ScriptedFault(kind="status", status=503),))
    lab = Lab([Script(name="answer", title="answers", steps=(fails,))])
    path = "" if model.startswith("anthropic") else "/v1"
    given: dict[str, Any] = {"instructions": LONG * 2, "api_key": "k", "retry": RetryPolicy(base_s=0)}
    if on_socket:
        async with lab:
            result = await flat_agent(model, base_url=lab.url + path, **given).run("Is it?")
    else:
        result = await flat_agent(model, base_url=f"http://lab{path}", transport=lab.transport(), **given).run("Is it?")
    assert [one.outcome for one in result.ledger][1:] == ["ok"]
    assert (result.text, result.usage.cache_read_tokens) == ("Yes.", 0)


@pytest.mark.parametrize("model", ["anthropic:answer", "openrouter:anthropic/answer", "gemini:answer"])
async def test_usage_tells_what_was_read_and_a_scenario_can_switch_caches_off(model: str) -> None:
    """A lab, and a script of it, can be without caches; and time passes only where somebody says so."""
    base = {"anthropic": "http://lab", "gemini": "http://lab/v1beta"}.get(model.partition(":")[0], "http://lab/v1")
    off = Script(name="answer", title="answers", steps=(ScriptedStep(text="Yes."),), caches=False)
    for lab, keeps in ((Lab([ANSWER]), True), (Lab([ANSWER], caches=False), False), (Lab([off]), False)):
        agent = flat_agent(model, instructions=LONG * 2, base_url=base, api_key="k", transport=lab.transport())
        reads: list[int] = []
        for pause_s in (0, 0, 3600):
            lab.pass_time(pause_s)
            result = await agent.run("Is it?")
            assert result.text == "Yes.", lab.requests[-1].refused
            reads.append(result.usage.cache_read_tokens)
            told = lab.requests[-1].usage
            assert told is not None
            assert told.cache_read_tokens == reads[-1]
        assert (reads[0], reads[1] > 2000, reads[2]) == (0, keeps, 0)
