"""A route's hook: before a request leaves, a service of the operator's is asked by HTTP whether it may.

It is sent `{"id", "client", "family", "kind", "path", "model", "body"}`, and answers 200 with `{"allow": true}`, or with
`{"allow": false, "reason": "..."}`. Where no such answer comes within `WITHIN_S`, the hook's `otherwise` decides.
"""

import logging
from collections.abc import Mapping
from typing import Literal

import msgspec

from turnwise.base.clock import Clock, Overdue, Watchdog
from turnwise.endpoints.transport import HttpRequest, Transport, read_bounded
from turnwise.errors import ProviderFault
from turnwise.gateway.doors import ClientCall
from turnwise.relay.client_request import RequestRefused
from turnwise.rules.schema import shorten
from turnwise.vocab.hidden_characters import shown

WITHIN_S = 2.0
MOST_BYTES = 64 * 1024  # of its answer
NO_ANSWER = "the check before requests gave no answer, and this route then refuses"

_log = logging.getLogger("turnwise")


class BeforeRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`key_env` names the variable with a key that goes there as a bearer token. `otherwise`: what happens without an answer."""

    url: str
    key_env: str | None = None
    otherwise: Literal["refuse", "allow"] = "refuse"

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise ValueError("`url` of `before_request` must begin with http:// or https://")


class HookAnswer(msgspec.Struct, frozen=True):
    allow: bool
    reason: str = ""


async def check_allowed(
    hook: BeforeRequest, call: ClientCall, *, model: str, transport: Transport, clock: Clock, env: Mapping[str, str]
) -> None:
    """Raises RequestRefused, with the hook's own reason if it gave one."""
    try:
        async with (
            Watchdog(clock, total_s=WITHIN_S),
            transport.send(_asking(hook, call, model=model, env=env)) as reply,
        ):
            text = await read_bounded(reply.chunks, most_bytes=MOST_BYTES)
            if reply.status != 200 or len(text) > MOST_BYTES:
                raise ValueError(f"status {reply.status}, {len(text)} bytes")
            answer = msgspec.json.decode(text, type=HookAnswer)
    except (Overdue, ProviderFault, ValueError) as error:  # msgspec's errors are ValueErrors
        why = "no answer in time" if isinstance(error, Overdue) else type(error).__name__
        _log.warning("gateway: `before_request` gave no answer for [%s]: %s", call.id, why)
        if hook.otherwise == "refuse":
            raise RequestRefused(NO_ANSWER, status=503) from None
        return
    if not answer.allow:
        raise RequestRefused(shown(shorten(answer.reason)) or "this request is not allowed here", status=403)


def _asking(hook: BeforeRequest, call: ClientCall, *, model: str, env: Mapping[str, str]) -> HttpRequest:
    about = {
        "id": call.id,
        "client": call.client,
        "family": call.family,
        "kind": call.kind,
        "path": call.path,
        "model": model,
        "body": msgspec.Raw(call.body),
    }
    headers = [("content-type", "application/json")]
    if hook.key_env and (key := env.get(hook.key_env, "").strip()):
        headers.append(("authorization", f"Bearer {key}"))
    return HttpRequest(url=hook.url, headers=tuple(headers), body=msgspec.json.encode(about), connect_s=WITHIN_S)
