"""What `turnwise gateway` costs between a client and its provider, beside LiteLLM's proxy: a chunk, a short request, a stream."""

import functools
import importlib.util
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import msgspec
from counting.gateway_paths import add_key
from harness.command import run
from harness.declaring import FOLDER, LITELLM_PYTHON, Bars, Benchmark, Lines, Measure, Options, Part, Ratio
from paced import LATE_MS, start
from provider.starting import start_provider

GROUP = "streams through a gateway"
SHORT = "short requests through a gateway"
FLOOD = "a stream of many tool calls through a gateway"
CPU = "CPU a chunk"
P99 = "p99 of the delay added"
SECONDS = 4.0
# Streams: what a chunk costs is judged here, as the delay is on asyncio's loop. Half of the core is free then. A full core's CPU,
# divided by what comes in, is always little.
KEEPS_UP = 400
REQUESTS, QUICK_REQUESTS = 500, 20
CALLS, QUICK_CALLS = 20_000, 300
FLOODS = 3
PAUSE = "the longest wait of another client"
PAUSE_MS = 100.0  # the longest wait of another client that a stream may cause: nobody notices less
LITELLM = "litellm proxy"
BUDGETED, LITELLM_BUDGET = "turnwise, uvloop, key and budgets", "litellm proxy, a provider's budget"
DISTRIBUTIONS = {
    "turnwise": "turnwise",
    "turnwise, uvloop": "turnwise",
    BUDGETED: "turnwise",
    LITELLM: "litellm",
    LITELLM_BUDGET: "litellm",
}

# As the command starts, but asyncio's own loop: uvloop is taken where it is installed.
WITHOUT_UVLOOP = (
    "import runpy, sys; sys.modules['uvloop'] = None; runpy.run_module('turnwise', run_name='__main__', alter_sys=True)"
)


class Way(NamedTuple):
    system: str
    sizes: tuple[int, ...]  # streams at once
    target: int = 0  # of those, how many must keep the delay below the limit
    most_us: float = 0.0  # what a chunk may cost


WAYS = (
    Way("turnwise", (20, 50, 200, 300, 400), 400, 50.0),
    Way("turnwise, uvloop", (20, 50, 200, 300, 400, 600, 1000), 1000, 25.0),
    Way("floor", (20, 50, 200, 400)),
    Way("floor, uvloop", (20, 50, 200, 400, 1000)),
    Way("no gateway", (20, 50, 400, 1000)),
    Way(LITELLM, (20, 50)),
)
QUICK = ("turnwise", "turnwise, uvloop", "floor", "no gateway", LITELLM)

DELTA = b'data: {"id":"c1","object":"chat.completion.chunk","created":1800000000,"model":"m","choices":[%s]}\n\n'
STREAM = b"".join(
    [
        DELTA % b'{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}',
        *[DELTA % b'{"index":0,"delta":{"content":"This is the answer. "},"finish_reason":null}' for _ in range(20)],
        DELTA % b'{"index":0,"delta":{},"finish_reason":"stop"}',
        b"data: [DONE]\n\n",
    ]
)
CALL = (
    b'{"index":0,"delta":{"tool_calls":[{"index":%d,"id":"call_%d","type":"function","function":{"name":"look",'
    b'"arguments":"{}"}}]},"finish_reason":null}'
)
BODY = (
    b'{"id":"c1","object":"chat.completion","created":1800000000,"model":"m","choices":[{"index":0,"message":{"role":'
    b'"assistant","content":"This is the answer."},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,'
    b'"completion_tokens":4,"total_tokens":13}}'
)
SETTINGS = """\
model_list:
  - model_name: "*"
    litellm_params: {{model: "openai/*", api_base: "{url}/v1", api_key: sk-nothing, max_retries: 0{price}}}
litellm_settings: {{telemetry: false, set_verbose: false, num_retries: 0}}
"""
# Its keys and their budgets need a database that it reaches through Prisma, whose engines come from one address of their own
# (binaries.prisma.sh) and are not in its packages. What it limits without one is a provider's money, in memory, for all clients.
# Without a price it counts none; it is the one that turnwise has, too.
PROVIDER_BUDGET = "router_settings: {provider_budget_config: {openai: {budget_limit: 1000000, time_period: 1d}}}\n"
PRICE = ", input_cost_per_token: 0.000001, output_cost_per_token: 0.00001"
# What its own settings switch off: telemetry, the download of prices, a banner; and the log is left to its errors.
QUIET = {
    "LITELLM_MODE": "PRODUCTION",
    "LITELLM_LOG": "ERROR",
    "LITELLM_TELEMETRY": "False",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_DONT_SHOW_FEEDBACK_BOX": "True",
    "NO_DOCS": "True",
    "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",  # turnwise asks for no key here, either
}


