"""tern check: an unmodified script's steady step, compiled for chips that are not here."""
import json
import os
import subprocess
import sys

import pytest

from torch_tern.check import estimate, evaluate, sharding, targets
from torch_tern.check.script import main_programs, segments, steady

TRAIN = """
import argparse
import torch
p = argparse.ArgumentParser(); p.add_argument("--batch", type=int, default=8); p.add_argument("--width", type=int, default=64)
a = p.parse_args()
device = torch.accelerator.current_accelerator()
model = torch.nn.Sequential(torch.nn.Linear(16, a.width), torch.nn.ReLU(), torch.nn.Linear(a.width, 4)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(100):
    x, y = torch.randn(a.batch, 16), torch.randint(0, 4, (a.batch,))
    loss = torch.nn.functional.cross_entropy(model(x.to(device)), y.to(device))
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    print(step, loss.item())
"""


def check(tmp_path, *options, script=TRAIN, arguments=()):
    (tmp_path / "train.py").write_text(script)
    command = [sys.executable, "-m", "torch_tern", "check", "--json", *options, "train.py", *arguments]
    environment = {"TERN_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, env={**os.environ, **environment})
    assert done.stdout.startswith("["), done.stderr
    return json.loads(done.stdout), done


def needs_compiler(name):
    target = targets.parse(name)
    return pytest.mark.skipif(target.plugin is None, reason=f"{name}: {target.missing}")


def test_roofline_without_a_compiler(tmp_path):
    rows, done = check(tmp_path, "--target", "neuron:trn2", "--target", "rocm:mi300x")
    assert done.returncode == 0 and [row["target"] for row in rows] == ["neuron:trn2", "rocm:mi300x"]
    for row in rows:
        assert row["compiles"] is None and row["message"].startswith("not compiled") and row["estimate_basis"].startswith("roofline")
        assert row["programs_in_step"] == 1 and row["seconds_estimate"] > 0
        # Two layers forward, one input gradient and two weight gradients backward, 2 operations a multiply-add; the rest is small.
        matrices = 2 * 8 * (2 * (16 * 64) + 3 * (64 * 4))
        assert matrices < row["flops"] < 2 * matrices
        assert any("train.py" in tensor["line"] for tensor in row["largest"])
    assert len(done.stderr.splitlines()) < 20, "the script is stopped once its steps repeat"


@needs_compiler("tpu:v5e")
def test_tpu(tmp_path):
    rows, done = check(tmp_path, "--target", "tpu:v5e", "--target", "tpu:v5e:2x2")
    one, four = rows
    assert done.returncode == 0 and one["compiles"] and one["fits"] and one["limit_bytes"] > 15 << 30
    assert 0 < one["argument_bytes"] < one["peak_bytes"] < 64 << 20
    assert four["compiles"] and four["partitions"] == 4 and any("2 arguments are split" in note for note in four["notes"])
    again, _ = check(tmp_path, "--target", "tpu:v5e")
    assert again[0]["peak_bytes"] == one["peak_bytes"]


@needs_compiler("cuda:h100")
def test_gpu(tmp_path):
    (row,), done = check(tmp_path, "--target", "cuda:h100")
    assert done.returncode == 0 and row["compiles"] and row["fits"] and row["limit_bytes"] > 70 << 30


@needs_compiler("tpu:v5e")
def test_too_big_for_the_chip_and_for_this_machine(tmp_path):
    script = TRAIN.replace('print(step, loss.item())', 'pass').replace('torch.nn.Linear(16, a.width)', 'torch.nn.Linear(16, a.width, device=device)').replace(
        "torch.nn.Linear(a.width, 4)", "torch.nn.Linear(a.width, a.width, device=device), torch.nn.Linear(a.width, 4, device=device)"
    )
    (row,), done = check(tmp_path, "--no-values", "--target", "tpu:v5e", script=script, arguments=["--width", "100000"])
    assert done.returncode == 1 and row["fits"] is False and row["peak_bytes"] > row["limit_bytes"], row
    assert row["largest"][0]["dims"] == [100000, 100000] and "train.py" in row["largest"][0]["line"]


def test_what_cannot_be_asked(tmp_path):
    def refused(*options):
        done = subprocess.run([sys.executable, "-m", "torch_tern", "check", *options], cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert done.returncode == 2
        return done.stderr

    assert "no target 'tpu:v9'" in refused("--target", "tpu:v9", "x.py")
    assert "which script" in refused()
    assert "{batch}" in refused("--sweep", "batch=1,2", "x.py")


def test_a_script_that_fails(tmp_path):
    (row,), done = check(tmp_path, "--target", "neuron:trn2", script="import torch\nraise KeyError('lost')\n")
    assert done.returncode == 1 and "KeyError: 'lost'" in row["message"] and "train.py" in row["message"]


def test_steady_steps():
    steps = segments([0, 7, -1, 1, 7, -1, 1, 7, -1, 3])
    assert steps == [[0, 7], [1, 7], [1, 7], [3]] and steady(steps) == [1, 7]
    assert steady(segments([0, -1, 1, -1, 2, -1])) is None
    assert steady(segments([0, -1, 1, -1, 0, -1, 1, -1])) == [0, 1]  # two optimizers in turn
    assert main_programs(segments([4, 5, 5]), [{"number": 4, "launches": 1}, {"number": 5, "launches": 2}]) == [5]


def test_sharding_annotations():
    text = '"builtin.module"() <{sym_name = "tern"}> ({\n  "func.func"() <{arg_attrs = [{tf.aliasing_output = 0 : i32}, {}, {}]}>\n}) {mhlo.num_partitions = 1 : i32}'
    done = sharding._annotate(text, {1: 2}, 4)
    assert '[{tf.aliasing_output = 0 : i32}, {sdy.sharding = #sdy.sharding<@mesh, [{"chips"}, {}]>}, {}]' in done
    assert '#sdy.mesh<["chips"=4]>' in done and "num_partitions = 4" in done


def test_estimates():
    chip = targets.chips()["tpu:7x"]
    assert estimate.matrix_rate(chip, "bf16") == pytest.approx(2307e12 / 2)  # of one of the chip's two devices
    assert estimate.matrix_rate(chip, "f32") == pytest.approx(2307e12 / 12)
    assert estimate.all_reduce_seconds(targets.chips()["tpu:v5e"], 4, 200e9) == pytest.approx(1.5)
    assert estimate.all_reduce_seconds(targets.chips()["neuron:trn2"], 4, 1e9) is None


def test_bytes_in_messages():
    assert evaluate._needed("the total memory required for HLO temporaries (25.00G) exceeds available HBM (15.75G)") == 25 << 30
    assert evaluate._needed("Used 30.5G of 15.75G hbm. Exceeded hbm capacity by 14.75G.") == int(30.5 * 2**30)
    assert evaluate._needed("something else") is None


def test_hardware_table():
    for chip in targets.chips().values():
        assert chip.source and chip.verified in ("seen", "secondary", "recalled"), chip.id
        assert 1 < chip.bf16_tflops < 10000 and 100 < chip.bandwidth_gbps < 20000 and 8 <= chip.memory_gb <= 512
        # Bytes that 1 flop could use: all of them lie within a factor of ten.
        assert 50 < chip.bf16_tflops * 1e3 / chip.bandwidth_gbps < 1000, chip.id
