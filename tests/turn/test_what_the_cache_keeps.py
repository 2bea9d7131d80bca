"""What is said of a provider's cache when a request begins otherwise (issue 18: mutants that no test noticed).

Events in, results out.
"""

import pytest
from msgspec.structs import replace

from families import of_family
from turn.playing import CONFIG, call, play, says
from turn.test_continuing import ON, REST, cut_by_limit, cut_call, purposes
from turnwise.vocab import Cache, Response, Usage

CHOICE = "request 2: tool choice"


def used(response: Response, prompt: int, *, read: int = 0, written: int = 0) -> Response:
    usage = Usage(input_tokens=prompt, output_tokens=50, cache_read_tokens=read, cache_write_tokens=written)
    return replace(response, usage=usage)


@pytest.mark.promise("step:prefix-stable")
@pytest.mark.parametrize(
    ("marks_cache", "cache", "changes"), [(True, "auto", (CHOICE,)), (True, "off", ()), (False, "auto", ())]
)
def test_a_last_step_without_calls_is_named_where_its_cache_is_asked_for(
    marks_cache: bool, cache: Cache, changes: tuple[str, ...]
) -> None:
    """Proves: tool choice changes what Anthropic's cache finds, so it is named there, and only if that cache is asked for."""
    config = replace(CONFIG, **of_family("anthropic_messages"), max_steps=2, marks_cache=marks_cache, cache=cache)
    played = play([says(call("a")), says("So.")], config=config)
    assert played.requests[1].request.tool_choice == "none"
    assert played.result.prefix_changes == changes


@pytest.mark.promise("step:prefix-stable", "cut:continued")
def test_what_was_kept_before_a_continuation_is_still_kept_behind_it() -> None:
    """Proves: it forbids tools, so the cache finds 2,000 tokens for it, writes nothing, and loses nothing of the 5,000 that the
    step wrote. When the next step finds 2,000 as well, 3,000 are read anew a second time."""
    config = replace(ON, **of_family("anthropic_messages"), marks_cache=True, cache="auto")
    step = used(cut_by_limit(cut_call("a")), 5_000, written=5_000)
    rest, done = used(says(REST), 5_100, read=2_000), used(says("Done."), 5_300, read=2_000, written=3_300)
    played = play([step, rest, done], config=config)
    assert purposes(played) == ["step", "continue", "step"]
    assert played.result.prefix_changes == (
        f"{CHOICE}: 3,000 tokens read anew",
        "request 3: tool choice: 3,000 tokens read anew",
        "request 3: last message",
    )
