"""The one table of what keys look like: how each kind begins, and what may follow.

Texts are searched with it for keys that nobody named. A shape has to be one that ordinary text does not have: a beginning that
its provider chose, then more letters and digits than a word has. Sources: the providers' own pages on their keys, and the
patterns that they gave to GitHub's secret scanning ("Supported secret scanning patterns").
"""

import re
from functools import cache

import msgspec

_WORD = "[A-Za-z0-9]"
_URL = "[A-Za-z0-9_-]"  # base64url, and what joins its pieces


class KeyShape(msgspec.Struct, frozen=True):
    """`begins` is the text that the key begins with, or a pattern of it; `goes_on` the pattern of the rest. `is_quoted`:
    providers of models repeat such keys in their errors, and shortened: there fewer characters are enough."""

    whose: str
    begins: str
    goes_on: str
    is_quoted: bool = False


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
    KeyShape("Stripe", "[rs]k_(?:live|test)_", rf"{_WORD}{{16,}}"),
    KeyShape("webhooks", "whsec_", "[A-Za-z0-9+/=]{24,}"),
    KeyShape("SendGrid", r"SG\.", rf"{_URL}{{16,}}\.{_URL}{{32,}}"),
    KeyShape("Linear", "lin_api_", rf"{_WORD}{{32,}}"),
    KeyShape("Sentry", "sntrys_", "[A-Za-z0-9+/=_]{40,}"),
    # of any server
    KeyShape("tokens in headers", "(?:Bearer|Basic) ", "[A-Za-z0-9._~+/-]{20,}={0,2}"),
    KeyShape("JSON Web Tokens", "eyJ", rf"{_URL}{{8,}}\.eyJ{_URL}{{8,}}\.{_URL}{{8,}}"),
)


@cache
def key_pattern() -> re.Pattern[str]:
    """What finds each of them in a text. No letter or digit stands before a key."""
    return re.compile("|".join([rf"(?<![A-Za-z0-9]){shape.begins}{shape.goes_on}" for shape in KEY_SHAPES]))


def quoted_beginnings() -> str:
    """The pattern of how those begin that providers repeat in their errors."""
    return "|".join([shape.begins for shape in KEY_SHAPES if shape.is_quoted])
