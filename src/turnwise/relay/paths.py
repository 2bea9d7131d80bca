"""Which API family's which endpoint a client's path asks for. The paths are the APIs' own: nothing stands before the version."""

import re
from collections.abc import Collection
from typing import Literal

import msgspec

from turnwise.wire.addresses import read_path_part
from turnwise.wire.profiles import FamilyName

AskedKind = Literal["generate", "count", "models"]

MAX_MODEL_NAME = 256
"""Characters of a model's name; the longest resource names of Vertex AI have about 150."""

_FIXED: dict[tuple[str, str], tuple[FamilyName, AskedKind]] = {
    ("POST", "/v1/chat/completions"): ("openai_chat", "generate"),
    ("POST", "/v1/responses"): ("openai_responses", "generate"),
    ("POST", "/v1/messages"): ("anthropic_messages", "generate"),
    ("POST", "/v1/messages/count_tokens"): ("anthropic_messages", "count"),
    ("GET", "/v1beta/models"): ("gemini", "models"),
}

# Behind the last colon stands the verb: names of local models have colons of their own (`qwen3:8b`), those of gateways slashes.
_GEMINI = re.compile(
    r"/v1(?:beta)?/models/(?P<model>[^?#]+):(?P<verb>generateContent|streamGenerateContent|countTokens)"
)
_KINDS: dict[str, AskedKind] = {
    "generateContent": "generate",
    "streamGenerateContent": "generate",
    "countTokens": "count",
}


_OF_GOOGLE = frozenset({"x-goog-api-key", "x-goog-api-client"})


class AskedPath(msgspec.Struct, frozen=True, kw_only=True):
    """What a path asks for. `model` is set where the path names it, and `streams` where the path asks for a stream: both in
    Gemini's API alone, the bodies of the others say it."""

    family: FamilyName
    kind: AskedKind
    model: str | None = None
    streams: bool = False


def asked_path(method: str, path: str, *, header_names: Collection[str] = ()) -> AskedPath | None:
    """What the request asks for; None where the gateway has no such endpoint.

    `path` has no query. The model's name may be percent-encoded; the rest of the path has to stand there as it is, so that no
    other spelling of a path gets past a check. `header_names` are in lower case: three families list their models at one path.
    """
    if (method, path) == ("GET", "/v1/models"):
        return AskedPath(family=family_by_headers(header_names) or "openai_chat", kind="models")
    if (fixed := _FIXED.get((method, path))) is not None:
        return AskedPath(family=fixed[0], kind=fixed[1])
    found = _GEMINI.fullmatch(path) if method == "POST" else None
    model = None if found is None else _model_name(found["model"])
    if found is None or model is None:
        return None
    verb = found["verb"]
    return AskedPath(family="gemini", kind=_KINDS[verb], model=model, streams=verb == "streamGenerateContent")


def family_by_headers(names: Collection[str]) -> FamilyName | None:
    """Whose client sends headers of these names, in lower case, at a path that several families have: Anthropic's clients name
    their API's version, and Google's send their key in a header of its own."""
    if "anthropic-version" in names:
        return "anthropic_messages"
    return "gemini" if not _OF_GOOGLE.isdisjoint(names) else None


def _model_name(encoded: str) -> str | None:
    """None for a name that could lead to another path, or that no model has."""
    name = read_path_part(encoded)
    if name is None or len(name) > MAX_MODEL_NAME or not name.isprintable():
        return None
    return None if any(segment in ("", ".", "..") for segment in name.split("/")) else name
