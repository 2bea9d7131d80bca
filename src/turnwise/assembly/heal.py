"""The closed list of repairs that assembly makes, how each is recorded, and the mending of characters that came in halves.

A repair is data, not a log line: `kind` from KINDS, `where` names the call or part, `what` says in words what was done.
Decoders record theirs with `Mended` frames; those kinds stand with their families.
"""

import re

from turnwise.vocab import Repair

SLICE_CHARACTERS = 16 * 1024  # of a long text that are encoded at once
_WIDE = re.compile("[\U00010000-\U0010ffff]")

KINDS: dict[str, str] = {
    "id_missing": "a call came without an id and got a generated one",
    "id_twice": "a call's id was taken already and was replaced by a generated one",
    "same_call_twice": "a call that came again with the same id, name and arguments was taken once",
    "id_churn": "the id of one call changed from piece to piece; the first was kept",
    "index_strayed": "a piece without id and name stood on an unknown index and was given to the call at hand",
    "name_repeated": "a name that came again with later pieces was taken once",
    "name_joined": "a name that came in several pieces was joined",
    "name_grown": "a name that came longer from piece to piece was taken in its last form",
    "name_conflict": "a second name for one call was dropped",
    "empty_call": "a call without name and arguments was dropped",
    "cumulative": "arguments that came more than once were taken once",
    "empty_then_real": "an empty object beside the real arguments was dropped",
    "several_objects": "several whole objects stood in one call; the tool's schema has to decide",
    "null_arguments": "arguments that said null were read as none",
    "double_encoded": "arguments that were a JSON string holding JSON were unpacked",
    "half_surrogates": "halves of a character that came apart were joined or replaced",
    "final_item_wins": "the provider's final form of a part differed from its pieces and was taken",
    "after_final": "a piece that came after the final form of its part was dropped",
    "citations_left_out": "of more citations than any answer has, the first ones were kept",
    "started_again": "a second beginning discarded what had come before",
    "call_in_text": "a call that stood in the text was read from it",
    "call_not_made": "a call stood in reasoning or in a refusal and was not made",
    "finish_hides_cut": "a call was cut although the finish reason did not say so",
    "finish_hides_limit": "the output limit was reached although the finish reason did not say so",
    "finish_without_calls": "the finish reason spoke of tool calls and there were none",
    "finish_differs": "several finish reasons came and the gravest was taken",
}


def repair(kind: str, *, where: str, what: str = "") -> Repair:
    """A record of one repair; `what` is the list's own sentence unless a better one is given."""
    return Repair(kind, where, what or KINDS[kind])


def join_halves(text: str, *, pending: str) -> tuple[str, str]:
    """Join characters that came as two surrogate halves in two pieces.

    `pending` is the half that the piece before ended with. Returns the text that is whole now and the new pending half;
    a half whose other one never came becomes U+FFFD, because no encoder takes it.
    """
    text = pending + text
    last = text[-1:]
    pending = last if "\ud800" <= last <= "\udbff" else ""
    return whole_characters(text[: len(text) - len(pending)]), pending


def lost_halves(text: str) -> bool:
    """Whether a half stands in the text whose other one does not."""
    return whole_characters(text).count("\ufffd") > text.count("\ufffd")


def whole_characters(text: str) -> str:
    """The text, the very same where nothing is wrong with it; surrogate halves are joined or replaced."""
    if text.isascii() or _utf8_length(text) is not None:
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def size_if_whole(text: str) -> int | None:
    """Bytes of the text in UTF-8; None where halves of characters are in it."""
    return len(text) if text.isascii() else _utf8_length(text)


def _utf8_length(text: str) -> int | None:
    """Counted in slices: Python takes four bytes for each character of some texts, and as much again to encode them."""
    try:
        if len(text) <= SLICE_CHARACTERS:
            return len(text.encode())
        return sum([len(text[at : at + SLICE_CHARACTERS].encode()) for at in range(0, len(text), SLICE_CHARACTERS)])
    except UnicodeEncodeError:
        return None


def narrow(text: str) -> str | bytes:
    """A text that is JSON if this one is, and costs less to look at: a long one with other characters in ASCII's place.

    The decoder looks at UTF-8, which Python writes into a buffer of three bytes for each character and then keeps beside the
    text. No character outside of ASCII means anything to JSON, so a question mark stands for each. Raises UnicodeEncodeError
    where half of a character stands alone, as the decoder would.
    """
    if len(text) <= SLICE_CHARACTERS or text.isascii():
        return text
    for at in range(0, len(text), SLICE_CHARACTERS):
        text[at : at + SLICE_CHARACTERS].encode()
    return text.encode("ascii", "replace")


def byte_length(text: str) -> int:
    """Bytes of the text in UTF-8, halves of characters included."""
    if text.isascii():
        return len(text)
    size = _utf8_length(text)
    return len(text.encode("utf-8", "surrogatepass")) if size is None else size


def is_wide(text: str) -> bool:
    """Whether Python keeps the text with four bytes for each character: one outside of the basic plane is enough."""
    return _WIDE.search(text) is not None
