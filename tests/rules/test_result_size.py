"""Tool results: limited when they enter, shortened when they are old, read back by page."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.rules.compaction import (
    GONE,
    MIN_RESULT_BYTES,
    OLD_RESULT_BYTES,
    READ_RESULT,
    ReadResultArguments,
    read_back,
    result_limit,
    shorten_result,
)
from turnwise.rules.prompt_room import part_bytes
from turnwise.rules.schema import fault_of_schema
from turnwise.vocab import File, Text, ToolResult

NOTE_BYTES = 300


def result(*texts: str) -> ToolResult:
    return ToolResult(call_id="call_1", name="read", content=tuple([Text(text) for text in texts]))


def test_what_fits_stays_the_very_same() -> None:
    short = result("a line")
    assert shorten_result(short, limit_bytes=1_000, handle=None) is short


def test_head_and_tail_stay_and_the_note_says_how_to_read_the_rest() -> None:
    cut = shorten_result(result("a" * 5_000 + "z" * 5_000), limit_bytes=1_000, handle="read_result")
    text = msgspec.structs.asdict(cut.content[0])["text"]
    head, note, tail = text.split("\n")
    assert head == "a" * len(head)
    assert tail == "z" * len(head)
    assert note == (
        f"[... {10_000 - 2 * len(head)} of 10000 characters left out to save room; call `read_result` with "
        f'{{"call_id": "call_1", "offset": {len(head)}}} to read them ...]'
    )
    without = shorten_result(result("a" * 10_000), limit_bytes=1_000, handle=None)
    assert "call the tool again if you need them" in msgspec.structs.asdict(without.content[0])["text"]


def test_a_picture_in_an_old_result_is_named_in_its_place() -> None:
    picture = ToolResult(call_id="a", name="look", content=(File(media_type="image/png", data=b"x"), Text("a dog")))
    assert shorten_result(picture, limit_bytes=OLD_RESULT_BYTES, handle=None).content == (
        Text("(image/png, left out to save room)"),
        Text("a dog"),
    )


@pytest.mark.costly
@given(st.lists(st.text(max_size=6_000), min_size=1, max_size=4), st.integers(0, 4_000))
def test_shortened_results_keep_their_limit_and_shortening_ends(texts: list[str], limit: int) -> None:
    """Within the limit and a note for each text; never longer than before; ids stay."""
    whole = result(*texts)
    cut = shorten_result(whole, limit_bytes=limit, handle="read_result")
    assert part_bytes(cut) <= max(limit, 0) + (NOTE_BYTES + part_bytes(result(""))) * len(texts) or cut is whole
    assert part_bytes(cut) <= part_bytes(whole)
    assert (cut.call_id, cut.name, len(cut.content)) == (whole.call_id, whole.name, len(whole.content))


def test_results_of_one_step_share_a_quarter_of_the_room() -> None:
    """Three bytes a token; a small window does not cut what is no trouble."""
    assert result_limit(100_000, results=1) == 75_000
    assert result_limit(100_000, results=5) == 15_000
    assert result_limit(4_000, results=10) == MIN_RESULT_BYTES


# reading back


def test_the_tool_is_offered_as_its_arguments_are_read() -> None:
    assert fault_of_schema(READ_RESULT.parameters) is None
    schema = msgspec.json.decode(READ_RESULT.parameters)
    assert tuple(schema["properties"]) == ReadResultArguments.__struct_fields__


@given(st.text(min_size=1, max_size=3_000), st.integers(1, 500))
def test_page_by_page_the_whole_result_comes_back(text: str, page: int) -> None:
    """Not a character missing or twice, whatever the size of a page."""
    originals = {"call_1": result(text)}
    read, offset = "", 0
    while offset < len(text):
        arguments = msgspec.json.encode({"call_id": "call_1", "offset": offset}).decode()
        said, is_error = read_back(arguments, originals=originals, page_bytes=page)
        assert not is_error
        body, _, note = said.rpartition("\n[characters ")
        if note.endswith(f"go on with offset={offset + len(body)}]") and body:
            read, offset = read + body, offset + len(body)
        else:
            read, offset = read + said, offset + len(said)
    assert read == text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ('{"call_id":"other"}', GONE.format(id="other")),
        ('{"call_id":"call_1","offset":99}', "The result of `call_1` has 5 characters only."),
    ],
)
def test_what_is_not_there_is_told(arguments: str, said: str) -> None:
    assert read_back(arguments, originals={"call_1": result("hello")}, page_bytes=100) == (said, True)


def test_arguments_that_do_not_fit_are_told() -> None:
    for arguments in ("", "{}", '{"call_id":1}', '{"call_id":"a","x":1}', "[]"):
        said, is_error = read_back(arguments, originals={}, page_bytes=100)
        assert is_error, arguments
        assert said.startswith("The arguments of `read_result` do not fit: ")
    limited = read_back(
        '{"call_id":"call_1","offset":1,"limit":2}', originals={"call_1": result("hello")}, page_bytes=9
    )
    assert limited == ("el\n[characters 1 to 3 of 5; go on with offset=3]", False)


def test_a_short_text_beside_a_long_one_stays_whole() -> None:
    """Its share of the limit is smaller than it is, but the note about what was left out would be longer."""
    given_ = ToolResult(call_id="a", name="read", content=(Text("notes.txt"), Text("x" * 9_000)))
    heading, rest = shorten_result(given_, limit_bytes=2_048, handle="read_result").content
    assert heading == Text("notes.txt")
    assert isinstance(rest, Text) and "left out to save room" in rest.text and len(rest.text) < 2_300
