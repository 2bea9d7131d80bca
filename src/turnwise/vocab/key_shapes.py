"""The one table of what keys look like: how each kind begins, and what may follow.

Texts are searched with it for keys that nobody named. A shape has to be one that ordinary text does not have: a beginning that
its provider chose, then more letters and digits than a word has. Sources: the providers' own pages on their keys, and the
patterns that they gave to GitHub's secret scanning ("Supported secret scanning patterns").
"""

import re
from collections.abc import Iterator
from functools import cache

import msgspec

_WORD = "[A-Za-z0-9]"
_URL = "[A-Za-z0-9_-]"  # base64url, and what joins its pieces
_TOKEN = "[A-Za-z0-9._~+/-]"  # RFC 6750, 2.1
_BASE64 = "[A-Za-z0-9+/]"
_IS = r"[\"']{0,2}\s{0,8}(?:=>|:=|[:=])\s{0,8}[\"']{0,2}"  # what stands between a name and its value


class KeyShape(msgspec.Struct, frozen=True):
    """`begins` is the text that the key begins with, or a pattern of it; `goes_on` the pattern of the rest. `is_quoted`:
    providers of models repeat such keys in their errors, and shortened: there fewer characters are enough. `behind` is the
    pattern of a name or an address that stands before the key and is no part of it."""

    whose: str
    begins: str
    goes_on: str
    is_quoted: bool = False
    behind: str = ""


