"""What models can take and give: the rows of `model_limits.toml`, and the user's own over them; when they end:
`model_ends.toml`; and which ones to begin with: `suggested_models.toml`.

Rules get the limits as data. An unknown model has no limits, and the rules have safe defaults for that.
"""

import difflib
import functools
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args, get_origin

import msgspec

from turnwise.errors import CallerError
from turnwise.rules.prompt_room import UNKNOWN_LIMITS, ModelLimits
from turnwise.vocab.json_values import without_nones
from turnwise.vocab.wording import in_ticks

if TYPE_CHECKING:
    from turnwise.wire.profiles import Profile

# A field of a table that nobody reads is told with the one that was meant.


_UNKNOWN = re.compile(r"unknown field `([^`]*)`")  # as msgspec says it


_NO_CHOICE = re.compile(r"Invalid enum value .* - at `\$.*\.(\w+)`$", re.S)


def with_near_field(error: Exception, *, rows: Iterable[type[msgspec.Struct]]) -> str:
    """What the error says; of an unknown field also which one of these rows is near, and of a wrong word which ones the field of
    one of these rows takes."""
    said, rows = str(error), tuple(rows)
    if field := _NO_CHOICE.fullmatch(said):
        known = [one.type for row in rows for one in msgspec.structs.fields(row) if one.encode_name == field[1]]
        choices = [choice for one in known for choice in (one, *get_args(one)) if get_origin(choice) is Literal]
        words = in_ticks(word for choice in choices for word in get_args(choice))
        return f"{said} (one of {words})" if words else said
    found = _UNKNOWN.search(said)
    fields = [field for row in rows for field in row.__struct_encode_fields__]
    near = difflib.get_close_matches(found[1], fields, n=1) if found else []
    if found is None or not near:
        return said
    return f"{said[: found.end()]} (did you mean `{near[0]}`?){said[found.end() :]}"


# Amazon Bedrock's ids: "us.anthropic.claude-sonnet-4-5-20250929-v1:0". Fine-tuned ones at OpenAI: "ft:gpt-4o-...".
_FRONT = re.compile(
    r"^(?:(?:us|eu|apac|au|jp|global)\.)?(?:anthropic|meta|mistral|amazon|deepseek|openai|qwen|zai|moonshotai|minimax|nvidia)\.|^ft:"
)
# What may stand behind the name of a row of `model_ends.toml`: the date of a snapshot, a fine-tuned model's own names.
_SNAPSHOT = re.compile(r"(?:[-@]\d{4}-?\d\d-?\d\d|-latest)?(?::.*)?")
MOST_TOKENS = 10**12  # far more than any model has; what is larger could not be journalled
_BOUNDARY = re.compile(r"[^a-z0-9]|$")


class LimitRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One row of the file, in tokens."""

    window: int | None = None
    input: int | None = None
    output: int | None = None
    reasoning: int | None = None

    def __post_init__(self) -> None:
        figures = (self.window, self.input, self.output, self.reasoning)
        if any(figure is not None and not 0 < figure <= MOST_TOKENS for figure in figures):
            raise ValueError("a limit is a number of tokens above 0")

    def limits(self) -> ModelLimits:
        return ModelLimits(
            context_window_tokens=self.window,
            max_input_tokens=self.input,
            max_output_tokens=self.output,
            max_reasoning_tokens=self.reasoning,
        )


class Catalogue(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`makers`: by model name, for every server of the model. `hosts`: by the name of a profile that serves it differently."""

    date: str
    sources: tuple[str, ...]
    own_machine: tuple[str, ...] = ()
    makers: dict[str, LimitRow] = {}
    hosts: dict[str, dict[str, LimitRow]] = {}


