"""What a turn can be given: everything that the tests of any sequence draw from, the sound and the absurd."""

import msgspec
from hypothesis import strategies as st

from families import traits_of
from turnwise.rules.limits import Limit, MaxRequests, MaxSteps, MaxTokens, MaxToolCalls, MaxWallTime
from turnwise.rules.permissions import PermissionRule, Policy
from turnwise.rules.prompt_room import UNKNOWN_LIMITS, ModelLimits
from turnwise.rules.retries import NO_RETRY, RetryPolicy
from turnwise.turn.config import Approval, Fallback, HookPoint, ToolOffer, TurnConfig
from turnwise.turn.events import StepPrepared, TurnStarted
from turnwise.vocab import (
    ArgumentsState,
    Fault,
    FaultKind,
    File,
    FinishReason,
    Message,
    NamedTool,
    Opaque,
    OutputSchema,
    Part,
    ProviderItem,
    Reasoning,
    Refusal,
    Response,
    Text,
    ToolCall,
    ToolResult,
    ToolSpec,
    Usage,
)

FAMILIES = ("openai_chat", "openai_responses", "anthropic_messages", "gemini")
SERVER_TOOL = '{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{"query":"q"}}'
SCHEMA = '{"type":"object","properties":{"a":{"type":"integer"}},"additionalProperties":false}'
OFFERS = (
    ToolOffer(spec=ToolSpec(name="read", parameters=SCHEMA), effect="read"),
    ToolOffer(spec=ToolSpec(name="write", parameters=SCHEMA), effect="write", exclusive=True),
    ToolOffer(spec=ToolSpec(name="ask_client"), client_side=True),
    ToolOffer(spec=ToolSpec(name="patch", free_form=True), timeout_s=1.0),
    ToolOffer(spec=ToolSpec(name="edit", parameters=SCHEMA), effect="write", inspected=True),
    ToolOffer(spec=ToolSpec(name="shell", parameters=SCHEMA), effect="execute", inspected=True),
    ToolOffer(spec=ToolSpec(name="ask_user"), asks_user=True),
    ToolOffer(spec=ToolSpec(name="task", parameters=SCHEMA), child=True),
)

