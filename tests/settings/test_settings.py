"""The files of settings: which are read, in which order, and what is said of a bad one."""

import os
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest

from tables import each
from turnwise import Agent
from turnwise.agent.agent import inside
from turnwise.errors import CallerError
from turnwise.settings.catalogue import LimitRow
from turnwise.settings.settings import (
    CAPS,
    MAX_FILE_BYTES,
    SWITCHES,
    USUAL,
    Layer,
    Merged,
    RunSettings,
    SettingsSource,
    SourceSettings,
    check_layer,
    merge,
    read_layers,
)
from turnwise.turn.config import TurnConfig


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "config" / "turnwise").mkdir(parents=True)
    return tmp_path


def env_of(home: Path, **more: str) -> dict[str, str]:
    return {"XDG_CONFIG_HOME": str(home / "config"), **more}


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_the_users_file_comes_first_then_the_nearest_of_the_project(home: Path) -> None:
    """From the folder up to the root of its repository, and no further: one file a layer, as it stands there."""
    own = write(home / "config" / "turnwise" / "turnwise.toml", 'model = "a:b"')
    write(home / "turnwise.toml", "max_steps = 1")
    (home / "repo" / ".git").mkdir(parents=True)
    folder = home / "repo" / "a" / "b"
    folder.mkdir(parents=True)
    user = Layer(source="user", table={"model": "a:b"}, path=own)
    assert read_layers(folder, env=env_of(home)) == (user,)
    root = write(home / "repo" / "pyproject.toml", '[project]\nname = "x"\n[tool.turnwise]\nmax_steps = 2')
    assert read_layers(folder, env=env_of(home)) == (
        user,
        Layer(source="project", table={"max_steps": 2}, path=root),
    )
    near = write(home / "repo" / "a" / "turnwise.toml", "[permissions]\nallow = ['read']")
    write(home / "repo" / "a" / "b" / "pyproject.toml", "[tool.other]\nturnwise = 1")
    project = Layer(source="project", table={"permissions": {"allow": ["read"]}}, path=near)
    assert read_layers(folder, env=env_of(home)) == (user, project)


def test_outside_of_a_repository_the_folder_alone_is_looked_at(home: Path) -> None:
    """The folders above may be anybody's."""
    write(home / "turnwise.toml", "max_steps = 1")
    folder = home / "plain"
    folder.mkdir()
    assert read_layers(folder, env=env_of(home)) == ()
    path = write(folder / "turnwise.toml", "max_steps = 3")
    assert read_layers(folder, env=env_of(home)) == (Layer(source="project", table={"max_steps": 3}, path=path),)


def test_the_variable_names_another_file_of_the_user(home: Path) -> None:
    """In place of the usual one; /dev/null is none of them; a name that is wrong is said."""
    write(home / "config" / "turnwise" / "turnwise.toml", "max_steps = 1")
    other = write(home / "other.toml", "max_steps = 2")
    (home / "f").mkdir()
    named = read_layers(home / "f", env=env_of(home, TURNWISE_CONFIG=str(other)))
    assert named == (Layer(source="user", table={"max_steps": 2}, path=other),)
    (empty,) = read_layers(home / "f", env=env_of(home, TURNWISE_CONFIG=os.devnull))
    assert empty.table == {}
    with pytest.raises(CallerError, match=r"TURNWISE_CONFIG names `.*gone.toml`, which does not exist: create it, or"):
        read_layers(home / "f", env=env_of(home, TURNWISE_CONFIG=str(home / "gone.toml")))


