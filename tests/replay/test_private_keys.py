"""Private keys in texts: replaced whatever tools put around each line, and where the first or the last line is missing."""

import base64
import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tables import each
from turnwise.endpoints.key_hiding import plain
from turnwise.replay.secret_finder import LONGEST_KEY, SecretFinder, StandIns, private_keys_in

DER = b"0\x82\x04\xbe" + random.Random(7).randbytes(1210)
BODY = base64.b64encode(DER).decode()
LINES = [BODY[at : at + 64] for at in range(0, len(BODY), 64)]
BEGIN, END = "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----"
PEM = "\n".join([BEGIN, *LINES, END])
WRITTEN = {
    "as it is": PEM,
    "grep -rn": "\n".join([f"deploy/keys/production/server.pem:{n}:{line}" for n, line in enumerate(PEM.split("\n"))]),
    "docker compose": "\n".join([f"web_1  | {line}" for line in PEM.split("\n")]),
    "a quote": "\n".join([f"> {line}" for line in PEM.split("\n")]),
    "cat -A": "\n".join([f"{line}$" for line in PEM.split("\n")]),
    "source": "\n".join([f'    "{line}\\n" +' for line in PEM.split("\n")]),
    "a diff": "\n".join([f"+{line}" for line in PEM.split("\n")]),
    "Windows": PEM.replace("\n", "\r\n"),
    "JSON": json.dumps({"key": PEM}),
    "JSON in JSON": json.dumps(json.dumps({"key": PEM})),
    "without its first line": PEM.split("\n", 1)[1],
    "cut at its end": PEM[:900],
    "grep, without its first line": "\n".join([f"a/b:{n}:{line}" for n, line in enumerate(PEM.split("\n")[1:])]),
}


def leaks(text: str) -> list[str]:
    """Twelve characters of the key that still stand in a text."""
    return [BODY[at : at + 12] for at in range(len(BODY) - 11) if BODY[at : at + 12] in text]


@pytest.mark.promise("keep:replay")
@each("way", WRITTEN)
def test_a_private_key_is_replaced_however_its_lines_are_written(way: str) -> None:
    """Proves: nothing of it is left, the text is as long as it was, one secret is counted, and what stands around it stays."""
    finder = SecretFinder(StandIns(b"key"))
    text = f"before\n{WRITTEN[way]}\nbehind the key and more words"
    hidden = finder.hidden(text)
    assert not leaks(plain(hidden)) and len(hidden) == len(text) and len(finder.replaced) == 1
    assert hidden.startswith("before\n") and hidden.endswith("behind the key and more words")
    assert hidden.count("deploy/keys/production/server.pem:") == text.count("deploy/keys/production/server.pem:")


@pytest.mark.promise("keep:replay")
def test_the_same_key_in_one_line_and_in_pieces_is_replaced() -> None:
    """Proves: what one text tells of a key counts for all texts: its DER in base64, wide or narrow lines, a few lines alone."""
    finder = SecretFinder(StandIns(b"key"))
    finder.learn(PEM)
    for text in (BODY, "\n".join(LINES[3:6]), "\n".join([BODY[at : at + 76] for at in range(0, len(BODY), 76)])):
        assert not leaks(finder.hidden(f"x {text} y"))
    line = f"deploy/keys/production/server.pem {LINES[5]}"
    assert finder.hidden(line).startswith("deploy/keys/production/server.pem ")


@pytest.mark.costly
@pytest.mark.promise("keep:replay")
@given(st.text(alphabet="ab/_:|>+$ 0", max_size=40), st.text(alphabet="$ \\n\"+,'", max_size=6), st.integers(0, 3))
def test_any_prefix_hides_no_line_and_json_may_change_places(prefix: str, suffix: str, levels: int) -> None:
    """Proves: whatever stands before and behind each line, the key goes; JSON text of it reads as the text with stand-ins."""
    text = "\n".join([f"{prefix}: {line} {suffix}" for line in PEM.split("\n")])
    finder = SecretFinder(StandIns(b"key"))
    hidden = finder.hidden(text)
    assert not leaks(hidden)
    written = text
    for _ in range(levels):
        written = json.dumps(written)
    read = finder.hidden(written)
    for _ in range(levels):
        read = json.loads(read)
    assert read == hidden


def test_text_around_the_edges_of_no_key_stays() -> None:
    """Proves: words and paths near a lonely edge are not the key's; certificates are no keys; a key has a greatest size."""
    words = "src/turnwise/replay/secret_finder.py has a function\n" * 3
    for text in (
        f"{words}{END}\n{words}",
        f"look for {BEGIN} in\n{words}",
        PEM.replace("PRIVATE KEY", "CERTIFICATE"),
        f"{BEGIN}\n{words * (LONGEST_KEY // 100)}\n{END}",
    ):
        assert private_keys_in(text) == []
        assert SecretFinder(StandIns(b"key")).hidden(text) is text
