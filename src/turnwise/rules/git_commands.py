"""A command line of git, read as git reads it: options before the subcommand, settings of `-c`, abbreviated and joined options.

What is not known is taken for the worst that it can be: an unknown subcommand may be an alias for anything. Sources: git(1),
gitcli(7), git's `git.c` and `parse-options.c`.
"""

import re
from collections.abc import Sequence

import msgspec

from turnwise.rules.permission_facts import IDLE_PROGRAMS, Word

# Settings of git that name no program, no other file and no other place: one table, with what is added in each place.
#
# Written as git writes them, in small letters. `x.*` is any setting of the section `x`, `x.*.y` is `y` in `[x "..."]`. What is
# not listed may make git run something. Source: git-config(1).


# Wherever they stand.
_EVERYWHERE = frozenset(
    """user.name user.email author.name author.email committer.name committer.email user.useconfigonly color.* advice.*
    column.* status.* core.quotepath core.autocrlf core.eol core.safecrlf core.filemode core.abbrev core.ignorecase
    core.longpaths core.symlinks core.compression core.preloadindex core.bigfilethreshold core.untrackedcache commit.gpgsign
    tag.gpgsign push.default push.autosetupremote push.followtags pull.rebase pull.ff fetch.prune rebase.autostash
    rebase.autosquash merge.conflictstyle merge.ff init.defaultbranch gc.auto maintenance.auto log.date log.decorate
    diff.renames diff.renamelimit diff.noprefix diff.mnemonicprefix diff.algorithm diff.colormoved""".split()
)
# In a repository's own file, for commands that only read: what a repository is, and what is of use only to those that fetch.
IN_REPOSITORY = _EVERYWHERE | frozenset(
    """core.repositoryformatversion core.bare core.logallrefupdates core.precomposeunicode core.protecthfs core.protectntfs
    core.whitespace core.checkstat core.trustctime core.hidedotfiles core.sparsecheckout core.sparsecheckoutcone
    core.sharedrepository extensions.objectformat remote.*.url remote.*.pushurl remote.*.fetch remote.*.tagopt remote.*.prune
    remote.*.mirror remote.*.gh-resolved branch.*.remote branch.*.merge branch.*.rebase branch.*.pushremote
    branch.*.description branch.*.vscode-merge-base branch.*.gh-merge-base branch.*.github-pr-owner-number user.signingkey
    fetch.prunetags maintenance.strategy tag.sort lfs.repositoryformatversion lfs.*.access""".split()
)
# Behind `git -c`, for any command: how much is done, and how it looks.
ON_COMMAND_LINE = _EVERYWHERE | frozenset(
    """push.gpgsign fetch.parallel rebase.updaterefs merge.renamelimit log.abbrevcommit log.follow log.showroot diff.context
    http.postbuffer http.version http.lowspeedlimit http.lowspeedtime safe.directory rerere.enabled checkout.defaultremote
    grep.linenumber grep.patterntype pack.threads index.threads feature.manyfiles format.pretty i18n.logoutputencoding
    i18n.commitencoding submodule.recurse blame.date""".split()
)


_FLAGS = frozenset(
    """-p -P -v -h --paginate --no-pager --no-replace-objects --no-lazy-fetch --no-optional-locks --no-advice --bare --version
    --help --html-path --man-path --info-path --exec-path --literal-pathspecs --glob-pathspecs --noglob-pathspecs
    --icase-pathspecs""".split()
)
_VALUED = frozenset("-C -c --git-dir --work-tree --namespace --config-env --attr-source --super-prefix".split())
# Those of git itself, and the extensions that people install.
_SUBCOMMANDS = frozenset(
    """add am annotate apply archive bisect blame branch bugreport bundle cat-file check-attr check-ignore check-mailmap
    check-ref-format checkout checkout-index cherry cherry-pick clean clone column commit commit-graph commit-tree config
    count-objects credential describe diagnose diff diff-files diff-index diff-tree difftool fast-export fast-import fetch
    fetch-pack filter-branch filter-repo fmt-merge-msg for-each-ref for-each-repo format-patch fsck gc get-tar-commit-id grep
    hash-object help hook index-pack init init-db interpret-trailers lfs log ls-files ls-remote ls-tree mailinfo mailsplit
    maintenance merge merge-base merge-file merge-index merge-tree mergetool mktag mktree multi-pack-index mv name-rev notes
    pack-objects pack-redundant pack-refs patch-id prune prune-packed pull push range-diff read-tree rebase reflog refs remote
    repack replace replay request-pull rerere reset restore rev-list rev-parse revert rm send-email send-pack shortlog show
    show-branch show-index show-ref sparse-checkout stage stash status stripspace submodule subtree svn switch symbolic-ref tag
    unpack-file unpack-objects update-index update-ref update-server-info var verify-commit verify-pack verify-tag version
    whatchanged worktree write-tree""".split()
)
# They show only: what begins one of their options is no abbreviation of one that destroys.
_SHOWING = frozenset(
    """annotate blame cat-file describe diff diff-tree for-each-ref grep log ls-files ls-remote ls-tree merge-base rev-list
    rev-parse shortlog show show-ref status version whatchanged""".split()
)
# Settings whose value is a program.
_PROGRAM_SETTINGS = frozenset("core.editor sequence.editor core.pager core.askpass".split())


