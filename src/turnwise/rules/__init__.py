"""Judges: pure functions and small values that compose. They know no wire, no clock, no file."""
