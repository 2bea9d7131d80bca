"""The folder that commands have for themselves, under the names that they know it by: `$TMPDIR`, and `/tmp` in bubblewrap."""

import msgspec

_CACHES = ".cache"  # programs take from there what they run later


class PrivateFolder(msgspec.Struct, frozen=True, kw_only=True):
    """`real` is where it lies. `names` are the folders that stand for it in a command, the first is the value of TMPDIR;
    `others` lie below one of those names, and are what they are outside."""

    real: str
    names: tuple[str, ...]
    others: tuple[str, ...] = ()

    def real_path(self, path: str) -> str:
        """Where the absolute `path` of a command lies outside of the sandbox. One with `..` is left as it is: what it leads
        to depends on links that are not looked at here."""
        if ".." in path.split("/") or any(_is_below(path, folder=other) for other in self.others):
            return path
        name = next((name for name in self.names if _is_below(path, folder=name)), None)
        return path if name is None else self.real + path[len(name) :]

    def holds(self, resolved: str) -> bool:
        """Whether the resolved path lies in it, where nothing but commands that were judged looks at it."""
        return _is_below(resolved, folder=self.real) and not _is_below(resolved, folder=f"{self.real}/{_CACHES}")


def _is_below(path: str, *, folder: str) -> bool:
    return path == folder or path.startswith(folder + "/")
