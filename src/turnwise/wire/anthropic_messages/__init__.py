"""The Anthropic Messages API, and what speaks it (Bedrock's and Vertex's Claude, compatible servers)."""

from turnwise.wire.anthropic_messages.faults import decode_fault, encode_fault
from turnwise.wire.anthropic_messages.fields import NAME
from turnwise.wire.anthropic_messages.losses import LOSSES
from turnwise.wire.anthropic_messages.reasons import FINISH_REASONS
from turnwise.wire.anthropic_messages.request import encode_request
from turnwise.wire.anthropic_messages.request_decoder import decode_request
from turnwise.wire.anthropic_messages.response import decode_body, encode_body
from turnwise.wire.anthropic_messages.stream import Decoder
from turnwise.wire.anthropic_messages.stream_encoder import Encoder
from turnwise.wire.family import Family

FAMILY = Family(
    name=NAME,
    encode_request=encode_request,
    decode_request=decode_request,
    stream_decoder=Decoder,
    decode_body=decode_body,
    stream_encoder=Encoder,
    encode_body=encode_body,
    decode_fault=decode_fault,
    encode_fault=encode_fault,
    finish_reasons=FINISH_REASONS,
    losses=LOSSES,
)

__all__ = ["FAMILY"]
