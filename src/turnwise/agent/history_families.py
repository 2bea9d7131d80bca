"""Which vendor's API a list of messages was written for, told from the messages alone."""

from collections.abc import Mapping, Sequence
from typing import cast

from turnwise.errors import CallerError
from turnwise.wire.profiles import FamilyName

CHAT_KEYS = frozenset(
    """tool_calls tool_call_id function_call reasoning_content reasoning_details refusal annotations audio name""".split()
)
CHAT_ROLES = frozenset({"tool", "function"})
BLOCKS: dict[str, FamilyName] = {
    **dict.fromkeys(("image_url", "input_audio", "video_url"), "openai_chat"),
    **dict.fromkeys(("input_text", "output_text", "input_image", "input_file"), "openai_responses"),
    **dict.fromkeys(
        "tool_use tool_result server_tool_use redacted_thinking search_result document".split(), "anthropic_messages"
    ),
}
"""Types of content that only one API has."""


def family_of(messages: Sequence[object]) -> FamilyName:
    """The family of messages that only one API takes. Messages of plain texts read alike in three of them: `openai_chat`.

    Raises CallerError where the messages look like more than one, or may be of several that read them otherwise.
    """
    seen: dict[FamilyName, int] = {}  # with the first message that looks like it
    for place, message in enumerate(messages):
        if (found := _family_of(_said(message))) is not None:
            seen.setdefault(found, place)
    if len(seen) > 1:
        said = " and ".join([f"`messages[{place}]` like `{family}`" for family, place in seen.items()])
        raise CallerError(f"the messages mix APIs: {said}. Say which it is with `family=`")
    for family in seen:
        return family
    _check_all_alike(messages)
    return "openai_chat"


def _check_all_alike(messages: Sequence[object]) -> None:
    """Raise CallerError for a field beside plain texts: it belongs to one API, and the messages do not tell to which."""
    for place, message in enumerate(messages):
        fields = _said(message)
        content = fields.pop("content", None)
        blocks = cast("list[object]", content) if isinstance(content, list) else []
        beside = [key for key in fields if key != "role"]
        beside += [key for block in blocks for key in _said(block) if key not in ("type", "text")]
        if beside:
            raise CallerError(
                f"`messages[{place}]` has `{beside[0]}`, and nothing tells which API the messages are for: say it with `family=`"
            )


def _said(value: object) -> dict[str, object]:
    if not isinstance(value, Mapping):
        return {}
    fields = cast("Mapping[str, object]", value)
    return {key: field for key, field in fields.items() if field not in (None, [], {})}


def _family_of(message: Mapping[str, object]) -> FamilyName | None:
    if "parts" in message or message.get("role") == "model":
        return "gemini"
    if "stop_reason" in message:  # a whole response of Anthropic's, whose type is `message`, too
        return "anthropic_messages"
    if message.get("type") == "message" or ("type" in message and "role" not in message):
        return "openai_responses"
    if message.get("role") in CHAT_ROLES or CHAT_KEYS & message.keys():
        return "openai_chat"
    content = message.get("content")
    blocks = cast("list[object]", content) if isinstance(content, list) else []
    return next((found for block in blocks if (found := _family_of_block(block)) is not None), None)


def _family_of_block(block: object) -> FamilyName | None:
    fields = _said(block)
    word = fields.get("type")
    if word == "thinking":  # Mistral's Chat Completions has a list there
        return "anthropic_messages" if isinstance(fields.get("thinking"), str) else "openai_chat"
    if word == "image" and "source" in fields:
        return "anthropic_messages"
    if word == "file" and "file" in fields:
        return "openai_chat"
    return BLOCKS.get(word) if isinstance(word, str) else None
