"""Recordings: a live run is kept once and played again, byte by byte and without keys (turnwise.testing.Recording)."""

import base64
import json
from pathlib import Path

import pytest

from flat_agents import flat_agent
from tables import each
from turnwise import Agent, CallerError, RetryPolicy, RunResult, Settings, tool
from turnwise.agent.agent import inside
from turnwise.endpoints.transport import HttpRequest, Transport
from turnwise.errors import NotARecording, NotRecorded, ProviderFault
from turnwise.lab import Lab, parse_script
from turnwise.testing import Recording, Reply, ScriptedModel, ScriptedTransport, Stall, call
from turnwise.vocab import Fault, FaultKind

FAMILIES = ("openai_chat", "openai_responses", "anthropic_messages", "gemini")
KEY = "sk-lab-9f8e7d6c5b4a39281706f5e4"
LIMITED = """
title = "too many requests the first time"
healthy = false
requests = 2
[[steps]]
text = "Thank you for waiting."
faults = [{ kind = "status", status = 429, message = "Slow down.", headers = { retry-after-ms = "5" } }]
"""
ESCAPED = KEY.replace("-", "%2D")
URL = "https://api.example.com/v1/chat/completions"


@tool
def write(path: str, content: str, append: bool = False) -> str:
    """Write a file."""
    return f"{path}: {len(content)} characters"


def agent(transport: Transport, *, model: str, url: str, stream: bool) -> Agent:
    return flat_agent(
        model,
        base_url=url if model.startswith(("anthropic", "gemini")) else f"{url}/v1",
        api_key=KEY,
        tools=[write],
        transport=transport,
        stream=stream,
        settings=Settings(max_output_tokens=4_000),
        retry=RetryPolicy(base_s=0.001),
    )


def said(result: RunResult) -> tuple[object, ...]:
    return result.text, result.new_messages, result.usage, result.requests, result.stop_reason, result.repairs


def request(body: object = None, *, url: str = URL, key: str = KEY) -> HttpRequest:
    headers = (("authorization", f"Bearer {key}"), ("content-type", "application/json"))
    return HttpRequest(url=url, headers=headers, body=json.dumps(body or {"model": "m"}).encode())


async def pieces_of(transport: Recording, asked: HttpRequest) -> list[bytes]:
    async with transport.send(asked) as reply:
        return [chunk async for chunk in reply.chunks]


async def record(path: Path, *replies: Reply, asked: HttpRequest | None = None) -> None:
    with Recording(path, "record", upstream=ScriptedTransport(replies)) as recording:
        for _ in replies:
            await pieces_of(recording, asked or request())


@pytest.mark.costly
@each("script", ["plain-answer", "cut-call", "writer-file", "limited-once", "fault-once-reset"])
@each("stream", [True, False])
@each("family", FAMILIES, meeting="each")
async def test_a_recorded_run_plays_again_as_it_went(family: str, stream: bool, script: str, tmp_path: Path) -> None:
    """Over real HTTP, with a cut call that is continued, an error before the answer, and a connection that breaks: text,
    messages, usage, requests and repairs are those of the live run, and the provider is gone."""
    path = tmp_path / "mit Umlaut ä" / "run"
    async with Lab([parse_script(LIMITED, name="limited-once")], key=KEY) as lab:
        url = lab.url
        with Recording(path, "record") as recording:
            live = await agent(recording, model=f"{family}:{script}", url=url, stream=stream).run("Please.")
    with Recording(path) as recording:
        again = await agent(recording, model=f"{family}:{script}", url=url, stream=stream).run("Please.")
    recording.assert_all_used()
    assert said(again) == said(live) and live.text
    if script == "writer-file" and family == "openai_chat":
        assert again.requests_by_purpose["continue"] >= 2
    assert KEY not in path.with_suffix(".json").read_text()


async def test_pieces_come_as_they_came(tmp_path: Path) -> None:
    """Also where one ends in the middle of a character, and where the bytes are no UTF-8."""
    text = (b"data: \xc3", b"\xa4\n\n")
    noise = (b"\xff\xfe", b"\x00")
    await record(tmp_path / "a", Reply(pieces=text), Reply(pieces=noise, status=500), Reply())
    replayed = Recording(tmp_path / "a.json")
    assert [await pieces_of(replayed, request()) for _ in range(3)] == [[*text], [*noise], []]


