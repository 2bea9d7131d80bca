"""Hold the rules of `mistral` in dialects.toml against mistral-common's own validators, on drawn conversations.

Usage: python scripts/mistral_judge.py [--bodies 2000] [--seed 1]

mistral-common stands in no group of the project: it wants an older numpy than the rest. `uv` puts it into an environment of its
own for this run. Ends with 0 if both refuse the same bodies, 1 if not, and 2 if the environment cannot be had.
"""

import argparse
import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from turnwise.lab.raw import parse
from turnwise.lab.strict.dialects import builtin_dialects
from turnwise.lab.strict.verdicts import Rejected

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "mistral-common==1.11.0"  # 1.12.0 takes a user message behind a result; the API was reported to refuse it
# Version 11 is the last one that wants ids of nine characters, as the API does.
ASK = """
import json, sys
from mistral_common.exceptions import MistralCommonException
from mistral_common.protocol.instruct.request import ChatCompletionRequest
from mistral_common.protocol.instruct.validator import ValidationMode, get_validator
from mistral_common.tokens.tokenizers.base import TokenizerVersion
validator = get_validator(TokenizerVersion.v11, ValidationMode.serving)
for line in sys.stdin:
    try:
        validator.validate_request(ChatCompletionRequest.from_openai(**json.loads(line)))
        print(json.dumps(None))
    except MistralCommonException as refused:
        print(json.dumps(str(refused)))
"""
IDS = ("abcDEF123", "abcDEF124", "call_1")
NAMES = ("read", "calendar.respond", "x" * 65)
ENVIRONMENT_S = 300


def drawn(chance: random.Random) -> dict[str, Any]:
    """A conversation, most often nearly in order: what is wrong with it is one thing or two."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": "s"}] if chance.random() < 0.3 else []
    messages.append({"role": "user", "content": "u"})
    for _ in range(chance.randint(0, 4)):
        roles = {
            "system": ["user"],
            "user": ["assistant"],
            "assistant": ["tool", "user"],
            "tool": ["tool", "assistant"],
        }
        role = chance.choice(roles[messages[-1]["role"]] if chance.random() < 0.8 else list(roles))
        message: dict[str, Any] = {"role": role, "content": role[0]}
        if role == "tool":
            message["tool_call_id"] = chance.choice(IDS[:2] if chance.random() < 0.9 else IDS)
        if role == "assistant" and chance.random() < 0.6:
            ids = chance.sample(IDS[:2] if chance.random() < 0.9 else IDS, chance.randint(1, 2))
            function = {"name": chance.choice(NAMES[:1] if chance.random() < 0.9 else NAMES), "arguments": "{}"}
            message["tool_calls"] = [{"id": id, "type": "function", "function": function} for id in ids]
        messages.append(message)
    if messages[-1]["role"] == "assistant" and chance.random() < 0.8:
        calls = messages[-1].get("tool_calls", [])
        messages += [{"role": "tool", "content": "t", "tool_call_id": call["id"]} for call in calls]
        messages += [] if calls else [{"role": "user", "content": "u"}]
    function = {"name": chance.choice(NAMES[:1] if chance.random() < 0.9 else NAMES), "parameters": {"type": "object"}}
    return {"model": "m", "messages": messages, "tools": [{"type": "function", "function": function}]}


def ours(body: dict[str, Any]) -> str | None:
    try:
        builtin_dialects()["mistral"].check(parse(json.dumps(body)))
    except Rejected as rejected:
        return rejected.message
    return None


def theirs(bodies: list[dict[str, Any]]) -> list[str | None]:
    """What mistral-common says of each. Raises CalledProcessError or OSError where it cannot be asked."""
    command = [str(ROOT / ".venv/bin/uv"), "run", "--quiet", "--isolated", "--no-project", "--with", PACKAGE]
    lines = "\n".join(map(json.dumps, bodies))
    done = subprocess.run(
        [*command, "python", "-c", ASK], input=lines, capture_output=True, text=True, check=True, timeout=ENVIRONMENT_S
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bodies", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    chance = random.Random(given.seed)
    bodies = [drawn(chance) for _ in range(given.bodies)]
    try:
        said = theirs(bodies)
    except (OSError, subprocess.SubprocessError) as problem:
        print(f"{PACKAGE} cannot be asked: {problem}\n{getattr(problem, 'stderr', '')}", file=sys.stderr)
        return 2
    pairs = [(ours(body), their, body) for body, their in zip(bodies, said, strict=True)]
    apart = [pair for pair in pairs if (pair[0] is None) != (pair[1] is None)]
    both = Counter(their.partition(" was ")[0] for our, their, _ in pairs if our is not None and their is not None)
    print(f"{len(pairs)} bodies: {sum(both.values())} refused by both, {len(apart)} by one alone")
    print("\n".join(f"{count:6} {words[:100]}" for words, count in both.most_common()))
    print("\n".join(f"ours: {our}\ntheirs: {their}\n{json.dumps(body)}" for our, their, body in apart[:5]))
    return 1 if apart else 0


if __name__ == "__main__":
    raise SystemExit(main())
