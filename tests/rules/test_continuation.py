"""The seam of a continued text: the wanted text or a refusal, never another text, whatever the model does."""

import json
import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tables import each
from thoroughness import examples
from turnwise.rules.continuation import (
    MAX_HELD,
    MIN_HELD,
    WORD_REACH,
    Grown,
    NoGrowth,
    NoSeam,
    PartialKind,
    SplitText,
    ask_to_continue,
    hold_back,
    stitch,
)

AFTER = "what follows the end of the arguments may be more of them"
QUOTED = "the text would end inside a quotation of its own, as if its quotation marks were not escaped"
MONDAY = (
    'On Monday, the gardener said "no" and stayed in bed until the sun stood high above the roofs of the town, then turned '
    "over and slept again."
)
CUTS = 9  # of each example
ELSEWHERE = "the reply does not go on from where the text was cut"
ESCAPES = re.compile(r"\\u[dD][89abAB]..\\u....|\\u....|\\.")

WORDS = (
    'for index in range(count):\n    total += values[index]  # "sum"\n',
    "Füße, Äpfel und größere Öfen: naïve café. ",
    "😀 👩‍👩‍👧 🇩🇪 ",
    'path = "C:\\\\temp\\\\new"\t\n',
    "=" * 90 + "\n",
    " " * 40,
    "The quick brown fox jumps over the lazy dog. ",
    "3.14159265358979, -1.5e-10, 1000000, ",
    "日本語のテキスト。",
    "```python\nprint('hello')\n```\n",
    '{"key": [1, 2, {"nested": "}"}]}\n',
    "I am sorry to say that here is the rest: ",
)
MISBEHAVIOURS = (
    "obeys", "repeats", "restarts", "fences", "apologises", "apologises-in-fence", "adds", "fences-and-adds",
    "repeats-in-fence", "ignores", "nothing", "talks-inline", "all",
)  # fmt: skip


def wanted_text(seed: int, *, pieces: int) -> str:
    chance = random.Random(seed)
    return "".join(
        [
            chance.choice(WORDS) + (f"n{chance.randrange(10**6)} " if chance.random() < 0.7 else "")
            for _ in range(pieces)
        ]
    )


def arguments_of(content: str, *, ascii: bool, nested: bool) -> str:
    inner = {"old": "x", "new": content, "count": 12345, "deep": {"flag": True}}
    value = {"edits": [inner, inner]} if nested else {"path": "big.txt", "content": content}
    return json.dumps(value, ensure_ascii=ascii, separators=(",", ":"))


def reply_of(wanted: str, *, held: SplitText, how: str, extra: int) -> str:
    """What a model says that wants to write `wanted` and is shown `held.shown`."""
    at = len(held.shown)
    rest, echoed = wanted[at:], wanted[max(0, at - extra) :]
    match how:
        case "repeats":
            return echoed
        case "restarts":
            return wanted
        case "fences":
            return f"```json\n{rest}\n```"
        case "repeats-in-fence":
            return f"```\n{echoed}\n```\n"
        case "apologises":
            return f"Sorry for the interruption. Here is the rest:\n\n{rest}"
        case "apologises-in-fence":
            return f"Sure! Continuing where I stopped:\n\n```json\n{rest}\n```"
        case "adds":
            return f"{rest}\n\nThat is the whole file."
        case "fences-and-adds":
            return f"```json\n{rest}\n```\nThat is all."
        case "ignores":
            return 'I have written the file. Is there anything else?"}'
        case "nothing":
            return ""
        case "talks-inline":
            return f"As an assistant I go on: {rest}"
        case "all":
            return f"I apologize for that!\n```json\n{echoed}\n```\nDone."
        case _:
            return rest


def continued(wanted: str, *, kind: PartialKind, cut_at: int, per_reply: int, how: str, extra: int) -> str | None:
    """The text after as many continuations as it takes; None where one of them was refused."""
    received = wanted[:cut_at]
    while True:
        held = hold_back(received, kind=kind)
        if held is None:
            return None
        assert wanted.startswith(held.shown + held.held)
        reply = reply_of(wanted, held=held, how=how, extra=extra)
        match stitch(held, reply=reply[:per_reply], kind=kind, cut=len(reply) > per_reply):
            case Grown(text=text, whole=whole):
                if whole:
                    return text
                assert wanted.startswith(text) and len(text) > len(held.shown + held.held)
                received = text
            case NoGrowth() | NoSeam():
                return None


