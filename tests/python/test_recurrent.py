"""Whole LSTM and GRU layers: values, layouts and gradients beside PyTorch's CPU, and beside one step at a time on the device."""

import copy

import pytest
import torch
import torch.nn as nn
import torch_tern  # noqa: F401


def both(make, *inputs):
    """Outputs, last states and gradients of `make()` on the CPU and on tern: [[tensor]]."""
    torch.manual_seed(0)
    module, results = make(), []
    for device in ("cpu", "tern"):
        m = copy.deepcopy(module).to(device)
        xs = [x.detach().to(device).requires_grad_() for x in inputs]
        y, states = m(xs[0], *([tuple(xs[1:]) if len(xs) > 2 else xs[1]] if len(xs) > 1 else []))
        states = states if isinstance(states, tuple) else (states,)
        (y.square().sum() + sum(s.sin().sum() for s in states)).backward()
        results.append([y, *states, *(x.grad for x in xs), *(p.grad for p in m.parameters())])
    return results


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
@pytest.mark.parametrize("options", [{}, {"batch_first": True}, {"bidirectional": True, "num_layers": 2}, {"bias": False, "num_layers": 3, "batch_first": True, "bidirectional": True}])
@pytest.mark.parametrize("shape", [(1, 1, 3), (6, 2, 3), (3, 5, 3)])
def test_equals_cpu(kind, options, shape):
    for a, b in zip(*both(lambda: kind(3, 4, **options), torch.randn(shape))):
        assert a.shape == b.shape and a.stride() == b.stride() and a.dtype == b.dtype
        torch.testing.assert_close(b.cpu(), a, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_given_states_have_gradients(kind):
    states = [torch.randn(2, 5, 4) for _ in range(2 if kind is nn.LSTM else 1)]
    for a, b in zip(*both(lambda: kind(3, 4, 2), torch.randn(6, 5, 3), *states)):
        torch.testing.assert_close(b.cpu(), a, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind, cell", [(nn.LSTM, nn.LSTMCell), (nn.GRU, nn.GRUCell)])
def test_a_layer_equals_its_steps_bit_for_bit(kind, cell):
    torch.manual_seed(0)
    layer, step = kind(300, 65).to("tern"), cell(300, 65).to("tern")
    for ours, theirs in zip(step.parameters(), layer.parameters()):
        ours.data.copy_(theirs)
    x, state, outputs = torch.randn(5, 7, 300).to("tern"), None, []
    for t in range(5):
        state = step(x[t], state)
        outputs.append(state[0] if kind is nn.LSTM else state)
    with torch.no_grad():
        assert torch.equal(layer(x)[0], torch.stack(outputs))


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_gradients_are_differentiable(kind):
    torch.manual_seed(0)
    m = kind(2, 3, bidirectional=True).double().to("tern")
    x = torch.randn(3, 2, 2, dtype=torch.double).to("tern").requires_grad_()
    assert torch.autograd.gradcheck(lambda x: m(x)[0], (x,))
    assert torch.autograd.gradgradcheck(lambda x: m(x)[0], (x,))


def test_only_what_needs_a_gradient_gets_one():
    m = nn.GRU(3, 4).to("tern")
    m.weight_ih_l0.requires_grad_(False)
    m.bias_hh_l0.requires_grad_(False)
    m(torch.randn(2, 2, 3).to("tern"))[0].sum().backward()
    assert m.weight_ih_l0.grad is None and m.bias_hh_l0.grad is None
    assert m.weight_hh_l0.grad is not None and m.bias_ih_l0.grad is not None


def test_what_does_not_fit_is_pytorchs_own():
    x = torch.randn(4, 2, 3)
    for make in (lambda: nn.LSTM(3, 4, proj_size=2), lambda: nn.LSTM(3, 4)):
        for a, b in zip(*both(make, x)):
            torch.testing.assert_close(b.cpu(), a, rtol=1e-5, atol=1e-5)
    m = nn.LSTM(3, 4).to("tern")
    with pytest.raises(RuntimeError):
        m(torch.randn(4, 2, 5).to("tern"))
    with torch.autocast("tern", torch.bfloat16):
        assert torch.isfinite(m(x.to("tern"))[0]).all()
