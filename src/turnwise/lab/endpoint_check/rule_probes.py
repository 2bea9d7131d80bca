"""What `turnwise check --rules` asks, and what the answers say of the endpoint's row. One request a rule, with nothing else in it
that a server is known to refuse; sources: docs/dialects.md."""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import msgspec

from turnwise.vocab import Message, Request, Settings, Text, ToolCall, ToolResult, ToolSpec
from turnwise.wire.profiles import Profile

RuleAnswer = Literal["taken", "refused", "unknown", "not_asked"]
"""`unknown`: another failure than a refusal of the request. `not_asked`: an answer before it made it needless or impossible."""

RULE_TOKENS = 16  # of an answer: only whether there is one counts
SIGNATURE = "skip_thought_signature_validator"  # the stand-in that Google documents
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PAPER = "JVBERi0xLjQKJSVFT0YK"  # the beginning and the end of a PDF
SHORT_ID, LONG_ID = "check0001", "call_check_1"
# Names of models differ: what a probe cannot show, and its row says nothing of.
UNASKED = (
    "the words that `reasoning_effort` and `stop` take",
    "how many bytes the tools may have",
    "arguments that are no JSON, calls without a result, and results without a call: turnwise sends none",
    "schemas of answers in detail, and names of calls in the history",
)

ChatBody = dict[str, object]


class AskedSoFar(msgspec.Struct, frozen=True, kw_only=True):
    """What the probes before have shown. `answers`: of each that was sent, by its name."""

    model: str
    answers: Mapping[str, RuleAnswer]

    def says(self, answer: RuleAnswer, *names: str) -> bool:
        """Whether one of these was answered so."""
        return any(self.answers.get(name) == answer for name in names)

    @property
    def call_form(self) -> str:
        """Which history with a call the server takes; empty: none that turnwise knows."""
        return next((name for name in CALL_FORMS if self.says("taken", name)), "")


class RuleProbe(msgspec.Struct, frozen=True, kw_only=True):
    """`build` makes the body; `when` says whether it tells anything."""

    name: str
    title: str
    build: Callable[[AskedSoFar], ChatBody]
    when: Callable[[AskedSoFar], bool] = lambda _: True


def _said(role: str, content: object = "Reply with the one word: ready", **more: object) -> ChatBody:
    return {"role": role, "content": content, **more}


USER, SYSTEM, ASSISTANT = _said("user"), _said("system", "Be brief."), _said("assistant", "ready")
RESULT = "Oslo: 7 degrees."
ANY_SCHEMA: ChatBody = {"type": "object", "properties": {}}
CITY_SCHEMA: ChatBody = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def _body(so_far: AskedSoFar, *messages: ChatBody, **more: object) -> ChatBody:
    limit = "max_completion_tokens" if so_far.says("refused", "max-tokens") else "max_tokens"
    return {"model": so_far.model, "messages": list(messages), limit: RULE_TOKENS, **more}


def _offered(parameters: object = CITY_SCHEMA, *, name: str = "get_weather", **more: object) -> list[ChatBody]:
    schema = {} if parameters is None else {"parameters": parameters}
    return [{"type": "function", "function": {"name": name, "description": "Tells the weather.", **schema, **more}}]


def _plain(*messages: ChatBody, **more: object) -> Callable[[AskedSoFar], ChatBody]:
    return lambda so_far: _body(so_far, *messages, **more)


def _tool(parameters: object, *, name: str = "get_weather", **more: object) -> Callable[[AskedSoFar], ChatBody]:
    return _plain(USER, tools=_offered(parameters, name=name, **more))


def _with_property(schema: object, **more: object) -> Callable[[AskedSoFar], ChatBody]:
    return _tool({"type": "object", "properties": {"city": schema}, **more})


# The histories with a call that some server takes, each tried where the one before is refused.
CALL_FORMS: Mapping[str, ChatBody] = {
    "calls": {},
    "calls-reasoning": {"reasoning_content": ""},
    "calls-blank": {"reasoning_content": " "},
    "calls-signature": {},
}


