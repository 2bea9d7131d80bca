"""Wording that a reader has to read twice, after `STYLE.md`: what stood before, and patterns of the same kind.

Looked for in all docstrings and comments, README, docs/library.md and the help of the command line (tests/test_public_names.py).
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator

# The left column of STYLE's table, and phrases of its sentences that would be wrong anywhere.
STOOD = """
is gone on with
a model that goes in circles is told
limits that keep the last request for it
where the provider's own is not meant
where it is not meant
where turnwise knows it not
the last request that they pay for
is made only where that step was disobeyed
the model is asked for smaller pieces
none of them is kept
are never taken over
nothing else is an answer
nothing like it is asked again
where no rule could hold that
it broke off without a word
counts for nothing
a price that nobody knows
a sum with such a part
so that none shares the line
over both stand
stand the session that
below what it may have
nobody knows what it spent
has spent its share
can say what nobody knows
nobody is asked and what would be
one that is none
nobody knows of
"""

# What a pattern is called, and the pattern.
PATTERNS = {
    "`one` in place of a noun": r"\b(?:one|ones) (?:that|which|who) (?:is|are|was|were|has|have|had|does|do) (?:none|not|no)\b",
    "`one of which`": r"\bone of which\b",
    "the verb before its subject": r"\b(?:nor|neither|never) (?:is|are|was|were|does|do|has|have) (?:it|they|an?|the|what)\b",
    "`is to be` with a verb": r"\b(?:is|are) to be (?:\w+ed|given|known|held|kept|seen|told)\b",
    "`whoever`": r"\bwho(?:ever|mever|soever)\b",
    "`stands over`": r"\bstands? over\b",
    "`goes on with`": r"\b(?:goes|gone|going) on with\b",
    "`knows it not`": r"\b(?:knows|has|holds|is) (?:it|them) not\b",
    "`nobody knows`": r"\bnobody knows\b",
    "`what there is`": r"\bwhat there is\b",
    "`in vain`": r"\bin vain\b",
    "`else so`": r"\belse so\b",
    # "The results at hand" is usual English.
    "`at hand` in place of `current`": r"(?<!results )(?<!facts )\bat hand\b",
    # Not the name of a field, nor the end of a quoted line.
    "`anew` in place of `again`": r"(?<!`)\banew\b(?![`\"])",
    # Not the value None, an option's `none`, nor two fixed phrases.
    "`is none` in place of `is not one`": (
        r"(?<!there )(?<!choice )(?<!`-` )\b(?:is|are|was|were) (?-i:none)\b(?! the wiser| of their business)"
    ),
    "`so that none`": r"\bso that none\b",
    "`within it` in place of `inside this block`": r"(?:^|[.:] )within it, ",
    "`to be called` as an order": r"(?:^|[.;:] )to be (?:called|used|awaited)\b",
    "`otherwise than`": r"\botherwise than\b",
    "`what is to`": r"\bwhat (?:is|are) to\b",
    "`the chair` in place of `the turn machine`": r"\bthe chair\b",
}

_STOOD = [
    (phrase, f"stood: {phrase}", re.compile(rf"\b{re.escape(phrase)}\b", re.IGNORECASE))
    for phrase in STOOD.split("\n")
    if phrase
]
_PATTERNS = [(name, re.compile(one, re.IGNORECASE)) for name, one in PATTERNS.items()]
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


def hard_words(text: str) -> list[str]:
    """Each place with such wording, with the words around it. Code blocks and comments are not looked at."""
    plain = " ".join(_FENCE.sub(" ", _COMMENT.sub(" ", text)).split())
    lower = plain.lower()
    hard = [(name, one) for phrase, name, one in _STOOD if phrase in lower]
    found = [(hit.start(), name) for name, one in (*hard, *_PATTERNS) for hit in one.finditer(plain)]
    return [f"{name}: ...{plain[max(0, at - 40) : at + 60]}..." for at, name in sorted(found)]


def notes_in(source: str) -> Iterator[tuple[int, str]]:
    """Each docstring of a Python source, also one behind a value, and each comment, with its line. Comments on lines of their own
    are one text as long as no other line parts them.
    """
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield node.lineno, text
            case _:
                pass
    comments = [one for one in tokenize.generate_tokens(io.StringIO(source).readline) if one.type == tokenize.COMMENT]
    block: list[tokenize.TokenInfo] = []
    for one in comments:
        if block and not (_is_alone(one) and _is_alone(block[-1]) and one.start[0] == block[-1].start[0] + 1):
            yield block[0].start[0], _joined(block)
            block = []
        block.append(one)
    if block:
        yield block[0].start[0], _joined(block)


def _is_alone(comment: tokenize.TokenInfo) -> bool:
    return comment.line.lstrip().startswith("#")


def _joined(comments: list[tokenize.TokenInfo]) -> str:
    return "\n".join([one.string.lstrip("# ") for one in comments])
