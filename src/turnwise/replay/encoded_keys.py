"""Keys that stand in a text only encoded: in base64 (a Kubernetes Secret, the login in Docker's config) or in hex.

Each run is decoded once. A base64 run may begin with letters that belong to the word before it, so it is read from each of its
first four characters on.
"""

import base64
import binascii
import re
from collections.abc import Container, Iterator

from turnwise.replay.private_keys import private_keys_in
from turnwise.vocab.key_shapes import keys_in

LONGEST_RUN = 65_536  # characters; of a longer one, as of a picture, only its beginning is looked at
_LINES = r"(?:\r?\n[ \t]{0,16}[A-Za-z0-9+/]{4,})*"  # `base64` breaks lines after 76 characters
_BASE64 = re.compile(rf"[A-Za-z0-9+/_-]{{20,}}{_LINES}={{0,2}}")
_HEX = re.compile(r"[0-9a-fA-F]{20,}")
_SPACE = re.compile(r"\s+")
_FOR_URLS = str.maketrans("-_", "+/")


def encoded_keys_in(text: str, *, known: Container[str] = ()) -> list[str]:
    """The runs that decode to something with a key in it that is not `known`, without white space."""
    found: list[str] = []
    for pattern, read in ((_HEX, _from_hex), (_BASE64, _from_base64)):
        for run in pattern.finditer(text):
            written = _SPACE.sub("", run[0][:LONGEST_RUN])
            if any(private_keys_in(one) or any(key not in known for _, key in keys_in(one)) for one in read(written)):
                found.append(written)
    return found


def _from_hex(run: str) -> Iterator[str]:
    for start in (0, 1):
        whole = run[start:]
        yield bytes.fromhex(whole[: len(whole) // 2 * 2]).decode("latin-1")


def _from_base64(run: str) -> Iterator[str]:
    plain = run.rstrip("=").translate(_FOR_URLS)
    for start in range(4):
        whole = plain[start:]
        whole = whole[: len(whole) - (len(whole) % 4 == 1)]  # one character alone holds no byte
        try:
            yield base64.b64decode(whole + "=" * (-len(whole) % 4)).decode("latin-1")
        except binascii.Error:
            continue