def _history(
    *behind: ChatBody, form: str = "", id: str = SHORT_ID, result: object = RESULT, **beside: object
) -> Callable[[AskedSoFar], ChatBody]:
    """A call with its result; `form` is the one that is tried, else the one that was taken."""

    def build(so_far: AskedSoFar) -> ChatBody:
        way = form or so_far.call_form or "calls"
        call: ChatBody = {
            "id": id,
            "type": "function",
            "function": {"name": "get_weather", "arguments": '{"city":"Oslo"}'},
        }
        if way == "calls-signature":
            call["extra_content"] = {"google": {"thought_signature": SIGNATURE}}
        said = {**_said("assistant", ""), **CALL_FORMS[way], "tool_calls": [call], **beside}
        told = _said("tool", result, tool_call_id=id)
        return _body(so_far, USER, said, told, *behind, tools=_offered())

    return build


def _has_calls(so_far: AskedSoFar) -> bool:
    return bool(so_far.call_form)


def _refused(*names: str) -> Callable[[AskedSoFar], bool]:
    return lambda so_far: so_far.says("refused", *names)


PLAIN_TOOL = "plain-tool"
RULE_PROBES: tuple[RuleProbe, ...] = (
    RuleProbe(name="max-tokens", title="the limit as `max_tokens`", build=_plain(USER)),
    RuleProbe(
        name="max-completion-tokens",
        title="the limit as `max_completion_tokens`",
        build=lambda so_far: {"model": so_far.model, "messages": [USER], "max_completion_tokens": RULE_TOKENS},
    ),
    RuleProbe(name="message-name", title="`name` on a message", build=_plain({**USER, "name": "ann"})),
    RuleProbe(name="seed", title="`seed`", build=_plain(USER, seed=7)),
    RuleProbe(name="random-seed", title="`random_seed`", build=_plain(USER, random_seed=7), when=_refused("seed")),
    RuleProbe(name="store", title="`store`", build=_plain(USER, store=False)),
    RuleProbe(
        name="stream-options",
        title="a stream with `stream_options`",
        build=_plain(USER, stream=True, stream_options={"include_usage": True}),
    ),
    RuleProbe(name=PLAIN_TOOL, title="a plain tool", build=_tool(CITY_SCHEMA)),
    RuleProbe(
        name="parallel-calls",
        title="`parallel_tool_calls`",
        build=_plain(USER, tools=_offered(), parallel_tool_calls=True),
    ),
    RuleProbe(name="system", title="a system message", build=_plain(SYSTEM, USER)),
    RuleProbe(name="developer", title="the role `developer`", build=_plain(_said("developer", "Be brief."), USER)),
    RuleProbe(name="two-systems", title="two system messages at the beginning", build=_plain(SYSTEM, SYSTEM, USER)),
    RuleProbe(
        name="system-later", title="a system message in mid-conversation", build=_plain(USER, ASSISTANT, SYSTEM, USER)
    ),
    RuleProbe(name="no-user", title="no message of the user", build=_plain(SYSTEM)),
    RuleProbe(name="users-twice", title="two messages of the user in a row", build=_plain(USER, USER)),
    RuleProbe(name="assistant-last", title="an assistant's message at the end", build=_plain(USER, ASSISTANT)),
    RuleProbe(
        name="empty-assistant",
        title="an assistant's message without a text",
        build=_plain(USER, _said("assistant", ""), USER),
    ),
    RuleProbe(
        name="text-list",
        title="a text as a list of parts",
        build=_plain(_said("user", [{"type": "text", "text": "Hi"}])),
    ),
    RuleProbe(
        name="image",
        title="an image",
        build=_plain(_said("user", [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}])),
    ),
    RuleProbe(
        name="document",
        title="a document",
        build=_plain(
            _said(
                "user",
                [{"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PAPER}"}}],
            )
        ),
        when=lambda so_far: not so_far.says("refused", "image"),
    ),
    RuleProbe(name="calls", title="a call and its result", build=_history(form="calls")),
    RuleProbe(
        name="calls-reasoning",
        title="the same with empty reasoning",
        build=_history(form="calls-reasoning"),
        when=_refused("calls"),
    ),
    RuleProbe(
        name="calls-blank",
        title="the same with a blank as reasoning",
        build=_history(form="calls-blank"),
        when=_refused("calls-reasoning"),
    ),
    RuleProbe(
        name="calls-signature",
        title="the same with a stand-in for the signature",
        build=_history(form="calls-signature"),
        when=_refused("calls-blank"),
    ),
    RuleProbe(name="long-id", title="a call's id of 12 characters", build=_history(id=LONG_ID), when=_has_calls),
    RuleProbe(
        name="null-content", title="`content: null` beside a call", build=_history(content=None), when=_has_calls
    ),
    RuleProbe(
        name="reasoning-content",
        title="`reasoning_content` beside a call",
        build=_history(reasoning_content="Thinking."),
        when=lambda so_far: so_far.call_form in ("calls", "calls-signature"),
    ),
    RuleProbe(
        name="reasoning",
        title="`reasoning` beside a call",
        build=_history(reasoning="Thinking."),
        when=_refused("reasoning-content"),
    ),
    RuleProbe(
        name="result-list",
        title="a result as a list of texts",
        build=_history(result=[{"type": "text", "text": RESULT}]),
        when=_has_calls,
    ),
    RuleProbe(
        name="user-behind-result", title="a user's message behind a result", build=_history(USER), when=_has_calls
    ),
    RuleProbe(
        name="tool-name", title="a tool's name that begins with a digit", build=_tool(CITY_SCHEMA, name="7_days")
    ),
    RuleProbe(
        name="tool-name-line",
        title="a tool's name that begins with `_`",
        build=_tool(CITY_SCHEMA, name="_days"),
        when=_refused("tool-name"),
    ),
    RuleProbe(name="bare-tool", title="a tool without `parameters`", build=_tool(None)),
    RuleProbe(
        name="strict-tool",
        title="`strict` on a tool",
        build=_tool({**CITY_SCHEMA, "additionalProperties": False}, strict=True),
    ),
    RuleProbe(
        name="schema-no-type",
        title="a schema without a type",
        build=_tool({"properties": {"city": {"type": "string"}}}),
    ),
    RuleProbe(name="schema-no-properties", title="a schema without `properties`", build=_tool({"type": "object"})),
    RuleProbe(
        name="schema-union",
        title="`anyOf` at the root of a schema",
        build=_tool({**CITY_SCHEMA, "anyOf": [CITY_SCHEMA, ANY_SCHEMA]}),
    ),
    RuleProbe(
        name="schema-required",
        title="`required` without `properties`",
        build=_with_property({"type": "object", "required": ["name"]}),
    ),
    RuleProbe(
        name="schema-length", title="`minLength` in a schema", build=_with_property({"type": "string", "minLength": 1})
    ),
    RuleProbe(
        name="schema-great-length",
        title="a great `minLength`",
        build=_with_property({"type": "string", "minLength": 5000}),
        when=lambda so_far: not so_far.says("refused", "schema-length"),
    ),
    RuleProbe(
        name="schema-reference",
        title="`type` beside `$ref`",
        build=_with_property({"$ref": "#/$defs/City", "type": "string"}, **{"$defs": {"City": {"type": "string"}}}),
    ),
    RuleProbe(name="schema-enum", title="`enum` without `type`", build=_with_property({"enum": ["Oslo", "Lima"]})),
    RuleProbe(
        name="choice-none", title="`tool_choice`: `none`", build=_plain(USER, tools=_offered(), tool_choice="none")
    ),
    RuleProbe(
        name="choice-required",
        title="`tool_choice`: `required`",
        build=_plain(USER, tools=_offered(), tool_choice="required"),
    ),
    RuleProbe(
        name="choice-named",
        title="`tool_choice` with a tool's name",
        build=_plain(USER, tools=_offered(), tool_choice={"type": "function", "function": {"name": "get_weather"}}),
    ),
    RuleProbe(
        name="choice-unthinking",
        title="`tool_choice`: `required`, without thinking",
        build=_plain(USER, tools=_offered(), tool_choice="required", thinking={"type": "disabled"}),
        when=_refused("choice-required"),
    ),
    RuleProbe(
        name="json-schema",
        title="an answer by a JSON Schema",
        build=_plain(
            USER,
            response_format={
                "type": "json_schema",
                "json_schema": {
                    "name": "city",
                    "strict": True,
                    "schema": {**CITY_SCHEMA, "additionalProperties": False},
                },
            },
        ),
    ),
    RuleProbe(
        name="json-object",
        title="an answer as any JSON object",
        build=_plain(_said("user", "Say ready, as JSON."), response_format={"type": "json_object"}),
        when=_refused("json-schema"),
    ),
)
RULE_NAMES = tuple([probe.name for probe in RULE_PROBES])


