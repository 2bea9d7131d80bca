"""Variables before a command: which are known to be harmless, and which are known to change what runs.

The rest may make a program load or write something (`NODE_V8_COVERAGE`, `OPENSSL_CONF`, `SSLKEYLOGFILE`), and is asked about.
"""

import re

from turnwise.rules.permission_facts import Assignment

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


# Words of bash's own, by what it does with them. Whoever needs some of them takes them from here.
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
