"""Read a provider's failure from the result: nothing is raised, and what there was until then is not lost."""

from models import says
from turnwise import Agent, Fault, FaultKind, MissingKey, Model, RetryPolicy, StopReason, tool
from turnwise.testing import call


@tool
def weather(city: str) -> str:
    """Tell the weather of a city."""
    return f"{city}: sunny"


busy = Fault(kind=FaultKind.OVERLOADED, status=503, message="We are busy.")
denied = Fault(kind=FaultKind.AUTH, status=401, message="No such key.")
agent = Agent(
    says(call("weather", city="Oslo"), busy, "It is sunny.", call("weather", city="Oslo"), denied),
    tools=[weather],
    recovery={"retry": RetryPolicy(attempts=3, base_s=0)},
)
well = agent.run_sync("How is the weather in Oslo?")
print(well.text, well.complete, well.requests)  # the busy provider was asked again

failed = agent.run_sync("And now?")
if failed.stop_reason is StopReason.PROVIDER_FAILED and failed.fault is not None:
    print(failed.fault.kind.value, failed.fault.status, failed.fault.message)
print(failed.why_incomplete)
print(len(failed.history), "messages to go on from:", failed.shown_text)

try:
    Agent(Model("openai:gpt-6.1-sol", api_key_env="NO_SUCH_VARIABLE")).run_sync("Hello.")
except MissingKey as error:  # raised is only what you have to change
    print(error)
