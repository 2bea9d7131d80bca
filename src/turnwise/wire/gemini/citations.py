"""What Gemini says about the sources of a text <-> `Citation`s.

Three objects of a candidate name sources: `groundingMetadata` (search, files, maps), `citationMetadata` (quoted texts) and
`urlContextMetadata` (pages that were read). A citation's `raw` is the source's own object; of grounding it holds the
`groundingSupports` of that source too, less the indices, so that encoding can put the whole together again.
"""

from collections.abc import Iterable

import msgspec

from turnwise.vocab import Citation
from turnwise.wire.gemini.fields import NAME, read_fields
from turnwise.wire.json_fields import (
    UNREADABLE,
    Fields,
    compact,
    compact_text,
    quote,
    read_items,
    string_of,
    write_array,
    write_object,
)

_indices = msgspec.json.Decoder(list[int])
# The kinds of `GroundingChunk`, each with uri and title (API reference, `GroundingChunk`).
_SOURCES = ("web", "retrievedContext", "maps", "image")
_SUPPORTS = "groundingSupports"
# What `GroundingMetadata` holds of a search beside its sources (API reference).
SEARCHES = ("webSearchQueries", "imageSearchQueries", "searchEntryPoint", "googleMapsWidgetContextToken")


def decode_citations(grounding: msgspec.Raw, cited: msgspec.Raw, pages: msgspec.Raw) -> list[Citation]:
    """All sources that one candidate names. What cannot be read names none."""
    found: list[Citation] = []
    for raw, read in ((grounding, _read_grounding), (cited, _read_cited), (pages, _read_pages)):
        text = bytes(raw)
        if len(text) > len(b"{ }") and text != b"null":
            try:
                found += read(read_fields(text))
            except UNREADABLE:
                continue
    return found


def has_searched(grounding: msgspec.Raw) -> bool:
    """Whether it tells of a search or a look at the map, with sources or without: a search that finds nothing is billed, too."""
    try:
        fields = read_fields(grounding)
        return any(_says_something(fields[key]) for key in SEARCHES if key in fields)
    except UNREADABLE:
        return False


def _says_something(value: msgspec.Raw) -> bool:
    return compact(value) not in (b"null", b"[]", b"{}", b'""', b"false")


def _items(fields: Fields, key: str) -> list[msgspec.Raw]:
    return read_items(fields[key]) if key in fields else []


def _read_grounding(fields: Fields) -> list[Citation]:
    sources = [read_fields(item) for item in _items(fields, "groundingChunks")]
    supports: list[list[bytes]] = [[] for _ in sources]
    for item in _items(fields, _SUPPORTS):
        support = read_fields(item)
        indices = _indices.decode(support.pop("groundingChunkIndices", b"[]"))
        text = compact(write_object(support))
        for index in indices:
            if 0 <= index < len(sources):
                supports[index].append(text)
    return [_grounding_citation(source, backed) for source, backed in zip(sources, supports, strict=True)]


def _grounding_citation(source: Fields, supports: list[bytes]) -> Citation:
    kind = next((kind for kind in _SOURCES if kind in source), None)
    named = {} if kind is None else read_fields(source[kind])
    whole: dict[str, bytes | msgspec.Raw] = dict(source)
    if supports:
        whole[_SUPPORTS] = write_array(supports)
    return Citation(
        family=NAME,
        raw=compact_text(write_object(whole)),
        url=string_of(named, "uri"),
        title=string_of(named, "title"),
        cited_text=string_of(named, "text"),
    )


def _read_cited(fields: Fields) -> list[Citation]:
    # `citationSources` at the Gemini API, `citations` at Vertex AI.
    items = _items(fields, "citationSources") or _items(fields, "citations")
    return [
        Citation(family=NAME, raw=compact_text(item), url=string_of(source, "uri"), title=string_of(source, "title"))
        for item in items
        for source in (read_fields(item),)
    ]


def _read_pages(fields: Fields) -> list[Citation]:
    return [
        Citation(family=NAME, raw=compact_text(item), url=string_of(read_fields(item), "retrievedUrl"))
        for item in _items(fields, "urlMetadata")
    ]


def encode_citations(citations: Iterable[Citation]) -> dict[str, bytes]:
    """The candidate's fields that name these sources. Other families' citations become grounding of kind `web`."""
    sources: list[bytes] = []
    supports: dict[bytes, list[int]] = {}  # a support's text -> the sources that back it
    cited: list[bytes] = []
    pages: list[bytes] = []
    for citation in citations:
        source = _own_source(citation)
        if "retrievedUrl" in source:
            pages.append(write_object(source))
        elif any(kind in source for kind in _SOURCES):
            for support in read_items(source.pop(_SUPPORTS, b"[]")):
                supports.setdefault(bytes(support), []).append(len(sources))
            sources.append(write_object(source))
        else:
            cited.append(write_object(source))
    fields: dict[str, bytes] = {}
    if sources:
        grounding = {"groundingChunks": write_array(sources)}
        if supports:
            grounding[_SUPPORTS] = write_array([_with_indices(text, backed) for text, backed in supports.items()])
        fields["groundingMetadata"] = write_object(grounding)
    if cited:
        fields["citationMetadata"] = write_object({"citationSources": write_array(cited)})
    if pages:
        fields["urlContextMetadata"] = write_object({"urlMetadata": write_array(pages)})
    return fields


def _own_source(citation: Citation) -> dict[str, bytes | msgspec.Raw]:
    if citation.family == NAME:
        try:
            return dict(read_fields(citation.raw))
        except UNREADABLE:
            pass
    named = {"uri": citation.url, "title": citation.title}
    return {"web": write_object({key: quote(value) for key, value in named.items() if value is not None})}


def _with_indices(support: bytes, backed: list[int]) -> bytes:
    return write_object({**read_fields(support), "groundingChunkIndices": msgspec.json.encode(backed)})
