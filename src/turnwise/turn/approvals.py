"""What a person is asked before calls run, and what they answer: plain data of commands, events and results."""

from typing import Literal

import msgspec

from turnwise.vocab import ToolCall


class OneAsk(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing to decide. For an `approval`, `subject` is the path, command or tool that decided that it is asked, and
    `why` says so in a sentence; for a `question` of the model's, `subject` is its text and `options` are answers that it
    offers. `arguments` are complete JSON text (or free-form text). One that cannot wait is denied if it is left for later."""

    call: ToolCall
    arguments: str
    subject: str
    kind: Literal["approval", "question"] = "approval"
    why: str = ""
    options: tuple[str, ...] = ()
    can_wait: bool = True


class Approval(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer to one ask. `text` is the answer to a question, or what the model is told beside a denial. `always`: calls
    like this one are not asked again in this session. `later` leaves the call pending, and the run ends as `waiting`.
    `subject`, where it is given, is that of the ask which was answered: if the same call now leads elsewhere, it is denied."""

    call_id: str
    verdict: Literal["allow", "deny", "later"]
    by: Literal["person", "default", "program"] = "person"
    text: str = ""
    always: bool = False
    subject: str = ""
