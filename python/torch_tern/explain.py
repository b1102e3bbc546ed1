"""`tern explain`: what a code in one of tern's messages means and what to do; bare, the list of codes. `--markdown` writes docs/errors.md."""
import argparse
import dataclasses
import difflib
import json
import sys
import textwrap

from torch_tern.errors import Kind, table

_PAGE = """# Errors and warnings

<!-- Made from src/base/errors.def by `tern explain --markdown`; do not edit. -->

Every error and warning of tern's own begins with a code in brackets, and ends with the line of your program. `tern explain CODE` prints what is below. What PyTorch refuses on every
device (a wrong shape, a wrong dtype) is raised in PyTorch's own words, without a code. In C, `tern_code_label(tern_error_code(status))` gives the code.

| code | raised as | what it is |
|---|---|---|
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("code", nargs="?", help="as in the message: TERN-OOM, or OOM")
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="code, exception, title, cause and remedy as JSON: an object for one code, a list of all")
    output.add_argument("--markdown", action="store_true", help="all of them as the page docs/errors.md")


def find(code: str) -> Kind | None:
    """The kind that somebody means who types `code`: any case, with or without brackets and TERN-."""
    code = code.strip("[] ").upper().replace("_", "-")
    return table().get(code) or table().get(f"TERN-{code}")


def markdown() -> str:
    kinds = table().values()
    lines = [_PAGE + "\n".join(f"| [{k.code}](#{k.code.lower()}) | `{_exception(k)}` | {k.title} |" for k in kinds)]
    lines += [f"## {k.code}\n\n*{k.title}*\n\n**Cause.** {k.cause}\n\n**What to do.** {k.remedy}" for k in kinds]
    return "\n\n".join(lines) + "\n"


def _exception(kind: Kind) -> str:
    return "torch.OutOfMemoryError" if kind.exception == "OutOfMemoryError" else kind.exception


def _wrapped(heading: str, text: str) -> str:
    return f"{heading}\n{textwrap.fill(text, 100, initial_indent='  ', subsequent_indent='  ')}\n"


def run(options: argparse.Namespace) -> int:
    if options.markdown:
        print(markdown(), end="")
        return 0
    if options.code is None:
        if options.json:
            print(json.dumps([dataclasses.asdict(kind) for kind in table().values()], indent=2))
            return 0
        width = max(len(code) for code in table())
        for kind in table().values():
            print(f"{kind.code:<{width}}  {kind.title}")
        print("\n`tern explain CODE` gives cause and remedy.")
        return 0
    kind = find(options.code)
    if kind is None:
        near = difflib.get_close_matches(options.code.upper(), table(), n=1, cutoff=0.5)
        print(f"tern explain: no code {options.code}{f'; did you mean {near[0]}?' if near else ''} `tern explain` lists them.", file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps(dataclasses.asdict(kind), indent=2))
        return 0
    print(f"{kind.code}: {kind.title} ({_exception(kind)})\n")
    print(_wrapped("Cause", kind.cause))
    print(_wrapped("What to do", kind.remedy), end="")
    return 0
