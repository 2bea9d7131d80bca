"""What one turn hands on to the next: what was summarised stays so, and work that is done is not done again."""

import sys
from collections.abc import Callable
from types import FrameType

import msgspec
import pytest

from families import of_family
from turn.playing import ASK, CONFIG, call, says, session_messages
from turnwise.rules.compaction import GONE, SUMMARY_HEAD
from turnwise.rules.prompt_room import ModelLimits
from turnwise.turn.config import TurnConfig, TurnResult
from turnwise.turn.events import (
    Command,
    Event,
    FinishTurn,
    RequestFailed,
    ResponseReceived,
    RunTools,
    SendRequest,
    ToolsFinished,
    TurnStarted,
)
from turnwise.turn.history import Carried
from turnwise.turn.machine import SessionSoFar, Turn, fold_session, replay
from turnwise.vocab import Fault, FaultKind, Message, Request, Response, Text, ToolResult, Usage, calls_of, text_of

SMALL = ModelLimits(context_window_tokens=16_000, max_output_tokens=4_000)
ROOMY = msgspec.structs.replace(CONFIG, room="compact", model_limits=SMALL, max_steps=100)
WIDE = msgspec.structs.replace(ROOMY, model_limits=ModelLimits(context_window_tokens=4_000_000), max_steps=2000)
LONG = "".join([f"line {number}\n" for number in range(5000)])


class Lived:
    """A session as it is lived: each turn starts from what the journals before it fold into."""

    def __init__(self) -> None:
        self.journals: list[list[Event]] = []
        self.sent: list[list[SendRequest]] = []
        self.results: list[TurnResult] = []

    @property
    def so_far(self) -> SessionSoFar:
        return fold_session(self.journals)

    def turn(
        self,
        responses: list[Response | Fault],
        *,
        config: TurnConfig = ROOMY,
        said: Message = ASK,
        content: str = "word " * 300,
    ) -> TurnResult:
        """One turn: as scripted, an answer at the end or where it is forced, a summary where one is asked for."""
        started = TurnStarted(config=config, input=(said,))
        turn, command = Turn.start(started, earlier=self.so_far.carried)
        self.journals.append([started])
        self.sent.append([])
        coming = iter(responses)
        while not isinstance(command, FinishTurn):
            if isinstance(command, SendRequest):
                self.sent[-1].append(command)
            self.journals[-1].append(answer(command, coming=lambda: next(coming, says("Done.")), content=content))
            command = turn.receive(self.journals[-1][-1])
        self.results.append(command.result)
        return command.result

    def purposes(self, turn: int) -> list[str]:
        return [request.purpose for request in self.sent[turn]]


def answer(command: Command, *, coming: Callable[[], Response | Fault], content: str) -> Event:
    match command:
        case SendRequest(purpose="compact", number=number):
            return ResponseReceived(number=number, response=says("SUMMARY: parts were read."))
        case SendRequest(number=number, request=request):
            said = says("Done.") if request.tool_choice == "none" else coming()
            if isinstance(said, Fault):
                return RequestFailed(number=number, fault=said)
            return ResponseReceived(number=number, response=counted(said, request=request))
        case RunTools(calls=planned):
            texts = (Text(content),)
            return ToolsFinished(
                results=tuple([ToolResult(call_id=one.call.id, name=one.call.name, content=texts) for one in planned])
            )
        case _:
            raise AssertionError(command)


def counted(response: Response, *, request: Request) -> Response:
    """With the prompt's tokens, at four bytes each: less than turnwise guesses."""
    tokens = sum([len(msgspec.json.encode(message)) for message in request.messages]) // 4
    return msgspec.structs.replace(response, usage=Usage(input_tokens=tokens, output_tokens=10))


def steps(count: int, *, first: int = 0) -> list[Response | Fault]:
    return [says(call(f"c{number}", arguments=f'{{"path":"{number}"}}')) for number in range(first, first + count)]


def words(request: SendRequest) -> str:
    return "\n".join([text_of(message) for message in request.request.messages])


