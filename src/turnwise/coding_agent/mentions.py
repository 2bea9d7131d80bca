"""`@file` in what a person typed: the file goes with the prompt, by the rules of the tool `read`."""

import asyncio
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from turnwise.coding_agent.text import clean_line
from turnwise.errors import ToolFault
from turnwise.rules.permissions import Policy, judge_permission
from turnwise.running.grants import Inspector
from turnwise.tools.workspace.paths import WorkspacePaths
from turnwise.tools.workspace.read_tool import ReadArguments, left_out, read
from turnwise.turn.commands import PlannedCall
from turnwise.vocab import File, Text, ToolCall
from turnwise.vocab.file_names import given_name

MAX_FILES = 20  # of one prompt
MAX_MISSING = 5  # that are named: a pasted text may hold many
NOTE = "file"  # what the message says of such a text, which is not the person's own words
# Not within a word: `ada@example.com` is none. A name with blanks is quoted, or has a backslash before each.
MENTION = re.compile(r"""(?<![\w@./\\-])@(?:"([^"\n]+)"|'([^'\n]+)'|((?:\\.|[^\s"'`,;()\[\]{}<>|\\])+))""")
_LAST = ".:!?"  # the end of a sentence rather than of a name
# By which a word is known as a file that should be there. Decorators have none of them (`@app.get`, `@pytest.fixture`).
ENDINGS = frozenset(
    """bash bat bmp c cc cfg conf cpp cs css csv dart diff docx env erl ex exs gif go gql gradle h hpp hs htm html ini ipynb java
    jpeg jpg js json jsonl jsx kt lock log lua md mjs ml patch pdf php pl png proto ps1 py pyi r rb rs rst scala scss sh sql
    svelte svg swift tex tf toml ts tsv tsx txt vue webp xlsx xml yaml yml zig zip""".split()
)

PromptPart = str | Text | File


async def with_files(
    typed: str,
    *,
    workspace: WorkspacePaths,
    inspect: Inspector,
    policy: Policy,
    tell: Callable[[str], object],
) -> list[PromptPart]:
    """The text as it was typed, and behind it each file that it names. `tell` is given what was put in, what not, and why."""
    parts: list[PromptPart] = [typed]
    names = named_files(typed, workspace=workspace)
    for name in names[:MAX_FILES]:
        shown = clean_line(name)
        if why := await _forbidden(name, inspect=inspect, policy=policy):
            tell(f"not put in: {shown} ({why}); the model may ask to read it")
            continue
        try:
            content = await asyncio.to_thread(read, workspace, ReadArguments(path=name), whole=True)
        except ToolFault as fault:
            tell(f"not put in: {clean_line(str(fault))}")
            continue
        missing = left_out(content) if isinstance(content, str) else ""
        tell(f"put in: {shown} (only {missing}; the model may read more)" if missing else f"put in: {shown}")
        if isinstance(content, str):
            parts.append(Text(f"\n\nThe file `{name}`, which the user has put in:\n\n{content}", note=NOTE))
        else:
            parts += [Text(f"\n\n{part.text}", note=NOTE) if isinstance(part, Text) else part for part in content]
    if len(names) > MAX_FILES:
        tell(f"not put in: {len(names) - MAX_FILES} more; a prompt takes {MAX_FILES} files")
    lost = missing_files(typed, workspace=workspace)
    for name in lost[:MAX_MISSING]:
        tell(f"not put in: {clean_line(name)}: there is no such file")
    if len(lost) > MAX_MISSING:
        tell(f"not put in: {len(lost) - MAX_MISSING} more that are not there")
    return parts


def named_files(typed: str, *, workspace: WorkspacePaths) -> list[str]:
    """The paths behind each `@`, once each, in order. A word that names nothing in the folder (`@decorator`) is no path."""
    found: dict[str, None] = {}
    for match in MENTION.finditer(typed):
        for name in _readings(match):
            if _is_there(name, workspace=workspace):
                found[name] = None
                break
    return list(found)


def missing_files(typed: str, *, workspace: WorkspacePaths) -> list[str]:
    """Words behind `@` that look like paths and lead nowhere, once each, in order.

    Many words behind `@` are no paths: people, decorators, packages (`@alice`, `@app.get("/")`, `@types/node`). A word counts
    that ends as files do, or begins as only paths do, or with a folder that is there.
    """
    found: dict[str, None] = {}
    for match in MENTION.finditer(typed):
        readings = _readings(match)
        is_called = typed[match.end() : match.end() + 1] == "("
        if is_called or any(_is_there(name, workspace=workspace) for name in readings):
            continue
        if _looks_like_path(readings[-1], workspace=workspace):
            found[readings[-1]] = None
    return list(found)


def _looks_like_path(name: str, *, workspace: WorkspacePaths) -> bool:
    if "@" in name or "://" in name:  # a package with its version, an address
        return False
    above, _, last = name.rpartition("/")
    stem, _, ending = last.rpartition(".")
    if stem and ending.lower() in ENDINGS:
        return not name.startswith("/") or _is_there(above, workspace=workspace)
    if name.startswith(("./", "../", "~/")):
        return True
    first = name.partition("/")[0]
    return bool(first) and "/" in name and _is_there(first, workspace=workspace)


def _readings(match: re.Match[str]) -> Sequence[str]:
    """The name itself, and, unless it is quoted, without what may end the sentence. A name of bytes stands as it is shown."""
    if quoted := match[1] or match[2]:
        return [quoted]
    name = re.sub(r"\\(.)", r"\1", match[3])
    as_shown = [match[3]] if given_name(match[3]) != match[3] else []
    return [reading for reading in dict.fromkeys([*as_shown, name, name.rstrip(_LAST)]) if reading]


def _is_there(name: str, *, workspace: WorkspacePaths) -> bool:
    try:
        return (workspace.root / Path(given_name(name)).expanduser()).exists()
    except (OSError, ValueError, RuntimeError):  # too long, a NUL, no home
        return False


async def _forbidden(name: str, *, inspect: Inspector, policy: Policy) -> str:
    """Why `read` would not be allowed to show it at once; empty where it would."""
    arguments = msgspec.json.encode({"path": name}).decode()
    call = ToolCall(id="mention", name="read", arguments=arguments)
    (facts,) = await inspect((PlannedCall(call=call, arguments=arguments, timeout_s=0.0),))
    verdict = judge_permission(facts, policy=policy)
    return "" if verdict.kind == "allow" else clean_line(verdict.why or "the rules do not allow it")
