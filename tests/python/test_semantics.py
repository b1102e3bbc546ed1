"""Deferred execution must be invisible: aliasing, in-place writes, hooks, errors, random numbers and threads as on the CPU."""
import gc
import os
import subprocess
import sys
import textwrap
import threading

import pytest
import torch


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-c", textwrap.dedent(code)], env={**os.environ, **environment}, capture_output=True, text=True, timeout=120)


# ---- aliases ----
def test_a_view_outlives_rebinding_data():
    x = torch.arange(6.0, device="tern").reshape(2, 3)
    y = x.view(-1)
    x.data = torch.full((2, 3), 9.0, device="tern")
    assert y.cpu().tolist() == [0, 1, 2, 3, 4, 5]
    x.data.add_(1)
    assert x.cpu().tolist() == [[10, 10, 10], [10, 10, 10]]


def test_a_split_sees_the_base():
    x = torch.arange(6.0, device="tern")
    first, second = torch.split(x, 3)
    x[0] = 42
    assert first.cpu().tolist() == [42, 1, 2]
    second.mul_(10)
    assert x.cpu().tolist() == [42, 1, 2, 30, 40, 50]


def test_writes_do_not_reach_back():
    x = torch.ones(3, device="tern")
    y = x * 2
    x.fill_(7)
    z = x + y
    x.zero_()
    assert y.cpu().tolist() == [2, 2, 2] and z.cpu().tolist() == [9, 9, 9] and x.cpu().tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x[1:].mul_(2),
        lambda x: x[:, 1].zero_(),
        lambda x: x.t()[1].add_(5),
        lambda x: x[::2, 1:].fill_(3),
        lambda x: x.view(-1)[2:5].neg_(),
        lambda x: x.unsqueeze(0).transpose(0, 2)[1].mul_(4),
        lambda x: x.diagonal().add_(1),
        lambda x: x.as_strided((2, 2), (4, 1), 1).sub_(1),
        lambda x: x.copy_(x.t().clone().t() + 1),
        lambda x: x[0].copy_(x[1]),
        lambda x: x.t().copy_(x.clone()),
        lambda x: x.flip(0).mul_(2),
        lambda x: x.unfold(1, 2, 2)[:, 0].add_(1),
        lambda x: torch.add(x, 1, out=x),
        lambda x: x.set_(x.clone() * 2),
        lambda x: x.resize_(4).add_(1),
        lambda x: x.narrow(1, 1, 1).expand(3, 3).sum(),
    ],
    ids=range(17),
)
@pytest.mark.fallback
def test_changes_through_views(change):
    reference = torch.arange(9.0).reshape(3, 3)
    x = reference.to("tern")
    other, other_reference = x.view(-1), reference.view(-1)
    change(x), change(reference)
    assert torch.equal(x.cpu(), reference) and torch.equal(other.cpu(), other_reference)
    assert x.stride() == reference.stride()


def test_expanded_writes_are_refused():
    with pytest.raises(RuntimeError, match="single memory location"):
        torch.ones(1, 3, device="tern").expand(3, 3).add_(1)
    with pytest.raises(RuntimeError, match="single memory location"):
        torch.ones(1, 3, device="tern").expand(3, 3).copy_(torch.ones(3, 3))


def test_versions_count_writes():
    x = torch.ones(3, device="tern", requires_grad=True)
    y = x * 2
    z = y * y
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_dtype_views():
    x = torch.tensor([1.0, -2.0], device="tern")
    assert x.view(torch.int32).cpu().tolist() == [0x3F800000, -0x40000000]
    x.view(torch.int32).zero_()
    assert x.cpu().tolist() == [0, 0]


def test_real_views_of_complex():
    z = torch.view_as_complex(torch.tensor([[1.0, 2.0], [3.0, 4.0]], device="tern"))
    assert z.cpu().tolist() == [1 + 2j, 3 + 4j]
    assert torch.view_as_real(z).cpu().tolist() == [[1, 2], [3, 4]]


