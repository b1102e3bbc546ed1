"""Lightning on tern: `Trainer(accelerator="tern", strategy="single_tern", devices=1)` after `import torch_tern.lightning`, by Lightning's registry of accelerators. Needs the package lightning."""
from typing import Any

import torch
from lightning.pytorch.accelerators import Accelerator, AcceleratorRegistry
from lightning.pytorch.strategies import SingleDeviceStrategy, StrategyRegistry
from torch_tern.errors import coded


class TernAccelerator(Accelerator):
    """The device tern, one process on one device."""

    def setup_device(self, device: torch.device) -> None:
        if device.type != "tern":
            raise ValueError(coded("TERN-ARGUMENT", f"Device should be tern, got {device} instead."))
        torch.tern.set_device(device)

    def teardown(self) -> None:
        torch.tern.empty_cache()

    def get_device_stats(self, device: torch.device | str | int) -> dict[str, Any]:
        """Memory figures in bytes."""
        return torch.tern.memory_stats(device)

    @staticmethod
    def parse_devices(devices: int | str | list[int]) -> list[int]:
        """Numbers of devices: 2 or "2" is the first two, "auto" or -1 all of them, a list those in it."""
        if isinstance(devices, (list, tuple)):
            return list(devices)
        count = torch.tern.device_count() if devices in ("auto", -1, "-1") else int(devices)
        return list(range(count))

    @staticmethod
    def get_parallel_devices(devices: list[int]) -> list[torch.device]:
        return [torch.device("tern", index) for index in devices]

    @staticmethod
    def auto_device_count() -> int:
        return torch.tern.device_count()

    @staticmethod
    def is_available() -> bool:
        return torch.tern.is_available()

    @staticmethod
    def name() -> str:
        return "tern"

    @classmethod
    def register_accelerators(cls, registry: Any) -> None:
        registry.register("tern", cls, description=cls.__doc__)


if "tern" not in AcceleratorRegistry:
    TernAccelerator.register_accelerators(AcceleratorRegistry)
    StrategyRegistry.register("single_tern", SingleDeviceStrategy, description="one tern device", device=torch.device("tern", 0), accelerator=TernAccelerator())
