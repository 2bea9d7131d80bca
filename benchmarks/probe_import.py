"""One import in this process: CPU seconds and peak memory. Usage: python probe_import.py STATEMENT [DISTRIBUTION]"""

import sys
import time

statement = sys.argv[1]
before = time.process_time()
exec(statement)
cpu_s = time.process_time() - before

import importlib.metadata  # noqa: E402 (not before what is measured)
import json  # noqa: E402
from pathlib import Path  # noqa: E402

# Not `getrusage`: Linux hands the parent's peak on to what it starts.
lines = Path("/proc/self/status").read_text().splitlines()
memory_mib = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024
version = importlib.metadata.version(sys.argv[2]) if len(sys.argv) > 2 else ""
print(json.dumps({"cpu_s": cpu_s, "memory_mib": memory_mib, "version": version}))
