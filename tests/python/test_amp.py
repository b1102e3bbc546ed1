"""Automatic mixed precision: CUDA's operator lists (PyTorch's own test lists), training under autocast in f16 and bf16 with a gradient scaler."""

import warnings

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    lists = pytest.importorskip("torch.testing._internal.autocast_test_lists").AutocastTestLists("tern")

LOW = [torch.float16, torch.bfloat16]
LISTS = {
    "low": (lists.torch_fp16 + lists.nn_fp16 + lists.methods_fp16 + lists.linalg_fp16, None),
    "f32": (lists.torch_fp32 + lists.nn_fp32 + lists.methods_fp32, torch.float32),
    "widest": (lists.torch_need_autocast_promote, torch.float32),
}


def find(name):
    for place in (torch, torch._C._nn, torch.nn.functional, torch.Tensor):
        if hasattr(place, name):
            return getattr(place, name)
    named = name.split("_", 1)
    return getattr(getattr(torch, named[0], None), named[1], None)


def cast(value, dtype):
    if isinstance(value, torch.Tensor):
        return value.to(dtype) if value.is_floating_point() else value
    return type(value)(cast(v, dtype) for v in value) if isinstance(value, (list, tuple)) else value


@pytest.mark.fallback
@pytest.mark.parametrize("low", LOW, ids=str)
@pytest.mark.parametrize("which", LISTS)
def test_the_lists_of_cuda(which, low):
    """The dtype of each result, and its bits: those of the same call on arguments that are cast by hand."""
    rows, dtype = LISTS[which]
    seen = 0
    for name, arguments, *more in rows:
        if name.startswith("cudnn") or not isinstance(arguments, tuple):  # PyTorch skips these, too
            continue
        function, wanted, kwargs = find(name), dtype or low, next((m for m in more if isinstance(m, dict)), {})
        if low == torch.bfloat16:
            arguments = tuple(cast(a, low) if isinstance(a, torch.Tensor) and a.dtype == torch.float16 else a for a in arguments)
        with torch.autocast("tern", dtype=low):
            got = function(*arguments, **kwargs)
        by_hand = function(*cast(arguments, wanted), **kwargs)
        for mine, reference in zip(*((x,) if isinstance(x, torch.Tensor) else x for x in (got, by_hand))):
            assert mine.dtype == wanted, f"{name}: {mine.dtype}, not {wanted}"
            assert torch.equal(mine.nan_to_num(), reference.nan_to_num()), name
        seen += 1
    assert seen > 10


def test_what_is_in_no_list():
    for name, arguments, dtype in lists.torch_expect_builtin_promote:
        with torch.autocast("tern"):
            got = getattr(torch, name)(*arguments)
        assert not isinstance(got, torch.Tensor) or got.dtype == dtype, name
    with torch.autocast("tern"), pytest.raises(RuntimeError, match="unsafe to autocast"):
        F.binary_cross_entropy(torch.rand(3, device="tern"), torch.rand(3, device="tern"))


def test_scopes():
    a = torch.randn(4, 4, device="tern")
    assert torch.amp.autocast_mode.is_autocast_available("tern")
    assert not torch.is_autocast_enabled("tern")
    with torch.autocast("tern", dtype=torch.bfloat16):
        assert (a @ a).dtype == torch.bfloat16 and torch.get_autocast_dtype("tern") == torch.bfloat16
        with torch.autocast("tern", enabled=False):
            assert (a @ a).dtype == torch.float32
        with torch.autocast("tern", dtype=torch.float16):
            assert (a @ a).dtype == torch.float16
        assert (a.double() @ a.double()).dtype == torch.float64  # only f32 and lower are cast
        assert (a.cpu() @ a.cpu()).dtype == torch.float32  # another device's autocast
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (a @ a).dtype == torch.float32
    with pytest.warns(UserWarning, match="not supported"):
        with torch.autocast("tern", dtype=torch.float64):
            assert (a @ a).dtype == torch.float32


def test_custom_functions():
    class Product(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="tern", cast_inputs=torch.float32)
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            assert a.dtype == b.dtype == torch.float32
            return a @ b

        @staticmethod
        @torch.amp.custom_bwd(device_type="tern")
        def backward(ctx, grad):
            a, b = ctx.saved_tensors
            return grad @ b.t(), a.t() @ grad

    a = torch.randn(3, 3, device="tern", dtype=torch.float16, requires_grad=True)
    with torch.autocast("tern", dtype=torch.float16):
        y = Product.apply(a, a)
    assert y.dtype == torch.float32
    y.sum().backward()
    assert a.grad.dtype == torch.float16


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.lin, self.head = nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Linear(8 * 16, 32), nn.Linear(32, 4)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.conv(x))), 2).flatten(1)
        return self.head(F.layer_norm(F.gelu(self.lin(x)), (32,)))


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, 0.05, momentum=0.9),
    "adam foreach": lambda p: torch.optim.Adam(p, 2e-3, foreach=True),
    "adam": lambda p: torch.optim.Adam(p, 2e-3, foreach=False),
    "adamw fused": lambda p: torch.optim.AdamW(p, 2e-3, fused=True),
}


