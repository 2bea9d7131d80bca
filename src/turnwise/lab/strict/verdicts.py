"""A refusal, and the record of a family's judge: what its real API checks in a request, and in which words it refuses."""

from collections.abc import Callable, Iterator, Mapping
from typing import Literal

import msgspec

from turnwise.lab.raw import Raw, rows, table, text
from turnwise.lab.strict.thinking import ThinkingJudge


class ModelRules(msgspec.Struct, frozen=True, kw_only=True):
    """What a model, rather than its API, insists on; a script may say so. And what stands in headers."""

    prefill: bool = True  # False: the conversation must end with the user (Claude Opus 4.6 and later)
    adaptive: bool = (
        False  # True: it thinks when it likes, so its calls may come back without (API docs, "Adaptive thinking")
    )
    signed: bool = False  # True: it thinks, and its signed thoughts have to come back unchanged beside their calls
    generation: str = ""  # a name of `generations.py`: what that model refuses is refused
    betas: str = ""  # what the request's header `anthropic-beta` says
    parts: tuple[str, ...] = ()  # Chat Completions: types of content part that its server takes beside OpenAI's


LENIENT_MODEL = ModelRules()


class Rejected(Exception):
    """The request is refused. `type` is the family's own word where it is not the usual one for `status`; `body` is the whole
    answer where a server does not write it as its family does."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        param: str | None = None,
        code: str | None = None,
        type: str | None = None,
        body: Raw = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.param = param
        self.code = code
        self.type = type
        self.body = body


class RefusalForm(msgspec.Struct, frozen=True):
    """A refusal with placeholders: `message` names the values in braces."""

    message: str
    status: int = 400
    param: str | None = None
    code: str | None = None

    def of(self, **values: object) -> Rejected:
        message = self.message.format_map(values)
        return Rejected(message, status=self.status, param=self.param, code=self.code)


ALL_EFFORTS = ("low", "medium", "high", "xhigh", "max")


class JudgedModel(msgspec.Struct, frozen=True, kw_only=True):
    """What one model takes. `thinking`: its types; `off_efforts`: the efforts beside which thinking may be off. `sampling`:
    temperature and top_p other than 1, always, beside effort `none`, or never."""

    thinking: tuple[str, ...] = ()
    off_efforts: tuple[str, ...] = ALL_EFFORTS
    efforts: tuple[str, ...] = ALL_EFFORTS
    chat_efforts: tuple[str, ...] = ()  # in Chat Completions, if they are others
    sampling: Literal["always", "beside none", "never"] = "never"
    forced: bool = True
    computer: bool = True


KeyPaths = tuple[tuple[str, ...], ...]


class FamilyJudge(msgspec.Struct, frozen=True, kw_only=True):
    """One family's real API, as a judge of requests. Each module of a family has one, named `JUDGE`."""

    name: str
    check: Callable[[Raw, ModelRules], None]  # raises Rejected for the first thing wrong with a body
    # Models that refuse more than their API, and what checks a body by one of them: fields, the model's name, what it takes.
    models: Mapping[str, JudgedModel] = {}
    check_model: Callable[[dict[str, Raw], str, JudgedModel], None] = lambda fields, name, model: None
    has_dialects: bool = False  # servers of this API have rules of their own (`dialects.toml`)
    thinking: ThinkingJudge | None = None  # some of its models bind their thinking to what stood before it
    error_object: Callable[[Rejected], Raw]  # how it writes an error

    no_json: RefusalForm  # of `error`
    wrong_key: RefusalForm  # recorded: each family's 401. The key itself is never repeated, as some providers do
    unknown_model: RefusalForm  # of `model`
    # The prompt is past the model's window, of `prompt`, `asked`, `window`, `total`; `with_output`: the output asked for is
    # counted, too, and this is what the API says where the prompt alone would fit. The other APIs give what is left.
    window: RefusalForm
    with_output: RefusalForm | None = None
    output: RefusalForm  # past the model's output limit, of `asked`, `limit`, `beyond`, `model`

    # Where a request says how much may be written, and how it may be thought: keys from the body down.
    outputs: KeyPaths
    budgets: KeyPaths = ()  # tokens of thinking
    efforts: KeyPaths = ()  # a word for as much
    unthinking: tuple[str, ...] = ()  # has the word `disabled` where nothing is to be thought

    def error(self, rejected: Rejected) -> Raw:
        """The JSON that this family's API, or the server that refused, answers an error with."""
        return self.error_object(rejected) if rejected.body is None else rejected.body


