"""Long sessions with a model that binds its thinking, through what turnwise and its user change (promise step:bound-thinking)."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from agent.test_bound_thinking import agent_at, look, read, reread, settings, thinking, unmarked
from turnwise import Journal, ModelLimits, StepChanges
from turnwise.base.clock import SystemClock
from turnwise.lab import Lab
from turnwise.lab.provider import Received
from turnwise.lab.strict.thinking import bound_in
from turnwise.replay.session_fork import fork
from turnwise.turn.events import PrepareStep


def flat(body: dict[str, Any]) -> list[tuple[str, str]]:
    """What a body shows, in order: each block as canonical JSON, thinking by its signature alone."""
    opening = [body.get("system"), body.get("tools")]
    found = [("", json.dumps(unmarked(one), sort_keys=True)) for one in opening]
    for message in body["messages"]:
        content = message["content"]
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            signature = block.get("signature", "") if block["type"] == "thinking" else ""
            found.append(
                (signature, "" if signature else json.dumps([message["role"], unmarked(block)], sort_keys=True))
            )
    return found


def stale_at_least(requests: list[Received]) -> list[int]:
    """Of each request, the thinking blocks whose prefix is not what the request showed that they answered, and those of a model
    that binds nothing: these cannot be kept.
    That request is the last one before the block is first shown, other than one for a summary."""
    shown = [flat(json.loads(one.body)) for one in requests]
    made: dict[str, list[str]] = {}  # a block's signature -> what its request showed
    counts: list[int] = []
    before: list[str] = []
    for one, content in zip(requests, shown, strict=True):
        stale = 0
        plain: list[str] = []
        for signature, text in content:
            if not signature:
                plain.append(text)
                continue
            stale += made.setdefault(signature, before) != plain or bound_in(signature) is None
        counts.append(stale)
        before = before if one.is_summary else plain
    return counts


@pytest.mark.promise("step:bound-thinking")
@pytest.mark.parametrize("change", ["none", "compaction", "tool", "new tool", "changed tool", "instructions"])
async def test_thirty_steps_go_on_and_lose_no_more_than_they_must(change: str) -> None:
    """All that is dropped was thought on something else: what each block had before it is compared with the request that it
    answered, by a second reading of the bodies."""

    def prepare(view: PrepareStep) -> StepChanges:
        return StepChanges(tools=("read", "look") if view.step > 15 else ("read",))

    script = replace(thinking(reads=29), summarises="Write a summary")
    lab = Lab([script])
    more: dict[str, Any] = {"tools": [read], "max_steps": 40}
    if change == "tool":
        more |= {"tools": [read, look], "prepare_step": prepare}
    if change == "compaction":
        more["model_limits"] = ModelLimits(context_window_tokens=6_000, max_output_tokens=1_000)
    with Journal(None, clock=SystemClock()) as journal:
        result = await agent_at(lab, journal=journal, **more).run("Read.")
        assert (result.text, result.complete) == ("Done.", True)
        if change == "instructions":
            more["instructions"] = "Be thorough."
        elif change in ("new tool", "changed tool"):
            more["tools"] = [read, look] if change == "new tool" else [reread]
        second = await agent_at(lab, journal=journal, **more).run("Read again.", session=result.session)
        assert second.text == "Done."
        changes = " ".join([*result.prefix_changes, *second.prefix_changes])
        assert ("compaction" in changes) == (change == "compaction")
    refused = [one for one in lab.requests if one.status == 400]
    stays = change in ("none", "new tool", "instructions")
    assert len(refused) == (0 if stays else 1)
    taken = [one for one in lab.requests if one.status == 200]
    assert [len(one.dropped) for one in taken] == stale_at_least(taken)
    assert any(one.dropped for one in taken) != stays


@pytest.mark.promise("step:bound-thinking")
async def test_a_new_tool_is_offered_in_one_place_and_in_front_after_a_summary() -> None:
    """Proves: the item with the tool gives way with the messages around it; from that request on the tool stands in front, and no
    request is without it."""
    lab = Lab([replace(thinking("gpt-6.2-sol", reads=29), summarises="Write a summary")])
    limits = ModelLimits(context_window_tokens=6_000, max_output_tokens=1_000)
    more: dict[str, Any] = {
        "model": "openai:gpt-6.2-sol",
        "base_url": "http://lab/v1",
        "model_limits": limits,
        "max_steps": 40,
    }
    with Journal(None, clock=SystemClock()) as journal:
        first = await agent_at(lab, journal=journal, tools=[read], **more).run("Read.")
        sent = len(lab.requests)
        again = agent_at(lab, journal=journal, tools=[look, read], **more)
        result = await again.run("Again.", session=first.session)
        assert result.text == "Done."
    places: list[str] = []
    for body in [json.loads(one.body) for one in lab.requests[sent:]]:
        items = [tool for item in body["input"] if item.get("type") == "additional_tools" for tool in item["tools"]]
        front, behind = ([tool["name"] for tool in tools].count("look") for tools in (body.get("tools", []), items))
        assert front + behind == 1
        places.append("front" if front else "behind")
    assert [places[0], places[-1]] == ["behind", "front"]
    assert places == sorted(places)


@pytest.mark.promise("step:bound-thinking")
async def test_a_fork_has_the_setting_at_once() -> None:
    """It goes on from the same records, and they tell of the refusal."""
    lab = Lab([thinking()])
    with Journal(None, clock=SystemClock()) as journal:
        first = await agent_at(lab, journal=journal).run("Read.")
        changed = agent_at(lab, journal=journal, tools=[reread])
        await changed.run("Again.", session=first.session)
        ids = iter([f"fork-{number}" for number in range(9)])
        forked = fork(journal, journal.find_session(first.session), new_id=lambda: next(ids))
        lab.reset()
        result = await changed.run("Go on.", session=forked.session)
    assert (result.text, [one.status for one in lab.requests], settings(lab)) == ("Done.", [200] * 3, [True] * 3)


@pytest.mark.promise("step:bound-thinking")
async def test_a_history_without_a_session_is_refused_once_a_run() -> None:
    """Messages do not carry what the session has learned (docs/library.md, "Bound thinking"); each run ends with its answer."""
    lab = Lab([thinking()])
    history = (await agent_at(lab).run("Read.")).history
    for _ in range(2):
        result = await agent_at(lab, instructions="Be thorough.").run("Again.", history=history)
        assert result.text == "Done."
        history = result.history
    assert [one.status for one in lab.requests] == [200] * 3 + [400, 200, 200, 200] * 2
