"""What reading one chunk of a stream costs, for turnwise and its peers, each through its own public way."""

from collections.abc import Sequence
from contextlib import ExitStack

from harness.clients import argv_of
from harness.command import run
from harness.declaring import (
    Bars,
    Benchmark,
    Headline,
    Measure,
    Options,
    Part,
    Ratio,
)
from provider.starting import start_provider
from provider.streams import FAMILIES, KINDS, PIECE, TITLES, stream_of

CHUNKS = 5_000
WARM_CHUNKS = 50
TARGETS_US = {"openai_chat": 5.0, "openai_responses": 4.0, "anthropic_messages": 4.0, "gemini": 4.0}
NAME = "CPU a chunk"
ALL = tuple(FAMILIES)
OPENAI = ("openai_chat", "openai_responses")
PEERS = (
    # system, its module in clients/, way, families, and whether it can be measured without a socket as well
    ("openai", "decode_openai.py", "raw", OPENAI, True),
    ("openai .stream()", "decode_openai.py", "stream", OPENAI, False),
    ("anthropic", "decode_anthropic.py", "raw", ("anthropic_messages",), True),
    ("anthropic .stream()", "decode_anthropic.py", "stream", ("anthropic_messages",), False),
    ("google-genai", "decode_google_genai.py", "raw", ("gemini",), False),
    ("pydantic-ai", "decode_pydantic_ai.py", "raw", ALL, False),
    ("openai-agents", "decode_openai_agents.py", "raw", OPENAI, False),
    ("langchain", "decode_langchain.py", "raw", (*OPENAI, "anthropic_messages"), False),
    ("litellm", "decode_litellm.py", "raw", (*OPENAI, "anthropic_messages"), False),
    ("AI SDK (node)", "decode.js", "raw", ALL, False),
)
# What its cell says: pydantic-ai 2.68 reads no `partialArgs`.
UNREAD = {("pydantic-ai", "gemini", "tool arguments"): "reads none"}


def build(options: Options, stack: ExitStack) -> Sequence[Part]:
    chunks = 200 if options.quick else CHUNKS
    streams = {
        f"{family}-{kind.replace(' ', '-')}-{count}": stream_of(family, kind=kind, chunks=count)
        for family in FAMILIES
        for kind in KINDS
        for count in (WARM_CHUNKS, chunks)
    }
    url = start_provider(stack, folder=options.folder, streams=streams)

    def part(system: str, module: str, *, way: str, family: str, memory: bool, repeat: int, is_peer: bool) -> Part:
        cases: list[dict[str, object]] = []
        measures: list[Measure] = []
        for in_memory in (False, True) if memory else (False,):
            for kind in KINDS:
                if (system, family, kind) in UNREAD:
                    continue
                key = f"{kind} {'memory' if in_memory else 'socket'}"
                cases.append(
                    {
                        "key": key,
                        "model": f"{family}-{kind.replace(' ', '-')}-{chunks}",
                        "kind": kind,
                        "memory": in_memory,
                        "characters": chunks * PIECE,
                        "repeat": repeat,
                    }
                )
                target = TARGETS_US[family] if system == "turnwise" and not in_memory else None
                measures.append(
                    Measure(
                        key=key,
                        group=group_of(family, memory=in_memory),
                        case=kind,
                        name=NAME,
                        unit="us",
                        scale=1e6 / chunks,
                        at_most=target,
                    )
                )
        warm = {kind: f"{family}-{kind.replace(' ', '-')}-{WARM_CHUNKS}" for kind in KINDS}
        task = {"url": url, "family": family, "way": way, "warm": warm, "folder": str(options.folder), "cases": cases}
        return Part(system=system, argv=argv_of(module, task), measures=tuple(measures), is_peer=is_peer)

    parts: list[Part] = []
    for family in FAMILIES:
        for system in ("turnwise", "floor"):
            module = f"decode_{system}.py"
            parts.append(part(system, module, way="", family=family, memory=True, repeat=5, is_peer=False))
        parts += [
            part(system, module, way=way, family=family, memory=memory, repeat=1, is_peer=True)
            for system, module, way, families, memory in PEERS
            if family in families
        ]
    return parts


def group_of(family: str, *, memory: bool) -> str:
    return f"{TITLES[family]}, {'in memory, an event a read' if memory else 'over a socket'}"


def ratios() -> list[Ratio]:
    found: list[Ratio] = []
    for family in FAMILIES:
        group = group_of(family, memory=False)
        python = tuple(
            system for system, module, _, families, _ in PEERS if family in families and module.endswith(".py")
        )
        for kind in KINDS:
            for name, against, at_least in (
                ("the openai SDK", ("openai",), 20.0),
                ("pydantic-ai", ("pydantic-ai",), 30.0),
                ("the best Python peer", python, 5.0),
            ):
                if set(against) & set(python) and (name, family, kind) not in UNREAD:
                    found.append(
                        Ratio(name=name, group=group, case=kind, measure=NAME, against=against, at_least=at_least)
                    )
    return found


BENCHMARK = Benchmark(
    name="decode",
    title="Decoding a stream",
    about=(
        f"One response of {CHUNKS:,} deltas of {PIECE} characters, read to its end: CPU of the client's process, divided by the "
        "deltas (the request itself included). turnwise runs a whole turn through `async for event in agent.stream(...)`: "
        "decoded, healed, assembled, every delta handed to the caller. The peers: the SDKs' raw streams and their "
        "`.stream()`; pydantic-ai's `model_request_stream`, LangChain's `astream`, LiteLLM's `acompletion` and `aresponses`, "
        "openai-agents' `Runner.run_streamed`, the AI SDK's `streamText` (`fullStream`). `floor` is aiohttp, `bytes.split` and "
        "one typed msgspec decode an event, nothing else. Over a socket the provider writes as fast as it is read; in memory "
        "each event comes in a read of its own. Gemini's tool arguments are `partialArgs`, as Vertex AI streams them."
    ),
    build=build,
    headlines=[
        Headline(
            what=f"a chunk of {kind}, {TITLES[family]}", group=group_of(family, memory=False), case=kind, measure=NAME
        )
        for family, kind in (
            ("openai_chat", "text"),
            ("openai_chat", "tool arguments"),
            ("openai_responses", "text"),
            ("anthropic_messages", "text"),
            ("gemini", "text"),
        )
    ],
    unmeasured={
        (group_of(family, memory=False), kind, system): reason for (system, family, kind), reason in UNREAD.items()
    },
    rounds=5,
    peer_rounds=2,
    ratios=ratios(),
    plots=[
        Bars(
            file=f"decode-{family.replace('_', '-')}",
            title=f"CPU a chunk, {TITLES[family]}, over a socket",
            group=group_of(family, memory=False),
            measure=NAME,
        )
        for family in FAMILIES
    ],
)

if __name__ == "__main__":
    raise SystemExit(run(BENCHMARK))