def build(options: Options, stack: ExitStack) -> Sequence[Part]:
    cores = sorted(os.sched_getaffinity(0))
    paced = start(stack, core=cores[0])
    calls = QUICK_CALLS if options.quick else CALLS
    streams = {"streamed": STREAM, "flood": flood(calls)}
    provider = start_provider(stack, folder=options.folder, streams=streams, bodies={"whole": BODY})
    short = int(provider.rpartition(":")[2])
    parts: list[Part] = []
    for way in [way for way in WAYS if way.system in QUICK or not options.quick]:
        if "uvloop" in way.system and importlib.util.find_spec("uvloop") is None:
            continue
        for streams in way.sizes[:1] if options.quick else way.sizes:
            more = {"streams": streams, "seconds": 1.2 if options.quick else SECONDS}
            parts.append(
                part(
                    way.system,
                    "gateway_paced.py",
                    task(way.system, port=paced, folder=options.folder, cores=cores, more=more),
                    measures=measures(way, streams),
                    per_round=3 if streams in (way.target, KEEPS_UP) else 1,  # each takes seconds of wall time
                )
            )
        if way.system in DISTRIBUTIONS:
            more = {"requests": QUICK_REQUESTS if options.quick else REQUESTS}
            given = task(way.system, port=short, folder=options.folder, cores=cores, more=more)
            parts.append(part(way.system, "gateway_short.py", given, measures=short_measures()))
        if DISTRIBUTIONS.get(way.system) == "turnwise":
            given = task(way.system, port=short, folder=options.folder, cores=cores, more={})
            parts.append(part(way.system, "gateway_flood.py", given, measures=flood_measures(calls), per_round=FLOODS))
    return parts


def flood(calls: int) -> bytes:
    """Each call in an event of its own."""
    end = DELTA % b'{"index":0,"delta":{},"finish_reason":"tool_calls"}'
    return b"".join([*[DELTA % (CALL % (number, number)) for number in range(calls)], end, b"data: [DONE]\n\n"])


def part(
    system: str, client: str, given: Mapping[str, object], *, measures: tuple[Measure, ...], per_round: int = 1
) -> Part:
    is_peer = system in (LITELLM, LITELLM_BUDGET)
    return Part(
        system=system,
        argv=(
            LITELLM_PYTHON if is_peer else sys.executable,
            str(FOLDER / "clients" / client),
            msgspec.json.encode(given).decode(),
        ),
        measures=measures,
        timeout_s=240.0,
        per_round=per_round,
        is_peer=is_peer,
    )


def task(
    system: str, *, port: int, folder: Path, cores: Sequence[int], more: Mapping[str, object]
) -> Mapping[str, object]:
    argv, env, listens = gateway_of(system, provider=f"http://127.0.0.1:{port}", folder=folder)
    return {
        "argv": argv,
        "env": env,
        "provider": str(port),
        "port": listens,
        "distribution": DISTRIBUTIONS.get(system, ""),
        "core": cores[-1],
        "own_core": cores[0],
        "key": budgeted_key(folder) if system == BUDGETED else "sk-nothing",
        **more,
    }


