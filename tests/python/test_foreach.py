"""torch._foreach_*, the loops over tensors that optimizers are made of: PyTorch's own samples (foreach_*_op_db) on tern against the CPU, and wrong lists."""
import itertools

import pytest
import torch
from torch.testing._internal import common_methods_invocations as database

OPERATORS = [op for name in ("unary", "binary", "pointwise", "reduce", "other") for op in getattr(database, f"foreach_{name}_op_db")]
SAMPLES = 60  # the most of an operator and dtype


def fresh(value, device):
    """A copy on the device, its lists' structure kept."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone().to(device)
    return type(value)(fresh(v, device) for v in value) if isinstance(value, (list, tuple)) else value


def outcome(function, sample, device):
    """The resulting tensors' dtype, strides and values, or the error's type."""
    first = fresh(sample.input, device)
    try:
        result = function(first, *(fresh(a, device) for a in sample.args), **sample.kwargs)
    except Exception as error:  # noqa: BLE001  whatever the CPU raises is to be raised
        return type(error)
    return [(t.dtype, t.stride(), t.cpu()) for t in (first if result is None else result)]


def agree(one, other):
    if isinstance(one, type) or isinstance(other, type):
        return one is other
    return all(a[:2] == b[:2] and torch.allclose(a[2], b[2], rtol=1e-5, atol=1e-6, equal_nan=True) for a, b in zip(one, other, strict=True))


@pytest.mark.fallback  # pow of integers, for one; an element that a row cannot serve is served as the plain operator would be
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", (torch.float32, torch.int64), ids=str)
@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.name)
def test_pytorchs_samples(op, dtype):
    if dtype not in op.dtypes:
        return
    for sample in itertools.islice(op.sample_inputs("cpu", dtype), SAMPLES):
        for function in filter(None, (op.method_variant, op.inplace_variant)):
            one, other = outcome(function, sample, "cpu"), outcome(function, sample, "tern")
            assert agree(one, other), f"{function.__name__} {sample.args} {sample.kwargs}:\n{one}\n{other}"


def test_lists_that_do_not_fit_raise_as_on_the_cpu():
    for device in ("cpu", "tern"):
        x = [torch.ones(2, device=device) for _ in range(3)]
        with pytest.raises(RuntimeError, match="same number"):
            torch._foreach_add(x, x[:2])
        with pytest.raises(RuntimeError, match="at least one tensor"):
            torch._foreach_add([], 1.0)


def test_an_element_that_fails_names_itself():
    x = [torch.ones(2, device="tern"), torch.ones(3, device="tern")]
    with pytest.raises(RuntimeError, match=r"size of tensor a \(3\) must match"):
        torch._foreach_add(x, [torch.ones(2, device="tern"), torch.ones(4, device="tern")])
