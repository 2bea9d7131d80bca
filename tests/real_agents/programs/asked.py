"""Asks by a client of Python, one question after the other: `python PROGRAM CLIENT API URL PROMPT`, each line of standard input
with a model and whether it is streamed. Each answer is a line: loading a client takes longer than all of its answers."""

import importlib
import json
import sys

answers, sys.stdout = sys.stdout, sys.stderr  # a client may print, too
client = importlib.import_module(sys.argv[1])
for line in sys.stdin:
    model, streamed = line.split()
    try:
        told = {"said": str(client.ask(*sys.argv[2:4], model, streamed == "yes", sys.argv[4]))}
    except Exception as error:  # noqa: BLE001 (whatever a client raises is its answer)
        told = {"error": f"{type(error).__name__}: {error}"}
    answers.write(json.dumps(told) + "\n")
    answers.flush()
