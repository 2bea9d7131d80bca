"""The OpenAI Responses API (`POST /responses`), and those who speak it: Azure, xAI, the Codex backend, OpenRouter, vLLM,
LM Studio."""

from turnwise.wire.family import Family
from turnwise.wire.openai_responses.faults import decode_fault, encode_fault
from turnwise.wire.openai_responses.fields import NAME
from turnwise.wire.openai_responses.losses import LOSSES
from turnwise.wire.openai_responses.request import encode_request
from turnwise.wire.openai_responses.request_reading import decode_request
from turnwise.wire.openai_responses.response import decode_body, encode_body
from turnwise.wire.openai_responses.stream import ResponsesStreamDecoder
from turnwise.wire.openai_responses.stream_encoder import ResponsesStreamEncoder
from turnwise.wire.openai_responses.words import FINISH_REASONS

FAMILY = Family(
    name=NAME,
    encode_request=encode_request,
    decode_request=decode_request,
    stream_decoder=ResponsesStreamDecoder,
    decode_body=decode_body,
    stream_encoder=ResponsesStreamEncoder,
    encode_body=encode_body,
    decode_fault=decode_fault,
    encode_fault=encode_fault,
    finish_reasons=FINISH_REASONS,
    losses=LOSSES,
)
