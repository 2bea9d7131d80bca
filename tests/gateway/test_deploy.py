"""The files of deploy/, each read by a judge that we did not write. None of them was ever run in a cluster here."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from turnwise.gateway.accounts import METRICS
from turnwise.gateway.config import read_config
from turnwise.terminal.gateway import gateway_command
from waits import HANG_S

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
BIN = Path(sys.executable).parent
FILES = ["Dockerfile", "turnwise-gateway.service", "compose.yaml", "kubernetes.yaml", "alerts.yaml"]


def judged(*argv: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(argv, capture_output=True, text=True, timeout=HANG_S, check=False, cwd=ROOT)


def documents(name: str) -> list[Any]:
    return list(yaml.safe_load_all((DEPLOY / name).read_text()))


def test_the_image_and_the_manifests_pass_their_judges() -> None:
    """hadolint and the schemas of Kubernetes, as PyPI has them."""
    done = judged(str(BIN / "hadolint"), "--failure-threshold", "style", "deploy/Dockerfile")
    assert (done.returncode, done.stdout) == (0, ""), done
    done = judged(str(BIN / "kubernetes-validate"), "--strict", "deploy/kubernetes.yaml")
    assert done.returncode == 0, done


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="only systemd reads its units")
def test_systemd_reads_the_unit_without_a_word(tmp_path: Path) -> None:
    """With a program that is there."""
    unit = tmp_path / "turnwise-gateway.service"
    unit.write_text((DEPLOY / unit.name).read_text().replace("/opt/turnwise/bin/turnwise", "/bin/true"))
    done = judged("systemd-analyze", "verify", str(unit))
    ours = [line for line in done.stderr.splitlines() if unit.name in line]
    assert ours == [], done


def test_the_options_and_the_configuration_of_the_files_are_those_of_the_gateway(tmp_path: Path) -> None:
    """What the manifests say is read by the gateway's own reader, and no option of a command line is made up."""
    (config, *_) = documents("kubernetes.yaml")
    (tmp_path / "gateway.toml").write_text(config["data"]["gateway.toml"])
    assert read_config(tmp_path / "gateway.toml").host == "0.0.0.0"
    known = {option for parameter in gateway_command.params for option in parameter.opts}
    texts = [(DEPLOY / name).read_text() for name in ("Dockerfile", "turnwise-gateway.service", "kubernetes.yaml")]
    lines = [line for text in texts for line in text.splitlines() if re.match(r"CMD|ExecStart=|\s+args:", line)]
    used = {option for line in lines for option in re.findall(r"--[a-z]+", line)}
    assert len(lines) == 3 and used <= known
    (compose,) = documents("compose.yaml")
    assert compose["services"]["gateway"]["read_only"] is True


def test_each_alert_is_about_a_metric_of_the_gateway() -> None:
    """A name that nothing counts never fires."""
    (alerts,) = documents("alerts.yaml")
    rules = [rule for group in alerts["groups"] for rule in group["rules"]]
    found = {name for rule in rules for name in re.findall(r"turnwise_\w+", rule["expr"])}
    assert {name.removesuffix("_bucket") for name in found} <= METRICS.keys() and len(rules) >= 5
    assert all({"alert", "expr", "labels", "annotations"} <= rule.keys() for rule in rules)


@pytest.mark.parametrize("name", FILES)
def test_each_file_says_that_it_was_never_run_in_a_cluster(name: str) -> None:
    """Nothing is claimed that nobody has seen."""
    text = re.sub(r"\s+#?\s*", " ", (DEPLOY / name).read_text())
    assert "never run in a cluster here" in text.lower()
