"""Hooks that are commands: real processes, what they read, say and do wrong."""

import os
import sys
from pathlib import Path

import pytest

from tables import each
from turnwise.base.clock import SystemClock
from turnwise.coding_agent.hook_commands import read_hooks
from turnwise.errors import CallerError
from turnwise.running.hooks import Hooks
from turnwise.settings.settings import Layer
from turnwise.turn.config import Deadlines
from turnwise.turn.events import HookOutcome, PlannedCall, RunHooks
from turnwise.vocab import ToolCall

CALL = ToolCall(id="a", name="bash", arguments='{"command":"ls"}')
BEFORE = RunHooks(
    step=1,
    point="before_tool",
    deadlines=Deadlines(),
    calls=(PlannedCall(call=CALL, arguments=CALL.arguments, timeout_s=1.0),),
)


def layer(*rows: object, source: str = "user") -> Layer:
    return Layer(source=source, table={"hooks": list(rows)}, path=Path("/h/turnwise.toml"))  # pyright: ignore[reportArgumentType]


def hook(code: str, **more: object) -> dict[str, object]:
    return {"point": "before_tool", "command": [sys.executable, "-c", code], "name": "check", **more}


async def outcomes(folder: Path, *rows: object) -> tuple[HookOutcome, ...]:
    hooks = read_hooks([layer(*rows)], folder=folder, env=dict(os.environ))
    return await Hooks(hooks, clock=SystemClock()).run(BEFORE)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("pass", None),
        ("print('{}')", None),
        (
            "import sys, json; seen = json.load(sys.stdin); print(json.dumps({'deny': seen['arguments']['command']}))",
            HookOutcome(by="check", call_id="a", denied="ls"),
        ),
        (
            'print(\'{"arguments": {"command": "ls -l"}}\')',
            HookOutcome(by="check", call_id="a", arguments='{"command":"ls -l"}'),
        ),
        (
            r"import sys; sys.stdout.buffer.write(b'no \xff'); sys.exit(2)",
            HookOutcome(by="check", call_id="a", denied="no \\xff"),
        ),
        (
            "import sys; sys.stderr.write('not here'); sys.exit(2)",
            HookOutcome(by="check", call_id="a", denied="not here"),
        ),
    ],
)
async def test_a_command_reads_the_call_and_says_what_to_do(
    code: str, expected: HookOutcome | None, tmp_path: Path
) -> None:
    """Nothing, a denial, other arguments, or exit code 2."""
    assert await outcomes(tmp_path, hook(code)) == (() if expected is None else (expected,))


@each(
    ("row", "words"),
    [
        (hook("import sys; sys.exit(1)"), "exit code 1"),
        (hook("print('no JSON')"), "something else than the JSON"),
        (hook("print('{\"denied\": 1}')"), "something else than the JSON"),
        (hook("print('{\"deny\": null}')"), "it gave no reason"),
        (hook("print('{\"deny\": false}')"), "something else than the JSON"),
        (hook("print('{\"arguments\": null}')"), "something else than the JSON"),
        (
            hook('import sys; sys.stdout.buffer.write(b\'{"arguments": {"path": "a\\xff"}}\')'),
            "something else than the JSON",
        ),
        (hook("import threading; threading.Event().wait()", timeout_s=0.3), "did not answer within 0.3 s"),
        ({"point": "before_tool", "command": ["/no/such/program"]}, "cannot be started"),
    ],
)
async def test_a_command_that_fails_denies(row: dict[str, object], words: str, tmp_path: Path) -> None:
    """A guard that crashes, talks nonsense, hangs or is not there does not let the call through."""
    (outcome,) = await outcomes(tmp_path, row)
    assert outcome.denied is not None and words in outcome.denied


def test_what_is_wrong_with_a_table_is_said_with_file_and_key(tmp_path: Path) -> None:
    """An unknown point, no command, an unknown key; and a project's file may bring no programs."""
    for wrong, words in (
        ({"point": "sometimes", "command": ["x"]}, "Invalid enum value 'sometimes'"),
        ({"point": "before_tool", "command": []}, "length"),
        ({"point": "before_tool", "command": ["x"], "tool": "bash"}, "unknown field `tool`"),
    ):
        with pytest.raises(CallerError, match=words):
            read_hooks([layer(wrong)], folder=tmp_path, env={})
    with pytest.raises(CallerError, match="a project's file brings no hooks"):
        read_hooks([layer(hook("pass"), source="project")], folder=tmp_path, env={})
