"""The time that a program sees: the same when it is run again after a crash, so that it asks for the same calls."""

from datetime import UTC, datetime, tzinfo


class ProgramTime:
    """What a program's clock says: when it began, and what has passed by the journal since, its own sleeps included. It stands
    still while the program computes, and while no process works on the turn."""

    def __init__(self, began: float, *, ordered_s: float) -> None:
        """`began` is UTC, seconds since 1970; `ordered_s`, here and below, seconds of the turn."""
        self._began = began - ordered_s
        self.now = began

    def go_on(self, *, ordered_s: float) -> None:
        """It has results since then; the clock never goes back."""
        self.now = max(self.now, self._began + ordered_s)

    def pass_by(self, seconds: float) -> None:
        self.now += seconds

    def read(self, function: str, args: tuple[object, ...]) -> object:
        """What the interpreter's function of that name returns; None for one that tells no time."""
        zone = next((one for one in args if isinstance(one, tzinfo)), None)
        match function:
            case "time.time":
                return self.now
            case "datetime.now":
                here = datetime.fromtimestamp(self.now, tz=zone or UTC)
                return here if zone is not None else here.replace(tzinfo=None)
            case "date.today":
                return datetime.fromtimestamp(self.now, tz=UTC).date()
            case _:
                return None
