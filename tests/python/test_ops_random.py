"""Random operators: right in distribution, different each time, the same for the same seed."""
import pytest
import torch


def moments(x):
    return x.float().mean().item(), x.float().std().item()


@pytest.mark.parametrize(
    "draw, mean, deviation",
    [
        (lambda n: torch.rand(n, device="tern"), 0.5, 0.2887),
        (lambda n: torch.randn(n, device="tern"), 0, 1),
        (lambda n: torch.empty(n, device="tern").uniform_(-2, 4), 1, 1.732),
        (lambda n: torch.empty(n, device="tern").normal_(3, 0.5), 3, 0.5),
        (lambda n: torch.randint(0, 10, (n,), device="tern"), 4.5, 2.872),
        (lambda n: torch.empty(n, device="tern").bernoulli_(0.3), 0.3, 0.458),
        (lambda n: torch.nn.functional.dropout(torch.ones(n, device="tern"), 0.25), 1, 0.577),
    ],
    ids=["rand", "randn", "uniform_", "normal_", "randint", "bernoulli_", "dropout"],
)
@pytest.mark.fallback
def test_distributions(draw, mean, deviation):
    torch.manual_seed(0)
    n = 100_000
    first, second = draw(n), draw(n)
    got = moments(first.cpu())
    assert abs(got[0] - mean) < 0.02 and abs(got[1] - deviation) < 0.02
    assert not torch.equal(first, second)
    torch.manual_seed(0)
    assert torch.equal(first, draw(n))


@pytest.mark.fallback
def test_permutation():
    torch.manual_seed(0)
    order = torch.randperm(100, device="tern")
    assert order.sort().values.cpu().tolist() == list(range(100)) and order.cpu().tolist() != list(range(100))


def test_a_fallback_draws_from_the_devices_stream():
    from torch_tern import _C

    _C.set_setting("TERN_FALLBACK", "allow")
    cpu = torch.get_rng_state()
    torch.tern.manual_seed(3)
    first = torch.empty(20, device="tern").exponential_().cpu()
    second = torch.empty(20, device="tern").exponential_().cpu()
    torch.tern.manual_seed(3)
    assert torch.equal(first, torch.empty(20, device="tern").exponential_().cpu())
    assert not torch.equal(first, second)
    assert torch.equal(cpu, torch.get_rng_state())
