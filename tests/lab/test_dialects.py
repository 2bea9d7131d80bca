"""Servers by their own rules: each refuses what its table says, in its words and form, and takes what its API documents."""

import json
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.dialect_bodies import ALSO_THE_FAMILYS, ASKED, REFUSED, TAKEN, chat
from lab.judging import refusal_of
from lab.test_any_body import SCRIPTS, WHOLE, bent
from tables import each
from thoroughness import examples
from turnwise.errors import CallerError
from turnwise.lab import Lab
from turnwise.lab.families import route
from turnwise.lab.provider import Provider
from turnwise.lab.raw import parse
from turnwise.lab.strict import Rejected, check
from turnwise.lab.strict.dialects import Rule, ServerDialect, builtin_dialects
from turnwise.wire.profiles import builtin_profiles

DIALECTS = builtin_dialects()
ALIASES = {"ollama-cloud": "ollama", "zai-coding": "zai"}
PATH = "/v1/chat/completions"


def rule_that_refuses(name: str, body: Any) -> Rule | None:
    """The first rule of this server that `body` breaks, by asking each alone."""
    raw = parse(json.dumps(body))
    assert isinstance(raw, dict)
    for rule in DIALECTS[name].rules:
        try:
            ServerDialect(name=name, error="{}", rules=(rule,)).check(raw)
        except Rejected:
            return rule
    return None


@each(("name", "id"), [(name, id) for name, bodies in REFUSED.items() for id in bodies])
def test_a_body_that_breaks_a_rule_is_refused_by_it(name: str, id: str) -> None:
    """Proves: each rule refuses a body that the family's judge takes, unless it is there for its words alone; the message is
    the rule's, with every detail filled in, and the status too."""
    body = REFUSED[name][id]
    rule = rule_that_refuses(name, body)
    assert rule is not None and rule.id == id
    with pytest.raises(Rejected) as caught:
        check("openai_chat", body=parse(json.dumps(body)), dialect=DIALECTS[name])
    around = re.split(r"\{\w+\}", rule.message)
    assert re.fullmatch(".*".join(map(re.escape, around)), caught.value.message, re.DOTALL)
    assert not re.search(r"\{\w+\}", caught.value.message) and caught.value.status == rule.status
    assert (refusal_of("openai_chat", body) is not None) == ((ALIASES.get(name, name), id) in ALSO_THE_FAMILYS)


@each(("name", "body"), [(name, body) for name, bodies in TAKEN.items() for body in bodies])
def test_what_a_server_takes_is_taken(name: str, body: Any) -> None:
    """Proves: plain turns, results, forced answers and each rule's way out pass the server's judge."""
    check("openai_chat", body=parse(json.dumps(body)), dialect=DIALECTS[name])


def test_each_rule_is_tried_and_says_where_it_is_from() -> None:
    """Proves: no rule without a body that it refuses, no server without one that it takes, no rule without source and date, no
    row that `profiles.toml` does not have."""
    for name, dialect in DIALECTS.items():
        assert builtin_profiles()[name].family == "openai_chat"
        assert [rule.id for rule in dialect.rules] == list(REFUSED[name]), name
        assert TAKEN[name]
        for rule in dialect.rules:
            assert rule.source and re.fullmatch(r"20\d\d-\d\d-\d\d", rule.date), (name, rule.id)
    assert set(REFUSED) == set(TAKEN) == set(DIALECTS)


# Recorded ids of calls that were struck out since: the server saw others.
STRUCK_OUT = "call_REDACTED"


