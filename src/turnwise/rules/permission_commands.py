"""Which command patterns match a command: over its parsed words, never over its text.

A permission is matched narrowly (each word where the pattern has it), a prohibition widely (whatever the path of the
program, options before the subcommand, words known only later).
"""

import re
from collections.abc import Callable, Sequence
from enum import Enum

import msgspec

from turnwise.rules.git_commands import git_destroys, read_git
from turnwise.rules.permission_facts import FIND_RUNS, HARMLESS_NAMES, CommandFact, Word
from turnwise.rules.permission_paths import Glob, word_glob

# The options with which commands that people allow by a pattern write files or run programs.
#
# `--allow 'bash(git log *)'` is meant for looking at the log: `--output=file` needs a permission that spells it out. One table
# for all; an option that is listed counts abbreviated and joined with others, too. Sources: the manual pages of the commands.


class Writing(msgspec.Struct, frozen=True, kw_only=True):
    """Of a command: `long` options and their beginnings; `letters` of short ones (`valued` letters take the rest of the word);
    `exact` words, also with `=` behind. `streams` are options that write nothing where their value is `-` or `/dev/null`.
    `harmless` words are no options of these. `whole` says of all words whether they write or run something otherwise."""

    long: tuple[str, ...] = ()
    letters: str = ""
    valued: str = ""
    exact: frozenset[str] = frozenset()
    streams: frozenset[str] = frozenset()
    harmless: str = ""
    whole: Callable[[Sequence[str]], bool] | None = None


def _writing(
    long: str = "", *, letters: str = "", valued: str = "", exact: str = "", streams: str = "", harmless: str = "",
    whole: Callable[[Sequence[str]], bool] | None = None,
) -> Writing:  # fmt: skip
    return Writing(
        long=tuple(f"--{name}" for name in long.split()),
        letters=letters,
        valued=valued,
        exact=frozenset(exact.split()),
        streams=frozenset(streams.split()),
        harmless=harmless,
        whole=whole,
    )


_SED_ADDRESS = r"(?:\d+(?:~\d+)?|\$|/(?:[^/\\\n]|\\.)*/I?)"
_SED_COMMAND = (
    rf"(?:{_SED_ADDRESS}(?:,\s*\+?{_SED_ADDRESS})?\s*!?\s*)?"
    r"(?:[pdqDPnNgGhHx=l]|[sy]([/|,#@!_])(?:(?!\1)[^\\\n]|\\.)*\1(?:(?!\1)[^\\\n]|\\.)*\1[gpiI\d]*)?"
)
_SED_SIMPLE = re.compile(_SED_COMMAND, re.DOTALL)
_SED_FLAGS = frozenset(
    """--quiet --silent --posix --regexp-extended --separate --unbuffered --null-data --zero-terminated --sandbox
    --follow-symlinks --help --version""".split()
)
_AWK_FLAGS = frozenset(
    """--posix --traditional --characters-as-bytes --sandbox --re-interval --use-lc-numeric --non-decimal-data --bignum
    --optimize --no-optimize --csv --lint-old --help --version""".split()
)
_HARMLESS_VARIABLES = HARMLESS_NAMES | {"Q", "JOBS", "ARGS", "TESTARGS"}


def _sed_writes(texts: Sequence[str]) -> bool:
    """Whether a script writes or runs something: it does more than print, delete and substitute plainly."""
    scripts = _scripts(texts, option="e", valued="l", flags=_SED_FLAGS)
    parts = [part for script in scripts for part in re.split(r"[;\n]", script)]
    return any(_SED_SIMPLE.fullmatch(part.strip()) is None for part in parts)


def _awk_writes(texts: Sequence[str]) -> bool:
    """Whether the program writes or runs something. Before a block `>` compares, in it `>` may open a file."""
    for program in _scripts(texts, option="e", valued="Fv", flags=_AWK_FLAGS):
        blocks = "".join(re.findall(r"\{.*\}", program, re.DOTALL))
        if re.search(r"system|getline|@|\|", program.replace("||", "")) or ">" in blocks.replace(">=", ""):
            return True
    return False


