"""torch.tern.memory: how much memory the device has handed out, to whom, and its history, as torch.cuda.memory.

Work is deferred, so every figure first finishes what is recorded: what a program's next line would see. Figures are of the device's own allocator; memory shared with the
CPU without a copy (results of fallbacks, dlpack, from_numpy) is the CPU's and not counted. A snapshot has the form that torch.cuda._memory_viz and
https://pytorch.org/memory_viz read; frames are the user's line, with the operation as the innermost one."""
import collections
import os
import pathlib
import pickle
import re
import time
from typing import Any

import torch

from torch_tern import _C
from torch_tern.errors import coded

__all__ = [
    "dump_snapshot", "empty_cache", "get_allocator_backend", "get_per_process_memory_fraction", "host_memory_stats", "host_memory_stats_as_nested_dict", "list_gpu_processes",
    "live_tensors", "max_memory_allocated", "max_memory_cached", "max_memory_reserved", "mem_get_info", "memory_allocated", "memory_cached", "memory_reserved", "memory_snapshot",
    "memory_stats", "memory_stats_as_nested_dict", "memory_summary", "record_memory_history", "reset_accumulated_host_memory_stats", "reset_accumulated_memory_stats",
    "reset_max_memory_allocated", "reset_max_memory_cached", "reset_peak_host_memory_stats", "reset_peak_memory_stats", "set_per_process_memory_fraction", "snapshot",
]  # fmt: skip

_Device = torch.device | str | int | None


def _index(device: _Device) -> int:
    from torch_tern import device as module

    return module._index(device)


# ---- figures, in bytes ----
def empty_cache() -> None:
    """Gives back to the system what the allocators of all open devices keep for reuse."""
    torch.accelerator.empty_cache()


def memory_stats(device: _Device = None) -> dict[str, Any]:
    """The figures of the device's allocator under torch.cuda.memory_stats' keys, such as "allocated_bytes.all.peak". There is one pool, which counts as the large one."""
    return torch.accelerator.memory_stats(_index(device))


def memory_stats_as_nested_dict(device: _Device = None) -> dict[str, Any]:
    """memory_stats() with each dot of a key a dict: ["allocated_bytes"]["all"]["peak"]."""
    return _nested(memory_stats(device))