@pytest.mark.costly
@pytest.mark.promise("cut:continued")
@settings(max_examples=examples(900))
@given(
    seed=st.integers(0, 10**6),
    pieces=st.integers(1, 60),
    ascii=st.booleans(),
    nested=st.booleans(),
    how=st.sampled_from(MISBEHAVIOURS),
)
def test_stitched_arguments_are_the_wanted_ones_or_none(
    *, seed: int, pieces: int, ascii: bool, nested: bool, how: str
) -> None:
    """Proves: over cut positions, misbehaviours and further cuts, what comes out is the wanted text or a refusal."""
    wanted = arguments_of(wanted_text(seed, pieces=pieces), ascii=ascii, nested=nested)
    chance = random.Random(seed)
    for _ in range(CUTS):
        got = continued(
            wanted,
            kind="json",
            cut_at=chance.randrange(len(wanted)),
            per_reply=chance.choice((60, 700, 3000, 10**6)),
            how=how,
            extra=chance.randrange(800),
        )
        assert got in (wanted, None)


@pytest.mark.promise("cut:text-continued")
@settings(max_examples=examples(600))
@given(
    seed=st.integers(0, 10**6),
    pieces=st.integers(1, 60),
    how=st.sampled_from([how for how in MISBEHAVIOURS if how != "adds"]),  # a text does not say where it ends
)
def test_stitched_text_is_the_wanted_one_or_none(*, seed: int, pieces: int, how: str) -> None:
    """Proves: the same for an answer, where nothing but the seam can tell."""
    wanted = wanted_text(seed, pieces=pieces).strip() or "="
    chance = random.Random(seed)
    for _ in range(CUTS):
        got = continued(
            wanted,
            kind="text",
            cut_at=chance.randrange(len(wanted)),
            per_reply=chance.choice((60, 700, 3000, 10**6)),
            how=how,
            extra=chance.randrange(800),
        )
        assert got in (wanted, None)


@pytest.mark.costly
@pytest.mark.promise("cut:continued")
@each("how", [how for how in MISBEHAVIOURS if how not in ("ignores", "nothing", "talks-inline")])
def test_what_shows_the_seam_is_joined_at_any_cut(how: str) -> None:
    """Proves: refusing is not how it stays safe: every reply that holds the seam is taken, wherever the cut fell."""
    wanted = arguments_of(wanted_text(7, pieces=400), ascii=True, nested=False)
    for cut_at in range(200, len(wanted) - 1, 97):
        got = continued(wanted, kind="json", cut_at=cut_at, per_reply=10**6, how=how, extra=cut_at % 700)
        assert got == wanted


@pytest.mark.costly
def test_the_shown_part_ends_at_no_bad_place() -> None:
    """Proves: never inside an escape or a pair of surrogates, never beside a space, and the held part stands there once."""
    wanted = arguments_of(wanted_text(3, pieces=120), ascii=True, nested=False)
    whole = [found.span() for found in ESCAPES.finditer(wanted)]
    inside = {place for start, end in whole for place in range(start + 1, end)}
    for cut_at in range(150, len(wanted)):
        half = max([cut_at - start for start, end in whole if start < cut_at < end], default=0)
        held = hold_back(wanted[:cut_at], kind="json")
        assert held is not None and held.shown + held.held == wanted[: cut_at - half]
        assert len(held.shown) not in inside
        assert not held.shown[-1].isspace() and not held.held[0].isspace()
        assert (held.shown + held.held).find(held.held) == len(held.shown)
        assert MIN_HELD <= len(held.held) <= MAX_HELD + WORD_REACH


@pytest.mark.parametrize(
    "received",
    [
        "",
        '{"pa',
        '{"path":"big.txt","conte',
        '{"content":"' + "-" * 9000,
        '{"content":"' + "same line\\n" * 900,
        "\\" * 5000,
    ],
)
def test_too_little_or_too_regular_a_text_is_not_gone_on_from(received: str) -> None:
    """Proves: where a seam could not be told, none is asked for."""
    assert hold_back(received, kind="json") is None


