"""What the gateway tells of requests: counts for Prometheus, a line of the log each, and nothing that was said in them."""

import asyncio
import contextlib
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from gateway.calling import call_of, upstream_at
from gateway.relayed import Gathered
from gateway.served_gateway import BODY, CONTENT, ServedGateway, served_gateway
from lab.failing import settled
from terminal.running import running_lab
from turnwise.endpoints.transport import HttpRequest
from turnwise.gateway.accounts import (
    BUCKETS,
    FIELDS,
    MOST_MODELS,
    OTHER,
    Account,
    AccountMeans,
    GatewayCounts,
    one_line,
    open_accounts,
    received_body,
)
from turnwise.gateway.config import GatewayConfig, GatewayRoute
from turnwise.gateway.doors import ClientCall, ClientGone
from turnwise.gateway.service import RelayService, ServiceMeans
from turnwise.lab import Lab
from turnwise.testing import FakeClock, ScriptedTransport
from turnwise.testing.scripted_model import Reply, Stall
from waits import HANG_S

UPSTREAM_KEY = "sk-upstream-0123456789"
NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|$)')
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def read_metrics(text: str) -> Samples:
    """The samples of a text in Prometheus' format, read as its documentation says and no more: each metric has its HELP, its
    TYPE and then its samples, and no sample stands twice."""
    assert text.endswith("\n")
    found: Samples = {}
    helped: list[str] = []
    typed: dict[str, str] = {}
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            name = line.split(" ", 3)[2]
            assert NAME.fullmatch(name) and name not in helped
            helped.append(name)
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name == helped[-1] and name not in typed and kind in ("counter", "gauge", "histogram")
            typed[name] = kind
        else:
            head, _, number = line.rpartition(" ")
            name, _, rest = head.partition("{")
            if typed[helped[-1]] == "histogram":
                assert name in [f"{helped[-1]}_{end}" for end in ("bucket", "sum", "count")]
            else:
                assert name == helped[-1] and name in typed
            labels: list[tuple[str, str]] = []
            inside = rest.removesuffix("}") if rest else ""
            assert not rest or rest.endswith("}")
            at = 0
            while at < len(inside):
                label = LABEL.match(inside, at)
                assert label is not None, f"no label: {inside[at:]}"
                value = re.sub(r"\\(.)", lambda one: {"n": "\n"}.get(one[1], one[1]), label[2])
                labels.append((label[1], value))
                at = label.end()
            key = (name, tuple(labels))
            assert key not in found, f"twice: {line}"
            found[key] = float(number)
    return found


def valued(samples: Samples, name: str) -> dict[tuple[str, ...], float]:
    """The values of one metric, by its labels' values."""
    return {
        tuple(value for _, value in labels): number
        for (metric, labels), number in samples.items()
        if metric == f"turnwise_gateway_{name}"
    }


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with running_lab(key=UPSTREAM_KEY) as lab:
        yield lab


@pytest.fixture
def served(lab: Lab, tmp_path: Path) -> Iterator[ServedGateway]:
    lab.reset()
    file = tmp_path / "gateway.toml"
    url = f"{lab.url}/v1"
    file.write_text(f'[[route]]\nupstream = {{ url = "{url}", key_env = "LAB_KEY" }}\n')
    with served_gateway(tmp_path, "--config", str(file), upstream=None, env={"LAB_KEY": UPSTREAM_KEY}) as served:
        yield served


@pytest.mark.promise("heal:told")
def test_requests_repairs_and_tokens_are_counted_by_provider_and_model(served: ServedGateway) -> None:
    """A repaired answer, one that was asked for again, and one that the client left."""
    for model in ("id-missing", "id-missing", "fault-once-503"):
        served.chat(model)
    served.stalling().close()
    samples = read_metrics(served.get("/metrics").decode())
    upstream = valued(samples, "upstream_requests_total")
    assert upstream["openai_chat", "id-missing", "step", "ok"] == 2
    assert upstream["openai_chat", "fault-once-503", "step", "overloaded"] == 1
    assert upstream["openai_chat", "fault-once-503", "retry", "ok"] == 1
    repairs = valued(samples, "repairs_total")
    assert repairs["openai_chat", "fault-once-503", "asked_again"] == 1
    assert repairs["openai_chat", "id-missing", "id_missing"] == 2
    assert valued(samples, "requests_total")["openai_chat", "generate", "200", "whole"] == 3
    assert valued(samples, "tokens_total")["openai_chat", "id-missing", "input"] > 0


