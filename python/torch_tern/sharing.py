"""Tensors between processes. The memory of a tern tensor belongs to its process (a chip's, or plain memory that other processes do not map), so sending one through
torch.multiprocessing is refused in words, where PyTorch would complain of a file descriptor."""
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch.multiprocessing.reductions import reduce_storage

from torch_tern.errors import coded


def _reduce_storage(storage: torch.UntypedStorage) -> Any:
    if storage.device.type == "tern":
        raise RuntimeError(
            coded("TERN-STORAGE", "a tern tensor cannot be shared with another process: send tensor.cpu(), whose memory is shared, and move it to tern where it is received")
        )
    return reduce_storage(storage)


def register() -> None:
    """PyTorch's own entry in multiprocessing's table of reducers, with tern's storages taken out."""
    ForkingPickler.register(torch.UntypedStorage, _reduce_storage)
