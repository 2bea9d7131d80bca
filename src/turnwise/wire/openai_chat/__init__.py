"""The Chat Completions family: OpenAI's, and that of everybody who speaks it."""

from turnwise.wire.family import Family
from turnwise.wire.openai_chat.faults import decode_fault, encode_fault
from turnwise.wire.openai_chat.losses import LOSSES
from turnwise.wire.openai_chat.request import encode_request
from turnwise.wire.openai_chat.request_reading import decode_request
from turnwise.wire.openai_chat.response import decode_body, encode_body
from turnwise.wire.openai_chat.stream import ChatStreamDecoder
from turnwise.wire.openai_chat.stream_encoder import ChatStreamEncoder
from turnwise.wire.openai_chat.words import FINISH_REASONS

FAMILY = Family(
    name="openai_chat",
    encode_request=encode_request,
    decode_request=decode_request,
    stream_decoder=ChatStreamDecoder,
    decode_body=decode_body,
    stream_encoder=ChatStreamEncoder,
    encode_body=encode_body,
    decode_fault=decode_fault,
    encode_fault=encode_fault,
    finish_reasons=FINISH_REASONS,
    losses=LOSSES,
)
