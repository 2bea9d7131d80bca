"""Reaching a server: its address and key, the transport, and one request with its response."""
