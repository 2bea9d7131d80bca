"""Cut writes, all of them: two sizes, three limits, four families, streamed and not, every finish reason, both ways out."""

from pathlib import Path

import pytest

from flat_agents import flat_agent
from lab.cut_cells import MODELS, OBJECTS, TELL_USAGE_LAST, WAYS, Cell, Told, cells, measure
from turnwise import Settings
from turnwise.lab import Lab
from turnwise.lab.families import FAMILIES
from turnwise.lab.families.family import Conversation, Offered, SentMessage
from turnwise.lab.provider import encoded
from turnwise.lab.replies import LabRequest, TokenRoom
from turnwise.lab.script import Script, Writer
from turnwise.lab.writer import file_text, writer_reply
from turnwise.tools.workspace import workspace_tools
from turnwise.vocab import Request, StopReason
from turnwise.wire.family import family as find_family

pytestmark = pytest.mark.wide

MATRIX = cells()


@pytest.mark.promise("cut:continued", "cut:split", "cut:never-run")
@pytest.mark.parametrize("cell", MATRIX, ids=str)
async def test_every_cut_write_ends_in_the_wanted_file(cell: Cell, tmp_path: Path) -> None:
    """Proves: byte for byte, one run of the tool where the call is continued, and at the output tokens that are allowed."""
    measured = await measure(cell, folder=tmp_path)
    assert measured.wrong == ()


def test_the_matrix_is_whole() -> None:
    """Proves: no cell is left out, and `missing` stands wherever it differs from `none`."""
    assert len(MATRIX) == len(set(MATRIX)) == 2 * 2 * 3 * (4 * len(WAYS) + len(TELL_USAGE_LAST))


# How each family's own words claim it, in a stream and in a body.
WORDS: dict[str, dict[Told, tuple[bytes, bytes]]] = {
    "openai_chat": {
        "true": (b'"finish_reason":"length"', b'"finish_reason":"length"'),
        "tool_calls": (b'"finish_reason":"tool_calls"', b'"finish_reason":"tool_calls"'),
        "stop": (b'"finish_reason":"stop"', b'"finish_reason":"stop"'),
    },
    "openai_responses": {
        "true": (b'"reason":"max_output_tokens"', b'"reason":"max_output_tokens"'),
        "tool_calls": (b'"type":"response.completed"', b'"status":"completed"'),
        "stop": (b'"type":"response.completed"', b'"status":"completed"'),
    },
    "anthropic_messages": {
        "true": (b'"stop_reason":"max_tokens"', b'"stop_reason":"max_tokens"'),
        "tool_calls": (b'"stop_reason":"tool_use"', b'"stop_reason":"tool_use"'),
        "stop": (b'"stop_reason":"end_turn"', b'"stop_reason":"end_turn"'),
    },
    "gemini": {
        "true": (b'"finishReason":"MAX_TOKENS"', b'"finishReason":"MAX_TOKENS"'),
        "tool_calls": (b'"finishReason":"STOP"', b'"finishReason":"STOP"'),
        "stop": (b'"finishReason":"STOP"', b'"finishReason":"STOP"'),
    },
}


def said_by(family: str, *, told: Told, streamed: bool) -> bytes:
    """A cut response as it goes over the wire, without white space."""
    reply = writer_reply(
        Writer(size=40_000, finish=told),
        LabRequest(
            conversation=Conversation(
                said=(SentMessage(role="user", texts=("Write.",)),), tools=(Offered(name="write", schema=None),)
            ),
            family=FAMILIES[family],
            streamed=streamed,
            room=TokenRoom(output=100, thinking=None),
            prompt_bytes=100,
        ),
    )
    request = Request(model="writer", messages=(), stream=streamed)
    outgoing = encoded(find_family(family), reply=reply, request=request, streamed=streamed)
    return b"".join(outgoing.pieces).replace(b": ", b":")


@pytest.mark.promise("cut:never-run")
@pytest.mark.parametrize(("family", "streamed"), [way for way in WAYS if way[0] in WORDS])
def test_the_lab_tells_the_truth_and_lies_in_each_familys_words(family: str, streamed: bool) -> None:
    """Proves: what the matrix calls a false or missing finish reason is one on the wire."""
    words: dict[Told, bytes] = {told: both[0 if streamed else 1] for told, both in WORDS[family].items()}
    for told, word in words.items():
        sent = said_by(family, told=told, streamed=streamed)
        assert word in sent, (told, sent[-600:])
        assert all(other not in sent for other in words.values() if other != word), (told, sent[-600:])
    silent: tuple[Told, ...] = ("none", "missing")
    for told in silent:
        sent = said_by(family, told=told, streamed=streamed)
        assert not any(word in sent for word in words.values()), (told, sent[-600:])


@pytest.mark.promise("cut:split")
@pytest.mark.parametrize(("family", "stream"), OBJECTS)
async def test_a_cap_of_steps_ends_a_write_in_pieces_honestly_and_the_next_turn_goes_on(
    family: str, stream: bool, tmp_path: Path
) -> None:
    """Proves: 200 KB in pieces of 2,000 tokens take more than 20 steps: the turn says so, what is written is a beginning of
    the wanted file, and the session can be gone on with until it is whole."""
    writer = Writer(size=200_000)
    lab = Lab([Script(name="writer", title="writes", writer=writer, prefill=False)])
    agent = flat_agent(
        MODELS[family],
        base_url="http://lab/v1",
        api_key="lab",
        transport=lab.transport(),
        tools=workspace_tools(tmp_path),
        settings=Settings(max_output_tokens=2000),
        stream=stream,
    )
    wanted = file_text(200_000).encode()
    first = await agent.run("Write it, please.")
    written = (tmp_path / "big.txt").read_bytes()
    assert (first.stop_reason, first.complete, first.steps) == (StopReason.STEP_LIMIT, False, 20)
    assert wanted.startswith(written) and len(written) > 80_000
    second = await agent.run("Go on.", history=first.history)
    assert (second.stop_reason, second.complete) == (StopReason.STEP_LIMIT, False)
    third = await agent.run("Go on.", history=second.history)
    assert (third.stop_reason, third.complete) == (StopReason.ANSWERED, True)
    assert (tmp_path / "big.txt").read_bytes() == wanted