@pytest.mark.parametrize("low", LOW, ids=str)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_training(low, optimizer):
    """The losses stay near those of f32 on the CPU; the scale grows after each interval; the fourth step meets an infinity, changes nothing and halves the scale."""
    steps, broken = 12, 3
    torch.manual_seed(0)
    x, y = torch.randn(16, 1, 8, 8), torch.randint(4, (16,))

    def train(device, amp):
        torch.manual_seed(1)
        model = Net().to(device)
        opt = OPTIMIZERS[optimizer](model.parameters())
        scaler = torch.amp.GradScaler(device, enabled=amp, init_scale=256.0, growth_interval=4)
        losses, scales = [], []
        inputs, targets = x.to(device), y.to(device)
        for step in range(steps):
            if step == broken and not amp:
                continue
            opt.zero_grad()
            with torch.autocast(device, dtype=low, enabled=amp):
                output = model(inputs)
                loss = F.cross_entropy(output, targets)
            if amp:
                assert output.dtype == low and loss.dtype == torch.float32
            scaler.scale(loss).backward()
            if step == broken:
                before = [p.detach().clone() for p in model.parameters()]
                model.head.weight.grad[0, 0] = float("inf")
            elif step % 2:
                scaler.unscale_(opt)
                nn.utils.clip_grad_norm_(model.parameters(), 10.0)
            scaler.step(opt)
            scaler.update()
            if step == broken:
                assert all(torch.equal(a, b) for a, b in zip(before, model.parameters()))
            else:
                losses.append(loss.item())
            scales.append(scaler.get_scale())
        assert all(p.grad.dtype == torch.float32 for p in model.parameters())
        return losses, scales, scaler

    expected, _, _ = train("cpu", False)
    losses, scales, scaler = train("tern", True)
    torch.testing.assert_close(torch.tensor(losses), torch.tensor(expected), rtol=0.05, atol=0.02)
    assert losses[-1] < losses[0] / 2
    assert scales == [256, 256, 256, 128, 128, 128, 128, 256, 256, 256, 256, 512]
    again = torch.amp.GradScaler("tern")
    again.load_state_dict(scaler.state_dict())
    assert again.get_scale() == scales[-1] and again.get_growth_interval() == 4


def test_scaler_reads_nothing_back_with_fused_optimizers():
    """grad_scale and found_inf go to the fused kernel: a step is one program."""
    model = nn.Linear(4, 4).to("tern")
    opt = torch.optim.AdamW(model.parameters(), fused=True)
    scaler = torch.amp.GradScaler("tern", init_scale=4.0)
    x = torch.randn(2, 4, device="tern")
    for step in range(6):
        torch.tern.synchronize()
        torch.tern.reset_stats()
        opt.zero_grad()
        with torch.autocast("tern", dtype=torch.float16):
            loss = model(x).square().mean()
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
        torch.tern.synchronize()
    assert torch.tern.stats()["programs"] <= 2 and torch.tern.stats()["compiled"] == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_unscale_equals_the_cpu(dtype):
    for broken in (None, float("inf"), float("-inf"), float("nan")):
        results = []
        for device in ("cpu", "tern"):
            torch.manual_seed(0)
            grads = [
                torch.randn(5, 3).to(dtype).to(device),
                torch.randn(7).to(dtype).to(device).t(),
                torch.randn(4, 4).to(dtype).to(device)[:, ::2],
                torch.zeros(0, dtype=dtype, device=device),
            ]
            if broken is not None:
                grads[1][2] = broken
            found, scale, tracker = torch.zeros(1, device=device), torch.full((1,), 8.0, device=device), torch.zeros(1, dtype=torch.int32, device=device)
            torch._amp_foreach_non_finite_check_and_unscale_(grads, found, scale.double().reciprocal().float())
            torch._amp_update_scale_(scale, tracker, found, 2.0, 0.5, 2)
            results.append([t.cpu() for t in (*grads, found, scale, tracker)])
        for mine, reference in zip(results[1], results[0]):
            torch.testing.assert_close(mine, reference, rtol=0, atol=0, equal_nan=True)
