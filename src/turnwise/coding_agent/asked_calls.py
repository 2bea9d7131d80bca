"""What every face does with the asks of a turn: the facts of a call, the answer, one ask after the other in time, and the calls
that were left for later.
"""

import asyncio
import contextlib
import os
import re
import stat
import sys
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, TextIO, TypeVar, cast, get_args

import msgspec

from turnwise.agent.formatting import many
from turnwise.base.clock import Clock, ends_in_time
from turnwise.coding_agent.permissions import rule_said
from turnwise.coding_agent.text import visible, visible_line
from turnwise.errors import CallerError
from turnwise.journal.journal import Journal, Session, session_so_far
from turnwise.rules.arguments import server_of
from turnwise.rules.history import waiting_calls
from turnwise.rules.permission_facts import CallFacts
from turnwise.rules.permissions import PermissionRule, Policy, RememberedScope, judge_permission, rules_in_scope
from turnwise.running.approvals import Asking
from turnwise.running.run_context import Inspector, judged_paths
from turnwise.tools.workspace.paths import WorkspacePaths
from turnwise.tools.workspace.previews import paths_of_call, whole_preview, would_fail
from turnwise.turn.config import MARK_LENGTH, Approval, AskOrigin, OneAsk, ToolOffer, digest_of, mark_of
from turnwise.turn.events import PlannedCall
from turnwise.vocab import ToolCall
from turnwise.wire.json_fields import UNREADABLE

Answer = TypeVar("Answer")

MAX_TITLE = 200
MAX_NAMES = 10_000  # of one folder that are compared with a word
SETTLE_S = 0.5
SPARE_S = 0.1  # before the deadline: what was answered by then has to arrive


async def facts_of(ask: OneAsk, *, offers: Mapping[str, ToolOffer], inspect: Inspector) -> CallFacts:
    """What the call would do now."""
    offer = offers.get(ask.call.name)
    if offer is not None and not offer.inspected:
        return CallFacts(call_id=ask.call.id, tool=ask.call.name, effect=offer.effect)
    if offer is None and server_of(ask.call.name):  # it is known once its server has said so
        return CallFacts(call_id=ask.call.id, tool=ask.call.name, effect="execute")
    (facts,) = await inspect((PlannedCall(call=ask.call, arguments=ask.arguments, timeout_s=0.0),))
    return facts


def answer_to(
    ask: OneAsk,
    *,
    verdict: Literal["allow", "deny", "later"],
    text: str = "",
    scope: RememberedScope | None = None,
    arguments: str | None = None,
) -> Approval:
    """`scope`: what else is allowed in this session. `arguments`: those that the person wants instead."""
    return Approval(
        call_id=ask.call.id,
        verdict=verdict,
        text=text,
        always=scope is not None,
        scope=scope or "call",
        arguments=arguments,
        subject=ask.subject,
        digest=ask.digest,
    )


class NotInTime(Exception):
    """Nobody answered an ask within its own time."""


class NotWhole(Exception):
    """What is asked is longer than this face can show: nobody says yes to a part of it."""


def refusal_of(ask: OneAsk, *, fault: NotWhole) -> Approval:
    """The denial of a call that could not be shown whole; the model reads why."""
    text = f"a person could not be shown all of it: {fault}; make smaller calls"
    return msgspec.structs.replace(answer_to(ask, verdict="deny", text=text), by="program")


def arguments_in(text: str) -> Mapping[str, object]:
    """Empty for those that are no JSON object: a free-form tool's text."""
    try:
        decoded: object = msgspec.json.decode(text)
    except UNREADABLE:
        return {}
    return cast("dict[str, object]", decoded) if isinstance(decoded, dict) else {}


def decoded_texts(arguments: str) -> list[str]:
    """The texts of a call's arguments, as its tool reads them."""
    given = arguments_in(arguments)
    return [one if isinstance(one, str) else msgspec.json.encode(one).decode() for one in given.values()] or [arguments]


