"""`turnwise acp` and `turnwise mcp`: turnwise for editors and MCP clients, and the MCP servers that local runs start."""

import os
import sys
import time
import webbrowser
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click
import msgspec

from turnwise.agent.formatting import many
from turnwise.base.clock import SystemClock
from turnwise.base.extras import missing_extras, require_extras
from turnwise.base.processes import enter
from turnwise.base.threads import run_to_end
from turnwise.coding_agent.asked_calls import is_attended
from turnwise.coding_agent.mcp_servers import named_servers, refusal_of, start_of, toolset_of
from turnwise.coding_agent.text import clean_line, shortened, style
from turnwise.errors import CallerError
from turnwise.settings.kept_keys import drop_key, kept_keys, keys_file
from turnwise.settings.mcp_files import NamedServer, ServerAddress, check_server_name, is_web_address, shown
from turnwise.settings.user_settings import add_server, remove_server
from turnwise.terminal.command_options import (
    FOLDER,
    complete_models,
    json_option,
    options_of_editors,
    options_of_serving,
)
from turnwise.terminal.failures import FAILED, Failure, as_one_line, write_json
from turnwise.terminal.last_line import EndsWithLine
from turnwise.terminal.rows import say
from turnwise.terminal.terminal import confirm_at_terminal
from turnwise.tools.mcp.trust import ServerTrust
from turnwise.vocab.file_names import json_text
from turnwise.vocab.wording import in_ticks

if TYPE_CHECKING:
    from turnwise.agent.mcp_servers import ServerToolset
    from turnwise.coding_agent.options import Given

# `turnwise mcp serve`: turnwise as an MCP server, with the tools `run` and `decode`.


SERVE_EPILOG = """\b
Examples:
  turnwise mcp serve -m anthropic:claude-sonnet-5 --root ~/projects
  turnwise mcp serve -m ollama:qwen3:8b --max-requests 20 --max-time 600
  turnwise mcp serve -m openai:gpt-6.1-sol --allow-model openai:gpt-6.1-terra --allow write

\b
An MCP client starts this command and speaks with it over its standard input and output. Its entry there:
  {"mcpServers": {"turnwise": {"command": "turnwise", "args": ["mcp", "serve", "--root", "/path/to/projects"]}}}
docs/mcp.md has the rest. Exit codes: 0 the client has ended it; 1 something failed; 2 wrong use, the extra is
missing, or a run of another `turnwise mcp serve` has started it."""


@click.command("serve", epilog=SERVE_EPILOG)
@click.option(
    "--root",
    type=FOLDER,
    help="Runs work in this folder and below. [default: this folder]",
)
@click.option(
    "--allow-model",
    "models",
    multiple=True,
    metavar="NAME",
    shell_complete=complete_models,
    help="Let the client choose this model, too. Repeatable.",
)
@options_of_serving
def serve(root: Path | None, models: tuple[str, ...], **options: object) -> None:
    """Serve an MCP client: `run` gives a prompt to an agent in a folder, `decode` reads a recorded stream.

    The options hold for each run. The client can lower limits and permissions, and raise none. What needs an approval is put to
    the client's user, if the client can ask them (elicitation); otherwise it is denied at once.
    """
    with as_one_line():
        require_extras("mcp", "workspace")
        enter(os.environ)
        from turnwise.base.clock import SystemClock
        from turnwise.base.threads import run_to_end
        from turnwise.editors.mcp.runs import ServeMeans
        from turnwise.editors.mcp.service import serve as serve_client
        from turnwise.journal.journal import Journal, journal_path

        folder = (root or Path.cwd()).resolve()
        if sys.stdin.isatty():
            say(f"an MCP client starts this command (Ctrl-C ends it); its entry there: {_entry(folder, root=root)}")
        given = cast("Given", {**options, "cwd": None, "go_on": False, "session": None, "plain": True})
        clock = SystemClock()
        with Journal(journal_path(os.environ), clock=clock) as journal:
            means = ServeMeans(given=given, root=folder, models=models, journal=journal, clock=clock, env=os.environ)
            run_to_end(serve_client(means))


