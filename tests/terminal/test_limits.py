"""`turnwise run --max-requests`, `--max-tokens`, `--max-time`: who decides, and what is said at the end."""

import json
from pathlib import Path

import click
import pytest

from terminal.running import Cli, at
from turnwise.coding_agent.permissions import limits_of, model_limits_of, settings_in
from turnwise.coding_agent.repository import settings_of_run
from turnwise.lab import Lab
from turnwise.lab.provider import Received
from turnwise.rules.limits import Limit, MaxRequests, MaxTokens, MaxWallTime
from turnwise.rules.prompt_room import ModelLimits
from turnwise.settings.catalogue import LimitRow
from turnwise.settings.options import rows_from
from turnwise.settings.settings import CAPS, Layer, Merged, RunSettings, check_layer, is_table, read_layers
from turnwise.terminal.check import check_command as check
from turnwise.terminal.command_options import FiniteRange
from turnwise.terminal.lab import lab_command
from turnwise.terminal.run import run_command as run
from turnwise.turn.config import TurnConfig
from turnwise.vocab import Settings

each_family = pytest.mark.parametrize("family", ["openai_chat", "openai_responses", "anthropic_messages", "gemini"])


@each_family
@pytest.mark.promise("end:budget", "end:reason")
def test_so_many_requests_are_made_and_the_face_says_why_it_ended(cli: Cli, lab: Lab, family: str) -> None:
    """The last one is the answer."""
    ran = cli("run", "Search.", "--max-requests", "3", *at(lab, "never-stops", family=family))
    assert (ran.code, lab.count()) == (3, 3)
    assert ran.out.strip()
    assert "answered from incomplete data: budget (3 steps, 3 requests" in ran.err


@pytest.mark.promise("end:budget")
def test_the_folder_limits_where_the_command_line_does_not(cli: Cli, lab: Lab, folder: Path) -> None:
    """And a session goes on within the limits that it had."""
    (folder / "turnwise.toml").write_text("max_requests = 2\nmax_time = 600\n")
    assert cli("run", "Go.", "--json", *at(lab, "never-stops")).events()[-1]["requests"] == 2
    assert cli("run", "Go.", "--json", "--max-requests", "4", *at(lab, "never-stops")).events()[-1]["requests"] == 4
    assert cli("run", "Go.", "--json", "--continue", *at(lab, "never-stops")).events()[-1]["requests"] == 4


@pytest.mark.costly
@pytest.mark.promise("end:budget")
def test_tool_calls_are_limited_by_the_command_line_a_file_and_the_session(cli: Cli, lab: Lab, folder: Path) -> None:
    """A response asks for one call; the answer's request comes on top."""

    def requests(*options: str) -> int:
        return cli("run", "Go.", "--json", *options, *at(lab, "never-stops")).events()[-1]["requests"]

    (folder / "turnwise.toml").write_text("max_tool_calls = 2\n")
    assert requests() == 3
    assert requests("--max-tool-calls", "4") == 5
    assert requests("--continue") == 5
    assert requests("--continue", "--max-requests", "3") == 3


@pytest.mark.parametrize(
    "option",
    [
        ("--max-tool-calls", "0"),
        ("--max-requests", "0"),
        ("--max-tokens", "-1"),
        ("--max-time", "0"),
        ("--max-time", "inf"),
    ],
)
def test_a_limit_that_allows_nothing_or_has_no_end_is_a_usage_error(
    cli: Cli, lab: Lab, option: tuple[str, str]
) -> None:
    """Nothing is sent."""
    ran = cli("run", "Go.", *option, *at(lab, "plain-answer"))
    assert (ran.code, lab.count()) == (2, 0)


@pytest.mark.parametrize("flag", [row.flags[-1] for row in rows_from("command line") if row.kind is float])
@pytest.mark.parametrize("number", ["nan", "-nan", "inf"])
def test_what_is_no_number_is_a_usage_error_that_names_the_option(cli: Cli, flag: str, number: str) -> None:
    """click lets `nan` through; the words were then those of msgspec."""
    ran = cli("run", f"{flag}={number}", "Go.")
    assert ran.code == 2 and f"Invalid value for '{flag}'" in ran.err


@pytest.mark.parametrize("command", [run, check, lab_command], ids=lambda command: command.name)
def test_no_option_takes_a_number_that_is_not_finite(command: click.Command) -> None:
    """`check --timeout nan` was taken."""
    types = [param.type for param in command.params if isinstance(param.type, click.types.FloatParamType)]
    assert types and all(isinstance(one, FiniteRange) for one in types)


@pytest.mark.parametrize(
    ("settings", "last", "chosen"),
    [
        (RunSettings(), None, None),
        (RunSettings(max_requests=3), None, MaxRequests(3)),
        (RunSettings(max_requests=3, max_tokens=100), MaxRequests(9), MaxRequests(3) | MaxTokens(100)),
        (
            RunSettings(max_requests=9, max_tokens=50, max_time=60),
            MaxTokens(7) | MaxTokens(8, "output"),
            MaxRequests(9) | MaxTokens(50) | MaxWallTime(60) | MaxTokens(8, "output"),
        ),
        (RunSettings(), MaxRequests(9) & MaxTokens(9), MaxRequests(9) & MaxTokens(9)),
    ],
)
def test_settings_are_limits_beside_what_only_a_session_can_say(
    settings: RunSettings, last: Limit | None, chosen: Limit | None
) -> None:
    """Each kind by itself; the merged settings have had the session's word on theirs."""
    assert limits_of(settings, last=last) == chosen