def _nested(figures: dict[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for key, value in figures.items():
        *path, last = key.split(".")
        here = nested
        for part in path:
            here = here.setdefault(part, {})
        here[last] = value
    return nested


def memory_allocated(device: _Device = None) -> int:
    """Bytes handed out now: to tensors."""
    return torch.accelerator.memory_allocated(_index(device))


def max_memory_allocated(device: _Device = None) -> int:
    """The most bytes handed out at once since reset_peak_memory_stats(): to tensors, and to intermediates while a program runs."""
    return torch.accelerator.max_memory_allocated(_index(device))


def memory_reserved(device: _Device = None) -> int:
    """Bytes taken from the system: handed out, and kept for reuse until empty_cache()."""
    return torch.accelerator.memory_reserved(_index(device))


def max_memory_reserved(device: _Device = None) -> int:
    return torch.accelerator.max_memory_reserved(_index(device))


def reset_peak_memory_stats(device: _Device = None) -> None:
    """Peaks start again from what is there now."""
    torch.accelerator.reset_peak_memory_stats(_index(device))


def reset_accumulated_memory_stats(device: _Device = None) -> None:
    """The totals ("allocated", "freed") and counts of memory_stats() start again."""
    torch.accelerator.reset_accumulated_memory_stats(_index(device))


def reset_max_memory_allocated(device: _Device = None) -> None:
    """As reset_peak_memory_stats(), under torch.cuda's older name."""
    reset_peak_memory_stats(device)


reset_max_memory_cached = reset_max_memory_allocated


def mem_get_info(device: _Device = None) -> tuple[int, int]:
    """Free bytes and all bytes: what may still be handed out, and the limit (TERN_MEMORY_LIMIT, else what the machine or device has; 0 where unknown)."""
    return torch.accelerator.get_memory_info(_index(device))


def set_per_process_memory_fraction(fraction: float, device: _Device = None) -> None:
    """At most this part (above 0, at most 1) of mem_get_info()'s all may be used from now on; what goes beyond raises OutOfMemoryError. What is there stays."""
    if not 0 < fraction <= 1:
        raise ValueError(coded("TERN-ARGUMENT", f"the fraction of a device's memory is above 0 and at most 1, not {fraction}"))
    _C.memory_fraction(_index(device), float(fraction))


def get_per_process_memory_fraction(device: _Device = None) -> float:
    return _C.memory_fraction(_index(device))


def get_allocator_backend() -> str:
    return "tern"


# torch.cuda's older names for what is reserved.
memory_cached = memory_reserved
max_memory_cached = max_memory_reserved


def list_gpu_processes(device: _Device = None) -> str:
    """This process and the bytes it has been handed out, as text; of other processes a device does not tell."""
    index = _index(device)
    return f"TERN:{index}\nprocess {os.getpid():>10d} uses {memory_allocated(index) / 2**20:>12.3f} MB device memory (other processes are not known)"


# ---- pinned host memory: figures of the process ----
def host_memory_stats() -> dict[str, Any]:
    """The figures of pinned host memory under torch.cuda.host_memory_stats' keys, such as "active_bytes.current". Nothing is kept for reuse: what is allocated is active."""
    names = ("active_requests", "active_bytes", "allocations", "allocated_bytes")
    rows = dict(zip(names, _C.memory_host()))
    figures = {f"{name}.{part}": value for name, row in rows.items() for part, value in zip(("current", "peak", "allocated", "freed"), row)}
    return dict(sorted({**figures, "num_host_alloc": rows["allocations"][2], "num_host_free": rows["allocations"][3]}.items()))


def host_memory_stats_as_nested_dict() -> dict[str, Any]:
    return _nested(host_memory_stats())


def reset_peak_host_memory_stats() -> None:
    _C.memory_host_reset(True)


def reset_accumulated_host_memory_stats() -> None:
    _C.memory_host_reset(False)


# ---- who holds what ----
def live_tensors(device: _Device = None) -> list[dict[str, Any]]:
    """Live tensors with contents, the largest first; those of one line, dtype and shape together. Each row: bytes (of all of them), count, dtype, shape, line."""
    return [
        {"bytes": size, "count": count, "dtype": dtype, "shape": shape, "line": line} for size, count, dtype, shape, line in _C.memory_live(_index(device))
    ]


def _size(value: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.2f} {unit}"
        value /= 1024
    return f"{value:.2f} TiB"


def memory_summary(device: _Device = None, abbreviated: bool = False) -> str:
    """The figures of memory_stats() as a table, and below it the largest live tensors with the lines that made them (left out with `abbreviated`)."""
    index = _index(device)
    stats = memory_stats(index)
    rule = "|" + "=" * 90 + "|"
    lines = [rule, f"|{f'tern memory summary, device {index}':^90}|", f"|{' OOMs: {num_ooms}, retries: {num_alloc_retries}'.format(**stats):<90}|", rule]
    lines.append(f"| {'Metric':<24}| {'Current':>14} | {'Peak':>14} | {'Total made':>14} | {'Total freed':>14} |")
    rows = [("Allocated memory", "allocated_bytes", _size), ("Reserved memory", "reserved_bytes", _size), ("Allocations", "allocation", str), ("Segments", "segment", str)]
    for title, key, show in rows:
        figures = " | ".join(f"{show(stats[f'{key}.all.{part}']):>14}" for part in ("current", "peak", "allocated", "freed"))
        lines.append(f"| {title:<24}| {figures} |")
    free, total = mem_get_info(index)
    lines += [rule, f"|{f' Limit {_size(total)}, free {_size(free)}' if total else ' Limit unknown':<90}|", rule]
    if not abbreviated:
        live = live_tensors(index)
        lines.append("Largest live tensors:" if live else "No live tensors.")
        for row in live[:20]:
            times = f" x {row['count']}" if row["count"] > 1 else ""
            lines.append(f"  {_size(row['bytes']):>12}  {row['dtype']}{list(row['shape'])}{times}  {row['line'] or '(line unknown)'}")
        if len(live) > 20:
            lines.append(f"  {_size(sum(row['bytes'] for row in live[20:])):>12}  in {sum(row['count'] for row in live[20:])} more")
    return "\n".join(lines) + "\n"


# ---- history and snapshots ----
def record_memory_history(enabled: str | None = "all", context: str | None = "all", stacks: str = "all", max_entries: int = 100_000, device: _Device = None, **ignored: Any) -> None:
    """Starts keeping the newest `max_entries` events of all devices' memory; record_memory_history(None) stops, and what was kept stays for snapshot().

    The arguments are those of torch.cuda.memory._record_memory_history; "state", the live tensors with their lines, is always known, so "all" and "state" differ only in the
    events. `context`, `stacks` and `device` are taken and change nothing: every event has the user's line."""
    if enabled not in (None, "all", "state"):
        raise ValueError(coded("TERN-ARGUMENT", f"enabled is 'all', 'state' or None, not {enabled!r}"))
    _C.memory_history(min(max_entries, 1 << 24) if enabled == "all" else 0)


def _frames(line: str, operation: str | None = None) -> list[dict[str, Any]]:
    frames = [{"filename": "tern", "line": 0, "name": operation}] if operation else []
    place = re.match(r"(.*):(\d+) \((.*)\)$", line)
    if place:
        frames.append({"filename": os.path.abspath(place[1]) if os.path.exists(place[1]) else place[1], "line": int(place[2]), "name": place[3]})
    return frames


def memory_snapshot(device: _Device = None) -> list[dict[str, Any]]:
    """One segment for each piece of memory that a live tensor holds, in the form of torch.cuda.memory_snapshot(). Addresses stand for memory and are no pointers."""
    segments = []
    for index in range(_C.device_count()) if device is None else [_index(device)]:
        for address, size, dtype, shape, line in _C.memory_blocks(index):
            frames = _frames(line)
            block = {"address": address, "size": size, "requested_size": size, "state": "active_allocated", "frames": frames, "dtype": dtype, "shape": shape}
            segments.append(
                {
                    "device": index, "address": address, "total_size": size, "allocated_size": size, "active_size": size, "requested_size": size, "stream": 0,
                    "segment_type": "large", "segment_pool_id": (0, 0), "is_expandable": False, "frames": frames, "blocks": [block],
                }
            )  # fmt: skip
    return segments


def snapshot() -> dict[str, Any]:
    """What is alive ("segments") and, where record_memory_history() was on, what happened ("device_traces"): as torch.cuda.memory._snapshot()."""
    segments = memory_snapshot()
    traces: dict[int, list[dict[str, Any]]] = collections.defaultdict(list)
    for action, index, address, size, microseconds, line, operation in _C.memory_events():
        common = {"size": size, "stream": 0, "time_us": microseconds, "frames": _frames(line, operation)}
        if action == "oom":
            traces[index].append({"action": "oom", "device_free": max(mem_get_info(index)[1] - address, 0), "addr": 0, **common})
        elif action == "alloc":
            traces[index].append({"action": "alloc", "addr": address, **common})
        else:
            traces[index] += [{"action": step, "addr": address, **common} for step in ("free_requested", "free_completed")]
    return {
        "segments": segments,
        "device_traces": [traces[index] for index in range(_C.device_count())],
        "allocator_settings": {"backend": "tern"},
        "external_annotations": [],
        "time_us": int(time.time() * 1e6),
    }


def dump_snapshot(filename: str | os.PathLike[str] = "dump_snapshot.pickle") -> None:
    """Writes snapshot() as a pickle, for `python -m torch.cuda._memory_viz trace_plot FILE -o page.html` or https://pytorch.org/memory_viz."""
    pathlib.Path(filename).write_bytes(pickle.dumps(snapshot()))


# The names in torch.cuda.memory.
_record_memory_history = record_memory_history
_snapshot = snapshot
_dump_snapshot = dump_snapshot
