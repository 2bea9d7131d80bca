"""What a person at a terminal waits for: from the start to the prompt, and until the answer's first word is shown."""

import importlib.metadata
import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from harness.command import run
from harness.declaring import FOLDER, Benchmark, Measure, Options, Part, Ratio

GROUP = "at a terminal"
PROMPT, FIRST = "from the start to the prompt", "from a delta to its word on the screen"
MODEL = "gpt-bench"
TYPING_S = 2.0  # nobody types a prompt faster, and both programs use that time
AGENTS = FOLDER.parent / "tests" / "real_agents"
CODEX_PACKAGE = FOLDER.parent / ".agents" / "node" / "node_modules" / "@openai" / "codex-linux-x64" / "vendor"
CODEX_SETTINGS = """
model_provider = "bench"
check_for_update_on_startup = false
web_search = "disabled"

[model_providers.bench]
name = "Bench"
base_url = "{url}/v1"
wire_api = "responses"

[analytics]
enabled = false

[features]
apps = false
plugins = false

[projects."{work}"]
trust_level = "trusted"
"""


def build(options: Options, stack: ExitStack) -> Sequence[Part]:
    from provider.streams import encoded  # pyright: ignore[reportMissingImports]

    from turnwise.vocab import FinishReason, Text

    def stream(family: str) -> str:
        path = options.folder / f"{family}.sse"
        path.write_bytes(encoded(family, [Text("Marmalade keeps for years. " * 20)], finish=FinishReason.STOP))
        return str(path)

    turnwise = {
        "argv": [sys.executable, "-m", "turnwise", "-m", f"openai_responses:{MODEL}", "--base-url", "{url}/v1"],
        "env": {"TURNWISE_STATE_DIR": "{home}/state"},
        "files": {},
        "stream": stream("openai_responses"),
        "ready": rf"mode · .*{MODEL}",
        "settle_s": TYPING_S,
        "version": importlib.metadata.version("turnwise"),
    }
    codex = {
        "argv": [codex_program(), "--no-daemon", "-m", MODEL],
        "env": {"CODEX_HOME": "{home}/codex"},
        "files": {"codex/config.toml": CODEX_SETTINGS},
        "stream": stream("openai_responses"),
        "ready": rf"{MODEL} default",
        "settle_s": TYPING_S,
        "version": json.loads((AGENTS / "package.json").read_text())["dependencies"]["@openai/codex"],
    }
    return [part("turnwise", turnwise), part("Codex", codex, is_peer=True)]


def codex_program() -> str:
    """As `scripts/run_agents.py --setup --agent codex` installs it; where it is not, the run says so."""
    return str(next(CODEX_PACKAGE.glob("*/bin/codex"), CODEX_PACKAGE / "codex"))


def part(system: str, task: dict[str, Any], *, is_peer: bool = False) -> Part:
    program = Path(task["argv"][0])
    there = program.exists()
    return Part(
        system=system,
        argv=(sys.executable if there else str(program), str(FOLDER / "clients" / "at_prompt.py"), json.dumps(task)),
        measures=(
            Measure(key="prompt_cpu_s", group=GROUP, case=PROMPT, name="CPU", unit="ms", scale=1e3),
            Measure(key="prompt_s", group=GROUP, case=PROMPT, name="wall time", unit="ms", scale=1e3),
            Measure(key="first_cpu_s", group=GROUP, case=FIRST, name="CPU", unit="ms", scale=1e3),
            Measure(key="first_s", group=GROUP, case=FIRST, name="wall time", unit="ms", scale=1e3),
        ),
        per_round=2,
        is_peer=is_peer,
    )


BENCHMARK = Benchmark(
    name="at_prompt",
    title="At a terminal",
    about=(
        "A fresh process in an empty folder with an empty home, at a pseudo-terminal of 100 columns: from its start until it "
        "takes a prompt, and, once a prompt was given 2 s later and the provider on loopback has sent the first delta, until its "
        "word is written to the terminal. Both ask the same API (Responses). Codex is as docs/side-by-side.md starts it first, "
        "with its folder trusted. CPU is the main process with all of its threads."
    ),
    build=build,
    rounds=5,
    ratios=[
        Ratio(name="Codex", group=GROUP, case=PROMPT, measure="CPU", against=("Codex",)),
        Ratio(name="Codex", group=GROUP, case=FIRST, measure="wall time", against=("Codex",)),
    ],
)

if __name__ == "__main__":
    raise SystemExit(run(BENCHMARK))
