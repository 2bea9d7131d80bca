"""What clients make of a stream: a naive one believes every event, a strict one takes nothing but what the family's API sends.
Neither knows the decoders of `wire/`, so neither can share their mistakes."""
