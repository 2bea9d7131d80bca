"""The types of the vendors' SDKs as data: which fields and literals a request, an answer and a stream event may have.

`python scripts/lookout_types.py FOLDER` prints the graph of types that `ROOTS` reach, as JSON. The types are read by their own
introspection (pydantic's fields, `typing.get_type_hints`), so the SDKs have to be importable from FOLDER. It runs in a process
of its own: scripts/lookout.py must not import two versions of one package.
"""

import builtins
import enum
import importlib
import importlib.metadata
import json
import sys
import types
import typing
from collections.abc import Iterator, Sequence
from typing import Any, get_args, get_origin

PACKAGES = {
    "openai": "openai",
    "anthropic": "anthropic",
    "google": "google-genai",
    "openresponses_types": "openresponses-types",
}
"""What is imported, and the package that it comes from."""

# Side of a family -> where its types begin: `module:name`. The names are those of the endpoints that turnwise speaks.
ROOTS: dict[str, tuple[str, ...]] = {
    "chat.request": (
        "openai.types.chat.completion_create_params:CompletionCreateParamsNonStreaming",
        "openai.types.chat.completion_create_params:CompletionCreateParamsStreaming",
    ),
    "chat.answer": ("openai.types.chat:ChatCompletion", "openai.types.chat:ChatCompletionChunk"),
    "chat.models": ("openai.types:Model",),
    "responses.request": (
        "openai.types.responses.response_create_params:ResponseCreateParamsNonStreaming",
        "openai.types.responses.response_create_params:ResponseCreateParamsStreaming",
    ),
    "responses.answer": ("openai.types.responses:Response", "openai.types.responses:ResponseStreamEvent"),
    "anthropic.request": (
        "anthropic.types.message_create_params:MessageCreateParamsNonStreaming",
        "anthropic.types.message_create_params:MessageCreateParamsStreaming",
        "anthropic.types.beta.message_create_params:MessageCreateParamsNonStreaming",
        "anthropic.types.beta.message_create_params:MessageCreateParamsStreaming",
        "anthropic.types.message_count_tokens_params:MessageCountTokensParams",
        "anthropic.types.beta.message_count_tokens_params:MessageCountTokensParams",
    ),
    "anthropic.answer": (
        "anthropic.types:Message",
        "anthropic.types:RawMessageStreamEvent",
        "anthropic.types:MessageTokensCount",
        "anthropic.types:ErrorResponse",
        "anthropic.types.beta:BetaMessage",
        "anthropic.types.beta:BetaRawMessageStreamEvent",
        "anthropic.types.beta:BetaMessageTokensCount",
    ),
    "anthropic.models": ("anthropic.types:ModelInfo", "anthropic.types.beta:BetaModelInfo"),
    "gemini.request": (
        "google.genai.types:Content",
        "google.genai.types:Tool",
        "google.genai.types:GenerateContentConfig",
    ),
    "gemini.answer": ("google.genai.types:GenerateContentResponse", "google.genai.types:CountTokensResponse"),
    "gemini.models": ("google.genai.types:Model",),
    "open-responses.request": ("openresponses_types.types:CreateResponseBody",),
    "open-responses.answer": ("openresponses_types.types:ResponseResource",),
}
SUFFIXES = {
    "open-responses.answer": ("openresponses_types.types", "StreamingEvent"),
    "anthropic.answer": ("anthropic.types.shared", "ErrorDetails"),
}
"""What no union names, Open Responses' events and the details of errors: the classes of a module whose names end so."""


def graph_of(folder: str) -> dict[str, object]:
    """`{"versions": {package: version}, "roots": {side: [id]}, "types": {id: {"name", "fields"}}, "gone": [place]}`.

    A field has its `literals`, and the `types` (ids) of its values. A package that is not in the folder has no version, and its
    roots are left out; `gone` are the roots that a package of the folder does not have.
    """
    sys.path.insert(0, folder)
    graph = Graph()
    versions = {one.metadata["Name"]: one.version for one in importlib.metadata.distributions(path=[folder])}
    known = {name: versions[name] for name in PACKAGES.values() if name in versions}
    roots: dict[str, list[str]] = {}
    gone: list[str] = []
    for side, places in ROOTS.items():
        if PACKAGES[places[0].partition(".")[0]] not in known:
            continue
        found = [hint for place in places for hint in _root(place)] + _suffixed(side)
        gone += [f"{side}.{place}" for place in places if not _root(place)]
        ids = [id for hint in found for id in graph.ids_in(hint)]
        if ids:
            roots[side] = list(dict.fromkeys(ids))
    graph.fill()
    return {"versions": known, "roots": roots, "types": graph.types, "gone": gone}


