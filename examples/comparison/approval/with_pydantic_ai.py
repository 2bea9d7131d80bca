"""`requires_approval`; the run ends with `DeferredToolRequests`. Pass `deferred_tool_results=` to the next run to continue."""

from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults

agent = Agent("openai-responses:publisher", output_type=[str, DeferredToolRequests])


@agent.tool_plain(requires_approval=True)
def publish(page: str) -> str:
    """Put a page on the web site."""
    return f"{page} is out"


first = agent.run_sync("Publish the news.")
assert isinstance(first.output, DeferredToolRequests)
answers = DeferredToolResults(approvals={call.tool_call_id: True for call in first.output.approvals})
second = agent.run_sync(message_history=first.all_messages(), deferred_tool_results=answers)
print(second.output)
