"""Asks the person at the terminal: what will run and why it needs an answer, what it would change, and how long there is."""

import asyncio
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, get_args

import msgspec

from turnwise.coding_agent.asked_calls import (
    RUN_THIS,
    SPARE_S,
    AskSurroundings,
    Widened,
    answer_to,
    as_it_is_now,
    confusables_in,
    ends_of,
    is_allowed,
    path_said,
    question_of,
    steps_question,
    text_to_edit,
    what_of,
    why_of,
    widenings,
    with_text,
)
from turnwise.coding_agent.text import has_colour, style, visible, visible_line
from turnwise.rules.permission_facts import CallFacts
from turnwise.rules.permissions import Policy, RememberedScope
from turnwise.running.approvals import Asking
from turnwise.terminal.pager import SPARE_ROWS, Pages, PromptLeft, PromptStopped, rows_of, scrolls_away
from turnwise.terminal.rows import COLOUR, coloured, columns_of, fitted
from turnwise.terminal.terminal import Terminal
from turnwise.tools.workspace.previews import shortly
from turnwise.turn.config import Approval, OneAsk

MAX_SHOWN_LINES = 200
MAX_SHOWN_ROWS = 400  # a person scrolls back to read them; rows beyond that may be gone
ANSWERED_THEN = "after that your answer is taken"
ALLOWED_THEN = "after that the call can be allowed"
SETTLE_S = 1.0  # after Ctrl-C the turn ends, and this ask with it

ANSWERS = {
    **dict.fromkeys(["y", "yes"], "yes"),
    **dict.fromkeys(["a", "always"], "call"),
    **dict.fromkeys(["p"], "prefix"),
    **dict.fromkeys(["f"], "edits"),
    **dict.fromkeys(["e", "edit"], "edit"),
    **dict.fromkeys(["n", "no"], "no"),
    **dict.fromkeys(["d"], "why"),
    **dict.fromkeys(["l", "later"], "later"),
    **dict.fromkeys(["s", "show"], "all"),
    **dict.fromkeys(["?", "help"], "help"),
}


class Choosing(NamedTuple):
    """One answer: its text among the choices, and its explanation after `?`."""

    shown: str
    meaning: str

    @property
    def letter(self) -> str:
        return self.shown[1]


CHOICES = {
    "yes": Choosing("[y] yes, once", "y, yes     run it, this once"),
    "call": Choosing(
        "[a] always in this session",
        "a, always  run it, and do not ask again in this session for what the line above names",
    ),
    "prefix": Choosing(
        "[p] always if it begins so", "p          run it, and in this session whatever begins as the line above says"
    ),
    "edits": Choosing(
        "[f] all file changes", "f          run it, and in this session change files in this folder without asking"
    ),
    "edit": Choosing("[e] edit it first", "e, edit    change it yourself; what you make of it is shown before it runs"),
    "no": Choosing("[n] no", "n, no      do not run it; the model is told that you said no"),
    "why": Choosing(
        "[d] no, and say why", "d          do not run it, and tell the model why: you are asked for the reason"
    ),
    "later": Choosing("[l] later", "l, later   leave it for later: the run ends, `turnwise run --continue` asks again"),
    "all": Choosing("[s] show all of it", "s, show    show all of it, page by page; q leads back here"),
}


