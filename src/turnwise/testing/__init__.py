"""Fakes that are part of the product: scripted models and transports, a fake clock, a conformance suite."""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from turnwise.testing.fake_clock import FakeClock as FakeClock
    from turnwise.testing.frames import byte_by_byte as byte_by_byte
    from turnwise.testing.frames import every_split as every_split
    from turnwise.testing.frames import random_splits as random_splits
    from turnwise.testing.no_requests import forbid_requests as forbid_requests
    from turnwise.testing.recording import Recording as Recording
    from turnwise.testing.scripted_model import Reply as Reply
    from turnwise.testing.scripted_model import ScriptedModel as ScriptedModel
    from turnwise.testing.scripted_model import ScriptedTransport as ScriptedTransport
    from turnwise.testing.scripted_model import Stall as Stall
    from turnwise.testing.scripted_model import call as call

# Imported with their first use: the lab takes a part of this room and must not pay for all of it.
_PLACES = {
    "FakeClock": "fake_clock",
    "Recording": "recording",
    "Reply": "scripted_model",
    "ScriptedModel": "scripted_model",
    "ScriptedTransport": "scripted_model",
    "Stall": "scripted_model",
    "byte_by_byte": "frames",
    "call": "scripted_model",
    "every_split": "frames",
    "forbid_requests": "no_requests",
    "random_splits": "frames",
}

__all__ = [
    "FakeClock",
    "Recording",
    "Reply",
    "ScriptedModel",
    "ScriptedTransport",
    "Stall",
    "byte_by_byte",
    "call",
    "every_split",
    "forbid_requests",
    "random_splits",
]


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module `{__name__}` has no attribute `{name}`")
    return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
