"""Keys that a text holds only in base64 or hex: the whole run is replaced."""

import base64
import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay.test_private_keys import PEM
from tables import each
from turnwise.replay.secret_finder import SecretFinder, StandIns, encoded_keys_in, keys_in

KEY = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"


def in_base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def broken(text: str, *, width: int) -> str:
    return "\n".join([text[at : at + width] for at in range(0, len(text), width)])


WRITTEN = {
    "a Kubernetes Secret": f"data:\n  token: {in_base64(KEY)}\ntype: Opaque",
    "Docker's config": json.dumps({"auths": {"ghcr.io": {"auth": in_base64(f"jane:{KEY}")}}}),
    "behind a word": f"x-token_{in_base64(f'u:{KEY}')}",
    "for URLs": base64.urlsafe_b64encode(f"ü?>:{KEY}".encode()).decode(),
    "a private key": f"tls.key: {in_base64(PEM)}",
    "broken into lines": broken(in_base64("x " * 40 + KEY), width=76),
    "hex": KEY.encode().hex(),
    "hex in capitals": f"0x{f'a:{KEY}'.encode().hex().upper()}",
}


@pytest.mark.promise("keep:replay")
@each("way", WRITTEN)
def test_a_key_that_stands_there_only_encoded_is_replaced(way: str) -> None:
    """Proves: nothing that decodes to the key is left, also in JSON text, and one secret is counted."""
    text = WRITTEN[way]
    for levels in range(3):
        finder = SecretFinder(StandIns(b"key"))
        hidden = finder.hidden(text)
        assert len(hidden) == len(text) and hidden != text and len(finder.replaced) == 1, levels
        assert encoded_keys_in(hidden) == [] and encoded_keys_in(WRITTEN[way]) != []
        text = json.dumps(text)


@pytest.mark.promise("keep:replay")
@given(st.text(alphabet="ab: =ü\n", max_size=9), st.text(alphabet="ab: \n", max_size=9), st.integers(0, 3))
def test_base64_with_a_key_reads_alike_in_json(before: str, behind: str, levels: int) -> None:
    """Proves: whatever stands before and behind the key in what is encoded; JSON text of it reads as the text with stand-ins."""
    text = f"auth: {in_base64(f'{before}:{KEY} {behind}')}\nnext"
    written = text
    for _ in range(levels):
        written = json.dumps(written)
    finder = SecretFinder(StandIns(b"key"))
    read = finder.hidden(written)
    for _ in range(levels):
        read = json.loads(read)
    assert read == finder.hidden(text) != text and read.startswith("auth: ") and read.endswith("\nnext")


def test_base64_and_hex_of_anything_else_stay() -> None:
    """Proves: pictures, hashes and long words are as they were."""
    picture = base64.b64encode(random.Random(3).randbytes(200_000)).decode()
    for text in (picture, random.Random(4).randbytes(32).hex(), "turnwise/replay/secret_finder " * 9):
        assert SecretFinder(StandIns(b"key")).hidden(text) is text
    assert list(keys_in(KEY))
