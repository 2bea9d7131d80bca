"""What is advised where a provider failed."""

from tables import each
from terminal.running import Cli, at
from turnwise.coding_agent.choice import Choice
from turnwise.coding_agent.run_events import REMEDIES, FailedModel, remedy
from turnwise.lab import Lab
from turnwise.vocab import Fault, FaultKind

THERE = "http://h/v1"
OF_MODEL = "The model `m` does not exist or you do not have access to it. (asked for `http://h/v1/chat/completions`)"
OF_PATH = "Not Found (asked for `http://h/v1beta/models/m:streamGenerateContent`)"


def not_found(message: str, *, in_session: bool = False, base_url: str | None = THERE) -> str:
    fault = Fault(kind=FaultKind.NOT_FOUND, message=message, status=404)
    choice = Choice(model="openai_chat:m", base_url=base_url, api_key_env="MY KEY")
    return remedy(fault, asked=FailedModel(choice=choice, in_session=in_session))


def test_an_unknown_model_is_advised_the_command_that_lists_models() -> None:
    """The address came first, which was right (from a newcomer's trial). A query may hold a key, and is not shown."""
    listing = "turnwise models openai_chat --base-url http://h/v1 --api-key-env 'MY KEY'"
    assert not_found(OF_MODEL) == f"check the model's name: `{listing}` lists the models there"
    assert not_found(OF_MODEL, base_url=f"{THERE}?key=x") == not_found(OF_MODEL)
    assert "--base-url" not in not_found(OF_MODEL, base_url=None)
    assert not_found(OF_MODEL, in_session=True) == (
        "check the model's name: `/model` shows some, `/model NAME` takes one"
    )


def test_an_unknown_path_is_advised_the_address_first() -> None:
    """Though the URL that was asked for holds the model's name."""
    assert not_found(OF_PATH).startswith("check the address (--base-url), then the model's name: ")


@each("kind", list(FaultKind))
def test_there_is_advice_for_each_kind_of_failure(kind: FaultKind) -> None:
    asked = FailedModel(choice=Choice(model="openai_chat:m"))
    assert remedy(Fault(kind=kind, message="x"), asked=asked)
    assert kind in REMEDIES or kind is FaultKind.NOT_FOUND


def test_a_run_with_a_wrong_name_says_how_to_find_the_right_one(cli: Cli, lab: Lab) -> None:
    ran = cli("run", "Hi.", *at(lab, "plain-anser"))
    assert ran.code == 6
    assert f"check the model's name: `turnwise models openai_chat --base-url {lab.url}/v1` lists" in ran.err


def test_requests_that_reached_nobody_are_not_counted_as_none_made(cli: Cli) -> None:
    """`Tried 4 times` stood beside `0 requests` (from a newcomer's trial)."""
    ran = cli("run", "Hi.", "-m", "openai_chat:m", "--base-url", "http://127.0.0.1:1/v1", "--retries", "0")
    assert ran.code == 6 and "0 requests reached the server" in ran.err
