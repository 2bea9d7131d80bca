"""Calls and results are written by a short way where nothing stands beside them: it writes what the long way does."""

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thoroughness import examples
from turnwise.vocab import (
    ArgumentsState,
    File,
    Message,
    Opaque,
    Part,
    Reasoning,
    Request,
    Role,
    Text,
    ToolCall,
    ToolResult,
)
from turnwise.wire.family import MODULES, family
from turnwise.wire.profiles import Profile, builtin_profiles

ROWS = builtin_profiles()
NAMES = (*MODULES, "mistral", "anthropic", "vertex-gemini", "openrouter", "litellm")
each_profile = pytest.mark.parametrize("profile", [ROWS[name] for name in NAMES], ids=NAMES)

NOBODYS = Opaque("nobody", '{"x":1}')
"""Opaque data that every family leaves out: a part that has it goes the long way."""

texts = st.one_of(
    st.sampled_from(
        ("", " ", "a word", 'a "quoted" \\ word\n', "half \ud83d", "größer", '{"a":1}', "{", "{}", '{"output":"x"}')
    ),
    st.text(max_size=8),
)
ids = st.sampled_from(("call_1", "call_2", "", "a.b", "a-b", "9", "é", "toolu_01", "x" * 70, "half \ud83d"))
arguments = st.sampled_from(
    (
        '{"a":1}',
        "{}",
        ' {"a": [1, 2]} ',
        "[]",
        "1",
        "",
        '{"a":',
        '{"a":1}{"b":2}',
        '{"a":"é"}',
        '{"a":"\ud83d"}',
        "null",
        "[" * 2000,
    )
)
calls = st.builds(
    ToolCall,
    id=ids,
    name=st.sampled_from(("look", "größer", 'a"b', "")),
    arguments=arguments,
    state=st.sampled_from((*[ArgumentsState.COMPLETE] * 4, *ArgumentsState)),
    free_form=st.sampled_from((False, False, False, True)),
)
PICTURE = File(media_type="image/png", data=b"\x89PNG")
contents = st.lists(st.one_of(texts.map(Text), st.just(PICTURE)), max_size=2).map(tuple)
results = st.builds(
    ToolResult,
    call_id=ids,
    name=st.sampled_from(("look", "größer")),
    content=st.one_of(texts.map(lambda text: (Text(text),)), contents),
    is_error=st.sampled_from((False, False, True)),
    free_form=st.sampled_from((False, False, False, True)),
)
others = st.one_of(texts.map(Text), st.just(Reasoning("so")))


def messages_of(role: Role, parts: st.SearchStrategy[Part]) -> st.SearchStrategy[Message]:
    return st.lists(parts, max_size=3).map(lambda found: Message(role, tuple(found)))


histories = st.lists(
    st.one_of(
        messages_of("assistant", calls),
        messages_of("tool", results),
        messages_of("assistant", st.one_of(calls, others)),
        st.sampled_from(("user", "assistant", "tool", "system")).flatmap(
            lambda role: messages_of(role, st.one_of(calls, results, others))
        ),
    ),
    max_size=5,
)


def by_the_long_way(message: Message) -> Message:
    return Message(message.role, tuple([_marked(part) for part in message.parts]))


def _marked(part: Part) -> Part:
    return msgspec.structs.replace(part, opaque=NOBODYS) if isinstance(part, ToolCall | ToolResult) else part


@pytest.mark.promise("step:prefix-stable")
@each_profile
@settings(max_examples=examples(200), deadline=None)
@given(history=histories)
def test_the_short_way_writes_what_the_long_way_writes(profile: Profile, history: Sequence[Message]) -> None:
    """Whatever calls and results hold, and whatever stands beside them in their message."""
    encode = family(profile.family).encode_request
    for model in ("m", "gemini-3-pro", "anthropic/m"):
        short = Request(model=model, messages=tuple(history))
        long = Request(model=model, messages=tuple([by_the_long_way(message) for message in history]))
        assert encode(short, profile).body == encode(long, profile).body
