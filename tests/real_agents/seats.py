"""Where a person sits: each agent in the mode of its first start and in its most permissive sandboxed one, with its questions.

A row names the options that set the mode, the tools by which the scripted model works, and the keys that answer. Another
mode is another row.
"""

import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from real_agents import places
from real_agents.roster import AGENTS, Command, Outing
from real_agents.sitting import Question
from turnwise.lab.script import ScriptedCall

DOWN, RIGHT, ENTER, SHIFT_TAB = "\x1b[B", "\x1b[C", "\r", "\x1b[Z"
DEBIAN = places.INSTALLED / "debian" / "usr"  # socat, which Claude Code's sandbox needs


class Hands(NamedTuple):
    """The agent's tools, as calls. `read` is None if the agent has no tool for it but its shell."""

    read: Callable[[Path], ScriptedCall]
    edit: Callable[[Path, str, str], ScriptedCall]
    shell: Callable[[str], ScriptedCall]


class Seat(NamedTuple):
    """`mode` is its name on the page, `given` what was set for it; empty for a first start. `sandbox` is what holds its
    commands. `asks`: both ways of answering are counted. `opening` are keys that choose the mode at the first prompt."""

    agent: str
    title: str
    mode: str
    given: str
    sandbox: str
    hands: Hands
    prepare: Callable[[Outing], Command]
    questions: tuple[Question, ...]
    ready: str
    missing: Callable[[], str | None]
    asks: bool = False
    opening: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.agent}/{self.mode}"


def call(tool: str, **arguments: object) -> ScriptedCall:
    return ScriptedCall(name=tool, arguments=arguments)


def claude(*flags: str, settings: Mapping[str, object] | None = None) -> Callable[[Outing], Command]:
    def prepare(outing: Outing) -> Command:
        command = AGENTS["claude-code"].prepare(outing)
        own = outing.home / ".claude"
        own.mkdir()
        (own / "settings.json").write_text(json.dumps(settings or {}), encoding="utf-8")
        env = {key: value for key, value in command.env.items() if key != "IS_SANDBOX"}
        libraries = DEBIAN / "lib" / "x86_64-linux-gnu"
        if DEBIAN.exists():
            env |= {"PATH": f"{os.environ['PATH']}:{DEBIAN / 'bin'}", "LD_LIBRARY_PATH": str(libraries)}
        return Command([command.words[0], *flags], env)

    return prepare


def codex(*flags: str) -> Callable[[Outing], Command]:
    def prepare(outing: Outing) -> Command:
        command = AGENTS["codex"].prepare(outing)
        return Command([command.words[0], "--no-daemon", "-m", outing.model, *flags], command.env)

    return prepare


def opencode(*flags: str) -> Callable[[Outing], Command]:
    def prepare(outing: Outing) -> Command:
        command = AGENTS["opencode"].prepare(outing)
        config = Path(command.env["OPENCODE_CONFIG"])
        settings = json.loads(config.read_text(encoding="utf-8"))
        del settings["permission"]
        config.write_text(json.dumps(settings), encoding="utf-8")
        return Command([command.words[0], "--model", f"gateway/{outing.model}", *flags], command.env)

    return prepare


def turnwise(*flags: str) -> Callable[[Outing], Command]:
    def prepare(outing: Outing) -> Command:
        model = ["-m", f"openai_chat:{outing.model}", "--base-url", f"{outing.url}/v1"]
        state = {"TURNWISE_STATE_DIR": str(outing.home / "turnwise")}
        return Command([sys.executable, "-m", "turnwise", *model, *flags], state)

    return prepare


def patch(path: Path, old: str, new: str) -> ScriptedCall:
    """Codex's own way to edit, which it takes from the shell's command line."""
    text = f"*** Begin Patch\n*** Update File: {path.name}\n@@\n-{old}\n+{new}\n*** End Patch"
    return call("exec_command", cmd=f"apply_patch <<'EOF'\n{text}\nEOF")


