"""Room, rules and lab together: overflows in each API's words, reasoning that ate all, and a session beyond its window."""

import json
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from families import traits_of
from lab.asking import ask, body_of, path_of
from tables import each
from thoroughness import spread
from turnwise.assembly.response_reading import ResponseReader, read_body
from turnwise.lab import load_scripts
from turnwise.lab.replies import tokens
from turnwise.lab.strict import Rejected, check_room, error_body
from turnwise.rules.compaction import (
    CannotShrink,
    PromptFits,
    Shorten,
    Summarise,
    apply_summary,
    judge_summary,
    plan,
    resized,
    weighed,
)
from turnwise.rules.history import unique_id
from turnwise.rules.prompt_room import (
    ModelLimits,
    OutputBudget,
    PromptSize,
    ToldLimits,
    grown,
    measured,
    message_bytes,
    prompt_capacity,
    read_told,
    request_bytes,
    split_output,
    with_budget,
)
from turnwise.rules.recovery import ate_all, find_cut
from turnwise.vocab import (
    FaultKind,
    Message,
    Request,
    Response,
    Settings,
    Text,
    ToolCall,
    ToolResult,
    ToolSpec,
    calls_of,
    text_of,
)
from turnwise.wire.family import family as find_family
from turnwise.wire.profiles import builtin_profiles

FAMILIES = ("openai_chat", "openai_responses", "anthropic_messages", "gemini")
SCRIPTS = load_scripts(Path(__file__).parent / "room")
SMALL = ModelLimits(context_window_tokens=32_000, max_output_tokens=8_000)
READ = ToolSpec(name="read", parameters='{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}')


def asked(request: Request, *, family: str, window: int | None = None) -> Response:
    """The lab's answer to a request of ours; it has to fit the window that the lab counts."""
    speaks, profile = find_family(family), builtin_profiles()[family]
    call = speaks.encode_request(request, profile)
    if window is not None:
        check_room(
            family,
            body=json.loads(call.body),
            model=request.model,
            prompt_tokens=tokens(len(call.body)),
            window_tokens=window,
            output_tokens=SMALL.max_output_tokens,
        )
    outgoing, received = ask(path_of(family, model=request.model, stream=request.stream), call.body, scripts=SCRIPTS)
    assert received.refused is None, received.refused
    if not request.stream:
        return read_body(b"".join(outgoing.pieces), family=speaks, profile=profile)[0]
    reader = ResponseReader(speaks, profile=profile, tool_names=frozenset({"read"}))
    for piece in outgoing.pieces:
        reader.feed(piece)
    return reader.finish()


@pytest.mark.promise("cut:thinking-ate-all")
@each("stream", [True, False])
@each("family", FAMILIES)
def test_reasoning_that_ate_all_is_seen_in_every_family(family: str, stream: bool) -> None:
    """Streamed and not; once it is told to be brief, the script answers."""
    question = Message("user", (Text("How much is it?"),))
    request = Request(model="thinking-ate-all", messages=(question,), stream=stream)
    eaten = asked(request, family=family)
    cut = find_cut(eaten, limit_tokens=None, hands_out_objects=False)
    assert cut is not None and ate_all(eaten, cut=cut)
    again = replace(request, messages=(question, Message("user", (Text("Think less."),))))
    response = asked(again, family=family)
    assert find_cut(response, limit_tokens=None, hands_out_objects=False) is None
    assert text_of(response.message) == "It is 42."


@pytest.mark.promise("cut:budget")
@pytest.mark.parametrize("family", FAMILIES)
def test_an_overflow_is_one_fault_whatever_the_words(family: str) -> None:
    """Each API's own words come back as `context_overflow`, with the figures that they name."""
    name = f"overflow-{family.replace('_', '-')}"
    path, body = path_of(family, model=name, stream=False), body_of(family, model=name, stream=False)
    outgoing, _ = ask(path, body, scripts=SCRIPTS)
    fault = find_family(family).decode_fault(outgoing.status, {}, b"".join(outgoing.pieces))
    assert fault.kind is FaultKind.CONTEXT_OVERFLOW
    assert read_told(fault.message) == {
        "openai_chat": ToldLimits(context_window_tokens=32_000, prompt_tokens=33_008),
        "openai_responses": None,
        "anthropic_messages": ToldLimits(context_window_tokens=32_000, prompt_tokens=31_000),
        "gemini": ToldLimits(max_input_tokens=32_000, prompt_tokens=33_008),
    }.get(family)


