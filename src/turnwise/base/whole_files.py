"""Files that are written whole or not at all."""

import contextlib
import tempfile
from collections.abc import Generator
from pathlib import Path

from turnwise.errors import CallerError

PRIVATE = 0o600  # for its owner alone


@contextlib.contextmanager
def in_place_of(path: Path, *, mode: int = PRIVATE) -> Generator[int]:
    """A descriptor of a new file, which takes the place of `path` if the block ends without an exception.

    Raises CallerError where it cannot be written.
    """
    name = ""
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".turnwise-")  # for its owner alone, as it is made
        yield descriptor
        Path(name).chmod(mode)
        Path(name).replace(path)
    except OSError as error:
        raise CallerError(f"`{path}` cannot be written: {error.strerror or error}") from None
    finally:
        if name:
            with contextlib.suppress(OSError):
                Path(name).unlink()