def test_the_users_own_folder_of_settings_is_no_project(home: Path) -> None:
    """Working in ~/.config/turnwise, the file there stays the user's."""
    own = write(home / "config" / "turnwise" / "turnwise.toml", "max_steps = 1")
    assert read_layers(own.parent, env=env_of(home)) == (Layer(source="user", table={"max_steps": 1}, path=own),)


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("turnwise.toml", b"model = ", "turnwise.toml`: Invalid value (at end of document); correct it there"),
        ("turnwise.toml", b"\xff", "turnwise.toml` is not UTF-8 (byte 0): save it as UTF-8"),
        ("turnwise.toml", b"#" * (MAX_FILE_BYTES + 1), "turnwise.toml` has more than 1048576 bytes: that is no file"),
        ("turnwise.toml", b"a = " + b"[" * 100_000, "turnwise.toml`"),
        (
            "pyproject.toml",
            b"[tool.turnwise]\nmodel = ",
            "pyproject.toml`: Invalid value (at end of document); correct",
        ),
        ("pyproject.toml", b"[tool]\nturnwise = 1", "`tool.turnwise` is no table: write `[tool.turnwise]`"),
    ],
)
def test_a_bad_file_is_named_in_one_line_with_what_to_do(home: Path, file: str, content: bytes, said: str) -> None:
    """Which file, what is wrong with it, and where."""
    (home / file).write_bytes(content)
    with pytest.raises(CallerError) as raised:
        read_layers(home, env=env_of(home))
    assert said in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.parametrize("content", [b"[tool.poetry]\nname = ", b"\xff turnwise", b"tool = 1 # turnwise", b""])
def test_what_is_wrong_with_a_pyproject_of_others_is_not_our_business(home: Path, content: bytes) -> None:
    """It has no table of ours."""
    (home / "pyproject.toml").write_bytes(content)
    assert read_layers(home, env=env_of(home)) == ()


def test_a_pipe_is_refused_and_never_waited_for(home: Path) -> None:
    """Reading one would wait for whoever writes it."""
    os.mkfifo(home / "turnwise.toml")
    with pytest.raises(
        CallerError, match=r"turnwise.toml` is no regular file: put the settings into a file there, or take it away"
    ):
        read_layers(home, env=env_of(home))


def test_the_later_word_holds_and_each_key_knows_whose_it_is() -> None:
    """User, project, session, command line; a row of model limits figure by figure."""
    user = RunSettings(
        model="a:b",
        max_steps=9,
        max_time=60.0,
        model_limits={"qwen3": LimitRow(window=8_192, output=1_024), "glm": LimitRow(window=5)},
    )
    project = RunSettings(model="c:d", max_steps=5, model_limits={"qwen3": LimitRow(window=4_096)})
    merged = merge(
        SourceSettings(source="user", origin="/u.toml", settings=user),
        SourceSettings(source="project", origin="/p.toml", settings=project),
        SourceSettings(source="session", origin="session", settings=RunSettings(max_steps=12)),
        SourceSettings(source="command line", origin="command line", settings=RunSettings(max_tokens=1)),
    )
    assert merged == Merged(
        settings=RunSettings(
            model="c:d",
            max_steps=12,
            max_tokens=1,
            max_time=60.0,
            model_limits={"qwen3": LimitRow(window=4_096, output=1_024), "glm": LimitRow(window=5)},
        ),
        origins={
            "model": "/p.toml",
            "max_steps": "session",
            "max_tokens": "command line",
            "max_time": "/u.toml",
            "model_limits.qwen3": "/p.toml",
            "model_limits.glm": "/u.toml",
        },
    )
    assert merge() == Merged(settings=RunSettings(), origins={})


def test_a_project_may_lower_what_the_user_caps_and_never_raise_it() -> None:
    """A folder from elsewhere does not spend what its user would not; the session and the command line may."""
    user = SourceSettings(
        source="user", origin="u", settings=RunSettings(max_tokens=50, max_requests=5, max_output_tokens=9)
    )
    project = SourceSettings(
        source="project", origin="p", settings=RunSettings(max_tokens=60, max_requests=4, max_steps=10)
    )
    line = SourceSettings(source="command line", origin="line", settings=RunSettings(max_tokens=70))
    assert merge(user, project) == Merged(
        settings=RunSettings(max_steps=10, max_requests=4, max_tokens=50, max_output_tokens=9),
        origins={"max_tokens": "u", "max_requests": "p", "max_output_tokens": "u", "max_steps": "p"},
    )
    assert merge(user, project, line).settings.max_tokens == 70


