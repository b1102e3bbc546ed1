"""Run a PyTorch script unchanged and write down what it cost: `python measure.py figures.json script.py [arguments]`."""

import json
import runpy
import sys

import torch


def peak_memory_mb():
    with open("/proc/self/status") as file:
        return int(file.read().split("VmHWM:")[1].split()[0]) / 1024


figures_path, script, *arguments = sys.argv[1:]
sys.argv = [script, *arguments]
runpy.run_path(script, run_name="__main__")
figures = {"peak_memory_mb": peak_memory_mb(), "threads": torch.get_num_threads()}
if hasattr(torch, "tern"):
    figures.update(torch.tern.stats())
with open(figures_path, "w") as out:
    json.dump(figures, out)
