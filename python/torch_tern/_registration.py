"""What register() does once: settings, operators, the name "tern", the module torch.tern, the end of steps, the end of the process."""
import atexit
import importlib.metadata
import importlib.util
import os
import pathlib

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from torch_tern import _C, _configured_device


def _plugin_library(package: str) -> str | None:
    """The shared library of a PJRT plug-in package, found without importing the package."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    for folder in spec.submodule_search_locations:
        for pattern in ("*pjrt*.so", "libtpu.so", "*plugin*.so"):
            for path in sorted(pathlib.Path(folder).rglob(pattern)):
                return str(path)
    return None


def _plugin_path() -> str:
    """TERN_PLUGIN_PATH, then every installed package that offers a PJRT plug-in, as name=path pairs."""
    pairs = [os.environ["TERN_PLUGIN_PATH"]] if os.environ.get("TERN_PLUGIN_PATH") else []
    rows = [(e.name, e.value) for group in ("xla_plugins", "jax_plugins") for e in importlib.metadata.entry_points(group=group)]
    for name, package in sorted(set(rows)) + [("libtpu", "libtpu")]:
        try:
            library = _plugin_library(package.split(":")[0])
        except (ImportError, ValueError):
            continue
        if library:
            short = name.removesuffix("_pjrt").replace("_", "-")
            pairs.append(f"{short}={library}")
    return ":".join(pairs)


def _end_of_step(optimizer, args, kwargs) -> None:
    """The end of an optimizer's step is where a program is cut: the same place in every step."""
    _C.flush()


def register() -> None:
    device = _configured_device()
    if device:
        _C.set_setting("TERN_DEVICE", device)
    _C.set_setting("TERN_PLUGIN_PATH", _plugin_path())

    libraries = [str(pathlib.Path(torch.__file__).parent) + os.sep, str(pathlib.Path(__file__).parent) + os.sep]
    torch.utils.rename_privateuse1_backend("tern")
    _C.register(tuple(libraries))

    from torch_tern import device as module

    torch._register_device_module("tern", module)
    torch.utils.generate_methods_for_privateuse1_backend()
    register_optimizer_step_post_hook(_end_of_step)
    atexit.register(_C.exit)
