"""`make bench`: tern beside PyTorch's CPU kernels and torch.compile (inductor): one table, interleaved in one process, minimum of many.

Ratios are what counts: PyTorch's time over tern's, above 1 tern is faster. All contenders take turns of some milliseconds, so that a busy machine hurts each alike.
Writes build/bench.json and build/bench.svg; --document also writes docs/benchmarks.md and its picture.
"""

import argparse
import json
import os
import pathlib
import platform
import subprocess
import sys
import time

import torch_tern  # noqa: F401  registers the device
from torch_tern import _C

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from workloads import CALLS, ROWS

ROOT = pathlib.Path(__file__).resolve().parent.parent
TURN = 0.004  # seconds: short enough to fall between two interruptions of a machine that others use, too


def measure(build, compiled, wait, seconds, clock):
    """Alternating short turns until the time is over; the fastest turn of each contender, in seconds per step."""
    sides = {"eager": build("cpu", lambda f: f), "tern": build("tern", lambda f: f)}
    if compiled:
        torch._dynamo.reset()
        sides["inductor"] = build("cpu", torch.compile)
    best, calls = {}, {}
    for name, step in list(sides.items()):
        try:
            for _ in range(3):
                result = step()
                torch.tern.synchronize()
            start = clock()
            result = step()
            torch.tern.synchronize()
            del result
        except Exception as error:  # inductor without a C++ compiler, for one
            if name != "inductor":
                raise
            print(f"inductor: {type(error).__name__}: {str(error).splitlines()[0]}", file=sys.stderr)
            del sides[name]
            continue
        calls[name], best[name] = max(1, int(TURN / max(clock() - start, 1e-6))), float("inf")
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for name, step in sides.items():
            time.sleep(0.003)  # the threads of the one before go to sleep
            result = step()
            torch.tern.synchronize()
            start = clock()
            for _ in range(calls[name]):
                result = step()
                if wait:  # for each result while it is alive: what nobody keeps or reads would never be computed
                    torch.tern.synchronize()
            best[name] = min(best[name], (clock() - start) / calls[name])
            torch.tern.synchronize()
            del result
    return best


def measure_cold(name, threads, rounds=5):
    """Each call in a process of its own, by turns; the fastest of a few."""
    best = {"eager": float("inf"), "tern": float("inf")}
    for _ in range(rounds):
        for side, device in (("eager", "cpu"), ("tern", "tern")):
            command = [sys.executable, str(ROOT / "bench" / "workloads.py"), name, device, str(threads)]
            done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | {"TERN_NUM_THREADS": str(threads)})
            best[side] = min(best[side], float(done.stdout))
    return best


def machine():
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
        flags = next(line for line in lines if line.startswith("flags")).split()
    except (OSError, StopIteration):
        model, flags = platform.processor() or platform.machine(), []
    wide = [f for f in ("avx2", "fma", "avx512f", "avx512_bf16", "amx_bf16") if f in flags]
    return {
        "processor": model,
        "instructions": wide,
        "cpus": len(os.sched_getaffinity(0)),
        "threads": torch.get_num_threads(),
        "system": platform.platform(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "tern": torch.tern.get_device_name(),
        "date": time.strftime("%Y-%m-%d"),
    }


def text_rows(results):
    for (group, name), r in results.items():
        inductor = r.get("inductor")
        yield (
            group,
            name,
            f"{r['eager'] * 1e6:.1f}",
            f"{inductor * 1e6:.1f}" if inductor else "",
            f"{r['tern'] * 1e6:.1f}",
            f"{r['eager'] / r['tern']:.2f}",
            (f"{inductor / r['tern']:.2f}" if inductor else ""),
        )


def picture(results):
    """Bars on a logarithmic axis: eager's time over tern's, and a tick for inductor's."""
    import math
    from html import escape

    left, width, height = 330, 420, 18
    ratios = [r[k] / r["tern"] for r in results.values() for k in ("eager", "inductor") if k in r]
    low, high = math.floor(min(math.log2(x) for x in ratios)), math.ceil(max(math.log2(x) for x in ratios))

    def x(ratio):
        return left + (math.log2(ratio) - low) / max(high - low, 1) * width

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 60}" height="{height * len(results) + 40}" font-family="sans-serif" font-size="11">'
    ]
    lines.append(f'<rect width="{left + width + 60}" height="{height * len(results) + 40}" fill="#ffffff"/>')
    for e in range(low, high + 1):
        lines.append(
            f'<line x1="{x(2.0**e):.1f}" x2="{x(2.0**e):.1f}" y1="4" y2="{height * len(results) + 8}" stroke="{"#404040" if e == 0 else "#dddddd"}"/>'
        )
        lines.append(f'<text x="{x(2.0**e):.1f}" y="{height * len(results) + 24}" text-anchor="middle">{2.0**e:g}x</text>')
    for i, ((_, name), r) in enumerate(results.items()):
        y, end = 8 + i * height, x(r["eager"] / r["tern"])
        lines.append(f'<text x="{left - 8}" y="{y + 11}" text-anchor="end">{escape(name)}</text>')
        lines.append(
            f'<rect x="{min(end, x(1)):.1f}" y="{y}" width="{abs(end - x(1)):.1f}" height="{height - 5}" fill="{"#2a6f97" if end >= x(1) else "#b5483a"}"/>'
        )
        if "inductor" in r:
            at = x(r["inductor"] / r["tern"])
            lines.append(
                f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{y - 1}" y2="{y + height - 4}" stroke="#e09f3e" stroke-width="3"/>'
            )
    return "\n".join([*lines, "</svg>", ""])


