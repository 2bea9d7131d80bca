"""What a line of a journal leaves out has one meaning for ever: the encoder writes no field that has its default, so whoever
changes a default changes what all older journals say (issue 18: mutants that no test noticed)."""

from decimal import Decimal

import msgspec
import pytest

from tables import each
from turnwise.rules.history import NOTHING_STALE
from turnwise.rules.limits import Spent
from turnwise.rules.prompt_room import ModelLimits
from turnwise.rules.retries import RetryPolicy
from turnwise.turn import config, events
from turnwise.turn import config as approvals
from turnwise.turn import events as commands
from turnwise.turn.config import (
    Approval,
    AskOrigin,
    ChildReport,
    Deadlines,
    Fallback,
    OneAsk,
    ScriptLimits,
    ToolOffer,
    TurnConfig,
    TurnResult,
)
from turnwise.turn.events import (
    Asked,
    CallsInspected,
    HookOutcome,
    HooksRan,
    Interrupted,
    MessageArrived,
    OutputChecked,
    PlannedCall,
    RequestFailed,
    ResponseReceived,
    RulesAdded,
    RunHooks,
    RunScript,
    RunTools,
    ScriptCalled,
    ScriptFinished,
    ScriptFunction,
    ScriptResult,
    SendRequest,
    SoughtCalls,
    StepPrepared,
    ToolEnded,
    ToolsFinished,
    TurnStarted,
    WaitOver,
)
from turnwise.vocab import FamilyTraits, Settings, Usage

DEADLINES = {
    "connect_s": 10.0,
    "first_event_s": None,
    "idle_s": 90.0,
    "left_open_s": 5.0,
    "total_s": 900.0,
    "tool_s": 120.0,
    "child_s": 900.0,
    "child_idle_s": None,
    "ask_s": 300.0,
    "hook_s": 10.0,
    "toolset_s": 30.0,
}
SCRIPT_LIMITS = {
    "cpu_s": 10.0,
    "wall_s": 900.0,
    "sleep_s": 120.0,
    "memory_bytes": 134_217_728,
    "calls": 200,
    "call_bytes": 4_194_304,
    "exchanged_bytes": 33_554_432,
    "output_characters": 65_536,
    "program_characters": 65_536,
}
CONFIG = {
    "system": (),
    "tools": (),
    "tool_choice": "auto",
    "parallel_tool_calls": None,
    "cache": "off",
    "cache_key": "",
    "output": None,
    "max_output_corrections": 2,
    "checks_output": False,
    "settings": Settings(),
    "extra": "",
    "stream": True,
    "max_steps": 20,
    "limits": None,
    "max_subagents": None,
    "max_subagent_requests": None,
    "prices": {},
    "allowed": ("none", "read", "write", "execute"),
    "allow_hint": "add `{effect}` to the allowed effects",
    "recover": "off",
    "judges_cut": False,
    "calls_in_text": "auto",
    "leaves_calls_in_text": False,
    "model_limits": ModelLimits(),
    "room": "off",
    "retry": RetryPolicy(attempts=1),
    "fallbacks": (),
    "policy": None,
    "hooks": (),
    "prepares_steps": False,
    "tool_errors": "told",
    "deadlines": Deadlines(**DEADLINES),
    "script_limits": ScriptLimits(**SCRIPT_LIMITS),
    "family": "openai_chat",
    "profile": "openai_chat",
    "traits": FamilyTraits(),
    "accepts_prefill": False,
    "default_max_tokens": None,
    "system_in_input": False,
    "appends_tools": False,
    "shows_thinking": False,
    "stale_thinking": NOTHING_STALE,
    "lessons": {},
    "tool_choice_none": "send",
    "marks_cache": False,
    "base_url": "",
    "api_key_env": "",
}
RESULT = {
    "output": None,
    "reasoning": "",
    "repairs": (),
    "pending": (),
    "asks": (),
    "unread": (),
    "children": (),
    "charged_usd": None,
    "also_spent": Spent(),
    "recovery_usage": Usage(),
    "fault": None,
    "origin": "model",
    "why_incomplete": "",
    "prefix_changes": (),
    "requests_by_purpose": {},
    "history": None,
}
PREPARED = {
    "tools": None,
    "tool_choice": None,
    "parallel_tool_calls": None,
    "model": None,
    "settings": None,
    "output": None,
    "instruction": None,
    "price": None,
    "at_s": 0.0,
}
OFFER = {
    "client_side": False,
    "exclusive": False,
    "idempotent": False,
    "repeatable": False,
    "effect": "none",
    "timeout_s": None,
    "inspected": False,
    "asks_user": False,
    "child": False,
    "child_usd": {},
    "samples": 0,
    "script": False,
}
CHILD = {
    "requests": 0,
    "usage": Usage(),
    "charged_usd": None,
    "subagents": 0,
    "also_spent": Spent(cost_usd=Decimal(0)),
    "unknown": (),
}
ASK = {"kind": "approval", "why": "", "options": (), "can_wait": True, "digest": "", "by": "model"}
APPROVAL = {
    "by": "person",
    "text": "",
    "always": False,
    "subject": "",
    "digest": "",
    "scope": "call",
    "arguments": None,
}
INTERRUPTED = {"results": (), "started": None, "partial": None, "sent": True, "children": (), "why": ""}

