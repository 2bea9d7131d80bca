"""`Request` -> the call of `generateContent` or `streamGenerateContent`.

Order of the body: `systemInstruction`, `tools`, `contents`, then all that may change from step to step, so that a step's
body begins with the bytes of the one before it (promise step:prefix-stable).

Call ids: if the profile's `sends_call_ids` says that the endpoint takes them, each call and its result carry our id, wherever
the call came from. The API pairs by any string (recorded: other clients' own `call_...` ids were answered with 200). It refuses
only a result whose id belongs to no call, and both come from the same history. To other endpoints no ids are sent, and calls
and results pair by name and order, which the sorting of results below keeps right.

Opaque keys of this family on ToolSpec: `{"functionDeclaration": {...}}` holds further fields of a declaration (`behavior`,
`response` ...); any other object is one server-side tool (`{"googleSearch":{}}`) and is sent as it is.
"""

import re
import urllib.parse
from collections.abc import Iterable, Sequence

import msgspec

from turnwise.vocab import File, Message, NamedTool, Part, Request, Settings, ToolCall, ToolResult, ToolSpec
from turnwise.wire.encoded_history import MESSAGES, CallFrame, EncodedHistory, around
from turnwise.wire.family import HttpCall, call_of
from turnwise.wire.files import left_out, takes_file
from turnwise.wire.gemini.parts import NAME, SIGNATURE, encode_part, own_fields, read_fields, signed_call
from turnwise.wire.json_fields import UNREADABLE, Fields, bytes_of, quote, write_array, write_object
from turnwise.wire.offers import FREE_FORM_SCHEMA, fitted_tool, instructions, kept_by_tool, offered_tools
from turnwise.wire.profiles import Profile
from turnwise.wire.tool_names import WireNames, wire_names

PATH = "/models/{model}:generateContent"
STREAM_PATH = "/models/{model}:streamGenerateContent?alt=sse"

JSON_TYPE = "application/json"
DECLARATION = "functionDeclaration"

# Gemini 2.5 takes a budget and refuses levels; later models take levels (Gemini API, "Thinking"). A profile's
# `reasoning_request` of "thinking_budget" or "thinking_level" overrides this.
BUDGET_MODELS = ("gemini-2.5",)
# The budgets of Google's own table (Gemini API, "OpenAI compatibility", reasoning_effort); xhigh is not in it.
EFFORT_BUDGETS = {"none": 0, "minimal": 1024, "low": 1024, "medium": 8192, "high": 24576, "xhigh": 24576, "max": 24576}
EFFORT_LEVELS = {
    "max": "XHIGH",  # before `xhigh`, which a client's XHIGH is read as
    "minimal": "MINIMAL",
    "low": "LOW",
    "medium": "MEDIUM",
    "high": "HIGH",
    "xhigh": "XHIGH",
}

# How whole names begin: `tunedModels/x`, `projects/.../endpoints/1`. Others with a slash are models of another gateway
# (`vendor/model`), which stand behind `models/` as every name does (google-genai, _transformers.py, `t_model`).
RESOURCES = ("models/", "tunedModels/", "projects/", "publishers/", "locations/", "endpoints/")

# Names of models that ask for no signature (Gemini API, "Thought signatures": optional up to 2.5): theirs stay as they are.
# Any other name may stand for a model that refuses calls without one, see NO_SIGNATURE: `gemini-flash-latest`, a tuned model, a
# deployment. Google's documentation has the stand-in for every model that checks signatures.
_ASKS_FOR_NO_SIGNATURE = re.compile(
    r"gemini-(?:\D*-)?[12](?:\.\d|-|$)|gemini-(?:pro|ultra)(?:-vision)?$|gemma|learnlm|palm"
)

# Vertex AI, "Function calling", streaming of arguments: Gemini 3 and later; recorded of 3.1-pro and 3-flash.
_STREAMS_ARGUMENTS = re.compile(r"gemini-(?:[3-9]|\d\d)")

Tree = dict[str, "bytes | Tree"]
"""Fields of the body that are still being put together; leaves are JSON text."""


def encode_request(request: Request, profile: Profile, *, history: EncodedHistory | None = None) -> HttpCall:
    history = history or EncodedHistory()
    frame = history.frame(request, profile, make=_frame)
    return call_of(frame, written=history.write_body(frame, messages=request.messages))


def _frame(request: Request, profile: Profile) -> CallFrame:
    head: dict[str, bytes] = {}
    system = [
        part for text in instructions(request, profile) if (part := encode_part(text, sends_ids=False)) is not None
    ]
    if system:
        head["systemInstruction"] = write_object({"parts": write_array(system)})
    encoded_tools, declares = _encode_tools(offered_tools(request, profile, family=NAME))
    if encoded_tools:
        head["tools"] = write_array(encoded_tools)
    tail: Tree = {}
    choice = _encode_choice(request) if declares else {}
    if declares and profile.fine_grained_tool_streaming and request.stream and request.tool_choice != "none":
        choice = _in_pieces(choice, model=request.model)
    if choice:
        tail["toolConfig"] = {"functionCallingConfig": choice}
    generation = _encode_generation(request, profile)
    if generation:
        tail["generationConfig"] = generation
    for fields in (_read_extra(profile.body), own_fields(request.extra)):
        head |= {key: value for key, value in fields.items() if key in ("systemInstruction", "tools")}
        _merge(tail, {key: value for key, value in fields.items() if key not in ("contents", *head)})
    before, behind = around(
        {**head, "contents": MESSAGES, **{key: _write(value) for key, value in tail.items()}}, name="contents"
    )
    names = wire_names(request.tools, profile)
    signs = _ASKS_FOR_NO_SIGNATURE.search(request.model) is None
    return CallFrame(
        path=_path(request, profile),
        head=before,
        tail=behind,
        items=Contents(profile, names=names, signs=signs),
        rests_on=(profile, names.own, signs),
    )


