"""`gateway.toml`, and the same for one upstream from the command line.

| field | default | meaning |
|---|---|---|
| `host`, `port` | 127.0.0.1, 8484 | where to listen; port 0 takes a free one |
| `hosts` | none | further names for `Host`, with a port or for any; `*.name`, and networks of addresses |
| `metrics` | none | networks whose programs read `/metrics` without a key |
| `origins` | none | pages that a browser may ask for (`https://chat.example.org`) |
| `admin` | none | where the page and `/admin` are served instead: `"127.0.0.1:8485"` |
| `[tls]` | none | `cert` and `key`, paths of PEM files: clients use https |
| `[bounds]` | see `client_bounds.py` | what one client may take up |
| `[deadlines]` | see `GatewayDeadlines` | how long upstreams are waited for |
| `[unreachable_store]` | refuse | whether requests leave while the journal cannot be reached |
| `[[route]]` | at least one | the first whose `models` or `aliases` have the name serves it |

Of a route:

| field | default | meaning |
|---|---|---|
| `name` | its number | what counts call it |
| `models` | `["*"]` | patterns of model names; `*` and `?` stand for any characters and any one |
| `aliases` | none | a client's name for a model = the upstream's |
| `upstream` | | `"openai:gpt-6.1-sol"`, `"openai:*"` (the client's model), a URL, the table of an `UpstreamAddress`, or a list |
| `fallbacks` | none | further upstreams, each a group of its own, in this order |
| `heal`, `continue` | true | mend broken streams; continue cut responses |
| `retry` | 3 | further attempts at a request that failed for a moment |
| `calls_in_text` | "auto" | calls that the model wrote into its text: "auto", "on", "off" |
| `one_call_at_a_time` | false | give the client one tool call a response |
| `max_output_tokens` | none | a cap on the output tokens of one answer, its continuations included |
| `pass` | none | further paths that go on as they are: `"/v1/embeddings"`, `"GET /v1/files/*"` |
| `stored` | "refused" | what clients may do with what a provider stores: "refused", "team" (their team's own), "shared" |
| `one_client` | false | true or the name of a client's key: what is stored at the provider may be used; true is for one key |
| `deadlines` | the file's | as `[deadlines]`, for this route |
| `before_request` | none | `{ url, key_env, otherwise }`: asked by HTTP whether a request may leave |
"""

import fnmatch
import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from turnwise.agent.models import find_profile, read_model
from turnwise.base.unasked_files import LeftOut, read_of_user
from turnwise.errors import CallerError
from turnwise.gateway.app import DoorRules
from turnwise.gateway.before_request import BeforeRequest
from turnwise.gateway.client_bounds import Bounds, ClientKey
from turnwise.gateway.doors import is_host, is_network, is_origin
from turnwise.gateway.key_files import check_key_files
from turnwise.gateway.passing import ANY, rule_of, serves_already, why_not_understood
from turnwise.gateway.unreachable_store import UnreachableStore
from turnwise.relay.stored_ids import place_of
from turnwise.rules.retries import RetryPolicy
from turnwise.settings.catalogue import with_near_field
from turnwise.settings.settings import MAX_FILE_BYTES, user_folder
from turnwise.turn.config import CallsInText
from turnwise.wire.family import USUAL
from turnwise.wire.profiles import FamilyName, Profile, profile_at

if TYPE_CHECKING:
    from turnwise.gateway.client_limits import LimitedClient


def why_unreachable(routes: "Sequence[GatewayRoute]") -> str:
    """Why one of these routes can serve no request, with its number; empty if each can serve some."""
    for place, route in enumerate(routes):
        names = (*route.models, *route.aliases)
        if route.passes:
            continue  # a body without a model goes to the first route that lists its path
        if not names:
            return f"`route` {place + 1} serves no model: give it `models` or `aliases`"
        # Routes that are open to every client of this route.
        before = [one for one in routes[:place] if one.one_client in (False, True, route.one_client)]
        if all(_is_taken(name, before) for name in names):
            return f"`route` {place + 1} is never reached: routes before it serve all of its models; move it up"
    return ""


