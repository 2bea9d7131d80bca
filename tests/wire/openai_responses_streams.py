"""Events of a Responses stream, written by hand for the tests."""

import json
from collections.abc import Iterator, Sequence

from turnwise.testing.wire_conformance import assemble, decode_stream
from turnwise.vocab import Opaque, Response, ToolCall
from turnwise.wire.openai_responses import FAMILY
from turnwise.wire.profiles import builtin_profiles

PROFILE = builtin_profiles()["openai_responses"]
USAGE = (
    '{"input_tokens":12,"input_tokens_details":{"cached_tokens":4,"cache_write_tokens":2},'
    '"output_tokens":7,"output_tokens_details":{"reasoning_tokens":3},"total_tokens":19}'
)


def event(kind: str, **fields: object) -> bytes:
    body = json.dumps({"type": kind, **fields}, separators=(",", ":"))
    return f"event: {kind}\ndata: {body}\n\n".encode()


def begin() -> bytes:
    return event("response.created", response={"id": "resp_1", "model": "gpt-5", "status": "in_progress", "output": []})


def end(status: str = "completed", *, output: Sequence[object] = (), **fields: object) -> bytes:
    response = {"id": "resp_1", "model": "gpt-5", "status": status, "output": list(output), **fields}
    return event(f"response.{status}", response=response | {"usage": json.loads(USAGE)})


def call_events(index: int, *, arguments: str, name: str = "read", pieces: int = 2) -> Iterator[bytes]:
    """The events of one call: begun, in pieces, and its final form."""
    item = {"id": f"fc_{index}", "type": "function_call", "call_id": f"call_{index}", "name": name}
    yield event(
        "response.output_item.added", output_index=index, item=item | {"arguments": "", "status": "in_progress"}
    )
    size = max(1, len(arguments) // pieces)
    for i in range(0, len(arguments), size):
        yield event(
            "response.function_call_arguments.delta",
            item_id=f"fc_{index}",
            output_index=index,
            delta=arguments[i : i + size],
            obfuscation="x" * i,
        )
    yield event("response.function_call_arguments.done", output_index=index, arguments=arguments)
    yield event(
        "response.output_item.done", output_index=index, item=item | {"arguments": arguments, "status": "completed"}
    )


def call(index: int, *, arguments: str, status: str = "completed") -> ToolCall:
    opaque = Opaque("openai_responses", f'{{"id":"fc_{index}","status":"{status}"}}')
    return ToolCall(id=f"call_{index}", name="read", arguments=arguments, opaque=opaque)


def read(*events: bytes) -> Response:
    return assemble(decode_stream(FAMILY, [b"".join(events)], profile=PROFILE))