@pytest.mark.promise("cut:budget")
def test_the_next_turn_goes_on_from_the_summary() -> None:
    """Proves: no second summary of the same messages, the request begins with the bytes of the last one; nothing is lost."""
    lived = Lived()
    first = lived.turn(steps(60))
    assert "compact" in lived.purposes(0)
    lived.turn([], said=Message("user", (Text("And now?"),)))
    assert lived.purposes(1) == ["step"]
    last, begun = lived.sent[0][-1].request.messages, lived.sent[1][0].request.messages
    assert begun[: len(last)] == last
    assert f"{SUMMARY_HEAD}\nSUMMARY: parts were read." in words(lived.sent[1][0])
    assert first.history is not None
    assert tuple(lived.results[1].history or begun) == begun  # no room was made in it
    whole = (*first.messages, *lived.results[1].messages)
    assert (tuple(lived.so_far.messages), session_messages(lived.journals)) == (whole, whole)
    assert len(first.messages) > len(first.history)
    carried = lived.so_far.carried
    kept = {id(one) for one in carried.messages}
    assert carried.gone and not [one for one in carried.gone if id(one) in kept]


@pytest.mark.promise("cut:budget")
def test_every_turn_of_a_session_replays_from_what_was_before_it() -> None:
    """Proves: summaries in several turns, and each fold of the journals gives the very requests again."""
    lived = Lived()
    for turn in range(6):
        lived.turn(steps(12, first=turn * 12))
    assert sum([lived.purposes(turn).count("compact") for turn in range(6)]) >= 2
    for turn in range(6):
        before = fold_session(lived.journals[:turn]).carried
        again = [one for one in replay(lived.journals[turn], earlier=before) if isinstance(one, SendRequest)]
        assert again == lived.sent[turn]


@pytest.mark.promise("cut:budget")
def test_a_result_that_an_earlier_turn_shortened_can_be_read() -> None:
    """Proves: in the next turn of a session it is at hand; where only messages are handed on, the model is told it is not."""
    read = call("b", "read_result", '{"call_id":"a","offset":20000,"limit":1000}')
    lived = Lived()
    lived.turn([says(call("a"))], content=LONG)
    lived.turn([says(read)])
    shown = lived.sent[1][1].request.messages[-1].parts[0]
    assert isinstance(shown, ToolResult)
    assert text_of(Message("user", shown.content)).startswith(LONG[20_000:21_000])
    alone, _ = Turn.start(TurnStarted(config=ROOMY, input=(ASK,)), earlier=lived.results[0].messages)
    alone.receive(ResponseReceived(number=1, response=says(read)))
    told = alone.messages[-1].parts[0]
    assert isinstance(told, ToolResult)
    assert (text_of(Message("user", told.content)), told.is_error) == (GONE.format(id="a"), True)


@pytest.mark.promise("cut:budget")
def test_a_window_that_a_provider_told_is_known_in_the_next_turn() -> None:
    """Proves: one overflow a session, not one a turn; another model is not taken to have it."""
    told = Fault(
        kind=FaultKind.CONTEXT_OVERFLOW, message="prompt is too long: 15000 tokens > 12000 maximum", status=400
    )
    lived = Lived()
    lived.turn([*steps(4), told])
    lived.turn([])
    assert lived.purposes(0).count("retry") == 1
    same, _ = Turn.start(TurnStarted(config=ROOMY, input=(ASK,)), earlier=lived.so_far.carried)
    assert same.known.config.model_limits == msgspec.structs.replace(SMALL, context_window_tokens=12_000)
    other = msgspec.structs.replace(ROOMY, model="other")
    turn, _ = Turn.start(TurnStarted(config=other, input=(ASK,)), earlier=lived.so_far.carried)
    assert turn.known.config.model_limits == SMALL


@pytest.mark.promise("cut:budget")
def test_another_family_is_given_what_was_said_before_it() -> None:
    """Proves: ids are fitted anew from the messages as they came, as long as nothing gave way."""
    lived = Lived()
    lived.turn([says(call("odd id!"))], config=WIDE)
    anthropic = msgspec.structs.replace(WIDE, **of_family("anthropic_messages"), profile="anthropic")
    lived.turn([], config=anthropic)
    lived.turn([], config=WIDE)
    ids = [[one.id for message in sent[0].request.messages for one in calls_of(message)] for sent in lived.sent]
    assert (ids[1] != ["odd id!"], ids[2]) == (True, ["odd id!"])