def _root(place: str) -> list[object]:
    module, name = place.split(":")
    try:
        return [getattr(importlib.import_module(module), name)]
    except (ModuleNotFoundError, AttributeError):
        return []


def _suffixed(side: str) -> list[object]:
    module, suffix = SUFFIXES.get(side, ("", ""))
    try:
        names = vars(importlib.import_module(module)) if module else {}
    except ModuleNotFoundError:
        return []
    return [one for name, one in names.items() if name.endswith(suffix) and isinstance(one, type)]


class Graph:
    """The types that were met, each once."""

    def __init__(self) -> None:
        self.types: dict[str, dict[str, Any]] = {}
        self._waiting: list[type] = []

    def ids_in(self, hint: object) -> list[str]:
        """The types with fields that a hint names; they wait for `fill`."""
        ids: list[str] = []
        for part in parts_of(hint):
            if isinstance(part, type) and _has_fields(part):
                id = f"{part.__module__}.{part.__qualname__}"
                if id not in self.types:
                    self.types[id] = {"name": part.__name__.removeprefix("Beta"), "fields": {}}
                    self._waiting.append(part)
                ids.append(id)
        return list(dict.fromkeys(ids))

    def fill(self) -> None:
        while self._waiting:
            model = self._waiting.pop()
            fields = self.types[f"{model.__module__}.{model.__qualname__}"]["fields"]
            for name, hint in fields_of(model):
                literals = [one for part in parts_of(hint) for one in literals_of(part)]
                fields[name] = {"literals": list(dict.fromkeys(literals)), "types": self.ids_in(hint)}


def _has_fields(kind: type) -> bool:
    """Pydantic's models, and TypedDicts, those of typing_extensions among them."""
    return hasattr(kind, "model_fields") or hasattr(kind, "__required_keys__")


def fields_of(model: type) -> Iterator[tuple[str, object]]:
    """The fields as the wire names them, with their hints."""
    if hasattr(model, "model_fields"):
        for name, field in model.model_fields.items():
            yield str(field.serialization_alias or field.alias or name), field.annotation
        return
    for name, hint in _hints_of(model).items():
        aliases = [alias for one in _metadata(hint) if (alias := getattr(one, "alias", None))]
        yield (aliases[0] if aliases else name), hint


def _hints_of(model: type) -> dict[str, Any]:
    """A base of another module may leave its names to that module, and SDKs leave the names of `typing` to type checkers."""
    names = vars(typing) | vars(builtins)
    return typing.get_type_hints(model, localns=names, include_extras=True)


def _metadata(hint: object) -> Sequence[object]:
    """What stands beside a type in `Annotated`, below `Required` and its like too."""
    if get_origin(hint) in (typing.Required, typing.NotRequired):
        return _metadata(get_args(hint)[0])
    return getattr(hint, "__metadata__", ())


def parts_of(hint: object) -> Iterator[object]:
    """The types and literals in a hint: members of unions, of lists and of mappings' values."""
    if isinstance(hint, type) and get_origin(hint) is None:
        root = getattr(hint, "model_fields", {}).get("root") if "RootModel" in _bases(hint) else None
        yield from parts_of(root.annotation) if root is not None else [hint]
        return
    if isinstance(hint, typing.TypeVar):
        return
    inner = getattr(hint, "__value__", None)  # `type X = ...`
    if inner is not None:
        yield from parts_of(inner)
    elif get_origin(hint) is typing.Literal:
        yield hint
    elif get_origin(hint) is typing.Annotated:
        yield from parts_of(get_args(hint)[0])
    else:
        for one in get_args(hint):
            if not isinstance(one, (str, types.EllipsisType)):
                yield from parts_of(one)


def _bases(kind: type) -> set[str]:
    return {base.__name__.partition("[")[0] for base in kind.__mro__}


def literals_of(part: object) -> list[str]:
    if get_origin(part) is typing.Literal:
        values = [one.value if isinstance(one, enum.Enum) else one for one in get_args(part)]
    elif isinstance(part, type) and issubclass(part, enum.Enum):
        values = [one.value for one in part]
    else:
        return []
    return [one for one in values if isinstance(one, str)]


if __name__ == "__main__":
    json.dump(graph_of(sys.argv[1]), sys.stdout)
