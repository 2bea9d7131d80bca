"""What a response shows of tools that the provider ran itself: they cost by the piece, beside the tokens.

Usage names them at Anthropic alone (`pricing`); elsewhere the items and sources of the response do. Sources: OpenAI, Pricing
(built-in tools; search models of Chat Completions bill each call); Google, Gemini API pricing (Grounding with Google Search);
Groq, Compound (`executed_tools`).
"""

import re

import msgspec

from turnwise.vocab import Citation, ProviderItem, Response, Text

ITEMS = {
    ("openai_responses", "web_search_call"): "searches",
    ("openai_responses", "file_search_call"): "searches of files",
    ("openai_responses", "code_interpreter_call"): "runs of code at the provider",
    ("openai_responses", "image_generation_call"): "images",
    ("openai_chat", "executed_tools"): "tools that the provider ran",
}
SEARCHED = "searches of its own"  # a model's that searches by itself: some rows have a price per request for them
UNREAD = "a piece that could not be read and may tell of searches"
SEARCH_MODEL = re.compile(r"-search-(preview|api)\b")  # gpt-4o-search-preview, gpt-5-search-api
# Gemini runs code for the price of its tokens.
AT_PRICE_OF_TOKENS = ("executableCode", "codeExecutionResult")


class _Source(msgspec.Struct):
    """Of a source as its provider wrote it, what tells a search."""

    web: object = None
    maps: object = None
    retrievedUrl: object = None  # noqa: N815 (the provider's word)


class _Usage(msgspec.Struct):
    toolUsePromptTokenCount: int = 0  # noqa: N815 (the provider's word)


def billed_apart(response: Response, *, model: str) -> str:
    """What of it costs more than its tokens, in words; empty where nothing is known to. `model` was asked: a gateway may name
    another one, or none."""
    parts = response.message.parts
    for part in parts:
        if isinstance(part, ProviderItem) and (what := ITEMS.get((part.family, part.kind))):
            return what
    sources = [one for part in parts if isinstance(part, Text) for one in part.citations]
    names_search = SEARCH_MODEL.search(response.model or "") or SEARCH_MODEL.search(model)
    if names_search or any(one.family == "openai_chat" for one in sources):
        return SEARCHED
    if any(map(_is_searched, sources)) or _has_searched_unseen(response, sources=sources):
        return "searches"
    return UNREAD if response.lost else ""


def _is_searched(source: Citation) -> bool:
    if source.family != "gemini":
        return False  # Responses has an item for it, Anthropic a count
    read = _read(source.raw)
    return read.web is not None or read.maps is not None


def _has_searched_unseen(response: Response, *, sources: list[Citation]) -> bool:
    """Whether Gemini counts tokens of a tool that nothing else of the response tells: code and pages that were read are told,
    the queries of a search that found nothing are not."""
    if response.usage is None or "toolUsePromptTokenCount" not in response.usage.provider:
        return False
    try:
        count = msgspec.json.decode(response.usage.provider, type=_Usage).toolUsePromptTokenCount
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError):
        return False
    told = any(isinstance(part, ProviderItem) and part.kind in AT_PRICE_OF_TOKENS for part in response.message.parts)
    pages = any(_read(one.raw).retrievedUrl is not None for one in sources)
    return count > 0 and not told and not pages


def _read(raw: str) -> _Source:
    try:
        return msgspec.json.decode(raw, type=_Source)
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError):
        return _Source()
