"""How many tokens a request has: asked of an upstream whose API counts, else estimated.

Anthropic and Gemini count; not every server with their APIs has that endpoint. For the others the estimate is that of the tool
loop: three bytes of UTF-8 a token, and a fixed size for each file.
"""

import msgspec
from msgspec.structs import replace

from turnwise.relay.client_request import ClientRequest, RequestRefused, decode, read_body, refuse_stored
from turnwise.relay.terms import RouteTerms
from turnwise.relay.translation import translate
from turnwise.rules.prompt_room import message_bytes, request_bytes, tokens_in
from turnwise.vocab import Fault, Repair, Request
from turnwise.wire.family import BadRequest, HttpCall
from turnwise.wire.json_fields import UNREADABLE, Fields, encode, is_null, read_fields, write_object
from turnwise.wire.profiles import FamilyName, Profile
from turnwise.wire.relay_facts import FALSE, AskedPath, CountForm, relay_facts

NO_ENDPOINT = frozenset({404, 405, 501})
"""Statuses by which a server says that it has no such path, or no such method there (RFC 9110)."""

_count = msgspec.json.Decoder(int, strict=False)


class CountRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to count. `fields` are those of the body that would be counted: of Gemini's two forms the inner one.
    `keeps_nothing`: as of a `ClientRequest`."""

    asked: AskedPath
    fields: Fields
    request: Request
    keeps_nothing: bool = False


class UpstreamCount(msgspec.Struct, frozen=True, kw_only=True):
    """`call` asks the upstream, whose answer `read_count` reads; None where its API does not count. `estimated_tokens` stands in
    for it, and the answer has to say so."""

    call: HttpCall | None
    estimated_tokens: int
    told: tuple[Repair, ...] = ()


def read_count_request(asked: AskedPath, body: bytes, *, one_client: bool = False) -> CountRequest:
    """The request of a `count` path. Raises RequestRefused, and nothing else."""
    form = relay_facts(asked.family).count
    if form is None:
        raise RequestRefused(f"{relay_facts(asked.family).title} does not count tokens", status=404)
    try:
        fields = form.inner(read_body(body))
    except BadRequest as error:
        raise RequestRefused(str(error)) from None
    if not one_client:
        refuse_stored(asked.family, fields)
    keeps_nothing = relay_facts(asked.family).stores_unasked and is_null(fields.get("store"))
    if keeps_nothing:
        fields["store"] = FALSE
    whole = write_object({**fields, **form.needs})
    return CountRequest(asked=asked, fields=fields, request=decode(asked, whole), keeps_nothing=keeps_nothing)


def translate_count(count: CountRequest, *, terms: RouteTerms, profile: Profile) -> UpstreamCount:
    """How the upstream is asked to count. Raises RequestRefused where the request itself could not be sent there."""
    estimated = estimate(count.request)
    form = count_form(profile)
    if form is None:
        return UpstreamCount(call=None, estimated_tokens=estimated)
    # As the request itself would go up, for one answer at once. A cap on output says nothing about a prompt.
    asked = ClientRequest(
        asked=count.asked,
        body=write_object(count.fields),
        fields=count.fields,
        request=replace(count.request, stream=False),
        keeps_nothing=count.keeps_nothing,
    )
    terms = replace(terms, max_output_tokens=None, one_call_at_a_time=False)
    sent = translate(asked, terms=terms, profile=profile)
    return UpstreamCount(call=form.call(sent.call, sent.keeps_bytes), estimated_tokens=estimated, told=sent.told)


def count_form(profile: Profile) -> CountForm | None:
    """How the endpoint counts; None where it does not: those with paths of their own (Bedrock, Vertex) lack the family's."""
    return relay_facts(profile.family).count if profile.path is None and profile.model_in_body else None


def estimate(request: Request) -> int:
    """Tokens of the prompt; one at the least, as no prompt has none."""
    size = request_bytes(system=request.system, tools=request.tools)
    return max(1, tokens_in(size + sum(map(message_bytes, request.messages))))


def read_count(body: bytes, *, upstream: FamilyName) -> int | None:
    """The upstream's count; None where its answer has none."""
    form = relay_facts(upstream).count
    try:
        found = -1 if form is None else _count.decode(read_fields(body)[form.field])
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
    form = relay_facts(client).count
    assert form is not None, "its request was read"
    return encode({**form.beside, form.field: tokens})
