"""CPU time and memory of importing turnwise and its peers, in fresh processes."""

import sys
from collections.abc import Sequence
from contextlib import ExitStack

from harness.command import run
from harness.declaring import LITELLM_PYTHON, PEERS_PYTHON, Bars, Benchmark, Measure, Options, Part, Ratio

GROUP = "import"
AGENT = "from turnwise import Agent, tool"
# What a program that streams with tools imports first.
PEERS = (
    ("openai", "from openai import AsyncOpenAI", "openai"),
    ("anthropic", "from anthropic import AsyncAnthropic", "anthropic"),
    ("google-genai", "from google import genai", "google-genai"),
    (
        "pydantic-ai",
        "from pydantic_ai import Agent\nfrom pydantic_ai.models.openai import OpenAIChatModel",
        "pydantic-ai-slim",
    ),
    ("openai-agents", "from agents import Agent, Runner, function_tool", "openai-agents"),
    ("langchain", "from langchain.agents import create_agent\nfrom langchain_openai import ChatOpenAI", "langchain"),
    ("litellm", "import litellm", "litellm"),
)


def measures(case: str, *, cpu_s: float | None = None, memory_mib: float | None = None) -> tuple[Measure, ...]:
    return (
        Measure(key="cpu_s", group=GROUP, case=case, name="CPU", unit="s", at_most=cpu_s),
        Measure(
            key="memory_mib", group=GROUP, case=case, name="peak memory of the process", unit="MiB", at_most=memory_mib
        ),
    )


def build(options: Options, stack: ExitStack) -> Sequence[Part]:
    probe = ("probe_import.py",)
    ours = (
        ("nothing", "pass", (), measures("agent with tools")),
        ("turnwise", AGENT, ("turnwise",), measures("agent with tools", cpu_s=0.15)),
        ("turnwise", "import turnwise", ("turnwise",), measures("bare", cpu_s=0.12, memory_mib=30)),
    )
    parts = [
        Part(system=system, argv=(sys.executable, *probe, statement, *of), measures=found, per_round=3)
        for system, statement, of, found in ours
    ]
    parts += [
        Part(
            system=system,
            argv=(LITELLM_PYTHON if system == "litellm" else PEERS_PYTHON, *probe, statement, distribution),
            measures=measures("agent with tools"),
            is_peer=True,
        )
        for system, statement, distribution in PEERS
    ]
    return parts


BENCHMARK = Benchmark(
    name="import_time",
    title="Importing",
    about=(
        f"A fresh process runs `{AGENT}`, or what a program with tools imports first of the others; compiled files are there. "
        "Memory is the peak of the whole process, the interpreter included (`nothing`)."
    ),
    build=build,
    rounds=5,
    ratios=(
        Ratio(
            name="the lightest peer",
            group=GROUP,
            case="agent with tools",
            measure="CPU",
            against=tuple(system for system, _, _ in PEERS),
        ),
    ),
    plots=(
        Bars(
            file="import-cpu",
            title="Importing an agent and its tools: CPU",
            group=GROUP,
            measure="CPU",
            cases=("agent with tools",),
        ),
    ),
)

if __name__ == "__main__":
    raise SystemExit(run(BENCHMARK))
