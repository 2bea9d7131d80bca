"""Find what the vendors' newest SDKs know and turnwise does not: each field and literal is read, or there is a decision about it.

The types that a request, an answer and a stream event can reach come from scripts/lookout_types.py. A name is *read* if it
stands in the syntax tree of `wire`, `relay` or `journal`. It is *exercised* if it also stands in what their tests feed or
expect: their syntax trees, the recorded streams, and the examples of the decisions, which a test feeds to the real decoders. All
else has to be *decided*: scripts/lookout.toml says what happens to a user who meets it. A type whose own `type` is not read is
one difference, and nothing below it is looked at.
"""

import argparse
import ast
import fnmatch
import functools
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "turnwise"
WALKER = ROOT / "scripts" / "lookout_types.py"
DECISIONS = ROOT / "scripts" / "lookout.toml"
ROOMS = {
    "chat": "openai_chat",
    "responses": "openai_responses",
    "open-responses": "openai_responses",
    "anthropic": "anthropic_messages",
    "gemini": "gemini",
}
"""Vendors' families as the names of differences begin, and their rooms in `wire`."""
SHARED = ("wire/*.py", "relay/*.py", "journal/**/*.py")
NO_READERS = frozenset({"evidence.py"})  # lists which names a report may show: it reads none of them
TESTS = ("wire/*.py", "relay/*.py", "assembly/*.py", "endpoints/*.py", "journal/**/*.py", "running/*.py", "replay/*.py")
RECORDED = ("streams/**/*", "journal/served_bills.toml")
TAG = "type"  # the field that tells which of several types a value has
INSTALL_S, WALK_S = 300, 120
UNDECIDED, UNTESTED, GONE, STALE = "undecided", "read, but no test feeds it", "its type is gone", "decides nothing"

HELP = """examples:
  python scripts/lookout.py                    the newest SDKs of the index
  python scripts/lookout.py --decided          the versions that the decisions were made for, as CI does
  python scripts/lookout.py --since            what came since the versions of six months before, and what became of it
  python scripts/lookout.py --sdks FOLDER      SDKs that are there already; nothing is installed
  python scripts/lookout.py --json             the same for a program

exit codes: 0 all is decided, 1 differences, 2 wrong usage, 3 the SDKs could not be installed or read"""


class CannotInstall(Exception):
    """The SDKs could not be installed, or not be read."""


@dataclass(frozen=True)
class Decision:
    """What happens to a user who meets one of `names`: patterns of `family.side.Type.field=literal`."""

    names: tuple[str, ...]  # as written: with groups
    happens: str
    examples: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class Decisions:
    versions: Mapping[str, str]
    before: Mapping[str, str]
    all: tuple[Decision, ...]

    @functools.cached_property
    def patterns(self) -> tuple[tuple[str, re.Pattern[str]], ...]:
        """Each name as it is written, and what it matches."""
        names = [name for one in self.all for name in one.names]
        return tuple(
            [(name, re.compile("|".join([fnmatch.translate(one) for one in spelled_out(name)]))) for name in names]
        )

    def about(self, name: str) -> list[str]:
        """The names as written that match it."""
        return [written for written, matches in self.patterns if matches.match(name)]


@dataclass
class Findings:
    """What became of each name: `undecided` and its like are differences."""

    states: dict[str, str] = field(default_factory=dict[str, str])
    used: set[str] = field(default_factory=set[str])  # patterns that decided something

    @property
    def differences(self) -> dict[str, str]:
        return {name: state for name, state in self.states.items() if state in (UNDECIDED, UNTESTED, GONE, STALE)}


def read_decisions(file: Path = DECISIONS) -> Decisions:
    found = tomllib.loads(file.read_text(encoding="utf-8"))
    all = [
        Decision(tuple(one["names"].split()), one["happens"], tuple(one.get("example", ())))
        for one in found["decision"]
    ]
    return Decisions(found["versions"], found["before"], tuple(all))


def spelled_out(name: str) -> Iterator[str]:
    """`a.{b,c}` is `a.b` and `a.c`; a name may have several such groups, none within another."""
    groups = [
        one.strip("{}").split(",") if one.startswith("{") else [one] for one in re.findall(r"\{[^}]*\}|[^{]+", name)
    ]
    return map("".join, itertools.product(*groups))


# --- what turnwise reads, and what its tests exercise


def read_words(source: Path = SOURCE) -> dict[str, frozenset[str]]:
    """By family: the words in the syntax trees of its room and of the shared ones."""
    shared = _words_in(source, SHARED)
    return {family: shared | _words_in(source, (f"wire/{room}/*.py",)) for family, room in ROOMS.items()}


