"""The least that stands between a client and its provider: bytes are copied from one connection to another, nobody reads them."""

import asyncio
import json
import sys
from typing import cast


class Side(asyncio.Protocol):
    """One of two connections."""

    def __init__(self, other: "Side | None" = None) -> None:
        self.other = other
        self.transport: asyncio.Transport | None = None  # or uvloop's
        self.early: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = writing = cast("asyncio.Transport", transport)
        if self.other is None:
            self.other = Side(self)
            loop = asyncio.get_running_loop()
            self.connecting = loop.create_task(
                loop.create_connection(lambda: self.other, "127.0.0.1", int(sys.argv[1]))  # type: ignore[arg-type,return-value]
            )
        elif self.other.early:
            writing.write(b"".join(self.other.early))

    def data_received(self, data: bytes) -> None:
        assert self.other is not None
        if self.other.transport is None:
            self.early.append(data)
        else:
            self.other.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()


async def main() -> None:
    server = await asyncio.get_running_loop().create_server(Side, "127.0.0.1", 0, backlog=2048)
    print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    factory = asyncio.new_event_loop
    if sys.argv[2] == "uvloop":
        import uvloop

        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main())
