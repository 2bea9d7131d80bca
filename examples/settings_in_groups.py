"""Set what a beginner need not know in four groups, which type checkers know; a misspelt or misplaced option is an error."""

from typing import Any

from models import MODEL, says
from turnwise import (
    Agent,
    Deadlines,
    Journal,
    Policy,
    RecoveryOptions,
    RetryPolicy,
    Settings,
    UnknownOption,
)

recovery: RecoveryOptions = {"retry": RetryPolicy(attempts=3), "deadlines": Deadlines(first_event_s=60)}

with Journal(None) as journal:  # in memory; Journal("turns.db") is a file
    agent = Agent(
        says("Hello.", settings=Settings(temperature=0.2)),
        recovery=recovery,
        policy=Policy(),
        safety={"max_subagents": 4},
        journal=journal,
    )
    print(agent.run_sync("Hello.").text, len(journal.sessions()))

wrong: list[dict[str, Any]] = [{"temperature": 0.2}, {"max_steps": 8}, {"instruction": "Be brief."}]
for options in wrong:
    try:
        Agent(MODEL, **options)
    except UnknownOption as error:
        print(error)
