"""Endpoints and their quirks: one typed row each, read from `profiles.toml`, chosen by name, never sniffed from a URL."""

import functools
import re
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from turnwise.vocab import ServerLesson

FALLBACK_MAX_TOKENS = 8192
"""Anthropic's API insists on `max_tokens`; used where neither request nor profile says one: every model since 2024 takes it."""

EMPTY_TEXT = "(no text)"

CacheWay = Literal["unasked", "top", "blocks", "parts", "messages", "key"]
"""How an endpoint is asked to keep a prompt in its cache. `unasked`: it keeps prompts by itself, or not at all. `blocks`: marks
on content blocks, tools and system texts (Anthropic's `cache_control`); `top`: and one field for the end of the body. `parts`:
the same marks on content parts of Chat Completions; `messages`: and on tool messages themselves. `key`: a `prompt_cache_key`
that leads requests with the same beginning to the same cache."""

MARK_WAYS: frozenset[CacheWay] = frozenset({"top", "blocks", "parts", "messages"})
"""Those of Anthropic's cache."""

SchemaDialect = Literal["standard", "object", "whole", "moonshot", "xai", "llamacpp"]
"""`standard`: no union at the root. `object`: and each root says that it is an object; a root that said so stays. `whole`: and
each root has `properties`. `moonshot`: and references into `$defs` alone, no keyword beside a `$ref` that its target has, too, no
`type` beside `anyOf`, but beside `enum`, no schema that is `true` or a list, nothing required that is not declared. `xai`: and
none of the words for the length of texts and lists. `llamacpp`: and no great least length. Rules and sources:
`lab/strict/dialects.toml`."""

RefusedTool = Literal["schema", "union", "properties", "required", "bare"]
"""Schemas that `tool_schemas` would change; and a union at the root, a root without `properties`, `required` without
`properties`, a tool without `parameters`. A client's tools keep their bytes where there is none of it."""

FamilyName = Literal[
    "openai_chat",
    "openai_responses",
    "anthropic_messages",
    "gemini",
    "gemini_interactions",
    "ollama_chat",
    "cohere_chat",
]


