"""`turnwise check` names what is wrong with an endpoint: every malformed script of the lab, and servers that are none."""

import json
import re
from pathlib import Path

import msgspec
import pytest

import turnwise
from tables import each
from terminal.checked import check_lab, check_transport, judged, profile_of
from turnwise.assembly.json_text import KINDS
from turnwise.assembly.text_calls.syntaxes import BY_MARKER
from turnwise.endpoints.transport import HttpRequest
from turnwise.lab import builtin_scripts, parse_script
from turnwise.lab.endpoint_check.probes import NAMES, OTHER_WAYS, PROBES
from turnwise.lab.endpoint_check.shapes import MEANINGS, meaning_of
from turnwise.testing import Reply, ScriptedTransport
from turnwise.vocab import Fault, FaultKind
from turnwise.wire.profiles import Profile

# What a check has to say of each script that is not as an API should be, by its name in the table of meanings.
NAMED = {
    "calls-after-stop": "finish_differs",
    "comments": "comments",
    "cumulative": "cumulative",
    "cut-call-unsaid": "finish_hides_cut",
    "disobeys-none": "disobeyed",
    "empty-after-calls": "empty_answer",
    "empty-answer": "empty_answer",
    "empty-args": "empty_arguments",
    "empty-later": "empty_later",
    "empty-once": "empty_answer",
    "empty-then-real": "empty_then_real",
    "fault-401": "auth",
    "fault-429": "rate_limited",
    "fault-500": "server",
    "fault-529": "overloaded",
    "fault-endless-line": "too_large",
    "fault-error-in-stream": "error_in_stream",
    "fault-html": "html",
    "fault-invalid-utf8": "invalid_utf8",
    "fault-once-429": "asked_to_wait",
    "fault-once-503": "asked_to_wait",
    "fault-once-error-in-stream": "error_in_stream",
    "fault-once-reset": "broke_off",
    "fault-once-torn-event": "lost_piece",
    "fault-random-bytes": "protocol",
    "fault-reset": "broke_off",
    "fault-sent-twice": "sent_twice",
    "fault-silence": "timeout",
    "fault-stall": "fell_silent",
    "fault-torn-event": "lost_piece",
    "finish-stop-with-calls": "stop_with_calls",
    "first-index-1": "index_from_one",
    "id-churn": "id_churn",
    "id-first-only": "id_first_only",
    "id-in-every-chunk": "id_every_chunk",
    "id-missing": "id_missing",
    "id-reused": "id_reused",
    "id-twice": "id_twice",
    "interleaved": "interleaved",
    "late-args": "late_pieces",
    "name-repeated": "name_repeated",
    "name-split": "name_joined",
    "never-stops-at-all": "disobeyed",
    "never-stops-disobeys": "disobeyed",
    "no-done": "no_done",
    "no-index": "no_index",
    "no-index-two": "no_index",
    "null-args": "missing_arguments",
    "object-args": "object_arguments",
    "shared-index": "shared_index",
    "shared-index-interleaved": "shared_index",
    "tool-calls-finish-on-plain-text": "finish_without_calls",
    "two-in-one": "calls_in_one_event",
    "whole-again": "cumulative",
    "whole-in-one": "whole_call",
    "writer-false-finish": "finish_hides_cut",
}
# Marked as not healthy because they need files of their own; their streams are as they should be.
NOT_MALFORMED = {"script-read-edit-test", "script-step-by-step", "script-ten-reads"}
OTHER_FAMILIES = ("openai_responses", "anthropic_messages", "gemini")
WIRELESS = [name for name in NAMED if not builtin_scripts()[name].steps or not builtin_scripts()[name].steps[0].wire]
# Anthropic's API has no 503 and Google's no 529, so the lab's error says there that the request is wrong. Google's calls come
# whole, so that none is cut in the middle.
ELSEWHERE = {
    ("anthropic_messages", "fault-once-503"): "bad_request",
    ("gemini", "fault-529"): "bad_request",
    ("gemini", "writer-false-finish"): "limit_unsaid",
    ("gemini", "fault-reset"): "disconnected",
}


