"""What a turn asks that workers run, in words a person can judge, with the command that answers."""

from datetime import datetime
from itertools import groupby
from pathlib import Path

from turnwise.drivers.dispatch.open_asks import ShownAsk
from turnwise.drivers.dispatch.turn_status import A_PERSON, A_PERSON_BELOW, TurnStatus
from turnwise.faces.cli.asked_calls import confusables_in, decoded_texts
from turnwise.faces.cli.text import visible_line

ANSWERED = {"allow": "allowed", "deny": "denied"}


def asks_said(turn: TurnStatus) -> list[str]:
    """A line for each ask, and how to answer; nothing where nothing is asked."""
    said: list[str] = []
    for (path, folder, until), asks in groupby(turn.asks, key=lambda ask: (ask.path, ask.folder, ask.until)):
        who = f"{visible_line('/'.join(path))} asks" if path else "asks"
        when = "" if until is None else f", until {datetime.fromtimestamp(until):%Y-%m-%d %H:%M:%S}"
        said.append(f"  {who}, in {visible_line(folder or 'a folder that is not known')}{when}:")
        said += [line for ask in asks for line in _said(ask)]
    if turn.asks and turn.waits_for not in (A_PERSON, A_PERSON_BELOW):
        return [*said, "  it takes no answer any more: everything is answered, or its time is over"]
    first = next((ask for ask in turn.asks if not ask.answer), None)
    if first is not None and first.kind == "question":
        said.append(
            f"  answer: turnwise answer {visible_line(turn.session)} --reply {visible_line(first.id)}@{first.mark} "
            '"TEXT"  (or --deny)'
        )
    elif first is not None:
        said.append(
            f"  answer: turnwise answer {visible_line(turn.session)} --approve {visible_line(first.id)}@{first.mark}  (or --deny)"
        )
    return said


def _said(ask: ShownAsk) -> list[str]:
    """All of the arguments are shown: nobody judges what is left out. Words that look like others are marked."""
    answer = f"  ({ANSWERED.get(ask.answer, ask.answer)})" if ask.answer else ""
    if ask.kind == "question":
        options = [f"      {number}. {visible_line(option)}" for number, option in enumerate(ask.options, 1)]
        said = [f"    {visible_line(ask.id)}@{ask.mark}  asks: {visible_line(ask.subject)}{answer}", *options]
    else:
        said = [
            f"    {visible_line(ask.id)}@{ask.mark}  {visible_line(ask.tool)} {visible_line(ask.arguments)}{answer}",
            *([f"      {visible_line(ask.why)}"] if ask.why else []),
        ]
    texts = [ask.tool, *decoded_texts(ask.arguments), ask.subject, *ask.options]
    marks = confusables_in(texts, folder=lambda: Path(ask.folder))
    return [*map(marks.mark, said), *[f"      {line}" for line in marks.lines]]