class TerminalApprover:
    """Asks one thing after the other; asks of sub-agents wait for their turn. `policy` holds what was allowed always, for all
    later asks and for further turns. `stop` is what Ctrl-C does; `before_command` runs before the first ask to run a command."""

    def __init__(
        self,
        terminal: Terminal,
        *,
        policy: Policy,
        around: AskSurroundings,
        stop: Callable[[], object],
        before_command: Callable[[], object],
        later: bool = True,
    ) -> None:
        self._terminal = terminal
        self.policy = policy
        self._around = around
        self._stop = stop
        self._before_command = before_command
        self._later = later

    async def __call__(self, asking: Asking) -> Sequence[Approval]:
        """The answers that came in time; the other asks get their default. While another ask has the terminal, no time runs."""
        approvals: list[Approval] = []
        began = self._around.clock.monotonic()
        try:
            if all([await self._is_allowed(ask) for ask in asking.asks]):
                return [answer_to(ask, verdict="allow") for ask in asking.asks]
            if any(self._around.is_command(ask) for ask in asking.asks):
                self._before_command()
            asking.waits()
            self._terminal.call("asks")
            async with self._terminal.taken():
                for ask in asking.asks:
                    if (answer := await self._in_time(ask, asking=asking)) is None:
                        self._terminal.tell(_not_answered(ask, path=asking.path))
                        continue
                    approvals.append(answer)
                    if ask is not asking.asks[-1]:
                        asking.keep(answer)
        except asyncio.CancelledError:
            if self._around.clock.monotonic() >= began + asking.deadline_s:  # the turn's own deadline came first
                answered = {answer.call_id for answer in approvals}
                for ask in [ask for ask in asking.asks if ask.call.id not in answered]:
                    self._terminal.tell(_not_answered(ask, path=asking.path))
            raise
        except PromptStopped:
            self._stop()
            await asyncio.sleep(SETTLE_S)
        except PromptLeft:
            self._terminal.tell("nobody is there any more: denied")
        return approvals

    async def _in_time(self, ask: OneAsk, *, asking: Asking) -> Approval | None:
        """None if nobody answered within the ask's own time, which runs from the moment that it is shown."""
        asking.waits()
        is_call = ask.kind == "approval"
        ask, shown = await self._prepared(ask, path=asking.path) if is_call else (ask, None)
        if is_call and shown is None:  # allowed after another ask was answered
            return answer_to(ask, verdict="allow")
        left_s = asking.shown()
        left_s = asking.deadline_s if left_s is None else left_s
        until = self._around.clock.monotonic() + left_s - min(SPARE_S, left_s / 10)
        try:
            async with asyncio.timeout(max(0.0, until - self._around.clock.monotonic())):
                if ask.kind == "steps":
                    return await self._steps(ask, asking=asking, until=until)
                if shown is None:
                    return await self._question(ask, path=asking.path, until=until)
                return await self._one(ask, shown=shown, path=asking.path, until=until)
        except TimeoutError:
            return None

    async def _prepared(self, ask: OneAsk, *, path: tuple[str, ...]) -> "tuple[OneAsk, _Shown | None]":
        """The ask as it is now, and what to show of it; None if no answer is needed any more."""
        if await self._is_allowed(ask):
            return ask, None
        facts = await self._around.facts(ask)
        ask = as_it_is_now(ask, facts=facts)
        wider = await asyncio.to_thread(widenings, facts, policy=self.policy)
        return ask, await self._shown(ask, facts=facts, path=path, wider=wider)

    async def _one(self, ask: OneAsk, *, shown: "_Shown", path: tuple[str, ...], until: float) -> Approval:
        has_more = shown.is_cut or scrolls_away([*shown.short, *shown.always])
        edited = text_to_edit(ask)
        possible = {
            **{scope: scope in shown.wider for scope in get_args(RememberedScope)},
            "edit": edited is not None,
            "later": self._later and ask.can_wait and not path,
            "all": has_more,
        }
        choices = [name for name in CHOICES if possible.get(name, True)]
        for line in shown.short:
            self._terminal.say(line, as_it_is=True)
        match await self._chosen(choices, shown=shown, until=until):
            case "yes":
                return answer_to(ask, verdict="allow")
            case "call" | "prefix" | "edits" as scope:
                rules = (*self.policy.rules, *shown.wider[scope].rules)
                self.policy = msgspec.structs.replace(self.policy, rules=rules)
                return answer_to(ask, verdict="allow", scope=scope)
            case "edit" if edited is not None:
                if (arguments := await self._edited(ask, edited, until=until)) is not None:
                    return answer_to(ask, verdict="allow", arguments=arguments)
                return await self._one(ask, shown=shown, path=path, until=until)
            case "later":
                return answer_to(ask, verdict="later")
            case "why":
                why = await self._terminal.line(lambda: f"why not ({self._left(until)}): ", ticks=True)
                return answer_to(ask, verdict="deny", text=why)
            case _:
                return answer_to(ask, verdict="deny")

    async def _edited(self, ask: OneAsk, given: tuple[str, str], *, until: float) -> str | None:
        """The arguments with the text as the person changed it; None: it stayed as it was."""
        key, text = given
        changed = await self._terminal.line(
            lambda: f"{key} ({self._left(until)}; empty: as it was): ", default=text, ticks=True, is_long=True
        )
        return None if changed in ("", text) else with_text(ask, key=key, text=changed)

    async def _steps(self, ask: OneAsk, *, asking: Asking, until: float) -> Approval:
        """Enter is a yes, as `[Y/n]` says."""
        question = steps_question(ask, asking=asking, around=self._around)
        while True:
            said = await self._terminal.line(
                lambda: f"{question} [Y/n] ({self._left(until)}, then no): ",
                ticks=True,
                fresh=True,
                takes_paste=False,
                letters=lambda: ("y", "n"),
            )
            if (
                answer := {"": "yes", "y": "yes", "yes": "yes", "n": "no", "no": "no"}.get(said.strip().lower())
            ) is not None:
                return answer_to(ask, verdict="allow" if answer == "yes" else "deny")
            self._terminal.say(f"`{visible_line(said)[:40]}` is no answer to this; it is y or n")

    async def _chosen(self, choices: Sequence[str], *, shown: "_Shown", until: float) -> str:
        """However long the call is, the question with its subject stays on the screen."""
        each = [CHOICES[name].letter for name in choices]
        letters = f"{', '.join(each[:-1])} or {each[-1]}"
        pages = Pages(shown.whole, coloured=has_colour(sys.stderr))
        below, said = rows_of(shown.short), None  # rows since the question was printed
        rows = _in_rows([CHOICES[name].shown for name in choices], columns=columns_of(sys.stderr) or 80)
        was_whole = not shown.is_cut and not scrolls_away([*shown.short, *shown.always, *rows])

        def at_once() -> Sequence[str]:
            return () if self._terminal.has_draft or not (was_whole or not pages.unshown_lines) else [*each, "?"]

        def again() -> None:
            for line in shown.short:
                self._terminal.say(line, as_it_is=True)
            for line in [*shown.always, *rows]:
                self._terminal.say(line)

        while True:
            if below + rows_of(shown.always) + SPARE_ROWS > shutil.get_terminal_size().lines:
                self._terminal.say(shown.question)
                below = rows_of(_own(shown.question))
            if said is None:
                for line in shown.always:
                    self._terminal.say(line)
                for row in rows:
                    self._terminal.say(row)
            said = await self._terminal.line(
                lambda: f"{letters}{'' if at_once() else ', then Enter'} ({self._left(until)}, then no): ",
                ticks=True,
                fresh=True,
                takes_paste=False,
                letters=at_once,
                again=again,
            )
            chosen = ANSWERS.get(said.strip().lower())
            if (
                chosen in ("yes", *get_args(RememberedScope))
                and chosen in choices
                and shown.is_cut
                and pages.unshown_lines
            ):
                self._terminal.say(pages.unshown_said(ALLOWED_THEN))
                below += 2
            elif chosen == "all" and chosen in choices:
                await self._terminal.page(
                    pages, question=lambda: f"? {shown.subject} ({letters}; {self._left(until)}, then no)"
                )
                if shown.is_cut and pages.unshown_lines:
                    self._terminal.say(pages.unshown_said(ALLOWED_THEN))
                self._terminal.say(shown.question)
                below = rows_of(_own(shown.question))
            elif chosen is not None and chosen in choices:
                return chosen
            elif chosen == "help":
                lines = [f"  {CHOICES[name].meaning}" for name in choices]
                for line in lines:
                    self._terminal.say(line)
                below += rows_of(lines) + 1
            else:
                typed = f"`{visible_line(said)[:40]}`" if said else "Enter"
                self._terminal.say(f"{typed} is no answer to this; it is {letters}; ? explains them")
                below += 2

    async def _question(self, ask: OneAsk, *, path: tuple[str, ...], until: float) -> Approval:
        marks = confusables_in([ask.call.name, ask.subject, *ask.options], folder=lambda: self._around.workspace.root)
        options = [f"  {number}. {visible_line(option)}" for number, option in enumerate(ask.options, 1)]
        warned = [_style(f"  {line}", "red", "bold") for line in marks.lines]
        whole = [*map(marks.mark, [*heading(ask, path=path), *options]), *warned]
        for line in whole[:MAX_SHOWN_LINES]:
            self._terminal.say(line)
        is_long = scrolls_away(whole)
        pages = Pages([COLOUR.sub("", line) for line in whole] if is_long else [], coloured=False)
        hint = "a number, or your own words; empty: no answer" if ask.options else "empty: no answer"
        hint = f"{hint}; s shows all of the question" if is_long else hint
        then = "the model decides" if ask.by == "model" else "denied"
        text = ""

        def asked() -> str:
            return f"{hint} ({self._left(until)}, then {then}): "

        while True:
            said = await self._terminal.line(asked, default=text, ticks=True, fresh=True)
            text = said.strip()
            if not text:
                return answer_to(ask, verdict="deny")
            if is_long and text.lower() in {"s", "show"}:
                text = ""
                await self._terminal.page(pages, question=asked)
                self._terminal.say(pages.unshown_said(ANSWERED_THEN))
            elif is_long and pages.unshown_lines:  # the text stays at the prompt
                self._terminal.say(pages.unshown_said(ANSWERED_THEN))
            elif not (ask.options and text.isdecimal()):
                return answer_to(ask, verdict="allow", text=text)
            elif 1 <= int(text[:9]) <= len(ask.options):
                return answer_to(ask, verdict="allow", text=ask.options[int(text) - 1])
            else:
                self._terminal.say(f"there is no answer {text[:9]}; they are 1 to {len(ask.options)}")
                text = ""

    async def _is_allowed(self, ask: OneAsk) -> bool:
        """Whether something that was allowed always now covers it."""
        if ask.kind != "approval":
            return False
        return is_allowed(await self._around.facts(ask), policy=self.policy)

    async def _shown(
        self, ask: OneAsk, *, facts: CallFacts, path: tuple[str, ...], wider: Mapping[RememberedScope, Widened]
    ) -> "_Shown":
        """What the person decides: the call, and the diff of what a file tool would do if it were allowed."""
        what, changes = await self._around.would_do(ask, facts=facts)
        short = shortly(changes)
        whole = {
            scope: f"[{CHOICES[scope].letter}] would allow in this session: {one.said}" for scope, one in wider.items()
        }
        more = [line for line in whole.values() if ends_of(line) != line]
        names = [ask.call.name, *path]
        marks = await asyncio.to_thread(
            confusables_in, [*names, *what, *changes], folder=lambda: self._around.workspace.root
        )
        warned = [_style(f"  {line}", "red", "bold") for line in marks.lines]
        question = question_of(ask, changes=changes)
        above = heading(ask, path=path, what=what, question=question)
        diff = [coloured(line, stream=sys.stderr) for line in short]
        lines = [*map(marks.mark, [*above, *diff]), *warned]
        is_long = len(what) > MAX_SHOWN_LINES or rows_of(lines) > MAX_SHOWN_ROWS
        return _Shown(
            subject=marks.mark(_asked_by(question if question != RUN_THIS else _named(ask), path=path)),
            short=tuple(lines),
            whole=(*map(marks.mark, [*what, *changes, *more]), *marks.lines),
            is_cut=short != changes or is_long or bool(more),
            wider=wider,
            always=tuple([marks.mark(f"  {ends_of(line)}") for line in whole.values()]),
        )

    def _left(self, until: float) -> str:
        return f"{max(0, round(until - self._around.clock.monotonic()))} s"


