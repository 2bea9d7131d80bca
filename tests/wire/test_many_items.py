"""What an event or a body would cost to read is counted as text, and only what is read counts."""

import json
from collections.abc import Iterator
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tables import each
from turnwise.wire.gemini import chunks as gemini_chunks
from turnwise.wire.long_events import MAX_VALUES, has_too_many_items
from turnwise.wire.openai_chat import chunks as chat_chunks

READ = ["choices", "parts", "toolCalls", "tool_calls", "content"]
PASSED_OVER = ["logprobs", "arguments", "input", "args", "prompt_token_ids", "x" * 400, 'a"b\\', ""]
KEYS = st.sampled_from(READ + PASSED_OVER)
SCALARS = st.integers() | st.text(st.sampled_from('x"\\[]{},:\n é😀')) | st.none() | st.booleans()
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner), max_leaves=60)


def separators(value: object) -> int:
    """The commas and opening brackets of all that is read."""
    match value:
        case dict():
            fields: dict[str, object] = value
            inner = sum(separators(one) for key, one in fields.items() if key in READ)
            return 1 + max(0, len(fields) - 1) + inner
        case list():
            items: list[object] = value
            return 1 + max(0, len(items) - 1) + sum(map(separators, items))
        case _:
            return 0


@given(VALUES, st.booleans(), st.booleans())
def test_all_that_is_read_is_counted_and_nothing_else(value: object, spaced: bool, escaped: bool) -> None:
    """By a count of the values themselves, however they are written."""
    text = json.dumps(value, indent=2 if spaced else None, ensure_ascii=escaped).encode()
    count = separators(value)
    assert not has_too_many_items(text, most=count)
    assert count == 0 or has_too_many_items(text, most=count - 1)


@given(VALUES, st.data())
def test_text_that_is_no_json_is_counted_to_its_end(value: object, data: st.DataObject) -> None:
    """Whatever is cut out of it, the count ends."""
    text = json.dumps(value).encode()
    start, end = data.draw(st.integers(0, len(text))), data.draw(st.integers(0, len(text)))
    has_too_many_items(text[:start] + text[end:], most=0)


def test_key_written_with_escapes_is_the_same_key() -> None:
    """JSON has several ways to write a key; the decoders know them all."""
    text = rb'{"\u0063hoices":[' + b"1," * 100 + b"1]}"
    assert has_too_many_items(text, most=50)


def containers(kind: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The ways to all lists and objects that a typed decoder builds."""
    origin = get_origin(kind) or kind
    if origin is list and path:
        yield path
    if isinstance(origin, type) and issubclass(origin, msgspec.Struct):
        if path:
            yield path
        hints = get_type_hints(origin)
        for field in msgspec.structs.fields(origin):
            if field.encode_name not in path:
                yield from containers(hints[field.name], (*path, field.encode_name))
    else:
        for inner in get_args(kind):
            yield from containers(inner, path)


@each(
    "way",
    sorted(
        {
            *containers(chat_chunks.Chunk),
            *containers(gemini_chunks.Chunk),
            *containers(gemini_chunks.PlainPart, ("candidates", "content", "parts")),
        }
    ),
    ids=".".join,
)
def test_every_list_and_object_of_the_typed_decoders_is_counted(way: tuple[str, ...]) -> None:
    """A field that comes later is one of them, or this fails."""
    text = b"[" + b"{}," * MAX_VALUES + b"{}]"
    for key in reversed(way):
        text = b'{"%s":%s}' % (key.encode(), text)
    assert has_too_many_items(text)
