"""The few commands that only read, with the options that leave them so. Whatever is not listed here is not allowed by default.

Options are listed by name, not excluded by name: `sort -o`, `git log --output`, `find -fprint`, `date -s`, `tree -o`,
`rg --pre` write or run, and the next version may bring one more. Long options count in full only, as an abbreviation may come
to mean another one.
"""

import re
from collections.abc import Collection, Sequence
from typing import Protocol

import msgspec

from turnwise.rules.permission_facts import CommandFact, ShellFacts, Word, is_doubtful, is_harmless, steers

# `%n` sets a variable.
COUNTS = re.compile(r"%[-+ #0-9.*'hlLjztq]*n")


class ListedOptions(Protocol):
    """The options of a command, as `ReadingCommand` lists them."""

    @property
    def flags(self) -> str: ...
    @property
    def valued(self) -> str: ...
    @property
    def long(self) -> Collection[str]: ...
    @property
    def long_valued(self) -> Collection[str]: ...


class ReadingCommand(msgspec.Struct, frozen=True, kw_only=True):
    """`flags` are letters of options without a value, `valued` of those with one; `long` and `long_valued` likewise. The first
    `patterns` operands are text; the others are paths, unless `speaks`: then all operands are text. `searches`: it looks at
    all files below its operands, or where it runs if it has none. At most `most` operands."""

    flags: str = ""
    valued: str = ""
    long: frozenset[str] = frozenset()
    long_valued: frozenset[str] = frozenset()
    patterns: int = 0
    speaks: bool = False
    searches: bool = False
    most: int | None = None


def _reader(
    flags: str = "", *, valued: str = "", long: str = "", values: str = "", patterns: int = 0, speaks: bool = False,
    searches: bool = False, most: int | None = None,
) -> ReadingCommand:  # fmt: skip
    return ReadingCommand(
        flags=flags,
        valued=valued,
        long=frozenset(f"--{name}" for name in long.split()),
        long_valued=frozenset(f"--{name}" for name in values.split()),
        patterns=patterns,
        speaks=speaks,
        searches=searches,
        most=most,
    )


_GREP = _reader(
    "rEFGPivwxcLlqsbHhnozaTyU",
    valued="mABCe",
    long="""extended-regexp fixed-strings basic-regexp perl-regexp ignore-case no-ignore-case invert-match word-regexp
    line-regexp count files-without-match files-with-matches only-matching quiet silent no-messages byte-offset recursive
    with-filename no-filename line-number initial-tab null text color colour""",
    values="max-count after-context before-context context color colour label binary-files regexp",
    patterns=1,
    searches=True,
)
_TEXT_OUT = _reader(speaks=True)

