"""The lab over real sockets: endpoints, keys, what it kept, and every fault."""

import asyncio
import json
from typing import Any

import aiohttp
import pytest

from lab.asking import body_of, path_of
from turnwise.errors import CallerError
from turnwise.lab import Lab, ScriptError
from turnwise.lab.faults import ENDLESS_BYTES, HTML, RANDOM_BYTES
from waits import HANG_S

FAMILIES = ("openai_chat", "openai_responses", "anthropic_messages", "gemini")
BOUND = aiohttp.ClientTimeout(total=HANG_S)  # every wait has an end


async def post(
    lab: Lab, session: aiohttp.ClientSession, family: str, model: str, *, stream: bool
) -> tuple[int, str, bytes]:
    path, body = path_of(family, model=model, stream=stream), body_of(family, model=model, stream=stream)
    async with session.post(lab.url + path, json=body, timeout=BOUND) as answer:
        return answer.status, answer.content_type, await answer.read()


async def test_what_came_in_is_kept_listed_counted_and_forgotten() -> None:
    """Proves: `requests`, `count`, `GET` and `DELETE /_lab/requests` tell the same, and forgetting changes no reply."""
    async with Lab() as lab, aiohttp.ClientSession() as session:
        answers = [await post(lab, session, family, "plain-answer", stream=False) for family in FAMILIES]
        refused = await post(lab, session, "openai_chat", "no-such-script", stream=True)
        assert refused[0] == 404
        assert [(one.number, one.family, one.model, one.streamed, one.status, one.step) for one in lab.requests] == [
            *[(number, family, "plain-answer", False, 200, 1) for number, family in enumerate(FAMILIES, start=1)],
            (5, "openai_chat", "no-such-script", True, 404, None),
        ]
        first = lab.requests[0]
        assert json.loads(first.body) == body_of("openai_chat", model="plain-answer", stream=False)
        assert first.request is not None and first.request.model == "plain-answer"
        assert (lab.count(), lab.count(model="plain-answer"), lab.count(family="gemini"), lab.count(status=404)) == (
            5,
            4,
            1,
            1,
        )
        async with session.get(f"{lab.url}/_lab/requests") as listed:
            told: dict[str, Any] = await listed.json()
        assert (told["count"], told["by_model"]) == (5, {"plain-answer": 4, "no-such-script": 1})
        assert (
            told["requests"][4]["refused"]
            == "The model `no-such-script` does not exist or you do not have access to it."
        )
        assert told["requests"][0]["body"] == json.loads(first.body)
        async with session.delete(f"{lab.url}/_lab/requests") as forgotten:
            assert forgotten.status == 204
        assert lab.requests == ()
        assert [await post(lab, session, family, "plain-answer", stream=False) for family in FAMILIES] == answers


async def test_any_prefix_and_the_paths_of_other_clouds_are_taken() -> None:
    """Proves: base URLs of every kind work: with and without /v1, a gateway's, Azure's deployments, Vertex' rawPredict."""
    chat = body_of("openai_chat", model="plain-answer", stream=False)
    messages = body_of("anthropic_messages", model="plain-answer", stream=False)
    nameless = {key: value for key, value in messages.items() if key != "model"}
    google = body_of("gemini", model="plain-answer", stream=False)
    vertex = "/v1/projects/p/locations/l/publishers"
    async with Lab() as lab, aiohttp.ClientSession() as session:
        for path, body in (
            ("/chat/completions", chat),
            ("/api/v1/chat/completions", {**chat, "model": "lab/plain-answer"}),
            ("/openai/deployments/plain-answer/chat/completions?api-version=1", {**chat, "model": "ignored"}),
            ("/messages", messages),
            (f"{vertex}/anthropic/models/plain-answer:rawPredict", nameless),
            (f"{vertex}/google/models/plain-answer:generateContent", google),
        ):
            async with session.post(lab.url + path, json=body) as answer:
                assert answer.status == 200, (path, await answer.text())
        async with session.post(f"{lab.url}/v1/embeddings", json={}) as answer:
            assert (answer.status, await answer.text()) == (
                404,
                "the lab has no endpoint /v1/embeddings; see GET /_lab/scripts\n",
            )
        assert {one.model for one in lab.requests} == {"plain-answer"}
        async with session.get(f"{lab.url}/_lab/scripts") as listed:
            names = [script["name"] for script in (await listed.json())["scripts"]]
        assert names == list(lab.provider.scripts)


