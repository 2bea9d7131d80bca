"""`turnwise check`: the command, and how its findings are shown."""
