"""The Anthropic Messages API, and what speaks it (Bedrock's and Vertex's Claude, compatible servers)."""

from turnwise.wire.anthropic_messages.faults import decode_fault, encode_fault
from turnwise.wire.anthropic_messages.fields import NAME
from turnwise.wire.anthropic_messages.losses import LOSSES
from turnwise.wire.anthropic_messages.request import encode_request
from turnwise.wire.anthropic_messages.request_reading import decode_request
from turnwise.wire.anthropic_messages.response import decode_body, encode_body
from turnwise.wire.anthropic_messages.stream import MessagesStreamDecoder
from turnwise.wire.anthropic_messages.stream_encoder import MessagesStreamEncoder
from turnwise.wire.anthropic_messages.thinking import with_binding
from turnwise.wire.anthropic_messages.words import FINISH_REASONS
from turnwise.wire.family import Family

FAMILY = Family(
    name=NAME,
    encode_request=encode_request,
    decode_request=decode_request,
    stream_decoder=MessagesStreamDecoder,
    decode_body=decode_body,
    stream_encoder=MessagesStreamEncoder,
    encode_body=encode_body,
    decode_fault=decode_fault,
    encode_fault=encode_fault,
    finish_reasons=FINISH_REASONS,
    losses=LOSSES,
    with_binding=with_binding,
)

__all__ = ["FAMILY"]
