"""Commands that destroy what cannot be brought back, and assignments that change what other commands do."""

import re

from turnwise.rules.permission_facts import Assignment, CommandFact

# Who may set these decides which program runs, what it loads, or where a relative path leads. After the manual pages of
# bash, ld.so, git, less, man, python, perl, ruby and node. Compiled when the first command assigns something.
_STEERING = r"""PATH|IFS|ENV|BASH\w*|POSIXLY_CORRECT|GLIBC_TUNABLES|MALLOC_\w*|MAGIC|BASHOPTS
    |SHELLOPTS|SHELL|PROMPT_COMMAND|PS[0-4]|CDPATH|HOME|PWD|OLDPWD|GLOBIGNORE|EXECIGNORE
    |FPATH|ZDOTDIR|LD_.*|DYLD_.*|GCONV_PATH|LOCPATH|NLSPATH|HOSTALIASES
    |GIT_.*|(?:\w*_)?PAGER|PAGER\w*|EDITOR|VISUAL|FCEDIT|SUDO_EDITOR|SUDO_ASKPASS|SSH_ASKPASS|LESS\w*|MORE|BROWSER|RIPGREP_CONFIG_PATH
    |GREP_OPTIONS|PERL\w*|PYTHON\w*|RUBY\w*
    |NODE_OPTIONS|JAVA_TOOL_OPTIONS|_JAVA_OPTIONS|JDK_JAVA_OPTIONS|MAKEFLAGS|GNUMAKEFLAGS|MAKEFILES|TAR_OPTIONS|RSYNC_RSH
    |CVS_RSH|SVN_SSH|CC|CXX|AR|RUSTC\w*|CARGO_\w*|npm_config_\w*|TERMINFO|TERMCAP|TMPDIR|XDG_\w*|MANPATH|DOCKER_\w*|KUBECONFIG"""
# What leaves a reading command a reading one.
_HARMLESS = re.compile(r"LC_[A-Z]+|LANG|LANGUAGE|TZ|NO_COLOR|FORCE_COLOR|CLICOLOR|COLUMNS|LINES|TERM")
_HARMLESS_VALUE = re.compile(r"[A-Za-z0-9_.@:+-]{0,64}")


def steers(assignment: Assignment) -> bool:
    """Whether the assignment changes what runs, so that no verdict on a command's words holds any longer."""
    return re.fullmatch(_STEERING, assignment.name, re.VERBOSE | re.IGNORECASE) is not None


def is_harmless(assignment: Assignment) -> bool:
    """Whether it changes at most how output looks."""
    value = assignment.literal and _HARMLESS_VALUE.fullmatch(assignment.value) is not None
    return value and _HARMLESS.fullmatch(assignment.name) is not None


# Whatever their arguments are.
_ALWAYS = frozenset(
    """mkfs mke2fs mkswap wipefs fdisk sfdisk cfdisk parted gparted shred srm wipe blkdiscard hdparm shutdown reboot halt
    poweroff init telinit dropdb userdel groupdel deluser delgroup cryptsetup lvremove vgremove pvremove zpool zfs
    format diskpart""".split()
)
# A name and a word (anywhere after it), or the letters of short options.
_WITH_WORD: dict[str, frozenset[str]] = {
    name: frozenset(words.split())
    for name, words in {
        "git": """clean --hard --force --force-with-lease --mirror filter-branch filter-repo --prune --delete -D
                  gc prune reflog update-ref checkout-index""",
        "find": "-delete",
        "fd": "-X --exec-batch",
        "docker": "prune rm rmi kill down",
        "podman": "prune rm rmi kill down",
        "kubectl": "delete drain",
        "helm": "uninstall delete",
        "terraform": "destroy apply",
        "tofu": "destroy apply",
        "aws": "rm rb delete terminate-instances",
        "gcloud": "delete",
        "az": "delete",
        "systemctl": "stop disable poweroff reboot halt kill",
        "crontab": "-r",
        "rsync": "--delete --delete-after --delete-before --delete-excluded --remove-source-files",
        "apt": "remove purge autoremove",
        "apt-get": "remove purge autoremove",
        "npm": "unpublish deprecate",
        "cargo": "yank",
        "gh": "delete",
        "redis-cli": "flushall flushdb",
        "killall": "-9",
        "kill": "-1",
        "pkill": "-9",
    }.items()
}
_WITH_OPTION: dict[str, str] = {"rm": "rR", "chmod": "R", "chown": "R", "chgrp": "R", "truncate": "s", "git": "fD"}
_LONG_OPTION: dict[str, tuple[str, ...]] = {
    "rm": ("--recursive", "--no-preserve-root"),
    "chmod": ("--recursive",),
    "chown": ("--recursive",),
    "chgrp": ("--recursive",),
    "truncate": ("--size",),
}
# `git checkout -- .`, `git restore .`, `git branch -D`, `git stash drop`: what was not committed is gone.
_GIT_DISCARDS = frozenset({"restore"})
_GIT_PAIRS = {"stash": {"drop", "clear"}, "checkout": {"--", ".", "-f", "--force"}, "worktree": {"remove", "prune"}}
# `-f` of these is a message or a format, not force.
_GIT_FORCES = frozenset("push branch tag clean checkout switch rm mv worktree reset".split())


def destroys(command: CommandFact) -> bool:
    """Whether the command can destroy much at once, or for good: recursive deletion, disks, history, remote resources."""
    if not command.words or not command.words[0].literal:
        return False
    name = command.words[0].text.replace("\\", "/").rpartition("/")[2].casefold()
    rest = [word.text for word in command.words[1:]]
    if name in _ALWAYS or name.startswith("mkfs."):
        return True
    if name == "git":
        return _git_destroys(rest)
    if name == "rm" and any(not word.literal for word in command.words[1:]):
        return True
    if name == "rm" and any(len(word.paths) > 1 for word in command.words[1:]):
        return True
    if name == "dd":
        return any(text.startswith("of=") for text in rest)
    if any(text in _WITH_WORD.get(name, ()) for text in rest):
        return True
    if any(_abbreviates(text, long=long) for long in _LONG_OPTION.get(name, ()) for text in rest):
        return True
    letters = _WITH_OPTION.get(name, "")
    return any(_has_letter(text, letters=letters) for text in rest)


def _has_letter(text: str, *, letters: str) -> bool:
    return text.startswith("-") and not text.startswith("--") and any(letter in text[1:] for letter in letters)


def _abbreviates(text: str, *, long: str) -> bool:
    """getopt_long takes any beginning of a long option for it."""
    given = text.partition("=")[0]
    return len(given) > 2 and long.startswith(given)


def _git_destroys(rest: list[str]) -> bool:
    if any(text in _WITH_WORD["git"] or text.startswith("--force-") for text in rest):
        return True
    if any(text in _GIT_DISCARDS for text in rest):
        return True
    if any(first in rest and seconds & set(rest) for first, seconds in _GIT_PAIRS.items()):
        return True
    if "push" in rest and any(text.startswith(("+", ":")) for text in rest):
        return True
    forces = any(text in _GIT_FORCES for text in rest)
    return forces and any(_has_letter(text, letters=_WITH_OPTION["git"]) for text in rest)
