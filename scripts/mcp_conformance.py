"""Hold turnwise's MCP client, with its login, against the client scenarios of the protocol's own conformance suite.

Usage: python scripts/mcp_conformance.py [--scenario NAME] [--show] [--json]

The suite stands in tests/mcp_servers/package.json at its version; `python scripts/mcp_servers.py` installs it, with the node of
the dev group. It plays each server and judges what this script does as its client: log in where that is wanted (a program in the
place of the browser follows the address), list the tools, call each, answer a form with what it offers first. The suite starts a
command for each client; here it hands the address on to this process, which has imported all.

Ends with 0 if all is right but what scripts/mcp_conformance.toml names, with its reason; 1 otherwise, and if such a miss is right
now; 2 if the suite is not installed.
"""

import argparse
import asyncio
import json
import os
import re
import shlex
import sys
import tempfile
import tomllib
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from real_agents import places  # noqa: E402  # pyright: ignore[reportMissingImports]
from turnwise import Approval  # noqa: E402
from turnwise.base.clock import SystemClock  # noqa: E402
from turnwise.errors import ToolFault  # noqa: E402
from turnwise.settings.mcp_files import ServerAddress, ServerEntry  # noqa: E402
from turnwise.tools.mcp.kept_server import RunningServer  # noqa: E402
from turnwise.tools.mcp.server_bounds import McpFailure  # noqa: E402

KNOWN = ROOT / "scripts" / "mcp_conformance.toml"
PACKAGE = places.INSTALLED / "mcp" / "node_modules" / "@modelcontextprotocol" / "conformance"
DOCUMENT = "https://conformance-test.local/client-metadata.json"  # the suite's own client, known by a document
SCENARIO_S = 30
TRIES = 3  # logins within one scenario: as many as a person would put up with
_HINT = re.compile(r"`turnwise mcp login \S+?(?: --scope (?:'([^']*)'|(\S+)))?`")
TIMED = "sse-retry"  # how soon a client comes back


# --- as the client


class _Person:
    """Answers each question with what is offered first."""

    async def ask(self, question: str, *, options: tuple[str, ...] = (), why: str = "") -> Approval:
        return Approval(call_id="", verdict="allow", by="person", text=options[0] if options else "text")

    def report(self, text: str) -> None:
        print(text, file=sys.stderr)


