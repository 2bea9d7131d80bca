"""`turnwise gateway report`: what was mended, as a vendor gets it, out of what a real gateway left in the journal."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.served_gateway import BODY, CONTENT, ServedGateway, served_gateway
from gateway.test_told import read_metrics, valued
from terminal.running import running_lab
from turnwise import __version__
from turnwise.lab import Lab

DAY = r"\d{4}-\d\d-\d\d"


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with running_lab() as lab:
        yield lab


@pytest.fixture
def served(lab: Lab, tmp_path: Path) -> Iterator[ServedGateway]:
    lab.reset()
    with served_gateway(tmp_path, upstream=f"{lab.url}/v1") as served:
        yield served


def without_days(text: str) -> str:
    return re.sub(DAY, "DAY", text)


@pytest.mark.costly
@pytest.mark.promise("heal:told")
def test_a_report_has_how_often_one_example_and_the_rule(served: ServedGateway) -> None:
    """Proves: the whole text, as it is pasted into an issue; the healthy answers stand beside it."""
    for model in ("shared-index", "shared-index", "plain-answer"):
        served.chat(model)
    served.end()
    report = without_days(served.run("gateway", "report"))
    assert report == SHARED_INDEX.replace("VERSION", __version__)
    assert max(len(line) for line in report.splitlines()) < 80


SHARED_INDEX = """\
# What the gateway mended

turnwise VERSION. The gateway of turnwise mended these responses before its
clients saw them. Examples have no content: texts stand as their lengths, ids
and names as placeholders.

## `openai_chat`, model `shared-index`

2 requests: in 2 a rule was broken, in 0 none.

### `index_shared`

2 times in 2 requests, DAY.

The rule: Each tool call of a response has an index of its own.

Source: OpenAI API reference, Chat Completions, chat completion chunk object,
`choices[].delta.tool_calls`.

```text
data: {"id": "id-1", "object": "chat.completion.chunk", "created": "<number>",
  "model": "<12 characters>", "choices": [{"index": 0, "delta": {"tool_calls":
  [{"index": 0, "id": "id-2", "type": "function", "function": {"name":
  "name-1", "arguments": ""}}]}, "finish_reason": null}]}
data: {"id": "id-1", "object": "chat.completion.chunk", "created": "<number>",
  "model": "<the same 12 characters again>", "choices": [{"index": 0, "delta":
  {"tool_calls": [{"index": 0, "function": {"arguments": "<21 characters>"}}]},
  "finish_reason": null}]}
data: {"id": "id-1", "object": "chat.completion.chunk", "created": "<number>",
  "model": "<the same 12 characters again>", "choices": [{"index": 0, "delta":
  {"tool_calls": [{"index": 0, "id": "id-3", "type": "function", "function":
  {"name": "name-1", "arguments": ""}}]}, "finish_reason": null}]}
```

## Without any repair

