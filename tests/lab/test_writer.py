"""The scripted writer: it counts, stops where it is told, is cut as its family cuts, and goes on from what it is shown."""

import json
from typing import Literal

import aiohttp
import msgspec
import pytest

from lab.writing import START, Asking, with_results
from turnwise.lab import Lab
from turnwise.lab.families import openai_chat
from turnwise.lab.families.family import Conversation, Offered, SentMessage
from turnwise.lab.replies import LabRequest, TokenRoom
from turnwise.lab.script import Habit, Script, ScriptedCall, ScriptedFault, Writer
from turnwise.lab.writer import file_text, intention, room_of, writer_reply
from turnwise.rules.advice import in_pieces
from turnwise.rules.recovery import Cut
from turnwise.vocab import ArgumentsState, FinishReason, Message, Reasoning, Text, ToolCall, calls_of, text_of

FAMILIES = ("openai_chat", "openai_responses", "anthropic_messages", "gemini")
RAW = [
    ("openai_chat", True),
    ("openai_chat", False),
    ("openai_responses", True),
    ("openai_responses", False),
    ("anthropic_messages", True),
]
OBJECTS = [("anthropic_messages", False), ("gemini", True), ("gemini", False)]
Claim = Literal["true", "tool_calls", "stop", "none"]
CLAIMS: tuple[Claim, ...] = ("true", "tool_calls", "stop", "none")
TWO_PIECES = f"Not run: cut off. {in_pieces('that are shorter', how='one part now')}"


def first_cut(asking: Asking) -> Cut:
    cut = asking.cut_of(asking.ask(START))
    assert cut is not None
    return cut


@pytest.mark.promise("cut:continued")
@pytest.mark.parametrize(("family", "streamed"), RAW)
@pytest.mark.parametrize("finish", CLAIMS)
@pytest.mark.parametrize("limit", [2000, 8000])
def test_a_file_is_continued_wherever_a_prefix_can_be_had(
    family: str, streamed: bool, finish: Claim, limit: int
) -> None:
    """Proves: the stitched arguments are the wanted ones, whatever the finish reason claims, at 1.05 x their tokens."""
    asking = Asking(Writer(size=40_000, finish=finish), family=family, streamed=streamed, limit=limit)
    (one,) = first_cut(asking).calls
    assert one.prefix is not None and one.call.state is ArgumentsState.TRUNCATED
    text = asking.continued(one.prefix, kind="json", tool="write")
    assert text is not None
    assert json.loads(text) == {"path": "big.txt", "content": file_text(40_000)}
    assert asking.usage.output_tokens <= 1.05 * len(text.encode()) / 4


@pytest.mark.promise("cut:never-run")
@pytest.mark.parametrize(("family", "streamed"), OBJECTS)
@pytest.mark.parametrize("finish", CLAIMS)
def test_an_object_that_the_limit_cut_counts_as_cut_without_a_prefix(
    family: str, streamed: bool, finish: Claim
) -> None:
    """Proves: where a call comes as an object, the tokens at the limit tell, whatever the finish reason claims."""
    asking = Asking(Writer(size=40_000, finish=finish), family=family, streamed=streamed, limit=2000)
    (one,) = first_cut(asking).calls
    assert (json.loads(one.call.arguments), one.prefix) == ({"path": "big.txt"}, None)


@pytest.mark.parametrize(
    "habits", [("repeats",), ("fences",), ("apologises",), ("adds",), ("apologises", "repeats", "fences", "adds")]
)
@pytest.mark.parametrize("family", ["openai_chat", "openai_responses"])
def test_habits_that_show_the_seam_end_in_the_right_file(habits: tuple[Habit, ...], family: str) -> None:
    """Proves: repeating, fencing, apologising and closing words are taken off, over several cuts."""
    asking = Asking(Writer(size=40_000, habits=habits, escapes=True), family=family, streamed=True, limit=4000)
    (one,) = first_cut(asking).calls
    assert one.prefix is not None
    text = asking.continued(one.prefix, kind="json", tool="write")
    assert text is not None and json.loads(text)["content"] == file_text(40_000)


@pytest.mark.promise("cut:split")
@pytest.mark.parametrize("habits", [("restarts",), ("ignores",), ("nothing",), ("calls",)])
def test_habits_that_show_none_are_refused(habits: tuple[Habit, ...]) -> None:
    """Proves: what cannot be joined is not joined."""
    asking = Asking(Writer(size=40_000, habits=habits), family="openai_chat", streamed=True, limit=4000)
    (one,) = first_cut(asking).calls
    assert one.prefix is not None
    assert asking.continued(one.prefix, kind="json", tool="write") is None
    assert asking.requests == 2


@pytest.mark.promise("cut:text-continued")
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("streamed", [True, False])
def test_a_long_answer_is_continued_in_every_family(family: str, streamed: bool) -> None:
    """Proves: 30,000 tokens under a limit of 4,000 come out as the wanted text."""
    asking = Asking(Writer(size=120_000, writes="answer"), family=family, streamed=streamed, limit=4000)
    cut = first_cut(asking)
    assert cut.calls == ()
    assert asking.continued(cut.text, kind="text", tool="") == file_text(120_000).strip()
    assert asking.usage.output_tokens <= 1.05 * 30_000


