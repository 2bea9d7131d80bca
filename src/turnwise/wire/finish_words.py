"""Finish words that say nothing, and those that nobody documented: the same in every family."""

from collections.abc import Mapping

from turnwise.vocab import CALL_NOT_READ, NO_FINISH_REASON, Finished, FinishReason, Mended, Repair
from turnwise.wire.healing import printable

# `str(None)` of three languages, as gateways were seen to write it where nothing has been said yet.
_SAY_NOTHING = frozenset(["", "null", "none", "undefined"])

# Words of one family that gateways and compatible servers write in the fields of another: read where the family's own table has
# no such word. No encoder writes them. Sources: the four families' tables (`words.py` of each); LiteLLM
# `litellm_core_utils/core_helpers.py` (`map_finish_reason`); answers of Gemini's OpenAI-compatible endpoint, which names the
# filter before the word of its own API (`function_call_filter: MALFORMED_FUNCTION_CALL`).
FOREIGN_WORDS: Mapping[str, FinishReason] = {
    "stop": FinishReason.STOP,
    "eos": FinishReason.STOP,
    "end_turn": FinishReason.STOP,
    "stop_sequence": FinishReason.STOP,
    "completed": FinishReason.STOP,
    "tool_calls": FinishReason.TOOL_CALLS,
    "tool_use": FinishReason.TOOL_CALLS,
    "function_call": FinishReason.TOOL_CALLS,
    "length": FinishReason.LENGTH,
    "max_tokens": FinishReason.LENGTH,
    "max_output_tokens": FinishReason.LENGTH,
    "model_context_window_exceeded": FinishReason.LENGTH,
    "content_filter": FinishReason.CONTENT_FILTER,
    "safety": FinishReason.CONTENT_FILTER,
    "refusal": FinishReason.REFUSAL,
    "pause_turn": FinishReason.PAUSE,
    "error": FinishReason.ERROR,
    "failed": FinishReason.ERROR,
    "timeout": FinishReason.ERROR,
    "malformed_function_call": FinishReason.ERROR,
    "unexpected_tool_call": FinishReason.ERROR,
    "function_call_filter: malformed_function_call": FinishReason.ERROR,
    "function_call_filter: unexpected_tool_call": FinishReason.ERROR,
    "content_filter: safety": FinishReason.CONTENT_FILTER,
    "content_filter: recitation": FinishReason.CONTENT_FILTER,
    "content_filter: prohibited_content": FinishReason.CONTENT_FILTER,
    "content_filter: blocklist": FinishReason.CONTENT_FILTER,
    "content_filter: spii": FinishReason.CONTENT_FILTER,
}

# The model tried to call a tool, and its server could not read the call: as a finish word, or as the code of an error. Sources:
# Gemini API reference, `FinishReason`; pydantic/pydantic-ai#3095 (the response is empty, and asking again helps); Groq docs,
# "Tool use", and pydantic/pydantic-ai#4350 (`tool_use_failed`). In lower case.
CALL_FAILED = frozenset(
    {
        "malformed_function_call",
        "unexpected_tool_call",
        "function_call_filter: malformed_function_call",
        "function_call_filter: unexpected_tool_call",
        "tool_use_failed",
    }
)


def says_nothing(word: str | None) -> bool:
    """True where the provider has not said (yet) why the response ended; a stream that ends so was cut."""
    return word is None or word.strip().casefold() in _SAY_NOTHING


def read_word(word: str, *, own: Mapping[str, FinishReason]) -> FinishReason | None:
    """The reason for a provider's word: by the family's `own` table, else by that of the other families' words, in any case.
    None: nobody documented it, and no part of it says what it means."""
    folded = word.strip().casefold()
    return own.get(word) or own.get(folded) or FOREIGN_WORDS.get(folded)


def finish_of_word(word: str, *, own: Mapping[str, FinishReason]) -> FinishReason:
    """The same. For an unknown word it is `stop`: what the response holds decides. The assembler makes `tool_calls` of it where
    there are calls, and an empty response is asked for again."""
    return read_word(word, own=own) or FinishReason.STOP


def unknown_finish(word: str, reason: FinishReason) -> Mended:
    """The record of a word that is in no provider's documentation, so that whoever reads the answer can be told."""
    return Mended(
        Repair("unknown_finish", "response", f"the finish word `{printable(word)}` is not known: taken for `{reason}`")
    )


def unsaid_finish(mark: str) -> Mended:
    """The record of a response that has the end mark of its API and no finish reason: it did not break off."""
    return Mended(Repair(NO_FINISH_REASON, "response", f"it ended with {mark}, without a word about why"))


def unread_call(word: str) -> Mended:
    """The record of a call that the model made and its server could not read."""
    return Mended(
        Repair(CALL_NOT_READ, "response", f"the provider could not read the model's call: `{printable(word)}`")
    )


def finish_frames(finished: Finished, *, own: Mapping[str, FinishReason]) -> list[Mended | Finished]:
    """The end of a response, behind what has to be told of its word."""
    word = finished.provider_reason
    if word is None or word in own:  # as nearly always
        is_told = word is not None and finished.reason is FinishReason.ERROR and word.casefold() in CALL_FAILED
        return [unread_call(word), finished] if is_told and word is not None else [finished]
    if word.strip().casefold() in CALL_FAILED:
        return [unread_call(word), finished]
    return [finished] if read_word(word, own=own) is not None else [unknown_finish(word, finished.reason), finished]
