"""Answers of the Gemini API, streamed and not: every quirk that was seen, and the SDK as the judge of what we write."""

import base64
import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from google.genai.types import GenerateContentResponse
from hypothesis import given
from hypothesis import strategies as st

import recordings
from turnwise.testing.wire_conformance import (
    assemble,
    check_endless_line,
    check_every_split,
    check_foreign_answer_is_a_protocol_fault,
    check_foreign_bytes_never_raise,
    check_long_response,
    check_response_round_trip,
    decode_stream,
    encode_stream,
    frames_of,
)
from turnwise.vocab import (
    ArgumentsState,
    BlockData,
    BlockEnded,
    Citation,
    Fault,
    Faulted,
    FaultKind,
    File,
    Finished,
    FinishReason,
    Frame,
    Mended,
    Message,
    Opaque,
    Part,
    PartDone,
    ProviderItem,
    Reasoning,
    ReasoningDelta,
    Refusal,
    Request,
    Response,
    Started,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    Usage,
    UsageReported,
    calls_of,
    text_of,
)
from turnwise.wire.gemini import FAMILY, array_stream_encoder
from turnwise.wire.gemini.chunks import PartialArg
from turnwise.wire.gemini.framing import ArraySplitter
from turnwise.wire.gemini.partial_arguments import BEGIN, PartialArguments, read_path
from turnwise.wire.limits import DEFAULT_LIMITS, Limits
from turnwise.wire.profiles import Profile

NAME = "gemini"
PROFILE = Profile(name="test", family="gemini")
REQUEST = Request(model="gemini-3", messages=(Message("user", (Text("hi"),)),))


def chunk(*parts: dict[str, Any], finish: str | int | None = None, **fields: Any) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"parts": list(parts), "role": "model"}, "index": 0}
    if finish is not None:
        candidate["finishReason"] = finish
    candidate |= fields.pop("candidate", {})
    return {"candidates": [candidate], "modelVersion": "gemini-3", "responseId": "r1", **fields}


def sse(*chunks: dict[str, Any]) -> bytes:
    return b"".join([b"data: " + json.dumps(each, ensure_ascii=False).encode() + b"\r\n\r\n" for each in chunks])


def array(*chunks: dict[str, Any]) -> bytes:
    """As the API writes it without `alt=sse`: an indented array, each element after a comma of its own line."""
    return (
        "[" + "\n,\r\n".join([json.dumps(each, ensure_ascii=False, indent=2) for each in chunks]) + "\n]\n"
    ).encode()


def frames_from(*chunks: dict[str, Any]) -> list[Frame]:
    return decode_stream(FAMILY, [sse(*chunks)], profile=PROFILE)


def response_from(*chunks: dict[str, Any]) -> Response:
    return assemble(frames_from(*chunks))


def call(name: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"functionCall": ({"name": name} if name else {}) | fields}


def piece(path: str, *, more: bool = False, **value: Any) -> dict[str, Any]:
    return {"jsonPath": path, **value} | ({"willContinue": True} if more else {})


def own(**fields: Any) -> Opaque:
    return Opaque(NAME, msgspec.json.encode(fields).decode())


USAGE = {
    "promptTokenCount": 10,
    "toolUsePromptTokenCount": 4,
    "cachedContentTokenCount": 3,
    "candidatesTokenCount": 6,
    "thoughtsTokenCount": 5,
    "totalTokenCount": 25,
}
COUNTED = Usage(
    input_tokens=14,
    output_tokens=11,
    reasoning_tokens=5,
    cache_read_tokens=3,
    provider=msgspec.json.encode(USAGE).decode(),
)
WHOLE = (
    chunk({"text": "Größe", "thought": True}, usageMetadata={"promptTokenCount": 10}),
    chunk({"text": "Let me \u2028 look "}, usageMetadata={"promptTokenCount": 10, "candidatesTokenCount": 2}),
    chunk({"text": '"👋" {\\'}, {"text": ""}),
    chunk({**call("read", args={"path": "a.txt"}, id="c1"), "thoughtSignature": "sig"}),
    chunk(call("read", args={"path": "b.txt"})),
    chunk({"text": "", "thoughtSignature": "end"}, finish="STOP", usageMetadata=USAGE),
)


@pytest.mark.promise("assembly:kinds", "assembly:order", "assembly:id-missing")
def test_a_whole_answer_becomes_frames() -> None:
    """Plain texts join, a signature stays on the very part it came on, STOP with calls is tool_calls, usage counts our way."""
    response = response_from(*WHOLE)
    assert msgspec.structs.replace(response, repairs=()) == Response(
        message=Message(
            "assistant",
            (
                Reasoning("Größe"),
                Text('Let me \u2028 look "👋" {\\'),
                ToolCall(id="c1", name="read", arguments='{"path":"a.txt"}', opaque=own(thoughtSignature="sig")),
                ToolCall(id="call_1", name="read", arguments='{"path":"b.txt"}'),
                Text("", opaque=own(thoughtSignature="end")),
            ),
        ),
        finish=FinishReason.TOOL_CALLS,
        provider_finish="STOP",
        usage=COUNTED,
        id="r1",
        model="gemini-3",
    )
    assert [repair.kind for repair in response.repairs] == ["id_missing"]


