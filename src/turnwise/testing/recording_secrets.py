"""A recording without keys: what stands for a key is as long, so a body keeps its pieces, and says nothing of it.

One key has the same stand-in in every process: what a test asks later is compared with what was recorded.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from urllib.parse import parse_qsl, quote, urlsplit

from turnwise.endpoints.key_hiding import HIDDEN, KEYLESS_HEADERS, QUERY_UP, SHORTEST_KEY
from turnwise.endpoints.transport import HttpRequest
from turnwise.replay.secret_finder import NewCharacters, SecretFinder
from turnwise.replay.stand_ins import StandIns
from turnwise.testing.recording_texts import Span, split_texts

# What a turn reads of an answer's head: what came, and when to ask again (wire/faults.py). Cookies and the names of accounts stay
# outside.
KEPT_HEADERS = frozenset({"content-type", "date", "location", "retry-after", "retry-after-ms", "x-should-retry"})
_KEPT_WORDS = ("ratelimit", "request-id")
_STAND_INS = StandIns(None)


class RecordingSecrets:
    """Replaces the keys of one request: those in its own headers and address, `texts` that somebody wants hidden, and whatever
    has the shape of a key."""

    def __init__(self, request: HttpRequest, *, keys: Iterable[str], texts: Iterable[str]) -> None:
        self._keys = tuple(dict.fromkeys([*keys_of(request), *keys]))
        self._texts = tuple(texts)

    def hidden(self, content: bytes, *, is_stream: bool = False) -> bytes:
        """The content with stand-ins, as many bytes long. What it holds of one key is found whole, in pieces, encoded, and
        where a stream brings it word by word. What only has a key's shape is joined in a stream alone: elsewhere a key
        at the end of one text would take in the first word of the next."""
        try:
            return self._hidden(content.decode(), is_stream=is_stream).encode()
        except UnicodeDecodeError:  # each byte counts as a character
            return self._hidden(content.decode("latin-1"), is_stream=is_stream).encode("latin-1")

    def _hidden(self, body: str, *, is_stream: bool) -> str:
        """All is looked for in the body as it came. A stand-in for the piece in one delta would make the rest of the key, in
        the next one, unknown."""
        any_key = SecretFinder(_STAND_INS, keys=self._keys, texts=self._texts)
        known = SecretFinder(_STAND_INS, keys=self._keys, texts=self._texts, shapes=False)
        split = split_texts(body)
        streams = [_Joined(body, spans) for spans in split.streams] if is_stream else []
        for text in streams:
            any_key.learn(text.said)
        hidden = any_key.hidden(body)
        changed: NewCharacters = {}
        for text in streams:
            changed |= text.changed(any_key.hidden(text.said))
        for text in [_Joined(body, spans) for spans in split.all_of_name]:
            changed |= text.changed(known.hidden(text.said))
        if not changed:
            return hidden
        return "".join([changed.get(place, character) for place, character in enumerate(hidden)])


class _Joined:
    """A text whose pieces stand in several fields of a body."""

    def __init__(self, body: str, spans: Sequence[Span]) -> None:
        self._spans = spans
        self.said = "".join([body[start:end] for start, end in spans])

    def changed(self, new: str) -> NewCharacters:
        """The characters in which the text differs from `new`, by their places in the body."""
        if new == self.said:
            return {}
        places = chain.from_iterable([range(*span) for span in self._spans])
        return {place: one for place, one, before in zip(places, new, self.said, strict=True) if one != before}


def keys_of(request: HttpRequest) -> list[str]:
    """The values of all fields of head and address that are not known to carry no key; of `Bearer KEY` the key."""
    values = [
        value.split()[-1] for name, value in request.headers if name.lower() not in KEYLESS_HEADERS and value.strip()
    ]
    values += [value for name, value in parse_qsl(urlsplit(request.url).query) if name not in QUERY_UP]
    return [value for value in values if len(value) >= SHORTEST_KEY]


def shown_path(url: str) -> str:
    """Path and query of an address. Values of fields that may carry a key are left out."""
    parts = urlsplit(url)
    fields = [
        f"{quote(name)}={quote(value) if name in QUERY_UP else HIDDEN}"
        for name, value in parse_qsl(parts.query, keep_blank_values=True)
    ]
    return f"{parts.path}?{'&'.join(fields)}" if fields else parts.path


def kept_headers(headers: Mapping[str, str], *, secrets: RecordingSecrets) -> dict[str, str]:
    """What a recording has of an answer's head."""
    return {
        name: secrets.hidden(value.partition("?")[0].encode()).decode()
        for name, value in headers.items()
        if name in KEPT_HEADERS or any(word in name for word in _KEPT_WORDS)
    }