def tells_anything(probe: RuleProbe, so_far: AskedSoFar) -> bool:
    """Whether the answer would say something of its rule. A server that refuses any tool refuses all requests with one."""
    if so_far.says("refused", PLAIN_TOOL) and "tools" in probe.build(so_far):
        return False
    return probe.when(so_far)


def plain_body(so_far: AskedSoFar) -> ChatBody:
    """The request that the server has taken."""
    return _body(so_far, USER)


# --- what the answers say of the row


def row_fields(so_far: AskedSoFar) -> dict[str, object]:
    """The fields of the endpoint's row that the refusals change. What was taken changes none."""
    return {
        **_body_fields(so_far),
        **_conversation_fields(so_far),
        **_call_fields(so_far),
        **_tool_fields(so_far),
    }


def _when(*told: tuple[bool, str, object]) -> dict[str, object]:
    return {field: value for holds, field, value in told if holds}


def _body_fields(so_far: AskedSoFar) -> dict[str, object]:
    says = so_far.says
    own_seed = says("refused", "seed") and says("taken", "random-seed")
    renamed = _when(
        (
            says("taken", "max-tokens") and says("refused", "max-completion-tokens"),
            "max_completion_tokens",
            "max_tokens",
        ),
        (says("refused", "seed"), "seed", "random_seed" if own_seed else ""),
        (says("refused", "stream-options"), "stream_options", ""),
        (says("refused", "store"), "store", ""),
    )
    other_limit = says("refused", "max-tokens") and says("taken", "max-completion-tokens")
    return _when(
        (other_limit, "max_tokens_field", "max_completion_tokens"),
        (bool(renamed), "renamed_fields", renamed),
        (own_seed, "seed_field", "random_seed"),
        (says("refused", "stream-options"), "stream_usage", False),
        (says("refused", "parallel-calls"), "sends_parallel_tool_calls", False),
        (says("refused", "json-schema"), "output", "json_object" if says("taken", "json-object") else "none"),
    )


