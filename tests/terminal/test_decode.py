"""`turnwise decode`: recorded streams, hand-made ones, and files that are none."""

import io
import sys
from pathlib import Path

import msgspec
import pytest

from terminal.running import Cli

KEYS = "file text reasoning tool_calls finish_reason provider_finish_reason usage error repairs".split()
CHAT = (
    'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":"Let me look. ","tool_calls":[{"index":0,'
    '"id":"call_a","type":"function","function":{"name":"read","arguments":"{\\"path\\": "}}]}}]}\n\n'
    'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\\"a.txt\\"}"}},'
    '{"index":1,"id":"call_b","type":"function","function":{"name":"write","arguments":"{\\"path\\": \\"b"}}]}}]}\n\n'
    'data: {"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}\n\n'
    'data: {"choices":[],"usage":{"prompt_tokens":20,"completion_tokens":9,"total_tokens":29,'
    '"prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":2}}}\n\n'
    "data: [DONE]\n\n"
)


@pytest.mark.promise("cut:never-run")
def test_a_hand_made_stream_is_told_whole(cli: Cli, folder: Path) -> None:
    """The keys and their values, a whole call and a cut one; arguments are null unless complete."""
    (folder / "a stream.sse").write_text(CHAT)
    ran = cli("decode", "a stream.sse", "--family", "openai_chat", "--json")
    (line,) = ran.events()
    repairs = line.pop("repairs")
    assert (ran.code, ran.err) == (0, "")
    assert line == {
        "file": "a stream.sse",
        "text": "Let me look. ",
        "reasoning": "",
        "tool_calls": [
            {
                "id": "call_a",
                "name": "read",
                "arguments_raw": '{"path": "a.txt"}',
                "arguments": {"path": "a.txt"},
                "state": "complete",
            },
            {"id": "call_b", "name": "write", "arguments_raw": '{"path": "b', "arguments": None, "state": "truncated"},
        ],
        "finish_reason": "length",
        "provider_finish_reason": "length",
        "usage": {
            "input_tokens": 20,
            "output_tokens": 9,
            "reasoning_tokens": 2,
            "cache_read_tokens": 4,
            "cache_write_tokens": 0,
        },
        "error": None,
    }
    assert repairs == []
    shown = cli("decode", "a stream.sse", "--family", "openai_chat")
    assert 'call: write {"path": "b (call_b)  [truncated' in shown.out and "finish: length (length)" in shown.out


def test_a_call_in_the_text_of_a_recorded_stream_is_read_as_a_run_would(cli: Cli, folder: Path) -> None:
    """Issue 16, A: streamed and as a body; only for the tools that were on offer, and where the profile reads such calls."""
    text = '<think>Hm.</think>I look. <tool_call>{"name": "read", "arguments": {"path": "a.txt"}}</tool_call>'
    delta = msgspec.json.encode({"choices": [{"index": 0, "delta": {"content": text}}]}).decode()
    body = {"choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}]}
    end = 'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'
    (folder / "a.sse").write_text(f"data: {delta}\n\n{end}\n\ndata: [DONE]\n\n")
    (folder / "a.json").write_bytes(msgspec.json.encode(body))
    for file in ("a.sse", "a.json"):
        (line,) = cli("decode", file, "--family", "vllm", "--tool", "read", "--json").events()
        assert [(one["name"], one["arguments"]) for one in line["tool_calls"]] == [("read", {"path": "a.txt"})]
        assert (line["text"].strip(), line["reasoning"]) == ("I look.", "Hm.")
        (line,) = cli("decode", file, "--family", "vllm", "--tool", "write", "--json").events()
        assert (line["tool_calls"], line["text"]) == ([], text.removeprefix("<think>Hm.</think>"))
        (line,) = cli("decode", file, "--family", "openai-chat", "--tool", "read", "--json").events()
        assert (line["tool_calls"], line["text"]) == ([], text)


def test_several_files_give_one_line_each(cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In order, each with its name; `-` is standard input; a provider's name will do for its family."""
    (folder / "a.sse").write_text(CHAT)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(CHAT.encode())))
    lines = cli("decode", "a.sse", "-", "a.sse", "--family", "groq", "--json").events()
    assert [line.pop("file") for line in lines] == ["a.sse", "-", "a.sse"]
    assert lines[0] == lines[1] == lines[2]


def test_a_body_that_was_not_streamed_is_read_too(cli: Cli, folder: Path) -> None:
    """The first byte tells."""
    body = {
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello."}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
    }
    (folder / "body.json").write_bytes(msgspec.json.encode(body))
    (line,) = cli("decode", "body.json", "--family", "openai_chat", "--json").events()
    assert (line["text"], line["finish_reason"], line["usage"]["input_tokens"]) == ("Hello.", "stop", 3)