@pytest.mark.promise("cut:split")
@pytest.mark.parametrize("writes", ["file", "two-files", "patch"])
@pytest.mark.parametrize("family", FAMILIES)
def test_after_the_split_notice_it_writes_in_pieces_that_fit(
    writes: Literal["file", "two-files", "patch"], family: str
) -> None:
    """Proves: pieces add up to the wanted content, none of them is cut, and what they cost stays below twice the file."""
    asking = Asking(Writer(size=40_000, writes=writes), family=family, streamed=False, limit=2000)
    response = asking.ask(START)
    assert asking.cut_of(response) is not None
    messages = START
    results = dict.fromkeys(("write", "apply_patch"), TWO_PIECES)
    written: dict[str, str] = {}
    while calls_of(response.message):
        messages += with_results(response, results=results)
        results = dict.fromkeys(("write", "apply_patch"), "done")
        response = asking.ask(messages)
        assert asking.cut_of(response) is None
        for call in calls_of(response.message):
            given = json.loads(call.arguments)
            for path, content, append in (
                [(edit["path"], edit["new"], True) for edit in given["edits"]]
                if "edits" in given
                else [(given["path"], given["content"], given.get("append", False))]
            ):
                written[path] = (written.get(path, "") if append else "") + content
    wanted = {"big.txt": file_text(40_000)}
    if writes == "two-files":
        wanted["second-big.txt"] = file_text(40_000, seed=2)
    assert written == wanted
    assert text_of(response.message) == f"{' and '.join(wanted)} written."
    assert asking.usage.output_tokens <= 2 * len(wanted) * 11_500


@pytest.mark.promise("cut:complete-sibling")
@pytest.mark.parametrize(("family", "streamed"), RAW)
def test_a_cut_call_beside_a_whole_one(family: str, streamed: bool) -> None:
    """Proves: only the call that was being written is cut, and it can be continued."""
    asking = Asking(Writer(writes="beside-read"), family=family, streamed=streamed, limit=4000)
    response = asking.ask(START)
    assert [(call.name, call.state) for call in calls_of(response.message)] == [
        ("read", "complete"),
        ("write", "truncated"),
    ]
    cut = asking.cut_of(response)
    assert cut is not None and [one.call.name for one in cut.calls] == ["write"]
    assert cut.calls[0].prefix is not None
    assert asking.continued(cut.calls[0].prefix, kind="json", tool="write") is not None


@pytest.mark.promise("cut:continued")
@pytest.mark.parametrize(
    ("writes", "limit"), [("patch", 500), ("patch", 1500), ("two-files", 1500), ("two-files", 3500)]
)
def test_a_nested_array_and_the_second_of_two_calls_are_continued(
    writes: Literal["patch", "two-files"], limit: int
) -> None:
    """Proves: an array that could be closed well is not closed but gone on with, and a whole call before it stays whole."""
    writer = Writer(size=8000, writes=writes)
    asking = Asking(writer, family="openai_chat", streamed=True, limit=limit)
    said = Conversation(
        said=(SentMessage(role="user", texts=("Write.",)),), tools=(Offered(name="write", schema=None),)
    )
    wanted = [call.json for call in intention(writer, conversation=said, limit_tokens=None)[0]]
    response = asking.ask(START)
    cut = asking.cut_of(response)
    assert cut is not None and len(cut.calls) == 1 and cut.calls[0].prefix is not None
    arrived = [call.arguments for call in calls_of(response.message)]
    assert arrived[:-1] == wanted[: len(arrived) - 1]
    text = asking.continued(cut.calls[0].prefix, kind="json", tool=cut.calls[0].call.name)
    assert text == wanted[len(arrived) - 1]