def _conversation_fields(so_far: AskedSoFar) -> dict[str, object]:
    says = so_far.says
    takes_developer = says("refused", "system") and says("taken", "developer")
    files = "none" if says("refused", "image") else "images"
    return _when(
        (takes_developer, "system_role", "developer"),
        (says("refused", "two-systems", "system-later") and not says("refused", "system"), "later_system", "user"),
        (says("refused", "developer", "result-list"), "strict_messages", True),
        (says("refused", "no-user"), "needs_user", True),
        (says("refused", "users-twice"), "joined_models", (so_far.model.lower(),)),
        (says("refused", "assistant-last"), "user_last", True),
        (says("refused", "user-behind-result"), "behind_results", "assistant"),
        (says("refused", "image", "document"), "files", files),
    )


def _call_fields(so_far: AskedSoFar) -> dict[str, object]:
    says, form = so_far.says, so_far.call_form
    wants_reasoning = form in ("calls-reasoning", "calls-blank")
    is_strict = says("refused", "reasoning-content")
    return _when(
        (says("refused", "long-id"), "tool_call_id_length", len(SHORT_ID)),
        (says("refused", "null-content"), "calls_content", ""),
        (is_strict, "message_fields", ("name",) if says("taken", "message-name") else ()),
        (is_strict and says("taken", "reasoning"), "reasoning_replay", "reasoning"),
        (wants_reasoning, "reasoning_replay", "reasoning_content"),
        (wants_reasoning, "reasoning_stand_in", CALL_FORMS.get(form, {}).get("reasoning_content")),
        (form == "calls-signature", "signature_stand_in", SIGNATURE),
    )


