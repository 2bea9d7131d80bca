"""The turn: a pure machine that takes events and gives commands."""