def _is_taken(name: str, before: "Iterable[GatewayRoute]") -> bool:
    """Whether earlier routes serve the name, or every name that the pattern matches. A pattern with `?` or `[` is not compared
    with other patterns."""
    is_pattern = bool(set(name) & set("*?["))
    for route in before:
        if name in route.models or (name in route.aliases and not is_pattern):
            return True
        patterns = [one for one in route.models if not (is_pattern and set(one) & set("?["))]
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
            return True
    return False


SHARED = (
    "its route is for one client (`one_client = true`), and the gateway has keys of several: name the client's key there, "
    '`one_client = "NAME"`'
)
"""Why a request is refused after a second key was added."""


def check_clients(routes: "Iterable[GatewayRoute]", *, keys: "Iterable[ClientKey | LimitedClient] | None") -> None:
    """Raises CallerError if a route for one client is open to several clients, or to none. Data that is stored at the provider
    under the gateway's key would be open to each of them."""
    names = [key.name for key in keys or ()]
    for place, route in enumerate(routes):
        if route.one_client is True and len(names) > 1:
            raise CallerError(
                f"`route` {place + 1} has `one_client = true`, and there are keys of {len(names)} clients: name one of them, "
                f'`one_client = "{names[0]}"`'
            )
        if isinstance(route.one_client, str) and route.one_client not in names:
            raise CallerError(
                f"`route` {place + 1} is for the client `{route.one_client}`, and there is no such key: "
                f"`turnwise gateway keys add {route.one_client}`, or name one that `turnwise gateway keys list` shows"
            )


_Seconds = Annotated[float, msgspec.Meta(gt=0, le=86_400)]
_Rejoin = Annotated[float, msgspec.Meta(ge=0, le=600)]


