"""Private keys in texts, whatever stands before and behind each of their lines: file names, marks, quotes, `$`.

From the line that begins a key to the line that ends it, each long run of base64 is the key's. What stands in front of all lines
comes twice, a line of a key does not. Source: RFC 7468.
"""

import re
from collections import Counter

LONGEST_KEY = 16_384  # characters from its first line to its last; a key of 16,384 bits has 13,000
SHORTEST_KEY_BODY = 40  # characters; an Ed25519 key has 64
WIDE = 40  # characters of a line that is not the last: RFC 7468 has 64, OpenSSH 70, PGP 76
HEADERS = 4  # lines of a key that are not base64: `Proc-Type`, `DEK-Info`, an empty one
LONGEST_PREFIX = 512

_EDGE = re.compile(r"-----(?P<edge>BEGIN|END) [A-Z0-9 ]{0,24}PRIVATE KEY(?: BLOCK)?\b")
_RUN = re.compile(r"[A-Za-z0-9+/]{12,}={0,2}")
_KINDS = tuple([re.compile(kind) for kind in ("[a-z]", "[A-Z]", "[0-9]")])


def private_keys_in(text: str) -> list[str]:
    """The base64 of each private key in the text, its lines joined. One may lack its first or its last line."""
    edges = list(_EDGE.finditer(text))
    found: list[str] = []
    for place, edge in enumerate(edges):
        before = edges[place - 1] if place else None
        behind = edges[place + 1] if place + 1 < len(edges) else None
        if edge["edge"] == "BEGIN":
            last = min(edge.end() + LONGEST_KEY, len(text) if behind is None else behind.end())
            if behind is not None and behind["edge"] == "END" and last == behind.end():
                found.append(_runs_of(text[_line_start(text, edge.start()) : last]))
            else:
                found.append(_runs_of(_begun(text[edge.end() : last])))
        elif before is None or before["edge"] == "END" or edge.start() - before.end() > LONGEST_KEY:
            first = max(edge.start() - LONGEST_KEY, 0 if before is None else before.end())
            found.append(_runs_of(_ended(text[first : edge.start()])))
    return [one for one in found if len(one) >= SHORTEST_KEY_BODY]


def _line_start(text: str, place: int) -> int:
    return max(text.rfind("\n", 0, place) + 1, place - LONGEST_PREFIX)


def _begun(text: str) -> str:
    """The lines of a key that has no last one: as long as they are wide, and the line where the text is cut."""
    lines = text.split("\n")
    first = next((place for place, line in enumerate(lines[: HEADERS + 1]) if _is_wide(line)), len(lines))
    last = next((place for place in range(first, len(lines)) if not _is_wide(lines[place])), len(lines))
    return "\n".join(lines[first : last + 1])


def _ended(text: str) -> str:
    """The lines of a key that has no first one; the last two are the prefix of the END line, and one that may be short."""
    lines = text.split("\n")
    first = max(0, len(lines) - 2)
    while first > 0 and _is_wide(lines[first - 1]):
        first -= 1
    return "\n".join(lines[first:])


def _is_wide(line: str) -> bool:
    return any(len(run) >= WIDE and _is_mixed(run) for run in _RUN.findall(line))


def _is_mixed(run: str) -> bool:
    """Base64 of anything has capitals, small letters and digits; paths and words rarely have all of them."""
    return all(kind.search(run) for kind in _KINDS)


def _runs_of(region: str) -> str:
    runs = _RUN.findall(region)
    times = Counter(runs)
    if sum([len(run) for run in runs if _is_mixed(run)]) < SHORTEST_KEY_BODY:
        return ""
    return "".join([run for run in runs if times[run] == 1 and not run.islower()])
