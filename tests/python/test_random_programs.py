"""Random programs of views, writes in place, reductions, indexing and reads: the same on tern, fused and strict, as on the CPU.

Every number is a small integer whatever its dtype, so that sums and products are exact in any order and results can be compared bit for bit with the CPU. A second
kind of program rounds (exp, mean, division; no composites): there fused is compared with strict only, bit for bit.

A failing seed is a program: `python tests/python/test_random_programs.py SEED` prints it line by line and names the first line that differs."""
import gc
import random
import sys
import warnings

import pytest
import torch

FLOATS = (torch.float32, torch.float32, torch.float64, torch.bfloat16, torch.float16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.uint8)
SHAPES = ((), (1,), (3,), (7,), (2, 3), (4, 1), (1, 5), (3, 4), (2, 3, 4), (1, 1, 6), (0,), (2, 0, 3), (2, 2, 2, 3), (16, 17), (65,))
SMALL = 4  # the largest number in a new tensor; products and sums are brought back under 2 * SMALL by remainder


class Line:
    """One line of a program: what it does to which tensors of the pool, as text and as a function of the pool."""

    def __init__(self, text, function, arguments, drop=None):
        self.text, self.function, self.arguments, self.drop = text, function, arguments, drop

    def __str__(self):
        return f"{self.text}({', '.join(f't{a}' for a in self.arguments)})"


def small(t):
    """Brings results back among the small integers, so that no dtype rounds."""
    if t.dtype == torch.bool:
        return t
    return torch.clamp(t, -SMALL, SMALL) if t.dtype != torch.uint8 else torch.clamp(t, 0, SMALL)


