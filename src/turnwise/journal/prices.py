"""What models cost: the user's own prices, plans of our own, and the token prices of `genai-prices`.

The first that knows a model wins, as a whole row, whatever the others' names: the user's prices file, `[prices]` of the user's
`turnwise.toml`, `price_plans.toml`, the table of the provider, and last `[prices]` of a project. A project may add a missing
price but not override a known one: a foreign folder must not make a model look cheap. `genai-prices` is imported at first use
(0.3 s of CPU, 50 MB), unless the row is `kept` from an earlier run; its table comes with the package and is never downloaded.
"""

import functools
import threading
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Protocol

import msgspec

from turnwise.base.unasked_files import LeftOut, read_of_user
from turnwise.errors import CallerError
from turnwise.journal.kept_prices import KeptPrices, KeptRow, kept_prices_path
from turnwise.rules.pricing import OwnCost, PriceRow, PriceTerm, TokenPrices, dearest_kinds, term_kind
from turnwise.settings.catalogue import plain_name, with_near_field
from turnwise.settings.settings import Layer, user_folder

KEY = "prices"  # the table in turnwise.toml
PRICES_FILE = "prices.toml"
MAX_FILE_BYTES = 1024 * 1024
MOST_USD = Decimal(1_000_000)  # for a million tokens, or a request; more is a slip of the keyboard
MOST_PLACES = 12

Number = int | float | str
"""As TOML writes it. A float is taken as it is shown: the shortest text that gives it back."""


