"""What register() does once: settings, operators, the name "tern", the module torch.tern, the end of steps, the end of the process."""
import atexit
import os
import pathlib
import sys

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from torch_tern import _C, _configured_device
from torch_tern.plugins import plugin_path


def _end_of_step(optimizer, args, kwargs) -> None:
    """The end of an optimizer's step is where a program is cut: the same place in every step."""
    _C.flush()


def register() -> None:
    device = _configured_device()
    if device:
        _C.set_setting("TERN_DEVICE", device)
    _C.set_setting("TERN_PLUGIN_PATH", plugin_path())

    libraries = [str(pathlib.Path(torch.__file__).parent) + os.sep, str(pathlib.Path(__file__).parent) + os.sep]
    torch.utils.rename_privateuse1_backend("tern")
    _C.register(tuple(libraries))

    from torch_tern import device as module
    from torch_tern import sharing

    torch._register_device_module("tern", module)
    for name in ("amp", "nvtx", "random", "streams"):  # `from torch.tern.amp import autocast`
        sys.modules[f"torch.tern.{name}"] = getattr(module, name)
    torch.utils.generate_methods_for_privateuse1_backend()
    register_optimizer_step_post_hook(_end_of_step)
    sharing.register()
    atexit.register(_C.exit)
