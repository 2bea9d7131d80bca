"""Names of files that are no UTF-8, between an editor and turnwise: JSON carries text, so they go as they are shown."""

import asyncio
import os
from pathlib import Path

from acp.helpers import resource_link_block, text_block
from acp.schema import FileSystemCapabilities

from editors.acp.editor import editing, given_at
from terminal.running import running_lab, script
from waits import HANG_S

USES = script(
    "uses",
    r"""
[[steps]]
calls = [{ name = "read", arguments = { path = 'a\xe9.txt' } }, { name = "read", arguments = { path = 'a\xe8.txt' } }]

[[steps]]
calls = [
    { name = "write", arguments = { path = 'b\xe9.txt', content = "new" } },
    { name = "edit", arguments = { path = 'a\xe8.txt', old = "grave", new = "GRAVE" } },
]

[[steps]]
text = "Done."
""",
)


async def test_an_editor_is_told_names_of_bytes_as_they_are_shown(folder: Path) -> None:
    """Proves: a folder that is given as it is shown is opened, and its session found again by that. A linked file is put in,
    calls on such files run, and no two of them have one name at the editor. It is asked for no unsaved text of a path that no
    JSON can name."""
    work = folder / os.fsdecode(b"caf\xe9")
    work.mkdir()
    for name, text in ((b"a\xe9.txt", "acute"), (b"a\xe8.txt", "grave"), (b"a b.txt", "plain")):
        (work / os.fsdecode(name)).write_text(text)
    shown = str(folder / r"caf\xe9")
    with running_lab((USES,)) as lab:
        reads = FileSystemCapabilities(read_text_file=True)
        async with editing(given_at(lab, "uses"), fs=reads) as (client, editor):
            session = (await client.new_session(cwd=shown, mcp_servers=[])).session_id
            links = [
                resource_link_block(name=name, uri=f"file://{folder}/caf%E9/{name}")
                for name in ("a%E9.txt", "a%20b.txt")
            ]
            prompt = client.prompt(
                session_id=session, prompt=[text_block("Look at "), *links, text_block(r" and @a\xe8.txt")]
            )
            await asyncio.wait_for(prompt, HANG_S)
            listed = (await client.list_sessions(cwd=shown)).sessions
        assert all(f"put in: {name}" in editor.text() for name in (r"a\xe9.txt", "a b.txt", r"a\xe8.txt"))
    told = [
        place.path
        for call in editor.calls().values()
        for place in (*call["locations"], *call["content"])
        if hasattr(place, "path")
    ]
    assert set(told) == {rf"{shown}/{name}" for name in (r"a\xe9.txt", r"a\xe8.txt", r"b\xe9.txt")}
    assert [(one.session_id, one.cwd) for one in listed] == [(session, shown)]
    assert editor.read == []
    assert (work / os.fsdecode(b"b\xe9.txt")).read_text() == "new"
    assert (work / os.fsdecode(b"a\xe8.txt")).read_text() == "GRAVE"
