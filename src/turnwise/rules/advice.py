"""What results say to the model only: what to do next. People who read along are spared it (`for_people`)."""

import re

GO_ON_WITHOUT = "Do not call it again with these arguments; go on without it, or say what you would have done."
GO_ON_WITHOUT_TOOL = "Do not call it again; go on without it, or say what you would have done."
FINISH = "Do not call it again; finish with what you have."
DO_IT_YOURSELF = "Do not call it again; do this yourself, or finish with what you have."
DECIDE_YOURSELF = "Decide yourself, say which assumption you made, and do not ask this again."
LOOK_AGAIN = "Look again before you ask for it once more."
DO_SOMETHING_ELSE = "Do something else, or answer from what you have."
SEND_WHOLE = "Send the call again, whole."
SEND_BARE = "If it was to have no arguments, send it again with nothing before it."
SEND_WITH_ARGUMENTS = "Send it again with one JSON object as its arguments, `{}` where it needs none."
SEND_AS_JSON = "Send the call again with one JSON object as its arguments, strings escaped."
SEND_AS_CALL = "If you still need it, make the call again as a tool call, with nothing around it, and whole."
SEND_APART = "Make one call for each, with one JSON object as its arguments."
SEND_FEWER_VALUES = "Make several smaller calls, or write the values to a file as text."
SEND_THE_REST = "Ask for what is still needed in the next response, or in larger pieces."
_PIECES = "Work in smaller pieces: several calls "
_PIECES_END = ", one response each."
_ALLOWED_BY = "Only the user can allow it: "

_TO_THE_MODEL = tuple(
    text
    for name, text in dict(globals()).items()
    if name.isupper() and not name.startswith("_") and isinstance(text, str)
)
_NOT_FOR_PEOPLE = re.compile(
    "|".join([f" ?{re.escape(text)}" for text in _TO_THE_MODEL])
    + f"| ?{re.escape(_PIECES)}.*?{re.escape(_PIECES_END)}",
    re.DOTALL,
)


def in_pieces(size: str, *, how: str) -> str:
    """`size`: what each of the calls is to be like; `how` an example."""
    return f"{_PIECES}{size}, for example {how}{_PIECES_END}"


def asks_for_pieces(result: str) -> bool:
    """Whether a result says what `in_pieces` says."""
    return _PIECES in result


def allowed_by(how: str) -> str:
    """How a person allows a call that was denied."""
    return f"{_ALLOWED_BY}{how}."


def for_people(text: str) -> str:
    """A result as a person is to read it: without what it tells the model to do."""
    return _NOT_FOR_PEOPLE.sub("", text).replace(_ALLOWED_BY, "To allow it: ")
