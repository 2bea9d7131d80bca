"""Messages that are encoded once make the very bodies that encoding all of them anew does (promise step:prefix-stable)."""

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thoroughness import examples
from turnwise.vocab import (
    ArgumentsState,
    Caching,
    File,
    Message,
    Opaque,
    OutputSchema,
    Part,
    ProviderItem,
    Reasoning,
    Refusal,
    Request,
    Settings,
    Text,
    ToolCall,
    ToolResult,
    ToolSpec,
    new_tool,
)
from turnwise.wire.encoded_history import CallFrame, EncodedHistory
from turnwise.wire.family import MODULES, HttpCall, family
from turnwise.wire.profiles import Profile, builtin_profiles

ROWS = builtin_profiles()
# Rows whose messages look otherwise than those of their family's own.
PROFILES: tuple[Profile, ...] = (
    *[ROWS[name] for name in MODULES],
    *[ROWS[name] for name in ("mistral", "deepseek", "anthropic", "vertex-gemini", "openrouter", "litellm")],
    msgspec.structs.replace(ROWS["gemini"], files="images"),
)
each_profile = pytest.mark.parametrize("profile", PROFILES, ids=[f"{row.name}-{row.files}" for row in PROFILES])

PICTURE = File(media_type="image/png", data=b"\x89PNG")
PAPER = File(media_type="application/pdf", data=b"%PDF", name="a.pdf")
SIGNED = Opaque("anthropic_messages", '{"signature":"s"}')
PARTS: tuple[Part, ...] = (
    Text("a word"),
    Text(" \n"),
    Text("trailing "),
    Text("half \ud83d"),
    Text("cached", opaque=Opaque("anthropic_messages", '{"cache_control":{"type":"ephemeral"}}')),
    Reasoning("so", opaque=SIGNED),
    Reasoning("bare"),
    Refusal("no"),
    PICTURE,
    PAPER,
    ProviderItem("anthropic_messages", "server_tool_use", '{"type":"server_tool_use","id":"s","name":"n","input":{}}'),
    ToolCall(id="a", name="t", arguments='{"x":1}'),
    ToolCall(id="b", name="t", arguments='{"x":', state=ArgumentsState.TRUNCATED),
    ToolResult(call_id="b", name="t", content=(Text("second"), PICTURE)),
    ToolResult(call_id="a", name="t", content=(Text("first"), PAPER)),
)
TOOL = ToolSpec(name="t", description="d")
LATER = ToolSpec(name="later", description="d")
TOLD = (
    Message("system", (new_tool("later"),)),
    Message("system", (Text("They changed.", note="instructions"), Text("Be short."))),
)

messages = st.one_of(
    st.builds(
        Message,
        st.sampled_from(("user", "assistant", "tool", "system")),
        st.lists(st.sampled_from(PARTS), max_size=3).map(tuple),
    ),
    st.sampled_from(TOLD),
)


@st.composite
def requests(draw: st.DrawFn) -> list[Request]:
    """Requests in a row, each with a history that grows out of the one before it, as a rule."""
    history: tuple[Message, ...] = ()
    asked: list[Request] = []
    extra = draw(st.sampled_from((None, None, '{"messages":[],"contents":[],"tools":[]}', '{"messages":null}')))
    for _ in range(draw(st.integers(2, 7))):
        if draw(st.integers(0, 4)) == 0:
            history = history[: draw(st.integers(0, len(history)))]
        history = (*history, *draw(st.lists(messages, max_size=4)))
        own = draw(st.lists(messages, max_size=1))
        model = draw(
            st.sampled_from(("m", "anthropic/m", "anthropic/m", "gemini-3-pro", "claude-opus-5-5", "claude-opus-5-5"))
        )
        tools = draw(st.sampled_from(((TOOL,), (TOOL, LATER), (TOOL, LATER), ())))
        asked.append(
            Request(
                model=model,
                messages=(*history, *own),
                system=(Text("Be kind."),) if draw(st.booleans()) else (),
                tools=tools,
                system_in_input=draw(st.booleans()),
                appended_tools=draw(st.sampled_from(((), ("later",)))),
                stream=draw(st.booleans()),
                extra=None if extra is None else Opaque("openai_chat", extra),
                cache=draw(st.sampled_from((None, Caching(passing=len(own)), Caching(passing=len(own), hour=True)))),
            )
        )
    return asked


