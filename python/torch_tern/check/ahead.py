"""Calls compile.py: one process a target, a time limit, and one libtpu at a time on the machine."""
import contextlib
import fcntl
import hashlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

import torch

from torch_tern import _C, cache
from torch_tern.check.targets import Target

# libtpu asks the cloud's metadata server where it is, and waits for it, unless it is told that it is nowhere.
_NOWHERE = {
    "TPU_SKIP_MDS_QUERY": "1", "TPU_ACCELERATOR_TYPE": "v5litepod-1", "TPU_WORKER_HOSTNAMES": "localhost", "TPU_WORKER_ID": "0", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TF_CPP_MIN_LOG_LEVEL": "2",
}  # fmt: skip


@contextlib.contextmanager
def _one_at_a_time(name: str):
    """libtpu is made for one process a machine: the others wait here."""
    path = pathlib.Path(tempfile.gettempdir()) / f"tern-{name}-{os.getuid()}.lock"
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _last_words(path: pathlib.Path) -> str:
    lines = [line for line in path.read_text(errors="replace").splitlines() if line.strip()]
    return "; its last words: " + " ".join(lines[-3:])[-600:] if lines else ""


def _remembered(target: Target, programs: list[pathlib.Path], partitions: int) -> pathlib.Path:
    """Where the answer to this question is kept: a compiler asked again says the same."""
    plugin = pathlib.Path(target.plugin).stat()
    question = hashlib.sha256(repr((target.plugin, plugin.st_size, plugin.st_mtime_ns, target.topology, target.config, partitions)).encode())
    for program in programs:
        question.update(program.read_bytes())
    return cache.folder() / "check" / f"{question.hexdigest()[:32]}.json"


def compile_ahead(target: Target, programs: list[pathlib.Path], partitions: int, seconds: float) -> dict:
    """What the target's compiler says of the programs: {"platform", "devices", "memory_limit", "programs": [report, ...]}, or {"error": message}.

    "unanswered" beside "error" says that the compiler's time was over. A report has "error" ("" where it compiled) and "code", compile_seconds, bytes (argument, output, alias, temporary, peak) and the compiler's counts; a negative number is one that
    the compiler does not give. `partitions`: devices that share a program; `seconds`: for all programs together."""
    kept = _remembered(target, programs, partitions)
    if kept.is_file():
        return json.loads(kept.read_text()) | {"remembered": True}
    result = _ask(target, programs, partitions, seconds)
    if "error" not in result:
        cache.write(kept, json.dumps(result).encode())
    return result


def _ask(target: Target, programs: list[pathlib.Path], partitions: int, seconds: float) -> dict:
    libraries = pathlib.Path(torch.__file__).parent / "lib"
    request = {
        "module": _C.__file__, "libraries": [str(libraries / name) for name in ("libc10.so", "libtorch_cpu.so")], "plugin": target.plugin,
        "topology": target.topology, "config": target.config, "programs": [str(path) for path in programs], "partitions": partitions,
    }  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="tern-check-") as folder, _one_at_a_time(target.name.split(":")[0]):
        here = pathlib.Path(folder)
        (here / "request.json").write_text(json.dumps(request))
        command = [sys.executable, "-S", "-E", str(pathlib.Path(__file__).with_name("compile.py")), str(here / "request.json"), str(here / "result.json")]
        with open(here / "words", "w") as words:
            child = subprocess.Popen(command, stdout=words, stderr=words, stdin=subprocess.DEVNULL, env={**os.environ, **_NOWHERE}, start_new_session=True)
            try:
                code = child.wait(timeout=seconds)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
                return {"unanswered": True, "error": f"the compiler did not end within {seconds:g} s (--compile-seconds){_last_words(here / 'words')}"}
            except BaseException:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
                raise
        if code or not (here / "result.json").exists():
            how = f"died ({signal.strsignal(-code)})" if code < 0 else f"ended with exit status {code}"
            return {"error": f"the compiler {how} in a process of its own{_last_words(here / 'words')}"}
        return json.loads((here / "result.json").read_text())
