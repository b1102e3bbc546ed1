"""What goes wrong in real programs: Ctrl-C, exits with work queued, fork, initialisation twice and at once, exceptions in hooks and autograd threads, many threads, deep graphs."""
import os
import subprocess
import sys
import textwrap
import threading

import pytest
import torch


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment}
    return subprocess.run([sys.executable, "-c", textwrap.dedent(code)], env=environment, capture_output=True, text=True, timeout=120)


def works():
    x = torch.ones(3, device="tern", requires_grad=True)
    (x * 2).sum().backward()
    return x.grad.tolist() == [2, 2, 2]


# ---- Ctrl-C ----
def test_control_c_during_a_wait():
    done = run_python(
        """
        import os, signal, threading, time, torch
        x = torch.full((700, 700), 1e-3, device="tern")
        y = x
        for _ in range(40):
            y = (y @ x).clamp(-1, 1)
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            y.sum().item()
            time.sleep(10)
        except KeyboardInterrupt:
            pass
        else:
            raise SystemExit("not interrupted")
        assert torch.ones(3, device="tern").sum().item() == 3
        assert y[0, 0].item() == y[0, 0].item()  # the interrupted wait lost nothing
        """
    )
    assert done.returncode == 0, done.stderr


def test_control_c_while_recording():
    done = run_python(
        """
        import os, signal, threading, torch
        x = torch.zeros(8, device="tern")
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        n = 0
        try:
            while True:
                x += 1
                n += 1
        except KeyboardInterrupt:
            pass
        assert x[0].item() in (n, n + 1), (x[0].item(), n)
        """
    )
    assert done.returncode == 0, done.stderr


