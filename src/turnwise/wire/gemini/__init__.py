"""Google's Gemini API (`generateContent`, `streamGenerateContent`), at the Developer API and at Vertex AI."""

from turnwise.vocab import Request
from turnwise.wire.family import Family, StreamDecoder, StreamEncoder
from turnwise.wire.gemini.faults import decode_fault, encode_fault
from turnwise.wire.gemini.fields import NAME
from turnwise.wire.gemini.losses import LOSSES
from turnwise.wire.gemini.request import encode_request
from turnwise.wire.gemini.request_reading import decode_request
from turnwise.wire.gemini.response import decode_body, encode_body
from turnwise.wire.gemini.stream import GeminiStreamDecoder
from turnwise.wire.gemini.stream_encoder import GeminiStreamEncoder
from turnwise.wire.gemini.words import FINISH_REASONS
from turnwise.wire.limits import Limits
from turnwise.wire.profiles import Profile


def stream_decoder(profile: Profile, limits: Limits) -> StreamDecoder:
    return GeminiStreamDecoder(limits)


def stream_encoder(request: Request) -> StreamEncoder:
    return GeminiStreamEncoder(request)


FAMILY = Family(
    name=NAME,
    encode_request=encode_request,
    decode_request=decode_request,
    stream_decoder=stream_decoder,
    decode_body=decode_body,
    stream_encoder=stream_encoder,
    encode_body=encode_body,
    decode_fault=decode_fault,
    encode_fault=encode_fault,
    finish_reasons=FINISH_REASONS,
    losses=LOSSES,
    compares_events=True,
)
