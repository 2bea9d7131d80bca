"""A recorded session with stand-ins for its secrets, which replays to the same commands with the same stand-ins.

Values that were computed from a secret are computed again: the digest of what a person allowed, the hash of a request's body.
Otherwise today's machine would not find what the person answered, and a short secret could be tried out on the hash.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TypeVar, cast, get_args, get_type_hints

import msgspec

from turnwise.endpoints.key_hiding import SHORTEST_KEY, is_sought_in_words
from turnwise.endpoints.transport import CacheRefusals
from turnwise.errors import CallerError
from turnwise.journal.journal import JournalEntry
from turnwise.journal.turn_writer import JournalRecord, RequestSent
from turnwise.replay.playback import TurnPlayer, said_of
from turnwise.replay.secret_finder import SecretFinder, StandIns, can_be_replaced
from turnwise.replay.session_file import RecordedSession, RecordedTurn, all_sessions
from turnwise.settings.endpoint_rows import known_profiles
from turnwise.tools.sandbox import is_secret
from turnwise.turn.events import (
    Ask,
    Command,
    FinishTurn,
    RequestFailed,
    ResponseReceived,
    RunTools,
    SendRequest,
    TurnStarted,
)
from turnwise.turn.machine import SessionFold
from turnwise.vocab import Message, Response, Text, ToolCall

# All texts in a value made of structs: seen, or changed. Words of a closed list (`Literal`, enums, tags) do not count.


AnyValue = TypeVar("AnyValue")


class TextChange(msgspec.Struct, frozen=True):
    """What becomes of each text, and of bytes."""

    text: Callable[[str], str]
    content: Callable[[bytes], bytes]


def with_texts(value: AnyValue, change: TextChange) -> AnyValue:
    """The value with each of its texts changed; the very same one if nothing changes."""
    return cast(AnyValue, _changed(value, change, is_text=True))


def texts_in(value: object) -> list[str]:
    found: list[str] = []

    def see(text: str) -> str:
        found.append(text)
        return text

    def see_bytes(content: bytes) -> bytes:
        found.append(content.decode("utf-8", "replace"))
        return content

    with_texts(value, TextChange(see, see_bytes))
    return found


def _changed(value: object, change: TextChange, *, is_text: bool) -> object:
    if type(value) is str:
        return change.text(value) if is_text else value
    if type(value) is bytes:
        return change.content(value)
    if isinstance(value, msgspec.Struct):
        return _changed_struct(value, change)
    if isinstance(value, tuple | list | frozenset):
        items = cast("list[object]", [*value])
        new = [_changed(one, change, is_text=is_text) for one in items]
        return cast(object, value) if _same(items, new) else type(cast("list[object]", value))(new)
    if isinstance(value, dict):
        pairs = cast("dict[object, object]", value)
        keys = [_changed(one, change, is_text=is_text) for one in pairs]
        values = [_changed(one, change, is_text=is_text) for one in pairs.values()]
        same = _same([*pairs], keys) and _same([*pairs.values()], values)
        return pairs if same else dict(zip(keys, values, strict=True))
    return value


def _changed_struct(value: msgspec.Struct, change: TextChange) -> msgspec.Struct:
    new: dict[str, object] = {}
    for name, holds_text in _text_fields(type(value)).items():
        old: object = getattr(value, name)
        if (changed := _changed(old, change, is_text=holds_text)) is not old:
            new[name] = changed
    return msgspec.structs.replace(value, **new) if new else value


def _same(old: list[object], new: list[object]) -> bool:
    return all(one is other for one, other in zip(old, new, strict=True))


@lru_cache(maxsize=512)
def _text_fields(kind: type[msgspec.Struct]) -> dict[str, bool]:
    """Its fields, each with whether a text in it is anybody's words."""
    hints = get_type_hints(kind)
    return {name: _holds_text(hints[name]) for name in kind.__struct_fields__}


def _holds_text(kind: object) -> bool:
    return kind is str or any(_holds_text(one) for one in get_args(kind))


RANDOM_BYTES = 32
LEAST_BYTES = (
    4  # of letters and digits of a text that somebody wants hidden: two letters of ASCII stand in every other word
)


