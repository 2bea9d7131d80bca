"""The model that a person chose is written in front of their file of settings, and nothing else of it changes."""

import os
import stat
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.errors import CallerError
from turnwise.settings.settings import check_layer, read_layers
from turnwise.settings.user_settings import remember_model

OWN = "# mine\nmax_steps = 9  # enough\n\n[model_limits.qwen3]\nwindow = 40_960\n"


def env_in(folder: Path) -> dict[str, str]:
    return {"XDG_CONFIG_HOME": str(folder)}


def test_a_file_is_made_where_there_is_none(tmp_path: Path) -> None:
    """It is the user's alone, and the next run reads it."""
    path = remember_model("ollama:qwen3:8b", env=env_in(tmp_path))
    assert path == tmp_path / "turnwise" / "turnwise.toml"
    assert path.read_text() == 'model = "ollama:qwen3:8b"\n'
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and [one.name for one in path.parent.iterdir()] == [path.name]
    (layer,) = read_layers(tmp_path, env=env_in(tmp_path))
    assert check_layer(layer).settings.model == "ollama:qwen3:8b"


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_what_stands_in_the_file_stays_byte_for_byte(tmp_path: Path, ends: str) -> None:
    """Comments, order, line ends and the mode; a link stays a link."""
    real, path = tmp_path / "dotfiles.toml", tmp_path / "turnwise" / "turnwise.toml"
    before = OWN.replace("\n", ends).encode()
    real.write_bytes(before)
    real.chmod(0o644)
    path.parent.mkdir()
    path.symlink_to(real)
    remember_model("openai:gpt-5", env=env_in(tmp_path))
    assert real.read_bytes() == f'model = "openai:gpt-5"{ends}'.encode() + before
    assert path.is_symlink() and stat.S_IMODE(real.stat().st_mode) == 0o644


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_an_address_stands_below_its_model(tmp_path: Path, ends: str) -> None:
    """And the next run reads both."""
    path = tmp_path / "turnwise" / "turnwise.toml"
    path.parent.mkdir()
    path.write_bytes(OWN.replace("\n", ends).encode())
    remember_model("openai_chat:m", base_url="http://h:1/v1", env=env_in(tmp_path))
    first = f'model = "openai_chat:m"{ends}base_url = "http://h:1/v1"{ends}'
    assert path.read_bytes() == (first + OWN.replace("\n", ends)).encode()
    (layer,) = read_layers(tmp_path, env=env_in(tmp_path))
    settings = check_layer(layer).settings
    assert (settings.model, settings.base_url) == ("openai_chat:m", "http://h:1/v1")


def test_an_address_with_a_query_is_not_written(tmp_path: Path) -> None:
    """It may hold a key; the model alone would be sent elsewhere."""
    with pytest.raises(CallerError, match="has a query, which may hold a key") as raised:
        remember_model("openai_chat:m", base_url="http://h/v1?key=secret", env=env_in(tmp_path))
    assert "secret" not in str(raised.value) and not list(tmp_path.iterdir())


@given(name=st.text(min_size=1, max_size=30))
def test_any_name_is_read_back_as_it_is_or_refused(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    """Property; TOML cannot hold half characters, and a text of JSON is not always one of TOML."""
    folder = tmp_path_factory.mktemp("names")
    file = folder / "turnwise" / "turnwise.toml"
    file.parent.mkdir()
    file.write_text(OWN)
    try:
        remember_model(f"ollama:{name}", env=env_in(folder))
    except CallerError:
        assert file.read_text() == OWN
    else:
        assert tomllib.loads(file.read_text()) == {"model": f"ollama:{name}", **tomllib.loads(OWN)}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'model = ""\n', "has a `model` already: change it there"),
        (b'base_url = ""\n', "has a `base_url` already: change it there"),
        (b"max_steps =\n", "correct it there"),
        (b"\xff\n", "is not UTF-8"),
        (b"#" * (1024 * 1024 + 1), "has 1048577 bytes"),
    ],
)
def test_a_file_that_cannot_take_it_stays_as_it_is(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "turnwise" / "turnwise.toml"
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(CallerError, match=said):
        remember_model("openai:gpt-5", env=env_in(tmp_path))
    assert path.read_bytes() == content


def test_the_null_device_keeps_nothing_and_stays(tmp_path: Path) -> None:
    """TURNWISE_CONFIG=/dev/null is how people switch the file off."""
    with pytest.raises(CallerError, match="is no regular file"):
        remember_model("openai:gpt-5", env={"TURNWISE_CONFIG": os.devnull})
    assert stat.S_ISCHR(Path(os.devnull).stat().st_mode)


def test_a_folder_that_is_a_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "turnwise").write_text("")
    with pytest.raises(CallerError, match=r"cannot be written: "):
        remember_model("openai:gpt-5", env=env_in(tmp_path))