def title_of(call: ToolCall, *, path: tuple[str, ...] = ()) -> str:
    """`read notes.txt` on one line, nothing of it hidden; behind the sub-agents that lead to it."""
    arguments = arguments_in(call.arguments)
    first = next((one for key in ("command", "path", "question") if isinstance(one := arguments.get(key), str)), None)
    told = first if first is not None else "" if not arguments else call.arguments
    line = visible_line(" › ".join([*path, f"{call.name} {told}".rstrip()]))
    return line if len(line) <= MAX_TITLE else f"{line[: MAX_TITLE - 1]}…"


async def answered_in_order(
    asking: Asking, *, answered: Callable[[OneAsk], Awaitable[Approval]], clock: Clock, note: Callable[[str], object]
) -> list[Approval]:
    """The answers that came in time; `answered` raises NotInTime for the others. `note` is told of these, which take their
    default."""
    until = clock.monotonic() + asking.deadline_s - min(SPARE_S, asking.deadline_s / 10)
    approvals: list[Approval] = []
    left = list(asking.asks)
    try:
        while left:
            asking.waits()
            try:
                answer = await answered(left[0])
            except NotInTime:
                note(_not_answered(left.pop(0), asking=asking))
                continue
            approvals.append(answer)
            if left.pop(0) is not asking.asks[-1]:
                asking.keep(answer)
    except asyncio.CancelledError:
        if clock.monotonic() >= until:
            for ask in left:
                note(_not_answered(ask, asking=asking))
        raise
    return approvals


async def in_own_time(
    answer: Awaitable[Answer], *, asking: Asking, clock: Clock, shown_s: float | None = None
) -> Answer:
    """What the person answers to an ask within its own time, which runs from `shown_s`, or from now. Raises NotInTime."""
    left_s = asking.shown()
    left_s = asking.deadline_s if left_s is None else left_s
    spent_s = 0.0 if shown_s is None else clock.monotonic() - shown_s
    until_s = max(left_s - min(SPARE_S, left_s / 10) - spent_s, 0.0)
    task = asyncio.ensure_future(answer)
    if not await ends_in_time(cast("asyncio.Task[object]", task), clock=clock, timeout_s=until_s, settle_s=SETTLE_S):
        raise NotInTime
    return task.result()


def _not_answered(ask: OneAsk, *, asking: Asking) -> str:
    then = "the model decides" if ask.kind == "question" and ask.by == "model" else "denied"
    name = visible_line(" › ".join([*asking.path, ask.call.name]))
    return f"not answered within {asking.deadline_s:g} s: {name}: {then}"


class Confusables(msgspec.Struct, frozen=True):
    """The words of an ask that look like another word, and how each is spelled. `lines` say of each what it looks like."""

    spelled: Mapping[str, str] = {}
    lines: tuple[str, ...] = ()

    def mark(self, text: str) -> str:
        """The text with these words spelled out."""
        if not self.spelled or text.isascii():
            return text
        words = "|".join([re.escape(word) for word in sorted(self.spelled, key=len, reverse=True)])
        return re.sub(rf"(?<!\w)(?:{words})(?!\w)", lambda found: self.spelled[found[0]], text)


def confusables_in(texts: Iterable[str], *, folder: Callable[[], Path]) -> Confusables:
    """The words that mix scripts, and those that look like an ASCII option, like a command of this machine or like a path below
    `folder`. The tables are loaded for a text that is not ASCII."""
    foreign = [line for text in texts if not text.isascii() for line in text.split("\n") if not line.isascii()]
    if not foreign:
        return Confusables()
    from turnwise.vocab.lookalikes import lookalikes

    spelled: dict[str, str] = {}
    lines: list[str] = []
    for one in [one for line in foreign for one in lookalikes(line)]:
        if one.word in spelled:
            continue
        looks_like = "" if not one.skeleton else _known_as(one.reads_as, is_text=one.in_text, folder=folder())
        if not (looks_like or one.mixed):
            continue
        spelled[one.word] = visible_line(one.spelled)
        reads = looks_like or (f"reads as `{one.reads_as}`" if one.skeleton else "")
        mixes = f"mixes {' and '.join(one.mixed)} letters" if one.mixed else ""
        lines.append(
            visible_line(f"confusable: `{spelled[one.word]}` {' and '.join([said for said in (reads, mixes) if said])}")
        )
    return Confusables(spelled, tuple(lines))


