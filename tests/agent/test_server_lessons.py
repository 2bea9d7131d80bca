"""Servers that no row describes: what they refuse by known words is learned once (promise heal:dialect)."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from flat_agents import flat_agent
from lab.dialect_cells import ONCE, TOOLS
from turnwise import Agent, Journal, MaxSteps
from turnwise.base.clock import SystemClock
from turnwise.lab import Lab
from turnwise.lab.strict.dialects import builtin_dialects
from turnwise.rules.retries import lesson_of
from turnwise.vocab import Fault, FaultKind, StopReason, Text
from turnwise.wire.openai_chat.faults import decode_fault


def agent_at(lab: Lab, script: str, **more: Any) -> Agent:
    given: dict[str, Any] = {
        "tools": TOOLS,
        "limits": MaxSteps(8),
        "instructions": "You are careful.",
        "retry": ONCE,
        **more,
    }
    return flat_agent(
        f"openai_chat:{script}", api_key="k", base_url="http://lab/v1", transport=lab.transport(), **given
    )


@pytest.mark.promise("heal:dialect")
@pytest.mark.parametrize("server", ["deepseek", "moonshot", "xai", "zai"])
async def test_an_unknown_server_teaches_once_what_it_refuses(server: str) -> None:
    """Proves: behind a plain address these servers refuse one request, get it again as they want it, and never refuse the same
    thing in the steps and turns after it; the ledger and the repairs tell, and no limit counts the refused one."""
    script = "parallel-calls" if server in ("deepseek", "moonshot") else "never-stops"
    lab = Lab(profile=server)
    with Journal(None, clock=SystemClock()) as journal:
        agent = agent_at(lab, script, journal=journal, limits=MaxSteps(3))
        first = await agent.run("Look for it.")
        assert [one.status for one in lab.requests].count(400) == 1
        assert [one.kind for one in first.repairs if one.kind == "dialect"] == ["dialect"]
        assert first.stop_reason is (StopReason.STEP_LIMIT if script == "never-stops" else StopReason.ANSWERED)
        assert [one.outcome for one in first.ledger].count("bad_request") == 1
        before = lab.count()
        second = await agent.run("And again.", session=first.session)
        assert {one.status for one in lab.requests[before:]} == {200}
        assert not [one for one in second.repairs if one.kind == "dialect"]
        said = [
            part.text
            for one in second.history
            if one.role == "assistant"
            for part in one.parts
            if isinstance(part, Text)
        ]
        assert "OK" not in [*said]


async def test_the_same_refusal_again_ends_with_the_servers_words() -> None:
    """Proves: a field of the user's own that the server refuses stays: it goes once more, then the words reach the user."""
    lab = Lab(profile="zai")
    run = await agent_at(lab, "plain-answer", extra={"tool_choice": "required"}, tools=()).run("Hello.")
    assert [one.status for one in lab.requests] == [400, 400]
    assert run.stop_reason is StopReason.PROVIDER_FAILED and "Tool choice must be auto" in run.shown_text


TEMPLATE = (
    "\n------------\nWhile executing CallExpression at line 85, column 32 in source:\n...\nError: Jinja Exception: "
)


@pytest.mark.parametrize(
    ("message", "lesson"),
    [
        ("System message must be at the beginning.", "system_first"),
        (f"{TEMPLATE}System message must be at the beginning.", "system_first"),
        ("Unexpected role 'user' after role 'tool'", "between"),
        ("Conversation roles must alternate user/assistant/user/assistant/...", "alternate"),
        ("messages[1].content: 'System message must be at the beginning.' is too long", None),
        ("Invalid value: Jinja Exception: System message must be at the beginning.", None),
        ("System message must be at the beginning. " + "x" * 3000, None),
    ],
)
def test_only_the_servers_own_sentence_is_a_lesson(message: str, lesson: str | None) -> None:
    """Proves: words count from the first to the last; a message that repeats a part of the request teaches nothing, and neither
    does another status or what is known already."""
    fault = Fault(kind=FaultKind.BAD_REQUEST, message=message, status=400)
    assert lesson_of(fault, known=()) == lesson
    assert lesson_of(replace(fault, status=403), known=()) is None
    if lesson is not None:
        assert lesson_of(fault, known=(lesson,)) is None  # type: ignore[arg-type]


def test_a_template_that_refuses_is_no_fault_of_the_server() -> None:
    """Proves: llama.cpp's 500 with the words of a chat template is the request's fault, and no retry mends it."""
    body = json.dumps(
        {"error": {"code": 500, "message": f"{TEMPLATE}No user query found in messages.", "type": "server_error"}}
    )
    fault = decode_fault(500, {}, body.encode())
    assert (fault.kind, fault.should_retry) == (FaultKind.BAD_REQUEST, False)
    plain = decode_fault(500, {}, b'{"error":{"message":"out of memory","type":"server_error"}}')
    assert (plain.kind, plain.should_retry) == (FaultKind.SERVER, None)


def test_each_servers_words_are_known_where_a_lesson_helps() -> None:
    """Proves: the words that the lab's judges use for these rules teach the field that makes the request fit."""
    wanted = {
        "system-first": "system_first",
        "two-systems": "system_first",
        "developer-role": "system_role",
        "user-behind-result": "between",
        "reasoning-back": "reasoning",
        "tool-choice": "choice",
        "forced-choice": "choice",
        "required-choice": "choice",
        "named-choice": "choice",
        "content-of-calls": "content_there",
        "alternation": "alternate",
    }
    seen: set[str] = set()
    for dialect in builtin_dialects().values():
        for rule in dialect.rules:
            if rule.id in wanted:
                words = rule.message.replace("{index}", "3").replace("{role}", "user").replace("{before}", "tool")
                lesson = lesson_of(Fault(kind=FaultKind.BAD_REQUEST, message=words, status=rule.status), known=())
                assert lesson is not None and lesson.startswith(wanted[rule.id]), (dialect.name, rule.id, words)
                seen.add(rule.id)
    assert seen == set(wanted)
