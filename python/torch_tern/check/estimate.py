"""Seconds from counts: the compiler's own estimate where it has one, else a roofline."""
from torch_tern.check.targets import Chip

# What well-tuned steps reach of the peaks, at the lower end: the other end of the range that is shown. An assumption, not a measurement.
REACHED = 0.4


def matrix_rate(chip: Chip, dtype: str) -> float:
    """Floating-point operations a second of one device on matrices of the dtype. f32 is f32: no tf32, no single bf16 pass."""
    bf16 = chip.bf16_tflops * 1e12
    f32 = chip.f32_tflops * 1e12 if chip.f32_tflops else bf16 / 6
    rate = {"bf16": bf16, "f16": bf16, "f64": f32 / 2}.get(dtype, f32)
    return rate / chip.devices


def roofline(chip: Chip, contractions: dict[str, float], traffic: float) -> tuple[float, float]:
    """The least seconds that one device's arithmetic and its memory traffic take: the longer of the two bounds the step."""
    return sum(flops / matrix_rate(chip, dtype) for dtype, flops in contractions.items()), traffic / (chip.bandwidth_gbps * 1e9 / chip.devices)


def all_reduce_seconds(chip: Chip, chips: int, bytes: float) -> float | None:
    """The least seconds of summing `bytes` over a ring of chips: each sends and receives 2 (n-1)/n of them. None where the link is unknown."""
    if chips < 2:
        return 0.0
    if not chip.link_gbps:
        return None
    return 2 * (chips - 1) / chips * bytes / (chip.link_gbps / 2 * 1e9)
