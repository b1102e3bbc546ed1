"""`import torch` finds tern: silently, and only where it is welcome."""
import os
import subprocess
import sys
import textwrap

import pytest


def run_python(code, folder=None, before=(), **environment):
    """Runs code in a fresh interpreter that has torch_tern installed as this one has; `before`: folders that come first on its path."""
    environment = {**{name: value for name, value in os.environ.items() if not name.startswith(("TERN_", "TORCH_"))}, **environment}
    environment["PYTHONPATH"] = os.pathsep.join([*map(str, before)])
    return subprocess.run([sys.executable, "-c", textwrap.dedent(code)], env=environment, cwd=folder, capture_output=True, text=True, timeout=120)


def said(done):
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr


@pytest.fixture
def rival(tmp_path):
    """Another package that registers an accelerator with PyTorch, the way PyTorch documents it."""
    folder = tmp_path / "rival"
    (folder / "rival_device").mkdir(parents=True)
    (folder / "rival_device" / "__init__.py").write_text(
        textwrap.dedent("""
        import types
        import torch

        def autoload():
            torch.utils.rename_privateuse1_backend("rival")
            module = types.ModuleType("rival")
            module.is_available = lambda: True
            module.device_count = lambda: 1
            torch._register_device_module("rival", module)
        """)
    )
    information = folder / "rival_device-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: rival-device\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[torch.backends]\nrival = rival_device:autoload\n")
    (information / "RECORD").write_text("")
    return folder


SHOW = """
    import torch
    print(torch._C._get_privateuse1_backend_name(), hasattr(torch, "tern"))
"""


def test_alone_it_registers_silently(tmp_path):
    assert said(run_python(SHOW, tmp_path)) == ("tern True", "")


def test_beside_another_accelerator_it_keeps_out(tmp_path, rival):
    assert said(run_python(SHOW, tmp_path, [rival])) == ("rival False", "")


def test_asking_for_tern_beside_another_says_why(tmp_path, rival):
    done = run_python("import torch, torch_tern", tmp_path, [rival])
    assert done.returncode != 0 and "TERN-OTHER-DEVICE" in done.stderr and "rival" in done.stderr


def test_a_rival_that_is_not_loaded_leaves_room_for_who_asks(tmp_path, rival):
    code = """
        import torch
        assert not hasattr(torch, "tern")
        import torch_tern
        print(torch.ones(2, device="tern").sum().item())
    """
    assert said(run_python(code, tmp_path, [rival], TORCH_DEVICE_BACKEND_AUTOLOAD="0"))[0] == "2.0"


def test_turned_off_it_can_still_be_imported(tmp_path):
    assert said(run_python(SHOW, tmp_path, TORCH_DEVICE_BACKEND_AUTOLOAD="0")) == ("privateuseone False", "")
    assert said(run_python("import torch_tern\n" + textwrap.dedent(SHOW), tmp_path, TORCH_DEVICE_BACKEND_AUTOLOAD="0"))[0] == "tern True"


def test_a_project_may_ask(tmp_path):
    inside = tmp_path / "project" / "src" / "deep"
    inside.mkdir(parents=True)
    (tmp_path / "project" / "pyproject.toml").write_text('[tool.tern]\ndevice = "no-such-chip"\n')
    code = """
        import torch
        try:
            torch.ones(1, device="tern")
        except RuntimeError as error:
            print("no-such-chip" in str(error))
    """
    assert said(run_python(code, inside))[0] == "True"
    assert said(run_python("import torch; print(torch.ones(2, device='tern').sum().item())", inside, TERN_DEVICE="cpu"))[0] == "2.0"
    (tmp_path / "project" / "pyproject.toml").write_text("not [ toml")
    assert said(run_python(SHOW, inside))[0] == "tern True"


def test_the_import_opens_nothing_and_starts_no_thread(tmp_path):
    code = """
        import os, torch
        print(len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 1)
    """
    with_tern = int(said(run_python(code, tmp_path))[0])
    without = int(said(run_python(code, tmp_path, TORCH_DEVICE_BACKEND_AUTOLOAD="0"))[0])
    assert with_tern == without


def test_an_import_cycle_ends(tmp_path):
    """A package that torch's autoload imports may itself be what imports torch first."""
    assert said(run_python("import torch_tern, torch; print(torch.tern.is_available())", tmp_path))[0] == "True"
    assert said(run_python("import torch_tern.device; import torch; print(torch.tern.is_available())", tmp_path))[0] == "True"