_ANY_MODEL: Mapping[str, object] = {"tool_choices_models": (), "tool_choices_not_models": ()}
LESSONS: Mapping[ServerLesson, Mapping[str, object]] = {
    "system_first": {"later_system": "user"},
    "system_role": {"system_role": "system", "strict_messages": True},
    "between": {"behind_results": "assistant"},
    "alternate": {"joined_models": ("",), "later_system": "user"},
    "reasoning_empty": {"reasoning_replay": "reasoning_content", "reasoning_stand_in": ""},
    "reasoning_blank": {"reasoning_replay": "reasoning_content", "reasoning_stand_in": " "},
    "content_there": {"calls_content": "", "empty_text": EMPTY_TEXT},
    "choice_auto": {**_ANY_MODEL, "tool_choices": ("auto",), "thinking_limits_choices": False},
    "choice_unforced": {**_ANY_MODEL, "tool_choices": ("auto", "none")},
    "max_completion_tokens": {"max_tokens_field": "max_completion_tokens"},
    "no_stop": {"no_stop_models": ("",)},
    "nothing_behind": {"told_behind": False},
}
"""Which fields of a row a refusal changes (the words by which it is known: `rules/retries.py`)."""


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One endpoint. The defaults are those of the family's own API; a row names only what differs, with its source."""

    name: str
    family: FamilyName
    title: str = ""  # how people call it
    chat_row: str = ""  # the row of the same address that speaks Chat Completions, if a gateway chooses between both
    base_url: str | None = None  # None: the user has to give one
    api_key_env: tuple[str, ...] = ()  # looked at in order
    key_begins: tuple[str, ...] = ()  # beginnings by which its keys are known from all others
    key_required: bool = True
    auth: Literal["bearer", "x-api-key", "api-key", "x-goog-api-key", "none"] = "bearer"
    headers: dict[str, str] = {}
    path: str | None = None  # instead of the family's own; `{model}` is replaced
    stream_path: str | None = None  # where streaming has another path (Gemini, Vertex)
    model_in_body: bool = True
    websocket: bool = False  # streams are asked for over a WebSocket (Responses)

    # request
    max_tokens_field: str = "max_tokens"  # Chat Completions: "max_completion_tokens" at OpenAI
    default_max_tokens: int | None = None  # where the API insists on a limit (Anthropic)
    stream_usage: bool = True  # Chat Completions: takes `stream_options.include_usage`
    sends_parallel_tool_calls: bool = True  # takes the field that allows or forbids parallel calls
    system_role: Literal["system", "developer"] = "system"
    mid_system: bool = False  # Anthropic: takes role "system" inside `messages` (Opus 4.8 and later); else a user text
    told_behind: bool = (
        False  # Anthropic: and changed instructions and new tools behind messages, from models that know it
    )
    strict_tools: bool = True  # takes `strict` on tools
    tool_schemas: SchemaDialect = "whole"  # Chat Completions: what the schema of a tool has to be like
    refused_tools: tuple[RefusedTool, ...] = ()  # Chat Completions: what the server is known to refuse
    renamed_fields: dict[str, str] = {}  # Chat Completions: body fields that it refuses -> its own; empty: it has none
    no_stop_models: tuple[str, ...] = ()  # Chat Completions: beginnings of models that refuse `stop`
    tool_names: str = ""  # pattern of the names that it takes, beyond the family's rule
    output: Literal["json_schema", "json_object", "none"] = "json_schema"  # means for structured output
    refuses_answer_schema: bool = False  # Chat Completions: a client's schema of an answer goes as the library's does
    reasoning_replay: str | None = None  # Chat Completions: the field in which reasoning goes back, if any
    reasoning_request: str | None = (
        None  # how effort or budget is asked for: "reasoning_effort", "reasoning", "thinking" ...
    )
    tool_call_id_length: int | None = None  # Mistral: exactly 9 of [a-zA-Z0-9]

    # request: what the server takes of a conversation (Chat Completions; docs/dialects.md)
    later_system: Literal["system", "user"] = "system"  # role of a system text behind the leading ones
    behind_results: Literal["user", "assistant"] = "user"  # who may speak right after tool results
    joined_models: tuple[
        str, ...
    ] = ()  # words in names of models that want users and assistants by turns; "" is in all
    strict_messages: bool = False  # refuses role `developer`, or a result that is a list of texts
    needs_user: bool = False  # refuses a conversation without a user's message
    user_last: bool = False  # refuses an assistant's message at the end
    one_assistant_last: bool = False  # refuses two at the end
    message_fields: tuple[str, ...] | None = None  # fields of messages that it takes; None: any
    text_lists: bool = False  # several texts of one message go as a list of parts, not as one string
    calls_content: str | None = None  # `content` beside calls without a text
    empty_text: str = EMPTY_TEXT  # stands where a message would say nothing
    reasoning_stand_in: str | None = None  # goes back with calls where the model gave no reasoning
    signature_stand_in: str = ""  # goes back with a message's first call where the model gave no signature
    unsigned_models: tuple[str, ...] = ()  # words in names of models that ask for none
    tool_choices: tuple[Literal["auto", "none", "required", "named"], ...] = ("auto", "none", "required", "named")
    tool_choices_models: tuple[str, ...] = ()  # beginnings of models that take no others; empty: none does
    tool_choices_not_models: tuple[str, ...] = ()  # words in names of models that take every choice
    thinking_limits_choices: bool = False  # and so does every model that is asked not to think

    files: Literal["none", "images", "all"] = "all"
    document_part: Literal["file", "document_url"] = "file"  # Chat Completions: how documents go (Mistral: the latter)
    seed_field: str = "seed"  # Mistral: "random_seed"
    free_form_tools: bool = True  # takes tools of free-form text (OpenAI's custom tools); else see wire/offers.py
    fine_grained_tool_streaming: bool = False  # prefixes of arguments, not whole values (Anthropic, Vertex AI)
    sends_call_ids: bool = True  # Gemini: functionCall.id and functionResponse.id are taken
    system_in_input_models: tuple[
        str, ...
    ] = ()  # Responses: beginnings of models that read `instructions` behind the input
    stateless: bool = True  # Responses: takes `store: false` and `include: ["reasoning.encrypted_content"]`
    body: str = ""  # further body fields for every request, JSON object as text

    # prompt caches
    cache: CacheWay = "unasked"
    cache_source: str = ""  # where the provider says so
    cache_models: tuple[str, ...] = ()  # only where one of these stands in the model's name; empty: for every model
    cache_not_models: tuple[str, ...] = ()  # and none of these: they are refused with a mark
    cache_short_models: tuple[str, ...] = ()  # marks: those that take no `ttl`
    cache_day_models: tuple[str, ...] = ()  # `key`: those that take `prompt_cache_retention: "24h"`, dated names too

    # response
    calls_in_text: bool = False  # its server may leave calls in the text: `auto` looks for them
    output_excludes_reasoning: bool = False  # xAI: completion_tokens leaves reasoning out

    # deadlines
    first_event_s: float = 120.0  # seconds until a stream begins: reasoning models think before the first byte

    # rules
    accepts_prefill: bool = False  # the last message of a request may be an assistant's
    tool_choice_none: Literal["send", "drop_tools"] = "send"  # how tools are forbidden on the last step
    billing: Literal["token", "request", "step", "free", "unknown"] = "unknown"

    def cache_way(self, model: str) -> CacheWay:
        """How this model's cache is asked for."""
        name = model.lower()
        if any(word in name for word in self.cache_not_models):
            return "unasked"
        return self.cache if not self.cache_models or any(word in name for word in self.cache_models) else "unasked"

    def leads_input(self, model: str) -> bool:
        """Whether the instructions should go as the first item of the input; a vendor may stand before the model's name."""
        names = self.system_in_input_models
        return bool(names) and model[model.rfind("/") + 1 :].startswith(names)

    def refuses_stop(self, model: str) -> bool:
        """Whether the model takes no stop sequences; a vendor may stand before its name."""
        return bool(self.no_stop_models) and model.rpartition("/")[2].startswith(self.no_stop_models)

    def joins_neighbours(self, model: str) -> bool:
        """Whether two messages of the user in a row go as one, and two of the assistant without calls."""
        name = model.lower()
        return any(word in name for word in self.joined_models)

    def taught(self, lessons: Sequence[ServerLesson]) -> "Profile":
        """The row with what refusals have told of its server."""
        changed = {field: value for lesson in lessons for field, value in LESSONS[lesson].items()}
        return msgspec.structs.replace(self, **changed)

    def over_websocket(self, wanted: bool | None) -> "Profile":
        """The row whose streams are asked for so; None: as the row says."""
        return self if wanted is None else msgspec.structs.replace(self, websocket=wanted)

    def for_model(self, model: str) -> "Profile":
        """The row without what this model does not ask for."""
        if not self.signature_stand_in or not any(word in model.lower() for word in self.unsigned_models):
            return self
        return msgspec.structs.replace(self, signature_stand_in="")

    def takes_every_choice(self, model: str, *, thinks: bool) -> bool:
        """Whether its `tool_choice` may be any word or name."""
        if len(self.tool_choices) == 4 or (self.thinking_limits_choices and not thinks):
            return True
        if self.tool_choices_models and not model.lower().startswith(self.tool_choices_models):
            return True
        return any(word in model.lower() for word in self.tool_choices_not_models)

    def takes_ttl(self, model: str) -> bool:
        """Whether its marks may say for how long."""
        name = model.lower()
        return not any(word in name for word in self.cache_short_models)

    def keeps_a_day(self, model: str) -> bool:
        """Whether the model takes the wish to keep prompts for longer than it usually does."""
        return any(model == name or model.startswith(f"{name}-20") for name in self.cache_day_models)

    @property
    def sent_max_tokens(self) -> int | None:
        """The limit of output that goes out where the settings name none."""
        if self.default_max_tokens is None and self.family == "anthropic_messages":
            return FALLBACK_MAX_TOKENS
        return self.default_max_tokens


