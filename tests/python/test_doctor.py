"""`tern doctor` and bare `tern`, and which device is selected: each in a process of its own, as a user would."""
import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PLUGINS = ROOT / "build" / "tests" / "plugins"


def tern(*arguments, folder=ROOT, **environment):
    base = {name: value for name, value in os.environ.items() if not name.startswith("TERN_")}
    return subprocess.run([sys.executable, "-m", "torch_tern", *arguments], env={**base, **environment}, capture_output=True, text=True, timeout=150, cwd=folder)


def doctor(*arguments, **options):
    done = tern("doctor", "--json", "--quick", *arguments, **options)
    return done.returncode, {(row["group"], row["what"].split(" ")[0]): row for row in json.loads(done.stdout)}


def test_bare_tern_shows_the_path():
    done = tern()
    assert done.returncode == 0
    steps = [line.split()[0] for line in done.stdout.splitlines() if line.startswith("  ") and line.strip()]
    assert [step for step in steps if step in ("run", "check", "bench", "place")] == ["run", "check", "bench", "place"]


def test_doctor_where_all_is_well(tmp_path):
    done = tern("doctor", folder=tmp_path)
    assert done.returncode == 0 and done.stdout.rstrip().endswith("All is well."), done.stdout + done.stderr
    for told in ("torch-tern", "threads", "memory", "as on the CPU", "cpu: the default; TERN_DEVICE is not set", "pip package libneuronxla not installed"):
        assert told in done.stdout, told


def test_doctor_tells_selection_device_and_plugins(tmp_path):
    (tmp_path / "pyproject.toml").write_text('[tool.tern]\ndevice = "xla-cpu"\n')
    (tmp_path / "inner").mkdir()
    status, rows = doctor(folder=tmp_path / "inner")
    assert status == 0
    assert rows["selection", "device"]["message"] == f"xla-cpu: [tool.tern] device in {tmp_path}/pyproject.toml"
    assert "xla-cpu" in rows["device", "tern:0"]["message"] and rows["device", "training"]["state"] == "ok"
    assert "selected" in rows["plug-ins", "xla-cpu"]["message"]
    assert rows["plug-ins", "neuron"]["state"] == "missing"


@pytest.mark.parametrize(
    "device, code", [("no-such-chip", "[TERN-NO-PLUGIN]"), ("hang_create.so", "[TERN-TIMEOUT]"), ("crash_initialize.so", "[TERN-PLUGIN]"), ("exit_create.so", "[TERN-PLUGIN]")]
)
def test_doctor_survives_a_broken_plugin(device, code, tmp_path):
    if device.endswith(".so") and not (PLUGINS / device).exists():
        pytest.skip("the broken plug-ins are built with the C tests")
    status, rows = doctor("--timeout", "4", folder=tmp_path, TERN_DEVICE=str(PLUGINS / device) if device.endswith(".so") else device)
    assert status == 1
    assert rows["device", "open"]["state"] == "broken" and code in rows["device", "open"]["message"]


# ---- selection ----
SHOW = "import torch; print(torch.tern.get_device_properties().name)"


def show(folder, **environment):
    base = {name: value for name, value in os.environ.items() if not name.startswith("TERN_")}
    done = subprocess.run([sys.executable, "-c", SHOW], env={**base, **environment}, capture_output=True, text=True, timeout=100, cwd=folder)
    return done.stdout.strip() or done.stderr


def test_the_nearest_pyproject_selects_and_the_variable_wins(tmp_path):
    (tmp_path / "pyproject.toml").write_text('[tool.tern]\ndevice = "xla-cpu"\n')
    inner = tmp_path / "inner"
    inner.mkdir()
    assert show(inner) == "xla-cpu"
    assert show(inner, TERN_DEVICE="cpu") == "cpu"
    (inner / "pyproject.toml").write_text("[project]\nname = 'nearer'\n")
    assert show(inner) == "cpu"
