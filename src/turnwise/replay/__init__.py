"""Replay: a session runs again from what was recorded of it, without a request or a tool; also from a file of its own."""
