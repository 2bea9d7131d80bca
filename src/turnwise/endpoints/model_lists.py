"""An endpoint is asked which models it offers. The answer has a bounded time and size."""

import asyncio

import msgspec

from turnwise.endpoints.endpoints import Endpoint, build_http_request
from turnwise.endpoints.transport import HttpReply, Transport, read_bounded
from turnwise.errors import CallerError, ProviderFault
from turnwise.vocab import Fault, FaultKind
from turnwise.wire.addresses import where_asked
from turnwise.wire.model_lists import OfferedModel, list_call, read_model_list

ASK_S = 10.0
MAX_BYTES = 8 * 1024 * 1024  # the longest list that is known, OpenRouter's, has less than 1 MB
NOT_FOUND = 404


async def ask_for_models(
    endpoint: Endpoint, *, transport: Transport, within_s: float = ASK_S, max_bytes: int = MAX_BYTES
) -> tuple[OfferedModel, ...]:
    """The models that the endpoint offers now. It is asked once, with its key if it has one.

    Raises CallerError where its API has no list, ProviderFault where it gave none.
    """
    call = list_call(endpoint.profile)
    if call is None:
        raise CallerError(f"`{endpoint.profile.name}` has no list of models to ask for")
    request = build_http_request(endpoint, call, connect_s=within_s)
    try:
        async with asyncio.timeout(within_s), transport.send(request) as reply:
            body = await _read(reply, max_bytes=max_bytes)
    except TimeoutError:
        raise ProviderFault(Fault(kind=FaultKind.TIMEOUT, message=f"no list of models within {within_s:g} s")) from None
    if not 200 <= reply.status < 300:
        raise ProviderFault(_refusal(reply, body, endpoint=endpoint, url=request.url))
    try:
        return read_model_list(body)
    except ValueError:
        message = f"no list of models came from `{endpoint.scrub(request.url.partition('?')[0])}`"
        raise ProviderFault(Fault(kind=FaultKind.PROTOCOL, message=message, status=reply.status)) from None


async def _read(reply: HttpReply, *, max_bytes: int) -> bytes:
    body = await read_bounded(reply.chunks, most_bytes=max_bytes)
    if len(body) > max_bytes:
        message = f"the list of models has more than {max_bytes} bytes"
        raise ProviderFault(Fault(kind=FaultKind.TOO_LARGE, message=message))
    return body


def _refusal(reply: HttpReply, body: bytes, *, endpoint: Endpoint, url: str) -> Fault:
    fault = endpoint.family.decode_fault(reply.status, reply.headers, body)
    status = f"HTTP {reply.status}"
    message = endpoint.scrub(fault.message if fault.message.startswith(status) else f"{status}: {fault.message}")
    if reply.status == NOT_FOUND:
        asked = where_asked(
            endpoint.scrub(url), base_url=endpoint.scrub(endpoint.base_url), family=endpoint.profile.family
        )
        message = f"{message} ({asked})"
    return msgspec.structs.replace(fault, message=message)
