"""A refusal, and the record of a family's judge: what its real API checks in a request, and in which words it refuses."""

from collections.abc import Callable, Mapping
from typing import Literal

import msgspec

from turnwise.lab.raw import Raw
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
    """A refusal whose words are to be filled in: `message` names the values in braces."""

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

    def error(self, rejected: Rejected) -> Raw:
        """The JSON that this family's API, or the server that refused, answers an error with."""
        return self.error_object(rejected) if rejected.body is None else rejected.body
