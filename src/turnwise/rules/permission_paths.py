"""Which paths are secret or protected, and which patterns match a path. Text only: paths come in resolved.

Names are compared without case: on many file systems `.ENV` is `.env`.
"""

import re
from functools import lru_cache
from typing import Literal

from turnwise.rules.permission_facts import Access, PathFact

Guard = Literal["secret", "protected", "outside", "unknown"]

# Files that hold keys, passwords or tokens by convention of the tools that read them.
SECRET_NAMES = frozenset(
    """.env .envrc .netrc _netrc .pgpass .my.cnf .npmrc .yarnrc.yml .pypirc .git-credentials .htpasswd .dockercfg .s3cfg
    .boto .vault-token .terraformrc credentials credentials.json .credentials.json credentials.toml credentials.tfrc.json
    secrets.json secrets.yaml secrets.yml secrets.toml .secrets token.json client_secret.json master.key
    .bash_history .zsh_history .python_history .psql_history .mysql_history""".split()
)
SECRET_STEMS = (".env.", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "service-account", "service_account")
SECRET_ENDINGS = tuple(
    ".pem .key .p12 .pfx .jks .keystore .kdbx .ppk .pkcs12 .tfstate .tfvars .env .gpg .age .ovpn".split()
)
SECRET_FOLDERS = frozenset(
    ".ssh .gnupg .aws .azure .kube .docker .password-store keyrings .gcloud gcloud .oci .chef".split()
)
# Templates and public halves: they are there to be read.
PUBLIC_ENDINGS = (".example", ".sample", ".template", ".dist", ".pub", ".md", ".py", ".js", ".ts", ".go", ".rs")

# Writing there makes other programs do something later: hooks, start files, rules such as these.
PROTECTED_FOLDERS = frozenset(".git .hg .svn .jj .turnwise .husky .vscode .idea .devcontainer".split())
PROTECTED_NAMES = frozenset(
    """turnwise.toml pyproject.toml
    .bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile .zshrc .zshenv .zprofile .zlogin
    .zlogout .kshrc .cshrc .tcshrc .inputrc .xprofile .xinitrc .xsession config.fish .gitconfig .gitmodules .gitattributes
    .envrc .mcp.json .pre-commit-config.yaml .vimrc .exrc .nanorc .tmux.conf .wgetrc .curlrc sitecustomize.py""".split()
)


def guard_of(fact: PathFact, *, access: Access) -> Guard | None:
    """Why the path needs more than a general permission; None where it does not."""
    if not fact.resolved:
        return guard_of_text(fact.given, access=access) or "unknown"
    for path in (fact.resolved, fact.lexical):
        guard = guard_of_text(path, access=access)
        if guard is not None:
            return guard
    return None if fact.inside else "outside"


def guard_of_text(path: str, *, access: Access) -> Guard | None:
    """The same for the text of a path or pattern alone, which cannot tell what is outside."""
    segments = [segment for segment in path.casefold().replace("\\", "/").split("/") if segment]
    if not segments:
        return None
    name, folders = segments[-1], segments[:-1]
    if _is_secret(name) or any(folder in SECRET_FOLDERS for folder in segments):
        return "secret"
    if name == "config" and ".git" in folders:  # may hold a token in a remote's address
        return "secret"
    if access == "write":
        if name in PROTECTED_NAMES or any(folder in PROTECTED_FOLDERS for folder in segments):
            return "protected"
        if "turnwise" in folders and ".config" in folders:
            return "protected"
    return None


def _is_secret(name: str) -> bool:
    if name.endswith(PUBLIC_ENDINGS):
        return False
    return name in SECRET_NAMES or name.startswith(SECRET_STEMS) or name.endswith(SECRET_ENDINGS)


def path_matches(pattern: str, *, path: str, workspace: str, home: str, any_case: bool = False) -> bool:
    """Whether a resolved absolute `path` fits. Patterns are relative to the workspace, absolute, or begin with `~/`.

    `*` and `?` stay within one name, `**` spans folders, `x/**` is x as well; a backslash takes the next character as it is.
    A pattern without a slash is a name anywhere below the workspace. `any_case`: as a file system may compare names.
    """
    absolute = _absolute(pattern, workspace=workspace, home=home)
    if any_case:
        absolute, path = absolute.casefold(), path.casefold()
    return bool(path) and _compiled(absolute).fullmatch(path) is not None


def may_contain(pattern: str, *, folder: str, workspace: str, home: str) -> bool:
    """Whether what the pattern matches could lie below `folder`: a command upon the folder would touch it too."""
    absolute = _absolute(pattern, workspace=workspace, home=home)
    fixed = re.split(r"[*?\\]", absolute, maxsplit=1)[0]
    return bool(folder) and fixed.startswith(folder.rstrip("/") + "/")


def _absolute(pattern: str, *, workspace: str, home: str) -> str:
    if pattern == "~" or pattern.startswith("~/"):
        return home + pattern[1:]
    if pattern.startswith("/"):
        return pattern
    pattern = pattern.removeprefix("./")
    if pattern == ".":
        return workspace
    root = workspace.rstrip("/")
    return f"{root}/{pattern}" if "/" in pattern else f"{root}/**/{pattern}"


@lru_cache(maxsize=512)
def _compiled(pattern: str) -> re.Pattern[str]:
    tokens = {"/**/": "/(?:.*/)?", "/**": "(?:/.*)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    parts: list[str] = []
    for found in re.finditer(r"\\(.)|/\*\*/|/\*\*$|\*\*|\*|\?|[^\\*?/]+|[/\\]", pattern, re.DOTALL):
        text = found[0]
        parts.append(re.escape(found[1]) if found[1] else tokens.get(text, re.escape(text)))
    return re.compile("".join(parts), re.DOTALL)


def escape_pattern(text: str) -> str:
    """The pattern that matches exactly `text`."""
    return re.sub(r"([\\*?])", r"\\\1", text)
