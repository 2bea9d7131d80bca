"""The judges: what each family's real API checks in a request, and the 400 that it gives.

Each judge reads raw JSON. Shapes are those of recorded answers; where a comment above a check names a recording or a public
thread, the wording is from there, elsewhere it is ours after the API's documentation. A check that only some servers of a
family make says which. What single servers refuse beyond their family is data: `dialects.toml`.
"""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from turnwise.lab.raw import Raw, dig, dump, table
from turnwise.lab.script import Binding
from turnwise.lab.strict import (
    anthropic_messages,
    cohere_chat,
    gemini,
    gemini_interactions,
    ollama_chat,
    openai_chat,
    openai_responses,
)
from turnwise.lab.strict.dialects import ServerDialect
from turnwise.lab.strict.thinking import Judged
from turnwise.lab.strict.verdicts import LENIENT_MODEL, FamilyJudge, JudgedModel, ModelRules, Rejected

JUDGES: Mapping[str, FamilyJudge] = {
    one.JUDGE.name: one.JUDGE
    for one in (
        openai_chat,
        openai_responses,
        anthropic_messages,
        gemini,
        gemini_interactions,
        ollama_chat,
        cohere_chat,
    )
}
GENERATIONS: Mapping[str, JudgedModel] = {name: one for judge in JUDGES.values() for name, one in judge.models.items()}


def check(family: str, *, body: Raw, rules: ModelRules = LENIENT_MODEL, dialect: ServerDialect | None = None) -> None:
    """Raises Rejected, with the answer that the real API would give, for the first thing wrong with `body`.

    A `dialect` is that of one Chat Completions server: its own rules come first. Other families do not know it.
    """
    judge = JUDGES[family]
    if rules.generation in judge.models:
        judge.check_model(table(body), rules.generation, judge.models[rules.generation])
    if dialect is None or not judge.has_dialects:
        judge.check(body, rules)
        return
    dialect.check(body)
    try:
        judge.check(body, replace(rules, parts=dialect.parts))
    except Rejected as rejected:
        raise dialect.worded(rejected) from None


def judge_thinking(family: str, *, body: Raw, binding: Binding, betas: str) -> Judged | None:
    """None for a model that binds nothing. Raises Rejected where the model refuses what is stale."""
    thinking = JUDGES[family].thinking
    return thinking.judge(table(body), binding, betas) if binding and thinking is not None else None


def check_room(
    family: str, *, body: Raw, model: str, prompt_tokens: int, window_tokens: int | None, output_tokens: int | None
) -> None:
    """Raise Rejected where the prompt, or the prompt with the output that is asked for, is too much for the model."""
    judge, asked = JUDGES[family], asked_output(body)
    if output_tokens is not None and asked is not None and asked > output_tokens:
        raise judge.output.of(asked=asked, limit=output_tokens, beyond=output_tokens + 1, model=model)
    counted = asked or 0 if judge.with_output is not None else 0
    if window_tokens is not None and prompt_tokens + counted > window_tokens:
        form = judge.window if prompt_tokens > window_tokens else judge.with_output or judge.window
        raise form.of(prompt=prompt_tokens, asked=counted, window=window_tokens, total=prompt_tokens + counted)


def asked_output(body: Raw) -> int | None:
    """The output limit that a request of any family names: each family's name for it is honoured."""
    return first_count(body, [path for judge in JUDGES.values() for path in judge.outputs])


def first_count(body: Raw, paths: Iterable[tuple[str, ...]]) -> int | None:
    """The first of these places that has a whole number."""
    return next((count for path in paths if isinstance(count := dig(body, *path), int)), None)


def error_body(family: str, *, rejected: Rejected) -> bytes:
    return dump(JUDGES[family].error(rejected))


__all__ = [
    "GENERATIONS",
    "JUDGES",
    "LENIENT_MODEL",
    "ModelRules",
    "Rejected",
    "asked_output",
    "check",
    "check_room",
    "error_body",
    "first_count",
    "judge_thinking",
]
