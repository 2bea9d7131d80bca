"""acpx, a client of the Agent Client Protocol that we did not write, drives `turnwise acp` with the lab as model: unpatched, in
the pinned version. It cannot fork; tests/editors/acp has that with the protocol's own client."""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from real_agents import places
from terminal.running import running_lab, script
from terminal.test_processes import wait_until
from turnwise.lab import Lab
from waits import HANG_S

SLOW = script(
    "slow",
    """
[[steps]]
calls = [{ name = "bash", arguments = { command = "echo $$ > begun.txt; exec sleep 60" } }]

[[steps]]
text = "It said: {result}"
""",
)
ONE_SECOND = ("--ask-timeout", "1")
AGENT = f"{sys.executable} -m turnwise acp"
pytestmark = pytest.mark.agents


class Acpx:
    """Runs it in a folder and a home of its own."""

    def __init__(self, folder: Path, *, lab: Lab) -> None:
        self.work, self._lab = folder / "work", lab
        self._home = folder / "home"
        for place in (self.work, self._home):
            place.mkdir()
        (self.work / "notes.txt").write_text("status: draft\n")

    def start(
        self, *args: str, model: str, options: Sequence[str] = (), terminal: int | None = None
    ) -> subprocess.Popen[str]:
        node = places.node()
        assert node is not None
        agent = " ".join([AGENT, "-m", f"openai_chat:{model}", "--base-url", f"{self._lab.url}/v1", *options])
        program = str(places.NODE_MODULES / "acpx" / "dist" / "cli.js")
        return subprocess.Popen(
            [str(node), program, "--agent", agent, "--ttl", "1", "--format", "json", *args],
            cwd=self.work,
            env={
                "PATH": f"{node.parent}:{os.environ['PATH']}",
                "HOME": str(self._home),
                "TURNWISE_STATE_DIR": str(self._home / "state"),
                "SSL_CERT_FILE": os.devnull,
            },
            stdin=subprocess.DEVNULL if terminal is None else terminal,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if terminal is None else terminal,
            text=True,
        )

    def run(self, *args: str, model: str, options: Sequence[str] = ()) -> list[dict[str, Any]]:
        """Its messages: what went over the wire, both ways."""
        return messages_of(self.start(*args, model=model, options=options))


def messages_of(process: subprocess.Popen[str]) -> list[dict[str, Any]]:
    out, err = process.communicate(timeout=HANG_S)
    assert "Traceback" not in (err or "")
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")]


def said(messages: Sequence[dict[str, Any]]) -> str:
    updates = [one["params"]["update"] for one in messages if one.get("method") == "session/update"]
    return "".join([one["content"]["text"] for one in updates if one["sessionUpdate"] == "agent_message_chunk"])


def stop_reason(messages: Sequence[dict[str, Any]]) -> str:
    (found,) = {one["result"]["stopReason"] for one in messages if "stopReason" in (one.get("result") or {})}
    return found


def methods(messages: Sequence[dict[str, Any]]) -> set[str]:
    return {one["method"] for one in messages if "method" in one}


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with running_lab([SLOW]) as lab:
        yield lab


@pytest.fixture
def acpx(lab: Lab, tmp_path: Path) -> Acpx:
    if missing := places.missing_npm("acpx"):
        pytest.skip(f"{missing} is not installed: {places.SETUP}")
    lab.reset()
    return Acpx(tmp_path, lab=lab)


def test_acpx_is_told_a_call_with_its_diff_and_grants_it(acpx: Acpx) -> None:
    """Text, a call that reads, a call that edits after the permission was granted."""
    messages = acpx.run("--approve-all", "exec", "Set it.", model="read-edit-answer")
    assert stop_reason(messages) == "end_turn" and said(messages).endswith("Done: notes.txt now says 'status: done'.")
    assert (acpx.work / "notes.txt").read_text() == "status: done\n"
    (ask,) = [one["params"] for one in messages if one.get("method") == "session/request_permission"]
    diff = ask["toolCall"]["content"][0]
    assert (diff["type"], diff["oldText"], diff["newText"]) == ("diff", "status: draft\n", "status: done\n")


def test_acpx_denies_a_call(acpx: Acpx) -> None:
    """It does not run, and the model is told."""
    messages = acpx.run("--deny-all", "exec", "Set it.", model="read-edit-answer")
    assert stop_reason(messages) == "end_turn" and "session/request_permission" in methods(messages)
    assert (acpx.work / "notes.txt").read_text() == "status: draft\n"


def test_acpx_asks_a_person_who_does_not_answer(acpx: Acpx) -> None:
    """At a terminal, where nobody types: after a second of `--ask-timeout` the call is denied, and that is told."""
    ours, theirs = pty.openpty()
    try:
        asking = acpx.start(
            "--approve-reads", "exec", "Set it.", model="read-edit-answer", options=ONE_SECOND, terminal=theirs
        )
        messages = messages_of(asking)
    finally:
        os.close(ours)
        os.close(theirs)
    assert stop_reason(messages) == "end_turn" and "not answered within 1 s: edit: denied" in said(messages)
    assert (acpx.work / "notes.txt").read_text() == "status: draft\n"


def test_acpx_goes_on_with_a_session_after_its_agent_has_ended(acpx: Acpx, lab: Lab) -> None:
    """Named session, prompt, a new process of the agent, load or resume, the next prompt, which knows the first; and the list."""
    acpx.run("sessions", "new", model="plain-answer")
    assert stop_reason(acpx.run("prompt", "The first.", model="plain-answer")) == "end_turn"
    listed = acpx.run("sessions", "list", model="plain-answer")
    assert "The first." in json.dumps(listed)
    wait_until(lambda: not agents_in(acpx.work))
    messages = acpx.run("prompt", "The second.", model="plain-answer")
    assert stop_reason(messages) == "end_turn" and methods(messages) & {"session/load", "session/resume"}
    body = lab.requests[-1].body.decode()
    assert "The first." in body and "The second." in body
    wait_until(lambda: not agents_in(acpx.work))


def test_acpx_cancels_a_turn(acpx: Acpx) -> None:
    """While a command runs: the prompt ends as cancelled, and nothing is left running."""
    allowed = ["--allow", "bash", "--no-sandbox"]
    acpx.run("sessions", "new", model="slow", options=allowed)
    turn = acpx.start("prompt", "Run it.", model="slow", options=allowed)
    begun = acpx.work / "begun.txt"
    wait_until(lambda: begun.exists() and begun.read_text().strip())
    acpx.run("cancel", model="slow", options=allowed)
    assert stop_reason(messages_of(turn)) == "cancelled"
    with pytest.raises(ProcessLookupError):
        os.kill(int(begun.read_text()), 0)
    wait_until(lambda: not agents_in(acpx.work))


def agents_in(work: Path) -> list[int]:
    """Processes that work in that folder."""
    found: list[int] = []
    for place in Path("/proc").iterdir():
        try:
            if place.name.isdecimal() and (place / "cwd").readlink() == work:
                found.append(int(place.name))
        except OSError:
            continue
    return found