def test_arguments_on_several_lines_stay_on_one_line_of_json(cli: Cli, folder: Path) -> None:
    """Found in a recorded stream: the model had written its arguments with line breaks. Large numbers keep their digits."""
    arguments = '{\n  "id": 123456789012345678901234567890,\r\n  "text": "a\\nb"\n}'
    delta = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    chunk = {"choices": [{"index": 0, "delta": {"tool_calls": [delta]}, "finish_reason": "tool_calls"}]}
    (folder / "a.sse").write_bytes(b"data: " + msgspec.json.encode(chunk) + b"\n\ndata: [DONE]\n\n")
    ran = cli("decode", "a.sse", "--family", "openai_chat", "--json")
    (line,) = ran.events()
    assert line["tool_calls"][0]["arguments_raw"] == arguments
    assert line["tool_calls"][0]["arguments"]["text"] == "a\nb"
    assert '"id": 123456789012345678901234567890,' in ran.out


def test_a_refusal_has_a_key_of_its_own(cli: Cli, folder: Path) -> None:
    """Only where there is one: otherwise the keys are exactly the named ones."""
    refused = (
        'data: {"choices":[{"index":0,"delta":{"refusal":"I cannot."},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    )
    (folder / "a.sse").write_text(CHAT)
    (folder / "r.sse").write_text(refused)
    plain, refusing = cli("decode", "a.sse", "r.sse", "--family", "openai_chat", "--json").events()
    assert list(plain) == KEYS
    assert list(refusing) == [*KEYS, "refusal"] and refusing["refusal"] == "I cannot."


@pytest.mark.parametrize("family", ["openai_chat", "openai_responses", "anthropic_messages", "gemini"])
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "the response was empty"),
        (b"<!DOCTYPE html><html><body>Sign in</body></html>\n", "<!DOCTYPE html>"),
        (b"Just some notes.\n", "Just some notes."),
        (bytes(range(255, 0, -1)) * 20, "began with"),
        (b"data: " + b"x" * 10_000_000, "a line of the stream is longer than 8388608 bytes"),
        (b'{"not": "a response"}', "not"),
        (b'{"cut": ', "cut"),
    ],
    ids=["empty", "html", "text", "bytes", "endless line", "other JSON", "half JSON"],
)
@pytest.mark.promise("assembly:bounded")
def test_a_file_that_is_no_stream_is_one_line_and_exit_code_1(
    cli: Cli, folder: Path, family: str, content: bytes, said: str
) -> None:
    """Nothing on standard output; with --json a line whose `error` says the same, so that the lines match the files."""
    (folder / "file").write_bytes(content)
    ran = cli("decode", "file", "--family", family)
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (1, "", 1), ran
    assert ran.err.startswith(f"turnwise: `file` is no stream of `{family}`: ")
    assert not [char for char in ran.err if char < " " and char != "\n"]
    ran = cli("decode", "file", "--family", family, "--json")
    (line,) = ran.events()
    assert (ran.code, list(line), line["error"]["kind"] in ("protocol", "too_large", "disconnected")) == (1, KEYS, True)


def test_a_file_that_cannot_be_opened_does_not_stop_the_others(cli: Cli, folder: Path) -> None:
    """One line for each that failed; exit code 1."""
    (folder / "a.sse").write_text(CHAT)
    ran = cli("decode", "nowhere.sse", "a.sse", ".", "--family", "openai_chat", "--json")
    assert (ran.code, [line["file"] for line in ran.events()]) == (1, ["a.sse"])
    assert ran.err.splitlines() == [
        "turnwise: `nowhere.sse`: No such file or directory",
        "turnwise: `.`: Is a directory",
    ]


def test_invalid_utf8_is_repaired_and_told(cli: Cli, folder: Path) -> None:
    """The text around it is sound."""
    (folder / "a.sse").write_bytes(CHAT.encode().replace(b"Let me look. ", b"Let \xff\xfe look. "))
    (line,) = cli("decode", "a.sse", "--family", "openai_chat", "--json").events()
    assert line["text"] == "Let \ufffd\ufffd look. " and len(line["tool_calls"]) == 2
    assert "invalid UTF-8 became replacement characters" in [one["what"] for one in line["repairs"]]


@pytest.mark.parametrize(
    ("recorded", "family"),
    [
        ("openai_chat", "openai_chat"),
        ("openai_responses", "openai_responses"),
        ("anthropic", "anthropic_messages"),
        ("gemini", "gemini"),
    ],
)
def test_recorded_streams_can_be_decoded_from_the_command_line(
    cli: Cli, corpus: Path, recorded: str, family: str
) -> None:
    """All of a family in one go: a line each, the file named, exit code 0. (What they say is compared elsewhere.)"""
    files = [str(path) for path in sorted((corpus / recorded).iterdir())]
    ran = cli("decode", *files, "--family", family, "--json")
    assert [line["file"] for line in ran.events()] == files
    assert (ran.code, ran.err) == (0, "")