@pytest.mark.promise("assembly:split-anywhere")
def test_the_network_may_cut_anywhere() -> None:
    """Every two pieces and byte by byte, as events and as an array; a BOM, comments and a missing end change nothing."""
    check_every_split(FAMILY, sse(*WHOLE), profile=PROFILE)
    check_every_split(FAMILY, array(*WHOLE), profile=PROFILE)
    events = assemble(decode_stream(FAMILY, [sse(*WHOLE)], profile=PROFILE))
    for stream in (
        b"\xef\xbb\xbf: hello\r\n\r\n" + sse(*WHOLE).rstrip(b"\r\n"),
        sse(*WHOLE).replace(b"\r\n", b"\n") + b"data: [DONE]\n\n",
        b"\xef\xbb\xbf \r\n" + array(*WHOLE),
        array(*WHOLE).rstrip(b"\n]"),
    ):
        assert assemble(decode_stream(FAMILY, [stream], profile=PROFILE)) == events


@pytest.mark.promise("assembly:bounded")
def test_the_array_is_split_in_linear_time() -> None:
    """One element of 200 KB in pieces of 7 bytes: each byte is held once, and brackets inside strings mean nothing."""
    text = json.dumps({"a": '}]"\\[{' * 30_000, "b": [{"c": {}}]}).encode()
    stream = b"[" + text + b"," + text + b"]"
    splitter = ArraySplitter(limits=DEFAULT_LIMITS)
    found = [each for i in range(0, len(stream), 7) for each in splitter.feed(stream[i : i + 7])]
    assert found == [text, text]
    assert splitter.finish() == []


@given(st.lists(st.recursive(st.text() | st.integers(), st.lists), min_size=1, max_size=4), st.integers(1, 9))
def test_any_array_of_objects_is_split_rightly(values: list[Any], size: int) -> None:
    """Strings full of quotes, backslashes and brackets, in pieces of any size."""
    objects = [json.dumps({"v": value, "w": {"x": value}}, ensure_ascii=False).encode() for value in values]
    stream = b"[" + b",\r\n".join(objects) + b"]"
    splitter = ArraySplitter(limits=DEFAULT_LIMITS)
    assert [each for i in range(0, len(stream), size) for each in splitter.feed(stream[i : i + size])] == objects


# Calls


def test_a_call_without_args_has_an_empty_object() -> None:
    """The API leaves `args` out where there are none."""
    assert calls_of(response_from(chunk(call("now", id="a"), finish="STOP")).message) == (
        ToolCall(id="a", name="now", arguments="{}"),
    )


@pytest.mark.promise("cut:never-run")
def test_the_last_call_of_a_response_cut_by_its_limit_is_cut() -> None:
    """It is handed out as an object, which may hold just the keys that happened to arrive."""
    calls = calls_of(
        response_from(chunk(call("a", args={"x": 1}), call("b", args={"x": 1}), finish="MAX_TOKENS")).message
    )
    assert [each.state for each in calls] == [ArgumentsState.COMPLETE, ArgumentsState.TRUNCATED]


STREAMED = (
    chunk({**call("write", willContinue=True), "thoughtSignature": "sig"}),
    chunk(call(partialArgs=[piece("$.path", stringValue='a"', more=True)], willContinue=True)),
    chunk(call(partialArgs=[piece("$.path", stringValue="b.txt", more=True)], willContinue=True)),
    chunk(call(partialArgs=[piece("$.path", stringValue="")], willContinue=True)),
    chunk(call(partialArgs=[piece("$.edits[0].line", numberValue=2)], willContinue=True)),
    chunk(
        call(partialArgs=[piece("$.edits[0].all", boolValue=True), piece("$.edits[1]['a b']", nullValue="NULL_VALUE")])
    ),
    chunk({"text": ""}, finish="STOP"),
)


@pytest.mark.promise("assembly:split-anywhere", "assembly:object-args")
def test_arguments_streamed_value_by_value_are_one_object() -> None:
    """Paths, pieces of strings, numbers, true, null; shown while they come, as text that only ever grows."""
    frames = frames_from(*STREAMED)
    deltas = [frame.arguments for frame in frames if isinstance(frame, ToolCallDelta)]
    assert deltas == [
        "{",
        '"path":"a\\"',
        "b.txt",
        '","edits":[{"line":2',
        ',"all":true},{"a b":null',
        "}]}",
    ]
    [made] = calls_of(assemble(frames).message)
    assert json.loads(made.arguments) == {"path": 'a"b.txt', "edits": [{"line": 2, "all": True}, {"a b": None}]}
    assert (made.state, made.opaque) == (ArgumentsState.COMPLETE, own(thoughtSignature="sig"))


@pytest.mark.promise("cut:never-run")
@pytest.mark.parametrize("kept", range(1, 6))
@pytest.mark.parametrize("finish", ["MAX_TOKENS", "STOP", None])
def test_streamed_arguments_that_stop_early_are_cut(kept: int, finish: str | None) -> None:
    """Wherever the pieces stop: the object is never closed by us, so no parser takes it for whole."""
    end = [chunk({"text": ""}, finish=finish)] if finish else []
    [made] = calls_of(response_from(*STREAMED[:kept], *end).message)
    assert made.state is ArgumentsState.TRUNCATED


