"""`tern check`: does a program compile for a chip, does it fit, and how long may a step take, before there is such a chip.

The script runs as it is on the embedded engine (script.py, in a process of its own) until its steps repeat; the programs of a step go to the real compiler of each target
(ahead.py, a process each), and what it says is weighed against the chip's memory and peaks (evaluate.py, report.py). Chips whose compiler is not here get a roofline
from hardware.toml, marked "not compiled"."""
import argparse
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

from torch_tern.check import evaluate, report, targets
from torch_tern.errors import coded

DEFAULT_TARGETS = ["tpu:v5e", "tpu:v6e", "tpu:7x", "cuda:h100"]
_SHAPES = {2: {1: "1x1", 4: "2x2", 8: "2x4", 16: "4x4", 32: "4x8", 64: "8x8", 128: "8x16", 256: "16x16"},
           3: {1: "1x1x1", 4: "2x2x1", 8: "2x2x2", 16: "2x2x4", 32: "2x4x4", 64: "4x4x4"}}  # fmt: skip


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--target", action="append", metavar="CHIP[:SLICE]", help=f"tpu:v5e, tpu:v6e:2x2, cuda:h100:8 ...; may be repeated (default: {', '.join(DEFAULT_TARGETS)})")
    parser.add_argument("--all", action="store_true", help="every target there is")
    parser.add_argument("--list", action="store_true", help="the targets, and the package that each needs")
    parser.add_argument("--steps", type=int, default=8, help="optimizer steps to run at most; fewer where they repeat earlier (default 8)")
    parser.add_argument("--seconds", type=float, default=300, help="seconds that the script may run (default 300)")
    parser.add_argument("--compile-seconds", type=float, default=600, help="seconds that a target's compiler may take (default 600)")
    parser.add_argument("--no-values", action="store_true", help="compute nothing and allocate nothing: for models too big for this machine; what the script reads is zeros")
    parser.add_argument("--batch", type=int, help="the size of a batch: arguments with this dimension 0 are split over a slice's chips")
    parser.add_argument("--sweep", action="append", default=[], metavar="NAME=1,2,4", help="once for each value: chips=..., or any {NAME} in the script's arguments")
    parser.add_argument("--json", action="store_true", help="the report as JSON")
    parser.add_argument("--html", metavar="FILE", help="the report as a page with pictures, too")
    parser.add_argument("--keep", metavar="FOLDER", help="keep the programs (StableHLO) and capture.json here")
    parser.add_argument("script", nargs=argparse.REMAINDER, help="script.py [args], or -m module [args], as after python")


def capture(arguments: list[str], folder: pathlib.Path, steps: int, seconds: float, values: bool) -> dict:
    """Runs the script and gives what script.py wrote. RuntimeError where it wrote nothing."""
    environment = {**os.environ, "TERN_DEVICE": "trace:cpu" if values else "trace:zeros"}
    environment.setdefault("TERN_FALLBACK", "allow")
    command = [sys.executable, "-m", "torch_tern.check.script", str(folder), str(steps), str(seconds), *arguments]
    child = subprocess.Popen(command, stdout=sys.stderr, env=environment, start_new_session=True)
    try:
        code = child.wait(timeout=seconds + 60)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        raise RuntimeError(coded("TERN-TIMEOUT", f"the script did not end within {seconds:g} s and could not be interrupted (--seconds)")) from None
    except BaseException:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        raise
    if not (folder / "capture.json").exists():
        how = f"was ended by {signal.strsignal(-code)}" if code < 0 else f"ended with exit status {code}"
        raise RuntimeError(coded("TERN-ARGUMENT", f"the script {how} before its programs could be written down"))
    return json.loads((folder / "capture.json").read_text())


def _sweep(options: list[str]) -> list[tuple[str, list[str]]]:
    swept = []
    for option in options:
        name, equals, values = option.partition("=")
        if not equals or not values:
            raise ValueError(coded("TERN-ARGUMENT", f"--sweep {option}: it is NAME=value,value,..."))
        swept.append((name, values.split(",")))
    return swept


