"""Where the version belongs in an address: people give base URLs with it and without."""

import re
import urllib.parse

from turnwise.wire.profiles import FamilyName

_VERSION = re.compile(r"/v\d+(?:(?:alpha|beta)\d*)?(?=/|$)")
_ENDS_WITH_VERSION = re.compile(_VERSION.pattern.removesuffix("(?=/|$)") + r"$")

# What people copy from a provider's docs: the whole URL of a request. We put the path of each call behind the base URL.
_PATHS = ("/chat/completions", "/completions", "/responses", "/messages", "/models")

GEMINI_VERSION = "/v1beta"  # the one of Google's own SDKs


def where_asked(url: str, *, base_url: str, family: FamilyName) -> str:
    """What a 404 leaves unsaid: the URL that was asked for, and where a base URL of this API usually ends."""
    base = base_url.partition("?")[0].rstrip("/")
    if path := next((path for path in _PATHS if base.endswith(path)), ""):
        return (
            f"asked for `{url.partition('?')[0]}`; the base URL ends before `{path}`: try `{base.removesuffix(path)}`"
        )
    lacks = family in ("openai_chat", "openai_responses") and not _VERSION.search(base.partition("://")[2])
    hint = f"; the base URL usually ends with `/v1`: try `{base}/v1`" if lacks else ""
    return f"asked for `{url.partition('?')[0]}`{hint}"


def path_below(base_url: str, path: str, *, family: FamilyName) -> str:
    """The call's path as it has to follow this base URL.

    Anthropic's clients take the base without `/v1` and have it in the path, others' users write it into the base: it is said
    once. Gemini's path begins at the model, and a base without any version (Google's own host) gets one. A path that a
    client wrote whole (`/v1/embeddings`) has its version from the base where that ends with one.
    """
    base = base_url.partition("?")[0].rstrip("/")
    match family:
        case "anthropic_messages" if path.startswith("/v1/") and base.endswith("/v1"):
            return path.removeprefix("/v1")
        case "gemini" if not _VERSION.search(base.partition("://")[2]) and not _VERSION.match(path):
            return GEMINI_VERSION + path
        case "anthropic_messages":
            return path
        case _ if (said := _VERSION.match(path)) and _ENDS_WITH_VERSION.search(base.partition("://")[2]):
            return path[said.end() :]
        case _:
            return path


def read_path_part(encoded: str) -> str | None:
    """The text of a part of a path without its percent-encoding; None where it stands for no UTF-8."""
    try:
        return urllib.parse.unquote(encoded, errors="strict")
    except UnicodeError:
        return None
