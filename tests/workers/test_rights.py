"""The rights that docs/workers.md names are enough, for each of them that works on turns."""

import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from turnwise import Journal
from turnwise.base.clock import SystemClock
from turnwise.errors import CallerError
from turnwise.turn.config import Approval, OneAsk
from turnwise.vocab import ToolCall
from turnwise.workers.ask_answers import answer
from turnwise.workers.open_asks import AskedElsewhere
from turnwise.workers.queue import TurnQueue, WorkerTerms

PAGE = Path(__file__).parents[2] / "docs" / "workers.md"
TERMS = WorkerTerms(name="w", agents=("plain",))
PASSWORD = "let-me-in-7"
ASKED = AskedElsewhere(asks=(OneAsk(call=ToolCall(id="c", name="n", arguments=""), arguments="", subject="", why=""),))


@pytest.fixture
def admin(postgres_dsn: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        yield connection


def granted(who: str, *, name: str) -> list[str]:
    """What the page grants to that role, to the one of this name."""
    found = [f"{text} to {name}" for text in re.findall(rf"^(grant [^;]*) to {who};", PAGE.read_text(), re.MULTILINE)]
    assert found
    return found


@pytest.mark.parametrize("who", ["submitter", "reader", "person", "worker"])
def test_the_rights_of_the_page_are_enough(
    who: str, queue: TurnQueue, postgres_dsn: str, admin: psycopg.Connection
) -> None:
    """Proves: a user with these rights and no others does its work, and a submitter changes no other turn and no session of
    another user: with `submit`, or with SQL of its own."""
    name = f"{who}_{admin.info.dbname}"
    admin.execute(f"create role {name} login password '{PASSWORD}'".encode())
    own = TurnQueue(f"{postgres_dsn}&user={name}&password={PASSWORD}", clock=SystemClock())
    try:
        for statement in granted(who, name=name):
            admin.execute(statement.encode())
        session = queue.submit("Go.", agent="plain")
        own.open()
        if who == "submitter":
            own.submit("Go.", agent="plain", session=own.submit("Go.", agent="plain", needs=("x",)))
            with pytest.raises(CallerError, match=f"permission denied: session `{session}`"):
                own.submit("Go.", agent="plain", session=session)
            columns = "(id, session, status, epoch, owner, created, agent)"
            into = f"insert into turn {columns} values ('t', %s, 'running', 0, '', 0, 'plain')"
            for statement in (into, "update session set updated = 0 where id = %s"):
                with pytest.raises(CallerError, match="begun by another user"):
                    own.attempt(lambda at, statement=statement: at.execute(statement, (session,)))
            with pytest.raises(CallerError, match="permission denied"):
                own.cancel(session)
            with pytest.raises(CallerError, match="permission denied"):
                own.attempt(lambda at: at.execute("insert into turn (number) overriding system value values (7)"))
        if who == "reader":
            assert [turn.session for turn in own.status()] == [session]
            with Journal(f"{postgres_dsn}&user={name}&password={PASSWORD}", clock=SystemClock()) as journal:
                assert journal.find_session(session).row.id == session
        if who == "person":
            claim = queue.claim(TERMS)
            assert claim is not None
            queue.park(claim, asked=ASKED, deadline_s=60)
            assert answer(own, session, [Approval(call_id="c", verdict="deny")], clock=SystemClock()) == 0
            assert own.cancel(session) == 1
            admin.execute("update turnwise.turn set stop_reason = 'given_up' where session = %s", (session,))
            assert own.retry(session).stop_reason == "given_up"
        if who == "worker":
            claim = own.claim(TERMS)
            assert claim is not None and own.renew([claim], terms=TERMS)
            own.release(claim)
            own.leave(TERMS)
    finally:
        own.close()
        admin.execute(f"drop owned by {name} cascade".encode())
        admin.execute(f"drop role {name}".encode())