def gateway_of(system: str, *, provider: str, folder: Path) -> tuple[list[str], Mapping[str, str], int]:
    """The command that serves, its environment, and its port where that has to be chosen for it."""
    match system:
        case "no gateway":
            return [], {}, 0
        case "floor" | "floor, uvloop":
            loop = "uvloop" if system.endswith("uvloop") else "asyncio"
            argv = [sys.executable, str(FOLDER / "clients" / "gateway_floor.py"), provider.rpartition(":")[2], loop]
            return argv, {}, 0
        case "litellm proxy" | "litellm proxy, a provider's budget":
            port = free_port()
            settings = folder / f"litellm-{port}.yaml"
            price, budget = (PRICE, PROVIDER_BUDGET) if system == LITELLM_BUDGET else ("", "")
            settings.write_text(SETTINGS.format(url=provider, price=price) + budget)
            program = str(Path(LITELLM_PYTHON).with_name("litellm"))
            argv = [program, "--config", str(settings), "--host", "127.0.0.1", "--port", str(port)]
            return argv, QUIET, port
        case _:
            begins = ["-m", "turnwise"] if "uvloop" in system else ["-c", WITHOUT_UVLOOP]
            argv = [sys.executable, *begins, "gateway", "--upstream", f"{provider}/v1", "--port", "0", "--json"]
            state = {name: str(folder / name.lower()) for name in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME")}
            if system == BUDGETED:
                return argv, {**state, **budgeted_env(folder)}, 0
            return argv, {**state, "TURNWISE_STATE_DIR": str(folder / "state")}, 0


def budgeted_env(folder: Path) -> Mapping[str, str]:
    return {"TURNWISE_STATE_DIR": str(folder / "budgeted"), "TURNWISE_PRICES": str(folder / "prices.toml")}


@functools.cache
def budgeted_key(folder: Path) -> str:
    """One key for all parts, with a price for whatever model they name."""
    (folder / "prices.toml").write_text('"openai_chat:*" = { input = 1, output = 10 }\n')
    return add_key(folder / "budgeted" / "journal.db")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def measures(way: Way, streams: int) -> tuple[Measure, ...]:
    def one(key: str, name: str, unit: str, *, at_most: float | None = None) -> Measure:
        return Measure(
            key=key, group=GROUP, case=f"{streams:,}", name=name, unit=unit, x=float(streams), at_most=at_most
        )

    delays = (
        one("p99_ms", P99, "ms", at_most=LATE_MS if streams == way.target else None),
        one("p50_ms", "p50 of the delay added", "ms"),
        one("provider_p99_ms", "p99 of the provider's own lag, which is no part of the delay", "ms"),
    )
    if way.system == "no gateway":
        return delays
    return (
        one("cpu_us", CPU, "us", at_most=way.most_us or None if streams == KEEPS_UP else None),
        *delays,
        one("cpu_percent", "CPU of the gateway's core", "%"),
        one("kib", "memory an open stream", "KiB"),
    )


def short_measures(group: str = SHORT) -> tuple[Measure, ...]:
    return tuple(
        [
            Measure(key=key, group=group, case=case, name="CPU a request", unit="us")
            for key, case in (("whole_us", "a whole answer"), ("streamed_us", "a stream of 20 chunks"))
        ]
    )


def flood_measures(calls: int) -> tuple[Measure, ...]:
    case = f"{calls:,} calls"
    return (
        Measure(key="pause_ms", group=FLOOD, case=case, name=PAUSE, unit="ms", at_most=PAUSE_MS),
        Measure(key="flood_cpu_ms", group=FLOOD, case=case, name="CPU of the gateway", unit="ms"),
    )


def against_litellm(group: str, case: str, measure: str, *, at_least: float | None = None) -> Ratio:
    """Both on uvloop, as LiteLLM's proxy always is."""
    return Ratio(
        name="LiteLLM's proxy, both on uvloop",
        group=group,
        case=case,
        measure=measure,
        against=(LITELLM,),
        at_least=at_least,
        ours="turnwise, uvloop",
    )


BENCHMARK = Benchmark(
    name="gateway",
    title="The gateway",
    about=(
        "A gateway's process on one core; on another the provider of the paced streams and a client that reads bytes from "
        "plain sockets, and looks at them after the run. Each stream has 50 chunks of Chat Completions a second, evenly "
        f"spread in time, for {SECONDS:g} s (the first 0.5 s is not counted). Both sides speak Chat Completions. CPU is all "
        "that the gateway's process spends, from the provider's bytes to the client's; the delay is from when the provider "
        "sent a chunk to when the client read it (`no gateway`: the same client at the provider itself; `floor`: bytes are "
        "copied from one connection to the other, and nobody reads them). Memory is what the "
        "process grew by, divided by the streams. Short requests come one after another on one connection. "
        f"In the stream of {CALLS:,} calls each has an event of its own, all come at once, and another client asks for "
        "`/healthz` meanwhile: its longest wait is the longest pause of the event loop. turnwise runs as "
        "its command starts it, with healing and ledger, on asyncio's loop and on uvloop; LiteLLM's proxy with one worker, on "
        "uvloop as it always is, without a database, with telemetry and the download of prices switched off. "
        "On a machine with other work, set TURNWISE_PACED_REALTIME=1, as for the paced streams."
    ),
    build=build,
    rounds=1,
    ratios=[
        against_litellm(GROUP, "20", CPU, at_least=10.0),
        against_litellm(GROUP, "50", CPU),
        against_litellm(SHORT, "a whole answer", "CPU a request"),
        against_litellm(SHORT, "a stream of 20 chunks", "CPU a request"),
    ],
    plots=[
        Lines(
            file="gateway-p99",
            title="p99 of the delay that a gateway adds to a chunk, by open streams",
            group=GROUP,
            measure=P99,
            x_label="streams with 50 chunks a second each",
        ),
        Bars(
            file="gateway-cpu", title="CPU of the gateway a chunk, 50 streams", group=GROUP, measure=CPU, cases=("50",)
        ),
    ],
)

if __name__ == "__main__":
    raise SystemExit(run(BENCHMARK))
