"""Write src/turnwise/replay/gitleaks.toml from the rules of gitleaks, in the words of Python's `re`.

`python scripts/key_rules.py CONFIG COMMIT`: CONFIG is config/gitleaks.toml of that commit of github.com/gitleaks/gitleaks.
Left out are rules that need a file's name, that find what is public, or for which turnwise has a search of its own.
"""

import argparse
import re
import tomllib
from pathlib import Path

import msgspec

TARGET = Path(__file__).resolve().parents[1] / "src" / "turnwise" / "replay" / "gitleaks.toml"
HEAD = """\
# What the keys of many services look like: the rules of gitleaks, commit {commit}.
# Copyright (c) 2019 Zachary Rice, MIT licence (LICENSE). Written by scripts/key_rules.py; do not edit.
"""
PUBLIC = re.compile(r"client-id|-pub\b|-pub-|public|access-id")
# Found by their names, by what stands around them, or line by line (replay/secret_finder.py).
OWN = {
    "generic-api-key",
    "private-key",
    "curl-auth-header",
    "curl-auth-user",
    "kubernetes-secret-yaml",
    "jwt-base64",
    "slack-webhook-url",
}
BEFORE_NAME = r"[\w.-]{0,50}?"  # what comes before the name of a service is no part of the key
END = r"""(?:[\x60'"\s;]|\\[nr]|$)"""  # gitleaks reads files; in an answer a key may stand before any sign
# The search itself sees to it that no letter or digit stands before a key.
BEFORE_KEY = r"""(?:^|[\\'"\x60\s>=:(,)])"""
POSIX = {"[[:alnum:]]": "[A-Za-z0-9]", "[:alnum:]": "A-Za-z0-9"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config", type=Path)
    parser.add_argument("commit")
    given = parser.parse_args()
    rules = tomllib.loads(given.config.read_text(encoding="utf-8"))["rules"]
    written = {
        rule["id"]: {
            "keywords": [word.lower() for word in rule["keywords"]],
            "pattern": python_pattern(rule["regex"], group=rule.get("secretGroup", 1)),
        }
        for rule in rules
        if "regex" in rule and "keywords" in rule and rule["id"] not in OWN and not PUBLIC.search(rule["id"])
    }
    lines = [f"{id} = {inline(rule)}\n" for id, rule in sorted(written.items())]
    TARGET.write_text(HEAD.format(commit=given.commit) + "".join(lines), encoding="utf-8")
    print(f"{len(written)} of {len(rules)} rules")


def inline(rule: dict[str, object]) -> str:
    return "{ " + ", ".join([f"{key} = {msgspec.json.encode(value).decode()}" for key, value in rule.items()]) + " }"


def python_pattern(pattern: str, *, group: int) -> str:
    """With the key in the first group. Go lets `(?i)` stand anywhere, for the rest of a group, Python has `(?i:...)`."""
    for old, new in POSIX.items():
        pattern = pattern.replace(old, new)
    pattern = (
        pattern.replace(END, r"(?![A-Za-z0-9_-])")
        .replace(BEFORE_NAME, "")
        .replace(BEFORE_KEY, "")
        .replace(r"\z", r"\Z")
    )
    pattern = re.sub(r"\((?!\?)([^()]*)\)(?=\{)", r"(?:\1)", pattern)  # what is repeated is not the key
    for _ in range(1, group):
        pattern = re.sub(r"\((?!\?)", "(?:", pattern, count=1)
    while (at := pattern.find("(?i)")) >= 0:
        end = group_end(pattern, at + 4)
        pattern = f"{pattern[:at]}(?i:{pattern[at + 4 : end]}){pattern[end:]}"
    re.compile(pattern, re.ASCII)
    return pattern


def group_end(pattern: str, at: int) -> int:
    """Where the group that is open at `at` closes."""
    depth, in_class = 0, False
    while at < len(pattern):
        sign = pattern[at]
        if sign == "\\":
            at += 1
        elif in_class:
            in_class = sign != "]"
        elif sign == "[":
            in_class = True
        elif sign == "(":
            depth += 1
        elif sign == ")":
            if depth == 0:
                return at
            depth -= 1
        at += 1
    return at


main()
