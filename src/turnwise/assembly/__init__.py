"""Frames -> whole things: calls, parts, responses."""