@pytest.mark.costly
@pytest.mark.promise("bill:wire")
def test_a_request_whose_tokens_nobody_told_is_marked_and_never_a_request_of_0_tokens(served: ServedGateway) -> None:
    """In the gateway's counts, in its log, and in the bill as text, JSON and CSV. One that was refused unheard took none."""
    for model in ("fault-once-reset", "fault-once-503", "plain-answer"):
        served.chat(model)
    samples = read_metrics(served.get("/metrics").decode())
    assert valued(samples, "requests_without_usage_total") == {
        ("openai_chat", "fault-once-reset", purpose): 1 for purpose in ("step", "continue")
    }
    by = {row["key"]: row for row in served.usage("--by", "purpose")["rows"]}
    assert {key: (row["cost"]["requests"], row["tokens_unknown"]) for key, row in by.items()} == {
        "step": (3, 1),
        "continue": (1, 1),
        "retry": (2, 0),
    }
    assert by["step"]["input_tokens"] > 0
    assert by["continue"]["input_tokens"] is None, "of no request is it known"
    text = served.run("usage", "--by", "purpose", "--since", "all")
    assert "tokens of 2 requests are unknown" in text
    assert f"{by['step']['input_tokens']:,}+" in text
    assert served.run("usage", "--by", "purpose", "--csv", "--since", "all").splitlines()[1].endswith(",1,0")


def test_names_that_clients_make_up_do_not_fill_the_counts() -> None:
    """Issue 40: 200 made-up names took all labels, and no real model had one. A name is a label once an upstream answered
    for it. Of more than 200 the one that was idle longest gives way, and the others get its counts. A name of the file stays."""
    counts, name = GatewayCounts(), "turnwise_gateway_repairs_total"
    counts.configure(["own"])

    def count(model: str, *, has_served: bool) -> None:
        counts.add(name, "p", counts.model_label("p", model, has_served=has_served), "id_missing")

    odd = 'quote " and \\ and\nline'
    for number in range(MOST_MODELS + 50):
        count(f"made-up-{number}", has_served=False)
    count("own", has_served=False)
    count("real", has_served=True)
    count(odd, has_served=True)
    found = valued(read_metrics(counts.text().decode()), "repairs_total")
    assert {model: number for (_, model, _), number in found.items()} == {OTHER: 250, "own": 1, "real": 1, odd: 1}
    for number in range(MOST_MODELS + 50):  # an upstream that answers for any name
        count(f"taken-{number}", has_served=True)
        count("real", has_served=False)
    found = valued(read_metrics(counts.text().decode()), "repairs_total")
    assert len(found) == MOST_MODELS + 2
    assert [found.get(("p", model, "id_missing")) for model in ("own", "real", odd, "taken-0")] == [1, 251, None, None]
    assert sum(found.values()) == 250 + 3 + 2 * 250, "no count is lost"


def test_a_name_that_no_upstream_knows_is_no_label(served: ServedGateway) -> None:
    """Issue 40: in the gateway that runs. What failed and then was answered has the model's name from its first request on."""
    for model in ("made-up-1", "made-up-2", "fault-once-503"):
        served.chat(model) if model.startswith("fault") else served.ask(
            "/v1/chat/completions", {"model": model, **BODY}
        ).close()
    found = valued(read_metrics(served.get("/metrics").decode()), "upstream_requests_total")
    assert {model for _, model, _, _ in found} == {OTHER, "fault-once-503"}


