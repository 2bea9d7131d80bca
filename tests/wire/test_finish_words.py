"""Finish words that say nothing and words that nobody documented, in every family: none of them passes silently."""

import json
from typing import Any

import pytest

from tables import each
from turnwise.testing.wire_conformance import assemble
from turnwise.vocab import ArgumentsState, FinishReason, Repair, Response, calls_of
from turnwise.wire.family import family
from turnwise.wire.profiles import DEFAULT_LIMITS, builtin_profiles

NAMES = ("openai_chat", "openai_responses", "anthropic_messages", "gemini")
each_family = pytest.mark.parametrize("name", NAMES)


def body_ending_with(word: str | None, name: str) -> dict[str, Any]:
    bodies: dict[str, dict[str, Any]] = {
        "openai_chat": {"id": "r", "choices": [{"message": {"content": "hi"}, "finish_reason": word}]},
        "openai_responses": {
            "id": "r",
            "status": word,
            "output": [{"type": "message", "content": [{"type": "output_text", "text": "hi"}]}],
        },
        "anthropic_messages": {"id": "r", "content": [{"type": "text", "text": "hi"}], "stop_reason": word},
        "gemini": {"candidates": [{"content": {"parts": [{"text": "hi"}]}, "finishReason": word}]},
    }
    return bodies[name]


def ended_with(word: str | None, name: str) -> Response:
    body = json.dumps(body_ending_with(word, name)).encode()
    return assemble(family(name).decode_body(body, builtin_profiles()[name], DEFAULT_LIMITS))


@each("word", [None, "", " ", "null", "None", "undefined"])
@each_family
def test_a_word_that_says_nothing_is_not_said(name: str, word: str | None) -> None:
    """Where nothing says why the response ended, it was cut (a Responses body that came whole is completed)."""
    response = ended_with(word, name)
    said = "completed" if name == "openai_responses" else None
    finish = FinishReason.CUT if said is None else FinishReason.STOP
    # A body that came whole did not break off, which is told where its API would have said why it ended.
    kinds = ["no_finish_reason"] if name in ("openai_chat", "anthropic_messages") else []
    assert (response.finish, response.provider_finish) == (finish, said)
    assert [repair.kind for repair in response.repairs] == kinds


@each("word", ["banana", "hit_max_budget", "NEW_SAFETY_RULE", "upstream_error", "no_filter_hit"])
@each_family
def test_a_word_that_nobody_documented_is_kept_and_told(name: str, word: str) -> None:
    """Proves: no part of an unknown word is taken for its meaning. What the response holds decides, and the repair tells it."""
    response = ended_with(word, name)
    repair = Repair("unknown_finish", "response", f"the finish word `{word}` is not known: taken for `stop`")
    assert (response.finish, response.provider_finish, response.repairs) == (FinishReason.STOP, word, (repair,))


@each("word", ["function_call_filter: MALFORMED_FUNCTION_CALL", "MALFORMED_FUNCTION_CALL"])
@each_family
def test_a_call_that_the_server_could_not_read_is_no_content_filter(name: str, word: str) -> None:
    """Proves: the word of Gemini's API, and the same word with the filter's name before it (Gemini's OpenAI-compatible endpoint),
    is a failed call in every family. No repair says that the word is unknown."""
    response = ended_with(word, name)
    assert (response.finish, response.provider_finish) == (FinishReason.ERROR, word)
    assert [one.kind for one in response.repairs] == ["call_not_read"]


CALLS: dict[str, dict[str, Any]] = {
    "openai_chat": {
        "choices": [
            {
                "message": {"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{}"}}]},
                "finish_reason": "banana",
            }
        ]
    },
    "openai_responses": {
        "id": "r",
        "status": "banana",
        "output": [{"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"}],
    },
    "anthropic_messages": {
        "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}],
        "stop_reason": "banana",
    },
    "gemini": {
        "candidates": [{"content": {"parts": [{"functionCall": {"id": "a", "name": "f"}}]}, "finishReason": "banana"}]
    },
}


@each_family
def test_calls_that_end_with_an_unknown_word_run(name: str) -> None:
    """What the response holds decides, and it holds a call."""
    response = assemble(
        family(name).decode_body(json.dumps(CALLS[name]).encode(), builtin_profiles()[name], DEFAULT_LIMITS)
    )
    assert (response.finish, response.provider_finish) == (FinishReason.TOOL_CALLS, "banana")
    assert [call.state for call in calls_of(response.message)] == [ArgumentsState.COMPLETE]


def test_an_unknown_reason_for_an_incomplete_response_leaves_it_cut() -> None:
    """Its status says that it is not whole, whatever the reason."""
    body = json.dumps(body_ending_with("incomplete", "openai_responses") | {"incomplete_details": {"reason": "banana"}})
    profile = builtin_profiles()["openai_responses"]
    response = assemble(family("openai_responses").decode_body(body.encode(), profile, DEFAULT_LIMITS))
    assert (response.finish, response.provider_finish) == (FinishReason.CUT, "incomplete:banana")


@each(
    ("word", "reason"),
    [
        ("timeout", FinishReason.ERROR),
        ("insufficient_system_resource", FinishReason.ERROR),
        ("time_limit", FinishReason.LENGTH),
        ("length_limit", FinishReason.LENGTH),
        ("model_length", FinishReason.LENGTH),
        ("Length", FinishReason.LENGTH),
        ("eos", FinishReason.STOP),
        ("End", FinishReason.STOP),
        ("complete", FinishReason.STOP),
        ("not_finished", FinishReason.CUT),
    ],
)
def test_words_of_compatible_servers_are_in_a_table(word: str, reason: FinishReason) -> None:
    """Known words need no repair, whatever their case."""
    response = ended_with(word, "openai_chat")
    assert (response.finish, response.provider_finish, response.repairs) == (reason, word, ())


@pytest.mark.parametrize(("word", "reason"), [("length", FinishReason.LENGTH), ("error", FinishReason.ERROR)])
def test_words_of_chat_that_gateways_let_through_are_known_to_anthropic(word: str, reason: FinishReason) -> None:
    response = ended_with(word, "anthropic_messages")
    assert (response.finish, response.provider_finish, response.repairs) == (reason, word, ())