class Generator:
    """Draws lines; shapes and dtypes are looked at in the pool of the CPU's run, so that most lines are valid and a few are errors."""

    def __init__(self, seed, exact):
        self.rng, self.exact = random.Random(seed), exact

    def line(self, pool):
        rng = self.rng
        alive = [i for i, t in enumerate(pool) if t is not None]
        if len(alive) < 3 or rng.random() < 0.08:
            return self.create()
        if len(alive) > 10:
            victim = rng.choice(alive)
            return Line("del", lambda t: None, (victim,), drop=victim)
        kinds = (self.view, 5), (self.write, 5), (self.binary, 4), (self.unary, 3), (self.reduce, 3), (self.pick, 3), (self.join, 1), (self.convert, 2), (self.read, 1)
        kind = rng.choices([k for k, _ in kinds], [w for _, w in kinds])[0]
        return kind(pool, alive)

    def create(self):
        rng = self.rng
        shape, dtype = rng.choice(SHAPES), rng.choice((*FLOATS, *INTEGERS, torch.bool))
        count = 1
        for n in shape:
            count *= n
        low = 0 if dtype in (torch.uint8, torch.bool) else -SMALL
        numbers = [rng.randint(low, 1 if dtype == torch.bool else SMALL) for _ in range(count)]
        grows = dtype in (torch.float32, torch.float64) and rng.random() < 0.3

        def make(device):
            t = torch.tensor(numbers, dtype=dtype).reshape(shape).to(device)
            return t.requires_grad_() if grows else t

        return Line(f"tensor{list(shape)} {dtype}{' with gradient' if grows else ''}", make, ())

    def some(self, pool, alive, want=lambda t: True):
        fits = [i for i in alive if want(pool[i])]
        return self.rng.choice(fits) if fits else None

    def view(self, pool, alive):
        rng = self.rng
        i = self.some(pool, alive, lambda t: t.dim() > 0) if rng.random() < 0.8 else self.some(pool, alive)
        if i is None:
            return self.create()
        t = pool[i]
        d = rng.randrange(max(t.dim(), 1))
        n = t.shape[d] if t.dim() else 1
        order = rng.sample(range(t.dim()), t.dim())
        start, step = rng.randint(-1, n), rng.randint(1, 3)
        row = rng.randrange(n) if n else 0
        choices = {
            f"[{start}:] at {d}": lambda t: t.narrow(d, max(start, 0), n - max(start, 0)),
            f"[::{step}] at {d}": lambda t: t[(slice(None),) * d + (slice(None, None, step),)],
            f"select {row} at {d}": lambda t: t.select(d, row),
            f"permute{order}": lambda t: t.permute(order),
            f"unsqueeze {d}": lambda t: t.unsqueeze(d),
            "squeeze": lambda t: t.squeeze(),
            "view(-1)": lambda t: t.view(-1),
            "reshape(-1)": lambda t: t.reshape(-1),
            f"expand 2 before, {d}": lambda t: t.expand(2, *t.shape),
            "T": lambda t: t.mT if t.dim() > 1 else t.view_as(t),
            "diagonal": lambda t: t.diagonal(),
            f"chunk at {d}": lambda t: t.chunk(2, d)[-1],
            f"unfold at {d}": lambda t: t.unfold(d, 2, 1),
            f"unflatten at {d}": lambda t: t.unflatten(d, (-1, 2)) if n % 2 == 0 else t.unflatten(d, (1, n)),
            f"flip {d}": lambda t: t.flip(d),
            f"roll {d}": lambda t: t.roll(1, d),
            "detach": lambda t: t.detach(),
            "view as int32": lambda t: t.view(torch.int32) if t.dtype == torch.int32 else t.view(t.dtype),
            "contiguous": lambda t: t.contiguous(),
            "clone": lambda t: t.clone(),
        }
        text = rng.choice(list(choices))
        return Line(text, choices[text], (i,))

    def write(self, pool, alive):
        rng = self.rng
        # What a write through overlapping windows (unfold) gives depends on the order of the writes.
        i, j = self.some(pool, alive, lambda t: torch._debug_has_internal_overlap(t) != 2), self.some(pool, alive)
        if i is None:
            return self.create()
        t = pool[i]
        value = rng.randint(0, SMALL)
        d = rng.randrange(max(t.dim(), 1))
        n = t.shape[d] if t.dim() else 1
        index = [rng.randrange(max(n, 1)) for _ in range(rng.randint(1, 4))]
        distinct = sorted(set(index))

        def at(t):
            return torch.tensor(index, device=t.device)

        def each(t):
            return torch.tensor(distinct, device=t.device)

        alone = {
            f"fill_({value})": lambda t: t.fill_(value),
            "zero_": lambda t: t.zero_(),
            f"add_({value}), small": lambda t: t.add_(value).clamp_(0, SMALL),
            "neg_": lambda t: t.neg_() if t.dtype != torch.uint8 else t.fill_(1),
            "relu_": lambda t: t.clamp_(min=0),
            f"index_fill_ {distinct} at {d}": lambda t: t.index_fill_(d, each(t), value),
            f"[{index[0]}] = {value} at {d}": lambda t: t.__setitem__((slice(None),) * d + (index[0],), value) if t.dim() else t.fill_(value),
            f"index_put_ {distinct}": lambda t: t.index_put_((each(t),), torch.tensor(value, dtype=t.dtype, device=t.device)) if t.dim() and d == 0 else t,
            f"masked_fill_ {value}": lambda t: t.masked_fill_(t > 0, value),
            "t_": lambda t: t.t_() if t.dim() == 2 else t,
            f"cumsum_ {d}": lambda t: t.cumsum_(d).clamp_(0, SMALL),
        }
        pair = {
            "copy_": lambda t, u: t.copy_(u),
            "add_, small": lambda t, u: t.add_(u).clamp_(0, SMALL),
            "mul_, small": lambda t, u: t.mul_(u).clamp_(0, SMALL),
            "sub_(alpha 2), small": lambda t, u: t.sub_(u, alpha=2).clamp_(0, SMALL),
            "addcmul_, small": lambda t, u: t.addcmul_(u, u).clamp_(0, SMALL),
            "data add_, small": lambda t, u: t.data.add_(u.detach()).clamp_(0, SMALL),
            "data =": lambda t, u: setattr(t, "data", u.detach().clone()) if u.dtype == t.dtype else None,
            "[:] = ": lambda t, u: t.__setitem__(slice(None), u.detach()) if t.dim() else t.copy_(u),
            f"index_add_ {index} at {d}, small": lambda t, u: t.index_add_(d, at(t), t.detach().index_select(d, at(t)).clone()).clamp_(0, SMALL),
            f"scatter_add_ at {d}, small": lambda t, u: t.scatter_add_(d, torch.zeros(t.shape, dtype=torch.int64, device=t.device), t.detach().clone()).clamp_(0, SMALL),
            "copy_(where)": lambda t, u: t.copy_(torch.where(u > 0, u, t)),
            "swap halves": lambda t, u: t.copy_(t.flip(0) if t.dim() else t),
        }
        if rng.random() < 0.5:
            text = rng.choice(list(alone))
            return Line(text, lambda t: alone[text](t) is None, (i,))
        text = rng.choice(list(pair))
        return Line(text, lambda t, u: pair[text](t, u) is None, (i, j))

    def binary(self, pool, alive):
        i, j = self.some(pool, alive), self.some(pool, alive)
        choices = {
            "add": lambda t, u: small(t + u), "mul": lambda t, u: small(t * u), "sub": lambda t, u: small(t - u), "maximum": torch.maximum, "minimum": torch.minimum,
            "eq": torch.eq, "lt": torch.lt, "where": lambda t, u: torch.where(t > u, t, u), "matmul": lambda t, u: small(t @ u), "and": torch.logical_and,
            "add out=": lambda t, u: torch.add(t, u, out=torch.empty(0, dtype=torch.result_type(t, u), device=t.device)).clamp(0, SMALL),
            "lerp": lambda t, u: small(torch.lerp(t, u, 1.0)), "t + 2u": lambda t, u: small(torch.add(t, u, alpha=2)),
        }  # fmt: skip
        if not self.exact:
            choices |= {"div": torch.div, "hypot": torch.hypot, "atan2": torch.atan2, "pow": lambda t, u: torch.pow(t.abs() + 1, u), "logaddexp": torch.logaddexp}
        text = self.rng.choice(list(choices))
        return Line(text, choices[text], (i, j))

    def unary(self, pool, alive):
        i = self.some(pool, alive)
        choices = {
            "neg": lambda t: small(-t), "abs": torch.abs, "relu": torch.relu, "sign": torch.sign, "square": lambda t: small(t * t), "floor": torch.floor,
            "t * 2 - 1": lambda t: small(t * 2 - 1), "clamp": lambda t: t.clamp(0, 2), "not": torch.logical_not, "2.5": lambda t: small((t * 2.5).floor()),
            "empty_like": lambda t: torch.zeros_like(t), "tril": torch.tril, "pad": lambda t: torch.nn.functional.pad(t, (1, 2)) if t.dim() else t + 0,
        }  # fmt: skip
        if not self.exact:
            choices |= {name: getattr(torch, name) for name in ("exp", "sigmoid", "tanh", "sqrt", "rsqrt", "erf", "log1p", "sin", "reciprocal")}
        text = self.rng.choice(list(choices))
        return Line(text, choices[text], (i,))

    def reduce(self, pool, alive):
        i = self.some(pool, alive)
        t = pool[i]
        d, keep = self.rng.randrange(max(t.dim(), 1)), self.rng.random() < 0.5
        choices = {
            f"sum {d} {keep}": lambda t: small(t.sum(d, keepdim=keep)), "sum all": lambda t: small(t.sum()), f"amax {d}": lambda t: t.amax(d, keepdim=keep),
            f"any {d}": lambda t: t.any(d), "count_nonzero": torch.count_nonzero, f"cumsum {d}": lambda t: small(t.cumsum(d)),
            f"max {d}": lambda t: t.max(d, keepdim=keep).values, "all": torch.all, f"prod {d}": lambda t: small(t.clamp(-1, 1).prod(d)),
        }  # fmt: skip
        if not self.exact:
            choices |= {f"mean {d}": lambda t: t.mean(d), f"var {d}": lambda t: t.var(d), f"logsumexp {d}": lambda t: t.logsumexp(d), "norm": torch.linalg.vector_norm}
        text = self.rng.choice(list(choices))
        return Line(text, choices[text], (i,))

    def pick(self, pool, alive):
        rng = self.rng
        i = self.some(pool, alive)
        t = pool[i]
        d = rng.randrange(max(t.dim(), 1))
        n = t.shape[d] if t.dim() else 1
        index = [rng.randrange(max(n, 1)) for _ in range(rng.randint(1, 5))]

        def at(t):
            return torch.tensor(index, device=t.device)

        choices = {
            f"index_select {index} at {d}": lambda t: t.index_select(d, at(t)), f"[{index}] at {d}": lambda t: t[(slice(None),) * d + (at(t),)],
            f"take {index}": lambda t: t.take(at(t)), f"sort {d}": lambda t: t.sort(d, stable=True).values, f"topk {d}": lambda t: t.topk(1, d).values,
            "t[t > 0]": lambda t: t[t > 0], "nonzero": torch.nonzero, f"gather {d}": lambda t: t.gather(d, torch.zeros(t.shape, dtype=torch.int64, device=t.device)),
            "unique": torch.unique, f"repeat_interleave {d}": lambda t: t.repeat_interleave(2, d),
        }  # fmt: skip
        text = rng.choice(list(choices))
        return Line(text, choices[text], (i,))

    def join(self, pool, alive):
        i, j = self.some(pool, alive), self.some(pool, alive)
        choices = {"cat": lambda t, u: torch.cat((t.reshape(-1), u.reshape(-1))), "stack": lambda t, u: torch.stack((t, u)), "stack itself": lambda t, u: torch.stack((t, t), -1)}
        text = self.rng.choice(list(choices))
        return Line(text, choices[text], (i, j))

    def convert(self, pool, alive):
        i = self.some(pool, alive)
        dtype = self.rng.choice((*FLOATS, torch.int64, torch.int32, torch.bool))
        return Line(f"to {dtype}", lambda t: t.to(dtype), (i,))

    def read(self, pool, alive):
        i = self.some(pool, alive)
        choices = {"tolist": lambda t: t.detach().cpu().tolist(), "backward": lambda t: small_backward(t), "cpu and back": lambda t: t.cpu().to(t.device).clone()}
        text = self.rng.choice(list(choices))
        return Line(text, choices[text], (i,))