class _Tier(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    tokens: int
    input: Number
    output: Number
    cache_read: Number | None = None
    cache_write: Number | None = None
    cache_write_1h: Number | None = None
    reasoning: Number | None = None


class _Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model's row as a file has it: US dollars per million tokens, per request, or per step."""

    free: bool = False
    input: Number | None = None
    output: Number | None = None
    cache_read: Number | None = None
    cache_write: Number | None = None
    cache_write_1h: Number | None = None
    reasoning: Number | None = None
    above: tuple[_Tier, ...] = ()
    request: Number | None = None
    step: Number | None = None
    bills_errors: bool | None = None


class _OwnCost(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    path: tuple[str, ...]
    unit_usd: str = "1"
    also: tuple[str, ...] = ()
    also_if: tuple[str, ...] = ()


class _Term(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    tables: tuple[str, ...]
    term: str
    models: tuple[str, ...]
    times: str
    at_most: str | None = None
    source: str
    date: str


class _Terms(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    terms: tuple[_Term, ...]


class _Plans(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    date: str
    sources: tuple[str, ...]
    tables: dict[str, str]
    own_cost: dict[str, _OwnCost]
    plans: dict[str, object]


class Prices(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Prices of models, by `PROVIDER:MODEL` or `MODEL`. They replace the prices that turnwise knows.

    `read_prices` makes the dicts. `file` and `user` are your own prices; `project` are those of a project's file, which may
    add missing prices but not override known ones. `kept` stores on disk the rows that were found, for the next process.
    """

    file: Mapping[str, PriceRow] = {}
    user: Mapping[str, PriceRow] = {}
    project: Mapping[str, PriceRow] = {}
    kept: KeptPrices | None = None

    def find(self, model: str, *, profile: str, at_s: float) -> PriceRow | None:
        """The price of `model` at the endpoint `profile` at that time (`at_s`: UTC, seconds since 1970).

        None: not known.
        """
        row = (
            self._said_row(model, profile=profile)
            or self._table_row(model, profile=profile, at_s=at_s)
            or self._project_row(model, profile=profile)
        )
        table = _plans().tables.get(profile)
        if row is None or row.plan != "tokens" or table is None:
            return row
        terms = _terms_of(model, table=table)
        kin = _kin_terms(terms, table=table)
        return msgspec.structs.replace(row, terms=terms, kin_terms=kin) if terms or kin else row

    def names(self, *, profile: str) -> list[str]:
        """The names of the endpoint's models that have a price. Names of files without a provider are left out."""
        provider = _plans().tables.get(profile)
        front = f"{profile}:"
        said = [*self.file, *self.user, *_own_plans(), *self.project]
        own = [name.removeprefix(front) for name in said if name.startswith(front) and not name.endswith("*")]
        return list(dict.fromkeys([*own, *([] if provider is None else _table().names(provider))]))

    def bills_requests(self, model: str, *, profile: str) -> bool:
        """Whether each request to `model` costs the same amount, whatever it contains.

        This does not read the table of token prices. If that table may know the model, a project's row does not count.
        """
        row = self._said_row(model, profile=profile)
        if row is None and profile not in _plans().tables:
            row = _row_of(self.project, model=model, profile=profile)
        return row is not None and row.plan == "request"

    def warm(self, model: str, *, profile: str, at_s: float) -> None:
        """Begin to read the table of token prices in a thread, unless the model's price is known already."""
        provider = _plans().tables.get(profile)
        known = (
            provider is None
            or _table.cache_info().currsize
            or self._said_row(model, profile=profile)
            or (self.kept is not None and self.kept.find(model, provider=provider, at_s=at_s))
        )
        if not known:
            threading.Thread(target=_table, name="turnwise prices", daemon=True).start()

    def _said_row(self, model: str, *, profile: str) -> PriceRow | None:
        """What the user says, else what turnwise does: the first of them that has a row for the model."""
        return (
            _row_of(self.file, model=model, profile=profile)
            or _row_of(self.user, model=model, profile=profile)
            or _own_row(model, profile=profile)
        )

    def _project_row(self, model: str, *, profile: str) -> PriceRow | None:
        row = _row_of(self.project, model=model, profile=profile)
        return None if row is None else msgspec.structs.replace(row, is_from_project=True)

    def _table_row(self, model: str, *, profile: str, at_s: float) -> PriceRow | None:
        """The provider's row in the table, and where its own usage says the cost."""
        place = _plans().own_cost.get(profile)
        own = place and OwnCost(
            path=place.path, unit_usd=Decimal(place.unit_usd), also=place.also, also_if=place.also_if
        )
        provider = _plans().tables.get(profile)
        row = None if provider is None else self._known(model, provider=provider, at_s=at_s).row
        if row is not None:
            return msgspec.structs.replace(row, own_cost=own)
        return None if own is None else PriceRow(plan="tokens", source=f"{profile} itself", own_cost=own)

    def _known(self, model: str, *, provider: str, at_s: float) -> KeptRow:
        kept = None if self.kept is None else self.kept.find(model, provider=provider, at_s=at_s)
        if kept is not None:
            return kept
        found = _table().find(model, provider=provider, at_s=at_s)
        if self.kept is not None:
            self.kept.keep(model, found, provider=provider)
        return found


NO_PRICES = Prices()


def read_prices(table: object, *, named: str, source: str) -> dict[str, PriceRow]:
    """Read prices from a dict of dicts, one for each model: `{"openai:gpt-6.1-sol": {"input": 2, "output": 10}}`.

    Prices are US dollars per million tokens. A name is the whole name of the model, or its beginning and `*`. `named`
    is how errors call the table; `source` is how the rows call it. Raises CallerError that names the model and the
    mistake.
    """
    try:
        rows = msgspec.convert(table, dict[str, object])
    except msgspec.ValidationError:
        raise CallerError(
            f'{named}: write a table for each model, `"openai:gpt-6.1-sol" = {{ input = 2, output = 10 }}`'
        ) from None
    found: dict[str, PriceRow] = {}
    for model, row in rows.items():
        if not model.partition(":")[0] or not model.strip() or model.endswith(":"):
            raise CallerError(
                f'{named}, `{model}`: that names no model; write `"openai:gpt-6.1-sol"`, `"gpt-6*"` or `"*"`'
            )
        if "*" in model[:-1]:
            raise CallerError(f"{named}, `{model}`: `*` may stand at the end of a name only")
        try:
            found[model] = _read_row(msgspec.convert(row, _Row), source=source)
        except (msgspec.ValidationError, ValueError) as error:
            why = with_near_field(error, rows=(_Row, _Tier))
            raise CallerError(
                f"{named}, `{model}`: {why}; a row has `input` and `output` (US dollars per million tokens), or "
                "`request`, `step` (US dollars each), or `free = true`"
            ) from None
    return found


def prices_of_layers(layers: Sequence[Layer], *, env: Mapping[str, str]) -> Prices:
    """The prices that hold for a run in a folder with these layers. What the package's table says of its models is kept in the
    user's cache folder. Raises CallerError in one line, with the file."""
    user: dict[str, PriceRow] = {}
    project: dict[str, PriceRow] = {}
    for layer in layers:
        if KEY in layer.table:
            rows = read_prices(layer.table[KEY], named=layer.named(KEY), source=str(layer.path or layer.source))
            (project if layer.source == "project" else user).update(rows)
    return Prices(file=read_prices_file(env), user=user, project=project, kept=KeptPrices(kept_prices_path(env)))


def read_prices_file(env: Mapping[str, str]) -> dict[str, PriceRow]:
    """The rows of the file that TURNWISE_PRICES names, else of `prices.toml` beside the user's `turnwise.toml`."""
    import tomllib

    named = env.get("TURNWISE_PRICES")
    path = Path(named).expanduser() if named else user_folder(env) / PRICES_FILE
    content = read_of_user(path, max_bytes=MAX_FILE_BYTES)
    if isinstance(content, LeftOut):
        raise CallerError(f"`{path}` {content.why}: that is no file of prices")
    if content is None:
        if named:
            raise CallerError(
                f"TURNWISE_PRICES names `{path}`, which does not exist: write the file, or unset the variable"
            )
        return {}
    try:
        table = tomllib.loads(content.decode("utf-8-sig"), parse_float=str)  # Windows' editors begin files with a mark
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CallerError(f"`{path}`: {error}; correct it there") from None
    return read_prices(table, named=f"`{path}`", source=str(path))


def _read_row(row: _Row, *, source: str) -> PriceRow:
    """Raises ValueError where the row does not say one plan, wholly."""
    has_tokens = row.input is not None or row.output is not None
    said = [row.free, row.step is not None, has_tokens or row.request is not None]
    if sum(said) != 1:
        raise ValueError("it says no price" if not any(said) else "it says more than one plan")
    _check_fields(row, has_tokens=has_tokens)
    if row.free:
        return PriceRow(plan="free", source=source)
    if row.step is not None:
        return PriceRow(plan="step", source=source, step_usd=_usd(row.step))
    request = None if row.request is None else _usd(row.request)
    if not has_tokens:
        return PriceRow(plan="request", source=source, request_usd=request, bills_refused=row.bills_errors)
    if row.input is None or row.output is None:
        raise ValueError("of `input` and `output` one is missing")
    if any(tier.tokens <= 0 for tier in row.above):
        raise ValueError("`tokens` of `above` is the length of a prompt: more than 0")
    if len({tier.tokens for tier in row.above}) != len(row.above):
        raise ValueError("two of `above` have the same `tokens`")
    tiers = sorted([_tier(tier, above=tier.tokens) for tier in row.above], key=lambda tier: tier.above_tokens)
    base = _Tier(tokens=0, **{name: getattr(row, name) for name in _Tier.__struct_fields__ if name != "tokens"})
    return PriceRow(plan="tokens", source=source, tokens=(_tier(base, above=0), *tiers), request_usd=request)


def _check_fields(row: _Row, *, has_tokens: bool) -> None:
    """Raises ValueError for a field that means nothing on the row's plan: it was meant to mean something."""
    if row.bills_errors is not None and (row.request is None or has_tokens):
        raise ValueError("`bills_errors` is for plans by `request` alone")
    if not has_tokens:
        fields = ("cache_read", "cache_write", "cache_write_1h", "reasoning", "above")
        for name in [field for field in fields if getattr(row, field) not in (None, ())]:
            raise ValueError(f"`{name}` is for plans by token, which have `input` and `output`")


def _tier(tier: _Tier, *, above: int) -> TokenPrices:
    def maybe(value: Number | None) -> Decimal | None:
        return None if value is None else _usd(value)

    return TokenPrices(
        input=_usd(tier.input),
        output=_usd(tier.output),
        cache_read=maybe(tier.cache_read),
        cache_write=maybe(tier.cache_write),
        cache_write_1h=maybe(tier.cache_write_1h),
        reasoning=maybe(tier.reasoning),
        above_tokens=above,
    )


def _usd(value: Number) -> Decimal:
    """Raises ValueError for what is no amount of money."""
    try:
        amount = Decimal(str(value))
    except InvalidOperation:
        raise ValueError(f"`{value}` is no number") from None
    if isinstance(value, bool) or not amount.is_finite() or not 0 <= amount <= MOST_USD:
        raise ValueError(f"`{value}` is no price: write US dollars, from 0 to {MOST_USD:,}")
    if amount != round(amount, MOST_PLACES):
        raise ValueError(f"`{value}` has more than {MOST_PLACES} places")
    return amount


@functools.lru_cache(maxsize=256)  # it is asked for every request
def _own_row(model: str, *, profile: str) -> PriceRow | None:
    return _row_of(_own_plans(), model=model, profile=profile)


def _row_of(rows: Mapping[str, PriceRow], *, model: str, profile: str) -> PriceRow | None:
    """The row for this endpoint, else the one for the model wherever it is served; the longest name first. A name is the
    whole one: the price of `gpt-6.1-sol` is not that of `gpt-6.1-terra`."""
    if not rows:
        return None
    front = f"{profile}:"
    here = {key[len(front) :]: row for key, row in rows.items() if key.startswith(front)}
    for named in (here, rows):
        if (exact := named.get(model)) is not None:
            return exact
        found: tuple[int, PriceRow] | None = None
        for key, row in named.items():
            stem = key.removesuffix("*")
            fits = _fits(model, key)
            length = len(stem) * 2 + (not key.endswith("*"))
            if fits and (found is None or length > found[0]):
                found = length, row
        if found is not None:
            return found[1]
    return None


@functools.lru_cache(maxsize=256)
def _terms_of(model: str, *, table: str) -> tuple[PriceTerm, ...]:
    """What `price_terms.toml` says of the model at that provider."""
    return tuple(
        [
            _price_term(one)
            for one in _terms()
            if table in one.tables and any(_fits(model, pattern) for pattern in one.models)
        ]
    )


def _kin_terms(terms: tuple[PriceTerm, ...], *, table: str) -> tuple[PriceTerm, ...]:
    """What makes the provider's other models dearer, of kinds that make this one no dearer: each term at its dearest."""
    known, kin = dearest_kinds(terms), dict[str, PriceTerm]()
    for one in map(_price_term, [one for one in _terms() if table in one.tables]):
        before = kin.get(one.term)
        if (
            one.most_times > 1
            and term_kind(one.term) not in known
            and (before is None or before.most_times < one.most_times)
        ):
            kin[one.term] = one
    return tuple(kin.values())


def _price_term(one: _Term) -> PriceTerm:
    at_most = None if one.at_most is None else Decimal(one.at_most)
    return PriceTerm(term=one.term, times=Decimal(one.times), at_most=at_most)


def _fits(model: str, pattern: str) -> bool:
    """Whether a name of a table, or its beginning with `*`, is that of the model."""
    stem, is_open = pattern.removesuffix("*"), pattern.endswith("*")
    return any(
        name.startswith(start) if is_open else name == start
        for name, start in ((model, stem), (plain_name(model), plain_name(stem)))
    )


@functools.cache
def _terms() -> tuple[_Term, ...]:
    import tomllib

    text = Path(__file__).with_name("price_terms.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), _Terms).terms


@functools.cache
def _plans() -> _Plans:
    import tomllib

    text = Path(__file__).with_name("price_plans.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), _Plans)


@functools.cache
def _own_plans() -> dict[str, PriceRow]:
    return read_prices(_plans().plans, named="price_plans.toml", source=f"turnwise, {_plans().date}")


class _Table(Protocol):
    def names(self, provider: str) -> list[str]: ...

    def find(self, model: str, *, provider: str, at_s: float) -> KeptRow: ...


@functools.cache
def _table() -> _Table:
    from turnwise.journal.price_table import PriceTable

    return PriceTable()
