"""A public suite of checks that we did not write (llm-comply) at a real `turnwise gateway`: each of its four client APIs, before
each of the four families of upstreams. It judges answers by the schemas that the vendors and Open Responses publish."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from llm_comply import config, runner, schema
from llm_comply import tests as suites

from gateway.judged import FAMILIES
from gateway.served_gateway import served_gateway
from terminal.running import running_lab
from turnwise.lab.script import parse_script
from waits import HANG_S

SPECS = Path(schema.__file__).parent / "specs"
# What the suite calls the client's API, the schemas that it judges by, and the path behind which it asks.
FORMATS = {
    "openai_chat": ("openai-chat", "openai_chat.json", "/v1"),
    "openai_responses": ("open-responses", "openresponses.json", "/v1"),
    "anthropic_messages": ("anthropic", "anthropic.json", "/v1"),
    "gemini": ("google-genai", None, ""),
}
MODEL = "gpt-5-and-claude-sonnet-4"  # by its name the suite tells whether to ask for reasoning
ANSWERS = """
title = "thinks, then calls for the weather or answers"

[[steps]]
asked = "weather in San Francisco"
calls = [{ name = "get_weather", arguments = { location = "San Francisco" } }]

[[steps]]
reasoning = "There is little to think about."
text = "Hello there, friend."
"""
# Two events have other names in the suite's table than in its own copy of the schemas (0.5.0).
MISNAMED = {
    "response.reasoning_summary_text.delta": "ResponseReasoningSummaryDeltaStreamingEvent",
    "response.reasoning_summary_text.done": "ResponseReasoningSummaryDoneStreamingEvent",
}
# What it only warns of: an upstream's own id is kept, and nothing is compacted here.
KNOWN = ("'chatcmpl-' prefix", "compact", "response.output is missing or empty")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The base URL of one that has a route for each family."""
    folder = tmp_path_factory.mktemp("gateway")
    with contextlib.ExitStack() as stack:
        lab = stack.enter_context(running_lab(scripts=[parse_script(ANSWERS, name="answers")]))
        file = folder / "gateway.toml"
        file.write_text("\n".join([route_to(name, lab=lab.url) for name in FAMILIES]), encoding="utf-8")
        env = {"LAB_KEY": "none"}
        served = stack.enter_context(served_gateway(folder, "--config", str(file), upstream=None, env=env))
        yield f"http://127.0.0.1:{served.port}"


def route_to(family: str, *, lab: str) -> str:
    base = f"{lab}/v1beta" if family == "gemini" else f"{lab}/v1"
    upstream = f'{{ url = "{base}", family = "{family}", key_env = "LAB_KEY" }}'
    return f'[[route]]\nmodels = []\naliases = {{ "{family}--{MODEL}" = "answers" }}\nupstream = {upstream}\n'


# The suite resolves references by a way that jsonschema will drop.
@pytest.mark.filterwarnings("ignore:jsonschema.RefResolver is deprecated:DeprecationWarning")
@pytest.mark.parametrize("client", FAMILIES)
def test_every_answer_has_what_its_published_schema_requires(
    client: str, gateway: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Proves: each check of the suite passes, whatever the upstream's family, and none is left out."""
    name, file, path = FORMATS[client]
    spec = schema.SpecLoader(None if file is None else str(SPECS / file))
    for event, of_schema in MISNAMED.items() if client == "openai_responses" else ():
        assert (spec.get_schema(of_schema) or {})["properties"]["type"]["enum"] == [event]
        monkeypatch.setitem(schema.SSE_EVENT_TO_SCHEMA, event, of_schema)
    told: dict[str, list[str]] = {}
    for upstream in FAMILIES:
        asked = config.ComplianceConfig(
            base_url=gateway + path,
            api_key="any",
            model=f"{upstream}--{MODEL}",
            extra_headers={"anthropic-version": "2023-06-01"} if client == "anthropic_messages" else None,
            timeout=HANG_S,
        )
        found = runner.TestRunner(asked, suites.get_tests(name), spec).run_all()
        told |= {f"{upstream}, {one.id}": one.errors for one in found.results if one.status.value != "passed"}
        warned = [said for one in found.results for said in one.warnings if not any(known in said for known in KNOWN)]
        told |= {f"{upstream}, warnings": warned} if warned else {}
        assert found.total >= 9
    assert told == {}
