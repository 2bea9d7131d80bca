"""The model of the examples: a scripted one, without a key, or yours: `MODEL=openai:gpt-6.1-sol python examples/limits.py`."""

import os

from turnwise import Model, Settings
from turnwise.lab import Lab
from turnwise.testing import ScriptedModel
from turnwise.testing.scripted_model import Line

MODEL = os.environ.get("MODEL", "openai_responses:scripted")
CHAT_MODEL = os.environ.get("MODEL", "openai_chat:scripted")
USUAL = Settings()


def says(*lines: Line, settings: Settings = USUAL, family: str = "openai_responses") -> Model:
    """A model that answers each request with the next line; or yours."""
    if "MODEL" in os.environ:
        return Model(MODEL, settings=settings)
    return Model(f"{family}:scripted", settings=settings, transport=ScriptedModel(lines, family=family))


def plays(script: str, *, model: str = MODEL, settings: Settings = USUAL) -> Model:
    """A model that behaves like this script of `turnwise lab` (docs/lab.md); or yours."""
    if "MODEL" in os.environ:
        return Model(model, settings=settings)
    lab = Lab()
    lab.play(script)
    return Model(model, settings=settings, base_url="http://lab.invalid/v1", transport=lab.transport())
