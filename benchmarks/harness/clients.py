"""The commands of the measured programs: `clients/PART_SYSTEM.py` in the environment of its system, `node/PART.js` in node."""

import sys

import msgspec

from harness.declaring import FOLDER, LITELLM_PYTHON, NODE_FOLDER, PEERS_PYTHON

OURS = ("_turnwise.py", "_floor.py")


def argv_of(module: str, task: dict[str, object]) -> tuple[str, ...]:
    """The command for one client, its task as JSON: who runs it depends on where its package lives."""
    spelt = msgspec.json.encode(task).decode()
    if module.endswith(".js"):
        return ("node", str(NODE_FOLDER / module), spelt)
    script = str(FOLDER / "clients" / module)
    if module.endswith(OURS):
        return (sys.executable, script, spelt)
    return (LITELLM_PYTHON if module.endswith("_litellm.py") else PEERS_PYTHON, script, spelt)
