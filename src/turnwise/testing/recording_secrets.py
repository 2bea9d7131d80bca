"""A recording without keys: what stands for a key is as long, so a body keeps its pieces, and says nothing of it.

One key has the same stand-in in every process: what a test asks later is compared with what was recorded.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import parse_qsl, quote, urlsplit

from turnwise.drivers.endpoints.key_forms import HIDDEN, SHORTEST_KEY, forms_of
from turnwise.drivers.endpoints.transport import HttpRequest
from turnwise.drivers.endpoints.visible_fields import KEYLESS_HEADERS, QUERY_UP
from turnwise.drivers.replaying.secret_finder import SecretFinder
from turnwise.drivers.replaying.stand_ins import StandIns

# What a turn reads of an answer's head: what came, and when to ask again (wire/faults.py). Cookies and the names of accounts stay
# outside.
KEPT_HEADERS = frozenset({"content-type", "date", "location", "retry-after", "retry-after-ms", "x-should-retry"})
_KEPT_WORDS = ("ratelimit", "request-id")
_FIELD = re.compile(r'"(?P<name>[^"\\]{1,64})"\s*:\s*"(?P<value>(?:[^"\\]|\\.)*)"', re.DOTALL)
_STAND_INS = StandIns(None)


class RecordingSecrets:
    """Replaces the keys of one request: those in its own headers and address, `texts` that somebody wants hidden, and whatever
    has the shape of a key."""

    def __init__(self, request: HttpRequest, *, keys: Iterable[str], texts: Iterable[str]) -> None:
        self._keys = tuple(dict.fromkeys([*keys_of(request), *keys]))
        self._texts = tuple(texts)

    def hidden(self, content: bytes) -> bytes:
        """The content with stand-ins, as many bytes long. What it holds of one key is found whole, in pieces, encoded, and
        where a stream brings it word by word."""
        if not content:
            return content
        finder = SecretFinder(_STAND_INS, keys=self._keys, texts=self._texts)
        hidden = finder.hidden_bytes(content)
        try:
            return self._without_split(hidden.decode()).encode()
        except UnicodeDecodeError:
            return hidden

    def _without_split(self, text: str) -> str:
        """Without keys whose pieces stand in fields of one name, one behind the other, as the deltas of a stream do."""
        forms = [form for key in (*self._keys, *self._texts) for form in forms_of(key)]
        fields: dict[str, list[int]] = {}  # by name: the places of all characters of their values
        for found in _FIELD.finditer(text) if forms else ():
            fields.setdefault(found["name"], []).extend(range(*found.span("value")))
        changed = dict[int, str]()
        for places in fields.values():
            joined = "".join([text[place] for place in places])
            for form in forms:
                for start in _found(form, text=joined):
                    new = _STAND_INS.of(form)
                    changed |= {places[start + place]: character for place, character in enumerate(new)}
        if not changed:
            return text
        return "".join([changed.get(place, character) for place, character in enumerate(text)])


def _found(form: str, *, text: str) -> Iterator[int]:
    start = text.find(form)
    while start >= 0:
        yield start
        start = text.find(form, start + len(form))


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
