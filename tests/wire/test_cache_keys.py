"""The key that leads requests with one beginning to one cache (promise bill:cached, issue 17): asking is never worse than not."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from thoroughness import examples
from turnwise.lab.caches import PromptCaches
from turnwise.lab.families import FAMILIES
from turnwise.vocab import Caching, Message, Opaque, OutputSchema, Request, Text, ToolSpec
from turnwise.wire.family import family
from turnwise.wire.profiles import builtin_profiles

ROWS = builtin_profiles()
KEYED = [name for name, row in ROWS.items() if row.cache == "key"]
LONG = "Answer from the parts of the document alone. " * 200  # 2,250 tokens
SECRET = "the launch is on Friday"


def body_of(request: Request, name: str) -> dict[str, Any]:
    return json.loads(family(ROWS[name].family).encode_request(request, ROWS[name]).body)


def request_of(*, system: str = LONG, tools: tuple[str, ...] = ("read",), asks: str = "go", **more: Any) -> Request:
    return Request(
        model="turn",
        system=(Text(system),) if system else (),
        tools=tuple([ToolSpec(name=name, description=f"{name} a part") for name in tools]),
        messages=(Message("user", (Text(asks),)),),
        cache=Caching(),
        **more,
    )


@pytest.mark.promise("bill:cached")
@pytest.mark.parametrize("name", KEYED)
def test_the_key_is_the_same_for_all_requests_of_one_agent(name: str) -> None:
    """In any session, turn and process, whatever is asked and whatever date stands at the end of the instructions; another
    agent has another one."""
    key = body_of(request_of(), name)["prompt_cache_key"]
    same = (request_of(asks="and?"), request_of(system=LONG + "Today is Monday."), request_of(stream=False))
    assert {body_of(one, name)["prompt_cache_key"] for one in same} == {key}
    others = (request_of(system="x" + LONG), request_of(tools=("write",)), request_of(system="", tools=()))
    assert key not in {body_of(one, name)["prompt_cache_key"] for one in others}


@pytest.mark.parametrize("name", KEYED)
def test_no_text_of_the_prompt_can_be_read_in_the_key(name: str) -> None:
    """Mistral's docs: no secrets in it. It is a digest, of any text, and fits the 64 characters that OpenAI takes."""
    for system in (SECRET, "\ud800", "ü" * 3000, ""):
        key = body_of(request_of(system=system), name)["prompt_cache_key"]
        assert len(key) == 32
        assert set(key) <= set("0123456789abcdef")


@pytest.mark.parametrize("name", KEYED)
def test_the_callers_own_key_wins_over_the_digest_and_extra_over_both(name: str) -> None:
    request = replace(request_of(), cache=Caching(key="k" * 80))
    assert body_of(request, name)["prompt_cache_key"] == "k" * 64
    extra = Opaque(ROWS[name].family, '{"prompt_cache_key":"mine"}')
    assert body_of(replace(request, extra=extra), name)["prompt_cache_key"] == "mine"


TEXTS = st.sampled_from(("", "Be kind.", LONG, LONG + "Monday.", LONG + "Tuesday.", LONG[:-1] + "!", "x" + LONG))
SCHEMAS = st.sampled_from((None, OutputSchema(schema='{"type":"object"}'), OutputSchema(schema='{"type":"array"}')))


@st.composite
def requests(draw: st.DrawFn) -> Request:
    tools = draw(st.lists(st.sampled_from(("read", "write", LONG[:3000], LONG[:3001])), max_size=3, unique=True))
    asks = draw(TEXTS) + draw(st.sampled_from(("go", "and?")))
    request = request_of(system=draw(TEXTS), asks=asks, output=draw(SCHEMAS))
    specs = tuple([ToolSpec(name=f"tool{place}", description=said) for place, said in enumerate(tools)])
    return replace(request, tools=specs)


@pytest.mark.promise("bill:cached")
@pytest.mark.parametrize("name", KEYED)
@pytest.mark.parametrize("model", ["turn", "gpt-5.6-turn"])
@settings(max_examples=examples(60), deadline=None)
@given(asked=st.lists(requests(), min_size=2, max_size=5))
def test_asking_with_a_key_reads_no_less_than_asking_for_nothing(name: str, model: str, asked: list[Request]) -> None:
    """Of any requests in any order, in the lab's caches, which know nothing of how the key is made."""
    read: dict[bool, list[int]] = {}
    for asks in (True, False):
        caches = PromptCaches()
        bodies = [body_of(replace(one, model=model, cache=Caching() if asks else None), name) for one in asked]
        family = FAMILIES[ROWS[name].family]
        least = family.least_cached_tokens
        uses = [caches.take(family.prompt(body), model=model, least_tokens=least) for body in bodies]
        read[asks] = [use.read for use in uses]
    assert read[True] == read[False]