READERS: dict[str, ReadingCommand] = {
    ":": _TEXT_OUT,
    "true": _TEXT_OUT,
    "false": _TEXT_OUT,
    "exit": _reader(speaks=True, most=1),
    "type": _reader("apPt", speaks=True),
    "printf": _reader(speaks=True),
    "pwd": _reader("LP", most=0),
    "echo": _TEXT_OUT,
    "whoami": _reader(most=0),
    "id": _reader("ugGnrz", long="user group groups name real zero", most=0),
    "uname": _reader("asnrvmpio", long="all kernel-name nodename kernel-release machine", most=0),
    "nproc": _reader(long="all", most=0),
    "arch": _reader(most=0),
    "which": _reader("as", speaks=True),
    "basename": _reader("az", valued="s", speaks=True),
    "dirname": _reader("z", speaks=True),
    "seq": _reader("w", valued="sf", speaks=True),
    "sleep": _reader(speaks=True, most=1),
    "cd": _reader("LP", most=1),
    "ls": _reader(
        "aAbBcCdfFgGhHiklLmnNopqQrRsStuUvxXZ1",
        valued="wTI",
        long="""all almost-all author escape directory classify file-type full-time group-directories-first no-group
        human-readable si inode kibibytes dereference numeric-uid-gid literal quote-name reverse recursive size color""",
        values="color sort time time-style format width indicator-style block-size ignore hide",
    ),
    "cat": _reader(
        "AbeEnstTuv", long="show-all number-nonblank show-ends number squeeze-blank show-tabs show-nonprinting"
    ),
    "tac": _reader(),
    "nl": _reader("p", valued="bdfhilnsvw"),
    "head": _reader("qvz0123456789", valued="nc", long="quiet silent verbose", values="lines bytes"),
    "tail": _reader("qvz0123456789", valued="nc", long="quiet silent verbose", values="lines bytes"),
    "wc": _reader("clLmw", long="bytes chars lines max-line-length words"),
    "cut": _reader("nsz", valued="bcdf", long="complement only-delimited", values="bytes characters delimiter fields"),
    "uniq": _reader("cdDiuz", valued="fsw", long="count repeated ignore-case unique", most=1),
    "sort": _reader(
        "bdfghiMnRrVcCmsuz",
        valued="kt",
        long="""ignore-leading-blanks dictionary-order ignore-case general-numeric-sort human-numeric-sort numeric-sort
        reverse version-sort check stable unique zero-terminated""",
        values="key field-separator sort",
    ),
    "tr": _reader("cCdst", long="complement delete squeeze-repeats truncate-set1", speaks=True),
    "rev": _reader(),
    "fold": _reader("bs", valued="w"),
    "column": _reader("tx", valued="scN"),
    "comm": _reader("123z"),
    "paste": _reader("sz", valued="d"),
    "diff": _reader(
        "qsuceyiEZbwBatpTN",
        valued="UCWI",
        long="""brief report-identical-files side-by-side ignore-case ignore-all-space ignore-space-change ignore-blank-lines
        text expand-tabs minimal color suppress-common-lines unified context""",
        values="unified context width color",
        searches=True,
    ),
    "cmp": _reader("bls", valued="in"),
    "stat": _reader("Lft", valued="c", long="dereference file-system terse", values="format printf"),
    "file": _reader("bihkLNr0", long="brief mime mime-type mime-encoding dereference"),
    "du": _reader(
        "0abchHklmPsSx",
        valued="dtB",
        long="all apparent-size bytes total human-readable summarize",
        values="max-depth",
    ),
    "df": _reader("ahHiklPT", valued="t", long="all human-readable inodes local print-type total"),
    "realpath": _reader("eLmPqsz", long="canonicalize-existing canonicalize-missing no-symlinks quiet"),
    "readlink": _reader("femnqsvz", long="canonicalize canonicalize-existing canonicalize-missing"),
    "md5sum": _reader("btz"),
    "sha1sum": _reader("btz"),
    "sha256sum": _reader("btz"),
    "cksum": _reader(),
    "hexdump": _reader("bCcdovx", valued="ns"),
    "od": _reader("abcdfilosxv", valued="ANjtw"),
    "strings": _reader("ao", valued="nte"),
    "test": _reader(speaks=True),
    "[": _reader(speaks=True),
    "grep": _GREP,
    "egrep": _GREP,
    "fgrep": _GREP,
    "rg": _reader(
        "FPisSvwxcloqnNHIUp0h",
        valued="mABCetTj",
        long="""fixed-strings pcre2 ignore-case case-sensitive smart-case invert-match word-regexp line-regexp count
        count-matches files files-with-matches files-without-match only-matching quiet line-number no-line-number
        with-filename no-filename multiline multiline-dotall pretty no-heading heading column trim json vimgrep stats
        no-config no-messages type-list version""",
        values="""max-count after-context before-context context regexp type type-not color colors max-depth max-columns sort
        sortr threads""",
        patterns=1,
        searches=True,
    ),
    "tree": _reader(
        "adfipsughDFLnCrtcvUQ",
        valued="LIP",
        long="dirsfirst noreport du prune gitignore ignore-case",
        values="filelimit sort charset",
    ),
    "jq": _reader(
        "cnrjaSCMse",
        valued="",
        long="""compact-output null-input raw-output join-output ascii-output sort-keys color-output monochrome-output slurp
        exit-status tab""",
        values="indent",
        patterns=1,
    ),
}

