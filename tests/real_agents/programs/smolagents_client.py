"""An agent of smolagents with a tool, for `asked.py`."""

from smolagents import OpenAIModel, ToolCallingAgent, tool


@tool
def look(place: str) -> str:
    """Look at a place.

    Args:
        place: Where to look.
    """
    return f"quiet at the {place}"


def ask(api, url, model, streamed, prompt):
    """What the agent answers in the end."""
    own = OpenAIModel(model_id=model, api_base=f"{url}/v1", api_key="none")
    agent = ToolCallingAgent(tools=[look], model=own, stream_outputs=streamed, max_steps=4, verbosity_level=-1)
    return agent.run(prompt)
