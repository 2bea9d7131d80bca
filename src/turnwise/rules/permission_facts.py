"""What a verdict rests on, as data: the paths that a call touches and the commands that it would run.

Drivers find it out (`tools/shell_judge`), the journal keeps it, `rules/permissions` judges it. Nothing here is looked up.
"""

import re
from typing import Literal, get_args

import msgspec

Access = Literal["read", "write"]
Mode = Literal["plan", "ask", "edits", "sandbox"]
Keeps = Literal["", "folder", "guarded"]  # what a command finds read-only
MODES: tuple[Mode, ...] = get_args(Mode)  # each allows more than the one before


def tightest(*modes: Mode) -> Mode:
    """The mode that allows least."""
    return min(modes, key=MODES.index)


class PathFact(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One path of a call. `given` is the text of the call, `lexical` the absolute path that it spells, `resolved` where that
    leads (symbolic links followed, a missing tail kept). `resolved` is empty where it cannot be known: after a `cd` to an
    unknown place, or for text that is no path. `inside` is whether it leads into the workspace, or with `private` into the
    folder that commands have for themselves. `holds` names a secret file below the folder, where the command searches files
    (`rg`, `grep -r`). `kept`: turnwise wrote it for the model, which may read it. `passing`: it lies in a folder that goes with a
    run of turnwise, so no rule about it holds in the next. A name that is no UTF-8 is escaped, behind two slashes. `absent`: the
    word is text, or nothing of that name is there, so no secret is read by it. `later`: it runs later by itself, as git's
    settings or a link name it."""

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
    later: bool = False


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
    folders in which commands can write. `plain`: the script is the words of one command, and nothing else. `confined`: it runs
    in a sandbox that keeps it from other files, from secrets, other processes and the network."""

    commands: tuple[CommandFact, ...] = ()
    parsed: bool = True
    problem: str = ""
    mixed_path: bool = False
    plain: bool = False
    confined: bool = False


class CallFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One call: its tool, the tool's effect (`none, read, write, execute`), the paths among its arguments and, for a shell,
    what it would run. `unknown` says why that was not found out, though it should have been; then it is asked about. `state`
    stands for what the paths of a call that writes hold now: what it would change is a change of that. `fails` says why the call
    would fail as things are. `mode` is the mode that held when the facts were found; a wider one of the policy does not count."""

    call_id: str
    tool: str
    effect: str
    paths: tuple[PathFact, ...] = ()
    shell: ShellFacts | None = None
    unknown: str = ""
    state: str = ""
    fails: str = ""
    mode: Mode = "ask"


# Variables before a command: which are known to be harmless, and which are known to change what runs.
#
# The rest may make a program load or write something (`NODE_V8_COVERAGE`, `OPENSSL_CONF`, `SSLKEYLOGFILE`), and is asked about.


# Who may set these decides which program runs, what it loads, or where a relative path leads. After the manual pages of
# bash, ld.so, git, less, man, python, perl, ruby and node. Compiled when the first command assigns something.
_STEERING = r"""PATH|IFS|ENV|BASH\w*|POSIXLY_CORRECT|GLIBC_TUNABLES|MALLOC_\w*|MAGIC|BASHOPTS
    |SHELLOPTS|SHELL|PROMPT_COMMAND|PS[0-4]|CDPATH|HOME|PWD|OLDPWD|GLOBIGNORE|EXECIGNORE
    |FPATH|ZDOTDIR|LD_.*|DYLD_.*|GCONV_PATH|LOCPATH|NLSPATH|HOSTALIASES
    |GIT_.*|(?:\w*_)?PAGER|PAGER\w*|EDITOR|VISUAL|FCEDIT|SUDO_EDITOR|SUDO_ASKPASS|SSH_ASKPASS|LESS\w*|MORE|BROWSER|RIPGREP_CONFIG_PATH
    |GREP_OPTIONS|PERL\w*|PYTHON\w*|RUBY\w*
    |NODE_OPTIONS|JAVA_TOOL_OPTIONS|_JAVA_OPTIONS|JDK_JAVA_OPTIONS|MAKEFLAGS|GNUMAKEFLAGS|MAKEFILES|TAR_OPTIONS|RSYNC_RSH
    |CVS_RSH|SVN_SSH|CC|CXX|AR|RUSTC\w*|CARGO_\w*|npm_config_\w*|TERMINFO|TERMCAP|TMPDIR|XDG_\w*|MANPATH|DOCKER_\w*|KUBECONFIG"""
# The shell's own (bash manual, Bash Variables). It evaluates what some of them are given, and `a[$(rm x)]` runs `rm` there.
_OWN = frozenset(
    """CHILD_MAX COMPREPLY COMP_CWORD COMP_KEY COMP_LINE COMP_POINT COMP_TYPE COMP_WORDBREAKS COMP_WORDS COPROC DIRSTACK EMACS
    EPOCHREALTIME EPOCHSECONDS EUID FIGNORE FUNCNAME FUNCNEST GROUPS HISTCMD HISTCONTROL HISTFILE HISTFILESIZE HISTIGNORE
    HISTSIZE HISTTIMEFORMAT HOSTFILE HOSTNAME HOSTTYPE IGNOREEOF INPUTRC INSIDE_EMACS LINENO MACHTYPE MAIL MAILCHECK
    MAILPATH MAPFILE OPTARG OPTERR OPTIND OSTYPE PIPESTATUS PPID PROMPT_DIRTRIM RANDOM READLINE_ARGUMENT READLINE_LINE
    READLINE_MARK READLINE_POINT REPLY SECONDS SHLVL SRANDOM TIMEFORMAT TMOUT UID auto_resume histchars""".split()
)
_NUMBER = re.compile(r"-?[0-9]{1,9}")  # a name would be looked up, and its text evaluated in turn
# They change at most how much is said, in which language and colour, and the mode or number that a program works with.
HARMLESS_NAMES = frozenset(
    """LANG LANGUAGE TZ NO_COLOR FORCE_COLOR CLICOLOR CLICOLOR_FORCE COLUMNS LINES TERM COLORTERM
    CI DEBUG VERBOSE V LOG_LEVEL LOGLEVEL PORT NODE_ENV APP_ENV FLASK_ENV FLASK_DEBUG RAILS_ENV RACK_ENV MIX_ENV
    PYTHONUNBUFFERED PYTHONDONTWRITEBYTECODE PYTHONHASHSEED PYTHONIOENCODING PYTHONUTF8 PYTHONFAULTHANDLER
    PYTHONASYNCIODEBUG PYTEST_DISABLE_PLUGIN_AUTOLOAD SOURCE_DATE_EPOCH
    RUST_BACKTRACE RUST_LOG RUST_TEST_THREADS CARGO_TERM_COLOR CARGO_INCREMENTAL CARGO_NET_OFFLINE
    GOOS GOARCH GOARM GOAMD64 CGO_ENABLED GO111MODULE GOMAXPROCS GOTRACEBACK
    OMP_NUM_THREADS OPENBLAS_NUM_THREADS MKL_NUM_THREADS CUDA_VISIBLE_DEVICES TF_CPP_MIN_LOG_LEVEL TOKENIZERS_PARALLELISM
    DEBIAN_FRONTEND PIP_DISABLE_PIP_VERSION_CHECK PIP_NO_INPUT PIP_NO_CACHE_DIR HUSKY DO_NOT_TRACK NEXT_TELEMETRY_DISABLED
    DOTNET_CLI_TELEMETRY_OPTOUT HOMEBREW_NO_AUTO_UPDATE
    GIT_TERMINAL_PROMPT GIT_MERGE_AUTOEDIT GIT_AUTHOR_DATE GIT_COMMITTER_DATE""".split()
)
_LOCALE = re.compile(r"LC_[A-Z]+")
# `..` would be a folder beside those of the zones.
_HARMLESS_VALUE = re.compile(r"(?!:?\.\.?\Z)[A-Za-z0-9_.@:+-]{0,64}")
_ZONE = re.compile(r"[A-Z][A-Za-z_]{1,20}(?:/[A-Z][A-Za-z_+-]{1,30}){1,2}")  # `:` or `/` first would name any file
PAGERS = ("PAGER", "GIT_PAGER")
EDITORS = ("GIT_EDITOR", "GIT_SEQUENCE_EDITOR")
# In the place of a pager or an editor they show or leave everything as it is.
IDLE_PROGRAMS = frozenset({"", "true", "false", ":", "cat", "/bin/true", "/usr/bin/true"})


def steers(assignment: Assignment) -> bool:
    """Whether the assignment changes what runs, so that no verdict on a command's words holds any longer."""
    if assignment.name in _OWN:
        return not (assignment.literal and _NUMBER.fullmatch(assignment.value))
    known = re.fullmatch(_STEERING, assignment.name, re.VERBOSE | re.IGNORECASE) is not None
    return known and not is_harmless(assignment)


def is_harmless(assignment: Assignment) -> bool:
    """Whether name and value are known to change at most how something looks, or how much of it is done."""
    name, value = assignment.name, assignment.value
    if not assignment.literal:
        return False
    if name == "TZ" and _ZONE.fullmatch(value):
        return True
    if name in PAGERS or name in EDITORS:
        return value in IDLE_PROGRAMS
    if name == "GIT_OPTIONAL_LOCKS":  # with them `git status` writes
        return value == "0"
    known = name in HARMLESS_NAMES or _LOCALE.fullmatch(name) is not None
    return known and _HARMLESS_VALUE.fullmatch(value) is not None


def is_doubtful(assignment: Assignment) -> bool:
    """Whether programs see the variable, and it is not known what they do with it."""
    return assignment.exported and not is_harmless(assignment)


# Words of bash's own, by what it does with them. Other modules take them from here.
#
# Source: bash manual, Reserved Words and Shell Builtin Commands.


# Words of the grammar: where a command may stand, none of them is the name of one.
RESERVED = frozenset("! { } (( then else elif do done fi if while until for case esac in function select".split())
# Builtins that give variables a value or take it away; the declaring ones are words of tree-sitter's grammar, too.
DECLARING = frozenset("declare typeset export readonly local unset".split())
SETTING = DECLARING | frozenset("read mapfile readarray getopts printf let".split())
# `find` runs the words behind them.
FIND_RUNS = ("-exec", "-execdir", "-ok", "-okdir")
# They change the folder of what comes after them.
MOVING = frozenset("cd pushd popd".split())
# They are no programs, so no file of that name is run; these are what this reading knows more about.
IN_SHELL = MOVING | frozenset("eval source . trap test [".split())
