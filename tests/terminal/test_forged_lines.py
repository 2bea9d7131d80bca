"""Text from outside in every output of the command line: it makes no line of its own, and drives no terminal."""

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from terminal.person import CTRL_D, ENTER, at_terminal
from terminal.running import Cli, at, running_lab, script
from turnwise.base.programs import OWN_PYTHON

LINE_ENDS = ("\n", "\r", "\u2028", "\u0085", "\x0b", "\x1b[2K\x1b]0;t\x07", "\u202e", "\u009b2K")
FORGED = "x" + "".join(f"{one}! forged" for one in LINE_ENDS)
DRIVES = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202e]")
TOML = json.dumps(FORGED)


def forged_in(text: str) -> str:
    """The line of the text that was forged, or what of it drives a terminal."""
    lines = [line for line in text.splitlines() if line.lstrip().startswith("! forged")]
    drives = DRIVES.search(text.replace("\n", ""))
    return lines[0] if lines else drives[0] if drives else ""


NAMES = f"""
    {{ name = "list", arguments = {{}} }},
    {{ name = "search", arguments = {{ pattern = "needle" }} }},
    {{ name = {TOML}, arguments = {{ {TOML} = {TOML} }} }},
    {{ name = "read", arguments = {{ path = {TOML} }} }},
    {{ name = "write", arguments = {{ path = {json.dumps("new" + FORGED)}, content = {TOML} }} }},
    {{ name = "write", arguments = {{ path = {json.dumps("old" + FORGED)}, content = {TOML} }} }},
"""
COMMAND = f"""{{ name = "bash", arguments = {{ command = {json.dumps(f"echo '{FORGED}'")} }} }},"""
CALLS = script("forging", f"""[[steps]]\ncalls = [{NAMES}{COMMAND}]\n\n[[steps]]\ntext = "Done."\n""")
WITHOUT_COMMAND = script("forging-names", f"""[[steps]]\ncalls = [{NAMES}]\n\n[[steps]]\ntext = "Done."\n""")
FAILS = script("failing", f"[[steps]]\nfault = {{ kind = 'status', status = 400, message = {TOML} }}\n")
# A server whose every name and description is forged; `odd` has a schema that is none.
SERVER = f"""
import json, sys
F = {FORGED!r}
TOOLS = [
    {{"name": F, "description": F, "inputSchema": {{"type": "object"}}}},
    {{"name": "fine", "description": F, "inputSchema": {{"type": "object", "properties": {{F: {{"type": "string"}}}}}}}},
    {{"name": "odd", "inputSchema": {{"type": F}}}},
]
ANSWERS = {{
    "initialize": {{"protocolVersion": "2025-06-18", "capabilities": {{"tools": {{}}, "prompts": {{}}}},
                    "serverInfo": {{"name": F, "version": F}}, "instructions": F}},
    "tools/list": {{"tools": TOOLS}},
    "prompts/list": {{"prompts": [{{"name": F, "description": F, "arguments": [{{"name": F}}]}}]}},
}}
for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked:
        sys.stderr.write(F + chr(10))
        print(json.dumps({{"jsonrpc": "2.0", "id": asked["id"], "result": ANSWERS.get(asked["method"], {{}})}}), flush=True)
"""


class Provider(BaseHTTPRequestHandler):
    """Offers a model with a forged name, and refuses every request in forged words."""

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self._answer(200, {"object": "list", "data": [{"id": FORGED, "object": "model", "owned_by": FORGED}]})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(400, {"error": {"message": FORGED, "type": FORGED, "code": FORGED}})

    def _answer(self, status: int, body: object) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def plant(folder: Path) -> None:
    """Forged names of a branch, a folder and files."""
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    (folder / ".git" / "HEAD").write_text(f"ref: refs/heads/{FORGED}\n")
    (folder / FORGED).mkdir()
    (folder / FORGED / FORGED).write_text("needle\n")
    (folder / f"old{FORGED}").write_text("old\n")


