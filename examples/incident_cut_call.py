"""A call that the output limit cuts is never run half: the model goes on where it was cut, and the whole call runs once."""

from models import plays
from turnwise import Agent, Settings, tool

report: list[str] = []


@tool(effect="write")
def write(path: str, content: str, append: bool = False) -> str:
    """Write a file."""
    report.append(content)
    return f"{len(content):,} characters written"


agent = Agent(plays("writer-file", settings=Settings(max_output_tokens=8_000)), tools=[write])
result = agent.run_sync("Write the report into big.txt.")
print("calls that ran:", len(report), "characters:", len(report[0]))
print(result.complete, result.requests_by_purpose)
for repair in result.repairs:
    print(repair.kind, repair.what)
print("spent on that:", result.recovery_usage.output_tokens > 0)

report.clear()
split = agent.run_sync("Write the report into big.txt.", recovery={"recover": "split"})
print("in pieces:", len(report), "characters:", sum(len(one) for one in report))