DEFAULTS = {
    "max_steps": TurnConfig(session_id="s", turn_id="t", model="m").max_steps,
    "max_subagents": inside(Agent("ollama:m")).config.max_subagents,
    "max_subagent_requests": inside(Agent("ollama:m")).config.max_subagent_requests,
}


@each("key", sorted(CAPS))
def test_a_project_may_lower_a_default_and_never_raise_it(key: str) -> None:
    """What the user's file does not say has its default, and a limit without one is lowered by any number. A project's 60 steps
    held in place of 20, and its 1,000 sub-agents in place of 32."""

    def holding(*sources: tuple[SettingsSource, int]) -> object:
        layers = [Layer(source=source, table={key: value}) for source, value in sources]
        return getattr(merge(*map(check_layer, layers)).settings, key)

    usual = DEFAULTS.get(key)
    assert USUAL.get(key) == usual
    if usual is None:
        assert holding(("project", 9_000)) == 9_000
        return
    assert holding(("project", usual + 1)) is None
    assert holding(("project", usual)) == usual and holding(("project", usual - 1)) == usual - 1
    assert holding(("user", usual + 5), ("project", usual + 3)) == usual + 3
    assert holding(("project", usual + 1), ("session", usual + 2)) == usual + 2
    assert holding(("project", usual + 1), ("command line", usual + 2)) == usual + 2
    project = check_layer(Layer(source="project", table={key: usual + 1}))
    assert merge(project) == Merged(settings=RunSettings(), origins={})


# What may be said that bounds nothing of what a run may spend. Every other setting is a limit.
NO_LIMITS = {
    "api_key_env": "no file can have it",
    "context_window": "a fact of a model, and of the command line",
    "recover": "what is done about a cut response, within the limits",
    "cache": "how long a prompt is kept; a project's file cannot have it",
    "websocket": "how the provider is reached; a project's file cannot have it",
    "calls_in_text": "which calls count; a project's file cannot have it",
    "durability": "how safely the journal is kept; a project's file cannot have it",
    "notify": "how a session calls its person; a project's file cannot have it",
    "temperature": "of the command line, as the next three",
    "top_p": "",
    "seed": "",
    "effort": "",
    "retries": "of the command line",
    "fallback": "of the command line",
    "script": "of the command line",
    "model": "the address and the key are the user's own",
    "base_url": "a project's file cannot have it",
    "model_limits": "facts of a model: what it takes, not what it may spend",
    "environment": "what the model is told of the folder",
    "terminal": "only the user's own file may say it",
}
LIMITS = sorted({field.name for field in msgspec.structs.fields(RunSettings)} - NO_LIMITS.keys())


@each("key", LIMITS)
def test_no_limit_of_the_users_can_be_raised_by_a_project(key: str) -> None:
    """For every setting that there is, by its type: a new limit that is no cap fails here, and so does one that cannot be
    compared. The session and the command line may say more."""

    def said(source: SettingsSource, number: int) -> SourceSettings:
        return check_layer(Layer(source=source, table={key: number}))

    def holding(*sources: SourceSettings) -> object:
        return getattr(merge(*sources).settings, key)

    low, high = holding(said("user", 2)), holding(said("user", 3))
    assert isinstance(low, int | float | Decimal) and low == 2 and high == 3
    assert holding(said("user", 2), said("project", 3)) == low
    assert merge(said("user", 2), said("project", 3)).origins == {key: "user"}
    assert holding(said("user", 3), said("project", 2)) == low
    assert holding(said("project", 3)) == high
    assert holding(said("user", 2), said("project", 1), said("session", 3)) == high
    assert holding(said("user", 2), said("project", 1), said("command line", 3)) == high


@pytest.mark.parametrize("key", sorted(SWITCHES))
def test_a_project_may_switch_off_and_not_on_again(key: str) -> None:
    """What the user does not tell, a folder from elsewhere cannot have told; the command line may."""

    def holding(*sources: tuple[SettingsSource, bool]) -> object:
        layers = [Layer(source=source, table={key: value}) for source, value in sources]
        return getattr(merge(*map(check_layer, layers)).settings, key)

    assert holding(("user", False), ("project", True)) is False
    assert holding(("user", True), ("project", False)) is False
    assert holding(("project", True)) is True
    assert holding(("user", False), ("project", True), ("command line", True)) is True


