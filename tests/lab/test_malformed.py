"""Each malformed shape that ships with the lab is what its script says it means, to our own reading of it."""

import json

import pytest

from lab.asking import ask, body_of, path_of
from requirements import PROMISES
from tables import each
from turnwise.lab import builtin_scripts
from turnwise.lab.script import Script
from turnwise.vocab import ArgumentsState, calls_of, text_of
from turnwise.wire.family import family
from turnwise.wire.profiles import builtin_profiles
from whole_streams import read_stream

SCRIPTS = builtin_scripts()
SHAPES = [name for name, script in SCRIPTS.items() if script.steps and script.steps[0].wire]
# Whose ids are not those of the wire: there is none, or it comes twice.
OTHER_IDS = {"id-missing", "id-twice"}


def meant(script: Script) -> list[tuple[str | None, str, object]]:
    """The calls that step 1 says it makes."""
    return [(call.id, call.name, call.arguments) for call in script.steps[0].calls]


@pytest.mark.promise(
    "assembly:id-every-chunk",
    "assembly:id-first-only",
    "assembly:no-index",
    "assembly:shared-index",
    "assembly:id-churn",
    "assembly:interleaved",
    "assembly:name-repeated",
    "assembly:empty-later",
    "assembly:id-missing",
    "assembly:id-twice",
    "assembly:object-args",
    "assembly:cumulative",
    "assembly:empty-then-real",
    "assembly:whole-in-one",
    "assembly:late-args",
    "assembly:no-done",
)
@each("name", [name for name in SHAPES if name != "cut-call-unsaid"])
def test_each_malformed_stream_means_what_its_script_says(name: str) -> None:
    """Proves: the calls written out in the script are the calls that come out of its stream, whole and in order."""
    script = SCRIPTS[name]
    path = path_of("openai_chat", model=name, stream=True)
    outgoing, kept = ask(path, body_of("openai_chat", model=name, stream=True))
    response = read_stream(
        outgoing.pieces,
        family=family("openai_chat"),
        profile=builtin_profiles()["openai_chat"],
        tool_names=frozenset({"read", "write", "list"}),
    )
    calls = calls_of(response.message)
    assert [(call.name, json.loads(call.arguments), call.state) for call in calls] == [
        (name, arguments, ArgumentsState.COMPLETE) for _, name, arguments in meant(script)
    ]
    ids = [call.id for call in calls]
    assert len(set(ids)) == len(ids) and all(ids)
    if name not in OTHER_IDS:
        assert ids == [id for id, _, _ in meant(script)]
    assert text_of(response.message) == script.steps[0].text
    assert (kept.status, kept.step) == (200, 1)
    if "usage" in script.steps[0].wire["openai_chat"]:
        assert response.usage is not None and kept.usage is not None
        assert response.usage.input_tokens == kept.usage.input_tokens


@pytest.mark.promise("cut:never-run")
def test_arguments_that_stop_in_mid_json_are_truncated_whatever_the_finish_reason_claims() -> None:
    """Proves: finish reason `tool_calls` over cut arguments (five OpenRouter recordings) is a truncated call."""
    path = path_of("openai_chat", model="cut-call-unsaid", stream=True)
    outgoing, _ = ask(path, body_of("openai_chat", model="cut-call-unsaid", stream=True))
    response = read_stream(outgoing.pieces, family=family("openai_chat"), profile=builtin_profiles()["openai_chat"])
    (call,) = calls_of(response.message)
    assert (call.name, call.state) == ("write", ArgumentsState.TRUNCATED)


def test_there_are_about_twenty_shapes_and_their_promises_exist() -> None:
    """Proves: the list of shapes does not shrink by accident, and each names promises that we make."""
    assert len(SHAPES) >= 24
    assert {promise for script in SCRIPTS.values() for promise in script.promises} <= set(PROMISES)
