"""Turns that their caller names by a key: accepted before they begin, begun once, and found again by everybody who asks."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from turnwise.errors import CallerError, KeyReused
from turnwise.journal.owners import is_alive
from turnwise.journal.session_rows import Labels, check_same, labels_in, labels_text, shown_id
from turnwise.journal.stores import JournalConnection, JournalStore
from turnwise.turn.config import Approval
from turnwise.vocab import File, Message, StopReason, Text, own_text_of
from turnwise.vocab.file_names import is_text, shown_name

ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
ID_SAID = "1 to 128 of the characters `A-Z a-z 0-9 . _ : -`"
TITLE_CHARACTERS = 80

KeyState = Literal["accepted", "running", "left", "dropped", "ended"]


class TurnKey(msgspec.Struct, frozen=True, kw_only=True):
    """A turn's name in its session, and a digest of what it is asked ("": whatever it was asked before). `again`: the id of
    a turn of this key that its provider failed, and that gives the key up."""

    text: str
    asked: str
    again: str = ""


class KeyedTurn(msgspec.Struct, frozen=True, kw_only=True):
    """What the journal has of a key. `left`: its process is gone, or has let go of it. `dropped`: so it was, and its session has
    continued without it."""

    turn_id: str
    state: KeyState
    owner: str
    stop_reason: StopReason | None
    asked: str
    prompt: Message | None  # of a turn that was accepted


class KeyTaken(Exception):
    """Somebody else has begun the turn meanwhile."""


def check_new_id(id: object, *, what: str) -> str:
    """Raise CallerError for an id that a caller may not choose."""
    if not isinstance(id, str) or not ID.fullmatch(id):
        shown = shown_id(id) if isinstance(id, str) else type(id).__name__
        raise CallerError(f"{what} is `{shown}`: give {ID_SAID}")
    return id


def as_message(prompt: str | Sequence[str | Text | File] | Message) -> Message:
    """A prompt as the message that a turn begins with. Raises CallerError for what no turn can begin with."""
    if not isinstance(prompt, Message):
        given = (prompt,) if isinstance(prompt, str) else tuple(prompt)
        prompt = Message("user", tuple([Text(part) if isinstance(part, str) else part for part in given]))
    if prompt.role != "user" or not all(isinstance(part, Text | File) for part in prompt.parts):
        raise CallerError(
            "the prompt of an accepted turn is a user's message: a text, or a list of texts, `Text` and `File`"
        )
    texts = [part.text for part in prompt.parts if isinstance(part, Text)]
    if not all(map(is_text, texts)):
        raise CallerError("the prompt holds something that is no character: send UTF-8")
    if not any(not isinstance(part, Text) or part.text.strip() for part in prompt.parts):
        raise CallerError("the prompt is empty: give the model something to answer")
    return prompt


def asked_digest(
    message: Message | None, *, results: Mapping[str, object] | None = None, approvals: Sequence[Approval] = ()
) -> str:
    """SHA-256, in hex, of what a turn is asked. "": it is asked nothing."""
    if message is None and not results and not approvals:
        return ""
    said = (message, dict(results or {}), tuple(approvals))
    return hashlib.sha256(msgspec.json.encode(said, order="deterministic", enc_hook=repr)).hexdigest()


def check_asked(key: TurnKey, *, kept: str) -> None:
    """Raise KeyReused if the turn of this key was asked something else."""
    if key.asked and kept and key.asked != kept:
        raise KeyReused(
            f"the key `{key.text}` belongs to a turn with another prompt, other results or other approvals: give a new turn a "
            "new key"
        )


def find_key(store: JournalStore, *, session: str, key: str) -> KeyedTurn | None:
    """The turn of that key; None if there is none."""
    with store.statement() as connection:
        row = connection.execute(
            "select id, status, owner, stop_reason, complete, asked, exists (select 1 from turn as later where later.session ="
            " turn.session and later.number > turn.number and later.status not in ('queued', 'accepted')) from turn"
            " where session = ? and key = ?",
            (session, key),
        ).fetchone()
    if row is None:
        return None
    turn_id, status, owner, stop_reason, complete, asked, has_gone_on = row
    is_left = status == "lost" and stop_reason is None and complete is None
    if status == "running":
        is_left = not is_alive(owner, session=session)
    left: KeyState = "dropped" if has_gone_on else "left"
    state: KeyState = "accepted" if status == "accepted" else left if is_left else "ended"
    return KeyedTurn(
        turn_id=turn_id,
        state="running" if status == "running" and not is_left else state,
        owner=owner,
        stop_reason=None if stop_reason is None else StopReason(stop_reason),
        asked=_digest_in(asked),
        prompt=_decode(asked) if status == "accepted" else None,
    )


def _digest_in(asked: str | None) -> str:
    """What a row says: the digest, or the prompt itself of a turn that has not begun."""
    return asked_digest(_decode(asked)) if asked is not None and asked.startswith("{") else asked or ""


def take_key(connection: JournalConnection, key: TurnKey, *, session: str) -> str | None:
    """Inside the transaction that begins a turn: the id of the accepted turn that it is, if there is one. Raises KeyTaken if
    another turn has the key, and KeyReused."""
    row = connection.execute(
        "select id, status, stop_reason, asked from turn where session = ? and key = ?", (session, key.text)
    ).fetchone()
    if row is None:
        return None
    found, status, stop_reason, asked = row
    check_asked(key, kept=_digest_in(asked))
    if status == "accepted":
        return found
    if key.again == found and status == "done" and stop_reason == StopReason.PROVIDER_FAILED:
        connection.execute("update turn set key = null where id = ?", (found,))
        return None
    raise KeyTaken


def accept(
    store: JournalStore, key: TurnKey, *, session: str, turn_id: str, prompt: Message, now: float, labels: Labels
) -> bool:
    """Keep a turn that somebody begins later. False: the session has a turn of that key already, with this prompt."""

    def write(connection: JournalConnection) -> bool:
        store.check_version(connection)
        connection.execute(
            "insert into session (id, folder, title, created, updated, labels) values (?, ?, ?, ?, ?, ?)"
            " on conflict (id) do update set updated = session.updated",  # its row is locked, and read as it is then
            (
                session,
                shown_name(""),
                " ".join(own_text_of(prompt).split())[:TITLE_CHARACTERS],
                now,
                now,
                labels_text(labels),
            ),
        )
        (kept,) = connection.execute("select labels from session where id = ?", (session,)).fetchone()
        check_same(labels, kept=labels_in(kept), session=session)
        row = connection.execute("select asked from turn where session = ? and key = ?", (session, key.text)).fetchone()
        if row is not None:
            check_asked(key, kept=_digest_in(row[0]))
            return False
        connection.execute(
            "insert into turn (id, session, status, owner, created, key, asked) values (?, ?, 'accepted', '', ?, ?, ?)",
            (turn_id, session, now, key.text, msgspec.json.encode(prompt).decode()),
        )
        return True

    return store.attempt(write)


_decode = msgspec.json.Decoder(Message).decode
