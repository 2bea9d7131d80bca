"""Between two turns of the event loop at most 256 events or 256 KiB of one stream are read."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.relayed import FAMILIES, Gathered, ask, profile_of
from relay.many_calls import stream_of_calls
from tables import each
from turnwise.assembly.response_reading import ResponseReader, StreamReader
from turnwise.endpoints.endpoints import Endpoint, build_http_request
from turnwise.endpoints.exchange import MOST_BYTES, MOST_EVENTS, AnswerRoom, Exchange, Portions
from turnwise.endpoints.transport import HttpReply, HttpRequest, Take
from turnwise.gateway.delivery import Delivery, DeliveryMeans
from turnwise.relay.client_exchange import ClientSide, Relay, RelayRules, UpstreamSide
from turnwise.testing import FakeClock
from turnwise.turn.config import Deadlines
from turnwise.turn.events import ResponseReceived, SendRequest
from turnwise.vocab import Frame
from turnwise.wire.family import family
from turnwise.wire.profiles import DEFAULT_LIMITS, FamilyName
from waits import HANG_S


class Turns:
    """Counts the turns of the event loop, for as long as it is open."""

    def __init__(self) -> None:
        self.number = 0
        self._is_open = True
        self._next()

    def _next(self) -> None:
        self.number += 1
        if self._is_open:
            asyncio.get_running_loop().call_soon(self._next)

    def close(self) -> None:
        self._is_open = False


class Watched:
    """A reader that writes down in which turn it was fed how much."""

    def __init__(self, reader: ResponseReader, *, turns: Turns, fed: list[tuple[int, bytes]]) -> None:
        self._reader, self._turns, self._fed = reader, turns, fed
        self.early_words = None

    def __getattr__(self, name: str) -> object:
        return getattr(self._reader, name)

    def feed(self, chunk: bytes) -> list[Frame]:
        self._fed.append((self._turns.number, chunk))
        return self._reader.feed(chunk)


class Pouring:
    """A transport that has all of its chunks at once, as a socket that nobody has read for a while."""

    def __init__(self, chunks: Sequence[bytes], *, kind: str = "text/event-stream", pumps: bool = False) -> None:
        self._chunks, self._kind, self._pumps = chunks, kind, pumps

    @asynccontextmanager
    async def send(self, request: HttpRequest, /) -> AsyncIterator[HttpReply]:
        left = iter(self._chunks)

        async def chunks() -> AsyncIterator[bytes]:
            for chunk in left:
                yield chunk

        async def pump(take: Take) -> None:
            for chunk in left:
                if not take(chunk):
                    return

        yield HttpReply(
            status=200,
            headers={"content-type": self._kind},
            chunks=chunks(),
            pump=pump if self._pumps else None,
        )


def exchange_of(
    transport: Pouring,
    *,
    upstream: FamilyName,
    open_reader: Callable[[], StreamReader] | None = None,
    clock: FakeClock | None = None,
    room: AnswerRoom | None = None,
) -> tuple[Exchange, HttpRequest]:
    endpoint = Endpoint(profile=profile_of(upstream), base_url="http://lab.invalid/v1")
    request = ask("m")
    exchange = Exchange(
        SendRequest(number=1, step=1, purpose="step", request=request, deadlines=Deadlines()),
        endpoint=endpoint,
        transport=transport,
        clock=clock or FakeClock(),
        on_frames=None,
        open_reader=open_reader,
        room=room,
    )
    return exchange, build_http_request(
        endpoint, endpoint.family.encode_request(request, endpoint.profile), connect_s=1
    )


def events_in(fed: Iterable[bytes]) -> int:
    return sum([chunk.count(b"\n\n") for chunk in fed])


async def read_in_turns(upstream: FamilyName, chunks: Sequence[bytes]) -> list[list[bytes]]:
    """What was read in each turn of the event loop."""
    turns, fed = Turns(), list[tuple[int, bytes]]()
    plain = ResponseReader(family(upstream), profile=profile_of(upstream))
    exchange, request = exchange_of(
        Pouring(chunks),
        upstream=upstream,
        open_reader=lambda: Watched(plain, turns=turns, fed=fed),  # pyright: ignore[reportArgumentType] (it passes all on)
    )
    event = await asyncio.wait_for(exchange.run(request), HANG_S)
    turns.close()
    assert isinstance(event, ResponseReceived)
    assert event.response.fault is None
    return [[chunk for _, chunk in turn] for _, turn in itertools.groupby(fed, key=lambda one: one[0])]


@pytest.mark.costly
@pytest.mark.promise("wait:stream")
@each("upstream", FAMILIES)
@each("size", [10_000_000, 200], meeting="each")
async def test_a_turn_of_the_event_loop_reads_a_portion_of_a_stream(upstream: FamilyName, size: int) -> None:
    """3,000 calls that are there at once, in one chunk or in many."""
    stream = stream_of_calls(upstream, 3000)
    turns = await read_in_turns(upstream, [stream[at : at + size] for at in range(0, len(stream), size)])
    assert b"".join(itertools.chain(*turns)) == stream
    assert max(map(events_in, turns)) <= MOST_EVENTS
    assert max([sum(map(len, turn)) for turn in turns]) <= MOST_BYTES
    assert len(turns) >= events_in([stream]) / MOST_EVENTS


@pytest.mark.promise("wait:stream")
async def test_long_events_are_read_a_portion_a_turn() -> None:
    """Three events of a megabyte: a turn has no more than 256 KiB of them, and their ends are read in a thread."""
    text = msgspec.json.encode("word " * 200_000)
    chunk = b'data: {"id":"c","choices":[{"index":0,"delta":{"content":%b},"finish_reason":null}]}\n\n' % text
    end = b'data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    turns = await read_in_turns("openai_chat", [chunk * 3 + end])
    assert max([sum(map(len, turn)) for turn in turns]) <= MOST_BYTES


@pytest.mark.promise("wait:stream")
@pytest.mark.parametrize("pumps", [True, False])
@pytest.mark.parametrize("streams", [True, False])
async def test_the_gateway_lets_others_on_while_it_reads_an_answer(pumps: bool, streams: bool) -> None:
    """Words that pass as they came, and a body of 2 MB: the event loop turns meanwhile, and the answer is whole."""
    here, profile, clock, outlet = family("openai_chat"), profile_of("openai_chat"), FakeClock(), Gathered()
    request = ask("m", stream=streams)
    relay = Relay(
        upstream=UpstreamSide(
            request=request, call=here.encode_request(request, profile), family=here, profile=profile
        ),
        client=ClientSide(request=request, family=here),
        rules=RelayRules(),
    )
    word = b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"word"},"finish_reason":null}]}\n\n'
    end = b'data: {"id":"c","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    chunks = [word] * 2000 + [end]
    if not streams:
        said = msgspec.json.encode("word" * 500_000)
        chunks = [
            b'{"id":"c","choices":[{"index":0,"message":{"role":"assistant","content":%b},"finish_reason":"stop"}]}'
            % said
        ]
    transport = Pouring(chunks, kind="text/event-stream" if streams else "application/json", pumps=pumps and streams)
    means = DeliveryMeans(
        endpoint=Endpoint(profile=profile, base_url="http://lab.invalid/v1"),
        transport=transport,
        clock=clock,
        deadlines=Deadlines(),
        limits=DEFAULT_LIMITS,
        jitter=lambda: 0.5,
    )
    turns = Turns()
    delivery = Delivery(relay, means=means, outlet=outlet, streams=streams)
    end_of_it = await asyncio.wait_for(delivery.run(), HANG_S)
    turns.close()
    assert end_of_it.fault is None
    assert b"".join(outlet.pieces) == b"".join(chunks)
    assert turns.number >= (2000 // MOST_EVENTS if streams else 3)


@pytest.mark.promise("wait:stream")
@given(
    st.lists(st.sampled_from([b"data: {}", b"\n", b"\r", b"\r\n", b"[", b"{}", b",", b"x" * 300]), max_size=60),
    st.integers(1, 40),
)
def test_portions_lose_no_byte_and_hold_their_count(pieces: list[bytes], size: int) -> None:
    """Whatever line ends there are, wherever the network cuts."""
    stream = b"".join(pieces) * 20
    portions, read, in_portion = Portions(), list[bytes](), 0
    for at in range(0, len(stream), size * 100):
        chunk = stream[at : at + size * 100]
        while chunk:
            if portions.is_over:
                portions.begin()
                in_portion = 0
            now, chunk = portions.cut(chunk)
            portions.may_end_long(now)
            read.append(now)
            in_portion += now.count(b"\n\n")
            assert in_portion <= MOST_EVENTS
    assert b"".join(read) == stream


class Full:
    """Room that is full until `is_free`."""

    def __init__(self) -> None:
        self.size = 0
        self.is_free = asyncio.Event()
        self.waits = asyncio.Event()

    @property
    def is_to_wait(self) -> bool:
        return not self.is_free.is_set()

    def grow(self, size: int, /) -> None:
        self.size += size

    async def wait(self) -> None:
        self.waits.set()
        await self.is_free.wait()


@pytest.mark.promise("wait:stream")
async def test_a_stream_that_waits_for_room_is_not_cut() -> None:
    """Nobody reads it, so its provider is not silent; what was read is told, and behind the wait the deadline holds again."""
    stream = stream_of_calls("openai_chat", 400)
    chunks = [stream[at : at + 10_000] for at in range(0, len(stream), 10_000)]
    room, clock = Full(), FakeClock()
    exchange, request = exchange_of(Pouring(chunks), upstream="openai_chat", clock=clock, room=room)
    running = asyncio.create_task(exchange.run(request))
    await asyncio.wait_for(room.waits.wait(), HANG_S)
    await clock.advance(500)  # more than between two events, and less than in all
    assert (running.done(), room.size) == (False, len(chunks[0]))
    room.is_free.set()
    event = await asyncio.wait_for(running, HANG_S)
    assert isinstance(event, ResponseReceived)
    assert (event.response.fault, room.size) == (None, len(stream))
