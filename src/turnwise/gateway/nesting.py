"""How deeply JSON is nested, before anything decodes it."""

_BRACKETS = b'{}[]"'
_OTHERS = bytes([each for each in range(256) if each not in _BRACKETS])
_ALIKE = bytes.maketrans(b"[]", b"{}")


def is_deeper(body: bytes, *, most: int) -> bool:
    """Whether arrays and objects are nested more than `most` levels deep. Of bytes that are no JSON it may say either, but never
    False if a decoder would go deeper.

    A decoder that calls itself for each level would run out of stack. Everything here runs in C: what is no bracket goes, then
    the innermost pairs go, a level at a time.
    """
    if body.count(b"{") + body.count(b"[") <= most:
        return False
    # Pairs of backslashes first: what is then before a quotation mark escapes it.
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _OTHERS)
    left = b"".join(plain.split(b'"')[::2]).translate(_ALIKE)
    too_deep = b"{" * (most + 1)
    levels = 0
    while levels < most and left and too_deep not in left:
        shorter = left.replace(b"{}", b"")
        if len(shorter) == len(left):  # no pair is left: a decoder fails at what closes none, or at the end
            break
        left, levels = shorter, levels + 1
    return levels + left.count(b"{") > most