@pytest.mark.promise("cut:budget")
@each(
    "said",
    [
        "The decoder prompt (length 163840) is longer than the maximum model length of 131072.",
        "The prompt (total length 25938) is too long to fit into the model (context length 4096).",
        "The input (61709 tokens) is longer than the model's context length (40960 tokens).",
        "Input length (160062 tokens) exceeds the maximum allowed length (59862 tokens).",
        "Prompt exceeds max length",
        "invalid params, context window exceeds limit (2013)",
        "Invalid request: Your request exceeded model token limit: 262144 (requested: 269030)",
        "prompt token count of 93854 exceeds the limit of 90000",
        "The number of tokens to keep from the initial prompt is greater than the context length.",
        "However, the model is loaded with context length of only 32768 tokens, which is not enough.",
        "`inputs` tokens + `max_new_tokens` must be <= 4097. Given: 4000 `inputs` tokens and 512 `max_new_tokens`",
        "too many tokens: size limit exceeded by 25836 tokens. The limit for this model is 288000 tokens.",
        "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 30720]",
        "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 280001 tokens.",
        "input is too long for this model",
    ],
)
@each("family", FAMILIES)
def test_an_overflow_is_known_by_the_words_of_many_servers(family: str, said: str) -> None:
    """Proves: under HTTP 400 and whatever the family, as gateways pass the words of others through."""
    body = msgspec.json.encode({"error": {"message": said, "type": "invalid_request_error", "code": 400}})
    assert find_family(family).decode_fault(400, {}, body).kind is FaultKind.CONTEXT_OVERFLOW


def refusal(family: str, *, prompt: int, output: int) -> Rejected:
    field = {"openai_responses": "max_output_tokens", "openai_chat": "max_completion_tokens"}.get(family, "max_tokens")
    body = {"generationConfig": {"maxOutputTokens": output}} if family == "gemini" else {field: output}
    with pytest.raises(Rejected) as raised:
        check_room(family, body=body, model="m", prompt_tokens=prompt, window_tokens=32_000, output_tokens=8_000)
    return raised.value


@pytest.mark.promise("cut:budget")
@pytest.mark.parametrize("family", FAMILIES)
def test_the_window_of_the_lab_is_told_as_its_api_tells_it(family: str) -> None:
    """What the lab refuses is what our decoders and rules read out of real refusals."""
    decode = find_family(family).decode_fault
    too_long = refusal(family, prompt=40_000, output=4_000)
    fault = decode(too_long.status, {}, error_body(family, rejected=too_long))
    told = read_told(fault.message)
    assert fault.kind is FaultKind.CONTEXT_OVERFLOW
    assert (told and told.prompt_tokens) == (None if family == "openai_responses" else 40_000)
    too_much = refusal(family, prompt=1_000, output=9_000)
    fault = decode(too_much.status, {}, error_body(family, rejected=too_much))
    assert fault.kind is FaultKind.BAD_REQUEST
    assert read_told(fault.message) == ToldLimits(max_output_tokens=8_000)


def test_only_some_apis_refuse_a_prompt_for_the_output_it_asks_for() -> None:
    """Anthropic and Chat Completions add the two up; the others give what is left."""
    for family in ("anthropic_messages", "openai_chat"):
        told = read_told(refusal(family, prompt=30_000, output=4_000).message)
        assert told == ToldLimits(context_window_tokens=32_000, prompt_tokens=30_000)
    for family in ("openai_responses", "gemini"):
        body = {"max_output_tokens": 4_000, "generationConfig": {"maxOutputTokens": 4_000}}
        check_room(family, body=body, model="m", prompt_tokens=30_000, window_tokens=32_000, output_tokens=None)


