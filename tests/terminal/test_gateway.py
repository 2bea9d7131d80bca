"""`turnwise gateway`: its keys, and what it says before it serves anything."""

import json
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from terminal.running import Cli
from turnwise.base.clock import SystemClock
from turnwise.gateway.client_bounds import KeyRing, add_key, find_client, key_file, read_keys
from turnwise.gateway.shared_clients import open_shared
from turnwise.journal.direct_ledger import EntryLeaves, LedgerLine
from turnwise.journal.journal import Journal
from turnwise.journal.ledger import LedgerEntry
from waits import HANG_S


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of keys, of a user who has none yet."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("TURNWISE_STATE_DIR", str(tmp_path / "state"))
    return key_file({"XDG_CONFIG_HOME": str(tmp_path / "config")})


def test_a_key_is_printed_once_and_then_only_its_name(cli: Cli, keys: Path) -> None:
    """On standard output the key alone, for a program; it opens the gateway."""
    made = [cli("gateway", "keys", "add", *words) for words in (["laptop"], ["--admin", "prometheus"])]
    assert [(ran.code, ran.err) for ran in made] == [
        (0, "this key is shown only now; the gateway keeps its hash\n")
    ] * 2
    with open_shared(os.environ, clock=SystemClock()) as shared:
        known = KeyRing(keys, shared=shared).current() or {}
        found = [find_client([ran.out.strip()], keys=known) for ran in made]
    assert [client and (client.name, client.admin) for client in found] == [("laptop", False), ("prometheus", True)]
    listed = cli("gateway", "keys", "list").out
    assert re.sub(r"\d{4}-\d\d-\d\d", "DATE", listed) == "laptop      DATE\nprometheus  DATE  admin\n"
    rows = cli("gateway", "keys", "list", "--json").events()
    assert [(row["name"], row["admin"]) for row in rows] == [("laptop", False), ("prometheus", True)]
    told = listed + keys.read_text() + cli("gateway", "audit").out
    assert all(ran.out.strip() not in told for ran in made)


def test_the_last_revoked_key_lets_nobody_in(cli: Cli, keys: Path) -> None:
    """And what to do is said then."""
    cli("gateway", "keys", "add", "laptop")
    ran = cli("gateway", "keys", "revoke", "laptop")
    assert (ran.code, ran.out, read_keys(keys)) == (0, "", ())
    assert ran.err.startswith("`laptop` is revoked\nno key is left, so no client is let in; add one")
    assert cli("gateway", "keys", "list").err == "no keys: `turnwise gateway keys add NAME` makes one\n"


def test_a_key_of_the_older_file_works_and_moves_into_the_journal_where_it_gets_limits(cli: Cli, keys: Path) -> None:
    """Proves: users of before lose nothing: the same key opens the doors before and after it moved, and no copy of it is left
    behind that a revoke would miss."""
    key = add_key(keys, "laptop", admin=True, today="2026-11-23")
    assert cli("gateway", "keys", "list").out == "laptop  2026-11-23  metrics  (gateway-keys.json)\n"
    assert cli("gateway", "keys", "add", "laptop").code == 2
    tried = [(row["action"], row["name"], row["refused"]) for row in cli("gateway", "audit", "--json").events()]
    assert [row[:2] for row in tried] == [("add", "laptop")] and tried[0][2].startswith(
        "there is a key `laptop` already"
    )
    cli("gateway", "keys", "set", "laptop", "--team", "web", "--limit", "usd/day=5")
    assert read_keys(keys) == ()
    with open_shared(os.environ, clock=SystemClock()) as shared:
        known = KeyRing(keys, shared=shared).current() or {}
        found = find_client([key], keys=known)
    assert found is not None and (found.name, found.admin) == ("laptop", True)
    assert cli("gateway", "keys", "revoke", "laptop").code == 0
    with open_shared(os.environ, clock=SystemClock()) as shared:
        assert KeyRing(keys, shared=shared).current() == {}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["keys", "revoke", "nobody"], "there is no key `nobody`"),
        (["keys", "add", "a/b"], "`a/b` is no name of a key"),
        (["keys", "add", "a", "--limit", "usd/year=5"], "there is no limit `usd/year`: give one of requests/minute"),
        (["keys", "add", "a", "--limit", "streams=1.5"], "`streams` cannot be 1.5"),
        (["keys", "add", "a", "--zone", "Nowhere"], "`Nowhere` is no time zone"),
        (["keys", "add", "a", "--unknown-price", "cheap"], "the rule for unknown prices is `refuse`, or"),
        (["keys", "set", "nobody", "--team", "web"], "there is no key `nobody`"),
        (["--upstream", "openai:gpt-5", "--config", "x.toml"], "give --upstream or --config"),
        ([], "give --upstream MODEL-or-URL, or write routes into `"),
        (["--config", "none.toml"], "`none.toml` does not exist"),
        (["--upstream", "gpt-5"], "`gpt-5` names no provider: did you mean `openai:gpt-5`?"),
        (["--upstream", "openai:*", "--host", "0.0.0.0", "--port", "0"], "so clients need keys"),
        (["--upstream", "openai:*", "--host", "no such host"], "cannot listen on `no such host`, port 8484"),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_served(cli: Cli, keys: Path, words: list[str], said: str) -> None:
    """Exit code 2, as everywhere."""
    ran = cli("gateway", *words)
    assert (ran.code, ran.out, len(ran.err.splitlines()), said in ran.err) == (2, "", 1, True)


