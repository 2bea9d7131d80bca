"""One message of a Chat Completions request -> its JSON: pure, knows nothing of the messages before it.

Opaque data of this family: on a text or file, further fields of its content part (`cache_control`, `image_url.detail`); on
a reasoning, `reasoning_details`; on a call, further fields of its entry (`extra_content`); on a tool result, further
fields of its message. Its key `message` holds further fields of the message that the part stands in (`name`).
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from turnwise.vocab import (
    ArgumentsState,
    File,
    Message,
    Opaque,
    Part,
    ProviderItem,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
)
from turnwise.vocab.json_values import array_or_empty, is_json_object, object_or_empty
from turnwise.wire.files import (
    UNKNOWN_TYPE,
    data_url,
    decode_base64,
    encode_base64,
    left_out,
    read_data_url,
    takes_file,
)
from turnwise.wire.json_fields import UNREADABLE, encode, quote_whole
from turnwise.wire.offers import free_form_arguments
from turnwise.wire.profiles import Profile
from turnwise.wire.tool_names import WireNames

# JSON objects of Chat Completions as decoded values, and the opaque data of this family.


NAME = "openai_chat"

Fields = dict[str, object]


def fields_of(opaque: Opaque | None) -> Fields:
    """Our own opaque data as fields whose values are kept as they came; another family's is left out."""
    if opaque is None or opaque.family != NAME:
        return {}
    return msgspec.json.decode(opaque.json, type=dict[str, object])


def merged(fields: Fields, more: Fields) -> Fields:
    """`more` laid over `fields`, objects in objects."""
    for key, value in more.items():
        there = fields.get(key)
        if is_json_object(there) and is_json_object(value):
            fields[key] = merged(there, value)
        else:
            fields[key] = value
    return fields


# Images, audio and documents as content parts of Chat Completions <-> `File`.


AUDIO_FORMATS = {"audio/wav": "wav", "audio/mpeg": "mp3"}  # OpenAI API reference: "wav" and "mp3"
AUDIO_TYPES = {"wav": "audio/wav", "mp3": "audio/mpeg"}


def encode_file(file: File, *, document_part: str) -> dict[str, object]:
    """The content part for a file. `document_part`: how documents go ("file" at OpenAI, "document_url" at Mistral)."""
    kind = file.media_type.partition("/")[0]
    part: dict[str, object]
    if kind == "image" and file.file_id is None:
        part = {"type": "image_url", "image_url": {"url": data_url(file) or ""}}
    elif file.media_type in AUDIO_FORMATS and file.data is not None:
        audio = {"data": encode_base64(file.data), "format": AUDIO_FORMATS[file.media_type]}
        part = {"type": "input_audio", "input_audio": audio}
    elif kind == "video" and file.file_id is None:
        part = {"type": "video_url", "video_url": {"url": data_url(file) or ""}}  # vLLM, OpenRouter
    elif document_part == "document_url" and file.file_id is None:
        part = {"type": "document_url", "document_url": data_url(file) or ""}
        if file.name is not None:
            part["document_name"] = file.name
    elif file.file_id is not None:
        part = {"type": "file", "file": {"file_id": file.file_id}}
    else:
        # OpenAI wants a name with the bytes; it takes no address, OpenRouter takes one here.
        named = {"filename": file.name} if file.name is not None else {"filename": "file"} if file.data else {}
        part = {"type": "file", "file": {**named, "file_data": data_url(file) or ""}}
    return part


def decode_file(part: Mapping[str, object]) -> File | None:
    """The file of a content part, or None if the part is no file that we know. What else it holds becomes opaque."""
    kind = part.get("type")
    inner = part.get(kind) if isinstance(kind, str) else None
    fields = dict(object_or_empty(inner))
    file: File | None = None
    match kind:
        case "image_url" | "video_url":
            media_type = "image/*" if kind == "image_url" else "video/*"
            url = fields.pop("url", None) if fields else inner  # Mistral takes the address itself
            file = _from_url(url, media_type=media_type, name=None)
        case "document_url":
            name = part.get("document_name")
            file = _from_url(inner, media_type=UNKNOWN_TYPE, name=name if isinstance(name, str) else None)
        case "input_audio":
            data, media_type = fields.pop("data", None), AUDIO_TYPES.get(str(fields.pop("format", None)))
            content = decode_base64(data) if isinstance(data, str) else None
            file = None if content is None or media_type is None else File(media_type=media_type, data=content)
        case "file":
            name, data = fields.pop("filename", None), fields.pop("file_data", None)
            file_id = fields.pop("file_id", None)
            if isinstance(file_id, str):
                file = File(media_type=UNKNOWN_TYPE, file_id=file_id)
            else:
                file = _from_url(data, media_type=UNKNOWN_TYPE, name=name if isinstance(name, str) else None)
        case _:
            return None
    if file is None:
        return None
    rest = {
        key: value for key, value in part.items() if key not in ("type", kind, "document_name") and value is not None
    }
    if fields:
        rest[str(kind)] = fields
    if not rest:
        return file
    return msgspec.structs.replace(file, opaque=Opaque(NAME, msgspec.json.encode(rest).decode()))


