"""Plug-ins written to break (tests/plugins), seen from Python: each is an exception that says what is wrong, and the process goes on."""
import pathlib
import subprocess
import sys

import pytest

import torch_tern

BUILT = sorted(p for folder in torch_tern.__path__ for p in (pathlib.Path(folder).parents[1] / "tests" / "plugins").glob("*.so"))
# These open, and fail when they are used: the C tests see to that.
OPEN = {"late_failure", "out_of_memory", "error_everywhere"}
TRY_ALL = """
import sys
from torch_tern import _C
_C.set_setting("TERN_PLUGIN_TIMEOUT", "3")
for path in sys.argv[1:]:
    _C.set_setting("TERN_DEVICE", path)
    try:
        print(path, "opened", _C.device_count())
    except Exception as error:
        print(path, type(error).__name__, str(error).replace("\\n", " "))
print("alive")
"""


@pytest.mark.skipif(not BUILT, reason="the broken plug-ins are not built (make test-c builds them)")
def test_each_is_an_exception():
    done = subprocess.run([sys.executable, "-c", TRY_ALL, *map(str, BUILT)], capture_output=True, text=True, timeout=300)
    *lines, last = done.stdout.splitlines()
    assert done.returncode == 0 and last == "alive", done.stderr
    assert len(lines) == len(BUILT)
    for path, line in zip(BUILT, lines):
        what = line.removeprefix(f"{path} ")
        if path.stem in OPEN:
            continue
        assert not what.startswith("opened"), line
        assert "[TERN-" in what and len(what) > 60, f"{path.stem}: the message must say what is wrong: {what}"


@pytest.mark.parametrize("device, words", [("frobnicator", "xla-cpu"), ("/nowhere/plugin.so", "does not exist"), ("neuron", "pip install libneuronxla")])
def test_missing(device, words):
    done = subprocess.run([sys.executable, "-c", TRY_ALL, device], capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines()[-1] == "alive" and words in done.stdout, done.stdout
