"""What is a command in a session, and not a word for the model: `/` and a name, and the few words that mean one of them."""

import difflib
import re

from turnwise.coding_agent.text import visible_line

COMMANDS = {
    "/help": "show this",
    "/usage": "what the session has used: money, tokens, requests by purpose",
    "/undo": "take back the last turn's changes to files; again: the turn before",
    "/model": "show the model and others; `/model NAME` changes to that one",
    "/new": "begin a new session",
    "/sessions": "the last sessions of this folder",
    "/permissions": "the rules that hold, in their order",
    "/quit": "leave; so do `exit`, `quit` and Ctrl-D",
}
OTHER_NAMES = {
    "?": "/help",
    "help": "/help",
    "/cost": "/usage",
    "/clear": "/new",
    "/exit": "/quit",
    "exit": "/quit",
    "quit": "/quit",
}
RESUME = "/resume"
HOW_TO_RESUME = "leave, then `turnwise --continue` goes on with the last session here, `turnwise --session ID` with any"
_NAMED = re.compile(r"/[a-z]+(?=\s|$)")


def command_of(line: str) -> tuple[str, str] | None:
    """The command's own name, and what follows it; None: the line is words for the model."""
    text = line.strip()
    name, _, rest = text.partition(" ")
    if name in OTHER_NAMES and (name.startswith("/") or not rest):
        return OTHER_NAMES[name], rest.strip()
    return (name, rest.strip()) if text.startswith("/") else None


def is_command_in_passing(line: str) -> bool:
    """Whether a line is a command while the model works: a path or a comment, as it may be pasted then, is none."""
    text = line.strip()
    return "\n" not in text and (text in OTHER_NAMES or _NAMED.match(text) is not None)


def unknown_said(name: str) -> str:
    """What is said to a command that there is not."""
    if name == RESUME:
        return HOW_TO_RESUME
    near = difflib.get_close_matches(name, [*COMMANDS, *[other for other in OTHER_NAMES if other[:1] == "/"]], n=1)
    hint = f"did you mean `{near[0]}`?" if near else "there are " + ", ".join(COMMANDS)
    return f"no command `{visible_line(name)[:40]}`; {hint}"
