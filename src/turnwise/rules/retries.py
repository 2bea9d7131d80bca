"""Whether a request that failed is sent again, when, and to whom: judged from the fault, never from who reported it.

A provider or the way to it may fail for a moment; then the same request is worth sending again. What says that the request
itself is at fault (a wrong key, a prompt that does not fit, a spent quota) fails again however often it is sent. Randomness
and time come in as data, so that a replayed turn waits as long as it did (promise wait:retry).
"""

import re
from collections.abc import Mapping
from math import floor
from typing import assert_never

import msgspec

from turnwise.vocab import Fault, FaultKind, HintedFields, ServerLesson


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, metaclass=HintedFields):
    """How often a failed request is sent again, and for how long.

    - `attempts` is the number of attempts, including the first. While a server is still loading the model, only `total_s`
      limits them.
    - `base_s`: the first wait in seconds. Each further wait is twice as long, up to `cap_s` seconds. A wait that the
      provider asks for replaces it.
    - `total_s`: no attempt begins later than this many seconds after the first failure.
    """

    attempts: int = 4  # the vendors' own clients make 3, and give up in the middle of a short outage
    base_s: float = 0.5  # as in the vendors' own clients
    cap_s: float = 30.0
    total_s: float = 180.0  # limits per minute are over by then; before a longer wait, ask the user


NO_RETRY = RetryPolicy(attempts=1)

# What passes by itself.
TRANSIENT = frozenset(
    {
        FaultKind.UNREACHABLE,
        FaultKind.TIMEOUT,
        FaultKind.DISCONNECTED,
        FaultKind.RATE_LIMITED,
        FaultKind.OVERLOADED,
        FaultKind.SERVER,
    }
)
# What the next attempt meets in the same way, whatever status it came with (a spent quota is a 429, too).
LASTING = frozenset(
    {
        FaultKind.AUTH,
        FaultKind.QUOTA,
        FaultKind.NOT_FOUND,
        FaultKind.CONTEXT_OVERFLOW,
        FaultKind.TOO_LARGE,
    }
)
# Request timeout and conflict: client errors by number, which their own clients send again all the same. The table in
# docs/deadlines.md (Another attempt) says what each failure gets: a status that is added here stands there, too.
AGAIN_STATUSES = frozenset({408, 409, 429})
# llama.cpp: 503 "Loading model"; Hugging Face: 503 "Model ... is currently loading". A large model takes longer than the usual
# attempts, and loads whether it is asked or not, so only the time counts.
_LOADS = re.compile(r"\bloading\b", re.IGNORECASE)
LOADING_STATUS = 503
LOADING_CAP_S = 5.0  # between two looks: who waits for a model wants to know soon
# What another model of the same endpoint may not meet. Not the key, the request or the way there: those are the same.
MODEL_BOUND = (TRANSIENT | {FaultKind.QUOTA, FaultKind.NOT_FOUND, FaultKind.PROTOCOL}) - {FaultKind.UNREACHABLE}


class WaitThenRetry(msgspec.Struct, frozen=True, kw_only=True):
    """Send the same request once more, `seconds` from now."""

    seconds: float
    why: str


class TryFallback(msgspec.Struct, frozen=True, kw_only=True):
    """Ask the next model instead, at once."""

    why: str


class GiveUp(msgspec.Struct, frozen=True, kw_only=True):
    """`why` is a sentence for the result; empty where the fault says all."""

    why: str = ""


RetryVerdict = WaitThenRetry | TryFallback | GiveUp


