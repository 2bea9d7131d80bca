"""What a provider's own tools did is billed beside the tokens: such a price is unknown, never too low."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from decimal import Decimal

import msgspec
import pytest

from flat_agents import flat_agent
from tables import each
from turnwise import MaxCost, MaxRequests, Prices, read_prices
from turnwise.endpoints.transport import HttpReply, HttpRequest
from turnwise.rules.provider_tool_costs import UNREAD

TOKENS = {"input": 2, "output": 8}
SEARCHES = "it has searches, which are billed apart"
OWN = "it has searches of its own, which are billed apart"


class Says:
    """A transport that answers with one body."""

    def __init__(self, body: object) -> None:
        self.body = msgspec.json.encode(body)

    @asynccontextmanager
    async def send(self, request: HttpRequest) -> AsyncGenerator[HttpReply]:
        async def chunks() -> AsyncGenerator[bytes]:
            yield self.body

        yield HttpReply(status=200, headers={"content-type": "application/json"}, chunks=chunks())


def chat(*annotations: object, model: str = "gpt-5", cost: float | None = None) -> object:
    message = {"role": "assistant", "content": "hi", "annotations": annotations}
    usage = {"prompt_tokens": 1000, "completion_tokens": 50, "total_tokens": 1050}
    return {
        "id": "x",
        "object": "chat.completion",
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": usage if cost is None else {**usage, "cost": cost},
    }


def responses(*kinds: str) -> object:
    words = {"type": "output_text", "text": "hi", "annotations": []}
    said = {"id": "m", "type": "message", "status": "completed", "role": "assistant", "content": [words]}
    return {
        "id": "r",
        "object": "response",
        "status": "completed",
        "model": "gpt-5",
        "output": [*[{"id": f"i{kind}", "type": kind, "status": "completed"} for kind in kinds], said],
        "usage": {"input_tokens": 1000, "output_tokens": 50, "total_tokens": 1050},
    }


def gemini(*, tool_tokens: int = 0, code: bool = False, **candidate: object) -> object:
    parts: list[object] = [{"text": "hi"}]
    if code:
        parts.insert(0, {"executableCode": {"language": "PYTHON", "code": "print(1)"}})
    usage = {"promptTokenCount": 1000 - tool_tokens, "candidatesTokenCount": 50, "toolUsePromptTokenCount": tool_tokens}
    return {
        "candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP", **candidate}],
        "usageMetadata": usage,
    }


WEB = {"groundingChunks": [{"web": {"uri": "https://example.org", "title": "x"}}]}
PAGES = {"urlMetadata": [{"retrievedUrl": "https://example.org", "urlRetrievalStatus": "URL_RETRIEVAL_STATUS_SUCCESS"}]}
SOURCE = {"type": "url_citation", "url_citation": {"url": "https://example.org", "title": "x"}}


@pytest.mark.promise("bill:plans")
@each(
    ("model", "body", "usd", "note"),
    [
        ("openai_responses:gpt-5", responses(), "0.0024", "test"),
        ("openai_responses:gpt-5", responses("web_search_call"), None, SEARCHES),
        (
            "openai_responses:gpt-5",
            responses("file_search_call"),
            None,
            "it has searches of files, which are billed apart",
        ),
        ("gemini:m", gemini(), "0.0024", "test"),
        ("gemini:m", gemini(groundingMetadata=WEB), None, SEARCHES),
        ("gemini:m", gemini(groundingMetadata={"webSearchQueries": ["a"]}, tool_tokens=900), None, SEARCHES),
        ("gemini:m", gemini(urlContextMetadata=PAGES, tool_tokens=900), "0.0024", "test"),
        ("gemini:m", gemini(code=True, tool_tokens=900), "0.0024", "test"),
        ("openai_chat:gpt-5", chat(), "0.0024", "test"),
        ("openai_chat:gpt-5", chat(SOURCE), None, OWN),
        ("openai_chat:gpt-4o-search-preview", chat(model="gpt-4o-search-preview-2025-03-11"), None, OWN),
        ("openai_chat:sonar", chat(SOURCE, model="sonar"), "0.0124", "test"),
        ("openrouter:openai/gpt-5", chat(SOURCE, cost=0.0123), "0.0123", "genai-prices"),
    ],
)
async def test_what_a_providers_tools_did_makes_a_price_unknown(
    model: str, body: object, usd: str | None, note: str
) -> None:
    """Proves: in each family; not where the row has a price per request for it, nor where the provider says the cost."""
    rows = {"gpt*": TOKENS, "m": TOKENS, "sonar": {**TOKENS, "request": "0.01"}}
    known = Prices() if model.startswith("openrouter:") else Prices(user=read_prices(rows, named="test", source="test"))
    base_url = None if model.startswith("openrouter:") else "http://lab.invalid"
    agent = flat_agent(model, api_key="k", transport=Says(body), stream=False, prices=known, base_url=base_url)
    (entry,) = (await agent.run("x")).ledger
    assert (entry.usd, entry.price_note.startswith(note)) == (None if usd is None else Decimal(usd), True)
    assert entry.usage is not None and (entry.usage.input_tokens, entry.usage.output_tokens) == (1000, 50)


SONARS = (
    "sonar",
    "sonar-pro",
    "perplexity/sonar-reasoning",
    "openai/gpt-5:online",
    "openai/gpt-4o-mini-search-preview",
)
ASKED: tuple[dict[str, object], ...] = (
    {"web_search_options": {}},
    {"search_parameters": {"mode": "on"}},
    {"search_parameters": {}},
    {"search_parameters": "of a shape that nobody knows"},
    {"plugins": [{"id": "web"}]},
    {"enable_search": True},
    {"web_search": True},
    {"tools": [{"type": "web_search"}]},
)
NOT_ASKED: tuple[dict[str, object], ...] = (
    {"web_search_options": None},
    {"search_parameters": {"mode": "off"}},
    {"plugins": [{"id": "file-parser"}]},
    {"enable_search": False},
    {"tools": [{"type": "function", "function": {"name": "f"}}]},
    {"user": "web_search_options"},
)


async def price_of_chat(
    model: str = "m", *, body: object | None = None, extra: dict[str, object] | None = None, limited: bool = False
) -> tuple[Decimal | None, str]:
    agent = flat_agent(
        f"openai_chat:{model}",
        base_url="http://lab.invalid",
        transport=Says(body or chat(model="")),
        stream=False,
        prices=Prices(user=read_prices({"*": TOKENS}, named="test", source="test")),
        extra=extra,
        limits=MaxCost(Decimal(1)) if limited else None,
    )
    (entry,) = (await agent.run("x")).ledger
    return entry.usd, entry.price_note


@pytest.mark.promise("bill:plans")
@pytest.mark.parametrize("model", SONARS)
async def test_a_search_model_that_was_asked_has_an_unknown_price_where_no_model_is_named(model: str) -> None:
    """Each of its requests searches, and that costs by the request."""
    assert await price_of_chat(model) == (None, OWN)


@pytest.mark.parametrize("model", ["m", "gpt-5", "resonar", "sonarx", "online", "gpt-5:online-x"])
async def test_other_models_have_the_price_of_their_tokens(model: str) -> None:
    """A name that only looks like one is none."""
    assert (await price_of_chat(model))[0] == Decimal("0.0024")


@pytest.mark.promise("bill:plans")
@each("extra", ASKED, ids=str)
async def test_a_search_that_was_asked_for_makes_the_price_unknown(extra: dict[str, object]) -> None:
    """The response need not tell whether one was made."""
    assert await price_of_chat(extra=extra) == (None, OWN)
    assert await price_of_chat(extra=extra, limited=True) == (None, OWN)


@pytest.mark.parametrize("extra", NOT_ASKED, ids=str)
async def test_fields_that_ask_for_no_search_leave_the_price_known(extra: dict[str, object]) -> None:
    """A judge that asks about everything has failed."""
    assert (await price_of_chat(extra=extra))[0] == Decimal("0.0024")


def counted(family: str, **more: object) -> object:
    """A body of the family whose usage has these fields too."""
    match family:
        case "anthropic_messages":
            return {
                "id": "m",
                "type": "message",
                "role": "assistant",
                "model": "m",
                "content": [{"type": "text", "text": "hi"}],
                "stop_reason": "end_turn",
                "usage": {"input_tokens": 1000, "output_tokens": 50, **more},
            }
        case "openai_responses":
            body = responses()
        case _:
            body = chat()
    assert isinstance(body, dict)
    return {**body, "usage": {**body["usage"], **more}}


@pytest.mark.promise("bill:plans")
@each("family", ["openai_chat", "openai_responses", "anthropic_messages"])
@each(
    ("told", "is_known"),
    [
        ({}, True),
        ({"server_tool_use": {"code_execution_requests": 1}}, False),
        ({"server_tool_use": {"web_search_requests": 0, "another_requests": 2}}, False),
        ({"server_tool_use": {"web_search_requests": 0, "web_fetch_requests": 3}}, True),
        ({"server_tool_use": None}, True),
        ({"server_tool_use_details": {"tool_calls": 1}}, False),
        ({"server_side_tool_usage": {"web_search": 3}}, False),
        ({"server_side_tool_usage": {"x_search": 1}}, False),
        ({"server_side_tool_usage": {"web_search": 0}}, True),
        ({"server_side_tool_usage_details": {"web_search_calls": 2}}, False),
        ({"server_side_tool_usage_details": {"code_interpreter_calls": 1}}, False),
        ({"num_server_side_tools_used": 1}, False),
    ],
    ids=str,
)
async def test_tools_that_usage_counts_make_a_price_unknown(
    told: dict[str, object], is_known: bool, family: str
) -> None:
    """Wherever they are counted; a 0, and what costs nothing, leaves the price known."""
    agent = flat_agent(
        f"{family}:m",
        base_url="http://lab.invalid",
        transport=Says(counted(family, **told)),
        stream=False,
        prices=Prices(user=read_prices({"*": TOKENS}, named="test", source="test")),
    )
    (entry,) = (await agent.run("x")).ledger
    assert entry.usd == (Decimal("0.0024") if is_known else None), entry.price_note


async def test_a_count_of_no_searches_outweighs_that_they_were_asked_for() -> None:
    """xAI searches on its own account with `auto`, and counts its sources."""
    none = counted("openai_chat", num_sources_used=0)
    assert (await price_of_chat(body=none, extra={"search_parameters": {}}))[0] == Decimal("0.0024")
    some = counted("openai_chat", num_sources_used=2)
    assert (await price_of_chat(body=some, extra={"search_parameters": {}}))[0] is None


async def test_a_limit_of_cost_counts_searches_as_they_were_projected() -> None:
    """Unknown is never 0: the more of what was projected and what the tokens cost."""
    rows = read_prices({"*": TOKENS}, named="test", source="test")
    agent = flat_agent(
        "openai_responses:m",
        base_url="http://lab.invalid",
        transport=Says(responses("web_search_call")),
        stream=False,
        prices=Prices(user=rows),
        limits=MaxCost(Decimal(1)),
    )
    result = await agent.run("x")
    assert (result.cost.unknown, result.cost_usd, result.requests) == (1, None, 1)


async def test_a_search_in_a_piece_that_could_not_be_read_leaves_the_price_unknown() -> None:
    """From the lab's own bill: a body with a byte that is no UTF-8 was priced by its tokens, without the search in it."""
    rows = read_prices({"*": TOKENS}, named="test", source="test")
    says = Says(responses("web_search_call"))
    says.body = says.body.replace(b'"hi"', b'"h\xff"')
    agent = flat_agent(
        "openai_responses:m",
        base_url="http://lab.invalid",
        transport=says,
        stream=False,
        prices=Prices(user=rows),
        limits=MaxRequests(1),
    )
    (entry,) = (await agent.run("x")).ledger
    assert entry.usage is not None and (entry.usage.input_tokens, entry.usd) == (1000, None)
    assert UNREAD in entry.price_note