@pytest.mark.parametrize(
    "pieces",
    [
        [piece("$.x", stringValue="a", more=True)],  # more was announced
        [piece("x", stringValue="a")],
        [piece("$", stringValue="a")],
        [piece("$[0]", stringValue="a")],
        [piece("$.a[1]", numberValue=1)],
        [piece("$.a", numberValue=1), piece("$.a.b", numberValue=1)],
        [piece("$.a.b", numberValue=1), piece("$.a", numberValue=1)],
        [piece("$.a[0]", numberValue=1), piece("$.b", numberValue=1), piece("$.a.c", numberValue=1)],
        [piece("$.a", numberValue="NaN")],
        [piece("$.a")],
        [piece("$" + ".a" * 200, numberValue=1)],
        [piece("$.a[999999999]", numberValue=1)],
    ],
)
def test_pieces_that_make_no_object_leave_the_call_cut(pieces: list[dict[str, Any]]) -> None:
    """It was closed by the provider, but what it holds is not known: it must not run."""
    response = response_from(chunk(call("write", partialArgs=pieces), finish="STOP"))
    [made] = calls_of(response.message)
    assert made.state is ArgumentsState.TRUNCATED
    assert "unreadable_argument" in [repair.kind for repair in response.repairs]


def test_pieces_out_of_order_are_put_together_at_the_end() -> None:
    """A path that was left comes again; a string on the same path goes on where it stopped."""
    pieces = [
        piece("$.a.x", stringValue="one", more=True),
        piece("$.b", numberValue=1),
        piece("$.a.x", stringValue=" two"),
        piece("$.a.y", boolValue=False),
        piece("$.b", numberValue=2),
    ]
    [made] = calls_of(response_from(chunk(call("write", partialArgs=pieces), finish="STOP")).message)
    assert (json.loads(made.arguments), made.state) == (
        {"a": {"x": "one two", "y": False}, "b": 2},
        ArgumentsState.COMPLETE,
    )


@pytest.mark.promise("assembly:id-every-chunk")
def test_pieces_with_the_name_and_id_of_the_running_call_go_on_with_it() -> None:
    """Named in every chunk, it is one call; another name begins another, and the first stays cut."""
    first = call("write", id="a", partialArgs=[piece("$.x", stringValue="1")], willContinue=True)
    again = call("write", id="a", partialArgs=[piece("$.y", stringValue="2")])
    assert [each.arguments for each in calls_of(response_from(chunk(first), chunk(again)).message)] == [
        '{"x":"1","y":"2"}'
    ]
    other = call("write", id="b", args={})
    states = [each.state for each in calls_of(response_from(chunk(first), chunk(other), chunk(finish="STOP")).message)]
    assert states == [ArgumentsState.TRUNCATED, ArgumentsState.COMPLETE]


VALUES = st.recursive(
    st.text(max_size=5) | st.integers(-9, 9) | st.booleans() | st.none(),
    lambda below: (
        st.lists(below, min_size=1, max_size=3) | st.dictionaries(st.text(max_size=3), below, min_size=1, max_size=3)
    ),
    max_leaves=8,
)


def paths_of(value: Any, path: str) -> list[tuple[str, Any]]:
    """A value as the API would stream it: leaves with their paths, in document order."""
    if isinstance(value, dict):
        return [leaf for key, below in value.items() for leaf in paths_of(below, f"{path}[{quoted(key)}]")]
    if isinstance(value, list):
        return [leaf for i, below in enumerate(value) for leaf in paths_of(below, f"{path}[{i}]")]
    return [(path, value)]


def quoted(key: str) -> str:
    return "'" + key.replace("\\", "\\\\").replace("'", "\\'") + "'"


@given(st.dictionaries(st.text(max_size=3), VALUES, min_size=1, max_size=4), st.randoms())
def test_any_object_comes_back_from_its_pieces(value: dict[str, Any], random: Any) -> None:
    """In document order the text grows; shuffled, the whole is the same object as far as arrays keep their order."""
    leaves = paths_of(value, "$")
    collected = PartialArguments()
    text = "".join([collected.add(argument(path, leaf)) for path, leaf in leaves])
    assert not collected.reordered
    assert json.loads(BEGIN + text + (collected.end() or "")) == value
    random.shuffle(leaves)
    collected = PartialArguments()
    text = "".join([collected.add(argument(path, leaf)) for path, leaf in leaves])
    end = collected.end()
    assert end is not None
    assert json.loads(end if collected.reordered else BEGIN + text + end) == value


def argument(path: str, leaf: Any) -> PartialArg:
    match leaf:
        case str():
            return PartialArg(json_path=path, string_value=leaf)
        case bool():
            return PartialArg(json_path=path, bool_value=leaf)
        case None:
            return PartialArg(json_path=path, null_value=msgspec.Raw(b'"NULL_VALUE"'))
        case _:
            return PartialArg(json_path=path, number_value=msgspec.Raw(str(leaf).encode()))


def test_paths_are_read_as_the_rfc_writes_them() -> None:
    """RFC 9535: shorthand and bracketed names, indices; anything else is no path."""
    assert read_path("$.a.b_c[0]['d e'][\"f'\"]['g\\'']") == ("a", "b_c", 0, "d e", "f'", "g'")
    assert [read_path(text) for text in ("", "a", "$..a", "$.a[*]", "$.a[-1]", "$.a[")] == [()] * 6


# Other parts


