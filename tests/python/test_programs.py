"""What tells of programs: torch.tern.stablehlo, torch.tern.compile_log, executables on disk."""
import json
import os
import subprocess
import sys

import pytest
import torch

from torch_tern import plugins


def test_stablehlo():
    x, y = torch.ones(3, 4, device="tern"), torch.ones(4, 5, device="tern")
    text = torch.tern.stablehlo(lambda: (x @ y).relu())
    assert text.startswith('"builtin.module"') and "stablehlo.dot_general" in text and "tensor<3x5xf32>" in text and "test_programs.py" in text


def test_stablehlo_of_nothing():
    x = torch.ones(3, device="tern")
    with pytest.raises(RuntimeError, match="nothing is recorded"):
        torch.tern.stablehlo(lambda: (x + 1).sum().item())


def test_compile_log_names_what_changed():
    def step(n):
        return (torch.ones(n, 7, device="tern") * 3).sum(0).cpu()

    step(5)
    before = torch.tern.compile_log()[-1]["number"]
    step(6)
    (entry,) = [e for e in torch.tern.compile_log() if e["number"] > before]  # by number: a full log drops its oldest entry for each new one
    assert "5x7 became 6x7" in entry["reason"] and "test_programs.py" in entry["changed_line"] and entry["seconds"] > 0


HERE = {p.name for p in plugins.discover() if p.path}
XLA = "xla-cpu" in HERE
TRAIN = """
import json, torch
model = torch.nn.Linear(8, 4).to("tern")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    optimizer.zero_grad(); model(torch.ones(2, 8).to("tern")).square().mean().backward(); optimizer.step()
loss = model(torch.ones(2, 8).to("tern")).square().mean().item()
print(json.dumps({"loss": loss} | torch.tern.stats()))
"""


def train(folder, device="xla-cpu", **settings):
    environment = {**os.environ, "TERN_DEVICE": device, "TERN_CACHE_DIR": str(folder), **settings}
    code = "import torch; torch.manual_seed(0)" + TRAIN
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


@pytest.mark.skipif(not XLA, reason="xla-cpu-pjrt is not installed")
def test_a_second_process_compiles_nothing(tmp_path):
    first, words = train(tmp_path)
    assert first["compiled"] >= 2 and first["loaded"] == 0 and words == "", "XLA must print nothing"
    second, _ = train(tmp_path)
    assert second["compiled"] == 0 and second["loaded"] == first["compiled"] and second["loss"] == first["loss"]
    # A damaged file is compiled anew and mended; two processes at once do not disturb each other.
    for file in tmp_path.rglob("*.exe"):
        file.write_bytes(file.read_bytes()[:-100])
    third, _ = train(tmp_path)
    assert third["compiled"] == first["compiled"] and third["loss"] == first["loss"]
    assert train(tmp_path)[0]["compiled"] == 0
    # A limit below one file keeps none.
    for file in tmp_path.rglob("*.exe"):
        file.unlink()
    train(tmp_path, TERN_CACHE_LIMIT="10")
    assert not list(tmp_path.rglob("*.exe"))


@pytest.mark.skipif(not {"xla-cpu", "jax-cpu"} <= HERE, reason="xla-cpu-pjrt or lammps-jax-pjrt-cpu is not installed")
def test_two_makers_of_plugins_agree(tmp_path):
    one, _ = train(tmp_path / "one")
    two, _ = train(tmp_path / "two", device="jax-cpu")
    assert one["programs"] == two["programs"] and two["fallbacks"] == 0
    assert two["loss"] == pytest.approx(one["loss"], rel=1e-5)
