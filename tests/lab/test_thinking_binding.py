"""The judge of thinking that is bound to its prefix, asked in plain JSON."""

import json
from typing import Any

import pytest

from lab.asking import PATHS
from turnwise.lab import Script
from turnwise.lab.families import route
from turnwise.lab.provider import Provider
from turnwise.lab.script import Binding, ScriptedCall, ScriptedStep

BETA = "thinking-binding-controls-2026-08-01"
DROPS = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
TOOL = {"name": "read", "description": "Reads.", "input_schema": {"type": "object", "properties": {}}}
REFUSED = (
    ": Invalid `signature` in `thinking` block. The block is bound to a different conversation. Remove the block, or set "
    '`thinking.block_binding.prefix_mismatch_behavior` to "drop_block".'
)


def provider_of(binds: Binding) -> Provider:
    step = ScriptedStep(reasoning="Hm.", calls=(ScriptedCall(name="read", arguments={}),))
    return Provider(scripts={"bound": Script(name="bound", title="thinks", steps=(step,), binds=binds)})


class Talk:
    """A conversation with a model that binds. `steps` more requests, each with the result of the call before it."""

    def __init__(self, family: str, *, binds: Binding = "refuses", steps: int = 3) -> None:
        self.family = family
        self.binds: Binding = binds
        self.body: dict[str, Any] = {"model": "bound", "stream": False}
        if family == "anthropic_messages":
            self.body |= {"max_tokens": 100, "system": "Be brief.", "tools": [TOOL], "messages": []}
            self.said: list[Any] = self.body["messages"]
        else:
            tool = {"type": "function", "name": "read", "parameters": TOOL["input_schema"]}
            self.body |= {"tools": [tool], "input": [], "include": ["reasoning.encrypted_content"], "store": False}
            self.said = self.body["input"]
        self.said.append({"role": "user", "content": "Please."})
        for _ in range(steps):
            status, answer = self.ask()
            assert status == 200, answer
            self.grow(answer)

    def ask(self, body: dict[str, Any] | None = None, *, beta: str = "") -> tuple[int, Any]:
        found = route(PATHS[self.family])
        assert found is not None
        sent = json.dumps(self.body if body is None else body).encode()
        outgoing, _ = provider_of(self.binds).answer(
            found, target=PATHS[self.family], body=sent, number=1, betas=f"other-2025-01-01, {beta}" if beta else ""
        )
        pieces = b"".join(outgoing.pieces)
        return outgoing.status, json.loads(pieces) if pieces.startswith(b"{") else pieces.decode()

    def grow(self, answer: Any) -> None:
        if self.family == "openai_responses":
            self.said += answer["output"]
            self.said.append({"type": "function_call_output", "call_id": self.said[-1]["call_id"], "output": "x"})
            return
        call = answer["content"][-1]
        self.said.append({"role": "assistant", "content": answer["content"]})
        self.said.append(
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call["id"], "content": "x"}]}
        )

    def edited(self, **fields: Any) -> dict[str, Any]:
        return json.loads(json.dumps({**self.body, **fields}))


def refusal(answer: Any) -> str:
    return answer["error"]["message"]


def dropped(answer: Any) -> list[str]:
    return [one.get("path") or one["id"] for one in answer["input_transformations"]]


def test_what_stood_before_a_thought_must_not_change() -> None:
    """Proves: tools, system and each message are part of a prefix; marks of the cache and the order of keys are not; the first
    stale block is the one that is named, and all behind it are dropped."""
    talk = Talk("anthropic_messages")
    mark = {"cache_control": {"type": "ephemeral"}}
    same = talk.edited(
        system=[{"type": "text", "text": "Be brief.", **mark}], tools=[dict(reversed({**TOOL, **mark}.items()))]
    )
    assert talk.ask(same)[0] == 200
    more = talk.edited(tools=[TOOL, {**TOOL, "name": "write"}])
    assert (talk.ask(more)[0], refusal(talk.ask(more)[1])) == (400, "messages.1.content.0" + REFUSED)
    shortened = talk.edited()
    shortened["messages"][4]["content"][0]["content"] = "(shortened)"
    assert refusal(talk.ask(shortened)[1]) == "messages.5.content.0" + REFUSED
    shortened["thinking"] = DROPS
    status, answer = talk.ask(shortened, beta=BETA)
    assert (status, dropped(answer)) == (200, ["messages.5.content.0"])
    assert {one["reason"] for one in answer["input_transformations"]} == {"prefix_binding_mismatch"}
    assert dropped(talk.ask({**more, "thinking": DROPS}, beta=BETA)[1]) == [
        f"messages.{at}.content.0" for at in (1, 3, 5)
    ]
    forged = talk.edited()
    forged["messages"][1]["content"][0]["thinking"] = "Something else."
    assert refusal(talk.ask(forged)[1]) == "messages.1.content.0: Invalid `signature` in `thinking` block"


def test_thinking_may_be_left_out_from_the_start_and_not_between() -> None:
    """Proves: a gap makes all behind it stale, a beginning without thinking does not; what is thought after an edit is valid
    beside what the edit made stale."""
    talk = Talk("anthropic_messages", steps=4)
    cut = talk.edited()
    for position in (1, 3):
        cut["messages"][position]["content"].pop(0)
    assert talk.ask(cut)[0] == 200
    gap = talk.edited()
    gap["messages"][3]["content"].pop(0)
    assert refusal(talk.ask(gap)[1]) == "messages.5.content.0" + REFUSED
    gap["thinking"] = DROPS
    talk.said, talk.body = gap["messages"], gap
    status, answer = talk.ask(beta=BETA)
    assert (status, dropped(answer)) == (200, ["messages.5.content.0", "messages.7.content.0"])
    talk.grow(answer)
    assert dropped(talk.ask(beta=BETA)[1]) == ["messages.5.content.0", "messages.7.content.0"]


def test_the_field_is_known_beside_its_header_alone() -> None:
    """Proves: without the header the field is refused, and the header alone reports and does not drop."""
    talk = Talk("anthropic_messages")
    status, answer = talk.ask({**talk.body, "thinking": DROPS})
    assert (status, refusal(answer)) == (400, "thinking.adaptive.block_binding: Extra inputs are not permitted")
    assert "input_transformations" not in talk.ask()[1]
    assert talk.ask(beta=BETA)[1]["input_transformations"] == []
    assert talk.ask(talk.edited(system="Else."), beta=BETA)[0] == 400
    talk.binds = "uncontrolled"
    assert talk.ask({**talk.body, "thinking": DROPS}, beta=BETA)[0] == 400
    talk.binds = "drops"
    assert dropped(talk.ask(talk.edited(system="Else."), beta=BETA)[1])[0] == "messages.1.content.0"


@pytest.mark.parametrize("stream", [False, True])
def test_responses_drop_in_silence(stream: bool) -> None:
    """Proves: reasoning behind an edit is left out without an error, told at the end of the response; `instructions` stand
    behind the input, so another text there makes nothing stale."""
    talk = Talk("openai_responses")
    assert talk.ask(talk.edited(instructions="Be brief."))[1]["input_transformations"] == []
    edited = talk.edited(stream=stream)
    edited["input"][0]["content"] = "Please!"
    status, answer = talk.ask(edited)
    told = [
        {"type": "reasoning", "id": f"rs_lab_{number}", "action": "removed", "reason": "prefix_mismatch"}
        for number in (1, 2, 3)
    ]
    if stream:
        assert json.dumps(told, separators=(",", ":")) in answer
    else:
        assert (status, answer["input_transformations"]) == (200, told)