class _Shown(msgspec.Struct, frozen=True, kw_only=True):
    """One ask on the screen. `short` are its lines as shown first, `whole` is everything that would run and change; `is_cut`:
    they differ, or do not all stay in reach. `subject` names it on one line; `always` says what `wider` answers allow."""

    subject: str
    short: tuple[str, ...]
    whole: tuple[str, ...]
    is_cut: bool
    wider: Mapping[RememberedScope, Widened]
    always: tuple[str, ...] = ()

    @property
    def question(self) -> str:
        return _style(f"? {self.subject}", "bold")


def heading(ask: OneAsk, *, path: tuple[str, ...], what: Sequence[str] = (), question: str = "") -> list[str]:
    """What is asked, and why an answer is needed. Nothing of the call is hidden: control characters are spelled out. What the
    `question` holds is not said again."""
    who = f" (asked by {path_said(path)})" if path else ""
    if ask.kind == "question":
        asks = "the model asks" if ask.by == "model" else f"{visible_line(ask.call.name)} asks"
        why = _own(f"  asked because: {visible_line(ask.why)}") if ask.why else []
        return [_style(f"? {asks}{who}:", "bold"), *[f"    {line}" for line in visible(ask.subject).split("\n")], *why]
    question, block = question or question_of(ask), list(what or what_of(ask))
    verb, _, asked = question.partition(" ")
    if block and asked == (f"`{block[0]}`?" if verb == "Run" else f"{block[0]}?"):
        block = block[1:]
    lines = [*_own(_style(f"? {_asked_by(question, path=path)}", "bold")), *_block(block)]
    why = why_of(ask)
    return [*lines, *_own(f"  asked because: {visible_line(why)}")] if why else lines