def _scripts(texts: Sequence[str], *, option: str, valued: str, flags: frozenset[str]) -> list[str]:
    """The values of an option, or the first operand where there is none. `valued`: letters of other options with a value.
    `flags` are long options without one; behind another, the next word may be its value or the script, and counts as both."""
    found: list[str] = []
    operands: list[str] = []
    count = 1
    at = 0
    while at < len(texts):
        text = texts[at]
        at += 1
        if not text.startswith("-") or text == "-":
            operands.append(text)
            continue
        if text.startswith("--") and text != "--" and "=" not in text and text not in flags:
            count += 1
        letter = next((one for one in text[1:] if one in option + valued), "") if text[1:2] != "-" else ""
        value = text.partition(letter)[2] if letter else ""
        if letter and not value:
            value = texts[at] if at < len(texts) else ""
            at += 1
        if letter == option:
            found.append(value)
    return found or operands[:count]


def _make_sets(texts: Sequence[str]) -> bool:
    settings = [text.partition("=") for text in texts if "=" in text and not text.startswith("-")]
    return any(name not in _HARMLESS_VARIABLES or not re.fullmatch(r"[\w.,-]*", value) for name, _, value in settings)


_TESTS = _writing(
    """junitxml junit-xml basetemp report-log resultlog log-file debug rootdir override-ini pdbcls confcutdir cov-report
    cov-config pastebin html json-report-file config-file inifile""",
    letters="pco",
    valued="kmnrW",
    harmless=r"--cov(?:=.*)?|--cov-report=term(?:-missing)?(?::skip-covered)?|-pno:\w+",
)
_PACKAGES = _writing(
    """script-shell prefix userconfig globalconfig node-options shell editor git viewer browser cache global location cwd dir
    call init-module scripts-prepend-node-path modules-folder use-node-version config package""",
    letters="gCc",
)
_CONTAINERS = _writing(
    """volume mount privileged device cap-add security-opt pid ipc userns network net volumes-from host config context output
    secret ssh entrypoint env-file iidfile cidfile metadata-file file project-directory add-host builder runtime
    cgroup-parent publish publish-all""",
    letters="vHofpPc",
    valued="etnwul",
)
_TAR = _writing(
    """to-command checkpoint-action use-compress-program info-script new-volume-script rsh-command rmt-command index-file
    remove-files absolute-names recursive-unlink unlink-first one-top-level transform xform""",
    letters="IFP",
    valued="CTXgbHLNVKf",
    whole=lambda texts: bool(texts) and re.match(r"[A-Za-z]*[IFP]", texts[0]) is not None,  # `tar xIf`
)
WRITING: dict[str, Writing] = {
    "find": _writing(exact=" ".join(["-delete -fprint -fprint0 -fprintf -fls", *FIND_RUNS])),
    "fd": _writing("exec exec-batch", letters="xX"),
    "rg": _writing("pre hostname-bin search-zip", letters="z", valued="ABCEefgjmMrtT"),
    "sed": _writing("in-place file expression debug", letters="iIf", valued="el", whole=_sed_writes),
    "awk": _writing(
        "file include load exec profile debug dump-variables pretty-print gen-pot source",
        letters="fiElopdDLW",
        valued="Fve",
        whole=_awk_writes,
    ),
    "sort": _writing("output compress-program temporary-directory", letters="oT", valued="ktS", streams="-o --output"),
    "tar": _TAR,
    "bsdtar": _TAR,
    "curl": _writing(
        """output remote-name remote-name-all remote-header-name output-dir dump-header cookie-jar trace trace-ascii stderr
        config upload-file etag-save hsts alt-svc libcurl create-dirs unix-socket abstract-unix-socket engine""",
        letters="oOJDcKT",
        valued="AbCdeEFhHmPQrtuUxXyYzw",
        streams="-o -D --output --dump-header --stderr",
        whole=lambda texts: any("%output{" in text or text.startswith(("-w@", "@")) for text in texts),
    ),
    "wget": _writing(
        """output-document output-file append-output directory-prefix input-file execute config use-askpass save-cookies
        post-file body-file warc-file warc-cdx hsts-file recursive mirror rejected-log backups delete-after""",
        letters="OoaPierm",
        valued="AtTUQwlIXDR",
        streams="-O -o --output-document --output-file",
    ),
    "pytest": _TESTS,
    "py.test": _TESTS,
    "npm": _PACKAGES,
    "npx": _PACKAGES,
    "pnpm": _PACKAGES,
    "yarn": _PACKAGES,
    "cargo": _writing(
        "config manifest-path target-dir artifact-dir out-dir fix root path git index registry lockfile-path",
        letters="ZC",
        valued="pjF",
        whole=lambda texts: any(text.startswith("+") for text in texts[:1]),
    ),
    "go": _writing(
        exact=" ".join(
            f"-{name} --{name}"
            for name in """exec toolexec vettool o c C overlay modfile ldflags gcflags asmflags gccgoflags compiler pkgdir
            outputdir coverprofile cpuprofile memprofile blockprofile mutexprofile trace w fix""".split()
        )
    ),
    "gofmt": _writing(letters="wr", exact="-cpuprofile"),
    "make": _writing(
        "file makefile directory include-dir eval environment-overrides",
        letters="fCIEe",
        valued="jlOW",
        whole=_make_sets,
    ),
    "cmake": _writing(
        "install workflow graphviz trace-redirect profiling-output",
        letters="PECD",
        harmless=r"-DCMAKE_BUILD_TYPE=\w+|-DBUILD_\w+=\w+",
    ),
    "docker": _CONTAINERS,
    "docker logs": _writing(),
    "podman": _CONTAINERS,
    "docker-compose": _CONTAINERS,
    "kubectl": _writing("kubeconfig filename kustomize raw", letters="fk", valued="nlos"),
    "kubectl logs": _writing("kubeconfig"),
    "ruff": _writing("fix fix-only unsafe-fixes add-noqa output-file config cache-dir", letters="o"),
    "eslint": _writing(
        "fix fix-type output-file rulesdir plugin config resolve-plugins-relative-to parser cache-location init",
        letters="oc",
    ),
    "prettier": _writing("write plugin config cache-location", letters="w"),
    "mypy": _writing(
        """html-report txt-report xml-report any-exprs-report linecount-report linecoverage-report lineprecision-report
        cobertura-xml-report xslt-html-report xslt-txt-report junit-xml config-file python-executable install-types cache-dir
        custom-typeshed-dir"""
    ),
    "tsc": _writing(
        exact="""--outDir --outFile --build -b -p --project --init --declarationDir --tsBuildInfoFile --generateTrace
        --generateCpuProfile --plugins"""
    ),
    "pip": _writing("target prefix root src log report cache-dir", letters="t"),
    "uv": _writing("directory config-file cache-dir with with-editable with-requirements env-file script"),
    "rsync": _writing(
        "rsh rsync-path log-file write-batch backup-dir temp-dir partial-dir daemon", letters="eT", valued="fM"
    ),
    "scp": _writing(letters="SoFD"),
    "ssh": _writing(letters="oFELRDWwISM"),
    "date": _writing("set", letters="s"),
    "tree": _writing(letters="oR"),
    "less": _writing("log-file LOG-FILE lesskey-file tag", letters="oOkt"),
    "man": _writing("pager html gxditview preprocessor config-file troff-device", letters="PHXCpT"),
    "jq": _writing("from-file library-path", letters="fL"),
    "xxd": _writing("revert", letters="r"),
    "split": _writing("filter"),
    "zip": _writing("unzip-command test move temp-path", letters="TmOb"),
    "psql": _writing("output log-file file", letters="oLf"),
}
_ALIASES = {"gawk": "awk", "mawk": "awk", "nawk": "awk", "gsed": "sed", "gtar": "tar", "pip3": "pip"}
_GIT_ANY = _writing(
    """output ext-diff textconv open-files-in-pager exec exec-path upload-pack receive-pack extcmd template show-signature
    gpg-sign edit edit-description tree-filter index-filter msg-filter env-filter commit-filter parent-filter
    tag-name-filter setup strategy tool contents separate-git-dir output-directory config reference no-index filters"""
)
_GIT_LETTERS = {
    name: letters
    for letters, names in {
        "o": "archive format-patch",
        "O": "grep",
        "xis": "rebase",
        "xt": "difftool mergetool",
        "ucb": "clone",
        "eSsui": "commit tag merge cherry-pick revert add am",
        "ef": "config",
    }.items()
    for name in names.split()
}


