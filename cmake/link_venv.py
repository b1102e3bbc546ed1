"""Makes torch_tern importable from the sources: a .pth file, and the metadata that gives `tern` and PyTorch's autoload their entry points.

Usage: link_venv.py SOURCE BUILD. The same that an editable install would do, without building anything."""
import pathlib
import sys
import sysconfig
import tomllib

source, build = map(pathlib.Path, sys.argv[1:3])
project = tomllib.loads((source / "pyproject.toml").read_text())["project"]
site = pathlib.Path(sysconfig.get_path("purelib"))
(site / "torch_tern.pth").write_text(f"{source / 'python'}\n{build / 'python'}\n")

info = site / f"torch_tern-{project['version']}.dist-info"
info.mkdir(exist_ok=True)
(info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
(info / "INSTALLER").write_text("make\n")
(info / "RECORD").write_text("")
groups = {"console_scripts": project["scripts"], **project["entry-points"]}
(info / "entry_points.txt").write_text(
    "".join(f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in rows.items()) + "\n" for group, rows in groups.items())
)

for name, target in project["scripts"].items():
    module, function = target.split(":")
    script = pathlib.Path(sysconfig.get_path("scripts")) / name
    script.write_text(f"#!{sys.executable}\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n")
    script.chmod(0o755)