@pytest.mark.promise("end:budget", "end:cap")
def test_user_project_session_and_command_line_stand_over_each_other(folder: Path, tmp_path: Path) -> None:
    """Each key by itself, and it is known whose word it is."""
    user, project = tmp_path / "user.toml", folder / "pyproject.toml"
    user.write_text('model = "a:b"\nmax_steps = 9\nmax_requests = 4\nmax_tokens = 100\n')
    project.write_text("[tool.turnwise]\nmax_steps = 8\nmax_requests = 5\n")
    last = TurnConfig(
        session_id="s", turn_id="t", model="m", limits=MaxTokens(70), settings=Settings(max_output_tokens=12)
    )
    env = {"TURNWISE_CONFIG": str(user)}
    files = settings_of_run(read_layers(folder, env=env), last=None, given=RunSettings())
    assert files == Merged(
        settings=RunSettings(model="a:b", max_steps=8, max_requests=4, max_tokens=100),
        origins={"model": str(user), "max_steps": str(project), "max_requests": str(user), "max_tokens": str(user)},
    )
    assert settings_of_run(read_layers(folder, env=env), last=last, given=RunSettings(max_steps=3)) == Merged(
        settings=RunSettings(
            model="a:b",
            max_steps=3,
            max_requests=4,
            max_tokens=70,
            max_output_tokens=12,
            recover="off",
            calls_in_text="auto",
            retries=0,
        ),
        origins={
            "model": str(user),
            "max_steps": "command line",
            "max_requests": str(user),
            "max_tokens": "session",
            "max_output_tokens": "session",
            "recover": "session",
            "calls_in_text": "session",
            "retries": "session",
        },
    )


@each_family
@pytest.mark.promise("cut:budget")
def test_the_users_limits_of_a_model_stand_in_the_requests(
    cli: Cli, lab: Lab, folder: Path, tmp_path: Path, family: str
) -> None:
    """The user's file for every model that begins so, the project's figure over it, the command line's over both."""
    config = tmp_path / "config" / "turnwise" / "turnwise.toml"
    config.parent.mkdir(parents=True)
    config.write_text('[model_limits]\n"plain-*" = { window = 16_000, output = 3_000 }\n')

    def asked(*options: str) -> int:
        assert cli("run", "Go.", *options, *at(lab, "plain-answer", family=family)).code == 0
        return output_limit(lab.requests[-1])

    assert asked() == 3_000
    (folder / "turnwise.toml").write_text(f'[model_limits]\n"{family}:plain-*" = {{ output = 2_500 }}\n')
    assert asked() == 2_500
    (folder / "turnwise.toml").write_text('[model_limits]\n"plain-*" = { output = 2_000 }\n')
    assert asked() == 2_000
    assert asked("--max-output-tokens", "1500") == 1_500
    assert asked("--continue") == 1_500
    assert asked("--max-output-tokens", "9000") == 2_000
    # too small a window for that: what the prompt leaves of it
    assert 0 < asked("--context-window", "4000") < 2_000


def test_a_window_that_only_the_session_knows_is_kept(folder: Path) -> None:
    """What the catalogue or the user's files say goes before it; another model has none of it."""
    last = TurnConfig(
        session_id="s", turn_id="t", model="qwen3", profile="ollama", model_limits=ModelLimits(context_window_tokens=9)
    )
    rows = {"qwen3": LimitRow(output=4)}

    def found(model: str, *, window: int | None = None) -> ModelLimits:
        settings = RunSettings(model_limits=rows, context_window=window)
        return model_limits_of(model, settings=settings, last=last)

    assert found("ollama:qwen3") == ModelLimits(context_window_tokens=9, max_output_tokens=4)
    assert found("ollama:qwen3", window=7) == ModelLimits(context_window_tokens=7, max_output_tokens=4)
    assert found("vllm:qwen3") == ModelLimits(max_output_tokens=4)
    rows["ollama:qwen3"] = LimitRow(window=8)
    assert found("ollama:qwen3") == ModelLimits(context_window_tokens=8)


OF_THE_TURN_ITSELF = frozenset({"max_steps", "max_output_tokens", "max_subagents", "max_subagent_requests"})


@pytest.mark.parametrize("key", sorted(CAPS - OF_THE_TURN_ITSELF))
def test_every_cap_becomes_a_limit_and_is_found_again_in_a_session(key: str) -> None:
    """A setting that no limit is made of would be read and not hold; one that is not found again would end with the run."""
    said = check_layer(Layer(source="user", table={key: 2})).settings
    limit = limits_of(said, last=None)
    assert limit is not None and settings_in(limit) == said
    assert limits_of(RunSettings(), last=limit) is None, "what a setting can say is not taken over without one"


def output_limit(received: Received) -> int:
    """`max_tokens` of a request, wherever its family puts it."""
    body: dict[str, object] = json.loads(received.body)
    config = body.get("generationConfig")
    fields: dict[str, object] = {**body, **(config if is_table(config) else {})}
    names = ("max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens")
    (found,) = [value for name in names if isinstance(value := fields.get(name), int)]
    return found