def image_of(raw: msgspec.Raw) -> File | None:
    """A generated image, which comes as an `image_url` part."""
    try:
        return decode_file(msgspec.json.decode(raw, type=dict[str, object]))
    except UNREADABLE:
        return None


def _from_url(url: object, *, media_type: str, name: str | None) -> File | None:
    if not isinstance(url, str):
        return None
    found = read_data_url(url)
    if found is None:
        return File(media_type=media_type, url=url, name=name)
    return File(media_type=found[0] or media_type, data=found[1], name=name)


_COMPLETE = ArgumentsState.COMPLETE  # an enum's member takes longer to find than a name
_ASSISTANT, _RESULT_ID = b'{"role":"assistant","content":', b'{"role":"tool","tool_call_id":'
_CALL_ID, _CALL_NAME, _ARGUMENTS = b'{"id":', b',"type":"function","function":{"name":', b',"arguments":'
JOINT = "\n\n"  # between texts that go as one
# What is invented stands in requests alone, never in the history.
LATER_SYSTEM = Text("[System message]")
# Mistral refuses a user's message right behind results. pydantic-ai puts the same word there (`models/mistral.py`).
BETWEEN = b'{"role":"assistant","content":"OK"}'
ALPHANUMERIC = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


_CallForm = tuple[bytes, bytes, bool, WireNames]
"""What is the same in all usual messages with calls: from the start to the first call, where there is no text; from the text to
the first call; whether nothing goes into the calls themselves; and the names of tools. (A tuple: an attribute takes longer to
find.)"""


def _call_form(profile: Profile, names: WireNames) -> _CallForm:
    content = b"null" if profile.calls_content is None else encode(profile.calls_content)
    back = b""
    if profile.reasoning_stand_in is not None and profile.reasoning_replay is not None:
        back = b"," + encode(profile.reasoning_replay) + b":" + encode(profile.reasoning_stand_in)
    behind = back + b',"tool_calls":['
    return _ASSISTANT + content + behind, behind, not profile.signature_stand_in, names


class ChatItems:
    """The wire's messages for ours. Several tool messages in a row are one run: what their results cannot hold (files)
    follows the whole run, since the API wants all results right after the calls. `listed`: content that could be a string is a
    list of one part, which can have a mark of the provider's cache; so its bytes are the same with and without one. `joins`:
    neighbours of one role go as one message, the last of which waits for the next."""

    __slots__ = ("_files", "_form", "_is_behind_result", "_is_plain", "_joins", "_listed", "_open", "_profile")

    def __init__(self, profile: Profile, *, names: WireNames, listed: bool = False, joins: bool = False) -> None:
        self._profile = profile
        self._listed = listed
        self._joins = joins
        self._files: list[Fields] = []
        self._form = _call_form(profile, names)
        self._is_plain = not joins and profile.later_system == "system" and profile.behind_results == "user"
        self._is_behind_result = False
        self._open: Message | None = None  # a neighbour may join it

    def take(self, messages: Sequence[Message]) -> list[bytes]:
        profile, form, is_plain = self._profile, self._form, self._is_plain
        listed = self._listed and profile.cache == "parts"
        found: list[bytes] = []
        for message in messages:
            if message.role != "tool":
                if self._files:
                    found += self.rest()
                    self._files = []
                    self._is_behind_result = False
                if is_plain:
                    found.append(_encode_message(message, profile, form, listed=self._listed))
                else:
                    self._say(message, found)
                continue
            if not is_plain:
                if self._open is not None:
                    found += self.rest()
                    self._open = None
                self._is_behind_result = True
            for part in message.parts:
                if type(part) is not ToolResult:
                    continue
                if (usual := usual_result(part, profile, listed=listed)) is not None:
                    found.append(usual)
                    continue
                self._files += _files_of(part, profile)
                found.append(encode(tool_message(part, profile, listed=listed)))
        return found

    def _say(self, message: Message, found: list[bytes]) -> None:
        """A message that holds no results, behind those that were found."""
        if message.role == "system" and self._profile.later_system == "user":
            message = Message("user", (LATER_SYSTEM, *message.parts))
        if self._joins:
            if self._open is not None:
                if self._open.role == message.role and not _has_calls(message):
                    between = (Text(JOINT),) if message.role == "assistant" else ()  # a user's texts get one anyway
                    self._open = Message(message.role, (*self._open.parts, *between, *message.parts))
                    return
                found += self.rest()
                self._open = None
            if message.role != "system" and not _has_calls(message):
                self._open = message
        if self._is_behind_result:
            if message.role == "user" and self._profile.behind_results == "assistant":
                found.append(BETWEEN)
            self._is_behind_result = False
        if self._open is None:
            found.append(_encode_message(message, self._profile, self._form, listed=self._listed))

    def rest(self) -> list[bytes]:
        if self._open is not None:
            return [_encode_message(self._open, self._profile, self._form, listed=self._listed)]
        if not self._files:
            return []
        files = encode({"role": "user", "content": self._files})
        return [BETWEEN, files] if self._profile.behind_results == "assistant" else [files]

    def copy(self) -> "ChatItems":
        other = ChatItems.__new__(ChatItems)
        other._profile, other._listed, other._joins = self._profile, self._listed, self._joins
        other._form, other._is_plain = self._form, self._is_plain
        other._files = [*self._files]
        other._is_behind_result, other._open = self._is_behind_result, self._open
        return other


