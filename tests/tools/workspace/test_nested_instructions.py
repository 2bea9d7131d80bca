"""AGENTS.md of the folders below: told once, beside the first result that reads a file there; and never what others wrote."""

import asyncio
import contextvars
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from turnwise.base.clock import SystemClock
from turnwise.running.tools import ToolRun
from turnwise.testing import call
from turnwise.tools.workspace import workspace_tools
from turnwise.tools.workspace.paths import OTHERS_FOLDERS, SKIPPED_FOLDERS
from turnwise.tools.workspace.read_tool import MAX_AT_ONCE, MAX_TOGETHER_BYTES, NOTE, begin_telling
from turnwise.turn.events import PlannedCall
from turnwise.vocab import Message, Text, ToolResult

SECRET = "xyzzy"


class Reader:
    """A session of the tool `read` in a folder."""

    def __init__(self, folder: Path, *, messages: Sequence[Message] | None = ()) -> None:
        self._tools = {tool.name: tool for tool in workspace_tools(folder)}
        self._context = contextvars.copy_context()
        if messages is not None:
            self._context.run(begin_telling, messages)

    def __call__(self, *paths: str, whole_bytes: int | None = None) -> tuple[ToolResult, ...]:
        """The results of calls of one step."""
        return self._context.run(lambda: asyncio.run(self._read(paths, whole_bytes=whole_bytes)))

    def notes(self, *paths: str) -> list[str]:
        return [note.text.strip() for result in self(*paths) for note in notes_in(result)]

    async def _read(self, paths: Sequence[str], *, whole_bytes: int | None) -> tuple[ToolResult, ...]:
        calls = [call("read", path=path) for path in paths]
        calls = [msgspec.structs.replace(one, id=f"c{number}") for number, one in enumerate(calls)]
        planned = tuple([PlannedCall(call=one, arguments=one.arguments, timeout_s=300.0) for one in calls])
        run = ToolRun(
            planned,
            tools=self._tools,
            clock=SystemClock(),
            on_start=lambda _: None,
            whole_bytes=whole_bytes,
        )
        return await run.run()


def notes_in(result: ToolResult) -> list[Text]:
    return [part for part in result.content if isinstance(part, Text) and part.note]