ids = st.sampled_from(["", "a", "b", "a_2", "x:1"])
TOOLS = tuple([offer.spec.name for offer in OFFERS])
names = st.sampled_from([*TOOLS, "raed", "", "not a name", "n" * 70])
# Beginnings that can be gone on from, and replies that do so.
STORY = "The quick brown fox jumps over the lazy dog, again and again, until nobody counts any more"
LONG = "A line that fills the window.\n" * 100  # 1,000 tokens
SIZES = ["ok", LONG, LONG * 4, "1" * 9_000]
BEGUN = '{"a":1,"more":"The quick brown fox jumps over the lazy dog, again and ag'
RESTS = [STORY[40:] + ", and then the end.", BEGUN[30:] + 'ain"}', STORY[40:] + ", and then the quick dog jumps"]
texts = st.sampled_from(["", " \n", "Hello.", '{"a":1}', '```json\n{"a":1}\n```', '{"a":"x"}', STORY, LONG, *RESTS])
arguments = st.sampled_from(
    ["{}", '{"a":1}', BEGUN, '{"a":"no"}', '{"a":', "[1]", "", '{"a":1}{"a":2}', '{"input":"p"}', "\ud800"]
)
opaques = st.none() | st.just(Opaque("gemini", "{}"))
calls = st.builds(
    ToolCall,
    id=ids,
    name=names,
    arguments=arguments,
    state=st.sampled_from(ArgumentsState),
    free_form=st.booleans(),
    reason=st.none() | st.just("cut inside the string at `$.a` after 3 characters"),
    alternatives=st.sampled_from([(), (), ('{"a":1}', '{"a":2}'), ('{"a":1}', '{"a":"no"}')]),
)
results = st.builds(
    ToolResult,
    call_id=ids,
    name=names,
    content=st.lists(
        st.builds(Text, texts | st.sampled_from(SIZES)) | st.just(File(media_type="image/png", data=b"1")), max_size=2
    ).map(tuple),
    is_error=st.booleans(),
)
parts: st.SearchStrategy[Part] = st.one_of(
    st.builds(Text, texts, opaque=opaques),
    st.builds(Reasoning, texts),
    st.builds(Refusal, texts),
    st.just(File(media_type="image/png", url="https://x/y.png")),
    st.just(ProviderItem("anthropic_messages", "server_tool_use", SERVER_TOOL)),
    calls,
    calls,
    results,
)
messages = st.builds(
    Message, st.sampled_from(["user", "assistant", "tool", "system"]), st.lists(parts, max_size=4).map(tuple)
)
# Providers tell of their limits in these words; some are far from what the turn was told before.
TOLD = (
    "prompt is too long: 9000 tokens > 4000 maximum",
    "This model's maximum context length is 6000 tokens. However, your messages resulted in 7001 tokens",
    "max_tokens: 8192 > 512, which is the maximum allowed number of output tokens for m",
    "Input is too long.",
)
overflows = st.builds(
    Fault,
    kind=st.sampled_from([FaultKind.CONTEXT_OVERFLOW, FaultKind.BAD_REQUEST, FaultKind.QUOTA]),
    message=st.sampled_from(TOLD),
    status=st.just(400),
)
faults = overflows | st.builds(Fault, kind=st.sampled_from(FaultKind), message=st.sampled_from(["", "overloaded"]))
usages = st.sampled_from(
    [
        None,
        Usage(input_tokens=1, output_tokens=1),
        Usage(input_tokens=2_900, output_tokens=100),
        Usage(input_tokens=40_000, output_tokens=3_000, reasoning_tokens=3_000),
    ]
)
any_responses = st.builds(
    Response,
    message=st.lists(parts, max_size=4).map(lambda some: Message("assistant", tuple(some))),
    finish=st.sampled_from(FinishReason),
    usage=usages,
    fault=st.sampled_from([None] * 8 + [Fault(kind=FaultKind.SERVER, message="boom")]) | st.none() | overflows,
)
cut_responses = st.builds(
    Response,
    message=st.sampled_from(
        [
            (ToolCall(id="a", name="read", arguments=BEGUN, state=ArgumentsState.TRUNCATED),),
            (
                ToolCall(id="b", name="read", arguments='{"a":1}'),
                ToolCall(id="b", name="read", arguments=BEGUN, state=ArgumentsState.TRUNCATED),
                ToolCall(id="a", name="write", arguments=BEGUN, state=ArgumentsState.TRUNCATED),
            ),
            (Text(STORY),),
            (Reasoning("hm"),),
            *[(Text(rest),) for rest in RESTS],
        ]
    ).map(lambda some: Message("assistant", some)),
    finish=st.sampled_from([FinishReason.LENGTH, FinishReason.STOP, FinishReason.CUT]),
    usage=usages,
)
# A model at work: without these hardly a drawn turn grows old enough for its window.
at_work = st.builds(
    Response,
    message=st.lists(
        st.builds(ToolCall, id=ids, name=st.sampled_from(["read", *TOOLS]), arguments=st.just('{"a":1}')),
        min_size=1,
        max_size=3,
    ).map(lambda some: Message("assistant", (Reasoning("hm"), Text("Looking."), *some))),
    finish=st.just(FinishReason.TOOL_CALLS),
    usage=usages,
)
responses = any_responses | cut_responses | at_work
choices = st.sampled_from(["auto", "none", "required", NamedTool("read"), NamedTool("gone")])
outputs = st.none() | st.just(OutputSchema(schema=SCHEMA, strict=False))
preparations = st.builds(
    StepPrepared,
    model=st.none() | st.just("m2"),
    tools=st.none() | st.lists(st.sampled_from(["read", "ask_client", "gone"]), max_size=2).map(tuple),
    tool_choice=st.none() | choices,
    parallel_tool_calls=st.none() | st.booleans(),
    instruction=st.none() | st.just("Be brief."),
    output=outputs,
    at_s=st.sampled_from([0.0, 4.0]),
)
leaves: st.SearchStrategy[Limit] = st.one_of(
    st.builds(MaxRequests, st.integers(1, 6)),
    st.builds(MaxToolCalls, st.integers(1, 6)),
    st.builds(MaxSteps, st.integers(1, 6)),
    st.builds(MaxTokens, st.sampled_from([500, 3_000, 50_000]), st.sampled_from(["all", "input", "output"])),
    st.builds(MaxWallTime, st.sampled_from([5.0, 20.0])),
)