@pytest.mark.fallback
def test_conjugates_are_copied_as_they_look():
    z = torch.tensor([1 + 2j, 3 - 1j], device="tern")
    assert z.conj().cpu().tolist() == [1 - 2j, 3 + 1j]
    assert z.conj().clone().resolve_conj().cpu().tolist() == [1 - 2j, 3 + 1j]
    assert z.imag.cpu().tolist() == [2, -1] and z.conj().imag.cpu().tolist() == [-2, 1]


# ---- autograd ----
def test_gradients_and_hooks():
    x = torch.randn(3, 4, device="tern", requires_grad=True)
    w = torch.randn(4, 5, device="tern", requires_grad=True)
    seen = []
    w.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.cpu().clone()))
    y = (x @ w).relu()
    y.register_hook(lambda g: g * 2)
    y.sum().backward()
    a, b = x.detach().cpu().requires_grad_(), w.detach().cpu().requires_grad_()
    ((a @ b).relu() * 2).sum().backward()
    assert torch.allclose(x.grad.cpu(), a.grad) and torch.allclose(w.grad.cpu(), b.grad)
    assert torch.allclose(seen[0], b.grad)


def test_gradients_through_views_written_in_place():
    def loss(x):
        y = x * 1
        y[1:].mul_(3)
        y[0] = x[2]
        return (y * y).sum()

    x = torch.arange(1.0, 5.0, device="tern", requires_grad=True)
    a = x.detach().cpu().requires_grad_()
    loss(x).backward(), loss(a).backward()
    assert torch.equal(x.grad.cpu(), a.grad)


