"""The examples run as they stand, without a key or a network, and print what they promise (`example_outputs.txt`)."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from waits import HANG_S

EXAMPLES = Path(__file__).parents[1] / "examples"
MOST_LINES = 60
IN_ORDER = re.findall(r"^\| \[(\w+\.py)\]", (EXAMPLES / "README.md").read_text(encoding="utf-8"), re.MULTILINE)


def promised() -> dict[str, str]:
    """What each example prints, by its file."""
    text = (Path(__file__).parent / "example_outputs.txt").read_text(encoding="utf-8")
    found = re.split(r"^=== (.*)\n", text, flags=re.MULTILINE)[1:]
    return dict(zip(found[::2], found[1::2], strict=True))


def run(program: Path, *, folder: Path) -> subprocess.CompletedProcess[str]:
    """As a newcomer runs it, but for a model of theirs."""
    env = {name: value for name, value in os.environ.items() if name != "MODEL" and not name.endswith("_API_KEY")}
    env["TMPDIR"] = str(folder)
    argv = [sys.executable, "-W", "error", str(program)]
    return subprocess.run(
        argv, capture_output=True, text=True, timeout=HANG_S, check=False, cwd=folder, env=env, stdin=subprocess.DEVNULL
    )


@pytest.mark.costly
@pytest.mark.parametrize("name", IN_ORDER)
def test_an_example_prints_what_it_promises(name: str, tmp_path: Path) -> None:
    """Exit code 0, the output to the letter, and not a word on standard error."""
    done = run(EXAMPLES / name, folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == promised()[name]


def test_the_readme_lists_every_example_once() -> None:
    """And every example has its output here."""
    programs = sorted({path.name for path in EXAMPLES.glob("*.py")} - {"models.py"})
    assert sorted(IN_ORDER) == sorted(promised()) == programs


@pytest.mark.parametrize("name", IN_ORDER)
def test_an_example_is_short_and_begins_with_what_it_shows(name: str) -> None:
    """One sentence, and sixty lines at most."""
    lines = (EXAMPLES / name).read_text(encoding="utf-8").splitlines()
    assert len(lines) <= MOST_LINES
    assert re.fullmatch(r'"""[A-Z].*\."""', lines[0]), lines[0]


def test_a_model_of_yours_takes_the_place_of_the_script(tmp_path: Path) -> None:
    """Nothing of the script is left: the provider's key is asked for."""
    code = (
        "import os; os.environ['MODEL'] = 'openai:gpt-5'; os.environ.pop('OPENAI_API_KEY', 0); import one_run_otherwise"
    )
    argv = [sys.executable, "-c", code]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=HANG_S, check=False, cwd=EXAMPLES)
    assert done.returncode == 1 and "MissingKey: `openai` wants a key" in done.stderr


FAILS = """
import asyncio
import fastapi_chat as chat
from turnwise.testing import ScriptedModel
from turnwise.vocab import Fault, FaultKind

async def main():
    down = ScriptedModel([Fault(kind=FaultKind.BAD_REQUEST, message="No.", status=400)])
    async with chat.AsyncClient(transport=chat.ASGITransport(chat.app), base_url="http://chats") as browser:
        with chat.agent.override(model=down):
            said = await browser.put("/bob/m1?text=Hi")
        print(said.status_code, said.text.splitlines()[0], "provider_failed" in said.text)
        for wrong in ("/b ob/m1?text=Hi", "/bob/m1?text=Other", "/bob/a1?id=nobody", "/bob/m2"):
            print((await browser.put(wrong)).status_code)

print("---")
asyncio.run(main())
"""


def test_the_chat_server_tells_of_a_failed_provider_and_of_wrong_ids(tmp_path: Path) -> None:
    """Issue 44: the stream ended without its last event, and a wrong key was answered with 200."""
    argv = [sys.executable, "-W", "error", "-c", FAILS]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=HANG_S, check=False, cwd=EXAMPLES)
    assert done.stderr == ""
    assert done.stdout.partition("---\n")[2].splitlines() == ["200 event: end True", "409", "409", "409", "409"]