def _has_calls(message: Message) -> bool:
    return message.role == "assistant" and any(type(part) is ToolCall for part in message.parts)


def _encode_message(message: Message, profile: Profile, form: _CallForm, *, listed: bool) -> bytes:
    """A system, user or assistant message. `listed`: as `ChatItems` says it."""
    match message.role:
        case "assistant":
            usual = _usual_assistant(message.parts, profile, form)
            return encode(assistant_message(form[-1].fitted(message.parts), profile)) if usual is None else usual
        case "system":
            return encode(_plain_message(profile.system_role, message.parts, profile, listed=listed))
        case _:
            return encode(_plain_message(message.role, message.parts, profile, listed=listed))


def encode_instructions(texts: Sequence[Text], profile: Profile, *, listed: bool) -> bytes:
    """The leading instructions as one message: chat templates take a single system text. One string where no part has fields."""
    said = [text for text in texts if text.text or _part_fields(text.opaque)] or list(texts)
    if not listed and not any(_part_fields(text.opaque) for text in said):
        fields = message_fields(said, profile)
        one = Text(JOINT.join([text.text for text in said]))
        return encode({"role": profile.system_role, "content": one.text, **fields})
    return encode(_plain_message(profile.system_role, said, profile, listed=listed))


def _plain_message(role: str, parts: Sequence[Part], profile: Profile, *, listed: bool) -> Fields:
    match parts:
        case [Text(text=text, opaque=opaque)] if not _part_fields(opaque):
            content: object = text
        case _:
            content = _joined(parts, profile, listed=listed) or _content(parts, profile)
    if not content and role == "user":
        content = profile.empty_text or content
    return {"role": role, "content": _listed(content) if listed else content, **message_fields(parts, profile)}


def _listed(content: object) -> object:
    """A text that says something as a list of one part."""
    if not isinstance(content, str) or not content.strip():
        return content
    return [{"type": "text", "text": content}]


def _joined(parts: Sequence[Part], profile: Profile, *, listed: bool) -> str:
    """Plain texts as one: many servers and chat templates take a string alone. The program's notes among them have line ends of
    their own. Empty for anything else, and where the endpoint gets a list."""
    texts = [part for part in parts if isinstance(part, Text) and not _part_fields(part.opaque)]
    if len(texts) < len(parts):
        return ""
    if any(part.note for part in texts):
        return "".join([part.text for part in texts])
    if listed or profile.text_lists:
        return ""
    return JOINT.join([part.text for part in texts if part.text])


def _content(parts: Iterable[Part], profile: Profile) -> list[object]:
    content: list[object] = []
    for part in parts:
        match part:
            case Text():
                content.append({"type": "text", "text": part.text, **_part_fields(part.opaque)})
            case File():
                content.append(file_part(part, profile))
            case ProviderItem(family=family) if family == NAME:
                content.append(msgspec.Raw(part.json.encode()))
            case _:
                pass
    return content


