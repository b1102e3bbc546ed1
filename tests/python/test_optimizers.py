"""Every optimizer of torch.optim through PyTorch's own list of them (optim_db): single, foreach, fused and capturable, native, with the CPU's parameters and state."""
import warnings

import pytest
import torch
from torch import nn

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    optim_db = pytest.importorskip("torch.testing._internal.common_optimizers").optim_db

FUSED = ("Adagrad", "Adam", "AdamW", "SGD")  # those with a fused form on the CPU to compare with
# Their steps amplify the last bit: a line search, and an iteration in bf16.
TOLERANCES = {"LBFGS": (1e-6, 1e-8), "Muon": (2e-2, 5e-3)}


def train(info, kwargs, device):
    torch.manual_seed(0)
    dtype = torch.float64 if info.optim_cls.__name__ == "LBFGS" else torch.float32
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)).to(device, dtype)
    params = [p for p in model.parameters() if p.dim() == 2] if info.optim_cls.__name__ == "Muon" else list(model.parameters())
    optimizer = info.optim_cls(params, **{k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in kwargs.items()})
    x = torch.linspace(-1, 1, 12, dtype=dtype).view(3, 4).to(device)

    def closure():
        optimizer.zero_grad()
        loss = model(x).square().sum()
        loss.backward()
        return loss

    for _ in range(3):
        if info.step_requires_closure:
            optimizer.step(closure)
        else:
            closure()
            optimizer.step()
    state = [v for s in optimizer.state.values() for v in s.values() if isinstance(v, torch.Tensor)]
    return [t.detach().cpu() for t in (*model.parameters(), *state)]


def ways(info, kwargs):
    """How each set of options can run; options that fix a way run in that one."""
    yield {}
    if any(kwargs.get(key) for key in ("foreach", "fused", "differentiable")):
        return
    for way in info.supported_impls:
        tensor_lr = isinstance(kwargs.get("lr"), torch.Tensor) and not kwargs.get("capturable")
        if way == "foreach" and not tensor_lr or way == "capturable" or (way == "fused" and info.optim_cls.__name__ in FUSED):
            yield {way: True}


@pytest.mark.parametrize("info", [i for i in optim_db if i.optim_cls.__name__ != "SparseAdam"], ids=lambda i: i.optim_cls.__name__)
def test_like_the_cpu(info):
    rtol, atol = TOLERANCES.get(info.optim_cls.__name__, (2e-4, 2e-5))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for sample in info.optim_inputs_func(device="cpu"):
            for way in ways(info, sample.kwargs):
                # The CPU has no capturable form; the numbers are those of the plain one.
                expected = train(info, {**sample.kwargs, **({} if "capturable" in way else way)}, "cpu")
                got = train(info, {**sample.kwargs, **way}, "tern")
                for mine, reference in zip(got, expected, strict=True):
                    torch.testing.assert_close(mine, reference, rtol=rtol, atol=atol, msg=lambda text: f"{sample.desc} {way}: {text}")  # noqa: B023
