"""What deploy/ has is judged by the judges of those who read it: hadolint, systemd, the schemas of Compose and Kubernetes."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import promql_parser
import pytest
import yaml

from turnwise.gateway.accounts import METRICS
from turnwise.gateway.config import read_config
from waits import HANG_S

DEPLOY = Path(__file__).parents[1] / "deploy"
BIN = Path(sys.executable).parent


def judged(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=HANG_S, check=False, cwd=DEPLOY)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_image_is_one_that_hadolint_takes() -> None:
    judged(str(BIN / "hadolint"), "Dockerfile")


def test_the_compose_file_fits_its_schema() -> None:
    judged(str(BIN / "check-jsonschema"), "--builtin-schema", "vendor.compose-spec", "compose.yaml")


def test_the_manifests_fit_the_api_of_kubernetes() -> None:
    judged(str(BIN / "kubernetes-validate"), "--strict", "kubernetes.yaml")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_takes_the_unit_and_finds_it_closed(tmp_path: Path) -> None:
    unit = tmp_path / "turnwise-gateway.service"
    unit.write_text((DEPLOY / unit.name).read_text().replace("/opt/turnwise/bin/turnwise", sys.executable))
    judged("systemd-analyze", "verify", str(unit))
    judged("systemd-analyze", "security", "--offline=true", "--threshold=20", str(unit))


def test_the_gateway_takes_the_file_of_the_folder() -> None:
    config = read_config(DEPLOY / "gateway.toml")
    assert [route.models for route in config.routes] == [("gpt-*",), ("claude-*",)]


def test_each_alert_is_about_a_metric_of_the_gateway() -> None:
    """A name that nothing counts never fires."""
    (alerts,) = yaml.safe_load_all((DEPLOY / "alerts.yaml").read_text())
    rules = [rule for group in alerts["groups"] for rule in group["rules"]]
    for rule in rules:
        promql_parser.parse(rule["expr"])
        for counted, window in re.findall(
            r"increase\((\S+)\[(\w+)\]\)", rule["expr"]
        ):  # a count begins with its first event
            assert f"or ({counted} unless {counted} offset {window})" in rule["expr"]
    found = {name.removesuffix("_bucket") for rule in rules for name in re.findall(r"turnwise_\w+", rule["expr"])}
    assert found <= METRICS.keys() and len(rules) >= 5
    assert all({"alert", "expr", "labels", "annotations"} <= rule.keys() for rule in rules)
