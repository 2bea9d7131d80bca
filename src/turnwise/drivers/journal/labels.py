"""Labels of a session: short texts by name that a caller gives it, to tell whose it is or what it is about."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import cast

import msgspec

from turnwise.drivers.journal.texts_given import is_text
from turnwise.errors import CallerError

MOST_LABELS = 50
LONGEST_NAME = 100  # characters
LONGEST_VALUE = 1_000

Labels = Mapping[str, str]
NO_LABELS: Labels = MappingProxyType({})

_encode = msgspec.json.Encoder(order="deterministic").encode
_decode = msgspec.json.Decoder(dict[str, str]).decode


def read_labels(given: object) -> dict[str, str]:
    """Raises CallerError for what is no mapping of names to texts, and for too many or too long ones. No value is shown."""
    if not isinstance(given, Mapping):
        raise CallerError('`labels` must be a dict of texts, `{"user": "42"}`, not `' + type(given).__name__ + "`")
    labels = cast("Mapping[object, object]", given)
    if len(labels) > MOST_LABELS:
        raise CallerError(f"`labels` has {len(labels)} names: a session has at most {MOST_LABELS}")
    read = dict[str, str]()
    for name, value in labels.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise CallerError(f"`labels` must be a dict of texts: write `{name!s}` and its value as texts")
        if not name or len(name) > LONGEST_NAME or not name.isprintable() or "=" in name:
            raise CallerError(f"the name of a label has 1 to {LONGEST_NAME} printable characters and no `=`")
        if len(value) > LONGEST_VALUE or not is_text(value):
            raise CallerError(f"the label `{name}` is too long or no UTF-8 text: at most {LONGEST_VALUE} characters")
        read[name] = value
    return read


def check_same(given: Labels, *, kept: Labels, session: str) -> None:
    """Raise CallerError for labels that differ from those that the session was begun with."""
    if given and dict(given) != dict(kept):
        raise CallerError(
            f"session `{session}` was begun with other labels: leave `labels` out to continue it, or start a new session"
        )


def labels_text(labels: Labels) -> str:
    """As a journal keeps them: one JSON object, equal for equal labels."""
    return _encode(dict(labels)).decode()


def labels_in(text: str) -> dict[str, str]:
    """Nothing where the text is damaged: a label is no reason to lose a session."""
    try:
        return _decode(text)
    except msgspec.DecodeError:
        return {}