class ModelEnd(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The day on which a model ends, `2026-12-11`, and what its maker names to `use` then; empty if that is not known. `row`:
    its name in the table."""

    on: str
    use: str = ""
    row: str = ""

    def is_past(self, *, now_s: float) -> bool:
        return self.on <= datetime.fromtimestamp(now_s, UTC).date().isoformat()

    def said(self, *, now_s: float) -> str:
        """`ends on 2026-12-11; use gpt-6.1-sol`, or since when it has ended."""
        use = f"; use {self.use}" if self.use else ""
        return f"{'ended' if self.is_past(now_s=now_s) else 'ends'} on {self.on}{use}"


class MakersEnds(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The models of one maker that end, at its own addresses: those of `profiles`."""

    profiles: tuple[str, ...]
    page: str
    ends: dict[str, ModelEnd]


class ModelEnds(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the makers' pages said on that `date`."""

    date: str
    makers: dict[str, MakersEnds]


@functools.cache
def suggested_models() -> dict[str, tuple[str, ...]]:
    """By provider the models that live and that examples name, first the one to begin with."""
    return msgspec.toml.decode(_beside("suggested_models.toml"), type=dict[str, tuple[str, ...]])


@functools.cache
def builtin_ends() -> ModelEnds:
    return msgspec.toml.decode(_beside("model_ends.toml"), type=ModelEnds)


def _beside(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def find_end(model: str, *, profile: "Profile", base_url: str | None = None) -> ModelEnd | None:
    """When `model` ends at the provider's own address; None if its maker has not said so, and elsewhere: there a name may be
    another's."""
    return _end_at(model, profile=profile.name) if base_url in (None, profile.base_url) else None


@functools.lru_cache(maxsize=1024)
def _end_at(model: str, *, profile: str) -> ModelEnd | None:
    name = plain_name(model)
    for maker in builtin_ends().makers.values():
        if profile in maker.profiles:
            fits = [row for row in maker.ends if _is_snapshot(name, of=plain_name(row))]
            row = max(fits, key=len, default=None)
            return None if row is None else msgspec.structs.replace(maker.ends[row], row=row)
    return None


def _is_snapshot(name: str, *, of: str) -> bool:
    return name.startswith(of) and _SNAPSHOT.fullmatch(name, len(of)) is not None


@functools.cache
def builtin_catalogue() -> Catalogue:
    return parse_catalogue(_beside("model_limits.toml"))


def parse_catalogue(text: str) -> Catalogue:
    """Raises msgspec.ValidationError naming the field, tomllib.TOMLDecodeError."""
    import tomllib

    return msgspec.convert(tomllib.loads(text), Catalogue)


def read_rows(table: object, *, named: str) -> dict[str, LimitRow]:
    """The user's own rows out of a table of tables, a model each: `{"qwen3": {"window": 40960}}`. `named` is what errors call
    the table. A name is the beginning of the model's, up to a boundary, or up to anywhere with `*` at its end.

    Raises CallerError with the model and what is wrong.
    """
    try:
        rows = msgspec.convert(table, dict[str, object])
    except msgspec.ValidationError:
        raise CallerError(f'{named}: write a table for each model, `"qwen3" = {{ window = 40_960 }}`') from None
    found: dict[str, LimitRow] = {}
    for model, row in rows.items():
        if "*" in model[:-1]:
            raise CallerError(f"{named}, `{model}`: `*` may stand at the end of a name only")
        try:
            found[model] = msgspec.convert(row, LimitRow)
        except msgspec.ValidationError as error:
            known = in_ticks(LimitRow.__struct_fields__)
            why = with_near_field(error, rows=(LimitRow,))
            raise CallerError(f"{named}, `{model}`: {why}; a row has {known}, each a number of tokens") from None
    return found


def rows_over(below: Mapping[str, LimitRow], above: Mapping[str, LimitRow]) -> dict[str, LimitRow]:
    """Two sets of rows as one: where both have a model's, figure by figure the one of `above`."""
    return {**below, **{model: _row_over(below.get(model), row) for model, row in above.items()}}


def find_limits(
    model: str, *, profile: str, overrides: Mapping[str, LimitRow] | None = None, catalogue: Catalogue | None = None
) -> ModelLimits | None:
    """The limits of `model` where the endpoint `profile` serves it; None if they are unknown.

    The user's rows override the others field by field; an override's name may begin with "PROFILE:".
    """
    row = _builtin_row(model, profile) if catalogue is None else _row_in(catalogue, model, profile)
    own = _own_row(overrides, model=model, profile=profile) if overrides else None
    row = row if own is None else _row_over(row, own)
    return None if row is None else row.limits()


@functools.lru_cache(maxsize=1024)  # a search compares with each row, and a gateway asks for each request
def _builtin_row(model: str, profile: str) -> LimitRow | None:
    return _row_in(builtin_catalogue(), model, profile)


def _row_in(known: Catalogue, model: str, profile: str) -> LimitRow | None:
    name = plain_name(model)
    if profile in known.own_machine:
        return None
    return _longest(known.hosts.get(profile, {}), name=name) or _longest(known.makers, name=name)


def limits_over(below: ModelLimits | None, above: ModelLimits | None) -> ModelLimits:
    """Figure by figure what `above` knows, else what `below` does."""
    if below is None or above is None:
        return above or below or UNKNOWN_LIMITS
    return msgspec.structs.replace(below, **_known(above))


def _row_over(below: LimitRow | None, above: LimitRow) -> LimitRow:
    return above if below is None else msgspec.structs.replace(below, **_known(above))


def _known(figures: LimitRow | ModelLimits) -> dict[str, int]:
    return without_nones(msgspec.structs.asdict(figures))


@functools.lru_cache(maxsize=4096)  # each search compares with the same few hundred rows
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
        is_open = key.endswith("*")  # in the user's rows only
        prefix = plain_name(key.removesuffix("*"))
        fits = name.startswith(prefix) and (is_open or _BOUNDARY.match(name, len(prefix)))
        if fits and (not found or len(prefix) > found[0]):
            found = len(prefix), row
    return None if found is None else found[1]
