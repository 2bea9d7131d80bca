"""The settings of requests, checked, and those of a run over those of its agent."""

import msgspec

from turnwise.errors import CallerError
from turnwise.settings.options import rows
from turnwise.vocab import Settings


def read_settings(settings: object, *, what: str = "`settings`") -> Settings:
    """Them as they are. Raises CallerError for a value that no model can be asked with."""
    if not isinstance(settings, Settings):
        raise CallerError(f"{what} must be `Settings(...)`, not {type(settings).__name__}")
    try:
        msgspec.convert(msgspec.structs.asdict(settings), Settings)
    except msgspec.ValidationError as error:
        raise CallerError(f"{what}: {error}") from None
    for row in rows():
        value: float | None = getattr(settings, row.option.setting) if row.option.setting and row.bounds else None
        if value is not None and not row.takes(value):
            raise CallerError(f"{what}: `{row.option.setting}` must be a number {row.span}, not {value}")
    return settings


def settings_over(settings: Settings, given: Settings) -> Settings:
    """The agent's settings, with what `given` says (each field that is not the default) in their place."""
    usual = Settings()
    said = {
        name: value for name in Settings.__struct_fields__ if (value := getattr(given, name)) != getattr(usual, name)
    }
    return msgspec.structs.replace(settings, **said)
