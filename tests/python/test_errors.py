"""Errors: each carries its code, is of the type that PyTorch would raise, and leaves a device on which training goes on."""
import ast
import json
import os
import pathlib
import subprocess
import sys
import textwrap

import pytest
import torch

import torch_tern
from torch_tern import cli, errors, explain

ROOT = pathlib.Path(__file__).parents[2]
PACKAGE = ROOT / "python" / "torch_tern"


# ---- the table ----
def test_the_page_is_what_the_table_says():
    assert (ROOT / "docs" / "errors.md").read_text() == explain.markdown(), "run: .venv/bin/tern explain --markdown > docs/errors.md"


def test_each_kind_says_what_to_do():
    for kind in errors.table().values():
        assert kind.code.startswith("TERN-") and kind.title and len(kind.cause) > 40 and len(kind.remedy) > 40, kind


def test_every_message_of_the_package_has_a_code():
    """Each exception that the package raises with a message takes it from coded(), with a code of the table."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            where = f"{path.name}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args and getattr(node.exc.func, "id", "") != "SystemExit":
                text = node.exc.args[0]
                called = getattr(text.func, "id", getattr(text.func, "attr", "")) if isinstance(text, ast.Call) else ""
                assert called == "coded", f"{where} raises without a code: {ast.unparse(node)}"
            if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) == "coded":
                assert ast.literal_eval(node.args[0]) in errors.table(), where


def test_explain(capsys):
    assert cli.main(["explain", "TERN-OOM"]) == 0
    told = capsys.readouterr().out
    assert "torch.OutOfMemoryError" in told and "Cause" in told and "What to do" in told
    for spelling in ("oom", "[TERN-OOM]", "tern_oom"):
        assert explain.find(spelling) == errors.table()["TERN-OOM"]
    assert cli.main(["explain"]) == 0 and "TERN-INDEX" in capsys.readouterr().out
    assert cli.main(["explain", "TERN-OOM", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["remedy"] == errors.table()["TERN-OOM"].remedy
    assert cli.main(["explain", "--json"]) == 0
    assert [row["code"] for row in json.loads(capsys.readouterr().out)] == list(errors.table())
    assert cli.main(["explain", "TERN-IDNEX"]) == 2 and "did you mean TERN-INDEX?" in capsys.readouterr().err


# ---- every kind of error, and life after it ----
def train():
    """Three steps of a small model: the loss at the end, which must be what the CPU gives."""
    losses = []
    for device in ("tern", "cpu"):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)).to(device)
        x, y = torch.linspace(-1, 1, 12).reshape(3, 4).to(device), torch.tensor([0, 1, 0]).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert torch.rand(3, device="tern").cpu().shape == (3,)


def on_tern(*values):
    return torch.tensor(values, device="tern")


def a_hook_that_raises():
    x = on_tern(1.0, 2.0).requires_grad_()
    x.register_hook(lambda grad: 1 / 0)
    (x * x).sum().backward()


def a_read_behind_a_bad_index():
    lost = torch.nn.functional.embedding(on_tern(1, 9), torch.ones(3, 2, device="tern"))
    (lost * 2).sum().item()


def a_storage_that_is_not_terns():
    storage = torch._C._construct_storage_from_data_pointer(1 << 20, torch.device("tern:0"), 16)
    torch.empty(0, device="tern").set_(storage).cpu()


KINDS = {
    "index": (IndexError, "TERN-INDEX", lambda: on_tern(1.0, 2.0, 3.0)[on_tern(7)].cpu()),
    "embedding": (IndexError, "TERN-INDEX", a_read_behind_a_bad_index),
    "memory": (torch.OutOfMemoryError, "TERN-OOM", lambda: torch.empty(1 << 42, dtype=torch.uint8, device="tern")),
    "device": (RuntimeError, "TERN-NO-DEVICE", lambda: torch.empty(2, device="tern:9")),
    "mode": (ValueError, "TERN-SETTING", lambda: torch.tern.set_mode("quick")),
    "fallback": (NotImplementedError, "TERN-FALLBACK", lambda: torch.linalg.lu_factor(torch.eye(3, device="tern"))),
    "value": (RuntimeError, "TERN-VALUE", lambda: (on_tern(1, 2) // on_tern(1, 0)).cpu()),
    "address": (RuntimeError, "TERN-STORAGE", a_storage_that_is_not_terns),
    "argument": (RuntimeError, "TERN-ARGUMENT", lambda: torch.Generator("tern").set_state(torch.zeros(3, dtype=torch.uint8))),
    "shape": (RuntimeError, None, lambda: torch.ones(2, 3, device="tern") @ torch.ones(2, 3, device="tern")),
    "type": (TypeError, None, lambda: torch.ones(2, device="tern").numpy()),
    "graph": (RuntimeError, None, lambda: on_tern(1.0).sum().backward()),
    "hook": (ZeroDivisionError, None, a_hook_that_raises),
}


@pytest.mark.parametrize("kind", KINDS)
def test_after_every_error_training_goes_on(kind):
    exception, code, provoke = KINDS[kind]
    kept = on_tern(1.0, 2.0) + 1
    for _ in range(2):
        with pytest.raises(exception) as raised:
            provoke()
        if code:
            assert type(raised.value) is exception and str(raised.value).startswith(f"[{code}] ")
        else:
            assert "[TERN-" not in str(raised.value)
        train()
    assert kept.cpu().tolist() == [2, 3]


# ---- in processes of their own ----
def run_python(code, **environment):
    return subprocess.run([sys.executable, "-c", textwrap.dedent(code)], env={**os.environ, **environment}, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("device, code", [("no-such-chip", "TERN-NO-PLUGIN"), (torch_tern.__file__ + "/none.so", "TERN-NO-PLUGIN"), (sys.executable, "TERN-PLUGIN")])
def test_a_device_that_cannot_be_opened(device, code):
    done = run_python("import torch; torch.ones(2, device='tern')", TERN_DEVICE=device)
    assert f"RuntimeError: [{code}] " in done.stderr, done.stderr


def test_a_bad_setting():
    done = run_python("import torch; torch.ones(2, device='tern')", TERN_DEVICE_COUNT="0")
    assert "ValueError: [TERN-SETTING] TERN_DEVICE_COUNT=0" in done.stderr, done.stderr


def test_a_forked_child():
    done = run_python(
        """
        import os, torch
        x = torch.ones(2, device="tern") + 1
        x.cpu()
        if os.fork() == 0:
            try:
                x + 1
            except RuntimeError as error:
                print(error, flush=True)
            os._exit(0)
        os.wait()
        print((x + 1).cpu().tolist())
        """
    )
    assert done.stdout.startswith("[TERN-FORK] ") and done.stdout.rstrip().endswith("[3.0, 3.0]"), done.stdout + done.stderr


# ---- out of memory ----
SHORT_OF_MEMORY = """
import torch
def build():
    return [torch.randn(256, 1024, device="tern") for _ in range(20)]
