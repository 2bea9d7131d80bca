"""What every family asks of a request and its profile alike: which tools go along, and which instructions."""

from turnwise.vocab import Request, Text, ToolSpec
from turnwise.wire.profiles import Profile

_NO_PARAMETERS = ToolSpec(name="").parameters


def offered_tools(request: Request, profile: Profile, *, family: str) -> tuple[ToolSpec, ...]:
    """The tools to send: none where they are forbidden and the endpoint has no other way to say it, and no server-side tool
    of another family, which is nobody's function here."""
    if request.tool_choice == "none" and profile.tool_choice_none == "drop_tools":
        return ()
    return tuple([tool for tool in request.tools if not _is_foreign(tool, family=family)])


def _is_foreign(tool: ToolSpec, *, family: str) -> bool:
    is_bare = not tool.description and tool.parameters == _NO_PARAMETERS and not tool.free_form
    return tool.opaque is not None and tool.opaque.family != family and is_bare


def instructions(request: Request, profile: Profile) -> tuple[Text, ...]:
    """The leading instructions, and the schema of the answer in words where the endpoint takes it in no other way."""
    if request.output is None or profile.output == "json_schema":
        return request.system
    told = f"Answer with JSON only, an object that fits this JSON Schema:\n{request.output.schema}"
    return (*request.system, Text(told))
