"""Runs a script on the trace device until its steps repeat, and writes down the programs of one step.

`python -m torch_tern.check.script OUT STEPS SECONDS script.py [args]` in a process of its own, with TERN_DEVICE=trace... set. The script is not changed: it ends where
it ends, or after an optimizer step, once the programs of a step have repeated. OUT/capture.json and OUT/program-N.mlir are what comes out."""
import json
import pathlib
import runpy
import signal
import sys
import time
import traceback

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

import torch_tern  # noqa: F401  registers the device
from torch_tern import _C


class Enough(BaseException):
    """Ends the script. Not an Exception: what a script catches to go on must not catch this."""


def segments(launches: list[int]) -> list[list[int]]:
    """The launches of each step: those before the first mark, ..., those after the last."""
    steps: list[list[int]] = [[]]
    for number in launches:
        if number < 0:
            steps.append([])
        else:
            steps[-1].append(number)
    return steps


def steady(steps: list[list[int]]) -> list[int] | None:
    """The launches of a steady step: where the last p steps equal the p before them (p optimizers, or p phases). None so far. The last of `steps` is not over."""
    whole = [step for step in steps[:-1]]
    for period in range(1, 5):
        if len(whole) >= 2 * period and whole[-period:] == whole[-2 * period : -period] and any(whole[-period:]):
            return [number for step in whole[-period:] for number in step]
    return None


def main_programs(steps: list[list[int]], programs: list[dict]) -> list[int]:
    """Where no optimizer marks steps, or they do not repeat: the last whole step, else what is launched again and again, else everything."""
    if len(steps) > 2 and steps[-2]:
        return steps[-2]
    again = [p["number"] for p in programs if p["launches"] > 1]
    return again or [p["number"] for p in programs]


class Watch:
    """Marks each optimizer step, and ends the script when there is no more to learn or its time is over."""

    def __init__(self, most_steps: int, seconds: float):
        self.most_steps, self.steps, self.why = most_steps, 0, "the script ended"
        self.gradient_bytes: dict[int, int] = {}
        register_optimizer_step_post_hook(self.step_ended)
        signal.signal(signal.SIGALRM, self.time_is_over)
        signal.setitimer(signal.ITIMER_REAL, seconds)

    def step_ended(self, optimizer, args, kwargs):
        gradients = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        self.gradient_bytes[id(optimizer)] = sum(g.numel() * g.element_size() for g in gradients)
        torch.tern.synchronize()
        _C.trace_mark()
        self.steps += 1
        if steady(segments(_C.trace_launches())):
            self.why = f"its steps repeat, seen after {self.steps}"
            raise Enough
        if self.steps >= self.most_steps:
            self.why = f"{self.steps} steps were run, and they do not repeat"
            raise Enough

    def time_is_over(self, number, frame):
        self.why = "its time was over (--seconds)"
        raise Enough


def run_script(arguments: list[str]) -> None:
    script, sys.argv = arguments[0], list(arguments)
    if script == "-m":
        sys.argv = arguments[1:]
        sys.path.insert(0, "")
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, str(pathlib.Path(script).resolve().parent))
        runpy.run_path(script, run_name="__main__")


def main() -> int:
    out, most_steps, seconds = pathlib.Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    arguments = sys.argv[4:]
    started, error = time.perf_counter(), ""
    watch = Watch(most_steps, seconds)
    try:
        run_script(arguments)
    except Enough:
        pass
    except SystemExit as exit:
        if exit.code not in (None, 0):
            error = f"the script ended with exit status {exit.code}"
    except BaseException as exception:  # whatever a script raises is its result here
        frames = traceback.extract_tb(exception.__traceback__)
        own = [frame for frame in frames if "torch_tern/check/" not in frame.filename and "runpy" not in frame.filename]
        error = "".join(traceback.format_list(own[-6:]) + traceback.format_exception_only(exception))
    signal.setitimer(signal.ITIMER_REAL, 0)
    try:
        torch.tern.synchronize()
    except Exception as exception:
        error = error or str(exception)
    programs = _C.trace_programs()
    steps = segments(_C.trace_launches())
    repeated = steady(steps)
    launched = repeated or main_programs(steps, programs)
    for program in programs:
        text = program.pop("text")
        program["file"] = ""
        if text is not None:
            program["file"] = f"program-{program['number']}.mlir"
            (out / program["file"]).write_text(text)
    capture = {
        "arguments": arguments, "steps": watch.steps, "ended": watch.why, "error": error, "repeats": repeated is not None, "step": launched,
        "programs": programs, "fallbacks": torch.tern.fallbacks(), "placeholders_read": _C.trace_reads(), "seconds": time.perf_counter() - started,
        "stats": torch.tern.stats(), "gradient_bytes": sum(watch.gradient_bytes.values()),
    }  # fmt: skip
    (out / "capture.json").write_text(json.dumps(capture))
    sys.stdout.flush()
    return 0


if __name__ == "__main__":
    code = main()
    import os

    os._exit(code)  # nothing of the script's is worth waiting for
