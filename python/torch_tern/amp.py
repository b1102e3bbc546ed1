"""torch.tern.amp: mixed precision as torch.cuda.amp spells it. The device-neutral spelling, torch.amp with "tern", is the same code."""
import functools
from typing import Any

import torch
from torch.amp import custom_bwd as _custom_bwd
from torch.amp import custom_fwd as _custom_fwd

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]


class autocast(torch.amp.autocast):
    """torch.amp.autocast for "tern". dtype: bfloat16 or float16 (the default, as torch.cuda.amp's)."""

    def __init__(self, enabled: bool = True, dtype: torch.dtype | None = None, cache_enabled: bool = True):
        super().__init__("tern", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)


class GradScaler(torch.amp.GradScaler):
    """torch.amp.GradScaler for "tern"; the options are the same."""

    def __init__(self, *options: Any, **named: Any):
        super().__init__("tern", *options, **named)


custom_fwd = functools.partial(_custom_fwd, device_type="tern")
custom_bwd = functools.partial(_custom_bwd, device_type="tern")
