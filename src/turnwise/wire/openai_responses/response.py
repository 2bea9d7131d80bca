"""Bodies of the Responses API, both ways. They go through the same frames and items as the stream does."""

from collections.abc import Mapping, Sequence

import msgspec

from turnwise.vocab import (
    ArgumentsState,
    Fault,
    Faulted,
    FinishReason,
    Frame,
    Part,
    ProviderItem,
    Reasoning,
    Refusal,
    Request,
    Response,
    Text,
    ToolCall,
    Usage,
)
from turnwise.wire.faults import too_large
from turnwise.wire.json_fields import encode, read_fields
from turnwise.wire.limits import Limits
from turnwise.wire.openai_responses.body import read_body
from turnwise.wire.openai_responses.faults import response_error
from turnwise.wire.openai_responses.fields import NAME
from turnwise.wire.openai_responses.parts import call_item, message_item, reasoning_item
from turnwise.wire.openai_responses.request import encode_request, text_runs
from turnwise.wire.openai_responses.usage import usage_object
from turnwise.wire.openai_responses.words import FINISH_REASONS
from turnwise.wire.profiles import Profile

PROFILE = Profile(name=NAME, family=NAME)

# Finish -> the status that says it. `cut` has no word: an API that ended a response knows why.
STATUSES: Mapping[FinishReason, str] = {
    FinishReason.STOP: "completed",
    FinishReason.TOOL_CALLS: "completed",
    FinishReason.REFUSAL: "completed",
    FinishReason.PAUSE: "completed",
    FinishReason.LENGTH: "incomplete:max_output_tokens",
    FinishReason.CONTENT_FILTER: "incomplete:content_filter",
    FinishReason.ERROR: "failed",
    FinishReason.CUT: "incomplete",
}

ID_PREFIXES: Mapping[str, str] = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "custom_tool_call": "ctc",
}


def decode_body(body: bytes, profile: Profile, limits: Limits) -> list[Frame]:
    if len(body) > limits.response_bytes:
        return [Faulted(too_large(limits.response_bytes))]
    return read_body(body, limits=limits)


def encode_body(response: Response, request: Request) -> bytes:
    id = response.id or "resp_0"
    output: list[object] = []
    for run in text_runs(response.message.parts):
        item = output_item(run, id=made_up_id(id, len(output)))
        if item is not None:
            output.append(item)
    word = status_for(response.finish, response.provider_finish)
    whole = response_object(
        request,
        id=id,
        model=response.model or request.model,
        word="failed" if response.fault is not None else word,
        output=output,
        usage=response.usage,
        fault=response.fault,
    )
    return encode(whole)


def status_for(finish: FinishReason, provider_finish: str | None) -> str:
    """The provider's own word where it is one of this API's."""
    return provider_finish if provider_finish and provider_finish in FINISH_REASONS else STATUSES[finish]


def made_up_id(response_id: str, index: int) -> str:
    """The ending of the id of an item that has none: unique in its session, where response ids are."""
    return f"{response_id.removeprefix('resp_')[-40:]}_{index}"


def output_item(run: Sequence[Part], *, id: str, is_cut: bool = False) -> dict[str, object] | None:
    """The item of one part, or of the texts and refusals of one message. None where the API has no such item."""
    match run:
        case [Text() | Refusal(), *_]:
            parts = [part for part in run if isinstance(part, Text | Refusal)]
            return _with_own({"status": _status(is_cut)}, message_item(parts, role="assistant"), id=id)
        case [Reasoning() as part]:
            return _with_own({}, reasoning_item(part), id=id)
        case [ToolCall() as call]:
            is_whole = call.state == ArgumentsState.COMPLETE and not is_cut
            return _with_own({"status": _status(not is_whole)}, call_item(call, arguments=call.arguments), id=id)
        case [ProviderItem(family=family, json=json)] if family == NAME:
            return {**read_fields(json)}
        case _:
            return None


def _status(is_cut: bool) -> str:
    return "incomplete" if is_cut else "completed"


def _with_own(defaults: dict[str, object], item: dict[str, object], *, id: str) -> dict[str, object]:
    own = {"id": f"{ID_PREFIXES[str(item['type'])]}_{id}", **defaults}
    return {**item, **{key: value for key, value in own.items() if key not in item}}


def response_object(
    request: Request,
    *,
    id: str,
    model: str,
    word: str,
    output: Sequence[object],
    usage: Usage | None = None,
    fault: Fault | None = None,
) -> dict[str, object]:
    """The whole response object: what the request asked for is repeated in it, as the API does. `word` is the status, with
    `:reason` behind it. The time is 0: this room has no clock."""
    status, _, reason = word.partition(":")
    asked = read_fields(encode_request(msgspec.structs.replace(request, messages=(), cache=None), PROFILE).body)
    settings = {key: value for key, value in asked.items() if key in REPEATED}
    return {
        **DEFAULTS,
        **settings,
        "id": id,
        "object": "response",
        "created_at": 0,
        "status": status,
        "error": None if fault is None else response_error(fault),
        "incomplete_details": {"reason": reason} if reason else None,
        "model": model,
        "output": output,
        "usage": None if usage is None else usage_object(usage),
    }


# What the API fills in where the request said nothing, as recorded.
DEFAULTS: Mapping[str, object] = {
    "background": False,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "service_tier": "default",
    "store": True,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
}
REPEATED = frozenset(DEFAULTS)
