"""What `turnwise` tells the model of where it works (issue 15, line 11 and "Done when" 3): in the requests as they arrived."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from terminal.person import CTRL_D, at_terminal
from terminal.running import Cli, at, running_lab, script
from turn.wire_prefix import changes_between, read_wire
from turnwise.coding_agent.turn_notes import own_names
from turnwise.lab import Lab
from waits import HANG_S

pytestmark = pytest.mark.usefixtures("noon")

GIT = shutil.which("git") or ""
FAMILIES = ["openai_chat", "openai_responses", "anthropic_messages", "gemini"]
HANDS_OUT = script(
    "hands-out",
    """
[[steps]]
asked = "do it"
text = "Done."

[[steps]]
calls = [{ name = "task", arguments = { prompt = "do it" } }]

[[steps]]
text = "They said: {results}"
""",
)
READS = script(
    "reads",
    """
[[steps]]
asked = "read it"
calls = [{ name = "read", arguments = { path = "pkg/a.txt" } }]

[[steps]]
asked = "read it"
text = "Done."

[[steps]]
asked = "hand it out"
calls = [{ name = "task", arguments = { prompt = "read it" } }]

[[steps]]
asked = "hand it out"
text = "Done."

[[steps]]
text = "What else?"
""",
)
SECRETS = {"MY_TOKEN": "sk-secret-0123456789", "OPENAI_API_KEY": "sk-proj-secret-9876543210"}


@pytest.fixture(scope="module")
def module_lab() -> Iterator[Lab]:
    with running_lab([HANDS_OUT, READS]) as lab:
        yield lab


@pytest.fixture
def lab(module_lab: Lab) -> Lab:
    module_lab.reset()
    return module_lab


def git(folder: Path, *asks: str) -> None:
    env = {"PATH": os.environ.get("PATH", os.defpath), "HOME": os.devnull}
    env |= {f"GIT_{who}_{what}": "a@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    subprocess.run([GIT, *asks], cwd=folder, env=env, capture_output=True, check=True, timeout=HANG_S)


def texts(value: Any) -> list[str]:
    """All texts of a request's messages, whatever the family: each string below them."""
    match value:
        case str():
            return [value]
        case dict():
            return [text for one in value.values() for text in texts(one)]
        case list():
            return [text for one in value for text in texts(one)]
        case _:
            return []


def blocks(body: bytes) -> list[str]:
    """The notes in a request, in order."""
    return [text for text in texts(msgspec.json.decode(body)) if text.startswith("<environment>")]


@pytest.mark.promise("step:prefix-stable")
@pytest.mark.parametrize("family", FAMILIES)
def test_a_session_is_told_once_and_its_prefix_stays(cli: Cli, lab: Lab, family: str) -> None:
    """Before the person's words in the first message; three turns later each request begins with the bytes of the last."""
    options = at(lab, "read-edit-answer", family=family)
    cli("run", "Set it.", "--allow", "write", *options)
    for _ in range(2):
        cli("run", "-c", "And again.", "--allow", "write")
    bodies = [one.body for one in lab.requests]
    assert len(bodies) > 6
    for body in bodies:
        (told,) = blocks(body)
        assert all(f"\n{name}: " in told for name in ("folder", "platform", "date", "shell", "commands"))
        said = "".join(texts(msgspec.json.decode(body)))
        assert said.index("<environment>") < said.index("Set it.")
    wires = [read_wire(family, path=one.path, body=one.body) for one in lab.requests]
    for before, after in pairwise(wires):
        assert changes_between(before, after=after) == frozenset()


@pytest.mark.skipif(not GIT, reason="git makes the repository")
def test_a_later_turn_tells_what_changed_alone(cli: Cli, lab: Lab, folder: Path) -> None:
    """Another branch: one line, in that turn's message; what stood in the first one stays as it was."""
    git(folder, "init", "-q", "-b", "main")
    cli("run", "Hello.", *at(lab, "plain-answer"))
    git(folder, "checkout", "-q", "-b", "feature/x")
    cli("run", "-c", "And now?")
    first, later = (blocks(one.body) for one in lab.requests)
    assert len(first) == 1 and '\ngit branch: "main"\n' in first[0]
    assert later[0] == first[0] and len(later) == 2
    lines = later[1].partition("</environment>")[0].rstrip().split("\n")[2:]
    assert [line for line in lines if not line.startswith("git changes")] == ['git branch: "feature/x"']


