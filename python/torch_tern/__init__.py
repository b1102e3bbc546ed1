"""tern: a native PyTorch device for whatever chip is at hand.

`import torch_tern` registers the device "tern"; `torch.tern` then holds what PyTorch's device modules hold. PyTorch's autoload (the entry point group
torch.backends) does the same without an import, but only where no other accelerator is present or TERN_DEVICE asks: a registered PrivateUse1 device always wins
torch.accelerator, and PyTorch expects one accelerator per environment. Nothing of torch is patched.
"""
import importlib.metadata
import pathlib
import pkgutil
import sys

# In a source tree the compiled module lies in build/, which is on the path as well: the package is both folders.
__path__ = pkgutil.extend_path(__path__, __name__)

_registered = globals().get("_registered", False)  # true where the package is reloaded


def _torch_is_importing() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and getattr(torch.__spec__, "_initializing", False)


# False where it is PyTorch's autoload that imports this package, true where somebody imports it by name.
_asked_for = not _torch_is_importing()


def _selection() -> tuple[str | None, str]:
    """The device that is asked for and by whom: TERN_DEVICE, or `device` of [tool.tern] in the nearest pyproject.toml (this folder's or one above); (None, why) where
    nobody asks."""
    import os

    if os.environ.get("TERN_DEVICE"):
        return os.environ["TERN_DEVICE"], "TERN_DEVICE"
    here = pathlib.Path.cwd()
    for folder in [here, *here.parents]:
        project = folder / "pyproject.toml"
        if project.is_file():
            import tomllib

            try:
                device = tomllib.loads(project.read_text()).get("tool", {}).get("tern", {}).get("device")
            except (OSError, tomllib.TOMLDecodeError) as error:
                return None, f"the default; {project} cannot be read: {error}"
            return (str(device), f"[tool.tern] device in {project}") if device else (None, f"the default; neither TERN_DEVICE nor {project} names one")
    return None, "the default; TERN_DEVICE is not set"


def _configured_device() -> str | None:
    return _selection()[0]


def _why_not() -> str | None:
    """Why the autoload leaves this process alone; None where it may register."""
    if _configured_device():
        return None
    others = sorted(e.name for e in importlib.metadata.entry_points(group="torch.backends") if not e.value.startswith("torch_tern:"))
    if others:
        return f"another device registers itself with PyTorch here ({', '.join(others)})"
    import torch

    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if accelerator is not None and accelerator.type != "tern":
        return f"this PyTorch has an accelerator of its own ({accelerator.type})"
    return None


def _autoload() -> None:
    """PyTorch calls this at the end of `import torch`."""
    reason = _why_not()
    if reason is None:
        register()
    elif not _asked_for:
        # So that an explicit `import torch_tern` later runs this file again, and registers.
        sys.modules.pop(__name__, None)


def register() -> None:
    """Registers the device "tern" with PyTorch; a second call does nothing."""
    global _registered
    if _registered:
        return
    import torch  # which may call _autoload, and that this function

    if _registered:
        return
    from torch_tern.errors import coded

    try:
        from torch_tern import _build
    except ImportError as error:
        raise ImportError(coded("TERN-BUILD", "torch_tern's compiled part is missing: in a source tree run `make build`")) from error
    if torch.__version__.split(".")[:2] != _build.TORCH.split(".")[:2]:
        raise ImportError(
            coded(
                "TERN-TORCH-VERSION",
                f"torch_tern was built for torch {_build.TORCH} and this is torch {torch.__version__}; PyTorch's C++ interface differs between minor versions. "
                f"Reinstall torch-tern, which builds for the torch it finds, or install torch {_build.TORCH}.",
            )
        )
    name = torch._C._get_privateuse1_backend_name()
    if name not in ("privateuseone", "tern"):
        raise ImportError(coded("TERN-OTHER-DEVICE", f"PyTorch has room for one device of its own making per process, and {name!r} has taken it"))

    from torch_tern import _registration

    _registration.register()
    _registered = True


if _asked_for:
    register()
