"""`make demo`: the two training scripts on plain CPU, on tern's embedded engine and on tern over the XLA CPU plug-in, side by side.

Each run is a process of its own. Speed is measured in alternating runs, minimum of all blocks of steps. The loss curves are the same where the first five steps
agree to 1e-5 and the largest difference of the whole run is at most three times PyTorch's own (all threads against one: training amplifies the last bit of any
sum). Writes build/demo.json and build/demo.png.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

from rich.console import Console
from rich.table import Table

HERE = pathlib.Path(__file__).resolve().parent
BUILD = HERE.parent / "build"
console = Console(width=max(120, Console().width))

# What each run sets in its environment. Plain CPU never loads tern.
RUNS = {
    "cpu": {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
    "cpu, 1 thread": {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "OMP_NUM_THREADS": "1"},
    "tern": {"TERN_DEVICE": "cpu", "TERN_FALLBACK": "error"},
    "tern, xla-cpu": {"TERN_DEVICE": "xla-cpu", "TERN_FALLBACK": "error"},
}
SCRIPTS = {
    "digits_cnn": {"title": "CNN, handwritten digits", "full": [], "short": ["--epochs", "4"], "result": "accuracy"},
    "char_gpt": {"title": "character GPT, Python's library", "full": [], "short": ["--steps", "100"], "result": "final_loss"},
}
SAME = 1e-5  # relative: equal for the first steps, and never asked to be closer than this afterwards


def run(script, name, arguments, show):
    """One run in a process of its own; returns what the script and measure.py wrote."""
    out, figures = BUILD / "demo-run.json", BUILD / "demo-figures.json"
    command = [sys.executable, HERE / "measure.py", figures, HERE / f"{script}.py", "--out", out, *arguments]
    environment = {**os.environ, **RUNS[name], "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for line in process.stdout:
        if show:
            console.print(f"  [dim]{name:14}[/] {line.rstrip()}", highlight=False)
    errors = process.stderr.read()
    if process.wait():
        raise SystemExit(f"{script} failed on {name}:\n{errors[-4000:]}")
    return {**json.loads(out.read_text()), **json.loads(figures.read_text())}


def largest_difference(a, b):
    """The largest relative difference up to each step."""
    worst, result = 0.0, []
    for x, y in zip(a, b):
        worst = max(worst, abs(x - y) / max(abs(x), 1e-12))
        result.append(worst)
    return result


def measure(script, quick):
    spec, results = SCRIPTS[script], {}
    console.print(f"\n[bold]{spec['title']}[/] ({script}.py)")
    for name in RUNS:
        results[name] = run(script, name, spec["short"] if quick else spec["full"], show=True)
    times = {name: list(results[name]["seconds_per_step"][1:]) for name in RUNS}
    for _ in range(2):  # alternate again, so that a slow moment of the machine does not meet only one of them
        for name in ("cpu", "tern"):
            times[name] += run(script, name, spec["short"], show=False)["seconds_per_step"][1:]
    spread = largest_difference(results["cpu"]["losses"], results["cpu, 1 thread"]["losses"])
    rows = {}
    for name in ("cpu", "tern", "tern, xla-cpu"):
        r = results[name]
        difference = largest_difference(results["cpu"]["losses"], r["losses"])
        rows[name] = {
            "result": r[spec["result"]],
            "difference_first_5_steps": difference[4],
            "difference": difference[-1],
            "cpu_spread": spread[-1],
            "losses_agree": difference[4] <= SAME and difference[-1] <= max(SAME, 3 * spread[-1]),
            "ms_per_step": min(times[name]) * 1e3,
            "ratio_to_cpu": min(times[name]) / min(times["cpu"]),
            "programs_compiled": r.get("compiled"),
            "fallbacks": r.get("fallbacks"),
            "peak_memory_mb": r["peak_memory_mb"],
        }
    return rows, {name: r["losses"] for name, r in results.items()}


def show(tables):
    table = Table(title="tern beside plain PyTorch CPU", title_justify="left")
    for column in ("script", "device", "result", "largest difference (cpu's own)", "ms/step", "ratio", "programs", "fallbacks", "peak MB"):
        table.add_column(column, justify="left" if column in ("script", "device") else "right")
    for script, rows in tables.items():
        for name, r in rows.items():
            result = f"{r['result']:.2%}" if SCRIPTS[script]["result"] == "accuracy" else f"loss {r['result']:.4f}"
            verdict = "[green]same[/]" if r["losses_agree"] else "[red]differs[/]"
            difference = f"{r['difference']:.1e} ({r['cpu_spread']:.1e}) {verdict}" if name != "cpu" else ""
            count = lambda key: "" if r[key] is None else str(r[key])
            table.add_row(script if name == "cpu" else "", name, result, difference, f"{r['ms_per_step']:.2f}", f"{r['ratio_to_cpu']:.2f}x",
                          count("programs_compiled"), count("fallbacks"), f"{r['peak_memory_mb']:.0f}")
        table.add_section()
    console.print(table)


def draw(curves, path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(curves), figsize=(12, 4.2))
    styles = {"cpu": dict(color="#999", lw=5, alpha=0.6), "tern": dict(color="#0a6", lw=1.6), "tern, xla-cpu": dict(color="#c50", lw=1.2, ls="--")}
    for axis, (script, losses) in zip(axes, curves.items()):
        for name, style in styles.items():
            axis.plot(losses[name], label=name, **style)
        axis.set(title=SCRIPTS[script]["title"], xlabel="step", ylabel="training loss")
        axis.set_yscale("log" if script == "digits_cnn" else "linear")
        axis.grid(alpha=0.25)
        axis.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=130)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="shorter training (the figures are rougher)")
    args = parser.parse_args()
    BUILD.mkdir(exist_ok=True)
    start, tables, curves = time.time(), {}, {}
    for script in SCRIPTS:
        tables[script], curves[script] = measure(script, args.quick)
    console.print()
    show(tables)
    draw(curves, BUILD / "demo.png")
    (BUILD / "demo.json").write_text(json.dumps({"scripts": tables, "losses": curves, "seconds": time.time() - start}, indent=1))
    console.print(f"curves: build/demo.png   figures: build/demo.json   ({time.time() - start:.0f} s)")
    agree = all(r["losses_agree"] for rows in tables.values() for r in rows.values())
    accurate = all(r["result"] > 0.98 for r in tables["digits_cnn"].values()) or args.quick
    if not (agree and accurate):
        raise SystemExit("the runs do not agree: see the table above")


if __name__ == "__main__":
    main()
