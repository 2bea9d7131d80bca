"""A client's request to a model that binds thinking to what stood before it (promise step:bound-thinking).

A client that edits what it sends keeps its thinking, and its model refuses that. The request is sent once more, with the setting
that has the provider leave stale thinking out; where the provider does not know the setting, without all thinking from the first
stale block on. Blocks that were left out once are left out of every later request of the conversation before it leaves: it costs
no further refusal, and what the model thought without them stays. A setting of the client's own stands. See
rules/history.py for the same in a session.
"""

import hashlib
from collections.abc import Callable
from typing import Literal

import msgspec
from msgspec.structs import replace

from turnwise.rules.history import PRINT_BYTES
from turnwise.vocab import Fault, Repair
from turnwise.wire.anthropic_messages.thinking import dropping, is_set_by_caller, without_thinking
from turnwise.wire.family import Family, HttpCall

StaleMeans = Literal["", "asks", "cuts"]
"""How stale thinking is left out: not at all yet, by asking the provider, or by leaving it out of the request."""

MOST_COUNTED = 1_000  # blocks that repairs are told of, one each: a longer list says no more
_LEFT_OUT = Repair("thinking_left_out", "request", "stale thinking was left out: the provider would refuse it")


class BoundConversation(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a conversation. `key` names it for who remembers it; `left_out` are prints of thinking that its requests
    go without, made with `secret`."""

    key: str = ""
    secret: bytes = b""
    means: StaleMeans = ""
    left_out: frozenset[bytes] = frozenset()


UNBOUND = BoundConversation()


class BoundThinking:
    """One request. `call` is what goes out, `conversation` what is known now, `repairs` what was done last."""

    def __init__(self, call: HttpCall, *, model: str, family: Family, known: BoundConversation = UNBOUND) -> None:
        self.conversation = known
        self.repairs: tuple[Repair, ...] = ()
        self._model = model
        self._with_binding = family.with_binding
        self._asks = False  # the request at hand does, by our own setting
        self._plain = self.call = call
        self._valid: int | None = None  # so much of its thinking stands before what was refused
        if known.left_out and not is_set_by_caller(call.body, asked=False):
            self._leave_out(lambda _, seal: self._print_of(seal) in known.left_out)
        if known.means == "asks":
            self._ask()

    def mends(self, fault: Fault) -> bool:
        """Whether the request was refused for stale thinking, and `call` is now another one that may pass."""
        if self._with_binding is None:
            return False
        told = self._with_binding(fault, model=self._model, body=self.call.body, asked=self._asks)
        if not told.binding:
            return False
        self.repairs = ()
        if told.binding == "stale":
            self._valid = told.valid_thinking
            if self.conversation.means == "" and self._ask():
                self._learn("asks")
                self._tell("the provider leaves stale thinking out")
                return True
        if not self._cut(told):
            return False
        self._tell("stale thinking was left out")
        return True

    def _tell(self, how: str) -> None:
        what = f"refused thinking behind something that has changed: sent again, {how}"
        self.repairs = (Repair("stale_thinking", "request", what), *self.repairs)

    def _learn(self, means: StaleMeans) -> None:
        self.conversation = replace(self.conversation, means=means)

    def _ask(self) -> bool:
        asking = dropping(self._plain, model=self._model)
        if asking is None:
            return False
        self.call, self._asks = asking, True
        return True

    def _cut(self, fault: Fault) -> bool:
        if self._asks:  # in vain
            self._learn("cuts")
            self._asks, self.call = False, self._plain
        valid, self._valid = self._valid, None
        if valid is None:  # nothing was said of the thinking itself
            return fault.binding == "not_taken"
        return self._leave_out(lambda before, _: before >= valid)

    def _leave_out(self, leaves_out: Callable[[int, str], bool]) -> bool:
        found = without_thinking(self._plain, leaves_out=leaves_out)
        if found is None:
            return False
        self.call, seals = found
        self._plain = self.call
        self.repairs = (_LEFT_OUT,) * min(len(seals), MOST_COUNTED)
        prints = self.conversation.left_out.union(map(self._print_of, filter(None, seals)))
        self.conversation = replace(self.conversation, left_out=prints)
        return True

    def _print_of(self, seal: str) -> bytes:
        sealed = seal.encode("utf-8", "surrogatepass")
        return hashlib.blake2b(sealed, key=self.conversation.secret, digest_size=PRINT_BYTES).digest()
