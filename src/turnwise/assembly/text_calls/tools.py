"""The tools on offer, as the readers need them: their names, and what their parameters may be."""

from collections.abc import Iterable

from turnwise.assembly.text_calls.parameters import ChecksLeft, Parameters
from turnwise.vocab import ToolSpec

_FREE_FORM = '{"properties":{"input":{"type":"string"}}}'


class OfferedTools:
    """The tools of one request. Schemas are read when a call needs them."""

    __slots__ = ("_has_any", "_left", "_parameters", "_specs")

    def __init__(self, specs: Iterable[ToolSpec], *, has_any: bool = False) -> None:
        """`has_any`: every name is taken for a tool, so that a reader finds where a call of it ends."""
        self._has_any = has_any
        self._specs = {spec.name: spec for spec in specs}
        self._parameters: dict[str, Parameters] = {}
        self._left = ChecksLeft()

    @property
    def names(self) -> Iterable[str]:
        return self._specs.keys()

    def has(self, name: str) -> bool:
        return self._has_any or name in self._specs

    def may_begin(self, start: str) -> bool:
        """Whether a name on offer begins like this."""
        return self._has_any or any(name.startswith(start) for name in self._specs)

    def parameters_of(self, name: str) -> Parameters:
        """What the tool's schema says about its parameters."""
        if name not in self._parameters:
            spec = self._specs.get(name)
            schema = "{}" if spec is None else _FREE_FORM if spec.free_form else spec.parameters
            self._parameters[name] = Parameters(schema, left=self._left)
        return self._parameters[name]


ANY_TOOLS = OfferedTools((), has_any=True)
"""As if every name were a tool's. Nothing that is read with it runs."""