class Hidden(msgspec.Struct, frozen=True, kw_only=True):
    """The session with stand-ins, how many different secrets were replaced, and whether it replays to the same commands.
    `times`: in how many different texts of the session each text to hide stood."""

    session: RecordedSession
    secrets: int
    times: tuple[int, ...] = ()
    replays_alike: bool


def without_secrets(
    session: RecordedSession, *, env: Mapping[str, str], texts: Sequence[str] = (), key: bytes | None = None
) -> Hidden:
    """Replaced are the keys of providers in `env`, what else in it has a secret's name and a key's look, what has the shape of a
    key, and these `texts`. Raises CallerError for a text that is too short, or has nothing that can be replaced."""
    for text in texts:
        letters = "".join([one for one in text if can_be_replaced(one, least=1)])
        if len(letters.encode("utf-8", "surrogatepass")) < LEAST_BYTES:
            raise CallerError(
                f"--hide: a text needs at least {LEAST_BYTES} bytes of letters or digits (0 does not count), as four letters of "
                f"ASCII or two of Chinese have: a shorter one stands in every other word"
            )
    named = provider_keys(env, also=key_variables_of(session))
    others = [value for name, value in env.items() if is_secret(name) and _is_key(value) and value not in named]
    finder = SecretFinder(StandIns(key or os.urandom(RANDOM_BYTES)), keys=named, texts=(*texts, *others))
    for one in all_sessions(session):
        _learn(one, finder=finder)
    hiding = _Hiding(finder)
    hidden = hiding.session(session)
    times = _times(session, texts=texts)
    return Hidden(session=hidden, secrets=len(finder.replaced), times=times, replays_alike=hiding.replays_alike)


def _times(session: RecordedSession, *, texts: Sequence[str]) -> tuple[int, ...]:
    said: set[str] = set()
    for one in all_sessions(session):
        said |= {one.row.title, one.row.folder, *one.row.labels, *one.row.labels.values()}
        said.update(*[texts_in(entry.record) for turn in one.turns for entry in turn.entries])
    return tuple([sum([_holds(one, text=text) for one in said]) for text in texts])


def _holds(said: str, *, text: str) -> bool:
    finder = SecretFinder(StandIns(b"to count"), texts=[text])
    finder.hidden(said)
    return text in finder.replaced


def key_variables_of(session: RecordedSession) -> list[str]:
    """The variables in which the session's own turns looked for their key, its sub-agents' too."""
    found: list[str] = []
    for one in all_sessions(session):
        for turn in one.turns:
            for entry in turn.entries:
                if isinstance(entry.record, TurnStarted) and entry.record.config.api_key_env:
                    found.append(entry.record.config.api_key_env)
    return found


def provider_keys(env: Mapping[str, str], *, also: Sequence[str] = ()) -> list[str]:
    """The keys in the variables that providers' profiles name, and in those named beside them."""
    names = dict.fromkeys([*also, *[name for profile in known_profiles().values() for name in profile.api_key_env]])
    values = [env.get(name, "").strip() for name in names]
    return list(dict.fromkeys([value for value in values if len(value) >= SHORTEST_KEY]))


def _is_key(value: str) -> bool:
    """Not a path to a file of keys: it would be replaced wherever its folder is named."""
    return is_sought_in_words(value.strip()) and value == value.strip() and value[0] not in "/~."


def _learn(session: RecordedSession, *, finder: SecretFinder) -> None:
    """Find the keys that nobody named: in what was recorded, and in what a turn joined of it."""
    fold = SessionFold()
    refusals = CacheRefusals()
    for number, recorded in enumerate(session.turns, start=1):
        player = TurnPlayer(
            recorded, number=number, session=session.row.id, earlier=fold.carried, refusals=refusals, compares=False
        )
        chain: list[str] = []
        chains: list[list[str]] = []
        for played in player.play():
            for text in texts_in(played.entry.record):
                finder.learn(text)
            response = _response_of(played.entry.record)
            if response is None:
                continue
            if not _continues(played.before):
                chains.append(chain := [])
            chain += [_last_words(response)]
        if player.turn is not None and player.started is not None:
            fold.take(player.turn, started=player.started, begun=player.begun)
            for text in texts_in(player.turn.added):
                finder.learn(text)
        for one in chains:
            if len(one) > 1:
                finder.learn_chain(one)


