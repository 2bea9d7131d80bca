"""An event or body that is not clean JSON: what can be read of it, and what had to be done."""

from typing import NamedTuple

from turnwise.wire.healing import decode_text, printable, read_objects


class Healed(NamedTuple):
    """Clean JSON objects found, one after the other, and what had to be done to get them."""

    objects: tuple[bytes, ...]
    what: str
    is_replaced: bool  # bytes were no UTF-8: something of the content is lost
    is_left_out: bool  # something was no JSON and may have been content

    def kind(self, *, lost: str, mended: str) -> str:
        """The kind of repair that this was."""
        if self.is_replaced:
            return "invalid_utf8"
        return lost if self.is_left_out else mended


def heal(text: bytes) -> Healed:
    decoded, is_replaced = decode_text(text)
    done = ["bytes that are not UTF-8 replaced by U+FFFD"] if is_replaced else []
    objects, end = read_objects(decoded)
    if end < len(decoded):
        done.append(f"not JSON from character {end} on, left out: {printable(decoded[end:])}")
    if len(objects) > 1:
        done.append(f"{len(objects)} JSON objects in one event read one after the other")
    elif not objects and not done:
        done.append(f"no JSON object, left out: {printable(decoded)}")
    left_out = not objects or end < len(decoded)
    return Healed(tuple(objects), "; ".join(done) or "JSON that is not strict read leniently", is_replaced, left_out)
