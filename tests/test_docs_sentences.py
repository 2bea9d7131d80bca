"""What the pages promise about money, files and safety stands there as `docs_sentences.toml` has it, with tests that exist.

The list is for whoever changes one of both: a changed sentence leads to its tests, a deleted test to its sentences. This
list proves no sentence: the named tests do, since they fail if the code does otherwise.
"""

import ast
import tomllib
from pathlib import Path
from typing import Any

from trees import tree_of

TESTS = Path(__file__).resolve().parent
LIST: dict[str, list[dict[str, Any]]] = tomllib.loads((TESTS / "docs_sentences.toml").read_text(encoding="utf-8"))
PAGES_OF_MONEY_FILES_AND_SAFETY = {
    "docs/billing.md",
    "docs/gateway.md",
    "docs/limits.md",
    "docs/overview.md",
    "docs/sandbox.md",
    "docs/tools.md",
}


def names_in(file: str) -> set[str]:
    """The names of a file's tests; none if it does not exist."""
    if not (TESTS / file).is_file():
        return set()
    return {
        node.name for node in tree_of(TESTS / file).body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def test_each_listed_sentence_stands_on_its_page() -> None:
    """A sentence that was changed or deleted is told; so is one that is listed twice."""
    text_of = {page: " ".join((TESTS.parent / page).read_text(encoding="utf-8").split()) for page in LIST}
    said = [(page, str(sentence["says"])) for page, sentences in LIST.items() for sentence in sentences]
    assert [(page, sentence) for page, sentence in said if sentence not in text_of[page]] == []
    assert len(set(said)) == len(said) and LIST.keys() == PAGES_OF_MONEY_FILES_AND_SAFETY


def test_each_listed_sentence_has_tests_that_exist() -> None:
    """None is there without a test."""
    wrong = [
        (sentence["says"], test)
        for sentences in LIST.values()
        for sentence in sentences
        for test in (sentence["tests"] or [""])
        if test.partition("::")[2] not in names_in(test.partition("::")[0])
    ]
    assert wrong == []
    assert {frozenset(sentence) for sentences in LIST.values() for sentence in sentences} == {
        frozenset({"says", "tests"})
    }
