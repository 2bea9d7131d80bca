"""The key by which OpenAI's API, and those who took it over, lead requests with one beginning to one cache."""

from turnwise.vocab import Request
from turnwise.wire.profiles import Profile

KEY_CHARACTERS = 64  # OpenAI answers 400 to more


def cache_key_fields(request: Request, profile: Profile) -> dict[str, object]:
    """Fields of a body of Chat Completions or Responses.

    What is kept for longer is asked for by `24h`: the APIs know no hour (OpenAI API reference, `prompt_cache_retention`).
    """
    cache = request.cache
    if cache is None or profile.cache_way(request.model) != "key":
        return {}
    fields: dict[str, object] = {"prompt_cache_key": cache.key[:KEY_CHARACTERS]} if cache.key else {}
    if cache.hour and profile.keeps_a_day(request.model):
        fields["prompt_cache_retention"] = "24h"
    return fields
