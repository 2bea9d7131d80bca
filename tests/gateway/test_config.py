"""`gateway.toml`: what it may say, what is told of a mistake, and which route serves a model."""

import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tables import each
from turnwise.errors import CallerError, UnknownModel
from turnwise.gateway.client_bounds import Bounds
from turnwise.gateway.config import (
    GatewayConfig,
    GatewayRoute,
    Upstream,
    UpstreamAddress,
    choose_route,
    config_of,
    read_config,
    upstream_of,
)
from turnwise.wire.profiles import builtin_profiles

OPENAI_CHAT = builtin_profiles()["openai-chat"]
WHOLE = """
host = "0.0.0.0"
port = 0
hosts = ["Gate.example", "gate.example:9000"]
origins = ["https://chat.example"]

[bounds]
body_bytes = 1000
head_s = 2

[[route]]
models = ["gpt-*", "o?"]
aliases = { fast = "gpt-5-mini" }
upstream = "openai:*"
fallbacks = ["anthropic:claude-sonnet-4-5", { url = "http://127.0.0.1:8080/v1", model = "local" }]
heal = false
continue = false
retry = 0
calls_in_text = "on"
one_call_at_a_time = true
max_output_tokens = 4000
pass = ["/v1/embeddings"]
one_client = "alice"

[[route]]
upstream = { url = "https://api.example/anthropic", family = "anthropic_messages", key_env = "EXAMPLE_KEY" }
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "gateway.toml"
    path.write_text(text)
    return path


def test_every_field_of_the_file_is_read(tmp_path: Path) -> None:
    """And what the doors take of it."""
    config = read_config(written(tmp_path, WHOLE))
    assert config == GatewayConfig(
        host="0.0.0.0",
        port=0,
        hosts=("Gate.example", "gate.example:9000"),
        origins=("https://chat.example",),
        bounds=Bounds(body_bytes=1000, head_s=2.0),
        routes=(
            GatewayRoute(
                models=("gpt-*", "o?"),
                aliases={"fast": "gpt-5-mini"},
                upstream="openai:*",
                fallbacks=(
                    "anthropic:claude-sonnet-4-5",
                    UpstreamAddress(url="http://127.0.0.1:8080/v1", model="local"),
                ),
                heal=False,
                continues=False,
                retry=0,
                calls_in_text="on",
                one_call_at_a_time=True,
                max_output_tokens=4000,
                passes=("/v1/embeddings",),
                one_client="alice",
            ),
            GatewayRoute(
                upstream=UpstreamAddress(
                    url="https://api.example/anthropic", family="anthropic_messages", key_env="EXAMPLE_KEY"
                )
            ),
        ),
    )
    rules = config.rules(forward_key=True)
    assert (rules.hosts, rules.origins, rules.passes, rules.forward_key, rules.bounds.body_bytes) == (
        {"gate.example", "gate.example:9000"},
        {"https://chat.example"},
        {"/v1/embeddings"},
        True,
        1000,
    )


@each(
    ("text", "said"),
    [
        ("", "Object missing required field `route`"),
        ("route = []", "Expected `array` of length >= 1 - at `$.route`"),
        ('prot = 1\n[[route]]\nupstream = "openai:gpt-5"', "unknown field `prot` (did you mean `port`?)"),
        (
            '[[route]]\nupstream = "openai:*"\nstored = "teams"',
            "`$.route[0].stored` (one of `refused`, `team`, `shared`)",
        ),
        (
            '[[route]]\nupstream = "openai:gpt-5"\ncontinu = true',
            "unknown field `continu` (did you mean `continue`?) - at `$.route[0]`",
        ),
        ('[[route]]\nupstream = "openai:gpt-5"\nheal = "yes"', "Expected `bool`, got `str` - at `$.route[0].heal`"),
        ('[[route]]\nupstream = "gpt-5"', "`gpt-5` names no provider: did you mean `openai:gpt-5`? - at `$.route[0]`"),
        ('[[route]]\nupstream = "openai_chat:x"', "has no address of its own: write { url = ..., family = ... }"),
        ('[[route]]\nupstream = "openai:x"\nfallbacks = ["nobody:x"]', "`nobody` is no provider or API family"),
        ('[[route]]\nupstream = { url = "ftp://x" }', "must begin with http:// or https:// - at `$.route[0]`"),
        ('[[route]]\nupstream = { family = "gemini" }', "missing required field `url` - at `$.route[0].upstream`"),
        ('port = 70000\n[[route]]\nupstream = "openai:x"', "Expected `int` <= 65535 - at `$.port`"),
        ('origins = ["*"]\n[[route]]\nupstream = "openai:x"', "`origins` cannot have `*`"),
        ('origins = ["https://a.example/"]\n[[route]]\nupstream = "openai:x"', "without a path"),
        ('hosts = ["http://a"]\n[[route]]\nupstream = "openai:x"', "`hosts` cannot have `http://a`"),
        ('[bounds]\nstreams = 0\n[[route]]\nupstream = "openai:x"', "Expected `int` >= 1 - at `$.bounds.streams`"),
        (
            '[deadlines]\nwhole_s = 0\n[[route]]\nupstream = "openai:x"',
            "Expected `float` > 0.0 - at `$.deadlines.whole_s`",
        ),
        ("a = ", "Invalid value"),
    ],
)
def test_a_mistake_is_told_with_its_file_and_its_place(tmp_path: Path, text: str, said: str) -> None:
    """A field that nobody reads would be thought to hold. One line each."""
    path = written(tmp_path, text)
    with pytest.raises(CallerError) as error:
        read_config(path)
    assert str(error.value).startswith(f"`{path}`: ") and said in str(error.value) and "\n" not in str(error.value)


def test_a_file_that_is_not_there_or_no_text_is_told(tmp_path: Path) -> None:
    """What to do stands in the message."""
    with pytest.raises(CallerError, match="does not exist: create it, or give --upstream"):
        read_config(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_bytes(b"host = '\xff'")
    with pytest.raises(CallerError, match="is not UTF-8"):
        read_config(tmp_path / "bad.toml")


@each(
    "path",
    [
        "/v1/files",
        "/v1/files/f-1/content",
        "/v1/batches",
        "/v1/messages/batches",
        "/v1/Responses/r-1/cancel",
        "/v1/conversations",
        "/v1/vector_stores/v-1/search",
        "/v1/fine_tuning/jobs",
        "/v1/models",
        "/v1/models/ft:gpt-5",
        "/v1beta/cachedContents",
        "/v1beta/models/m:batchGenerateContent",
        "/v1/organization/admin_api_keys",
        "/v1/chat/completions",
        "/v1beta/models/m:generateContent",
        "/v1/embeddings?key=1",
        "/v1/../v1/embeddings",
        "/v1/%66iles",
        "v1/embeddings",
        "/v1//embeddings",
        "/v1/embeddings/",
        "",
    ],
)
def test_paths_of_what_is_stored_are_never_passed(path: str) -> None:
    """Issue 19: what one client stored would be open to all that share the key. Nor what the gateway has, or is no path."""
    with pytest.raises(ValueError, match="`pass` cannot have"):
        GatewayRoute(upstream="openai:gpt-5", passes=(path,))


@pytest.mark.parametrize(
    "path", ["/v1/embeddings", "/v1/moderations", "/v1/rerank", "/v1beta/models/gemini-embedding-001:embedContent"]
)
def test_paths_that_store_nothing_may_be_passed(path: str) -> None:
    """They take JSON and give it back."""
    assert GatewayRoute(upstream="openai:gpt-5", passes=(path,)).passes == (path,)


ROUTES = (
    GatewayRoute(upstream="openai:gpt-5", models=("gpt-5*",), aliases={"fast": "gpt-5-mini", "*": "star"}),
    GatewayRoute(upstream="openai:*", models=("[a]", "o?"), one_client="alice"),
    GatewayRoute(upstream="anthropic:*", models=("claude-*", "gpt-5"), aliases={"claude-3": "claude-sonnet-4-5"}),
)


@each(
    ("model", "client", "route", "name"),
    [
        ("gpt-5", "", 0, "gpt-5"),
        ("gpt-5-nano", "", 0, "gpt-5-nano"),
        ("fast", "", 0, "gpt-5-mini"),
        ("*", "", 0, "star"),
        ("GPT-5", "", None, ""),
        ("o3", "", None, ""),
        ("o3", "bob", None, ""),
        ("o3", "alice", 1, "o3"),
        ("a", "alice", 1, "a"),
        ("claude-3", "", 2, "claude-sonnet-4-5"),
        ("claude-opus-4-1", "", 2, "claude-opus-4-1"),
        ("qwen3:8b", "", None, ""),
        ("", "", None, ""),
    ],
)
def test_the_first_route_that_knows_the_name_serves_it(model: str, client: str, route: int | None, name: str) -> None:
    """By an alias or a pattern, in the order of the file. The route of one client is not there for another."""
    chosen = choose_route(ROUTES, model, client=client)
    assert (None if chosen is None else (ROUTES.index(chosen.route), chosen.model)) == (
        None if route is None else (route, name)
    )


@given(model=st.text())
def test_a_route_without_patterns_serves_every_name(model: str) -> None:
    """`--upstream` makes that one."""
    config = config_of("openai:gpt-5")
    chosen = choose_route(config.routes, model)
    assert chosen is not None
    (upstream,) = map(upstream_of, chosen.route.every_upstream)
    assert (chosen.model, chosen.name_at(upstream)) == (model, "gpt-5")


@each(
    ("given", "upstream"),
    [
        ("openai:gpt-5", Upstream(profile=builtin_profiles()["openai"], chat=OPENAI_CHAT, model="gpt-5")),
        ("openai-chat:gpt-5", Upstream(profile=OPENAI_CHAT, model="gpt-5")),
        (
            UpstreamAddress(url="https://api.openai.com/v1"),
            Upstream(profile=builtin_profiles()["openai"], chat=OPENAI_CHAT, base_url="https://api.openai.com/v1"),
        ),
        (
            UpstreamAddress(url="https://api.openai.com/v1", family="openai_responses"),
            Upstream(profile=builtin_profiles()["openai"], base_url="https://api.openai.com/v1"),
        ),
        ("ollama:qwen3:8b", Upstream(profile=builtin_profiles()["ollama"], model="qwen3:8b")),
        ("anthropic:*", Upstream(profile=builtin_profiles()["anthropic"])),
        (
            "http://127.0.0.1:8080/v1",
            Upstream(profile=builtin_profiles()["openai_chat"], base_url="http://127.0.0.1:8080/v1"),
        ),
        (
            UpstreamAddress(url="https://api.anthropic.com", key_env="K", model="m"),
            Upstream(
                profile=builtin_profiles()["anthropic"],
                base_url="https://api.anthropic.com",
                key_envs=("K",),
                model="m",
            ),
        ),
        (
            UpstreamAddress(url="https://api.anthropic.com/v1", family="openai_chat"),
            Upstream(profile=builtin_profiles()["openai_chat"], base_url="https://api.anthropic.com/v1"),
        ),
        (
            UpstreamAddress(url="http://127.0.0.1:8080/v1", provider="anthropic"),
            Upstream(profile=builtin_profiles()["anthropic"], base_url="http://127.0.0.1:8080/v1"),
        ),
    ],
)
def test_an_upstream_is_a_model_or_an_address(given: str | UpstreamAddress, upstream: Upstream) -> None:
    """Of a provider's own address its profile counts, of another the family's. Both of OpenAI's APIs are there unless one of them
    is named."""
    assert upstream_of(given) == upstream


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (UpstreamAddress(url="http://127.0.0.1/v1", provider="nobody"), "`nobody` is no provider"),
        (
            UpstreamAddress(url="http://127.0.0.1/v1", provider="anthropic", family="gemini"),
            "`anthropic` speaks `anthropic_messages`, not `gemini`: leave out `family`",
        ),
    ],
)
def test_a_provider_that_does_not_fit_is_told(given: UpstreamAddress, said: str) -> None:
    """Before anything is served."""
    with pytest.raises(CallerError, match=re.escape(said)):
        upstream_of(given)


@pytest.mark.parametrize("given", ["gpt-5", "nobody:x", ""])
def test_an_upstream_that_nobody_knows_is_told(given: str) -> None:
    """Before anything is served."""
    with pytest.raises(UnknownModel):
        config_of(given)


def test_the_table_of_fields_is_whole() -> None:
    """The docstring that documents the file names each field with its default."""
    from turnwise.gateway import config

    rows = [line for line in (config.__doc__ or "").splitlines() if line.startswith("| `")]
    named = "".join([row.split("|")[1] for row in rows])
    fields = [*GatewayRoute.__struct_encode_fields__, *GatewayConfig.__struct_encode_fields__]
    assert [field for field in fields if f"`{field}`" not in named and f"[{field}]" not in named] == []
    defaults = msgspec.to_builtins(GatewayRoute(upstream="openai:gpt-5"))
    said = {row.split("`")[1]: row.split("|")[2].strip(" `") for row in rows}
    for field in ("retry", "calls_in_text", "one_call_at_a_time", "one_client", "models"):
        assert said[field] == msgspec.json.encode(defaults[field]).decode(), field


def test_the_page_names_every_field_and_bound_with_its_default() -> None:
    """docs/gateway.md is what a user reads."""
    page = (Path(__file__).parents[2] / "docs" / "gateway.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| `")]
    named = {name.strip("`[]"): cells for cells in rows for name in cells[0].split(", ")}
    bounds = {name: named[name][1].replace(",", "") for name in Bounds.__struct_fields__}
    assert bounds == {
        name: f"{getattr(Bounds(), name):g}" if name.endswith("_s") else str(getattr(Bounds(), name)) for name in bounds
    }
    fields = (
        *GatewayRoute.__struct_encode_fields__,
        *GatewayConfig.__struct_encode_fields__,
        *UpstreamAddress.__struct_fields__,
    )
    assert [field for field in fields if field not in named] == []
    route = GatewayRoute(upstream="openai:gpt-5")
    assert (named["retry"][1], named["calls_in_text"][1].strip("`")) == (str(route.retry), f'"{route.calls_in_text}"')
    assert named["host"][1] == f"`{GatewayConfig(routes=(route,)).host}`, {GatewayConfig(routes=(route,)).port}"
