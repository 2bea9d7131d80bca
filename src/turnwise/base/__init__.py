"""Hands: everything that waits, reads clocks or touches files, sockets and processes."""