kept = build()
torch.tern.synchronize()
counter = torch.zeros(3, device="tern")
model = torch.nn.Linear(4, 2).to("tern")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def forward():
    counter.add_(1)
    a = torch.ones(4 << 20, device="tern")
    b = a * 2
    c = b + a  # the third of 16 MiB beside 20: one too many for 64
    counter.add_(1)
    return a, b, c, c.exp()
try:
    results = forward()
    print("read", results[-1][0].item())
except torch.OutOfMemoryError as error:
    print(error)
print("counter", counter.cpu().tolist(), "allocated", torch.tern.memory_allocated() >> 20)
try:
    torch.ones(16 << 20).to("tern")
except torch.OutOfMemoryError as error:
    print(error)
results = None
for _ in range(2):
    optimizer.zero_grad()
    model(torch.ones(3, 4, device="tern")).sum().backward()
    optimizer.step()
print("trained", torch.isfinite(model.weight).all().item(), torch.ones(4 << 20, device="tern").sum().item())
"""


@pytest.mark.parametrize("device", ["cpu", "xla-cpu"])
def test_a_program_that_does_not_fit(device, tmp_path):
    script = tmp_path / "short.py"
    script.write_text(SHORT_OF_MEMORY)
    environment = {**os.environ, "TERN_DEVICE": device, "TERN_MEMORY_LIMIT": "64M", "TERN_DEVICE_COUNT": "1"}
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.index("[TERN-OOM] "), done.stdout.rindex("[TERN-OOM] ")
    told = done.stdout[first:second]
    # The operation and line at which running one operation at a time would have stopped; total, limit and what to try; who holds what.
    assert told.startswith("[TERN-OOM] aten::add.Tensor: out of memory") and "the limit is 64.00 MiB (TERN_MEMORY_LIMIT)" in told
    assert "the result of this operation takes 16.00 MiB (recorded at short.py:14 (forward))\n" in told
    assert "(20.00 MiB in all)" in told and "20.00 MiB  f32[256, 1024] x 20  short.py:4 (build" in told
    assert "16.00 MiB  f32[4194304]  short.py:12 (forward), not made yet" in told and "To try: " in told
    # What came before the operation stands, and only that.
    assert "counter [1.0, 1.0, 1.0] allocated 52" in told
    assert "\n  at short.py:24 (<module>)\n" in done.stdout[second:]
    assert done.stdout.endswith("trained True 4194304.0\n")


# ---- values that an operation is not defined for ----
REFUSED_VALUES = """
import torch
cases = {
    "floor_divide": lambda t: t([4, 5]) // t([1, 0]),
    "div": lambda t: torch.div(t([4, 5]), t([0]), rounding_mode="trunc"),
    "remainder": lambda t: torch.remainder(7, t([[1, 2], [0, 3]])),
    "fmod_": lambda t: t([4, 5], dtype=torch.uint8).fmod_(t([1, 0], dtype=torch.uint8)),
    "by the number 0": lambda t: t([4, 5]) % 0,
    "bernoulli": lambda t: torch.bernoulli(t([0.5, 1.5])),
    "bernoulli_": lambda t: t([0.0, 0.0]).bernoulli_(t([0.5, float("nan")])),
    "normal": lambda t: torch.normal(t([0.0, 0.0]), t([1.0, -1.0])),
    "multinomial": lambda t: torch.multinomial(t([[1.0, 1.0], [1.0, -1.0]]), 1),
    "multinomial inf": lambda t: torch.multinomial(t([1.0, float("inf")]), 2),
    "multinomial 0": lambda t: torch.multinomial(t([[1.0, 1.0], [0.0, 0.0]]), 1),
    "uniform_": lambda t: t([0.0]).uniform_(2, 1),
    "exponential_": lambda t: t([0.0]).exponential_(-1),
    "dropout": lambda t: torch.native_dropout(t([0.0]), 2, True),
}
for name, case in cases.items():
    told = {}
    for device in ("cpu", "tern"):
        try:
            case(lambda values, **options: torch.tensor(values, device=device, **options)).tolist()
        except Exception as error:
            told[device] = type(error), str(error)
    words = told["cpu"][1].split("  (Could")[0]
    assert told["tern"][0] is told["cpu"][0] and words in told["tern"][1], (name, told)
    assert torch.ones(2, device="tern").sum().item() == 2
