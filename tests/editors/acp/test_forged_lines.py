"""Text from outside in what an editor is sent: it makes no line of its own where turnwise tells something in a line."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from acp.client.connection import ClientSideConnection
from acp.exceptions import RequestError
from acp.helpers import text_block

from editors.acp.editor import Editor, editing, given_at, new, say
from terminal.running import running_lab
from terminal.test_forged_lines import CALLS, FAILS, FORGED, TOML, forged_in, plant
from terminal.test_forged_lines import a_provider as a_provider

# Names that the editor sends back, and both sides of a change.
AS_IT_IS = {"value", "currentValue", "newText", "oldText"}


def texts_in(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for key, one in cast("dict[str, object]", value).items():
            if key not in AS_IT_IS:
                yield from texts_in(one)
    elif isinstance(value, list):
        for one in cast("list[object]", value):
            yield from texts_in(one)
    elif isinstance(value, str):
        yield value.replace("\u202e", "") if value.startswith("/") else value  # a path leads where it says


@pytest.mark.costly
async def test_no_text_from_outside_makes_a_line_of_its_own(folder: Path, url: str) -> None:
    """Proves: names of folders, files, models, tools, modes, options and settings stay in the line that tells them, in updates,
    asks, answers and errors. Found: an ask's reason, a preview's failure, a tool that is not offered, `/model`, and the note of
    how commands run had others."""
    plant(folder)
    editor, told, failures = Editor(), list[Any](), list[str]()

    async def sends(client: ClientSideConnection, method: str, **fields: Any) -> None:
        try:
            told.append(await getattr(client, method)(**fields))
        except RequestError as error:
            failures.append(f"{error} {error.data or ''}")

    async def says(client: ClientSideConnection, session: str, *lines: str) -> None:
        for line in lines:
            await sends(client, "prompt", session_id=session, prompt=[text_block(line)])

    @contextlib.asynccontextmanager
    async def at_model(**more: object):
        async with editing(cast("Any", {**given_at(lab, "forging"), **more}), editor=editor) as (client, _):
            yield client

    with running_lab([CALLS, FAILS]) as lab:
        for allow in ((), ("write", "execute")):
            async with at_model(allow=allow) as client:
                for place in (folder, folder / FORGED):
                    session = await new(client, place)
                    await say(client, session, "look")
                    await says(client, session, "/usage", "/permissions", "/model", f"/model {FORGED}", "/undo")
                await sends(client, "list_sessions")
                for one, cwd in ((session, folder), (session, folder / FORGED), (FORGED, folder)):
                    for method in ("load_session", "resume_session", "fork_session"):
                        await sends(client, method, cwd=str(cwd), session_id=one, mcp_servers=[])
                for cwd in (str(folder / FORGED / "no"), FORGED):
                    await sends(client, "new_session", cwd=cwd, mcp_servers=[])
                await sends(client, "set_session_mode", session_id=session, mode_id=FORGED)
                for option in ("mode", "model", FORGED):
                    await sends(client, "set_config_option", session_id=session, config_id=option, value=FORGED)
        for model in ("x", FORGED):
            async with at_model(model=f"openai_chat:{model}", base_url=url) as client:
                await says(client, await new(client, folder), "go", "/model", f"/model {FORGED}")
        for settings in (f"model = {json.dumps(FORGED)}", f'[mcp.{TOML}]\ncommand = ["true"]', f"{TOML} = 1"):
            (folder / "turnwise.toml").write_text(settings + "\n")
            async with at_model(model=None) as client:
                await sends(client, "new_session", cwd=str(folder), mcp_servers=[])
    assert len(editor.asked) > 2 and len(failures) > 5 and "forged" in editor.text()
    commands = {
        id for id, call in editor.calls().items() if call["title"].startswith("bash")
    }  # what one writes is no line of ours
    seen = [one for one in editor.updates if one.session_update != "user_message_chunk"]
    seen = [one for one in seen if getattr(one, "tool_call_id", "") not in commands]
    asked = [
        one for call, options in editor.asked for one in (call, *options) if getattr(call, "kind", "") != "execute"
    ]
    for one in [*told, *seen, *asked]:
        for text in texts_in(one.model_dump(mode="json", by_alias=True) if one is not None else None):
            assert not forged_in(text), (text, one)
    assert not [one for one in failures if forged_in(one)]