def _entry(folder: Path, *, root: Path | None) -> str:
    """The entry in a client's settings that starts this command."""
    words = [*sys.argv[1:], *([] if root else ["--root", str(folder)])]
    return msgspec.json.encode({"mcpServers": {"turnwise": {"command": "turnwise", "args": words}}}).decode()


MCP_EPILOG = """\b
Examples:
  turnwise mcp list
  turnwise mcp add git -- mcp-server-git
  turnwise mcp add docs --url https://example.org/mcp --header "Authorization=Bearer ${DOCS_TOKEN}"
  turnwise mcp test git
  turnwise mcp login docs
  turnwise mcp remove git
  turnwise mcp serve --root ~/projects
  turnwise run --mcp servers.json --allow 'mcp(git.*)' "what changed this week?"

Servers are named in your turnwise.toml (`[mcp.NAME]`), in a project's turnwise.toml or .mcp.json once you trust it, and by --mcp
FILE. They need an extra: pip install 'turnwise[mcp]'."""

MCP_FILES = click.option(
    "--mcp",
    "files",
    multiple=True,
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Those that this JSON file names, too. Repeatable.",
)
CWD = click.option("--cwd", type=FOLDER, help="As a run in this folder would.")


@click.group(epilog=MCP_EPILOG)
def mcp_command() -> None:
    """List, add, remove and test MCP servers, log in at them, or be one."""


@mcp_command.command("list", cls=EndsWithLine)
@MCP_FILES
@CWD
@json_option("One JSON object a server, on one line each.")
def list_servers(files: tuple[Path, ...], cwd: Path | None, as_json: bool) -> None:
    """List the servers that a run would start, and what is asked before."""
    with as_one_line():
        servers = named_servers(_folder(cwd), files=files, leave_out=_tell_left_out)
        trust = ServerTrust.of_user(os.environ)
        for server in servers:
            start = start_of(server, trust=trust)
            if as_json:
                told = {"name": server.name, "source": server.source, "where": server.where, "start": start.said}
                _write_names({**told, "reached": shown(server), "is_asked": start.is_asked})
            else:
                say(f"{style(server.name, 'bold')}  {clean_line(shown(server))}", stream=sys.stdout)
                say(style(f"  {clean_line(f'{start.said}; {server.where}')}", "dim"), stream=sys.stdout)
        if not servers and not as_json:
            say("no MCP servers: `turnwise mcp add NAME -- COMMAND` names one")


@mcp_command.command("add", cls=EndsWithLine)
@click.argument("name")
@click.argument("words", nargs=-1)
@click.option("--url", metavar="URL", help="A server elsewhere, in place of a command.")
@click.option("--env", multiple=True, metavar="NAME=VALUE", help="A variable that it sees. Repeatable.")
@click.option("--header", multiple=True, metavar="NAME=VALUE", help="A header of each request. Repeatable.")
@click.option("--network", is_flag=True, help="Let it use the network.")
@click.option("--no-sandbox", is_flag=True, help="Run it without a sandbox.")
@json_option("What was written, as one JSON object.")
def add(
    name: str,
    words: tuple[str, ...],
    url: str | None,
    env: tuple[str, ...],
    header: tuple[str, ...],
    network: bool,
    no_sandbox: bool,
    as_json: bool,
) -> None:
    """Name a server in your turnwise.toml: NAME, then `--` and its command, or --url."""
    with as_one_line():
        check_server_name(name)
        if bool(words) == bool(url):
            raise CallerError("give one of a command (`turnwise mcp add NAME -- COMMAND`) and --url")
        if url and not is_web_address(url):
            raise CallerError("--url begins with `https://` or `http://`")
        table: dict[str, object] = {"url": url} if url else {"command": list(words)}
        for key, given in (("env", env), ("headers", header)):
            if given:
                table[key] = _pairs(given, option="--env" if key == "env" else "--header")
        table |= {"network": True} if network else {}
        table |= {"sandbox": False} if no_sandbox else {}
        path = add_server(name, table, env=os.environ)
        if as_json:
            _write_names({"name": name, "path": str(path)})
        else:
            say(f"`{name}` is in {clean_line(str(path))}; `turnwise mcp test {name}` starts it", stream=sys.stdout)
        if line := missing_extras("mcp"):
            say(style(f"it does not start yet: {line}", "yellow", stream=sys.stderr))


