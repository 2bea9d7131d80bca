"""What a command sees of the environment: an allow-list, because nobody can list the names of all secrets."""

import os
import re
import shlex
import shutil
import tempfile
import threading
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from turnwise.base.private_folders import make_private_folder
from turnwise.base.processes import passed_on
from turnwise.rules.permission_facts import EDITORS, PAGERS

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


# The private folder of a run's commands: what they throw away, and what of their output was too long to show; and the names
# that they know it by: `$TMPDIR`, and `/tmp` in bubblewrap.


_CACHES = ".cache"  # programs take from there what they run later


class Scratch:
    """A folder for us alone, removed when nobody holds this object any more, at the latest when the process ends; where that
    was killed, at the next start.

    `temporary` is the commands' own; `outputs` is written by us and only read by them, `empty` is an empty file. Made on
    first use.
    """

    def __init__(self) -> None:
        self._root: Path | None = None
        self._making = threading.Lock()  # calls are looked at in threads, those of several sub-agents at once

    @property
    def root(self) -> Path:
        with self._making:
            if self._root is None:
                root = make_private_folder(self, kind="run")
                for name in ("tmp", "outputs", "programs"):
                    (root / name).mkdir()
                (root / "empty").touch(mode=0o400)
                self._root = root
        return self._root

    @property
    def temporary(self) -> Path:
        return self.root / "tmp"

    @property
    def outputs(self) -> Path:
        return self.root / "outputs"

    @property
    def _programs(self) -> Path:
        return self.root / "programs"

    @contextmanager
    def programs(self, names: Iterable[tuple[str, str]]) -> Generator[Path]:
        """A folder for PATH in which each name is the program that stands beside it; its parent holds nothing else."""
        folder = Path(tempfile.mkdtemp(dir=self._programs))
        try:
            for name, program in names:
                _write_program(folder / name, program=program)
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    @property
    def empty(self) -> Path:
        return self.root / "empty"


def _write_program(path: Path, *, program: str) -> None:
    """A program that is `program` under the name of `path`. No link: some (Python) look for their files where a link lies."""
    path.write_text(f'#!/bin/sh\nexec {shlex.quote(program)} "$@"\n', encoding="utf-8", errors="surrogateescape")
    path.chmod(0o500)


class PrivateFolder(msgspec.Struct, frozen=True, kw_only=True):
    """`real` is where it lies. `names` are the folders that stand for it in a command, the first is the value of TMPDIR;
    `others` lie below one of those names, and are what they are outside."""

    real: str
    names: tuple[str, ...]
    others: tuple[str, ...] = ()

    def real_path(self, path: str) -> str:
        """Where the absolute `path` of a command lies outside of the sandbox. One with `..` is left as it is: what it leads
        to depends on links that are not looked at here."""
        if ".." in path.split("/") or any(_is_below(path, folder=other) for other in self.others):
            return path
        name = next((name for name in self.names if _is_below(path, folder=name)), None)
        return path if name is None else self.real + path[len(name) :]

    def holds(self, resolved: str) -> bool:
        """Whether the resolved path lies in it, where nothing but commands that were judged looks at it."""
        return _is_below(resolved, folder=self.real) and not _is_below(resolved, folder=f"{self.real}/{_CACHES}")


def _is_below(path: str, *, folder: str) -> bool:
    return path == folder or path.startswith(folder + "/")