# What Anthropic's API checks of the marks for its cache, in its own requests and in those of a gateway to it.


MAX_MARKS = 4
TTLS = ("5m", "1h")
UNMARKED = ("thinking", "redacted_thinking")


class Mark(msgspec.Struct, frozen=True):
    where: str
    mark: Raw
    block: Raw


def marks_of_messages(body: Raw) -> list[Mark]:
    """In the order in which the API reads a prompt: tools, system, messages; the field for the end of the body is the last."""
    return _all_marks(body, own=False)


def marks_of_chat(body: Raw) -> list[Mark]:
    """Of a gateway's request: on tools, on messages, and on their content."""
    return _all_marks(body, own=True)


def _all_marks(body: Raw, *, own: bool) -> list[Mark]:
    """`own`: messages have marks of their own, and no field stands for the system text."""
    fields = table(body)
    found = [*_marks(fields.get("tools"), where="tools")]
    if not own:
        found += _marks(fields.get("system"), where="system")
    for position, message in enumerate(rows(fields.get("messages"))):
        found += _marks(table(message).get("content"), where=f"messages.{position}.content")
        if own:
            found += _own(message, where=f"messages.{position}")
    return [*found, *_top(fields)]


def _top(fields: dict[str, Raw]) -> list[Mark]:
    """The field for the end of the body, with the block that it marks: the last one that may be marked."""
    top = fields.get("cache_control")
    if top is None:
        return []
    contents = [rows(table(message).get("content")) for message in rows(fields.get("messages"))]
    inner = [block for content in contents for block in content if _may_be_marked(block)]
    return [Mark("cache_control", top, inner[-1] if inner else None)]


def _may_be_marked(block: Raw) -> bool:
    type = table(block).get("type")
    return type not in UNMARKED and not (type == "text" and not text(table(block).get("text")))


def _marks(blocks: Raw, *, where: str) -> Iterator[Mark]:
    for index, block in enumerate(rows(blocks)):
        yield from _marks(table(block).get("content"), where=f"{where}.{index}.content")
        yield from _own(block, where=f"{where}.{index}")


def _own(block: Raw, *, where: str) -> Iterator[Mark]:
    mark = table(block).get("cache_control")
    if mark is not None:
        yield Mark(f"{where}.{text(table(block).get('type')) or 'custom'}.cache_control", mark, block)


def check_marks(marks: list[Mark]) -> None:
    """Sources: Anthropic docs, "Prompt caching": limitations, mixing different TTLs, and "Automatic caching", edge cases (a last
    block with another ttl, and four marks beside the field, are answered 400); deer-flow#2448."""
    kept_short = False
    for one in marks:
        ttl = table(one.mark).get("ttl", "5m")
        if table(one.mark).get("type") != "ephemeral":
            raise Rejected(f"{one.where}.type: Input should be 'ephemeral'")
        if ttl not in TTLS:
            raise Rejected(f"{one.where}.ttl: Input should be '5m' or '1h'")
        if ttl == "1h" and kept_short:
            raise Rejected(
                f"{one.where}.ttl: a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block. Note "
                "that blocks are processed in the following order: `tools`, `system`, `messages`."
            )
        kept_short = kept_short or ttl == "5m"
        own = table(one.block).get("cache_control")
        if one.where == "cache_control" and own is not None and table(own).get("ttl", "5m") != ttl:
            raise Rejected(
                "cache_control: the last block already has a cache_control with another ttl than the one at the top level"
            )
        type = table(one.block).get("type")
        if type in UNMARKED:
            raise Rejected(f"{one.where}: Extra inputs are not permitted")
        if type == "text" and not text(table(one.block).get("text")):
            raise Rejected("cache_control cannot be set for empty text blocks")
    if len(marks) > MAX_MARKS:
        raise Rejected(f"A maximum of {MAX_MARKS} blocks with cache_control may be provided. Found {len(marks)}.")
