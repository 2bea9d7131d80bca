"""Sources that a provider names: three shapes -> `Citation`, each kept as it came."""

import msgspec

from turnwise.vocab import Citation
from turnwise.wire.json_fields import UNREADABLE
from turnwise.wire.openai_chat.fields import NAME


class UrlCitation(msgspec.Struct):
    url: str | None = None
    title: str | None = None
    content: str | None = None  # OpenRouter: the excerpt


class Source(msgspec.Struct):
    """OpenAI's and OpenRouter's annotation (`url_citation`), or Perplexity's search result (`url`, `title`)."""

    url_citation: UrlCitation | None = None
    url: str | None = None
    title: str | None = None
    snippet: str | None = None


def citation_of(raw: bytes) -> Citation:
    """What can be told of the source; an unknown shape keeps its raw text."""
    text = raw.decode("utf-8", "replace")
    try:
        source = msgspec.json.decode(text, type=Source | str)
    except UNREADABLE:
        return Citation(family=NAME, raw=text)
    if isinstance(source, str):  # Perplexity's `citations`: the address alone
        return Citation(family=NAME, raw=text, url=source)
    inner = source.url_citation
    if inner is not None:
        return Citation(family=NAME, raw=text, url=inner.url, title=inner.title, cited_text=inner.content)
    return Citation(family=NAME, raw=text, url=source.url, title=source.title, cited_text=source.snippet or None)
