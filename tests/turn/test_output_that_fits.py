"""The output that is asked for fits the window too: where the API insists on a limit, and where our guess is off."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from tables import each
from turn.playing import ASK, CONFIG, call, says
from turn.test_room import failed
from turnwise.rules.limits import MaxRequests, MaxTokens
from turnwise.rules.prompt_room import ModelLimits, OutputBudget, split_output
from turnwise.turn.config import TurnConfig
from turnwise.turn.events import Event, FinishTurn, ResponseReceived, RunTools, SendRequest, ToolsFinished, TurnStarted
from turnwise.turn.machine import Turn
from turnwise.vocab import Settings, Text, ToolResult, Usage

WINDOW = ModelLimits(context_window_tokens=6_000)


def played(config: TurnConfig, *, prompt_tokens: Callable[[int], int]) -> tuple[str, list[tuple[int, int | None]]]:
    """The origin of the answer, and what each request was: its prompt by the provider's count, and the output that it asked
    for. The provider refuses what does not fit, without a figure."""
    asked: list[tuple[int, int | None]] = []
    turn, command = Turn.start(TurnStarted(config=config, input=(ASK,)))
    while not isinstance(command, FinishTurn):
        event: Event
        match command:
            case SendRequest(number=number, request=request):
                tokens, output = prompt_tokens(number), request.settings.max_output_tokens
                output = output or config.default_max_tokens
                asked.append((tokens, output))
                if tokens + (output or 0) > 6_000:
                    event = failed(number, "Input exceeds the context window")
                else:
                    said = (
                        says(call(f"c{number}")) if request.tools and request.tool_choice != "none" else says("Here.")
                    )
                    usage = Usage(input_tokens=tokens, output_tokens=20)
                    event = ResponseReceived(number=number, response=replace(said, usage=usage), at_s=float(number))
            case RunTools(calls=planned):
                results = [ToolResult(call_id=one.call.id, name="read", content=(Text("x" * 900),)) for one in planned]
                event = ToolsFinished(results=tuple(results), at_s=0.0)
            case _:
                raise AssertionError(command)
        command = turn.receive(event)
    return command.result.origin, asked


@pytest.mark.promise("end:budget")
@pytest.mark.parametrize("requests", range(1, 7))
def test_an_api_that_insists_on_a_limit_is_asked_for_no_more_than_the_window_leaves(requests: int) -> None:
    """Proves: 8,192 tokens do not go out into a window of 6,000, and a larger limit gives no local answer (issue 14, line 2)."""
    config = replace(
        CONFIG, room="compact", model_limits=WINDOW, default_max_tokens=8_192, limits=MaxRequests(requests)
    )
    origin, asked = played(config, prompt_tokens=lambda number: 200 * number)
    assert origin == "model" and all(tokens + (output or 0) <= 6_000 for tokens, output in asked)


@pytest.mark.promise("end:budget")
@each("tokens", [9_000, 14_000, 25_000, 40_000])
@each("usual", [None, 8_192])
def test_a_refusal_without_figures_of_a_small_prompt_asks_for_less_output(tokens: int, usual: int | None) -> None:
    """Proves: where our guess of the prompt is off by some tokens, the output gives way, and the answer is the model's at each
    size of the limit."""
    config = replace(CONFIG, room="compact", model_limits=WINDOW, default_max_tokens=usual, limits=MaxTokens(tokens))
    origin, asked = played(config, prompt_tokens=lambda number: 400 + 100 * number)
    assert origin == "model", asked


def test_a_usual_limit_goes_out_as_it_is_where_it_fits() -> None:
    """What nobody has to change stays unsaid, so that the family's own limit stands."""
    plain = OutputBudget(max_tokens=None, reasoning_tokens=None)
    wide = ModelLimits(context_window_tokens=100_000)
    assert split_output(wide, settings=Settings(), prompt_tokens=10, usual_tokens=8_192) == plain
    assert split_output(ModelLimits(), settings=Settings(), prompt_tokens=10, usual_tokens=8_192) == plain
    least = split_output(WINDOW, settings=Settings(), prompt_tokens=1_000, usual_tokens=8_192, spare_tokens=128)
    assert least == OutputBudget(max_tokens=4_872, reasoning_tokens=None, answer_tokens=4_872)
