"""A profile that `turnwise check` writes reads back as the same profile, whatever stands in it."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tables import each
from turnwise.lab.endpoint_check.judging import ProfileChange, name_of, profile_with, write_row
from turnwise.wire.profiles import Profile, builtin_profiles, parse_profiles

TEXTS = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=20)
"""TOML takes every character but halves of one."""


@each("profile", builtin_profiles().values(), ids=builtin_profiles().keys())
def test_every_profile_that_ships_reads_back(profile: Profile) -> None:
    assert parse_profiles(write_row(profile)) == {profile.name: profile}


@given(
    name=TEXTS,
    base_url=st.none() | TEXTS,
    title=TEXTS,
    keys=st.lists(TEXTS, max_size=3),
    headers=st.dictionaries(TEXTS, TEXTS, max_size=3),
    seconds=st.floats(min_value=0, max_value=1e6),
    limit=st.none() | st.integers(1, 10**9),
    flag=st.booleans(),
)
def test_every_profile_reads_back(
    name: str,
    base_url: str | None,
    title: str,
    keys: list[str],
    headers: dict[str, str],
    seconds: float,
    limit: int | None,
    flag: bool,
) -> None:
    """Quotes, line breaks, control characters and characters of every plane stay as they are."""
    profile = Profile(
        name=name,
        family="openai_chat",
        base_url=base_url,
        title=title,
        api_key_env=tuple(keys),
        headers=headers,
        first_event_s=seconds,
        default_max_tokens=limit,
        stream_usage=flag,
    )
    assert parse_profiles(write_row(profile)) == {name: profile}


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("https://api.example.com/v1", "api-example-com"),
        ("http://127.0.0.1:8000/v1", "127-0-0-1-8000"),
        ("http://[::1]:8000/v1", "1-8000"),
        ("https://ÄÖ.example", "example"),
    ],
)
def test_the_name_of_a_row_can_stand_before_a_model(address: str, name: str) -> None:
    assert name_of(address) == name and ":" not in name


def test_at_its_own_address_a_profile_keeps_its_name() -> None:
    groq = builtin_profiles()["groq"]
    assert groq.base_url is not None
    change = ProfileChange(field="tool_choice_none", value="drop_tools", why="seen")
    changed = profile_with(groq, changes=[change], base_url=groq.base_url, api_key_env=None)
    assert changed == msgspec.structs.replace(groq, tool_choice_none="drop_tools")


def test_an_address_of_its_own_has_a_name_of_its_own_and_no_query() -> None:
    plain = builtin_profiles()["openai_chat"]
    changed = profile_with(plain, changes=[], base_url="http://gpu:8000/v1?key=secret", api_key_env="MY_KEY")
    assert (changed.name, changed.base_url, changed.api_key_env) == ("gpu-8000", "http://gpu:8000/v1", ("MY_KEY",))
    assert "secret" not in write_row(changed) and changed.title == ""