@pytest.mark.parametrize("kind", [FaultKind.UNREACHABLE, FaultKind.DISCONNECTED])
async def test_a_broken_connection_breaks_again(kind: FaultKind, tmp_path: Path) -> None:
    """With the same fault, behind the same pieces; a connection that never came has no status."""
    fault = Fault(kind=kind, message="no connection")
    reply = Reply(before=fault) if kind is FaultKind.UNREACHABLE else Reply(pieces=(b"data: 1", fault))
    upstream = ScriptedTransport([reply])
    got: list[list[bytes]] = [[], []]
    with Recording(tmp_path / "a", "record", upstream=upstream) as recording, pytest.raises(ProviderFault):
        await read_into(got[0], recording)
    with pytest.raises(ProviderFault) as raised:
        await read_into(got[1], Recording(tmp_path / "a"))
    assert raised.value.fault == fault and got[0] == got[1]


async def read_into(found: list[bytes], transport: Recording) -> None:
    async with transport.send(request()) as reply:
        async for chunk in reply.chunks:
            found.append(chunk)


async def test_no_key_is_written_in_any_form(tmp_path: Path) -> None:
    """Neither from a header nor from the address; quoted whole, cut short, escaped, in base64 or hex, or word by word in the
    deltas of a stream. What stands for it is as long, so the pieces stay, and the replay asks with another key."""
    query = "azQ7wLm2Np9xVb4T"
    url = f"{URL}?alt=sse&subscription={query}"
    encoded = base64.b64encode(KEY.encode()).decode()
    quoted = f"Incorrect key {KEY}, {KEY[:18]}..., {encoded}, {KEY.encode().hex()}, {ESCAPED}, {query}"
    deltas = [b'data: {"delta":{"content":"%s"}}\n\n' % KEY[at : at + 3].encode() for at in range(0, len(KEY), 3)]
    await record(
        tmp_path / "a",
        Reply(
            pieces=(json.dumps({"error": quoted}).encode(),),
            status=401,
            headers={"set-cookie": "s=1", "x-request-id": "r"},
        ),
        asked=request(url=url),
    )
    await record(tmp_path / "b", Reply(pieces=tuple(deltas)))
    written = (tmp_path / "a.json").read_text()
    for form in (
        KEY,
        KEY[:18],
        encoded[:30],
        KEY.encode().hex(),
        ESCAPED,
        query,
        "Bearer",
        "set-cookie",
    ):
        assert form not in written
    assert "subscription=***" in written and "alt=sse" in written and '"x-request-id": "r"' in written
    got = await pieces_of(Recording(tmp_path / "b"), request(key="another-key-of-mine-1234"))
    assert [len(one) for one in got] == [len(one) for one in deltas]
    words = "".join([json.loads(one.removeprefix(b"data: "))["delta"]["content"] for one in got])
    assert len(words) == len(KEY) and not any(KEY[at : at + 4] in words for at in range(3, len(KEY) - 4))


async def test_texts_to_hide_are_hidden_and_still_compared(tmp_path: Path) -> None:
    """`hide` names what is no key: a customer's name. Who asks with it again is answered."""
    asked = request({"messages": "Call Hildegard Knef."})
    with Recording(
        tmp_path / "a",
        "record",
        hide=["Hildegard Knef"],
        upstream=ScriptedTransport([Reply(pieces=(b"Hildegard Knef!",))]),
    ) as recording:
        await pieces_of(recording, asked)
    assert "Hildegard" not in (tmp_path / "a.json").read_text()
    assert len(await pieces_of(Recording(tmp_path / "a", hide=["Hildegard Knef"]), asked)) == 1


async def test_another_request_fails_with_the_difference(tmp_path: Path) -> None:
    """The error shows what was recorded and what was asked, and how to record anew; the block's end raises it again, because a
    program may have caught it."""
    await record(tmp_path / "a", Reply(pieces=(b"{}",)), asked=request({"model": "m", "n": 1}))
    with pytest.raises(NotRecorded) as raised, Recording(tmp_path / "a") as recording, pytest.raises(NotRecorded):
        await pieces_of(recording, request({"n": 2, "model": "m"}))
    shown = str(raised.value)
    assert (
        '- "n": 1' in shown and '+ "n": 2' in shown and 'mode="record"' in shown and str(tmp_path / "a.json") in shown
    )
    with pytest.raises(NotRecorded, match="/v1/other"):
        await pieces_of(Recording(tmp_path / "a"), request({"model": "m", "n": 1}, url="http://x/v1/other"))
    assert await pieces_of(Recording(tmp_path / "a"), request({"n": 1, "model": "m"})) == [b"{}"]


