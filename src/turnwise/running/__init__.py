"""Running a turn: the loop, its requests, sub-agents, hooks, asks, programs and watchers."""
