"""CPU time and memory of importing turnwise, in fresh processes; medians. Usage: python benchmarks/import_time.py [ROUNDS]"""

import json
import statistics
import subprocess
import sys

PROBE = """
import json, resource, time
before = time.process_time()
{statement}
cpu = time.process_time() - before
print(json.dumps([cpu, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))
"""
STATEMENTS = ("pass", "import turnwise", "from turnwise import Agent, tool")


def measure(statement: str, *, rounds: int) -> tuple[float, float]:
    """Median CPU seconds of the statement, and median peak memory of the process in MiB."""
    found: list[tuple[float, float]] = []
    for _ in range(rounds):
        done = subprocess.run(
            [sys.executable, "-c", PROBE.format(statement=statement)], capture_output=True, text=True, check=True
        )
        cpu, memory = json.loads(done.stdout)
        found.append((cpu, memory))
    return statistics.median(cpu for cpu, _ in found), statistics.median(memory for _, memory in found)


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    print(f"| statement | CPU s (median of {rounds}) | peak MiB of the process |")
    print("|---|---|---|")
    for statement in STATEMENTS:
        cpu, memory = measure(statement, rounds=rounds)
        print(f"| `{statement}` | {cpu:.3f} | {memory:.1f} |")


if __name__ == "__main__":
    main()