def document(results, about):
    lines = [
        "# Benchmarks",
        "",
        "Written by `make bench BENCH_FLAGS=--document`. Times are microseconds, the fastest of many short turns in which the contenders alternate within one process; the",
        "ratio is PyTorch's time over tern's: above 1, tern is faster. Rows are in `bench/workloads.py`.",
        "",
        (
            f"{about['processor']}, {about['cpus']} CPUs ({', '.join(about['instructions']) or 'no wide vectors'}), {about['threads']} thread(s) each, {about['clock']}; PyTorch {about['torch']}, Python "
            f"{about['python']}, {about['system']}; {about['date']}."
        ),
        "",
        "![eager's time over tern's; the tick is inductor's](benchmarks.svg)",
        "",
        "| | | eager, us | inductor, us | tern, us | eager / tern | inductor / tern |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    last = None
    for group, *cells in text_rows(results):
        lines.append(f"| {group if group != last else ''} | " + " | ".join(cells) + " |")
        last = group
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=4, help="time for each row")
    parser.add_argument("--threads", type=int, help="of each contender; all CPUs where not given")
    parser.add_argument(
        "--cpu-time",
        action="store_true",
        help="one thread each, and its CPU time: for a machine that others use, where PyTorch's own threads wait for each other",
    )
    parser.add_argument("--only", help="rows whose group or name contains this")
    parser.add_argument("--no-inductor", action="store_true", help="leave torch.compile out")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    parser.add_argument(
        "--add",
        action="store_true",
        help="keep the rows of build/bench.json that are not measured now: a long table in several short runs",
    )
    parser.add_argument("--document", action="store_true", help="write docs/benchmarks.md and docs/benchmarks.svg")
    args = parser.parse_args()
    if args.cpu_time:
        args.threads = 1
    if args.threads:
        torch.set_num_threads(args.threads)
        _C.set_setting("TERN_NUM_THREADS", str(args.threads))  # before the engine's first work
    _C.set_setting("TERN_FALLBACK", "allow")  # one row measures it
    results = {}
    if args.add and (ROOT / "build" / "bench.json").exists():
        known = {(r["group"], r["name"]): r for r in json.loads((ROOT / "build" / "bench.json").read_text())["seconds"]}
        results = {
            key: {k: v for k, v in known[key].items() if isinstance(v, float)}
            for key in ((row[0], row[1]) for row in ROWS)
            if key in known
        }
    for group, name, build, compiled, wait in ROWS:
        if not args.only or args.only in name or args.only in group:
            best = measure_cold(name, torch.get_num_threads()) if group == "cold" else measure(
                build,
                compiled and not args.no_inductor,
                wait,
                args.seconds,
                time.process_time if args.cpu_time else time.perf_counter,
            )
            results[group, name] = {k: v / CALLS.get(name, 1) for k, v in best.items()}
            print(f"{name}: {results[group, name]['eager'] / results[group, name]['tern']:.2f}", file=sys.stderr)
    results = {key: results[key] for key in ((row[0], row[1]) for row in ROWS) if key in results}
    about = machine() | {"clock": "CPU time of one thread" if args.cpu_time else "wall time"}
    report = {"machine": about, "seconds": [{"group": group, "name": name, **r} for (group, name), r in results.items()]}
    (ROOT / "build").mkdir(exist_ok=True)
    (ROOT / "build" / "bench.json").write_text(json.dumps(report, indent=1))
    (ROOT / "build" / "bench.svg").write_text(picture(results))
    if args.document:
        (ROOT / "docs" / "benchmarks.md").write_text(document(results, about))
        (ROOT / "docs" / "benchmarks.svg").write_text(picture(results))
    if args.json:
        print(json.dumps(report, indent=1))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(
        title=f"tern ({about['tern']}) beside PyTorch {about['torch']}, {about['threads']} threads; ratios above 1: tern is faster",
        title_justify="left",
    )
    for column in ("", "", "eager, us", "inductor, us", "tern, us", "eager / tern", "inductor / tern"):
        table.add_column(column, justify="right" if "," in column or "/" in column else "left")
    for row in text_rows(results):
        table.add_row(*row)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
