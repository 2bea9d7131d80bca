"""Files that are written whole or not at all."""

import contextlib
import os
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import BinaryIO

from turnwise.errors import CallerError

PRIVATE = 0o600  # for its owner alone


@contextlib.contextmanager
def in_place_of(path: Path, *, mode: int = PRIVATE) -> Generator[BinaryIO]:
    """A new file. If the block ends without an exception, it is on the disk, closed, and takes the place of `path`.

    Raises CallerError where it cannot be written.
    """
    name = ""
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".turnwise-")  # for its owner alone, as it is made
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(descriptor)
        Path(name).chmod(mode)
        Path(name).replace(path)
    except OSError as error:
        raise CallerError(f"`{path}` cannot be written: {error.strerror or error}") from None
    finally:
        if name:
            with contextlib.suppress(OSError):
                Path(name).unlink()
