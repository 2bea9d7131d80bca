"""The cut call never runs. The model is told about the broken JSON, as often as `retries` allows (1 by default)."""

from pydantic_ai import Agent

agent = Agent("openai-responses:cut-call", model_settings={"max_tokens": 2_000})


@agent.tool_plain
def write(path: str, content: str, append: bool = False) -> str:
    """Write a file."""
    print(f"wrote {len(content)} characters")
    return "written"


result = agent.run_sync("Write 200 lines into big.txt.")
print(result.output)