async def test_a_run_that_asks_something_else_raises(tmp_path: Path) -> None:
    """The error reaches who runs the agent, and is no provider's failure that is tried again; what a sub-agent asks in vain is a
    result for its parent's model, and the block's end raises it."""
    async with Lab() as lab:
        url = lab.url
        with Recording(tmp_path / "a", "record") as recording:
            await agent(recording, model="openai_chat:plain-answer", url=url, stream=True).run("One.")
    with pytest.raises(NotRecorded, match=r'(?s)- +"content": "One.",\n\+ +"content": "Two."'):
        await agent(Recording(tmp_path / "a"), model="openai_chat:plain-answer", url=url, stream=True).run("Two.")
    lead = ScriptedModel([call("task", agent="reader", prompt="Three."), "Bees."])
    with pytest.raises(NotRecorded, match="Three"), Recording(tmp_path / "a") as recording:
        reader = agent(recording, model="openai_chat:plain-answer", url=url, stream=True)
        whole = flat_agent(
            "openai_chat:lead", base_url=lead.endpoint.base_url, transport=lead, agents={"reader": reader}
        )
        assert (await whole.run("Read.")).text == "Bees."


def test_nothing_is_written_where_nothing_was_sent(tmp_path: Path) -> None:
    """Else a block without a request would leave a file that `once` replays from then on."""
    with Recording(tmp_path / "a", "once"):
        pass
    assert names_in(tmp_path) == []


async def test_numbers_and_truth_are_not_mixed_up(tmp_path: Path) -> None:
    """JSON's 1, 1.0 and true are three values, though Python calls them equal."""
    await record(tmp_path / "a", Reply(), asked=request({"n": 1}))
    for other in (1.0, True, "1"):
        with pytest.raises(NotRecorded):
            await pieces_of(Recording(tmp_path / "a"), request({"n": other}))


async def test_a_request_too_many_and_one_too_few_are_told(tmp_path: Path) -> None:
    """Equal requests are answered in order; unused ones are named on demand."""
    await record(tmp_path / "a", Reply(pieces=(b"1",)), Reply(pieces=(b"2",)))
    recording = Recording(tmp_path / "a")
    assert await pieces_of(recording, request()) == [b"1"]
    with pytest.raises(AssertionError, match=r"not made: request 2 \(POST /v1/chat/completions\)"):
        recording.assert_all_used()
    assert await pieces_of(recording, request()) == [b"2"]
    recording.assert_all_used()
    with pytest.raises(NotRecorded, match="2 requests, all of them used, and one more was made"):
        await pieces_of(recording, request())


async def test_nothing_is_written_where_the_run_was_interrupted(tmp_path: Path) -> None:
    """The file of an earlier run stays whole; no file lies beside it."""
    await record(tmp_path / "a", Reply(pieces=(b"old",)))
    before = (tmp_path / "a.json").read_bytes()
    upstream = ScriptedTransport([Reply(pieces=(b"new",))])
    with pytest.raises(KeyboardInterrupt), Recording(tmp_path / "a", "record", upstream=upstream) as recording:
        await pieces_of(recording, request())
        raise KeyboardInterrupt
    assert (tmp_path / "a.json").read_bytes() == before and names_in(tmp_path) == ["a.json"]


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def test_once_records_the_first_time_only(tmp_path: Path) -> None:
    """The second time nothing is sent, and the agent needs no key then."""
    for _ in range(2):
        upstream = ScriptedTransport([Reply(pieces=(b"1",))])
        with Recording(tmp_path / "a", "once", upstream=upstream) as recording:
            is_first = recording.is_recording
            assert recording.needs_key == is_first and await pieces_of(recording, request()) == [b"1"]
        assert len(upstream.requests) == is_first
    assert not is_first


def test_an_agent_with_a_recording_needs_no_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A test that replays runs where no key is set."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    (tmp_path / "a.json").write_text('{"exchanges": []}')
    inside(flat_agent("openai:gpt-5", transport=Recording(tmp_path / "a"))).check_key()
    inside(flat_agent("openai:gpt-5", api_key_env="NOT_SET_HERE", transport=Recording(tmp_path / "a"))).check_key()
    with pytest.raises(CallerError, match="wants a key"):
        Agent("openai:gpt-5").run_sync("Hi.")