def _response_of(record: JournalRecord) -> Response | None:
    match record:
        case ResponseReceived(response=response):
            return response
        case RequestFailed(partial=partial):
            return partial
        case _:
            return None


def _continues(command: Command | None) -> bool:
    return isinstance(command, SendRequest) and "continue" in (command.purpose, command.retry_of)


def _last_words(response: Response) -> str:
    """The last words of a cut response, or how the next response continues them."""
    for part in reversed(response.message.parts):
        if isinstance(part, Text) and part.text:
            return part.text
        if isinstance(part, ToolCall):
            return part.arguments
    return ""


class _Hiding:
    """Replaces in all sessions of a tree. The recorded turn and the one with stand-ins are played side by side."""

    def __init__(self, finder: SecretFinder) -> None:
        self._finder = finder
        self._digests: dict[str, str] = {}  # of what was shown to a person -> of the same with stand-ins
        self._change = TextChange(self._text, finder.hidden_bytes)
        self.replays_alike = True

    def _text(self, text: str) -> str:
        return self._digests.get(text) or self._finder.hidden(text)

    def session(self, session: RecordedSession) -> RecordedSession:
        turns: list[RecordedTurn] = []
        folds = (SessionFold(), SessionFold())
        refusals = (CacheRefusals(), CacheRefusals())
        for number, recorded in enumerate(session.turns, start=1):
            old, new = [
                TurnPlayer(recorded, number=number, session=session.row.id, earlier=fold.carried, refusals=known)
                for fold, known in zip(folds, refusals, strict=True)
            ]
            entries = [self._entry(entry, old=old, new=new) for entry in recorded.entries]
            for fold, player in zip(folds, (old, new), strict=True):
                player.fold_into(fold)
            children = tuple([(self._text(call_id), self.session(child)) for call_id, child in recorded.children])
            turns.append(RecordedTurn(row=recorded.row, entries=tuple(entries), children=children))
        row = msgspec.structs.replace(
            session.row,
            title=self._text(session.row.title),
            folder=self._text(session.row.folder),
            labels={self._text(name): self._text(value) for name, value in session.row.labels.items()},
        )
        return RecordedSession(row=row, turns=tuple(turns))

    def _entry(self, entry: JournalEntry, *, old: TurnPlayer, new: TurnPlayer) -> JournalEntry:
        record = with_texts(entry.record, self._change)
        if isinstance(record, RequestSent) and isinstance(entry.record, RequestSent):
            record = _rehashed(record, old=old, new=new, was=entry.record)
        changed = msgspec.structs.replace(entry, record=record)
        if old.is_refused:
            return changed
        old.take(entry)
        new.take(changed)
        if old.command is not None and new.command is not None:
            self._digests |= dict(zip(_digests_of(old.command), _digests_of(new.command), strict=False))
        same = self._finder.hidden(said_of(old.command)) == said_of(new.command)
        self.replays_alike = self.replays_alike and same and old.is_refused == new.is_refused
        return changed


def _rehashed(record: RequestSent, *, old: TurnPlayer, new: TurnPlayer, was: RequestSent) -> RequestSent:
    """With the hash of the body with stand-ins. Without one if the recorded hash is of a body that is not known here."""
    known = old.matching_body(was)
    body = None if known is None else new.body_at(known)
    if body is None:
        return msgspec.structs.replace(record, body_sha256="")
    return msgspec.structs.replace(record, body_sha256=body.sha256, body_bytes=body.size_bytes)


def _digests_of(command: Command) -> list[str]:
    """What stands for what a person was shown, in order."""
    match command:
        case Ask(asks=asks):
            return [one.digest for one in asks if one.digest]
        case RunTools(calls=calls):
            return [plan.shown for plan in calls if plan.shown]
        case FinishTurn(result=result):
            asked = [one.digest for one in result.asks if one.digest]
            return asked + _asked_in(result.history or result.messages)
        case _:
            return []


def _asked_in(messages: Sequence[Message]) -> list[str]:
    return [part.asked for message in messages for part in message.parts if isinstance(part, ToolCall) and part.asked]