@pytest.mark.promise("assembly:kinds")
def test_other_parts_keep_their_place() -> None:
    """Code that ran, files, calls of the server's own tools: verbatim, in order, with their signature."""
    code = {"executableCode": {"language": "PYTHON", "code": "print(1)"}, "thoughtSignature": "s"}
    result = {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1\n"}}
    image = {"inlineData": {"mimeType": "image/png", "data": "_-8="}, "thoughtSignature": "t"}
    broken = {"inlineData": {"mimeType": "image/png", "data": "...[elided]"}}
    link = {"fileData": {"mimeType": "video/mp4", "fileUri": "https://example.com/v.mp4"}}
    served = {"toolCall": {"toolType": "GOOGLE_SEARCH_WEB", "id": "x"}}
    parts = response_from(
        chunk({"text": "a"}), chunk(code, result), chunk({"text": "b"}, image, broken, link, served, finish="STOP")
    ).message.parts
    assert parts == (
        Text("a"),
        ProviderItem(NAME, "executableCode", msgspec.json.encode(code).decode()),
        ProviderItem(NAME, "codeExecutionResult", msgspec.json.encode(result).decode()),
        Text("b"),
        File(media_type="image/png", data=b"\xff\xef", opaque=own(thoughtSignature="t")),
        ProviderItem(NAME, "inlineData", msgspec.json.encode(broken).decode()),
        File(media_type="video/mp4", url="https://example.com/v.mp4"),
        ProviderItem(NAME, "toolCall", msgspec.json.encode(served).decode()),
    )


@pytest.mark.promise("assembly:kinds")
def test_signed_texts_are_parts_of_their_own() -> None:
    """Merging a signed part with another would break its signature; fields that we do not know stay with it too."""
    parts = response_from(
        chunk({"text": "think", "thought": True}),
        chunk({"text": "ing", "thought": True, "thoughtSignature": "1"}),
        chunk({"text": "an"}, {"text": "sw", "thoughtSignature": "2"}, {"text": "er"}),
        chunk({"text": "!", "thought": False}, {"text": "x", "partMetadata": {"k": 1}}, {"thoughtSignature": "3"}),
    ).message.parts
    assert parts == (
        Reasoning("think"),
        Reasoning("ing", own(thoughtSignature="1")),
        Text("an"),
        Text("sw", opaque=own(thoughtSignature="2")),
        Text("er!"),
        Text("x", opaque=own(partMetadata={"k": 1})),
        Text("", opaque=own(thoughtSignature="3")),
    )


@pytest.mark.promise("assembly:kinds")
def test_sources_become_citations_and_go_back() -> None:
    """Grounding with its supports, quoted texts, pages that were read; each once, on the last text."""
    web = {"web": {"uri": "https://a.example", "title": "A"}}
    kept = {"retrievedContext": {"text": "passage", "fileSearchStore": "s"}}
    supports = [
        {"segment": {"endIndex": 3, "text": "abc"}, "groundingChunkIndices": [0, 1]},
        {"segment": {"startIndex": 3, "endIndex": 4}, "groundingChunkIndices": [1]},
    ]
    about = {
        "groundingMetadata": {"groundingChunks": [web, kept], "groundingSupports": supports, "webSearchQueries": ["q"]},
        "citationMetadata": {"citationSources": [{"startIndex": 1, "endIndex": 2, "uri": "https://b.example"}]},
    }
    page = {"retrievedUrl": "https://c.example", "urlRetrievalStatus": "URL_RETRIEVAL_STATUS_SUCCESS"}
    response = response_from(
        chunk({"text": "abc"}, candidate={"urlContextMetadata": {"urlMetadata": [page]}, "groundingMetadata": {}}),
        chunk({"text": "d"}, finish="STOP", candidate=about),
    )
    [text] = response.message.parts
    assert isinstance(text, Text)
    assert [(each.url, each.title, each.cited_text) for each in text.citations] == [
        ("https://c.example", None, None),
        ("https://a.example", "A", None),
        (None, None, "passage"),
        ("https://b.example", None, None),
    ]
    body = json.loads(FAMILY.encode_body(response, REQUEST))["candidates"][0]
    assert body["groundingMetadata"] == {"groundingChunks": [web, kept], "groundingSupports": supports}
    assert body["citationMetadata"] == about["citationMetadata"]
    assert body["urlContextMetadata"] == {"urlMetadata": [page]}


# Ends


@pytest.mark.parametrize(("word", "reason"), FAMILY.finish_reasons.items())
def test_every_finish_word_is_ours(word: str, reason: FinishReason) -> None:
    """The table of Gemini's words, as data; the provider's word is kept."""
    given = int(word) if word.isdigit() else word
    response = response_from(chunk({"text": "x"}, finish=given, candidate={"finishMessage": "why"}))
    assert (response.finish, response.provider_finish, response.explanation) == (reason, word, "why")


def test_an_unknown_finish_word_is_an_error_and_kept() -> None:
    """New words have so far meant blocks or failures."""
    response = response_from(chunk({"text": "x"}, finish="NEW_WORD"))
    assert (response.finish, response.provider_finish) == (FinishReason.ERROR, "NEW_WORD")


def test_a_refused_prompt_has_no_candidates() -> None:
    """`promptFeedback` says why; encoded again it is one."""
    feedback = {"blockReason": "PROHIBITED_CONTENT", "blockReasonMessage": "no"}
    response = response_from({"promptFeedback": feedback, "usageMetadata": USAGE, "modelVersion": "gemini-3"})
    assert response == Response(
        message=Message("assistant", ()),
        finish=FinishReason.CONTENT_FILTER,
        provider_finish="PROHIBITED_CONTENT",
        explanation="no",
        usage=COUNTED,
        model="gemini-3",
    )
    assert json.loads(FAMILY.encode_body(response, REQUEST))["promptFeedback"] == feedback


@pytest.mark.promise("assembly:late-args", "assembly:no-done")
def test_what_comes_after_the_finish_still_counts() -> None:
    """A call after the finish word, usage once more; repeated finish words are one."""
    response = response_from(
        chunk({"text": "a"}, finish="STOP", usageMetadata={"promptTokenCount": 1}),
        chunk(call("late", args={}, id="c"), finish="STOP"),
        {"usageMetadata": USAGE},
    )
    assert response.finish is FinishReason.TOOL_CALLS
    assert [each.name for each in calls_of(response.message)] == ["late"]
    assert response.usage == COUNTED


def test_usage_without_counts_says_nothing() -> None:
    """Vertex sends the traffic type alone in all chunks but the last; a stream cut before that one has no usage."""
    assert response_from(chunk({"text": "a"}, usageMetadata={"trafficType": "ON_DEMAND"})).usage is None


def test_only_the_first_of_several_candidates_counts() -> None:
    """As the corpus's README says."""
    both = chunk({"text": "first"}, finish="STOP")
    both["candidates"].append({"index": 1, "content": {"parts": [{"text": "second"}]}, "finishReason": "MAX_TOKENS"})
    assert (text_of(response_from(both).message), response_from(both).finish) == ("first", FinishReason.STOP)


# Trouble

ERROR = {"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}}


@pytest.mark.parametrize(
    "error", [sse(ERROR), b"data: [" + json.dumps(ERROR).encode() + b"]\n\n", json.dumps([ERROR]).encode()]
)
def test_an_error_inside_a_stream_is_a_fault(error: bytes) -> None:
    """As an event, as an array of one inside an event, as the whole answer; what came before is kept."""
    fault = Fault(kind=FaultKind.OVERLOADED, message="The model is overloaded.", status=503, code="UNAVAILABLE")
    assert assemble(decode_stream(FAMILY, [error], profile=PROFILE)).fault == fault
    if error.startswith(b"data"):
        response = assemble(decode_stream(FAMILY, [sse(chunk({"text": "half"})), error], profile=PROFILE))
        assert (text_of(response.message), response.fault, response.finish) == ("half", fault, FinishReason.ERROR)


@pytest.mark.parametrize(
    ("text", "kinds", "expected"),
    [
        (sse(chunk({"text": "a\ufffe"})).replace("\ufffe".encode(), b"\xff"), ["invalid_utf8"], "a\ufffd"),
        (sse(chunk({"text": "aXb"})).replace(b"X", b"\\ud83d"), ["lone_surrogate"], "a\ufffdb"),
        (sse(chunk({"text": "aXb"})).replace(b"X", b"\\ud83d\\udc4b"), [], "a👋b"),
        (b"data: " + json.dumps(chunk({"text": "a"})).encode() * 2 + b"\n\n", ["glued_json"], "aa"),
        (sse(chunk({"text": "a"})) + b"data: nonsense\n\n" + sse(chunk({"text": "b"})), ["undecodable_chunk"], "ab"),
        (sse(chunk({"text": "a"}), {"candidates": 5}, chunk({"text": "b"})), ["undecodable_chunk"], "ab"),
        (sse(chunk({"text": "a"}, {"text": 5}, {"text": "b"})), ["undecodable_chunk"], "ab"),
        (sse(chunk({"text": "a"}))[:-10] + b"\r\n\r\n", ["undecodable_chunk"], None),
    ],
)
def test_broken_chunks_are_mended_or_passed_over(text: bytes, kinds: list[str], expected: str | None) -> None:
    """What can be read is read, and each repair is data."""
    frames = decode_stream(FAMILY, [text], profile=PROFILE)
    assert [frame.repair.kind for frame in frames if isinstance(frame, Mended)] == kinds
    if expected is None:
        assert [frame.fault.kind for frame in frames if isinstance(frame, Faulted)] == [FaultKind.PROTOCOL]
    else:
        assert text_of(assemble(frames).message) == expected


def test_nested_too_deeply_is_passed_over() -> None:
    """100,000 brackets neither crash nor hang."""
    deep = (
        b'data: {"candidates":[{"content":{"parts":[{"functionCall":{"name":"x","args":' + b'{"a":' * 100_000 + b"\n\n"
    )
    frames = decode_stream(FAMILY, [sse(chunk({"text": "a"})), deep], profile=PROFILE)
    assert [frame.repair.kind for frame in frames if isinstance(frame, Mended)] == ["undecodable_chunk"]


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        (b"<html><body>502 Bad Gateway</body></html>", "<html><body>502 Bad Gateway"),
        (b"", "empty"),
        (b"\r\n\r\n", "empty"),
        (b"[]", "[]"),
        (b'[{"ok":', '[{"ok":'),
        (b'{"ok":true}', '{"ok":true}'),
        (bytes(range(200, 256)) * 10, ""),
        (b'data: {"choices":[{"delta":{"content":"hi"}}]}\n\n', "choices"),
    ],
)
def test_a_foreign_answer_is_a_protocol_fault(answer: bytes, shown: str) -> None:
    """HTML, nothing, another family's stream: one fault that shows how it begins."""
    check_foreign_answer_is_a_protocol_fault(FAMILY, answer, profile=PROFILE, shown=shown)


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_foreign_bytes_never_raise(blob: bytes) -> None:
    """As a stream, a body, an error, a request; alone and behind the beginnings of each framing."""
    for begin in (b"", b"data: ", b"[", b'{"candidates":[', b'data: {"candidates":[{"content":{"parts":['):
        check_foreign_bytes_never_raise(FAMILY, begin + blob, profile=PROFILE)


