"""`turnwise check --rules`: each server that the lab plays is found by its refusals, and its row holds in the user's own file."""

import asyncio
import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from terminal.person import CTRL_C, at_terminal
from terminal.running import Cli, at, running_lab, script
from turnwise.agent.models import read_model
from turnwise.endpoints.endpoints import Endpoint
from turnwise.endpoints.transport import HttpRequest
from turnwise.lab import Lab
from turnwise.lab.endpoint_check.rule_asking import RuleCourse, ServerRulesCheck, estimate_rules
from turnwise.lab.endpoint_check.rule_probes import RULE_NAMES, RULE_PROBES, row_fields
from turnwise.lab.strict.dialects import ServerDialect, builtin_dialects, find_refused
from turnwise.settings.endpoint_rows import own_profiles
from turnwise.terminal.endpoint_check import found_profile, outcome_of, row_of
from turnwise.testing import FakeClock, Reply, ScriptedTransport
from turnwise.wire.profiles import Profile, builtin_profiles

KNOWN = builtin_profiles()
PLAIN = KNOWN["openai_chat"]
USUAL = "some-model"
# A name for each pattern of models in dialects.toml.
MODELS = ("gemma-3-27b", "qwen3-32b", "qwen3.5:9b", "z-ai/glm-5", "grok-4", "grok-4.5")
# What no probe asks: turnwise never sends it, no field of a row says it, or another probe of the same field does.
NOT_ASKED = {
    "vllm": {"empty-tools"},
    "deepseek": {"results-behind-calls"},
    "moonshot": {"effort-and-thinking", "schema-reference-clash", "schema-foreign-reference", "schema-objects"},
    "mistral": {"result-id", "results-behind-calls", "call-name", "tool-name"},
    "groq": {"body-fields", "user-fields", "effort-qwen", "output-keywords"},
    "llamacpp": {"content-there", "assistants-last", "tools-size"},
    "ollama": {"content-there", "image-address", "arguments", "effort", "assistants-last"},
    "openrouter": {"effort-and-budget", "two-ways-of-effort"},
    "xai": {"content-there", "arguments", "effort", "effort-none", "stop"},
    "zai": {"empty-assistant"},
    "minimax": {"result-of-a-call", "arguments"},
}
NOT_ASKED |= {"ollama-cloud": NOT_ASKED["ollama"], "zai-coding": NOT_ASKED["zai"]}


async def found_at(row: str | None, *, model: str = USUAL) -> tuple[Lab, RuleCourse]:
    """What a whole check finds at the lab, which plays this server, by a row that says nothing."""
    lab = Lab(profile=row)
    lab.play("plain-answer")
    checking = ServerRulesCheck(
        Endpoint(profile=PLAIN, base_url="http://lab/v1"),
        model=model,
        transport=lab.transport(),
        clock=FakeClock(),
        timeout_s=60,
        tell=lambda _: None,
    )
    return lab, await checking.run(RULE_PROBES)


def met(lab: Lab, dialect: ServerDialect) -> set[str]:
    """The rules by which its requests were refused."""
    bodies = [msgspec.json.decode(one.body) for one in lab.requests]
    broken = [[rule.id for rule in dialect.rules if rule.holds_for(one) and _breaks(rule.check, one)] for one in bodies]
    return {ids[0] for ids in broken if ids}


def _breaks(check: Any, body: Any) -> bool:
    return find_refused(check, body) is not None


def models_of(dialect: ServerDialect) -> list[str]:
    names = [name for rule in dialect.rules for name in MODELS if rule.models and re.search(rule.models, name)]
    assert all(any(re.search(rule.models, name) for name in MODELS) for rule in dialect.rules), (
        "a name for each pattern"
    )
    return [USUAL, *dict.fromkeys(names)]


def said_alike(field: str, value: object, *, row: Profile, model: str, anywhere: dict[str, object]) -> bool:
    """Whether the row of profiles.toml says the same. `anywhere`: what OpenAI's own API refuses, too, which no row repeats."""
    match field:
        case "joined_models":
            return row.joins_neighbours(model)
        case "tool_names":
            names = ("7_days", "_days", "days")
            return [bool(re.fullmatch(str(value), name)) for name in names] == [
                bool(re.fullmatch(row.tool_names, name)) for name in names
            ]
        case "refused_tools":
            assert isinstance(value, tuple) and isinstance(anywhere["refused_tools"], tuple)
            return set(value) == {*row.refused_tools, *anywhere["refused_tools"]}
        case _:
            return getattr(row, field) == value


