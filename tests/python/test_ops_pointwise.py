"""Elementwise operators against PyTorch CPU: every dtype that matters, broadcasting, promotion, strides, the in-place and out= forms, gradients."""
import pytest
import torch
import torch.nn.functional as F

from operators import assert_same, compare, to_tern


def floats(*sizes, dtype=torch.float32, low=-2.0, high=2.0, grad=True):
    generator = torch.Generator().manual_seed(sum(sizes) + len(sizes))
    return (torch.rand(sizes, generator=generator, dtype=torch.float64) * (high - low) + low).to(dtype).requires_grad_(grad)


UNARY = {
    "abs": torch.abs, "neg": torch.neg, "exp": torch.exp, "expm1": torch.expm1, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "sin": torch.sin,
    "cos": torch.cos, "erf": torch.erf, "floor": torch.floor, "ceil": torch.ceil, "round": torch.round, "trunc": torch.trunc, "sign": torch.sign,
    "relu": torch.relu, "square": torch.square, "silu": F.silu, "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "elu": F.elu,
    "leaky_relu": F.leaky_relu, "hardtanh": F.hardtanh, "softplus": F.softplus, "logsigmoid": F.logsigmoid, "mish": F.mish, "hardswish": F.hardswish,
    "isnan": torch.isnan, "isfinite": torch.isfinite, "logical_not": torch.logical_not, "clamp": lambda x: x.clamp(-1, 1),
    "clamp_min": lambda x: x.clamp_min(0.5), "pow2": lambda x: x**2, "pow3": lambda x: x**3, "mul_scalar": lambda x: x * 2.5, "rsub": lambda x: 1 - x,
    "div_scalar": lambda x: x / 3, "reciprocal_scalar": lambda x: 1 / (x + 5),
}  # fmt: skip
POSITIVE = {
    "sqrt": torch.sqrt, "rsqrt": torch.rsqrt, "log": torch.log, "log2": torch.log2, "log10": torch.log10, "log1p": torch.log1p,
    "reciprocal": torch.reciprocal, "pow_half": lambda x: x**0.5, "pow_scalar": lambda x: x**1.7, "pow_base": lambda x: 2**x,
}  # fmt: skip
BINARY = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div, "add_alpha": lambda x, y: torch.add(x, y, alpha=2.5), "maximum": torch.maximum,
    "minimum": torch.minimum, "floor_divide": torch.floor_divide, "remainder": torch.remainder, "fmod": torch.fmod, "atan2": torch.atan2, "eq": torch.eq,
    "ne": torch.ne, "lt": torch.lt, "le": torch.le, "gt": torch.gt, "ge": torch.ge, "logical_and": torch.logical_and, "logical_or": torch.logical_or,
    "where": lambda x, y: torch.where(x > 0, x, y), "lerp": lambda x, y: torch.lerp(x, y, 0.3), "addcmul": lambda x, y: torch.addcmul(x, x, y, value=0.5),
    "addcdiv": lambda x, y: torch.addcdiv(x, x, y + 5, value=0.5), "mse": lambda x, y: F.mse_loss(x, y, reduction="none"),
}  # fmt: skip
ROUNDING = {"floor", "ceil", "round", "trunc", "sign", "floor_divide", "remainder", "fmod"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("name", UNARY)
def test_unary(name, dtype):
    compare(UNARY[name], floats(3, 5, dtype=dtype), what=name)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", POSITIVE)
def test_positive(name, dtype):
    compare(POSITIVE[name], floats(3, 5, dtype=dtype, low=0.1), what=name)


@pytest.mark.parametrize("shapes", [((3, 4), (3, 4)), ((3, 4), (4,)), ((3, 1), (1, 4)), ((), (3,)), ((0, 4), (4,)), ((1,), (2, 3, 1))], ids=str)
@pytest.mark.parametrize("name", BINARY)
def test_binary(name, shapes):
    compare(BINARY[name], *(floats(*shape, grad=name not in ROUNDING) for shape in shapes), what=name)


@pytest.mark.parametrize("name", ["add", "mul", "div", "maximum", "eq", "where"])
@pytest.mark.parametrize("layout", ["transposed", "sliced", "expanded", "channels_last", "mixed"])
def test_strides(name, layout):
    x, y = floats(4, 6, grad=False), floats(4, 6, low=1, high=3, grad=False)
    if layout == "transposed":
        x, y = x.t(), y.t()
    elif layout == "sliced":
        x, y = x[::2, 1:], y[1::2, :-1]
    elif layout == "expanded":
        x = x[:1].expand(4, 6)
    elif layout == "channels_last":
        x, y = (t.reshape(1, 2, 3, 4).contiguous(memory_format=torch.channels_last) for t in (x, y))
    else:
        x = x.t().contiguous().t()
    compare(BINARY[name], x, y, what=name)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8], ids=str)
