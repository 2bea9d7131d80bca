"""The journal holds the hash of each body that left, though nobody reads a long history again for it."""

import hashlib

from flat_agents import flat_agent
from turnwise import Journal
from turnwise.endpoints.endpoints import BodyHash
from turnwise.journal.turn_writer import RequestSent
from turnwise.testing import FakeClock, ScriptedModel, call
from turnwise.testing.scripted_model import BASE_URL
from turnwise.turn.events import PrepareStep, StepPrepared
from turnwise.wire.family import HttpCall

# Bodies in a row, and how many bytes at the beginning of each are those of the one before.
BODIES = (("[a]", 0), ("[a,b]", 0), ("[a,b,c]", 2), ("[a,b,c!", 6), ("[a,B]", 3), ("[a,B,c]", 4), ("x", 0), ("xy", 1))


def test_hashes_are_those_of_whole_bodies_however_much_is_known() -> None:
    hashes = BodyHash()
    for body, same_bytes in BODIES:
        sent = HttpCall(path="/", body=body.encode(), same_bytes=same_bytes)
        assert hashes.sha256_of(sent) == hashlib.sha256(body.encode()).hexdigest()


def test_marks_for_the_providers_cache_are_no_part_of_it() -> None:
    """Promise step:prefix-stable: they stand at other places in each body, and `same_bytes` leaves them out."""
    for marks in ((), ((1, 2),), ((1, 2), (5, 7)), ((0, 1), (9, 10))):
        hashes = BodyHash()
        for body, same_bytes in (("abcdefghij", 0), ("abcdefghij", 4), ("abcdefghij", 7), ("abcdefghij", 2)):
            left = "".join([one for at, one in enumerate(body) if not any(start <= at < end for start, end in marks)])
            sent = HttpCall(path="/", body=body.encode(), same_bytes=same_bytes, marks=marks)
            assert hashes.sha256_of(sent) == hashlib.sha256(left.encode()).hexdigest()


def look(place: str) -> str:
    return f"{place}: nothing"


def prepare(view: PrepareStep) -> StepPrepared | None:
    """A word for one request only, another model, and no tools: each begins the body otherwise."""
    changes = {
        3: StepPrepared(instruction="Hurry."),
        5: StepPrepared(model="another"),
        6: StepPrepared(tools=()),
    }
    return changes.get(view.step)


async def test_each_request_is_journalled_with_the_hash_of_what_left() -> None:
    """Over steps that go on from the one before, and steps that begin otherwise (promise keep:crash: the hash stands for
    the body that may have been billed)."""
    clock = FakeClock()
    model = ScriptedModel([*[call("look", place=str(number)) for number in range(8)], "Nothing anywhere."])
    with Journal(None, clock=clock) as journal:
        agent = flat_agent(
            "openai_chat:m",
            base_url=BASE_URL,
            tools=[look],
            transport=model,
            clock=clock,
            journal=journal,
            prepare_step=prepare,
        )
        result = await agent.run("Look around.")
        (turn,) = journal.find_session(result.session).turns
        sent = [entry.record for entry in journal.entries(turn.id) if isinstance(entry.record, RequestSent)]
    assert [(one.body_sha256, one.body_bytes) for one in sent] == [
        (hashlib.sha256(http.body).hexdigest(), len(http.body)) for http in model.requests
    ]
    assert len(sent) == result.requests == 9