# Subcommands of git that read, with their options. Colons are refused beside them: `git show HEAD:.env` names no path.
_LOG = _reader(
    "pusrwbMCzicE0123456789",
    valued="nLSGUlO",
    long="""oneline graph decorate all branches tags remotes stat shortstat numstat summary patch no-patch name-only
    name-status abbrev-commit follow merges no-merges first-parent reverse date-order author-date-order topo-order raw
    full-index cached staged color no-color word-diff minimal patience histogram ignore-all-space ignore-space-change
    ignore-space-at-eol ignore-blank-lines check no-ext-diff no-textconv no-renames find-renames find-copies exit-code quiet
    relative left-right cherry-pick cherry-mark simplify-merges pickaxe-regex pickaxe-all regexp-ignore-case
    merge-base no-prefix compact-summary dirstat""",
    values="""max-count skip since until after before author committer grep format pretty date decorate stat unified abbrev
    diff-filter word-diff color inter-hunk-context diff-algorithm min-parents max-parents find-renames""",
)
_GIT: dict[str, ReadingCommand] = {
    "status": _reader(
        "sbvuz",
        long="short branch show-stash porcelain long verbose ignored no-renames ahead-behind no-ahead-behind",
        values="porcelain untracked-files ignored ignore-submodules column",
    ),
    "log": _LOG,
    "diff": _LOG,
    "show": _LOG,
    "shortlog": _reader("nse", long="numbered summary email", values="since until"),
    "blame": _reader(
        "lstwefnCMc", valued="L", long="root show-stats show-name show-number porcelain", values="date abbrev"
    ),
    "ls-files": _reader(
        "cdmoistuz",
        valued="x",
        long="cached deleted modified others ignored stage exclude-standard full-name error-unmatch",
    ),
    "ls-tree": _reader("drtlz", long="long name-only name-status full-name full-tree"),
    "rev-parse": _reader(
        "q",
        long="verify short abbrev-ref symbolic show-toplevel show-prefix is-inside-work-tree git-dir all branches tags quiet",
        values="short abbrev-ref",
    ),
    "rev-list": _reader("n0123456789", long="count all merges no-merges left-right", values="max-count since until"),
    "merge-base": _reader("a", long="all is-ancestor"),
    "describe": _reader("", long="tags all always long contains", values="match abbrev"),  # `--dirty` writes the index
    "branch": _reader("avrl", long="all remotes list verbose show-current", values="contains merged no-merged", most=0),
    "tag": _reader("ln", long="list", values="contains", most=0),
    "remote": _reader(most=0),
    "stash": _reader(most=0),
    "version": _reader(most=0),
}

_FIND_FLAGS = frozenset(
    """-print -print0 -ls -depth -mount -xdev -daystart -empty -readable -writable -executable -prune -quit -not ! -a -o -and
    -or ( ) -true -false -nouser -nogroup -noleaf -P -H -d""".split()
)
_FIND_VALUED = frozenset(
    """-name -iname -path -ipath -wholename -iwholename -regex -iregex -type -size -mtime -mmin -ctime -cmin -atime -amin
    -newer -maxdepth -mindepth -perm -user -group -links -inum -regextype -printf""".split()
)
_SED_LINE = r"(?:[0-9]+|\$|/[^/\\\n]*/)"
_SED_PRINTS = re.compile(rf"(?:{_SED_LINE}(?:,(?:{_SED_LINE}|[+~][0-9]+))?)?!?p")
# Not those that a file in the folder makes run or fetch another version: yarn, pnpm, cargo, rustc, go, pytest, pyright.
_ASKS_VERSION = frozenset(
    """python python3 node npm npx deno ruby perl java javac gcc g++ clang make cmake uv pip pip3 git docker ruff mypy
    bash""".split()
)
# What `is_reading` below goes by the name of.
READING_NAMES = frozenset(READERS) | _ASKS_VERSION | {"git", "find", "sed", "date", "command"}


