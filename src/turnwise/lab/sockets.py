"""A provider's WebSocket: which messages it takes, what its server keeps of one connection, and how a reply goes out as events.

Sources: OpenAI docs, "WebSocket mode" (November 2026): messages have the body of a request without `stream` and `background`; of
a connection the latest response is kept, and another id is `previous_response_not_found`. The fields are those of the openai
package's `ResponsesClientEvent` (3.57). Stricter than the API: a second message before the end of a response is refused, where
the API lets it wait.
"""

import asyncio
from collections.abc import Iterator

from aiohttp import WSMessage, WSMsgType, web

from turnwise.lab.faults import Outgoing
from turnwise.lab.raw import Raw, dig, dump, parse, rows, table, text
from turnwise.lab.strict import Rejected

BETA, VERSION = "responses_websockets", "2026-02-06"
FIELDS = frozenset(
    """access_programs background_options context_management conversation generate image include input instructions
    max_output_tokens max_tool_calls metadata model moderation parallel_tool_calls previous_response_id prompt prompt_cache_key
    prompt_cache_options prompt_cache_retention reasoning safety_identifier service_tier store stream_options temperature text
    tool_choice tools top_logprobs top_p truncation type user""".split()
)
ENDS = ("response.completed", "response.incomplete", "response.failed", "error")
BUSY = Rejected("A response is already in progress on this connection.", code="response_in_progress")
OLD = "Responses websocket connection limit reached (60 minutes). Create a new websocket connection to continue."


def check_upgrade(request: web.Request) -> Rejected | None:
    """The header names the version of the messages, where it names any."""
    named = [word.strip().partition("=") for word in request.headers.get("openai-beta", "").split(",")]
    wrong = [version for name, _, version in named if name == BETA and version != VERSION]
    return Rejected(f"Unsupported version of `{BETA}`: '{wrong[0]}'.") if wrong else None


class SocketTalk:
    """What the server keeps of one connection, and what its client may say. `most_responses`: the connection is too old then."""

    def __init__(self, *, connection: int, most_responses: int | None) -> None:
        self._connection, self._most = connection, most_responses
        self._made = 0
        self.has_ended = False  # the last response has
        self._id = ""
        self._input: list[Raw] = []
        self._output: list[Raw] = []

    def whole(self, message: WSMessage) -> bytes:
        """The body that the same request has over HTTP. Raises Rejected."""
        if message.type is not WSMsgType.TEXT:
            raise Rejected("Expected a text message.")
        try:
            body = parse(message.data)
        except ValueError:
            raise Rejected("We could not parse the JSON of your message.") from None
        fields = table(body)
        if fields.get("type") != "response.create":
            raise Rejected(f"Invalid value: '{text(fields.get('type'))}'. Supported: 'response.create'.", param="type")
        if unknown := sorted(fields.keys() - FIELDS):
            raise Rejected(f"Unknown parameter: '{unknown[0]}'.", param=unknown[0], code="unknown_parameter")
        if self._most is not None and self._made >= self._most:
            raise Rejected(OLD, code="websocket_connection_limit_reached")
        earlier = fields.pop("previous_response_id", None)
        given = fields.get("input")
        items: list[Raw] = [{"role": "user", "content": given}] if isinstance(given, str) else rows(given)
        if earlier is not None:
            if not self._id or earlier != self._id:
                said = f"Previous response with id '{earlier}' not found."
                raise Rejected(said, param="previous_response_id", code="previous_response_not_found")
            items = [*self._input, *self._output, *items]
        self._id, self._input, self._output = "", items, []
        self.has_ended = False
        self._made += 1
        return dump(
            {**{name: value for name, value in fields.items() if name != "type"}, "input": items, "stream": True}
        )

    def answered(self, data: bytes) -> bytes:
        """One event of the answer as it goes out, with an id that no other response has."""
        try:
            event = parse(data)
        except ValueError:
            return data
        kind = text(dig(event, "type"))
        self.has_ended = self.has_ended or kind in ENDS
        if kind == "response.output_item.done":
            self._output.append(dig(event, "item"))
        if id := text(dig(event, "response", "id")):
            own = f"resp_ws_{self._connection}_{self._made}"
            data = data.replace(dump(id), dump(own))
            if kind == "response.completed":
                self._id = own
        return data


def error_message(rejected: Rejected, *, error: Raw) -> bytes:
    return dump({"type": "error", "status": rejected.status, "error": dig(error, "error")})


def events_in(outgoing: Outgoing) -> Iterator[bytes]:
    """The data of each event of a reply; of a broken event, the part that came."""
    if outgoing.status != 200:
        body = table(parse(b"".join(outgoing.pieces)))
        headers: dict[str, Raw] = dict(outgoing.headers)
        yield dump({"type": "error", "status": outgoing.status, **body, "headers": headers})
        return
    for block in b"".join(outgoing.pieces).split(b"\n\n"):
        lines = [line for line in block.splitlines() if line and not line.startswith((b"event:", b":"))]
        if lines:
            yield b"\n".join([line.removeprefix(b"data:").strip() for line in lines])


class Messages:
    """What a client says, read beside what is answered."""

    def __init__(self, socket: web.WebSocketResponse) -> None:
        self._socket = socket
        self._come: asyncio.Queue[WSMessage | None] = asyncio.Queue()
        self.left = asyncio.Event()

    async def read(self) -> None:
        async for message in self._socket:
            self._come.put_nowait(message)
        self.end()

    def end(self) -> None:
        """Nothing more is read."""
        self.left.set()
        self._come.put_nowait(None)

    async def next(self) -> WSMessage | None:
        return await self._come.get()

    def early(self) -> bool:
        """Whether another one came already; it is taken."""
        return not self._come.empty() and self._come.get_nowait() is not None
