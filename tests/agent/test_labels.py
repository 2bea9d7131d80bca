"""Labels of a session: kept from its first run on, and told to whatever makes the deps of its runs."""

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from left_journals import copy_of_a_crash
from tables import each
from turnwise import Agent, CallerError, DepsFactory, Journal, Model, SessionKey, Subagents
from turnwise.journal.session_rows import labels_in, labels_text, read_labels
from turnwise.terminal.main import main
from turnwise.testing import ScriptedModel, call

LABELS = {"user": "42", "team": "blau/grün", "empty": ""}


def labelled(
    said: list[Any], *, journal: Journal | None = None, tools: Any = (), seen: list[SessionKey] | None = None
) -> Agent[Any, Any]:
    """An agent that keeps the key of each run in `seen`."""
    keys: list[SessionKey] = [] if seen is None else seen
    model = ScriptedModel(said)

    def made(key: SessionKey) -> str:
        keys.append(key)
        return "deps"

    return Agent(Model("openai_chat:m", transport=model), tools=tools, deps_type=DepsFactory(made), journal=journal)


def test_every_run_of_a_session_has_its_labels(tmp_path: Path) -> None:
    """Proves: a later run needs not repeat them, and may."""
    seen: list[SessionKey] = []
    with Journal(tmp_path / "turns.db") as journal:
        agent = labelled(["One.", "Two.", "Three."], journal=journal, seen=seen)
        session = agent.run_sync("Go.", labels=LABELS).session
        agent.run_sync("On.", session=session)
        agent.run_sync("On.", session=session, labels=dict(reversed(LABELS.items())))
        assert [key.labels for key in seen] == [LABELS] * 3
        assert [row.labels for row in journal.sessions()] == [LABELS]


def test_other_labels_for_a_session_are_an_error(tmp_path: Path) -> None:
    """Proves: a session is not taken for another user's by mistake; the error shows no label."""
    with Journal(tmp_path / "turns.db") as journal:
        agent = labelled(["One.", "Two."], journal=journal)
        for begun, later in ((LABELS, {"user": "43-secret"}), ({}, {"user": "43-secret"})):
            session = agent.run_sync("Go.", labels=begun).session
            with pytest.raises(CallerError, match="was begun with other labels") as raised:
                agent.run_sync("On.", session=session, labels=later)
            assert "43-secret" not in str(raised.value)


def test_sub_agents_and_resumed_runs_have_them_too(tmp_path: Path) -> None:
    """Proves: a factory below the root gets the root's labels, and a turn that goes on after a crash gets those of before."""
    path, left = tmp_path / "turns.db", tmp_path / "left.db"

    def search(pattern: str) -> str:
        """Search."""
        if not left.exists():
            copy_of_a_crash(path, left)
        return "nothing"

    seen: list[SessionKey] = []
    with Journal(path) as journal:
        child = labelled(["Found."], seen=seen)
        said = [[call("task", prompt="Look.")], [call("search", pattern="a")], "Done."]
        agent = labelled(said, journal=journal, tools=[Subagents({"helper": child}), search], seen=seen)
        session = agent.run_sync("Go.", labels=LABELS).session
    assert [(key.path, key.labels) for key in seen] == [((), LABELS), (("helper",), LABELS)]
    with Journal(left) as journal:
        again: list[SessionKey] = []
        agent = labelled(["Done."], journal=journal, tools=[Subagents({"helper": child}), search], seen=again)

        assert asyncio.run(agent.resume(session)).text == "Done."
        assert [(key.id, key.labels) for key in again] == [(session, LABELS)]
        (_, below), *_ = journal.children(journal.find_session(session).turns[0].id)
        assert below.row.labels == LABELS


def test_labels_need_no_journal() -> None:
    """Proves: without one the factory gets them all the same."""
    seen: list[SessionKey] = []
    labelled(["One."], seen=seen).run_sync("Go.", labels=LABELS)
    assert [key.labels for key in seen] == [LABELS]


def test_the_list_of_sessions_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Proves: `turnwise sessions list --json` tells whose a session is."""
    monkeypatch.setenv("TURNWISE_STATE_DIR", str(tmp_path))
    with Journal(tmp_path / "journal.db") as journal:
        labelled(["One."], journal=journal).run_sync("Go.", labels=LABELS)
    with pytest.raises(SystemExit) as ended:
        main(["sessions", "list", "--json"])
    assert (ended.value.code, json.loads(capsys.readouterr().out)["labels"]) == (0, LABELS)


@each(
    ("labels", "said"),
    [
        (["user"], "must be a dict of texts"),
        ({"user": 42}, "must be a dict of texts"),
        ({"": "x"}, "1 to 100 printable characters"),
        ({"a=b": "x"}, "no `=`"),
        ({"a\n": "x"}, "printable"),
        ({"a": "x" * 1001}, "at most 1000 characters"),
        ({"a": "\ud800"}, "no UTF-8 text"),
        ({str(number): "" for number in range(51)}, "at most 50"),
    ],
)
def test_labels_that_cannot_be_kept_are_an_error_before_anything_is_sent(labels: Any, said: str) -> None:
    """Proves: each says what is wrong."""
    with pytest.raises(CallerError, match=said):
        labelled(["One."]).run_sync("Go.", labels=labels)


@pytest.mark.parametrize("read", [labels_in, lambda text: read_labels(json.loads(text))])
def test_labels_are_kept_as_they_are(read: Callable[[str], Mapping[str, str]]) -> None:
    """Proves: the text of a journal holds them exactly, equal for equal labels; a damaged text holds none."""
    assert read(labels_text(LABELS)) == LABELS
    assert labels_text(LABELS) == labels_text(dict(reversed(LABELS.items())))
    assert labels_in("{broken") == labels_in("[1]") == {}
