"""A client's request to a model that binds thinking to what stood before it (promise step:bound-thinking).

A client that edits what it sends keeps its thinking, and its model refuses that. The request is sent once more, with the setting
that has the provider leave stale thinking out; where the provider does not know the setting, without all thinking from the first
stale block on. A setting of the client's own stands. See rules/bound_thinking.py for the same in a session.
"""

from typing import Literal

from turnwise.vocab import Fault, Repair
from turnwise.wire.anthropic_messages.thinking import dropping, without_stale
from turnwise.wire.family import Family, HttpCall

StaleMeans = Literal["", "asks", "cuts"]
"""How stale thinking is left out: not at all yet, by asking the provider, or by leaving it out of the request."""


class BoundThinking:
    """One request. `call` is what goes out, `means` what is known of its conversation, `key` names that for who remembers it."""

    def __init__(self, call: HttpCall, *, model: str, family: Family, known: StaleMeans = "", key: str = "") -> None:
        self.key = key
        self.means: StaleMeans = known
        self._model = model
        self._with_binding = family.with_binding
        self._asks = False  # the request at hand does, by our own setting
        self._plain = self.call = call
        self._valid: int | None = None  # so much of its thinking stands before what was refused
        if known == "asks":
            self._ask()

    def mends(self, fault: Fault) -> bool:
        """Whether the request was refused for stale thinking, and `call` is now another one that may pass."""
        if self._with_binding is None:
            return False
        told = self._with_binding(fault, model=self._model, body=self.call.body, asked=self._asks)
        if not told.binding:
            return False
        if told.binding == "stale":
            self._valid = told.valid_thinking
            if self.means == "" and self._ask():
                self.means = "asks"
                return True
        return self._cut(told)

    @property
    def repair(self) -> Repair:
        """What was done."""
        how = "the provider leaves stale thinking out" if self.means == "asks" else "stale thinking was left out"
        return Repair(
            "stale_thinking", "request", f"refused thinking behind something that has changed: sent again, {how}"
        )

    def _ask(self) -> bool:
        asking = dropping(self._plain, model=self._model)
        if asking is None:
            return False
        self.call, self._asks = asking, True
        return True

    def _cut(self, fault: Fault) -> bool:
        before, valid = self._plain, self._valid
        if fault.binding == "not_taken" and self._asks:
            self.means, self._asks, self.call = "cuts", False, before
        if valid is None:  # nothing was said of the thinking itself
            return fault.binding == "not_taken"
        cut = without_stale(before, valid=valid)
        if cut is None:
            return False
        self.means, self._asks, self._valid = "cuts", False, None
        self._plain = self.call = cut
        return True
