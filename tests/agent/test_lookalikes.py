"""Words that look like others: Unicode's table, scripts by the names of characters, and what is beside a word."""

import os
from pathlib import Path

import pytest

from tables import each
from turnwise.coding_agent.asked_calls import confusables_in
from turnwise.vocab.lookalikes import lookalikes, script_of, skeleton


@pytest.mark.promise("safe:seen")
@each(
    "text",
    [
        "cat отчёт.txt",
        "cat отчёт_v2.txt Итоги-2025.csv",
        "cat データ.txt 日本語メモ.md ｶﾅ.txt",
        "한국어file",
        "café naïve Zürich İstanbul",
        "echo 'Собрание в ср'",
        "Ελληνικά αρχεία",
        "cat שלום.txt",
        "plain ASCII -rf",
    ],
)
def test_a_text_in_one_script_is_not_marked(text: str, tmp_path: Path) -> None:
    assert confusables_in([text], folder=lambda: tmp_path).lines == ()


@pytest.mark.promise("safe:seen")
@each(
    ("text", "said"),
    [
        ("cаt notes", "confusable: `c<U+0430>t` looks like the command `cat` and mixes Cyrillic and Latin letters"),
        ("echo pаypal", "confusable: `p<U+0430>ypal` reads as `paypal` and mixes Cyrillic and Latin letters"),
        ("ѕеt -x", "confusable: `<U+0455><U+0435>t` looks like the command `set` and mixes Cyrillic and Latin letters"),
        ("ехес ls", "confusable: `<U+0435><U+0445><U+0435><U+0441>` looks like the command `exec`"),
        ("rm –rf x", "confusable: `<U+2013>rf` looks like the option `-rf`"),
        ("ls -а", "confusable: `-<U+0430>` looks like the option `-a`"),
        ("rm х.о", "confusable: `<U+0445>.<U+043E>` looks like the path `x.o`, which exists"),
        ("жx", "confusable: `<U+0436>x` mixes Cyrillic and Latin letters"),
    ],
)
def test_a_word_that_looks_like_another_is_marked(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "x.o").touch()
    found = confusables_in([text], folder=lambda: tmp_path)
    assert found.lines == (said,)
    assert found.mark(text).isascii()


def test_a_skeleton_is_that_of_unicodes_table() -> None:
    """Source: confusables.txt 17.0."""
    assert skeleton("раураl") == skeleton("paypal") == "paypal"
    assert skeleton("rn") == skeleton("m") and skeleton("I1l") == "lll"
    assert [script_of(char) for char in "aж字あアｱ한α1́𝐚"] == [
        *["Latin", "Cyrillic", "Han", "Hiragana", "Katakana", "Katakana", "Hangul", "Greek"],
        *["", "", ""],
    ]
    assert next(iter(lookalikes("𝐜𝐚𝐭"))).skeleton == "cat"
    assert [skeleton(char) for char in "ⅵⅶⅷⅧ"] == ["vi", "vii", "viii", "Vlll"]


def test_the_tables_are_loaded_for_a_text_that_is_not_ascii(tmp_path: Path) -> None:
    """Proves: an ordinary ask costs no import."""
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        import sys

        sys.modules.pop("turnwise.vocab.lookalikes", None)
        confusables_in(["plain"], folder=lambda: tmp_path)
        os.write(write, b"1" if "turnwise.vocab.lookalikes" in sys.modules else b"0")
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 1) == b"0"
    os.close(read)
    os.close(write)
