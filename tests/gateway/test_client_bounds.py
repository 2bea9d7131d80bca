"""What no client may do, byte by byte over a socket: too much, too slowly, ambiguously, or without reading."""

import asyncio
import gzip
import socket

import pytest

from gateway.serving import CHAT, PIECE, Gateway, error_of, gateway, status_of
from tables import each
from turnwise.gateway.app import DoorRules
from turnwise.gateway.client_bounds import Bounds
from waits import HANG_S

SOON_S = 0.05  # a deadline of the gateway that a test is about


def bounded(**bounds: float) -> DoorRules:
    return DoorRules(bounds=Bounds(**bounds))  # pyright: ignore[reportArgumentType]


async def lives(there: Gateway) -> bool:
    """Whether the next client is served."""
    return status_of(await there.said(there.head("/v1/models", method="GET", connection="close") + b"\r\n")) == 200


@each(
    ("lengths", "body"),
    [
        ("Content-Length: 2\r\nTransfer-Encoding: chunked\r\n", b"0\r\n\r\n"),
        ("Transfer-Encoding: chunked\r\nContent-Length: 2\r\n", b"0\r\n\r\n"),
        ("Content-Length: 2\r\nContent-Length: 3\r\n", b"{} "),
        ("Content-Length: 2\r\nContent-Length: 2\r\n", b"{}"),
        ("Content-Length: 2, 2\r\n", b"{}"),
        ("Content-Length: +2\r\n", b"{}"),
        ("Content-Length: -2\r\n", b"{}"),
        ("Content-Length: 0x2\r\n", b"{}"),
        ("Content-Length: 99999999999999999999999\r\n", b"{}"),
        ("Transfer-Encoding: chunked, identity\r\n", b"0\r\n\r\n"),
        ("Transfer-Encoding: identity, chunked, gzip\r\n", b"0\r\n\r\n"),
        ("Transfer-Encoding: xchunked\r\n", b"0\r\n\r\n"),
        ("Content-Length : 2\r\n", b"{}"),
        ("Content-Length: 2\r\n continued: 1\r\n", b"{}"),
        ("Transfer-Encoding: chunked\r\n", b"2;a=b\n{}\r\n0\r\n\r\n"),
        ("Transfer-Encoding: chunked\r\n", b"2\r\n{}0\r\n\r\n"),
        ("Transfer-Encoding: chunked\r\n", b"0x2\r\n{}\r\n0\r\n\r\n"),
        ("Transfer-Encoding: chunked\r\n", b"-2\r\n{}\r\n0\r\n\r\n"),
        ("Transfer-Encoding: chunked\r\n", b"fffffffffffffffff\r\n{}\r\n0\r\n\r\n"),
        ("X: a\rContent-Length: 2\r\n", b"{}"),
        ("X: a\x00b\r\nContent-Length: 2\r\n", b"{}"),
        ("X\r\nContent-Length: 2\r\n", b"{}"),
        (": 1\r\nContent-Length: 2\r\n", b"{}"),
    ],
)
async def test_a_body_whose_length_can_be_read_in_two_ways_is_refused(lengths: str, body: bytes) -> None:
    """Request smuggling: what two readers frame differently lets a second request hide in the first. Nothing behind it is
    served either. RFC 9112 sections 5.1, 5.2, 6.1 and 6.3."""
    async with gateway() as there:
        hidden = there.post(path="/v1/messages")
        head = there.head(content_type="application/json") + lengths.encode("latin-1") + b"\r\n"
        answer = await there.said(head + body + hidden, ends=True)
        assert (status_of(answer), answer.count(b"HTTP/1.1"), there.service.calls) == (400, 1, [])
        assert await lives(there)


@each(
    "line",
    [
        b"POST http://evil.example/v1/chat/completions HTTP/1.1",
        b"POST //evil.example/v1/chat/completions HTTP/1.1",
        b"POST v1/chat/completions HTTP/1.1",
        b"CONNECT evil.example:443 HTTP/1.1",
        b"OPTIONS * HTTP/1.1",
        b"POST /v1/chat/completions HTTP/9.9",
        b"POST /v1/chat/completions HTTP/0.9",
        b"POST /v1/chat/completions HTTP/2.0",
        b"POST /v1/chat/completions\xff HTTP/1.1",
        b"POST /v1/chat/completions FTP/1.1",
        b"PRI * HTTP/2.0",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"SSH-2.0-OpenSSH_9.9",
    ],
)
async def test_a_request_line_that_is_none_of_ours_is_refused(line: bytes) -> None:
    """An address in it would be another host than the one that was judged; other protocols get one answer and no more."""
    async with gateway() as there:
        rest = there.post().partition(b"\r\n")[2]
        answer = await there.said(line + b"\r\n" + rest, ends=True)
        assert (status_of(answer) in (400, 404, 405), there.service.calls, await lives(there)) == (True, [], True)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"POST http://evil.example/v1/chat/completions HTTP/1.1", "the request line must have a path, not an address"),
        (b"POST /v1/chat/completions HTTP/2.0", "the gateway speaks HTTP 1.1 and 1.0"),
        (b"POST /v1/chat/completions FTP/1.1", "this is no valid HTTP request"),
    ],
)
async def test_a_refused_request_line_is_told_why(line: bytes, said: str) -> None:
    """Proves: what can be read of it names its own mistake, and only what cannot be read is no valid HTTP."""
    async with gateway() as there:
        answer = await there.said(line + b"\r\n" + there.post().partition(b"\r\n")[2], ends=True)
        assert (status_of(answer), error_of(answer)["message"]) == (400, said)


