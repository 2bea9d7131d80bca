"""The agents: how each is started, told its base URL, and kept from asking anything but that."""

import json
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from real_agents import places
from real_agents.cases import Call
from turnwise.lab.script import ScriptedCall

PROMPT = "Please do your task in this folder."
CLAUDE = "claude"


class Outing(NamedTuple):
    """What an agent is started with. `url` has no path; `home` and `work` are empty folders of its own; `page` is the number of a
    listening socket, for an agent on a page."""

    url: str
    model: str
    home: Path
    work: Path
    page: int
    is_gateway: bool


class Command(NamedTuple):
    words: list[str]
    env: Mapping[str, str] = {}


class AgentUnderTest(NamedTuple):
    """`family` is what it speaks, `upstreams` what stands behind the gateway. `prepare` writes its settings. `route` are fields
    of the gateway's route. `one_call`: it takes one call a response, so the model says the others again."""

    title: str
    family: str
    package: str
    missing: Callable[[], str | None]
    write: Callable[[Path], Call]
    prepare: Callable[[Outing], Command]
    upstreams: tuple[str, ...] = ("openai_chat",)
    route: str = ""
    one_call: bool = False

    @property
    def version(self) -> str:
        known = {**places.npm_versions(), **places.python_versions()}
        return next(version for name, version in known.items() if name.partition("[")[0] == self.package)


def writes(tool: str, *, path: str, content: str, absolute: bool = False) -> Callable[[Path], Call]:
    """Calls of a tool with a path and a content."""

    def of(work: Path) -> Call:
        def call(name: str, text: str) -> ScriptedCall:
            return ScriptedCall(name=tool, arguments={path: str(work / name) if absolute else name, content: text})

        return call

    return of


def python_agent(program: str, *, title: str, package: str) -> AgentUnderTest:
    def prepare(outing: Outing) -> Command:
        return Command([str(places.PYTHON), str(places.PROGRAMS / program), f"{outing.url}/v1", outing.model, PROMPT])

    return AgentUnderTest(
        title=title,
        family="openai_chat",
        package=package,
        missing=lambda: places.missing_python(package),
        write=writes("write_file", path="path", content="content"),
        prepare=prepare,
    )