def test_a_port_that_is_taken_is_told(cli: Cli, keys: Path) -> None:
    """The option counts more than the file's port."""
    (keys.parent).mkdir(parents=True)
    (keys.parent / "gateway.toml").write_text('port = 0\n[[route]]\nupstream = "openai:*"\n')
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ran = cli("gateway", "--port", str(taken.getsockname()[1]))
    assert (ran.code, "in use" in ran.err) == (2, True)


def test_a_route_for_one_client_that_several_have_keys_for_is_not_served(
    cli: Cli, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under the gateway's key each of them could read what the others stored at the provider."""
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    for name in ("ann", "ben"):
        cli("gateway", "keys", "add", name)
    (keys.parent / "gateway.toml").write_text('port = 0\n[[route]]\nupstream = "openai:*"\none_client = true\n')
    ran = cli("gateway")
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (2, "", 1)
    assert "`one_client = true`, and there are keys of 2 clients" in ran.err


@pytest.mark.parametrize("missing", ["uvicorn", "httptools"])
def test_without_the_extra_the_line_that_installs_it_is_printed(keys: Path, missing: str) -> None:
    """Keys can be added before."""
    code = f"import sys; sys.modules[{missing!r}] = None; from turnwise.terminal.main import main; main(sys.argv[1:])"

    def run(*words: str) -> "subprocess.CompletedProcess[str]":
        line = [sys.executable, "-c", code, "gateway", *words]
        return subprocess.run(line, capture_output=True, text=True, timeout=HANG_S, check=False)

    ran = run("--upstream", "openai:gpt-5")
    assert (ran.returncode, ran.stdout, ran.stderr) == (
        2,
        "",
        "turnwise: support for the gateway is not installed: pip install 'turnwise[gateway]'\n",
    )
    assert run("keys", "add", "laptop").returncode == 0


def test_its_help_loads_no_server(tmp_path: Path) -> None:
    """Nor does `import turnwise`, which has a test of its own."""
    code = (
        "import sys\nfrom turnwise.terminal.group import run\nrun(['gateway', '--help'])\n"
        "found = {'uvicorn', 'httptools', 'asyncio', 'aiohttp', 'turnwise.gateway'} & {*sys.modules}\n"
        "sys.exit(f'loaded: {found}' if found else 0)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=HANG_S, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_what_clients_used_is_told_by_owner_and_no_cell_of_it_runs(cli: Cli, keys: Path) -> None:
    """Proves: sums of the ledger by key, team and model, the requests of turns left out; a model whose name is a formula is text
    in a spreadsheet (OWASP, "CSV Injection")."""
    cli("gateway", "keys", "add", "laptop", "--team", "web")
    leaves = LedgerEntry(
        session="gateway:laptop",
        turn="t",
        root_session="gateway:laptop",
        root_turn="t",
        number=1,
        step=1,
        purpose="step",
        provider="=cmd|' /C calc'!A0",
        model="m;=1+1",  # a spreadsheet may take `;` for the end of a cell
        started=time.time(),
        sent_bytes=1,
    )
    own = msgspec.structs.replace(leaves, session="s", root_session="s")
    with Journal(Path(os.environ["TURNWISE_STATE_DIR"]) / "journal.db") as journal:
        journal.direct.write([EntryLeaves(line=LedgerLine(), entry=one) for one in (leaves, leaves, own)])
    told = {
        by: [row.split(",")[:2] for row in cli("gateway", "usage", "--by", by, "--csv").out.splitlines()[1:]]
        for by in ("key", "team", "user", "model")
    }
    assert told == {
        "key": [["laptop", "2"]],
        "team": [["web", "2"]],
        "user": [["", "2"]],
        "model": [["'=cmd|' /C calc'!A0:m;'=1+1", "2"]],
    }
    assert cli("gateway", "usage", "--by", "team").out.splitlines()[1].split() == [
        "web",
        "2",
        "unknown",
        "unknown",
        "unknown",
    ]


def test_an_owner_that_nobody_has_set_is_told_beside_others_that_were(cli: Cli, keys: Path) -> None:
    """Proves: a team that was mistyped does not slip past the limits that were meant for it without a word."""
    assert "limits" not in cli("gateway", "keys", "add", "early", "--team", "web").err
    cli("gateway", "teams", "set", "web", "--limit", "usd/month=5")
    assert "limits" not in cli("gateway", "keys", "add", "ci", "--team", "web", "--user", "ann").err
    assert "no team `wbe` was set, so it has no limits" in cli("gateway", "keys", "add", "c2", "--team", "wbe").err
    assert "no team `wbe` was set" in cli("gateway", "keys", "set", "ci", "--team", "wbe").err


def test_the_audit_log_names_the_user_of_the_process(cli: Cli, keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Proves: a variable does not choose who it was, and a key in place of a name is not kept."""
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(name, "somebody-else")
    key = json.loads(cli("gateway", "keys", "add", "laptop", "--json").out)["key"]
    assert cli("gateway", "keys", "revoke", key).code == 2
    assert cli("gateway", "keys", "add", "x", "--limit", "usd/year=1").code == 2
    rows = [json.loads(line) for line in cli("gateway", "audit", "--json").out.splitlines()]
    assert [(row["action"], row["name"], "refused" in row) for row in rows] == [
        ("add", "laptop", False),
        ("revoke", "(a key)", True),
        ("add", "x", True),
    ]
    assert "somebody-else" not in str(rows) and key not in str(rows)
