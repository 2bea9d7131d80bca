"""The facts of calls: resolved paths of real files, and what becomes of a call whose facts cannot be had."""

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest

from turnwise.rules.permission_facts import Access, CallFacts, PathFact
from turnwise.rules.permissions import PermissionKind, PermissionRule, Policy, judge_permission
from turnwise.running.tools import Tool
from turnwise.tools.shell_judge import inspect_call, inspector
from turnwise.tools.workspace import workspace_tools
from turnwise.turn.config import ToolOffer
from turnwise.turn.events import PlannedCall
from turnwise.turn.verdicts import facts_of
from turnwise.vocab import ToolCall, ToolSpec
from waits import HANG_S


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A workspace with links that lead out, in, nowhere, and in a circle."""
    outside, work = tmp_path / "outside", tmp_path / "desk"
    (work / "src").mkdir(parents=True)
    outside.mkdir()
    (outside / "file.txt").write_text("outside")
    (work / "a.txt").write_text("a")
    (work / ".env").write_text("KEY=1")
    for name, target in {
        "out": "../outside/file.txt",
        "far": "../outside",
        "env.txt": ".env",
        "inner": "src",
        "nowhere": "../missing/x",
        "circle": "circle",
        "absolute": str(outside),
        "twice": "far",
        "src/up": "..",
    }.items():
        (work / name).symlink_to(target)
    return work


def facts(tool: str, *, work: Path, effect: str = "read", **arguments: object) -> CallFacts:
    return inspect_call("1", tool=tool, effect=effect, arguments=arguments, workspace=work, home=work.parent)


@pytest.mark.promise("safe:named")
@pytest.mark.parametrize(
    ("given", "leads", "inside"),
    [
        ("a.txt", "desk/a.txt", True),
        ("./src/../a.txt", "desk/a.txt", True),
        ("new/deep/x.txt", "desk/new/deep/x.txt", True),
        (".", "desk", True),
        ("", "desk", True),
        ("inner/x.py", "desk/src/x.py", True),
        ("src/up/a.txt", "desk/a.txt", True),
        ("env.txt", "desk/.env", True),
        ("..", ".", False),
        ("../outside/file.txt", "outside/file.txt", False),
        ("src/../../outside/file.txt", "outside/file.txt", False),
        ("new/../../outside/x", "outside/x", False),
        ("out", "outside/file.txt", False),
        ("far/file.txt", "outside/file.txt", False),
        ("far/../outside/file.txt", "outside/file.txt", False),
        ("far/../desk/a.txt", "desk/a.txt", True),
        ("twice/file.txt", "outside/file.txt", False),
        ("absolute/file.txt", "outside/file.txt", False),
        ("src/up/../outside/file.txt", "outside/file.txt", False),
        ("nowhere", "missing/x", False),
        ("workspace-like", "desk/workspace-like", True),
        ("../desktop/a", "desktop/a", False),
    ],
)
def test_a_path_is_resolved_before_it_is_judged(given: str, leads: str, inside: bool, work: Path) -> None:
    """Links followed first, `..` afterwards, as the operating system does; a missing tail is kept."""
    (found,) = facts("read", work=work, path=given).paths
    assert (found.resolved, found.inside) == (os.path.realpath(work.parent / leads), inside)


@pytest.mark.parametrize(
    ("tool", "effect", "arguments", "expected"),
    [
        ("read", "read", {"path": "a.txt"}, [("a.txt", "read")]),
        ("list", "read", {}, [(".", "read")]),
        ("search", "read", {"pattern": "x"}, [(".", "read")]),
        ("write", "write", {"path": "a.txt", "content": "x"}, [("a.txt", "write")]),
        ("edit", "write", {"path": "a.txt", "old": "a", "new": "b"}, [("a.txt", "write")]),
        ("multi_edit", "write", {"path": "a.txt", "edits": [{"old": "a", "new": "b"}]}, [("a.txt", "write")]),
        (
            "apply_patch",
            "write",
            {
                "patch": "*** Begin Patch\n*** Update File: a.txt\n*** Move to: b.txt\n*** Delete File: out\n"
                "*** Add File: .env\n+x\n*** End Patch"
            },
            [("a.txt", "write"), ("b.txt", "write"), ("out", "write"), (".env", "write")],
        ),
        ("my_copy", "write", {"source": "a.txt", "destination": "b.txt"}, [("a.txt", "write"), ("b.txt", "write")]),
        ("my_read", "read", {"files": ["a.txt", "b.txt"]}, [("a.txt", "read"), ("b.txt", "read")]),
        ("my_edits", "write", {"edits": [{"file_path": "a.txt"}]}, [("a.txt", "write")]),
        ("my_patch", "write", {"diff": "--- a/a.txt\n+++ b/b.txt\n"}, [("a.txt", "write"), ("b.txt", "write")]),
        ("think", "none", {"path": "a.txt"}, []),
    ],
)
def test_it_is_known_which_arguments_are_paths(
    tool: str, effect: str, arguments: dict[str, object], expected: list[tuple[str, Access]], work: Path
) -> None:
    """Of our tools from their own table, of others by convention."""
    found = facts(tool, effect=effect, work=work, **arguments).paths
    assert [(fact.given, fact.access) for fact in found] == expected


@pytest.mark.parametrize(("given", "shown"), [("a\0b", "a\0b"), ("x" * 5000, "x" * 4096)])
def test_what_is_no_path_leads_nowhere_known(given: str, shown: str, work: Path) -> None:
    """And is asked about."""
    found = facts("read", work=work, path=given)
    assert found.paths == (PathFact(given=shown),)
    assert judged(found, work=work) == "ask"


def judged(found: CallFacts, *, work: Path, rules: Sequence[PermissionRule] = ()) -> PermissionKind:
    policy = Policy(rules=tuple(rules), workspace=os.path.realpath(work), home=str(work.parent), attended=True)
    return judge_permission(found, policy=policy).kind


@pytest.mark.parametrize("given", ["env.txt", "out", "far/file.txt", "nowhere", "/proc/self/root/etc/hosts"])
def test_links_do_not_lead_around_the_rules(given: str, work: Path) -> None:
    """Though reading in the workspace is allowed, by default and by a rule."""
    rules = (PermissionRule(verdict="allow", effect="read"), PermissionRule(verdict="allow", path="**"))
    assert judged(facts("read", work=work, path=given), work=work, rules=rules) == "ask"


def planned(name: str, arguments: str, *, id: str = "1") -> PlannedCall:
    return PlannedCall(call=ToolCall(id=id, name=name, arguments=arguments), arguments=arguments, timeout_s=5.0)


def test_a_circle_of_links_is_no_way_out(work: Path) -> None:
    """It is resolved as far as it leads, which is inside; opening it fails."""
    (found,) = facts("read", work=work, path="circle/x").paths
    assert (found.resolved, found.inside) == (f"{os.path.realpath(work)}/circle/x", True)


async def test_the_inspector_finds_the_facts_of_our_tools(work: Path) -> None:
    """All calls of a step, in their order; every tool of the workspace is one to be inspected."""
    tools = workspace_tools(work)
    assert all(tool.offer.inspected for tool in tools)
    inspect = inspector(tools, workspace=work, home=work.parent, environment={})
    found = await inspect([planned("read", '{"path": "env.txt"}'), planned("bash", '{"command": "ls | wc"}', id="2")])
    assert [(one.call_id, one.tool, one.effect) for one in found] == [("1", "read", "read"), ("2", "bash", "execute")]
    assert found[0].paths[0].resolved.endswith("/desk/.env")
    assert found[1].shell is not None
    assert [command.words[0].text for command in found[1].shell.commands] == ["ls", "wc"]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("bash", "[1]"),
        ("bash", "{"),
        ("bash", "{}"),
        ("bash", '{"command": 1}'),
        ("bash", '{"command": null}'),
        ("unheard_of", '{"path": "a.txt"}'),
        ("read", "null"),
    ],
)
async def test_a_call_without_facts_is_asked_about(name: str, arguments: str, work: Path) -> None:
    """Arguments that are none, and a tool that nobody offered; though everything is allowed."""
    (found,) = await inspector(workspace_tools(work), workspace=work, environment={})([planned(name, arguments)])
    rules = (PermissionRule(verdict="allow"), PermissionRule(verdict="allow", effect="execute"))
    assert judged(found, work=work, rules=rules) == "ask"


@pytest.mark.parametrize("rules", [(), (PermissionRule(verdict="allow"), PermissionRule(verdict="allow", tool="*sh"))])
@pytest.mark.parametrize("name", ["bash", "read", "write", "apply_patch"])
def test_the_chair_asks_about_a_call_of_our_tools_that_nobody_inspected(
    name: str, rules: tuple[PermissionRule, ...], work: Path
) -> None:
    """An inspector that is not there, or says nothing, opens no door."""
    offers = {tool.name: tool.offer for tool in workspace_tools(work)}
    found = facts_of(planned(name, '{"path": "a.txt", "command": "ls"}'), facts={}, offers=offers)
    assert found.unknown
    assert judged(found, work=work, rules=rules) == "ask"


class Stuck(os.PathLike[str]):
    """A workspace on a file system that does not answer until it is told to."""

    def __init__(self) -> None:
        self.answer = threading.Event()
        self.asked_by: set[threading.Thread] = set()

    def __fspath__(self) -> str:
        self.asked_by.add(threading.current_thread())
        self.answer.wait(HANG_S)
        return "/"


async def test_a_file_system_that_does_not_answer_is_not_waited_for(work: Path) -> None:
    """The call is asked about after the time bound; the thread is left to itself. The event loop's thread asks nothing of it."""
    stuck = Stuck()
    tool = Tool(offer=ToolOffer(spec=ToolSpec(name="read", parameters="{}"), effect="read", inspected=True))
    inspect = inspector([tool], workspace=stuck, environment={}, timeout_s=0.05)
    (found,) = await asyncio.wait_for(inspect([planned("read", '{"path": "a.txt"}')]), HANG_S)
    stuck.answer.set()
    assert found == CallFacts(
        call_id="1", tool="read", effect="read", unknown="what it touches was not found out within 0.05 s"
    )
    assert judged(found, work=work, rules=[PermissionRule(verdict="allow")]) == "ask"
    assert stuck.asked_by
    assert threading.current_thread() not in stuck.asked_by


def test_facts_survive_the_journal(work: Path) -> None:
    """They are written down, and read back equal."""
    decode: Callable[[bytes], CallFacts] = msgspec.json.Decoder(CallFacts).decode
    found = facts("bash", effect="execute", work=work, command="cat 'a b' env.txt > x; A=1 sudo bash -c 'ls $X'")
    assert decode(msgspec.json.encode(found)) == found
