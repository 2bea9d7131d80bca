"""A coding agent without a terminal: its folder, rules, asks, undo, sessions, instructions and skills."""
