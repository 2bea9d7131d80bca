"""What a request that is built anew takes with it: a limit that the provider told of, another model, the note that it had."""

from msgspec.structs import replace

from turnwise.rules.bound_thinking import learned, said_of
from turnwise.rules.retries import CHAT_LESSONS, CLAUDE_LESSONS, LESSONS_SAID, MOST_LESSONS
from turnwise.rules.retries import lesson_of as dialect_lesson
from turnwise.turn.changes import Change, Excused, Learned, Paced, Prepared, Recounted, Roomed, mended
from turnwise.turn.commands import SendRequest
from turnwise.turn.lessons import learn
from turnwise.turn.outcomes import Trying, Wish
from turnwise.turn.request_limits import affords
from turnwise.turn.turn_state import Known
from turnwise.vocab import Fault


def again(known: Known, *, note: str, trying: Trying | None = None) -> Wish:
    """A further attempt: a request that never left has not been made, so the next one is the first."""
    spending = known.spending
    of = "step" if spending.asking is None else spending.asking.purpose
    return Wish(note=note, purpose="retry" if spending.has_left else spending.ordered, retry_of=of, trying=trying)


def once_fitted(wish: Wish, *, known: Known) -> Wish:
    """The wish, now that the prompt is made smaller: that settles a pause, and the note was about it."""
    return replace(wish, note="") if known.history.paused else wish


def lesson_of(known: Known, *, fault: Fault, answers: bool) -> tuple[Change, ...]:
    """What an error tells of the room that there is, if one request more can be afforded; where that has to be the answer's, only
    with `answers`. Nothing: it tells of nothing that can be changed."""
    pacing = known.spending.pacing
    if not affords(known, answers=known.is_forced):
        pacing = known.judged()
        if not answers or pacing.pace != "answer":
            return ()
    output_tokens = None if known.asking is None else known.asking.limit_tokens
    found = learn(known.room, fault=fault, history=known.history, config=known.config, output_tokens=output_tokens)
    if found is None:
        return ()
    return Learned(found.config), Roomed(found.room), Recounted(found.prompt), Paced(pacing)


def without_stale(known: Known, order: SendRequest | None, fault: Fault, *, refused: int | None) -> tuple[Change, ...]:
    """What the same request is sent again with, if it was refused for stale thinking (promise step:bound-thinking). `refused`: so
    much of its thinking stands before what an earlier refusal named. Nothing: it was refused for something else."""
    config = known.config
    if not fault.binding or order is None:
        return ()
    stale = learned(config.stale_thinking, fault=fault, request=order.request, family=config.family, refused=refused)
    if stale is None:
        return ()
    return (
        Learned(config.without_stale(stale)),
        Excused(),
        mended("stale_thinking", f"request {order.number}", said_of(stale)),
    )


def as_taught(known: Known, order: SendRequest | None, fault: Fault, *, lessons: int) -> tuple[Change, ...]:
    """What the same request is written by once more, if its server refused it by known words (promise heal:dialect). So many
    `lessons` were learned from this request already. Nothing: the refusal stands."""
    config = known.config
    among = {"openai_chat": CHAT_LESSONS, "anthropic_messages": CLAUDE_LESSONS}.get(config.family)
    if among is None or order is None or lessons >= MOST_LESSONS:
        return ()
    model = order.request.model
    lesson = dialect_lesson(fault, known=order.request.lessons, among=among)
    if lesson is None:
        return ()
    what = f"`{model}` {LESSONS_SAID[lesson]}; sent again"
    return Learned(config.taught(model, lesson=lesson)), Excused(), mended("dialect", f"request {order.number}", what)


def falling_back(known: Known, *, why: str) -> tuple[Change, ...]:
    """The next model takes over for the rest of the turn: one that has just failed so often is not asked in each step.
    Nothing: it cannot be afforded."""
    config, prepared = known.config, known.spending.prepared
    if not affords(known, answers=True, model=config.fallbacks[0].model):
        return ()
    now = config.fallen_back()
    failed = f"`{prepared.model or config.model}` failed ({why}); asked `{now.model}`"
    changes = (mended("model_fallback", f"request {known.spending.requests}", failed), Learned(now))
    if prepared.model is None:
        return changes
    return (*changes, Prepared(replace(prepared, model=now.model)))