async def test_a_trailer_is_no_header() -> None:
    """What comes behind the body names no key and no version (RFC 9110 section 6.5.1); a long one is refused."""
    async with gateway(bounded(head_bytes=2000)) as there:
        head = there.head(content_type="application/json", transfer_encoding="chunked", connection="close") + b"\r\n"
        body = b"2\r\n{}\r\n0\r\n"
        answer = await there.said(head + body + b"anthropic-version: 1\r\nx-api-key: k\r\n\r\n")
        assert (status_of(answer), there.service.calls[0].headers) == (200, ())
        lines = b"".join([b"x-%d: y\r\n" % at for at in range(1000)])
        assert status_of(await there.said(head + body + lines + b"\r\n")) == 431
        assert await lives(there)


@pytest.mark.parametrize(
    "junk", [b"x: " + b"y" * 300_000, b"x: y\r\n" * 60_000, b"y" * 300_000], ids=["one line", "many lines", "no colon"]
)
async def test_headers_past_the_bound_are_refused(junk: bytes) -> None:
    """Before their end, however they are cut. The error is of the family that the path belongs to."""
    async with gateway() as there:
        whole = there.post(path="/v1/messages", x_long="y" * 32_768)  # arrives in one piece
        for request in (there.head("/v1/messages") + junk, whole):
            answer = await there.said(request)
            assert (status_of(answer), error_of(answer)["type"]) == (431, "invalid_request_error")
        assert await lives(there)


async def test_a_request_line_past_the_bound_is_refused() -> None:
    """A path without an end, and a query past its own bound."""
    async with gateway(bounded(query_bytes=100)) as there:
        endless = await there.said(b"POST /" + b"a" * 300_000)
        long = await there.said(there.post(path=f"{CHAT}?alt={'a' * 100}"))
        many = await there.said(there.post(path=f"{CHAT}?" + "&" * 90))
        assert [status_of(answer) for answer in (endless, long, many)] == [431, 414, 400]
        assert (there.service.calls, await lives(there)) == ([], True)


@pytest.mark.parametrize("junk", [b"0;" + b"a" * 300_000, b"0\r\nx: " + b"a" * 300_000], ids=["extension", "trailer"])
async def test_what_stands_beside_the_content_of_chunks_is_bounded(junk: bytes) -> None:
    """httptools would keep it all until its line ends."""
    async with gateway() as there:
        head = there.head(content_type="application/json", transfer_encoding="chunked") + b"\r\n"
        answer = await there.said(head, junk)
        assert (status_of(answer), there.service.calls, await lives(there)) == (400, [], True)


async def test_a_body_past_the_bound_is_refused() -> None:
    """By its length before it is read, by its chunks where they pass the bound, and also if it is still being sent."""
    async with gateway(bounded(body_bytes=100_000)) as there:
        full = b'"' + b"a" * 99_998 + b'"'
        assert status_of(await there.said(there.post(full))) == 200
        said = await there.said(there.post(full + b" ", "/v1/messages"))
        assert (status_of(said), error_of(said)["message"]) == (
            413,
            "the body has more than 100,000 bytes, the bound of this gateway",
        )
        head = there.head(content_type="application/json", transfer_encoding="chunked") + b"\r\n"
        chunks = [b"%x\r\n%s\r\n" % (len(PIECE), PIECE)] * 3 + [b"0\r\n\r\n"]
        assert status_of(await there.said(head, *chunks)) == 413
        unsent = there.head(content_type="application/json", content_length="1" + "0" * 12) + b"\r\n"
        assert status_of(await there.said(unsent)) == 413
        assert (len(there.service.calls), await lives(there)) == (1, True)