@functools.cache
def builtin_profiles() -> Mapping[str, Profile]:
    """The rows of `profiles.toml` by name."""
    import pkgutil  # `importlib.resources` loads `zipfile` and more: 3.5 ms of CPU before the first request

    return parse_profiles((pkgutil.get_data("turnwise.wire", "profiles.toml") or b"").decode())


def profile_at(base_url: str) -> Profile | None:
    """The provider whose own address it is: the very same one, or another path or region (`eu.api.openai.com`) of its host.
    Of several the plain name; None where it is nobody's."""
    address = base_url.partition("?")[0].rstrip("/")
    placed = [profile for profile in builtin_profiles().values() if profile.base_url]
    found = [profile for profile in placed if profile.base_url == address]
    if not found and (host := _public_host(address)):
        found = [profile for profile in placed if _host_pattern(profile.base_url or "").fullmatch(host)]
    return min(found, key=lambda profile: len(profile.name), default=None)


_PORTS = {"http": 80, "https": 443}


def origin_of(url: str) -> str:
    """Scheme, host and port of an address, all of them (`https://api.openai.com:443`). Empty: it is no such address, or a
    template without a host of its own."""
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return ""
    host = parts.hostname or ""
    if port is None or not host or "{" in host:
        return ""
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def key_owner(profile: Profile) -> Profile:
    """The row by whose name a key is kept: of those that share a provider's variable and its scheme, host and port, the plain
    one."""
    origin, names = origin_of(profile.base_url or ""), set(profile.api_key_env)
    rows = builtin_profiles()
    if not origin or rows.get(profile.name) != profile:
        return profile
    same = [one for one in rows.values() if names & {*one.api_key_env} and origin_of(one.base_url or "") == origin]
    return min(same, key=lambda one: (not one.key_required, len(one.name)), default=profile)


