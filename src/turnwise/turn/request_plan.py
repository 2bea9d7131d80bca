"""What one request asks for: it is built from the turn's state, and its response is judged by it."""

import msgspec

from turnwise.rules.answer_room import Forbidden, forbid_tools, tools_of_history
from turnwise.turn.config import TurnConfig
from turnwise.turn.events import Purpose, StepPrepared
from turnwise.vocab import (
    Caching,
    FamilyTraits,
    Message,
    NamedTool,
    Opaque,
    OutputSchema,
    Repair,
    Request,
    ServerLesson,
    Settings,
    Text,
    ToolChoice,
    ToolSpec,
    messages_in_common,
    new_tools_in,
)

# Lessons that change nothing before the end of the messages.
BEHIND_MESSAGES: frozenset[ServerLesson] = frozenset({"choice_auto", "choice_unforced", "max_completion_tokens"})

# Why a request may begin differently from the one before it, so that the provider's prompt cache misses from there on. Apart from
# these, it begins with the same messages, tools and system (promise step:prefix-stable). Of the last three, only the first that
# applies is named: everything after a change is lost with it.
PREFIX_EXCEPTIONS = {
    "model": "`prepare_step` named another model, or one that failed gave way to a fallback",
    "tools": "`prepare_step` chose other tools, or the endpoint forbids tools by leaving them out, or the model disobeyed, or "
    "the agent, a toolset or an MCP server offers others than in the turn before",
    "system": "the instructions are not those of the turn before",
    # It is in the system prompt if the endpoint is told about it in words; OpenAI puts a schema before the system message
    # ("Prompt caching", structured outputs).
    "output": "another form of answer was asked for: `prepare_step` chose it, or a summary or a continuation has none",
    # Anthropic docs, "Prompt caching", "What invalidates the cache": these two keep tools and system cached. They are named if
    # Anthropic's cache is asked for.
    "tool choice": "tool choice was another one: the last step forbids calls, or `prepare_step` chose it",
    "thinking": "another amount of reasoning was asked for: `prepare_step` chose it, or a summary needs less",
    # Claude docs, "Fix a thinking block bound to a different conversation": dropped blocks are not part of the prompt.
    "stale thinking": "the model refused thinking behind something that has changed, so such thinking is left out from then on",
    "server's rules": "the server refused how the conversation was written, so it is written otherwise from then on",
    "compaction": "there was too little room: old results were shortened, or older messages summarised",
    "paused content": "a pause that nothing continues keeps its text only",
    "last message": "what stood at the end of the request before was for that request only: a user-role text, or a cut "
    "response that was continued",
}


def as_last(message: Message) -> Message:
    """Paused content in the form that a request may end with: Anthropic refuses a last text that ends in white space. It stays in
    this form afterwards, because a prefix that changes costs the provider's cache."""
    if not message.parts or not isinstance(last := message.parts[-1], Text):
        return message
    text = last.text.rstrip()
    kept = (msgspec.structs.replace(last, text=text),) if text else ()
    return message if text == last.text else Message(message.role, (*message.parts[:-1], *kept))


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """The last request, and how many of its last messages are not part of the history."""

    request: Request
    own: int
    tools: tuple[ToolSpec, ...]  # as they are sent
    left_out: int = 0  # blocks of stale thinking, in the whole session


class RequestTerms(msgspec.Struct, frozen=True, kw_only=True):
    """What the current request allowed; its response is judged by it.

    `forced`: the last step, no tool may be called. `partial`: an answer to it rests on incomplete data. `tools` are the names
    that may be called.
    """

    purpose: Purpose
    forced: bool
    partial: bool
    tools: tuple[str, ...]
    output: OutputSchema | None
    limit_tokens: int | None