def writes_or_runs(words: Sequence[Word], *, spelt: Sequence[bool]) -> bool:
    """Whether the command has a word with which it may write or run something, and which the rule did not spell out (`spelt`)."""
    if all(spelt):
        return False
    kind = _kind(words, spelt=spelt)
    if kind is None:
        return False
    if kind.whole is not None and kind.whole([word.text for word in words[1:]]):
        return True
    return any(not known and _may_write(words, at=at, kind=kind) for at, known in enumerate(spelt) if at > 0)


def _kind(words: Sequence[Word], *, spelt: Sequence[bool]) -> Writing | None:
    name = words[0].text.rpartition("/")[2]
    if name != "git":
        both = f"{name} {words[1].text}" if len(words) > 1 else ""
        return WRITING.get(both) or WRITING.get(_ALIASES.get(name, name))
    line = read_git([word.text for word in words[1:]])
    steered = line.at > 0 and not all(spelt[: line.at + 1])
    letters = _GIT_LETTERS.get(line.subcommand, "")
    whole = _always if steered or line.steered else None
    return msgspec.structs.replace(_GIT_ANY, letters=letters, valued="GSLnmF", whole=whole)


def _always(_texts: Sequence[str]) -> bool:
    return True


def _may_write(words: Sequence[Word], *, at: int, kind: Writing) -> bool:
    word = words[at]
    text = word.text
    if not word.literal:
        return re.match(r"[\"']*[\w./]", text) is None  # it may come to an option
    if re.fullmatch(kind.harmless, text):
        return False
    option = _option(text, kind=kind)
    if option in kind.streams:
        value = text.partition("=")[2] if text.startswith("--") else text.partition(option[1:])[2]
        if not value and at + 1 < len(words):
            value = words[at + 1].text
        return value not in ("-", "/dev/null")
    return bool(option)


