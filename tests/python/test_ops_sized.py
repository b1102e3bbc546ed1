"""Operators whose results' sizes depend on data: computed on the device, their count read; and their errors."""
import pytest
import torch
from operators import compare

NAN = float("nan")


def tensors():
    generator = torch.Generator().manual_seed(0)
    yield from (torch.tensor([NAN, 1, NAN, -0.0, 0.0, NAN]), torch.tensor([0.0, -0.0, 0.0, NAN]), torch.tensor(3.0), torch.tensor(0.0))
    yield torch.randint(5, (4, 6), generator=generator)
    yield torch.randint(2, (20,), generator=generator).bool()
    yield torch.randint(3, (7, 3), generator=generator).float().t()
    yield torch.randint(2, (5, 2, 2), generator=generator).to(torch.uint8)
    yield torch.randint(2, (30, 4), generator=generator).bfloat16()


@pytest.mark.parametrize("x", list(tensors()), ids=lambda x: f"{x.dtype}-{tuple(x.shape)}")
def test_unique(x):
    for inverse in (False, True):
        for counts in (False, True):
            compare(lambda v: torch._unique2(v, True, inverse, counts), x)
            compare(lambda v: torch.ops.aten.unique_consecutive(v, inverse, counts), x)
            for dim in range(x.dim()):
                compare(lambda v: torch.ops.aten.unique_consecutive(v, inverse, counts, dim), x)
                compare(lambda v: torch.ops.aten.unique_dim_consecutive(v, dim, inverse, counts), x)
                if not x.is_floating_point() or not x.isnan().any():
                    compare(lambda v: torch.ops.aten.unique_dim(v, dim, True, inverse, counts), x)


@pytest.mark.parametrize("x", [*tensors(), torch.zeros(3, 4), torch.ones(2, 0, 3)], ids=lambda x: f"{x.dtype}-{tuple(x.shape)}")
def test_nonzero(x):
    compare(torch.nonzero, x)
    compare(lambda v: torch.nonzero(v, as_tuple=True), x)
    compare(lambda v: torch.nonzero(v, out=torch.empty(0, dtype=torch.int64, device=v.device)), x, strides=False)


def test_masks():
    x, columns, rows = torch.arange(24.0).view(2, 3, 4), torch.tensor([[True, False, True], [False, True, True]]), torch.tensor([1, 0])

    def write(x, mask, value):
        x[mask] = value
        return x

    compare(lambda v, m: v[m], x.clone().requires_grad_(), columns)
    compare(lambda v, m: v[:, m[0], 1], x.clone().requires_grad_(), columns)
    compare(lambda v, m, r: v[r, m[0]], x.clone().requires_grad_(), columns, torch.tensor([1, 0]))
    compare(lambda v: v[v > 100], x.clone().requires_grad_())
    compare(lambda v, m: write(v, m, v[m] * 2), x, columns)
    compare(lambda v, m: write(v, m, 7.0), x, columns)
    compare(lambda v, m: write(v, (m, 1), v[m, 1] + 5), x, columns)
    compare(lambda v, m, r: v.index_put((r, m[1]), torch.ones(4, device=v.device), accumulate=True), x, columns, rows)
    compare(torch.masked_select, x.clone().requires_grad_(), columns[..., None])
    compare(torch.masked_select, torch.randn(3, 1), torch.tensor([True, False, True, True]))
    compare(lambda v, m, s: v.masked_scatter(m[..., None], s), x.clone().requires_grad_(), columns, torch.randn(20, requires_grad=True))
    for dtype in (torch.int32, torch.bool, torch.float64, torch.complex64):
        compare(lambda v, m: v[m], x.to(dtype), columns)


def test_counting():
    i = torch.randint(9, (40,))
    compare(torch.bincount, i)
    compare(lambda v: torch.bincount(v, minlength=20), i.int())
    for dtype in (torch.float32, torch.float64, torch.int64):
        compare(lambda v, w: torch.bincount(v, w), i, torch.randint(100, (40,)).to(dtype))
    compare(torch.repeat_interleave, torch.tensor([2, 0, 3, 1]))
    compare(lambda r: torch.repeat_interleave(r, output_size=6), torch.tensor([2, 0, 3, 1]))
    compare(lambda x, r: x.repeat_interleave(r, 0), torch.randn(4, 2, requires_grad=True), torch.tensor([2, 0, 3, 1]))
    for low, high in ((0, 0), (-1, 2)):
        for dtype in (torch.float32, torch.float64):
            compare(lambda v: torch.histc(v, 7, low, high), torch.randn(100, dtype=dtype))
    compare(lambda v: torch.histc(v, 7), torch.full((5,), 3.0))
    # Integers count as on CUDA; PyTorch's CPU refuses them.
    assert torch.histc(torch.tensor([0, 1, 1, 3, 9], device="tern").int(), 4, 0, 3).tolist() == [1, 2, 0, 1]


def test_errors():
    x = torch.arange(3.0, device="tern")
    with pytest.raises(IndexError, match="shape of the mask"):
        x[torch.ones(4, device="tern", dtype=torch.bool)]
    with pytest.raises(RuntimeError, match="non-negative"):
        torch.bincount(torch.tensor([-1, 2], device="tern"))
    with pytest.raises(RuntimeError, match="negative"):
        torch.repeat_interleave(torch.tensor([-1, 2], device="tern"))
    with pytest.raises(RuntimeError, match="BoolTensor"):
        torch.masked_select(x, x)
    with pytest.raises(IndexError):
        x.masked_scatter(torch.ones(3, device="tern", dtype=torch.bool), torch.ones(2, device="tern")).tolist()
    assert x.tolist() == [0, 1, 2]