@pytest.mark.parametrize("name", builtin_dialects())
async def test_a_server_is_found_by_what_it_refuses(name: str) -> None:
    """Proves, for every server that the lab plays: the found row says what turnwise's own says of it, each rule was met or is
    listed above, and a conversation by the found row is taken. The judges are the lab's rules, which know nothing of rows."""
    dialect, row = builtin_dialects()[name], KNOWN[name]
    anywhere = row_fields((await found_at(None))[1].so_far)
    asked: set[str] = set()
    for model in models_of(dialect):
        lab, course = await found_at(name, model=model)
        assert course.holds is not None and (course.holds.answer, course.holds.words) == ("taken", "")
        assert all(one.answer != "unknown" for one in course.asked)
        if (
            is_of_row := model == USUAL or name != "openrouter"
        ):  # another maker's models there have another maker's rules
            for field, value in row_fields(course.so_far).items():
                assert said_alike(field, value, row=row, model=model, anywhere=anywhere), (model, field, value)
        assert is_of_row or row_fields(course.so_far)["tool_choices"] == ("auto",)
        asked |= met(lab, dialect)
    assert {rule.id for rule in dialect.rules} - asked == NOT_ASKED.get(name, set())


async def test_nothing_is_said_of_a_server_that_refuses_nothing_of_its_own() -> None:
    """Proves: at a server of no own rules the row changes in nothing but the schemas that OpenAI itself refuses."""
    _, course = await found_at(None)
    assert row_fields(course.so_far) == {"refused_tools": ("schema",)}
    assert [one.name for one in course.asked] == list(RULE_NAMES)


