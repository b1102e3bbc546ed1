"""Inverse, hyperbolic and special functions over their whole range, and what is written as other operators (order statistics, distances, searches, pads, windows):
natively, against PyTorch CPU."""
import math

import pytest
import torch.nn.functional as F
from mpmath import mp
from operators import compare, to_tern
from test_ops_pointwise import floats

import torch

SPECIAL = {
    "asin": (torch.asin, 1), "acos": (torch.acos, 1), "atanh": (torch.atanh, 1), "asinh": (torch.asinh, 3e8), "erfc": (torch.erfc, 9), "erfinv": (torch.erfinv, 1),
    "lgamma": (torch.lgamma, 40), "digamma": (torch.digamma, 40), "sinc": (torch.sinc, 5), "mish": (F.mish, 20), "entr": (torch.special.entr, 3),
    "signbit": (torch.signbit, 2), "angle": (torch.angle, 2), "hardshrink": (F.hardshrink, 2), "softshrink": (F.softshrink, 2), "logit": (torch.logit, 1),
    "round": (lambda x: x.round(decimals=2), 3),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", SPECIAL)
def test_special(name, dtype):
    function, reach = SPECIAL[name]
    compare(function, floats(50, 9, dtype=dtype, low=-reach, high=reach, grad=name not in ("signbit", "digamma")), what=name)


@pytest.mark.parametrize("name", [name for name in SPECIAL if name != "round"])
def test_special_corners(name):
    corners = torch.tensor([0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, 1e-20, -1e-20, 1e10, -1e10, 1e38, math.inf, -math.inf, math.nan])
    if name in ("lgamma", "digamma", "sinc"):  # the sine of 1e10 pi, as far as f32 can tell
        corners = corners[corners.abs() != 1e10]
        corners = corners[corners != -1e38]
    compare(SPECIAL[name][0], corners, what=name)


# name: (mpmath's function, low, high)
TABLED = {
    "i0": (lambda x: mp.besseli(0, x), -40, 40), "i0e": (lambda x: mp.exp(-abs(x)) * mp.besseli(0, x), -90, 90),
    "i1": (lambda x: mp.besseli(1, x), -40, 40), "i1e": (lambda x: mp.exp(-abs(x)) * mp.besseli(1, x), -90, 90),
    "bessel_j0": (lambda x: mp.besselj(0, x), -40, 40), "bessel_j1": (lambda x: mp.besselj(1, x), -40, 40),
    "bessel_y0": (lambda x: mp.bessely(0, x), 0.01, 40), "bessel_y1": (lambda x: mp.bessely(1, x), 0.01, 40),
    "modified_bessel_k0": (lambda x: mp.besselk(0, x), 0.01, 40), "modified_bessel_k1": (lambda x: mp.besselk(1, x), 0.01, 40),
    "scaled_modified_bessel_k0": (lambda x: mp.exp(x) * mp.besselk(0, x), 0.01, 90), "scaled_modified_bessel_k1": (lambda x: mp.exp(x) * mp.besselk(1, x), 0.01, 90),
    "spherical_bessel_j0": (lambda x: mp.sin(x) / x, -20, 20), "erfcx": (lambda x: mp.exp(x * x) * mp.erfc(x), -5, 90),
    "log_ndtr": (lambda x: mp.log(mp.ncdf(x)), -35, 5), "ndtri": (lambda p: mp.sqrt(2) * mp.erfinv(2 * p - 1), 1e-9, 1 - 1e-9),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLED)
def test_tabled(name):
    """To the last digits of f64, where PyTorch's own have fewer: errors against the larger of the value and 1, so that zeros count as what surrounds them."""
    exact, low, high = TABLED[name]
    x = torch.linspace(low, high, 101, dtype=torch.float64)
    with mp.workdps(40):
        truth = torch.tensor([float(exact(mp.mpf(float(v)))) for v in x], dtype=torch.float64)
    error = ((getattr(torch.special, name)(to_tern(x)).cpu() - truth) / truth.abs().clamp_min(1)).abs()
    assert error.max() < 2e-14, f"{error.max()} at {x[error.argmax()]}"


@pytest.mark.parametrize("name", TABLED)
def test_tabled_corners(name):
    compare(getattr(torch.special, name), torch.tensor([0.0, 1.0, 2.0, 8.0, 0.5, 1e-20, 1e-3, math.inf, math.nan, -1.0, -math.inf] if "bessel" not in name else [0.0, 1.0, 2.0, 0.5, 1e-3, math.nan, -1.0]))
    compare(getattr(torch.special, name), torch.arange(4))


def test_trigamma():
    compare(lambda x: torch.polygamma(1, x), floats(60, low=-8, high=8, dtype=torch.float64), gradients=False)  # which is the next one
    compare(torch.digamma, floats(60, low=0.1, high=8, dtype=torch.float64, grad=True))


def test_order_of_what_is_not_a_number():
    x = torch.tensor([[3.0, math.nan, 1, 2], [math.nan] * 4, [2, 2, 1, 1]])
    compare(torch.nanmedian, x)
    compare(lambda t: torch.nanmedian(t, dim=1, keepdim=True).values, x)
    compare(lambda t: torch.mode(t, dim=1), torch.tensor([[2, 1, 2, 1, 1], [5, 4, 3, 2, 1], [7, 7, 7, 0, 0]]))
    compare(lambda t: torch.cummax(t, dim=1), torch.tensor([[1.0, 3, 3, 2], [0, math.nan, 5, math.nan]]))
    compare(lambda t: torch.cummin(t, dim=0), torch.tensor([[4, 1], [4, 2], [3, 1]]))
    compare(lambda t: torch.logcumsumexp(t, dim=0), torch.tensor([-math.inf, -1e4, 3.0, 1e4, -1e4, math.inf]))
    compare(lambda t: torch.logcumsumexp(t, dim=1), floats(3, 37, grad=True))
    compare(torch.frexp, torch.tensor([0.0, -0.0, 1.0, -3.75, 1e-42, 3e38, math.inf, math.nan]))
    compare(torch.frexp, torch.tensor([5e-324, 1e-310, -1e300, 0.1], dtype=torch.float64))


def test_pairs():
    x, y = floats(7, 5), floats(5, 7).t()
    for function in (torch.hypot, torch.logaddexp, torch.logaddexp2, torch.copysign, torch.special.xlog1py, torch.nextafter):
        grad = function is not torch.nextafter
        compare(lambda a, b: function(a, b.abs() + 0.1), x.detach().requires_grad_(grad), y.detach().requires_grad_(grad), what=function.__name__)  # noqa: B023
    ends = torch.tensor([math.inf, -math.inf, 0.0, -0.0, 1e30, math.nan])
    for function in (torch.hypot, torch.logaddexp, torch.copysign, torch.nextafter):
        compare(function, ends.unsqueeze(1), ends, what=function.__name__)


def test_losses_and_statistics():
    x, y = floats(6, 8), floats(8, 6).t()
    compare(lambda a, b: F.smooth_l1_loss(a, b, beta=0.5), x, y)
    compare(lambda a, b: F.huber_loss(a, b, delta=0.7, reduction="sum"), x, y)
    compare(torch.trace, x)
    compare(torch.median, x)
    compare(lambda a: torch.std_mean(a, dim=1), x)
    compare(lambda a: a.kthvalue(3, dim=0).values, x)
    compare(lambda a: torch.median(a, dim=1), torch.tensor([[3.0, 1, 2], [math.nan, 0, 1]]))
    compare(torch.nansum, torch.tensor([1.0, math.nan, 2.0]))
    compare(torch.count_nonzero, torch.tensor([[1, 0], [2, 3]]))


@pytest.mark.fallback  # linear algebra and trilinear interpolation may be served by the CPU's kernels
def test_linear_algebra():
    a = floats(4, 4).detach()
    spd = (a @ a.t() + 4 * torch.eye(4)).requires_grad_()
    compare(torch.linalg.cholesky, spd)
    compare(torch.linalg.det, spd)
    compare(lambda m: torch.linalg.eigh(m).eigenvalues, spd)
    compare(lambda v: F.interpolate(v, scale_factor=2, mode="trilinear"), floats(1, 2, 3, 4, 5))


def test_composed():
    x = floats(2, 3, 6, 8)
    for mode in ("reflect", "replicate"):
        compare(lambda v: F.pad(v, (2, 1, 3, 0), mode=mode), x, what=mode)  # noqa: B023
    compare(lambda v: F.fold(F.unfold(v, 3, dilation=2, padding=1, stride=2), (6, 8), 3, dilation=2, padding=1, stride=2), x)
    compare(lambda v: F.pixel_unshuffle(F.pixel_shuffle(v.reshape(2, 4, 6, 6), 2), 2), x)
    compare(lambda v: F.adaptive_max_pool2d(v, (4, 3), return_indices=True), x)
    compare(lambda v: F.adaptive_avg_pool3d(v, (2, 4, 3)), floats(2, 2, 5, 6, 7))
    compare(lambda a, b: torch.cdist(a, b, p=1.5), floats(5, 3), floats(4, 3))
    compare(lambda v: v.renorm(2, 0, 1.5), floats(4, 5))
    compare(lambda a, b: torch.linalg.cross(a, b), floats(4, 3), floats(1, 3))
    edges, values = torch.tensor([0.0, 1.0, 1.0, 2.5]), torch.tensor([-1.0, 0.0, 1.0, 2.0, 3.0, math.nan])
    for right in (False, True):
        compare(lambda e, v: torch.searchsorted(e, v, right=right), edges, values)  # noqa: B023
    compare(lambda v: torch.histc(v, 5, -1, 1), x.detach())
    compare(lambda a, b: torch.isin(a, b), torch.arange(6), torch.tensor([1, 4, 9]))
    compare(lambda v, m, s: v.masked_scatter(m, s), floats(2, 3).detach(), torch.tensor([[True, False, True], [False, True, False]]), torch.arange(4.0))


def test_out_is_refused_before_it_is_resized():
    x, index = to_tern(floats(3, 6).detach()), torch.tensor([0, 1], device="tern")
    with pytest.raises(RuntimeError, match="single memory location"):
        torch.index_select(x, 1, index, out=torch.zeros(6, device="tern").expand(2, 6))
    with pytest.raises(RuntimeError, match="dtype"):
        torch.gather(x, 1, index.expand(3, 2), out=torch.empty(3, 2, dtype=torch.float64, device="tern"))


@pytest.mark.fallback
def test_gradient_of_zero_everywhere():
    x = floats(5, 2)
    compare(torch.sgn, x)  # PyTorch makes a tensor without memory for it
    compare(F.conv2d, torch.arange(18).reshape(1, 2, 3, 3), torch.ones(1, 2, 2, 2, dtype=torch.int64))


def test_extremes_and_slices():
    """Case 13: NaN wins, a constant folds at f32's precision, a slice of a result equals the result's slice."""
    assert torch.tensor([1.0, math.nan], device="tern").max().isnan().item()
    root = torch.full((3,), 2.0, device="tern").sqrt().cpu()
    assert torch.equal(root, torch.full((3,), 2.0).sqrt())
    x = to_tern(floats(40, 30).detach())
    whole, part = torch.exp(x).cpu(), torch.exp(x)[3:17, 5:].cpu()
    assert torch.equal(whole[3:17, 5:], part)
