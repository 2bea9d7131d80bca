"""Whether a body is worth reading: how deep it is nested, and how many values it holds, before a value of it is built."""

import re
from itertools import accumulate

from turnwise.relay.refusals import RequestRefused

MAX_DEPTH = 128
"""Levels of arrays and objects. A schema of twenty levels, which no provider takes, has fifty in a request."""

MAX_VALUES = 262_144
"""JSON values of one request. Python takes about a hundred bytes for each; a history of 5,000 messages has 40,000."""

# Possessive, and the last string may be open: each byte is looked at once, whatever comes.
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?+'
_STRINGS = re.compile(_STRING, re.DOTALL)
_BETWEEN_BRACKETS = re.compile(rb'(?:[^"\[\]{}]++|' + _STRING + rb")++", re.DOTALL)
_STEPS = [{"[": 1, "{": 1, "]": -1, "}": -1}.get(chr(byte), 0) for byte in range(256)]


def check_size(body: bytes) -> None:
    """Raises RequestRefused for a body that is nested too deeply or holds too many values. The body need not be JSON."""
    opened = body.count(b"[") + body.count(b"{")
    if opened + body.count(b",") > MAX_VALUES:
        outside = _STRINGS.sub(b"", body)
        if outside.count(b",") + outside.count(b"[") + outside.count(b"{") > MAX_VALUES:
            raise RequestRefused(f"the body holds more than {MAX_VALUES} values")
    if opened > MAX_DEPTH:
        brackets = _BETWEEN_BRACKETS.sub(b"", body)
        if max(accumulate(map(_STEPS.__getitem__, brackets)), default=0) > MAX_DEPTH:
            raise RequestRefused(f"the body is nested deeper than {MAX_DEPTH} levels")
