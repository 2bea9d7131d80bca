"""`[endpoints.NAME]` of the user's own `turnwise.toml`: an endpoint like turnwise's own."""

from pathlib import Path

import pytest

from terminal.running import Cli, running_lab
from turnwise.agent.models import read_model
from turnwise.coding_agent.choice import Choice, key_variables
from turnwise.errors import CallerError


def test_an_own_endpoint_is_a_provider_like_any_other(
    cli: Cli, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Proves: a run goes to its address by its rules, a session goes on there, and no command of the model sees its key."""
    own = tmp_path / "own.toml"
    monkeypatch.setenv("TURNWISE_CONFIG", str(own))
    monkeypatch.setenv("MY_SERVERS_KEY", "sk-of-mine")
    with running_lab(key="sk-of-mine") as lab:
        own.write_text(
            f'[endpoints.mine]\nfamily = "openai_chat"\nbase_url = "{lab.url}/v1"\n'
            'api_key_env = ["MY_SERVERS_KEY"]\nmax_tokens_field = "max_completion_tokens"\n'
        )
        first = cli("run", "--model", "mine:plain-answer", "--max-output-tokens", "50", "hi")
        again = cli("run", "--continue", "and again")
        assert (first.code, again.code) == (0, 0), (first.err, again.err)
        assert lab.count(status=200) == len(lab.requests) == 2
        assert all(b'"max_completion_tokens":50' in one.body for one in lab.requests)
    assert "MY_SERVERS_KEY" in key_variables(Choice(model="openai:gpt-5"))


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ('[endpoints.groq]\nfamily = "openai_chat"\n', "turnwise has an endpoint of this name"),
        ('[endpoints.mine]\nfamily = "openai_chat"\nlater_systems = "user"\n', "later_systems"),
        ("[endpoints]\nmine = 3\n", "is no table"),
        ('[endpoints.mine]\nfamily = "openai_chat"\ntool_names = "[a-z"\n', r"mine\.tool_names is no regular"),
        ('[endpoints.mine]\nfamily = "openai_chat"\nbody = "[1]"\n', r"mine\.body is no JSON object"),
        ('[endpoints.mine]\nfamily = "openai_chat"\ntool_choices = ["none"]\n', r"mine\.tool_choices lacks `auto`"),
        ('[endpoints."a:b"]\nfamily = "openai_chat"\n', "a name has letters"),
    ],
)
def test_a_wrong_row_is_an_error_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str, words: str
) -> None:
    own = tmp_path / "own.toml"
    own.write_text(table)
    monkeypatch.setenv("TURNWISE_CONFIG", str(own))
    with pytest.raises(CallerError, match=words):
        read_model("mine:m")


def test_a_projects_file_has_no_endpoints(cli: Cli, folder: Path) -> None:
    """Proves: a folder from elsewhere cannot say where requests go, nor whose key goes with them."""
    (folder / "turnwise.toml").write_text('[endpoints.mine]\nfamily = "openai_chat"\nbase_url = "http://x"\n')
    ran = cli("run", "--model", "mine:m", "hi")
    assert ran.code == 2 and "a project's file cannot say where requests go" in ran.err