async def test_an_error_arrives_though_the_client_sends_on() -> None:
    """A connection that is closed on what is still being sent takes its own answer away."""
    async with gateway(bounded(body_bytes=100_000)) as there:
        body = b" " * 8_000_000
        answers = [await there.said(there.post(body)), await there.said(there.post(body, content_type="text/plain"))]
        assert [status_of(answer) for answer in answers] == [413, 415]
        assert await lives(there)


async def test_a_compressed_body_is_refused() -> None:
    """A megabyte of it would be a gigabyte; the gateway unpacks nothing of a client's."""
    async with gateway() as there:
        bomb = gzip.compress(b" " * 50_000_000)
        answer = await there.said(there.post(bomb, content_encoding="gzip"))
        assert (status_of(answer), there.service.calls, await lives(there)) == (415, [], True)


@pytest.mark.parametrize(
    "body", [b"[" * 1_000_000, b"[" * 101 + b"]" * 101, b'{"a":' * 500_000], ids=["open", "101", "objects"]
)
async def test_a_body_that_is_nested_too_deeply_is_refused(body: bytes) -> None:
    """Before anything decodes it; 100 levels pass."""
    async with gateway() as there:
        answer = await there.said(there.post(body, "/v1beta/models/m:generateContent"))
        assert (error_of(answer)["code"], error_of(answer)["status"]) == (400, "INVALID_ARGUMENT")
        assert error_of(answer)["message"] == "the body is nested more than 100 levels deep"
        assert status_of(await there.said(there.post(b"[" * 100 + b"]" * 100))) == 200


@pytest.mark.parametrize(
    ("begun", "status"),
    [
        (b"", None),
        (b"\r\n", 408),
        (b"POST /v1/messages", 408),
        (b"POST /v1/messages HTTP/1.1\r\nhost: a\r\nx", 408),
    ],
)
async def test_headers_that_do_not_come_end_the_connection(begun: bytes, status: int | None) -> None:
    """Slow loris: who has begun is told so, who said nothing is left without a word."""
    async with gateway(bounded(head_s=SOON_S)) as there:
        answer = await there.said(begun)
        assert (status_of(answer) if answer else None, await lives(there)) == (status, True)


async def test_the_deadline_of_the_headers_ends_with_them() -> None:
    """Proves: an answer that takes longer than `head_s` arrives whole, also where the next request has the same connection. That
    the time is over, a silent connection tells that was opened later and is closed by its own deadline."""
    async with gateway(bounded(head_s=SOON_S)) as there:
        reader, writer = await asyncio.open_connection("127.0.0.1", there.port)
        for _ in range(2):
            there.service.waiting.clear()
            there.service.go_on.clear()
            writer.write(there.post(b'{"do": "wait"}', connection="keep-alive"))
            await asyncio.wait_for(there.service.waiting.wait(), HANG_S)
            assert await there.said(b"") == b""
            there.service.go_on.set()
            answer = await asyncio.wait_for(reader.readuntil(b"\r\n0\r\n\r\n"), HANG_S)
            assert (status_of(answer), b"data: ended" in answer) == (200, True)
        writer.close()


async def test_headers_byte_by_byte_have_one_deadline() -> None:
    """Each byte does not begin it anew."""
    async with gateway(bounded(head_s=SOON_S)) as there:
        reader, writer = await asyncio.open_connection("127.0.0.1", there.port)
        answering = asyncio.create_task(reader.read())
        writer.write(b"POST /v1/messages HTTP/1.1\r\nx: ")
        while not answering.done():
            writer.write(b"a")
            await asyncio.wait([answering], timeout=SOON_S / 10)
        writer.close()
        assert status_of(await answering) == 408


async def test_a_body_that_does_not_come_is_refused() -> None:
    """408 in the client's family, and the place among the streams is free again."""
    async with gateway(bounded(body_s=SOON_S, streams=1)) as there:
        head = there.head("/v1/messages", content_type="application/json", content_length="10") + b"\r\n"
        answer = await there.said(head, b'{"a')
        assert (status_of(answer), error_of(answer)["message"]) == (408, "the body did not arrive within 0.05 s")
        assert (there.service.calls, await lives(there)) == ([], True)


async def test_blank_lines_keep_no_connection() -> None:
    """Between two requests, where any byte ends uvicorn's own deadline."""
    async with gateway(bounded(head_s=SOON_S)) as there:
        reader, writer = await asyncio.open_connection("127.0.0.1", there.port)
        writer.write(there.post(connection="keep-alive"))
        await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), HANG_S)
        rest = asyncio.create_task(reader.read())
        while not rest.done():
            writer.write(b"\r\n")
            await asyncio.wait([rest], timeout=SOON_S / 10)
        writer.close()
        assert b"HTTP/1.1" not in await rest or b" 408 " in await rest