def _to_sign(parts: tuple[Part, ...]) -> ToolCall | None:
    """The first call of an assistant's parts where no call of them brings a signature: another family's model made them, or
    they were written by hand."""
    calls = [part for part in parts if type(part) is ToolCall]
    if not calls or any(SIGNATURE in own_fields(call.opaque) for call in calls if call.opaque is not None):
        return None
    return calls[0]


def _path(request: Request, profile: Profile) -> str:
    template = (profile.stream_path or STREAM_PATH) if request.stream else (profile.path or PATH)
    return model_path(template, model=request.model)


def model_path(template: str, *, model: str) -> str:
    """The path with the model's name in it, percent-encoded; the name of a resource is a path of its own."""
    has_folders = "/" in model and ".." not in model
    if has_folders and model.startswith(RESOURCES):
        template = template.replace("models/{model}", "{model}")
    return template.replace("{model}", urllib.parse.quote(model, safe="/@-._~" if has_folders else "@-._~"))


def _allowed(message: Message, profile: Profile) -> Message:
    """The message with a line of text in place of each file that the endpoint does not take."""
    return Message(message.role, tuple([_allowed_part(part, profile) for part in message.parts]))


def _allowed_part(part: Part, profile: Profile) -> Part:
    match part:
        case File() if not takes_file(part, profile):
            return left_out(part)
        case ToolResult(content=content):
            kept = [left_out(p) if isinstance(p, File) and not takes_file(p, profile) else p for p in content]
            return msgspec.structs.replace(part, content=tuple(kept))
        case _:
            return part


MODEL, USER = b'{"role":"model","parts":[', b'{"role":"user","parts":['
"""How the contents of a role begin. System messages become the user's."""


def _content(role: bytes, parts: list[bytes]) -> bytes:
    return role + b",".join(parts) + b"]}"


class Contents:
    """All messages; tool messages that follow each other are one content, its results in the order of their calls.

    So are the model's messages that follow each other: "function call turn comes immediately after a user turn or after a
    function response turn", says the API of a call behind another content of the model's. `signs`: calls without a signature
    get one.
    """

    def __init__(self, profile: Profile, *, names: WireNames, signs: bool) -> None:
        self._profile = profile
        self._names = names
        self._signs = signs
        self._results: list[Part] = []
        self._asked: tuple[Part, ...] = ()  # the last assistant's message
        self._role: bytes | None = None  # how the content that is not whole yet begins; None before the first one
        self._parts: list[bytes] = []

    def take(self, messages: Sequence[Message]) -> list[bytes]:
        found: list[bytes] = []
        takes_all = self._profile.files == "all"
        for message in messages:
            if not takes_all:
                message = _allowed(message, self._profile)
            if message.role == "tool":
                self._results += message.parts
                continue
            self._put_results(found)
            if message.role == "assistant":
                self._asked = message.parts
                to_sign = _to_sign(message.parts) if self._signs else None
                self._put(message.parts, role=MODEL, found=found, to_sign=to_sign)
            else:
                self._put(message.parts, role=USER, found=found)
        return found

    def rest(self) -> list[bytes]:
        last = self.copy()
        found: list[bytes] = []
        last._put_results(found)
        return found if last._role is None else [*found, _content(last._role, last._parts)]

    def copy(self) -> "Contents":
        copied = Contents(self._profile, names=self._names, signs=self._signs)
        copied._results, copied._asked = list(self._results), self._asked
        copied._role, copied._parts = self._role, list(self._parts)
        return copied

    def _put_results(self, found: list[bytes]) -> None:
        if not (results := self._results):
            return
        self._results = []
        self._put(results if len(results) == 1 else _in_call_order(results, self._asked), role=USER, found=found)

    def _put(self, parts: Iterable[Part], *, role: bytes, found: list[bytes], to_sign: ToolCall | None = None) -> None:
        """Take the parts of one content; one that is whole by that is put behind those that were `found`. `to_sign` gets a
        stand-in for its signature."""
        sends_ids, names = self._profile.sends_call_ids, self._names
        encoded: list[bytes] = []
        for part in parts:
            if part is to_sign and to_sign is not None:
                text = signed_call(to_sign, sends_ids=sends_ids, names=names)
            else:
                text = encode_part(part, sends_ids=sends_ids, names=names)
            if text is not None:
                encoded.append(text)
        if not encoded:
            return
        if role is MODEL and self._role is role:
            self._parts += encoded
            return
        if self._role is not None:
            found.append(_content(self._role, self._parts))
        self._role, self._parts = role, encoded