@mcp_command.command("remove", cls=EndsWithLine)
@click.argument("name")
@json_option("What was removed, as one JSON object.")
def remove(name: str, as_json: bool) -> None:
    """Take a server out of your turnwise.toml."""
    with as_one_line():
        path = remove_server(name, env=os.environ)
        if as_json:
            _write_names({"name": name, "path": str(path)})
        else:
            say(f"`{name}` is out of {clean_line(str(path))}", stream=sys.stdout)


@mcp_command.command("test", cls=EndsWithLine)
@click.argument("name")
@MCP_FILES
@CWD
@click.option("--network", is_flag=True, help="Let it use the network, as `run --network` does.")
@json_option("What it offers, as one JSON object.")
def test(name: str, files: tuple[Path, ...], cwd: Path | None, network: bool, as_json: bool) -> None:
    """Start a server, list what it offers, and end it. The exit code is 1 if it does not start."""
    with as_one_line():
        toolset = _judged(_named(name, files=files, cwd=cwd, network=network), network=network, as_json=as_json)
        if not as_json:
            say(style(f"starting `{name}`, {toolset.entry.start_s:g} s at most", "dim", stream=sys.stderr))
        outcome = run_to_end(_tested(toolset))
        if as_json:
            _write_names({**msgspec.structs.asdict(outcome), "notes": [json_text(note) for note in outcome.notes]})
        else:
            _show(outcome)
    if not outcome.started:
        sys.exit(FAILED)


LOGIN_EPILOG = """\b
Examples:
  turnwise mcp login docs
  turnwise mcp login docs --scope "files:write"
  turnwise mcp login docs --no-browser --port 8765

\b
Exit codes: 0 logged in; 1 the server or its authorization server refused it, or nobody answered; 2 wrong use;
130 you ended it with Ctrl-C."""