@pytest.mark.promise("assembly:bounded")
@pytest.mark.parametrize("begin", [b"data: ", b"[{", b'[{"a":"'])
def test_a_line_without_end_is_refused(begin: bytes) -> None:
    """Lines of events and elements of arrays have the same limit."""
    check_endless_line(FAMILY, begin, profile=PROFILE)


@pytest.mark.promise("assembly:bounded")
def test_a_response_without_end_is_refused() -> None:
    """However small its chunks are."""
    check_long_response(FAMILY, sse(chunk({"text": "x"})), profile=PROFILE)
    limits = Limits(line_bytes=10_000, call_bytes=1000, response_bytes=100_000)
    frames = decode_stream(FAMILY, [b"[" + b"{}," * 40_000], profile=PROFILE, limits=limits)
    assert [frame.fault.kind for frame in frames if isinstance(frame, Faulted)] == [FaultKind.TOO_LARGE]


# Writing


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
OPAQUE = st.none() | TEXTS.map(lambda text: own(thoughtSignature=text))
OBJECTS = (
    st.dictionaries(TEXTS, TEXTS | st.integers(-5, 5) | st.none(), max_size=3)
    .map(msgspec.json.encode)
    .map(bytes.decode)
)
CALLS = st.builds(ToolCall, id=TEXTS, name=TEXTS, arguments=OBJECTS, opaque=OPAQUE)
ITEMS = st.sampled_from(
    [
        ProviderItem(NAME, "executableCode", '{"executableCode":{"language":"PYTHON","code":"1\\n"}}'),
        File(media_type="image/png", data=b"\x89PNG"),
        File(media_type="image/png", file_id="files/abc", opaque=own(thoughtSignature="x")),
    ]
)
PARTS = st.lists(TEXTS.map(Text) | TEXTS.map(Reasoning) | CALLS | ITEMS, max_size=5).map(tuple)
SIGNED = st.lists(
    st.builds(Text, TEXTS | st.just(""), opaque=OPAQUE) | st.builds(Reasoning, TEXTS, opaque=OPAQUE), max_size=5
)
ENDS = st.sampled_from([FinishReason.STOP, FinishReason.LENGTH, FinishReason.CONTENT_FILTER, FinishReason.ERROR])
USAGES = st.builds(
    lambda prompt, output, reasoning, cached: Usage(
        input_tokens=prompt + cached,
        output_tokens=output + reasoning,
        reasoning_tokens=reasoning,
        cache_read_tokens=cached,
    ),
    *[st.integers(0, 99)] * 4,
)