def _tool_fields(so_far: AskedSoFar) -> dict[str, object]:
    says = so_far.says
    dialect = next(
        (
            word
            for word, names in (
                ("moonshot", ("schema-reference", "schema-enum")),
                ("xai", ("schema-length",)),
                ("llamacpp", ("schema-great-length",)),
            )
            if says("refused", *names)
        ),
        "",
    )
    kinds = [
        ("union", says("refused", "schema-union")),
        ("properties", says("refused", "schema-no-properties")),
        (
            "required",
            says("refused", "schema-required") and dialect != "moonshot",
        ),  # that dialect declares what is required
        ("bare", says("refused", "bare-tool")),
    ]
    refused = [kind for kind, is_refused in kinds if is_refused]
    if dialect or says("refused", "schema-no-type") or set(refused) - {"bare"}:
        refused.insert(0, "schema")
    choices = [word for word in ("none", "required", "named") if says("refused", f"choice-{word}")]
    first = "[A-Za-z]" if says("refused", "tool-name-line") else "[A-Za-z_]"
    return _when(
        (says("refused", "tool-name"), "tool_names", f"{first}[A-Za-z0-9_-]*"),
        (says("refused", "strict-tool"), "strict_tools", False),
        (bool(dialect), "tool_schemas", dialect),
        (bool(refused), "refused_tools", tuple(refused)),
        (
            bool(choices),
            "tool_choices",
            tuple([one for one in ("auto", "none", "required", "named") if one not in choices]),
        ),
        (says("taken", "choice-unthinking"), "thinking_limits_choices", True),
    )


def conversation(so_far: AskedSoFar, *, profile: Profile) -> Request:
    """What shows whether the row holds: all that the probes asked of a conversation at once, as turnwise writes it. It has tools
    where the server takes any."""
    call = ToolCall(id=LONG_ID, name="get_weather", arguments='{"city":"Oslo"}')
    result = ToolResult(call_id=LONG_ID, name="get_weather", content=(Text("Oslo:"), Text("7 degrees.")))
    has_tools = not so_far.says("refused", PLAIN_TOOL)
    called = (Message("assistant", (call,)), Message("tool", (result,)))
    answered = (Message("assistant", (Text(RESULT),)),)
    tool = ToolSpec(name="get_weather", parameters='{"anyOf":[{"required":["city"]}]}')
    return Request(
        model=so_far.model,
        system=(Text("Be brief."), Text("Be kind.")),
        messages=(
            Message("user", (Text("What is the weather in Oslo?"),)),
            *(called if has_tools else answered),
            Message("system", (Text("The user is in a hurry."),)),
            Message("user", (Text("And now?"), Text("Answer in one word."))),
        ),
        tools=(tool,) if has_tools else (),
        tool_choice="required" if has_tools else "auto",
        settings=Settings(max_output_tokens=RULE_TOKENS),
        parallel_tool_calls=True if has_tools and profile.sends_parallel_tool_calls else None,
    )


def bodies_of(probes: Sequence[RuleProbe], *, model: str) -> list[bytes]:
    """Of all probes, as large as they are if each is sent."""
    taken = AskedSoFar(model=model, answers={"calls": "taken"})
    return [msgspec.json.encode(probe.build(taken)) for probe in probes]
