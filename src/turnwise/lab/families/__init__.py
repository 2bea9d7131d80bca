"""The API families that the lab plays, each in a module of its own. None of them knows the decoders of `wire/`, so none can share
their mistakes."""

import re
from collections.abc import Mapping
from urllib.parse import unquote

import msgspec

from turnwise.lab.families import (
    anthropic_messages,
    cohere_chat,
    gemini,
    gemini_interactions,
    ollama_chat,
    openai_chat,
    openai_responses,
)
from turnwise.lab.families.family import LabFamily

FAMILIES: Mapping[str, LabFamily] = {
    one.FAMILY.name: one.FAMILY
    for one in (
        openai_chat,
        openai_responses,
        anthropic_messages,
        gemini,
        gemini_interactions,
        ollama_chat,
        cohere_chat,
    )
}
RECORDED_AS: Mapping[str, str] = {one.recorded_as: name for name, one in FAMILIES.items() if one.recorded_as}
MODEL = r"(?P<model>[^/]+)"
_ROUTES = [
    (re.compile(f"{path.replace('MODEL', MODEL)}$"), one, streams)
    for one in FAMILIES.values()
    for path, streams in one.routes
]
_STRICT = re.compile("|".join([one.strict_paths for one in FAMILIES.values()]))
DOUBLED_VERSION = re.compile(r"/v\d+[a-z0-9]*/v\d+[a-z0-9]*/")


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """`model` is None where the body names it; `streams` is set where the path alone asks for a stream."""

    family: str
    model: str | None
    streams: bool


def has_doubled_version(path: str) -> bool:
    """A client that appends `/v1` to a base URL that has it gets the 404 that it would get."""
    return DOUBLED_VERSION.search(path) is not None


def is_strict_path(path: str) -> bool:
    """Whether a real server has it: with its version, and without anything in front."""
    return _STRICT.fullmatch(path) is not None


def route(path: str) -> Route | None:
    """Which API family, and which model, a request's path asks for. Any prefix will do, so that every client's base URL fits."""
    if has_doubled_version(path):
        return None
    for pattern, one, streams in _ROUTES:
        found = pattern.search(path)
        if found is not None:
            model = found.groupdict().get("model")
            return Route(family=one.name, model=None if model is None else unquote(model), streams=streams)
    return None