async def test_a_stream_of_google_without_sse_is_one_array() -> None:
    """Proves: `streamGenerateContent` without `alt=sse` answers with a JSON array of the same chunks."""
    async with Lab() as lab, aiohttp.ClientSession() as session:
        url = f"{lab.url}/v1beta/models/parallel-calls:streamGenerateContent"
        body = body_of("gemini", model="parallel-calls", stream=True)
        async with session.post(url, json=body) as answer:
            array = await answer.json()
        async with session.post(f"{url}?alt=sse", json=body) as answer:
            lines = (await answer.read()).splitlines()
        assert array == [json.loads(line[6:]) for line in lines if line.startswith(b"data: ")]
        assert [one.streamed for one in lab.requests] == [True, True]


@pytest.mark.parametrize(
    ("family", "message"),
    [
        ("openai_chat", "Incorrect API key provided."),
        ("openai_responses", "Incorrect API key provided."),
        ("anthropic_messages", "invalid x-api-key"),
        (
            "gemini",
            "Request had invalid authentication credentials. Expected OAuth 2 access token, login cookie or other valid "
            "authentication credential.",
        ),
    ],
)
async def test_a_key_is_asked_for_only_where_there_is_one(family: str, message: str) -> None:
    """Proves: with a key, requests without it get the family's 401; it may stand in each header that clients use."""
    path, body = (
        path_of(family, model="plain-answer", stream=False),
        body_of(family, model="plain-answer", stream=False),
    )
    async with Lab(key="lab-secret-key") as lab, aiohttp.ClientSession() as session:
        for headers in ({}, {"authorization": "Bearer other"}, {"x-api-key": "other"}):
            async with session.post(lab.url + path, json=body, headers=headers) as answer:
                assert (answer.status, (await answer.json())["error"]["message"]) == (401, message)
        for headers in (
            {"authorization": "Bearer lab-secret-key"},
            {"x-api-key": "lab-secret-key"},
            {"x-goog-api-key": "lab-secret-key"},
            {"api-key": "lab-secret-key"},
        ):
            async with session.post(lab.url + path, json=body, headers=headers) as answer:
                assert answer.status == 200
        assert [one.status for one in lab.requests] == [401] * 3 + [200] * 4


async def test_a_body_that_is_no_json_is_refused_in_each_familys_shape() -> None:
    """Proves: broken JSON and broken UTF-8 get a 400 with an error object, and are kept."""
    async with Lab() as lab, aiohttp.ClientSession() as session:
        for family in FAMILIES:
            for body in (b"{", b"\xff\xfe", b"[]", b"", b"[" * 100_000):
                async with session.post(
                    lab.url + path_of(family, model="plain-answer", stream=False), data=body
                ) as answer:
                    assert answer.status == 400
                    assert (await answer.json())["error"]["message"]
        assert lab.count() == 20 and all(one.request is None for one in lab.requests if one.family != "gemini")


@pytest.mark.parametrize("family", FAMILIES)
async def test_faults_that_answer(family: str) -> None:
    """Proves: statuses, web pages, error objects in streams, random bytes, broken UTF-8 and an endless line, as promised."""
    async with Lab() as lab, aiohttp.ClientSession() as session:

        async def get(model: str, *, stream: bool) -> tuple[int, str, bytes]:
            return await post(lab, session, family, model, stream=stream)

        assert [(await get(f"fault-{status}", stream=True))[0] for status in (401, 429, 500, 529)] == [
            401,
            429,
            500,
            529,
        ]
        for stream in (True, False):
            assert await get("fault-html", stream=stream) == (200, "text/html", HTML)
            assert (await get("fault-random-bytes", stream=stream)) == (await get("fault-random-bytes", stream=stream))
            assert len((await get("fault-random-bytes", stream=stream))[2]) == RANDOM_BYTES
            line = (await get("fault-endless-line", stream=stream))[2]
            assert len(line) >= ENDLESS_BYTES and b"\n" not in line
            with pytest.raises(UnicodeDecodeError):
                (await get("fault-invalid-utf8", stream=stream))[2].decode()
        status, kind, body = await get("fault-error-in-stream", stream=True)
        assert (status, kind) == (200, "text/event-stream")
        assert (
            b"This will" in body
            and b"The server had an error while processing your request." in body.split(b"\n\n")[-2]
        )
        assert (await get("fault-error-in-stream", stream=False))[0] == 500


