"""What the pages promise about money, files and time stands there as the list has it, and a test shows each sentence."""

import ast
from functools import lru_cache
from pathlib import Path

import pytest

from docs_sentences import SECTIONS, TESTS, as_listed, listed, promises_of, text_of

LIST = listed()


@lru_cache
def names_in(file: str) -> frozenset[str]:
    """The names of a file's tests; none where it does not exist."""
    path: Path = TESTS / file
    if not path.is_file():
        return frozenset()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset([node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)])


@pytest.mark.parametrize("page", LIST)
def test_each_listed_sentence_stands_on_its_page(page: str) -> None:
    """A sentence that was changed or deleted is told; so is one that is listed twice."""
    said = [sentence.says for sentence in LIST[page]]
    assert [one for one in said if one not in text_of(page)] == []
    assert sorted(set(said)) == sorted(said)


@pytest.mark.parametrize("page", LIST)
def test_each_listed_sentence_has_a_test_or_a_reason(page: str) -> None:
    """Each named test exists; a sentence without one says why, and none has both."""
    missing = [
        test
        for sentence in LIST[page]
        for test in sentence.tests
        if test.partition("::")[2] not in names_in(test.partition("::")[0])
    ]
    assert missing == []
    assert [sentence.says for sentence in LIST[page] if bool(sentence.tests) == bool(sentence.because)] == []


@pytest.mark.parametrize("page", SECTIONS)
def test_each_sentence_that_promises_something_is_on_the_list(page: str) -> None:
    """By the rule of `docs_sentences.promises_of`. What is new is printed as it would stand in docs_sentences.toml."""
    known = {sentence.says for sentence in LIST.get(page, ())}
    new = [sentence for sentence in promises_of(page) if sentence not in known]
    assert not new, "\n".join(["", *[as_listed(page, sentence) for sentence in new]])


def test_the_list_is_worth_its_name() -> None:
    """Money, files and time have pages of their own, and most sentences have a test: reasons are for advice and definitions."""
    sentences = [sentence for page in LIST.values() for sentence in page]
    assert {"docs/billing.md", "docs/limits.md", "docs/deadlines.md", "docs/tools.md", "docs/cli.md"} <= LIST.keys()
    assert sum(bool(sentence.because) for sentence in sentences) < len(sentences) / 10
