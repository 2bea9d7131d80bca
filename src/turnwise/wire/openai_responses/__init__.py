"""The OpenAI Responses API (`POST /responses`), and those who speak it: Azure, xAI, the Codex backend, OpenRouter, vLLM,
LM Studio."""

from turnwise.wire.family import Family
from turnwise.wire.openai_responses.client_request import decode_request
from turnwise.wire.openai_responses.encoder import ResponsesEncoder
from turnwise.wire.openai_responses.faults import decode_fault, encode_fault
from turnwise.wire.openai_responses.fields import FAMILY_NAME
from turnwise.wire.openai_responses.losses import LOSSES
from turnwise.wire.openai_responses.request import encode_request
from turnwise.wire.openai_responses.response import decode_body, encode_body
from turnwise.wire.openai_responses.stream import ResponsesDecoder
from turnwise.wire.openai_responses.words import FINISH_REASONS

FAMILY = Family(
    name=FAMILY_NAME,
    encode_request=encode_request,
    decode_request=decode_request,
    stream_decoder=ResponsesDecoder,
    decode_body=decode_body,
    stream_encoder=ResponsesEncoder,
    encode_body=encode_body,
    decode_fault=decode_fault,
    encode_fault=encode_fault,
    finish_reasons=FINISH_REASONS,
    losses=LOSSES,
)