def _option(text: str, *, kind: Writing) -> str:
    """The listed option that the word is or may be short for; empty if it is no such option."""
    given = text.partition("=")[0]
    if given in kind.exact:
        return given
    if text.startswith("--"):
        return next((option for option in kind.long if len(given) > 2 and option.startswith(given)), "")
    if not text.startswith("-"):
        return ""
    for letter in text[1:]:
        if letter in kind.letters:
            return f"-{letter}"
        if letter in kind.valued:
            return ""
    return ""


_WILDCARD = re.compile(r"(?<!\\)(?:\\\\)*[*?]")

_SUBSTITUTES = re.compile(r"\$\(|`|\A.{200}", re.DOTALL)  # a long word is shown in part


class Match(Enum):
    NO = 0
    MAYBE = 1
    """A word known only when it runs could make it match."""
    YES = 2


def matches_narrowly(pattern: tuple[str, ...], *, command: CommandFact) -> bool:
    """Word for word. A last `*` stands for any further words, also for those known only when the command runs, but not for an
    option with which the command writes or runs something: a permission has to spell that out."""
    words = command.words
    if not words or not words[0].literal:
        return False
    if pattern == ("*",):
        return True
    open_end = len(pattern) > 1 and pattern[-1] == "*"
    tokens = pattern[:-1] if open_end else pattern
    if len(words) < len(tokens) or (len(words) > len(tokens) and not open_end):
        return False
    if not all(_fits(token, word=word) for token, word in zip(tokens, words, strict=False)):
        return False
    if _is_commit(words) and any(not word.literal and _SUBSTITUTES.search(word.text) for word in words):
        return False  # a message stays for good: what a command puts into it has to be looked at
    spelt = [at < len(tokens) and _spells(tokens[at]) for at in range(len(words))]
    return not writes_or_runs(words, spelt=spelt)