class GitLine(msgspec.Struct, frozen=True, kw_only=True):
    """`subcommand` is empty where there is none, or it cannot be known; it stands at `at`, counted from the word after `git`.
    `settings` are those of `-c`. `steered` says why something else may run than the words say."""

    subcommand: str = ""
    at: int = 0
    settings: tuple[str, ...] = ()
    steered: str = ""


def read_git(texts: Sequence[str]) -> GitLine:
    """Of the words after `git`."""
    settings: list[str] = []
    steered = ""
    at = 0
    while at < len(texts):
        text = texts[at]
        name, equals, value = text.partition("=") if text.startswith("--") else (text, "", "")
        if not text.startswith("-"):
            return GitLine(subcommand=text, at=at, settings=tuple(settings), steered=steered)
        at += 1
        if name in _VALUED and not equals:
            value = texts[at] if at < len(texts) else ""
            at += 1
        elif name not in _FLAGS and name not in _VALUED:
            return GitLine(steered=steered or f"git's option `{text}` is not known")
        if name == "-c":
            settings.append(value)
            steered = steered or setting_doubt(value)
        elif name == "--config-env" or (name == "--exec-path" and equals):
            steered = steered or f"git's option `{name}` changes what runs"
    return GitLine(settings=tuple(settings), steered=steered)


def setting_doubt(setting: str) -> str:
    """Why a setting (`name=value`) may make git run something; empty where it is known to be harmless."""
    name, _, value = setting.partition("=")
    name = name.strip().lower()
    if name in ON_COMMAND_LINE or f"{name.partition('.')[0]}.*" in ON_COMMAND_LINE:
        return ""
    if name in _PROGRAM_SETTINGS and value in IDLE_PROGRAMS:
        return ""
    return "" if name.startswith("alias.") else f"git's setting `{name}` may run a program"


def alias_of(line: GitLine) -> str | None:
    """What the subcommand stands for by a setting of the same command line; None where it is no alias. The last one counts."""
    found: str | None = None
    for setting in line.settings:
        name, _, value = setting.partition("=")
        if line.subcommand and name.strip().lower() == f"alias.{line.subcommand.lower()}":
            found = value
    return found


class _Harm(msgspec.Struct, frozen=True):
    """Of a subcommand: the options and words with which it destroys."""

    long: tuple[str, ...] = ()
    letters: str = ""
    words: frozenset[str] = frozenset()


def _harm(long: str = "", *, letters: str = "", words: str = "") -> _Harm:
    return _Harm(tuple(f"--{name}" for name in long.split()), letters, frozenset(words.split()))