def write(path: Path, text: str = "x\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    for name in ("a.txt", "pkg/a.txt", "pkg/b.txt", "pkg/deep/er/a.txt"):
        write(folder / name)
    write(folder / "AGENTS.md", "Root.")
    write(folder / "pkg" / "AGENTS.md", "Use tabs.\n")
    return folder


def test_each_is_told_once_with_its_path_and_the_outer_one_first(folder: Path) -> None:
    """Not for files above it; that of the root is among the instructions already. The result itself stays as it is."""
    write(folder / "pkg" / "deep" / "AGENTS.md", "Use blanks.")
    read = Reader(folder)
    assert read.notes("a.txt") == []
    (result,) = read("pkg/deep/er/a.txt")
    assert result.content[0] == Text("     1\tx")
    assert [(note.note, note.text) for note in notes_in(result)] == [
        (
            f"{NOTE}{folder}/pkg/AGENTS.md",
            "\n\n[`pkg/AGENTS.md`: the project's instructions for what lies in `pkg/`]\n\nUse tabs.\n",
        ),
        (
            f"{NOTE}{folder}/pkg/deep/AGENTS.md",
            "\n\n[`pkg/deep/AGENTS.md`: the project's instructions for what lies in `pkg/deep/`]\n\nUse blanks.\n",
        ),
    ]
    assert read("pkg/a.txt")[0].content == (Text("     1\tx"),)
    assert read.notes("pkg/b.txt", "pkg/deep/er/a.txt") == []


def test_calls_beside_each_other_tell_it_once(folder: Path) -> None:
    """Two files of one folder in one step."""
    assert len(Reader(folder).notes("pkg/a.txt", "pkg/b.txt", "pkg/deep/er/a.txt")) == 1


def test_a_later_turn_goes_by_what_the_session_carries(folder: Path) -> None:
    """Told before: not again, in another process too. Gone with a summary: told again."""
    (result,) = Reader(folder)("pkg/a.txt")
    carried = [Message("user", (Text("Go."),)), Message("tool", (result,))]
    assert Reader(folder, messages=carried).notes("pkg/b.txt") == []
    assert len(Reader(folder, messages=carried[:1]).notes("pkg/b.txt")) == 1


def test_the_library_and_programs_get_the_bare_result(folder: Path) -> None:
    """Nothing changes where nobody asked for it; a program computes with what it reads, and the model hears it later."""
    assert Reader(folder, messages=None)("pkg/a.txt")[0].content == (Text("     1\tx"),)
    read = Reader(folder)
    assert read("pkg/a.txt", whole_bytes=10_000)[0].content == (Text("     1\tx"),)
    assert len(read.notes("pkg/a.txt")) == 1


def test_one_that_the_model_reads_itself_is_not_told_again(folder: Path) -> None:
    """It is the result; an empty one says nothing."""
    read = Reader(folder)
    assert read.notes("pkg/AGENTS.md") == []
    assert read.notes("pkg/a.txt") == []
    write(folder / "pkg" / "deep" / "AGENTS.md", " \n")
    assert read.notes("pkg/deep/er/a.txt") == []


@pytest.mark.promise("safe:bounded")
def test_they_have_a_bound_together(folder: Path) -> None:
    """What does not fit is named with its size, and a smaller one still has its place; the result beside it is whole."""
    write(folder / "pkg" / "AGENTS.md", "a" * 10_000)
    for name, text in {"big": "b" * 7_000, "small": "c" * 100, "huge": "d" * (MAX_TOGETHER_BYTES + 1)}.items():
        write(folder / name / "AGENTS.md", text)
        write(folder / name / "a.txt", "line\n" * 1_900)
    read = Reader(folder)
    (told,) = read.notes("pkg/a.txt")
    assert told.endswith("a" * 10_000)
    assert "`big/AGENTS.md` is left out of your instructions: it has 7,0" in read.notes("big/a.txt")[0]
    (small,) = read("small/a.txt")
    assert small.content[0] == Text("\n".join([f"{number:6}\tline" for number in range(1, 1_901)]))
    assert [note.text.strip()[-100:] for note in notes_in(small)] == ["c" * 100]
    assert "16385 bytes; 16384 at most" in read.notes("huge/a.txt")[0]


@pytest.mark.promise("safe:bounded")
def test_many_above_each_other_come_a_few_at_a_time(folder: Path) -> None:
    """A folder from elsewhere may have hundreds; none is lost."""
    place = folder / "pkg"
    for number in range(1, 2 * MAX_AT_ONCE):
        place = place / str(number)
        write(place / "AGENTS.md", f"Number {number}.")
    write(place / "a.txt")
    read, name = Reader(folder), str(place.relative_to(folder) / "a.txt")
    assert [len(read.notes(name)) for _ in range(3)] == [MAX_AT_ONCE, MAX_AT_ONCE, 0]


def others(folder: Path) -> dict[str, str]:
    """Where instructions must not come from, and what is said of each."""
    write(folder / ".gitignore", "out/\n*.cache\nbuild/*\n")
    write(folder / "pkg" / ".gitignore", "fetched\n")
    within = {f"{name}/x/AGENTS.md": f"lies in `{name}`, with other people's files" for name in sorted(OTHERS_FOLDERS)}
    ignored = ("out/x/AGENTS.md", "out/AGENTS.md", "a.cache/AGENTS.md", "build/AGENTS.md", "build/x/AGENTS.md")
    ignored += ("pkg/fetched/AGENTS.md", "pkg/fetched/x/AGENTS.md")
    return within | dict.fromkeys(ignored, "lies in what `.gitignore` names")


@pytest.mark.costly
@pytest.mark.promise("safe:inside")
def test_what_other_people_wrote_is_no_instruction(folder: Path) -> None:
    """Dependencies, by the one list of such folders, and what `.gitignore` names; each is left out aloud, and once."""
    (folder / "pkg" / "AGENTS.md").unlink()
    read = Reader(folder)
    for name, why in others(folder).items():
        path = write(folder / name, SECRET)
        write(path.parent / "a.txt")
        shown = str(path.parent.relative_to(folder) / "a.txt")
        notes = [note for note in read.notes(shown) if f"[`{name}`" in note]
        assert notes == [f"[`{name}` is left out of your instructions: it {why}]"]
        assert read.notes(shown) == []
    assert SKIPPED_FOLDERS < OTHERS_FOLDERS


LINKS = {
    "../../outside.txt": "is a link that leads out of the folder",
    "/dev/zero": "is a link that leads out of the folder",
    "../.env": "is a link to a file that may hold keys or passwords",
    "nowhere": "is a link that leads nowhere",
    "../pipe": "is no regular file",
}


@pytest.mark.promise("safe:inside")
@pytest.mark.parametrize("target", LINKS)
def test_a_link_to_elsewhere_is_left_out(folder: Path, target: str) -> None:
    """The rules of files that are read unasked: nothing from outside, nothing secret, nothing that is waited for."""
    write(folder.parent / "outside.txt", SECRET)
    write(folder / ".env", SECRET)
    os.mkfifo(folder / "pipe")
    (folder / "pkg" / "AGENTS.md").unlink()
    (folder / "pkg" / "AGENTS.md").symlink_to(target)
    (note,) = Reader(folder).notes("pkg/a.txt")
    assert note == f"[`pkg/AGENTS.md` is left out of your instructions: it {LINKS[target]}]"


def test_a_link_to_the_roots_own_says_nothing_twice(folder: Path) -> None:
    """And a folder that is reached by a link is the folder that it is."""
    (folder / "pkg" / "AGENTS.md").unlink()
    (folder / "pkg" / "AGENTS.md").symlink_to("../AGENTS.md")
    assert Reader(folder).notes("pkg/a.txt") == []
    write(folder / "real" / "AGENTS.md", "Real.")
    write(folder / "real" / "a.txt")
    (folder / "link").symlink_to("real")
    assert Reader(folder).notes("link/a.txt")[0].startswith("[`real/AGENTS.md`: ")


@pytest.mark.promise("safe:seen")
def test_nothing_in_them_is_hidden(folder: Path) -> None:
    """Neither in the text nor in the folder's name; bytes that are no text are left out."""
    name = "p\u202ekg"
    write(folder / name / "a.txt")
    write(folder / name / "AGENTS.md", "a\u200b\x1b[2Jb")
    (note,) = Reader(folder).notes(f"{name}/a.txt")
    assert note.startswith("[`p<U+202E>kg/AGENTS.md`") and note.endswith("a<U+200B><U+001B>[2Jb")
    (folder / "pkg" / "AGENTS.md").write_bytes(b"a\xff")
    assert Reader(folder).notes("pkg/a.txt")[0].endswith("it is not UTF-8 (byte 1)]")
