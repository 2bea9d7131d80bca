"""Put several agents and runs under one limit and one bill."""

import asyncio

from models import says
from turnwise import Agent, Budget, BudgetSpent, MaxRequests

budget = Budget(MaxRequests(3), per_run=MaxRequests(1))
teller = Agent(says("120.50 EUR.", "7 EUR."), instructions="Tell the balance.", limits=budget)
critic = Agent(says("None."), instructions="Find faults.", limits=budget)


async def main() -> None:
    runs = [teller.run("Account 7?"), teller.run("Account 8?"), critic.run("Is that right?")]
    results = await asyncio.gather(*runs)  # they may run at once: each reserves its part first
    print(sorted(result.text for result in results))
    try:
        await critic.run("And now?")
    except BudgetSpent as error:
        print(error)


asyncio.run(main())
print(budget.spent.requests, "requests,", len(budget.ledger.to_rows()), "rows of the bill")