MODEL_AND_ADDRESS = {"model": "openai_chat:m", "base_url": "http://h/v1"}


def test_an_address_is_that_of_its_model_alone() -> None:
    """A project that names another model gets it without the user's address; it cannot bring one of its own, beside a model or
    not."""
    user = check_layer(Layer(source="user", table=MODEL_AND_ADDRESS))
    same, other = [
        check_layer(Layer(source="project", table={"model": name})) for name in ("openai_chat:m", "openai:m")
    ]
    assert merge(user).settings == merge(user, same).settings == msgspec.convert(MODEL_AND_ADDRESS, RunSettings)
    assert merge(user, other).settings == RunSettings(model="openai:m")
    assert merge(user, other).origins == {"model": "project"}
    for table in (MODEL_AND_ADDRESS, {"base_url": "http://evil"}):
        with pytest.raises(CallerError, match="a project's file cannot say where your key goes: give --base-url"):
            check_layer(Layer(source="project", table=table))


def test_every_cap_is_a_setting() -> None:
    """And every limit a cap; the settings that are none say why."""
    assert sorted(CAPS) == LIMITS and NO_LIMITS.keys() <= {field.name for field in msgspec.structs.fields(RunSettings)}


@each(
    ("table", "said"),
    [
        ({"modle": "a:b"}, "`modle`: no such setting; did you mean `model`?"),
        ({"x": 1}, "`x`: no such setting; there are `model`, `base_url`, `max_steps`, "),
        ({"max_steps": 0}, "`max_steps`: Expected `int` >= 1; correct it, or take it out"),
        ({"max_time": float("inf")}, "`max_time`: Expected `float` <= 1000000000000.0; correct it, or take it out"),
        ({"max_tokens": 10**30}, "`max_tokens`: "),
        ({"recover": "sk-1"}, "`recover` must be `continue`, `split` or `off`; correct it, or take it out"),
        ({"recover": ["off"]}, "`recover` must be `continue`, `split` or `off`; correct it, or take it out"),
        ({"temperature": 1}, "`temperature`: a file cannot say it: give --temperature"),
        ({"max_time": "1"}, "`max_time`: Expected `float | null`, got `str`; correct it, or take it out"),
        (
            {"base_url": "http://x"},
            "`base_url` is the address of `model`, which is missing: write both, or take it out",
        ),
        ({"api_key_env": "X"}, "`api_key_env`: a file cannot say whose key is sent: give --api-key-env"),
        ({"retries": 2}, "`retries`: a file cannot say it: give --retries"),
        ({"script": True}, "`script`: a file cannot say it: give --script"),
        ({"api_key": "sk-1"}, "`api_key`: keys do not belong into files"),
        ({"permissions": {}}, "`permissions`: no such setting; there are"),
        ({"model_limits": {"a": {"window": 0}}}, "`model_limits`, `a`: a limit is a number of tokens above 0"),
    ],
)
def test_a_key_that_nobody_reads_is_named_with_its_file(table: dict[str, object], said: str) -> None:
    """And what to do; what it holds is not shown, it may be a key."""
    with pytest.raises(CallerError) as raised:
        check_layer(Layer(source="user", table=table, path=Path("/u/turnwise.toml")))
    assert str(raised.value).startswith("`/u/turnwise.toml`: ") and said in str(raised.value)
    assert "sk-1" not in str(raised.value)


def test_a_table_of_another_room_is_left_to_it() -> None:
    """The caller says which it reads itself; a key of pyproject.toml is named as it stands there."""
    layer = Layer(source="project", table={"permissions": 1, "max_steps": 2}, path=Path("/p/pyproject.toml"))
    checked = check_layer(layer, also={"permissions"})
    assert checked == SourceSettings(source="project", origin="/p/pyproject.toml", settings=RunSettings(max_steps=2))
    assert layer.named("permissions") == "`/p/pyproject.toml`: `tool.turnwise.permissions`"