def judge_retry(
    fault: Fault,
    *,
    policy: RetryPolicy,
    attempt: int,
    waited_s: float,
    jitter: float,
    has_fallback: bool = False,
    left_s: float | None = None,
    answer_s: float = 0.0,
) -> RetryVerdict:
    """What to do after attempt number `attempt` (from 1) ended with `fault`.

    `waited_s` are the seconds since the first attempt failed, `left_s` those that the turn has left (None: no limit), `jitter`
    is a number of [0, 1) that spreads the waits of many clients. A wait of our own leaves the next attempt `answer_s` of the
    turn's time, if there is so much: it is asked for the answer then. A wait that the provider asks for is not shortened.
    """
    verdict = _judge(
        fault, policy=policy, attempt=attempt, waited_s=waited_s, jitter=jitter, left_s=left_s, answer_s=answer_s
    )
    match verdict:
        case GiveUp(why=why) if has_fallback and _may_be_the_models(fault):
            return TryFallback(why=why or f"{fault.kind}")
        case WaitThenRetry() | GiveUp():
            return verdict
        case _:
            assert_never(verdict)


def is_worth_a_retry(fault: Fault) -> bool:
    """Whether the same request may well succeed a little later."""
    if fault.should_retry is not None:
        return fault.should_retry
    if fault.kind in LASTING:
        return False
    if fault.kind in TRANSIENT:
        return True
    return fault.status is not None and (fault.status in AGAIN_STATUSES or fault.status >= 500)


def is_loading(fault: Fault) -> bool:
    """Whether the server says that it is there, and its model not yet."""
    return fault.status == LOADING_STATUS and _LOADS.search(fault.message) is not None


def _may_be_the_models(fault: Fault) -> bool:
    if fault.kind in MODEL_BOUND:
        return True
    return fault.kind is not FaultKind.UNREACHABLE and is_worth_a_retry(fault)


def backoff_s(policy: RetryPolicy, *, attempt: int, jitter: float) -> float:
    """The wait after attempt number `attempt`: between half of the doubled time and all of it."""
    whole = min(policy.cap_s, policy.base_s * 2.0 ** min(attempt - 1, 30))
    return whole * (0.5 + 0.5 * jitter)


def _judge(
    fault: Fault,
    *,
    policy: RetryPolicy,
    attempt: int,
    waited_s: float,
    jitter: float,
    left_s: float | None,
    answer_s: float,
) -> WaitThenRetry | GiveUp:
    if not is_worth_a_retry(fault):
        return GiveUp()
    loads = is_loading(fault) and policy.attempts > 1
    if attempt >= policy.attempts and not loads:
        return GiveUp(why=f"Tried {attempt} times over {waited_s:.1f} s." if attempt > 1 else "")
    asked_s = fault.retry_after_s or 0.0
    if asked_s > 0:
        # Never sooner than it asks for; a little later, as everybody was told the same moment.
        seconds, why = asked_s + jitter * policy.base_s, f"{fault.kind}; the provider asks for {_said(asked_s)}"
    else:
        seconds, why = backoff_s(policy, attempt=attempt, jitter=jitter), f"{fault.kind}"
        seconds = min(seconds, LOADING_CAP_S) if loads else seconds
        if left_s is not None and left_s >= answer_s > 0:
            seconds = min(seconds, left_s - answer_s)
    if waited_s + seconds > policy.total_s:
        if asked_s > 0:
            return GiveUp(
                why=f"It asks to wait {_said(asked_s)}, and the bound for retries is {_said(policy.total_s)}."
            )
        return GiveUp(why=f"Tried {attempt} times over {waited_s:.1f} s, and the bound is {_said(policy.total_s)}.")
    if left_s is not None and seconds >= left_s:
        return GiveUp(why=f"A retry in {seconds:.1f} s would come after the turn's time is up.")
    return WaitThenRetry(seconds=floor(seconds * 1000) / 1000, why=why)


def _said(seconds: float) -> str:
    """For people: nobody counts the seconds of a day."""
    if seconds < 2 * 3600:
        return f"{seconds:g} s"
    return f"{seconds / 3600:.1f} hours" if seconds < 2 * 86_400 else f"{seconds / 86_400:,.0f} days"


# --- refusals that teach
# By which words a server's refusal is known that the same request, written in another way, does not meet again. Only a message
# that is the server's own sentence from its first word to its last counts: one that repeats a part of the request could hold
# any words.
# What a lesson changes in a request: `LESSONS` in wire/profiles.py. Sources: docs/dialects.md.

