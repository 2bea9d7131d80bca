"""The judges: recorded requests pass, recorded refusals are refused alike, and each check says what the real API says."""

import json
from pathlib import Path
from typing import Any

import pytest

from lab.judged_openai import ASKED, CHAT, CHAT_REFUSED, RESPONSES, RESPONSES_REFUSED
from lab.judged_others import ANTHROPIC, GEMINI, TEXT, claude, model
from lab.judging import refusal_of
from stand_ins import are_stand_ins
from turnwise.lab.families import FAMILIES as LAB_FAMILIES
from turnwise.lab.families import route
from turnwise.lab.raw import Raw, parse
from turnwise.lab.strict import JUDGES, ModelRules, Rejected, check, error_body

FAMILIES = {one.recorded_as or name: name for name, one in LAB_FAMILIES.items()}
# Requests that another server of the family answered and the judged one would not: file's start -> why.
OTHER_SERVERS = {
    "openai_chat/mistral__": "`tool_choice` without tools, `document_url` parts",
    "openai_chat/huggingface__": "`tools` may be []",
    "openai_chat/openrouter__": "server-side tools of its own type",
    "openai_chat/groq__rig--agent-tool-sessions--parallel": "takes arguments 'null'",
    "openai_responses/copilot__": "opaque ids of its own on reasoning items",
    "openai_responses/openai__rig--streaming-grammar--previous-response-id": "names a stored response; the lab stores none",
    "anthropic/anthropic__dd-trace-py--cassettes--anthropic-completion-tools-call-with-tool-result": (
        "a cassette matched loosely: the result names a call that is not there"
    ),
}
MODEL_IN_PATH = ("openai_chat/azure__", "anthropic/vertex__")


