"""A scripted provider on loopback that speaks every family and every fault."""

from turnwise.lab.provider import Received
from turnwise.lab.script import Script, ScriptError, builtin_scripts, load_scripts, numbered_lines, parse_script
from turnwise.lab.server import Lab

__all__ = [
    "Lab",
    "Received",
    "Script",
    "ScriptError",
    "builtin_scripts",
    "load_scripts",
    "numbered_lines",
    "parse_script",
]