def file_part(file: File, profile: Profile) -> Fields:
    """The file, or words in its place where the endpoint takes none of its kind."""
    if not takes_file(file, profile):
        return {"type": "text", "text": left_out(file).text}
    return merged(encode_file(file, document_part=profile.document_part), _part_fields(file.opaque))


def assistant_message(parts: Sequence[Part], profile: Profile) -> Fields:
    """The order in a Chat Completions message is fixed: reasoning, text, refusal, calls."""
    message: Fields = {"role": "assistant"}
    reasoning = [part for part in parts if isinstance(part, Reasoning)]
    calls = [encode_call(part, profile=profile) for part in parts if isinstance(part, ToolCall)]
    refusals = [part.text for part in parts if isinstance(part, Refusal)]
    content = _assistant_content(parts, reasoning, profile)
    if content is None and not calls and not refusals:
        # "Required unless `tool_calls` or `function_call` is specified" (OpenAI API reference): strict servers answer 400.
        content = " ".join([left_out(part).text for part in parts if isinstance(part, File)])
    if content is None and calls:
        content = profile.calls_content
    elif not content and not calls and not refusals:
        content = profile.empty_text
    message["content"] = content
    if refusals:
        message["refusal"] = "".join(refusals)
    if reasoning:
        message.update(_replayed(reasoning, profile))
    if calls and profile.reasoning_stand_in is not None and profile.reasoning_replay is not None:
        message.setdefault(profile.reasoning_replay, profile.reasoning_stand_in)
    if calls:
        if profile.signature_stand_in:
            # Gemini API, "Thought signatures": of parallel calls the first has it, here in `extra_content`.
            calls[0].setdefault("extra_content", {"google": {"thought_signature": profile.signature_stand_in}})
        message["tool_calls"] = calls
    message.update(message_fields(parts, profile))
    return message


def _usual_assistant(parts: Sequence[Part], profile: Profile, form: _CallForm) -> bytes | None:
    """`assistant_message` of texts and whole calls with nothing beside them, which long histories are made of; None for any
    other."""
    bare, behind, is_usual, names = form
    texts: list[str] = []
    calls: list[bytes] = []
    try:
        for part in parts:
            if type(part) is ToolCall and part.opaque is None and part.state is _COMPLETE and not part.free_form:
                id = quote_whole(part.id if profile.tool_call_id_length is None else wire_id(part.id, profile))
                name, arguments = names[part.name], quote_whole(part.arguments)
                calls.append(b"".join((_CALL_ID, id, _CALL_NAME, name, _ARGUMENTS, arguments, b"}}")))
            elif type(part) is Text and part.opaque is None:
                texts.append(part.text)
            else:
                return None
        if texts:
            text = "".join(texts)
            content = quote_whole(text)
            if not calls:
                return b"".join((_ASSISTANT, content, b"}")) if text else None
            begins = b"".join((_ASSISTANT, content, behind))
        elif calls:
            begins = bare
        else:
            return None
    except UnicodeEncodeError:
        return None
    return b"".join((begins, b",".join(calls), b"]}")) if is_usual else None


def _assistant_content(parts: Sequence[Part], reasoning: list[Reasoning], profile: Profile) -> object:
    texts = [part for part in parts if isinstance(part, Text)]
    items = [part for part in parts if isinstance(part, ProviderItem) and part.family == NAME and _is_content(part)]
    thinking = profile.reasoning_replay == "content" and any(part.text for part in reasoning)
    if not thinking and not items and not any(_part_fields(part.opaque) for part in texts):
        return joined_text(parts)
    content = _content([*texts, *items], profile)
    if thinking:
        text = "".join([part.text for part in reasoning])
        content.insert(0, {"type": "thinking", "thinking": [{"type": "text", "text": text}]})
    return content


def _is_content(item: ProviderItem) -> bool:
    # What ran on the server is told in responses only; no endpoint takes it back.
    return item.kind != "executed_tools"


def _replayed(reasoning: list[Reasoning], profile: Profile) -> Fields:
    """Reasoning sent back in the field that the endpoint takes, if any."""
    match profile.reasoning_replay:
        case None | "content":
            return {}
        case "reasoning_details":
            details = [detail for part in reasoning for detail in _details(part.opaque)]
            if details:
                return {"reasoning_details": details}
            # OpenRouter docs, "Preserving reasoning": the plain text where there are no details.
            field = "reasoning"
        case field:
            pass
    text = "".join([part.text for part in reasoning])
    return {field: text} if text else {}


def _details(opaque: Opaque | None) -> list[object]:
    details = fields_of(opaque).get("reasoning_details")
    return array_or_empty(details)