def test_requests_that_real_providers_answered_pass(corpus: Path) -> None:
    """Proves: no recorded request is refused, save those of other servers that take more, by name."""
    seen = 0
    refused: set[str] = set()
    there: set[str] = set()
    for line in (corpus / "manifest.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row["family"] not in FAMILIES or not isinstance(row["request"], dict):
            continue
        seen += 1
        there.update([start for start in OTHER_SERVERS if row["file"].startswith(start)])
        body = dict(row["request"])
        if row["file"].startswith(MODEL_IN_PATH):
            body.setdefault("model", "named-in-the-path")
        if refusal_of(FAMILIES[row["family"]], body) is not None:
            named = [start for start in OTHER_SERVERS if row["file"].startswith(start)]
            assert named, (row["file"], refusal_of(FAMILIES[row["family"]], body))
            refused.update(named)
    assert seen > 1200
    assert refused == there


def test_requests_of_recorded_conversations_pass(corpus: Path) -> None:
    """Proves: whole tool conversations of four families are well-formed to the judges."""
    seen = 0
    for path in sorted((corpus / "conversations").glob("*.json")):
        recorded = json.loads(path.read_text(encoding="utf-8"))
        for exchange in recorded["exchanges"] if recorded["family"] in FAMILIES else []:
            body = exchange["request"]["body"]
            if recorded["provider"] == "vertex" and recorded["family"] == "anthropic":
                body = {**body, "model": "named-in-the-path"}
            assert refusal_of(FAMILIES[recorded["family"]], body) is None, path.name
            seen += 1
    assert seen == (45 if are_stand_ins(corpus) else 55)


# Recorded 400s whose cause is in the request's form: the judge's words are the recorded ones.
RECORDED_ALIKE = {
    "anthropic__anthropic__400__004.json",
    "anthropic__anthropic__400__010.json",
    "anthropic__anthropic__400__012.json",
    "anthropic__anthropic__400__116.json",
    "gemini__vertex__400__147.json",
    "gemini__vertex__400__148.json",
    "openai_chat__openai__400__050.json",
    "openai_responses__openai__400__052.json",
}
# Refused as well, in the judged server's words and not in its own.
RECORDED_ELSEWHERE = {"openai_chat__doubleword__400__029.json", "openai_chat__llamacpp__400__043.json"}


def test_recorded_refusals_are_given_alike(corpus: Path) -> None:
    """Proves: of the recorded errors, those about the request's form get status, message, type, param and code as recorded."""
    alike: set[str] = set()
    elsewhere: set[str] = set()
    for path in sorted((corpus / "errors").glob("*.json")):
        recorded = json.loads(path.read_text(encoding="utf-8"))
        if recorded["family"] not in FAMILIES:
            continue
        family = FAMILIES[recorded["family"]]
        found = route(recorded["request"]["path"].partition("?")[0])
        body = parse(json.dumps(recorded["request"]["body"]))
        assert isinstance(body, dict)
        if found is not None and found.model and family != "gemini":
            body = {**body, "model": found.model}
        try:
            check(family, body=body)
        except Rejected as rejected:
            theirs = json.loads(recorded["response"]["body"])
            ours = json.loads(error_body(family, rejected=rejected))
            theirs_error, ours_error = theirs.get("error", theirs), ours["error"]
            theirs_error.pop("details", None)
            if ours_error == theirs_error and rejected.status == recorded["response"]["status"]:
                alike.add(path.name)
            else:
                elsewhere.add(path.name)
    assert alike == RECORDED_ALIKE
    assert elsewhere == RECORDED_ELSEWHERE


@pytest.mark.parametrize(("body", "refusal"), CHAT)
def test_chat_completions_are_judged(body: Any, refusal: Any) -> None:
    """Proves: api.openai.com's checks of Chat Completions, in its words (reports in public issue threads)."""
    assert refusal_of("openai_chat", body) == refusal


@pytest.mark.parametrize(("body", "refusal"), RESPONSES)
def test_responses_are_judged(body: Any, refusal: Any) -> None:
    """Proves: api.openai.com's checks of Responses, in its words."""
    assert refusal_of("openai_responses", body) == refusal


@pytest.mark.parametrize(
    ("family", "body", "message", "param", "code"),
    [("openai_chat", *row) for row in CHAT_REFUSED] + [("openai_responses", *row) for row in RESPONSES_REFUSED],
)
def test_what_openai_refuses_is_refused(
    family: str, body: Any, message: str, param: str | None, code: str | None
) -> None:
    """Proves: each thing that api.openai.com is known to refuse, at its place and with its code."""
    found = refusal_of(family, body)
    assert found is not None and found[0].startswith(message)
    assert found[1:] == (param, code)


@pytest.mark.parametrize(("body", "message"), ANTHROPIC)
def test_messages_are_judged(body: Any, message: str | None) -> None:
    """Proves: api.anthropic.com's checks of Messages, in its words."""
    found = refusal_of("anthropic_messages", body)
    assert (found and found[0]) == message


@pytest.mark.parametrize(("body", "message"), GEMINI)
def test_generate_content_is_judged(body: Any, message: str | None) -> None:
    """Proves: Google's checks of generateContent, in its words."""
    found = refusal_of("gemini", body)
    assert (found and found[0]) == message


def test_a_model_without_prefill_refuses_an_assistant_message_at_the_end() -> None:
    """Proves: a script can stand for the newer models that insist on the user's last word (promise end:no-prefill)."""
    rules = ModelRules(prefill=False)
    assert refusal_of("anthropic_messages", claude(ASKED, model(TEXT)), rules) == (
        "This model does not support assistant message prefill. The conversation must end with a user message.",
        None,
        None,
    )
    assert refusal_of("anthropic_messages", claude(ASKED), rules) is None


@pytest.mark.parametrize("family", JUDGES)
@pytest.mark.parametrize(
    "body", [None, True, 1, "x", [], {}, {"messages": 3}, {"contents": [None]}, {"model": "m", "input": [1]}]
)
def test_no_json_value_breaks_a_judge(family: str, body: Raw) -> None:
    """Proves: whatever comes in, the answer is a refusal in the family's shape, never an exception."""
    with pytest.raises(Rejected) as caught:
        check(family, body=body)
    told = json.loads(error_body(family, rejected=caught.value))
    error = told.get("error", told)
    assert error if isinstance(error, str) else error["message"]
