"""torch.tern: what PyTorch's device modules (torch.cuda, torch.xpu) hold, for the device "tern", and tern's own modes and statistics."""
import dataclasses
import time
from typing import Any

import torch
from torch import AcceleratorError, OutOfMemoryError  # noqa: F401

from torch_tern import _C, amp, nvtx, random, streams  # noqa: F401
from torch_tern.checkpoint import save
from torch_tern.current import _Device, _index, current_device, device, device_count, device_of, is_available, set_device
from torch_tern.errors import coded
from torch_tern.random import (
    default_generators,
    get_rng,
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    rng,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from torch_tern.sharing import cpu_view, from_dlpack
from torch_tern.streams import Event, Stream, StreamContext, current_stream, default_stream, set_stream, stream

__all__ = [
    "AcceleratorError", "DeviceProperties", "Event", "OutOfMemoryError", "Stream", "StreamContext", "amp", "can_device_access_peer", "compile_log", "cpu_view", "current_device",
    "current_stream", "default_generators", "default_stream", "device", "device_count", "device_memory_used", "device_of", "empty_cache", "fallbacks", "flush", "from_dlpack",
    "get_amp_supported_dtype", "get_arch_list", "get_device_capability", "get_device_name", "get_device_properties", "get_gencode_flags", "get_mode",
    "get_rng", "get_rng_state", "get_rng_state_all", "get_sync_debug_mode", "has_half", "init", "initial_seed", "ipc_collect", "is_available", "is_bf16_supported",
    "is_current_stream_capturing", "is_initialized", "is_tf32_supported", "make_graphed_callables", "manual_seed", "manual_seed_all", "max_memory_allocated",
    "max_memory_reserved", "mem_get_info", "memory_allocated", "memory_reserved", "memory_stats", "nvtx", "profile", "random", "reset_peak_memory_stats", "reset_stats",
    "rng", "save", "seed", "seed_all", "set_device", "set_mode", "set_rng_state", "set_rng_state_all", "set_stream", "set_sync_debug_mode", "stablehlo", "stats", "stream",
    "streams", "synchronize", "utilization",
]  # fmt: skip

has_half = True


# ---- devices ----
_initialized = True  # torch.utils.checkpoint saves the random state only where a device module says so


def is_initialized() -> bool:
    return not _C.is_forked_child()


def init() -> None:
    """Devices open on first use; there is nothing to do before."""


def ipc_collect() -> None:
    """Nothing to collect: memory of a tern device is not shared with other processes."""


def can_device_access_peer(device: _Device, peer_device: _Device) -> bool:
    """False: one device reads another's memory by way of the host."""
    for index in (_index(device), _index(peer_device)):
        if index >= device_count():
            raise AssertionError(coded("TERN-NO-DEVICE", f"Invalid device id {index}: the devices are tern:0 to tern:{device_count() - 1}"))
    return False


@dataclasses.dataclass(frozen=True)
class DeviceProperties:
    name: str  # "cpu" for the embedded engine, else the plug-in's
    platform: str
    total_memory: int  # bytes; 0 where the backend does not say
    multi_processor_count: int  # the embedded engine's threads; 1 where the backend does not say
    host_addressable: bool  # a fallback copies nothing
    static_shapes: bool  # compiles for each shape
    has_f64: bool
    has_i64: bool
    has_complex: bool


def get_device_properties(device: _Device = None) -> DeviceProperties:
    info = _C.device_info(_index(device))
    return DeviceProperties(total_memory=info.pop("memory_limit"), multi_processor_count=info.pop("compute_units"), **info)


def get_device_name(device: _Device = None) -> str:
    properties = get_device_properties(device)
    return f"{properties.name} ({properties.platform})" if properties.platform else properties.name


def get_device_capability(device: _Device = None) -> dict[str, Any]:
    return dataclasses.asdict(get_device_properties(device))


def get_arch_list() -> list[str]:
    """Empty, as where torch was built without device code: programs are made for the chip at hand when they are first run."""
    return []


def get_gencode_flags() -> str:
    return ""


def is_tf32_supported() -> bool:
    """False: f32 means f32."""
    return False


def get_amp_supported_dtype() -> list[torch.dtype]:
    return [torch.bfloat16, torch.float16]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    return True


def _is_in_bad_fork() -> bool:
    return _C.is_forked_child()


# ---- waiting ----
def synchronize(device: _Device = None) -> None:
    """Waits until the device has done everything recorded up to now; raises the error of a program that failed."""
    torch._C._accelerator_synchronizeDevice(_index(device))


def flush() -> None:
    """Hands what is recorded to the devices and does not wait. An optimizer's step does so at its end."""
    _C.flush()


def set_sync_debug_mode(debug_mode: int | str) -> None:
    """What happens where a program waits for values (item(), cpu(), nonzero(), a fallback), which is also where tern's programs end: 0 or "default" nothing,
    1 or "warn" a warning with the line, 2 or "error" an error."""
    if isinstance(debug_mode, str):
        names = {"default": 0, "warn": 1, "error": 2}
        if debug_mode not in names:
            raise RuntimeError(coded("TERN-ARGUMENT", "invalid value of debug_mode, expected one of `default`, `warn`, `error`"))
        debug_mode = names[debug_mode]
    if debug_mode not in (0, 1, 2):
        raise RuntimeError(coded("TERN-ARGUMENT", "invalid value of debug_mode, expected 0 (default), 1 (warn) or 2 (error)"))
    _C.set_sync_debug(debug_mode)


def get_sync_debug_mode() -> int:
    return _C.get_sync_debug()


_sampled: dict[int, tuple[float, float]] = {}  # device number -> when it was looked at, and its busy seconds then


def utilization(device: _Device = None) -> int:
    """The percentage of time in which the device was running a program since the last call, or in a sixth of a second where there was none."""
    index = _index(device)
    before, busy_before = _sampled.get(index, (None, 0.0))
    if before is None:
        before, busy_before = time.monotonic(), _C.busy_seconds(index)
        time.sleep(1 / 6)  # the sample period of other devices' tools
    now, busy = time.monotonic(), _C.busy_seconds(index)
    _sampled[index] = now, busy
    return min(100, round(100 * (busy - busy_before) / max(now - before, 1e-9)))


# ---- graphs: every tern program is recorded, fused and kept; there is nothing to capture ----
def is_current_stream_capturing() -> bool:
    return False


def make_graphed_callables(callables: Any, sample_args: Any, *options: Any, **named: Any) -> Any:
    """The callables as they are: what they record becomes a program that is kept, as everything on tern does."""
    return callables


# ---- memory: torch.tern.memory, whose names torch.cuda has here as well ----
from torch_tern import memory  # noqa: E402
from torch_tern.memory import (  # noqa: E402, F401
    empty_cache,
    get_allocator_backend,
    get_per_process_memory_fraction,
    host_memory_stats,
    host_memory_stats_as_nested_dict,
    list_gpu_processes,
    live_tensors,
    max_memory_allocated,
    max_memory_cached,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_cached,
    memory_reserved,
    memory_snapshot,
    memory_stats,
    memory_stats_as_nested_dict,
    memory_summary,
    reset_accumulated_host_memory_stats,
    reset_accumulated_memory_stats,
    reset_max_memory_allocated,
    reset_max_memory_cached,
    reset_peak_host_memory_stats,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
)

__all__ += ["memory"] + [name for name in memory.__all__ if name in globals() and name not in __all__]


def device_memory_used(device: _Device = None) -> int:
    return memory_allocated(device)


# ---- tern's own ----
class set_mode:
    """Sets how operators run: "fused" (deferred, the default), "strict" (each finishes before it returns) or "debug" (strict, and each compared with PyTorch's CPU
    kernel). Called, it stays; as a context manager it holds for the length of the `with`, and the innermost wins."""

    def __init__(self, mode: str):
        self.before = _C.get_mode()
        _C.set_mode(mode)

    def __enter__(self) -> "set_mode":
        return self

    def __exit__(self, *exception: Any) -> None:
        _C.set_mode(self.before)


def get_mode() -> str:
    return _C.get_mode()


def stats() -> dict[str, Any]:
    """Counters since the last reset: operations recorded, programs run, of those found in the cache (cache_hits) compiled, or loaded from disk, programs kept (cached), views that had to be
    gathered, fallbacks to PyTorch's CPU kernels, in all and in "fallbacks_by_operator" as rows of operator, line ("file:number (function)") and count, the most frequent
    first; and what is alive. The time spent making programs is compile_seconds."""
    figures = _C.stats()
    figures["fallbacks_by_operator"] = [{"operator": operator, "line": line, "count": count} for operator, line, count in fallbacks()]
    return figures


def stablehlo(function: Any, *args: Any, **kwargs: Any) -> str:
    """The StableHLO text of what function(*args, **kwargs) records on the current device, each operation under the user's line. Weights and inputs are the function's
    arguments, in the order of their first use. The function is called once and its operations run later as ever.

    RuntimeError where nothing is left to show: the function records nothing on a tern device, or reads a value in its last line."""
    with set_mode("fused"):
        synchronize()
        result = function(*args, **kwargs)  # noqa: F841  alive, so that its values are results of the program
        return _C.stablehlo(current_device())


def compile_log() -> list[dict[str, Any]]:
    """Every program that had to be made (the newest 1,024), the oldest first: number, operations, seconds, from_disk (an earlier process had compiled it), line (of its
    last operation), reason (what set it apart from the programs before: which shape, dtype, attribute or operation) and changed_line (where)."""
    return _C.compile_log()


def fallbacks() -> list[tuple[str, str, int]]:
    """(operator, line, count) of the operators that PyTorch's CPU kernels served, the most frequent first."""
    return sorted(_C.fallbacks(), key=lambda row: -row[2])


def profile() -> Any:
    """`with torch.tern.profile() as p:` notes each kernel that runs; then p.rows(), p.table(), p.html(). See torch_tern.profile."""
    from torch_tern.profile import Profile

    return Profile()


def reset_stats() -> None:
    """Sets the counters of stats() to zero; what is alive stays."""
    _C.reset_stats()
