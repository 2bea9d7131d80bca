"""Commands that destroy what cannot be brought back."""

from turnwise.rules.git_commands import git_destroys
from turnwise.rules.permission_facts import CommandFact

# Whatever their arguments are.
_ALWAYS = frozenset(
    """mkfs mke2fs mkswap wipefs fdisk sfdisk cfdisk parted gparted shred srm wipe blkdiscard hdparm shutdown reboot halt
    poweroff init telinit dropdb userdel groupdel deluser delgroup cryptsetup lvremove vgremove pvremove zpool zfs
    format diskpart""".split()
)
# Subcommands of many programs have these names, too: no guess is made of them.
_ALSO_SUBCOMMANDS = frozenset({"format", "init", "wipe"})
# A name and a word (anywhere after it).
_WITH_WORD: dict[str, frozenset[str]] = {
    name: frozenset(words.split())
    for name, words in {
        "find": "-delete",
        "fd": "-X --exec-batch",
        "hg": "purge strip revert --clean -C",
        "svn": "revert cleanup",
        "docker": "prune rm rmi kill down",
        "podman": "prune rm rmi kill down",
        "kubectl": "delete drain",
        "helm": "uninstall delete",
        "terraform": "destroy apply",
        "tofu": "destroy apply",
        "aws": "rm rb delete --delete terminate-instances",
        "gcloud": "delete",
        "az": "delete",
        "systemctl": "stop disable poweroff reboot halt kill",
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
# A name, the letters of short options, and long ones.
_WITH_OPTION: dict[str, tuple[str, tuple[str, ...]]] = {
    "rm": ("rR", ("--recursive", "--no-preserve-root")),
    "chmod": ("R", ("--recursive",)),
    "chown": ("R", ("--recursive",)),
    "chgrp": ("R", ("--recursive",)),
    "truncate": ("s", ("--size",)),
    "crontab": ("r", ()),
    "tar": ("", ("--remove-files", "--recursive-unlink", "--unlink-first")),
}
_RSYNC = ("--del", "--remove-s", "--force", "--ignore-errors")


def destroys(command: CommandFact) -> bool:
    """Whether the command can destroy much at once, or for good: recursive deletion, disks, history, remote resources."""
    if not command.words or not command.words[0].literal:
        return False
    name = command.words[0].text.replace("\\", "/").rpartition("/")[2].casefold()
    rest = [word.text for word in command.words[1:]]
    if command.guessed and name in _ALSO_SUBCOMMANDS:
        return False
    if name in _ALWAYS or name.startswith("mkfs."):
        return True
    if name == "git":
        return git_destroys(command.words[1:])
    if name in ("rm", "unlink") and any(not word.literal or len(word.paths) > 1 for word in command.words[1:]):
        return True
    if name == "rsync":
        return any(text.startswith(_RSYNC) for text in rest)
    if name == "dd":
        return any(text.startswith("of=") for text in rest)
    if any(text.casefold() in _WITH_WORD.get(name, ()) or text in _WITH_WORD.get(name, ()) for text in rest):
        return True
    letters, long = _WITH_OPTION.get(name, ("", ()))
    return any(_has_letter(text, letters=letters) or any(_abbreviates(text, long=one) for one in long) for text in rest)


def _has_letter(text: str, *, letters: str) -> bool:
    return text.startswith("-") and not text.startswith("--") and any(letter in text[1:] for letter in letters)


def _abbreviates(text: str, *, long: str) -> bool:
    """getopt_long takes any beginning of a long option for it."""
    given = text.partition("=")[0]
    return len(given) > 2 and long.startswith(given)