def exercised_words(tests: Path = ROOT / "tests", *, decisions: Decisions) -> frozenset[str]:
    """The words in what the tests feed and expect."""
    found = [path for pattern in RECORDED for path in tests.glob(pattern) if path.is_file()]
    recorded = [path.read_text("utf-8", "replace") for path in found]
    examples = [str(value) for one in decisions.all for example in one.examples for value in example.values()]
    return _words_in(tests, TESTS, fed=True) | {word for text in (*recorded, *examples) for word in _split(text)}


@functools.cache
def _words_in(folder: Path, patterns: tuple[str, ...], *, fed: bool = False) -> frozenset[str]:
    files = [path for pattern in patterns for path in sorted(folder.glob(pattern)) if path.name not in NO_READERS]
    return frozenset([word for path in files for word in words_of(path.read_text(encoding="utf-8"), fed=fed)])


def words_of(source: str, *, fed: bool = False) -> Iterator[str]:
    """The strings of a module without its docstrings, whole and in words, and the fields of its classes. `fed`: of a test, which
    writes the fields of an object as keywords, too."""
    tree = ast.parse(source)
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in docs and isinstance(node.value, str | bytes):
            text = node.value if isinstance(node.value, str) else node.value.decode("utf-8", "replace")
            yield text
            yield from _split(text)
        elif isinstance(node, ast.keyword) and node.arg and fed:
            yield node.arg
        elif isinstance(node, ast.ClassDef):
            is_camel = any(keyword.arg == "rename" for keyword in node.keywords)
            for line in node.body:
                if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                    yield _camel(line.target.id) if is_camel else line.target.id


def _split(text: str) -> Iterator[str]:
    """Words, and paths of words (`response.output_text.delta`, `image/png`) both whole and in their words."""
    for path in re.findall(r"[\w./-]+", text):
        yield path
        if not path.startswith("response."):  # the types of events say something as a whole only
            yield from re.findall(r"[\w-]+", path)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join([word.capitalize() for word in rest])


# --- the judgement


def judge(
    graph: Mapping[str, Any], *, decisions: Decisions, read: Mapping[str, frozenset[str]], exercised: frozenset[str]
) -> Findings:
    """What became of each field and literal that the roots reach. What is decided, or is a difference, is not looked into."""
    findings = Findings()
    for side, roots in graph["roots"].items():
        words = read[side.partition(".")[0]]
        seen, waiting = set(roots), list(roots)
        while waiting:
            found = graph["types"][waiting.pop(0)]
            for below in _judge_type(side, found, findings, decisions=decisions, read=words, exercised=exercised):
                if below not in seen:
                    seen.add(below)
                    waiting.append(below)
    findings.states |= dict.fromkeys(graph["gone"], GONE)
    if graph["versions"] == decisions.versions:
        unused = {name for name, _ in decisions.patterns} - findings.used
        findings.states |= dict.fromkeys(sorted(unused), STALE)
    return findings


def _judge_type(
    side: str,
    found: Mapping[str, Any],
    findings: Findings,
    *,
    decisions: Decisions,
    read: frozenset[str],
    exercised: frozenset[str],
) -> Iterator[str]:
    """Judge one type; returns the types below it that have to be judged too."""
    # The generator of Open Responses' types counts those that have one name.
    name = found["name"].rstrip("0123456789") if side.startswith("open-") else found["name"]
    begin, fields = f"{side}.{_plain(name)}", found["fields"]

    def is_known(name: str, word: str) -> bool:
        """Whether it is read and exercised."""
        if patterns := decisions.about(name):
            findings.used.update(patterns)
            findings.states[name] = "decided"
        elif word not in read:
            findings.states[name] = UNDECIDED
        else:
            findings.states[name] = "read" if word in exercised else UNTESTED
        return findings.states[name] == "read"

    tag = fields.get(TAG, {"literals": (), "types": ()})
    if len(tag["literals"]) == 1 and not is_known(f"{begin}.{TAG}={tag['literals'][0]}", tag["literals"][0]):
        return
    for name, about in fields.items():
        if not is_known(f"{begin}.{name}", name):
            continue
        for literal in about["literals"]:
            is_known(f"{begin}.{name}={literal}", literal)
        yield from about["types"]


def _plain(name: str) -> str:
    """A type's name without what tells its variants apart: with and without a stream, as a parameter and as a value."""
    return re.sub(r"(?:Params?)+$", "", re.sub(r"(?:Non)?Streaming$", "", name)) or name


# --- the SDKs


