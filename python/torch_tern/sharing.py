"""Memory in common with others.

Other libraries, on the embedded engine, whose memory is the host's: cpu_view() and from_dlpack() copy nothing. A device runs behind the program, so both sides take turns, as with
CUDA's unified memory: call torch.tern.synchronize() before the memory is looked at or written outside tern.

Other processes: the memory of a tern tensor belongs to its process (a chip's, or plain memory that other processes do not map), so sending one through torch.multiprocessing is
refused in words, where PyTorch would complain of a file descriptor."""
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch.multiprocessing.reductions import reduce_storage

from torch_tern import _C
from torch_tern.current import _Device, _index
from torch_tern.errors import coded


# ---- other libraries ----
def cpu_view(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's memory as a CPU tensor of the same shape, strides and dtype; nothing is copied. For numpy (cpu_view(x).numpy()), DLPack, safetensors and whatever else takes CPU
    tensors.

    Waits for what is pending on the tensor. What tern writes later is there once torch.tern.synchronize() has returned, and what is written here is seen by the operations that
    follow. While the view lives, each program that writes the tensor copies its result into this memory; the memory outlives the tensor.

    BufferError where the tensor requires a gradient (detach() it) or is a conjugate or negative view (resolve_conj(), resolve_neg()); NotImplementedError on a device whose memory the
    host cannot address (use cpu())."""
    if tensor.requires_grad:
        raise BufferError(coded("TERN-ARGUMENT", "a tensor that requires a gradient cannot be looked at from outside: use tensor.detach()"))
    if tensor.is_conj() or tensor.is_neg():
        raise BufferError(coded("TERN-ARGUMENT", "a conjugate or negative view cannot be looked at from outside: use tensor.resolve_conj() or resolve_neg()"))
    return torch.ops.tern.cpu_view(tensor)


def from_dlpack(source: Any, device: _Device = None, copy: bool | None = None) -> torch.Tensor:
    """A tern tensor of whatever torch.from_dlpack takes and of CPU tensors: over the same memory where the device can use it (copy=None or False), else copied (copy=None or True).

    With copy=False, BufferError where a copy is needed. What is shared stays so: call torch.tern.synchronize() before the source is read or written again."""
    tensor = source if isinstance(source, torch.Tensor) else torch.from_dlpack(source)
    target = torch.device("tern", _index(device))
    if tensor.device == target:
        return tensor.clone() if copy else tensor.detach()
    if copy is not True and tensor.device.type == "cpu" and tensor.layout == torch.strided and _C.device_info(target.index)["host_addressable"]:
        return torch.ops.tern.from_cpu(tensor.detach().resolve_conj().resolve_neg(), target)
    if copy is False:
        raise BufferError(coded("TERN-ARGUMENT", f"{target} cannot use the memory of a tensor on {tensor.device} without a copy: leave copy out, or say copy=True"))
    return tensor.detach().to(target, copy=True)


# ---- other processes ----


def _reduce_storage(storage: torch.UntypedStorage) -> Any:
    if storage.device.type == "tern":
        raise RuntimeError(
            coded("TERN-STORAGE", "a tern tensor cannot be shared with another process: send tensor.cpu(), whose memory is shared, and move it to tern where it is received")
        )
    return reduce_storage(storage)


def register() -> None:
    """PyTorch's own entry in multiprocessing's table of reducers, with tern's storages taken out."""
    ForkingPickler.register(torch.UntypedStorage, _reduce_storage)
