"""A model that says what a script tells it, in the bytes of any API family: the whole way below the socket is real."""

from collections.abc import Callable, Iterable, Sequence

import msgspec

from turnwise.endpoints.endpoints import Endpoint
from turnwise.endpoints.transport import HttpRequest
from turnwise.testing.frames import frames_of
from turnwise.testing.scripted_transport import STREAM, Reply, ScriptedTransport
from turnwise.vocab import Fault, FinishReason, Message, Part, Request, Response, Text, ToolCall, Usage
from turnwise.wire.profiles import Profile, builtin_profiles

BASE_URL = "http://scripted.invalid"  # RFC 6761: never resolves, should it ever get near a socket
USAGE = Usage(input_tokens=10, output_tokens=5)

Said = str | Part | Sequence[Part] | Response | Fault
Line = Said | Callable[[Request], Said]
"""One line of the script: a text, parts (calls made by `call`), a whole response, an error answer, or a function of the
request."""


class ScriptedModel(ScriptedTransport):
    """A model that says what the test wants. Each request gets the next line.

    Use it as the agent's endpoint: `endpoint={"base_url": model.endpoint.base_url, "transport": model}`.

    - `lines` are texts, a `call(...)`, lists of parts, a `Response`, a `Fault`, or functions of the decoded request
      that return one of these.
    - `family` is an API family (`openai_chat`), or the name of a provider. The lines are encoded in that API's own
      bytes.
    - `asked` are the requests that came, decoded.

    A request without a line raises AssertionError.
    """

    def __init__(self, lines: Iterable[Line], *, family: str | Profile = "openai_chat") -> None:
        profile = builtin_profiles()[family] if isinstance(family, str) else family
        self.endpoint = Endpoint(profile=profile, base_url=BASE_URL)
        self.asked: list[Request] = []
        super().__init__([self._reply_maker(line, number) for number, line in enumerate(lines, start=1)])

    def _reply_maker(self, line: Line, number: int) -> Callable[[HttpRequest], Reply]:
        def make(http: HttpRequest) -> Reply:
            request = self.endpoint.family.decode_request(http.body, http.url.removeprefix(BASE_URL))
            self.asked.append(request)
            return self._encode(line(request) if callable(line) else line, request, number)

        return make

    def _encode(self, said: Said, request: Request, number: int) -> Reply:
        family = self.endpoint.family
        json = {"content-type": "application/json"}
        if isinstance(said, Fault):
            status, body = family.encode_fault(said)
            return Reply(pieces=(body,), status=status, headers=json)
        response = response_of(said, number=number, model=request.model)
        if not request.stream:
            return Reply(pieces=(family.encode_body(response, request),), headers=json)
        encoder = family.stream_encoder(request)
        pieces = [*[encoder.encode(frame) for frame in frames_of(response)], encoder.finish()]
        return Reply(pieces=tuple([piece for piece in pieces if piece]), headers=STREAM)


def response_of(said: str | Part | Sequence[Part] | Response, *, number: int = 1, model: str | None = None) -> Response:
    """A whole response: its finish reason is `tool_calls` where it holds calls, else `stop`. Calls without an id get one
    from `number`."""
    match said:
        case Response():
            return said
        case str():
            parts: tuple[Part, ...] = (Text(said),)
        case Sequence():
            parts = tuple(said)
        case _:
            parts = (said,)
    calls = any(isinstance(part, ToolCall) for part in parts)
    return Response(
        message=Message(
            "assistant",
            tuple(
                [
                    msgspec.structs.replace(part, id=f"call_{number}_{place}")
                    if isinstance(part, ToolCall) and not part.id
                    else part
                    for place, part in enumerate(parts, start=1)
                ]
            ),
        ),
        finish=FinishReason.TOOL_CALLS if calls else FinishReason.STOP,
        usage=USAGE,
        id=f"response-{number}",
        model=model,
    )


def call(name: str, /, *, id: str = "", **arguments: object) -> ToolCall:
    """A complete tool call with these arguments, as a line of a `ScriptedModel`. Without an `id` the model numbers it."""
    return ToolCall(id=id, name=name, arguments=msgspec.json.encode(arguments).decode())
