"""The turn: a pure state machine that takes events and returns commands."""
