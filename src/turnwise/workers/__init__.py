"""Turns that wait in the journal on PostgreSQL until a worker claims them, and the leases of those that run."""
