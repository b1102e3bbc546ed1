"""The command `tern`. Bare, it shows the path from a script to a chip; every table has --json."""
import argparse
import json
import os
import sys

_PATH = """tern runs an unmodified PyTorch program on the chip at hand.

  run     python script.py                the script takes torch.accelerator.current_accelerator()
          TERN_DEVICE=xla-cpu python ...  the same script over a PJRT plug-in; cpu, the embedded engine, is the default
  check   tern check                      which targets a program compiles for and fits            (not there yet)
  bench   make bench                      this machine's figures beside PyTorch CPU
  place   tern place                      where a program runs cheapest                            (not there yet)

  tern doctor                             what is installed, what is found, what is missing
"""


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


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tern", description="runs unmodified PyTorch programs on the chip at hand")
    commands = parser.add_subparsers(dest="command")
    doctor = commands.add_parser("doctor", help="what is installed, what is found, what is missing")
    doctor.add_argument("--json", action="store_true", help="the table as JSON")
    options = parser.parse_args(arguments)
    if options.command is None:
        print(_PATH)
        return 0
    rows = _doctor()
    _print_table(rows, options.json)
    return 0 if all(row["state"] in ("ok", "set", "off") for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
