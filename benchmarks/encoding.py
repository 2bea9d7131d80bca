"""What sending one request costs as the history grows: building it, checking it, encoding it, writing it."""

from collections.abc import Sequence
from contextlib import ExitStack

from harness.clients import argv_of
from harness.command import run
from harness.declaring import OTHER_API, Benchmark, Headline, Lines, Measure, Options, Part, Ratio
from provider.starting import start_provider
from provider.streams import FAMILIES, TITLES, encoded

from turnwise.vocab import FinishReason, Text

SIZES = (10, 100, 1_000)  # messages
QUICK_SIZES = (10,)
NAME = "CPU of a request"
ALL = tuple(FAMILIES)
OWN = "anthropic_messages"
# Its package writes dicts as they are, so it stands beside every family, with the same history in a request of its own API.
LIGHTEST = "anthropic"
ELSEWHERE = LIGHTEST + OTHER_API
AT_LEAST = 1.5  # times less in every family: a first request takes at most two thirds
CLIENTS = (
    ("turnwise", "ask_turnwise.py", ALL),
    ("openai", "ask_openai.py", ("openai_chat", "openai_responses")),
    (LIGHTEST, "ask_anthropic.py", (OWN,)),
    (ELSEWHERE, "ask_anthropic.py", tuple([family for family in ALL if family != OWN])),
    ("google-genai", "ask_google_genai.py", ("gemini",)),
    ("pydantic-ai", "ask_pydantic_ai.py", ("openai_chat", "anthropic_messages")),
    ("openai-agents", "ask_openai_agents.py", ("openai_chat",)),
    ("langchain", "ask_langchain.py", ("openai_chat", "anthropic_messages")),
    ("litellm", "ask_litellm.py", ("openai_chat", "anthropic_messages")),
    ("AI SDK (node)", "ask.js", ALL),
)


def build(options: Options, stack: ExitStack) -> Sequence[Part]:
    sizes = QUICK_SIZES if options.quick else SIZES
    streams = {name_of(family): encoded(family, [Text("Done.")], finish=FinishReason.STOP) for family in FAMILIES}
    url = start_provider(stack, folder=options.folder, streams=streams)
    parts: list[Part] = []
    for system, module, families in CLIENTS:
        for family in families:
            cases = [
                {
                    "key": str(size),
                    "model": name_of(OWN if system == ELSEWHERE else family),
                    "steps": size // 2,
                    "repeat": 1 if options.quick else 5 if size == SIZES[-1] else 15,
                }
                for size in sizes
            ]
            measures = [
                Measure(
                    key=str(size),
                    group=TITLES[family],
                    case=f"{size:,} messages",
                    name=NAME,
                    unit="ms",
                    scale=1e3,
                    x=float(size),
                )
                for size in sizes
            ]
            parts.append(
                Part(
                    system=system,
                    argv=argv_of(module, {"url": url, "family": family, "cases": cases}),
                    measures=tuple(measures),
                    is_peer=system != "turnwise",
                )
            )
    return sorted(parts, key=lambda part: FAMILIES.index(family_of(part)))


def family_of(part: Part) -> str:
    return next(family for family, title in TITLES.items() if title == part.measures[0].group)


def name_of(family: str) -> str:
    return f"{family}-done"


BENCHMARK = Benchmark(
    name="encoding",
    title="Sending a request",
    about=(
        "One request whose history has so many messages, half of them calls and half results of 200 bytes, and a short answer: "
        "CPU of the client's process from the values in memory to the end of the answer. The history is made anew for each "
        "request, so nobody can have kept its bytes; within a turnwise turn each message is encoded once (see the tool loop). "
        "turnwise runs a whole turn, in which the pairs of calls and results are checked; pydantic-ai's `Agent.run`, "
        "openai-agents' `Runner.run_streamed`, the AI SDK's `streamText`; LangChain's `astream`, LiteLLM's `acompletion` and "
        "the SDKs' `create` below any loop. The anthropic package, the lightest, stands in every table: with the same history "
        "in a request of its own API."
    ),
    build=build,
    headlines=[
        Headline(
            what=f"a request with 1,000 messages, {TITLES[family]}",
            group=TITLES[family],
            case="1,000 messages",
            measure=NAME,
        )
        for family in FAMILIES
    ],
    rounds=3,
    peer_rounds=2,
    ratios=[
        Ratio(
            name="the best Python peer",
            group=TITLES[family],
            case="1,000 messages",
            measure=NAME,
            against=tuple(
                system
                for system, module, families in CLIENTS
                if family in families and module.endswith(".py") and system not in ("turnwise", ELSEWHERE)
            ),
        )
        for family in FAMILIES
    ]
    + [
        Ratio(
            name="the anthropic package",
            group=TITLES[family],
            case="1,000 messages",
            measure=NAME,
            against=(LIGHTEST if family == OWN else ELSEWHERE,),
            at_least=AT_LEAST,
        )
        for family in FAMILIES
    ],
    plots=[
        Lines(
            file="encoding",
            title="CPU of one request, Chat Completions",
            group=TITLES["openai_chat"],
            measure=NAME,
            x_label="messages in the history",
        )
    ],
)

if __name__ == "__main__":
    raise SystemExit(run(BENCHMARK))