async def test_a_client_that_does_not_read_holds_the_service_back_and_is_left_in_the_end() -> None:
    """The service waits in `send` with bounded memory, and hears that the client is gone after the deadline."""
    async with gateway(bounded(unread_s=SOON_S)) as there:
        idle = socket.create_connection(("127.0.0.1", there.port))
        try:
            idle.sendall(there.post(b'{"do": "flood"}'))
            await asyncio.wait_for(there.service.told_gone.wait(), HANG_S)
        finally:
            idle.close()
        # What the kernel takes for a socket, and the server's own buffer: some MB, whatever the answer's length.
        assert there.service.sent_pieces < 500
        assert await lives(there)


async def test_past_the_bound_of_connections_a_client_is_told_to_wait() -> None:
    """503 before anything is read; a connection that ends makes room."""
    async with gateway(bounded(connections=2)) as there:
        first = await asyncio.open_connection("127.0.0.1", there.port)
        first[1].write(there.post(b'{"do": "wait"}'))
        await asyncio.wait_for(there.service.waiting.wait(), HANG_S)
        second = await asyncio.open_connection("127.0.0.1", there.port)
        second[1].write(b"GET")
        await second[1].drain()
        answers = [await there.said(there.post()) for _ in range(2)]
        assert [status_of(answer) for answer in answers] == [503, 503]
        assert all(b"\r\nretry-after: 1\r\n" in answer for answer in answers)
        second[1].transport.abort()
        there.service.go_on.set()
        assert b"data: ended" in await asyncio.wait_for(first[0].read(), HANG_S)
        first[1].close()
        found = [await lives(there) for _ in range(3)]  # a connection counts until the server has seen its end
        assert found[-1]


async def test_requests_in_one_piece_are_answered_in_order_and_not_without_end() -> None:
    """Pipelining: a few are served one after another, a thousand are refused."""
    async with gateway() as there:
        few = there.post(connection="keep-alive") * 3 + there.post()
        answer = await there.said(few)
        assert (answer.count(b"HTTP/1.1 200"), len(there.service.calls)) == (4, 4)
        many = there.head("/healthz", method="GET") + b"\r\n"
        answer = await there.said(many * 1000)
        assert (answer.count(b"HTTP/1.1 200") <= 17, await lives(there)) == (True, True)


async def test_nothing_behind_a_last_request_is_served() -> None:
    """`connection: close` means that what follows is no request."""
    async with gateway() as there:
        answer = await there.said(there.post() + there.post(path="/v1/messages"))
        assert (answer.count(b"HTTP/1.1"), [call.path for call in there.service.calls]) == (1, [CHAT])


async def test_junk_behind_a_request_goes_into_no_answer() -> None:
    """An answer that is under way breaks off; no second status line stands in it."""
    async with gateway() as there:
        reader, writer = await asyncio.open_connection("127.0.0.1", there.port)
        writer.write(there.post(b'{"do": "wait"}', connection="keep-alive"))
        await asyncio.wait_for(there.service.waiting.wait(), HANG_S)
        writer.write(b"\x00junk\r\n\r\n")
        said = b""
        try:
            while piece := await asyncio.wait_for(reader.read(65_536), HANG_S):
                said += piece
        except ConnectionError:
            pass
        writer.close()
        assert (said.count(b"HTTP/1.1"), said.count(b"data: ended"), await lives(there)) == (1, 0, True)


async def test_a_client_that_offers_http_2_is_served_over_http_1() -> None:
    """Java's client (Koog) sends `upgrade: h2c` with its first request; an upgrade that is not taken is ignored."""
    async with gateway() as there:
        offer = {"upgrade": "h2c", "connection": "Upgrade, HTTP2-Settings", "http2_settings": "AAEAAEAA"}
        reader, writer = await asyncio.open_connection("127.0.0.1", there.port)
        writer.write(there.post(**offer))
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), HANG_S)
        writer.close()
        assert (status_of(head), len(there.service.calls)) == (200, 1)


async def test_a_client_that_waits_for_leave_gets_it_only_if_its_body_may_come() -> None:
    """`Expect: 100-continue`: a refused body is never sent."""
    async with gateway() as there:
        whole = there.post(expect="100-continue")
        refused = there.head(content_type="text/plain", content_length="2", expect="100-continue") + b"\r\n"
        answers = [await there.said(whole), await there.said(refused, ends=True)]
        assert [answer.partition(b"\r\n")[0] for answer in answers] == [
            b"HTTP/1.1 100 Continue",
            b"HTTP/1.1 415 Unsupported Media Type",
        ]
