"""`turnwise gateway check`: which of the lab's broken streams a gateway passes on broken."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.served_gateway import ServedGateway, served_gateway
from terminal.running import Cli, running_lab
from turnwise.gateway.client_bounds import add_key, key_file
from turnwise.lab import Lab
from turnwise.lab.gateway_check import checked_cases
from waits import HANG_S

FAMILIES = ("openai_chat", "openai_responses", "anthropic_messages", "gemini", "gemini_interactions")
SAMPLE = ("no-index", "shared-index", "late-args", "object-args", "fault-error-in-stream", "plain-answer")


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with running_lab() as found:
        yield found


@pytest.fixture(scope="module")
def served(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedGateway]:
    with served_gateway(tmp_path_factory.mktemp("gateway"), upstream=f"{lab.url}/v1") as found:
        yield found


def words(cases: tuple[str, ...]) -> list[str]:
    return [word for case in cases for word in ("--case", case)]


def report(out: str) -> dict[str, Any]:
    return msgspec.json.decode(out, type=dict[str, Any])


@pytest.mark.promise("heal:every-case")
def test_our_gateway_passes_nothing_on_broken(cli: Cli, lab: Lab, served: ServedGateway) -> None:
    """All four families of clients, and an error where the upstream has nothing else."""
    url = f"http://127.0.0.1:{served.port}"
    ran = cli("gateway", "check", url, "--lab", lab.url, "--json", *words(SAMPLE))
    found = report(ran.out)
    assert (ran.code, found["broken"], found["left_out"], found["exit_code"], found["url"]) == (0, 0, {}, 0, url)
    verdict = {case: "error" if case == "fault-error-in-stream" else "right" for case in SAMPLE}
    assert [
        (one["case"], one["family"], one["upstream"], one["strict"]["verdict"], one["naive"]["verdict"])
        for one in found["cases"]
    ] == [(case, name, "openai_chat", verdict[case], verdict[case]) for case in SAMPLE for name in FAMILIES]


@pytest.mark.wide
@pytest.mark.promise("heal:every-case")
def test_our_gateway_passes_no_case_on_broken(cli: Cli, lab: Lab, served: ServedGateway) -> None:
    """The whole check."""
    ran = cli("gateway", "check", f"http://127.0.0.1:{served.port}/v1", "--lab", lab.url, "--json")
    found = report(ran.out)
    assert [one for one in found["cases"] if one["broken"]] == []
    assert (ran.code, len(found["cases"])) == (0, len(checked_cases()) * len(FAMILIES))


def test_a_gateway_that_heals_nothing_is_found_out(cli: Cli, lab: Lab) -> None:
    """The lab itself in the place of a gateway: each reader says what it gets."""
    ran = cli("gateway", "check", lab.url, "--lab", lab.url, "--family", "openai_chat", *words(SAMPLE))
    assert ran.code == 1
    assert ran.out == (
        "Each answer, as a strict reader / a naive reader has it:\n"
        "case                   Chat Completions\n"
        "no-index               crash\n"
        "shared-index           crash / wrong\n"
        "late-args              crash / right\n"
        "object-args            crash\n"
        "fault-error-in-stream  error\n"
        "plain-answer           right\n"
        "✗ no-index, Chat Completions: strict crash: Object missing required field `index` - at "
        "`$.choices[0].delta.tool_calls[0]`; naive crash: ValidationError: Object missing required field `index` - at "
        "`$.choices[0].delta.tool_calls[0]`\n"
        "✗ shared-index, Chat Completions: strict crash: a later piece of a call has an id; naive wrong: 1 call and not 2\n"
        "✗ late-args, Chat Completions: strict crash: something follows the finish reason; naive right\n"
        "✗ object-args, Chat Completions: strict crash: Expected `str | null`, got `object` - at "
        "`$.choices[0].delta.tool_calls[0].function.arguments`; naive crash: ValidationError: Expected `str | null`, got "
        "`object` - at `$.choices[0].delta.tool_calls[0].function.arguments`\n"
        "4 of 6 answers are broken (4 malformed streams, 1 failure, 1 healthy stream)\n"
    )
    assert ran.err == (
        "The lab is the upstream. Set in your gateway:\n"
        f"  base URL  {lab.url}/v1  (Chat Completions and Responses; Anthropic: {lab.url}, Gemini: {lab.url}/v1beta)\n"
        "  model     the client's, unchanged\n"
        "  key       any text\n"
    )


def test_a_gateway_with_one_model_is_asked_for_that(cli: Cli, lab: Lab, served: ServedGateway) -> None:
    """The lab plays each case under that name, and afterwards lets the name choose again."""
    line = ["gateway", "check", f"http://127.0.0.1:{served.port}", "--lab", lab.url, "--model", "my-model", "--json"]
    ran = cli(*line, "--family", "openai_chat", *words(("no-index", "shared-index")))
    assert (ran.code, [one["upstream"] for one in report(ran.out)["cases"]]) == (0, ["openai_chat"] * 2)
    assert {one.model for one in lab.requests} == {"my-model"}
    assert lab.provider.playing is None


@pytest.mark.costly
def test_the_command_starts_a_lab_of_its_own(cli: Cli, tmp_path: Path, closed_port: int) -> None:
    """At the port that the setting of the gateway names."""
    with served_gateway(tmp_path, upstream=f"http://127.0.0.1:{closed_port}/v1") as served:
        line = ["gateway", "check", f"http://127.0.0.1:{served.port}", "--port", str(closed_port), "--case", "no-index"]
        ran = cli(*line)
    assert ran.code == 0
    assert ran.out.endswith("none of 5 answers is broken (5 malformed streams, 0 failures, 0 healthy streams)\n")
    assert f"http://127.0.0.1:{closed_port}/v1" in ran.err


def test_a_gateway_that_is_not_there_is_said(cli: Cli, closed_port: int) -> None:
    """With exit code 6, and nothing on standard output."""
    url = f"http://127.0.0.1:{closed_port}"
    ran = cli("gateway", "check", url, "--port", "0", "--wait", "0")
    assert (ran.code, ran.out) == (6, "")
    assert ran.complaints() == [
        f"turnwise: `{url}`: the gateway does not pass on the lab's healthy stream: no connection to "
        f"`{url.removeprefix('http://')}`: Connection refused, and the lab was not asked"
    ]


def test_a_wrong_address_and_another_upstream_are_said(cli: Cli, lab: Lab, served: ServedGateway) -> None:
    """A path without an API, and a gateway that asks somewhere else."""
    url = f"http://127.0.0.1:{served.port}"
    ran = cli("gateway", "check", f"{url}/elsewhere", "--lab", lab.url, "--wait", "0", "--family", "openai_chat")
    assert ran.code == 6
    assert "healthy stream: status 404: " in ran.complaints()[0]
    ran = cli("gateway", "check", url, "--port", "0", "--wait", "0")
    assert ran.code == 6
    assert "this lab was not asked: another one is the upstream" in ran.complaints()[0]


@pytest.mark.costly
def test_the_gateways_key_is_sent_and_never_shown(
    cli: Cli, lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the place where each family has it. Without it the check ends with what the gateway says."""
    key = add_key(key_file({"XDG_CONFIG_HOME": str(tmp_path / "config")}), "checker", admin=False, today="2026-01-01")
    monkeypatch.setenv("GATEWAY_KEY", key)
    with served_gateway(tmp_path, upstream=f"{lab.url}/v1") as served:
        line = ["gateway", "check", f"http://127.0.0.1:{served.port}", "--lab", lab.url, "--case", "no-index"]
        with_key = cli(*line, "--key-env", "GATEWAY_KEY", "--json")
        without = cli(*line, "--wait", "0")
    assert (with_key.code, report(with_key.out)["left_out"], len(report(with_key.out)["cases"])) == (0, {}, 5)
    assert without.code == 6
    assert "status 401" in without.complaints()[0]
    assert key not in with_key.out + with_key.err + without.out + without.err


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["nonsense"], "`nonsense` is no base URL"),
        (["http://127.0.0.1:1", "--case", "none"], "there is no case `none`; did you mean "),
        (["http://127.0.0.1:1", "--key-env", "NO_SUCH_KEY"], "the variable `NO_SUCH_KEY` is not set"),
        (["http://127.0.0.1:1", "--port", "0", "--lab", "http://127.0.0.1:1"], "give --port or --lab"),
        (["http://127.0.0.1:1", "--lab", "http://127.0.0.1:1"], "no lab at `http://127.0.0.1:1`"),
    ],
)
def test_wrong_use_is_one_line(line: list[str], said: str, cli: Cli) -> None:
    """With exit code 2, before anything is asked."""
    ran = cli("gateway", "check", *line)
    assert (ran.code, ran.out, len(ran.complaints())) == (2, "", 1)
    assert said in ran.complaints()[0]


@pytest.mark.costly
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 130)])
def test_a_check_that_waits_can_be_stopped(number: signal.Signals, code: int, tmp_path: Path, closed_port: int) -> None:
    """It says what it waits for, and after the signal that nothing was asked."""
    url = f"http://127.0.0.1:{closed_port}"
    line = [sys.executable, "-m", "turnwise", "gateway", "check", url, "--port", "0", "--wait", "600"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        assert process.stderr is not None
        for line_said in process.stderr:
            if line_said.startswith(f"waiting for {url} ("):
                break
        process.send_signal(number)
        out, err = process.communicate(timeout=HANG_S)
    assert (process.returncode, out) == (code, "stopped; this is what was found until then\nnothing was asked\n")
    assert "Traceback" not in err
