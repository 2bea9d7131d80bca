"""The least that a paced stream can cost on aiohttp: its bytes split into events, one typed decode each, nothing else."""

import msgspec
from pacing import Take, Task, measure, run


class Delta(msgspec.Struct):
    content: str = ""


class Choice(msgspec.Struct):
    delta: Delta


class Chunk(msgspec.Struct):
    choices: list[Choice]


async def main(given: Task) -> None:
    import aiohttp

    decode = msgspec.json.Decoder(Chunk).decode

    async def read(model: str, take: Take) -> None:
        rest = b""
        async with session.post(f"{given['url']}/v1/chat/completions", json={"model": model}) as response:
            async for chunk in response.content.iter_any():
                *events, rest = (rest + chunk).split(b"\n\n")
                for event in events:
                    if not event.endswith(b"[DONE]"):
                        take(decode(event[6:]).choices[0].delta.content)

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, ssl=tls(given))) as session:
        await measure(read, given=given, distribution="aiohttp")


def tls(given: Task) -> object:
    import ssl

    return ssl.create_default_context() if given["url"].startswith("https:") else True


run(main)