def test_every_malformed_script_has_a_name_that_the_table_explains() -> None:
    """Proves: no script of the lab is forgotten here, and each name has words of its own."""
    malformed = {name for name, script in builtin_scripts().items() if not script.healthy} - NOT_MALFORMED
    assert malformed <= NAMED.keys() <= builtin_scripts().keys()
    assert set(NAMED.values()) <= MEANINGS.keys()


@pytest.mark.costly
@each("name", NAMED)
async def test_each_malformed_script_is_named(name: str) -> None:
    """Proves: `check` says of each of them what is wrong, whatever it asked."""
    seen = judged(await check_lab(name)).seen
    assert NAMED[name] in seen


@each("family", OTHER_FAMILIES)
@each("name", WIRELESS, meeting="each")
async def test_the_faults_that_every_api_can_have_are_named_in_each(name: str, family: str) -> None:
    if not builtin_scripts()[name].speaks(family):
        return
    seen = judged(await check_lab(name, family=family)).seen
    assert ELSEWHERE.get((family, name), NAMED[name]) in seen


@each("family", ["openai_chat", *OTHER_FAMILIES])
@each("name", ["read-edit-answer", "plain-answer", "parallel-calls", "reasoning-and-calls"])
async def test_a_healthy_endpoint_has_nothing_wrong_or_healed(name: str, family: str) -> None:
    """Proves: a judge that finds fault with everything would have failed. What is missing is the script's own: it does not
    count or cut."""
    judgement = judged(await check_lab(name, family=family))
    assert judgement.outcome == "fine" and set(judgement.unasked) <= {"result", "forced"}
    weights = {meaning_of(seen).weight for seen in judgement.seen}
    assert weights <= {"usual", "lacks"}


def test_every_repair_of_the_decoders_has_words() -> None:
    """Proves: no kind that assembly or a decoder writes down is told by its bare name."""
    found = set(KINDS)
    for room in ("wire", "assembly"):
        for path in (Path(turnwise.__file__).parent / room).rglob("*.py"):
            if path.name == "relay_facts.py":
                continue  # what the gateway says of its own, in words of its own
            said = path.read_text()
            found |= set(re.findall(r'\b(?:Repair|_?lost|_?mended|skipped)\(\s*"([a-z]+_[a-z_0-9]+)"', said))
            found |= set(re.findall(r'\bkind = (?:.* else )?"([a-z]+_[a-z_]+)"', said)) & {
                "damaged_event",
                "loose_body",
            }
    assert len(found) > 40 and found <= MEANINGS.keys()


WEB_PAGE = Reply(pieces=(b"<!DOCTYPE html><html><h1>It works!</h1></html>",), headers={"content-type": "text/html"})
OTHER_JSON = Reply(pieces=(b'{"hello":"world"}',), headers={"content-type": "application/json"})
NO_PATH = Reply(status=404, pieces=(b"404 page not found",), headers={"content-type": "text/plain"})
EMPTY = Reply(pieces=(), headers={"content-type": "application/json"})
CLOSED = Reply(before=Fault(kind=FaultKind.UNREACHABLE, message="Connection refused"))
NOTHINGS = {
    "a web page": (WEB_PAGE, "html", 3),
    "JSON of another kind": (OTHER_JSON, "other_json", 3),
    "no such path": (NO_PATH, "not_found", 1),
    "an empty body": (EMPTY, "disconnected", 3),
    "a closed port": (CLOSED, "unreachable", 1),
}


@each("family", ["openai_chat", *OTHER_FAMILIES])
@each("what", NOTHINGS)
async def test_a_server_that_is_none_is_named_after_few_requests(what: str, family: str) -> None:
    """Proves: what is no provider is no server, is told what it is, and is not asked a dozen times."""
    reply, name, most = NOTHINGS[what]
    course = await check_transport(ScriptedTransport([reply] * most), profile=profile_of(family))
    judgement = judged(course)
    assert judgement.outcome == "no_server" and course.requests == most
    assert name in judgement.seen
    assert set(judgement.unasked) == set(NAMES[len(course.observations) :])


