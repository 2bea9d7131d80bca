"""The model of the examples: a scripted one, without a key, or yours: `MODEL=openai:gpt-6.1-sol python examples/limits.py`."""

import os

from turnwise import EndpointOptions
from turnwise.lab import Lab
from turnwise.testing import ScriptedModel
from turnwise.testing.scripted_model import Line

MODEL = os.environ.get("MODEL", "openai_responses:scripted")
CHAT_MODEL = os.environ.get("MODEL", "openai_chat:scripted")


def says(*lines: Line) -> EndpointOptions:
    """An endpoint that answers each request with the next line. With a model of yours it is the model's own."""
    if "MODEL" in os.environ:
        return {}
    model = ScriptedModel(lines, family="openai_responses")
    return {"base_url": model.endpoint.base_url, "transport": model}


def plays(script: str) -> EndpointOptions:
    """An endpoint that behaves like this script of `turnwise lab` (docs/lab.md). With a model of yours it is the model's own."""
    if "MODEL" in os.environ:
        return {}
    lab = Lab()
    lab.play(script)
    return {"base_url": "http://lab.invalid/v1", "transport": lab.transport()}
