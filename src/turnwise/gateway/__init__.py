"""The outer side of the gateway: what a client may send, who it is, and how the answer leaves. Only the gateway's command loads
it."""