def _in_rows(choices: Sequence[str], *, columns: int) -> list[str]:
    """The choices side by side; none is broken at the end of a row."""
    rows: list[str] = []
    for choice in choices:
        if rows and len(rows[-1]) + 2 + len(choice) < columns:
            rows[-1] += f"  {choice}"
        else:
            rows.append(choice)
    return rows


def _own(line: str) -> list[str]:
    """A line of turnwise's in rows of whole words. Only the terminal breaks the call's own lines: no row of ours looks like
    another line of the command."""
    return fitted(line, columns=columns_of(sys.stderr)).split("\n")


def _named(ask: OneAsk) -> str:
    return f"Run {ends_of(visible_line(ask.subject))}"


def _asked_by(question: str, *, path: tuple[str, ...]) -> str:
    return f"{question} (asked by {path_said(path)})" if path else question


def _block(lines: Sequence[str]) -> list[str]:
    shown = [f"    {line}" for line in lines[:MAX_SHOWN_LINES]]
    if len(lines) > MAX_SHOWN_LINES:
        warning = f"    [{len(lines) - MAX_SHOWN_LINES} MORE LINES ARE NOT SHOWN]"
        shown.append(_style(warning, "red", "bold"))
    return shown


def _not_answered(ask: OneAsk, *, path: tuple[str, ...]) -> str:
    who = f"{path_said(path)} › " if path else ""
    default = "the model decides itself" if ask.kind == "question" and ask.by == "model" else "denied"
    if ask.kind == "steps":
        return "no answer in time: the next step is the last"
    return f"no answer in time to {who}{visible_line(ask.call.name)}: {default}"


def _style(text: str, *styles: str) -> str:
    return style(text, *styles, stream=sys.stderr)
