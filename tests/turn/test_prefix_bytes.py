"""The next request's body begins with the very bytes of the one before, in every family (promise step:prefix-stable)."""

import pytest
from msgspec.structs import replace

from turn.playing import ASK, CONFIG, call, play, says
from turnwise.vocab import Message, Reasoning, Text
from turnwise.wire.profiles import builtin_profiles
from turnwise.wire.registry import MODULES, family

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
    played = play(script, config=replace(CONFIG, family=name, max_steps=4), history=HISTORY)
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