def _is_commit(words: tuple[Word, ...]) -> bool:
    return words[0].text.rpartition("/")[2] == "git" and any(word.text == "commit" for word in words)


def _spells(token: str) -> bool:
    """Whether the token says at least which option it is: `--output=*`."""
    wildcard = _WILDCARD.search(token)
    return wildcard is None or "=" in token[: wildcard.start()]


def matches_widely(pattern: tuple[str, ...], *, command: CommandFact) -> Match:
    """As a prohibition is meant: `rm *` also is `/bin/rm x`, `git push *` also `git -C . push`."""
    words = command.words
    if not words:
        return Match.NO
    if not words[0].literal:
        return Match.MAYBE
    name = words[0].text
    names = {name, name.replace("\\", "/").rpartition("/")[2]}
    if not any(_compiled(pattern[0]).fits(one.casefold()) for one in names):
        return Match.NO
    return _rest(pattern[1:], words=words[1:])


def _rest(pattern: tuple[str, ...], *, words: tuple[Word, ...]) -> Match:
    """Positions at which the tokens so far may have ended, moved on token by token: linear in words times tokens."""
    if not pattern:
        return Match.YES  # a prohibition of `rm` is one of `rm x`
    sure = {0}
    maybe = set[int]()
    for at, token in enumerate(pattern):
        if token == "*" and at == len(pattern) - 1:
            break
        sure, maybe = _after(token, words=words, sure=sure, maybe=maybe)
    if sure:
        return Match.YES
    return Match.MAYBE if maybe else Match.NO


def _after(token: str, *, words: tuple[Word, ...], sure: set[int], maybe: set[int]) -> tuple[set[int], set[int]]:
    found_sure, found_maybe = set[int](), set[int]()
    for start in sorted(sure | maybe):
        at = start
        while at < len(words):
            word = words[at]
            if not word.literal:
                found_maybe.update(range(at, len(words) + 1))  # it may be any number of words
                break
            if word.glob and _may_name(word.text, token=token):
                found_maybe.add(at + 1)
            if _compiled(token).fits(word.text.casefold()):
                (found_sure if start in sure else found_maybe).add(at + 1)
            elif _is_short_for(word.text.casefold(), option=token.casefold()):
                found_maybe.add(at + 1)
            if token.startswith("-"):
                at += 1
                continue  # options stand in any order
            # The value of an option may be passed over, too; any other word ends the search.
            if not word.text.startswith("-") and (at == start or not words[at - 1].text.startswith("-")):
                break
            at += 1
    return found_sure, found_maybe


def _is_short_for(text: str, *, option: str) -> bool:
    """Whether a program may take the text for the option: abbreviated (`--har`), or with others in one word (`-qD`)."""
    if text.startswith("--"):
        return len(text) > 2 and option.startswith(text.partition("=")[0])
    letters = option[1:]
    return text.startswith("-") and letters.isalnum() and option[0] == "-" and set(letters) <= set(text[1:])


def _may_name(glob: str, *, token: str) -> bool:
    """Whether bash may put a file's name in the place of the word that the token matches: `pu*` for `push`."""
    if re.search(r"[*?]", token):
        return True
    start, end = glob.find("["), glob.rfind("]")
    loose = f"{glob[:start]}*{glob[end + 1 :]}" if 0 <= start < end else glob
    return _compiled(loose).fits(token.casefold())


def _fits(token: str, *, word: Word) -> bool:
    if not word.literal:
        return token == "*"
    return word_glob(token).fits(word.text)


def _compiled(token: str) -> Glob:
    return word_glob(token.casefold())


# Commands that destroy what cannot be brought back.


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
