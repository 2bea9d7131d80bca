"""The gateway's judgement, without IO: what a client asked, what goes to the upstream, and what comes back to the client."""
