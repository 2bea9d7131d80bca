"""What every family owes alike, whatever its format: found by asking all the same."""

import json
from typing import get_args

import msgspec
import pytest

from tables import each
from turnwise.lab import strict
from turnwise.lab.families import FAMILIES
from turnwise.lab.raw import parse
from turnwise.vocab import (
    File,
    Message,
    Opaque,
    OutputSchema,
    Part,
    PartDone,
    ProviderItem,
    Reasoning,
    Request,
    Started,
    Text,
    ToolCall,
    ToolResult,
    ToolSpec,
    Usage,
    UsageReported,
)
from turnwise.wire.family import MODULES, BadRequest, Family, family
from turnwise.wire.profiles import FamilyName, Profile, builtin_profiles
from turnwise.wire.relay_facts import relay_facts
from turnwise.wire.sse import SseParser

NAMES: tuple[FamilyName, ...] = get_args(FamilyName)
SCHEMA = '{"type":"object","properties":{"a":{"type":"string"}}}'
PDF = File(media_type="application/pdf", data=b"%PDF", name="a.pdf")
FOREIGN = ProviderItem(family="elsewhere", kind="search", json='{"type":"search"}')
LEFT_OUT = Text("[file `a.pdf` of type application/pdf left out: this endpoint does not take it]")

each_family = pytest.mark.parametrize("name", NAMES)


def test_a_family_stands_in_each_list() -> None:
    """Proves: its folder, its judge, its player and its row have its name (docs/add-a-family.md), so that nobody misses it."""
    lists = {"folders": MODULES, "judges": strict.JUDGES, "players": FAMILIES}
    assert {what: set(one) for what, one in lists.items()} == {what: set(NAMES) for what in lists}
    for name in NAMES:
        assert family(name).name == relay_facts(name).name == builtin_profiles()[name].family == name


def profile_of(name: FamilyName) -> Profile:
    return Profile(name=name, family=name)


def ask(*parts: Part) -> Request:
    return Request(model="m", messages=(Message("user", parts or (Text("hi"),)),))


def sent(found: Family, request: Request, profile: Profile) -> Request:
    """The request as a server reads it."""
    call = found.encode_request(request, profile)
    return found.decode_request(call.body, call.path)


@each_family
def test_tools_go_where_they_are_forbidden_in_no_other_way(name: FamilyName) -> None:
    """`tool_choice_none = "drop_tools"`: no tools and no choice are sent (promise end:forced-answer leaves it to the row)."""
    profile = msgspec.structs.replace(profile_of(name), tool_choice_none="drop_tools")
    request = msgspec.structs.replace(ask(), tools=(ToolSpec(name="t"),), tool_choice="none")
    assert sent(family(name), request, profile).tools == ()


@each_family
def test_server_side_tools_of_another_family_are_no_functions(name: FamilyName) -> None:
    foreign = ToolSpec(name="their_search", opaque=Opaque("another", '{"type":"their_search"}'))
    request = msgspec.structs.replace(ask(), tools=(foreign, ToolSpec(name="t", description="d")))
    assert [tool.name for tool in sent(family(name), request, profile_of(name)).tools] == ["t"]


@each_family
@each("means", ["json_object", "none"])
def test_the_schema_is_told_in_words_where_there_is_no_field_for_it(name: FamilyName, means: str) -> None:
    """The model cannot fit a schema that nobody showed it."""
    profile = msgspec.convert({"name": name, "family": name, "output": means}, Profile)
    request = msgspec.structs.replace(ask(), system=(Text("Be brief."),), output=OutputSchema(schema=SCHEMA))
    system = sent(family(name), request, profile).system
    told = ["Be brief.", f"Answer with JSON only, an object that fits this JSON Schema:\n{SCHEMA}"]
    assert "\n\n".join([text.text for text in system]) == "\n\n".join(told)


@each_family
def test_a_file_that_the_endpoint_does_not_take_is_named_in_its_place(name: FamilyName) -> None:
    profile = msgspec.structs.replace(profile_of(name), files="images")
    message = sent(family(name), ask(Text("read"), PDF), profile).messages[0]
    texts = [part.text for part in message.parts if isinstance(part, Text)]
    assert "\n\n".join(texts) == f"read\n\n{LEFT_OUT.text}" and len(texts) == len(message.parts)


@each_family
def test_a_file_in_a_result_that_the_endpoint_does_not_take_is_named_too(name: FamilyName) -> None:
    profile = msgspec.structs.replace(profile_of(name), files="none")
    result = ToolResult(call_id="c", name="t", content=(PDF,))
    request = Request(model="m", messages=(Message("tool", (result,)),))
    body = family(name).encode_request(request, profile).body
    assert json.dumps(LEFT_OUT.text).encode() in body and b"JVBERg" not in body


