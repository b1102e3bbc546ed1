"""The command `tern`. Bare, it shows the path from a script to a chip. Each command is a module with arguments(parser) and run(options) -> exit status, loaded when it
is asked for; a new one is a row of _COMMANDS. Every table has --json."""
import argparse
import importlib
import sys

_PATH = """tern runs an unmodified PyTorch program on the chip at hand.

  run     python script.py                the script takes torch.accelerator.current_accelerator()
          TERN_DEVICE=xla-cpu python ...  the same script over a PJRT plug-in; cpu, the embedded engine, is the default
  check   tern check script.py            which chips a program compiles for and fits, and how long a step takes: none is needed
  bench   make bench                      this machine's figures beside PyTorch CPU
  place   tern place                      where a program runs cheapest                            (not there yet)

  tern profile script.py                  where its time goes, kernel by kernel, beside what the machine can do
  tern doctor                             what is installed, what is found, what is missing
  tern explain CODE                       what an error or warning means and what to do
"""

# name: (module, help)
_COMMANDS = {
    "cache": ("torch_tern.cache", "compiled programs on disk: list or clear them"),
    "check": ("torch_tern.check", "compiles a script's programs for chips that are not here: whether they compile, fit, and how long a step may take"),
    "profile": ("torch_tern.profile", "where a script's time on the device goes, kernel by kernel"),
    "doctor": ("torch_tern.doctor", "what is installed, what is found, what is missing"),
    "explain": ("torch_tern.explain", "what a code in a message means and what to do; bare, the list of codes"),
}


def main(arguments: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    parser = argparse.ArgumentParser(prog="tern", description="runs unmodified PyTorch programs on the chip at hand")
    commands = parser.add_subparsers(dest="command")
    for name, (module, help_text) in _COMMANDS.items():
        command = commands.add_parser(name, help=help_text)
        if arguments[:1] == [name]:
            importlib.import_module(module).arguments(command)
    options = parser.parse_args(arguments)
    if options.command is None:
        print(_PATH)
        return 0
    return importlib.import_module(_COMMANDS[options.command][0]).run(options)


if __name__ == "__main__":
    sys.exit(main())