def merged(parts: Sequence[Part]) -> tuple[Part, ...]:
    """The loss that every test here meets: plain texts that follow each other are one."""
    found: list[Part] = []
    for part in parts:
        last = found[-1] if found else None
        if isinstance(part, Text | Reasoning) and part.opaque is None and not part.text:
            continue
        if (
            isinstance(part, Text | Reasoning)
            and type(last) is type(part)
            and last.opaque is None
            and part.opaque is None
        ):
            found[-1] = type(part)(last.text + part.text)
        else:
            found.append(part)
    return tuple(found)


def expected_of(response: Response) -> Response:
    """The response less what the loss table names."""
    parts = merged(response.message.parts)
    calls = [part for part in parts if isinstance(part, ToolCall)]
    ids: dict[str, int] = {}
    for part in calls:
        ids[part.id] = ids.get(part.id, 0) + 1
    word = {FinishReason.STOP: "STOP", FinishReason.LENGTH: "MAX_TOKENS", FinishReason.CONTENT_FILTER: "SAFETY"}
    finish = FinishReason.TOOL_CALLS if calls and response.finish is FinishReason.STOP else response.finish
    usage = response.usage
    if usage is not None:
        counts = {
            "promptTokenCount": usage.input_tokens,
            "candidatesTokenCount": usage.output_tokens - usage.reasoning_tokens,
            "thoughtsTokenCount": usage.reasoning_tokens,
            "cachedContentTokenCount": usage.cache_read_tokens,
            "totalTokenCount": usage.input_tokens + usage.output_tokens,
        }
        kept = {key: n for key, n in counts.items() if n or not key.startswith(("thoughts", "cached"))}
        usage = msgspec.structs.replace(usage, provider=msgspec.json.encode(kept).decode())
    return msgspec.structs.replace(
        response,
        message=Message("assistant", parts),
        finish=finish,
        provider_finish=word.get(response.finish, "OTHER"),
        usage=usage,
    )


@given(PARTS, ENDS, st.none() | USAGES)
def test_responses_come_back_as_they_were(parts: tuple[Part, ...], finish: FinishReason, usage: Usage | None) -> None:
    """As a body and as a stream of small deltas; only the losses of the table are missing."""
    calls = [part for part in parts if isinstance(part, ToolCall)]
    if len({part.id for part in calls}) < len(calls) or (finish is FinishReason.LENGTH and calls):
        return  # the assembler renames and judges those
    response = Response(message=Message("assistant", parts), finish=finish, usage=usage, id="r", model="m")
    check_response_round_trip(FAMILY, response, profile=PROFILE, request=REQUEST, expected=expected_of(response))