MOST_LESSONS = 2  # learned from one request; a server that refuses it a third time is not understood
LONGEST_REFUSAL = 2000  # a template's error quotes a few lines of the template
# 422: FastAPI's validation. 500: llama.cpp, with the words of a chat template.
TEACHING_STATUSES = frozenset({400, 422, 500})
# llama.cpp writes where in the template it stopped; vLLM and others write the sentence alone.
_TEMPLATE = r"(?:\W*While executing \w+ (?s:.){0,1500}Jinja Exception: )?"
_ROLE = r"(?:system|developer)"

_LESSON_WORDS: Mapping[ServerLesson, str] = {
    "system_first": r"System message must be (?:at the beginning|the first message)\.?"
    r"|Unexpected role '" + _ROLE + r"' after role '\w+'"
    r"|invalid params, invalid chat setting \(2013\)"
    r"|invalid params, chat content has invalid message role: system \(2013\)",
    "system_role": r"Unexpected message role\.?|Incorrect role information"
    r"|developer is not one of \[[\w', ]+\](?: - 'messages\.\[\d+\]\.role')?"
    r"|invalid params, chat content has invalid message role: developer \(2013\)",
    "between": r"Unexpected role 'user' after role 'tool'",
    "alternate": r"(?:After the optional system message, )?conversation roles must alternate user/assistant[\w/.]*",
    "reasoning_empty": r"The `?reasoning_content`? in the thinking mode must be passed back to the API\.?",
    "reasoning_blank": r"thinking is enabled but reasoning_content is missing in assistant tool call message at index \d+",
    "content_there": r"(?:Invalid request content: )?Each message must have at least one content element\.?"
    r"|invalid message content type: <nil>",
    "choice_auto": r"Tool choice must be auto\.?",
    "choice_unforced": r"Thinking mode does not support this tool_choice"
    r"|tool_choice '(?:required|specified)' is incompatible with thinking enabled",
    "max_completion_tokens": r"Unsupported parameter: 'max_tokens' is not supported with this model\."
    r" Use 'max_completion_tokens' instead\.",
    "no_stop": r"Unsupported parameter: 'stop' is not supported with this model\."
    r"|Argument not supported on this model: stop|Model [\w./:-]{1,100} does not support parameter stop\.",
    # reported: pydantic-ai 2.68, providers/anthropic.py (the first); a server in between that knows nothing of it says the others
    "nothing_behind": r"(?:[\w.]+: )?'?tool_addition'?(?:/'?tool_removal'?)? .{0,300}"
    r"|messages[\w.]*: Input tag '(?:tool_addition|tool_definition)' found using 'type' does not match .{0,1500}"
    r"|(?:messages[\w.]*: )?(?:Unexpected )?role ['\"]system['\"].{0,300}"
    r"|(?s:.{0,400})\bInput should be 'user' or 'assistant'(?s:.{0,400})"  # reported: ogx-ai/ogx#5982, wrapped by its FastAPI
    r"|Unexpected value\(s\) [`\w, -]*inline-tools-2026-09-15.{0,300}"
    r"|(?s:.{0,400})\binvalid beta flag\b(?s:.{0,400})",  # reported: BerriAI/litellm#16561, a proxy before Amazon Bedrock
}
_LESSON_PATTERNS: Mapping[ServerLesson, re.Pattern[str]] = {
    lesson: re.compile(rf"\s*{_TEMPLATE}(?:{words})\s*", re.IGNORECASE) for lesson, words in _LESSON_WORDS.items()
}


CLAUDE_LESSONS: tuple[ServerLesson, ...] = ("nothing_behind",)
CHAT_LESSONS: tuple[ServerLesson, ...] = tuple([one for one in _LESSON_WORDS if one not in CLAUDE_LESSONS])


def lesson_of(
    fault: Fault, *, known: tuple[ServerLesson, ...], among: tuple[ServerLesson, ...] = CHAT_LESSONS
) -> ServerLesson | None:
    """What the refusal teaches; None where it is not understood, or says again what is known already."""
    if fault.status not in TEACHING_STATUSES or len(fault.message) > LONGEST_REFUSAL:
        return None
    for lesson in among:
        if _LESSON_PATTERNS[lesson].fullmatch(fault.message):
            return None if lesson in known else lesson
    return None


