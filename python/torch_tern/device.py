"""torch.tern: what PyTorch's device modules (torch.cuda, torch.xpu) hold, for the device "tern", and tern's own modes and statistics."""
import contextlib
import dataclasses
from typing import Any

import torch
from torch import Event, Stream  # noqa: F401  PyTorch's own classes serve every device

from torch_tern import _C
from torch_tern.checkpoint import save
from torch_tern.errors import coded

__all__ = [
    "DeviceProperties", "Event", "Stream", "compile_log", "current_device", "current_stream", "default_stream", "device", "device_count", "empty_cache", "fallbacks", "flush",
    "get_amp_supported_dtype", "get_device_capability", "get_device_name", "get_device_properties", "get_mode", "get_rng", "get_rng_state", "get_rng_state_all",
    "init", "initial_seed", "is_available", "is_bf16_supported", "is_initialized", "manual_seed", "manual_seed_all", "max_memory_allocated",
    "max_memory_reserved", "mem_get_info", "memory_allocated", "memory_reserved", "memory_stats", "reset_peak_memory_stats", "reset_stats", "rng", "save",
    "profile", "seed", "seed_all", "set_device", "set_mode", "set_rng_state", "set_rng_state_all", "set_stream", "stablehlo", "stats", "stream", "synchronize",
]  # fmt: skip

_Device = torch.device | str | int | None


def _index(device: _Device) -> int:
    """The number of a device given in any of PyTorch's ways; the current one where none is given."""
    if device is None:
        return current_device()
    if isinstance(device, int):
        return device if device >= 0 else current_device()
    device = torch.device(device)
    if device.type != "tern":
        raise ValueError(coded("TERN-ARGUMENT", f"Expected a tern device, but got: {device}"))
    return current_device() if device.index is None else device.index


# ---- devices ----
def is_available() -> bool:
    """Whether there is a tern device. Never raises and opens nothing."""
    return torch._C._accelerator_getAccelerator().type == "tern" and device_count() > 0


_initialized = True  # torch.utils.checkpoint saves the random state only where a device module says so


def is_initialized() -> bool:
    return True


def init() -> None:
    """Devices open on first use; there is nothing to do before."""


def device_count() -> int:
    """How many devices there are: 0 where TERN_DEVICE names none (torch.tern.get_device_name() says why)."""
    try:
        return _C.device_count()
    except (RuntimeError, ValueError):
        return 0


def current_device() -> int:
    return torch._C._accelerator_getDeviceIndex()


def set_device(device: _Device) -> None:
    torch._C._accelerator_setDeviceIndex(_index(device))


class device(contextlib.ContextDecorator):
    """Makes a device the current one for the length of a `with`."""

    def __init__(self, device: _Device):
        self.index = _index(device)

    def __enter__(self) -> "device":
        self.before = current_device()
        set_device(self.index)
        return self

    def __exit__(self, *exception: Any) -> None:
        set_device(self.before)


@dataclasses.dataclass(frozen=True)
class DeviceProperties:
    name: str  # "cpu" for the embedded engine, else the plug-in's
    platform: str
    total_memory: int  # bytes; 0 where the backend does not say
    host_addressable: bool  # a fallback copies nothing
    static_shapes: bool  # compiles for each shape
    has_f64: bool
    has_i64: bool
    has_complex: bool


def get_device_properties(device: _Device = None) -> DeviceProperties:
    info = _C.device_info(_index(device))
    return DeviceProperties(total_memory=info.pop("memory_limit"), **info)


def get_device_name(device: _Device = None) -> str:
    properties = get_device_properties(device)
    return f"{properties.name} ({properties.platform})" if properties.platform else properties.name


def get_device_capability(device: _Device = None) -> dict[str, Any]:
    return dataclasses.asdict(get_device_properties(device))


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


def current_stream(device: _Device = None) -> Stream:
    return torch._C._accelerator_getStream(_index(device))


def default_stream(device: _Device = None) -> Stream:
    # Stream 0 of each device is its default.
    return Stream(stream_id=0, device_index=_index(device), device_type=current_stream(device).device_type)


def set_stream(stream: Stream) -> None:
    torch._C._accelerator_setStream(stream)