def _with_chips(target: targets.Target, chips: int) -> targets.Target:
    name = target.chip.id
    if chips > 1:
        shape = str(chips) if not target.chip.topology else _SHAPES[target.chip.shape.count("x") + 1].get(chips)
        if shape is None:
            raise ValueError(coded("TERN-ARGUMENT", f"--sweep chips={chips}: a slice of {name} has one of {', '.join(map(str, _SHAPES[target.chip.shape.count('x') + 1]))} chips"))
        name += f":{shape}"
    return targets.parse(name)


def evaluate_all(options: argparse.Namespace) -> tuple[list[dict], dict]:
    """The rows of the report, and the capture of the last run."""
    names = options.target or DEFAULT_TARGETS
    wanted = [targets.parse(name) for name in (targets.chips() if options.all else names)]
    sweeps = _sweep(options.sweep)
    chips = next((values for name, values in sweeps if name == "chips"), None)
    others = [(name, values) for name, values in sweeps if name != "chips"]
    if len(others) > 1:
        raise ValueError(coded("TERN-ARGUMENT", "--sweep: one name besides chips at a time"))
    name, values = others[0] if others else ("", [""])
    if name and not any(f"{{{name}}}" in argument for argument in options.script):
        raise ValueError(coded("TERN-ARGUMENT", f"--sweep {name}=...: write {{{name}}} where its value belongs among the script's arguments, as in: train.py --batch-size {{{name}}}"))
    if chips:
        wanted = [_with_chips(target, int(n)) for target in wanted for n in chips]
    rows, last = [], {}
    for value in values:
        arguments = [argument.replace(f"{{{name}}}", value) if name else argument for argument in options.script]
        with contextlib.ExitStack() as stack:
            folder = pathlib.Path(options.keep) if options.keep else pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tern-check-")))
            if name and options.keep:
                folder /= f"{name}-{value}"
            folder.mkdir(parents=True, exist_ok=True)
            last = capture(arguments, folder, options.steps, options.seconds, not options.no_values)
            batch = int(value) if name == "batch" and value.isdigit() else options.batch
            for target in wanted:
                row = evaluate.check(target, last, folder, options.compile_seconds, batch)
                if name:
                    row["sweep"] = f"{name}={value}"
                rows.append(row)
    return rows, last


def _largest_that_fits(rows: list[dict]) -> list[str]:
    """A line for each target of a sweep: the last value that fits."""
    lines = []
    for target in dict.fromkeys(row["target"] for row in rows):
        fitting = [row["sweep"] for row in rows if row["target"] == target and row["fits"]]
        lines.append(f"{target}: {'the largest that fits is ' + fitting[-1] if fitting else 'none fits'}")
    return lines


def run(options: argparse.Namespace) -> int:
    """0: every target compiled and fits; 1: some do not; 2: the question could not be asked."""
    try:
        if options.list:
            rows = targets.listing()
            if options.json:
                print(json.dumps(rows, indent=2))
            else:
                for row in rows:
                    state = "compiler here" if row["compiler"] else f"roofline only: {row['missing']}"
                    print(f"{row['target']:<16} {row['name']:<24} {row['memory_gb']:>5} GB  {row['bf16_tflops']:>6} TFLOP/s  {row['package']:<16} {state}")
            return 0
        if not options.script:
            raise ValueError(coded("TERN-ARGUMENT", "tern check: which script? As in: tern check --target tpu:v5e train.py --batch-size 8"))
        rows, last = evaluate_all(options)
    except (ValueError, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 2
    if options.html:
        pathlib.Path(options.html).write_text(report.page(rows, last))
    if options.json:
        print(report.as_json(rows))
    else:
        print(report.table(rows))
        print("\n".join(report.facts(rows, last) + (_largest_that_fits(rows) if any(row.get("sweep") for row in rows) else [])))
    return 0 if all(row["compiles"] is not False and row["fits"] is not False and row["seconds_estimate"] is not None for row in rows) else 1
