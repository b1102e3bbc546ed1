"""Checkpoints that survive: a save that is killed half-way leaves the old file whole."""
import os
import pathlib
import tempfile
from typing import Any

import torch


def save(obj: Any, path: str | os.PathLike[str], **options: Any) -> None:
    """torch.save(obj, path, **options), all or nothing: written beside `path`, forced to disk, then renamed over it (POSIX rename is atomic).

    `path` must name a file on a local or POSIX file system; for file-like objects use torch.save itself. What torch.save raises passes through, and nothing is left
    behind."""
    target = pathlib.Path(path)
    descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".partial")
    try:
        with os.fdopen(descriptor, "wb") as file:
            torch.save(obj, file, **options)
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            os.chmod(temporary, target.stat().st_mode & 0o777)
        else:
            umask = os.umask(0)
            os.umask(umask)
            os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, target)
    except BaseException:
        pathlib.Path(temporary).unlink(missing_ok=True)
        raise
