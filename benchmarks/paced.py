"""How late the chunks of many paced streams are when they reach their readers, and how many streams one core carries."""

import datetime
import ipaddress
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from harness.command import run
from harness.declaring import FOLDER, PEERS_PYTHON, Bars, Benchmark, Lines, Measure, Options, Part, Ratio

GROUP = "paced streams"
MOST = "most streams"
LATE_MS = 50.0
SECONDS = 4.0
P99 = "p99 of the delay"
CPU = "CPU a chunk"


class Way(NamedTuple):
    system: str
    client: str  # in clients/
    loop: str
    tls: bool
    sizes: tuple[int, ...]
    target: int = 0  # streams that it should carry


WAYS = (
    Way("turnwise", "turnwise", "asyncio", False, (50, 200, 300, 400, 500, 600, 800), 400),
    Way("turnwise, uvloop", "turnwise", "uvloop", False, (50, 400, 600, 800, 1000, 1250, 1500), 1000),
    Way("turnwise, TLS", "turnwise", "asyncio", True, (50, 200, 300, 400)),
    Way("turnwise, uvloop, TLS", "turnwise", "uvloop", True, (50, 400, 600, 800)),
    Way("floor", "floor", "asyncio", False, (50, 400, 500, 600, 800)),
    Way("floor, uvloop", "floor", "uvloop", False, (50, 800, 1000, 1250, 1500)),
    Way("openai", "openai", "asyncio", False, (50, 100, 200)),
    Way("pydantic-ai", "pydantic_ai", "asyncio", False, (50, 100)),
)
PEERS = ("openai", "pydantic-ai")
QUICK = ("turnwise", "turnwise, uvloop, TLS", *PEERS)  # both loops, with TLS and without


def build(options: Options, stack: ExitStack) -> Sequence[Part]:
    cores = sorted(os.sched_getaffinity(0))
    certificate, key = write_certificate(options.folder)
    plain = start(stack, core=cores[0])
    secure = start(stack, core=cores[0], more=(str(certificate), str(key)))
    parts: list[Part] = []
    for way in [way for way in WAYS if way.system in QUICK or not options.quick]:
        url = f"https://127.0.0.1:{secure}" if way.tls else f"http://127.0.0.1:{plain}"
        for streams in way.sizes[:1] if options.quick else way.sizes:
            task = {
                "url": url,
                "core": cores[-1],
                "streams": streams,
                "seconds": 1.2 if options.quick else SECONDS,
                "loop": way.loop,
            }
            parts.append(
                Part(
                    system=way.system,
                    argv=(
                        PEERS_PYTHON if way.system in PEERS else sys.executable,
                        str(FOLDER / "clients" / f"paced_{way.client}.py"),
                        msgspec.json.encode(task).decode(),
                    ),
                    measures=measures(streams, is_target=streams == way.target),
                    env={"SSL_CERT_FILE": str(certificate)} if way.tls else {},
                    timeout_s=60.0,
                    per_round=3 if streams == way.target else 1,  # each takes seconds of wall time
                    is_peer=way.system in PEERS,
                )
            )
    return parts


def measures(streams: int, *, is_target: bool) -> tuple[Measure, ...]:
    def one(key: str, name: str, unit: str, *, at_most: float | None = None) -> Measure:
        return Measure(
            key=key, group=GROUP, case=f"{streams:,}", name=name, unit=unit, x=float(streams), at_most=at_most
        )

    return (
        one("p99_ms", P99, "ms", at_most=LATE_MS if is_target else None),
        one("p50_ms", "p50 of the delay", "ms"),
        one("provider_p99_ms", "p99 of the provider's own lag, which is part of the delay", "ms"),
        one("cpu_percent", "CPU of the client's core", "%"),
        one("cpu_us", CPU, "us"),
        one("kib", "memory an open stream", "KiB"),
    )


def most(medians: Mapping[tuple[str, str, str, str], float]) -> list[tuple[str, Measure, float]]:
    """For each system the largest number of streams up to which every p99 stays below the limit."""
    found: list[tuple[str, Measure, float]] = []
    for way in WAYS:
        late = [(size, medians.get((GROUP, f"{size:,}", P99, way.system))) for size in way.sizes]
        carried = 0
        for size, p99 in late:
            if p99 is None or p99 >= LATE_MS:
                break
            carried = size
        if late[0][1] is not None:
            measure = Measure(
                key="most",
                group=MOST,
                case=f"p99 below {LATE_MS:g} ms",
                name="of the numbers tried",
                unit="streams",
                at_least=float(way.target) if way.target else None,
            )
            found.append((way.system, measure, float(carried)))
    return found


def start(stack: ExitStack, *, core: int, more: Sequence[str] = ()) -> int:
    """A provider's process for as long as the stack is open; its port."""
    process = subprocess.Popen(
        [sys.executable, str(FOLDER / "provider" / "pacing.py"), str(core), *more],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None and process.stdout is not None
    stack.callback(process.wait, timeout=30)
    stack.callback(process.stdin.close)
    port = process.stdout.readline().decode().strip()
    if not port:
        raise RuntimeError("the provider's process did not start; what it said stands above")
    return int(port)


def write_certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for loopback, signed by itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "paced")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    files = folder / "certificate.pem", folder / "key.pem"
    files[0].write_bytes(certificate.public_bytes(pem))
    files[1].write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    return files


BENCHMARK = Benchmark(
    name="paced",
    title="Many paced streams",
    about=(
        "So many Chat Completions streams at once, each with 50 chunks a second, evenly spread in time, from a provider's "
        f"process on one core to one client's process on the other, for {SECONDS:g} s (the first 0.5 s is not counted). The "
        "delay is from when a chunk was due to when its text is in the caller's hands (`async for`); the provider's own lag is "
        "shown and not subtracted. turnwise runs a whole turn a stream; the openai SDK its raw stream, pydantic-ai "
        "`run_stream` with `stream_text(delta=True, debounce_by=None)`; `floor` is aiohttp, `bytes.split` and one typed decode. "
        "Memory is what the process grew by, divided by the streams. On a machine with other work, set "
        "TURNWISE_PACED_REALTIME=1: both processes then run before everything else, within the kernel's 95 %."
    ),
    build=build,
    rounds=1,
    ratios=[
        Ratio(name=name, group=GROUP, case="50", measure=CPU, against=(name,)) for name in ("openai", "pydantic-ai")
    ],
    plots=[
        Lines(
            file="paced-p99",
            title="p99 of the delay of a chunk, by open streams",
            group=GROUP,
            measure=P99,
            x_label="streams with 50 chunks a second each",
        ),
        Bars(
            file="paced-most",
            title="Most streams on one core with p99 below 50 ms",
            group=MOST,
            measure="of the numbers tried",
        ),
    ],
    derive=most,
)

if __name__ == "__main__":
    raise SystemExit(run(BENCHMARK))
