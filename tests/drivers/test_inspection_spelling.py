"""Words as the judge reads them, compared with what a real bash makes of them."""

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from turnwise.drivers.tools.inspection.grammar import parse
from turnwise.drivers.tools.inspection.paths import Paths
from turnwise.drivers.tools.inspection.spelling import Spelled, spell_words
from waits import HANG_S

BASH = shutil.which("bash")
NAMES = [
    ".env",
    ".e",
    "a",
    "b",
    "ab",
    "a,b",
    "x.py",
    "-n",
    "[a]",
    "{a,b}",
    "a b",
    "1",
    "2",
    "]",
    "A",
    "env",
    "!",
    "^",
    "é",
    "éü",
    "aé",
]
WORDS = 4000
ALPHABET = [
    *"abA12.,,{{}}[]*?!^-~\\'\"e",
    "é",
    "??",
    "..",
    "{1..3}",
    "{a,",
    "[!",
    "[a-b]",
    ".env",
    "[[:alpha:]]",
    "x.py",
]


def drawn_words(*, seed: int) -> list[str]:
    draw = random.Random(seed)
    return ["".join(draw.choices(ALPHABET, k=draw.randint(1, 9))) for _ in range(WORDS)]


def read_word(text: str) -> tuple[Spelled, ...] | None:
    """As an argument of a command; None where the judge is not certain of it, or it is not one word of the grammar."""
    root, problem = parse(f"p {text}")
    command = root.children[0] if root.children else None
    if problem or command is None or command.type != "command" or len(command.children) != 2:
        return None
    words = spell_words(command.children[1])
    return words if all(word.literal and not word.has_tilde for word in words) else None


@pytest.mark.promise("safe:judged")
@pytest.mark.skipif(BASH is None, reason="needs bash")
@pytest.mark.parametrize(("seed", "locale"), [(0, "C.UTF-8"), (1, "C.UTF-8"), (2, "C")])
def test_braces_and_brackets_come_to_what_bash_makes_of_them(seed: int, locale: str, tmp_path: Path) -> None:
    """Issue 13, line 11: where the judge is certain of a word, bash agrees; a glob may match less than the judge says. In the
    locale `C` a wildcard takes a byte, so `??` finds `é`."""
    for name in NAMES:
        (tmp_path / name).write_text("")
    certain = {text: words for text in drawn_words(seed=seed) if (words := read_word(text)) is not None}
    script = "p() { printf '%s\\0' \"$@\" $'\\n'; }\n" + "".join(f"p {text}\n" for text in certain)
    assert BASH is not None
    ran = subprocess.run(
        [BASH, "--norc", "-c", script], cwd=tmp_path, capture_output=True, timeout=HANG_S, check=False,
        env={"PATH": os.defpath, "LC_ALL": locale},
    )  # fmt: skip
    assert ran.stderr == b""
    paths = Paths(tmp_path, home=str(tmp_path))
    found = [line.rstrip("\0").split("\0") for line in ran.stdout.decode().split("\n\0")[:-1]]
    assert len(found) == len(certain)
    for (text, words), got in zip(certain.items(), found, strict=True):
        if any(word.is_glob for word in words):
            may_be = {word.text for word in words}
            for word in words:
                may_be.update(paths.expand(word.segments(), place=str(tmp_path)) or [])
            assert set(got) <= may_be | {""}, text
        else:
            assert [one for one in got if one] == [word.text for word in words if word.text], text
    assert sum(len(words) > 1 for words in certain.values()) > 50
    assert sum(word.is_glob for words in certain.values() for word in words) > 50