async def found_by(refuses: Callable[[dict[str, Any], int], str]) -> tuple[RuleCourse, list[dict[str, Any]]]:
    """What a check finds at a server that refuses a body by these words, and takes it where there are none."""
    bodies: list[dict[str, Any]] = []

    def answer(request: HttpRequest) -> Reply:
        bodies.append(json.loads(request.body))
        words = refuses(bodies[-1], len(bodies))
        message = {"role": "assistant", "content": "ready"}
        whole = {"id": "r", "model": "m", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
        told = json.dumps({"error": {"message": words}} if words else whole).encode()
        return Reply(status=400 if words else 200, headers={"content-type": "application/json"}, pieces=(told,))

    checking = ServerRulesCheck(
        Endpoint(profile=PLAIN, base_url="http://lab/v1"),
        model=USUAL,
        transport=ScriptedTransport(itertools.repeat(answer)),
        clock=FakeClock(),
        timeout_s=60,
        tell=lambda _: None,
    )
    return await checking.run(RULE_PROBES), bodies


async def test_a_model_without_tools_has_no_rules_of_tools() -> None:
    """Proves: where a plain tool is refused, no further request has tools, the conversation neither, and the row says nothing of
    tools."""
    course, bodies = await found_by(lambda body, _: '"m" does not support tools' if "tools" in body else "")
    assert row_fields(course.so_far) == {} and outcome_of(course) == "fine"
    assert sum("tools" in body for body in bodies) == 1
    assert {one.name for one in course.asked if one.answer == "refused"} == {"plain-tool"}


@pytest.mark.parametrize("first", range(5))
async def test_a_server_that_refuses_at_random_gets_no_row(first: int) -> None:
    """Proves: where a plain request that was taken before is refused at the end, the check has failed and says so."""
    course, _ = await found_by(lambda _, number: "Bad request" if number > 2 and number % 5 == first else "")
    assert course.refused_plain is not None and not course.is_conclusive and course.holds is None
    assert outcome_of(course) == "faults"


async def test_no_more_is_sent_than_was_told() -> None:
    """Proves: the number of requests and of output tokens that is told before is an upper bound at each server."""
    told = estimate_rules(RULE_PROBES, model=USUAL, row=None)
    for name in builtin_dialects():
        lab, course = await found_at(name)
        assert course.requests == len(lab.requests) <= told.requests + told.more
        assert sum([len(one.body) for one in lab.requests]) <= 3 * told.input_tokens


@pytest.mark.parametrize("name", ["mistral", "deepseek"])
def test_the_row_is_pasted_and_holds(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Proves: what is printed is a file that turnwise reads, and with it a run with the server's own rules goes through."""
    with running_lab(profile=name) as lab:
        lab.play("read-edit-answer")
        ran = cli("check", at(lab, USUAL)[1], *at(lab, USUAL)[2:], "--rules", "--yes", "--json")
        told = json.loads(ran.out)
        assert (ran.code, told["outcome"], told["conversation"]) == (0, "fine", "taken")
        assert [one["name"] for one in told["rules"]] == list(RULE_NAMES) and told["requests"] == len(lab.requests)
        own = tmp_path / "own.toml"
        own.write_text(told["settings"] + "\n" + told["endpoint"]["toml"])
        monkeypatch.setenv("TURNWISE_CONFIG", str(own))
        (row,) = own_profiles().values()
        assert read_model(f"{row.name}:m").profile == row and row.name == told["endpoint"]["name"]
        changes = told["endpoint"]["changes"]
        assert json.loads(msgspec.json.encode({field: getattr(row, field) for field in changes})) == changes
        lab.reset()
        notes = tmp_path / "notes.txt"
        notes.write_text("a\n")
        done = cli("run", "--allow", "write", "Fix the notes.")
        assert lab.requests and lab.count(status=200) == len(lab.requests), done.err


def test_refusals_are_told_in_the_servers_words_without_what_drives_a_terminal(cli: Cli) -> None:
    """Proves: each line says taken or refused, with the server's words; the row and what was spent follow. A server that takes no
    plain request is asked nothing more, and nothing is said of its rules."""
    with running_lab(profile="mistral") as lab:
        lab.play("plain-answer")
        ran = cli("check", *at(lab, USUAL)[1:], "--rules", "--yes")
        assert re.search(r"^! `seed` +refused: .*Extra inputs are not permitted", ran.out, re.MULTILINE)
        assert "\n  [endpoints.127-0-0-1-" in ran.out and ran.out.rstrip().endswith("by this row")
        assert f"{len(lab.requests)} requests, " in ran.out and "requests (up to " in ran.err
    busy = script("busy", '[[steps]]\nfault = { kind = "status", status = 418, message = "a\\u001b[2Jteapot" }')
    with running_lab([busy]) as lab:
        ran = cli("check", *at(lab, "busy")[1:], "--rules", "--yes")
        assert ran.code == 6 and "\u001b" not in ran.out and "[endpoints." not in ran.out
        assert len(lab.requests) == 2 and "the server took no request" in ran.out


@pytest.mark.parametrize(("typed", "code"), [("n\r", 130), (CTRL_C, 130)])
def test_rules_are_asked_after_a_yes_alone(folder: Path, typed: str, code: int) -> None:
    with running_lab() as lab:
        with at_terminal("check", *at(lab, "plain-answer")[1:], "--rules", cwd=folder) as person:
            person.sees("send them? [y/N]")
            person.types(typed)
            person.leaves_by(code)
        assert not lab.requests


def test_wrong_use_of_rules_is_said(cli: Cli, lab: Lab) -> None:
    other = cli("check", *at(lab, "plain-answer", family="gemini")[1:], "--rules", "--yes")
    named = cli("check", *at(lab, "plain-answer")[1:], "--rules", "--only", "call", "--yes")
    assert (other.code, named.code, len(lab.requests)) == (2, 2, 0)
    assert "no Chat Completions endpoint" in other.err and "--only" in named.err


async def test_the_row_of_a_providers_own_address_gets_another_name() -> None:
    """Proves: turnwise's own names are never taken, so the row can be pasted as it is."""
    _, course = await found_at("vllm")
    course.profile = KNOWN["vllm"]
    profile, _ = found_profile(course, base_url=KNOWN["vllm"].base_url or "", api_key_env=None)
    assert profile.name == "my-vllm" and row_of(profile).startswith("[endpoints.my-vllm]\n")


async def test_what_was_found_until_ctrl_c_is_kept() -> None:
    """Proves: a check that is ended in mid-request keeps its answers so far, counts that request, and has no word on the row."""
    lab = Lab(profile="deepseek")
    lab.play("plain-answer")
    endpoint = Endpoint(profile=PLAIN, base_url="http://lab/v1")
    asked: list[str] = []

    def tell(title: str) -> None:
        asked.append(title)
        if len(asked) == 4:
            task.cancel()

    checking = ServerRulesCheck(
        endpoint, model=USUAL, transport=lab.transport(), clock=FakeClock(), timeout_s=60, tell=tell
    )
    task = asyncio.create_task(checking.run(RULE_PROBES))
    course = await task
    assert course.stopped and outcome_of(course) == "stopped" and course.holds is None
    assert [one.answer for one in course.asked if one.answer != "not_asked"] == ["taken"] * 3
    assert course.requests == 4