def is_reading(command: CommandFact) -> bool:
    """Whether the command, as far as its words go, changes nothing, runs nothing else and reaches no network.

    That its paths are harmless is another question; that they are known is part of this one.
    """
    if not command.words:
        return not any(steers(assignment) or is_doubtful(assignment) for assignment in command.assignments)
    if not all(is_harmless(assignment) for assignment in command.assignments):
        return False
    if not all(_is_plain(word) for word in command.words):
        return False
    name, *rest = command.words
    texts = [word.text for word in rest]
    if name.text == "printf" and any(COUNTS.search(word.text) or word.glob for word in rest):
        return False
    if name.text == "cd" and (len(texts) != 1 or not texts[0] or texts[0].startswith("-")):
        return False  # where what comes after it looks would not be known
    if name.paths and len(name.paths) > 1:  # a glob for a name
        return False
    if name.text in _ASKS_VERSION and texts in (["--version"], ["-V"]):
        return True
    if name.text in ("node", "npm") and texts == ["-v"]:
        return True
    if name.text == "git":
        return _git_reads(rest)
    if name.text == "find":
        return _find_reads(rest)
    if name.text == "sed":
        return _sed_reads(rest)
    if name.text in ("[", "test"):
        return _test_reads(rest, closed=name.text == "[")
    if name.text == "date":
        return all(text in ("-u", "-R", "-I", "--utc") or text.startswith("+") for text in texts)
    if name.text == "command":
        return len(texts) > 1 and texts[0] in ("-v", "-V")
    if name.text == "ls" and _follows_below(texts):
        return False
    if name.text in ("rg", "cd") and any(_is_hidden(word) for word in rest):
        return False
    if name.text == "strings" and any(text.startswith("@") for text in texts):
        return False  # a file of further words
    if name.text == "jq" and any("env" in text.casefold() or "clude" in text or "import" in text for text in texts):
        return False
    reader = READERS.get(name.text)
    return reader is not None and _fits(rest, reader=reader, place_holds=command.place_holds)


def speaks(command: CommandFact) -> bool:
    """Whether the command takes all its words for text, and none for a path."""
    reader = READERS.get(command.words[0].text) if command.words and command.words[0].literal else None
    return reader is not None and reader.speaks


def _sed_reads(words: list[Word]) -> bool:
    """`sed -n 10,20p file`: lines by number or pattern are printed, and nothing else."""
    if len(words) < 2 or words[0].text != "-n" or _SED_PRINTS.fullmatch(words[1].text) is None:
        return False
    return all(not word.text.startswith("-") and _is_known(word) for word in words[2:])


def _is_plain(word: Word) -> bool:
    return word.literal and "\0" not in word.text


def _fits(words: list[Word], *, reader: ReadingCommand, place_holds: str = "") -> bool:
    """Read the options as getopt does; whatever is not listed fails."""
    operands: list[Word] = []
    patterns = reader.patterns
    at = 0
    ended = False
    while at < len(words):
        text = words[at].text
        at += 1
        if ended or not text.startswith("-") or text == "-":
            operands.append(words[at - 1])
        elif text == "--":
            ended = True
        else:
            taken = option_takes(text, listed=reader)
            if taken is None:
                return _speaks_dashes(reader)
            if taken and at < len(words) and _is_option(words[at].text):
                return False  # where the value may be left out, this is an option of its own
            at += taken
            if text.startswith("--regexp") or _valued_letter(text, reader=reader) == "e":
                patterns = 0
            if at > len(words):
                return False
    if reader.most is not None and (len(operands) > reader.most or any(word.glob for word in operands)):
        return False  # a glob may come to several
    if any(word.glob for word in operands[:patterns]):
        return False
    if reader.speaks:
        return True
    if reader.searches and not operands[patterns:] and place_holds:
        return False
    return all(_is_known(word) and not any(path.holds for path in word.paths) for word in operands[patterns:])


def _is_option(text: str) -> bool:
    return text.startswith("-") and not text[1:2].isdigit()


def _follows_below(texts: list[str]) -> bool:
    """`ls -RL` lists the folders to which links lead, wherever they are; so do `du -L`, `tree -l` and `find -L`, which are not
    listed at all."""
    letters = {letter for text in texts if re.match(r"-[^-]", text) for letter in text}
    return ("R" in letters or "--recursive" in texts) and ("L" in letters or "--dereference" in texts)


def _is_hidden(word: Word) -> bool:
    """Whether it names a hidden folder: searching it, or working in it, shows what is otherwise passed over."""
    segments = word.text.split("/") + [part for path in word.paths for part in path.resolved.split("/")]
    return any(part.startswith(".") and part not in (".", "..") for part in segments)