def answer(text: str, *, finish: str = "stop", usage: bool = True) -> Reply:
    """A stream or body of Chat Completions: a body answers a request for a stream, too."""
    told = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "a-model",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish}],
        **({"usage": {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25}} if usage else {}),
    }
    return Reply(pieces=(json.dumps(told).encode(),), headers={"content-type": "application/json"})


def refusing(*fields: str) -> ScriptedTransport:
    """A server that refuses bodies with one of these fields in them, as strict ones do."""

    def reply(request: HttpRequest) -> Reply:
        body = request.body.decode()
        for field in fields:
            if f'"{field}"' in body:
                message = {"error": {"message": f"Unknown field: {field}", "type": "invalid_request_error"}}
                return Reply(
                    status=400, pieces=(json.dumps(message).encode(),), headers={"content-type": "application/json"}
                )
        return answer("ready")

    return ScriptedTransport([reply] * 40)


@pytest.mark.parametrize(
    ("sent", "field", "value"),
    [
        ("max_tokens", "max_tokens_field", "max_completion_tokens"),
        ("stream_options", "stream_usage", False),
        ("json_schema", "output", "json_object"),
        ("response_format", "output", "none"),
        ("parallel_tool_calls", "sends_parallel_tool_calls", False),
    ],
)
async def test_a_refused_field_is_learned_and_stands_in_the_profile(sent: str, field: str, value: object) -> None:
    """Proves: what a server refuses is tried in another way, kept for what follows, and told with the server's own words."""
    course = await check_transport(refusing(sent), profile=profile_of("openai_chat"))
    judgement = judged(course)
    assert [(one.field, one.value) for one in course.learned] == [(field, value)]
    change = next(change for change in judgement.changes if change.field == field)
    assert change.value == value and f"Unknown field: {sent}" in change.why
    assert "bad_request" not in judgement.seen and judgement.seen["refused_field"] == (field,)


async def test_a_field_that_is_refused_in_every_way_is_told() -> None:
    course = await check_transport(refusing("tools"), profile=profile_of("openai_chat"))
    judgement = judged(course)
    assert "call" in judgement.seen["bad_request"] and judgement.outcome == "faults"
    assert [one.field for one in course.learned] == ["tool_choice_none"]  # the one request that can do without tools


def test_other_ways_name_probes_and_fields_that_there_are() -> None:
    assert set(OTHER_WAYS) <= set(NAMES)
    fields = {field for ways in OTHER_WAYS.values() for field, _ in ways}
    assert fields <= set(Profile.__struct_fields__)


@each("marker", BY_MARKER)
async def test_a_call_that_is_written_as_text_is_named(marker: str) -> None:
    """Proves: the commonest fault of self-hosted models is told, and not as an answer in words."""
    replies = [answer(f'{marker}{{"name": "get_weather"}}')] * len(PROBES)
    profile = msgspec.structs.replace(profile_of("openai_chat"), calls_in_text=False)
    judgement = judged(await check_transport(ScriptedTransport(replies), profile=profile))
    assert {"call", "call-body", "parallel"} <= set(judgement.seen["call_in_text"])
    assert ("calls_in_text", True) in [(change.field, change.value) for change in judgement.changes]


async def test_a_server_that_counts_no_tokens_is_named() -> None:
    replies = [answer("ready", usage=False)] * len(PROBES)
    assert (
        "no_usage" in judged(await check_transport(ScriptedTransport(replies), profile=profile_of("openai_chat"))).seen
    )


async def test_an_output_limit_that_is_not_kept_is_named() -> None:
    script = parse_script('title = "long"\n[[steps]]\ntext = "{lines 1-40}"', name="long")
    seen = judged(await check_lab("long", scripts=[script])).seen
    assert "limit" in seen["limit_ignored"] and meaning_of("limit_ignored").weight == "broken"
