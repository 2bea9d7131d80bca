"""What a verdict rests on, as data: the paths that a call touches and the commands that it would run.

Drivers find it out (`tools/shell_judge`), the journal keeps it, `rules/permissions` judges it. Nothing here is looked up.
"""

from typing import Literal

import msgspec

Access = Literal["read", "write"]


class PathFact(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One path of a call. `given` is the text of the call, `lexical` the absolute path that it spells, `resolved` where that
    leads (symbolic links followed, a missing tail kept). `resolved` is empty where it cannot be known: after a `cd` to an
    unknown place, or for text that is no path. `inside` is whether it leads into the workspace, or with `private` into the
    folder that commands have for themselves. `holds` names a secret file below the folder, where the command searches files
    (`rg`, `grep -r`). `kept`: turnwise wrote it for the model, which may read it. `passing`: it lies in a folder that goes with a
    run of turnwise, so no rule about it holds in the next. A name that is no UTF-8 is escaped, behind two slashes. `absent`: the
    word is text, or nothing of that name is there, so no secret is read by it."""

    given: str
    resolved: str = ""
    lexical: str = ""
    inside: bool = False
    access: Access = "read"
    holds: str = ""
    kept: bool = False
    passing: bool = False
    private: bool = False
    absent: bool = False


class Word(msgspec.Struct, frozen=True, omit_defaults=True):
    """One word of a command, quotes removed. Not `literal`: what it will be is known only when the command runs (a variable, a
    substitution). `paths` are those that the word may name; all matches of a glob. `glob`: bash puts names of files in its
    place. `veiled`: not literal, though the command spells it out (braces with many choices, `~user`): a path may hide in it."""

    text: str
    literal: bool = True
    paths: tuple[PathFact, ...] = ()
    glob: bool = False
    veiled: bool = False


class Assignment(msgspec.Struct, frozen=True, omit_defaults=True):
    """`NAME=value`, before a command, by itself, or by a builtin that sets variables. `exported`: programs see it."""

    name: str
    value: str = ""
    literal: bool = True
    exported: bool = False


class CommandFact(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One simple command, wherever in the script it stands. `words[0]` is its name; no words: assignments or redirections alone.

    `within` are the commands that run it, outermost first (`sudo`, `xargs`, `bash -c`). `carries`: it only runs others, which
    are facts of their own. `guessed`: another command may run it; only prohibitions look at it. `opaque` says why what it runs
    cannot be known; `doubt` why it may do more than its words say. `redirections` are files that it opens. `place_holds` is what
    `PathFact.holds` is, for the folder in which it runs. `programs` are names and the files that they lead to, where
    `ShellFacts.mixed_path` is true. `fed`: its input is a pipe, a file or text of the script, which its words do not show.
    `places` are the folders in which it may run, if that is not the workspace alone; an empty name is an unknown folder."""

    words: tuple[Word, ...]
    text: str
    assignments: tuple[Assignment, ...] = ()
    redirections: tuple[PathFact, ...] = ()
    within: tuple[str, ...] = ()
    carries: bool = False
    guessed: bool = False
    opaque: str = ""
    doubt: str = ""
    place_holds: str = ""
    programs: tuple[tuple[str, str], ...] = ()
    fed: bool = False
    places: tuple[str, ...] = ()


class ShellFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Every command of a script. Not `parsed`: `problem` says why, and `commands` is not the whole truth. `mixed_path`: PATH has
    folders in which commands can write."""

    commands: tuple[CommandFact, ...] = ()
    parsed: bool = True
    problem: str = ""
    mixed_path: bool = False


class CallFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One call: its tool, the tool's effect (`none, read, write, execute`), the paths among its arguments and, for a shell,
    what it would run. `unknown` says why that was not found out, though it should have been; then it is asked about. `state`
    stands for what the paths of a call that writes hold now: what it would change is a change of that."""

    call_id: str
    tool: str
    effect: str
    paths: tuple[PathFact, ...] = ()
    shell: ShellFacts | None = None
    unknown: str = ""
    state: str = ""
