"""Requests that real clients sent and real providers answered, through the gateway to every family."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from relay.asking_relay import FAMILIES, body_of, send
from turnwise.lab.strict import Rejected, check
from turnwise.relay.client_request import RequestRefused
from turnwise.relay.terms import UpstreamRequest

RECORDED = {
    "openai_chat": "openai_chat",
    "openai_responses": "openai_responses",
    "anthropic": "anthropic_messages",
    "gemini": "gemini",
}

REFUSED = {
    "openai_chat": {"logprobs", "n", "response_format", "stop"},
    "openai_responses": {
        "background",
        "conversation",
        "include",
        "store",
        "text.format",
        "tool_choice",
        "tools",
    },
    # `stop` stands beside `n`, and GPT-5 refuses it;
    # `messages` names a file that is stored at the provider;
    # `messages.image` and `contents.inlineData` are files whose base64 the recording cut short.
    "anthropic_messages": {"mcp_servers", "messages", "messages.image", "tools"},
    "gemini": {
        "contents.inlineData",
        "generationConfig.responseMimeType",
        "tools",
    },
}


def requests(corpus: Path) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """File, family and body of the recorded requests that the family's own judge takes."""
    for line in (corpus / "manifest.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row["family"] not in RECORDED or not isinstance(row["request"], dict):
            continue
        family, body = RECORDED[row["family"]], dict(row["request"])
        if family != "gemini":
            body.setdefault("model", "named-in-the-path")
        if is_taken(family, body):
            yield row["file"], family, body


def is_taken(family: str, body: dict[str, Any]) -> bool:
    try:
        check(family, body=body)
    except Rejected:
        return False
    return True


def outcome(family: str, body: dict[str, Any], target: str) -> UpstreamRequest | str:
    """The request as it goes up, or the field that it is refused for."""
    try:
        return send(family, body, to=target)
    except RequestRefused as refused:
        return refused.field


@pytest.mark.parametrize("target", FAMILIES)
def test_recorded_requests_are_taken_by_every_family_or_refused_by_name(corpus: Path, target: str) -> None:
    """The strict judge of each family takes what goes up, and what does not go up is refused for a field that is listed here."""
    refused: dict[str, set[str]] = {family: set() for family in FAMILIES}
    wrong: set[str] = set()
    served = 0
    for file, family, body in requests(corpus):
        found = outcome(family, body, target)
        if isinstance(found, str):
            refused[family].add(found)
        elif is_taken(target, body_of(found)):
            served += 1
        else:
            wrong.add(file)
    assert served > 1100
    assert wrong == set()
    assert {family: fields - REFUSED[family] for family, fields in refused.items()} == {
        name: set() for name in FAMILIES
    }


@pytest.mark.costly
def test_each_refusal_that_is_listed_was_seen(corpus: Path) -> None:
    """The list does not outlive its reasons."""
    seen: dict[str, set[str]] = {family: set() for family in FAMILIES}
    for _, family, body in requests(corpus):
        seen[family] |= {found for target in FAMILIES if isinstance(found := outcome(family, body, target), str)}
    assert seen == REFUSED


def test_a_request_stays_what_it_was_in_its_own_family(corpus: Path) -> None:
    """All that the gateway adds or changes at the top of recorded requests, by family."""
    changed: dict[str, set[str]] = {family: set() for family in FAMILIES}
    for _, family, body in requests(corpus):
        found = outcome(family, body, family)
        if isinstance(found, UpstreamRequest):
            sent = body_of(found)
            changed[family] |= {key for key in {*sent, *body} if sent.get(key) != body.get(key)}
    assert changed == {
        "openai_chat": {"model", "stream_options", "stop"},  # GPT-5 refuses `stop`
        "openai_responses": {"model", "store", "include", "input"},
        "anthropic_messages": {"model"},
        "gemini": set(),
    }
