"""Ordinary answers: pages, code, XML and JSON, and examples of calls in fences and backticks. None of them is a call.

As a command: `python tests/ordinary_texts.py 20000` reads so many, and names those in which a call was found.
"""

import json
import random
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from text_calls import WRITERS, read_text
from turnwise.vocab import ToolSpec

ROOT = Path(__file__).resolve().parents[1]
# The tools that the texts speak of are on offer: that is when an example could be taken for a call.
NAMES = (
    "read",
    "edit",
    "write",
    "shell",
    "search",
    "list",
    "fetch",
    "get_weather",
    "read_result",
    "task",
    "build",
    "lookup",
)
TOOLS = tuple([ToolSpec(name=name) for name in NAMES])
PATHS = ("notes.txt", "src/main.py", "docs/lab.md", "a b.txt")
WHOLE_CALLS = re.compile(
    r"<tool_call|<function|\[TOOL_CALLS\]|<\||<｜|<minimax|<longcat|<seed:|<TOOLCALL|<start_function|functools\["
)


@cache
def sections() -> tuple[str, ...]:
    """The parts of this repository's pages, and pieces of its code; what holds whole calls for tests is none of them."""
    found: list[str] = []
    for page in sorted([*ROOT.glob("docs/*.md"), ROOT / "README.md", ROOT / "CHANGELOG.md"]):
        found += re.split(r"(?m)^(?=## )", page.read_text(encoding="utf-8"))
    for source in sorted([*ROOT.glob("src/turnwise/**/*.py"), *ROOT.glob("src/turnwise/**/*.toml")]):
        text = source.read_text(encoding="utf-8")
        if WHOLE_CALLS.search(text) is None:
            found += [part[:4000] for part in re.split(r"(?m)^(?=def |class |\[)", text)]
    return tuple([part for part in found if part.strip()])


def an_xml(chance: random.Random, *, depth: int = 0) -> str:
    tag = chance.choice(
        ("note", "invoice", "tool", "function", "parameter", "param", "config", "item", "tool_call_log", "think")
    )
    name = chance.choice((f' name="{chance.choice(NAMES)}"', ' id="7"', ""))
    if depth > 2 or chance.random() < 0.3:
        inner = chance.choice((*PATHS, "1 < 2", '{"name": "read"}', "&lt;tool_call&gt;"))
        return f"<{tag}{name}>{inner}</{tag}>"
    inner = "\n".join([an_xml(chance, depth=depth + 1) for _ in range(chance.randint(1, 3))])
    return f"<{tag}{name}>\n{inner}\n</{tag}>"


def a_json(chance: random.Random) -> str:
    value = {
        "name": chance.choice(NAMES),
        chance.choice(("arguments", "parameters", "input")): {"path": chance.choice(PATHS)},
        "id": chance.randint(1, 99),
    }
    return json.dumps(chance.choice((value, [value, value], {"tool_calls": [value]})), indent=chance.choice((None, 2)))


def a_mention(chance: random.Random) -> str:
    """Markers as words of a text."""
    marker = chance.choice(
        (
            "<tool_call>",
            "</tool_call>",
            "<function=...>",
            "[TOOL_CALLS]",
            "<|python_tag|>",
            "<|channel|>",
            "<minimax:tool_call>",
            "<｜tool▁calls▁begin｜>",
            "<|tool_calls_section_begin|>",
            "<think>",
            *(
                "<|tool_call>",
                "<start_function_call>",
                "<function_calls>",
                "<tool_calls>",
                "<TOOLCALL>",
                "functools[...]",
            ),
            *("<|START_ACTION|>", "<|tools_prefix|>", "<｜DSML｜ calls>", "<|open|>tools<|sep|>", "to=functions.read"),
        )
    )
    return chance.choice(
        (
            f"The model writes {marker} and then the call.",
            f"Qwen ends a call with {marker}.",
            f"1. {marker} begins it\n2. JSON follows\n",
            f"Without {marker} nothing is parsed, and {marker} alone is nothing: read(path) is a function.",
        )
    )


def an_example(chance: random.Random) -> str:
    """A whole call, as an example in a fence or backticks."""
    block = WRITERS[chance.choice(sorted(WRITERS))](
        [(chance.choice(NAMES), {"path": chance.choice(PATHS)}) for _ in range(chance.randint(1, 2))]
    )
    fence = "````" if "```" in block else chance.choice(("```", "~~~", "````"))
    line = block.replace("\n", " ")
    ticks = "````" if "```" in line else chance.choice(("`", "``"))
    return chance.choice(
        (
            f"{fence}{chance.choice(('', 'xml', 'json', 'text'))}\n{block}\n{fence}\n",
            f"- so:\n\n  {fence}\n  " + block.replace("\n", "\n  ") + f"\n  {fence}\n",
            f"> {fence}\n> " + block.replace("\n", "\n> ") + f"\n> {fence}\n",
            f"It writes {ticks} {line} {ticks} there.",
            f"A model that wants to read a file writes {line} and waits for the result.",
            f"It ends with {line}, as its template says.",
            "It writes this::\n\n    " + block.replace("\n", "\n    ") + "\n\nThat is all.",
        )
    )


def texts(count: int, *, seed: int = 1) -> Iterator[str]:
    """So many ordinary texts, the same for the same seed."""
    chance = random.Random(seed)
    makers = (lambda: chance.choice(sections()), lambda: an_xml(chance), lambda: a_json(chance))
    for _ in range(count):
        parts: list[str] = []
        for _ in range(chance.randint(1, 4)):
            kind = chance.random()
            if kind < 0.3:
                parts.append(an_example(chance))
            elif kind < 0.45:
                parts.append(a_mention(chance))
            else:
                parts.append(chance.choice(makers)())
        yield "\n\n".join(parts)


def calls_in(text: str, *, piece: int | None = None) -> list[str]:
    """The states of the calls that are found; the text has to stay as it is."""
    pieces = [text] if piece is None else [text[at : at + piece] for at in range(0, len(text), piece)]
    found = read_text(pieces, tools=TOOLS)
    if not found.states and not text.lstrip().startswith("<think>"):
        assert found.text == text == found.shown_text
    return found.states


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    bad = [text for text in texts(count) if calls_in(text)]
    for text in bad[:5]:
        sys.stdout.write(f"--- a call was found in:\n{text}\n")
    sys.stdout.write(f"{count:,} texts, a call in {len(bad):,}\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
