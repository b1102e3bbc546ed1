"""`tern doctor`: what is installed, which device is selected and why, which plug-ins are found and what is missing for the others, and whether training works.

Rows are (group, what, state, message). States: "ok"; "note", worth knowing and not wrong; "missing", could be installed; "broken", which makes the exit status 1. This process
opens no device: what might crash or hang, opening a plug-in, is tried in a child with a time limit."""
import argparse
import concurrent.futures
import importlib.metadata
import json
import os
import subprocess
import sys
import time
from typing import Any

_MARK = "tern doctor trial: "
_OTHERS = 10  # seconds for a plug-in that is not the selected one: one without its chip often waits for ever
_STATES = {"ok": "green", "note": "cyan", "missing": "yellow", "broken": "bold red"}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="the rows as a JSON list of objects with group, what, state and message")
    parser.add_argument("--quick", action="store_true", help="open the selected device only, not every plug-in that is found")
    parser.add_argument("--timeout", type=float, default=60, metavar="SECONDS", help="time limit for each device that is tried (default 60)")


def run(options: argparse.Namespace) -> int:
    rows = examine(options.timeout, not options.quick)
    if options.json:
        print(json.dumps(rows, indent=2))
    else:
        _print_table(rows)
    return 1 if any(row["state"] == "broken" for row in rows) else 0


def examine(timeout: float = 60, open_all: bool = True) -> list[dict[str, str]]:
    """Every row of the table. `timeout`: seconds for each device that is tried; `open_all`: also the plug-ins that are not selected."""
    rows: list[dict[str, str]] = []

    def row(group: str, what: str, state: str, message: str) -> None:
        rows.append({"group": group, "what": what, "state": state, "message": message})

    row("software", "python", "ok", f"{sys.version.split()[0]} ({sys.executable})")
    try:
        import torch
    except ImportError as error:
        row("software", "torch", "broken", f"{error}; install torch 2.13")
        return rows
    row("software", "torch", "ok", torch.__version__)
    try:
        import torch_tern

        torch_tern.register()
        from torch_tern import _C, _build
    except ImportError as error:
        row("software", "torch-tern", "broken", str(error))
        return rows
    row("software", "torch-tern", "ok", f"{_build.VERSION}, shim built for torch {_build.TORCH}")
    reason = torch_tern._why_not()
    row("software", "autoload", "ok" if reason is None else "note", "`import torch` registers tern" if reason is None else f"off: {reason}; TERN_DEVICE=cpu turns it on")

    device, why = torch_tern._selection()
    row("selection", "device", "ok", f"{device or 'cpu'}: {why}")
    for variable, value, _ in _C.settings():
        if os.environ.get(variable) and variable != "TERN_DEVICE":
            row("selection", variable, "note", os.environ[variable])

    from torch_tern import plugins

    found = plugins.discover()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        chosen = pool.submit(_try_device, device or "cpu", True, timeout)
        others = {plugin: pool.submit(_try_device, plugin.path, False, min(timeout, _OTHERS)) for plugin in found if open_all and plugin.path and plugin.name != device}
        _device_rows(row, chosen.result())
        for plugin in found:
            what = f"{plugin.name}{_version(plugin.package)}"
            if plugin.path is None:
                row("plug-ins", what, "missing", plugin.missing)
            elif plugin.name == device:
                row("plug-ins", what, "ok", f"{plugin.path} (by {plugin.source}): selected")
            elif plugin not in others:
                row("plug-ins", what, "ok", f"{plugin.path} (by {plugin.source}); not opened")
            else:
                trial = others[plugin].result()
                state, said = ("note", f"does not open here: {trial['error']}") if trial.get("error") else ("ok", f"opens: {trial['devices'][0]['name']}")
                row("plug-ins", what, state, f"{plugin.path} (by {plugin.source}); {said}")
    return rows


def _version(package: str) -> str:
    try:
        return f" ({package} {importlib.metadata.version(package)})" if package else ""
    except importlib.metadata.PackageNotFoundError:
        return ""


