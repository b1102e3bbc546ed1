"""What TERN_PRINT shows."""
import os
import re
import subprocess
import sys
import textwrap


def test_plan_shows_what_each_step_costs():
    code = """
        import torch, torch_tern
        x, w = torch.rand(64, 96, device="tern"), torch.rand(96, 128, device="tern")
        for _ in range(6):
            (torch.relu(x @ w) * 2).sum().item()
    """
    environment = {**os.environ, "TERN_PRINT": "plan"}
    result = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], env=environment, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    head = re.search(r"plan, the fastest of \d+ launches: \d+ steps, ([\d.]+) us; this machine's limits: (\d+) GFLOP/s \(f32\), ([\d.]+) GB/s", result.stderr)
    assert head and all(float(number) > 0 for number in head.groups()), result.stderr
    # microseconds, share of the launch, bytes, operations, share of a limit; 64 * 96 * 128 * 2 operations and all three arrays
    dot = re.search(r"([\d.]+) us +[\d.]+% +(\d+) KB +(\d+) KFLOP +\d+% of (?:arithmetic|memory) +dot_general", result.stderr)
    assert dot and float(dot[1]) > 0, result.stderr
    assert int(dot[2]) == (64 * 96 + 96 * 128 + 64 * 128) * 4 // 1024
    assert int(dot[3]) == round(64 * 96 * 128 * 2 / 1000)
