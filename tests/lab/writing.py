"""A writer asked over each family's wire, without network and without the turn: request encoded, judged, answered, decoded."""

import json

import msgspec

from families import traits_of
from turnwise.assembly.response_reading import ResponseReader, read_body
from turnwise.lab import strict
from turnwise.lab.families import FAMILIES
from turnwise.lab.provider import encoded
from turnwise.lab.raw import parse, table
from turnwise.lab.replies import LabRequest
from turnwise.lab.script import Writer
from turnwise.lab.writer import room_of, writer_reply
from turnwise.rules.continuation import Grown, PartialKind, ask_to_continue, hold_back, stitch
from turnwise.rules.recovery import Cut, find_cut
from turnwise.vocab import (
    Message,
    Request,
    Response,
    Settings,
    Text,
    ToolCall,
    ToolChoice,
    ToolResult,
    ToolSpec,
    Usage,
    calls_of,
    text_of,
)
from turnwise.wire.family import family as find_family
from turnwise.wire.profiles import builtin_profiles

PROFILES = {
    "openai_chat": "openai_chat",
    "openai_responses": "openai_responses",
    "anthropic_messages": "anthropic",
    "gemini": "gemini",
}
TOOLS = tuple(
    [
        ToolSpec(name=name, parameters=json.dumps({"type": "object", "properties": {key: {"type": "string"} for key in keys}}))
        for name, keys in (("write", ("path", "content")), ("read", ("path",)), ("apply_patch", ()))
    ]
)  # fmt: skip
START = (Message("user", (Text("Write it, please."),)),)


class Asking:
    """One conversation with a writer; sums what it costs."""

    def __init__(self, writer: Writer, *, family: str, streamed: bool, limit: int | None) -> None:
        self.writer, self.family, self.streamed, self.limit = writer, family, streamed, limit
        self.usage = Usage()
        self.requests = 0

    def ask(self, messages: tuple[Message, ...], *, tool_choice: ToolChoice = "auto") -> Response:
        family, profile = find_family(self.family), builtin_profiles()[PROFILES[self.family]]
        tools = () if self.writer.writes == "answer" else TOOLS
        request = Request(
            model="writer",
            messages=messages,
            tools=tools,
            tool_choice=tool_choice if tools else "auto",
            settings=Settings(max_output_tokens=self.limit),
            stream=self.streamed,
        )
        body = family.encode_request(request, profile).body
        raw = parse(body)
        strict.check(self.family, body=raw)
        reply = writer_reply(
            self.writer,
            LabRequest(
                conversation=FAMILIES[self.family].read(table(raw)),
                family=FAMILIES[self.family],
                streamed=self.streamed,
                room=room_of(raw),
                prompt_bytes=len(body),
            ),
        )
        outgoing = encoded(family, reply=reply, request=request, streamed=self.streamed)
        names = frozenset([tool.name for tool in tools])
        self.requests += 1
        if self.streamed:
            reader = ResponseReader(family, profile=profile, tool_names=names, id_prefix=f"call_{self.requests}")
            for piece in outgoing.pieces:
                reader.feed(piece)
            response = reader.finish()
        else:
            response, _ = read_body(
                outgoing.pieces[0],
                family=family,
                profile=profile,
                tool_names=names,
                id_prefix=f"call_{self.requests}",
            )
        assert reply.response.usage is not None
        assert self.limit is None or reply.response.usage.output_tokens <= self.limit
        self.usage += reply.response.usage
        return response

    def cut_of(self, response: Response) -> Cut | None:
        objects = traits_of(self.family).gives_objects(streamed=self.streamed)
        return find_cut(response, limit_tokens=self.limit, hands_out_objects=objects)

    def continued(
        self, received: str, *, kind: PartialKind, tool: str, messages: tuple[Message, ...] = START
    ) -> str | None:
        """The whole of a cut text; None where it cannot be had."""
        while (held := hold_back(received, kind=kind)) is not None:
            asked = ask_to_continue(held, kind=kind, tool=tool)
            assert asked.user is not None
            shown = (Message("assistant", (Text(asked.assistant),)), Message("user", (Text(asked.user),)))
            response = self.ask((*messages, *shown), tool_choice="none")
            reply = text_of(response.message)
            grown = stitch(held, reply=reply, kind=kind, cut=self.cut_of(response) is not None)
            if not isinstance(grown, Grown):
                return None
            if grown.whole:
                return grown.text
            received = grown.text
        return None


def with_results(response: Response, *, results: dict[str, str]) -> tuple[Message, ...]:
    """The response and its results, as history has them; the arguments of a call that did not run are left out."""
    parts = [
        msgspec.structs.replace(part, arguments="{}")
        if isinstance(part, ToolCall) and results[part.name].startswith("Not run")
        else part
        for part in response.message.parts
    ]
    answers = [
        ToolResult(call_id=call.id, name=call.name, content=(Text(results[call.name]),))
        for call in calls_of(response.message)
    ]
    return (Message("assistant", tuple(parts)), Message("tool", tuple(answers)))
