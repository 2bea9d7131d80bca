"""What a provider's own tools did is billed beside the tokens: such a price is unknown, never too low."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from decimal import Decimal

import msgspec
import pytest

from turnwise import Agent, MaxCost, MaxRequests, Prices, read_prices
from turnwise.drivers.transport import HttpReply, HttpRequest
from turnwise.rules.apart import UNREAD

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
@pytest.mark.parametrize(
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
    agent = Agent(model, api_key="k", transport=Says(body), stream=False, prices=known, base_url=base_url)
    (entry,) = (await agent.run("x")).ledger
    assert (entry.usd, entry.price_note.startswith(note)) == (None if usd is None else Decimal(usd), True)
    assert entry.usage is not None and (entry.usage.input_tokens, entry.usage.output_tokens) == (1000, 50)


async def test_a_limit_of_cost_counts_searches_as_they_were_projected() -> None:
    """Unknown is never 0: the more of what was projected and what the tokens cost."""
    rows = read_prices({"*": TOKENS}, named="test", source="test")
    agent = Agent(
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
    agent = Agent(
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
