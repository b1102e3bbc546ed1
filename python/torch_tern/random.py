"""The random streams of the device "tern", as torch.cuda.random has them. Each device draws from one Philox stream: a seed and an offset."""
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from torch_tern import _C
from torch_tern.current import _Device, _index, current_device, device_count
from torch_tern.errors import coded

__all__ = ["default_generators", "get_rng", "get_rng_state", "get_rng_state_all", "initial_seed", "manual_seed", "manual_seed_all", "rng", "seed", "seed_all", "set_rng_state", "set_rng_state_all"]

_WORD = 0xFFFF_FFFF_FFFF_FFFF


class _DefaultGenerators(Sequence[torch.Generator]):
    def __len__(self) -> int:
        return device_count()

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(coded("TERN-NO-DEVICE", f"there is no device tern:{index}; torch.tern.device_count() is {len(self)}"))
        return torch.ops.tern.default_generator(index % len(self))


# One torch.Generator for each device: the stream that manual_seed seeds.
default_generators = _DefaultGenerators()


def manual_seed(seed: int) -> None:
    """Seeds the current device. Does nothing where there is none."""
    if device_count():
        _C.random_set(current_device(), int(seed) & _WORD, 0)


def manual_seed_all(seed: int) -> None:
    """Seeds every device; torch.manual_seed calls this. Opens none: the seed is applied when a device is opened."""
    for index in range(device_count()):
        _C.random_set(index, int(seed) & _WORD, 0)


def seed() -> None:
    """Seeds the current device with a number from the system."""
    manual_seed(torch.Generator().seed())


def seed_all() -> None:
    """Seeds every device with one number from the system."""
    manual_seed_all(torch.Generator().seed())


def initial_seed() -> int:
    """The seed of the current device."""
    return _C.random_get(current_device())[0]


def get_rng_state(device: _Device = "tern") -> torch.Tensor:
    """The state of the device's stream as bytes on the CPU: 16, the seed and the offset; under `rng("cpu")` that of PyTorch's CPU generator."""
    return torch.frombuffer(bytearray(_C.random_state_get(_index(device))), dtype=torch.uint8)


def set_rng_state(new_state: torch.Tensor, device: _Device = "tern") -> None:
    """Goes on from a state that get_rng_state gave."""
    if new_state.dtype != torch.uint8:
        raise ValueError(coded("TERN-ARGUMENT", f"the state of a tern device is a tensor of bytes (torch.uint8), as get_rng_state() gives, not of {new_state.dtype}"))
    _C.random_state_set(_index(device), new_state.cpu().numpy().tobytes())


def get_rng_state_all() -> list[torch.Tensor]:
    return [get_rng_state(index) for index in range(device_count())]


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
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