CALL = '{"id":"a","name":"read","arguments":"{}"}'
SPEC = '{"name":"read"}'
A_CONFIG = '{"session_id":"s","turn_id":"t","model":"m"}'
FAULT = '{"kind":"timeout","message":""}'
MESSAGE = '{"role":"user","parts":[]}'
REQUEST = '{"model":"m","messages":[]}'
# A line with what every line of its kind has, and what else it says.
LEFT_OUT: list[tuple[type[msgspec.Struct], str, dict[str, object]]] = [
    (Deadlines, "{}", DEADLINES),
    (ScriptLimits, "{}", SCRIPT_LIMITS),
    (TurnConfig, A_CONFIG, CONFIG),
    (ToolOffer, f'{{"spec":{SPEC}}}', OFFER),
    (Fallback, '{"model":"m"}', {"limits": ModelLimits()}),
    (ChildReport, '{"call_id":"a","session_id":"s/1","stop_reason":null}', CHILD),
    (
        TurnResult,
        '{"text":"","stop_reason":"answered","complete":true,"steps":1,"requests":1,"usage":{},"messages":[]}',
        RESULT,
    ),
    (AskOrigin, "{}", {"turn_id": "", "step": 0, "folder": "", "session_id": ""}),
    (OneAsk, f'{{"call":{CALL},"arguments":"{{}}","subject":"read"}}', ASK),
    (Approval, '{"call_id":"a","verdict":"allow"}', APPROVAL),
    (
        TurnStarted,
        f'{{"type":"turn_started","config":{A_CONFIG},"input":[]}}',
        {"history": (), "approvals": (), "keeps_waiting": False},
    ),
    (StepPrepared, '{"type":"step_prepared"}', PREPARED),
    (
        ResponseReceived,
        f'{{"type":"response_received","number":1,"response":{{"message":{MESSAGE},"finish":"stop"}}}}',
        {"at_s": 0.0, "jitter": 0.0},
    ),
    (
        RequestFailed,
        f'{{"type":"request_failed","number":1,"fault":{FAULT}}}',
        {"partial": None, "at_s": 0.0, "jitter": 0.0, "sent": True, "is_answer": False, "lost": False},
    ),
    (
        ToolEnded,
        '{"type":"tool_ended","result":{"type":"tool_result","call_id":"a","name":"t","content":[]}}',
        {"children": (), "at_s": 0.0},
    ),
    (ToolsFinished, '{"type":"tools_finished","results":[]}', {"children": (), "at_s": 0.0}),
    (ScriptCalled, '{"type":"script_called","call_id":"a","calls":[]}', {"at_s": 0.0}),
    (ScriptFinished, '{"type":"script_finished","call_id":"a","text":""}', {"is_error": False, "at_s": 0.0}),
    (CallsInspected, '{"type":"calls_inspected","facts":[]}', {"at_s": 0.0}),
    (HookOutcome, '{"by":"guard"}', {"call_id": "", "denied": None, "arguments": None, "result": None}),
    (HooksRan, '{"type":"hooks_ran"}', {"outcomes": (), "at_s": 0.0}),
    (OutputChecked, '{"type":"output_checked"}', {"problems": (), "at_s": 0.0}),
    (Asked, '{"type":"asked"}', {"approvals": (), "at_s": 0.0}),
    (MessageArrived, f'{{"type":"message_arrived","message":{MESSAGE}}}', {"at_s": 0.0}),
    (RulesAdded, '{"type":"rules_added","rules":[]}', {"at_s": 0.0}),
    (WaitOver, '{"type":"wait_over"}', {"at_s": 0.0}),
    (Interrupted, '{"type":"interrupted","kind":"cancel"}', INTERRUPTED),
    (
        SendRequest,
        f'{{"type":"send_request","number":1,"step":1,"purpose":"step","request":{REQUEST},"deadlines":{{}}}}',
        {"most_s": None, "taken_ids": frozenset(), "id_prefix": "call", "calls_in_text": None, "retry_of": None},
    ),
    (SoughtCalls, '{"tools":[]}', {"unmarked": False, "leading": False, "earlier": ()}),
    (
        PlannedCall,
        f'{{"call":{CALL},"arguments":"{{}}","timeout_s":1.0}}',
        {
            "exclusive": False,
            "paths": (),
            "programs": None,
            "grant": None,
            "place": None,
            "shown": "",
            "unasked": False,
            "keeps": "",
            "edited": False,
        },
    ),
    (
        RunHooks,
        '{"type":"run_hooks","step":1,"point":"before_tool","deadlines":{}}',
        {"calls": (), "results": (), "request": None},
    ),
    (RunTools, '{"type":"run_tools","step":1,"calls":[]}', {"whole_bytes": None, "most_s": None}),
    (
        RunScript,
        f'{{"type":"run_script","step":1,"call":{CALL},"program":"","functions":[],"limits":{{}}}}',
        {"results": (), "ran": (), "stop": "", "most_s": None},
    ),
    (ScriptFunction, '{"name":"read","tool":"read","parameters":[]}', {"free_form": False}),
    (ScriptResult, '{"call_id":"a","text":""}', {"is_error": False}),
]


