"""Which of OpenAI's two APIs serves a request: both stand at one address, and neither can do all that the other can.

A client of Chat Completions goes to Chat Completions if only that API has what the client asks for, or if it asks for neither
tools nor reasoning: then its body goes up as it is. All others go to Responses, which alone combines tools and reasoning in newer
models. A model that one of the APIs does not have goes to the other. What the table does not know, OpenAI's refusals teach.
"""

import re
from collections.abc import Collection, Mapping
from typing import Literal

import msgspec

from turnwise.relay.client_request import ClientRequest
from turnwise.relay.translation import NOTHING_SAID
from turnwise.vocab import Fault, File, Repair
from turnwise.wire.json_fields import compact_text
from turnwise.wire.profiles import Profile

OpenAiApi = Literal["chat", "responses"]

ApiRefusal = Literal["not_in_chat", "no_reasoned_tools", "no_chat"]
"""What a refusal has taught of a model in Chat Completions: it is not there, or takes no tools while it reasons; or the server
has no such path."""


class ApiModel(msgspec.Struct, frozen=True, kw_only=True):
    """What the models whose names begin so take. `tools`: in Chat Completions, beside which effort: any; `unset`: none said, or
    `none`; `none`: only where the request says `none`; or `never`. `source`: where it stands, and when it was read."""

    names: tuple[str, ...]
    source: str
    alone: OpenAiApi | None = None  # the only API that has it
    tools: Literal["any", "unset", "none", "never"] = "any"


MODELS = (
    ApiModel(
        names=("gpt-3.5", "gpt-4", "gpt-4.1", "chatgpt-4o", "gpt-5-chat"),
        source='OpenAI docs, "Models", 2026-11: they do not reason',
    ),
    ApiModel(
        names=(
            "gpt-4o-audio",
            "gpt-4o-mini-audio",
            "gpt-audio",
            "gpt-4o-search",
            "gpt-4o-mini-search",
            "gpt-5-search-api",
            "o1-mini",
        ),
        source="OpenAI docs, pages of the models, as counted in truefoundry/models#2006, 2026-08",
        alone="chat",
    ),
    ApiModel(
        names=(
            "o1-pro",
            "o3-pro",
            "o3-deep-research",
            "o4-mini-deep-research",
            "codex-mini",
            "computer-use-preview",
            "gpt-5-pro",
            "gpt-5.2-pro",
            "gpt-5.4-pro",
            "gpt-5.5-pro",
            "gpt-5-codex",
            "gpt-5.1-codex",
            "gpt-5.2-codex",
            "gpt-5.3-codex",
        ),
        source='OpenAI docs, pages of the models, 2026-11; "only supported in v1/responses": goose#2564, tmuxai#82',
        alone="responses",
    ),
    ApiModel(
        names=("o1", "o3", "o4-mini", "gpt-5", "gpt-5.1", "gpt-5.2", "gpt-5.3"),
        source="no refusal is known: openai-openapi#541, 2026-05",
    ),
    ApiModel(
        names=("gpt-5.4", "gpt-5.5"),
        source="pipecat#4043, openai-openapi#541, Aether#1026, 2026-06",
        tools="unset",
    ),
    ApiModel(
        names=("gpt-5.6", "gpt-6-sol", "gpt-6-luna", "gpt-6.1-terra"),
        source='OpenAI docs, "Deployment checklist", 2026-11; litellm#34569: they reason unasked',
        tools="none",
    ),
    ApiModel(
        names=("gpt-6-astra", "gpt-6.1-sol", "gpt-6.2-astra", "gpt-6.2-sol"),
        source='OpenAI docs, "Deployment checklist", 2026-11',
        tools="never",
    ),
)
_BY_NAME = {name: row for row in MODELS for name in row.names}
# A further number would be another model (`gpt-5.7` of `gpt-5`); a date or a word is a version of this one.
_NAME = re.compile(rf"(?:ft:)?({'|'.join(map(re.escape, sorted(_BY_NAME, reverse=True)))})(?!\.?\d)")
UNKNOWN = ApiModel(names=(), source="", tools="unset")

_ONE, _ZERO = frozenset({"1"}), frozenset({"0", "0.0"})
ONLY_CHAT: Mapping[str, frozenset[str]] = {
    "n": _ONE,
    "logprobs": frozenset(),
    "top_logprobs": _ZERO,
    "logit_bias": frozenset(),
    "modalities": frozenset({'["text"]'}),
    "audio": frozenset(),
    "web_search_options": frozenset(),
    "prediction": frozenset(),
    "seed": frozenset(),
    "frequency_penalty": _ZERO,
    "presence_penalty": _ZERO,
    "stop": frozenset(),
}
"""Fields that Responses lacks, or has in a form that the gateway does not translate, and the values that ask for nothing.
Source: OpenAI API reference, both APIs, 2026-11."""