def install(wanted: Sequence[str], folder: Path, *, say: "Say") -> None:
    """Put packages into a folder of their own. Raises CannotInstall."""
    say(f"installing {', '.join(wanted)}")
    quiet = ("--quiet", "--target", str(folder), *wanted)
    uv = Path(sys.executable).with_name("uv")
    pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", *quiet]
    _output_of([str(uv), "pip", "install", "--python", sys.executable, *quiet] if uv.exists() else pip, INSTALL_S)


def walk(folder: Path, *, say: "Say") -> dict[str, Any]:
    """The graph of types (scripts/lookout_types.py). Raises CannotInstall if the SDKs cannot be imported."""
    say(f"reading the types in {folder}")
    return json.loads(_output_of([sys.executable, "-I", str(WALKER), str(folder)], WALK_S))


def _output_of(command: Sequence[str], limit_s: float) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotInstall(str(error)) from None
    if done.returncode:
        raise CannotInstall(done.stderr.strip() or f"`{command[0]}` ended with {done.returncode}")
    return done.stdout


def graph_of(versions: Mapping[str, str] | None, packages: Iterable[str], *, say: "Say") -> dict[str, Any]:
    """The graph of these versions, or of the newest. Raises CannotInstall."""
    wanted = [f"{name}=={versions[name]}" if versions else name for name in packages]
    with tempfile.TemporaryDirectory(prefix="lookout-") as folder:
        install(wanted, Path(folder), say=say)
        return walk(Path(folder), say=say)


# --- the command


class Say:
    """Progress, on standard error."""

    def __call__(self, text: str) -> None:
        print(f"lookout: {text}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    asked = _parser().parse_args(arguments)
    say = Say()
    decisions = read_decisions(asked.decisions)
    try:
        if asked.sdks is not None:
            graph = walk(asked.sdks, say=say)
        else:
            graph = graph_of(decisions.versions if asked.decided else None, decisions.versions, say=say)
        before = None
        if asked.since is not None:
            older = asked.since
            before = graph_of(decisions.before, decisions.before, say=say) if older is True else walk(older, say=say)
    except CannotInstall as error:
        say(f"the SDKs could not be installed or read: {error}")
        return 3
    read, exercised = read_words(), exercised_words(decisions=decisions)
    findings = judge(graph, decisions=decisions, read=read, exercised=exercised)
    shown = findings.differences
    if before is not None:
        old = judge(before, decisions=decisions, read=read, exercised=exercised).states
        shown = {name: state for name, state in findings.states.items() if name not in old}
    if asked.json:
        print(json.dumps(_report(graph, findings, shown=shown), indent=1))
    else:
        print(_table(graph, findings, shown=shown, is_coloured=sys.stdout.isatty() and not os.environ.get("NO_COLOR")))
    return 1 if findings.differences else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="lookout.py",
        description="Find what the vendors' newest SDKs know and turnwise does not.",
        epilog=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--decided", action="store_true", help="the versions that the decisions were made for")
    which.add_argument("--sdks", type=_folder, metavar="FOLDER", help="a folder with SDKs; nothing is installed")
    parser.add_argument(
        "--since",
        nargs="?",
        const=True,
        type=_folder,
        metavar="FOLDER",
        help="show what came since the versions of six months before, or since the SDKs in a folder",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    parser.add_argument("--decisions", type=Path, default=DECISIONS, metavar="FILE", help=argparse.SUPPRESS)
    return parser


def _folder(text: str) -> Path:
    if not Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"`{text}` is no folder")
    return Path(text)


def _report(graph: Mapping[str, Any], findings: Findings, *, shown: Mapping[str, str]) -> dict[str, object]:
    states = list(findings.states.values())
    return {
        "versions": graph["versions"],
        "read": states.count("read"),
        "decided": states.count("decided"),
        "differences": findings.differences,
        "shown": dict(shown),
    }


def _table(graph: Mapping[str, Any], findings: Findings, *, shown: Mapping[str, str], is_coloured: bool) -> str:
    bold, plain = ("\x1b[1m", "\x1b[0m") if is_coloured else ("", "")
    lines: list[str] = []
    for side in dict.fromkeys([_side(name) for name in shown]):
        lines.append(f"{bold}{side}{plain}")
        lines += [f"  {name}: {state}" for name, state in shown.items() if _side(name) == side]
    states = list(findings.states.values())
    versions = ", ".join([f"{name} {version}" for name, version in graph["versions"].items()])
    counts = f"{states.count('read')} read, {states.count('decided')} decided, {len(findings.differences)} differences"
    if findings.differences:
        counts += "\nDecide about each in scripts/lookout.toml (docs/self-checks.md), or read it."
    return "\n".join([*lines, f"{bold}{versions}{plain}: {counts}"])


def _side(name: str) -> str:
    return ".".join(name.split(".")[:2])


if __name__ == "__main__":
    sys.exit(main())
