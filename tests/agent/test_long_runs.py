"""Long turns and sessions under a small window: the library's face against the lab, which counts the bytes that it was sent,
refuses what is past its window, and knows of the first message only what stands in the request."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from flat_agents import flat_agent
from turnwise import Agent, Journal, ModelLimits, RunResult, tool
from turnwise.base.clock import SystemClock
from turnwise.lab import Lab
from turnwise.lab.provider import Received
from turnwise.lab.script import load_scripts

pytestmark = pytest.mark.wide

SMALL = ModelLimits(context_window_tokens=32_000, max_output_tokens=4_000)
BASES = {"openai_chat": "/v1", "openai_responses": "/v1", "anthropic_messages": "", "gemini": "/v1beta"}
SCRIPTS = list(load_scripts(Path(__file__).parents[1] / "lab" / "room").values())
CAT = "My cat is called Maunz."
PARTS_A_TURN = 9  # of ten steps, the last is the answer
PADDING = "This is of no great importance, but I wanted to say it all the same. "


@tool(effect="read")
def read(path: str) -> str:
    """Read a file."""
    part = int(path.removeprefix("part-").removesuffix(".txt"))
    return f"part {part}\n" + "There is little of note here.\n" * 100 + f"the next part is part-{part + 1:03}.txt"


class Spoken:
    """Runs of one agent against one lab, and what the lab saw of each."""

    def __init__(self, lab: Lab, agent: Agent) -> None:
        self.lab, self.agent = lab, agent
        self.results: list[RunResult] = []
        self.received: list[Sequence[Received]] = []

    async def say(self, text: str) -> RunResult:
        seen = len(self.lab.requests)
        session = self.results[-1].session if self.results else ""
        result = await (self.agent.run(text, session=session) if session else self.agent.run(text))
        self.results.append(result)
        self.received.append(self.lab.requests[seen:])
        return result

    def check(self) -> int:
        """No request was refused or too long, each summary made the prompt smaller, and each is named; how many there were."""
        requests = self.lab.requests
        assert [one.refused for one in requests if one.refused] == []
        for one in requests:
            assert one.usage is not None
            assert one.request is not None
            assert one.usage.input_tokens + (one.request.settings.max_output_tokens or 0) <= 32_000
        for before, after in pairwise(requests):
            if before.is_summary:
                assert before.usage is not None
                assert after.usage is not None
                assert after.usage.input_tokens < before.usage.input_tokens * 9 // 10
        for result, received in zip(self.results, self.received, strict=True):
            kinds = Counter("compact" if one.is_summary else "step" for one in received)
            assert result.requests_by_purpose == dict(kinds)
            assert result.requests == len(received)
        return sum([one.is_summary for one in requests])


def agent_for(lab: Lab, *, family: str, max_steps: int, journal: Journal | None = None) -> Agent:
    return flat_agent(
        f"{family}:remembers",
        base_url=lab.url + BASES[family],
        api_key="lab",
        tools=[read],
        model_limits=SMALL,
        max_steps=max_steps,
        stream=False,
        journal=journal,
    )


@pytest.mark.promise("cut:budget")
@pytest.mark.parametrize("family", BASES)
async def test_three_hundred_steps_under_a_small_window_never_overflow(family: str) -> None:
    """Done when 6 in one turn: no overflow, each summary shrinks and is named, and the answer knows the first message."""
    async with Lab(SCRIPTS) as lab:
        spoken = Spoken(lab, agent_for(lab, family=family, max_steps=300))
        result = await spoken.say(f"{CAT} Begin with part-001.txt and read on.")
        assert 0 < spoken.check() < 40
    assert result.steps == 300
    assert result.text.startswith("The cat is Maunz, the dog (I do not know). So far I have read: part 299\n")


@pytest.mark.promise("cut:budget")
@pytest.mark.parametrize("family", BASES)
async def test_eight_turns_of_twenty_steps_go_on_from_the_summaries(family: str) -> None:
    """Done when 6 in a session: the next turn starts from what the one before it left, so there are no more summaries than in
    one long turn; the whole messages stay; the last turn knows the first message."""
    async with Lab(SCRIPTS) as lab:
        with Journal(None, clock=SystemClock()) as journal:
            agent = agent_for(lab, family=family, max_steps=20, journal=journal)
            spoken = Spoken(lab, agent)
            for turn in range(8):
                greeting = CAT if turn == 0 else "Go on."
                result = await spoken.say(f"{greeting} Begin with part-{turn * 19 + 1:03}.txt.")
                assert (result.steps, result.text.partition(",")[0]) == (20, "The cat is Maunz")
            result = await spoken.say("What are they called?")
            turns = journal.find_session(result.session).turns
            kept = [journal.requests_by_purpose(turn.id) for turn in turns]
        assert 0 < spoken.check() < 40
        assert kept == [one.requests_by_purpose for one in spoken.results]
    assert result.text == "The cat is Maunz, the dog (I do not know)."
    assert len(result.messages) == 8 * 40 + 2
    assert len(result.history) < 150
    assert result.messages == tuple([message for one in spoken.results for message in one.new_messages])


@pytest.mark.promise("cut:budget")
@pytest.mark.parametrize(
    ("family", "size"), [*[(family, 90_000) for family in BASES], ("openai_chat", 30_000), ("openai_chat", 60_000)]
)
async def test_a_first_message_that_takes_much_of_the_window_is_remembered(family: str, size: int) -> None:
    """Longer than what a summary leaves room for: no overflow, and its words are known, at the beginning and at the end."""
    padding = PADDING * (size // len(PADDING))
    async with Lab(SCRIPTS) as lab:
        with Journal(None, clock=SystemClock()) as journal:
            agent = agent_for(lab, family=family, max_steps=10, journal=journal)
            spoken = Spoken(lab, agent)
            await spoken.say(f"{CAT} {padding} My dog is called Rex. Begin with part-001.txt.")
            for turn in range(1, 4):
                result = await spoken.say(f"Begin with part-{turn * PARTS_A_TURN + 1:03}.txt.")
                assert result.text.startswith("The cat is Maunz, the dog Rex.")
            result = await spoken.say("What are they called?")
        spoken.check()
    assert result.text == "The cat is Maunz, the dog Rex."


@pytest.mark.promise("cut:budget")
@pytest.mark.parametrize("family", BASES)
async def test_users_words_that_no_longer_fit_stand_in_the_summary(family: str) -> None:
    """Of many long messages the oldest but the first give way: a phrase of theirs is known from the summary."""
    padding = PADDING * 80
    async with Lab(SCRIPTS) as lab:
        with Journal(None, clock=SystemClock()) as journal:
            agent = agent_for(lab, family=family, max_steps=10, journal=journal)
            spoken = Spoken(lab, agent)
            for turn in range(14):
                words = (CAT, "My dog is called Rex.")[turn] if turn < 2 else ""
                await spoken.say(f"{words} {padding} Begin with part-{turn * PARTS_A_TURN + 1:03}.txt.")
            result = await spoken.say("What are they called?")
        assert spoken.check() > 0
        body = lab.requests[-1].body.decode()
    assert result.text == "The cat is Maunz, the dog Rex."
    assert "The user said: My dog is called Rex." in body
    assert f"My dog is called Rex. {PADDING * 2}" not in body
