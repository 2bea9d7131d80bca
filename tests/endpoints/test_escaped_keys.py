"""A key whose characters are escaped is hidden as one that is quoted plainly (issue 16, finding 1)."""

import base64
import json
from collections.abc import Callable
from html import escape
from random import Random
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from endpoints.test_quoted_keys import Says
from flat_agents import flat_agent
from tables import each
from thoroughness import examples
from turnwise.endpoints.key_hiding import HIDDEN, TELLTALE, WordsHider, forms_of, hide_forms, plain, plain_spans
from turnwise.vocab import TextDelta

KEY = "sk-verysecret/tail1tail2tail3"
SLASHES = [
    r"\/",
    r"\u002f",
    r"\u002F",
    r"\\/",
    r"\\\/",
    r"\\u002f",
    r"\x2f",
    "%2F",
    "%2f",
    "%252F",
    "%25252f",
    r"\u00252F",
]
SLASHES += [
    "&#47;",
    "&#x2F;",
    "&#x02f;",
    "&sol;",
    "&amp;sol;",
    "&amp;#47;",
    "&amp;amp;#x2f;",
    "%26sol%3B",
    r"\u0026#47;",
]
SPELLINGS: tuple[Callable[[str], str], ...] = (
    str,
    lambda one: json.dumps(one)[1:-1],
    lambda one: json.dumps(json.dumps(one))[3:-3],
    lambda one: f"\\u{ord(one):04x}",
    lambda one: f"\\\\u{ord(one):04X}",
    lambda one: quote(one, safe=""),
    lambda one: quote(quote(one, safe=""), safe=""),
    lambda one: f"%{ord(one):02x}",
    escape,
    lambda one: f"&#{ord(one)};",
    lambda one: f"&#x{ord(one):X};",
    lambda one: quote(f"&#{ord(one)};"),
)
PRINTABLE = st.characters(min_codepoint=0x21, max_codepoint=0x7E, exclude_characters="*")
KEYS = st.text(PRINTABLE, min_size=16, max_size=40)
# Left as they are beside other escapes, these begin new ones.
MIXABLE = st.text(PRINTABLE.filter(lambda one: one not in "\\%&"), min_size=16, max_size=40)
LAYERS: tuple[Callable[[str], str], ...] = (
    lambda text: json.dumps(text)[1:-1],
    lambda text: quote(text, safe=""),
    quote,
    escape,
    lambda text: text.replace("/", r"\/"),
    lambda text: "".join([f"&#{ord(one)};" for one in text]),
)


def spelled(text: str, *, chance: Random) -> str:
    return "".join([chance.choice(SPELLINGS)(one) for one in text])


@each("slash", SLASHES)
def test_no_part_of_a_key_is_shown_however_its_slash_is_escaped(slash: str) -> None:
    """Proves: the tail behind the first escaped character is hidden, too."""
    said = f"Incorrect API key: {KEY.replace('/', slash)}. Try again."
    assert hide_forms(said, forms=forms_of(KEY)) == "Incorrect API key: ***. Try again."


@each("slash", SLASHES)
def test_an_escaped_base64_of_a_key_is_hidden(slash: str) -> None:
    key = "sk-???>>>" + "\x7e" * 12 + "0123456789"
    whole = base64.b64encode(key.encode()).decode()
    assert "/" in whole
    assert hide_forms(f"Basic {whole.replace('/', slash)}.", forms=forms_of(key)).startswith("Basic ***")
    assert "+fn5+fn5" not in hide_forms(f"Basic {whole.replace('/', slash)}.", forms=forms_of(key))


@settings(max_examples=examples(400))
@given(MIXABLE, st.randoms(use_true_random=False), st.booleans())
def test_any_key_in_any_spelling_is_hidden_whole(key: str, chance: Random, is_cut: bool) -> None:
    """Property: each character in an escape of its own, and a quote that is cut short after twelve characters or later."""
    shown = key[: chance.randint(TELLTALE, len(key))] if is_cut else key
    said = f"key: {spelled(shown, chance=chance)}"
    assert hide_forms(said, forms=forms_of(key)) == f"key: {HIDDEN}"


