"""All runs share one `RunUsage` (`usage=`). The run that would exceed the limit raises `UsageLimitExceeded`."""

from pydantic_ai import Agent, RunUsage, UsageLimitExceeded, UsageLimits

agent = Agent("openai-responses:price")


@agent.tool_plain
def price(name: str) -> str:
    """Tell the price of a fruit."""
    return "2.50 EUR"


usage, limits = RunUsage(), UsageLimits(request_limit=5)
for question in ("What is a pear?", "And now?", "And now?"):
    try:
        result = agent.run_sync(question, usage=usage, usage_limits=limits)
        print(result.output, 5 - usage.requests)
    except UsageLimitExceeded:
        print("no answer", 5 - usage.requests)
