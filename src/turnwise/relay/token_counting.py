"""How many tokens a request has: asked of an upstream whose API counts, else estimated.

Anthropic and Gemini count; not every server with their APIs has that endpoint. For the others the estimate is that of the tool
loop: three bytes of UTF-8 a token, and a fixed size for each file.
"""

import msgspec
from msgspec.structs import replace

from turnwise.relay.client_request import AskedPath, ClientRequest, RequestRefused, decode, read_body, refuse_stored
from turnwise.relay.terms import RouteTerms, UpstreamRequest
from turnwise.relay.translation import translate
from turnwise.rules.budget import message_bytes, request_bytes, tokens_in
from turnwise.vocab import Fault, Repair, Request
from turnwise.wire.family import HttpCall
from turnwise.wire.gemini.fields import camel
from turnwise.wire.gemini.fields import read_fields as read_camel_fields
from turnwise.wire.json_fields import UNREADABLE, Fields, encode, is_null, is_object, read_fields, write_object
from turnwise.wire.profiles import FamilyName, Profile
from turnwise.wire.relay_facts import relay_facts

COUNTED_FIELDS = frozenset(
    """model messages system tools tool_choice thinking output_config cache_control context_management mcp_servers""".split()
)
"""What of a message's fields Anthropic's API takes in a request to count (its reference, "Count tokens in a Message"): it refuses
others."""

ANTHROPIC_PATH = "/v1/messages/count_tokens"
ONE_TOKEN = msgspec.Raw(b"1")

NO_ENDPOINT = frozenset({404, 405, 501})
"""Statuses by which a server says that it has no such path, or no such method there (RFC 9110)."""

_count = msgspec.json.Decoder(int, strict=False)


class CountRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to count. `fields` are those of the body that would be counted: of Gemini's two forms the inner one."""

    asked: AskedPath
    fields: Fields
    request: Request


class UpstreamCount(msgspec.Struct, frozen=True, kw_only=True):
    """`call` asks the upstream, whose answer `read_count` reads; None where its API does not count. `estimated_tokens` stands in
    for it, and the answer has to say so."""

    call: HttpCall | None
    estimated_tokens: int
    told: tuple[Repair, ...] = ()


def read_count_request(asked: AskedPath, body: bytes, *, one_client: bool = False) -> CountRequest:
    """The request of a `count` path. Raises RequestRefused, and nothing else."""
    fields = read_body(body)
    if asked.family == "gemini":
        fields = _inner(fields)
    if not one_client:
        refuse_stored(asked.family, fields)
    whole = fields
    if asked.family == "anthropic_messages":
        whole = {**fields, "max_tokens": ONE_TOKEN}  # a message has to have it, a count has not
    return CountRequest(asked=asked, fields=fields, request=decode(asked, write_object(whole)))


def _inner(fields: Fields) -> Fields:
    """Gemini counts bare contents, or a whole request within the field `generateContentRequest`."""
    for key, raw in fields.items():
        if camel(key) == "generateContentRequest" and not is_null(raw):
            if not is_object(raw):
                raise RequestRefused(f"`{key}` must be an object", field=key)
            return read_fields(raw)
    return fields


def translate_count(count: CountRequest, *, terms: RouteTerms, profile: Profile) -> UpstreamCount:
    """How the upstream is asked to count. Raises RequestRefused where the request itself could not be sent there."""
    estimated = estimate(count.request)
    if not counts(profile):
        return UpstreamCount(call=None, estimated_tokens=estimated)
    sent = _translated(count, terms=terms, profile=profile)
    if profile.family == "gemini":
        return UpstreamCount(call=_gemini_call(sent), estimated_tokens=estimated, told=sent.told)
    fields = read_fields(sent.call.body)
    if not sent.keeps_bytes:
        fields = {key: raw for key, raw in fields.items() if key in COUNTED_FIELDS}
    call = HttpCall(path=ANTHROPIC_PATH, body=write_object(fields), headers=sent.call.headers)
    return UpstreamCount(call=call, estimated_tokens=estimated, told=sent.told)


def counts(profile: Profile) -> bool:
    """Whether the endpoint has its family's own path for counting: those with paths of their own (Bedrock, Vertex) have none."""
    return bool(relay_facts(profile.family).count_field) and profile.path is None and profile.model_in_body


def _translated(count: CountRequest, *, terms: RouteTerms, profile: Profile) -> UpstreamRequest:
    """As the request itself would go up, for one answer at once. A cap on output says nothing about a prompt."""
    asked = ClientRequest(
        asked=count.asked,
        body=write_object(count.fields),
        fields=count.fields,
        request=replace(count.request, stream=False),
    )
    return translate(asked, terms=replace(terms, max_output_tokens=None, one_call_at_a_time=False), profile=profile)


def _gemini_call(sent: UpstreamRequest) -> HttpCall:
    """The form with the whole request in it: the bare one counts no tools and no instructions."""
    path = sent.call.path.removesuffix(":generateContent")
    fields = {key: raw for key, raw in read_camel_fields(sent.call.body).items() if key != "model"}
    inner = write_object({"model": encode(path.removeprefix("/")), **fields})
    return HttpCall(path=f"{path}:countTokens", body=write_object({"generateContentRequest": inner}))


def estimate(request: Request) -> int:
    """Tokens of the prompt; one at the least, as no prompt has none."""
    size = request_bytes(system=request.system, tools=request.tools)
    return max(1, tokens_in(size + sum(map(message_bytes, request.messages))))


def read_count(body: bytes, *, upstream: FamilyName) -> int | None:
    """The upstream's count; None where its answer has none."""
    try:
        found = _count.decode(read_fields(body)[relay_facts(upstream).count_field])
    except (KeyError, *UNREADABLE):
        return None
    return found if found >= 0 else None


def counts_not(fault: Fault, *, model: str) -> bool:
    """Whether the upstream has no endpoint that counts. A 404 may be about the model as well: then it says its name, and not as
    part of the path that was asked for."""
    if fault.status not in NO_ENDPOINT:
        return False
    return fault.status != 404 or not model or model not in fault.message.replace(f"{model}:countTokens", "")


def write_count(tokens: int, *, client: FamilyName) -> bytes:
    """The answer as the client's API gives it."""
    return encode({relay_facts(client).count_field: tokens})
