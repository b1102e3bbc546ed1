"""Which device: counting them, choosing one, and reading a device given in any of PyTorch's ways."""
import contextlib
from typing import Any

import torch

from torch_tern import _C
from torch_tern.errors import coded

__all__ = ["current_device", "device", "device_count", "device_of", "is_available", "set_device"]

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


def is_available() -> bool:
    """Whether there is a tern device. Never raises and opens nothing."""
    return torch._C._accelerator_getAccelerator().type == "tern" and device_count() > 0


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
    """Makes a device the current one for the length of a `with`. None or a negative number: nothing happens."""

    def __init__(self, device: _Device):
        self.index = -1 if device is None or (isinstance(device, int) and device < 0) else _index(device)

    def __enter__(self) -> "device":
        self.before = current_device()
        if self.index >= 0:
            set_device(self.index)
        return self

    def __exit__(self, *exception: Any) -> None:
        set_device(self.before)


class device_of(device):
    """Makes the device of a tensor (or storage) the current one for the length of a `with`; one that is not on tern changes nothing."""

    def __init__(self, obj: Any):
        super().__init__(obj.device.index if obj.device.type == "tern" else None)
