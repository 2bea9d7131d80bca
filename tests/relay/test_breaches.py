"""Each kind of repair that a gateway can tell of has a rule, and no rule is for nothing."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import turnwise
from tables import each
from turnwise.assembly import json_text as heal
from turnwise.relay.breaches import BREACHES, blames_provider, breach_of, source_of
from turnwise.vocab import CALL_NOT_MADE, CALL_NOT_READ, NO_FINISH_REASON
from turnwise.wire.family import MODULES
from turnwise.wire.json_fields import DAMAGES
from turnwise.wire.relay_facts import NOT_CARRIED, relay_facts

SOURCE = Path(turnwise.__file__).parent
ROOTS = ("relay", "wire", "assembly")
DRIVER = "endpoints/exchange.py"
MAKERS = frozenset({"Repair", "repair", "mended", "_mended", "lost", "_lost", "_note", "_note_once"})
NAMED = {
    "CALL_NOT_MADE": CALL_NOT_MADE,
    "CALL_NOT_READ": CALL_NOT_READ,
    "NO_FINISH_REASON": NO_FINISH_REASON,
    "NOT_CARRIED": NOT_CARRIED,
}
# Rules that mend what turns send, and calls that turns run: a gateway's requests are its clients' own.
OF_TURNS = frozenset({"rules/history.py", "rules/arguments.py"})
KINDS_OF_TURNS = frozenset({"output_fence"})  # typed answers are an agent's; a gateway passes the text as it is
# Where a kind is no literal: the literals that can get there.
ELSEWHERE = {
    "assembly/json_text.py": frozenset(heal.KINDS),
    "assembly/response.py": frozenset(heal.KINDS),
    "assembly/tool_calls.py": frozenset(heal.KINDS),
    "relay/breaches.py": frozenset({"finish_hides_calls", "finish_of_forced_call"}),
    "rules/continuation.py": frozenset({"continued_after_words", "continued_in_fence", "continued_with_overlap"}),
    "wire/anthropic_messages/events.py": frozenset[str](),  # what `_lost` was given
    "wire/anthropic_messages/stream.py": frozenset(DAMAGES),
    "wire/gemini/chunks.py": frozenset({"noise_skipped", "undecodable_chunk"}),
    "wire/openai_chat/stream.py": frozenset({"invalid_utf8", "control_character", "content_skipped"}),
    "wire/openai_responses/body.py": frozenset({"invalid_utf8", "damaged_body", "loose_body"}),
    "wire/openai_responses/stream.py": frozenset({"invalid_utf8", "event_left_out", "damaged_event", "noise_skipped"}),
}


@cache
def files() -> tuple[str, ...]:
    """Those of which a repair of the gateway may come."""
    found: set[str] = set()
    waiting = [file for room in ROOTS for file in (SOURCE / room).rglob("*.py")] + [SOURCE / DRIVER]
    while waiting:
        file = waiting.pop()
        name = file.relative_to(SOURCE).as_posix()
        if name in found or name in OF_TURNS or not (name.startswith((*ROOTS, "rules")) or name == DRIVER):
            continue
        found.add(name)
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("turnwise."):
                target = SOURCE / Path(*node.module.split(".")[1:])
                waiting += [path for path in (target.with_suffix(".py"), target / "__init__.py") if path.exists()]
    return tuple(sorted(found))


def given_kinds(name: str) -> Iterator[str | None]:
    """The kinds that stand in the file; None for one that is no literal."""
    for node in ast.walk(ast.parse((SOURCE / name).read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        called = node.func
        maker = called.id if isinstance(called, ast.Name) else called.attr if isinstance(called, ast.Attribute) else ""
        if maker not in MAKERS:
            continue
        match node.args[0]:
            case ast.Constant(value=str() as kind):
                yield kind
            case ast.Name(id=constant) if constant in NAMED:
                yield NAMED[constant]
            case ast.Name(id=("call" | "frame" | "block" | "found" | "reader")):
                continue  # another function of that name, which takes no kind
            case _:
                yield None


def kinds_of(name: str) -> set[str]:
    found = set(given_kinds(name))
    assert None not in found or name in ELSEWHERE, f"{name} makes repairs of kinds that no list names"
    return {kind for kind in found if kind is not None} | ELSEWHERE.get(name, frozenset())


@pytest.mark.costly
@pytest.mark.promise("heal:told")
def test_each_kind_of_repair_has_a_rule_and_each_rule_a_kind() -> None:
    """Proves: a report has a sentence for whatever the gateway tells, and none that nothing leads to."""
    produced = {kind for name in files() for kind in kinds_of(name)} - KINDS_OF_TURNS
    assert produced - set(BREACHES) == set()
    assert set(BREACHES) - produced == set()


@pytest.mark.costly
def test_places_without_a_literal_are_still_there() -> None:
    """Proves: what ELSEWHERE lists is used, so that it cannot hide a kind that is gone."""
    without = {name for name in files() if None in set(given_kinds(name))}
    assert without == set(ELSEWHERE)


@each("kind", BREACHES)
def test_each_rule_has_a_source_in_every_family(kind: str) -> None:
    """Proves: a vendor can look the sentence up."""
    for family in MODULES:
        breach = breach_of(kind, family=family)
        assert breach is not None
        assert source_of(breach, family=family) and breach.rule.endswith(".")


def test_every_source_is_used() -> None:
    """Proves: no topic stands in the table for nothing."""
    topics = {breach.topic for breach in BREACHES.values()}
    assert {topic for name in MODULES for topic in relay_facts(name).sources} - topics == set()


def test_what_an_api_leaves_open_is_no_breach() -> None:
    """Proves: a call without an id breaks a rule of Chat Completions, and none of Gemini's. A kind of a newer version blames
    nobody."""
    assert blames_provider("id_missing", family="openai_chat")
    assert not blames_provider("id_missing", family="gemini")
    assert not blames_provider("not_carried", family="openai_chat")
    assert (breach_of("unheard_of", family="gemini"), blames_provider("unheard_of", family="gemini")) == (None, False)