def model_row(model: str) -> ApiModel:
    """What is known of the model; `UNKNOWN` where the table does not have it."""
    found = _NAME.match(model.rpartition("/")[2])
    return UNKNOWN if found is None else _BY_NAME[found[1]]


def choose_api(asked: ClientRequest, *, model: str, chat: Profile, refused: Collection[ApiRefusal] = ()) -> OpenAiApi:
    """Where the request goes; `chat` is the row of Chat Completions. What neither API takes is refused on the way to
    Responses, by its name."""
    row = model_row(model)
    if "not_in_chat" in refused or "no_chat" in refused:
        return "responses"
    if row.alone is not None:
        return row.alone
    request, effort = asked.request, asked.request.settings.reasoning_effort
    if asked.asked.family != chat.family:
        return "responses"
    if request.tools and not _takes_tools(row, effort=effort, refused=refused):
        return "responses"
    asks_for_neither = not request.tools and effort in (None, "none")
    is_chats = asks_for_neither or _needs_chat(asked, takes_stop=not chat.refuses_stop(model))
    return "chat" if is_chats else "responses"


def _takes_tools(row: ApiModel, *, effort: str | None, refused: Collection[ApiRefusal]) -> bool:
    takes = "none" if "no_reasoned_tools" in refused and row.tools in ("any", "unset") else row.tools
    match takes:
        case "any":
            return True
        case "unset":
            return effort in (None, "none")
        case "none":
            return effort == "none"
        case "never":
            return False


def _needs_chat(asked: ClientRequest, *, takes_stop: bool) -> bool:
    """Whether a field or a file of it has no place in Responses."""
    for field, harmless in ONLY_CHAT.items():
        raw = asked.fields.get(field)
        if raw is None or (field == "stop" and not takes_stop):  # the gateway serves it
            continue
        text = compact_text(raw)
        if text not in harmless and (text not in NOTHING_SAID or (field, text) == ("web_search_options", "{}")):
            return True
    parts = [part for message in asked.request.messages for part in message.parts]
    return any(isinstance(part, File) and part.media_type.startswith("audio/") for part in parts)


# --- refusals that teach: sentences of OpenAI's from their first word to their last, and a server's word for a path

_REFUSALS: Mapping[ApiRefusal, re.Pattern[str]] = {
    "not_in_chat": re.compile(
        r"This model is only supported in v1/responses and not in v1/chat/completions\."
        r"|This is not a chat model and thus not supported in the v1/chat/completions endpoint\."
        r" Did you mean to use v1/completions\?"
    ),
    "no_reasoned_tools": re.compile(
        r"Function tools with reasoning_effort are not supported for [\w.:/-]{1,100} in /v1/chat/completions\."
        r" (?:Please use /v1/responses instead\."
        r"|To use function tools, use /v1/responses or set reasoning_effort to 'none'\.)"
    ),
    # What web servers say of a path: Starlette as JSON, Go's net/http and others as a plain text. None of it names a model.
    "no_chat": re.compile(
        r"(?:HTTP 40[45]: the answer began with ')?(?:40[45] )?(?:(?:page )?not found|method not allowed)\.?'?",
        re.IGNORECASE,
    ),
}
_REFUSALS_SAID: Mapping[ApiRefusal, str] = {
    "not_in_chat": "Chat Completions does not have the model",
    "no_reasoned_tools": "the model takes no tools in Chat Completions while it reasons",
    "no_chat": "the server does not have Chat Completions",
}
"""What was learned, for people."""

_NO_PATH = frozenset({404, 405})
_TEACHING_STATUSES = _NO_PATH | {400}


def api_refusal(fault: Fault) -> ApiRefusal | None:
    """What a refusal of Chat Completions teaches; None where it is about something else."""
    if fault.status not in _TEACHING_STATUSES:
        return None
    for refusal, words in _REFUSALS.items():
        is_of_path = fault.status in _NO_PATH and not fault.code  # a model that is not found has a code
        if words.fullmatch(fault.message.strip()) and (refusal != "no_chat" or is_of_path):
            return refusal
    return None


def other_api(taught: ApiRefusal, *, row: str) -> Repair:
    """What is told of a request that goes to the other API because of a refusal."""
    return Repair("other_api", "request", f"{_REFUSALS_SAID[taught]}; sent again to `{row}`")