@given(SIGNED)
def test_signed_texts_come_back_as_they_were(parts: list[Part]) -> None:
    """Where they are whole: in bodies, and as finished parts in streams."""
    response = Response(message=Message("assistant", tuple(parts)), finish=FinishReason.STOP, id="r", model="m")
    frames: list[Frame] = [Started("r", "m")]
    frames += [PartDone(f"p{i}", part) for i, part in enumerate(parts)]
    stream = encode_stream(FAMILY, [*frames, Finished(FinishReason.STOP)], request=REQUEST)
    expected = expected_of(response)
    assert assemble(decode_stream(FAMILY, [stream], profile=PROFILE)) == expected
    body = FAMILY.encode_body(response, REQUEST)
    assert assemble(FAMILY.decode_body(body, PROFILE, DEFAULT_LIMITS)) == expected


def test_a_signature_that_comes_after_its_text_follows_in_an_empty_part() -> None:
    """The text is on its way already; the API itself ends its texts so."""
    frames = [
        TextDelta("a", "t"),
        BlockData("t", own(thoughtSignature="1")),
        ReasoningDelta("b", "r"),
        BlockData("r", own(thoughtSignature="2")),
        BlockData("r", Opaque("openai_responses", '{"id":"rs"}')),
        Finished(FinishReason.STOP),
    ]
    decoded = assemble(decode_stream(FAMILY, [encode_stream(FAMILY, frames, request=REQUEST)], profile=PROFILE))
    assert decoded.message.parts == (
        Text("a"),
        Text("", opaque=own(thoughtSignature="1")),
        Reasoning("b"),
        Reasoning("", own(thoughtSignature="2")),
    )


def test_losses_become_what_the_table_says() -> None:
    """Cut calls are left out, refusals are text, a pause is a stop, cache writes are part of the prompt."""
    parts = (
        Refusal("I will not."),
        ToolCall(id="a", name="cut", arguments='{"x": "', state=ArgumentsState.TRUNCATED),
        ProviderItem("anthropic_messages", "server_tool_use", "{}"),
        ToolCall(id="b", name="free", arguments="*** text", free_form=True),
    )
    response = Response(
        message=Message("assistant", parts),
        finish=FinishReason.PAUSE,
        provider_finish="pause_turn",
        usage=Usage(input_tokens=5, output_tokens=1, cache_write_tokens=2, provider='{"input_tokens":3}'),
    )
    stream = encode_stream(FAMILY, frames_of(response), request=REQUEST)
    for frames in (
        decode_stream(FAMILY, [stream], profile=PROFILE),
        FAMILY.decode_body(FAMILY.encode_body(response, REQUEST), PROFILE, DEFAULT_LIMITS),
    ):
        assert assemble(frames) == Response(
            message=Message(
                "assistant", (Text("I will not."), ToolCall(id="b", name="free", arguments='{"input":"*** text"}'))
            ),
            finish=FinishReason.TOOL_CALLS,
            provider_finish="STOP",
            usage=Usage(
                input_tokens=5,
                output_tokens=1,
                provider='{"promptTokenCount":5,"candidatesTokenCount":1,"totalTokenCount":6}',
            ),
            model="gemini-3",
        )


def test_calls_come_out_whole_and_in_the_order_in_which_they_began() -> None:
    """Interleaved pieces of parallel calls, one that never ends, and usage after the finish."""
    frames = [
        ToolCallDelta(block="1", id="a", name="x", arguments='{"p":'),
        ToolCallDelta(block="2", id="b", name="y", arguments="{"),
        ToolCallDelta(block="2", arguments="}", opaque=own(thoughtSignature="s")),
        BlockEnded("2"),
        ToolCallDelta(block="1", arguments="1}"),
        BlockEnded("1"),
        ToolCallDelta(block="3", id="c", name="z", arguments='{"cut'),
        Finished(FinishReason.LENGTH),
        UsageReported(COUNTED),
    ]
    stream = encode_stream(FAMILY, frames, request=REQUEST)
    written = [json.loads(line[6:]) for line in stream.decode().split("\r\n") if line]
    parts = [part for each in written for part in each["candidates"][0]["content"]["parts"]]
    assert parts == [
        {"functionCall": {"id": "a", "name": "x", "args": {"p": 1}}},
        {"functionCall": {"id": "b", "name": "y", "args": {}}, "thoughtSignature": "s"},
        {"text": ""},
    ]
    assert (written[-1]["candidates"][0]["finishReason"], written[-1]["usageMetadata"]) == ("MAX_TOKENS", USAGE)


def test_the_array_form_says_the_same_as_the_events() -> None:
    """A path without `alt=sse` is answered with a JSON array."""
    response = response_from(*WHOLE)
    encoder = array_stream_encoder(REQUEST)
    text = b"".join([encoder.encode(frame) for frame in frames_of(response)] + [encoder.finish()])
    assert len(json.loads(text)) > 3
    events = encode_stream(FAMILY, frames_of(response), request=REQUEST)
    assert decode_stream(FAMILY, [text], profile=PROFILE) == decode_stream(FAMILY, [events], profile=PROFILE)
    assert array_stream_encoder(REQUEST).finish() == b"[]"


# The SDK as the judge