def _known_as(word: str, *, is_text: bool, folder: Path) -> str:
    """What of that look there is; empty: nothing. A word within a text of its own script is no command and no path."""
    from turnwise.vocab.lookalikes import skeleton

    if re.match(r"-{1,2}[A-Za-z]", word):
        return f"looks like the option `{word}`"
    looks = skeleton(word)
    if is_text:
        return ""
    if looks in {skeleton(name) for name in _command_names()}:
        return f"looks like the command `{word}`"
    path = folder / word
    try:
        names = [one.name for one, _ in zip(os.scandir(path.parent), range(MAX_NAMES), strict=False)]
    except (OSError, ValueError):
        return ""
    found = next((name for name in names if name.isascii() and skeleton(name) == skeleton(path.name)), None)
    return "" if found is None else f"looks like the path `{Path(word).parent / found}`, which exists"


def _command_names() -> Iterable[str]:
    """Programs on PATH, and what a shell has itself."""
    from turnwise.tools.shell_judge.call_facts import SHELLS_OWN  # with the reader of shell scripts

    yield from SHELLS_OWN
    for folder in (os.environ.get("PATH") or os.defpath).split(os.pathsep):
        try:
            yield from [one.name for one, _ in zip(os.scandir(folder or "."), range(MAX_NAMES), strict=False)]
        except OSError:
            continue


# What is said of an ask, whichever face puts it: what would run and change, why it is asked, and what `always` would allow.


MAX_SUBJECT = 200


class AskSurroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What asks of a run are judged and shown by. `spent` says what a turn has cost so far."""

    offers: Mapping[str, ToolOffer]
    inspect: Inspector
    workspace: WorkspacePaths
    clock: Clock
    spent: Callable[[AskOrigin], str] = lambda _: ""

    async def facts(self, ask: OneAsk) -> CallFacts:
        """What the call would do now."""
        return await facts_of(ask, offers=self.offers, inspect=self.inspect)

    def is_command(self, ask: OneAsk) -> bool:
        offer = self.offers.get(ask.call.name)
        return offer is not None and offer.effect == "execute"

    async def would_do(self, ask: OneAsk, *, facts: CallFacts) -> tuple[list[str], list[str]]:
        """What would run, and the diff of what a file tool would change, as if it were allowed."""
        with judged_paths([path.resolved for path in facts.paths if path.resolved]):
            changes = await asyncio.to_thread(whole_preview, self.workspace, ask.call.name, arguments_in(ask.arguments))
        return what_of(ask, previewed=bool(changes) and not would_fail(changes)), changes


def is_allowed(facts: CallFacts, *, policy: Policy) -> bool:
    """What was allowed always covers it by now."""
    return judge_permission(facts, policy=policy).kind == "allow"


def as_it_is_now(ask: OneAsk, *, facts: CallFacts) -> OneAsk:
    """What is shown is what is there now: of a call that was left for later, not what was there then."""
    return msgspec.structs.replace(ask, digest=digest_of(ask.call.name, arguments=ask.arguments, facts=facts))


class Widened(msgspec.Struct, frozen=True, kw_only=True):
    """More than one call that a person may allow at once: the rules for it, and what they allow, in words."""

    rules: tuple[PermissionRule, ...]
    said: str


def widenings(facts: CallFacts, *, policy: Policy) -> Mapping[RememberedScope, Widened]:
    """What a person may allow for the rest of the session, from the narrowest to the widest."""
    found: dict[RememberedScope, Widened] = {}
    for scope in get_args(RememberedScope):
        if rules := rules_in_scope(facts, policy=policy, scope=scope):
            found[scope] = Widened(rules=rules, said=_scope_said(scope, rules=rules, facts=facts, policy=policy))
    return found


def scope_named(
    said: str, *, names: Mapping[RememberedScope, str], offered: Mapping[RememberedScope, Widened]
) -> RememberedScope | None:
    """The scope that a person has chosen by the name under which a face offered it."""
    return next((scope for scope, name in names.items() if name == said and scope in offered), None)


def _scope_said(scope: RememberedScope, *, rules: Sequence[PermissionRule], facts: CallFacts, policy: Policy) -> str:
    match scope:
        case "call":
            return rules_said(rules, workspace=policy.workspace)
        case "edits":
            return "all changes of files in this folder; guarded files (such as `.env`, `.git`) are still asked about"
        case "prefix":
            words = " ".join([one.replace("\\", "") for one in (rules[0].command or ())[:-1]])
            where = ", while the sandbox confines it" if facts.shell is not None and facts.shell.confined else ""
            return visible_line(f"commands that begin with `{words}`, in plain words and with known options{where}")


_VERBS = {"edit": "Edit", "multi_edit": "Edit", "read": "Read", "list": "List", "search": "Search in", "write": "Write"}
_USUAL = re.compile(r"to (run|write|read) `[^`]*`")
_USUALLY = {
    "run": "a command can change files, and no rule allows this one",
    "write": "it changes a file, and no rule allows that",
    "read": "no rule allows to read it",
}
RUN_THIS = "Run this command?"
MAX_IN_QUESTION = 44  # characters: on a terminal of 60 columns the question stays one line


def question_of(ask: OneAsk, *, changes: Sequence[str] = ()) -> str:
    """`Run `pytest -q`?`, `Edit main.py?`: what a person is asked, in one line."""
    arguments, name = arguments_in(ask.arguments), ask.call.name
    command, path, url = (arguments.get(key) for key in ("command", "path", "url"))
    if isinstance(command, str):
        return f"Run `{command}`?" if is_in_question(command) else RUN_THIS
    if isinstance(path, str) and name in _VERBS:
        is_new = name == "write" and changes[:1] == ["--- /dev/null"]
        return f"{'Create' if is_new else _VERBS[name]} {ends_of(visible_line(path))}?"
    if name == "apply_patch":
        return f"Change {ends_of(visible_line(', '.join(paths_of_call(name, arguments)) or 'files'))}?"
    if isinstance(url, str):
        return f"Fetch {ends_of(visible_line(url))}?"
    return f"Call `{visible_line(name)}`?"


def is_in_question(command: str) -> bool:
    """Whether the question itself can show all of the command: on one line, and with nothing hidden."""
    return len(command) <= MAX_IN_QUESTION and "`" not in command and visible_line(command) == command


def steps_question(ask: OneAsk, *, asking: Asking, around: AskSurroundings) -> str:
    """`19 steps, 31 requests, cost $0.42; the next step is the last of this turn. Take up to 20 more?`"""
    spent = around.spent(asking.origin)
    so_far = f"{ask.subject}, cost {spent}" if spent else ask.subject
    return f"{so_far}; the next step is the last of this turn. Take up to {arguments_in(ask.arguments)['more']} more?"


_EDITED = ("command", "url", "new", "content")
MAX_EDITED_LINES = 100


def text_to_edit(ask: OneAsk) -> tuple[str, str] | None:
    """The argument that a person may change before the call runs, and its text; None where there is none, or where a terminal
    would not show all of it."""
    arguments = arguments_in(ask.arguments)
    key = next((key for key in _EDITED if isinstance(arguments.get(key), str)), None)
    text = arguments.get(key) if key is not None else None
    if key is None or not isinstance(text, str) or not ask.can_wait:
        return None
    return (key, text) if visible(text) == text and "\t" not in text and text.count("\n") < MAX_EDITED_LINES else None


def with_text(ask: OneAsk, *, key: str, text: str) -> str:
    """The arguments of the call with this text."""
    return msgspec.json.encode({**arguments_in(ask.arguments), key: text}).decode()


def why_of(ask: OneAsk) -> str:
    usual = _USUAL.fullmatch(ask.why)
    if usual is not None and (usual[1] == "run" or "command" not in arguments_in(ask.arguments)):
        return _USUALLY[usual[1]]
    return f"{ask.subject}: {ask.why}" if ask.subject and ask.subject not in ask.why else ask.why


def what_of(ask: OneAsk, *, previewed: bool = False) -> list[str]:
    """The command whole; of a file tool its path, as the diff tells the rest; every argument of any other."""
    arguments = dict(arguments_in(ask.arguments))
    if previewed and not isinstance(arguments.get("path"), str):
        return []
    for key in ("command", "path"):
        if isinstance(first := arguments.pop(key, None), str):
            rest = (
                []
                if previewed
                else [f"{name}: {msgspec.json.encode(given).decode()}" for name, given in arguments.items()]
            )
            shown = visible(first).split("\n") if key == "command" else [visible_line(first)]  # a name is one line
            return [*shown, *[line for text in rest for line in visible(text).split("\n")]]
        if first is not None:
            break
    return visible(ask.arguments).split("\n")


def rules_said(rules: Sequence[PermissionRule], *, workspace: str) -> str:
    """The rules that `always` adds, each no broader than what is shown above; a tool without a pattern is allowed whatever it is
    given."""
    said = [
        rule_said(rule, workspace=workspace) if rule.command or rule.path else f"{rule.tool}, whatever it is given"
        for rule in rules
    ]
    return visible_line(", ".join(dict.fromkeys(said)))


def ends_of(line: str) -> str:
    """All of it, or its beginning and its end where it is long."""
    return line if len(line) <= MAX_SUBJECT else f"{line[: MAX_SUBJECT // 2]}…{line[-MAX_SUBJECT // 2 :]}"


def path_said(path: tuple[str, ...]) -> str:
    return " › ".join([visible_line(name) for name in path])


# Whether somebody can be asked here, and what is said where nobody can.


NOBODY = "nobody is there to be asked"
_AT_TERMINAL = "run turnwise again [with `{options}`, or ]at a terminal, where it can ask"


def is_attended() -> bool:
    """Somebody can read the question and type the answer."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def why_nobody(*, unattended: bool = False) -> str:
    """Why nobody can be asked. A person at a terminal may not know that a pipe takes their place."""
    word = "" if unattended else _taken_from_a_person()
    return f"standard input is {word}, so nobody can be asked" if word else NOBODY


