"""The key by which OpenAI's API, and those who took it over, lead requests with one beginning to one cache."""

import hashlib
from collections.abc import Iterable, Iterator

import msgspec

from turnwise.vocab import Request
from turnwise.wire.json_fields import encode
from turnwise.wire.offers import instructions
from turnwise.wire.profiles import Profile

KEY_CHARACTERS = 64  # OpenAI answers 400 to more
# A token has a byte at the least, so requests of which these bytes differ share fewer than 1,024 tokens, and fewer are kept
# nowhere: the key never parts a request from what it could read. The whole text would: with a date at the end of the
# instructions each day had a key of its own, while their beginning is still in the cache.
KEY_BYTES = 1024


def cache_key_fields(request: Request, profile: Profile, *, tools: Iterable[msgspec.Raw]) -> dict[str, object]:
    """Fields of a body of Chat Completions or Responses, with these `tools` as they are sent (JSON).

    What is kept for longer is asked for by `24h`: the APIs know no hour (OpenAI API reference, `prompt_cache_retention`).
    """
    cache = request.cache
    if cache is None or profile.cache_way(request.model) != "key":
        return {}
    fields: dict[str, object] = {
        "prompt_cache_key": (cache.key or _key_of(_beginning(request, profile, tools=tools)))[:KEY_CHARACTERS]
    }
    if cache.hour and profile.keeps_a_day(request.model):
        fields["prompt_cache_retention"] = "24h"
    return fields


def _beginning(request: Request, profile: Profile, *, tools: Iterable[msgspec.Raw]) -> Iterator[bytes]:
    """Of the prompt, in its order: OpenAI puts the tools before the instructions (OpenAI Cookbook, "Prompt Caching 201")."""
    yield from map(bytes, tools)
    for text in instructions(request, profile):
        yield encode(text.text)


def _key_of(begins: Iterable[bytes]) -> str:
    """The same for all prompts that begin so, in any session and process; nothing of them can be read in it."""
    began = b""
    for piece in begins:
        began += piece
        if len(began) >= KEY_BYTES:
            break
    return hashlib.blake2b(began[:KEY_BYTES], digest_size=16).hexdigest()
