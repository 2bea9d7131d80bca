"""Names of tools that an API or its server refuses, on their way up and back: what was said stays as it was said, in the history,
in approvals and in replays.

A name is made of itself alone, so the same history gives the same bytes whatever else stands beside it.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

import msgspec

from turnwise.vocab import (
    Frame,
    Message,
    NamedTool,
    Part,
    PartDone,
    Request,
    Response,
    ToolCall,
    ToolCallDelta,
    ToolSpec,
)
from turnwise.wire.family import family as family_named
from turnwise.wire.json_fields import quote
from turnwise.wire.profiles import FamilyName, Profile

_FOREIGN = re.compile(r"[^A-Za-z0-9_-]")
_MOST = 64  # what every family takes
_MOST_KEPT = 16_384  # characters of the names of one request's tools that are kept
_MARK = 9  # `_` and eight hexadecimal digits


def fitted_name(name: str, *, beside: Mapping[str, None] | Mapping[str, str] | None = None) -> str:
    """A name that every API takes: a letter leads. It ends in a mark made of the whole name, so two names that differ stay
    different."""
    digest = hashlib.sha256(name.encode("utf-8", "backslashreplace")).hexdigest()
    stem = _FOREIGN.sub("_", name)
    stem = stem if stem[:1].isalpha() else f"tool_{stem}"
    made = f"{stem[: _MOST - _MARK]}_{digest[: _MARK - 1]}"
    return made if made not in (beside or {}) else f"tool_{digest[: _MOST - 5]}"


@lru_cache(maxsize=4096)
def _taken(name: str, family: FamilyName, row: str) -> bool | None:
    """Whether the API and its server take the name; None where only the API is known to refuse it."""
    if row and not re.fullmatch(row, name):
        return False
    return True if family_named(family).tool_names.fullmatch(name) else None


class WireNames(dict[str, bytes]):
    """Names of tools, by what they are called in history, as JSON strings of what they are called on their way up: kept for the
    request's tools, made for any other. `row`: the pattern of the server's own rule. `own`: names of the request's tools that its
    API would refuse; they go as they are, because a server may take them."""

    def __init__(self, tools: Sequence[str], *, family: FamilyName, row: str) -> None:
        self._family: FamilyName = family
        self._row = row
        taken = family_named(family).tool_names
        self.own = frozenset([name for name in tools if not taken.fullmatch(name)])
        super().__init__({name: self[name] for name in tools})

    def __missing__(self, name: str) -> bytes:
        return quote(self.of(name))

    def of(self, name: str) -> str:
        taken = _taken(name, self._family, self._row)
        return name if taken or not name or (taken is None and name in self.own) else fitted_name(name)

    def fitted(self, parts: Sequence[Part]) -> tuple[Part, ...]:
        """The parts with these names in calls."""
        return tuple(
            [
                msgspec.structs.replace(part, name=self.of(part.name)) if isinstance(part, ToolCall) else part
                for part in parts
            ]
        )


def wire_names(tools: Sequence[ToolSpec], profile: Profile) -> WireNames:
    """How names go up beside these tools."""
    names = tuple([tool.name for tool in tools])
    of = _wire_names if sum(map(len, names)) <= _MOST_KEPT else _wire_names.__wrapped__
    return of(names, profile.family, profile.tool_names)


@lru_cache(maxsize=64)
def _wire_names(names: tuple[str, ...], family: FamilyName, row: str) -> WireNames:
    return WireNames(names, family=family, row=row)


def with_wire_names(request: Request, profile: Profile) -> Request:
    """The request with tools, and the choice of one, under names that the row takes."""
    if not profile.tool_names:
        return request
    names, choice = wire_names(request.tools, profile), request.tool_choice
    tools = [
        tool
        if _is_servers(tool) or (name := names.of(tool.name)) == tool.name
        else msgspec.structs.replace(tool, name=name)
        for tool in request.tools
    ]
    if isinstance(choice, NamedTool):
        choice = NamedTool(names.of(choice.name))
    return msgspec.structs.replace(request, tools=tuple(tools), tool_choice=choice)


def _is_servers(tool: ToolSpec) -> bool:
    """A tool of the server's own, which goes up as it came."""
    return tool.opaque is not None and '"type"' in tool.opaque.json


def own_names(request: Request, profile: Profile) -> Mapping[str, str]:
    """What the server calls a tool -> what the request does, where these differ."""
    if not profile.tool_names:
        return {}
    named = zip(with_wire_names(request, profile).tools, request.tools, strict=True)
    return {up.name: tool.name for up, tool in named if up.name != tool.name}


def frames_with_names(frames: list[Frame], names: Mapping[str, str]) -> list[Frame]:
    """The frames with the request's own names of its tools."""
    return [_frame_with_name(frame, names) for frame in frames]


def _frame_with_name(frame: Frame, names: Mapping[str, str]) -> Frame:
    if isinstance(frame, ToolCallDelta) and frame.name is not None and frame.name in names:
        return msgspec.structs.replace(frame, name=names[frame.name])
    if isinstance(frame, PartDone) and isinstance(frame.part, ToolCall) and frame.part.name in names:
        return msgspec.structs.replace(frame, part=msgspec.structs.replace(frame.part, name=names[frame.part.name]))
    return frame


def response_with_names(response: Response, names: Mapping[str, str]) -> Response:
    """The same for what is whole: a name may come in pieces."""
    parts = [
        msgspec.structs.replace(part, name=names[part.name])
        if isinstance(part, ToolCall) and part.name in names
        else part
        for part in response.message.parts
    ]
    return msgspec.structs.replace(response, message=Message(response.message.role, tuple(parts)))