def _speaks_dashes(reader: ReadingCommand) -> bool:
    """`echo --anything` prints it."""
    return reader is _TEXT_OUT


def option_takes(text: str, *, listed: ListedOptions) -> int | None:
    """How many further words the option takes; None where it is not listed."""
    if text.startswith("--"):
        name, equals, _ = text.partition("=")
        if equals:
            return 0 if name in listed.long_valued else None
        return 0 if name in listed.long else 1 if name in listed.long_valued else None
    for at, letter in enumerate(text[1:], start=1):
        if letter in listed.valued:
            return 1 if at == len(text) - 1 else 0
        if letter not in listed.flags:
            return None
    return 0


def _valued_letter(text: str, *, reader: ReadingCommand) -> str:
    return "" if text.startswith("--") else next((letter for letter in text[1:] if letter in reader.valued), "")


def _is_known(word: Word) -> bool:
    """Whether it is known where the operand leads. `-` is standard input."""
    return word.text == "-" or (bool(word.paths) and all(path.resolved for path in word.paths))


def _git_reads(words: list[Word]) -> bool:
    texts = [word.text for word in words]
    while texts and texts[0] in ("--no-pager", "-P", "--no-optional-locks"):
        texts, words = texts[1:], words[1:]
    if not texts:
        return False
    if texts[0] == "stash":
        return texts in (["stash", "list"],)
    if texts[0] == "remote":
        return texts == ["remote"]  # addresses may hold a token
    if any("%G" in text for text in texts):
        return False  # runs gpg
    reader = _GIT.get(texts[0])
    if reader is None or any(":" in text for text in texts[1:] if not text.startswith(("--format=", "--pretty="))):
        return False
    return _fits(words[1:], reader=reader)


def git_operands(words: Sequence[Word], *, subcommand: str) -> list[Word]:
    """Of the words after the subcommand of a git command that reads, those that surely are neither options nor their values."""
    reader = _GIT.get(subcommand, _TEXT_OUT)
    found: list[Word] = []
    at = 0
    while at < len(words):
        text = words[at].text
        at += 1
        if text.startswith("-"):
            at += option_takes(text, listed=reader) or 0
        else:
            found.append(words[at - 1])
    return found


def _find_reads(words: list[Word]) -> bool:
    at = 0
    while at < len(words):
        text = words[at].text
        at += 1
        if text in _FIND_FLAGS:
            continue
        if text in _FIND_VALUED:
            if at < len(words) and _is_option(words[at].text):
                return False
            at += 1
        elif text.startswith("-") or not _is_known(words[at - 1]):
            return False
    return at == len(words)


def _test_reads(words: list[Word], *, closed: bool) -> bool:
    """`-v` and `-R` read a variable by name, whose subscript is evaluated; they are left out."""
    texts = [word.text for word in words]
    if closed and (not texts or texts[-1] != "]"):
        return False
    return not any(text in ("-v", "-R", "-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-t") for text in texts)


# Which words of a command are text for it and never name a file: a pattern, a message, the name of a branch or of a script.
#
# Sources: the table of readers, and the manual pages of the other commands.


_MATCHING = frozenset("-name -iname -path -ipath -wholename -iwholename -regex -iregex".split())
# The options of a subcommand whose value is text; the value is the next word, or joined.
_GIT_TEXTS = {
    **dict.fromkeys(("log", "show", "diff", "shortlog", "rev-list"), r"-[SG]|--(?:grep|author|committer)"),
    **dict.fromkeys(("commit", "tag", "merge", "notes"), r"-[aqsvnpe]*m|--message|--author"),
    "stash": r"-[ukqap]*m|--message",
    "checkout": r"-[qtl]*[bB]|--orphan",
    "switch": r"-[qt]*[cC]|--create|--orphan",
}
_SCRIPT_RUNNERS = frozenset("npm pnpm yarn bun".split())
_KINDS = re.compile(r"get|describe|create|delete|edit")
_GREP_FLAGS = re.compile(r"-[nilwEFPIcohv]+|--(?:line-number|ignore-case|word-regexp|count|files-with-matches)")


