"""Ordinary scripts of torch.cuda users, run on tern by changing one word: "cuda" becomes "tern"."""
import os
import pathlib
import subprocess
import sys

import pytest

SCRIPTS = pathlib.Path(__file__).parent / "scripts"


@pytest.mark.parametrize("name", ["train", "infer", "resume"])
def test_one_word_changed(name, tmp_path):
    script = tmp_path / f"{name}.py"
    script.write_text((SCRIPTS / f"{name}.py").read_text().replace("torch.backends.cuda", "torch.backends.CUDA").replace("cuda", "tern").replace("CUDA", "cuda"))
    environment = {**os.environ, "TERN_FALLBACK": "error", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, str(script), str(tmp_path)], env=environment, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0 and done.stdout.endswith("done\n"), done.stdout + done.stderr
    assert "Warning" not in done.stderr, done.stderr