def test_the_cut_falls_at_every_byte() -> None:
    """Proves: whatever the limit, what arrives is the beginning of what it wants to write: inside escapes, keys, between
    calls; a character that was cut is dropped, or replaced where the server does so."""
    writer = Writer(size=1200, writes="two-files", seed=5)
    conversation = Conversation(
        said=(SentMessage(role="user", texts=("Write.",)),), tools=(Offered(name="write", schema=None),)
    )
    wanted, _ = intention(writer, conversation=conversation, limit_tokens=None)
    stream = "".join([call.name + call.json for call in wanted])
    for half in ("", "\ufffd"):
        for limit in range(1, len(stream.encode()) // 4 + 3):
            reply = writer_reply(
                Writer(size=1200, writes="two-files", seed=5, half="\ufffd" if half else ""),
                LabRequest(
                    conversation=conversation,
                    family=openai_chat.FAMILY,
                    streamed=True,
                    room=TokenRoom(output=limit, thinking=None),
                    prompt_bytes=100,
                ),
            )
            calls = calls_of(reply.response.message)
            got = "".join([call.name + call.arguments for call in calls])
            assert stream.startswith(got.rstrip("\ufffd")) or got == calls[0].name or got.endswith("write")
            whole = limit * 4 >= len(stream.encode())
            assert reply.response.finish is (FinishReason.TOOL_CALLS if whole else FinishReason.LENGTH)


@pytest.mark.promise("cut:thinking-ate-all")
def test_reasoning_that_eats_the_output_leaves_room_where_less_is_asked_for() -> None:
    """Proves: the limit counts reasoning too, nothing else comes of it, and a smaller budget leaves room."""
    writer = Writer(size=2000, writes="answer", thinks=3000)
    asking = Asking(writer, family="openai_responses", streamed=True, limit=1000)
    response = asking.ask(START)
    assert [type(part) for part in response.message.parts] == [Reasoning]
    cut = asking.cut_of(response)
    assert cut == Cut(limited=True)
    asking.limit = 4000
    assert text_of(asking.ask(START).message) == file_text(2000).strip()


def test_a_wrong_byte_in_the_prefix_gives_a_wrong_continuation() -> None:
    """Proves: the lab notices a prefix that is not the model's own text."""
    asking = Asking(Writer(size=3000), family="openai_chat", streamed=True, limit=None)
    whole = calls_of(asking.ask(START).message)[0].arguments
    for shown, right in ((whole[:1000], True), (whole[:999] + "§", False)):
        messages = (*START, Message("assistant", (Text(shown),)), Message("user", (Text("Go on."),)))
        said = text_of(asking.ask(messages, tool_choice="none").message)
        assert (shown + said == whole) is right


@pytest.mark.parametrize(
    ("family", "body", "room"),
    [
        ("openai_chat", {"max_tokens": 5, "reasoning_effort": "low"}, TokenRoom(output=5, thinking=40)),
        ("openai_chat", {"max_completion_tokens": 6}, TokenRoom(output=6, thinking=None)),
        (
            "openai_responses",
            {"max_output_tokens": 7, "reasoning": {"effort": "high"}},
            TokenRoom(output=7, thinking=None),
        ),
        (
            "anthropic_messages",
            {"max_tokens": 8, "thinking": {"type": "enabled", "budget_tokens": 3}},
            TokenRoom(output=8, thinking=3),
        ),
        (
            "gemini",
            {"generationConfig": {"maxOutputTokens": 9, "thinkingConfig": {"thinkingBudget": 4}}},
            TokenRoom(output=9, thinking=4),
        ),
        (
            "anthropic_messages",
            {"max_tokens": 8, "thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}},
            TokenRoom(output=8, thinking=40),
        ),
        (
            "gemini",
            {"generationConfig": {"maxOutputTokens": 9, "thinkingConfig": {"thinkingLevel": "LOW"}}},
            TokenRoom(output=9, thinking=40),
        ),
    ],
)
def test_limits_are_read_under_each_familys_names(family: str, body: dict[str, object], room: TokenRoom) -> None:
    """Proves: whatever a family calls its limit, it is honoured."""
    assert room_of(json.loads(json.dumps(body))) == room


@pytest.mark.parametrize(("family", "streamed"), RAW)
def test_a_writer_writes_with_the_tool_that_it_is_given(family: str, streamed: bool) -> None:
    """Proves: the file goes into the arguments of an agent's own tool, it is continued there, and is written once."""
    tool = ScriptedCall(name="write", arguments={"cmd": "cat > {path} <<'END'\n{content}\nEND", "login": False})
    wanted = {"cmd": f"cat > big.txt <<'END'\n{file_text(40_000)}\nEND", "login": False}
    asking = Asking(Writer(size=40_000, tool=tool), family=family, streamed=streamed, limit=8000)
    first = asking.ask(START)
    cut = asking.cut_of(first)
    assert cut is not None
    prefix = cut.calls[0].prefix
    assert prefix is not None
    text = asking.continued(prefix, kind="json", tool="write")
    assert text is not None and json.loads(text) == wanted
    made = ToolCall(id="call_1", name="write", arguments=json.dumps({**wanted, "timeout": 10}))
    whole = msgspec.structs.replace(first, message=Message("assistant", (made,)), finish=FinishReason.TOOL_CALLS)
    ended = asking.ask((*START, *with_results(whole, results={"write": "done"})))
    assert (text_of(ended.message), calls_of(ended.message)) == ("big.txt written.", ())


async def test_a_writer_fails_where_it_is_told_and_writes_then() -> None:
    """Proves: requests with the same words count as one, whatever else they say, and a request without a call never fails."""
    script = Script(name="failing", title="", writer=Writer(size=400, faults=(ScriptedFault(kind="status"),)))
    tool = {"type": "function", "function": {"name": "write", "parameters": {"type": "object", "properties": {}}}}
    said = [{"role": "user", "content": "Write it."}]
    async with Lab([script]) as lab, aiohttp.ClientSession() as session:
        statuses: list[int] = []
        for body in ({"tools": [tool]}, {"tools": [tool], "user": "another"}, {}, {"tools": [tool]}):
            url = f"{lab.url}/v1/chat/completions"
            async with session.post(url, json={"model": "failing", "messages": said, **body}) as reply:
                statuses.append(reply.status)
    assert statuses == [500, 200, 200, 200]