def small_backward(t):
    """Runs the gradient of a sum; without a graph that is an error on every device."""
    return [None if g is None else g.tolist() for g in torch.autograd.grad(t.sum(), leaves_of(t), retain_graph=True, allow_unused=True)]


def leaves_of(t):
    seen, queue, found = set(), [t.grad_fn], []
    while queue:
        node = queue.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found.append(node.variable)
        queue.extend(n for n, _ in node.next_functions)
    return sorted(found, key=lambda v: tuple(v.shape))


def run_line(line, pool, device):
    """Gives what the line made (a tensor), read (anything else), or its error's type; the pool grows by one in any case."""
    outcome = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outcome = line.function(*(pool[a] for a in line.arguments)) if line.arguments else line.function(device)
    except Exception as error:  # noqa: BLE001  any error is an outcome, to be compared with the CPU's
        outcome = type(error)
    pool.append(outcome if isinstance(outcome, torch.Tensor) else None)
    if line.drop is not None:
        pool[line.drop] = None
    return outcome


def describe(outcome):
    """What must agree: values by bits, and how PyTorch sees the tensor."""
    if not isinstance(outcome, torch.Tensor):
        return outcome
    try:
        facts = (tuple(outcome.shape), outcome.dtype, outcome.stride(), outcome.storage_offset(), outcome._version, outcome.requires_grad, outcome.is_leaf)
    except RuntimeError as error:  # one of several views whose base was written
        return str(error)
    return facts, repr(outcome.detach().cpu().tolist())