LESSONS_SAID: Mapping[ServerLesson, str] = {
    "system_first": "takes a system text at the beginning alone: later ones go as the user's",
    "system_role": "does not take the role `developer`: instructions go as `system`",
    "between": "takes no user message right behind tool results: an assistant's `OK` goes between them",
    "alternate": "wants user and assistant by turns: neighbours go as one message",
    "reasoning_empty": "wants reasoning beside each call: an empty one goes where there is none",
    "reasoning_blank": "wants reasoning beside each call: a blank goes where there is none",
    "content_there": "takes no message without content: an empty text goes beside calls",
    "choice_auto": "takes no tool choice: it goes in words",
    "choice_unforced": "takes no forced call: it is asked for in words",
    "max_completion_tokens": "takes the limit of output as `max_completion_tokens` alone",
    "no_stop": "takes no stop sequences: the gateway ends the answer at them",
    "nothing_behind": "takes no tools or instructions among its messages: tools go in front, instructions as the user's text",
}
"""What was learned, for people: behind the model's name."""


# An endpoint that failed again and again is left alone for a while: asking it would cost time and help nobody.
#
# The state is data and time comes in; the sender of the requests keeps it, across turns.


# A limit of rates says that the endpoint is well and that we are too many; waiting as long as it asks is the answer to it.
COUNTS_AS_FAILURE = TRANSIENT - {FaultKind.RATE_LIMITED}
OPEN_CODE = "circuit_open"


class CircuitPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """`failures` in a row open the circuit; `open_s` later one request is let through to see."""

    failures: int = 8  # two requests with all their attempts
    open_s: float = 30.0


class Circuit(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one endpoint and model. `probed_at_s` is when the last request was let through an open circuit. Runs of
    different people share it: of `last` nothing is told that the provider wrote."""

    failures: int = 0
    opened_at_s: float | None = None
    probed_at_s: float | None = None
    last: Fault | None = None


CLOSED = Circuit()


def let_through(circuit: Circuit, *, policy: CircuitPolicy, now_s: float) -> Circuit | Fault:
    """The circuit with this request on its way, or the fault to report in its place."""
    if circuit.opened_at_s is None or circuit.last is None:
        return circuit
    since = circuit.opened_at_s if circuit.probed_at_s is None else circuit.probed_at_s
    left_s = since + policy.open_s - now_s
    if left_s <= 0:
        return msgspec.structs.replace(circuit, probed_at_s=now_s)
    return Fault(
        kind=circuit.last.kind,
        message=f"not asked: {circuit.failures} attempts in a row have failed, the next may go out in {left_s:.0f} s. "
        f"The last failure: {_named(circuit.last)}",
        status=circuit.last.status,
        code=OPEN_CODE,
        should_retry=False,
    )


def after_response(circuit: Circuit, *, fault: Fault | None, policy: CircuitPolicy, now_s: float) -> Circuit:
    """The circuit once a request has ended; an answer of any kind closes it, and so does an error that is ours."""
    if fault is None or (fault.kind not in COUNTS_AS_FAILURE and fault.kind is not FaultKind.RATE_LIMITED):
        return CLOSED
    if fault.kind is FaultKind.RATE_LIMITED or is_loading(fault):
        return msgspec.structs.replace(circuit, opened_at_s=None, probed_at_s=None)
    failures = circuit.failures + 1
    opened = now_s if failures >= policy.failures else None
    return Circuit(failures=failures, opened_at_s=opened, last=fault)


def _named(fault: Fault) -> str:
    """What kind of failure it was. A provider's own text may quote the request, and that was another run's."""
    if fault.kind is FaultKind.UNREACHABLE and fault.status is None:
        return fault.message  # nothing of a request was read there
    return fault.kind.value if fault.status is None else f"{fault.kind.value} (HTTP {fault.status})"