def with_extra_of(request: Request, *, profile: Profile) -> Request:
    extra = request.extra
    return request if extra is None else msgspec.structs.replace(request, extra=Opaque(profile.family, extra.json))


@each_profile
@settings(max_examples=examples(60))
@given(asked=requests())
def test_bodies_are_the_same_as_those_encoded_anew(profile: Profile, asked: Sequence[Request]) -> None:
    """Whatever the requests in a row have in common, and what `same_bytes` and `changed_at` say of two bodies is true."""
    encode = family(profile.family).encode_request
    history = EncodedHistory()
    before = b""
    for request in asked:
        request = with_extra_of(request, profile=profile)
        call = encode(request, profile, history=history)
        assert msgspec.structs.replace(call, same_bytes=0, changed_at=None) == encode(request, profile)
        body = unmarked(call)
        assert body[: call.same_bytes] == before[: call.same_bytes]
        if call.changed_at is not None:
            assert body[: call.changed_at] == before[: call.changed_at]
            assert body[call.changed_at : call.changed_at + 1] != before[call.changed_at : call.changed_at + 1]
            assert call.changed_at >= call.same_bytes
        before = body


def unmarked(call: HttpCall) -> bytes:
    """The body with its cache marks left out."""
    body = call.body
    for start, end in reversed(call.marks):
        body = body[:start] + body[end:]
    return body


def step(number: int) -> tuple[Message, Message]:
    id = f"call_{number}"
    return (
        Message("assistant", (ToolCall(id=id, name="t", arguments="{}"),)),
        Message("tool", (ToolResult(call_id=id, name="t", content=(Text("x" * 100),)),)),
    )


@each_profile
def test_all_but_the_last_two_steps_are_told_to_be_the_same(profile: Profile) -> None:
    """So what reads a body after its encoder (a hash) need not look at them again, either; a user's word at the end of each
    request changes nothing about it."""
    encode = family(profile.family).encode_request
    history = EncodedHistory()
    messages: tuple[Message, ...] = (Message("user", (Text("go"),)),)
    new: list[int] = []
    length = 0
    for number in range(20):
        messages = (*messages, *step(number))
        request = Request(model="m", messages=(*messages, Message("user", (Text("and?"),))), tools=(TOOL,))
        call = encode(request, profile, history=history)
        new.append(len(call.body) - call.same_bytes)
        length = len(call.body)
    assert max(new[5:]) - min(new[5:]) < 20  # digits of ids
    assert max(new[5:]) < new[4] + 20 < length / 3


CHANGED: dict[str, object] = {
    "model": "gemini-2.5-pro",
    "system": (Text("Be brief."),),
    "tools": (TOOL, ToolSpec(name="u")),
    "tool_choice": "required",
    "parallel_tool_calls": False,
    "output": OutputSchema(schema='{"type":"object"}'),
    "settings": Settings(temperature=0.5),
    "stream": False,
    "extra": Opaque("openai_chat", '{"user":"u"}'),
    "cache": Caching(key="k"),
    "drops_stale_thinking": True,
    "system_in_input": True,
    "appended_tools": ("t",),
    "shows_thinking": True,
    "lessons": ("content_there",),
}


@each_profile
def test_what_stands_around_the_messages_is_kept_for_no_other_request(profile: Profile) -> None:
    """Proves: a field that is another one for a request goes out so, and as it was for the next one."""
    encode = family(profile.family).encode_request
    assert {*CHANGED, "messages"} == {*Request.__struct_fields__}
    plain = Request(model="m", messages=(Message("user", (Text("go"),)), *step(1)), tools=(TOOL,))
    for field, value in CHANGED.items():
        history = EncodedHistory()
        changed = with_extra_of(msgspec.structs.replace(plain, **{field: value}), profile=profile)
        assert encode(changed, profile).body != encode(plain, profile).body or field in (
            "parallel_tool_calls",
            "stream",
            "cache",
            "drops_stale_thinking",
            "system_in_input",
            "appended_tools",
            "shows_thinking",
            "lessons",
        )
        for request in (plain, changed, plain):
            assert encode(request, profile, history=history).body == encode(request, profile).body