KEY_SHAPES = (
    # of models
    KeyShape("OpenAI, Anthropic, OpenRouter, DeepSeek and others", "sk-", rf"{_URL}{{16,}}", is_quoted=True),
    KeyShape("Google", "AIza", rf"{_URL}{{30,}}", is_quoted=True),
    KeyShape("Groq", "gsk_", rf"{_WORD}{{20,}}", is_quoted=True),
    KeyShape("xAI", "xai-", rf"{_WORD}{{20,}}", is_quoted=True),
    KeyShape("turnwise's gateway", "tw-", rf"{_URL}{{43}}"),
    KeyShape("Hugging Face", "hf_", rf"{_WORD}{{30,}}"),
    KeyShape("Perplexity", "pplx-", rf"{_WORD}{{32,}}"),
    KeyShape("Nvidia", "nvapi-", rf"{_URL}{{32,}}"),
    KeyShape("Cerebras", "csk-", rf"{_WORD}{{32,}}"),
    KeyShape("Fireworks", "fw_", rf"{_WORD}{{22,}}"),
    KeyShape("Replicate", "r8_", rf"{_WORD}{{30,}}"),
    KeyShape("Together", "tgp_v1_", rf"{_URL}{{32,}}"),
    KeyShape("Tavily", "tvly-", rf"{_URL}{{20,}}"),
    # of clouds, code and shops
    KeyShape("Amazon", "(?:AKIA|ASIA|ABIA|ACCA)", "[A-Z0-9]{16}"),
    KeyShape("Amazon Bedrock", "ABSK", "[A-Za-z0-9+/]{40,}={0,2}"),
    KeyShape(
        "Amazon, secret",
        "",
        f"{_BASE64}{{40}}(?![A-Za-z0-9+/=])",
        behind=rf"(?i:(?:aws_)?secret_?(?:access_?)?key){_IS}",
    ),
    KeyShape("Amazon, session", "", f"{_BASE64}{{100,2048}}={{0,2}}", behind=rf"(?i:(?:aws_)?session_?token){_IS}"),
    KeyShape("Azure, client secrets", r"[A-Za-z0-9_~.]{3}[0-9]Q~", "[A-Za-z0-9_~.-]{31,34}"),
    KeyShape("Azure, accounts", "", f"{_BASE64}{{86}}==", behind="(?:AccountKey|SharedAccessKey)="),
    KeyShape("Google OAuth", r"ya29\.", rf"{_URL}{{20,}}"),
    KeyShape("Google OAuth clients", "GOCSPX-", rf"{_URL}{{20,}}"),
    KeyShape("GitHub", "gh[pousr]_", rf"{_WORD}{{36,}}"),
    KeyShape("GitHub, fine-grained", "github_pat_", "[A-Za-z0-9_]{22,}"),
    KeyShape("GitLab", "gl(?:pat|ptt|rt|dt|cbt)-", rf"{_URL}{{20,}}"),
    KeyShape("npm", "npm_", rf"{_WORD}{{36,}}"),
    KeyShape("PyPI", "pypi-", rf"{_URL}{{50,}}"),
    KeyShape("Docker", "dckr_(?:pat|oat)_", rf"{_URL}{{20,}}"),
    KeyShape("DigitalOcean", "do[opr]_v1_", "[a-f0-9]{64}"),
    KeyShape("Slack", "xox[abeoprs]-", "[A-Za-z0-9-]{10,}"),
    KeyShape("Slack apps", "xapp-", "[A-Za-z0-9-]{20,}"),
    KeyShape("Slack webhooks", "", "[A-Za-z0-9/_-]{20,}", behind=r"hooks\.slack\.com/(?:services|workflows|triggers)/"),
    KeyShape("Telegram", "[0-9]{8,10}:AA", rf"{_URL}{{33}}", behind="(?:bot)?"),
    KeyShape("Mailgun", "key-", "[0-9a-f]{32}(?![0-9a-f])"),
    KeyShape("Mailgun, newer", "[0-9a-f]{32}-[0-9a-f]{8}-", "[0-9a-f]{8}(?![0-9a-f-])"),
    KeyShape("Twilio", "SK", "[0-9a-f]{32}(?![0-9a-f])"),
    KeyShape("Twilio, accounts", "", "[0-9a-f]{32}(?![0-9a-f])", behind=rf"(?i:(?:twilio_)?auth_?token){_IS}"),
    KeyShape("age", "AGE-SECRET-KEY-1", "[QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L]{58}"),
    KeyShape("Stripe", "[rs]k_(?:live|test)_", rf"{_WORD}{{16,}}"),
    KeyShape("webhooks", "whsec_", "[A-Za-z0-9+/=]{24,}"),
    KeyShape("SendGrid", r"SG\.", rf"{_URL}{{16,}}\.{_URL}{{32,}}"),
    KeyShape("Linear", "lin_api_", rf"{_WORD}{{32,}}"),
    KeyShape("Sentry", "sntrys_", "[A-Za-z0-9+/=_]{40,}"),
    # of any server
    KeyShape("headers", "", rf"{_TOKEN}{{20,}}={{0,2}}", behind="(?:Bearer|Basic) "),
    KeyShape(
        "headers in any case",
        rf"(?={_TOKEN}{{0,200}}[0-9])",
        rf"{_TOKEN}{{20,}}={{0,2}}",
        behind=rf"(?i:authorization{_IS}(?:bearer|basic|token)) {{1,4}}",
    ),
    KeyShape(
        "addresses with a password",
        "",
        r"[^\s:/@\"'`\\<>{}$*|,;()\[\]]{3,128}(?=@[A-Za-z0-9\[])",
        behind=r"[a-z][a-z0-9+.-]{1,24}://[^\s:/@\"'`\\<>{}$|,;()]{0,64}:",
    ),
    KeyShape("JSON Web Tokens", "eyJ", rf"{_URL}{{8,}}\.eyJ{_URL}{{8,}}\.{_URL}{{8,}}"),
)


def keys_in(text: str, *, seams: tuple[int, ...] = ()) -> Iterator[tuple[int, str]]:
    """Where each of them begins in a text, and the key. No letter or digit stands before it, except at `seams`: something that
    is not shown stood there."""
    for found in _pattern(is_free=True).finditer(text):
        group = found.lastindex or 0
        yield found.start(group), found[group]
    for seam in seams:
        if seam and text[seam - 1].isalnum() and (found := _pattern(is_free=False).match(text, seam)) is not None:
            group = found.lastindex or 0
            yield found.start(group), found[group]


@cache
def _pattern(*, is_free: bool) -> re.Pattern[str]:
    """A group for each shape; `is_free`: with what may not stand before a key."""
    free = "(?<![A-Za-z0-9])" if is_free else ""
    # What stands in front of all spares most places of a text the trial of each shape.
    return re.compile(
        rf"{free}(?=[A-Za-z0-9_~.])(?:{'|'.join([f'{one.behind}({one.begins}{one.goes_on})' for one in KEY_SHAPES])})"
    )


def quoted_beginnings() -> str:
    """The pattern of how those begin that providers repeat in their errors."""
    return "|".join([shape.begins for shape in KEY_SHAPES if shape.is_quoted])
