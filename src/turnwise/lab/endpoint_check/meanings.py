"""The one table of what a check can see: each thing with its weight and its words.

Its keys are the kinds of repairs (assembly's and the decoders'), the kinds of faults, and what `shapes` and `judging` find
beside them. A repair without a row is told by its own name.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

import msgspec

from turnwise.assembly.heal import KINDS
from turnwise.vocab import CALL_NOT_READ, NO_FINISH_REASON, FaultKind

Weight = Literal["usual", "healed", "lacks", "broken"]
ORDER: tuple[Weight, ...] = ("usual", "healed", "lacks", "broken")
WEIGHTS: Mapping[Weight, str] = MappingProxyType(
    {
        "usual": "worth knowing",
        "healed": "is wrong; turnwise reads it whole",
        "lacks": "is missing; a run works without it",
        "broken": "does not work",
    }
)


class Meaning(msgspec.Struct, frozen=True):
    weight: Weight
    words: str


# Ways of writing a stream. turnwise reads all of them; many clients read only the first that they met.
_WAYS: dict[str, Meaning] = {
    "comments": Meaning("usual", "comment lines stand between the events of the stream"),
    "id_first_only": Meaning("usual", "the id of a call stands in its first piece only, as OpenAI's own API writes it"),
    "id_every_chunk": Meaning("usual", "the id of a call stands in every piece of it"),
    "whole_call": Meaning("usual", "a call comes whole, in one piece"),
    "calls_in_one_event": Meaning("usual", "several calls stand in one event"),
    "interleaved": Meaning("usual", "the pieces of two calls come in turn"),
    "reasoning": Meaning("usual", "the model's reasoning comes in fields of its own"),
    "empty_arguments": Meaning("healed", "a call without arguments says an empty text in place of {}"),
    "missing_arguments": Meaning("healed", "a call without arguments says null or nothing in place of {}"),
    "object_arguments": Meaning("healed", "arguments come as a JSON object in place of a text"),
    "empty_later": Meaning("healed", "later pieces of a call repeat its id or name as an empty text or null"),
    "no_index": Meaning("healed", "pieces of calls come without an index"),
    "shared_index": Meaning("healed", "several calls share one index"),
    "index_from_one": Meaning("healed", "the index of the first call is not 0"),
    "late_pieces": Meaning("healed", "pieces come after the finish reason"),
    "finish_twice": Meaning("healed", "the finish reason comes more than once"),
    "stop_with_calls": Meaning("healed", "the finish reason says `stop` although the model calls a tool"),
    "no_done": Meaning("healed", "the stream ends without its end mark `[DONE]`"),
    "sent_twice": Meaning("healed", "the whole stream comes a second time behind its end"),
    "id_reused": Meaning("healed", "a new call has the id of a call before it"),
}
# What decoders mend or report lost. Whether something was lost is said by `lost_piece`.
_DECODERS: dict[str, Meaning] = {
    NO_FINISH_REASON: Meaning("healed", "the response ends without a finish reason"),
    "unknown_finish": Meaning("healed", "the finish reason is a word that the API does not have"),
    CALL_NOT_READ: Meaning("healed", "the server could not read a call that the model made; turnwise asks again"),
    "body_for_stream": Meaning("healed", "a whole body comes where a stream was asked for"),
    "stream_for_body": Meaning("healed", "a stream comes where a whole body was asked for"),
    "wrong_type": Meaning("healed", "a stream comes under another content type than text/event-stream"),
    "left_open": Meaning("healed", "the connection stays open after the answer, without an end mark"),
    "noise_skipped": Meaning("healed", "words that are no event stand in the stream"),
    "chunks_glued": Meaning("healed", "several JSON values stand in one event"),
    "glued_json": Meaning("healed", "several JSON values stand in one event"),
    "field_skipped": Meaning("healed", "a field has another type than the API gives it"),
    "content_skipped": Meaning("healed", "a piece of content has a form that the API does not have"),
    "loose_body": Meaning("healed", "the body has fields of other types than the API gives them"),
    "event_repeated": Meaning("healed", "an event comes twice"),
    "index_reused": Meaning("healed", "a block has the index of another one"),
    "item_input": Meaning("healed", "a block brings its input at its start and not in pieces"),
    "invalid_utf8": Meaning("healed", "bytes of the answer are no UTF-8"),
    "control_character": Meaning("healed", "raw control characters stand inside of JSON texts"),
    "lone_surrogate": Meaning("healed", "half of a character stands alone"),
    "damaged_body": Meaning("healed", "the body is damaged"),
    "damaged_event": Meaning("healed", "an event is damaged"),
    "chunk_skipped": Meaning("healed", "an event is no JSON"),
    "event_left_out": Meaning("healed", "an event has a form that the API does not have"),
    "event_missing": Meaning("healed", "an event of the stream is missing"),
    "start_missing": Meaning("healed", "the start of a block or call is missing"),
    "call_without_end": Meaning("healed", "a call begins and does not end"),
    "undecodable_chunk": Meaning("healed", "a chunk is no JSON"),
    "unreadable_argument": Meaning("healed", "a piece of a call's arguments cannot be read"),
    "unreadable_block": Meaning("healed", "a block of the answer cannot be read"),
    "unreadable_content": Meaning("healed", "the content of the answer cannot be read"),
    "unreadable_event": Meaning("healed", "an event is no JSON"),
    "unreadable_json": Meaning("healed", "an event is no JSON"),
    "thinking_dropped": Meaning("usual", "the provider left earlier thinking out of the prompt"),
    "thinking_stale": Meaning(
        "usual", "the provider showed the model thinking that something before it no longer fits"
    ),
    "more_repairs": Meaning("healed", "more was mended than is told"),
    "output_fence": Meaning("healed", "the JSON answer stands in a code fence"),
}
_LOSSES: dict[str, Meaning] = {
    "lost_piece": Meaning("broken", "a piece of the answer did not arrive; a call that it may belong to does not run"),
    "call_cut": Meaning("broken", "a call stops in the middle, and no output limit was reached"),
    "call_invalid": Meaning("broken", "the arguments of a call are no JSON"),
    "broke_off": Meaning("broken", "the answer breaks off in the middle"),
    "fell_silent": Meaning("broken", "the answer begins and then nothing more comes"),
    "error_in_stream": Meaning("broken", "an error comes in the middle of the stream"),
    "html": Meaning("broken", "a web page comes in place of an answer"),
    "too_slow": Meaning("broken", "pieces come until the time is up, and the answer is not whole then"),
    "other_api": Meaning("broken", "the answer is one of another API"),
    "other_json": Meaning("broken", "JSON comes that is no answer of this API"),
}
_MODEL: dict[str, Meaning] = {
    "empty_answer": Meaning("broken", "the answer is empty"),
    "cut_early": Meaning("broken", "the finish reason says that the output limit was reached, and it was not"),
    "filtered": Meaning("broken", "a content filter stops a harmless request"),
    "declined": Meaning("broken", "the model refuses a harmless request"),
    "no_room": Meaning("lacks", "reasoning takes all of the output limit, so no text is left"),
    "call_unasked": Meaning("lacks", "the model calls a tool that was not offered"),
    "call_in_text": Meaning(
        "healed",
        "the model writes its tool call into the text; turnwise reads it there if `calls_in_text` is on for the endpoint",
    ),
    "no_call": Meaning("lacks", "the model answers in words and does not call the tool"),
    "misfit": Meaning("lacks", "the arguments of the call do not fit the tool's schema"),
    "one_call": Meaning("lacks", "the model makes one call where two were asked for"),
    "disobeyed": Meaning("healed", "the model calls a tool although tools are forbidden; turnwise does not run it"),
    "limit_ignored": Meaning("broken", "the output limit is not kept"),
    "limit_unsaid": Meaning("broken", "the output limit cuts the answer, and the finish reason does not say so"),
    "output_misfit": Meaning("lacks", "the answer does not fit the JSON Schema; turnwise asks again"),
    "no_usage": Meaning("lacks", "no tokens are counted, so cost is unknown"),
    "no_cache": Meaning("lacks", "the same prompt is not read from a cache, or the server does not say so"),
    "any_model": Meaning("lacks", "a model that does not exist is answered all the same"),
    "any_key": Meaning("usual", "no key is needed"),
    "odd_refusal": Meaning("lacks", "the refusal has a status that means something else"),
    "asked_to_wait": Meaning("healed", "the server asked to wait, and answered then"),
    "refused_field": Meaning("healed", "the server refuses a field, and takes the request without it"),
}
_FAULTS: dict[FaultKind, str] = {
    FaultKind.UNREACHABLE: "no connection",
    FaultKind.TIMEOUT: "no answer in time",
    FaultKind.DISCONNECTED: "the connection breaks before the answer is whole",
    FaultKind.AUTH: "the key is missing, wrong or without rights",
    FaultKind.NOT_FOUND: "the model or the path does not exist there",
    FaultKind.BAD_REQUEST: "the request is refused",
    FaultKind.CONTEXT_OVERFLOW: "the prompt does not fit the model's window",
    FaultKind.RATE_LIMITED: "too many requests",
    FaultKind.QUOTA: "the quota is used up",
    FaultKind.OVERLOADED: "the server is overloaded or still loading",
    FaultKind.SERVER: "the server fails",
    FaultKind.PROTOCOL: "what comes is no answer of this API",
    FaultKind.TOO_LARGE: "the answer is longer than turnwise reads",
}
MEANINGS: Mapping[str, Meaning] = MappingProxyType(
    {kind: Meaning("healed", words) for kind, words in KINDS.items()}
    | _WAYS
    | _DECODERS
    | _LOSSES
    | _MODEL
    | {str(kind): Meaning("broken", words) for kind, words in _FAULTS.items()}
)


def meaning_of(seen: str) -> Meaning:
    """What it means; a repair that has no row is told by its own name."""
    return MEANINGS.get(seen) or Meaning("healed", seen.replace("_", " "))
