"""Limit a run: either limit ends it with |, only both together with &; the last request is kept for the answer."""

from models import plays
from turnwise import Agent, MaxRequests, MaxSteps, MaxTokens, MaxWallTime, tool


@tool
def search(pattern: str) -> str:
    """Search the archive."""
    return f"a page about {pattern}"


agent = Agent(plays("never-stops"), tools=[search], limits=MaxRequests(3) | MaxWallTime(600))
result = agent.run_sync("Who wrote this?")
print(result.stop_reason.value, result.requests, result.complete)
print(result.text)

patient = agent.run_sync("Who wrote this?", limits=MaxRequests(3) & MaxTokens(100_000) | MaxSteps(6))
print(patient.stop_reason.value, patient.requests)
