"""A base URL without `/v1`: the URL that was asked for is shown, and the path that is missing (issue 15, line 8)."""

from collections.abc import Iterator

import pytest

from terminal.running import Cli, running_lab
from turnwise.lab import Lab
from turnwise.lab.families import is_strict_path
from turnwise.wire.family import family as family_named
from turnwise.wire.family import where_asked


@pytest.fixture
def strict_lab() -> Iterator[Lab]:
    with running_lab(strict_paths=True) as lab:
        yield lab


@pytest.mark.parametrize("family", ["openai_chat", "openai_responses"])
def test_a_404_shows_the_url_and_suggests_the_path(cli: Cli, strict_lab: Lab, family: str) -> None:
    """As a real server refuses it; with the path that is suggested the same run is answered."""
    ran = cli("run", "Hello.", "-m", f"{family}:plain-answer", "--base-url", strict_lab.url)
    path = "chat/completions" if family == "openai_chat" else "responses"
    assert ran.code == 6 and f"Not Found (asked for `{strict_lab.url}/{path}`; " in ran.out
    assert f"the base URL usually ends with `/v1`: try `{strict_lab.url}/v1`)" in ran.out
    assert cli("run", "Hello.", "-m", f"{family}:plain-answer", "--base-url", f"{strict_lab.url}/v1").code == 0


def test_a_404_for_a_model_shows_the_url_and_suggests_no_path(cli: Cli, strict_lab: Lab) -> None:
    ran = cli("run", "Hello.", "-m", "openai_chat:no-such-script", "--base-url", f"{strict_lab.url}/v1")
    assert ran.code == 6 and f"(asked for `{strict_lab.url}/v1/chat/completions`)" in ran.out
    assert "usually ends" not in ran.out


@pytest.mark.parametrize(
    ("base_url", "family", "suggests"),
    [
        ("http://h/v1", "openai_chat", False),
        ("http://h/api/v3?x=1", "openai_chat", False),
        ("http://h/openai?api-version=1", "openai_chat", True),
        ("http://h", "anthropic_messages", False),
        ("http://h", "gemini", False),
    ],
)
def test_a_path_is_suggested_where_one_is_missing(base_url: str, family: str, suggests: bool) -> None:
    said = where_asked("http://h/x?key=secret", base_url=base_url, family=family_named(family))
    assert ("try `" in said) is suggests and "secret" not in said and "api-version" not in said


@pytest.mark.parametrize(
    ("family", "path"),
    [
        ("openai_chat", "/chat/completions"),
        ("openai_responses", "/responses"),
        ("anthropic_messages", "/messages"),
        ("openai_chat", "/models"),
    ],
)
def test_a_whole_url_of_a_request_is_told_where_to_be_cut(cli: Cli, strict_lab: Lab, family: str, path: str) -> None:
    """As it stands in a provider's docs, it is no base URL (from a newcomer's trial); what is suggested is answered."""
    ran = cli("run", "Hello.", "-m", f"{family}:plain-answer", "--base-url", f"{strict_lab.url}/v1{path}")
    assert ran.code == 6 and f"the base URL ends before `{path}`: try `{strict_lab.url}/v1`)" in ran.out
    assert cli("run", "Hello.", "-m", f"{family}:plain-answer", "--base-url", f"{strict_lab.url}/v1").code == 0


@pytest.mark.parametrize(
    ("path", "is_there"),
    [
        ("/v1/chat/completions", True),
        ("/v1/models", True),
        ("/v1beta/models/m:streamGenerateContent", True),
        ("/openai/deployments/m/chat/completions", True),
        ("/chat/completions", False),
        ("/v1/v1/messages", False),
        ("/models", False),
    ],
)
def test_a_strict_lab_has_the_paths_of_the_apis(path: str, is_there: bool) -> None:
    assert is_strict_path(path) is is_there
