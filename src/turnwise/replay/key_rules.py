"""What keys look like: the rules of gitleaks (`gitleaks.toml`, written by scripts/key_rules.py), and those that it lacks.

A rule is tried where one of its words stands. A text is searched in parts of bounded length, so the time grows with its length,
whatever the patterns do within a part.
"""

import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import msgspec

PART = 16_384  # characters that are searched at once
OVERLAP = 4_096  # longer than a key with the name before it
_URL = "[A-Za-z0-9_-]"  # base64url, and what joins its pieces
_BASE64 = "[A-Za-z0-9+/]"
_IS = r"[\"']{0,2}\s{0,8}(?:=>|:=|[:=])\s{0,8}[\"']{0,2}"  # what stands between a name and its value


class KeyRule(msgspec.Struct, frozen=True):
    """`keywords` are in small letters. The key is the pattern's group that matched, else all of it."""

    keywords: tuple[str, ...]
    pattern: str


# Sources: the providers' own pages on their keys, and GitHub's "Supported secret scanning patterns".
OWN_RULES = (
    # of models
    KeyRule(("sk-",), rf"sk-{_URL}{{16,}}"),
    KeyRule(("aiza",), rf"AIza{_URL}{{30,}}"),
    KeyRule(("gsk_", "xai-"), "(?:gsk_|xai-)[A-Za-z0-9]{20,}"),
    KeyRule(("hf_", "fw_", "r8_", "pplx-", "csk-"), "(?:hf_|fw_|r8_|pplx-|csk-)[A-Za-z0-9]{22,}"),
    KeyRule(("nvapi-", "tgp_v1_"), rf"(?:nvapi-|tgp_v1_){_URL}{{32,}}"),
    KeyRule(("tvly-", "tw-"), rf"tvly-{_URL}{{20,}}|tw-{_URL}{{43}}"),  # Tavily, turnwise's gateway
    # of clouds, code and shops; some as gitleaks has them, with more that may stand behind the beginning
    KeyRule(("akia", "asia", "abia", "acca"), "(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}"),
    KeyRule(("absk",), "ABSK[A-Za-z0-9+/]{40,}={0,2}"),
    KeyRule(
        ("secret", "session"),
        rf"(?i:(?:aws_)?secret_?(?:access_?)?key){_IS}({_BASE64}{{40}})(?![A-Za-z0-9+/=])"
        rf"|(?i:(?:aws_)?session_?token){_IS}({_BASE64}{{100,2048}}={{0,2}})",
    ),
    KeyRule(
        ("accountkey=", "sharedaccesskey=", "sig="),
        rf"(?:AccountKey|SharedAccessKey)=({_BASE64}{{43,86}}={{1,2}})|sig=([A-Za-z0-9%+/]{{40,}})",
    ),
    KeyRule(("ya29.", "gocspx-"), rf"(?:ya29\.|GOCSPX-){_URL}{{20,}}"),
    KeyRule(("pypi-", "dckr_"), rf"pypi-{_URL}{{50,}}|dckr_(?:pat|oat)_{_URL}{{20,}}"),
    KeyRule(
        ("hooks.slack.com/", "/api/webhooks/"),
        rf"hooks\.slack\.com/\w+/([A-Za-z0-9/_-]{{20,}})|discord(?:app)?\.com/api/webhooks/[0-9]{{16,20}}/({_URL}{{60,}})",
    ),
    KeyRule((":aa",), rf"(?:bot)?([0-9]{{8,10}}:AA{_URL}{{33}})"),  # Telegram
    KeyRule(("key-",), "key-[0-9a-f]{32}(?![0-9a-f])"),  # Mailgun, and its newer ones
    KeyRule(
        ("-us", *[f"-{digit}" for digit in "0123456789abcdef"]),
        r"[0-9a-f]{32}-(?:[0-9a-f]{8}-[0-9a-f]{8}(?![0-9a-f-])|us[0-9]{1,2}\b)",
    ),
    KeyRule(("auth",), rf"(?i:(?:twilio_)?auth_?token){_IS}([0-9a-f]{{32}})(?![0-9a-f])"),
    KeyRule(("whsec_", "lin_api_"), "whsec_[A-Za-z0-9+/=]{24,}|lin_api_[A-Za-z0-9]{32,}"),
    KeyRule(("pat", "sbp_"), r"pat[A-Za-z0-9]{14}\.[a-f0-9]{64}|sbp_[a-f0-9]{40}"),  # Airtable, Supabase
    KeyRule(("figd_", "sq0csp-"), rf"(?:figd_|sq0csp-){_URL}{{40,}}"),  # Figma, Square
    KeyRule(("nrak-", "atbb"), "NRAK-[A-Z0-9]{27}|ATBB[A-Za-z0-9]{32}"),  # New Relic, Bitbucket
    KeyRule(("curl",), r"\bcurl\b[^\n]{0,200}?\s(?:-u|--user)[ =]{1,3}[\"']?[^\s:\"']{1,64}:([^\s\"']{3,128})"),
    KeyRule(('"auth"',), rf"\"auth\"\s{{0,4}}:\s{{0,4}}\"({_BASE64}{{16,}}={{0,2}})\""),  # Docker's logins
    KeyRule(("eyj",), rf"eyJ{_URL}{{8,}}\.eyJ{_URL}{{8,}}\.{_URL}{{8,}}"),
)


@cache
def key_rules() -> tuple[KeyRule, ...]:
    text = (Path(__file__).parent / "gitleaks.toml").read_text(encoding="utf-8")
    return (*msgspec.convert(tomllib.loads(text), dict[str, KeyRule]).values(), *OWN_RULES)


def keys_in(text: str, *, seams: tuple[int, ...] = ()) -> Iterator[tuple[int, str]]:
    """Where each of them begins in a text, and the key. No letter or digit stands before it, except at `seams`: something that
    is not shown stood there."""
    for start in range(0, max(1, len(text) - OVERLAP), PART):
        last = start + PART + OVERLAP >= len(text)
        for began, at, key in _found_in(text[start : start + PART + OVERLAP]):
            if last or began < PART:
                yield start + at, key
    for seam in seams:
        if seam and text[seam - 1].isalnum():
            yield from [(seam, key) for _, at, key in _found_in(text[seam : seam + OVERLAP]) if at == 0]


def _found_in(part: str) -> Iterator[tuple[int, int, str]]:
    """Where each match and its key begin, and the key."""
    for pattern in _patterns_for(part.lower()):
        for found in _compiled(pattern).finditer(part):
            group = found.lastindex or 0
            yield found.start(), found.start(group), found[group]


def _patterns_for(small: str) -> list[str]:
    """Those with a word in the text. Most texts have the first two letters of few words: the others are not looked for."""
    by_beginning = _patterns_by_word()
    beginnings = by_beginning.keys() & set(map(str.__add__, small, small[1:]))
    return sorted({pattern for two in beginnings for word, pattern in by_beginning[two] if word in small})


@cache
def _patterns_by_word() -> dict[str, list[tuple[str, str]]]:
    """Each word with its pattern, by its first two characters."""
    found: dict[str, list[tuple[str, str]]] = {}
    for rule in key_rules():
        for word in rule.keywords:
            found.setdefault(word[:2], []).append((word, rule.pattern))
    return found


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(f"(?<![A-Za-z0-9])(?:{pattern})", re.ASCII)
