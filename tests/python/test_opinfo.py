"""PyTorch's own operator database (op_db) as the judge, in shards: tests/python/opinfo_sweep.py runs each operator in a child process and says which checks differ.

Here a sample of it: every operator, two samples of each, f32 and i64. TERN_OPINFO=full takes every dtype and ten samples (make operators writes the table)."""
import os
import subprocess
import sys

import pytest

SHARDS = 6
FULL = os.environ.get("TERN_OPINFO") == "full"


@pytest.mark.fallback
@pytest.mark.parametrize("shard", range(SHARDS))
def test_like_cpu(shard):
    sweep = os.path.join(os.path.dirname(__file__), "opinfo_sweep.py")
    wanted = ["--dtypes", "all", "--samples", "10"] if FULL else ["--dtypes", "float32,int64", "--samples", "2"]
    # In a process of its own: its children are forks, and this process has used the device.
    done = subprocess.run(
        [sys.executable, sweep, "--shard", f"{shard}/{SHARDS}", "--jobs", "2", "--timeout", "120", *wanted], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, "\n".join(line for line in done.stdout.splitlines() if "wrong" in line or "crash" in line or "hang" in line) + done.stderr[-2000:]
