"""`turnwise mcp serve` and a client that wants more than its start allows, or wants it to fail."""

import asyncio
import contextlib
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from editors.mcp.serving import call, is_at_work, serving, started, text_of
from editors.mcp.test_serve_runs import user_settings
from terminal.conftest import HOSTILE
from terminal.running import at, running_lab
from terminal.test_processes import wait_until
from turnwise.base.clock import SystemClock
from turnwise.editors.mcp.service import Decodes, StreamWish, decoded
from turnwise.journal.journal import Journal, journal_path
from turnwise.lab import Lab
from waits import HANG_S

GO = {"prompt": "Go."}


async def test_a_cancel_of_what_is_no_request_ends_nothing(lab: Lab, folder: Path) -> None:
    """A list or an object in place of the id, or none at all: the server goes on."""
    async with started(*at(lab, "plain-answer"), folder=folder) as client:
        await client.hello()
        for id in ([], {"a": 1}, None, 1.5, True, "none"):
            await client.send(method="notifications/cancelled", params={"requestId": id})
        await client.begin(1, "run", prompt="Go.")
        assert not (await client.answer(1))["result"]["isError"]


async def test_no_run_can_put_a_link_in_the_place_of_anothers_folder(lab: Lab, folder: Path) -> None:
    """Of two folders at once none lies inside the other; the same one twice, or below a run that only reads, is worked in."""
    (folder / "sub").mkdir()
    cases: list[tuple[dict[str, Any], dict[str, Any], bool]] = [
        ({}, {"folder": "sub"}, True),
        ({"folder": "sub"}, {}, True),
        ({"permissions": "read-only"}, {"folder": "sub"}, False),
        ({"folder": "sub"}, {"folder": "sub"}, False),
    ]
    async with serving(lab, "fault-silence", root=folder, models=("openai_chat:plain-answer",)) as client:
        for first, second, is_refused in cases:
            seen = lab.count()
            running = asyncio.create_task(call(client, "run", {**GO, **first}))
            await asyncio.to_thread(wait_until, lambda seen=seen: lab.count() == seen + 1)
            result = await call(client, "run", {**GO, **second, "model": "openai_chat:plain-answer"})
            assert (text_of(result).startswith("a run is at work in"), result.is_error) == (is_refused, is_refused)
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running
            await call(client, "decode", {"stream": "", "family": "openai_chat"})
            await asyncio.to_thread(wait_until, lambda: not is_at_work())


async def test_a_projects_file_chooses_no_model(lab: Lab, folder: Path) -> None:
    """Where the start names none, the user's own file does, with its address; and without that nothing runs."""
    (folder / "turnwise.toml").write_text("model = 'openai_chat:never-stops'\n")
    async with serving(lab, "plain-answer", root=folder, model=None, base_url=None) as client:
        refused = await call(client, "run", GO)
        user_settings(f"model = 'openai_chat:plain-answer'\nbase_url = '{lab.url}/v1'\n")
        result = await call(client, "run", GO)
    assert refused.is_error and "only the folder's file names a model, `openai_chat:never-stops`" in text_of(refused)
    assert not result.is_error and [one.model for one in lab.requests] == ["plain-answer"]
    assert any("`openai_chat:never-stops`, which is left out" in note for note in result.structured_content["notes"])


async def test_decodes_that_are_cancelled_take_no_more_time() -> None:
    """The thread of one that is at work is told to stop, the ones behind it never begin, and the next one waits for no more than
    that."""
    loop, began = asyncio.get_running_loop(), asyncio.Event()
    told: list[object] = []

    def decode(wish: StreamWish, *, stop: threading.Event) -> tuple[dict[str, object], bool]:
        told.append(wish.stream)
        if wish.stream == "endless":
            loop.call_soon_threadsafe(began.set)
            told.append(stop.wait(HANG_S))
        return {}, True

    decodes = Decodes(decode)
    wishes = [StreamWish(stream=stream, family="openai_chat") for stream in ("endless", "behind it", "next")]
    running = [asyncio.create_task(decodes.decoded(wish)) for wish in wishes[:2]]
    await asyncio.wait_for(began.wait(), HANG_S)
    for one in running:
        one.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    assert await decodes.decoded(wishes[2]) == ({}, True)
    assert told == ["endless", True, "next"]


async def test_a_decode_behind_cancelled_ones_is_served(lab: Lab, folder: Path) -> None:
    """Their streams are slow to read."""
    slow = 'data: {"choices":[{"delta":{"content":"\n\n' + "data: a\n\n" * 200_000
    async with serving(lab, "plain-answer", root=folder) as client:
        running = [
            asyncio.create_task(call(client, "decode", {"stream": slow, "family": "openai_chat"})) for _ in range(4)
        ]
        await client.list_tools()
        for one in running:
            one.cancel()
        ended = await asyncio.gather(*running, return_exceptions=True)
        next_one = await call(client, "decode", {"stream": "data: [DONE]\n\n", "family": "openai_chat"})
    assert [type(one) for one in ended] == [asyncio.CancelledError] * 4
    assert next_one.structured_content["text"] == ""


def test_a_decode_that_nobody_waits_for_stops_reading() -> None:
    """At its next piece."""
    stop = threading.Event()
    stop.set()
    said = 'data: {"choices":[{"index":0,"delta":{"content":"x"}}]}\n\n'
    wish = StreamWish(stream=said, family="openai_chat")
    assert decoded(wish, stop=threading.Event())[0]["text"] == "x"
    assert decoded(wish, stop=stop)[0]["text"] == ""


async def test_an_answers_text_drives_no_terminal(folder: Path) -> None:
    """In the text, control and hidden characters are spelled out; the data have the answer as it came."""
    with running_lab([HOSTILE]) as lab:
        async with serving(lab, HOSTILE.name, root=folder) as client:
            result = await call(client, "run", GO)
    assert "\x1b" in result.structured_content["answer"]
    assert "\x1b" not in text_of(result) and "<U+001B>" in text_of(result)


@pytest.mark.parametrize("value", [True, "5", [], 10**40, float("inf"), float("nan")])
async def test_a_cost_that_is_none_is_refused_in_a_whole_sentence(lab: Lab, folder: Path, value: object) -> None:
    """It has no bounds that could be named."""
    from turnwise.editors.mcp.runs import read_run
    from turnwise.errors import CallerError

    with pytest.raises(CallerError, match=r"^`max_cost` is a number$"):
        read_run({**GO, "max_cost": value}, root=folder, models=(), env=os.environ)


async def test_a_root_whose_name_is_no_utf8_is_listed(lab: Lab, folder: Path) -> None:
    """The name is shown as everywhere. A folder below it is found by the name that is shown; its session is kept under that."""
    root = folder / os.fsdecode(b"r\xff")
    (root / os.fsdecode(b"caf\xe9")).mkdir(parents=True)
    async with serving(lab, "plain-answer", root=root) as client:
        listed = await client.list_tools()
        ran = await call(client, "run", {**GO, "folder": r"caf\xe9"})
        unknown = await call(client, "run", {**GO, "folder": "nowhere"})
        outside = await call(client, "run", {**GO, "folder": ".."})
    assert r"r\xff" in str(listed.tools[0].description)
    assert not ran.is_error
    assert "there is no such folder" in text_of(unknown) and r"r\xff" in text_of(outside)
    with Journal(journal_path(os.environ), clock=SystemClock()) as journal:
        assert [row.folder for row in journal.sessions(limit=5)] == [f"{folder}/r\\xff/caf\\xe9"]