def owner_by_key(key: str) -> Profile | None:
    """The provider whose keys begin like this one; None: nobody's do, or those of several."""
    found = [
        (len(begin), one) for one in builtin_profiles().values() for begin in one.key_begins if key.startswith(begin)
    ]
    return max(found, key=lambda one: one[0])[1] if found else None


def _public_host(address: str) -> str:
    """Of an address that only its owner can serve; on one's own machine or without TLS the host alone says nothing."""
    try:
        parts = urlsplit(address)
        return (parts.hostname or "") if parts.scheme == "https" and parts.port in (None, 443) else ""
    except ValueError:
        return ""


@functools.cache
def _host_pattern(base_url: str) -> re.Pattern[str]:
    host = base_url.partition("://")[2].partition("/")[0].lower() if base_url.startswith("https://") else ""
    own = re.sub(r"\\\{\w+\\\}", "[^.]+", re.escape(host))
    return re.compile(rf"(?:[^/]+\.)?{own}" if host else "(?!)")


def parse_profiles(text: str) -> dict[str, Profile]:
    """`[name]` tables of TOML -> profiles. Raises msgspec.ValidationError naming the field, tomllib.TOMLDecodeError."""
    import tomllib

    return {name: msgspec.convert({"name": name, **row}, Profile) for name, row in tomllib.loads(text).items()}


def read_path_part(encoded: str) -> str | None:
    """The text of a part of a path without its percent-encoding; None where it stands for no UTF-8."""
    try:
        return urllib.parse.unquote(encoded, errors="strict")
    except UnicodeError:
        return None


# How much of what a stranger sends we are ready to hold.


MiB = 1024 * 1024


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Byte limits on untrusted input; past one, a named fault instead of unbounded memory (promise assembly:bounded).

    h11 bounds an incomplete event at 16 KiB because headers are small; here one event may hold a whole response
    (Responses repeats it in `response.completed`), so a few MiB must pass and a 10 MB line without an end must not.
    """

    line_bytes: int = 8 * MiB  # one line, and one event, of a stream
    call_bytes: int = 8 * MiB  # the arguments of one call
    tells_long_calls: bool = True  # a call past that is told as such, and the others are whole; else the response fails
    response_bytes: int = 64 * MiB  # kept of one response; a response without streaming counts as it came
    # One stream as it came: nothing of it is kept but what its events bring, and they say ten times as much around it. The
    # arguments of one call at its limit, in pieces of 20 bytes, take 150 MB.
    stream_bytes: int = 256 * MiB


DEFAULT_LIMITS = Limits()

SLICE_BYTES = 64 * 1024
"""What is long is looked at and taken apart in slices of this size, so that no more of its pieces exist at once; sockets give no
more anyway."""

MAX_CITATIONS = 5000
"""Of one response; assembly keeps 4,096 and tells if there were more. One may have ten bytes and takes us some hundred."""

MAX_PARTS = 5000
"""Of one body or event that are read; assembly keeps 4,096 and says so if there were more. A call of a hundred bytes takes us a
thousand."""

_WIDE = re.compile(rb"[\xf0-\xf4]|\\u[dD][89abAB]")


def is_wide(json: bytes) -> bool:
    """Whether a character in it lies outside of the basic plane. Python takes four bytes for each character of a text with
    one, so such a text may take four times its bytes."""
    return _WIDE.search(json) is not None