@pytest.fixture(name="url")
def a_provider() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Provider)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.costly
def test_no_text_from_outside_makes_a_line_of_its_own(folder: Path, cli: Cli, url: str, tmp_path: Path) -> None:
    """Proves: names of files, branches, tools, models, sessions, servers and settings, and a provider's words, stay in the line
    that tells them. Found: the answer of a failed run, `check`, `compare`, `decode` and `usage --csv` had others."""
    plant(folder)
    stream = tmp_path / FORGED
    chunk = {"id": FORGED, "model": FORGED, "choices": [{"index": 0, "delta": {}, "finish_reason": FORGED}]}
    stream.write_text(f"data: {json.dumps(chunk)}\n\ndata: {json.dumps({'error': {'message': FORGED}})}\n\n")

    def runs(*args: str) -> str:
        ran = cli(*args)
        if "--json" in args:  # lines end with LF alone there, and each is JSON
            return "\n".join([json.dumps(json.loads(line)) for line in ran.out.split("\n") if line])
        assert not forged_in(ran.out + ran.err), (args, ran)
        return ran.out

    named = f"openai_chat:{FORGED}"
    with running_lab([CALLS, FAILS]) as lab:
        offered = at(lab, "forging")
        runs("run", "one", *offered)
        runs("run", f"look at @{FORGED} and say", *offered, "--allow", "write", "--allow", "execute", "--json")
        runs("run", "one", *at(lab, "failing"))
        for model in (named, "openai_chat:x", FORGED):
            runs("run", "one", "--model", model, "--base-url", url)
            runs("check", model, "--base-url", url, "-y")
            runs("doctor", "--model", model, "--base-url", url)
        runs("compare", "one", "-m", named, "-m", "openai_chat:x", "--base-url", url)
        runs("compare", "one", "-m", named, "-m", "openai_chat:x", "--base-url", url, "--csv")
        sessions = re.findall(r'"(?:id|session)": "([^"]+)"', runs("sessions", "list", "--json"))
        assert len(sessions) > 4
        for session in (sessions[-1], sessions[-3], FORGED):
            for command in (
                ["sessions", "show"],
                ["sessions", "fork"],
                ["replay"],
                ["undo"],
                ["resume"],
                ["usage", "--session"],
            ):
                runs(*command, session)
        for by in ("day", "session", "model", "purpose"):
            runs("usage", "--by", by)
            runs("usage", "--by", by, "--csv")
        runs("models", "--base-url", url)
        runs("models", FORGED)
        runs("decode", str(stream), "--family", "openai_chat")
        runs("decode", str(tmp_path / f"no{FORGED}"), "--family", "openai_chat")
        runs("mcp", "add", "forging", "--", sys.executable, "-c", SERVER)
        for command in (
            ["add", FORGED, "--", FORGED],
            ["list"],
            ["test", "forging"],
            ["test", FORGED],
            ["remove", FORGED],
        ):
            runs("mcp", *command)
        runs("run", "one", *offered)
        for settings in (f"model = {json.dumps(named)}", f'[mcp.{TOML}]\ncommand = ["true"]', f"{TOML} = 1"):
            (folder / "turnwise.toml").write_text(settings + "\n")
            for command in (["mcp", "list"], ["run", "one", "--base-url", url], ["doctor", "--offline"], ["models"]):
                runs(*command)
    for answer in ([], ["--json"], ["--yes"]):
        runs("sessions", "prune", "--keep", "1", *answer)
    for command in (["gateway", "keys", "add"], ["gateway", "keys", "revoke"], ["submit"], ["worker"], ["lab"], []):
        runs(*command, FORGED)


def test_no_text_from_outside_makes_a_line_of_its_own_in_a_chat(folder: Path, own_file: Path, tmp_path: Path) -> None:
    """Proves: the same holds for asks and for the commands of a chat. Found: the path of a call that is asked about had others,
    and `/sessions` found none in a folder of such a name."""
    plant(folder)
    (tmp_path / "server.py").write_text(SERVER)
    command = json.dumps([OWN_PYTHON, "-I", str(tmp_path / "server.py")])
    own_file.write_text(f"[mcp.s]\ncommand = {command}\nsandbox = false\n")
    with (
        running_lab([WITHOUT_COMMAND]) as lab,
        at_terminal(*at(lab, "forging-names"), cwd=folder / FORGED) as person,
    ):
        person.sees("\n>")
        person.types(f"look at @{FORGED[0]}{ENTER}")
        for _ in range(2):
            person.sees("\n? ")
            person.sees(", then no):")
            person.types(f"y{ENTER}")
        person.sees("Done.")
        for typed, answer in (
            ("/help", "Ctrl-C ends the turn"),
            ("/model", "offered there"),
            ("/permissions", "are asked about"),
            ("/sessions", "(this one)"),
            ("/usage", "cost unknown"),
        ):
            person.sees("\n>")
            person.types(f"{typed}{ENTER}")
            person.sees(answer)
        person.sees("\n>")
        person.types(CTRL_D)
        person.leaves_by(0)
    assert not [line for line in person.said.splitlines() if line.lstrip().startswith("! forged")]
    assert "\x1b]0;t" not in person.raw and "\x9b" not in person.raw  # the terminal's own editing has other sequences