class GatewayDeadlines(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Seconds; None if the table names none. `first_event_s` and `next_event_s` are for one attempt at a stream, `whole_s` for
    one attempt at an answer without a stream. At one upstream, no further attempt begins more than `retry_s` after the first one.
    `total_s` is for everything that is done for one client's request: attempts, waits, fallbacks and continuations. So long as
    `rejoin_s` an upstream that has sent nothing is kept for a client that left; 0: equal requests are never joined."""

    first_event_s: _Seconds | None = None
    next_event_s: _Seconds | None = None
    whole_s: _Seconds | None = None
    retry_s: _Seconds | None = None
    total_s: _Seconds | None = None
    rejoin_s: _Rejoin | None = None

    def over(self, wider: "GatewayDeadlines") -> "GatewayDeadlines":
        """These values; missing ones come from the wider table."""
        own = {name: getattr(self, name) for name in self.__struct_fields__ if getattr(self, name) is not None}
        return msgspec.structs.replace(wider, **own)


# The times between events are those of a run. To the first event it is the endpoint's own time (`Profile.first_event_s`), mostly
# 120 s.
DEFAULTS = GatewayDeadlines(
    whole_s=600.0,  # the vendors' own clients wait as long (openai-python and anthropic-python, DEFAULT_TIMEOUT)
    retry_s=150.0,  # an upstream that is silent for 120 s is asked once more
    total_s=1800.0,  # 100,000 tokens at 60 a second
    rejoin_s=10.0,  # Claude Code asks again within a second (docs/gateway-clients.md)
)


FILE = "gateway.toml"
LOOPBACK, PORT = "127.0.0.1", 8484
RETRIES = RetryPolicy().attempts - 1  # as for a run

# Parts of paths that read or change data that is stored at a provider. Sources: the API references of OpenAI, Anthropic and
# Google.
STORED = frozenset(
    """assistants batches batchgeneratecontent cachedcontents containers conversations corpora deployments endpoints evals files
    filesearchstores fine_tuning fine-tuning fine_tunes generatedfiles interactions models operations organization organizations
    projects responses sessions skills threads tunedmodels uploads usage vector_stores videos""".split()
)

_Port = Annotated[int, msgspec.Meta(ge=0, le=65_535)]
_Attempts = Annotated[int, msgspec.Meta(ge=0, le=10)]
_Tokens = Annotated[int, msgspec.Meta(ge=1)]
_Weight = Annotated[float, msgspec.Meta(gt=0, le=1000)]


class UpstreamAddress(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An upstream by its URL. `family` is needed if the URL is not a provider's own and does not speak Chat Completions.
    `provider` says instead whose API is behind the URL (`anthropic` behind your own proxy), so that its special features are
    used. Without `model`, the client's name for the model is sent. With `family`, every request goes to this API, even if the
    address has another one. `key_env` may be several variables, `key_file` several files: all keys share the upstream's weight.
    `traceparent`: it gets the id of the gateway's trace. `websocket`: its streams come over WebSockets. `headers` go with
    each request, as `name: value`; those of `headers_env` have the name of a variable in place of the value."""

    url: str
    family: FamilyName | None = None
    provider: str | None = None
    key_env: str | Annotated[tuple[str, ...], msgspec.Meta(min_length=1)] | None = None
    key_file: str | Annotated[tuple[str, ...], msgspec.Meta(min_length=1)] | None = None
    model: str | None = None
    weight: _Weight = 1.0
    traceparent: bool = False
    websocket: bool | None = None
    headers: tuple[str, ...] = ()
    headers_env: tuple[str, ...] = ()


class Upstream(msgspec.Struct, frozen=True, kw_only=True):
    """Where a route leads. `model` is None if the client's choice is sent; `base_url` is None if it is the profile's own. `chat`
    is the Chat Completions profile at the same address, if each request goes to the API that can serve it."""

    profile: Profile
    chat: Profile | None = None
    model: str | None = None
    base_url: str | None = None
    key_envs: tuple[str, ...] = ()
    key_files: tuple[str, ...] = ()
    weight: float = 1.0
    traceparent: bool = False
    headers: tuple[tuple[str, str], ...] = ()
    headers_env: tuple[tuple[str, str], ...] = ()


GivenUpstream = str | UpstreamAddress


class GatewayRoute(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    rename={"continues": "continue", "passes": "pass"},
):
    """Where requests for some models go, and what is done to their answers."""

    upstream: str | UpstreamAddress | Annotated[tuple[str | UpstreamAddress, ...], msgspec.Meta(min_length=1)]
    name: str = ""
    models: tuple[str, ...] = ("*",)
    aliases: dict[str, str] = {}
    fallbacks: tuple[str | UpstreamAddress, ...] = ()
    heal: bool = True
    continues: bool = True
    retry: _Attempts = RETRIES
    calls_in_text: CallsInText = "auto"
    one_call_at_a_time: bool = False
    max_output_tokens: _Tokens | None = None
    passes: tuple[str, ...] = ()
    stored: Literal["refused", "team", "shared"] = "refused"
    one_client: bool | str = False
    deadlines: GatewayDeadlines = GatewayDeadlines()
    before_request: BeforeRequest | None = None

    def __post_init__(self) -> None:
        """Raises ValueError, which msgspec reports with the place in the file."""
        for given in self.every_upstream:
            try:
                upstream_of(given)
            except CallerError as error:
                raise ValueError(str(error)) from None
        for path in self.passes:
            family = upstream_of(self.every_upstream[0]).profile.family
            if why := _why_not_passed(path, stored=self.stored_is, family=family):
                raise ValueError(f"`pass` cannot have `{path}`: {why}")

    @property
    def stored_is(self) -> Literal["refused", "team", "shared"]:
        """Whose the objects at the provider are. The only client of a route shares them with nobody."""
        return "shared" if self.one_client else self.stored

    @property
    def groups(self) -> tuple[tuple[GivenUpstream, ...], ...]:
        """Upstreams that share the conversations, then those of last resort, one after the other."""
        first = self.upstream if isinstance(self.upstream, tuple) else (self.upstream,)
        return (first, *[(given,) for given in self.fallbacks])

    @property
    def every_upstream(self) -> tuple[GivenUpstream, ...]:
        return tuple([given for group in self.groups for given in group])


class TlsFiles(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A certificate with the chain behind it, and its key: paths of PEM files."""

    cert: str
    key: str


def admin_address(text: str) -> tuple[str, int]:
    """Host and port of the page. Raises ValueError."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or len(port) > 5 or int(port) > 65_535 or not is_host(host):
        raise ValueError(f"`admin` cannot be `{text}`: write an address and a port, `127.0.0.1:8485`")
    return host.strip("[]"), int(port)


class GatewayConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"routes": "route"}):
    """The whole configuration of a gateway. The table in the module's docstring says what each field means."""

    routes: Annotated[tuple[GatewayRoute, ...], msgspec.Meta(min_length=1)]
    host: str = LOOPBACK
    port: _Port = PORT
    hosts: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    admin: str = ""
    tls: TlsFiles | None = None
    bounds: Bounds = Bounds()
    deadlines: GatewayDeadlines = GatewayDeadlines()
    unreachable_store: UnreachableStore = UnreachableStore()

    def __post_init__(self) -> None:
        if why := why_unreachable(self.routes):
            raise ValueError(why)
        for host in self.hosts:
            if not is_host(host):
                raise ValueError(
                    f"`hosts` cannot have `{host}`: write a name or an address, with a port or for any, `*.example.org`, or a "
                    "network (`10.0.0.0/8`)"
                )
        if self.admin:
            admin_address(self.admin)
        for network in self.metrics:
            if not is_network(network):
                raise ValueError(
                    f"`metrics` cannot have `{network}`: write a network, `10.0.0.0/8`, but not all addresses"
                )
        for origin in self.origins:
            if not is_origin(origin):
                raise ValueError(
                    f"`origins` cannot have `{origin}`: write the scheme and the host of each page in lower case, "
                    "`https://chat.example.org`, without a path"
                )

    def rules(self, *, forward_key: bool) -> DoorRules:
        return DoorRules(
            hosts=frozenset([host.lower() for host in self.hosts]),
            origins=frozenset(self.origins),
            metrics=self.metrics,
            passes=frozenset([path for route in self.routes for path in route.passes]),
            forward_key=forward_key,
            bounds=self.bounds,
        )