# ---- the end of the process ----
@pytest.mark.parametrize(
    "end",
    ["", "raise SystemExit(0)", "import os; os._exit(0)", "import threading; threading.Thread(target=lambda: (y @ y).sum().item()).start()", "del torch; import gc; gc.collect()"],
)
def test_exit_with_work_queued(end):
    done = run_python(
        f"""
        import torch
        x = torch.randn(300, 300, device="tern", requires_grad=True)
        y = x
        for _ in range(20):
            y = (y @ x).tanh()
        y.sum().backward()
        event = torch.tern.Event(enable_timing=True)
        event.record()
        torch.tern.flush()
        y = y.detach()
        {end}
        """
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_an_error_nobody_read_is_no_trouble_at_exit():
    done = run_python(
        """
        import torch
        torch.arange(3., device="tern")[torch.tensor([9], device="tern")] * 2
        """
    )
    assert done.returncode == 0, done.stderr


# ---- fork ----
def test_fork_before_first_use_is_no_trouble():
    done = run_python(
        """
        import os, torch
        torch.manual_seed(3)
        child = os.fork()
        x = torch.ones(3, device="tern")
        assert x.sum().item() == 3
        if not child:
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        """,
        PYTHONWARNINGS="ignore",
    )
    assert done.returncode == 0, done.stderr


def test_in_a_forked_child_everything_else_works():
    done = run_python(
        """
        import os, torch
        x = torch.ones(3, device="tern")
        event = torch.tern.Event(enable_timing=True)
        event.record()
        x.sum().item()
        child = os.fork()
        if not child:
            torch.manual_seed(1)
            torch.rand(3).add(1).sum().item()
            torch.nn.Linear(3, 3)(torch.rand(2, 3)).sum().backward()
            assert torch.tern.is_initialized() is False and torch.tern._is_in_bad_fork()
            for use in (lambda: x + 1, lambda: x.cpu(), lambda: torch.ones(2, device="tern"), torch.tern.synchronize, lambda: torch.tern.Event().record() or x.add_(1)):
                try:
                    use()
                except RuntimeError as error:
                    assert "TERN-FORK" in str(error), error
                else:
                    os._exit(2)
            del x, event
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert (x + 1).sum().item() == 6
        """,
        PYTHONWARNINGS="ignore",
    )
    assert done.returncode == 0, done.stderr


# ---- initialisation ----
def test_initialisation_twice_and_at_once():
    done = run_python(
        """
        import threading, torch, torch_tern
        torch_tern.register(), torch_tern.register(), torch_tern._autoload(), torch.tern.init()
        results, barrier = [], threading.Barrier(16)
        def first_use(i):
            barrier.wait()
            with torch.tern.device(i % 2):
                results.append(torch.full((2,), float(i), device="tern").sum().item() == 2 * i)
        threads = [threading.Thread(target=first_use, args=(i,)) for i in range(16)]
        [t.start() for t in threads], [t.join() for t in threads]
        assert results == [True] * 16, results
        """,
        TERN_DEVICE_COUNT="2",
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_second_import_is_the_same_module():
    import importlib

    import torch_tern

    before = torch.tern
    importlib.reload(torch_tern)
    assert torch.tern is before and works()


# ---- exceptions where nobody expects them ----
class Own(Exception):
    pass


def raise_own(*_):
    raise Own("from a hook")


@pytest.mark.parametrize("place", ["forward", "forward_pre", "full_backward", "tensor", "grad_accumulated", "saved_tensors", "function"])
def test_exceptions_in_hooks_pass_through(place):
    layer = torch.nn.Linear(3, 2).to("tern")
    x = torch.ones(4, 3, device="tern", requires_grad=True)
    handles = []
    if place == "forward":
        handles.append(layer.register_forward_hook(raise_own))
    elif place == "forward_pre":
        handles.append(layer.register_forward_pre_hook(raise_own))
    elif place == "full_backward":
        handles.append(layer.register_full_backward_hook(raise_own))
    elif place == "tensor":
        handles.append(x.register_hook(raise_own))
    elif place == "grad_accumulated":
        handles.append(layer.weight.register_post_accumulate_grad_hook(raise_own))

    class Failing(torch.autograd.Function):
        @staticmethod
        def forward(ctx, value):
            return value * 2

        @staticmethod
        def backward(ctx, gradient):
            raise_own()

    def step():
        if place == "saved_tensors":
            with torch.autograd.graph.saved_tensors_hooks(lambda t: t, raise_own):
                loss = layer(x).square().sum()
        else:
            loss = (Failing.apply(layer(x)) if place == "function" else layer(x)).sum()
        loss.backward()

    with pytest.raises(Own):
        step()
    for handle in handles:
        handle.remove()
    place = "none"
    layer.zero_grad()
    layer(x).sum().backward()
    assert layer.bias.grad.tolist() == [4, 4] and works()


def test_an_error_of_the_device_inside_backward():
    table = torch.nn.Parameter(torch.zeros(3, 2, device="tern"))

    class BadIndex(torch.autograd.Function):
        @staticmethod
        def forward(ctx, value):
            return value.clone()

        @staticmethod
        def backward(ctx, gradient):
            return gradient.index_select(0, torch.tensor([0, 1, 9], device="tern"))

    with pytest.raises(IndexError, match="TERN-INDEX"):
        BadIndex.apply(table).sum().backward()
        table.grad.cpu()
    table.grad = None
    (table * 2).sum().backward()
    assert table.grad.sum().item() == 12


# ---- many threads ----
def test_sixteen_threads_train_at_once():
    def train(seed, device):
        generator = torch.Generator().manual_seed(seed)
        weights = torch.randn(8, 8, generator=generator).to(device).requires_grad_()
        x = torch.randn(16, 8, generator=generator).to(device)
        optimizer = torch.optim.SGD([weights], 0.1)
        for _ in range(5):
            optimizer.zero_grad()
            loss = (x @ weights).square().mean()
            loss.backward()
            optimizer.step()
        return loss.item()

    expected = [train(seed, "cpu") for seed in range(16)]
    results, errors = [None] * 16, []

    def work(i):
        try:
            results[i] = train(i, f"tern:{i % 2}")
            torch.tern.synchronize(i % 2)
        except Exception as error:  # told below, on the test's own thread
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == [] and results == pytest.approx(expected, rel=1e-4)


def test_threads_hand_tensors_on():
    import queue

    waiting, results = queue.Queue(), []

    def produce():
        for i in range(20):
            waiting.put(torch.full((4,), float(i), device="tern") * 2)
        waiting.put(None)

    def consume():
        while (x := waiting.get()) is not None:
            results.append(x.sum().item())

    threads = [threading.Thread(target=produce), threading.Thread(target=consume)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == [8.0 * i for i in range(20)]


def test_the_current_device_belongs_to_a_thread():
    seen = []
    with torch.tern.device(1):
        thread = threading.Thread(target=lambda: seen.append(torch.tern.current_device()))
        thread.start()
        thread.join()
        assert torch.tern.current_device() == 1
    assert seen == [0]


# ---- depth ----
def test_a_deep_graph():
    x = torch.ones(2, device="tern", requires_grad=True)
    y = x
    for _ in range(20000):
        y = y + 1
    y.sum().backward()
    assert x.grad.tolist() == [1, 1] and y.tolist() == [20001, 20001]


def test_deep_recursion_is_pythons_error():
    def deeper(x):
        return deeper(x + 1)

    x = torch.ones(2, device="tern")
    with pytest.raises(RecursionError):
        deeper(x)
    assert x.tolist() == [1, 1] and works()