def _device_rows(row: Any, trial: dict[str, Any]) -> None:
    """The selected device, from what its trial told."""
    if trial.get("error"):
        row("device", "open", "broken", trial["error"])
        return
    for number, one in enumerate(trial["devices"]):
        limit = one["memory_limit"]
        row("device", f"tern:{number}", "ok", f"{one['name']}, memory {f'{limit / 2**30:.1f} GiB' if limit else 'unknown'}")
    step = trial["training"]
    told = f"loss {step['losses'][0]:.4f} -> {step['losses'][-1]:.4f} in {len(step['losses'])} steps, {step['seconds'] * 1e3:.0f} ms with compiling"
    if step["agrees"]:
        row("device", "training", "ok", f"{told}, as on the CPU")
    else:
        row("device", "training", "broken", f"{told}; the CPU gives {step['expected'][-1]:.4f}")
    if step["fallbacks"]:
        row("device", "fallbacks", "note", ", ".join(f"{f['operator']} x {f['count']}" for f in step["fallbacks"]))


# ---- trials ----
def _try_device(device: str, train: bool, timeout: float) -> dict[str, Any]:
    """Opens the device in a child (which has half a minute more, to start) and, with `train`, trains on it: {"devices", "training"}, or {"error"} in one line."""
    code = f"from torch_tern import doctor; doctor._trial({train})"
    environment = {**os.environ, "TERN_DEVICE": device, "TERN_FALLBACK": "allow", "TERN_PLUGIN_TIMEOUT": f"{max(1, int(timeout))}"}
    try:
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=timeout + 30, check=False)
    except subprocess.TimeoutExpired:
        return {"error": f"[TERN-TIMEOUT] no answer within {timeout:g} s (--timeout)"}
    for line in reversed(done.stdout.splitlines()):
        if line.startswith(_MARK):
            return json.loads(line[len(_MARK) :])
    last = done.stderr.strip().splitlines()[-1:] or ["it said nothing"]
    return {"error": f"[TERN-PLUGIN] the trial ended with status {done.returncode}: {last[0]}"}


def _trial(train: bool) -> None:
    """What the child does; prints one line of JSON for the parent."""
    import torch

    import torch_tern

    torch_tern.register()
    told: dict[str, Any] = {}
    try:
        count = torch_tern._C.device_count()
        told["devices"] = []
        for number in range(count if train else 1):
            told["devices"].append({"name": torch.tern.get_device_name(number), "memory_limit": torch_tern._C.device_info(number)["memory_limit"]})
        if train:
            told["training"] = _train()
    except Exception as error:  # noqa: BLE001  whatever it is, the parent shows it
        told["error"] = " ".join(str(error).split())[:600]
    print(_MARK + json.dumps(told), flush=True)


def _train() -> dict[str, Any]:
    import torch

    losses: dict[str, list[float]] = {}
    start = 0.0
    for device in ("cpu", "tern"):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
        x, target = torch.randn(64, 16), torch.arange(64) % 4
        start = time.perf_counter()
        model, x, target = model.to(device), x.to(device), target.to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        losses[device] = []
        for _ in range(5):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), target)
            loss.backward()
            optimizer.step()
            losses[device].append(loss.item())
    agrees = all(abs(a - b) <= 1e-3 * abs(b) for a, b in zip(losses["tern"], losses["cpu"], strict=True))
    return {
        "losses": losses["tern"],
        "expected": losses["cpu"],
        "agrees": agrees,
        "seconds": time.perf_counter() - start,
        "fallbacks": torch.tern.stats()["fallbacks_by_operator"],
    }


# ---- the table ----
def _print_table(rows: list[dict[str, str]]) -> None:
    import rich.console
    import rich.markup
    import rich.table

    console = rich.console.Console()
    if not console.is_terminal:
        console = rich.console.Console(width=240)
    table = rich.table.Table(box=None, pad_edge=False)
    for heading in ("", "", "state", ""):
        table.add_column(heading, overflow="fold")
    group = None
    for row in rows:
        color = _STATES[row["state"]]
        table.add_row(row["group"] if row["group"] != group else "", rich.markup.escape(row["what"]), f"[{color}]{row['state']}[/]", rich.markup.escape(row["message"]))
        group = row["group"]
    console.print(table)
    broken = [row for row in rows if row["state"] == "broken"]
    console.print(f"{len(broken)} broken: see above; `tern explain CODE` says what to do." if broken else "All is well.")