@pytest.mark.promise("keep:replay")
@each(("kind", "line", "says"), LEFT_OUT, ids=[kind.__name__ for kind, _, _ in LEFT_OUT])
def test_a_line_that_leaves_fields_out_says_what_it_has_always_said(
    kind: type[msgspec.Struct], line: str, says: dict[str, object]
) -> None:
    """Proves: each default of the journal's values, as a value and not as the symbol; a new field needs its row here."""
    read = msgspec.json.decode(line, type=kind)
    assert {name: getattr(read, name) for name in says} == says
    types = {name: type(getattr(read, name)) for name in says}
    assert types == {name: type(value) for name, value in says.items()}
    given = {field.name for field in msgspec.structs.fields(kind) if field.required}
    assert given | says.keys() == set(kind.__struct_fields__)
    assert msgspec.json.decode(msgspec.json.encode(read), type=kind) == read


def test_every_value_of_the_journal_that_may_leave_something_out_is_judged() -> None:
    """Proves: the table above is whole."""
    found = {
        one
        for module in (approvals, commands, config, events)
        for one in vars(module).values()
        if isinstance(one, type) and issubclass(one, msgspec.Struct) and one.__module__ == module.__name__
    }
    found.remove(approvals.ResumeTerms)  # what a resume is asked for with: no record holds it
    assert {kind for kind in found if any(not field.required for field in msgspec.structs.fields(kind))} == {
        kind for kind, _, _ in LEFT_OUT
    }
