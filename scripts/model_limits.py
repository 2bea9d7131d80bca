"""Check `model_limits.toml` and put it into its normal form; `--compare` says where genai-prices differs from it.

Usage: scripts/model_limits.py [--check | --compare]. The figures themselves are looked up by people, with the sources that
the file names; genai-prices is not needed but for the comparison.
"""

import re
import sys
from pathlib import Path

from turnwise.settings.catalogue import Catalogue, LimitRow, find_limits, parse_catalogue, plain_name
from turnwise.wire.profiles import builtin_profiles

FILE = Path(__file__).resolve().parents[1] / "src" / "turnwise" / "settings" / "model_limits.toml"
FIELDS = ("window", "input", "output", "reasoning")
# genai-prices' names of providers -> ours of profiles.
PROFILES = {
    "anthropic": "anthropic",
    "cerebras": "cerebras",
    "deepseek": "deepseek",
    "fireworks": "fireworks",
    "google": "google",
    "groq": "groq",
    "mistral": "mistral",
    "moonshotai": "moonshot",
    "openai": "openai",
    "perplexity": "perplexity",
    "x-ai": "xai",
    "zai": "zai",
}
CLOSE = 1.06  # 1,000,000 and 1,048,576 are one figure in different hands


def normal_form(text: str) -> str:
    """The head as it stands, the tables sorted, one spelling of every row."""
    catalogue = parse_catalogue(text)
    head = text.partition("[makers]")[0].rstrip()
    tables = [
        ("makers", catalogue.makers),
        *[(f"hosts.{name}", rows) for name, rows in sorted(catalogue.hosts.items())],
    ]
    return "\n\n".join([head, *[table(name, rows) for name, rows in tables]]) + "\n"


def table(name: str, rows: dict[str, LimitRow]) -> str:
    lines = [f'"{model}" = {{ {fields(rows[model])} }}' for model in sorted(rows)]
    return "\n".join([f"[{name}]", *lines])


def fields(row: LimitRow) -> str:
    return ", ".join([f"{name} = {value:_}" for name in FIELDS if (value := getattr(row, name)) is not None])


def faults(catalogue: Catalogue) -> list[str]:
    """What cannot be right: two names for one model, more output than window, a profile that is none."""
    found: list[str] = []
    profiles = builtin_profiles()
    found += [f"`{name}` is no profile" for name in (*catalogue.own_machine, *catalogue.hosts) if name not in profiles]
    for place, rows in (("makers", catalogue.makers), *catalogue.hosts.items()):
        seen: dict[str, str] = {}
        for model, row in rows.items():
            other = seen.setdefault(plain_name(model), model)
            if other != model:
                found.append(f"{place}: `{model}` and `{other}` are one name")
            if model != model.lower():
                found.append(f"{place}: `{model}` is not in lower case")
            if row.window is None:
                found.append(f"{place}: `{model}` has no window")
                continue
            for name in ("input", "output", "reasoning"):
                if (getattr(row, name) or 0) > row.window:
                    found.append(f"{place}: `{model}`: {name} is larger than the window")
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", catalogue.date) or not catalogue.sources:
        found.append("the file names no date or no source")
    return found


def differences() -> list[str]:
    """Where the windows of genai-prices are not ours."""
    from genai_prices import data_snapshot  # not a dependency: only whoever compares needs it

    found: list[str] = []
    for provider in data_snapshot.get_snapshot().providers:
        profile = PROFILES.get(provider.id)
        for model in provider.models if profile else ():
            if not model.context_window or profile is None:
                continue
            limits = find_limits(model.id, profile=profile)
            ours = limits.context_window_tokens if limits is not None else None
            if ours is None:
                found.append(f"{profile}: `{model.id}` is not in the file (genai-prices: {model.context_window:,})")
            elif not 1 / CLOSE <= ours / model.context_window <= CLOSE:
                found.append(f"{profile}: `{model.id}` has {ours:,}, in genai-prices {model.context_window:,}")
    return found


def main(arguments: list[str]) -> int:
    text = FILE.read_text(encoding="utf-8")
    wrong = faults(parse_catalogue(text))
    for fault in wrong:
        print(fault)
    if "--compare" in arguments:
        print("\n".join(differences()))
    elif "--check" in arguments:
        if normal_form(text) != text:
            print("not in normal form: run scripts/model_limits.py")
            return 1
    elif not wrong:
        FILE.write_text(normal_form(text), encoding="utf-8")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
