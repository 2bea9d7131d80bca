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
│   ├── SessionBusy        a turn of the session runs already
│   ├── SessionLeft        a process left the session's last turn, which can be resumed
│   ├── KeyReused          the key of a turn was given with another prompt
│   ├── NothingToResume    the session's last turn has ended
│   ├── UnreadableTurn     the records of a turn are damaged, or from a newer turnwise
│   ├── JournalRefused     the journal's database does not give its user the rights that are needed
│   └── JournalFailed      the journal cannot be read or written: a full disk, another process, a newer version
│       └── JournalDamaged its file is broken: what can be read of it can be rescued
├── ProviderFault          the provider, or the way to it, failed; carries a `Fault` as data
├── ToolFault              a tool failed; inside a turn it becomes a result instead
├── RunStopped             a run ended without the answer that it was asked for (`RunResult.raise_for_stop`)
│   ├── LimitReached       one of its limits ended it, or its model went in circles
│   ├── RunRefused         the model or its provider refused
│   ├── RunCancelled       somebody ended it
│   └── RunFailed          it could not be recorded, was given up, or a tool's exception ended it
├── ModelFault             the model did what it must not, and no recovery was left
│   └── OutputMismatch     the answer never fitted `output_type`, and `RunResult.output` was read
└── TurnwiseBug            our own mistake: please report it

Inside a turn a provider's failure becomes an event and a tool's exception a result; only a caller's mistake or our own
bug is raised through a face. ProviderFault is raised where the answer of a failed provider is read, OutputMismatch where a
missing output is, and with `tool_errors="raise"` a run raises what its tool did. After Ctrl-C `Agent.run_sync` raises
`RunInterrupted`, which is a KeyboardInterrupt.
"""

from decimal import Decimal
from typing import Any

from turnwise.vocab.frames import Fault, StopReason, Usage


class TurnwiseError(Exception):
    """The base of all errors that turnwise raises. Each can be pickled: process pools and task queues hand errors on."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (type(self), self.args), self.__dict__


def _unpickled(kind: type[TurnwiseError], args: tuple[Any, ...]) -> TurnwiseError:
    """Without its `__init__`, whose parameters are not its `args`."""
    return kind.__new__(kind, *args)


class CallerError(TurnwiseError):
    """Your program has to change something. The message says what is wrong, where, and what to do."""


class UnknownModel(CallerError):
    """The model's name begins with no known provider or API family. Names look like `openai:gpt-6.1-sol`."""


class UnknownOption(CallerError, TypeError):
    """An option does not exist. The message names the nearest one.

    It is an error so that a typo in `limits` cannot start a run without limits. It is a `TypeError`, too.
    """


class MissingKey(CallerError):
    """The provider needs a key, and none was found. The message says where to put it."""


class BadTool(CallerError):
    """A tool's name, signature or schema cannot be offered to a model."""


class BudgetSpent(CallerError):
    """Nothing was sent: raise the budget's limit, or wait for the runs that have reserved it."""


class NotARecording(CallerError):
    """A file is no recorded stream of that API family, or no recording."""


class NotRecorded(CallerError):
    """A test's request is not in its recording. Nothing is sent."""


class RequestForbidden(CallerError):
    """A test asked for another machine while `turnwise.testing.plugin` or `turnwise.testing.forbid_requests` was on. No name was
    looked up, and no connection opened.
    """


class TurnRefused(CallerError):
    """This agent or worker does not accept the turn. Another one may."""


class SessionBusy(CallerError):
    """A turn of the session runs already, in this process or in another one. Wait for it, or speak to its `Run`."""


class SessionLeft(CallerError):
    """The process that ran the session's last turn has left it. Resume it, or run with `drop_left=True`."""


class KeyReused(CallerError):
    """A turn with this key exists, and it was given another prompt, other results or other approvals."""


class NothingToResume(CallerError):
    """The last turn of the session has ended, or there is none."""


class UnreadableTurn(CallerError):
    """The records of a turn are damaged, or a newer turnwise wrote them."""


class JournalRefused(CallerError):
    """The journal's database does not give its user the necessary rights."""


class JournalFailed(CallerError):
    """Raised before a turn begins. A running turn ends with a result instead, whose stop reason is `journal_failed`."""


class JournalDamaged(JournalFailed):
    """Pages of the file are broken. From then on nothing is written into it."""


class ProviderFault(TurnwiseError):
    """The provider, or the connection to it, failed. `fault` holds the details.

    A run does not raise it: the failure is in `RunResult.fault`. It is raised when a program reads the
    answer of such a run (`RunResult.text`, `output`, `raise_for_stop()`); `run` is the RunResult then.
    """

    def __init__(self, fault: Fault, *, said: str = "", run: Any = None) -> None:
        super().__init__(said or fault.message)
        self.fault = fault
        self.run = run


class RunStopped(TurnwiseError):
    """`RunResult.raise_for_stop()`: the run ended without the answer that it was asked for. `run` is its RunResult, and
    `stop_reason` says why it ended.
    """

    def __init__(self, said: str, *, stop_reason: StopReason, run: Any) -> None:
        super().__init__(said)
        self.stop_reason = stop_reason
        self.run = run


class LimitReached(RunStopped):
    """A limit of the run was reached (steps, budget, time), or its model went in circles. `run.text` is the answer that the
    model had to give from what it knew by then.
    """


class RunRefused(RunStopped):
    """The model refused, or its provider's filter did."""


class RunCancelled(RunStopped):
    """Somebody ended the run."""


class RunFailed(RunStopped):
    """The journal could not be written, the run was given up after five crashes, or a tool's exception ended it."""


class ToolFault(TurnwiseError):
    """Raise it in a tool to say why the tool could not do its work. The model reads the text as the call's result."""


class ModelFault(TurnwiseError):
    """The model did something that it must not do, and no recovery was left."""


class OutputMismatch(ModelFault):
    """`RunResult.output` was read, but no answer of the model fits the output type, or the run ended without one.

    - `text` is the answer's text; `stop_reason` says why the run ended.
    - `requests`, `usage` (tokens) and `cost_usd` (US dollars; None: not known) are the run's bill.

    `RunResult.output_or_none` gives None in place of this error, and `RunResult.has_output` says whether there is one.
    """

    def __init__(
        self, said: str, *, text: str, stop_reason: StopReason, requests: int, usage: Usage, cost_usd: Decimal | None
    ) -> None:
        super().__init__(said)
        self.text, self.stop_reason = text, stop_reason
        self.requests, self.usage, self.cost_usd = requests, usage, cost_usd


class TurnwiseBug(TurnwiseError):
    """turnwise made a mistake. Please report it, with the journal of the session."""
