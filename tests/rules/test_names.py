"""Names that no tool bears: corrected where one harmless tool is meant, else suggested, never guessed."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tables import each
from thoroughness import examples
from turnwise.rules.arguments import Corrected, KnownName, Suggested, bare, distance, judge_name
from turnwise.vocab import Repair

EFFECTS = {
    "read_file": "read",
    "write_file": "write",
    "search": "none",
    "ls": "read",
    "bash": "execute",
}


@pytest.mark.promise("cut:named")
@each(
    ("name", "meant"),
    [
        ("functions.read_file", "read_file"),
        ("default_api.read_file", "read_file"),
        ("default_api:read_file", "read_file"),
        ("tools.search", "search"),
        ("functions__read_file", "read_file"),
        ("repo_browser.read_file", "read_file"),
        ("namespace/read_file", "read_file"),
        (" read_file\n", "read_file"),
        ('"read_file"', "read_file"),
        ("`functions.Read_File`()", "read_file"),
        ("read_file<|channel|>commentary", "read_file"),
        ("READ_FILE", "read_file"),
        ("readFile", "read_file"),
        ("read-file", "read_file"),
        ("read file", "read_file"),
        ("raed_file", "read_file"),
        ("red_fil", "read_file"),
        ("functions.serch", "search"),
        ("saerhc", "search"),
        ("lss", None),
        ("LS", "ls"),
    ],
)
def test_a_name_that_means_one_harmless_tool_is_corrected(name: str, meant: str | None) -> None:
    """Proves: prefix, spaces, quotes, case and up to two typing errors are mended, and the repair says so."""
    expected = (
        Corrected(meant, Repair("tool_name", "call c1", f"`{name}` is `{meant}`")) if meant else Suggested(("ls",))
    )
    assert judge_name(name, effects=EFFECTS, call_id="c1") == expected


@pytest.mark.promise("cut:named")
@pytest.mark.parametrize("name", ["functions.write_file", "Write_File", "writeFile", "writ_file", " bash ", "bsh"])
def test_a_tool_that_changes_something_is_only_suggested(name: str) -> None:
    """Proves: nothing is written or executed under a name that the model did not say."""
    meant = "bash" if "b" in name.casefold() else "write_file"
    assert judge_name(name, effects=EFFECTS) == Suggested((meant,))


@pytest.mark.promise("cut:named")
@each(
    ("name", "effects", "suggested"),
    [
        ("read_fil", {"read_file": "read", "read_fils": "read"}, ("read_file", "read_fils")),
        ("READ", {"read": "read", "Read": "write"}, ("read", "Read")),
        ("read-it", {"read_it": "read", "readIt": "read"}, ("read_it", "readIt")),
        ("rm", {"ls": "read"}, ()),
        ("file", {"read_file": "read", "write_file": "write", "search": "none"}, ("read_file", "write_file")),
        ("searchTheWeb", {"search": "none", "web_fetch": "read", "bash": "execute"}, ("search", "web_fetch")),
        ("read_file", {}, ()),
        ("", {"read": "read"}, ()),
        ("...", {"read": "read"}, ()),
        ("x" * 100_000, {"read": "read"}, ()),
    ],
)
def test_between_two_nothing_is_guessed(name: str, effects: dict[str, str], suggested: tuple[str, ...]) -> None:
    """Proves: two that are equally near, and names that merely share a word, are for the model to choose from."""
    assert judge_name(name, effects=effects) == Suggested(suggested)


@pytest.mark.promise("cut:named")
@each(
    "name",
    [
        "files__read_file",
        "mcp__files__read_file",
        "mcp.files.read_file",
        "functions.files__read_file",
        "functions__files__read_file",
        "`Files__Read_File`()",
        "read__file",
        "l__s",
        "gone__raed_file",
        "old-files__read_file",
    ],
)
def test_a_tool_of_a_server_that_has_gone_is_no_local_tool(name: str) -> None:
    """A like name on offer is only suggested: it does something else. The server's own tools are found under such names."""
    assert isinstance(judge_name(name, effects=EFFECTS), Suggested)
    assert isinstance(judge_name(name, effects={**EFFECTS, "other__read_file": "read"}), Suggested)