def _in_call_order(results: Sequence[Part], asked: Sequence[Part]) -> list[Part]:
    ids = [part.id for part in asked if type(part) is ToolCall]
    calls = {id: position for position, id in enumerate(ids)}

    def position(part: Part) -> int:
        return calls.get(part.call_id, len(calls)) if isinstance(part, ToolResult) else len(calls)

    return sorted(results, key=position)


def _encode_tools(tools: Sequence[ToolSpec]) -> tuple[list[bytes], bool]:
    """The entries of `tools`, and whether there are declared functions among them."""
    declared: list[bytes] = []
    served: list[bytes] = []
    for tool in tools:
        is_declared, written = _written_tool(tool)
        (declared if is_declared else served).append(written)
    entries = [write_object({"functionDeclarations": write_array(declared)})] if declared else []
    return entries + served, bool(declared)


@kept_by_tool
def _written_tool(tool: ToolSpec) -> tuple[bool, bytes]:
    """Whether it is a declared function, and the tool encoded, once for all requests that offer it."""
    own = own_fields(tool.opaque)
    if own and DECLARATION not in own:
        return False, write_object(own)
    tool = fitted_tool(tool).spec
    fields = {"name": quote(tool.name)}
    if tool.description:
        fields["description"] = quote(tool.description)
    schema = FREE_FORM_SCHEMA if tool.free_form else tool.parameters
    fields["parametersJsonSchema"] = schema.encode()
    return True, write_object(fields | _read_extra(own.get(DECLARATION, b"").decode()))


def _encode_choice(request: Request) -> Tree:
    match request.tool_choice:
        case "auto":
            return {}
        case "none":
            return {"mode": b'"NONE"'}
        case "required":
            return {"mode": b'"ANY"'}
        case NamedTool(name=name):
            return {"mode": b'"ANY"', "allowedFunctionNames": write_array([quote(name)])}


def _in_pieces(choice: Tree, *, model: str) -> Tree:
    """The choice that asks for arguments piece by piece, where the model gives them so."""
    if not _STREAMS_ARGUMENTS.search(model):
        return choice
    return {"mode": b'"AUTO"', **choice, "streamFunctionCallArguments": b"true"}


def _encode_generation(request: Request, profile: Profile) -> Tree:
    settings = request.settings
    plain = {
        "maxOutputTokens": settings.max_output_tokens or profile.default_max_tokens,
        "temperature": settings.temperature,
        "topP": settings.top_p,
        "stopSequences": settings.stop or None,
        "seed": settings.seed,
    }
    fields: Tree = {key: msgspec.json.encode(value) for key, value in plain.items() if value is not None}
    if request.output is not None and profile.output != "none":
        fields["responseMimeType"] = quote(JSON_TYPE)
        if profile.output == "json_schema":
            fields["responseJsonSchema"] = request.output.schema.encode()
    thinking = _encode_thinking(settings, model=request.model, profile=profile)
    if thinking:
        fields["thinkingConfig"] = thinking
    return fields


def asks_for_thoughts(settings: Settings) -> bool:
    """Whether the settings ask for reasoning; then the user wants to see it. The API leaves thoughts out without
    `includeThoughts`."""
    if settings.reasoning_tokens is not None:
        return settings.reasoning_tokens != 0
    return settings.reasoning_effort not in (None, "none")


def _encode_thinking(settings: Settings, *, model: str, profile: Profile) -> Tree:
    """A budget wins over an effort: the API refuses both at once."""
    effort = settings.reasoning_effort
    takes_budget = profile.reasoning_request == "thinking_budget" or (
        profile.reasoning_request is None and model.removeprefix("models/").startswith(BUDGET_MODELS)
    )
    fields: Tree = {}
    if settings.reasoning_tokens is not None:
        fields["thinkingBudget"] = b"%d" % settings.reasoning_tokens
    elif effort is not None and (takes_budget or effort == "none"):
        fields["thinkingBudget"] = b"%d" % EFFORT_BUDGETS[effort]
    elif effort is not None:
        fields["thinkingLevel"] = quote(EFFORT_LEVELS[effort])
    if asks_for_thoughts(settings):
        fields["includeThoughts"] = b"true"
    return fields


def _read_extra(text: str) -> dict[str, bytes]:
    if not text:
        return {}
    return bytes_of(read_fields(text))


def _merge(tree: Tree, fields: dict[str, bytes]) -> None:
    """Put `fields` over the tree, objects key by key."""
    for key, value in fields.items():
        below = tree.get(key)
        inner = _object(value) if isinstance(below, dict) else None
        if isinstance(below, dict) and inner is not None:
            _merge(below, bytes_of(inner))
        else:
            tree[key] = value


def _object(text: bytes) -> Fields | None:
    try:
        return read_fields(text)
    except UNREADABLE:
        return None


def _write(tree: "bytes | Tree") -> bytes:
    if isinstance(tree, bytes):
        return tree
    return write_object({key: _write(value) for key, value in tree.items()})
