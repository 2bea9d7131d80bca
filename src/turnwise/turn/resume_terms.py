"""What whoever takes up a turn that its process left says of it: beside what is recorded, for its sub-agents, too."""

import msgspec

from turnwise.rules.permissions import PermissionRule
from turnwise.turn.approvals import Approval, OneAsk, holds


class ResumeTerms(msgspec.Struct, frozen=True, kw_only=True):
    """`answers` are for asks that were open; the others are waited for `ask_s` seconds (None: for what is left of their time).
    `rules` hold behind those of the turn."""

    answers: tuple[Approval, ...] = ()
    ask_s: float | None = None
    rules: tuple[PermissionRule, ...] = ()

    def answer_to(self, ask: OneAsk) -> Approval | None:
        """The first one that is for what the ask shows."""
        return next((one for one in self.answers if one.call_id == ask.call.id and holds(one, ask=ask)), None)