class _NotFollowed(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def _browse(url: str) -> None:
    """As a browser whose person says yes to everything at once."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NotFollowed)
    for _ in range(5):
        try:
            opener.open(url, timeout=SCENARIO_S).close()
        except urllib.error.HTTPError as answer:
            url = answer.headers.get("location", "")
            answer.close()
            if not url:
                return
        else:
            return


def _value(schema: dict[str, Any]) -> Any:
    return {"number": 5, "integer": 5, "boolean": True, "array": [], "object": {}}.get(schema.get("type", ""), "text")


async def _log_in(entry: ServerEntry, *, scope: str) -> None:
    from turnwise.tools.mcp.logins import log_in

    assert isinstance(entry.reached, ServerAddress)
    with ThreadPoolExecutor(1) as browser:
        found, _ = await log_in(
            entry.reached,
            clock=SystemClock(),
            env=os.environ,
            show=lambda url: browser.submit(_browse, url),
            scope=scope,
            in_file=True,
            within_s=SCENARIO_S,
        )
    print(f"logged in: {found}", file=sys.stderr)


async def _visit(entry: ServerEntry) -> str:
    """All of the server's tools were called; what it still wants of a person."""
    server = RunningServer(entry, clock=SystemClock(), one_turn=True)
    told = ""
    try:
        await server.start()
        if server.listing is None:
            return " ".join(server.shortcomings)
        for tool in server.listing.tools:
            schema = json.loads(tool.offer.spec.parameters)
            arguments = {name: _value(schema["properties"][name]) for name in schema.get("required", ())}
            try:
                print(await server.call(tool.own_name, arguments, context=_Person(), again=False), file=sys.stderr)
            except ToolFault as fault:
                told = str(fault)
    finally:
        await server.stop()
    return told


async def _client(url: str, *, scenario: str, given: dict[str, str]) -> None:
    reached = ServerAddress(
        url=url,
        uses_login=True,
        client_id=DOCUMENT if scenario == "auth/basic-cimd" else given.get("client_id", ""),
        client_secret=given.get("client_secret", ""),
    )
    entry = ServerEntry(name="suite", reached=reached, start_s=SCENARIO_S)
    for _ in range(TRIES):
        told = await _visit(entry)
        if told:
            print(f"{scenario}: {told}", file=sys.stderr)
        if (hint := _HINT.search(told)) is None:
            break
        try:
            await _log_in(entry, scope=hint[1] or hint[2] or "")
        except McpFailure as why:
            print(f"{scenario}: no login: {why}", file=sys.stderr)
            break


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One client of the suite: its command waits until the end of the connection."""
    try:
        url, scenario, given = json.loads(await reader.read())
        await _client(url, scenario=scenario, given=json.loads(given or "{}"))
    finally:
        writer.close()


# --- as the lane


_HANDS_ON = """import json, os, socket, sys
one = socket.socket(socket.AF_UNIX)
one.connect(sys.argv[1])
given = [sys.argv[2], os.environ["MCP_CONFORMANCE_SCENARIO"], os.environ.get("MCP_CONFORMANCE_CONTEXT")]
one.sendall(json.dumps(given).encode())
one.shutdown(socket.SHUT_WR)
one.recv(1)
"""


async def _judged(node: str, folder: Path, *chosen: str) -> dict[str, list[dict[str, Any]]]:
    """The suite's checks of each scenario."""
    socket = str(folder / "client")
    command = shlex.join([sys.executable, "-I", "-S", "-c", _HANDS_ON, socket])
    results = folder / "-".join(chosen).replace("/", "-")
    async with await asyncio.start_unix_server(_serve, socket):
        suite = await asyncio.create_subprocess_exec(
            *(node, str(PACKAGE / "dist" / "index.js"), "client", *chosen, "-o", str(results)),
            *("--timeout", str(SCENARIO_S * 1000), "--command", command),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            async with asyncio.timeout(3 * SCENARIO_S):
                await suite.wait()
        finally:
            if suite.returncode is None:
                suite.kill()
    found: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(results.rglob("checks.json")):
        name = re.sub(r"-\d{4}-\d\d-\d\dT.*", "", str(path.parent.relative_to(results)))
        found[name] = json.loads(path.read_text())
    return found


async def _all_judged(node: str, scenario: str | None) -> dict[str, list[dict[str, Any]]]:
    """All at once, but for the scenario that has a clock."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_STATE_HOME"] = folder
        if scenario:
            return await _judged(node, Path(folder), "--scenario", scenario)
        found = await _judged(node, Path(folder), "--suite", "all")
        return found | await _judged(node, Path(folder), "--scenario", TIMED)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenario", help="Only this one.")
    parser.add_argument("--show", action="store_true", help="Show what was wrong.")
    parser.add_argument("--json", action="store_true", help="One JSON object.")
    given = parser.parse_args()
    node = places.node()
    if node is None or not PACKAGE.exists():
        print("the suite is missing: python scripts/mcp_servers.py installs it", file=sys.stderr)
        return 2
    known: dict[str, str] = tomllib.loads(KNOWN.read_text(encoding="utf-8"))["known"]
    found = asyncio.run(_all_judged(str(node), given.scenario))
    wrong: list[str] = []
    table: dict[str, dict[str, int]] = {}
    for name, checks in sorted(found.items()):
        passed = [one for one in checks if one["status"] == "SUCCESS"]
        failed = [one for one in checks if one["status"] == "FAILURE"]
        table[name] = {"right": len(passed), "wrong": len(failed)}
        is_right = bool(passed) and not failed
        if is_right == (name in known):
            wrong.append(name)
        if not given.json:
            state = "known miss" if name in known else "right" if is_right else "WRONG"
            print(f"{name:48} {len(passed):3} of {len(passed) + len(failed):3}  {state}")
        if given.show and not is_right:
            for one in failed:
                print(f"    {one['id']}: {one.get('errorMessage') or one['description']}")
    counted = {
        "right": sum(one["right"] for one in table.values()),
        "wrong": sum(one["wrong"] for one in table.values()),
    }
    if given.json:
        print(json.dumps({"scenarios": table, "checks": counted, "unexpected": wrong}))
    else:
        print(f"{counted['right']} of {sum(counted.values())} checks; unexpected: {', '.join(wrong) or 'none'}")
    return 1 if wrong or not found else 0


if __name__ == "__main__":
    sys.exit(main())
