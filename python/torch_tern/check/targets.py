"""What `tern check --target` takes: chips of hardware.toml, with the shape of a slice where there are several."""
import dataclasses
import functools
import math
import pathlib
import tomllib

from torch_tern import plugins
from torch_tern.errors import coded


@dataclasses.dataclass(frozen=True)
class Chip:
    """A row of hardware.toml."""

    id: str
    name: str
    bf16_tflops: float
    memory_gb: float
    bandwidth_gbps: float
    verified: str
    source: list[str]
    f32_tflops: float | None = None
    link_gbps: float | None = None
    devices: int = 1
    package: str = ""
    topology: str = ""
    shape: str = ""
    cuda: tuple = ()
    recalled: tuple = ()


@functools.lru_cache
def chips() -> dict[str, Chip]:
    table = tomllib.loads((pathlib.Path(__file__).parents[1] / "hardware.toml").read_text())
    return {row["id"]: Chip(**row) for row in table["chip"]}


@dataclasses.dataclass(frozen=True)
class Target:
    """A chip, or a slice of several, and the compiler for it."""

    name: str  # as asked for: "tpu:v6e:2x2"
    chip: Chip
    shape: str  # "2x2"; "" for one chip
    chips: int
    plugin: str | None  # the compiler's file; None: no compiler here
    missing: str  # what to install to have one, or why there is none

    @property
    def topology(self) -> str:
        """How the compiler calls it."""
        shape = self.shape or self.chip.shape
        return f"{self.chip.topology}:{shape}" if self.chip.topology else f"1x1x{self.chips}"

    @property
    def config(self) -> str | None:
        """What XLA's GPU compiler must be told of a chip that it cannot ask (a GpuTargetConfigProto as text)."""
        if not self.chip.cuda:
            return None
        cores, lanes, clock, cache, memory, shared, shared_block, major, minor = self.chip.cuda
        info = {
            "threads_per_block_limit": 1024, "threads_per_warp": 32, "shared_memory_per_block": 49152, "shared_memory_per_core": shared,
            "threads_per_core_limit": 1536 if (major, minor) in ((8, 6), (8, 9)) else 2048, "core_count": cores, "fpus_per_core": lanes,
            "block_dim_limit_x": 2147483647, "block_dim_limit_y": 65535, "block_dim_limit_z": 65535,
            "memory_bandwidth": int(self.chip.bandwidth_gbps * 1e9), "l2_cache_size": cache, "clock_rate_ghz": clock, "device_memory_size": memory,
            "shared_memory_per_block_optin": shared_block, "registers_per_core_limit": 65536, "registers_per_block_limit": 65536,
        }  # fmt: skip
        numbers = " ".join(f"{key}: {value}" for key, value in info.items())
        return (
            f"gpu_device_info {{ {numbers} cuda_compute_capability {{ major: {major} minor: {minor} }} }} "
            'platform_name: "CUDA" dnn_version_info { major: 9 minor: 8 patch: 0 } runtime_version { major: 12 minor: 9 patch: 0 } '
            f'device_description_str: "{self.chip.name}"'
        )

    @property
    def memory_limit(self) -> int:
        """Bytes of one device, where the compiler does not say."""
        return self.chip.cuda[4] if self.chip.cuda else int(self.chip.memory_gb * 1e9 / self.chip.devices)


def _compiler(chip: Chip) -> tuple[str | None, str]:
    name = chip.id.split(":")[0]
    if not (chip.topology or chip.cuda):
        return None, "tern cannot drive its compiler without the chip" if chip.package else "no PJRT plug-in is known for it"
    for plugin in plugins.discover():
        if plugin.name == name:
            return plugin.path, plugin.missing
    return None, f"pip package {chip.package} not installed"


def parse(text: str) -> Target:
    """A target from its name. ValueError where there is none such, with those there are."""
    known = chips()
    parts = text.split(":")
    chip = known.get(":".join(parts[:2]))
    if chip is None or len(parts) > 3:
        raise ValueError(coded("TERN-ARGUMENT", f"no target {text!r}: it is one of {', '.join(known)}, with a slice behind it where there are several chips (tpu:v5e:2x2, cuda:h100:8)"))
    shape = parts[2] if len(parts) == 3 else ""
    try:
        count = math.prod(int(n) for n in shape.split("x")) if shape else 1
    except ValueError:
        raise ValueError(coded("TERN-ARGUMENT", f"target {text!r}: the slice is numbers with x between, as in tpu:v5e:2x2")) from None
    plugin, missing = _compiler(chip)
    return Target(text, chip, shape, count, plugin, missing)


def listing() -> list[dict]:
    """For `tern check --list`: every chip, what compiles for it, and whether that is here."""
    rows = []
    for chip in chips().values():
        target = parse(chip.id)
        rows.append({
            "target": chip.id, "name": chip.name, "package": chip.package, "compiler": "here" if target.plugin else "",
            "missing": "" if target.plugin else target.missing, "bf16_tflops": chip.bf16_tflops, "memory_gb": chip.memory_gb,
            "bandwidth_gbps": chip.bandwidth_gbps, "slices": "x".join("N" * max(1, chip.shape.count("x") + 1)) if chip.topology else ("N" if chip.cuda else ""),
            "verified": chip.verified,
        })  # fmt: skip
    return rows