def read_by_sdk(stream: bytes) -> list[GenerateContentResponse]:
    """Its types refuse unknown words with a warning, and warnings are errors here."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return [sdk_response(line[6:]) for line in stream.decode().split("\r\n") if line]


def sdk_response(text: str | bytes) -> GenerateContentResponse:
    """As its client does it: fields that its version does not know are passed over."""
    return GenerateContentResponse._from_response(response=json.loads(text), kwargs={})


@pytest.mark.promise("assembly:stream-equals-body")
def test_the_official_sdk_reads_what_we_write() -> None:
    """Stream and body of one answer, through google-genai's own types: text, thoughts, calls, signatures, usage, finish."""
    image = File(media_type="image/png", data=b"\x89PNG")
    signature = base64.b64encode(b"signature").decode()
    made = ToolCall(id="c", name="read", arguments='{"n": [1]}', opaque=own(thoughtSignature=signature))
    citation = Citation(family="anthropic_messages", raw="{}", url="https://a.example", title="A")
    parts = (Reasoning("hm"), Text("see", (citation,)), image, made)
    response = Response(
        message=Message("assistant", parts), finish=FinishReason.TOOL_CALLS, usage=COUNTED, id="r", model="gemini-3"
    )
    stream = read_by_sdk(encode_stream(FAMILY, frames_of(response), request=REQUEST))
    body = sdk_response(FAMILY.encode_body(response, REQUEST))
    for chunks in (stream, [body]):
        seen = [part for each in chunks for part in (each.parts or []) if part.text != ""]
        assert "".join([part.text for part in seen if part.thought and part.text]) == "hm"
        assert "".join([part.text for part in seen if not part.thought and part.text]) == "see"
        [blob] = [part.inline_data for part in seen if part.inline_data]
        assert (blob.mime_type, blob.data) == ("image/png", b"\x89PNG")
        [signed] = [part for part in seen if part.function_call]
        assert signed.thought_signature == b"signature"
        assert signed.function_call is not None
        assert (signed.function_call.id, signed.function_call.name, signed.function_call.args) == (
            "c",
            "read",
            {"n": [1]},
        )
        last = chunks[-1]
        assert last.candidates is not None
        assert last.usage_metadata is not None
        assert last.candidates[0].finish_reason == "STOP"
        assert last.candidates[0].grounding_metadata is not None
        assert (last.usage_metadata.prompt_token_count, last.usage_metadata.thoughts_token_count) == (10, 5)
        assert (last.response_id, last.model_version) == ("r", "gemini-3")


@pytest.mark.promise("assembly:stream-equals-body")
def test_recordings_written_again_say_the_same(corpus: Path) -> None:
    """Each recorded stream, decoded, encoded as a stream and as a body and decoded again, is the same response; the SDK
    reads each chunk of it."""
    count = 0
    for row in recordings.of_family(corpus, NAME):
        before = recordings.decode(row)
        stream = b""
        encoder = FAMILY.stream_encoder(REQUEST)
        for frame in decode_stream(FAMILY, [row.path.read_bytes()], profile=PROFILE):
            stream += encoder.encode(frame)
        stream += encoder.finish()
        body = FAMILY.encode_body(before, REQUEST)
        # A signature that was made up (the SDK insists on base64), and numbers for words (which it cannot read).
        if "thought_abc123" not in stream.decode() and before.provider_finish != "1":
            read_by_sdk(stream)
            sdk_response(body)
        for frames in (
            decode_stream(FAMILY, [stream], profile=PROFILE),
            FAMILY.decode_body(body, PROFILE, DEFAULT_LIMITS),
        ):
            after = assemble(frames)
            if before.provider_finish == "1":
                after = msgspec.structs.replace(after, provider_finish="1")
            assert recordings.differences(row, after) == recordings.differences(row, before), row.file
            assert after.usage == before.usage, row.file
            assert [each.arguments for each in calls_of(after.message)] == [
                each.arguments for each in calls_of(before.message)
            ], row.file
            opaque = [getattr(part, "opaque", None) for part in before.message.parts]
            assert [found for part in after.message.parts if (found := getattr(part, "opaque", None))] == [
                found for found in opaque if found
            ], row.file
        count += 1
    assert count == 185


def test_recordings_agree_with_the_sdk(corpus: Path) -> None:
    """What the manifest does not compare: response id, model, parts in their order, as google-genai's types see them."""
    for row in recordings.of_family(corpus, NAME):
        if row.file.endswith(".json") or "partialArgs" in row.path.read_text() or "live-speech" in row.file:
            continue
        if "thought_abc123" in row.path.read_text():
            continue
        lines = [line[5:] for line in row.path.read_text().split("\n") if line.startswith("data:")]
        chunks = [sdk_response(line) for line in lines]
        kinds: list[str] = []
        for each in chunks:
            for part in (
                (each.candidates[0].content.parts or []) if each.candidates and each.candidates[0].content else []
            ):
                signed = part.thought_signature is not None
                kind = "text" if part.text is not None else next(iter(part.model_fields_set - {"thought_signature"}))
                if part.text != "" or signed:
                    kind = f"{kind}{' thought' if part.thought else ''}{' signed' if signed else ''}"
                    if kind not in ("text", "text thought") or kinds[-1:] != [kind]:
                        kinds.append(kind)
        response = recordings.decode(row)
        assert [kind_of(part) for part in response.message.parts] == kinds, row.file
        assert (response.id, response.model) == (chunks[0].response_id, chunks[0].model_version)


def kind_of(part: Part) -> str:
    signed = " signed" if "thoughtSignature" in ((getattr(part, "opaque", None) or own()).json) else ""
    match part:
        case Text():
            return f"text{signed}"
        case Reasoning():
            return f"text thought{signed}"
        case ToolCall():
            return f"function_call{signed}"
        case ProviderItem(kind=kind, json=text):
            words = {"executableCode": "executable_code", "codeExecutionResult": "code_execution_result"}
            return words[kind] + (" signed" if "thoughtSignature" in text else "")
        case _:
            raise AssertionError(part)
