"""The command line as it is used: its whole prompt, with the instructions and schemas of every tool, and Ctrl-C in an answer."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from live.asking import bench
from live.serving import LiveServer
from waits import HANG_S

LONG_TOKENS = 1500


def start(prompt: str, *, server: LiveServer, folder: Path, output_tokens: int) -> "subprocess.Popen[str]":
    options = ["--no-stdin", "--json", "--recover", "off", "--max-output-tokens", str(output_tokens)]
    homes = ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME")
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "turnwise", "run", prompt, *options),
            *("--model", "openai_chat:live", "--base-url", server.base("openai_chat")),
        ],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **dict.fromkeys(homes, str(folder))},
        cwd=folder,
    )


def is_text(line: str) -> bool:
    return json.loads(line)["event"] == "text"


@pytest.mark.promise("wait:cancel", "bill:wire")
async def test_the_whole_prompt_is_answered_and_ctrl_c_frees_the_slot(live: LiveServer, tmp_path: Path) -> None:
    """Proves: 2,000 tokens of prompt and more are taken and counted as the server counts them; the same prompt again is found in
    its cache; SIGINT in the middle of that second answer ends the process and the answer on the server, whose one slot is free
    for the next request long before the answer's limit."""
    before = live.totals()
    with start("Say hello.", server=live, folder=tmp_path, output_tokens=24) as first:
        assert first.stdout is not None
        result = json.loads(first.stdout.read().splitlines()[-1])
    counted = live.totals().since(before)
    assert result["event"] == "result" and result["fault"] is None and result["text"]
    assert (result["usage"]["input_tokens"], result["usage"]["output_tokens"]) == (
        counted.read + counted.cached,
        counted.written,
    )
    assert result["usage"]["input_tokens"] > 2000

    before, decoded = live.totals(), live.decoded()
    with start("Say hello.", server=live, folder=tmp_path, output_tokens=LONG_TOKENS) as second:
        assert second.stdout is not None
        assert any(is_text(line) for line in iter(second.stdout.readline, ""))
        assert not live.is_idle()
        second.send_signal(signal.SIGINT)
        second.communicate(timeout=HANG_S)
    assert second.returncode == 130
    async with bench("openai_chat", server=live) as at:
        answered = await at.agent().run("Say hello.")
    assert answered.fault is None and answered.text and live.is_idle()
    assert live.decoded() - decoded < LONG_TOKENS
    assert live.totals().since(before).cached > 2000
