"""`decode` of `turnwise mcp serve`: healthy streams, broken ones, and what is none."""

import json
from pathlib import Path
from typing import Any

import pytest

from editors.mcp.serving import call, serving, text_of
from terminal.test_decode import CHAT
from turnwise.editors.mcp.service import MAX_STREAM, MAX_TOOLS
from turnwise.lab import Lab
from turnwise.tools.mcp.protocol_repair import MAX_LEVELS

ANTHROPIC = (
    'event: message_start\ndata: {"type":"message_start","message":{"id":"m","role":"assistant","content":[],"model":"c",'
    '"usage":{"input_tokens":3,"output_tokens":1}}}\n\n'
    'event: content_block_start\ndata: {"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t1",'
    '"name":"read","input":{}}}\n\n'
    'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta",'
    '"partial_json":"{\\"path\\":\\"a\\"}"}}\n\n'
    'event: content_block_stop\ndata: {"type":"content_block_stop","index":0}\n\n'
    'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":9}}\n\n'
    'event: message_stop\ndata: {"type":"message_stop"}\n\n'
)
BAD: list[tuple[dict[str, Any], str]] = [
    ({"family": "openai_chat"}, "`stream` is missing"),
    ({"stream": "x"}, "`family` is missing"),
    ({"stream": 5, "family": "openai_chat"}, "`stream` is missing"),
    ({"stream": "x", "family": "openai_chats"}, "`openai_chats`"),
    (
        {"stream": "x" * (MAX_STREAM + 1), "family": "openai_chat"},
        "`stream` has 4,194,305 characters, more than 4,194,304",
    ),
    ({"stream": "x", "family": "openai_chat", "tools": "read"}, "`tools` is a list of at most 200 names"),
    ({"stream": "x", "family": "openai_chat", "tools": ["a"] * (MAX_TOOLS + 1)}, "`tools` is a list"),
    ({"stream": "x", "family": "openai_chat", "file": "/etc/passwd"}, "`file` is no argument of `decode`"),
]


async def test_streams_are_told_as_the_command_tells_them(lab: Lab, folder: Path) -> None:
    """A whole call, a call that the limit cut (never whole, its arguments null), usage; a family by a provider's name, too."""
    async with serving(lab, "plain-answer", root=folder) as client:
        cut = await call(client, "decode", {"stream": CHAT, "family": "groq"})
        whole = await call(client, "decode", {"stream": ANTHROPIC, "family": "anthropic_messages", "tools": ["read"]})
    first, second = cut.structured_content["tool_calls"]
    assert (first["arguments"], first["state"]) == ({"path": "a.txt"}, "complete")
    assert second["arguments"] is None and second["state"] != "complete" and second["arguments_raw"] == '{"path": "b'
    assert cut.structured_content["finish_reason"] == "length" and cut.structured_content["usage"]["input_tokens"] == 20
    (found,) = whole.structured_content["tool_calls"]
    assert (found["name"], found["arguments"]) == ("read", {"path": "a"})
    assert not cut.is_error and not whole.is_error and lab.count() == 0


async def test_broken_streams_are_told_with_what_is_wrong(lab: Lab, folder: Path) -> None:
    """Torn in an event; half of a pair; no stream at all; numbers and nesting that JSON libraries give up on."""
    huge = '{"choices":[{"message":{"tool_calls":[{"id":"c","type":"function","function":{"name":"read","arguments":%s}}]}}]}'
    async with serving(lab, "plain-answer", root=folder) as client:
        for stream in (CHAT[:300], CHAT + "\ud800", "[" * 100_000, huge % f'"{{\\"n\\":{"9" * 6000}}}"'):
            result = await call(
                client, "decode", {"stream": stream.encode(errors="replace").decode(), "family": "openai_chat"}
            )
            assert result.structured_content["repairs_in_all"] >= 0
        none = await call(client, "decode", {"stream": "<html>no</html>", "family": "openai_chat"})
    assert none.is_error and text_of(none).startswith("this is no stream of `openai_chat`")
    assert none.structured_content["error"]["kind"]


@pytest.mark.parametrize(
    ("levels", "is_told"), [(MAX_LEVELS - 1, True), (MAX_LEVELS + 1, False), (251, False), (900, False)]
)
async def test_arguments_of_any_depth_are_told(lab: Lab, folder: Path, levels: int, is_told: bool) -> None:
    """Proves: as text they always are; as a value too, if JSON libraries read so many levels. Before, the client got an error."""
    arguments = f'{{"a":{"[" * levels}{"]" * levels}}}'
    function = {"name": "read", "arguments": arguments}
    message = {"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": function}]}
    stream = json.dumps({"choices": [{"message": message, "finish_reason": "tool_calls"}]})
    async with serving(lab, "plain-answer", root=folder) as client:
        result = await call(client, "decode", {"stream": stream, "family": "openai_chat"})
    (told,) = result.structured_content["tool_calls"]
    assert (told["arguments_raw"], told["arguments"] is not None) == (arguments, is_told)


async def test_what_is_wrong_or_too_much_is_refused_by_name(lab: Lab, folder: Path) -> None:
    """An error result that says what to do; a tool that is none, too."""
    async with serving(lab, "plain-answer", root=folder) as client:
        for arguments, said in BAD:
            result = await call(client, "decode", arguments)
            assert result.is_error and said in text_of(result)
        other = await call(client, "shell", {})
    assert other.is_error and text_of(other) == "there is no tool `shell`: there are `run` and `decode`"