async def test_a_rate_limit_says_when_to_come_back() -> None:
    """Proves: 429 carries Retry-After."""
    async with Lab() as lab, aiohttp.ClientSession() as session:
        body = body_of("openai_chat", model="fault-429", stream=False)
        async with session.post(f"{lab.url}/v1/chat/completions", json=body) as answer:
            assert (answer.status, answer.headers["retry-after"]) == (429, "2")


@pytest.mark.parametrize("family", FAMILIES)
async def test_the_connection_breaks_in_the_middle_of_a_call(family: str) -> None:
    """Proves: some of the call arrives, then the connection is gone without an end."""
    async with Lab() as lab, aiohttp.ClientSession() as session:
        for stream in (True, False):
            with pytest.raises(aiohttp.ClientError):
                await post(lab, session, family, "fault-reset", stream=stream)
        assert [(one.status, one.streamed) for one in lab.requests] == [(200, True), (200, False)]


async def test_a_stall_lasts_until_the_client_goes() -> None:
    """Proves: after a few pieces nothing comes and nothing ends; others are answered; the lab closes with some still there."""
    lab = Lab()
    async with lab, aiohttp.ClientSession() as session:
        url, body = f"{lab.url}/v1/chat/completions", body_of("openai_chat", model="fault-stall", stream=True)
        async with session.post(url, json=body) as answer:
            seen = b""
            while seen.count(b"\n\n") < 4:
                seen += await answer.content.readany()
            more = asyncio.ensure_future(answer.content.readany())
            await asyncio.sleep(0)
            assert not more.done()
            more.cancel()
            with pytest.raises(asyncio.CancelledError):
                await more
            answer.close()
        silent = asyncio.ensure_future(
            session.post(url, json=body_of("openai_chat", model="fault-silence", stream=True), timeout=BOUND)
        )
        while not lab.count(model="fault-silence"):  # other requests are answered meanwhile
            await post(lab, session, "openai_chat", "plain-answer", stream=False)
        assert not silent.done()
        await lab.__aexit__(None, None, None)
        with pytest.raises(aiohttp.ClientError):
            await silent


async def test_pieces_can_be_slowed_down() -> None:
    """Proves: `chunk_delay_s` changes when pieces come, not what they say."""
    async with Lab() as fast, Lab(chunk_delay_s=0.0005) as slow, aiohttp.ClientSession() as session:
        assert await post(fast, session, "openai_chat", "plain-answer", stream=True) == await post(
            slow, session, "openai_chat", "plain-answer", stream=True
        )


async def test_wrong_use_says_what_to_do() -> None:
    """Proves: one clear line for a lab that does not run, a script that is not there, and a port that is taken."""
    with pytest.raises(CallerError, match="the lab is not running: use `async with Lab\\(\\) as lab`"):
        _ = Lab().url
    with pytest.raises(ScriptError, match="there is no script `nope`"):
        Lab(parameters={"nope": {}})
    async with Lab() as lab:
        with pytest.raises(CallerError, match=r"port \d+ of 127.0.0.1 cannot be used: "):
            async with Lab(port=int(lab.url.rpartition(":")[2])):
                pass


async def test_a_client_that_leaves_is_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    """Issue 15: aiohttp printed one for whoever closed the connection before the head of the answer."""
    body = json.dumps(body_of("openai_chat", model="plain-answer", stream=True)).encode()
    path = path_of("openai_chat", model="plain-answer", stream=True)
    head = f"POST {path} HTTP/1.1\r\nHost: lab\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    async with Lab() as lab:
        port = int(lab.url.rpartition(":")[2])
        for _ in range(20):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(head + body)
            writer.close()
            await writer.wait_closed()
        async with aiohttp.ClientSession() as session:
            status, _, _ = await post(lab, session, "openai_chat", "plain-answer", stream=True)
    assert status == 200 and [record for record in caplog.records if record.exc_info] == []
