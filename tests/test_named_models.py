"""Models that README, pages, examples and help texts name live: each is in `suggested_models.toml`, and none of these has an end
(issue 41, "Models that die")."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from turnwise.settings.catalogue import find_end, suggested_models
from turnwise.wire.profiles import builtin_profiles

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "turnwise"
# What knows models by their names instead of naming one is no example.
KNOW_MODELS = {"vocab", "wire", "assembly", "rules", "turn", "relay", "testing"}
FILES = [
    ROOT / "README.md",
    ROOT / "scripts" / "start",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *[path for path in sorted((ROOT / "examples").rglob("*")) if path.suffix in {".md", ".py", ".yml", ".sh", ".toml"}],
    *[path for path in sorted(SOURCE.rglob("*.py")) if path.relative_to(SOURCE).parts[0] not in KNOW_MODELS],
]
MODEL = re.compile(
    r"(?<![\w.$/-])(?:[a-z]+/)?"
    r"(?:(?:chatgpt|gpt)-\d[\w.-]*|(?<=[`:])o[134](?:-[a-z][\w.-]*)?(?![\w.-])|claude-(?:\d|opus|sonnet|haiku|fable|mythos)[\w.-]*"
    r"|gemini-\d[\w.-]*|grok-\d[\w.-]*|deepseek-[a-z][\w.-]*|mistral-(?:large|medium|small)[\w.-]*"
    r"|llama-\d[\w.-]*|gpt-oss-[\w.-]*)"
)
# Names that are no examples, and why.
ELSEWHERE = {
    "docs/providers.md": ("*", "drawn from the profiles: models that a cache's rules are about"),
    "docs/billing.md": ("deepseek-chat", "what the package of prices had at its own date"),
    "docs/gateway.md": ("gemini-2.5-pro", "a rule for older models"),
    "docs/dialects.md": ("*", "drawn from the rules of servers: models that a rule is about, or not"),
    "docs/lab.md": ("*", "names that the lab reads: of its own script, and of models that it plays"),
    "src/turnwise/settings/catalogue.py": ("*", "forms of names that rows are found by"),
    "src/turnwise/agent/models.py": ("o3", "a form of names"),
    "src/turnwise/lab/script.py": ("*", "the models whose refusals the lab plays"),
    "src/turnwise/lab/strict/anthropic_messages.py": ("*", "the same"),
    "src/turnwise/lab/strict/openai_chat.py": ("*", "the same"),
    "src/turnwise/lab/families/gemini.py": ("*", "which models were recorded"),
}


def named(path: Path) -> Iterator[str]:
    """The models that a file names, each place of it once."""
    place = path.relative_to(ROOT).as_posix()
    allowed, _ = ELSEWHERE.get(place, ("", ""))
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        for found in MODEL.findall(line):
            name = found.rstrip(".-")
            if allowed != "*" and name != allowed and not is_example(name):
                yield f"{place}:{number}: {name}"


def is_example(name: str) -> bool:
    """It is one of the table's, or its beginning (`gpt-6*`, `openai:gpt-6`)."""
    return any(
        re.match(rf"{re.escape(name)}(?![a-z0-9])", one)
        for models in suggested_models().values()
        for model in models
        for one in (model, model.rpartition("/")[2])
    )


def test_each_model_that_is_named_is_in_the_table() -> None:
    """When one ends: put another into `suggested_models.toml`, then
    `grep -rl OLD README.md docs examples src | xargs sed -i s/OLD/NEW/g`."""
    assert len(FILES) > 300
    assert [place for path in FILES for place in named(path)] == []


@pytest.mark.parametrize(
    "text", ["openai:gpt-5", "`gpt-4.1`", "-m groq:llama-3.3-70b-versatile", "openai:o3", "claude-sonnet-4-5"]
)
def test_one_that_ends_is_seen_wherever_it_stands(text: str) -> None:
    (name,) = MODEL.findall(text)
    assert not is_example(name)


def test_no_example_has_an_end() -> None:
    """Each is in the provider's own spelling."""
    for provider, models in suggested_models().items():
        for model in models:
            assert find_end(model, profile=builtin_profiles()[provider]) is None, f"{provider}:{model} ends"