_ALWAYS = frozenset(
    "clean restore filter-branch filter-repo gc prune reflog update-ref checkout-index read-tree prune-packed".split()
)
_HARMS = {
    "push": _harm("force force-with-lease force-if-includes mirror delete prune", letters="fd"),
    "reset": _harm("hard merge keep"),
    "checkout": _harm("force ours theirs merge pathspec-from-file overwrite-ignore", letters="fB"),
    "switch": _harm("force discard-changes force-create merge", letters="fC"),
    "branch": _harm("delete force", letters="DfMC"),
    "tag": _harm("delete force", letters="df"),
    "fetch": _harm("force prune prune-tags update-head-ok", letters="fpPu"),
    "pull": _harm("force prune", letters="fp"),
    "remote": _harm("prune", letters="p", words="remove rm prune"),
    "stash": _harm(words="drop clear"),
    "worktree": _harm("force", letters="f", words="remove prune"),
    "submodule": _harm("force", letters="f", words="deinit"),
    "rm": _harm("force", letters="f"),
    "mv": _harm("force", letters="f"),
    "notes": _harm("force", letters="f", words="remove prune"),
    "replace": _harm("delete force", letters="df"),
    "symbolic-ref": _harm("delete", letters="d"),
    "rerere": _harm(words="clear forget gc"),
    "lfs": _harm(words="prune"),
    "maintenance": _harm(words="run"),
    "repack": _harm(letters="dAa"),
    "svn": _harm(words="reset"),
    "sparse-checkout": _harm(words="set reapply"),
    "refs": _harm(words="delete"),
}
# Harmful at any place: a subcommand that is not known here may stand before them.
_ANYWHERE = frozenset("--hard --force --force-with-lease --mirror --prune --delete -D".split())
_NEW_BRANCH = frozenset("-b -B -t --track --orphan --detach -d".split())


def git_destroys(words: Sequence[Word]) -> bool:
    """Whether the words after `git` may destroy what was not committed, history, or what is at the remote."""
    line = read_git([word.text for word in words])
    if not line.subcommand:
        return any(not word.literal for word in words) or (bool(line.steered) and line.at == 0 and len(words) > 1)
    if not words[line.at].literal or line.subcommand not in _SUBCOMMANDS:
        return True
    rest = words[line.at + 1 :]
    texts = [word.text for word in rest]
    if line.subcommand in _ALWAYS:
        return not (all(word.literal and not word.glob for word in rest) and _only_shows(line.subcommand, texts=texts))
    if line.subcommand in _SHOWING:
        return False
    if any(text.partition("=")[0] in _ANYWHERE for text in texts):
        return True
    harm = _HARMS.get(line.subcommand)
    if harm is None:
        return False
    if any(_begins_unknown(word) or word.text in harm.words or _harms(word.text, harm=harm) for word in rest):
        return True
    if line.subcommand == "push":
        return any(text.startswith(("+", ":")) for text in texts)
    return line.subcommand == "checkout" and _discards(rest)


def _only_shows(subcommand: str, *, texts: Sequence[str]) -> bool:
    """Whether the command leaves all files as they are: a dry run, or what is staged alone."""
    options = [text for text in texts[: texts.index("--") if "--" in texts else None] if text.startswith("-")]
    match subcommand:
        case "reflog":
            return not {"expire", "delete", "drop"} & set(texts) and (
                not texts or re.fullmatch(r"show|exists|list|-n?\d+|HEAD", texts[0]) is not None
            )
        case "clean":
            plain = all(re.fullmatch(r"--dry-run|--quiet|-[dfxXqn]+", text) for text in options)
            return plain and any(text == "--dry-run" or (text[1] != "-" and "n" in text) for text in options)
        case "restore":
            return (
                bool(options)
                and all(text in ("--staged", "-S", "-q", "--quiet") for text in options)
                and ("--staged" in options or "-S" in options)
            )
        case _:
            return False


def _begins_unknown(word: Word) -> bool:
    """Whether it may come to an option: its beginning is known only when it runs."""
    return not word.literal and re.match(r"[\"']*[\w./]", word.text) is None


def _harms(text: str, *, harm: _Harm) -> bool:
    if text.startswith("--"):
        given = text.partition("=")[0]
        return len(given) > 2 and any(option.startswith(given) for option in harm.long)
    return text.startswith("-") and any(letter in text[1:] for letter in harm.letters)


def _discards(rest: Sequence[Word]) -> bool:
    """Whether `git checkout` takes files from a commit, over those that are there."""
    texts = [word.text for word in rest]
    operands = [word for word in rest if not word.text.startswith("-")]
    if "--" in texts or any(_is_path(word) for word in operands):
        return True
    return len(operands) > 1 and not _NEW_BRANCH & {text.partition("=")[0] for text in texts}


def _is_path(word: Word) -> bool:
    return (
        word.glob or word.text in (".", "..") or word.text.startswith(("./", "../", "/", ":")) or word.text[-1:] == "/"
    )