- `openai_chat`, model `plain-answer`: 1 request
"""


@pytest.mark.costly
@pytest.mark.promise("heal:told")
def test_programs_get_the_same_report_as_json(served: ServedGateway) -> None:
    """Proves: whose doing each repair is, and that what nobody is to blame for counts against no provider."""
    served.chat("fault-once-503")
    served.chat("cut-call")
    served.end()
    report = msgspec.json.decode(served.run("gateway", "report", "--json"), type=dict[str, Any])
    assert (report["turnwise"], report["since"]) == (__version__, None)
    found = {
        one["model"]: (
            one["requests"],
            one["repaired"],
            one["failed"],
            [(repair["kind"], repair["whose"], repair["times"], repair["requests"]) for repair in one["repairs"]],
        )
        for one in report["models"]
    }
    assert found == {
        "fault-once-503": (2, 0, 1, [("asked_again", "failure", 1, 1)]),
        "cut-call": (2, 0, 0, [("continuation_refused", "limit", 1, 1)]),
    }


@pytest.mark.costly
def test_a_report_is_of_one_provider_or_model_or_time_if_it_is_asked_for(served: ServedGateway) -> None:
    """Proves: the options narrow it; where nothing fits, what there is is told."""
    served.chat("no-index")
    served.chat("id-missing")
    served.end()

    def models(*words: str) -> list[str]:
        found = msgspec.json.decode(served.run("gateway", "report", "--json", *words), type=dict[str, Any])
        return [one["model"] for one in found["models"]]

    assert models() == ["id-missing", "no-index"]
    assert models("--model", "no-index", "--provider", "openai_chat") == ["no-index"]
    assert models("--since", "2d") == ["id-missing", "no-index"]
    assert models("--since", "2999-01-01") == models("--provider", "nobody") == []
    assert served.run("gateway", "report", "--since", "2999-01-01").startswith("the gateway has sent no request since ")


@pytest.mark.costly
@pytest.mark.promise("heal:told")
def test_a_stream_tells_its_repairs_in_the_log_and_an_answer_in_its_header(served: ServedGateway) -> None:
    """Proves: the headers of a stream leave before anything is known; the line of the log has them. Counts have both."""
    with served.ask("/v1/chat/completions", {"model": "id-missing", **BODY}, x_request_id="stream") as answer:
        assert answer.getheader("turnwise-repairs") is None
        answer.read()
    whole = {"model": "fault-once-503", **BODY, "stream": False}
    with served.ask("/v1/chat/completions", whole, x_request_id="whole") as answer:
        assert answer.getheader("turnwise-repairs") == "asked_again"
        answer.read()
    repairs = valued(read_metrics(served.get("/metrics").decode()), "repairs_total")
    assert repairs == {
        ("openai_chat", "id-missing", "id_missing"): 1,
        ("openai_chat", "fault-once-503", "asked_again"): 1,
    }
    lines = [msgspec.json.decode(line, type=dict[str, Any]) for line in served.end().splitlines()]
    told = {line["request"]: line["repairs"] for line in lines if "request" in line}
    assert told == {"stream": {"id_missing": 1}, "whole": {"asked_again": 1}}


@pytest.mark.promise("heal:told")
def test_repairs_of_a_fallback_are_counted_for_it(lab: Lab, tmp_path: Path) -> None:
    """Proves: what the first upstream took is not subtracted from what the second one took."""
    file = tmp_path / "gateway.toml"
    upstream = f'{{ url = "{lab.url}/v1", model = "%s" }}'
    file.write_text(
        f"[[route]]\nretry = 1\nupstream = {upstream % 'fault-500'}\nfallbacks = [{upstream % 'fault-once-503'}]\n"
    )
    lab.reset()
    with served_gateway(tmp_path, "--config", str(file), upstream=None) as served:
        assert b"[DONE]" in served.chat("any")
        repairs = valued(read_metrics(served.get("/metrics").decode()), "repairs_total")
    assert repairs == {
        ("openai_chat", "fault-500", "asked_again"): 1,
        ("openai_chat", "fault-once-503", "asked_again"): 1,
    }


@pytest.mark.costly
def test_what_a_client_left_early_is_in_no_report(served: ServedGateway) -> None:
    """Proves: a response that was broken off by its client says nothing about its end."""
    served.stalling().close()
    served.end()
    assert served.run("gateway", "report").startswith("the gateway has sent no request (turnwise")


@pytest.mark.costly
@pytest.mark.promise("heal:told")
def test_nothing_that_was_said_is_in_a_report(served: ServedGateway) -> None:
    """Proves: for every malformed script, neither the prompt nor a word, name, id or argument of the answers, in the text, in
    JSON and in the journal's file."""
    answers = [served.chat(model).decode() for model in MALFORMED]
    served.end()
    said = "".join(answers)
    words = {CONTENT, *re.findall(r"call_\w+|lab-[\w-]+-\d", said), *re.findall(r"[\w-]+\.txt", said)}
    words |= set(re.findall(r'"content":"([^"\\]{12,})"', said))
    assert len(words) > 10
    told = [served.run("gateway", "report"), served.run("gateway", "report", "--json")]
    folder = Path(served.env["TURNWISE_STATE_DIR"])
    told += [file.read_bytes().decode("latin-1") for file in folder.iterdir()]
    for text in told:
        assert [word for word in words if word in text] == []


MALFORMED = (
    "cumulative empty-then-real id-churn id-missing id-reused id-twice interleaved late-args name-repeated "
    "name-split no-index-two object-args shared-index two-in-one whole-again plain-answer"
).split()
