"""What may run without asking. Finer rules (paths, parsed commands, asks) get their facts as data and stand here too."""

from collections.abc import Collection


def denial(tool: str, *, effect: str, allowed: Collection[str], hint: str) -> str | None:
    """Why a call of `tool` may not run, in words for the model and whoever reads along; None if it may.

    `hint` says how a person allows it; `{tool}` and `{effect}` in it are filled in.
    """
    if effect in allowed:
        return None
    how = hint.replace("{tool}", tool).replace("{effect}", effect)
    return (
        f"Denied: `{tool}` was not run, because its effect (`{effect}`) is not allowed in this run. "
        f"Only the user can allow it: {how}. Do not call it again; go on without it, or say what you would have done."
    )