def searched_texts(words: Sequence[Word]) -> frozenset[int]:
    """Where the words stand that a command looks for or says. What it says may name a file for another command."""
    if not words or not words[0].literal:
        return frozenset()
    if words[0].text == "find":
        return frozenset([at + 1 for at, word in enumerate(words[:-1]) if word.text in _MATCHING])
    reader = READERS.get(words[0].text)
    if reader is None:
        return frozenset()
    if reader.speaks:
        return frozenset(range(1, len(words)))
    return _patterns(words, reader=reader) if reader.patterns else frozenset()


def own_texts(words: Sequence[Word]) -> frozenset[int]:
    """Where the words stand that are text for the command, and that nothing else gets from it."""
    texts = [word.text for word in words]
    if len(texts) < 3 or not words[0].literal:
        return frozenset()
    match texts[0]:
        case "git" if texts[1] == "grep":
            at = next((at for at in range(2, len(texts)) if _GREP_FLAGS.fullmatch(texts[at]) is None), 0)
            return frozenset() if texts[at].startswith("-") else frozenset({at})
        case "git" if texts[1] == "branch":
            return frozenset([at for at in range(2, len(texts)) if not texts[at].startswith("-")])
        case "git" if texts[1] in _GIT_TEXTS:
            return _values(texts, options=_GIT_TEXTS[texts[1]])
        case "pytest":
            return _values(texts, options="-k")
        case "python" | "python3" if texts[1] == "-m":
            return frozenset([2, *(_values(texts, options="-k") if texts[2] == "pytest" else ())])
        case name if name in _SCRIPT_RUNNERS and texts[1] in ("run", "run-script"):
            return frozenset({2})
        case "kubectl" if _KINDS.fullmatch(texts[1]):
            return frozenset({2})
        case _:
            return frozenset()


def _values(texts: Sequence[str], *, options: str) -> frozenset[int]:
    found: set[int] = set()
    for at, text in enumerate(texts):
        if text == "--":
            break
        option = re.match(options, text)
        if option is not None and option.end() == len(text):
            found.add(at + 1)
        elif option is not None and at not in found and (text[:2] != "--" or text[option.end()] == "="):
            found.add(at)
    return frozenset(found)


def _patterns(words: Sequence[Word], *, reader: ReadingCommand) -> frozenset[int]:
    """Of options that are not listed nothing is known, so nothing is taken for text beside them."""
    operands: list[int] = []
    values: list[int] = []
    at, ended = 1, False
    while at < len(words):
        text = words[at].text
        at += 1
        if ended or not text.startswith("-") or text == "-":
            operands.append(at - 1)
            continue
        if text == "--":
            ended = True
            continue
        taken = option_takes(text, listed=reader)
        if taken is None:
            return frozenset()
        if "e" in reader.valued and re.match(r"--regexp|-[^-]*e", text):
            values.append(at if taken else at - 1)
        at += taken
    return frozenset(values or operands[: reader.patterns])


# Which programs a judged command may run: the files that its names led to when it was judged.
#
# PATH may hold folders in which the model can write. What it puts there between a verdict and the run must not run in place of
# the program that was judged.


class JudgedPrograms(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`names` lead to these files, whatever PATH says by then. `only_apart`: the command is known to run no other program than
    these, so the folders of PATH in which the model can write are left out."""

    names: tuple[tuple[str, str], ...] = ()
    only_apart: bool = False


def is_known(command: CommandFact) -> bool:
    """Whether it only reads, or only runs commands that are facts of their own; and what it is, is sure."""
    if command.doubt or command.opaque:
        return False
    # Bash looks for the names that a word may stand for, though nothing is done with them (`sh -c ls $X*`).
    if command.carries:
        known = all(word.literal for word in command.words)
        return known and all(is_harmless(assignment) for assignment in command.assignments)
    return is_reading(command)


def judged_programs(shell: ShellFacts | None) -> JudgedPrograms | None:
    """None where PATH has no folder in which the model can write."""
    if shell is None or not shell.mixed_path:
        return None
    names = dict.fromkeys(pair for command in shell.commands for pair in command.programs)
    known = shell.parsed and all(command.guessed or is_known(command) for command in shell.commands)
    return JudgedPrograms(names=tuple(names), only_apart=known)
