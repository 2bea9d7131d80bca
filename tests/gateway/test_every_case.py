"""Every malformed case of the lab, in each pair of families, arrives as a client of that family expects it.

Three judges read each answer: our decoder, which tells of everything that it had to mend, and the lab's two readers of raw JSON:
a naive one believes every event, and a strict one takes nothing but what the family's API sends. What is expected comes from the
same stream without the gateway, by the assembler.
"""

import asyncio
import json
from functools import cache

import pytest

from gateway.relayed import CLIENTS, TOOLS, UPSTREAMS, ask, naively, profile_of, relayed, said, strictly
from tables import each
from turnwise.endpoints.transport import HttpRequest
from turnwise.lab import Lab, builtin_scripts, families
from turnwise.lab.gateway_check import HEALTHY_CASES, malformed_cases
from turnwise.vocab import FinishReason, Response, ToolCall, refusal_of, text_of
from turnwise.wire.family import family
from whole_streams import read_stream

SCRIPTS = builtin_scripts()
MALFORMED = malformed_cases()
SPOKEN = [
    (name, one)
    for name in [*MALFORMED, *HEALTHY_CASES]
    for one in (*CLIENTS, *UPSTREAMS)
    if SCRIPTS[name].speaks(one) and (name != "refusal" or one in CLIENTS)
]


@cache
def expected(name: str, *, upstream: str) -> Response:
    """What the upstream's stream means."""

    async def bytes_of() -> bytes:
        async with Lab() as lab:
            there, profile = family(upstream), profile_of(upstream)
            call = there.encode_request(ask(name), profile)
            sent = HttpRequest(url=f"http://lab.invalid{call.path}", headers=(), body=call.body)
            async with lab.transport().send(sent) as reply:
                return b"".join([chunk async for chunk in reply.chunks])

    names = frozenset([tool.name for tool in TOOLS])
    return read_stream(
        [asyncio.run(bytes_of())], family=family(upstream), profile=profile_of(upstream), tool_names=names
    )


@pytest.mark.costly
@pytest.mark.promise("heal:every-case")
@each("client", CLIENTS)
@each(("name", "upstream"), SPOKEN, meeting="each")
def test_all_judges_understand_every_case(name: str, upstream: str, client: str) -> None:
    """The right calls and text, a finish reason that is true, nothing to mend, and one request."""
    want = expected(name, upstream=upstream)
    answer = relayed(ask(name), upstream=upstream, client=client)
    assert (answer.status, answer.requests, answer.end.fault) == (200, 1, None)
    got = strictly(answer, client=client)
    assert isinstance(got, Response)
    assert (got.repairs, got.fault, got.lost) == ((), None, False)
    assert [call[1:] for call in said(got)] == [call[1:] for call in said(want)]
    assert len({call[0] for call in said(got)}) == len(said(want)), "each call has an id of its own"
    # A family without a word for refusals says them as text.
    assert text_of(got.message) + refusal_of(got.message) == text_of(want.message) + refusal_of(want.message)
    calls = [part for part in got.message.parts if isinstance(part, ToolCall)]
    true_ends = (
        {FinishReason.TOOL_CALLS}
        if calls
        else {want.finish, FinishReason.STOP, FinishReason.REFUSAL, FinishReason.CONTENT_FILTER}
    )
    if client == "gemini_interactions" and want.finish in (FinishReason.CONTENT_FILTER, FinishReason.REFUSAL):
        true_ends.add(FinishReason.ERROR)  # `failed`: it has no word of its own for what a filter has ended
    assert got.finish in true_ends
    for reading in (naively(answer.body, client=client), families.FAMILIES[client].read_strictly(answer.body)):
        assert (reading.ended, reading.error) == (True, "")
        assert reading.text == text_of(want.message) + refusal_of(want.message)
        assert [(name, json.loads(arguments)) for _, name, arguments in reading.calls] == [
            call[1:] for call in said(want)
        ]


@pytest.mark.promise("heal:transparent")
@each(("name", "both"), [spoken for spoken in SPOKEN if spoken[0] in HEALTHY_CASES and spoken[1] in CLIENTS])
def test_a_healthy_stream_passes_in_its_own_bytes(name: str, both: str) -> None:
    """Between equal families nothing of a healthy stream changes."""

    async def straight() -> bytes:
        async with Lab() as lab:
            call = family(both).encode_request(ask(name), profile_of(both))
            sent = HttpRequest(url=f"http://lab.invalid{call.path}", headers=(), body=call.body)
            async with lab.transport().send(sent) as reply:
                return b"".join([chunk async for chunk in reply.chunks])

    assert relayed(ask(name), upstream=both, client=both).body == asyncio.run(straight())
