"""What the tests in `test_openai_chat_requests.py` and `test_openai_chat_request_trips.py` share."""

import json
from typing import Any

import msgspec

from turnwise.vocab import (
    Message,
    Opaque,
    Request,
    Text,
)
from turnwise.wire.openai_chat import FAMILY
from turnwise.wire.profiles import Profile, builtin_profiles

KNOWN = builtin_profiles()
OPENAI, PLAIN = KNOWN["openai-chat"], KNOWN["openai_chat"]
# Takes everything that the family has: what is lost under it is lost everywhere.
WIDEST = Profile(
    name="widest",
    family="openai_chat",
    reasoning_request="reasoning_effort",
    reasoning_replay="reasoning_details",
    text_lists=True,
    empty_text="",
)
USER = Message("user", (Text("hi"),))


def opaque(**fields: object) -> Opaque:
    return Opaque("openai_chat", msgspec.json.encode(fields).decode())


def body_of(request: Request, profile: Profile = PLAIN) -> dict[str, Any]:
    return json.loads(FAMILY.encode_request(request, profile).body)


def message_of(message: Message, profile: Profile = PLAIN) -> list[dict[str, Any]]:
    return body_of(Request(model="m", messages=(message,)), profile)["messages"]


def read(body: dict[str, Any]) -> Request:
    return FAMILY.decode_request(json.dumps(body).encode(), "/v1/chat/completions")


def read_messages(*messages: object) -> Request:
    return read({"model": "m", "messages": list(messages)})