def allow_hint() -> str:
    """How a call that nobody could be asked about is allowed, for `TurnConfig.allow_hint`."""
    word = _taken_from_a_person()
    if not word:
        return _AT_TERMINAL
    return (
        f"standard input is {word}, so nobody can be asked: run turnwise again [with `{{options}}`, or ]with the text in a "
        "file that the prompt names (`@FILE`)"
    )


def what_is_piped(stream: TextIO) -> str:
    """`a pipe` or `a file`; empty for a terminal, a device and a stand-in."""
    with contextlib.suppress(OSError, ValueError):
        mode = os.fstat(stream.fileno()).st_mode
        return "a pipe" if stat.S_ISFIFO(mode) else "a file" if stat.S_ISREG(mode) else ""
    return ""


def _taken_from_a_person() -> str:
    """What stands in the place of the terminal where somebody reads what is said."""
    return what_is_piped(sys.stdin) if sys.stderr.isatty() else ""


# Calls that were left for later: which they are, and what the command line says to them.


ALL = "all"
_MARKED = re.compile(rf"(.+)@([0-9a-f]{{{MARK_LENGTH}}})", re.DOTALL)


class Pending(msgspec.Struct, frozen=True, kw_only=True):
    """What a session waits for: a person's answers, and `results` of client-side tools."""

    asks: tuple[OneAsk, ...] = ()
    results: tuple[ToolCall, ...] = ()


NOTHING = Pending()


def pending_of(journal: Journal, session: Session) -> Pending:
    """What the session's turns left open. A turn that was killed leaves open what it had not begun to answer."""
    if not session.turns or session.turns[-1].status not in ("waiting", "lost"):
        return NOTHING
    folded = session_so_far(journal, session.turns)
    asked = {ask.call.id for ask in folded.asks}
    calls = [call for call in waiting_calls(folded.messages) if call.id not in asked and not call.asked]
    return Pending(asks=folded.asks, results=tuple(calls))


def call_names(calls: Iterable[ToolCall]) -> str:
    return ", ".join([f"{visible_line(call.name)} ({visible_line(call.id)})" for call in calls])


def dropped_line(pending: Pending) -> str:
    """What is said where a prompt goes on without the answers that calls wait for; empty where none does."""
    calls = [*[ask.call for ask in pending.asks], *pending.results]
    one = len(calls) == 1
    said = f"{many(len(calls), 'call')} waited for {'an answer' if one else 'answers'}"
    return (
        f"{said}; the session goes on with your prompt, so {'it is' if one else 'they are'} not run: {call_names(calls)}"
        if calls
        else ""
    )


