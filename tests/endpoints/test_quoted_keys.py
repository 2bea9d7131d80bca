"""A key that a provider's answer quotes back is hidden there as in errors (issue 14, line 11)."""

import base64
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flat_agents import flat_agent
from journal.ledgered import FAMILIES
from tables import each
from thoroughness import examples
from turnwise import Journal
from turnwise.base.clock import SystemClock
from turnwise.endpoints.endpoints import Endpoint, Secret
from turnwise.endpoints.key_hiding import TELLTALE, WordsHider, forms_of
from turnwise.endpoints.transport import HttpReply, HttpRequest
from turnwise.lab import Lab, parse_script
from turnwise.running.watcher_events import FrameSeen, WatcherEvent
from turnwise.vocab import TextDelta
from turnwise.wire.profiles import builtin_profiles
from wire.test_untold_counts import body

KEY = "sk-live-0123456789abcdefXYZ"
BASIC = base64.b64encode(f"user:{KEY}".encode()).decode()
QUOTES = {"as it is": KEY, "base64": base64.b64encode(KEY.encode()).decode(), "basic": BASIC}


def kept_in(journal: Journal, session: str) -> str:
    (turn,) = journal.find_session(session).turns
    return msgspec.json.encode(journal.entries(turn.id)).decode()


def leaks(text: str) -> bool:
    return any(form[:TELLTALE] in text for form in forms_of(KEY))


@each("quote", QUOTES)
@each("family", FAMILIES)
async def test_a_key_in_an_answer_is_neither_shown_nor_journalled(family: str, quote: str) -> None:
    """Streamed by the lab in small pieces: in frames, result and journal."""
    text = f"You said {QUOTES[quote]}, did you not?"
    script = parse_script(f'title = "quotes"\n[[steps]]\ntext = "{text}"\n', name="quotes")
    seen: list[WatcherEvent] = []
    with Journal(None, clock=SystemClock()) as journal:
        agent = flat_agent(
            f"{family}:quotes",
            api_key=KEY,
            base_url="http://lab.invalid",
            transport=Lab([script]).transport(),
            journal=journal,
        )
        result = await agent.run("x", watch=seen.append)
        kept = kept_in(journal, result.session)
    shown = [one.frame.text for one in seen if isinstance(one, FrameSeen) and isinstance(one.frame, TextDelta)]
    assert result.text.startswith("You said ") and result.text.endswith(", did you not?")
    assert "***" in result.text
    assert "".join(shown) == result.text
    assert not leaks(result.text) and not leaks("".join(shown)) and not leaks(kept)


class Says:
    """A transport that answers with one body."""

    def __init__(self, answer: bytes, *, status: int = 200) -> None:
        self._answer = answer
        self._status = status

    @asynccontextmanager
    async def send(self, request: HttpRequest) -> AsyncGenerator[HttpReply]:
        async def chunks() -> AsyncGenerator[bytes]:
            yield self._answer

        yield HttpReply(status=self._status, headers={"content-type": "application/json"}, chunks=chunks())


@each("status", [200, 400])
@each("quote", QUOTES)
@each("family", FAMILIES)
async def test_a_key_in_a_body_is_neither_shown_nor_journalled(family: str, quote: str, status: int) -> None:
    """In an answer, in its usage, and in an error."""
    usage = {"note": QUOTES[quote], "prompt_tokens": 3, "input_tokens": 3, "promptTokenCount": 3}
    with Journal(None, clock=SystemClock()) as journal:
        agent = flat_agent(
            f"{family}:m",
            api_key=KEY,
            base_url="http://lab.invalid",
            transport=Says(body(family, usage, text=f"You sent {QUOTES[quote]}."), status=status),
            stream=False,
            journal=journal,
        )
        result = await agent.run("x")
        kept = kept_in(journal, result.session)
        ledger = msgspec.json.encode([entry.usage for entry in result.ledger]).decode()
    assert not leaks(result.shown_text) and not leaks(kept) and not leaks(ledger)


PIECES = st.lists(
    st.sampled_from(["s", "sk-", "sk-live", KEY, KEY[:9], KEY[9:], KEY[:20], "word ", "\n", BASIC]), max_size=8
)


@settings(max_examples=examples(300))
@given(PIECES, st.randoms(use_true_random=False))
def test_words_are_the_same_however_they_are_cut(parts: list[str], chance: object) -> None:
    """Property: what is shown of a text in deltas is what is kept of it whole, or differs in hidden places only; no key in it."""
    text = "".join(parts)
    cuts = sorted({chance.randrange(len(text) + 1) for _ in range(6)} if text else set())  # pyright: ignore[reportAttributeAccessIssue]
    deltas = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    hider = WordsHider(forms_of(KEY))
    shown = [frame for delta in deltas for frame in hider.hide([TextDelta(delta)])] + hider.flush()
    said = "".join([frame.text for frame in shown if isinstance(frame, TextDelta)])
    assert not leaks(said)
    if not leaks(text):
        assert said == text


@pytest.mark.parametrize("key", ["lm-studio", "not-needed-by-this-server", "short1"])
def test_a_key_that_may_be_a_word_is_left_in_answers(key: str) -> None:
    """Local servers take any key; an honest answer may hold such a word. Errors hide it, from 8 characters on."""
    endpoint = Endpoint(profile=builtin_profiles()["openai_chat"], base_url="http://x.invalid", key=Secret(key))
    assert endpoint.forms_in_words == ()
    assert WordsHider(endpoint.forms_in_words).hide([TextDelta(key)]) == [TextDelta(key)]
    assert (endpoint.scrub(key) == "***") is (len(key) >= 8)
