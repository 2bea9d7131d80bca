"""Texts that a model writes, of every kind whose seam is hard to tell, for the tests of continuations."""

import json
import random
from collections.abc import Callable, Sequence


def prose(chance: random.Random) -> str:
    words = "the quick brown fox jumps over lazy dogs while singing continues certainly here right okay said".split()
    return " ".join([_often(chance, words) + chance.choice(["", "", ",", '. "Yes," he said.']) for _ in range(300)])


def code(chance: random.Random) -> str:
    lines = [
        f'def item_{number}(a, b):\n    """Adds."""\n    return a + b + {chance.randrange(999)}  # "{number}"\n'
        for number in range(40)
    ]
    return "\n".join(lines)


def makefile(chance: random.Random) -> str:
    return "".join([f"target{number}: part{chance.randrange(99)}\n\tcc -o $@ 'x{number}.c'\n" for number in range(60)])


def compact_json(chance: random.Random) -> str:
    return json.dumps(_records(chance), separators=(",", ":"))


def one_object(chance: random.Random) -> str:
    return json.dumps(
        {f"key{number}": f"a text of {chance.random()} words" for number in range(40)}, separators=(",", ":")
    )


def indented_json(chance: random.Random) -> str:
    return json.dumps(_records(chance), indent=2)


def latex(chance: random.Random) -> str:
    words = [
        "the number $\\frac{\\theta}{\\nu}$",
        "\\theta over \\beta times",
        "\\rho and something longer",
        "\\nu means nothing",
        "words without any command",
        "a \\\\ b\n",
    ]
    return " ".join([_often(chance, words) for _ in range(120)])


def latex_line(chance: random.Random) -> str:
    return latex(chance).replace("\n", " ")


def windows_paths(chance: random.Random) -> str:
    folders, ends = ["temp", "new", "bin", "foo", "reports", "users"], ["build", "files", "notes", "records"]
    paths = [f"C:\\{_often(chance, folders)}\\{_often(chance, ends)}{chance.randrange(999)}" for _ in range(160)]
    return chance.choice([";", "\n"]).join(paths)


def csv(chance: random.Random) -> str:
    return "".join([f'{number},"name, number {chance.randrange(99)}",0.5,"say ""hi"""\n' for number in range(100)])


def unicode(chance: random.Random) -> str:
    words = [
        "Füße und Öfen ",
        "😀 lachen ",
        "日本語のテキスト",
        "naïve café\n",
        "a/b/c/ plain words ",
        "👩‍👩‍👧 🇩🇪 ",
        '"so" ',
    ]
    return "".join([_often(chance, words) for _ in range(200)])


def html(chance: random.Random) -> str:
    rows = [f'<tr class="row odd number{number}"><td>{chance.random()}</td></tr>' for number in range(80)]
    return f"<table>{''.join(rows)}</table>"


def same_lines(chance: random.Random) -> str:
    return "= header =\n" + "a line that is always the same\n" * chance.randrange(20, 150) + "footer\n"


def one_letter(chance: random.Random) -> str:
    return "start " + "a" * chance.randrange(200, 6000) + " end"


def blocks(chance: random.Random) -> str:
    block = "".join([f"row {number} of a block, with words\n" for number in range(chance.choice([3, 10, 90]))])
    return block * chance.randrange(2, 8) + "the end\n"


CONTENTS: dict[str, Callable[[random.Random], str]] = {
    make.__name__: make
    for make in (
        prose, code, makefile, compact_json, one_object, indented_json, latex, latex_line, windows_paths, csv, unicode, html,
        same_lines, one_letter, blocks,
    )
}  # fmt: skip


def _records(chance: random.Random) -> list[dict[str, str]]:
    dogs = ["the lazy dog", "a wall", 'a "wall"', "someone\\something"]
    return [
        {"name": f"user number {number}", "text": f"The quick brown fox jumps over {_often(chance, dogs)}."}
        for number in range(60)
    ]


def _often(chance: random.Random, choices: Sequence[str]) -> str:
    return chance.choice(choices)