def configured_models(routes: Iterable[GatewayRoute]) -> Iterator[str]:
    """The names of models in the file, as upstreams get them."""
    for route in routes:
        yield from [pattern for pattern in route.models if not set(pattern) & set("*?[")]
        yield from route.aliases.values()
        yield from [model for given in route.every_upstream if (model := upstream_of(given).model)]


def key_files_of(routes: Iterable[GatewayRoute]) -> list[str]:
    return [path for route in routes for given in route.every_upstream for path in upstream_of(given).key_files]


class ChosenRoute(msgspec.Struct, frozen=True, kw_only=True):
    """The route that serves a model, and the model's name there, unless an upstream has its own name for it."""

    route: GatewayRoute
    model: str

    def name_at(self, upstream: Upstream) -> str:
        return self.model if upstream.model is None else upstream.model


def choose_route(routes: Sequence[GatewayRoute], model: str, *, client: str = "") -> ChosenRoute | None:
    """The first route that has the name among its aliases, or whose patterns match it, letter case included. A route for one
    client does not exist for other clients."""
    for route in routes:
        if isinstance(route.one_client, str) and route.one_client != client:
            continue
        if (name := route.aliases.get(model)) is not None:
            return ChosenRoute(route=route, model=name)
        if any(fnmatch.fnmatchcase(model, pattern) for pattern in route.models):
            return ChosenRoute(route=route, model=model)
    return None


@functools.cache
def upstream_of(given: str | UpstreamAddress) -> Upstream:
    """`openai:gpt-6.1-sol`, `openai:*`, a URL or a table of one. Raises CallerError."""
    if isinstance(given, str) and not given.startswith(("http://", "https://")):
        named = read_model(given)
        if named.profile.base_url is None or "{" in named.profile.base_url:
            raise CallerError(f"`{named.profile.name}` has no address of its own: write {{ url = ..., family = ... }}")
        model = None if named.name == "*" else named.name
        return Upstream(profile=named.profile, chat=_chat_of(named.profile), model=model)
    address = UpstreamAddress(url=given) if isinstance(given, str) else given
    if not address.url.startswith(("http://", "https://")):
        raise CallerError(f"the URL `{address.url}` must begin with http:// or https://")
    known = profile_at(address.url) if address.provider is None else find_profile(address.provider)
    if known is not None and address.provider is not None and address.family not in (None, known.family):
        raise CallerError(f"`{address.provider}` speaks `{known.family}`, not `{address.family}`: leave out `family`")
    if known is None or address.family not in (None, known.family):
        known = find_profile(address.family or USUAL)
    chat = _chat_of(known) if address.family is None else None
    keys = (address.key_env,) if isinstance(address.key_env, str) else address.key_env or ()
    files = (address.key_file,) if isinstance(address.key_file, str) else address.key_file or ()
    check_key_files(files, url=address.url)
    if len({*keys, *files}) < len(keys) + len(files):
        raise CallerError(f"`{address.url}` has the same `key_env` or `key_file` twice")
    return Upstream(
        profile=known.over_websocket(address.websocket),
        chat=chat,
        model=address.model,
        base_url=address.url,
        key_envs=keys,
        key_files=files,
        weight=address.weight,
        traceparent=address.traceparent,
        headers=tuple(map(_header, address.headers)),
        headers_env=tuple(map(_header, address.headers_env)),
    )