@settings(max_examples=examples(400))
@given(KEYS, st.lists(st.sampled_from(LAYERS), max_size=3))
def test_any_key_that_is_encoded_as_a_whole_is_hidden(key: str, layers: list[Callable[[str], str]]) -> None:
    """Property: one encoding in another, as a gateway's log in a provider's error; also keys that look like escapes."""
    said = key
    for layer in layers:
        said = layer(said)
    assert hide_forms(f"key: {said} .", forms=forms_of(key)) == f"key: {HIDDEN} ."


@settings(max_examples=examples(400))
@given(
    st.lists(st.sampled_from(["sk-very", KEY, "50%", "a\\b", "AT&T", " ", "é\n", KEY[:15]]), max_size=5), st.randoms()
)
def test_escaped_words_are_the_same_however_they_are_cut(parts: list[str], chance: Random) -> None:
    """Property: a stream shows what is kept of the whole text, or hides more of it; nothing of the key comes before."""
    text = "".join([spelled(part, chance=chance) if part.startswith("sk-") else part for part in parts])
    cuts = sorted({chance.randrange(len(text) + 1) for _ in range(12)})
    deltas = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    hider = WordsHider(forms_of(KEY))
    shown = [frame for delta in deltas for frame in hider.hide([TextDelta(delta)])] + hider.flush()
    said = "".join([frame.text for frame in shown if isinstance(frame, TextDelta)])
    assert KEY[:TELLTALE] not in plain(said) and "tail" not in plain(said)
    if HIDDEN not in hide_forms(text, forms=forms_of(KEY)):
        assert said == text


@given(st.text(st.sampled_from('%25fF2\\u0x/n"&amp;#47sol é')))
def test_the_places_of_a_plain_text_are_those_of_its_characters(text: str) -> None:
    """Property: one place for each character, in order, and the same text with and without them."""
    shown, places = plain_spans(text)
    assert shown == plain(text) and len(places) == len(shown) + 1
    assert places == sorted(set(places)) and places[-1] == len(text)


@pytest.mark.parametrize("run", ["\\", "%25", "%", "&amp;", "&", "&#0", "\\u00"])
def test_a_long_run_of_what_begins_an_escape_costs_little(run: str) -> None:
    """It would take hours if each of its places were tried with each of its ends."""
    text = run * 40_000
    assert hide_forms(text, forms=forms_of(KEY)) == text


@pytest.mark.parametrize("piece", ["%25", "&amp;", "\\\\"])
def test_a_stream_of_what_begins_an_escape_does_not_wait_for_its_end(piece: str) -> None:
    """It would be held and read again with each delta."""
    hider = WordsHider(forms_of(KEY))
    shown = [frame for _ in range(3000) for frame in hider.hide([TextDelta(piece)])]
    said = "".join([frame.text for frame in shown if isinstance(frame, TextDelta)])
    assert len(said) > 3000 * len(piece) - 2000
    assert said + "".join([frame.text for frame in hider.flush() if isinstance(frame, TextDelta)]) == piece * 3000


@pytest.mark.parametrize("text", ["100% of a&b at C:\\users\\new", '{"a":"\\u00e9"}', "%20&nbsp;\\n"])
def test_a_text_without_the_key_stays_as_it_is(text: str) -> None:
    assert hide_forms(text, forms=forms_of(KEY)) == text


@each("slash", SLASHES)
async def test_an_error_shows_no_part_of_an_escaped_key(slash: str) -> None:
    """From end to end: a body in JSON, written by hand so that the escapes are the server's own."""
    said = f'{{"error":{{"message":"Incorrect API key: {KEY.replace("/", slash)}.","code":"invalid_api_key"}}}}'
    agent = flat_agent(
        "openai_chat:m", api_key=KEY, base_url="http://lab.invalid", transport=Says(said.encode(), status=401)
    )
    result = await agent.run("x")
    assert "tail" not in str(result) and "***" in str(result)