def test_half_a_character_at_the_end_is_given_up() -> None:
    """Proves: what a decoder left of a cut character is no part of the text."""
    for half in ("\ufffd", "\ud83d"):
        held = hold_back(RECEIVED + half, kind="json")
        assert held is not None and held.shown + held.held == RECEIVED


RECEIVED = '{"path":"a.txt","content":"The gardener watered the roses and then she'
SHOWN, HELD = '{"path":"a.txt","content":"The gardener wate', "red the roses and then she"


@each(
    ("reply", "outcome"),
    [
        (f'{HELD} rested."}}', Grown(text=f'{RECEIVED} rested."}}', whole=True)),
        (f"{HELD} rested", Grown(text=f"{RECEIVED} rested", whole=False)),
        (
            'red the lawn."}',  # completes the word, then goes another way: as a line that was skipped would
            NoSeam(ELSEWHERE),
        ),
        ('Here is the rest: the lawn."}', NoSeam(ELSEWHERE)),
        ('The lawn."}', NoSeam(ELSEWHERE)),
        ('red is a colour."}', NoSeam(ELSEWHERE)),
        ('{"path":"a.txt","content":"Something else"}', NoSeam(ELSEWHERE)),
        (f'And now for something else {HELD} rested."}}', NoSeam("the reply says something else before it goes on")),
        (f'{HELD} rested."}}, and more of it.', NoSeam(AFTER)),
        (f'{HELD} rested."}}]', NoSeam(AFTER)),
        (f'{HELD} rested."}}\n\nShe said: "No."', NoSeam(AFTER)),
        (f'{HELD} rested."}}\n\n{"Words. " * 60}', NoSeam(AFTER)),
        (f'{HELD} rested."', NoSeam("the reply ended by itself, but not where the arguments end")),
        (f'{HELD} found \\theta."}}', NoSeam("the reply brings `\\t` into a text that has none")),
        (f'{HELD} said {{"yes"}}', NoSeam("joined with the reply it is not valid JSON at character 78")),
        (f'{HELD} wrote {{\\"a\\":\\"b"}}', NoSeam(QUOTED)),
        (HELD.replace("o", "\\u006F") + ' rested."}', Grown(text=f'{RECEIVED} rested."}}', whole=True)),
        (f'{HELD} rested.\n"}}', NoSeam("joined with the reply it is not valid JSON at character 78")),
        (
            f'{HELD}","n":1e999}}',
            NoSeam("joined with the reply it is not valid JSON: Number out of range - at `$[...]`"),
        ),
        (
            f'{HELD}","n":{"9" * 5000}}}',
            NoSeam("joined with the reply it is not valid JSON: Integer value out of range - at `$[...]`"),
        ),
        (
            f'{HELD}","n":NaN}}',
            NoSeam("joined with the reply it is not valid JSON: JSON is malformed: invalid character (byte 76)"),
        ),
        (f'{HELD}","n":{"[" * 200_000}', NoSeam("joined with the reply it is nested too deeply")),
        (HELD, NoGrowth()),
        (HELD[:9], NoGrowth()),
        (RECEIVED, NoGrowth()),
        (RECEIVED[:40], NoGrowth()),
        (" \n", NoGrowth()),
    ],
)
def test_one_reply(reply: str, outcome: Grown | NoSeam | NoGrowth) -> None:
    """Proves: each kind of reply has its one outcome."""
    assert hold_back(RECEIVED, kind="json") == SplitText(SHOWN, HELD)
    assert stitch(SplitText(SHOWN, HELD), reply=reply, kind="json", cut=False) == outcome


def test_every_repair_is_told() -> None:
    """Proves: what was taken off is recorded."""
    reply = f'Sorry! Here is the rest:\n```json\nThe gardener wate{HELD} rested."}}\n```\nThat is all.'
    grown = stitch(SplitText(SHOWN, HELD), reply=reply, kind="json", cut=False)
    assert isinstance(grown, Grown) and json.loads(grown.text)["content"].endswith("and then she rested.")
    assert [repair.kind for repair in grown.repairs] == [
        "continued_after_words",
        "continued_in_fence",
        "continued_with_overlap",
        "continued_past_end",
    ]