def decide(
    asks: Sequence[OneAsk], *, approve: Sequence[str], deny: Sequence[str], show: Callable[[str], object]
) -> tuple[Approval, ...]:
    """One approval for each ask that `--approve` and `--deny` name, by its call's id or as `all`. What is allowed is named with
    the mark of what was shown: without it `show` is given the calls, line by line, and nothing is allowed. Raises CallerError for
    that, for what waits for nothing, or was answered twice."""
    known = {ask.call.id: ask for ask in asks}
    if not known:
        raise CallerError("nothing of this session waits for an approval; leave --approve and --deny out")
    marks = dict([marked(one, known=known) for one in approve])
    approve = list(marks)
    allowed, denied = _named(approve, known=known, option="--approve"), _named(deny, known=known, option="--deny")
    if ALL in approve:
        allowed -= denied
    elif ALL in deny:
        denied -= allowed
    if both := allowed & denied:
        raise CallerError(f"`{min(both)}` is approved and denied: say one of it")
    if questions := [id for id in allowed if known[id].kind == "question"]:
        raise CallerError(
            f"`{questions[0]}` is a question, which needs an answer: go on with the session at a terminal, or --deny it"
        )
    check_shown([ask for ask in asks if ask.kind == "approval"], allowed=allowed, marks=marks, show=show)
    return tuple(
        [
            Approval(call_id=id, verdict="allow" if id in allowed else "deny", subject=ask.subject, digest=ask.digest)
            for ask in asks  # those of two sub-agents may have one id
            if (id := ask.call.id) in allowed | denied
        ]
    )


def _named(ids: Sequence[str], *, known: dict[str, OneAsk], option: str) -> set[str]:
    whole = [whole_id(id, known=known) for id in ids]
    if ALL in whole:
        return set(known)
    if strange := [id for id in whole if id not in known]:
        raise CallerError(f"{option} `{strange[0]}`: no such call waits; there are {', '.join(known)}, or `all`")
    return set(whole)


def whole_id(given: str, *, known: Collection[str]) -> str:
    """The id that begins so, if it is one alone; else what was given. Raises CallerError if several do."""
    begun = [] if given in known or given == ALL or not given else [id for id in known if id.startswith(given)]
    if len(begun) > 1:
        raise CallerError(f"`{given}`: several ids begin so: {', '.join(begun)}")
    return begun[0] if begun else given


def marked(given: str, *, known: Collection[str]) -> tuple[str, str]:
    """The id that a value of `--approve` or `--reply` is for, given whole or by its beginning, or `all`; and the mark behind it;
    empty where there is none. Raises CallerError if several ids begin so."""
    found = None if given in known else _MARKED.fullmatch(given)
    id, mark = (given, "") if found is None else (found[1], found[2])
    return whole_id(id, known=known), mark


def check_shown(
    asks: Sequence[OneAsk],
    *,
    allowed: Collection[str],
    marks: Mapping[str, str],
    show: Callable[[str], object],
    option: str = "--approve",
) -> None:
    """Show what is allowed or replied to without having been shown, and raise CallerError."""
    if ALL in marks and marks[ALL] == mark_of(asks):
        return
    unseen = [ask for ask in asks if ask.call.id in allowed and marks.get(ask.call.id) != mark_of([ask])]
    if not unseen:
        return
    for ask in unseen:
        confusables = confusables_in([ask.call.name, *decoded_texts(ask.arguments)], folder=Path.cwd)
        line = (
            f"{visible_line(ask.call.id)}@{mark_of([ask])}  {visible_line(ask.call.name)} {visible_line(ask.arguments)}"
        )
        for shown in (confusables.mark(line), *confusables.lines):
            show(shown)
    changed = "changed since it was shown" if any(marks.values()) else "has to be shown first"
    how = f"`{option} {ALL}@{mark_of(asks)}`" if ALL in marks else f"`{option}` with the id and the mark behind it"
    what = "nothing was allowed: what would run" if option == "--approve" else "nothing was answered: the question"
    raise CallerError(f"{what} {changed}; it stands above, and {how} is taken")