def test_requests_that_these_servers_answered_pass_their_judges(corpus: Path) -> None:
    """Proves: no rule refuses a recorded request that its server answered."""
    seen = 0
    for line in (corpus / "manifest.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        server = row["file"].partition("/")[2].partition("__")[0]
        body = row["request"]
        if row["family"] != "openai_chat" or server not in DIALECTS or not isinstance(body, dict):
            continue
        if STRUCK_OUT in json.dumps(body):
            continue
        seen += 1
        rule = rule_that_refuses(server, body)
        assert rule is None, (row["file"], rule.id)
    assert seen > 200 or "stand-ins" in corpus.name  # they have none of these servers


def test_the_page_is_drawn_from_the_table() -> None:
    """docs/dialects.md says what the lab plays."""
    root = Path(__file__).resolve().parents[2]
    page = runpy.run_path(str(root / "scripts" / "draw_dialects.py"))["draw"]()
    assert (root / "docs" / "dialects.md").read_text(encoding="utf-8") == page, "run python scripts/draw_dialects.py"


ERRORS: dict[str, tuple[int, Any]] = {
    "vllm": (
        400,
        {"error": {"message": "Unexpected message role.", "type": "BadRequestError", "param": None, "code": 400}},
    ),
    "deepseek": (
        400,
        {
            "error": {
                "message": "Failed to deserialize the JSON body into the target type: messages[0]: unknown variant "
                "`image_url`, expected `text` at line 1 column 1",
                "type": "invalid_request_error",
                "param": None,
                "code": "invalid_request_error",
            }
        },
    ),
    "moonshot": (
        400,
        {
            "error": {
                "message": "Invalid request: the message at position 1 with role 'assistant' must not be empty",
                "type": "invalid_request_error",
            }
        },
    ),
    "groq": (400, {"error": {"message": "property 'reasoning' is unsupported", "type": "invalid_request_error"}}),
    "llamacpp": (
        400,
        {
            "error": {
                "code": 400,
                "message": "All non-assistant messages must contain 'content'",
                "type": "invalid_request_error",
            }
        },
    ),
    "ollama": (
        400,
        {
            "error": {
                "message": "invalid message content type: <nil>",
                "type": "invalid_request_error",
                "param": None,
                "code": None,
            }
        },
    ),
    "openrouter": (
        400,
        {
            "error": {
                "message": 'Only one of "reasoning.effort" and "reasoning.max_tokens" can be specified',
                "code": 400,
            }
        },
    ),
    "gemini-openai": (
        400,
        [
            {
                "error": {
                    "code": 400,
                    "message": 'Invalid JSON payload received. Unknown name "store": Cannot find field.',
                    "status": "INVALID_ARGUMENT",
                }
            }
        ],
    ),
    "xai": (
        400,
        {
            "code": "Client specified an invalid argument",
            "error": "Invalid request content: Each message must have at least one content element.",
        },
    ),
    "zai": (400, {"error": {"code": "1214", "message": "Incorrect role information"}}),
    "minimax": (
        400,
        {
            "type": "error",
            "error": {
                "type": "bad_request_error",
                "message": "invalid params, invalid chat setting (2013)",
                "http_code": "400",
            },
            "request_id": "req_lab",
        },
    ),
    "mistral": (
        422,
        {
            "object": "error",
            "message": {
                "detail": [
                    {
                        "type": "extra_forbidden",
                        "loc": ["body", "stream_options"],
                        "msg": "Extra inputs are not permitted",
                    }
                ]
            },
            "type": "invalid_request_error",
            "param": None,
            "code": None,
        },
    ),
}


@each("name", ERRORS)
def test_a_server_answers_in_its_own_form(name: str) -> None:
    """Proves: the answer of `Lab(profile=...)` to the first refused body has the JSON shape that reports show of that server."""
    found = route(PATH)
    assert found is not None
    provider = Lab(profile=name).provider
    sent = json.dumps({**next(iter(REFUSED[name].values())), "model": "plain-answer"}).encode()
    outgoing, kept = provider.answer(found, target=PATH, body=sent, number=1)
    assert (outgoing.status, json.loads(b"".join(outgoing.pieces))) == ERRORS[name]
    assert kept.refused


def test_what_the_family_refuses_is_refused_in_the_servers_form() -> None:
    """Proves: the family's judge comes behind the server's rules, and its refusals have the server's shape."""
    with pytest.raises(Rejected) as caught:
        check("openai_chat", body=parse(json.dumps(chat(ASKED, temperature=3))), dialect=DIALECTS["mistral"])
    assert caught.value.body == {
        "object": "error",
        "message": caught.value.message,
        "type": "invalid_request_error",
        "param": None,
        "code": "decimal_above_max_value",
    }


def test_a_lab_without_a_profile_judges_as_before() -> None:
    """Proves: the family's own judge alone, also for a row of which no rule is known; a name that is no row is an error."""
    body = {**REFUSED["moonshot"]["reasoning-back"], "model": "plain-answer"}
    found = route(PATH)
    assert found is not None
    for profile, status in ((None, 200), ("together", 200), ("anthropic", 200), ("moonshot", 400)):
        provider = Lab(profile=profile).provider
        outgoing, _ = provider.answer(found, target=PATH, body=json.dumps(body).encode(), number=1)
        assert outgoing.status == status, profile
    with pytest.raises(CallerError, match="there is no profile `moonshine`"):
        Lab(profile="moonshine")


@settings(max_examples=examples(300), deadline=None, derandomize=True)
@given(name=st.sampled_from(sorted(DIALECTS)), drawn=st.data())
def test_any_json_gets_an_answer_of_every_server(name: str, drawn: st.DataObject) -> None:
    """Proves: no body breaks a rule's check: it is answered or refused with the status of a rule or of the family."""
    bodies = [WHOLE["openai_chat"], *TAKEN[name], *REFUSED[name].values()]
    body = drawn.draw(bent(drawn.draw(st.sampled_from(bodies))))
    if isinstance(body, dict):
        body["model"] = drawn.draw(st.sampled_from(["plain-answer", body.get("model")]))
    found = route(PATH)
    assert found is not None
    provider = Provider(scripts=SCRIPTS, dialect=DIALECTS[name])
    outgoing, kept = provider.answer(found, target=PATH, body=json.dumps(body).encode(), number=1)
    statuses = {200, 400, 404} | {rule.status for rule in DIALECTS[name].rules}
    assert outgoing.status == kept.status and outgoing.status in statuses
    assert (outgoing.status == 200) == (kept.refused is None)