@mcp_command.command("login", cls=EndsWithLine, epilog=LOGIN_EPILOG)
@click.argument("name")
@MCP_FILES
@CWD
@click.option("--no-browser", is_flag=True, help="Print the address only; open it yourself.")
@click.option("--scope", default="", metavar="WORDS", help="Ask for these rights, beside those of the login so far.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="Wait for the answer at this port. [default: any]"
)
@click.option("--file", "in_file", is_flag=True, help="Keep it in turnwise's own file, even if a keyring is there.")
@json_option("One JSON object: the server, who gave the login, and what it may do.")
def login(
    name: str,
    files: tuple[Path, ...],
    cwd: Path | None,
    no_browser: bool,
    scope: str,
    port: int,
    in_file: bool,
    as_json: bool,
) -> None:
    """Log in at a remote server with your browser (OAuth).

    The login is kept as keys are: in the system's keyring, or in a file that only you can read. It goes to that server alone, and
    turnwise renews it. Your browser must run on this machine: the answer comes to 127.0.0.1.
    """
    with as_one_line():
        require_extras("mcp")
        from turnwise.tools.mcp.logins import log_in
        from turnwise.tools.mcp.server_bounds import McpFailure

        server = _named(name, files=files, cwd=cwd)
        address = _remote(server)
        start = start_of(server, trust=ServerTrust.of_user(os.environ))
        if start.is_asked and not is_attended():
            raise CallerError(f"`{name}` is named by a project's file, and nobody is there to be asked about it")
        if start.is_asked and not confirm_at_terminal([f"{server.where} names it: {shown(server)}"], "log in? [y/N] "):
            raise CallerError("you said no")

        def show(url: str) -> None:
            say(f"log in with your browser:\n{clean_line(url)}")
            # without a screen, it would open a browser of text over this terminal
            if not no_browser and (
                sys.platform in ("darwin", "win32") or {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys()
            ):
                webbrowser.open(url)

        logging_in = log_in(
            address, clock=SystemClock(), env=os.environ, show=show, scope=scope, port=port, in_file=in_file
        )
        try:
            found, why_in_file = run_to_end(logging_in)
        except McpFailure as why:
            raise Failure(f"no login at `{name}`: {clean_line(str(why))}", exit_code=FAILED) from None
        if why_in_file and not in_file:
            say(clean_line(f"{why_in_file}: the login is in {keys_file(os.environ)}"))
        if as_json:
            _write_names({"name": name, "issuer": found.issuer, "scope": found.scope})
        else:
            by = f" by {clean_line(found.issuer)}" if found.issuer else ""
            say(f"`{name}`: logged in{by}; `turnwise mcp logout {name}` removes it", stream=sys.stdout)


@mcp_command.command("logout", cls=EndsWithLine)
@click.argument("name")
@MCP_FILES
@CWD
@json_option("One JSON object: the server.")
def logout(name: str, files: tuple[Path, ...], cwd: Path | None, as_json: bool) -> None:
    """Remove the login at a remote server. There it stays valid until it ends or you revoke it."""
    with as_one_line():
        address = _remote(_named(name, files=files, cwd=cwd))
        if address.login_name not in kept_keys(os.environ):
            raise CallerError(f"there is no login at `{name}`")
        if why := drop_key(address.login_name, env=os.environ):
            say(clean_line(f"it may still be in the keyring: {why}; remove `{address.login_name}` there"))
        if as_json:
            _write_names({"name": name})
        else:
            say(f"`{name}`: logged out", stream=sys.stdout)


def _named(name: str, *, files: Sequence[Path], cwd: Path | None, network: bool = False) -> NamedServer:
    found = named_servers(_folder(cwd), files=files, network=network, leave_out=_tell_left_out)
    servers = {one.name: one for one in found}
    if name not in servers:
        there = in_ticks(servers) or "none: `turnwise mcp add NAME -- COMMAND` names one"
        raise CallerError(f"no MCP server `{name}`; there are {there}")
    return servers[name]


def _remote(server: NamedServer) -> ServerAddress:
    reached = server.entry.reached
    if not isinstance(reached, ServerAddress):
        raise CallerError(f"`{server.name}` is a command, which has no login: only a server with a `url` has one")
    if not reached.uses_login:
        raise CallerError(f"`{server.name}` has an `Authorization` header in its entry, which goes in place of a login")
    return reached


mcp_command.add_command(serve)


class Tested(msgspec.Struct, frozen=True, kw_only=True):
    """What a server offered when it was tried. `effects` are those of its tools, `arguments` those of its prompts. If it did not
    start, `notes` say why."""

    name: str
    started: bool
    seconds: float
    tools: dict[str, str]
    effects: dict[str, str]
    prompts: dict[str, str]
    arguments: dict[str, tuple[str, ...]]
    has_resources: bool
    notes: tuple[str, ...]


def _judged(server: NamedServer, *, network: bool, as_json: bool) -> "ServerToolset":
    trust = ServerTrust.of_user(os.environ)
    start = start_of(server, trust=trust)
    asks = confirm_at_terminal if is_attended() and not as_json else None
    if start.is_asked and (why := refusal_of(start, trust=trust, asks=asks)):
        raise CallerError(f"`{server.name}` was not started: {why}")
    return toolset_of(start, trust=trust, network=network, clock=SystemClock())


async def _tested(toolset: "ServerToolset") -> Tested:
    began_s = time.monotonic()
    notes: list[str] = []
    with toolset.heard_by(notes.append):
        async with toolset:
            seconds = round(time.monotonic() - began_s, 3)
            await toolset.tools()
            listing = toolset.listing
            tools = () if listing is None else listing.tools
            prompts = () if listing is None else listing.prompts
            return Tested(
                name=toolset.name,
                started=listing is not None,
                seconds=seconds,
                tools={one.own_name: one.offer.spec.description for one in tools},
                effects={one.own_name: one.offer.effect for one in tools},
                prompts={one.own_name: one.description for one in prompts},
                arguments={one.own_name: one.arguments for one in prompts},
                has_resources=listing is not None and listing.has_resources,
                notes=toolset.shortcomings
                if listing is None
                else tuple(dict.fromkeys([*notes, *toolset.shortcomings])),
            )


def _show(outcome: Tested) -> None:
    for note in outcome.notes:
        say(style(clean_line(note), "yellow", stream=sys.stderr))
    if not outcome.started:
        return
    resources = ", resources" if outcome.has_resources else ""
    count = f"{many(len(outcome.tools), 'tool')}, {many(len(outcome.prompts), 'prompt')}{resources}"
    say(f"{style(outcome.name, 'bold')}: {count}, after {outcome.seconds:.1f} s", stream=sys.stdout)
    for name, description in outcome.tools.items():
        rule = f"mcp({clean_line(outcome.name)}.{clean_line(name)})"
        say(f"  {rule}  [{outcome.effects[name]}]  {shortened(description, limit=80)}", stream=sys.stdout)
    for name, description in outcome.prompts.items():
        typed = " ".join([f"/{outcome.name}:{name}", *[f"{one}=..." for one in outcome.arguments[name]]])
        say(f"  {clean_line(typed)}  {shortened(description, limit=80)}", stream=sys.stdout)


def _tell_left_out(why: str) -> None:
    say(style(clean_line(why), "yellow", stream=sys.stderr))


def _folder(cwd: Path | None) -> Path:
    return (cwd or Path.cwd()).resolve()


def _pairs(given: Sequence[str], *, option: str) -> dict[str, str]:
    pairs = [one.partition("=") for one in given]
    for number, (name, found, _) in enumerate(pairs, start=1):
        if not found or not name:  # it is not shown: if the person typed another character for `=`, it holds the value
            raise CallerError(f"{option} is NAME=VALUE; number {number} of them has no name, or no `=`")
    return {name: value for name, _, value in pairs}


def _write_names(value: Mapping[str, object]) -> None:
    told = {name: json_text(one) if isinstance(one, str) else one for name, one in value.items()}
    write_json(told)
    sys.stdout.flush()


# `turnwise acp`: the agent of an editor that speaks the Agent Client Protocol.


ACP_EPILOG = """\b
Examples:
  turnwise acp -m anthropic:claude-sonnet-5
  turnwise acp -m ollama:qwen3:8b --ask-timeout 600

\b
An editor starts this command and speaks with it over its standard input and output. docs/acp.md has the settings
of Zed, JetBrains and Neovim. Exit codes: 0 the editor has ended it; 2 wrong use, or the extra is missing."""


@click.command(epilog=ACP_EPILOG)
@options_of_editors
def acp_command(**options: object) -> None:
    """Serve an editor that speaks the Agent Client Protocol (Zed, JetBrains, Neovim and others).

    The options hold for each session that the editor opens. The editor says where each one works, and asks you before files
    change and commands run.
    """
    with as_one_line():
        require_extras("editors", "workspace")
        from turnwise.base.clock import SystemClock
        from turnwise.base.threads import run_to_end
        from turnwise.editors.acp.service import serve
        from turnwise.journal.journal import Journal, journal_path
        from turnwise.telemetry.telemetry import telemetry_of

        telemetry_of(os.environ)  # missing parts are reported now, and not in each session
        if sys.stdin.isatty():
            say("an editor starts this command; waiting for its messages on standard input (Ctrl-C ends it)")
        given = cast("Given", {**options, "cwd": None, "go_on": False, "session": None, "plain": True})
        clock = SystemClock()
        with Journal(journal_path(os.environ), clock=clock) as journal:
            run_to_end(serve(given=given, journal=journal, clock=clock, env=os.environ))
