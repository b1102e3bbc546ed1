"""Compiled programs on disk: where they lie, how much room they take, and `tern cache`.

The core writes executables of PJRT plug-ins here (src/pjrt/disk_cache.c), `tern check` the answers of compilers. Every file is written beside its name and renamed
over it, so any number of processes may share the folder; a file that cannot be read is as if it were not there."""
import argparse
import json
import os
import pathlib
import tempfile
import time

from torch_tern import _C


def folder() -> pathlib.Path:
    """TERN_CACHE_DIR, else ~/.cache/tern (XDG_CACHE_HOME). It need not exist."""
    setting = next(value for variable, value, _ in _C.settings() if variable == "TERN_CACHE_DIR")
    if setting:
        return pathlib.Path(setting)
    return pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "tern"


def write(path: pathlib.Path, data: bytes) -> None:
    """All or nothing; a folder that cannot be written is no error: it is a cache."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".partial")
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except OSError:
        pass


def entries() -> list[dict]:
    """Every file in the cache, the newest first."""
    rows = []
    for path in folder().rglob("*"):
        try:
            if path.is_file() and not path.name.startswith("."):
                facts = path.stat()
                rows.append({"file": str(path.relative_to(folder())), "bytes": facts.st_size, "used": facts.st_mtime})
        except OSError:
            continue
    return sorted(rows, key=lambda row: -row["used"])


def clear() -> int:
    """Removes every entry; gives how many."""
    removed = 0
    for row in entries():
        try:
            (folder() / row["file"]).unlink()
            removed += 1
        except OSError:
            continue
    return removed


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", nargs="?", choices=("list", "clear"), default="list", help="list (the default) or clear")
    parser.add_argument("--json", action="store_true", help="the list as JSON")


def run(options: argparse.Namespace) -> int:
    if options.action == "clear":
        print(f"{clear()} files removed from {folder()}")
        return 0
    rows = entries()
    if options.json:
        print(json.dumps(rows, indent=2))
        return 0
    for row in rows:
        print(f"{row['bytes'] / 1024:>10.1f} KiB  {time.strftime('%Y-%m-%d %H:%M', time.localtime(row['used']))}  {row['file']}")
    print(f"{len(rows)} files, {sum(row['bytes'] for row in rows) / 2**20:.1f} MiB in {folder()}")
    return 0
