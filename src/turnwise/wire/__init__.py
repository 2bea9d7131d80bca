"""Bytes <-> frames, in both directions, for every API family."""
