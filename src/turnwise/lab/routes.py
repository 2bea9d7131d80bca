"""Which API family, and which model, a request's path asks for. Any prefix will do, so that every client's base URL fits,
save one that names the API's version twice: a client that appends `/v1` to a base URL that has it gets the 404 it would get."""

import re
from urllib.parse import unquote

import msgspec

MODEL = r"(?P<model>[^/]+)"
ROUTES = (
    # Azure names the model in the path: /openai/deployments/{model}/chat/completions
    (re.compile(rf"/deployments/{MODEL}/chat/completions$"), "openai_chat", False),
    (re.compile(r"/chat/completions$"), "openai_chat", False),
    (re.compile(r"/responses$"), "openai_responses", False),
    (re.compile(r"/messages$"), "anthropic_messages", False),
    (re.compile(rf"/models/{MODEL}:generateContent$"), "gemini", False),
    (re.compile(rf"/models/{MODEL}:streamGenerateContent$"), "gemini", True),
    # Vertex speaks Anthropic's format with the model in the path
    (re.compile(rf"/models/{MODEL}:rawPredict$"), "anthropic_messages", False),
    (re.compile(rf"/models/{MODEL}:streamRawPredict$"), "anthropic_messages", True),
)
# The paths of the APIs themselves; Azure's has no version.
_STRICT = re.compile(
    r"/v1/(?:chat/completions|responses|messages|models)|/v1(?:beta|alpha)?/models(?:/[^/]+:\w+)?"
    r"|/openai/deployments/[^/]+/chat/completions"
)
DOUBLED_VERSION = re.compile(r"/v\d+[a-z0-9]*/v\d+[a-z0-9]*/")


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """`model` is None where the body names it; `streams` is set where the path alone asks for a stream."""

    family: str
    model: str | None
    streams: bool


def has_doubled_version(path: str) -> bool:
    return DOUBLED_VERSION.search(path) is not None


def is_strict_path(path: str) -> bool:
    """Whether a real server has it: with its version, and without anything in front."""
    return _STRICT.fullmatch(path) is not None


def route(path: str) -> Route | None:
    if has_doubled_version(path):
        return None
    for pattern, family, streams in ROUTES:
        found = pattern.search(path)
        if found is not None:
            model = found.groupdict().get("model")
            return Route(family=family, model=None if model is None else unquote(model), streams=streams)
    return None