def stream(stream: Stream | None) -> Any:
    """Makes a stream the current one for the length of a `with`. Streams are labels: each device runs its work in order."""
    return stream if stream is not None else contextlib.nullcontext()


# ---- random numbers ----
def manual_seed(seed: int) -> None:
    """Seeds the current device."""
    _C.random_set(current_device(), int(seed) & 0xFFFF_FFFF_FFFF_FFFF, 0)


def manual_seed_all(seed: int) -> None:
    """Seeds every device; torch.manual_seed calls this. Opens none: the seed is applied when a device is opened."""
    for index in range(device_count()):
        _C.random_set(index, int(seed) & 0xFFFF_FFFF_FFFF_FFFF, 0)


def seed() -> None:
    """Seeds the current device with a number from the system."""
    manual_seed(torch.Generator().seed())


def seed_all() -> None:
    manual_seed_all(torch.Generator().seed())


def initial_seed() -> int:
    return _C.random_get(current_device())[0]


def get_rng_state(device: _Device = "tern") -> torch.Tensor:
    """The state of the device's stream as bytes on the CPU: 16, the seed and the offset; under `rng("cpu")` that of PyTorch's CPU generator."""
    return torch.frombuffer(bytearray(_C.random_state_get(_index(device))), dtype=torch.uint8)


def set_rng_state(new_state: torch.Tensor, device: _Device = "tern") -> None:
    if new_state.dtype != torch.uint8:
        raise ValueError(coded("TERN-ARGUMENT", f"the state of a tern device is a tensor of bytes (torch.uint8), as get_rng_state() gives, not of {new_state.dtype}"))
    _C.random_state_set(_index(device), new_state.cpu().numpy().tobytes())


def get_rng_state_all() -> list[torch.Tensor]:
    return [get_rng_state(index) for index in range(device_count())]


def set_rng_state_all(new_states: list[torch.Tensor]) -> None:
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


class rng:
    """Whose random numbers are drawn: "tern" (the device's own Philox streams, the default) or "cpu" (PyTorch's CPU generator and kernels, number by number, so that
    a run can be compared with one on the CPU to the last dropout mask; slow, each draw goes through the host and counts in stats()["host_draws"]). Generators made with
    torch.Generator("tern") then draw what torch.Generator("cpu") with the same seed draws. Called, it stays; as a context manager it holds for the length of
    the `with`, and the innermost wins. Like set_mode it is process-wide."""

    def __init__(self, stream: str):
        self.before = _C.get_rng()
        _C.set_rng(stream)

    def __enter__(self) -> "rng":
        return self

    def __exit__(self, *exception: Any) -> None:
        _C.set_rng(self.before)


def get_rng() -> str:
    return _C.get_rng()


# ---- memory, in bytes ----
def empty_cache() -> None:
    torch.accelerator.empty_cache()


def memory_stats(device: _Device = None) -> dict[str, Any]:
    return torch.accelerator.memory_stats(_index(device))


def memory_allocated(device: _Device = None) -> int:
    return torch.accelerator.memory_allocated(_index(device))


def max_memory_allocated(device: _Device = None) -> int:
    return torch.accelerator.max_memory_allocated(_index(device))


def memory_reserved(device: _Device = None) -> int:
    return torch.accelerator.memory_reserved(_index(device))


def max_memory_reserved(device: _Device = None) -> int:
    return torch.accelerator.max_memory_reserved(_index(device))


def reset_peak_memory_stats(device: _Device = None) -> None:
    torch.accelerator.reset_peak_memory_stats(_index(device))


def mem_get_info(device: _Device = None) -> tuple[int, int]:
    """Free and total."""
    return torch.accelerator.get_memory_info(_index(device))


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
    """Counters since the last reset: operations recorded (nodes), programs run, compiled, loaded from disk and cached, fallbacks to PyTorch's CPU kernels; and what is alive."""
    return _C.stats()


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
    """(operator, line, count) of the operators that PyTorch's CPU kernels served."""
    return _C.fallbacks()


def profile() -> Any:
    """`with torch.tern.profile() as p:` notes each kernel that runs; then p.rows(), p.table(), p.html(). See torch_tern.profile."""
    from torch_tern.profile import Profile

    return Profile()


def reset_stats() -> None:
    """Sets the counters of stats() to zero; what is alive stays."""
    _C.reset_stats()