def build_request(
    config: TurnConfig,
    *,
    messages: tuple[Message, ...],
    trailing: tuple[str, ...],
    tools: tuple[ToolSpec, ...],
    prepared: StepPrepared,
    forced: bool,
    disobeyed: bool,
    has_called: bool,
) -> Request:
    """The request of a step. System, tools and earlier messages stay as they were unless `prepared` says otherwise.

    The turn's own tool choice holds until a tool `has_called`: a choice that forces a call in every step could end only at the
    cap.
    """
    own = own_choice(config, has_called=has_called)
    wanted = prepared.tool_choice if prepared.tool_choice is not None else own
    offer = Forbidden(tools, _possible_choice(wanted, tools=tools))
    if forced:
        offer = forbid_tools(tools, means=config.tool_choice_none, disobeyed=disobeyed, traits=config.traits)
    if not offer.tools and config.traits.wants_called_tools and (called := tools_of_history(messages)):
        offer = Forbidden(called, "none")
    parallel = config.parallel_tool_calls if prepared.parallel_tool_calls is None else prepared.parallel_tool_calls
    if trailing:
        messages = (*messages, Message("user", tuple([Text(text) for text in trailing])))
    return Request(
        model=prepared.model or config.model,
        messages=messages,
        system=config.system,
        tools=offer.tools,
        tool_choice=offer.tool_choice,
        parallel_tool_calls=parallel if offer.tools else None,  # APIs refuse it without tools
        output=prepared.output or config.output,
        settings=prepared.settings or config.settings,
        stream=config.stream,
        extra=Opaque(config.family, config.extra) if config.extra else None,
    )


def own_choice(config: TurnConfig, *, has_called: bool) -> ToolChoice:
    return "auto" if has_called and config.tool_choice != "none" else config.tool_choice


def tools_chosen(prepared: StepPrepared, *, specs: tuple[ToolSpec, ...], always: str | None) -> tuple[ToolSpec, ...]:
    """The tools of a step: those that `prepare_step` named, otherwise all. `always` is added to the named ones."""
    if prepared.tools is None:
        return specs
    wanted = {*prepared.tools, always} if prepared.tools else frozenset[str | None]()
    return tuple([spec for spec in specs if spec.name in wanted])


def repairs_of_preparing(
    prepared: StepPrepared, *, specs: tuple[ToolSpec, ...], tools: tuple[ToolSpec, ...], own: ToolChoice, step: int
) -> list[Repair]:
    """The parts of `prepare_step`'s answer that are impossible: a repair for each name that is not a tool, and for a tool choice
    that the `tools` of the step cannot meet. `own` is the turn's choice, if it holds in this step."""
    names = frozenset(prepared.tools or ()) - {spec.name for spec in specs}
    told = [("unknown_tool_offered", f"prepare_step named `{name}`, which is no tool here") for name in sorted(names)]
    choice = prepared.tool_choice if prepared.tool_choice is not None else own
    if choice != "none" and _possible_choice(choice, tools=tools) != choice:
        whose = "prepare_step chose" if prepared.tool_choice is not None else "the tool choice of the turn is"
        said, why = (
            (choice.name, "which is not on offer in this step")
            if isinstance(choice, NamedTool)
            else (choice, "and no tool is on offer in this step")
        )
        told.append(("impossible_tool_choice", f"{whose} `{said}`, {why}"))
    return [Repair(kind, f"step {step}", why) for kind, why in told]


def asking_of(request: Request, *, purpose: Purpose, forced: bool, partial: bool, config: TurnConfig) -> RequestTerms:
    return RequestTerms(
        purpose=purpose,
        forced=forced,
        partial=partial,
        tools=() if request.tool_choice == "none" else tuple([tool.name for tool in request.tools]),
        output=request.output,
        limit_tokens=limit_of(request.settings, config=config),
    )


def _possible_choice(choice: ToolChoice, *, tools: tuple[ToolSpec, ...]) -> ToolChoice:
    """APIs refuse a choice without tools, and a named tool that is not on offer."""
    if not tools or (isinstance(choice, NamedTool) and all(tool.name != choice.name for tool in tools)):
        return "auto"
    return choice


def limit_of(settings: Settings, *, config: TurnConfig) -> int | None:
    """The output limit that a request with these settings asks for. If the user set none, it is the profile's own, to which the
    requests of some families add a budget for reasoning."""
    if settings.max_output_tokens is not None or config.default_max_tokens is None:
        return settings.max_output_tokens
    budget = settings.reasoning_tokens or 0
    return config.default_max_tokens + (budget if config.traits.adds_reasoning_budget else 0)


