"""The next request's body begins with the very bytes of the one before, in every family (promise step:prefix-stable)."""

import pytest
from msgspec.structs import replace

from families import of_family, traits_of
from turn.playing import ASK, CONFIG, call, play, says
from turn.wire_prefix import Wire, changes_between, read_wire
from turnwise.turn.request_plan import Sent, prefix_changes, sent_as
from turnwise.vocab import Message, Reasoning, Request, Text
from turnwise.wire.family import MODULES, family
from turnwise.wire.profiles import builtin_profiles

HISTORY = (Message("user", (Text("hello"),)), Message("assistant", (Text("hi"),)))


@pytest.mark.promise("step:prefix-stable")
@pytest.mark.parametrize("name", MODULES)
def test_each_request_begins_with_the_bytes_of_the_one_before(name: str) -> None:
    """Up to and including its last message, in steps with parallel, cut and unknown calls; the forced answer too."""
    script = [
        says(Reasoning("hm"), "Looking.", call("c1"), call("c2", "write")),
        says(call("c3", "unknown")),
        says(call("c4", arguments='{"path": 1}')),
        says("Done."),
    ]
    played = play(script, config=replace(CONFIG, **of_family(name), max_steps=4), history=HISTORY)
    encode = family(name).encode_request
    profile = builtin_profiles()[name]
    bodies = [encode(sent.request, profile).body for sent in played.requests]
    for sent, before, after in zip(played.requests, bodies, bodies[1:], strict=False):
        last = sent.request.messages[-1].parts[-1]
        marker = (last.content[0] if not isinstance(last, Text) else last).text.encode()[:20]  # type: ignore[union-attr]
        common = next((at for at, (old, new) in enumerate(zip(before, after, strict=False)) if old != new), len(before))
        assert common >= before.rindex(marker) + len(marker), (before, after)
    assert ASK in played.requests[0].request.messages
    assert played.result.prefix_changes == ()


def as_sent(*messages: Message, own: int = 0, family_name: str) -> Sent:
    config = replace(CONFIG, **of_family(family_name))
    return sent_as(Request(model="m", messages=messages), own=own, config=config)


@pytest.mark.promise("step:prefix-stable")
@pytest.mark.parametrize("name", MODULES)
def test_a_message_that_only_became_longer_is_named_where_its_provider_reads_all_of_it_again(name: str) -> None:
    """Anthropic caches by content block and Gemini by token: what was there before hits; the others' messages are told apart
    whole, as their bytes are. Something else in its place is a break everywhere."""
    word, more = Message("user", (Text("Be brief."),)), Message("user", (Text("Be brief."), Text("Answer now.")))
    before = as_sent(*HISTORY, word, own=1, family_name=name)
    breaks = () if name in ("anthropic_messages", "gemini") else ("last message",)
    for now, expected in ((more, breaks), (Message("user", (Text("Answer now."),)), ("last message",))):
        after = as_sent(*HISTORY, now, own=1, family_name=name)
        assert prefix_changes(before, now=after, compacted=False, traits=traits_of(name), marks_cache=False) == expected
        wires = [wire_of(name, sent) for sent in (before, after)]
        assert changes_between(wires[0], after=wires[1]) == ({"messages"} if expected else set())


@pytest.mark.parametrize("name", ["anthropic_messages", "gemini"])
def test_the_judge_sees_where_a_message_ends(name: str) -> None:
    """The same parts in one message or in two, or of another role, are other bytes from the end of the message on."""
    one, other = Text("Hello."), Text("Be brief.")
    together = as_sent(*HISTORY, Message("user", (one, other)), family_name=name)
    apart = as_sent(*HISTORY, Message("user", (one,)), Message("assistant", (other,)), family_name=name)
    wires = [wire_of(name, sent) for sent in (together, apart)]
    for before, after in (wires, reversed(wires)):
        assert changes_between(before, after=after) == {"messages"}


def wire_of(name: str, sent: Sent) -> Wire:
    called = family(name).encode_request(sent.request, builtin_profiles()[name])
    return read_wire(name, path=called.path, body=called.body)
