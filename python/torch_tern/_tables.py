"""The rows of the core's tables (src/base/errors.def, src/pjrt/plugins.def) as Python sees them.

The build copies the files beside the compiled module. A row is written like a call, in C as in Python, so Python's own parser reads it: no compiled code is
needed, and `tern explain` works where the module cannot be loaded."""
import ast
import functools
import pathlib
import re

import torch_tern


@functools.lru_cache
def rows(file: str) -> list[tuple]:
    """The arguments of each row of the table `file`, in order: identifiers and strings as str. ImportError where the build did not copy it."""
    for folder in torch_tern.__path__:
        path = pathlib.Path(folder) / file
        if path.is_file():
            text = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.DOTALL)
            calls = [statement.value for statement in ast.parse(text).body]
            return [tuple(a.id if isinstance(a, ast.Name) else ast.literal_eval(a) for a in call.args) for call in calls]
    from torch_tern.errors import coded

    raise ImportError(coded("TERN-BUILD", f"{file} is missing from {list(torch_tern.__path__)}: in a source tree run `make build`"))
