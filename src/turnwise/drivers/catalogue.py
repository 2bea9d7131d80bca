"""What models can take and give: the rows of `model_limits.toml`, and the user's own over them.

Rules get the limits as data; a model that nobody knows has none, and the rules have safe defaults for that.
"""

import functools
import re
import tomllib
from collections.abc import Mapping
from importlib import resources

import msgspec

from turnwise.errors import CallerError
from turnwise.rules.budget import ModelLimits

# Amazon Bedrock's ids: "us.anthropic.claude-sonnet-4-5-20250929-v1:0". Fine-tuned ones at OpenAI: "ft:gpt-4o-...".
_FRONT = re.compile(
    r"^(?:(?:us|eu|apac|au|jp|global)\.)?(?:anthropic|meta|mistral|amazon|deepseek|openai|qwen|zai|moonshotai|minimax|nvidia)\.|^ft:"
)
_BOUNDARY = re.compile(r"[^a-z0-9]|$")


class LimitRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One row of the file, in tokens."""

    window: int | None = None
    input: int | None = None
    output: int | None = None
    reasoning: int | None = None

    def __post_init__(self) -> None:
        figures = (self.window, self.input, self.output, self.reasoning)
        if any(figure is not None and figure <= 0 for figure in figures):
            raise ValueError("a limit is a number of tokens above 0")

    def limits(self) -> ModelLimits:
        return ModelLimits(
            context_window_tokens=self.window,
            max_input_tokens=self.input,
            max_output_tokens=self.output,
            max_reasoning_tokens=self.reasoning,
        )


class Catalogue(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`makers` by model name, whoever serves it; `hosts` by the name of a profile, for who serves it otherwise."""

    date: str
    sources: tuple[str, ...]
    own_machine: tuple[str, ...] = ()
    makers: dict[str, LimitRow] = {}
    hosts: dict[str, dict[str, LimitRow]] = {}


@functools.cache
def builtin_catalogue() -> Catalogue:
    text = resources.files("turnwise.drivers").joinpath("model_limits.toml").read_text(encoding="utf-8")
    return parse_catalogue(text)


def parse_catalogue(text: str) -> Catalogue:
    """Raises msgspec.ValidationError naming the field, tomllib.TOMLDecodeError."""
    return msgspec.convert(tomllib.loads(text), Catalogue)


def parse_overrides(text: str) -> dict[str, LimitRow]:
    """The user's own rows: a TOML table a model, `["qwen3"]` or `["ollama:qwen3"]`. Raises CallerError saying what is wrong."""
    try:
        return msgspec.convert(tomllib.loads(text), dict[str, LimitRow])
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise CallerError(f"the limits of models cannot be read: {error}") from None


def find_limits(
    model: str, *, profile: str, overrides: Mapping[str, LimitRow] | None = None, catalogue: Catalogue | None = None
) -> ModelLimits | None:
    """The limits of `model` where the endpoint `profile` serves it; None where nobody knows them.

    The user's rows win and stand over the others field by field; an override's name may begin with "PROFILE:".
    """
    known = catalogue if catalogue is not None else builtin_catalogue()
    name = plain_name(model)
    row: LimitRow | None = None
    if profile not in known.own_machine:
        row = _longest(known.hosts.get(profile, {}), name=name) or _longest(known.makers, name=name)
    own = _own_row(overrides or {}, model=model, profile=profile)
    if own is None:
        return None if row is None else row.limits()
    if row is None:
        return own.limits()
    set_by_user = {field: value for field, value in msgspec.structs.asdict(own).items() if value is not None}
    return msgspec.structs.replace(row, **set_by_user).limits()


def plain_name(model: str) -> str:
    """The name as rows are compared with it: without a vendor in front, in one spelling."""
    return _FRONT.sub("", model.lower().rpartition("/")[2]).replace(".", "-")


def _own_row(overrides: Mapping[str, LimitRow], *, model: str, profile: str) -> LimitRow | None:
    """The user's row for this endpoint, else the one for the model wherever it is served."""
    here = {key[len(profile) + 1 :]: row for key, row in overrides.items() if key.startswith(f"{profile}:")}
    anywhere = {key: row for key, row in overrides.items() if not key.startswith(f"{profile}:")}
    return _longest(here, name=plain_name(model)) or _longest(anywhere, name=plain_name(model))


def _longest(rows: Mapping[str, LimitRow], *, name: str) -> LimitRow | None:
    found: tuple[int, LimitRow] | None = None
    for key, row in rows.items():
        prefix = plain_name(key)
        if name.startswith(prefix) and _BOUNDARY.match(name, len(prefix)) and (not found or len(prefix) > found[0]):
            found = len(prefix), row
    return None if found is None else found[1]