def test_double_backward():
    x = torch.tensor([2.0, 3.0], device="tern", requires_grad=True)
    (first,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert second.cpu().tolist() == [12, 18]


def test_grad_accumulates():
    x = torch.ones(3, device="tern", requires_grad=True)
    for _ in range(3):
        (x * 2).sum().backward()
    assert x.grad.cpu().tolist() == [6, 6, 6]


# ---- random numbers ----
def test_a_seed_repeats():
    torch.manual_seed(11)
    first = torch.randn(100, device="tern")
    torch.manual_seed(11)
    assert torch.equal(first, torch.randn(100, device="tern"))
    assert not torch.equal(first, torch.randn(100, device="tern"))


def test_a_dead_draw_advances_the_stream():
    torch.manual_seed(3)
    torch.rand(8, device="tern")
    second = torch.rand(8, device="tern").cpu()
    torch.manual_seed(3)
    torch.rand(8, device="tern").cpu()
    assert torch.equal(second, torch.rand(8, device="tern").cpu())


def test_dropout_masks():
    x = torch.ones(1000, device="tern", requires_grad=True)
    one, two = torch.nn.functional.dropout(x), torch.nn.functional.dropout(x)
    assert not torch.equal(one, two)
    one.sum().backward()
    assert torch.equal(x.grad, one.detach())


# ---- errors ----
def test_wrong_shapes_raise_on_their_line_in_pytorchs_words():
    x = torch.ones(2, 3, device="tern")
    for wrong in (lambda t: t + torch.ones(4, device=t.device), lambda t: t @ t, lambda t: torch.cat([t, torch.ones(2, 2, device=t.device)]), lambda t: t.sum(5)):
        with pytest.raises((RuntimeError, IndexError)) as ours:
            wrong(x)
        with pytest.raises((RuntimeError, IndexError)) as theirs:
            wrong(x.cpu())
        assert type(ours.value) is type(theirs.value)
        assert str(ours.value).split("\n")[0] == str(theirs.value).split("\n")[0]


def test_an_index_out_of_range_names_the_line_and_the_device_goes_on():
    x = torch.tensor([1.0, 2.0, 3.0], device="tern")
    with pytest.raises(IndexError, match="test_semantics.py"):
        y = x[torch.tensor([0, 7], device="tern")]
        y.cpu()
    assert (x * 2).cpu().tolist() == [2, 4, 6]
    with pytest.raises(IndexError):
        x[7]


def test_a_bad_embedding_id_leaves_the_parameters_alone():
    table = torch.nn.Embedding(4, 3, device="tern")
    before = table.weight.detach().cpu().clone()
    optimizer = torch.optim.SGD(table.parameters(), lr=0.1)
    with pytest.raises(IndexError, match="embedding"):
        table(torch.tensor([1, 9], device="tern")).sum().backward()
        optimizer.step()
        torch.tern.synchronize()
    assert torch.equal(table.weight.detach().cpu(), before)
    optimizer.zero_grad()  # the gradients of the failed step are as lost as the step
    table(torch.tensor([1, 2], device="tern")).sum().backward()
    optimizer.step()
    expected = before.clone()
    expected[1:3] -= 0.1
    assert torch.allclose(table.weight.detach().cpu(), expected)


def test_out_of_memory_is_an_exception():
    with pytest.raises(torch.OutOfMemoryError, match="test_semantics.py"):
        torch.zeros(1 << 40, device="tern").cpu()
    assert torch.rand(3, device="tern").sum().item() > 0


def test_fallback_can_be_forbidden():
    with pytest.raises(NotImplementedError, match="TERN_FALLBACK=error"):
        torch.linalg.svd(torch.eye(3, device="tern"))


@pytest.mark.fallback
def test_fallbacks_are_counted_with_their_line():
    torch.tern.reset_stats()
    torch.erfinv(torch.tensor([0.5], device="tern")) if False else torch.linalg.svd(torch.eye(3, device="tern"))
    rows = [row for row in torch.tern.fallbacks() if "svd" in row[0]]
    assert rows and "test_semantics.py" in rows[0][1] and rows[0][2] == 1
    assert torch.tern.stats()["fallbacks"] >= 1


def test_nan_constants_and_slices():
    nan = float("nan")
    for values in ([1, nan], [nan, 1]):
        x = torch.tensor(values, device="tern")
        assert x.max().isnan() and x.min().isnan() and x.argmax() == torch.tensor(values).argmax() and torch.maximum(x, x.flip(0)).isnan().all()
    # A constant that is folded has all of f32's digits, and f64's where it is f64.
    for value in (2.0, 3.0, 0.1, 1e-30):
        for dtype in (torch.float32, torch.float64):
            for function in (torch.sqrt, torch.exp, torch.log, torch.rsqrt):
                expected = function(torch.full((3,), value, dtype=dtype))
                assert torch.allclose(function(torch.full((3,), value, dtype=dtype, device="tern")).cpu(), expected, rtol=2 * torch.finfo(dtype).eps, atol=0)
    # A slice of a result is the result's slice, bit for bit, whatever was fused.
    x = torch.randn(64, 48, device="tern")
    w = torch.randn(48, 32, device="tern")
    result = torch.softmax((x @ w).tanh(), -1)
    part = torch.softmax((x @ w).tanh(), -1)[5:9, 3:20:4]
    assert torch.equal(part.cpu(), result.cpu()[5:9, 3:20:4])


# ---- where and how ----
def test_modes_agree():
    def step():
        torch.manual_seed(0)
        x = torch.randn(16, 8, device="tern")
        y = ((x * 2 + 1).tanh() * x.exp()).sum(0)
        return (y / y.abs().max()).cpu()

    fused = step()
    with torch.tern.set_mode("strict"):
        assert torch.tern.get_mode() == "strict"
        strict = step()
        with torch.tern.set_mode("debug"):
            debug = step()
    assert torch.tern.get_mode() == "fused"
    assert torch.equal(fused, strict) and torch.equal(fused, debug)


def test_dead_work_is_not_done():
    torch.tern.reset_stats()
    x = torch.ones(8, device="tern")
    for _ in range(10):
        x = x + 1
    assert x[0].item() == 11
    assert torch.tern.stats()["programs"] <= 3


def test_threads_record_together():
    x = torch.arange(1000.0, device="tern")
    results = [None] * 8

    def work(i):
        y = x
        for _ in range(50):
            y = y * 1 + i
        results[i] = y.cpu()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i in range(8):
        assert torch.equal(results[i], torch.arange(1000.0) + 50 * i)


def test_fork_after_use_is_a_clear_error():
    done = run_python(
        """
        import os, torch
        x = torch.ones(3, device="tern") * 2
        x.cpu()
        child = os.fork()
        if child == 0:
            try:
                (x + 1).cpu()
            except RuntimeError as error:
                assert "fork" in str(error), error
                assert torch.ones(3).sum() == 3  # the CPU goes on
                del x
                os._exit(0)
            os._exit(1)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert x.sum().item() == 6
        """,
        PYTHONWARNINGS="ignore",
        PYTHONPATH=os.pathsep.join(sys.path),
        TERN_DEVICE="cpu",
    )
    assert done.returncode == 0, done.stderr


def test_exit_with_work_pending():
    done = run_python(
        """
        import torch, torch_tern
        keep = [torch.ones(100, device="tern") * i for i in range(50)]
        """,
        PYTHONPATH=os.pathsep.join(sys.path),
    )
    assert done.returncode == 0 and done.stderr == ""


def test_import_is_silent():
    done = run_python("import torch, torch_tern; torch.tern.is_available()", PYTHONPATH=os.pathsep.join(sys.path))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_wrong_device_setting_is_said_in_words():
    done = run_python(
        """
        import torch, torch_tern
        assert not torch.tern.is_available()
        try:
            torch.ones(2, device="tern")
        except RuntimeError as error:
            assert "no-such-chip" in str(error), error
        else:
            raise SystemExit("no error")
        """,
        PYTHONPATH=os.pathsep.join(sys.path),
        TERN_DEVICE="no-such-chip",
    )
    assert done.returncode == 0, done.stderr


def test_storages_are_given_back():
    torch.tern.synchronize()
    gc.collect()
    before = torch.tern.stats()["live_buffers"]
    for _ in range(100):
        x = torch.ones(10, device="tern")
        y = (x * 2).relu()
    del x, y
    torch.tern.synchronize()
    assert torch.tern.stats()["live_buffers"] <= before


def test_a_copy_onto_its_own_neighbours_is_refused():
    for device in ("cpu", "tern"):
        x = torch.arange(4.0, device=device)
        with pytest.raises(RuntimeError, match="some elements of the input tensor"):
            x[1:].copy_(x[:-1])
        x[:].copy_(x)
        x[2:].copy_(x[:2])
        assert x.tolist() == [0, 1, 0, 1]


@pytest.mark.fallback
@pytest.mark.filterwarnings("ignore:Use of")
def test_fills_write_through_expanded_tensors_as_on_the_cpu():
    results = []
    for device in ("cpu", "tern"):
        x = torch.zeros(3, device=device)
        wide, one = x.expand(2, 3), torch.tensor([1], device=device)
        wide.index_fill_(1, one, 5.0)
        wide.masked_fill_(torch.tensor([[True, False, False], [False, False, False]], device=device), 7.0)
        wide.index_put_((one, one + 1), torch.tensor(9.0, device=device))
        results.append(x.tolist())
    assert results[0] == results[1] == [7, 5, 9]


@pytest.mark.parametrize(
    "pick", (lambda t, i, j: t[:, i], lambda t, i, j: t[:, j], lambda t, i, j: t[j, :, j], lambda t, i, j: t[:, :, i], lambda t, i, j: t[j[:1], :, j]), ids=range(5)
)
def test_strides_of_advanced_indexing(pick):
    strides = []
    for device in ("cpu", "tern"):
        t = torch.arange(24.0).to(device).reshape(2, 3, 4).permute(2, 0, 1)
        strides.append(pick(t, torch.tensor([0, 0, 0], device=device), torch.zeros(2, 3, dtype=torch.int64, device=device).T).stride())
    assert strides[0] == strides[1]


def test_resized_out_tensors_keep_their_operands_order_of_dimensions():
    for make in (torch.exp, lambda t, out: torch.add(t, 1, out=out), lambda t, out: torch.cumsum(t, 0, out=out), lambda t, out: torch.sum(t, 0, out=out)):
        strides = []
        for device in ("cpu", "tern"):
            t = torch.arange(24.0).to(device).reshape(2, 3, 4).permute(2, 0, 1)
            strides.append(make(t, out=torch.empty(0, device=device)).stride())
        assert strides[0] == strides[1]
    assert torch.zeros(2, 3, device="tern").nonzero().stride() == torch.zeros(2, 3).nonzero().stride()
