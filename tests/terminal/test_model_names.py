"""Which models `/model` and Tab name, and what is said of one that nobody has checked."""

import asyncio
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from terminal.running import running_lab
from turnwise.coding_agent.choice import Choice
from turnwise.coding_agent.model_names import (
    Doubts,
    ModelsAtHand,
    Offers,
    another_model,
    beginning_with,
    choice_of,
    known_names,
)
from turnwise.coding_agent.options import Given, given_over
from turnwise.errors import CallerError
from turnwise.lab import Lab
from turnwise.settings.settings import RunSettings
from turnwise.terminal.run import chat_command as chat
from turnwise.terminal.words import completer, endings
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
    assert "claude-sonnet-4-5" in offers.lines(known)[1] and "gpt-5" not in offers.lines(known)[1]


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
            [
                one.text
                async for one in typed.get_completions_async(Document(line), CompleteEvent(completion_requested=True))
            ]
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


async def test_a_typo_in_a_session_is_doubted_with_the_near_name() -> None:
    """The session went on with a model that did not exist (from a newcomer's trial). By the server's list, or by what is known of
    a provider that gives none; a provider of which nothing is known is taken as it is said."""
    with running_lab() as lab:
        offers = await asked(at_lab(lab))
        assert offers.doubt(at_lab(lab, "read-edit-anser")).endswith(
            " models offered there: did you mean `read-edit-answer`?"
        )
        assert offers.doubt(at_lab(lab, "3")).startswith("`3` is not among the ")
        assert offers.doubt(at_lab(lab)) == ""
    nearly, known = Choice(model="openai:gtp-5"), Choice(model="openai:gpt-5")
    assert offers.doubt(nearly) == "`gtp-5` is not among the models that are known of `openai`: did you mean `gpt-5`?"
    assert offers.doubt(known) == offers.doubt(NOBODY) == offers.doubt(Choice(model="openai:wholly-new")) == ""


def test_what_is_doubted_is_taken_if_it_is_typed_again() -> None:
    doubts = Doubts()
    with pytest.raises(CallerError, match=r"no\? To take it all the same, type it again; or so"):
        doubts.raise_once("p:x", doubt="no?", more="; or so")
    with pytest.raises(CallerError, match="no; to take it all the same, type it again"):
        doubts.raise_once("p:y", doubt="no")
    doubts.raise_once("p:y", doubt="no")
    doubts.raise_once("p:z", doubt="")
    with pytest.raises(CallerError):
        doubts.raise_once("p:y", doubt="no")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("http://h:8000/v1?key=secret", "`turnwise --continue -m openai_chat:NAME --base-url http://h:8000/v1`"),
        ("127.0.0.1:8000", "--base-url http://127.0.0.1:8000`"),
        ("gpu.local:8000/v1", "--base-url http://gpu.local:8000/v1`"),
        ("opnai:gpt-5", "did you mean `openai`"),
        ("nosuch:thing", "`turnwise models` lists them"),
        ("qwen3:8c", "did you mean `qwen3:8b`?"),
    ],
)
def test_what_is_no_model_is_one_short_line_with_what_to_do(name: str, said: str) -> None:
    """41 names of providers were the answer (from a newcomer's trial)."""
    choice = Choice(model="openai_chat:m", base_url="http://h/v1")
    with pytest.raises(CallerError) as raised:
        another_model(name, given=GIVEN, choice=choice, offered=["qwen3:8b"])
    assert said in str(raised.value) and "secret" not in str(raised.value) and len(str(raised.value)) < 200


def test_a_tag_with_a_number_is_no_port() -> None:
    choice = Choice(model="ollama:m")
    assert another_model("ollama:llama3.2:3", given=GIVEN, choice=choice, offered=[])["model"] == "ollama:llama3.2:3"
    assert another_model("llama3.2:3", given=GIVEN, choice=choice, offered=["llama3.2:3"])["model"] == (
        "ollama:llama3.2:3"
    )


def test_a_missing_key_in_a_session_says_how_to_come_back() -> None:
    """It named an option of the command line, where there is none."""
    begun: Given = {**GIVEN, "model": "openai:gpt-5"}
    at_hand = Choice(model="openai_chat:m", base_url="http://h/v1")
    with pytest.raises(CallerError) as raised:
        choice_of(begun, at_hand=at_hand, env={}, settings=RunSettings())
    assert str(raised.value) == (
        "`openai` wants a key: leave, set `OPENAI_API_KEY` or `turnwise auth add`, then `turnwise --continue -m openai:gpt-5`; "
        "the session stays with openai_chat:m"
    )
    assert (
        choice_of(begun, at_hand=at_hand, env={"OPENAI_API_KEY": "k"}, settings=RunSettings()).model == "openai:gpt-5"
    )