async def test_recording_needs_its_block(tmp_path: Path) -> None:
    """Without the `with` statement nobody could tell when the file is whole."""
    with pytest.raises(CallerError, match="open it: `with Recording"):
        await pieces_of(Recording(tmp_path / "a", "record"), request())
    with pytest.raises(CallerError, match="there is no mode `recrod` of a recording: replay, record, once"):
        Recording(tmp_path / "a", "recrod")  # pyright: ignore[reportArgumentType]


EXCHANGE = '{"exchanges": [{"request": {"method": "POST", "path": "/"}, "response": {"status": 200, %s}}]}'


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("{", "Input data was truncated"),
        ("[]", "Expected `object`, got `array`"),
        ('{"exchanges": [{"request": {"path": 1}}]}', r"at `\$.exchanges\[0\].request"),
        (EXCHANGE % '"body": "abc", "pieces": "2 2"', r"4 bytes together, and its body has 3 - at `\$.exchanges\[0\]`"),
        (EXCHANGE % '"body": "abc", "pieces": "x"', r"damaged: .* at `\$.exchanges\[0\]`"),
        (EXCHANGE % '"body_base64": "?"', r"damaged: .* at `\$.exchanges\[0\]`"),
        ('{"version": 9, "exchanges": []}', "newer turnwise"),
    ],
)
def test_a_damaged_file_is_named_with_the_place(content: str, told: str, tmp_path: Path) -> None:
    """Path, place, and what to do."""
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(NotARecording, match=told) as raised:
        Recording(tmp_path / "a")
    assert str(tmp_path / "a.json") in str(raised.value)


def test_a_missing_file_says_how_to_record(tmp_path: Path) -> None:
    """And a folder is no file."""
    with pytest.raises(NotARecording, match=r"does not exist: record it with `Recording\(path, mode=\"once\"\)`"):
        Recording(tmp_path / "a")
    (tmp_path / "b.json").mkdir()
    with pytest.raises(NotARecording, match="no regular file"):
        Recording(tmp_path / "b")


async def test_requests_at_once_may_come_in_any_order(tmp_path: Path) -> None:
    """As those of two sub-agents do: each is found whichever comes first."""
    await record(tmp_path / "a", Reply(pieces=(b"1",)), asked=request({"n": 1}))
    first = json.loads((tmp_path / "a.json").read_text())
    await record(tmp_path / "b", Reply(pieces=(b"2",)), asked=request({"n": 2}))
    first["exchanges"] += json.loads((tmp_path / "b.json").read_text())["exchanges"]
    (tmp_path / "c.json").write_text(json.dumps(first))
    recording = Recording(tmp_path / "c")
    assert [await pieces_of(recording, request({"n": n})) for n in (2, 1)] == [[b"2"], [b"1"]]


async def test_a_silence_that_the_client_left_is_silent_again(tmp_path: Path) -> None:
    """What ended by a deadline of the run ends by it again: the replay adds no end that the stream never had."""
    with Recording(tmp_path / "a", "record", upstream=ScriptedTransport([Reply(pieces=(b"1", Stall()))])) as recording:
        async with recording.send(request()) as reply:
            assert await anext(reply.chunks) == b"1"
    assert json.loads((tmp_path / "a.json").read_text())["exchanges"][0]["response"]["ending"] == "silence"


@pytest.mark.parametrize("stream", [True, False])
async def test_the_lab_plays_a_recording(stream: bool, tmp_path: Path) -> None:
    """The file has the form of the recorded conversations: `turnwise lab --conversation FILE`."""
    async with Lab() as lab:
        with Recording(tmp_path / "a", "record") as recording:
            live = await agent(recording, model="openai_chat:parallel-calls", url=lab.url, stream=stream).run("Please.")
    async with Lab(conversation=tmp_path / "a.json") as lab:
        options = {"base_url": f"{lab.url}/v1", "tools": [write], "stream": stream}
        again = await flat_agent("openai_chat:parallel-calls", **options).run("Please.")
    assert said(again) == said(live)


def test_recorded_conversations_of_others_play(corpus: Path) -> None:
    """A recorded conversation of the corpus is read as it is: one piece a body."""
    found = sorted((corpus / "conversations").glob("*.json"))
    assert found and [Recording(path).is_recording for path in found] == [False] * len(found)