@pytest.mark.parametrize("name", ["add", "sub", "mul", "eq", "lt", "maximum", "div", "logical_and"])
def test_integers(name, dtype):
    x, y = torch.tensor([7, 5, 0, 100, 3]).to(dtype), torch.tensor([2, 3, 1, 7, 3]).to(dtype)
    compare(BINARY[name], x, y, what=name)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int8, torch.uint8], ids=str)
def test_integer_division(dtype):
    x, y = torch.tensor([7, 5, 0, 100, 3, -9, 9]).to(dtype), torch.tensor([2, 3, 1, 7, 3, 4, -4]).to(dtype)
    for operation in (torch.floor_divide, torch.remainder, torch.fmod, lambda a, b: torch.div(a, b, rounding_mode="trunc")):
        compare(operation, x, y)
        compare(operation, x, y[1])
    compare(lambda a: torch.remainder(7, a), y)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        (to_tern(x) // to_tern(y * 0)).cpu()


@pytest.mark.parametrize("operation", [torch.bitwise_and, torch.bitwise_or, torch.bitwise_xor], ids=lambda f: f.__name__)
def test_bits(operation):
    compare(operation, torch.tensor([12, 10, -1]), torch.tensor([10, 6, 5]))
    compare(operation, torch.tensor([True, False, True]), torch.tensor([True, True, False]))


PROMOTIONS = [
    (torch.float32, torch.int64), (torch.int64, torch.float32), (torch.bfloat16, torch.float32), (torch.float16, torch.bfloat16), (torch.bool, torch.int32),
    (torch.uint8, torch.int8), (torch.int32, torch.int64), (torch.float32, torch.float64), (torch.bool, torch.float32),
]  # fmt: skip


@pytest.mark.parametrize("types", PROMOTIONS, ids=str)
def test_promotion(types):
    x, y = torch.tensor([1, 0, 1, 1]).to(types[0]), torch.tensor([1, 1, 1, 0]).to(types[1])
    for operation in (torch.add, torch.mul, torch.div, torch.eq, torch.maximum):
        compare(operation, x, y, what=operation.__name__)
    compare(lambda a, b: a[0] + b, x, y)
    compare(lambda a: a * 2, x)
    compare(lambda a: a * 2.5, x)
    compare(lambda a: a + True, x)


@pytest.mark.parametrize("name", ["add", "mul", "sub", "div"])
def test_in_place(name):
    compare(lambda x, y: getattr(x, name + "_")(y), floats(3, 4, grad=False), floats(4, grad=False))
    compare(lambda x: getattr(x, name + "_")(3), floats(3, 4, grad=False))
    compare(lambda x, y: getattr(x[:, 1:], name + "_")(y), floats(3, 4, grad=False), floats(3, 3, grad=False))
    with pytest.raises(RuntimeError, match="output with shape|doesn't match the broadcast shape"):
        getattr(torch.ones(3, device="tern"), name + "_")(torch.ones(2, 3, device="tern"))


def test_in_place_casts():
    compare(lambda x: x.add_(1.5), floats(3, grad=False, dtype=torch.bfloat16))
    with pytest.raises(RuntimeError, match="can't be cast"):
        torch.ones(2, dtype=torch.int64, device="tern").add_(1.5)


def test_out():
    x, y = floats(3, 4, grad=False), floats(4, grad=False)
    for out in (torch.empty(3, 4), torch.empty(0), torch.empty(4, 3).t(), torch.empty(3, 4, dtype=torch.float64)):
        compare(lambda a, b, o: torch.add(a, b, out=o), x, y, out)


def test_fills_and_casts():
    compare(lambda x: x.zero_(), floats(3, grad=False))
    compare(lambda x: x.fill_(2.5), floats(3, grad=False))
    compare(lambda x: x.t().fill_(2), floats(3, 2, grad=False))
    for dtype in (torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int8, torch.bool):
        compare(lambda x: x.to(dtype), floats(3, 4, low=0))  # noqa: B023
        compare(lambda x: x.to(dtype).to(torch.float32), torch.tensor([0, 1, 2, 100]))  # noqa: B023
    compare(lambda x: x.clone(), floats(3, 4).t())
    compare(lambda x: x.contiguous(), floats(3, 4).t())


def test_special_values():
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e-45, 3.4e38])
    for name in ("abs", "exp", "tanh", "sigmoid", "relu", "floor", "sign", "isnan", "isfinite", "clamp", "square"):
        compare(UNARY[name], x, what=name)
    for name in ("add", "mul", "div", "maximum", "minimum", "eq", "lt"):
        compare(BINARY[name], x, x.flip(0), what=name)
    assert torch.tensor([1, float("nan")], device="tern").max().isnan()


def test_wrapped_numbers_are_weak():
    x = to_tern(torch.ones(3, dtype=torch.bfloat16))
    assert (x + torch.tensor(1.5)).dtype == torch.bfloat16
    assert (x * torch.tensor(2.0, dtype=torch.float64)).dtype == torch.bfloat16
    assert_same(to_tern(torch.ones(3)) * torch.tensor(2.0), torch.ones(3) * 2)
