"""Schemas from outside that would freeze a process: a real gateway and a run with a real MCP server go on and can be ended."""

import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.served_gateway import ServedGateway, served_gateway
from rules.test_schema_bounds import COSTLY, doubled
from strangers import PROGRAM, seen, tool_named
from terminal.running import at, begin, end, running_lab, script
from terminal.test_processes import wait_until
from turnwise.base.programs import OWN_PYTHON
from turnwise.lab import Lab
from waits import HANG_S

pytestmark = pytest.mark.promise("safe:bounded")
SIGNALS = [signal.SIGINT, signal.SIGTERM]
LOOKS = {"type": "object", "properties": {"a": {"pattern": "(?=(a+)+b)c"}}}
CALLS = script(
    "costly-values",
    f"""
[[steps]]
calls = [
  {{ name = "s__forty", arguments = {{ a = "x" }} }},
  {{ name = "s__nineteen", arguments = {{ a = 1 }} }},
  {{ name = "s__wrong", arguments = {{ a = 1 }} }},
  {{ name = "s__looks", arguments = {{ a = "{"a" * 100_000}" }} }},
]

[[steps]]
fault = {{ kind = "stall" }}
""",
)


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with running_lab([CALLS]) as lab:
        yield lab


def body_with(*schemas: dict[str, Any]) -> dict[str, Any]:
    tools = [{"type": "function", "function": {"name": f"t{at}", "parameters": one}} for at, one in enumerate(schemas)]
    return {"model": "fault-stall", "messages": [{"role": "user", "content": "hi"}], "stream": True, "tools": tools}


def status_of(gateway: ServedGateway, body: dict[str, Any]) -> int:
    return gateway.ask("/v1/chat/completions", body).status


@pytest.mark.costly
@pytest.mark.parametrize("number", SIGNALS)
def test_a_gateway_answers_others_while_it_is_sent_costly_schemas(lab: Lab, tmp_path: Path, number: int) -> None:
    """Proves: with references doubled on 40 levels `/healthz` was dead, and SIGTERM and SIGINT without effect."""
    below = [{**doubled(10), "title": f"{number}"} for number in range(1000)]
    with served_gateway(tmp_path, upstream=f"{lab.url}/v1") as gateway:
        for schema in COSTLY.values():
            assert status_of(gateway, body_with(schema)) == 400
        assert status_of(gateway, body_with(*below)) == 400
        open_answer = gateway.ask("/v1/chat/completions", body_with(LOOKS, *below[:100]))
        assert (open_answer.status, gateway.get("/healthz")) == (200, b'{"status":"ok"}')
        gateway.process.send_signal(number)
        open_answer.close()
        assert gateway.process.wait(HANG_S) == 0


@pytest.mark.parametrize("number", SIGNALS)
def test_a_run_goes_on_with_a_server_of_costly_schemas(
    lab: Lab, folder: Path, own_file: Path, tmp_path: Path, number: int
) -> None:
    """Proves: the calls were judged before any permission rule, which took for ever, 16 s and 5 s, and no signal was heard."""
    schemas = {"forty": doubled(40), "nineteen": doubled(19), "wrong": doubled(12), "looks": LOOKS}
    tools = [tool_named(name, inputSchema=schema) for name, schema in schemas.items()]
    (folder / "tools.json").write_text(json.dumps(tools))
    program = shutil.copy(PROGRAM, tmp_path / "stranger.py")
    own_file.write_text(f"[mcp.s]\ncommand = {json.dumps([OWN_PYTHON, '-I', '-S', str(program)])}\nsandbox = false\n")
    lab.reset()
    process = begin(
        "run",
        "Go.",
        "--allow",
        "mcp(s.*)",
        *at(lab, "costly-values"),
        cwd=folder,
        env={"TURNWISE_CONFIG": str(own_file)},
    )
    wait_until(lambda: lab.count() >= 2)  # the results of the first step are on their way, and the second stalls
    process.send_signal(number)
    ran = end(process)
    assert ran.code == 130 and "cancelled" in ran.err
    assert "cannot be offered: `forty`" in ran.err and [line for line in seen(folder) if line.startswith("call")] == []
    *_, request = list(lab.requests)
    said = json.dumps(json.loads(request.body))
    assert "no tool `s__forty` is on offer" in said and "no tool `s__nineteen` is on offer" in said
    assert "`$.a`: expected string, got 1" in said and "would take too long" in said