def _composed(inner: st.SearchStrategy[Limit]) -> st.SearchStrategy[Limit]:
    pairs = st.tuples(inner, inner)
    return pairs.map(lambda pair: pair[0] | pair[1]) | pairs.map(lambda pair: pair[0] & pair[1])


limits = st.none() | st.recursive(leaves, _composed, max_leaves=4)
model_limits = st.sampled_from(
    [
        UNKNOWN_LIMITS,
        ModelLimits(context_window_tokens=9000, max_output_tokens=4000),
        ModelLimits(context_window_tokens=3000, max_output_tokens=1000),
        ModelLimits(max_input_tokens=2000, max_output_tokens=700, max_reasoning_tokens=300),
        ModelLimits(context_window_tokens=600),
    ]
)
times = st.sampled_from([0.0, 3.0, 12.0])  # out of order too: a driver's clock is not ours to trust


rules = st.builds(
    PermissionRule,
    verdict=st.sampled_from(["allow", "ask", "deny"]),
    tool=st.sampled_from(["*", "read", "write", "patch", "task", "edit"]),
    path=st.none() | st.just("/etc/**"),
    source=st.sampled_from(["user", "project", "command line"]),
)
policies = st.builds(
    Policy,
    rules=st.lists(rules, max_size=3).map(tuple),
    workspace=st.just("/w"),
    home=st.just("/h"),
    attended=st.sampled_from([True, True, False]),
    unattended=st.sampled_from(["deny", "deny", "allow"]),
)
retries = st.sampled_from([NO_RETRY, RetryPolicy(attempts=2), RetryPolicy(attempts=4, total_s=20.0)])
fallbacks = st.sampled_from(
    [(), (), (Fallback(model="m3"), Fallback(model="m4", limits=ModelLimits(context_window_tokens=4000)))]
)
HOOKED: tuple[HookPoint, ...] = ("before_tool", "after_tool", "before_request")


def _of_an_endpoint(config: TurnConfig) -> TurnConfig:
    """An endpoint that wants the tools of its history declared cannot forbid them by leaving them out."""
    config = msgspec.structs.replace(config, traits=traits_of(config.family))
    if config.traits.wants_called_tools:
        return msgspec.structs.replace(config, tool_choice_none="send")
    return config


configs = st.builds(
    TurnConfig,
    session_id=st.just("s"),
    turn_id=st.just("t"),
    model=st.just("m"),
    tools=st.sampled_from([(), OFFERS, OFFERS]),
    tool_choice=st.sampled_from(["auto", "none", "required"]),
    parallel_tool_calls=st.none() | st.booleans(),
    output=outputs,
    max_output_corrections=st.integers(0, 2),
    max_steps=st.integers(1, 8),
    limits=limits,
    allowed=st.sampled_from([("none", "read"), ("none", "read", "write"), ("none", "read", "write", "execute")]),
    prepares_steps=st.booleans(),
    family=st.sampled_from(FAMILIES),
    accepts_prefill=st.booleans(),
    stream=st.booleans(),
    recover=st.sampled_from(["continue", "split", "off"]),
    judges_cut=st.booleans(),
    room=st.sampled_from(["compact", "compact", "budget", "off"]),
    model_limits=model_limits,
    default_max_tokens=st.sampled_from([None, 100]),
    tool_choice_none=st.sampled_from(["send", "drop_tools"]),
    policy=st.none() | policies,
    hooks=st.just(()) | st.lists(st.sampled_from(HOOKED), unique=True).map(tuple),
    retry=retries,
    fallbacks=fallbacks,
).map(_of_an_endpoint)


approvals = st.builds(
    Approval,
    call_id=ids,
    verdict=st.sampled_from(["allow", "allow", "deny", "later"]),
    by=st.sampled_from(["person", "default", "program"]),
    text=texts,
    always=st.booleans(),
    subject=st.sampled_from(["", "", "write", "a subject of before"]),
    digest=st.sampled_from(["", "", "a digest of before"]),
)
starts = st.builds(
    TurnStarted,
    config=configs,
    input=st.lists(messages, max_size=2).map(tuple),
    history=st.lists(messages, max_size=6).map(tuple),
    approvals=st.just(()) | st.lists(approvals, max_size=2).map(tuple),
)
