"""torch.tern.nvtx: the ranges and marks that torch.cuda.nvtx writes for NVIDIA's tools. Here they go to torch.profiler, which shows them in its tables and traces."""
import contextlib
import itertools
import threading
from collections.abc import Iterator
from typing import Any

import torch

__all__ = ["mark", "range", "range_end", "range_pop", "range_push", "range_start"]

_open = threading.local()  # .stack: the ranges that this thread has pushed
_started: dict[int, torch.profiler.record_function] = {}
_numbers = itertools.count()


def _begin(message: str) -> torch.profiler.record_function:
    block = torch.profiler.record_function(str(message))
    block.__enter__()
    return block


def range_push(msg: str) -> int:
    """Begins a range of this thread inside those that are open; gives its depth, 0 for the outermost."""
    stack = _open.__dict__.setdefault("stack", [])
    stack.append(_begin(msg))
    return len(stack) - 1


def range_pop() -> int:
    """Ends the innermost range; gives its depth, or -2 where none is open."""
    stack = _open.__dict__.setdefault("stack", [])
    if not stack:
        return -2
    stack.pop().__exit__(None, None, None)
    return len(stack)


def range_start(msg: str) -> int:
    """Begins a range that range_end ends by the number that is given back, in whatever order."""
    number = next(_numbers)
    _started[number] = _begin(msg)
    return number


def range_end(range_id: int) -> None:
    _started.pop(range_id).__exit__(None, None, None)


def mark(msg: str) -> None:
    """An instant."""
    _begin(msg).__exit__(None, None, None)


@contextlib.contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:
    """A range for the length of a `with`, or of a function; msg.format(*args, **kwargs) is its name."""
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()