@pytest.mark.promise("cut:named")
@pytest.mark.parametrize(
    "name", ["mcp__files__read", "mcp.files.read", "functions.files__read", "Files__read", "files__raed", "files.read"]
)
def test_a_tool_of_a_server_is_found_under_the_names_that_models_write(name: str) -> None:
    """While it is on offer, and though a local tool has the bare name."""
    verdict = judge_name(name, effects={"files__read": "read", "read": "read", "other__read": "read"})
    assert isinstance(verdict, Corrected) and verdict.name == "files__read"


@pytest.mark.promise("cut:named")
def test_the_whole_name_is_read_before_a_part_of_it() -> None:
    """Proves: `read.file` is `read_file` and not `file`, and a name on offer is never touched."""
    effects = {"file": "read", "read_file": "read", "functions.read": "write", "read": "read"}
    assert judge_name("functions.read", effects=effects) == KnownName("functions.read")
    verdict = judge_name("read.file", effects=effects)
    assert isinstance(verdict, Corrected) and verdict.name == "read_file"


def counted(one: str, other: str) -> int:
    """The textbook's recursion."""
    if not one or not other:
        return len(one) + len(other)
    ways = [
        counted(one[1:], other) + 1,
        counted(one, other[1:]) + 1,
        counted(one[1:], other[1:]) + (one[0] != other[0]),
    ]
    if one[:2] == other[1::-1] and len(one) > 1 < len(other):
        ways.append(counted(one[2:], other[2:]) + 1)
    return min(ways)


@settings(max_examples=examples(200))
@given(one=st.text("abc", max_size=5), other=st.text("abc", max_size=5))
def test_the_distance_is_the_textbooks(one: str, other: str) -> None:
    """Proves: shortcuts change nothing below the limit."""
    assert distance(one, other=other) == min(counted(one, other), 3)


@given(one=st.text("abc", max_size=6), other=st.text("abc", max_size=6))
def test_distance_is_symmetric_and_zero_for_equals_only(one: str, other: str) -> None:
    """Proves: the measure is one; past its limit it says only so."""
    away = distance(one, other=other)
    assert away == distance(other, other=one)
    assert (away == 0) == (one == other)
    assert away <= 3 and away >= min(abs(len(one) - len(other)), 3)


@given(name=st.text("abcdef", min_size=5, max_size=8), place=st.integers(0, 7), letter=st.sampled_from("xyz"))
def test_one_slip_is_a_distance_of_one(name: str, place: int, letter: str) -> None:
    """Proves: a letter put in, left out, replaced or swapped with the next."""
    place %= len(name) - 1
    slips = {
        name[:place] + letter + name[place:],
        name[:place] + name[place + 1 :],
        name[:place] + letter + name[place + 1 :],
    }
    swapped = name[:place] + name[place + 1] + name[place] + name[place + 2 :]
    assert {distance(name, other=slip) for slip in slips} == {1}
    assert distance(name, other=swapped) == (0 if swapped == name else 1)


@given(name=st.text(max_size=200), effects=st.dictionaries(st.text(max_size=20), st.sampled_from(["read", "write"])))
def test_any_name_has_a_verdict(name: str, effects: dict[str, str]) -> None:
    """Proves: names are the model's own text; what is corrected is on offer and changes nothing."""
    match judge_name(name, effects=effects):
        case KnownName(known):
            assert known == name
        case Corrected(meant):
            assert effects[meant] == "read"
        case Suggested(names):
            assert set(names) <= effects.keys() and len(names) <= 3
    assert bare(bare(name)) == bare(name)
