"""Which models `/model` and Tab name, and what is said of one that nobody has checked."""

import asyncio
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from faces.cli.running import running_lab
from turnwise.drivers.settings import RunSettings
from turnwise.faces.cli.chat import command as chat
from turnwise.faces.cli.choice import Choice
from turnwise.faces.cli.completing import completer, endings
from turnwise.faces.cli.model_names import ModelsAtHand, Offers, another_model, beginning_with, known_names
from turnwise.faces.cli.options import Given, given_over
from turnwise.lab import Lab
from waits import HANG_S

PARAMS = chat.make_context("turnwise", [], help_option_names=["-h", "--help"]).params
GIVEN = given_over({"settings": RunSettings()}, PARAMS)  # pyright: ignore[reportArgumentType]
NOBODY = Choice(model="openai_chat:m", base_url="http://127.0.0.1:1/v1")


def at_lab(lab: Lab, name: str = "plain-answer") -> Choice:
    return Choice(model=f"openai_chat:{name}", base_url=f"{lab.url}/v1")


async def asked(choice: Choice) -> Offers:
    offers = Offers()
    await offers.ask(choice, again=True)
    return offers


async def test_the_model_alone_shows_what_its_server_offers() -> None:
    with running_lab() as lab:
        choice = at_lab(lab)
        offers = await asked(choice)
        first, second, last = offers.lines(choice)
        assert first == f"openai_chat:plain-answer at {lab.url}/v1"
        assert second.startswith("offered there: calls-after-stop, ") and " and " in second
        assert last.startswith("`/model NAME` goes on with another one")
        assert offers.unchecked(choice) == ""
        assert "it is not among the " in offers.unchecked(at_lab(lab, "nonsense"))


async def test_where_nobody_lists_models_the_known_ones_are_shown() -> None:
    """And a name is said to be unchecked unless it is known."""
    offers = await asked(NOBODY)
    first, second, _ = offers.lines(NOBODY)
    assert first == "openai_chat:m at http://127.0.0.1:1/v1" and second.startswith("`openai_chat` gave no list: ")
    assert offers.unchecked(NOBODY) == offers.unchecked(Choice(model="vllm:nonsense")) == "; the name was not checked"
    known = Choice(model="anthropic:claude-sonnet-4-5")
    assert offers.unchecked(known) == ""
    assert "claude-sonnet-4-5" in offers.lines(known)[1] and "gpt" not in offers.lines(known)[1]


def test_known_names_are_those_of_the_provider() -> None:
    assert "gpt-5" in known_names("openai") == known_names("openai-chat")
    assert not [name for name in known_names("openai") if name.startswith("claude")]
    assert known_names("vllm") == known_names("openai_chat") == known_names("nobody") == []


async def test_tab_completes_models_behind_the_command(tmp_path: Path) -> None:
    """The server is asked at the first Tab and not again: it may be gone by then."""
    offers = Offers()
    with running_lab() as lab:
        choice = at_lab(lab)
        typed = completer(
            commands={"/model": ""}, others={}, folder=tmp_path, models=ModelsAtHand(offers, choice=lambda: choice)
        )
        there = [
            [one.text async for one in typed.get_completions_async(Document(line), CompleteEvent())]
            for line in ("/model plain-a", "/model ollam", "/mod")
        ]
    assert there == [["plain-answer"], ["ollama:", "ollama-cloud:"], ["/model"]] or there[1][0].startswith("ollama")
    await asyncio.wait_for(offers.ask(choice), HANG_S)
    assert "plain-answer" in offers.begun("", choice=choice)


def test_tab_completes_no_other_line_by_models(tmp_path: Path) -> None:
    def models(begun: str) -> list[str]:
        return beginning_with(begun, offered=["qwen3:8b"])

    assert endings("/model qw", commands=(), folder=tmp_path, models=models) == [("qwen3:8b", 2)]
    assert endings("/model qwen3:8b x", commands=(), folder=tmp_path, models=models) == []
    assert endings("say /model qw", commands=(), folder=tmp_path, models=models) == []


@pytest.mark.parametrize(
    ("name", "model", "keeps"),
    [
        ("other", "ollama:other", True),
        ("qwen3:8b", "ollama:qwen3:8b", True),
        ("ollama:qwen3:8b", "ollama:qwen3:8b", True),
        ("openai:gpt-5", "openai:gpt-5", False),
    ],
)
def test_the_address_stays_with_its_provider(name: str, model: str, *, keeps: bool) -> None:
    """OPENAI_API_KEY does not go to the server of another provider, though `--base-url` was given for that; a name with a colon
    that the server offers is one of its own."""
    choice = Choice(model="ollama:m", base_url="http://gpu/v1", api_key_env="MINE")
    begun: Given = {**GIVEN, "model": "ollama:m", "base_url": "http://gpu/v1", "api_key_env": "MINE"}
    given = another_model(name, given=begun, choice=choice, offered=["qwen3:8b"])
    kept = ("http://gpu/v1", "MINE") if keeps else (None, None)
    assert (given["model"], given["base_url"], given["api_key_env"]) == (model, *kept)