CLAUDE_HANDS = Hands(
    read=lambda path: call("Read", file_path=str(path)),
    edit=lambda path, old, new: call("Edit", file_path=str(path), old_string=old, new_string=new),
    shell=lambda command: call("Bash", command=command, description="Run it"),
)
CODEX_HANDS = Hands(
    read=lambda path: call("exec_command", cmd=f"cat {path.name}"),
    edit=patch,
    shell=lambda command: call("exec_command", cmd=command),
)
OPENCODE_HANDS = Hands(
    read=lambda path: call("read", filePath=str(path)),
    edit=lambda path, old, new: call("edit", filePath=str(path), oldString=old, newString=new),
    shell=lambda command: call("bash", command=command, description="Run it"),
)
TURNWISE_HANDS = Hands(
    read=lambda path: call("read", path=path.name),
    edit=lambda path, old, new: call("edit", path=path.name, old=old, new=new),
    shell=lambda command: call("bash", command=command),
)
# One key says yes; the next row of the list says yes for more.
CLAUDE_ASKS = (
    Question(r"Choose the text style", (ENTER,), first=True),
    Question(r"Press Enter to continue", (ENTER,), first=True),
    Question(r"❯ No, exit", (DOWN, ENTER), first=True),
    Question(r"Enter to stay in auto mode", (ENTER,)),
    Question(r"Do you want to [^\n]*\?\s+❯ No\s+Yes", (DOWN, ENTER)),
    Question(r"Do you want to [^\n]*\?\s+❯ 1. Yes\s+2. Yes", (ENTER,), ("2",)),
    Question(r"Do you want to [^\n]*\?\s+❯ 1. Yes", (ENTER,)),
)
CODEX_ASKS = (
    Question(r"Trust this folder\?", (ENTER,), first=True),
    Question(r"Would you like to", ("y",), ("a",)),
)
OPENCODE_ASKS = (Question(r"Permission required", (ENTER,), (RIGHT, ENTER, ENTER)),)
ANSWER = r".*\(\d+ s, then no\): *$"
TURNWISE_ASKS = (
    Question(rf"(?s)\[f\]{ANSWER}", ("y",), ("f",), rows=4),
    Question(rf"(?s)\[p\]{ANSWER}", ("y",), ("p",), rows=4),
    Question(rf"(?s)\[a\]{ANSWER}", ("y",), ("a",), rows=4),
    Question(rf"(?s)\[y\]{ANSWER}", ("y",), rows=4),
    Question(r"(?s)\[Y/n\].*then\s+no\): *$", (ENTER,), rows=3),
)


def missing_npm(agent: str) -> Callable[[], str | None]:
    return lambda: places.missing_npm(AGENTS[agent].package)


def missing_socat() -> str | None:
    if shutil.which("socat") is None and not (DEBIAN / "bin" / "socat").exists():
        return "Debian's `socat`"
    return places.missing_npm(AGENTS["claude-code"].package)


SANDBOX = {"sandbox": {"enabled": True, "autoAllowBashIfSandboxed": True}}
ACCEPTS = ("--permission-mode", "acceptEdits")
CLAUDE = Seat(
    agent="claude-code",
    title="Claude Code",
    mode="first start (auto)",
    given="",
    sandbox="none",
    hands=CLAUDE_HANDS,
    prepare=claude(),
    questions=CLAUDE_ASKS,
    ready=r"(auto|manual) mode on|accept edits on",
    missing=missing_npm("claude-code"),
    asks=True,
)
CODEX = Seat(
    agent="codex",
    title="Codex",
    mode="first start",
    given="",
    sandbox="bubblewrap or Landlock, its own",
    hands=CODEX_HANDS,
    prepare=codex(),
    questions=CODEX_ASKS,
    ready=r"model default ·",
    missing=missing_npm("codex"),
)
OPENCODE = Seat(
    agent="opencode",
    title="opencode",
    mode="first start",
    given="",
    sandbox="none",
    hands=OPENCODE_HANDS,
    prepare=opencode(),
    questions=OPENCODE_ASKS,
    ready=r"Ask anything",
    missing=missing_npm("opencode"),
)
TURNWISE = Seat(
    agent="turnwise",
    title="turnwise",
    mode="first start (ask)",
    given="",
    sandbox="bubblewrap",
    hands=TURNWISE_HANDS,
    prepare=turnwise(),
    questions=TURNWISE_ASKS,
    ready=r"(?m)^\w*> *$",
    missing=lambda: None,
    asks=True,
)
SEATS = (
    CLAUDE,
    CLAUDE._replace(mode="manual", given="`--permission-mode manual`", prepare=claude("--permission-mode", "manual")),
    CLAUDE._replace(
        mode="acceptEdits, sandbox",
        given="`--permission-mode acceptEdits`, `sandbox.enabled`",
        sandbox="bubblewrap and a proxy, its own",
        prepare=claude(*ACCEPTS, settings=SANDBOX),
        missing=missing_socat,
        asks=False,
    ),
    CODEX,
    CODEX._replace(
        mode="never asks, sandbox",
        given="`--sandbox workspace-write --ask-for-approval never`",
        prepare=codex("--sandbox", "workspace-write", "--ask-for-approval", "never"),
    ),
    OPENCODE,
    TURNWISE,
    TURNWISE._replace(
        mode="edits",
        given="`--mode edits`, or Shift-Tab once",
        prepare=turnwise("--mode", "edits"),
    ),
    TURNWISE._replace(mode="sandbox", given="Shift-Tab twice", opening=(SHIFT_TAB, SHIFT_TAB), asks=False),
)