def test_a_text_of_equal_blocks_is_not_gone_on_with() -> None:
    """Proves: its end stands in several places, so a block too few or too many would not show."""
    block = "".join([f"line {number} of a block that comes again and again\\n" for number in range(200)])
    assert hold_back('{"content":"' + block * 3 + block[:5000], kind="json") is None


@pytest.mark.promise("cut:text-continued")
@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (f"{{held}} rested.\n\n{MONDAY}", "the reply starts over"),
        (f"{{held}} rested, {MONDAY[9:]}" * 2, "the reply starts over"),
        ("{held} rested. “So,” she said.", "the reply has other quotation marks"),
    ],
)
def test_a_text_that_starts_over_or_changes_is_refused(reply: str, why: str) -> None:
    """Proves: what the seam does not show is looked for behind it."""
    received = f"{MONDAY} On Tuesday she watered the roses and the lilies, and {'so on, and ' * 12}last of all she"
    held = hold_back(received, kind="text")
    assert held is not None
    got = stitch(held, reply=reply.format(held=held.held), kind="text", cut=False)
    assert isinstance(got, NoSeam) and got.why.startswith(why)


NOTHING_NEW = (
    "",
    "  \n",
    "{held}",
    "{held}\n\n",
    "{again}{held}",
    "{again}{held} \t\n",
    "{shown}{held}",
    "{shown}",
    "Sorry, here is the rest:\n{held}",
    "```\n{held}\n```",
)


@pytest.mark.promise("cut:text-continued", "cut:never-run")
@each("cut", [False, True])
@each("kind", ["text", "json"])
@each("reply", NOTHING_NEW)
def test_a_reply_without_anything_new_ends_no_text(reply: str, kind: PartialKind, cut: bool) -> None:
    """Proves: white space and words that were there already make nothing whole, even where the reply calls itself done
    (llama.cpp's Responses endpoint says `completed` for what it cut). A free-form call is a text, too."""
    received = "The gardener watered the roses and then she rested beside the old well"
    held = hold_back(received if kind == "text" else f'{{"content":"{received}', kind=kind)
    assert held is not None
    said = reply.format(held=held.held, shown=held.shown, again=held.shown[-12:])
    assert not isinstance(stitch(held, reply=said, kind=kind, cut=cut), Grown)


@pytest.mark.promise("cut:text-continued", "cut:never-run")
@given(
    received=st.text(alphabet="abcdefgh \n\t\\é😀", min_size=40, max_size=200),
    again=st.integers(0, 60),
    blank=st.text(alphabet=" \n\t\r", max_size=4),
    cut=st.booleans(),
)
def test_no_repetition_of_any_text_counts_as_its_end(received: str, again: int, blank: str, cut: bool) -> None:
    """Proves: the same for whatever was received, and however much of it comes again."""
    held = hold_back(received, kind="text")
    if held is None:
        return
    said = held.shown[max(0, len(held.shown) - again) :] + held.held + blank
    assert not isinstance(stitch(held, reply=said, kind="text", cut=cut), Grown)


def test_one_character_is_something_new() -> None:
    """Proves: the end of a text may be a full stop, and the end of arguments a brace."""
    cases: tuple[tuple[str, str, PartialKind], ...] = (
        (MONDAY, ".", "text"),
        ('{"content":"' + MONDAY.replace('"', "'"), '"}', "json"),
    )
    for received, end, kind in cases:
        held = hold_back(received, kind=kind)
        assert held is not None
        assert stitch(held, reply=held.held + end, kind=kind, cut=False) == Grown(text=received + end, whole=True)


@pytest.mark.promise("cut:continued")
def test_the_request_shows_the_text_and_says_what_is_wanted() -> None:
    """Proves: the assistant's message is the shown text alone; with prefill nothing follows it."""
    held = SplitText(SHOWN, HELD)
    asked = ask_to_continue(held, kind="json", tool="write")
    assert asked.assistant == SHOWN and asked.user is not None
    assert "your call of `write`" in asked.user and asked.user.endswith(SHOWN) and HELD not in asked.user
    assert ask_to_continue(held, kind="text").user != asked.user
    assert ask_to_continue(held, kind="json", tool="write", prefill=True).user is None