def encode_call(call: ToolCall, *, profile: Profile | None = None) -> Fields:
    """A call as an entry of `tool_calls`; without a profile as the API itself writes it.

    Arguments that are not complete go as `{}`: several servers parse the string and refuse the whole request otherwise.
    """
    call_id = wire_id(call.id, profile)
    rest = None if call.opaque is None else _part_fields(call.opaque)
    if call.free_form and (profile is None or profile.free_form_tools):
        custom: Fields = {"id": call_id, "type": "custom", "custom": {"name": call.name, "input": call.arguments}}
        return merged(custom, rest) if rest else custom
    arguments = call.arguments
    if call.free_form:
        arguments = free_form_arguments(call.arguments)
    elif profile is not None and call.state is not ArgumentsState.COMPLETE:
        arguments = "{}"
    found: Fields = {"id": call_id, "type": "function", "function": {"name": call.name, "arguments": arguments}}
    return merged(found, rest) if rest else found


def usual_result(result: ToolResult, profile: Profile, *, listed: bool) -> bytes | None:
    """`tool_message` of one text with nothing beside it; None for any other."""
    content = result.content
    if listed or len(content) != 1 or type(text := content[0]) is not Text:
        return None
    said = text.text
    if text.opaque is not None or result.opaque is not None or not said:
        return None
    id = result.call_id if profile.tool_call_id_length is None else wire_id(result.call_id, profile)
    try:
        return b"".join((_RESULT_ID, quote_whole(id), b',"content":', quote_whole(said), b"}"))
    except UnicodeEncodeError:
        return None


def tool_message(result: ToolResult, profile: Profile, *, listed: bool) -> Fields:
    texts = [part for part in result.content if type(part) is Text]
    content: object
    if not any(text.text for text in texts):
        content = profile.empty_text
    elif len(texts) == 1 and (texts[0].opaque is None or not _part_fields(texts[0].opaque)):
        content = texts[0].text
    else:
        content = _joined(texts, profile, listed=listed) or _content(texts, profile)
    content = _listed(content) if listed else content
    message: Fields = {"role": "tool", "tool_call_id": wire_id(result.call_id, profile), "content": content}
    if result.opaque is not None:
        message.update(fields_of(result.opaque))
    return message


def _files_of(result: ToolResult, profile: Profile) -> list[Fields]:
    """A tool message takes text only; its files go into a user message that says where they come from."""
    files = [part for part in result.content if type(part) is File]
    if not files:
        return []
    told: Fields = {"type": "text", "text": f"Files that the call `{wire_id(result.call_id, profile)}` returned:"}
    return [told, *[file_part(file, profile) for file in files]]


def wire_id(call_id: str, profile: Profile | None) -> str:
    """The call id as the endpoint takes it: where it insists on a length (Mistral: 9 alphanumeric characters), any other
    id becomes one made of its hash, the same for the call and its result."""
    length = None if profile is None else profile.tool_call_id_length
    if length is None or (len(call_id) == length and call_id.isascii() and call_id.isalnum()):
        return call_id
    number = int.from_bytes(hashlib.sha256(call_id.encode(errors="surrogatepass")).digest())
    digits: list[str] = []
    for _ in range(length):
        number, digit = divmod(number, len(ALPHANUMERIC))
        digits.append(ALPHANUMERIC[digit])
    return "".join(digits)


def joined_text(parts: Iterable[Part]) -> str | None:
    """The texts of an assistant message, which has one; null where there is none."""
    texts = [part.text for part in parts if isinstance(part, Text)]
    return "".join(texts) if texts else None


def _part_fields(opaque: Opaque | None) -> Fields:
    fields = fields_of(opaque)
    fields.pop("message", None)
    return fields


def unfit_fields(parts: Iterable[Part], profile: Profile) -> list[str]:
    """The fields of messages that the server refuses."""
    taken = profile.message_fields
    return [] if taken is None else [name for name in _message_fields(parts) if name not in taken]


def message_fields(parts: Sequence[Part], profile: Profile) -> Fields:
    """Fields of the message itself that the server takes."""
    found, taken = _message_fields(parts), profile.message_fields
    return found if taken is None else {name: value for name, value in found.items() if name in taken}


def _message_fields(parts: Iterable[Part]) -> Fields:
    """Fields of the message itself, kept on its parts under the key `message`."""
    found: Fields = {}
    for part in parts:
        fields = fields_of(part.opaque).get("message") if not isinstance(part, ProviderItem) else None
        if is_json_object(fields):
            found.update(fields)
    return found
