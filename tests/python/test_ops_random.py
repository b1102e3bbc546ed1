"""Random operators: right in distribution, different each time, the same for the same seed."""
import pytest
import torch
import torch.nn.functional as F


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


# ---- generators ----
def test_generators_are_apart():
    """Each generator is a stream of its own: draws of one move no other, whatever is recorded between."""
    seeds = (3, 4)
    alone = []
    for seed in seeds:
        generator = torch.Generator("tern").manual_seed(seed)
        alone.append([torch.rand(7, device="tern", generator=generator), torch.randn(5, device="tern", generator=generator)])
    generators = [torch.Generator("tern").manual_seed(seed) for seed in seeds]
    mixed = [[], []]
    for draw in (lambda g: torch.rand(7, device="tern", generator=g), lambda g: torch.randn(5, device="tern", generator=g)):
        for mine, generator in zip(mixed, generators):
            torch.rand(3, device="tern")
            mine.append(draw(generator))
    for mine, expected in zip(mixed, alone):
        assert all(torch.equal(a, b) for a, b in zip(mine, expected))


def test_generators_in_threads():
    import threading

    results = {}

    def work(seed):
        generator = torch.Generator("tern").manual_seed(seed)
        results[seed] = torch.stack([torch.rand(4, device="tern", generator=generator) for _ in range(50)]).cpu()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed in range(4):
        expected = results[seed]
        work(seed)
        assert torch.equal(expected, results[seed])


@pytest.mark.parametrize("stream", ["tern", "cpu"])
def test_states(stream):
    with torch.tern.rng(stream):
        generator = torch.Generator("tern").manual_seed(5)
        torch.rand(3, device="tern", generator=generator)
        state, fork = generator.get_state(), generator.clone_state()
        expected = torch.rand(4, device="tern", generator=generator)
        assert torch.equal(expected, torch.rand(4, device="tern", generator=fork))
        generator.set_state(state)
        assert torch.equal(expected, torch.rand(4, device="tern", generator=generator))
        torch.manual_seed(1)
        state = torch.tern.get_rng_state()
        expected = torch.rand(4, device="tern")
        torch.tern.set_rng_state(state)
        assert torch.equal(expected, torch.rand(4, device="tern"))
        torch.tern.manual_seed(1)
        assert torch.equal(expected, torch.rand(4, device="tern"))
        with torch.random.fork_rng(devices=[0], device_type="tern"):
            torch.rand(9, device="tern")
            after_fork = torch.rand(4, device="tern")
        assert not torch.equal(after_fork, torch.rand(4, device="tern"))
    with pytest.raises(RuntimeError, match="bytes"):
        torch.Generator("tern").set_state(torch.zeros(20, dtype=torch.uint8))


@pytest.mark.parametrize("stream", ["tern", "cpu"])
@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_draws_the_same_masks(stream, reentrant):
    from torch.utils.checkpoint import checkpoint

    with torch.tern.rng(stream):
        net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 8), torch.nn.Dropout(0.3)).to("tern")
        x = torch.randn(4, 8, device="tern", requires_grad=True)
        grads = []
        for run in (net, lambda v: checkpoint(net, v, use_reentrant=reentrant, preserve_rng_state=True)):
            net.zero_grad()
            x.grad = None
            torch.manual_seed(2)
            run(x).sum().backward()
            grads.append([x.grad.clone(), *(p.grad.clone() for p in net.parameters())])
        assert all(torch.equal(a, b) for a, b in zip(*grads))


# ---- PyTorch CPU's stream ----
def seeded(device, seed=7):
    return torch.Generator(device).manual_seed(seed)


PROBABILITIES = torch.rand(3, 40, generator=torch.Generator().manual_seed(1))
CPU_DRAWS = {
    "rand": lambda d: torch.rand(3, 50, device=d),
    "rand f64": lambda d: torch.rand(33, device=d, dtype=torch.float64),
    "rand bf16": lambda d: torch.rand(33, device=d, dtype=torch.bfloat16),
    "randn small": lambda d: torch.randn(7, device=d),
    "randn": lambda d: torch.randn(3, 50, device=d),
    "randn f16": lambda d: torch.randn(50, device=d, dtype=torch.float16),
    "rand_like channels last": lambda d: torch.rand_like(torch.empty(2, 3, 4, 5, device=d).to(memory_format=torch.channels_last)),
    "randint": lambda d: torch.randint(3, 1000, (99,), device=d),
    "randperm": lambda d: torch.randperm(101, device=d),
    "uniform_ of a view": lambda d: torch.zeros(10, 8, device=d)[::2, 1:5].uniform_(-3, 2),
    "normal_": lambda d: torch.empty(40, device=d).normal_(2, 3),
    "normal of tensors": lambda d: torch.normal(PROBABILITIES.to(d), PROBABILITIES.to(d) + 1),
    "bernoulli": lambda d: torch.bernoulli(PROBABILITIES.to(d)),
    "bernoulli_": lambda d: torch.empty(99, device=d, dtype=torch.int32).bernoulli_(0.3),
    "exponential_": lambda d: torch.empty(40, device=d).exponential_(2),
    "geometric_": lambda d: torch.empty(40, device=d).geometric_(0.3),
    "cauchy_": lambda d: torch.empty(40, device=d).cauchy_(),
    "log_normal_": lambda d: torch.empty(40, device=d).log_normal_(),
    "random_": lambda d: torch.empty(40, device=d, dtype=torch.int16).random_(),
    "multinomial": lambda d: torch.multinomial(PROBABILITIES.to(d), 5),
    "multinomial with replacement": lambda d: torch.multinomial(PROBABILITIES.to(d), 99, replacement=True),
    "poisson": lambda d: torch.poisson(PROBABILITIES.to(d) * 9),
    "dropout": lambda d: torch.nn.functional.dropout(PROBABILITIES.to(d), 0.3),
    "dropout f16": lambda d: torch.nn.functional.dropout(PROBABILITIES.to(d).half(), 0.3),
    "dropout_": lambda d: torch.nn.functional.dropout(PROBABILITIES.clone().to(d), 0.3, inplace=True),
    "dropout all": lambda d: torch.nn.functional.dropout(PROBABILITIES.to(d), 1.0),
    "dropout2d": lambda d: torch.nn.functional.dropout2d(PROBABILITIES.to(d).view(3, 10, 2, 2), 0.3),
    "alpha_dropout": lambda d: torch.nn.functional.alpha_dropout(PROBABILITIES.to(d), 0.3, training=True),
    "rrelu": lambda d: torch.nn.functional.rrelu(PROBABILITIES.to(d) - 0.5, training=True),
    "gumbel_softmax": lambda d: torch.nn.functional.gumbel_softmax(PROBABILITIES.to(d), hard=True),
    "gamma": lambda d: torch._standard_gamma(PROBABILITIES.to(d) + 1),
    "dirichlet": lambda d: torch._sample_dirichlet(PROBABILITIES.to(d) + 1),
    "binomial": lambda d: torch.binomial(torch.full_like(PROBABILITIES, 20).to(d), PROBABILITIES.to(d)),
    "a generator": lambda d: torch.rand(20, device=d, generator=seeded(d)),
    "a generator, randperm": lambda d: torch.randperm(20, device=d, generator=seeded(d)),
    "a distribution": lambda d: torch.distributions.Categorical(PROBABILITIES.to(d)).sample((5,)),
}
CLOSE = ("alpha_dropout", "rrelu", "gumbel_softmax")  # the same draws, in an expression whose other operators round in their own way


