"""Turns that wait in a PostgreSQL journal until a worker claims them, and the leases of the running ones."""
