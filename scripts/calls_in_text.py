"""Hold the reader of calls in text against the raw texts of canitoolcall, as one body and at every split.

Usage: python scripts/calls_in_text.py [--family NAME] [--show ID] [--every-split] [--json] [--package FOLDER]

The package stands in no group of the project, and none of its texts is copied: `uv` puts the pinned wheel into a folder that is
gone afterwards. Ends with 0 if all bars hold, 1 if one breaks, and 2 if the package cannot be had.

Then the package's own probe judges `turnwise gateway` before a server that leaves calls in its text (scripts/probe_gateway.py).

Bars: no call with other arguments than expected, none in a text without calls, none that depends on how a text was split or on
whether it came as one body. scripts/calls_in_text.toml names each miss with its reason, and how many texts are right at least.
The probe finds nothing.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from probe_gateway import probed

from turnwise.assembly.response import Assembler
from turnwise.assembly.text_calls.frames import CallFinder
from turnwise.vocab import (
    ArgumentsState,
    Finished,
    FinishReason,
    Reasoning,
    Response,
    TextDelta,
    ToolSpec,
    calls_of,
    text_of,
)
from turnwise.wire.family import family
from turnwise.wire.profiles import DEFAULT_LIMITS, Profile

ROOT = Path(__file__).resolve().parents[1]
KNOWN = ROOT / "scripts" / "calls_in_text.toml"
PACKAGE = "canitoolcall==0.1.1"
HASH = "sha256:a8a0ea82584cfdb00e737f2853d20fb5f233002aeb961ba735f574a225eceb15"
INSTALL_S = 120
EVERY_SPLIT = 100  # characters of a text that is split at each place
DRAWN_SPLITS = 10
CHAT = family("openai_chat")
PROFILE = Profile(name="openai_chat", family="openai_chat")


class Fixture(msgspec.Struct, frozen=True):
    id: str
    family: str
    raw_output: str
    tools: list[Any] = []
    expected: Mapping[str, Any] | None = None
    tags: list[str] = []

    @property
    def calls(self) -> list[Any]:
        return [[one["name"], one["arguments"]] for one in (self.expected or {}).get("tool_calls", ())]

    @property
    def finish(self) -> FinishReason:
        return FinishReason.LENGTH if "truncated" in self.tags else FinishReason.STOP

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        given = [one.get("function", one) for one in self.tools]
        return tuple([ToolSpec(name=one["name"], parameters=json.dumps(one.get("parameters") or {})) for one in given])


class Row(msgspec.Struct):
    """Texts of one family. `with_calls` expect calls and `right` gives them; `wrong` made one that is not expected, `ghosts` made
    one although none is; `damaged` are cut or broken, `ran` made a call of them; `split` differ by pieces. `worded`: the words
    and the reasoning of a text that is not damaged are right."""

    texts: int = 0
    with_calls: int = 0
    right: int = 0
    wrong: int = 0
    without: int = 0
    ghosts: int = 0
    damaged: int = 0
    ran: int = 0
    split: int = 0
    worded: int = 0


def install(folder: Path) -> None:
    """The package's files in a folder. Raises OSError or SubprocessError where they cannot be had."""
    wanted = folder / "requirements.txt"
    wanted.write_text(f"{PACKAGE} --hash={HASH}\n", encoding="utf-8")
    command = [str(Path(sys.executable).with_name("uv")), "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
    subprocess.run(
        [*command, "--target", str(folder), "--requirements", str(wanted)],
        check=True,
        capture_output=True,
        text=True,
        timeout=INSTALL_S,
    )


def fixtures(folder: Path) -> list[Fixture]:
    found: list[Fixture] = []
    for page in sorted((folder / "canitoolcall" / "_data" / "fixtures").glob("*/*.jsonl")):
        found += [msgspec.json.decode(line, type=Fixture) for line in page.read_bytes().splitlines() if line.strip()]
    return found


def read_pieces(fixture: Fixture, pieces: Sequence[str]) -> Response:
    """The response that comes in these pieces."""
    finder = CallFinder(tools=fixture.specs, earlier=(), unmarked=True)
    assembler = Assembler(tool_names=frozenset([tool.name for tool in fixture.specs]))
    for frame in (*map(TextDelta, pieces), Finished(fixture.finish, fixture.finish.value)):
        assembler.receive_all(finder.take([frame]))
    assembler.receive_all(finder.finish())
    return finder.settled(assembler.finish())


def read_body(fixture: Fixture) -> Response:
    """The same as one body of Chat Completions."""
    message = {"role": "assistant", "content": fixture.raw_output}
    choice = {"index": 0, "message": message, "finish_reason": fixture.finish.value}
    body = json.dumps({"id": "r", "object": "chat.completion", "model": "m", "choices": [choice]}).encode()
    finder = CallFinder(tools=fixture.specs, earlier=(), unmarked=True)
    assembler = Assembler(tool_names=frozenset([tool.name for tool in fixture.specs]))
    assembler.receive_all(finder.take(CHAT.decode_body(body, PROFILE, DEFAULT_LIMITS)))
    assembler.receive_all(finder.finish())
    return finder.settled(assembler.finish())


def made(response: Response) -> list[Any]:
    """The calls that would run."""
    return [
        [call.name, json.loads(call.arguments)]
        for call in calls_of(response.message)
        if call.state is ArgumentsState.COMPLETE
    ]


def said(response: Response) -> tuple[Any, ...]:
    """What of a response must not depend on pieces."""
    states = [(call.name, call.arguments, call.state) for call in calls_of(response.message)]
    thought = "".join([part.text for part in response.message.parts if isinstance(part, Reasoning)])
    return states, text_of(response.message), thought


def splits(text: str, *, every: bool) -> Iterator[list[str]]:
    """In one piece, character by character, in two pieces at each place or at drawn ones, and in drawn pieces."""
    yield [text]
    yield list(text)
    chance = random.Random(len(text))
    places = range(1, len(text))
    if not (every or len(text) <= EVERY_SPLIT):
        places = sorted(chance.sample(places, DRAWN_SPLITS))
    for at in places:
        yield [text[:at], text[at:]]
    for _ in range(3):
        at, pieces = 0, list[str]()
        while at < len(text):
            size = chance.randint(1, 24)
            pieces.append(text[at : at + size])
            at += size
        yield pieces


def are_part(some: list[Any], whole: list[Any]) -> bool:
    """Whether the calls stand among the expected ones, in their order."""
    rest = iter(whole)
    return all(one in rest for one in some)


def differs_by_split(fixture: Fixture, whole: Response, *, every: bool) -> bool:
    if said(read_body(fixture)) != said(whole):
        return True
    return any(said(read_pieces(fixture, pieces)) != said(whole) for pieces in splits(fixture.raw_output, every=every))


def judge(fixture: Fixture, row: Row, *, every: bool) -> list[str]:
    """What is wrong with how the text is read."""
    whole = read_pieces(fixture, [fixture.raw_output])
    calls, faults = made(whole), list[str]()
    row.texts += 1
    if fixture.expected is None:
        row.damaged += 1
        if calls:
            row.ran += 1
            faults.append("ran")
    elif fixture.calls:
        row.with_calls += 1
        if calls == fixture.calls:
            row.right += 1
        else:
            is_wrong = not are_part(calls, fixture.calls)
            row.wrong += is_wrong
            faults.append("wrong" if is_wrong else "missed")
    else:
        row.without += 1
        if calls:
            row.ghosts += 1
            faults.append("ghost")
    if differs_by_split(fixture, whole, every=every):
        row.split += 1
        faults.append("split")
    if fixture.expected is not None:
        found = [text.strip() for text in said(whole)[1:]]
        wanted = [fixture.expected.get(key) or "" for key in ("content", "reasoning_content")]
        row.worded += found == [text.strip() for text in wanted]
    return faults


def broken_bars(total: Row, faults: Mapping[str, list[str]], *, known: Mapping[str, Any], is_whole: bool) -> list[str]:
    """What the figures say that they must not."""
    reasons: Mapping[str, str] = known["known"]
    broken = [f"{name}: {one}" for name, found in faults.items() for one in found if one in ("wrong", "ghost", "split")]
    broken += [f"{name}: missed, and no reason is known" for name in faults if name not in reasons]
    if is_whole:
        broken += [f"{name}: right now, take it out of the table" for name in reasons if name not in faults]
        for bar in ("right", "worded"):
            if getattr(total, bar) < known[bar]:
                broken.append(f"{bar}: {getattr(total, bar)} of at least {known[bar]}")
    return broken


def table(rows: Mapping[str, Row]) -> str:
    names = Row.__struct_fields__
    lines = [f"{'family':14}" + "".join([f"{name:>11}" for name in names])]
    lines += [f"{family:14}" + "".join([f"{getattr(row, name):>11}" for name in names]) for family, row in rows.items()]
    return "\n".join(lines)


def show(fixture: Fixture) -> None:
    read = read_pieces(fixture, [fixture.raw_output])
    print(fixture.raw_output, fixture.expected, said(read), *read.repairs, sep="\n---\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--package", type=Path, metavar="FOLDER", help="where it stands already; nothing is installed")
    parser.add_argument("--family", metavar="NAME", help="only the texts of this family")
    parser.add_argument("--every-split", action="store_true", help="split long texts at each place, too")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    parser.add_argument("--show", metavar="ID", help="how one text is read")
    given = parser.parse_args()
    known = tomllib.loads(KNOWN.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as own:
        folder = given.package or Path(own)
        try:
            if given.package is None:
                install(folder)
            found = fixtures(folder)
            passed, failed = (0, []) if given.family or given.show else probed(folder)
        except (OSError, subprocess.SubprocessError) as problem:
            print(f"{PACKAGE} cannot be had: {problem}\n{getattr(problem, 'stderr', '')}", file=sys.stderr)
            return 2
    if given.show:
        for one in found:
            if one.id == given.show:
                show(one)
        return 0
    rows: dict[str, Row] = {}
    faults: dict[str, list[str]] = {}
    for one in found:
        if given.family in (None, one.family):
            problems = judge(one, rows.setdefault(one.family, Row()), every=given.every_split)
            faults |= {one.id: problems} if problems else {}
    total = Row(*[sum(getattr(row, name) for row in rows.values()) for name in Row.__struct_fields__])
    broken = [*broken_bars(total, faults, known=known, is_whole=given.family is None), *failed]
    rows["all"] = total
    if given.json:
        figures = {"families": rows, "faults": faults, "probe passed": passed, "broken": broken}
        print(msgspec.json.format(msgspec.json.encode(figures)).decode())
    else:
        print(table(rows))
        print("\n".join([f"{', '.join(found)} {id}: {known['known'].get(id, '?')}" for id, found in faults.items()]))
        print(f"{passed} checks of the probe passed")
        print("\n".join([f"BROKEN {one}" for one in broken]) or "all bars hold")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
