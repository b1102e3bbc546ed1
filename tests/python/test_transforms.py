"""What is built on top of autograd and the dispatcher: torch.func, forward mode, double backward, hooks, subclasses, FakeTensor, export, compile; as on the CPU."""
import pytest
import torch
import torch.autograd.forward_ad as forward_mode
import torch.nn.functional as F
from operators import assert_same
from torch import nn
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, linearize, stack_module_state, vjp, vmap
from torch.utils._python_dispatch import TorchDispatchMode


def numbers(device, *sizes):
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(1)).to(device)


def net(device):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).to(device)


def same(function):
    assert_same(function("tern"), function("cpu"), strides=False)


TRANSFORMS = {
    "vmap of grad": lambda d: vmap(grad(lambda v: (v * v).sin().sum()))(numbers(d, 5, 4)),
    "vmap of mm": lambda d: vmap(torch.mm)(numbers(d, 3, 4, 5), numbers(d, 3, 5, 2)),
    "vmap in place": lambda d: vmap(lambda v: v.clone().mul_(2).add_(v))(numbers(d, 5, 4)),
    "vmap of indexing": lambda d: vmap(lambda v, i: v[i])(numbers(d, 5, 4), torch.tensor([0, 1, 2, 3, 1], device=d)),
    "vmap of norms": lambda d: vmap(lambda v: F.layer_norm(v.softmax(0), (4,)))(numbers(d, 5, 4)),
    "vmap of attention": lambda d: vmap(lambda q: F.scaled_dot_product_attention(q, q, q))(numbers(d, 3, 2, 2, 5, 4)),
    "jvp": lambda d: jvp(lambda v: v.sin() @ v.t(), (numbers(d, 5, 4),), (numbers(d, 5, 4).cos(),)),
    "vjp": lambda d: vjp(torch.tanh, numbers(d, 5, 4))[1](numbers(d, 5, 4)),
    "jacrev": lambda d: jacrev(lambda v: (v @ v.t()).sum(0))(numbers(d, 5, 4)),
    "jacfwd": lambda d: jacfwd(lambda v: (v @ v.t()).sum(0))(numbers(d, 5, 4)),
    "hessian": lambda d: hessian(lambda v: v.pow(3).sum())(numbers(d, 3)),
    "linearize": lambda d: linearize(torch.sin, numbers(d, 5, 4))[1](numbers(d, 5, 4)),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms(name):
    same(TRANSFORMS[name])


def test_functional_calls():
    def per_sample_gradients(d):
        model = net(d)
        parameters = {k: v.detach() for k, v in model.named_parameters()}

        def loss(parameters, x, y):
            return F.cross_entropy(functional_call(model, parameters, (x[None],)), y[None])

        return vmap(grad(loss), in_dims=(None, 0, 0))(parameters, numbers(d, 5, 4), torch.tensor([0, 1, 2, 0, 1], device=d))

    def ensemble(d):
        models = [net(d) for _ in range(3)]
        parameters, buffers = stack_module_state(models)
        return vmap(lambda p, b, x: functional_call(models[0], (p, b), (x,)), in_dims=(0, 0, None))(parameters, buffers, numbers(d, 5, 4))

    same(per_sample_gradients)
    same(ensemble)


def test_forward_mode():
    def tangents(d):
        w = numbers(d, 3, 4)
        with forward_mode.dual_level():
            x = forward_mode.make_dual(numbers(d, 5, 4), numbers(d, 5, 4).cos())
            results = (F.linear(x, w), x.softmax(1), F.layer_norm(x, (4,)), F.gelu(x), x.sum(0), x.cumsum(1), x[:, 1:3], torch.cat([x, x]), F.silu(x), x.sort(1)[0],
                       x.max(1)[0], x.log_softmax(1), x.norm(), x.prod(1), x.std(1))  # fmt: skip
            return [forward_mode.unpack_dual(y).tangent for y in results]

    same(tangents)


def test_double_backward():
    def gradients(d):
        x = numbers(d, 5, 4).requires_grad_()
        kernel, labels = numbers(d, 2, 5, 3), torch.tensor([0, 1, 2, 3, 0], device=d)
        losses = (x.tanh().sum(), F.softmax(x, 1).square().sum(), F.layer_norm(x, (4,)).pow(3).sum(), F.gelu(x).sum(), F.conv1d(x[None], kernel).square().sum(),
                  F.cross_entropy(x, labels), (x @ x.t()).sin().sum(), F.batch_norm(x, None, None, training=True).pow(3).sum(), F.max_pool1d(x[None], 2).square().sum(),
                  F.interpolate(x[None, None], scale_factor=2, mode="bilinear").square().sum(), x.norm(), F.silu(x).sum(),
                  F.embedding(torch.tensor([0, 1, 1], device=d), x).square().sum())  # fmt: skip
        first = [torch.autograd.grad(loss, x, create_graph=True)[0] for loss in losses]
        return [torch.autograd.grad(g.square().sum(), x)[0] for g in first]

    same(gradients)


def test_hooks():
    def gradients(d):
        model, seen = net(d), []
        model[0].register_forward_hook(lambda module, inputs, output: seen.append(output.detach().clone()))
        model[0].register_forward_pre_hook(lambda module, inputs: (inputs[0] * 2,))
        model[2].register_full_backward_hook(lambda module, inputs, outputs: seen.append(outputs[0].clone()))
        model[0].weight.register_hook(lambda g: g * 3)
        model[0].weight.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
        with torch.autograd.graph.save_on_cpu():
            loss = model(numbers(d, 5, 4)).square().sum()
        loss.backward()
        return [*seen, *(p.grad for p in model.parameters())]

    same(gradients)


def test_anomaly_mode_finds_the_first_nan():
    with pytest.warns(UserWarning), torch.autograd.detect_anomaly(check_nan=True), pytest.raises(RuntimeError, match="SqrtBackward0.*nan"):
        (torch.zeros(1, device="tern", requires_grad=True).sqrt() * 0).sum().backward()


def test_subclasses_and_modes():
    class Plain(torch.Tensor):
        pass

    class Counting(TorchDispatchMode):
        calls = 0

        def __torch_dispatch__(self, function, types, arguments=(), kwargs=None):
            self.calls += 1
            return function(*arguments, **(kwargs or {}))

    x = numbers("tern", 5, 4)
    y = x.as_subclass(Plain) * 2 + 1
    assert type(y) is Plain and y.device.type == "tern" and torch.equal(torch.Tensor(y), x * 2 + 1)
    with Counting() as mode:
        x.sin() + 1
    assert mode.calls == 2


def test_fake_tensors():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        y = F.linear(torch.empty(5, 4, device="tern"), torch.empty(3, 4, device="tern")).softmax(1)
        assert y.shape == (5, 3) and y.device.type == "tern"


def test_export():
    for device in ("cpu", "tern"):
        program = torch.export.export(net(device), (numbers(device, 5, 4),), dynamic_shapes=({0: torch.export.Dim("batch")},))
        results = program.module()(numbers(device, 7, 4))
        expected = results if device == "cpu" else expected
    torch.testing.assert_close(results.cpu(), expected)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compile(backend):
    def train(d):
        model = net(d)
        y = torch.compile(model, backend=backend)(numbers(d, 5, 4))
        return [y, *torch.autograd.grad(y.square().sum(), list(model.parameters()))]

    same(train)
    # A compiled function that returns an expanded view.
    y = torch.compile(lambda v: v.expand(2, 4), backend=backend)(numbers("tern", 4))
    assert torch.equal(y.cpu(), numbers("cpu", 4).expand(2, 4)) and "tensor" in repr(y)
