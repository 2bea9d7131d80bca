"""What a recorded response of a provider says, streamed or not."""

from typing import BinaryIO

import msgspec

from turnwise.assembly.response_reading import ResponseReader, read_body
from turnwise.assembly.text_calls.frames import CallFinder
from turnwise.vocab import (
    ArgumentsState,
    Fault,
    FaultKind,
    Repair,
    Response,
    ToolCall,
    ToolSpec,
    calls_of,
    reasoning_of,
    refusal_of,
    text_of,
)
from turnwise.wire import family as registry
from turnwise.wire.profiles import DEFAULT_LIMITS, Profile

CHUNK_BYTES = 64 * 1024
NOT_A_STREAM = (FaultKind.PROTOCOL, FaultKind.TOO_LARGE, FaultKind.DISCONNECTED)


class DecodedCall(msgspec.Struct, frozen=True):
    id: str
    name: str
    arguments_raw: str
    arguments: object
    state: ArgumentsState


class DecodedUsage(msgspec.Struct, frozen=True):
    input_tokens: int
    output_tokens: int
    reasoning_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int


class Decoded(msgspec.Struct, frozen=True):
    """One line of `turnwise decode --json`."""

    file: str
    text: str
    reasoning: str
    tool_calls: list[DecodedCall]
    finish_reason: str | None
    provider_finish_reason: str | None
    usage: DecodedUsage | None
    error: Fault | None
    repairs: list[Repair]
    refusal: str | msgspec.UnsetType = msgspec.UNSET  # only where the model refused


def read_stream(stream: BinaryIO, *, profile: Profile, tool_names: frozenset[str]) -> Response:
    """What a recorded response says, streamed or not."""
    family = registry.family(profile.family)
    in_text = None  # what reads calls that the model wrote into its text, as a run would at such an endpoint
    if profile.calls_in_text:
        in_text = CallFinder(tools=[ToolSpec(name=name) for name in sorted(tool_names)])
    reader = ResponseReader(family, profile=profile, tool_names=tool_names, in_text=in_text)
    chunk = stream.read(CHUNK_BYTES)
    if chunk.lstrip()[:1] == b"{":
        body = chunk + stream.read(DEFAULT_LIMITS.response_bytes)  # one byte more than it may have is an error
        return read_body(body, family=family, profile=profile, tool_names=tool_names, in_text=in_text)[0]
    while chunk and not reader.faulted:
        reader.feed(chunk)
        chunk = stream.read(CHUNK_BYTES)
    return reader.finish()


def is_stream(response: Response) -> bool:
    """Whether it was a response of the family at all, whole or not."""
    return response.fault is None or response.fault.kind not in NOT_A_STREAM


def decoded_of(response: Response, *, file: str) -> Decoded:
    message = response.message
    usage = response.usage
    return Decoded(
        file=file,
        text=text_of(message),
        reasoning=reasoning_of(message),
        tool_calls=[
            DecodedCall(call.id, call.name, call.arguments, _arguments_of(call), call.state)
            for call in calls_of(message)
        ],
        finish_reason=response.finish,
        provider_finish_reason=response.provider_finish,
        usage=usage and msgspec.convert(usage, DecodedUsage, from_attributes=True),
        error=response.fault,
        repairs=list(response.repairs),
        refusal=refusal_of(message) or msgspec.UNSET,
    )


def _arguments_of(call: ToolCall) -> object:
    """The arguments as a value; None unless they are complete."""
    if call.state is not ArgumentsState.COMPLETE:
        return None
    if call.free_form:
        return call.arguments
    # As the model wrote them, numbers of any size too, but on one line: in strict JSON a raw line break is white space.
    return msgspec.Raw(call.arguments.replace("\n", " ").replace("\r", " ").encode())
