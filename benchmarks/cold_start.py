"""What it takes from starting a program to the first byte of its first request."""

import sys
from collections.abc import Sequence
from contextlib import ExitStack

import msgspec
from harness.command import run
from harness.declaring import (
    FOLDER,
    LITELLM_PYTHON,
    NODE_FOLDER,
    PEERS_PYTHON,
    Bars,
    Benchmark,
    Measure,
    Options,
    Part,
    Ratio,
)

GROUP = "cold start"
CASE = "to the first request"
VERSION_CASE = "turnwise --version"
LIBRARY = """
from turnwise import Agent, Model
Agent(Model("openai_chat:bench", base_url="{url}/v1", api_key="nothing")).run_sync("Go on.")
"""
OPENAI = """
from openai import OpenAI
client = OpenAI(base_url="{url}/v1", api_key="nothing", max_retries=0)
client.chat.completions.create(model="bench", messages=[{"role": "user", "content": "Go on."}], stream=True)
"""
PYDANTIC_AI = """
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
Agent(OpenAIChatModel("bench", provider=OpenAIProvider(base_url="{url}/v1", api_key="nothing"))).run_sync("Go on.")
"""
OPENAI_AGENTS = """
from agents import Agent, OpenAIChatCompletionsModel, Runner
from openai import AsyncOpenAI
client = AsyncOpenAI(base_url="{url}/v1", api_key="nothing", max_retries=0)
Runner.run_sync(Agent(name="bench", model=OpenAIChatCompletionsModel("bench", client)), "Go on.")
"""
LANGCHAIN = """
from langchain.agents import create_agent
from langchain_openai import ChatOpenAI
model = ChatOpenAI(model="bench", base_url="{url}/v1", api_key="nothing", max_retries=0)
create_agent(model, []).invoke({"messages": [{"role": "user", "content": "Go on."}]})
"""
LITELLM = """
import litellm
litellm.completion("openai/bench", [{"role": "user", "content": "Go on."}], api_base="{url}/v1", api_key="nothing")
"""
AI_SDK = """
import { generateText } from "ai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
const provider = createOpenAICompatible({ name: "bench", baseURL: "{url}/v1" });
await generateText({ model: provider("bench"), prompt: "Go on.", maxRetries: 0 });
"""
PEERS = (
    ("openai", (PEERS_PYTHON, "-c", OPENAI), "openai"),
    ("pydantic-ai", (PEERS_PYTHON, "-c", PYDANTIC_AI), "pydantic-ai-slim"),
    ("openai-agents", (PEERS_PYTHON, "-c", OPENAI_AGENTS), "openai-agents"),
    ("langchain", (PEERS_PYTHON, "-c", LANGCHAIN), "langchain"),
    ("litellm", (LITELLM_PYTHON, "-c", LITELLM), "litellm"),
    ("AI SDK (node)", ("node", "--input-type=module", "-e", AI_SDK), ""),
)
RUN = ("-m", "turnwise", "run", "-m", "openai_chat:bench", "--base-url", "{url}/v1", "Go on.")


def build(options: Options, stack: ExitStack) -> Sequence[Part]:
    return [
        part("turnwise", (sys.executable, *RUN), distribution="turnwise", at_most=0.5),
        part("turnwise, as a library", (sys.executable, "-c", LIBRARY), distribution="turnwise"),
        part(
            "turnwise", (sys.executable, "-m", "turnwise", "--version"), distribution="turnwise", at_most=0.2, ends=True
        ),
        *[part(system, argv, distribution=distribution, is_peer=True) for system, argv, distribution in PEERS],
    ]


def part(
    system: str,
    argv: Sequence[str],
    *,
    distribution: str,
    at_most: float | None = None,
    ends: bool = False,
    is_peer: bool = False,
) -> Part:
    # node finds its packages beside the folder that it is started in
    task = {
        "argv": argv,
        "cwd": str(NODE_FOLDER) if argv[0] == "node" else "",
        "distribution": distribution,
        "ends": ends,
    }
    python = argv[0] if is_peer and distribution else sys.executable
    case = VERSION_CASE if ends else CASE
    return Part(
        system=system,
        argv=(python, str(FOLDER / "clients" / "first_request.py"), msgspec.json.encode(task).decode()),
        measures=(
            Measure(key="cpu_s", group=GROUP, case=case, name="CPU", unit="s", at_most=at_most),
            Measure(key="wall_s", group=GROUP, case=case, name="wall time", unit="s"),
        ),
        per_round=1 if is_peer else 2,
        is_peer=is_peer,
    )


BENCHMARK = Benchmark(
    name="cold_start",
    title="Cold start",
    about=(
        "A fresh process, from its start to the first byte of its first request at the provider's socket: `turnwise run` in an "
        "empty folder with its tools, sandbox, journal and prices; the others as the shortest program that asks a model. CPU is "
        "the main process's, its threads included; what it starts besides is not. Compiled files are there; the home is empty."
    ),
    build=build,
    rounds=5,
    ratios=[
        Ratio(name=name, group=GROUP, case=CASE, measure="CPU", against=(name,)) for name in ("openai", "pydantic-ai")
    ],
    plots=[
        Bars(
            file="cold-start",
            title="From start to the first request: CPU",
            group=GROUP,
            measure="CPU",
            cases=(CASE,),
        )
    ],
)

if __name__ == "__main__":
    raise SystemExit(run(BENCHMARK))
