"""Inverse, hyperbolic and special functions over their whole range, and what is written as other operators (order statistics, distances, searches, pads, windows):
natively, against PyTorch CPU."""
import math

import pytest
import torch.nn.functional as F
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