def write_program(seed, exact, n_lines):
    """Makes the program by running it on the CPU. Gives the lines, each line's outcome, and the pool's description at the end."""
    generator, pool, lines, outcomes = Generator(seed, exact), [], [], []
    for _ in range(n_lines):
        line = generator.line(pool)
        outcome = run_line(line, pool, "cpu")
        lines.append(line)
        outcomes.append(None if isinstance(outcome, torch.Tensor) else repr(outcome))
    return lines, outcomes, [describe(t) for t in pool]


def replay(lines):
    pool, outcomes = [], []
    for line in lines:
        outcome = run_line(line, pool, "tern")
        outcomes.append(None if isinstance(outcome, torch.Tensor) else repr(outcome))
    return outcomes, [describe(t) for t in pool]


def first_difference(lines, a, b):
    for number, (x, y) in enumerate(zip(a, b, strict=True)):
        if x != y:
            return f"line {number}: t{number} = {lines[number]}\n  {x}\n  {y}"
    return None


def without_negative_zeros(described):
    """Which zero a CPU kernel gives for max(0, -0) depends on how much of the row its vectors cover."""
    return [(d[0], d[1].replace("-0.0", "0.0")) if isinstance(d, tuple) else d for d in described]


def check(seed, exact, n_lines=60):
    lines, outcomes, final = write_program(seed, exact, n_lines)
    fused_outcomes, fused = replay(lines)
    with torch.tern.set_mode("strict"):
        strict_outcomes, strict = replay(lines)
    words = first_difference(lines, strict_outcomes, fused_outcomes) or first_difference(lines, strict, fused)
    assert words is None, f"seed {seed}: strict and fused differ at {words}"
    if exact:
        words = first_difference(lines, outcomes, fused_outcomes) or first_difference(lines, without_negative_zeros(final), without_negative_zeros(fused))
        assert words is None, f"seed {seed}: CPU and tern differ at {words}"


@pytest.mark.fallback
@pytest.mark.parametrize("seed", range(150))
def test_exact_programs_are_as_on_the_cpu(seed):
    check(seed, exact=True)


@pytest.mark.fallback
@pytest.mark.parametrize("seed", range(1000, 1030))
def test_rounding_programs_are_the_same_fused_and_strict(seed):
    check(seed, exact=False)
    gc.collect()


if __name__ == "__main__":
    for seed in map(int, sys.argv[1:]):
        program, _, _ = write_program(seed, seed < 1000, 60)
        print("\n".join(f"t{n} = {line}" for n, line in enumerate(program)))
        check(seed, exact=seed < 1000)
