"""Which scripts of the lab show what a client makes of a stream, and what each of them means."""

from typing import NamedTuple

import msgspec

from turnwise.lab.provider import Provider
from turnwise.lab.raw import Raw, dig, parse, rows, table, text
from turnwise.lab.routes import Route
from turnwise.lab.script import Script, ScriptedCall, builtin_scripts

HEALTHY_CASES = ("plain-answer", "parallel-calls", "reasoning-and-calls", "read-edit-answer", "refusal")
# What the upstream sends is no whole response, or not at once. A client gets the right answer or one error.
FAILING_CASES = (
    "fault-endless-line",
    "fault-error-in-stream",
    "fault-html",
    "fault-invalid-utf8",
    "fault-once-error-in-stream",
    "fault-once-reset",
    "fault-once-torn-event",
    "fault-random-bytes",
    "fault-reset",
    "fault-sent-twice",
    "fault-torn-event",
)
# Nothing right can be had of these: every attempt fails.
HOPELESS_CASES = {
    "fault-endless-line": "no line of the upstream ends",
    "fault-error-in-stream": "the upstream reports an error each time",
    "fault-html": "the upstream answers with a web page",
    "fault-invalid-utf8": "each attempt garbles a piece of the answer in another way than the text can show",
    "fault-random-bytes": "the upstream sends bytes without sense",
    "fault-reset": "the connection breaks each time, before a word that could be continued",
}
# Scripts about something else than the shape of one stream.
_OTHER_SUBJECTS = ("fault-", "cut-", "loop-", "writer-", "retry-")
# The upstream refuses with a status, always or once: no stream begins, or the second attempt has it.
REFUSED_CASES = ("fault-401", "fault-429", "fault-500", "fault-529", "fault-once-429", "fault-once-503")
# Only the gateway's own deadlines end these, so they are tried where they are named.
SILENT_CASES = ("fault-silence", "fault-stall")
TOOL_NAMES = ("read", "write", "list", "note", "edit", "search")
QUESTION = "Please. Begin with part-001.txt"


class MeantAnswer(NamedTuple):
    """What a client is to get: text, each call's name and arguments, and one word for the end (`calls`, `stop`, `refused`)."""

    text: str
    calls: tuple[tuple[str, object], ...]
    finish: str


def malformed_cases() -> tuple[str, ...]:
    """The response is whole, though its stream is not as the API sends it."""
    scripts = builtin_scripts().items()
    return tuple([name for name, script in scripts if not script.healthy and not name.startswith(_OTHER_SUBJECTS)])


def all_cases() -> tuple[str, ...]:
    """Those in which the upstream sends a stream to its end, or breaks it off."""
    return (*malformed_cases(), *FAILING_CASES, *HEALTHY_CASES)


def checked_cases() -> tuple[str, ...]:
    """What a gateway is tried with unless cases are named."""
    return (*malformed_cases(), *FAILING_CASES, *REFUSED_CASES, *HEALTHY_CASES)


def meaning_of(script: Script) -> MeantAnswer | None:
    """What the script means: not streamed, the lab says it well. Where no request gets a whole answer, the calls that a broken
    response was to hold; None where nothing right can be had."""
    if script.name in HOPELESS_CASES:
        return None
    provider = Provider(scripts={script.name: script}, caches=False)
    body = msgspec.json.encode(_question(script.name))
    route = Route(family="openai_chat", model=None, streams=False)
    for number in (1, 2):  # a failure that happens once is over then
        outgoing, kept = provider.answer(route, target="/v1/chat/completions", body=body, number=number)
        if outgoing.status == 200 and kept.fault in (None, "sent-twice"):
            return _meant(parse(b"".join(outgoing.pieces)))
    step = script.steps[0] if script.steps else None
    calls = () if step is None or step.fault is None else step.fault.calls or step.calls
    return MeantAnswer("", tuple([_call(one) for one in calls]), "calls") if calls else None


def _question(model: str) -> dict[str, object]:
    schema: dict[str, object] = {"type": "object", "properties": {}}
    return {
        "model": model,
        "messages": [{"role": "user", "content": QUESTION}],
        "tools": [{"type": "function", "function": {"name": name, "parameters": schema}} for name in TOOL_NAMES],
    }


def _meant(body: Raw) -> MeantAnswer:
    choice = rows(table(body).get("choices"))[0]
    calls = tuple(
        [
            (text(dig(call, "function", "name")), parse(text(dig(call, "function", "arguments")) or "{}"))
            for call in rows(dig(choice, "message", "tool_calls"))
        ]
    )
    refusal = text(dig(choice, "message", "refusal"))
    said = text(dig(choice, "message", "content")) + refusal
    return MeantAnswer(said, calls, "calls" if calls else "refused" if refusal else "stop")


def _call(call: ScriptedCall) -> tuple[str, object]:
    return call.name, call.arguments
