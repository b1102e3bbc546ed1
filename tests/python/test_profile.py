"""The profiler: which kernels ran, for which of the user's operators and lines, what they cost; and the command around it."""
import json
import os
import subprocess
import sys

import pytest
import torch

from torch_tern import _C, cli


def test_kernels_with_operators_lines_and_costs():
    x, w = torch.randn(64, 32, device="tern"), torch.randn(32, 48, device="tern")
    torch.tern.synchronize()
    with torch.tern.profile() as p:
        for _ in range(3):
            y = (x @ w).relu() * 2
            y.sum().item()
    rows = p.rows()
    product = next(row for row in rows if "mm" in row.operators.split())
    assert product.count == 3 and product.flops >= 2 * 64 * 32 * 48
    assert product.bytes >= 4 * (64 * 32 + 32 * 48)
    assert "test_profile.py" in product.line and "test_kernels_with" in product.line
    assert any("relu mul" in row.operators for row in rows), [row.operators for row in rows]
    assert all(row.total_us >= row.best_us * row.count * 0.999 > 0 for row in rows)
    assert 0 < p.kernel_seconds <= p.seconds and p.lost == 0
    assert {row.bound for row in rows} <= {"compute", "memory"}


def test_nothing_is_noted_outside():
    with torch.tern.profile() as p:
        pass
    (torch.ones(3, device="tern") + 1).tolist()
    assert p.rows() == [] and "Nothing ran" in p.html()
    assert _C.profile_events() == ([], 0)


def test_an_exception_ends_the_trace():
    with pytest.raises(ZeroDivisionError):
        with torch.tern.profile() as p:
            torch.ones(3, device="tern").add_(1).tolist()
            raise ZeroDivisionError
    assert p.rows()


def test_the_machines_limits():
    flops, traffic = _C.device_limits()
    assert flops > 1e9 and traffic > 1e8


def test_command(tmp_path, capsys):
    script = tmp_path / "script.py"
    script.write_text("import sys, torch\nx = torch.arange(1000.0, device=torch.accelerator.current_accelerator())\nprint((x * 2 + 1).sum().item())\nsys.exit(int(sys.argv[1]))\n")
    page = tmp_path / "page.html"
    assert cli.main(["profile", "--json", "--html", str(page), str(script), "3"]) == 3
    out = capsys.readouterr().out
    assert out.startswith("1000000.0\n")
    report = json.loads(out[out.index("{"):])
    assert any("mul" in kernel["operators"] and "script.py:3" in kernel["line"] for kernel in report["kernels"])
    assert "script.py:3" in page.read_text() and "<svg" in page.read_text()
    assert cli.main(["profile", str(tmp_path / "missing.py")]) == 2
    assert "no script" in capsys.readouterr().err


def test_a_plugin_shows_whole_programs():
    code = "import torch\nwith torch.tern.profile() as p:\n  (torch.ones(4, device='tern') + 1).tolist()\nprint([(r.kernel, r.operators) for r in p.rows()])"
    out = subprocess.run([sys.executable, "-c", code], env={**os.environ, "TERN_DEVICE": "xla-cpu"}, capture_output=True, text=True, timeout=120)
    assert "('program'," in out.stdout and "add" in out.stdout, out.stderr
