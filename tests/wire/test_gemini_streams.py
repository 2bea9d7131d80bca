"""Answers of the Gemini API, streamed and not: every quirk that was seen, and the SDK as the judge of what we write."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tables import each
from turnwise.testing.wire_conformance import (
    assemble,
    check_endless_line,
    check_every_split,
    check_foreign_answer_is_a_protocol_fault,
    check_foreign_bytes_never_raise,
    check_long_response,
    decode_stream,
)
from turnwise.vocab import (
    ArgumentsState,
    Fault,
    Faulted,
    FaultKind,
    File,
    FinishReason,
    Lost,
    Mended,
    Message,
    ProviderItem,
    Reasoning,
    Response,
    Text,
    ToolCall,
    ToolCallDelta,
    calls_of,
    text_of,
)
from turnwise.wire.gemini import FAMILY
from turnwise.wire.gemini.chunks import BEGIN, PartialArg, PartialArguments, read_path
from turnwise.wire.gemini.stream import ArraySplitter
from turnwise.wire.profiles import DEFAULT_LIMITS, Limits
from wire.gemini_streams import (
    COUNTED,
    NAME,
    PROFILE,
    REQUEST,
    USAGE,
    WHOLE,
    array,
    call,
    chunk,
    frames_from,
    own,
    piece,
    response_from,
    sse,
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
        may_hide_cut=("call_1",),
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
@each("kept", range(1, 6))
@each("finish", ["MAX_TOKENS", "STOP", None])
def test_streamed_arguments_that_stop_early_are_cut(kept: int, finish: str | None) -> None:
    """Wherever the pieces stop: the object is never closed by us, so no parser takes it for whole."""
    end = [chunk({"text": ""}, finish=finish)] if finish else []
    [made] = calls_of(response_from(*STREAMED[:kept], *end).message)
    assert made.state is ArgumentsState.TRUNCATED


@each(
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
def test_pieces_that_make_no_object_leave_the_call_lost(pieces: list[dict[str, Any]]) -> None:
    """The provider closed it, so a piece is missing or cannot be read: it must not run. A call beside it may."""
    other = call("read", id="r", args={"x": 1})
    response = response_from(chunk(other, call("write", id="w", partialArgs=pieces), finish="STOP"))
    assert [each.state for each in calls_of(response.message)] == [ArgumentsState.COMPLETE, ArgumentsState.LOST]
    assert response.lost
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
    """Named in every chunk, it is one call; another name begins another, and the first has lost its end."""
    first = call("write", id="a", partialArgs=[piece("$.x", stringValue="1")], willContinue=True)
    again = call("write", id="a", partialArgs=[piece("$.y", stringValue="2")])
    assert [each.arguments for each in calls_of(response_from(chunk(first), chunk(again)).message)] == [
        '{"x":"1","y":"2"}'
    ]
    other = call("write", id="b", args={})
    response = response_from(chunk(first), chunk(other), chunk(finish="STOP"))
    assert [each.state for each in calls_of(response.message)] == [ArgumentsState.LOST, ArgumentsState.COMPLETE]
    assert response.lost


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
@pytest.mark.parametrize(
    "about", ["documentMetadata", "spreadsheetMetadata", "audioMetadata", "speechMetadata", "audioTranscription"]
)
def test_a_file_is_one_whatever_stands_before_it(about: str) -> None:
    """google-genai 3.6: fields of `Part` that say something about its file. JSON has no order of keys."""
    image = {about: {"x": 1}, "inlineData": {"mimeType": "image/png", "data": "_-8="}}
    parts = response_from(chunk({"text": "a"}), chunk(image, finish="STOP")).message.parts
    assert parts == (Text("a"), File(media_type="image/png", data=b"\xff\xef", opaque=own(**{about: {"x": 1}})))


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


# By hand, from the `FinishReason` and `BlockedReason` of google-genai 3.6 and their numbers.
WORDS = {
    FinishReason.STOP: "STOP 1",
    FinishReason.LENGTH: "MAX_TOKENS CONTINUATION 2",
    FinishReason.CONTENT_FILTER: """SAFETY RECITATION LANGUAGE BLOCKLIST PROHIBITED_CONTENT SPII MODEL_ARMOR ESCALATION
        JAILBREAK IMAGE_SAFETY IMAGE_PROHIBITED_CONTENT IMAGE_RECITATION BLOCKED_REASON_UNSPECIFIED 3 4 6 7 8""",
    FinishReason.ERROR: """OTHER MALFORMED_FUNCTION_CALL MALFORMED_RESPONSE UNEXPECTED_TOOL_CALL TOO_MANY_TOOL_CALLS
        MISSING_THOUGHT_SIGNATURE PUP_LIMITED_DISABLED IMAGE_OTHER NO_IMAGE 5 9 10 11 12""",
    FinishReason.CUT: "FINISH_REASON_UNSPECIFIED 0",
}


def test_no_finish_word_is_untested() -> None:
    assert {word: reason for reason, words in WORDS.items() for word in words.split()} == FAMILY.finish_reasons


@each(("word", "reason"), [(word, one) for one, words in WORDS.items() for word in words.split()])
def test_every_finish_word_is_ours(word: str, reason: FinishReason) -> None:
    """What Gemini's words mean, as data; the provider's word is kept."""
    given = int(word) if word.isdigit() else word
    response = response_from(chunk({"text": "x"}, finish=given, candidate={"finishMessage": "why"}))
    assert (response.finish, response.provider_finish, response.explanation) == (reason, word, "why")


@pytest.mark.parametrize(
    ("word", "part", "reason"),
    [
        ("NEW_WORD", {"text": "x"}, FinishReason.STOP),
        ("NEW_WORD", call("f", args={}), FinishReason.TOOL_CALLS),
        ("NEW_BLOCKING", {"text": "x"}, FinishReason.STOP),
        (9, {"text": "x"}, FinishReason.ERROR),
        (0, {"text": "x"}, FinishReason.CUT),
    ],
)
def test_an_unknown_finish_word_is_judged_and_kept(word: str | int, part: dict[str, Any], reason: FinishReason) -> None:
    """By what the response holds (docs/finish-reasons.md)."""
    response = response_from(chunk(part, finish=word))
    assert (response.finish, response.provider_finish) == (reason, str(word))


@each(
    "reason",
    "SAFETY OTHER BLOCKLIST PROHIBITED_CONTENT IMAGE_SAFETY MODEL_ARMOR JAILBREAK BLOCKED_REASON_UNSPECIFIED".split(),
)
def test_a_refused_prompt_has_no_candidates(reason: str) -> None:
    """`promptFeedback` says why; encoded again it is one."""
    feedback = {"blockReason": reason, "blockReasonMessage": "no"}
    response = response_from({"promptFeedback": feedback, "usageMetadata": USAGE, "modelVersion": "gemini-3"})
    assert response == Response(
        message=Message("assistant", ()),
        finish=FinishReason.CONTENT_FILTER,
        provider_finish=reason,
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


@each(
    ("text", "kinds", "expected"),
    [
        (sse(chunk({"text": "a\ufffe"})).replace("\ufffe".encode(), b"\xff"), ["invalid_utf8"], "a\ufffd"),
        (sse(chunk({"text": "aXb"})).replace(b"X", b"\\ud83d"), ["lone_surrogate"], "a\ufffdb"),
        (sse(chunk({"text": "aXb"})).replace(b"X", b"\\ud83d\\udc4b"), [], "a👋b"),
        (b"data: " + json.dumps(chunk({"text": "a"})).encode() * 2 + b"\n\n", ["glued_json"], "aa"),
        (sse(chunk({"text": "a"})) + b"data: nonsense\n\n" + sse(chunk({"text": "b"})), ["noise_skipped"], "ab"),
        (sse(chunk({"text": "a"}), {"candidates": 5}, chunk({"text": "b"})), ["undecodable_chunk"], "ab"),
        (sse(chunk({"text": "a"}, {"text": 5}, {"text": "b"})), ["undecodable_chunk"], "ab"),
        (sse(chunk({"text": "a"}))[:-10] + b"\r\n\r\n", ["undecodable_chunk"], None),
    ],
)
def test_broken_chunks_are_mended_or_passed_over(text: bytes, kinds: list[str], expected: str | None) -> None:
    """What can be read is read, and each repair is data."""
    frames = decode_stream(FAMILY, [text], profile=PROFILE)
    assert [frame.repair.kind for frame in frames if isinstance(frame, Lost | Mended)] == kinds
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
    assert [frame.repair.kind for frame in frames if isinstance(frame, Lost)] == ["undecodable_chunk"]


@each(
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
    limits = Limits(line_bytes=10_000, call_bytes=1000, stream_bytes=100_000)
    frames = decode_stream(FAMILY, [b"[" + b"{}," * 40_000], profile=PROFILE, limits=limits)
    assert [frame.fault.kind for frame in frames if isinstance(frame, Faulted)] == [FaultKind.TOO_LARGE]
