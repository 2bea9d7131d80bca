"""Text from outside in what a client of `turnwise mcp serve` is told: it makes no line of its own."""

import json
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from editors.mcp.serving import call, saying, serving, text_of
from terminal.running import running_lab
from terminal.test_forged_lines import CALLS, FAILS, FORGED, SERVER, TOML, forged_in, plant
from terminal.test_forged_lines import a_provider as a_provider
from turnwise.base.programs import OWN_PYTHON


@pytest.mark.costly
async def test_no_text_from_outside_makes_a_line_of_its_own(
    folder: Path, url: str, own_file: Path, tmp_path: Path
) -> None:
    """Proves: names of folders, files, models, tools, servers and settings stay in the line that tells them, in results, forms,
    progress and errors. Found: the path of a call in a form had others."""
    plant(folder)
    told: list[str] = []
    person = saying("allow once")

    async def hears(_: float, __: float | None, message: str | None) -> None:
        told.append(message or "")

    async def calls(client: Client, tool: str, **arguments: Any) -> None:
        told.append(text_of(await call(client, tool, arguments, progress_callback=hears)))

    async def runs(script: str, **given: Any) -> None:
        async with serving(lab, script, root=folder, **given) as client:
            await calls(client, "run", prompt="Look.")

    (tmp_path / "server.py").write_text(SERVER)
    command = json.dumps([OWN_PYTHON, "-I", str(tmp_path / "server.py")])
    with running_lab([CALLS, FAILS]) as lab:
        async with serving(lab, "forging", root=folder, person=person) as client:
            for place in (".", FORGED, f"no{FORGED}"):
                await calls(client, "run", prompt="Look.", folder=place)
            for name in ("model", "permissions", FORGED):
                await calls(client, "run", prompt="Look.", **{name: FORGED})
            for family in ("openai_chat", FORGED):
                await calls(client, "decode", stream=FORGED, family=family)
            await calls(client, FORGED)
        for settings in (
            f"model = {json.dumps(FORGED)}",
            f"{TOML} = 1",
            f'[mcp.{TOML}]\ncommand = ["true"]',
            f"[mcp.s]\ncommand = {command}\nsandbox = false",
        ):
            for file in (folder / "turnwise.toml", own_file):
                file.write_text(f"{settings}\n")
                await runs("forging")
                file.write_text("")
        await runs("failing")
        await runs(FORGED, base_url=url)
    forms = [
        one.message for one in person.asked if not one.message.startswith("Run this command?")
    ]  # it may have lines
    assert len(forms) > 2 and len(told) > 20
    assert not [one for one in (*told, *forms) if forged_in(one)]
