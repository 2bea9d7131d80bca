"""Every exception that turnwise raises. The name says who has to act.

TurnwiseError
├── CallerError            the program that uses turnwise, or its user, has to change something
│   ├── UnknownModel       no such provider or family in `--model`
│   ├── UnknownOption      a run was given an option that does not exist
│   ├── MissingKey         the provider wants a key and none was found
│   ├── BudgetSpent        a run's `Budget` has too little left, or other runs have reserved it
│   ├── BadTool            a tool's signature or schema cannot be used
│   ├── NotARecording      a file given to `decode` is no stream of that family, or one given to `Recording` no recording
│   ├── NotRecorded        a test's request is not the one that its recording has
│   ├── RequestForbidden   a test asked for another machine while `turnwise.testing.plugin` is on
│   ├── TurnRefused        this agent or worker does not take the turn; another one may
│   ├── UnreadableTurn     the records of a turn are damaged, or from a newer turnwise
│   ├── JournalRefused     the journal's database does not give its user the rights that are needed
│   └── JournalFailed      the journal cannot be read or written: a full disk, another process, a newer version
│       └── JournalDamaged its file is broken: what can be read of it can be rescued
├── ProviderFault          the provider, or the way to it, failed; carries a `Fault` as data
├── ToolFault              a tool failed; inside a turn it becomes a result instead
├── ModelFault             the model did what it must not, and no recovery was left
│   └── OutputMismatch     the answer never fitted `output_type`, and `RunResult.output` was read
└── TurnwiseBug            our own mistake: please report it

Inside a turn a provider's failure becomes an event and a tool's exception a result; only a caller's mistake or our own
bug is raised through a face, and OutputMismatch where a missing output is read. After Ctrl-C `Agent.run_sync` raises
`RunInterrupted`, which is a KeyboardInterrupt.
"""

from decimal import Decimal

from turnwise.vocab.reasons import Fault, StopReason
from turnwise.vocab.usage import Usage


class TurnwiseError(Exception):
    """The root. Catch this to catch everything that turnwise raises."""


class CallerError(TurnwiseError):
    """Change the call: the message says what is wrong, where, and what to do."""


class UnknownModel(CallerError):
    pass


class UnknownOption(CallerError, TypeError):
    """A typo in `limits` must not start a run that has none."""


class MissingKey(CallerError):
    pass


class BadTool(CallerError):
    pass


class BudgetSpent(CallerError):
    """Nothing was sent: raise the budget's limit, or wait for the runs that have reserved it."""


class NotARecording(CallerError):
    pass


class NotRecorded(CallerError):
    """Replaying stops: the recorded answers belong to other requests."""


class RequestForbidden(CallerError):
    """Raised before a name is looked up or a connection is opened."""


class TurnRefused(CallerError):
    pass


class UnreadableTurn(CallerError):
    pass


class JournalRefused(CallerError):
    pass


class JournalFailed(CallerError):
    """Raised before a turn begins. A turn at hand ends with a result instead, whose stop reason is `journal_failed`."""


class JournalDamaged(JournalFailed):
    """Pages of the file are broken. From then on nothing is written into it."""


class ProviderFault(TurnwiseError):
    """The provider, or the way to it, failed. `fault` says how."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


class ToolFault(TurnwiseError):
    """A tool says why it could not do what was asked; the text is the result that the model reads."""


class ModelFault(TurnwiseError):
    pass


class OutputMismatch(ModelFault):
    """`RunResult.output` of a run whose answer does not fit its output type, or that has no answer yet.

    `text` is what there is, `stop_reason` why the run ended. `requests`, `usage` and `cost_usd` (None: not known) are its bill.
    `RunResult.output_or_none` raises nothing.
    """

    def __init__(
        self, said: str, *, text: str, stop_reason: StopReason, requests: int, usage: Usage, cost_usd: Decimal | None
    ) -> None:
        super().__init__(said)
        self.text, self.stop_reason = text, stop_reason
        self.requests, self.usage, self.cost_usd = requests, usage, cost_usd


class TurnwiseBug(TurnwiseError):
    """A state that cannot be. Please report it with the journal of the session."""