print(told["tern"][1], (torch.tensor([7, -7], device="tern") // torch.tensor([2, 2], device="tern")).tolist(), torch.tern.fallbacks())
"""


@pytest.mark.parametrize("device", ["cpu", "xla-cpu"])
def test_values_out_of_an_operations_domain(device):
    """PyTorch's type and words, though a tensor's values are seen only when the program runs; and nothing falls back."""
    done = run_python(REFUSED_VALUES, TERN_DEVICE=device, TERN_FALLBACK="error")
    assert done.returncode == 0 and done.stdout.endswith("[3, -4] []\n"), done.stdout + done.stderr


# ---- fallbacks ----
SCRIPT = """
import sys, torch
for _ in range(2):
    torch.linalg.lu_factor(torch.eye(3, device="tern"))
print(torch.tern.stats()["fallbacks"], torch.tern.fallbacks())
"""


def test_fallback_warn_tells_once_what_to_do():
    done = run_python(SCRIPT, TERN_FALLBACK="warn")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("[TERN-FALLBACK] tern serves aten::linalg_lu_factor_ex") == 1
    assert "<string>:4" in done.stderr and "TERN_FALLBACK=allow hides this, =error forbids it" in done.stderr
    assert "<string>:4 (<module>)', 2)" in done.stdout


def test_fallback_allow_is_silent_and_counted():
    done = run_python(SCRIPT, TERN_FALLBACK="allow")
    assert done.returncode == 0 and "TERN-FALLBACK" not in done.stderr
    assert "<string>:4 (<module>)', 2)" in done.stdout


def test_fallback_error_names_operator_and_line():
    done = run_python(SCRIPT, TERN_FALLBACK="error")
    assert done.returncode == 1
    message = done.stderr[done.stderr.index("NotImplementedError: ") :]
    assert "[TERN-FALLBACK] tern has no native form of aten::linalg_lu_factor_ex" in message and "TERN_FALLBACK=warn" in message
    assert "at <string>:4 (<module>)" in message