@each_family
@pytest.mark.promise("step:history-healed")
@each(
    "parts",
    [(PDF,), (Reasoning("hm"), PDF), (Reasoning("hm"), FOREIGN, PDF)],
    ids=["alone", "with reasoning", "with an item of no known family"],
)
def test_an_assistant_who_gave_nothing_but_a_file_has_said_something(name: FamilyName, parts: tuple[Part, ...]) -> None:
    """An imported history may be no more than that: without words in its place Responses and Anthropic got no message at all,
    which strict servers refuse. Beside a text the file goes, as before."""
    body = (
        family(name).encode_request(Request(model="m", messages=(Message("assistant", parts),)), profile_of(name)).body
    )
    assert LEFT_OUT.text.encode() in body or b"JVBERg" in body
    if name == "openai_responses":
        strict.check(name, body=parse(body), rules=strict.ModelRules(prefill=True))
    more = Request(model="m", messages=(Message("assistant", (Text("Here it is."), *parts)),))
    assert LEFT_OUT.text.encode() not in family(name).encode_request(more, profile_of(name)).body


@each_family
def test_the_profiles_output_limit_stands_where_the_request_names_none(name: FamilyName) -> None:
    profile = msgspec.structs.replace(profile_of(name), default_max_tokens=777)
    assert sent(family(name), ask(), profile).settings.max_output_tokens == 777


@each_family
def test_a_key_that_the_provider_repeats_is_hidden(name: FamilyName) -> None:
    """No secret in an error: OpenAI's 401 quotes the key (recorded), and gateways pass it on in any family."""
    text = "Incorrect API key provided: sk-fake-0123456789. Get one."
    fault = family(name).decode_fault(401, {}, json.dumps({"error": {"message": text}}).encode())
    assert fault.message == "Incorrect API key provided: [redacted]. Get one."


@each_family
def test_the_wait_is_read_from_headers_and_from_words(name: FamilyName) -> None:
    body = json.dumps({"error": {"message": "Slow down. Please try again in 1m2.5s."}}).encode()
    decode = family(name).decode_fault
    assert decode(429, {}, body).retry_after_s == 62.5
    assert decode(429, {"retry-after": "7"}, body).retry_after_s == 7
    assert decode(429, {"retry-after": "7", "retry-after-ms": "250"}, body).retry_after_s == 0.25
    assert decode(429, {"retry-after": "Fri, 31 Dec 1999 23:59:59 GMT"}, b"").retry_after_s is None


@pytest.mark.parametrize("name", [name for name in NAMES if relay_facts(name).has_door])
def test_opaque_json_with_line_breaks_stays_one_event(name: FamilyName) -> None:
    """Whatever the opaque data looks like, each event of the stream is one line of JSON."""
    kinds = {"openai_chat": "executed_tools"}
    item = ProviderItem(name, kinds.get(name, "thing"), '{\n  "type": "thing",\r\n  "id": "x"\n}')
    encoder = family(name).stream_encoder(ask())
    frames = (Started(id="r", model="m"), PartDone("0", item))
    stream = b"".join([encoder.encode(frame) for frame in frames] + [encoder.finish()])
    events = [event.data for event in SseParser().feed(stream) if event.data != b"[DONE]"]
    assert any('"thing"' in event.decode() for event in events)
    assert all(isinstance(json.loads(event), dict) for event in events)


def test_a_usage_object_of_anthropic_is_not_passed_off_as_one_of_responses() -> None:
    """Both have `input_tokens`, and Anthropic's leaves out what came from the cache."""
    theirs = '{"input_tokens":1,"output_tokens":2,"cache_read_input_tokens":9}'
    encoder = family("openai_responses").stream_encoder(ask())
    usage = Usage(input_tokens=10, output_tokens=2, cache_read_tokens=9, provider=theirs)
    stream = encoder.encode(Started(id="r")) + encoder.encode(UsageReported(usage)) + encoder.finish()
    last = json.loads(SseParser().feed(stream)[-1].data)
    assert last["response"]["usage"]["input_tokens"] == 10


@each_family
def test_half_a_character_in_a_text_becomes_a_replacement_character(name: FamilyName) -> None:
    """Models write them and tools read them; no JSON can hold one, and raising here would end the turn."""
    half, odd = "a\ud800b", "a\ufffdb"
    call = ToolCall(id="c", name="t", arguments='{"a":"b"}')
    request = Request(
        model="m",
        system=(Text(half),),
        messages=(
            Message("user", (Text(half),)),
            Message("assistant", (Text(half), call)),
            Message("tool", (ToolResult(call_id="c", name="t", content=(Text(half),)),)),
        ),
        tools=(ToolSpec(name="t", description=half),),
    )
    found = sent(family(name), request, profile_of(name))
    texts = [part for message in found.messages for part in message.parts if isinstance(part, Text | ToolResult)]
    assert found.system[0].text == found.tools[0].description == odd
    assert [part.text if isinstance(part, Text) else part.content for part in texts] == [odd, odd, (Text(odd),)]


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("openai_chat", {"max_completion_tokens": 500, "max_tokens": "x"}),
        ("openai_chat", {"max_completion_tokens": 500, "max_tokens": True}),
        ("anthropic_messages", {"max_tokens": 5, "tools": [{"type": ["x"], "name": "t", "input_schema": {}}]}),
    ],
)
def test_a_body_that_could_not_be_written_again_is_a_bad_request(name: str, body: dict[str, object]) -> None:
    """What is accepted here would be refused after the next encoding, far from who wrote it."""
    whole = {"model": "m", "messages": [{"role": "user", "content": "hi"}], **body}
    with pytest.raises(BadRequest):
        family(name).decode_request(json.dumps(whole).encode(), "/v1/messages")
