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
# gpt-4o-search-preview, gpt-5-search-api; sonar-pro, perplexity/sonar (Perplexity); openai/gpt-5:online (OpenRouter)
SEARCH_MODEL = re.compile(r"-search-(?:preview|api)\b|(?:^|/)sonar\b|:online$")
# Where usage counts what was searched for, the count decides, whatever was asked for.
COUNTED = (
    "num_sources_used",
    "num_search_queries",
    "num_server_side_tools_used",
    "server_side_tool_usage",
    "server_tool_use",
)
OWN_TOOLS = ("function", "custom")  # of a request: those that run here
# Gemini runs code for the price of its tokens.
AT_PRICE_OF_TOKENS = ("executableCode", "codeExecutionResult")


class _Source(msgspec.Struct):
    """Of a source as its provider wrote it, what tells a search."""

    web: object = None
    maps: object = None
    retrievedUrl: object = None  # noqa: N815 (the provider's word)


class _Usage(msgspec.Struct):
    toolUsePromptTokenCount: int = 0  # noqa: N815 (the provider's word)


class _Plugin(msgspec.Struct):
    id: str = ""
    enabled: bool = True


class _Tool(msgspec.Struct):
    type: str = "function"


class _Search(msgspec.Struct):
    mode: str = "auto"


class _Extra(msgspec.Struct):
    """Of the body fields that the caller adds to a request, those that have a provider search. Sources: OpenAI and Perplexity
    (`web_search_options`), xAI (`search_parameters`), OpenRouter (`plugins`), Alibaba (`enable_search`), Z.ai (`tools` of a type
    of their own)."""

    web_search_options: object = None
    search_parameters: _Search | None = None
    enable_search: bool = False
    web_search: object = None
    plugins: tuple[_Plugin, ...] = ()
    tools: tuple[_Tool, ...] = ()

    @property
    def searches(self) -> bool:
        return (
            self.web_search_options is not None
            or (self.search_parameters is not None and self.search_parameters.mode != "off")
            or self.enable_search
            or self.web_search not in (None, False)
            or any(one.id == "web" and one.enabled for one in self.plugins)
            or any(one.type not in OWN_TOOLS for one in self.tools)
        )


def searches_asked(extra: str, *, family: str) -> bool:
    """Whether a request with these fields of the caller's asks the provider to search where its response need not tell that it
    did: in Chat Completions. In the other families an item, a source or a count does."""
    if not extra or family != "openai_chat":
        return False
    try:
        return msgspec.json.decode(extra, type=_Extra).searches
    except (msgspec.DecodeError, RecursionError):
        return any(f'"{name}"' in extra for name in _Extra.__struct_fields__)  # of a shape that nobody here knows


# Fields of a request that ask to be served in a way that has a price of its own. Sources: openai 3.57 (`service_tier`), anthropic
# 2.14 (`service_tier`, `speed`, `inference_geo`), google-genai 3.6 (`service_tier`, `serviceTier` on the wire).
_QUOTED = (b'"service_tier"', b'"serviceTier"', b'"speed"', b'"inference_geo"')
_ENUM = "service_tier_"  # before a word of Gemini's, as its enum has it


class _Terms(msgspec.Struct):
    service_tier: object = None
    serviceTier: object = None  # noqa: N815 (the provider's word)
    speed: object = None
    inference_geo: object = None


def terms_asked(body: str | bytes) -> tuple[str, ...]:
    """Of a request's fields, or of those that a caller adds to it, what asks to be served in a way of its own: `speed=fast`."""
    if isinstance(body, str):
        body = body.encode("utf-8", "replace")
    for name in _QUOTED:
        if name in body:
            break
    else:
        return ()
    try:
        fields = msgspec.json.decode(body, type=_Terms)
    except (msgspec.DecodeError, RecursionError):
        return ()
    said = {name: getattr(fields, name) for name in _Terms.__struct_fields__}
    return tuple([f"{name}={_word(value)}" for name, value in said.items() if isinstance(value, str) and value])


class _Named(msgspec.Struct):
    model: object = None


class _Models(msgspec.Struct):
    tools: tuple[_Named, ...] = ()
    fallbacks: tuple[_Named | str, ...] = ()


def models_named(extra: str) -> tuple[str, ...]:
    """Of the fields that the caller adds to a request, the models beside the one that is asked: an advisor, fallbacks. Source:
    anthropic 2.14, `BetaAdvisorTool` and `BetaFallbackParam`."""
    if '"model"' not in extra and '"fallbacks"' not in extra:
        return ()
    try:
        found = msgspec.json.decode(extra, type=_Models)
    except (msgspec.DecodeError, RecursionError):
        return ()
    models = [one if isinstance(one, str) else one.model for one in (*found.tools, *found.fallbacks)]
    return tuple(dict.fromkeys([model for model in models if isinstance(model, str) and model]))


def _word(value: str) -> str:
    return value[len(_ENUM) :] if value.casefold().startswith(_ENUM) else value


def billed_apart(response: Response, *, model: str, searches: bool = False) -> str:
    """What of it costs more than its tokens, in words; empty where nothing is known to. `model` was asked: a gateway may name
    another one, or none. `searches` were asked for (`searches_asked`)."""
    parts = response.message.parts
    for part in parts:
        if isinstance(part, ProviderItem) and (what := ITEMS.get((part.family, part.kind))):
            return what
    sources = [one for part in parts if isinstance(part, Text) for one in part.citations]
    names_search = SEARCH_MODEL.search(response.model or "") or SEARCH_MODEL.search(model)
    if names_search or any(one.family == "openai_chat" for one in sources):
        return SEARCHED
    if searches and not _counts_searches(response):
        return SEARCHED
    if any(map(_is_searched, sources)) or _has_searched_unseen(response, sources=sources):
        return "searches"
    return UNREAD if response.lost else ""


def _counts_searches(response: Response) -> bool:
    told = "" if response.usage is None else response.usage.provider
    return any(f'"{name}' in told for name in COUNTED)


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
    except (msgspec.DecodeError, RecursionError):
        return False
    told = any(isinstance(part, ProviderItem) and part.kind in AT_PRICE_OF_TOKENS for part in response.message.parts)
    pages = any(_read(one.raw).retrievedUrl is not None for one in sources)
    return count > 0 and not told and not pages


def _read(raw: str) -> _Source:
    try:
        return msgspec.json.decode(raw, type=_Source)
    except (msgspec.DecodeError, RecursionError):
        return _Source()
