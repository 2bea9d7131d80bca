"""The guard against slower hot paths that looks at no clock; `benchmarks/counts.py` is its command."""
