"""The judges: what each family's real API checks in a request, and the 400 that it gives.

Each judge reads raw JSON. Shapes are those of recorded answers; where a comment above a check names a recording or a public
thread, the wording is from there, elsewhere it is ours after the API's documentation. A check that only some servers of a
family make says which. What single servers refuse beyond their family is data: `dialects.toml`.
"""

from collections.abc import Callable

import msgspec

from turnwise.lab.raw import Raw
from turnwise.lab.strict import anthropic_messages, gemini, openai_chat, openai_responses
from turnwise.lab.strict.dialects import ServerDialect
from turnwise.lab.strict.generations import check_generation
from turnwise.lab.strict.verdicts import LENIENT_MODEL, ModelRules, Rejected, error_body

CHECKS: dict[str, Callable[[Raw, ModelRules], None]] = {
    "openai_chat": openai_chat.check,
    "openai_responses": openai_responses.check,
    "anthropic_messages": anthropic_messages.check,
    "gemini": gemini.check,
}


def check(family: str, *, body: Raw, rules: ModelRules = LENIENT_MODEL, dialect: ServerDialect | None = None) -> None:
    """Raises Rejected, with the answer that the real API would give, for the first thing wrong with `body`.

    A `dialect` is that of one Chat Completions server: its own rules come first. Other families do not know it.
    """
    if rules.generation:
        check_generation(family, body, name=rules.generation)
    if dialect is None or family != "openai_chat":
        CHECKS[family](body, rules)
        return
    dialect.check(body)
    try:
        CHECKS[family](body, msgspec.structs.replace(rules, parts=dialect.parts))
    except Rejected as rejected:
        raise dialect.worded(rejected) from None


__all__ = ["LENIENT_MODEL", "ModelRules", "Rejected", "check", "error_body"]