# what it costs: lines of Python that run, which do not depend on the machine


class Lines:
    """Counts the lines that run, each turn of a loop for itself."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, frame: FrameType, event: str, arg: object) -> "Lines":
        self.count += event == "line"
        return self


def lines_of(work: Callable[[], object]) -> int:
    """How many lines run."""
    lines, before = Lines(), sys.gettrace()
    sys.settrace(lines)
    try:
        work()
    finally:
        sys.settrace(before)
    return lines.count


@pytest.mark.parametrize("room", ["compact", "budget", "off"])
def test_a_step_costs_the_same_however_long_the_turn(room: str) -> None:
    """Proves: where nothing has to give way no step walks the history: 1,000 of them cost a thousand times one."""
    turn, command = Turn.start(TurnStarted(config=msgspec.structs.replace(WIDE, room=room), input=(ASK,)))
    cost: list[int] = []
    for number in range(1000):
        made = says(call(f"c{number:04}", arguments=f'{{"path":"{number:04}"}}'))
        events = (answer(command, coming=lambda made=made: made, content="word"),)

        def step(events: tuple[Event, ...] = events) -> None:
            done = turn.receive(events[0])
            nonlocal command
            command = turn.receive(answer(done, coming=lambda: says(""), content="word"))

        if number % 100 in (50, 51):
            cost.append(lines_of(step))
        else:
            step()
    assert max(cost) - min(cost) < min(cost) // 20, cost


@pytest.mark.parametrize("room", ["compact", "budget", "off"])
def test_a_session_is_folded_in_linear_time(room: str) -> None:
    """Proves: 80 turns cost twice as much as 40, whatever is done about room."""
    lived = Lived()
    for turn in range(80):
        config = msgspec.structs.replace(WIDE, room=room)
        started = TurnStarted(config=config, input=(ASK,))
        events: list[Event] = [started]
        one, command = Turn.start(started, earlier=Carried(call_ids=frozenset()))
        for made in (says(call(f"t{turn}")), says("Done.")):
            while isinstance(command, RunTools):
                events.append(answer(command, coming=lambda: says(""), content="word"))
                command = one.receive(events[-1])
            events.append(answer(command, coming=lambda made=made: made, content="word"))
            command = one.receive(events[-1])
        lived.journals.append(events)
    half = lines_of(lambda: fold_session(lived.journals[:40]))
    whole = lines_of(lambda: fold_session(lived.journals))
    assert whole < half * 21 // 10, (half, whole)


def test_a_block_of_a_message_that_gave_way_is_still_known_as_said() -> None:
    """Issue 16, done when 1: what was summarised or shortened was read, so the model may quote it, in later turns too."""
    lived = Lived()
    config = msgspec.structs.replace(ROOMY, calls_in_text="on")
    result = Text("<tool_call>of the file</tool_call> " + "word " * 300)
    lived.turn(steps(60), config=config, content=result.text)
    lived.turn([], config=config, said=Message("user", (Text("And now?"),)))
    assert "compact" in lived.purposes(0)
    for request in (lived.sent[0][-1], lived.sent[1][0]):
        sought = request.calls_in_text
        assert sought is not None
        said = (*sought.earlier, *request.request.messages)
        read = {part.call_id for message in said for part in message.parts if result in getattr(part, "content", ())}
        asked = {call.id for message in lived.so_far.messages for call in calls_of(message)}
        assert read == asked and ASK in said
    first = lived.sent[0][0].calls_in_text
    assert first is not None and first.earlier == ()


@pytest.mark.promise("cut:budget")
def test_words_that_are_mended_leave_the_count_of_what_stands_before_them() -> None:
    """Proves: an empty message is left out, and the provider's count of the history behind which it stood is still known."""
    lived = Lived()
    lived.turn(steps(2))
    empty = Message("user", ())
    sizes = []
    for given in ((ASK,), (empty, ASK)):
        started = TurnStarted(config=ROOMY, input=given)
        turn, command = Turn.start(started, earlier=lived.so_far.carried)
        assert isinstance(command, SendRequest)
        sizes.append((turn.known.history.prompt, list(turn.known.history.sizes), command.request.messages))
    assert sizes[0] == sizes[1]
