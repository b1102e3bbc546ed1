"""Compiles programs for a chip that is not here, in a process of its own: a vendor's compiler may crash, abort or never end.

Run as a file, not as a module, so that neither torch nor torch_tern is imported: `python compile.py REQUEST RESULT` reads and writes JSON files. What the compiler prints
goes where the parent has pointed stdout and stderr."""
import ctypes
import importlib.util
import json
import sys


def load(module: str, libraries: list[str]):
    """torch_tern._C without Python's torch: it needs torch's libraries, which are loaded by hand."""
    for library in libraries:
        ctypes.CDLL(library, ctypes.RTLD_GLOBAL)
    spec = importlib.util.spec_from_file_location("torch_tern._C", module)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def main() -> None:
    with open(sys.argv[1]) as file:
        request = json.load(file)
    texts = []
    for path in request["programs"]:
        with open(path) as file:
            texts.append(file.read())
    native = load(request["module"], request["libraries"])
    try:
        result = native.compile_ahead(request["plugin"], request["topology"], request["config"], texts, request["partitions"])
    except Exception as error:
        result = {"error": str(error)}
    with open(sys.argv[2], "w") as file:
        json.dump(result, file)


main()
