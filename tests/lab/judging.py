"""Asking a judge."""

import json
from typing import Any

from turnwise.lab.raw import parse
from turnwise.lab.strict import ModelRules, Rejected, check


def refusal_of(family: str, body: Any, rules: ModelRules | None = None) -> tuple[str, str | None, str | None] | None:
    try:
        check(family, body=parse(json.dumps(body)), rules=rules or ModelRules())
    except Rejected as rejected:
        return rejected.message, rejected.param, rejected.code
    return None
