"""Draws docs/side-by-side.md from the figures that scripts/side_by_side.py kept."""

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from real_agents.errands import ERRANDS, PROBES  # noqa: E402  # pyright: ignore[reportMissingImports]
from real_agents.roster import AGENTS  # noqa: E402  # pyright: ignore[reportMissingImports]
from real_agents.seats import SEATS, Seat  # noqa: E402  # pyright: ignore[reportMissingImports]

WAYS = {"all": "yes for more", "each": "yes, once"}
PAGE = """# Questions and keys, side by side
<!-- drawn by scripts/side_by_side.py from a run; change scripts/side_by_side_page.py, not this page -->

How often does an agent at a terminal ask, and how many keys does it take? One scripted model (the [lab](lab.md), through
`turnwise gateway`) works with turnwise and with {peers}. A program sits at a real
pseudo-terminal, knows each agent's questions, and answers yes by the fewest keys.

No large model was asked. The figures say how the agents ask about the same calls, and nothing about how well they work.

## The modes
{modes}

## {edits}
The tests run (and fail), each of six files is read and edited, the tests run again (and pass). Each response has one call.

{edits_table}

## {refactoring}
21 files are read and edited, the tests run 12 times, and six searches look for the old name. Each response has one call.

{refactoring_table}

- **answers**: `yes, once` answers each question for itself. `yes for more` chooses the answer that holds for more than this
  call, wherever there is one, as a person does who knows the agent. One line with a dash: nothing was asked.
- **keys**: all keys of the answers. The prompt and its Enter are not counted.
- **requests**: those that reached the model, with an agent's own for titles and the like.
- **seconds**: from Enter to the end of the answer. The program looks at the screen for 0.4 s before it answers, and the machine
  was busy, so only large differences mean something.

## Before the first prompt
Themes, notes on safety, and whether the folder is trusted, on a new machine with the model's address already set:

{before_table}

## What a mode lets through
Fewer questions are worth something only if commands are held by something else. The scripted model runs one command for each
row, in a repository, with a home folder made for the test and a server on loopback. `through`: it happened without a question.
`asks`: a person is asked first. `held`: it did not happen, and nobody was asked.

{probes_table}

{notes}

## Do it again
`python scripts/side_by_side.py --setup` installs the agents, `python scripts/side_by_side.py --json FILE` sits at each of them,
one after the other (half an hour), and `python scripts/side_by_side.py --draw FILE` writes this page. `--screens FOLDER` keeps
the screen of every question. `tests/real_agents/seats.py` is the table of modes: another mode is another row.
"""

NOTES = """\
- **Claude Code** starts in auto mode. It edits files in the folder unasked; a check on Anthropic's server judges commands.
  Behind a gateway this check cannot be reached: Claude Code says so, asks once whether to stay, and then asks about each
  command. So the figures of its first start hold behind a gateway only. In manual mode its answer for more holds for
  `pytest *`, and for all edits.
- **Codex** asks nothing here, because a sandbox holds its commands from the first start on. That sandbox lets a command read the
  user's keys; what a command prints goes to the model. Claude Code's sandbox lets it, too.
- **opencode** has no sandbox. It runs commands unasked; it judges by their words whether they leave the folder, and asks where
  a path outside is named.
- **turnwise** asks where a command names a key, a hook or a path outside, in sandbox mode too, and its sandbox holds what the
  words do not show. Before the last of 20 steps it asks whether the turn may take 20 more (Enter): two questions of the
  refactoring in each mode, and all of sandbox mode's. The others have no such limit. Its first start asks more than those of
  Codex and opencode, which ask nothing: the table above says what these let through.

## What was not tried
- A large live model, and Claude Code's auto mode with its check on the server.
- Models that ask for more: Codex's request to leave the sandbox, Claude Code's `dangerouslyDisableSandbox`.
- opencode's `--auto`, Claude Code's `bypassPermissions`, Codex's `danger-full-access`: nothing holds commands there.
- Codex's background server (`--no-daemon` was given), MCP servers, hooks, sub-agents, `fetch`, and attempts to break a sandbox.
- Another system than Linux, and another user than root."""


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    heads = list(head)
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    return "\n".join([*lines, *[f"| {' | '.join(row)} |" for row in rows]])


def shown(seat: Seat) -> str:
    return f"{seat.title}: {seat.mode}"


def counted(name: str, figures: Mapping[str, Any]) -> str:
    head = ("agent and mode", "answers", "questions", "keys", "requests", "seconds", "files")
    rows: list[list[str]] = []
    for seat in SEATS:
        found = {way: figures[key] for way in ("each", "all") if (key := f"{seat.name}|{name}|{way}") in figures}
        same = len({(one["questions"], one["keys"]) for one in found.values()}) == 1
        for way, one in list(found.items())[: 1 if same else None]:
            answers = "-" if not one["questions"] else "any" if same and len(found) > 1 else WAYS[way]
            files = "right" if one["right"] and one["passed"] else "wrong"
            files += "" if one["how"] == "done" else f", {one['how']}"
            counts = [str(one[key]) for key in ("questions", "keys", "requests")]
            rows.append([shown(seat), answers, *counts, f"{one['seconds']:.0f}", files])
    return table(head, rows)


def before(figures: Mapping[str, Any]) -> str:
    rows = [
        [seat.title, str(one["before"]), str(one["keys_before"])]
        for seat in SEATS
        if not seat.given and (one := figures.get(f"{seat.name}|edits|all"))
    ]
    return table(("agent", "questions", "keys"), rows)


def let_through(figures: Mapping[str, Any]) -> str:
    seats = [seat for seat in SEATS if f"{seat.name}|probes|-" in figures]
    rows = [
        [probe.title, *[figures[f"{seat.name}|probes|-"][name] for seat in seats]] for name, probe in PROBES.items()
    ]
    return table(("can a command ...", *[shown(seat) for seat in seats]), rows)


def drawn(figures: Mapping[str, Any]) -> str:
    peers = [
        f"{AGENTS[name].title} {AGENTS[name].version}"
        for name in dict.fromkeys(s.agent for s in SEATS)
        if name in AGENTS
    ]
    modes = [[shown(seat), seat.given or "nothing: as it starts", seat.sandbox] for seat in SEATS]
    return PAGE.format(
        peers=f"{', '.join(peers[:-1])} and {peers[-1]}",
        modes=table(("agent and mode", "set by", "what holds its commands"), modes),
        edits=ERRANDS["edits"].title.capitalize(),
        refactoring=ERRANDS["refactoring"].title.capitalize(),
        edits_table=counted("edits", figures),
        refactoring_table=counted("refactoring", figures),
        before_table=before(figures),
        probes_table=let_through(figures),
        notes=NOTES,
    )
