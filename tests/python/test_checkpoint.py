"""torch.tern.save: all or nothing."""
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest
import torch


def test_saves_what_torch_saves(tmp_path):
    model = torch.nn.Linear(4, 3).to("tern")
    torch.tern.save(model.state_dict(), tmp_path / "model.pt")
    loaded = torch.load(tmp_path / "model.pt", map_location="cpu", weights_only=True)
    assert all(torch.equal(loaded[k], v.cpu()) for k, v in model.state_dict().items())
    assert os.listdir(tmp_path) == ["model.pt"]


def test_a_failed_save_leaves_the_old_file(tmp_path):
    torch.tern.save({"step": 1}, tmp_path / "model.pt")
    with pytest.raises(Exception, match="pickle"):
        torch.tern.save({"step": lambda: 2}, tmp_path / "model.pt")
    assert torch.load(tmp_path / "model.pt") == {"step": 1}
    assert os.listdir(tmp_path) == ["model.pt"]


def test_killed_in_mid_save_the_old_file_is_whole(tmp_path):
    path = tmp_path / "model.pt"
    code = """
        import sys, torch, torch_tern
        weights = torch.arange(4_000_000.0).to("tern")
        for step in range(1, 1000):
            torch.tern.save({"step": step, "weights": weights + step}, sys.argv[1])
            print(step, flush=True)
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code), str(path)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "1\n"
        # Wait for the next save to be half-way: its partial file is there and has something in it.
        deadline = time.monotonic() + 60
        while not any(f.stat().st_size > 100_000 for f in tmp_path.glob(".model.pt.*.partial")) and time.monotonic() < deadline:
            time.sleep(0.0005)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
    state = torch.load(path, weights_only=True, map_location="cpu")
    assert state["step"] >= 1 and torch.equal(state["weights"], torch.arange(4_000_000.0) + state["step"])