@pytest.mark.parametrize(
    ("status", "raised", "end", "fault"),
    [
        (200, None, "whole", ""),
        (404, None, "fault", "refused"),
        (200, ClientGone(), "left", ""),
        (200, ValueError("a bug"), "fault", "bug"),
        (0, ValueError("a bug"), "fault", "bug"),
    ],
)
async def test_the_end_of_each_request_is_counted_and_logged(
    status: int, raised: Exception | None, end: str, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Proves: a whole answer, a refusal, a client that left and a bug of ours are told apart, and none counts as open."""
    counts, clock, began = GatewayCounts(), FakeClock(), list[float]()
    means = AccountMeans(counts=counts, clock=clock)
    account = Account(call_of("gemini", "m", stream=False), means=means)
    caplog.set_level(logging.INFO, "turnwise")
    with contextlib.suppress(ClientGone, ValueError), account.open(Gathered()) as watched:
        began.append(valued(read_metrics(counts.text().decode()), "open_requests")[()])
        await clock.advance(3)
        if status:
            await watched.start(status, [])
        if raised is not None:
            raise raised
    samples = read_metrics(counts.text().decode())
    assert (began, valued(samples, "open_requests")) == ([1], {(): 0})
    assert valued(samples, "requests_total") == {("gemini", "generate", str(status or ""), end): 1}
    (line,) = [getattr(record, FIELDS) for record in caplog.records]
    assert (line.status, line.end, line.fault, line.seconds) == (status, end, fault, 3)
    assert ("fault" in msgspec.to_builtins(line)) is bool(fault), (
        "a line of the log in JSON leaves out what there is not"
    )
    assert valued(samples, "request_seconds_total") == {("gemini", "generate"): 3}


def test_seconds_are_counted_in_buckets_that_hold_those_below_them() -> None:
    """As Prometheus reads a histogram: by the upper bound of each bucket, the one without a bound last. A model that gives way
    leaves its seconds to the others."""
    counts, name = GatewayCounts(), "turnwise_gateway_queue_seconds"
    for number in range(MOST_MODELS + 2):
        label = counts.model_label("p", f"m{number}", has_served=True)
        counts.took(name, "p", label, "1", "", seconds=0.001 if number % 2 else 1e6)
    samples = read_metrics(counts.text().decode())
    buckets = valued(samples, "queue_seconds_bucket")
    for model, low, high in ((OTHER, 1, 2), ("m2", 0, 1), ("m3", 1, 1)):
        found = [number for (_, one, *_), number in buckets.items() if one == model]
        assert found == [low] * len(BUCKETS) + [high]
        assert valued(samples, "queue_seconds_count")["p", model, "1", ""] == high
    assert valued(samples, "queue_seconds_sum")["p", OTHER, "1", ""] == 1_000_000.001
    assert [bound for _, model, *_, bound in buckets if model == "m3"][-2:] == ["900.0", "+Inf"]


async def test_a_repair_counts_once_in_the_line_of_its_request(caplog: pytest.LogCaptureFixture) -> None:
    """Proves: what a response and the relay both tell is one repair, and one that the relay alone tells is there as well."""
    caplog.set_level(logging.INFO, "turnwise")
    counts = GatewayCounts()
    async with Lab() as lab:
        for model in ("id-missing", "fault-once-503", "fault-once-reset"):
            clock, accounts = FakeClock(), AccountMeans(counts=counts, clock=FakeClock())
            means = ServiceMeans(transport=lab.transport(), clock=clock, env={"LAB_KEY": "k"}, accounts=accounts)
            config = GatewayConfig(routes=(GatewayRoute(upstream=upstream_at("openai_chat")),))
            service = RelayService(config, means=means, forward_key=False)
            await settled(
                service.answer(call_of("openai_chat", model, stream=True, tool="read"), Gathered()), clock=clock
            )
    lines = [getattr(record, FIELDS) for record in caplog.records if hasattr(record, FIELDS)]
    assert [line.repairs for line in lines] == [
        {"id_missing": 1},
        {"asked_again": 1},
        {"continuation_refused": 1, "asked_again": 1},
    ]
    samples = read_metrics(counts.text().decode())
    assert valued(samples, "requests_without_usage_total") == {
        ("openai_chat", "fault-once-reset", purpose): 1 for purpose in ("step", "continue")
    }
    assert valued(samples, "repairs_total") == {
        ("openai_chat", "fault-once-reset", "continuation_refused"): 1,
        ("openai_chat", "fault-once-reset", "asked_again"): 1,
        ("openai_chat", "id-missing", "id_missing"): 1,
        ("openai_chat", "fault-once-503", "asked_again"): 1,
    }


@pytest.mark.parametrize(("prices", "found"), [("", 1), ("plain-answer = { input = 1, output = 2 }\n", 0)])
async def test_a_request_whose_price_nobody_knows_is_counted(prices: str, found: int, tmp_path: Path) -> None:
    """Proves: sums of money that leave out a request are told, also to an operator who never looks at a sum."""
    counts, clock, file = GatewayCounts(), FakeClock(), tmp_path / "prices.toml"
    file.write_text(prices)
    env = {"LAB_KEY": "k", "TURNWISE_STATE_DIR": str(tmp_path), "TURNWISE_PRICES": str(file)}
    with open_accounts({**env, "XDG_CONFIG_HOME": str(tmp_path)}, clock=clock, counts=counts) as accounts:
        async with Lab() as lab:
            means = ServiceMeans(transport=lab.transport(), clock=clock, env=env, accounts=accounts)
            config = GatewayConfig(routes=(GatewayRoute(upstream=upstream_at("openai_chat")),))
            service = RelayService(config, means=means, forward_key=False)
            for model in ("plain-answer", "fault-401"):  # no provider bills what it refuses
                call = call_of("openai_chat", model, stream=True)
                await settled(service.answer(call, Gathered()), clock=clock)
    samples = valued(read_metrics(counts.text().decode()), "requests_without_price_total")
    assert samples == ({("openai_chat", "plain-answer", "step"): found} if found else {})


async def test_a_passed_request_that_the_client_left_counts_as_one_that_was_sent() -> None:
    """Proves: it may have been billed, so it is cancelled and not one that never reached its provider."""
    counts, begun = GatewayCounts(), asyncio.Event()

    class Left(Gathered):
        async def gone(self) -> None:
            await begun.wait()

    def silence(_: HttpRequest) -> Reply:
        begun.set()
        return Reply(before=Stall())

    accounts = AccountMeans(counts=counts, clock=FakeClock())
    means = ServiceMeans(
        transport=ScriptedTransport([silence]), clock=FakeClock(), env={"LAB_KEY": "k"}, accounts=accounts
    )
    config = GatewayConfig(routes=(GatewayRoute(upstream=upstream_at("openai_chat"), passes=("/v1/embeddings",)),))
    service = RelayService(config, means=means, forward_key=False)
    body = b'{"model":"m","input":"x"}'
    call = ClientCall(id="tw-1", path="/v1/embeddings", body=body, family="openai_chat", kind="passed")
    with pytest.raises(ClientGone):
        await asyncio.wait_for(service.answer(call, Left()), HANG_S)
    found = valued(read_metrics(counts.text().decode()), "upstream_requests_total")
    assert found == {("openai_chat", OTHER, "step", "cancelled"): 1}


def test_the_service_counts_what_the_doors_refuse_and_the_bytes_of_open_answers() -> None:
    """Proves: with the reason, family, kind and status of the refusal, and with the bytes that are there when it is asked."""
    means = ServiceMeans(transport=ScriptedTransport([]), clock=FakeClock(), env={"LAB_KEY": "k"})
    config = GatewayConfig(routes=(GatewayRoute(upstream=upstream_at("gemini")),))
    service = RelayService(config, means=means, forward_key=False)
    service.refused("host", family="gemini", kind="count", status=403)
    with service._answers.open() as answer:
        answer.grow(7)
        held = valued(read_metrics(service.metrics().decode()), "answer_bytes")
    samples = read_metrics(service.metrics().decode())
    assert (held, valued(samples, "answer_bytes")) == ({(): 7}, {(): 0})
    assert valued(samples, "refusals_total") == {("host",): 1}
    assert valued(samples, "requests_total") == {("gemini", "count", "403", "refused"): 1}


@pytest.mark.parametrize(
    ("usage", "tokens", "untold"),
    [
        ('{"prompt_tokens":4,"total_tokens":4}', (4, 0), ()),
        ('{"prompt_tokens":0,"total_tokens":0}', (0, 0), ()),
        ('{"prompt_tokens":4,"total_tokens":9}', (4, 0), ("output_tokens",)),
        ('{"prompt_tokens":-4,"total_tokens":-4}', (0, 0), ("input_tokens", "output_tokens")),
        ('{"prompt_tokens":4,"completion_tokens":3,"total_tokens":7}', (4, 3), ()),
    ],
)
def test_a_passed_answer_that_writes_nothing_has_its_input_counted(
    usage: str, tokens: tuple[int, int], untold: tuple[str, ...]
) -> None:
    """Proves: the tokens of embeddings are all input where both figures agree, also at 0; what does not add up stays unknown."""
    received = received_body(f'{{"data":[],"usage":{usage}}}'.encode())
    assert received is not None and received.response is not None and received.response.usage is not None
    found = received.response.usage
    assert ((found.input_tokens, found.output_tokens), found.untold) == (tokens, untold)


@pytest.mark.costly
@pytest.mark.promise("heal:told")
def test_each_request_has_one_line_in_the_log(served: ServedGateway) -> None:
    """As JSON: who asked what of whom, how it ended, and what was mended."""
    served.chat("id-missing", x_request_id="first")
    served.chat("fault-once-503", x_request_id="second")
    lines = [msgspec.json.decode(line) for line in served.end().splitlines()]
    asked = [line for line in lines if "request" in line]
    assert [line["request"] for line in asked] == ["first", "second"]
    shown = {key: asked[1][key] for key in ("family", "provider", "model", "status", "end", "requests", "repairs")}
    assert shown == {
        "family": "openai_chat",
        "provider": "openai_chat",
        "model": "fault-once-503",
        "status": 200,
        "end": "whole",
        "requests": 2,
        "repairs": {"asked_again": 1},
    }
    assert asked[0]["repairs"] == {"id_missing": 1}


@pytest.mark.costly
def test_quiet_leaves_errors_alone(lab: Lab, tmp_path: Path) -> None:
    """No line for requests."""
    with served_gateway(tmp_path, "--quiet", upstream=f"{lab.url}/v1") as served:
        served.chat("plain-answer")
        assert served.end() == ""


def test_a_line_of_the_log_stays_one_line() -> None:
    """A client names its model as it likes."""
    assert one_line("gpt\n2026 faked \x1b[2J") == "gpt�2026 faked �[2J"


@pytest.mark.costly
@pytest.mark.promise("heal:told")
def test_nothing_that_was_said_and_no_key_is_told(lab: Lab, served: ServedGateway) -> None:
    """Neither in log lines, counts nor the ledger; in the client's answer the content is."""
    key = served.run("gateway", "keys", "add", "--admin", "laptop").strip()
    served.wait_until_open(key)
    names = {"authorization": f"Bearer {key}"}
    models = ("plain-answer", "id-missing", "fault-once-503", "cumulative", "fault-401")
    answers = [served.ask("/v1/chat/completions", {"model": model, **BODY}, **names).read() for model in models]
    samples = served.get("/metrics", **names).decode()
    told = [samples, served.run("usage", "--json", "--since", "all"), served.end()]
    folder = Path(served.env["TURNWISE_STATE_DIR"])
    told += [file.read_bytes().decode("latin-1") for file in folder.iterdir()]
    words = {word for answer in answers for word in re.findall(r'"content":"([^"]{12,})"', answer.decode())}
    assert words, "there is something to be found"
    for text in told:
        assert CONTENT not in text and key not in text and UPSTREAM_KEY not in text
        assert [word for word in words if word in text] == []
