"""instructor, which wants an object by a forced tool, for `asked.py`."""

import instructor
from anthropic import Anthropic
from openai import OpenAI
from pydantic import BaseModel


class Look(BaseModel):
    """What was seen."""

    place: str


def ask(api, url, model, streamed, prompt):
    """What the object says."""
    if api == "messages":
        client = instructor.from_anthropic(Anthropic(base_url=url, api_key="none", max_retries=0))
    else:
        own = OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
        client = instructor.from_openai(own, mode=instructor.Mode.TOOLS)
    asked = {"model": model, "messages": [{"role": "user", "content": prompt}], "max_retries": 1, "max_tokens": 1000}
    if streamed:
        *_, found = client.chat.completions.create_partial(response_model=Look, **asked)
    else:
        found = client.chat.completions.create(response_model=Look, **asked)
    return f"quiet at the {found.place}"
