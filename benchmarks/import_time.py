"""CPU time and memory of importing turnwise and its peers, in fresh processes."""

import sys
from collections.abc import Sequence
from contextlib import ExitStack

from harness.command import run
from harness.declaring import LITELLM_PYTHON, PEERS_PYTHON, Bars, Benchmark, Headline, Measure, Options, Part, Ratio

PROBE = "probe_import.py"
GROUP = "import"
IMPORTED = "imported"
MADE = "an agent with a tool made"
BARE = "`import turnwise`"
OURS = "from turnwise import Agent, tool"
TOOL = """
def look(key: str) -> str:
    'Look something up.'
    return key
"""
SCHEMA = "{'type': 'object', 'properties': {'key': {'type': 'string'}}, 'required': ['key']}"
PEERS = (
    # system, what a program with tools imports first, what it makes of it, distribution
    ("openai", "from openai import AsyncOpenAI", "AsyncOpenAI().chat.completions", "openai"),
    ("anthropic", "from anthropic import AsyncAnthropic", "AsyncAnthropic().messages", "anthropic"),
    ("google-genai", "from google import genai", "genai.Client(api_key='nothing').aio.models", "google-genai"),
    (
        "pydantic-ai",
        "from pydantic_ai import Agent\nfrom pydantic_ai.models.openai import OpenAIChatModel",
        f"{TOOL}\nAgent(OpenAIChatModel('gpt-5'), tools=[look])",
        "pydantic-ai-slim",
    ),
    (
        "openai-agents",
        "from agents import Agent, Runner, function_tool",
        f"{TOOL}\nAgent(name='a', model='gpt-5', tools=[function_tool(look)])",
        "openai-agents",
    ),
    (
        "langchain",
        "from langchain.agents import create_agent\nfrom langchain_openai import ChatOpenAI",
        f"{TOOL}\ncreate_agent(ChatOpenAI(model='gpt-5'), tools=[look])",
        "langchain",
    ),
    ("litellm", "import litellm", "litellm.acompletion", "litellm"),
)


def measures(case: str, *, cpu_s: float | None = None, memory_mib: float | None = None) -> tuple[Measure, ...]:
    memory = "peak memory of the process"
    return (
        Measure(key="cpu_s", group=GROUP, case=case, name="CPU", unit="s", at_most=cpu_s),
        Measure(key="memory_mib", group=GROUP, case=case, name=memory, unit="MiB", at_most=memory_mib),
    )


def build(options: Options, stack: ExitStack) -> Sequence[Part]:
    made = f"{OURS}\n{TOOL}\nAgent('openai:gpt-5', tools=[tool(look)])"
    ours = (
        ("nothing", "pass", (), measures(IMPORTED)[1:]),  # its memory is in all the others
        ("turnwise", "import turnwise", ("turnwise",), measures(BARE, cpu_s=0.12, memory_mib=30)),
        ("turnwise", OURS, ("turnwise",), measures(IMPORTED, cpu_s=0.15)),
        ("turnwise", made, ("turnwise",), measures(MADE)),
    )
    parts = [
        Part(system=system, argv=(sys.executable, PROBE, statement, *of), measures=found, per_round=3)
        for system, statement, of, found in ours
    ]
    for system, imported, made, distribution in PEERS:
        python = LITELLM_PYTHON if system == "litellm" else PEERS_PYTHON
        for case, statement in ((IMPORTED, imported), (MADE, f"{imported}\n{made}")):
            argv = (python, PROBE, statement, distribution)
            parts.append(Part(system=system, argv=argv, measures=measures(case), is_peer=True))
    return parts


BENCHMARK = Benchmark(
    name="import_time",
    title="Importing",
    about=(
        f"A fresh process runs `import turnwise`, `{OURS}`, or what a program with tools imports first of the others, and then "
        "makes an agent with a tool, or the client where there are no agents: some load most of themselves only then. Compiled "
        "files are there. Memory is the peak of the whole process, the interpreter included (`nothing`)."
    ),
    build=build,
    headlines=[
        Headline(what="importing what an agent with tools needs", group=GROUP, case=IMPORTED, measure="CPU"),
        Headline(what="its memory", group=GROUP, case=IMPORTED, measure="peak memory of the process"),
    ],
    rounds=5,
    peer_rounds=3,
    ratios=[
        Ratio(
            name="the lightest peer",
            group=GROUP,
            case=case,
            measure="CPU",
            against=tuple(system for system, _, _, _ in PEERS),
        )
        for case in (IMPORTED, MADE)
    ],
    plots=[
        Bars(
            file="import-cpu",
            title="Importing, and making an agent: CPU",
            group=GROUP,
            measure="CPU",
            cases=(IMPORTED, MADE),
        ),
        Bars(
            file="import-memory",
            title="Importing, and making an agent: peak memory",
            group=GROUP,
            measure="peak memory of the process",
            cases=(IMPORTED, MADE),
        ),
    ],
)

if __name__ == "__main__":
    raise SystemExit(run(BENCHMARK))
