"""`tern doctor`: what is installed, what is found, what is missing."""
import argparse
import json
import os
import sys


def _doctor() -> list[dict[str, str]]:
    rows = []

    def row(what: str, state: str, message: str) -> None:
        rows.append({"what": what, "state": state, "message": message})

    row("python", "ok", sys.version.split()[0])
    try:
        import torch

        row("torch", "ok", torch.__version__)
    except ImportError as error:
        row("torch", "missing", f"{error}; install torch 2.13")
        return rows
    try:
        import torch_tern

        torch_tern.register()
        from torch_tern import _C, _build
    except ImportError as error:
        row("torch-tern", "broken", str(error))
        return rows
    row("torch-tern", "ok", f"{_build.VERSION}, built for torch {_build.TORCH}")
    reason = torch_tern._why_not()
    row("autoload", "ok" if reason is None else "off", reason or "`import torch` registers tern")
    for variable, value, _ in _C.settings():
        if os.environ.get(variable):
            row(variable, "set", value)
    try:
        count = _C.device_count()
        for index in range(count):
            row(f"tern:{index}", "ok", torch.tern.get_device_name(index))
        ones = torch.ones(4, device="tern")
        row("a computation", "ok" if (ones + ones).sum().item() == 8 else "wrong", "4 * (1 + 1) = 8")
    except (RuntimeError, MemoryError) as error:
        row("device", "broken", str(error))
    return rows


def _print_table(rows: list[dict[str, str]], as_json: bool) -> None:
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    width = max(len(row["what"]) for row in rows)
    for row in rows:
        print(f"{row['what']:<{width}}  {row['state']:<8} {row['message']}")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="the table as JSON")


def run(options: argparse.Namespace) -> int:
    rows = _doctor()
    _print_table(rows, options.json)
    return 0 if all(row["state"] in ("ok", "set", "off") for row in rows) else 1
