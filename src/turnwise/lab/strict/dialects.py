"""Servers by their own rules: what each refuses beyond its family's API, read from `dialects.toml`."""

import functools
import re
from collections.abc import Mapping
from typing import Literal

import msgspec

from turnwise.lab.raw import Raw, parse, text
from turnwise.lab.strict.dialect_checks import Details, RuleCheck, at_path, find_refused
from turnwise.lab.strict.verdicts import Rejected

Sureness = Literal["source", "documentation", "measured", "once"]
"""How a rule is known: the server's own source code, its documentation, reports that measured the refusal live (several, or one
that compared a refused with a taken body), or one report without such a comparison."""

NAME = re.compile(r"\{(\w+)\}")


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One thing that a server refuses, with its answer's status and words. `{name}` in `message` is a detail of the place."""

    id: str
    refuses: str  # for the page: what the body has that it may not have
    check: RuleCheck
    status: int = 400
    message: str
    type: str | None = None
    code: str | None = None
    error: str = ""  # the answer's body, where it is not the server's usual one
    source: tuple[str, ...]
    date: str  # of the newest source
    sure: Sureness
    models: str = ""  # holds for models in whose names this pattern is found; empty: for all
    not_models: str = ""  # and for none of these
    unless: dict[str, tuple[str | bool, ...]] = {}  # a field of the body -> values with which the rule does not hold

    def holds_for(self, body: dict[str, Raw]) -> bool:
        model = text(body.get("model"))
        if self.models and not re.search(self.models, model):
            return False
        if self.not_models and re.search(self.not_models, model):
            return False
        return not any(at_path(body, path) in values for path, values in self.unless.items())


class ServerDialect(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One server: how it writes an error, which types of content part it takes beside OpenAI's, and its rules in order.

    `signs_calls` is about the lab's answers: without it no client could obey the rule that asks for signatures.
    """

    name: str
    error: str  # JSON with "{message}", "{type}", "{code}", "{status}" and "{status_text}" as whole values
    type: str = "invalid_request_error"  # where a rule names none
    code: str | None = None
    parts: tuple[str, ...] = ()
    signs_calls: bool = False  # the lab's first call of a response carries a thought signature, as Gemini 3's does
    rules: tuple[Rule, ...]

    def check(self, body: Raw) -> None:
        """Raises Rejected, with the answer that the server would give, for the first rule that `body` breaks."""
        if not isinstance(body, dict):
            return
        for rule in self.rules:
            details = find_refused(rule.check, body) if rule.holds_for(body) else None
            if details is not None:
                raise self.refusal(rule, details=details)

    def refusal(self, rule: Rule, *, details: Details) -> Rejected:
        """The answer to a body that breaks `rule` at the place of which `details` tell."""
        message = NAME.sub(lambda found: details.get(found[1], found[0]), rule.message)
        refused = Rejected(message, status=rule.status, type=rule.type, code=rule.code)
        return self.worded(refused, error=rule.error, details=details)

    def worded(self, rejected: Rejected, *, error: str = "", details: Mapping[str, str] = {}) -> Rejected:
        """A refusal, by its own rules or by the family's, in the form in which this server writes errors."""
        words: dict[str, Raw] = {
            "{message}": rejected.message,
            "{type}": rejected.type or self.type,
            "{code}": rejected.code or self.code,
            "{status}": rejected.status,
            "{status_text}": str(rejected.status),
        }
        body = _filled(parse(error or self.error), words, details)
        return Rejected(rejected.message, status=rejected.status, type=rejected.type, code=rejected.code, body=body)


def _filled(template: Raw, words: Mapping[str, Raw], details: Mapping[str, str]) -> Raw:
    match template:
        case dict():
            return {key: _filled(value, words, details) for key, value in template.items()}
        case list():
            return [_filled(value, words, details) for value in template]
        case str():
            return words.get(template, details.get(template[1:-1], template))
        case _:
            return template


@functools.cache
def builtin_dialects() -> Mapping[str, ServerDialect]:
    """The servers of `dialects.toml` by the name of their row in `profiles.toml`."""
    from importlib import resources

    return parse_dialects(resources.files("turnwise.lab.strict").joinpath("dialects.toml").read_text(encoding="utf-8"))


def parse_dialects(written: str) -> dict[str, ServerDialect]:
    """`[name]` tables of TOML; `same_as` names the row whose rules it has. Raises msgspec.ValidationError, TOMLDecodeError."""
    import tomllib

    found = tomllib.loads(written)
    whole = {name: found[row["same_as"]] if "same_as" in row else row for name, row in found.items()}
    return {name: msgspec.convert({"name": name, **row}, ServerDialect) for name, row in whole.items()}
