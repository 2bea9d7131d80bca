"""`UsageLimits(request_limit=...)` raises `UsageLimitExceeded`. A second run without tools asks for the answer."""

from pydantic_ai import Agent, UsageLimitExceeded, UsageLimits, capture_run_messages

agent = Agent("openai-responses:research")


@agent.tool_plain
def search(pattern: str) -> str:
    """Search the archive."""
    return f"a page about {pattern}"


with capture_run_messages() as messages:
    try:
        result = agent.run_sync("Who wrote this?", usage_limits=UsageLimits(request_limit=3))
    except UsageLimitExceeded:
        result = Agent("openai-responses:research").run_sync("Answer now.", message_history=[*messages])
print(result.output)