class Session:
    """A turn by hand: what the chair does with budget and compaction, and nothing else."""

    def __init__(self, family: str, *, model: str, first: str) -> None:
        self.family, self.model = family, model
        self.messages: list[Message] = []
        self.sizes: list[int] = []
        self.prompt = PromptSize(added_bytes=request_bytes(system=(), tools=(READ,)))
        self.purposes: list[str] = []
        self.taken: set[str] = set()
        self.add(Message("user", (Text(first),)))

    def add(self, message: Message) -> None:
        self.messages.append(message)
        self.sizes.append(message_bytes(message))
        self.prompt = grown(self.prompt, added_bytes=self.sizes[-1])

    def replace(self, after: tuple[Message, ...]) -> None:
        sizes = resized(self.sizes, before=self.messages, after=after)
        now = weighed(self.prompt, sizes=self.sizes, sizes_now=sizes)
        assert now.tokens < self.prompt.tokens
        self.messages, self.sizes, self.prompt = list(after), sizes, now

    def request(self, messages: tuple[Message, ...], *, settings: Settings, forbids: bool = False) -> Response:
        request = Request(
            model=self.model,
            messages=messages,
            tools=(READ,),
            tool_choice="none" if forbids else "auto",
            settings=settings,
            stream=False,
        )
        return asked(request, family=self.family, window=SMALL.context_window_tokens)

    def make_room(self) -> None:
        planned = plan(
            self.messages,
            sizes=self.sizes,
            prompt=self.prompt,
            capacity_tokens=prompt_capacity(SMALL, settings=Settings()),
            window_tokens=32_000,
            handle="read_result",
        )
        match planned:
            case PromptFits():
                return
            case Shorten(messages=after):
                self.purposes.append("shorten")
                self.replace(after)
            case Summarise():
                self.purposes.append("compact")
                instruction = Message("user", (Text(planned.instruction),))
                limit = Settings(max_output_tokens=planned.max_tokens)
                response = self.request((*planned.asks, instruction), settings=limit, forbids=True)
                summary = judge_summary(text_of(response.message), finish=response.finish, planned=planned)
                assert summary is not None
                self.replace(apply_summary(planned=planned, summary=summary))
            case CannotShrink(why=why):
                raise AssertionError(why)

    def step(self, *, forbids: bool = False) -> Message:
        self.make_room()
        budget = split_output(SMALL, settings=Settings(), prompt_tokens=self.prompt.tokens)
        assert isinstance(budget, OutputBudget)
        self.purposes.append("step")
        response = self.request(tuple(self.messages), settings=with_budget(Settings(), budget=budget), forbids=forbids)
        self.prompt = measured(self.prompt, usage=response.usage)
        # The lab counts its ids, those of items too, by the messages that it is shown: fewer after a compaction.
        ids = [
            unique_id(call.id, taken=self.taken, traits=traits_of(self.family)) for call in calls_of(response.message)
        ]
        self.taken.update(ids)
        renamed = iter(ids)
        parts = [
            replace(part, id=next(renamed), opaque=None) if isinstance(part, ToolCall) else part
            for part in response.message.parts
        ]
        self.add(Message("assistant", tuple(parts)))
        return self.messages[-1]


@pytest.mark.costly
@pytest.mark.promise("cut:budget")
@pytest.mark.parametrize("family", spread(FAMILIES, one_of=2, name="three hundred steps"))
def test_three_hundred_steps_under_a_small_window_never_overflow(family: str) -> None:
    """Done when 6 by the rules alone: the lab counts the very bytes and refuses what is too long; each compaction shrinks;
    the first message is in the last request, word for word."""
    session = Session(family, model="long-session", first="My cat is called Maunz. Read the parts.")
    for part in range(1, 300):
        calls = calls_of(session.step())
        assert [json.loads(call.arguments) for call in calls] == [{"path": f"part-{part:03}.txt"}]
        content = (
            f"part {part}\n" + "There is little of note here.\n" * 100 + f"the next part is part-{part + 1:03}.txt"
        )
        session.add(
            Message("tool", (ToolResult(call_id=calls[0].id, name="read", content=(Text(content),)),)),
        )
    answer = text_of(session.step(forbids=True))
    assert answer.startswith("So far I have read the parts up to this one: part 299\n")
    assert session.messages[0] == Message("user", (Text("My cat is called Maunz. Read the parts."),))
    assert session.purposes.count("step") == 300
    assert (session.purposes.count("compact") > 0, len(session.purposes) - 300 < 60) == (True, True)
