"""An endpoint is asked for its models with its key, and every way in which it gives none is told without the key."""

import pytest

from turnwise.endpoints.aiohttp_transport import AiohttpTransport
from turnwise.endpoints.endpoints import Endpoint, Secret
from turnwise.endpoints.local_servers import ask_for_models
from turnwise.errors import CallerError, ProviderFault
from turnwise.lab import Lab
from turnwise.vocab import FaultKind
from turnwise.wire.profiles import builtin_profiles

KEY = "sk-test-1234567890abcdef"
BASES = {"openai": "/v1", "ollama": "/v1", "anthropic": "", "google": "/v1beta"}


def endpoint(lab: Lab, profile: str, *, key: str | None = KEY, base: str | None = None) -> Endpoint:
    return Endpoint(
        profile=builtin_profiles()[profile],
        base_url=lab.url + (BASES[profile] if base is None else base),
        key=None if key is None else Secret(key),
    )


@pytest.mark.parametrize("profile", BASES)
async def test_each_family_lists_its_models_for_the_key(profile: str) -> None:
    """The lab is strict about paths and the key, as real servers are. It counts no request: listing is not billed."""
    async with Lab(key=KEY, strict_paths=True) as lab, AiohttpTransport() as transport:
        models = await ask_for_models(endpoint(lab, profile), transport=transport)
        assert "plain-answer" in [model.name for model in models] and lab.count() == 0


@pytest.mark.parametrize("profile", BASES)
async def test_a_wrong_key_is_an_auth_fault_that_does_not_show_it(profile: str) -> None:
    async with Lab(key="another") as lab, AiohttpTransport() as transport:
        with pytest.raises(ProviderFault, match=r"^HTTP 401: ") as raised:
            await ask_for_models(endpoint(lab, profile), transport=transport)
    assert raised.value.fault.kind is FaultKind.AUTH and KEY not in str(raised.value)


async def test_a_missing_version_is_named() -> None:
    async with Lab(strict_paths=True) as lab, AiohttpTransport() as transport:
        with pytest.raises(ProviderFault, match=r"try `http://127.0.0.1:\d+/v1`") as raised:
            await ask_for_models(endpoint(lab, "openai", base=""), transport=transport)
    assert raised.value.fault.kind is FaultKind.NOT_FOUND


async def test_a_list_is_bounded_in_size() -> None:
    async with Lab() as lab, AiohttpTransport() as transport:
        with pytest.raises(ProviderFault, match="has more than 100 bytes"):
            await ask_for_models(endpoint(lab, "openai"), transport=transport, max_bytes=100)


async def test_an_api_without_a_list_is_not_asked() -> None:
    """Bedrock's models stand in its paths."""
    bedrock = Endpoint(profile=builtin_profiles()["bedrock-anthropic"], base_url="http://127.0.0.1:1")
    async with AiohttpTransport() as transport:
        with pytest.raises(CallerError, match="`bedrock-anthropic` has no list of models"):
            await ask_for_models(bedrock, transport=transport)