@each_profile
def test_numbers_that_are_equal_go_out_as_they_were_written(profile: Profile) -> None:
    """1 is not written as 1.0 because the request before said so: a body never depends on another one."""
    encode = family(profile.family).encode_request
    history = EncodedHistory()
    for temperature in (1.0, 1, 0.0, -0.0, 1.0):
        request = Request(model="m", messages=step(1), settings=Settings(temperature=temperature))
        assert encode(request, profile, history=history).body == encode(request, profile).body


def test_thinking_by_budget_is_asked_for_as_the_messages_allow_it() -> None:
    """Proves: what messages say about the rest of a body is seen in each request (Anthropic refuses thinking behind calls that
    another model made)."""
    profile = ROWS["anthropic"]
    encode = family(profile.family).encode_request
    history = EncodedHistory()
    asked = Message("user", (Text("go"),))
    settings_ = Settings(reasoning_tokens=2048, max_output_tokens=8192)
    thinks: list[bool] = []
    answered = (asked, *step(1), Message("assistant", (Text("done"),)))
    # A word right behind results goes in one message with them: the turn goes on without thinking.
    for messages in ((asked,), (asked, *step(1)), (asked, *step(1), asked), (*answered, asked)):
        request = Request(model="claude-sonnet-4-5", messages=messages, tools=(TOOL,), settings=settings_)
        body = encode(request, profile, history=history).body
        assert body == encode(request, profile).body
        thinks.append(b'"thinking"' in body)
    assert thinks == [True, False, False, True]


class Roles:
    """Items that are the roles of the messages; what a system says cannot be encoded."""

    def take(self, messages: Sequence[Message]) -> list[bytes]:
        if any(message.role == "system" for message in messages):
            raise ValueError("no")
        return [message.role.encode() for message in messages]

    def rest(self) -> list[bytes]:
        return []

    def copy(self) -> "Roles":
        return self


def test_messages_that_cannot_be_encoded_leave_nothing_behind() -> None:
    """Proves: the next body is as if they had never been tried, wherever among the messages it failed."""
    user, model, wrong = (Message(role, ()) for role in ("user", "assistant", "system"))
    history = EncodedHistory()

    def body(*messages: Message) -> bytes:
        return history.write_body(CallFrame(head=b"[", tail=b"]", items=Roles()), messages=messages)[0]

    assert body(user, model) == b"[user,assistant]"
    for _ in range(2):  # once behind what is kept, once among it
        with pytest.raises(ValueError, match="no"):
            body(user, model, user, model, wrong)
    assert body(user, model, user, model) == b"[user,assistant,user,assistant]"
    with pytest.raises(ValueError, match="no"):
        body(user, wrong, user)
    assert body(user, model) == b"[user,assistant]"


def test_a_shortened_history_is_read_up_to_the_first_shortened_result() -> None:
    """Proves: the mark that a request before had at its end stands there again, so that what did not change is read (Anthropic
    reads where a mark stands, or up to 20 blocks before it). The request's own field marks its end, as ever."""
    profile, system = ROWS["anthropic"], (Text("Be brief."),)
    encode, history = family(profile.family).encode_request, EncodedHistory()
    messages: tuple[Message, ...] = (Message("user", (Text("go"),)),)

    def marked() -> list[int]:
        """The messages with a mark."""
        asked = Request(model="claude-sonnet-4-6", messages=messages, system=system, tools=(TOOL,), cache=Caching())
        said = msgspec.json.decode(encode(asked, profile, history=history).body)["messages"]
        return [place for place, one in enumerate(said) if any("cache_control" in block for block in one["content"])]

    ends = list[int]()
    for number in range(1, 31):
        messages = (*messages, *step(number))
        ends = marked()
    assert ends == [58]
    short = ToolResult(call_id="call_13", name="t", content=(Text("Shortened."),))
    messages = (*messages[:26], Message("tool", (short,)), *messages[27:], *step(31))
    assert marked() == [24, 26]  # behind the change, too
    messages = (*messages, *step(32))
    assert marked() == [26, 62]
    short = ToolResult(call_id="call_14", name="t", content=(Text("Shortened."),))
    messages = (*messages[:28], Message("tool", (short,)), *messages[29:], *step(33))
    assert marked() == [26, 28]  # the next change leaves all up to there as it was
    for number in range(34, 37):
        messages = (*messages, *step(number))
        assert marked()[0] == 28
    messages = messages[:20]
    assert 28 not in marked()
