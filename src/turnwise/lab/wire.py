"""Streams written out in a script, line by line: shapes that no healthy encoder would ever send.

A line of Chat Completions is the `delta` of a chunk, with a finish reason after it if it has one:
    {"tool_calls":[{"id":"call_1","function":{"name":"read","arguments":""}}]}
    {"content":"text"} finish stop
    finish tool_calls
    usage          a chunk with the usage and no choices
    done           data: [DONE]
    chunk {...}    a whole chunk, as it is
Of every other family a line is the JSON of one event; `raw ...` is a line of the stream as it is, in all of them.
"""

import re

import msgspec

from turnwise.lab.raw import dump, parse, table, text
from turnwise.vocab import NO_USAGE, Response
from turnwise.wire.sse import encode_event

CREATED = 1760000000  # a fixed moment: the lab has no clock
CHUNK_LINE = re.compile(r"(?P<delta>\{.*\})?\s*(?:finish (?P<finish>\S+))?")


def stream_of(lines: str, *, family: str, response: Response) -> list[bytes]:
    """The pieces of the stream, one a line. Raises ValueError for a line that is none of the forms above."""
    pieces: list[bytes] = []
    for line in lines.splitlines():
        line = line.strip()
        if not line:
            continue
        if line.startswith("raw "):
            pieces.append(line.removeprefix("raw ").encode() + b"\n")
        elif family == "openai_chat":
            pieces.append(chat_piece(line, response=response))
        else:
            named = family != "gemini"
            pieces.append(encode_event(line.encode(), name=text(table(parse(line)).get("type")) if named else ""))
    return pieces


def unsaid_end(family: str, *, response: Response) -> bytes:
    """The end of a stream that does not say why it ended, with its usage: nothing where the family tells that anyway."""
    match family:
        case "openai_chat":
            return chat_piece("usage", response=response) + chat_piece("done", response=response)
        case "anthropic_messages":
            usage = {"output_tokens": (response.usage or NO_USAGE).output_tokens}
            delta = {"type": "message_delta", "delta": {"stop_reason": None, "stop_sequence": None}, "usage": usage}
            stop = encode_event(dump({"type": "message_stop"}), name="message_stop")
            return encode_event(dump(delta), name="message_delta") + stop
        case _:
            return b""


def chat_piece(line: str, *, response: Response) -> bytes:
    envelope: dict[str, object] = {
        "id": response.id,
        "object": "chat.completion.chunk",
        "created": CREATED,
        "model": response.model,
    }
    if line == "done":
        return encode_event(b"[DONE]")
    if line == "usage":
        usage = response.usage or NO_USAGE
        counted = {
            "prompt_tokens": usage.input_tokens,
            "completion_tokens": usage.output_tokens,
            "total_tokens": usage.input_tokens + usage.output_tokens,
        }
        if usage.cache_read_tokens or usage.cache_write_tokens:
            told = {"cached_tokens": usage.cache_read_tokens, "cache_write_tokens": usage.cache_write_tokens}
            return encode_event(dump({**envelope, "choices": [], "usage": {**counted, "prompt_tokens_details": told}}))
        return encode_event(dump({**envelope, "choices": [], "usage": counted}))
    if line.startswith("chunk "):
        return encode_event(line.removeprefix("chunk ").encode())
    found = CHUNK_LINE.fullmatch(line)
    if found is None:
        raise ValueError(f"no line of a Chat Completions stream: {line}")
    delta, finish = found.group("delta") or "{}", found.group("finish")
    choice = {
        "index": 0,
        "delta": msgspec.Raw(delta.encode()),
        "finish_reason": finish,
    }
    return encode_event(dump({**envelope, "choices": [choice]}))
