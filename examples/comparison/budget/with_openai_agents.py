"""No: the program counts the remaining turns by hand. The run that would exceed them raises `MaxTurnsExceeded`."""

from agents import Agent, MaxTurnsExceeded, Runner, function_tool


@function_tool
def price(name: str) -> str:
    """Tell the price of a fruit."""
    return "2.50 EUR"


agent = Agent(name="fruit", model="price", tools=[price])
left = 5
for question in ("What is a pear?", "And now?", "And now?"):
    try:
        result = Runner.run_sync(agent, question, max_turns=left)
        left -= result.context_wrapper.usage.requests
        print(result.final_output_as(str), left)
    except MaxTurnsExceeded as error:
        left -= len(error.run_data.raw_responses) if error.run_data else left
        print("no answer", left)