@pytest.mark.parametrize("name", CPU_DRAWS)
def test_the_stream_of_the_cpu(name):
    """Each draw twice, and then one more of the plain kind, which shows that the stream moved as far."""
    results = []
    for device in ("cpu", "tern"):
        torch.manual_seed(11)
        with torch.tern.rng("cpu"):
            assert torch.tern.get_rng() == "cpu"
            results.append([CPU_DRAWS[name](device), CPU_DRAWS[name](device), torch.rand(3, device=device)])
    assert torch.tern.get_rng() == "tern"
    for mine, reference in zip(results[1], results[0]):
        assert mine.device.type == "tern" and mine.dtype == reference.dtype and mine.stride() == reference.stride()
        if name in CLOSE:
            torch.testing.assert_close(mine.cpu(), reference)
        else:
            assert torch.equal(mine.cpu(), reference)


def test_host_draws_are_counted_and_need_no_permission():
    torch.tern.reset_stats()
    with torch.tern.rng("cpu"):
        torch.nn.functional.dropout(torch.rand(4, device="tern"))
    assert torch.tern.stats()["host_draws"] == 2 and torch.tern.stats()["fallbacks"] == 0


def test_a_training_step_has_the_masks_of_the_cpu():
    """Elementwise but for its dropout, so that not one bit may differ; and a model with matrix products, whose losses agree to rounding."""
    results = []
    for device in ("cpu", "tern"):
        torch.manual_seed(3)
        with torch.tern.rng("cpu"):
            w = torch.randn(16, 16, device=device, requires_grad=True)
            opt = torch.optim.SGD([w], 0.5)
            for _ in range(3):
                opt.zero_grad()
                x = torch.nn.functional.dropout(w * torch.rand(16, 16, device=device), 0.4)
                x.backward(torch.randn(16, 16, device=device))
                opt.step()
            net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.TransformerEncoderLayer(32, 2, 32, 0.1, batch_first=True))
            net = net.to(device).train()
            losses = []
            opt = torch.optim.AdamW(net.parameters(), 1e-3)
            for _ in range(4):
                opt.zero_grad()
                loss = net(w.detach()[None]).square().mean()
                loss.backward()
                opt.step()
                losses.append(loss.item())
        results.append((w.detach().cpu(), losses))
    assert torch.equal(results[0][0], results[1][0])
    torch.testing.assert_close(torch.tensor(results[0][1]), torch.tensor(results[1][1]), rtol=1e-5, atol=0)


def test_strides_of_draws():
    """What PyTorch makes contiguous and what it makes like the argument."""
    strides = {}
    for device in ("cpu", "tern"):
        p = torch.full((3, 4), 0.5, device=device).t()
        draws = [torch.bernoulli(p), torch.bernoulli(p, 0.5), torch.ops.aten.bernoulli.Tensor(p, p), torch.bernoulli(p, out=torch.empty(0, device=device)), torch.rand_like(p)]
        draws += [torch.nn.functional.dropout(p), torch.normal(p, 1.0), torch.normal(0.0, p), torch.normal(p, p), torch.ops.aten.exponential(p), torch.ops.aten.random(p)]
        strides[device] = [draw.stride() for draw in draws]
    assert strides["tern"] == strides["cpu"]


def test_attention_that_drops_nothing_draws_nothing():
    q, k = torch.randn(2, 4, 3, 8), torch.randn(2, 4, 6, 8)
    with torch.tern.rng("cpu"):
        ours = F.scaled_dot_product_attention(q.to("tern"), k.to("tern"), k.to("tern"), is_causal=True)
    torch.testing.assert_close(ours.cpu(), F.scaled_dot_product_attention(q, k, k, is_causal=True))