def sent_as(request: Request, *, own: int, config: TurnConfig) -> Sent:
    left_out = request.tool_choice == "none" and config.tool_choice_none == "drop_tools"
    stale = len(config.stale_thinking.left_out)
    return Sent(request=request, own=own, tools=() if left_out else request.tools, left_out=stale)


def caching_of(config: TurnConfig, *, own: int) -> Caching | None:
    """What a request asks of the provider's cache, if its last `own` messages are not part of the history."""
    if config.cache == "off":
        return None
    return Caching(hour=config.cache == "1h", key=config.cache_key, passing=own)


def is_aside(request: Request, *, purpose: Purpose, before: Purpose | None, plain: ToolChoice) -> bool:
    """Whether no later request reads what Anthropic's cache keeps of this request's messages. They are cached for its tool
    choice, and the steps of the turn have another one (`plain`). In a row of continuations, the third reads the second."""
    if request.tool_choice != "none" or plain == "none":
        return purpose == "compact"
    return not (purpose == before == "continue")


def asked_of_cache(request: Request, *, purpose: Purpose, before: Purpose | None, plain: ToolChoice) -> Request:
    """The request as it is sent: without a cache mark on its messages if no later request could read them."""
    if request.cache is None or not is_aside(request, purpose=purpose, before=before, plain=plain):
        return request
    return msgspec.structs.replace(request, cache=msgspec.structs.replace(request.cache, shared_only=True))


def prefix_changes(
    before: Sent | None, *, now: Sent, compacted: bool, traits: FamilyTraits, marks_cache: bool
) -> tuple[str, ...]:
    """Which of PREFIX_EXCEPTIONS apply between two requests, judged by what was sent, not by what was meant to change. The first
    one is the cause of the new reading. Tool choice and thinking count when they change; but when they change back, what was
    cached before a summary is still there, so then the cause is the summary. `marks_cache`: the cache is Anthropic's, and asked
    for."""
    if before is None:
        return ()
    old, new = before.request, now.request
    same = messages_in_common(old.messages, new.messages)
    if traits.caches_within_messages and same == len(old.messages) - 1 < len(new.messages):
        same += _begins_with(new.messages[same], old.messages[same])
    lost = len(old.messages) - same
    choice, thinking = (
        (_choice(before) != _choice(now), _thinks(old) != _thinks(new)) if marks_cache else (False, False)
    )
    is_stale = old.drops_stale_thinking != new.drops_stale_thinking or before.left_out != now.left_out
    is_rewritten = old.lessons != new.lessons and not BEHIND_MESSAGES.issuperset({*old.lessons} ^ {*new.lessons})
    is_alike = before.tools == now.tools and old.appended_tools == new.appended_tools
    tools = not is_alike and _tools_differ(before, now)
    is_same = old.model == new.model and not tools and old.system == new.system
    if is_same and not (lost or choice or thinking or is_stale or is_rewritten):
        return () if old.output == new.output else ("output",)
    is_compacted = lost > before.own and compacted
    behind = {"tool choice": choice, "thinking": thinking}
    is_back = old.tool_choice == "none" != new.tool_choice
    found = {
        "model": old.model != new.model,
        "tools": tools,
        "system": old.system != new.system,
        "output": old.output != new.output,
        "stale thinking": is_stale,
        "server's rules": is_rewritten,
        **({"compaction": is_compacted, **behind} if is_back else {**behind, "compaction": is_compacted}),
        "paused content": lost > before.own and not compacted and not is_stale,
        "last message": 0 < lost <= before.own,
    }
    return tuple([what for what, holds in found.items() if holds])


def _tools_differ(before: Sent, now: Sent) -> bool:
    """Whether the tools in front of the messages changed, or those that the messages of the earlier request tell of."""
    new = frozenset(now.request.appended_tools).difference(new_tools_in(*before.request.messages))
    return before.tools != tuple([tool for tool in now.tools if tool.name not in new])


def _choice(sent: Sent) -> object:
    request = sent.request
    return (request.tool_choice, request.parallel_tool_calls) if sent.tools else None


def _thinks(request: Request) -> object:
    return request.settings.reasoning_effort, request.settings.reasoning_tokens


def _begins_with(longer: Message, message: Message) -> bool:
    return longer.role == message.role and longer.parts[: len(message.parts)] == message.parts