# What says who asks, where, and how the bytes come: the gateway's own. An upstream's key is `key_env`.
_OWN_HEADERS = frozenset(
    """authorization proxy-authorization host cookie set-cookie x-api-key api-key x-goog-api-key content-type content-length
    content-encoding accept-encoding connection keep-alive proxy-connection te trailer transfer-encoding upgrade expect""".split()
)
_HEADER = re.compile(r"(?P<name>[!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*(?P<value>[\x20-\x7e]+)", re.ASCII)


def _header(line: str) -> tuple[str, str]:
    """Raises CallerError, which does not show the value: it may be a secret."""
    found = _HEADER.fullmatch(line)
    if found is None:
        raise CallerError('a header is written as `"name: value"`, in ASCII')
    name = found["name"].lower()
    if name in _OWN_HEADERS:
        raise CallerError(f"`headers` cannot have `{name}`, which the gateway writes itself")
    return name, found["value"].strip()


def _chat_of(profile: Profile) -> Profile | None:
    return find_profile(profile.chat_row) if profile.chat_row else None


def read_config(path: Path) -> GatewayConfig:
    """Raises CallerError in one line, with the file and the place in it."""
    match read_of_user(path, max_bytes=MAX_FILE_BYTES):
        case None:
            raise CallerError(f"`{path}` does not exist: create it, or give --upstream")
        case LeftOut(why=why):
            raise CallerError(f"`{path}` {why}")
        case bytes() as content:
            pass
    import tomllib

    try:
        table = tomllib.loads(content.decode())
    except UnicodeDecodeError as error:
        raise CallerError(f"`{path}` is not UTF-8 (byte {error.start}): save it as UTF-8") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise CallerError(f"`{path}`: {error}; correct it there") from None
    try:
        return msgspec.convert(table, GatewayConfig)
    except msgspec.ValidationError as error:
        said = with_near_field(
            error,
            rows=(GatewayConfig, GatewayRoute, UpstreamAddress, TlsFiles, Bounds, GatewayDeadlines, UnreachableStore),
        )
        raise CallerError(f"`{path}`: {said}; correct it there") from None


def config_of(upstream: str) -> GatewayConfig:
    """One route for every model. Raises CallerError."""
    upstream_of(upstream)
    return GatewayConfig(routes=(GatewayRoute(upstream=upstream),))


def config_file(env: Mapping[str, str]) -> Path:
    """The path of the user's own file, whether or not it exists."""
    return user_folder(env) / FILE


def _why_not_passed(text: str, *, stored: str, family: FamilyName) -> str:
    """Empty if it may."""
    rule = rule_of(text)
    if rule is None:
        return "write a plain path, `/v1/embeddings` or `GET /v1/files/*`, without a query"
    if serves_already(rule):
        return "the gateway serves it already"
    if stored == "shared":
        return ""
    path = rule.path
    if place_of(path, family) is not None or ANY in path or rule.methods != ("POST",):
        if stored == "team":
            return why_not_understood(rule, family)
        return 'it may be about what is stored at the provider: say whose that is, `stored = "team"`'
    segments = [part for segment in path.lower().split("/") for part in segment.split(":")]
    if found := next((part for part in segments if part in STORED), ""):
        is_verb_of_model = found == "models" and re.fullmatch(r"/v1(?:beta)?/models/[^/:]+:\w*[eE]mbed\w*", path)
        if not is_verb_of_model:
            return (
                f"`{found}` is stored at the provider, and the gateway's key would open it to every client: say whose it is, "
                '`stored = "shared"`'
            )
    return ""
