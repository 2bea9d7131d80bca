"""What a command sees of the environment: an allow-list, because nobody can list the names of all secrets."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from turnwise.base.serving_depth import passed_on
from turnwise.rules.environment_names import EDITORS, PAGERS

# Where programs lie, who and where the user is, and how text looks. HOME stays the user's own: toolchains live there.
_NAMES = frozenset(
    """PATH HOME USER LOGNAME SHELL LANG LANGUAGE TZ NO_COLOR CI SOURCE_DATE_EPOCH
    VIRTUAL_ENV CONDA_PREFIX CONDA_DEFAULT_ENV PYENV_ROOT PYENV_VERSION PYTHONPATH PYTHONHOME
    NVM_DIR NVM_BIN NODE_PATH PNPM_HOME BUN_INSTALL VOLTA_HOME DENO_DIR
    GOPATH GOROOT GOFLAGS GOTOOLCHAIN CARGO_HOME RUSTUP_HOME RUSTUP_TOOLCHAIN
    JAVA_HOME MAVEN_HOME GRADLE_HOME ANDROID_HOME ANDROID_SDK_ROOT DOTNET_ROOT
    GEM_HOME GEM_PATH RBENV_ROOT RBENV_VERSION ASDF_DIR ASDF_DATA_DIR MISE_DATA_DIR SDKMAN_DIR
    CC CXX CFLAGS CXXFLAGS CPPFLAGS LDFLAGS LD_LIBRARY_PATH PKG_CONFIG_PATH CMAKE_PREFIX_PATH MAKEFLAGS
    SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE NIX_PATH NIX_SSL_CERT_FILE NIX_PROFILES LOCALE_ARCHIVE""".split()
)
_PREFIXES = ("LC_",)
# The last word of a name like OPENAI_API_KEY, or a word in it like AWS_SECRET_ACCESS_KEY's. Never passed on, asked for or not.
_SECRET = re.compile(
    r"(KEY|KEYS|TOKEN|TOKENS|PASS|PASSWD|PASSPHRASE|COOKIE|AUTH|PAT|DSN)$|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE
)
NOBODY_EDITS = """nobody is there to write in it. Give the message with -m or -F, or keep the one there is with --no-edit; give a\
 todo list by GIT_SEQUENCE_EDITOR, a command that changes the file that it is given."""
# What git runs in the place of an editor, in the shell: it would wait for a person for ever. A message that is there is kept. One
# that is missing (only comments, the user's template, what `-v` shows below the scissors) or a file that has to be edited (a todo
# list, a patch) is an error, and git stops. The variable goes before `core.editor` and `-c`. Source: git-var(1), git-commit(1).
_EDITOR_SCRIPT = r"""turnwise_editor() {
  words() { sed '/^.* -\{24\} >8 -\{24\}$/,$d' "$1" 2>/dev/null | git stripspace -s; }
  case ${1##*/} in
    *_EDITMSG|*_MSG|EDIT_DESCRIPTION)
      there=$(words "$1"); template=$(git config --path commit.template)
      [ -z "$there" ] || [ "$there" = "$(words "$template")" ] || return 0 ;;
  esac
  echo "turnwise: git opened an editor for ${1##*/}, and %s" >&2
  return 1
}""".replace("%s", NOBODY_EDITS)
_EDITOR = 'eval "$TURNWISE_EDITOR"; turnwise_editor'  # git repeats it in its error
# A command may name an editor of its own, and Vim waits although it has no terminal. So where its options do not end it, it keeps
# or refuses the file as above. As Ex it reads commands from its input, and ends. Source: |startup|, |VimEnter| of Vim's help.
_VIM = "|".join(
    [
        'if has("nvim")',
        *[f"silent! source ~/.config/nvim/init.{kind}" for kind in ("lua", "vim")],
        "else|silent! source ~/.vimrc|endif",
        'autocmd VimEnter * if mode()!=#"c"',
        r'call system("eval \"$TURNWISE_EDITOR\"; turnwise_editor ".shellescape(expand("%:p")))',
        "if v:shell_error|cquit|else|qall!|endif|endif",
    ]
)
# Over the files of settings, and below `-c`. The editor again, where a command takes our variable away. What git does by itself
# in the background would be ended with the command that began it.
_SETTINGS = {"core.editor": _EDITOR, "sequence.editor": _EDITOR, "gc.auto": "0", "maintenance.auto": "false"}
# So that `git gc` does without what a sandbox keeps as it is: `info`, `objects/info` and the folders of other working trees. What
# a branch has left stays, until a git of the user's forgets it. Source: git-config(1).
_CONFINED = {
    **dict.fromkeys(("gc.writeCommitGraph", "fetch.writeCommitGraph", "repack.updateServerInfo"), "false"),
    **dict.fromkeys(("gc.reflogExpire", "gc.reflogExpireUnreachable", "gc.worktreePruneExpire"), "never"),
}
# A pager or a password prompt would wait for a person for ever. `git status` writes what it found into the index, under a lock
# that a git of the user's runs into.
_QUIET = {
    **dict.fromkeys(PAGERS, "cat"),
    **dict.fromkeys(EDITORS, _EDITOR),
    "TURNWISE_EDITOR": _EDITOR_SCRIPT,
    "VIMINIT": _VIM,
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "TERM": "dumb",
}


def is_secret(name: str) -> bool:
    """Whether a variable's name says that its value is a secret."""
    return _SECRET.search(name) is not None


def command_environment(
    outer: Mapping[str, str], *, temporary: Path | None, also: frozenset[str] = frozenset(), hidden: frozenset[str]
) -> dict[str, str]:
    """The variables of a command.

    `also` are names that the user lets through beside the usual ones; `hidden` and names of secrets stay out even so.
    `temporary` is the folder for what it throws away: TMPDIR, and the caches that would lie in the home folder.
    """
    seen = {
        name: value
        for name, value in outer.items()
        if (name in _NAMES or name in also or name.startswith(_PREFIXES)) and name not in hidden and not is_secret(name)
    }
    seen.setdefault("PATH", os.defpath)  # else each shell has a default of its own, with `.` in it for some
    if temporary is not None:
        cache = temporary / ".cache"
        seen |= {"TMPDIR": str(temporary), "XDG_CACHE_HOME": str(cache), "npm_config_cache": str(cache / "npm")}
    return seen | _QUIET | passed_on(outer)


def with_git_settings(environment: dict[str, str], *, confined: bool) -> dict[str, str]:
    """The variables with settings for git, after those that are there. `confined`: what git executes stays as it is."""
    there = environment.get("GIT_CONFIG_COUNT", "")
    first = int(there) if there.isdecimal() and there.isascii() else 0
    settings = _SETTINGS | (_CONFINED if confined else {})
    for number, (name, value) in enumerate(settings.items(), start=first):
        environment = {**environment, f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    return {**environment, "GIT_CONFIG_COUNT": str(first + len(settings))}