def prepare_opencode(outing: Outing) -> Command:
    """A provider of one's own in its configuration. Model lists, updates and downloads are switched off by its own variables."""
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Gateway",
        "options": {"baseURL": f"{outing.url}/v1", "apiKey": "none"},
        "models": {
            outing.model: {"name": outing.model, "tool_call": True, "limit": {"context": 200_000, "output": 32_000}}
        },
    }
    settings = {
        "provider": {"gateway": provider},
        "model": f"gateway/{outing.model}",
        "small_model": f"gateway/{outing.model}",
        "permission": "allow",
        "share": "disabled",
        "autoupdate": False,
        "lsp": False,
        "formatter": False,
    }
    plugin = outing.home / "config" / "opencode"  # it fetches its plugins' package, unless a lock says that it is there
    (plugin / "node_modules").mkdir(parents=True)
    lock = {"packages": {"": {"dependencies": {"@opencode-ai/plugin": "*"}}}}
    (plugin / "package-lock.json").write_text(json.dumps(lock), encoding="utf-8")
    config = outing.home / "opencode.json"
    config.write_text(json.dumps(settings), encoding="utf-8")
    off = ["AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "SHARE", "DEFAULT_PLUGINS", "CLAUDE_CODE", "EXTERNAL_SKILLS"]
    env = {"OPENCODE_CONFIG": str(config), **{f"OPENCODE_DISABLE_{name}": "1" for name in off}}
    program = places.NODE_MODULES / "opencode-linux-x64" / "bin" / "opencode"
    return Command([str(program), "run", "--model", f"gateway/{outing.model}", PROMPT], env)


def prepare_claude(outing: Outing) -> Command:
    env = {
        "ANTHROPIC_BASE_URL": outing.url,
        "ANTHROPIC_AUTH_TOKEN": "none",
        "ANTHROPIC_MODEL": outing.model,
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": outing.model,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "IS_SANDBOX": "1",  # else it does not skip its questions for root
    }
    program = places.NODE_MODULES / "@anthropic-ai" / "claude-code-linux-x64" / CLAUDE
    return Command([str(program), "-p", PROMPT, "--dangerously-skip-permissions"], env)


CODEX = """
model_provider = "gateway"
check_for_update_on_startup = false
web_search = "disabled"

[model_providers.gateway]
name = "Gateway"
base_url = "{url}/v1"
wire_api = "responses"
supports_websockets = {sockets}

[analytics]
enabled = false

[features]
apps = false
plugins = false
"""


def prepare_codex(outing: Outing, *, sockets: bool = False) -> Command:
    home = outing.home / "codex"
    home.mkdir()
    (home / "config.toml").write_text(CODEX.format(url=outing.url, sockets=str(sockets).lower()), encoding="utf-8")
    words = ["exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "-m", outing.model, PROMPT]
    return Command([str(codex_program()), *words], {"CODEX_HOME": str(home)})


def codex_program() -> Path:
    return next((places.NODE_MODULES / "@openai" / "codex-linux-x64" / "vendor").glob("*/bin/codex"))


def prepare_deep_chat(outing: Outing) -> Command:
    """It runs in this environment, which has a web server."""
    bundle = places.NODE_MODULES / "deep-chat" / "dist" / "deepChat.bundle.js"
    about = [str(bundle), str(outing.page), outing.url, outing.model, PROMPT, "yes" if outing.is_gateway else "no"]
    program = str(places.PROGRAMS / "deep_chat_page.py")
    return Command([sys.executable, program, str(places.chromium()), *about])


def writes_by_shell(tool: str, *, command: str) -> Callable[[Path], Call]:
    """Calls of a shell. A here-document ends with a line break, which the file may not have."""

    def of(work: Path) -> Call:
        def call(name: str, text: str) -> ScriptedCall:
            line = f"cat > {name} <<'END_OF_FILE'\n{text}\nEND_OF_FILE\ntruncate -s -1 {name}"
            return ScriptedCall(name=tool, arguments={command: line})

        return call

    return of


AGENTS = {
    "langchain": python_agent("langchain_agent.py", title="LangChain", package="langchain"),
    "pydantic-ai": python_agent("pydantic_ai_agent.py", title="pydantic-ai", package="pydantic-ai-slim"),
    "opencode": AgentUnderTest(
        title="opencode",
        family="openai_chat",
        package="opencode-ai",
        missing=lambda: places.missing_npm("opencode-ai"),
        write=writes("write", path="filePath", content="content", absolute=True),
        prepare=prepare_opencode,
    ),
    "claude-code": AgentUnderTest(
        title="Claude Code",
        family="anthropic_messages",
        package="@anthropic-ai/claude-code",
        missing=lambda: places.missing_npm("@anthropic-ai/claude-code"),
        write=writes("Write", path="file_path", content="content", absolute=True),
        prepare=prepare_claude,
    ),
    "codex": AgentUnderTest(
        title="Codex",
        family="openai_responses",
        package="@openai/codex",
        missing=lambda: places.missing_npm("@openai/codex"),
        write=writes_by_shell("exec_command", command="cmd"),
        prepare=prepare_codex,
        upstreams=("openai_chat", "anthropic_messages"),
        route='calls_in_text = "on"\n',
    ),
    "codex-socket": AgentUnderTest(
        title="Codex over a WebSocket",
        family="openai_responses",
        package="@openai/codex",
        missing=lambda: places.missing_npm("@openai/codex"),
        write=writes_by_shell("exec_command", command="cmd"),
        prepare=partial(prepare_codex, sockets=True),
        upstreams=("openai_chat", "anthropic_messages", "gemini"),
        route='calls_in_text = "on"\n',
    ),
    "deep-chat": AgentUnderTest(
        title="deep-chat",
        family="openai_chat",
        package="deep-chat",
        missing=lambda: places.missing_npm("deep-chat") or (None if places.chromium() else "Debian's `chromium`"),
        write=writes("write_file", path="path", content="content"),
        prepare=prepare_deep_chat,
        route="one_call_at_a_time = true\n",
        one_call=True,
    ),
}
