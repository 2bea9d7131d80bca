"""Writes a run's answer into answer.md and prints what it took, in one line that drives no CI system."""

import json
import sys
from pathlib import Path

folder = Path(sys.argv[1])
lines = (folder / "run.jsonl").read_text(encoding="utf-8").splitlines()
if not lines:
    sys.exit("turnwise did not start, so there is no result.")
result = json.loads(lines[-1])
(folder / "answer.md").write_text(result["text"] + "\n", encoding="utf-8")
tokens = result["usage"]["input_tokens"] + result["usage"]["output_tokens"]
cost = "an unknown cost" if result["cost_usd"] is None else f"${result['cost_usd']}"
fault = f" ({result['fault']['kind']})" if result.get("fault") else ""
complete = "complete" if result["complete"] else "not complete"
print(
    f"turnwise: {result['stop_reason']}{fault}, {complete}, exit code {result['exit_code']}:"
    f" {result['requests']} requests, {tokens} tokens, {cost}, calls denied: {len(result['denied'])}. The answer is in answer.md."
)
