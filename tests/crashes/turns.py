"""Turns of all kinds that a process may die in: the lab's scripts, and the agents that run them.

What their tools do to the world is counted there, line by line in a file, so that nothing is believed that a journal says.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from flat_agents import flat_agent
from turnwise import (
    Agent,
    Approval,
    Asking,
    ChangeResult,
    Hook,
    Journal,
    ModelLimits,
    PermissionRule,
    Policy,
    RetryPolicy,
    ToolSpec,
    tool,
)
from turnwise.lab import Script, parse_script
from turnwise.lab.script import load_scripts
from turnwise.tools.workspace import workspace_tools
from turnwise.tools.workspace.changes import FileChanges
from turnwise.tools.workspace.paths import WorkspacePaths

EFFECTS, LOOKS = "effects.txt", "looks.txt"


def script(name: str, text: str) -> Script:
    return parse_script(f'title = "{name}"\n{text}', name=name)


def steps(*calls: Sequence[str], last: str = "All is done: {results}") -> str:
    """The steps of a script: of each the effects that it calls for side by side, then an answer."""
    found: list[str] = []
    for names in calls:
        each = ", ".join([f'{{ name = "do", arguments = {{ name = "{name}" }} }}' for name in names])
        found.append(f"[[steps]]\ncalls = [{each}]\n")
    return "\n".join([*found, f'[[steps]]\ntext = "{last}"\n'])


PROGRAM = """
[[steps]]
[[steps.calls]]
name = "script"
[steps.calls.arguments]
program = '''
first = do(name="p1")
both = [do(name="p2"), do(name="p3")]
print(first, both)
'''
[[steps]]
text = "It said: {result}"
"""
CHILD = """
[[steps]]
calls = [
    { name = "task", arguments = { agent = "helper", prompt = "first half" } },
    { name = "do", arguments = { name = "beside" } },
]
[[steps]]
text = "The helper says: {results}"
"""
TWO_CHILDREN = """
[[steps]]
calls = [
    { name = "task", arguments = { agent = "helper", prompt = "first half" } },
    { name = "task", arguments = { agent = "helper", prompt = "second half" } },
]
[[steps]]
text = "The helpers say: {results}"
"""
RETRIED = """
[[steps]]
calls = [{ name = "do", arguments = { name = "one" } }]
[[steps]]
text = "Done."
faults = [{ kind = "status", status = 503, message = "Not now.", headers = { retry-after = "0" } }]
"""
CUT = """
[[steps]]
calls = [{ name = "do", arguments = { name = "one" } }]
[[steps]]
text = "a long answer: {lines 1-9}line 0"
finish = "length"
[[steps]]
text = "10 and its end."
"""
CLIENT = """
[[steps]]
calls = [{ name = "do", arguments = { name = "a" } }, { name = "person", arguments = {} }]
"""
EXCLUSIVE = """
[[steps]]
calls = [
    { name = "do", arguments = { name = "a" } },
    { name = "alone", arguments = { name = "b" } },
    { name = "alone", arguments = { name = "c" } },
]
[[steps]]
text = "All is done: {results}"
"""
HELPER = """
[recall]
half = "(first|second) half"
[[steps]]
calls = [{ name = "do", arguments = { name = "{half}" } }]
[[steps]]
text = "The {half} half is done."
"""
WRITTEN = """
[[steps]]
calls = [{ name = "write", arguments = { path = "a.txt", content = "one\\ntwo\\n" } }]
[[steps]]
calls = [
    { name = "edit", arguments = { path = "a.txt", old_string = "two", new_string = "two and two" } },
    { name = "write", arguments = { path = "b.txt", content = "b" } },
]
[[steps]]
text = "Both are written."
"""
SCRIPTS = (
    script("written", WRITTEN),
    script("probed", steps(["a"], ["b"]).replace('"do"', '"careful"')),
    script("one", steps(["one"])),
    script("sequence", steps(["a"], ["b"], ["c"])),
    script("parallel", steps(["a", "b", "c"])),
    script("exclusive", EXCLUSIVE),
    script("idempotent", steps(["a", "b"]).replace('"do"', '"look"')),
    script("program", PROGRAM),
    script("child", CHILD),
    script("children", TWO_CHILDREN),
    script("helper", HELPER),
    script("retried", RETRIED),
    script("cut", CUT),
    script("asked", steps(["a", "b"])),
    script("hooked", steps(["a"], ["b"])),
    script("client", CLIENT),
)
ROOM = Path(__file__).parents[1] / "lab" / "room"


def all_scripts() -> list[Script]:
    return [*SCRIPTS, *load_scripts(ROOM).values()]


class World:
    """A folder in which each effect leaves one line."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "files").mkdir(exist_ok=True)

    def note(self, file: str, line: str) -> None:
        handle = os.open(self.folder / file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(handle, f"{line}\n".encode())
        finally:
            os.close(handle)

    def files(self) -> dict[str, str]:
        return {path.name: path.read_text() for path in sorted((self.folder / "files").iterdir())}

    def lines(self, file: str) -> list[str]:
        path = self.folder / file
        return path.read_text().splitlines() if path.exists() else []


def tools_of(world: World) -> list[Any]:
    @tool(effect="write")
    async def do(name: str) -> str:
        """Do something that must not be done twice."""
        world.note(EFFECTS, name)
        return f"did {name}"

    def was_done(name: str) -> str | None:
        return f"did {name}" if name in world.lines(EFFECTS) else None

    @tool(effect="write", reconcile=was_done)
    async def careful(name: str) -> str:
        """Do something that can be looked up."""
        world.note(EFFECTS, name)
        return f"did {name}"

    @tool(effect="write", exclusive=True)
    def alone(name: str) -> str:
        """Do it while nothing else runs."""
        world.note(EFFECTS, name)
        return f"did {name}"

    @tool(effect="read", idempotent=True)
    async def look(name: str) -> str:
        """Look at something: twice does no harm."""
        world.note(LOOKS, name)
        return f"saw {name}"

    @tool(effect="read", idempotent=True)
    def read(path: str) -> str:
        """Read a file."""
        part = int(path.removeprefix("part-").removesuffix(".txt"))
        return f"part {part}\n" + "There is little of note here.\n" * 100 + f"the next part is part-{part + 1:03}.txt"

    return [do, careful, alone, look, read]


def _allow(asking: Asking) -> list[Approval]:
    return [Approval(call_id=one.call.id, verdict="allow", digest=one.digest) for one in asking.asks]


def _changed(look: Any) -> ChangeResult | None:
    """What went well has another result; what nobody knows of stays as it is told."""
    return None if look.result.is_error else ChangeResult("changed")


def agent_of(kind: str, *, url: str, journal: Journal, world: World) -> Agent:
    """The agent that runs turns of this kind."""
    name = "remembers" if kind == "summary" else kind
    common: dict[str, Any] = {"base_url": url, "api_key": "lab", "retry": RetryPolicy(attempts=3)}
    made: dict[str, Callable[[], dict[str, Any]]] = {
        "program": lambda: {"script": True},
        "child": lambda: {"agents": {"helper": flat_agent("openai_chat:helper", tools=tools_of(world), **common)}},
        "children": lambda: {"agents": {"helper": flat_agent("openai_chat:helper", tools=tools_of(world), **common)}},
        "asked": lambda: {
            "policy": Policy(rules=(PermissionRule(verdict="ask", tool="do"),), attended=True),
            "approver": _allow,
        },
        "hooked": lambda: {
            "hooks": [
                Hook(point="before_tool", function=lambda _: None, name="looks on"),
                Hook(point="after_tool", function=_changed, name="changes"),
                Hook(point="before_request", function=lambda _: None, name="looks on requests"),
            ]
        },
        "summary": lambda: {
            "model_limits": ModelLimits(context_window_tokens=14_000, max_output_tokens=2_000),
            "stream": False,
        },
    }
    more = made[kind]() if kind in made else {}
    tools = tools_of(world)
    if kind == "written":
        changes = FileChanges(world.folder / "changes")
        tools = [*workspace_tools(WorkspacePaths(world.folder / "files", changes=changes))]
    if kind == "client":
        tools.append(ToolSpec(name="person", description="Asks a person.", parameters='{"type":"object"}'))
    return flat_agent(f"openai_chat:{name}", tools=tools, journal=journal, folder=world.folder, **common, **more)


PROMPTS = {"summary": "My cat is called Maunz. Begin with part-001.txt and read on."}
KINDS = (
    "one",
    "sequence",
    "parallel",
    "exclusive",
    "idempotent",
    "program",
    "child",
    "children",
    "retried",
    "cut",
    "asked",
    "hooked",
    "client",
    "summary",
    "written",
    "probed",
)
TELLING = frozenset({"idempotent", "written", "probed"})  # no call of theirs is ever unknown
