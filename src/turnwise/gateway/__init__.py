"""The gateway's edge: what a client may send, who it is, and how the answer leaves. Loaded by its command alone."""
