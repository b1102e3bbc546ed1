"""Sparse tensors (COO): indices and values lie on the device, PyTorch's CPU kernels work on them where they lie."""
import io

import pytest
import torch
from torch import nn

pytestmark = pytest.mark.fallback


def same(ours, theirs):
    assert ours.layout == theirs.layout and ours.dtype == theirs.dtype and ours.shape == theirs.shape and ours.device.type == "tern"
    if ours.is_sparse:
        assert ours.is_coalesced() == theirs.is_coalesced() and ours._nnz() == theirs._nnz() and ours.sparse_dim() == theirs.sparse_dim()
        torch.testing.assert_close(ours._indices().cpu(), theirs._indices())
        torch.testing.assert_close(ours._values().cpu(), theirs._values())
    else:
        torch.testing.assert_close(ours.cpu(), theirs)


def make(device, dtype=torch.float32):
    i, v = torch.tensor([[0, 1, 1, 1], [2, 0, 2, 2]], device=device), torch.tensor([3, 4, 5, 6], dtype=dtype, device=device)
    return torch.sparse_coo_tensor(i, v, (2, 3))


FUNCTIONS = {
    "coalesce": lambda s: s.coalesce(), "to_dense": lambda s: s.to_dense(), "times": lambda s: s * 2, "plus": lambda s: s + s, "values": lambda s: s.coalesce().values(),
    "indices": lambda s: s.coalesce().indices(), "transposed": lambda s: s.t(), "sum": lambda s: torch.sparse.sum(s.float()), "sum over rows": lambda s: torch.sparse.sum(s.float(), 0),
    "clone": lambda s: s.clone(), "product": lambda s: torch.sparse.mm(s.float(), torch.ones(3, 2, device=s.device)), "to and back": lambda s: s.to_dense().to_sparse(),
    "add to dense": lambda s: torch.ones(2, 3, device=s.device, dtype=s.dtype).add_(s), "mask": lambda s: torch.ones(2, 3, device=s.device, dtype=s.dtype).sparse_mask(s.coalesce()),
    "zeros": lambda s: torch.zeros(2, 3, layout=torch.sparse_coo, device=s.device), "cat": lambda s: torch.cat([s, s]), "neg": lambda s: -s, "detach": lambda s: s.detach(),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_like_cpu(name, dtype):
    same(FUNCTIONS[name](make("tern", dtype)), FUNCTIONS[name](make("cpu", dtype)))


def test_moves_and_is_saved():
    s = make("cpu")
    there = s.to("tern")
    same(there, s)
    back = there.cpu()
    assert back.device.type == "cpu"
    torch.testing.assert_close(back.to_dense(), s.to_dense())
    file = io.BytesIO()
    torch.save(there, file)
    file.seek(0)
    same(torch.load(file), s)
    assert "device='tern:0'" in repr(there) and "layout=torch.sparse_coo" in repr(there)


def test_in_place():
    for change in (lambda t: t.mul_(3), lambda t: t.zero_(), lambda t: t.add_(make(t.device.type)), lambda t: t.resize_as_(t)):
        ours, theirs = make("tern"), make("cpu")
        change(ours)
        change(theirs)
        same(ours, theirs)


def test_gradients():
    grads = {}
    for device in ("tern", "cpu"):
        s, x = make(device).requires_grad_(), torch.ones(3, 2, device=device, requires_grad=True)
        torch.sparse.mm(s, x).square().sum().backward()
        grads[device] = s.grad, x.grad
    for ours, theirs in zip(*grads.values(), strict=True):
        same(ours, theirs)


def test_sparse_embedding_and_its_optimizers():
    for make_optimizer in (lambda p: torch.optim.SparseAdam(p, lr=0.1), lambda p: torch.optim.SGD(p, lr=0.1), lambda p: torch.optim.Adagrad(p, lr=0.1)):
        torch.manual_seed(0)
        theirs = nn.Embedding(10, 4, sparse=True)
        ours = nn.Embedding(10, 4, sparse=True).to("tern")
        ours.load_state_dict(theirs.state_dict())
        for module, device in ((theirs, "cpu"), (ours, "tern")):
            optimizer = make_optimizer(list(module.parameters()))
            for _ in range(3):
                optimizer.zero_grad()
                (module(torch.tensor([1, 3, 3], device=device)) ** 2).sum().backward()
                assert module.weight.grad.is_sparse
                optimizer.step()
        torch.testing.assert_close(ours.weight.cpu(), theirs.weight)


def test_errors_are_pytorchs():
    for device in ("tern", "cpu"):
        with pytest.raises(RuntimeError, match="uncoalesced"):
            make(device).values()
        with pytest.raises(RuntimeError, match="size is inconsistent with indices"):
            torch.sparse_coo_tensor(torch.tensor([[5], [0]], device=device), torch.ones(1, device=device), (2, 3), check_invariants=True)


@pytest.mark.parametrize("form", ["csr", "csc", "bsr"])
def test_compressed(form):
    dense = torch.tensor([[0, 2.0, 0, 1], [3, 0, 4, 0]])
    ours, theirs = (getattr(x, f"to_sparse_{form}")(*([(2, 2)] if form == "bsr" else [])) for x in (dense.to("tern"), dense))
    assert ours.layout == theirs.layout and ours.device.type == "tern"
    torch.testing.assert_close(ours.values().cpu(), theirs.values())
    torch.testing.assert_close(ours.to_dense().cpu(), dense)
    torch.testing.assert_close(ours.cpu().to_dense(), dense)
    torch.testing.assert_close(theirs.to("tern").to_dense().cpu(), dense)
    torch.testing.assert_close(ours.clone().to_dense().cpu(), dense)
    torch.testing.assert_close((ours @ torch.ones(4, 2, device="tern")).cpu(), dense @ torch.ones(4, 2))
    assert f"layout=torch.sparse_{form}" in repr(ours).replace("\n", "")


def test_compressed_from_parts():
    parts = torch.tensor([0, 1, 2]), torch.tensor([0, 1]), torch.tensor([1.0, 2])
    ours, theirs = (torch.sparse_csr_tensor(*(p.to(device) for p in parts), (2, 2)) for device in ("tern", "cpu"))
    torch.testing.assert_close(ours.crow_indices().cpu(), theirs.crow_indices())
    torch.testing.assert_close((ours * 2).to_dense().cpu(), (theirs * 2).to_dense())
