"""`make bench`: tern beside PyTorch's CPU, interleaved in one process, minimum of many. Ratios are what counts; below 1 tern is faster.

Rows are small on purpose here: what an operation costs to record, and whole training steps. Writes build/bench.json.
"""

import argparse
import json
import pathlib
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

import torch_tern  # noqa: F401  registers the device

BUILD = pathlib.Path(__file__).resolve().parent.parent / "build"


def training(make, x, y):
    """A function that runs one training step on `device`, built from the same seed."""

    def build(device):
        torch.manual_seed(0)
        model = make().to(device)
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
        inputs, targets = x.to(device), y.to(device)

        def step():
            optimizer.zero_grad()
            F.cross_entropy(model(inputs), targets).backward()
            optimizer.step()

        return step

    return build


def mlp():
    return nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))


def cnn():
    block = lambda i, o: [nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*block(3, 32), *block(32, 64), nn.Conv2d(64, 128, 3, padding=1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))


def enqueue(device):
    x, y = torch.ones(4, device=device), torch.ones(4, device=device)

    def many():
        for _ in range(1000):
            x + y

    return many


def chain(device):
    x = torch.rand(64, 1024).to(device)

    def run():
        y = x
        for _ in range(20):
            y = torch.tanh(y * 0.5 + x)
        return y

    return run


ROWS = {
    # name: (build(device), calls inside one call, wait for the result inside the time)
    "enqueue x + y": (enqueue, 1000, False),
    "20 x tanh(y * 0.5 + x), 64k": (chain, 1, True),
    "mlp step, batch 128": (training(mlp, torch.randn(128, 784), torch.randint(10, (128,))), 1, True),
    "cnn step, batch 32": (training(cnn, torch.randn(32, 3, 32, 32), torch.randint(10, (32,))), 1, True),
}


def measure(build, inner, wait, seconds):
    """Alternating short blocks until the time is over; the fastest block of each, in seconds per inner call."""
    sides = {"cpu": build("cpu"), "tern": build("tern")}
    best = {name: float("inf") for name in sides}
    calls = {}
    for name, step in sides.items():
        step()
        torch.tern.synchronize()
        start = time.perf_counter()
        step()
        torch.tern.synchronize()
        calls[name] = max(1, int(0.02 / max(time.perf_counter() - start, 1e-6)))
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for name, step in sides.items():
            start = time.perf_counter()
            for _ in range(calls[name]):
                step()
            if wait:
                torch.tern.synchronize()
            best[name] = min(best[name], (time.perf_counter() - start) / calls[name] / inner)
            torch.tern.synchronize()
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=6, help="time for each row")
    parser.add_argument("--only", help="rows whose name contains this")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    args = parser.parse_args()
    results = {}
    for name, (build, inner, wait) in ROWS.items():
        if not args.only or args.only in name:
            best = measure(build, inner, wait, args.seconds)
            results[name] = {"cpu_us": best["cpu"] * 1e6, "tern_us": best["tern"] * 1e6, "ratio": best["tern"] / best["cpu"]}
    BUILD.mkdir(exist_ok=True)
    (BUILD / "bench.json").write_text(json.dumps(results, indent=1))
    if args.json:
        print(json.dumps(results, indent=1))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"tern ({torch.tern.get_device_name()}) beside PyTorch {torch.__version__} CPU, {torch.get_num_threads()} threads", title_justify="left")
    for column in ("", "PyTorch CPU, us", "tern, us", "ratio"):
        table.add_column(column, justify="left" if not column else "right")
    for name, r in results.items():
        table.add_row(name, f"{r['cpu_us']:.2f}", f"{r['tern_us']:.2f}", f"{r['ratio']:.2f}x")
    Console().print(table)


if __name__ == "__main__":
    main()
