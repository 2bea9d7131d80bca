"""A model that knows only what stands in the request: what it recalls of the user's words, and the summaries it writes."""

import re

from turnwise.lab.raw import dump
from turnwise.lab.request_reading import Conversation, SentMessage
from turnwise.lab.script import Script, ScriptedStep

QUOTE = 240  # characters of one message of the user: a long one is quoted with its beginning and its end
SHORT_LINE = 160  # of what was called, what came of it, and what the model said itself
USER_SAID = "The user said: "


def user_texts(conversation: Conversation) -> list[str]:
    """What stands in the request in the user's name: a summary of earlier messages too."""
    return [text for one in conversation.said if one.role == "user" for text in one.texts]


def recalled(script: Script, *, conversation: Conversation) -> dict[str, str | int]:
    """Every word that the script recalls: the first group of its pattern's last match in the user's texts, or that it is
    not known."""
    words: dict[str, str | int] = {}
    texts = user_texts(conversation) if script.recall else []
    for name, pattern in script.recall.items():
        found = [match.group(1) for text in texts for match in re.finditer(pattern, text)]
        words[name] = found[-1] if found else script.forgotten
    return words


def asked_step(script: Script, *, turn: tuple[SentMessage, ...], place: int) -> ScriptedStep | None:
    """The step for the question that the turn begins with, where the script has one for it; of several, the one in turn."""
    first = next((one for one in turn if one.role == "user"), None)
    question = first.texts[-1] if first is not None and first.texts else ""
    found = next((step.asked for step in script.steps if step.asked and re.search(step.asked, question)), None)
    steps = [step for step in script.steps if found is not None and step.asked == found]
    return steps[min(place, len(steps) - 1)] if steps else None


def is_asked_for_summary(script: Script, *, conversation: Conversation) -> bool:
    last = conversation.said[-1] if conversation.said else None
    if not script.summarises or last is None or last.role != "user" or not last.texts:
        return False
    return re.search(script.summarises, last.texts[-1]) is not None


def summary_of(conversation: Conversation, *, limit_bytes: int) -> str:
    """An extract of everything but the request for it: the user's words first, then of the rest as much as there is room for,
    the newest first; all of it in the order in which it was said."""
    lines: list[tuple[bool, str]] = []
    results = {result.id: result.content for one in conversation.said for result in one.results}
    for place, one in enumerate(conversation.said):
        texts = one.texts[:-1] if place == len(conversation.said) - 1 else one.texts
        match one.role:
            case "user":
                lines += [(True, line) for text in texts for line in quoted(text)]
            case "assistant":
                lines += [(False, f"I said: {shortened(text, limit=SHORT_LINE)}") for text in texts if text.strip()]
                for call in one.calls:
                    gave = shortened(results.get(call.id, "nothing"), limit=SHORT_LINE)
                    lines.append((False, f"{call.name} {shortened(call.arguments, limit=SHORT_LINE)} gave: {gave}"))
            case "system" | "results":
                pass
    lines = list(dict.fromkeys(lines))
    kept: set[int] = set()
    left = limit_bytes
    by_weight = sorted(range(len(lines)), key=lambda at: (not lines[at][0], at if lines[at][0] else -at))
    for at in by_weight:
        size = len(dump(lines[at][1]))
        if size <= left:
            kept.add(at)
            left -= size
    return "\n".join([lines[at][1] for at in sorted(kept)]) or "Nothing was said yet."


def quoted(text: str) -> list[str]:
    """The user's words on a line; those that an earlier summary quotes as it quotes them."""
    before = [line for line in text.splitlines() if line.startswith(USER_SAID)]
    return before or [USER_SAID + shortened(text, limit=QUOTE)]


def shortened(text: str, *, limit: int) -> str:
    """On one line; its beginning and its end where it is too long."""
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[: limit // 2]} ... {line[len(line) - limit // 2 :]}"