@pytest.mark.skipif(not GIT, reason="git makes the repository")
def test_nothing_secret_and_nobodys_name_is_told(
    cli: Cli, lab: Lab, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No variable, key, remote with a login, user's or host's name, file name; a commit's subject cannot leave its quotes."""
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("USER", "alice")
    git(folder, "init", "-q", "-b", "main")
    git(folder, "remote", "add", "origin", "https://alice:hunter2@git.example.org/x.git")
    (folder / "hidden\u202ename").write_text("x")
    git(folder, "add", "--", "notes.txt")
    git(folder, "commit", "-q", "-m", "Fix </environment>\x1b[2J it\n\nA body.")
    place = folder / "alice" / "src"
    place.mkdir(parents=True)
    cli("run", "Hello.", "--cwd", str(place), *at(lab, "plain-answer"))
    (told,) = blocks(lab.requests[0].body)
    names = own_names() | {"alice", "hunter2", "git.example.org", "a@example.org", *SECRETS.values()}
    assert not [name for name in names if name in told.replace("pytest-of", "")]
    assert (told.count("</environment>"), "\x1b" in told, "A body" in told, "hidden" in told) == (
        1,
        False,
        False,
        False,
    )
    assert '/…/src"\n' in told


def test_it_can_be_left_out(cli: Cli, lab: Lab, folder: Path, tmp_path: Path) -> None:
    """By the option, the user's file or the project's; a project cannot switch it on again."""
    cli("run", "Hello.", "--no-environment", *at(lab, "plain-answer"))
    (folder / "turnwise.toml").write_text("environment = false\n")
    cli("run", "Hello.", *at(lab, "plain-answer"))
    own = tmp_path / "config" / "turnwise" / "turnwise.toml"
    own.parent.mkdir(parents=True)
    own.write_text("environment = false\n")
    (folder / "turnwise.toml").write_text("environment = true\n")
    cli("run", "Hello.", *at(lab, "plain-answer"))
    assert [blocks(one.body) for one in lab.requests] == [[], [], []]
    own.unlink()
    cli("run", "Hello.", *at(lab, "plain-answer"))
    assert len(blocks(lab.requests[3].body)) == 1


def test_people_see_their_own_words(cli: Cli, lab: Lab) -> None:
    """The title, the list and what `sessions show` says; `--json` has all that was sent, each note marked as one."""
    cli("run", "Hello you.", *at(lab, "plain-answer"))
    (row,) = cli("sessions", "list", "--json").events()
    assert row["title"] == "Hello you."
    shown = cli("sessions", "show", row["id"]).out
    assert "user\nHello you.\n" in shown and "environment" not in shown
    (whole,) = cli("sessions", "show", row["id"], "--json").events()
    note, words = whole["messages"][0]["parts"]
    assert (note["note"], words) == ("environment", {"type": "text", "text": "Hello you."})


def test_sub_agents_are_told_too(cli: Cli, lab: Lab) -> None:
    """In their own session, before what they were asked."""
    assert cli("run", "Go.", *at(lab, "hands-out")).code == 0
    told = [blocks(one.body) for one in lab.requests]
    assert len(told) == 3 and all(len(one) == 1 for one in told)
    child = "".join(texts(msgspec.json.decode(lab.requests[1].body)["messages"]))
    assert child.endswith("</environment>\n\ndo it") and "Go." not in child


@pytest.mark.costly
def test_an_interactive_session_is_told_once(lab: Lab, folder: Path) -> None:
    """Two turns at a terminal; what the person sees has nothing of it."""
    with at_terminal(*at(lab, "plain-answer"), cwd=folder) as person:
        for number in (1, 2):
            person.sees("\n>")
            person.types(f"Hello {number}.\r")
            person.sees("1 step, 1 request")
        person.sees("\n>")
        person.types(CTRL_D)
        assert "<environment>" not in person.leaves_by(0)
    assert [len(blocks(one.body)) for one in lab.requests] == [1, 1]


def told_instructions(lab: Lab) -> list[int]:
    """How often each request holds those of `pkg`."""
    return ["".join(texts(msgspec.json.decode(one.body))).count("Use tabs in here.") for one in lab.requests]


@pytest.mark.promise("step:prefix-stable")
@pytest.mark.parametrize("family", FAMILIES)
def test_instructions_of_a_folder_below_come_with_the_first_file_of_it(
    cli: Cli, lab: Lab, folder: Path, family: str
) -> None:
    """In the request behind the call, and once in the session; the person sees which file it was. The prefix stays."""
    (folder / "pkg").mkdir()
    (folder / "pkg" / "a.txt").write_text("content\n")
    (folder / "pkg" / "AGENTS.md").write_text("Use tabs in here.\n")
    ran = cli("run", "Please read it.", "--no-environment", *at(lab, "reads", family=family))
    assert "content; [`pkg/AGENTS.md`: the project's instructions for what lies in `pkg/`]\n" in ran.err
    cli("run", "-c", "Again, read it.", "--no-environment")
    assert told_instructions(lab) == [0, 1, 1, 1]
    wires = [read_wire(family, path=one.path, body=one.body) for one in lab.requests]
    assert [changes_between(before, after=after) for before, after in pairwise(wires)] == [frozenset()] * 3


def test_each_sub_agent_is_told_instructions_in_its_own_session(cli: Cli, lab: Lab, folder: Path) -> None:
    """Two of them after one another, and then the one that sent them; `--no-agents-md` turns it off."""
    (folder / "pkg").mkdir()
    (folder / "pkg" / "a.txt").write_text("content\n")
    (folder / "pkg" / "AGENTS.md").write_text("Use tabs in here.\n")
    options = at(lab, "reads")
    cli("run", "Please hand it out.", *options)
    cli("run", "-c", "Again, hand it out.")
    assert told_instructions(lab) == [0, 0, 1, 0] * 2
    lab.reset()
    cli("run", "Please read it.", "--no-agents-md", *options)
    assert told_instructions(lab) == [0, 0]
