"""Tensors on their way in and out: pickle, torch.save, safetensors, numpy, DLPack, DataLoader workers, other processes."""
import copy
import pickle
import subprocess
import sys
import textwrap

import numpy
import pytest
import safetensors
import safetensors.torch
import torch
from torch.utils import dlpack
from torch.utils.data import DataLoader, TensorDataset

pytestmark = pytest.mark.fallback


def small_model(device="tern"):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3)).to(device)


def equal(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a.detach().cpu(), b.detach().cpu())


# ---- pickle ----
def test_plain_pickle():
    x = torch.arange(6.0, device="tern").reshape(2, 3) + 1  # pending when it is pickled
    back = pickle.loads(pickle.dumps(x))
    assert back.device == torch.device("tern:0") and equal(back, x)
    back.add_(1)
    assert x.sum() == 21


def test_pickle_keeps_what_is_shared_apart_from_what_is_not():
    x = torch.arange(6.0, device="tern:1")
    a, b = pickle.loads(pickle.dumps((x[1:4].clone(), torch.nn.Parameter(x))))
    assert isinstance(b, torch.nn.Parameter) and b.device == torch.device("tern:1")
    assert a.tolist() == [1, 2, 3] and equal(b, x)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int64, torch.bool, torch.complex64])
def test_pickle_dtypes(dtype):
    x = torch.tensor([0, 1, 1], dtype=dtype).to("tern")
    assert equal(pickle.loads(pickle.dumps(x)), x)


def test_pickle_of_views_modules_and_nothing():
    x = torch.arange(6.0, device="tern").reshape(2, 3)
    assert equal(pickle.loads(pickle.dumps(x.t())), x.t()) and equal(pickle.loads(pickle.dumps(x[1])), x[1])
    assert pickle.loads(pickle.dumps(torch.ones(0, 3, device="tern"))).shape == (0, 3)
    model = small_model()
    other = pickle.loads(pickle.dumps(model))
    assert all(equal(a, b) and b.device.type == "tern" for a, b in zip(model.state_dict().values(), other.state_dict().values(), strict=True))


def test_a_pickle_for_a_process_that_has_no_tern(tmp_path):
    """What torch.save writes can be read where there is no tern."""
    torch.save(small_model().state_dict(), tmp_path / "state.pt")
    code = "import torch, sys; s = torch.load(sys.argv[1], map_location='cpu'); assert s['0.weight'].device.type == 'cpu'; assert not hasattr(torch, 'tern')"
    result = subprocess.run([sys.executable, "-c", code, str(tmp_path / "state.pt")], env={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr


# ---- torch.save ----
@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("location", ["cpu", "tern", "tern:1", None])
def test_save_and_load(tmp_path, location, zipped):
    x = torch.arange(6.0, device="tern").reshape(2, 3) * 2
    torch.save({"x": x, "t": x.t(), "n": 3}, tmp_path / "x.pt", _use_new_zipfile_serialization=zipped)
    back = torch.load(tmp_path / "x.pt", map_location=location)
    assert back["x"].device == torch.empty(0, device=location or "tern").device and equal(back["x"], x)
    back["x"].zero_()
    assert back["t"].cpu().abs().sum() == 0 and back["n"] == 3


@pytest.mark.parametrize("location", ["cpu", "tern", {"tern:0": "tern:1"}, lambda storage, where: storage])
def test_map_location_and_mmap(tmp_path, location):
    model = small_model()
    torch.save(model.state_dict(), tmp_path / "state.pt")
    for mmap in (False, True):
        state = torch.load(tmp_path / "state.pt", map_location=location, mmap=mmap, weights_only=True)
        assert all(equal(state[name], value) for name, value in model.state_dict().items())
    with torch.device("meta"):
        empty = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    empty.load_state_dict(torch.load(tmp_path / "state.pt", map_location="tern"), assign=True)
    assert empty[0].weight.device.type == "tern"


def test_whole_modules_and_optimizers(tmp_path):
    model = small_model()
    optimizer = torch.optim.AdamW(model.parameters(), 0.1)
    model(torch.randn(8, 4, device="tern")).square().mean().backward()
    optimizer.step()
    torch.save((model, optimizer.state_dict()), tmp_path / "all.pt")
    other, state = torch.load(tmp_path / "all.pt", weights_only=False)
    again = torch.optim.AdamW(other.parameters(), 0.1)
    again.load_state_dict(state)
    x = torch.randn(8, 4, device="tern")
    for m, o in ((model, optimizer), (other, again)):
        o.zero_grad()
        m(x).square().mean().backward()
        o.step()
    assert torch.equal(model[0].weight.cpu(), other[0].weight.cpu())


def test_deepcopy():
    x = torch.arange(4.0, device="tern", requires_grad=True)
    a, b = copy.deepcopy([x, x])
    assert a is b and a.requires_grad and equal(a, x)
    views = copy.deepcopy([x.detach(), x.detach()[1:]])
    views[0].zero_()
    assert views[1].sum() == 0 and x.sum() == 6
    model = small_model()
    assert copy.deepcopy(model)[0].weight.data_ptr() != model[0].weight.data_ptr()


# ---- safetensors ----
def test_safetensors(tmp_path):
    state = small_model().state_dict()
    safetensors.torch.save_file(state, tmp_path / "m.safetensors")
    plain = safetensors.torch.load_file(tmp_path / "m.safetensors")
    straight = safetensors.torch.load_file(tmp_path / "m.safetensors", device=0)  # a number is that device of the accelerator
    for name, value in state.items():
        assert equal(plain[name], value) and equal(straight[name], value)
        assert plain[name].device.type == "cpu" and straight[name].device == torch.device("tern:0")
    with safetensors.safe_open(tmp_path / "m.safetensors", "pt", device=1) as file:
        assert file.get_tensor("0.weight").device == torch.device("tern:1")
        assert equal(file.get_slice("0.weight")[:2], state["0.weight"][:2])
    other = small_model("cpu")
    safetensors.torch.load_model(other.to("tern"), tmp_path / "m.safetensors", device=0)
    assert safetensors.torch.load(safetensors.torch.save(state))["1.weight"].shape == (3,)


NO_SECOND_COPY = """
import sys, safetensors.torch, torch

def anonymous():  # bytes of this process that no file stands for
    return next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("RssAnon"))

path, size = sys.argv[1], 128 << 20
torch.ones(8, device="tern").sum().item()
x = torch.zeros(size // 4, device="tern")
x[-1] = 3
torch.tern.synchronize()
safetensors.torch.save_file({"x": torch.ones(8, device="tern")}, path)  # what a first call takes once
before = anonymous()
view = {"x": torch.tern.cpu_view(x)}
assert anonymous() - before < size / 10
safetensors.torch.save_file(view, path)
del x, view
torch.tern.empty_cache()
before = anonymous()
torch.tern.reset_peak_memory_stats()
x = safetensors.torch.load_file(path, device=0)["x"]
x.add_(1)
assert x[-1] == 4 and x[0] == 1
assert anonymous() - before < 1.1 * size and torch.tern.max_memory_allocated() < 1.1 * size, (anonymous() - before, torch.tern.max_memory_allocated())
del x
torch.tern.empty_cache()
before = anonymous()
x = torch.tern.from_dlpack(safetensors.torch.load_file(path)["x"])
assert x[-1] == 3 and x.sum() == 3
assert anonymous() - before < size / 10, anonymous() - before
"""


def test_safetensors_without_a_second_copy(tmp_path):
    """To the device there is the device's copy and no other, and not even that where the file's own pages are used."""
    result = subprocess.run([sys.executable, "-c", NO_SECOND_COPY, str(tmp_path / "big.safetensors")], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr


# ---- numpy and DLPack ----
def test_numpy_asks_for_cpu_as_cuda_does():
    x = torch.arange(3.0, device="tern")
    for convert in (lambda: x.numpy(), lambda: numpy.asarray(x), lambda: numpy.array(x)):
        with pytest.raises(TypeError, match=r"Tensor.cpu\(\)"):
            convert()
    assert not hasattr(x, "__cuda_array_interface__")
    assert torch.from_numpy(numpy.arange(3.0)).to("tern").tolist() == [0, 1, 2]
    assert numpy.from_dlpack(x, device="cpu").tolist() == [0, 1, 2]


def test_from_the_host_is_a_snapshot():
    array = numpy.ones(4, numpy.float32)
    x = torch.from_numpy(array).to("tern", non_blocking=True)
    y = torch.from_dlpack(array).to("tern", non_blocking=True)
    array[:] = 7
    assert x.sum() == 4 and y.sum() == 4


def test_dlpack_within_tern_shares():
    x = torch.arange(4.0, device="tern")
    y = dlpack.from_dlpack(dlpack.to_dlpack(x))
    assert y.device == x.device and y.tolist() == [0, 1, 2, 3]
    x.add_(1)
    assert y.tolist() == [1, 2, 3, 4]
    y.mul_(2)
    assert x.tolist() == [2, 4, 6, 8]
    inside = dlpack.from_dlpack(dlpack.to_dlpack(x[1:]))
    with pytest.raises(RuntimeError, match=r"TERN-STORAGE.*clone"):
        inside.sum().item()
    assert dlpack.from_dlpack(dlpack.to_dlpack(x[1:].clone())).tolist() == [4, 6, 8]


def test_a_foreign_address_is_refused():
    x = torch.empty(4, device="tern")
    never_written = dlpack.from_dlpack(dlpack.to_dlpack(x))
    with pytest.raises(RuntimeError, match="TERN-STORAGE"):
        never_written.sum().item()


# ---- memory in common, on the embedded engine ----
def test_numpy_sees_what_tern_writes():
    x = torch.arange(6.0, device="tern").reshape(2, 3)
    view = torch.tern.cpu_view(x.t())
    array = numpy.from_dlpack(view)
    assert array.shape == (3, 2) and array.strides == (4, 12) and array[2, 1] == 5
    x.add_(10)  # deferred
    x[0] = 7
    torch.tern.synchronize()
    assert array.tolist() == [[7, 13], [7, 14], [7, 15]]
    x.copy_(torch.ones(2, 3))
    assert array.tolist() == [[1, 1]] * 3
    array[0, 0] = 50
    assert x[0, 0] == 50 and (x * 2).sum() == 110
    y = x.exp_()  # a whole new value
    del x, y
    torch.tern.synchronize()
    assert array[1, 1] == pytest.approx(numpy.e)  # written although nobody on this side can see it any more
    again = numpy.array(array)
    torch.randn(1000, 1000, device="tern").sum().item()
    assert (again == array).all()  # the memory outlives the tensor


def test_a_view_that_is_gone_costs_nothing():
    """The address is kept for as long as somebody looks, through steps of an optimizer, and is free afterwards."""
    p = torch.nn.Parameter(torch.ones(1000, device="tern"))
    optimizer = torch.optim.SGD([p], 0.5)
    view = torch.tern.cpu_view(p.detach())
    address = view.data_ptr()
    for _ in range(3):
        optimizer.zero_grad()
        (p * p).sum().backward()
        optimizer.step()
    torch.tern.synchronize()
    assert view[0] == 0 and torch.tern.cpu_view(p.detach()).data_ptr() == address
    assert torch.tern.cpu_view(p.detach()).untyped_storage().data_ptr() == address


def test_tern_works_on_numpys_memory():
    array = numpy.arange(6, dtype=numpy.float32).reshape(2, 3)
    x = torch.tern.from_dlpack(array[:, ::2])
    assert x.device.type == "tern" and x.stride() == (3, 2) and x.tolist() == [[0, 2], [3, 5]]
    x.mul_(10)
    torch.tern.synchronize()
    assert array.tolist() == [[0, 1, 20], [30, 4, 50]]
    array[0, 0] = -1
    assert x[0, 0] == -1
    x.copy_(torch.zeros(2, 2))
    torch.tern.synchronize()
    assert array.sum() == 5
    assert torch.tern.cpu_view(x).data_ptr() == array.ctypes.data
    assert torch.tern.from_dlpack(array, copy=True).add_(1).sum() == 11 and array.sum() == 5
    assert torch.tern.from_dlpack(x) is not x and torch.tern.from_dlpack(x).data_ptr() == x.data_ptr()
    assert torch.tern.from_dlpack(numpy.zeros((0, 3), numpy.float32)).shape == (0, 3)
    with pytest.raises(BufferError, match="without a copy"):
        torch.tern.from_dlpack(torch.zeros(3, device="meta"), copy=False)


def test_the_other_librarys_memory_is_given_back():
    import gc
    import time
    import weakref

    class Array(numpy.ndarray):  # which, unlike ndarray, can be watched
        pass

    array = numpy.ones(1000, numpy.float32).view(Array)
    gone = weakref.ref(array)
    x = torch.tern.from_dlpack(torch.from_numpy(array))
    del array
    gc.collect()
    assert gone() is not None and x.sum() == 1000
    x += 1
    del x
    torch.tern.synchronize()
    for _ in range(100):  # the main thread gives it back, between two instructions
        gc.collect()
        if gone() is None:
            break
        time.sleep(0.01)
    assert gone() is None


def test_what_cannot_be_looked_at():
    with pytest.raises(BufferError, match="detach"):
        torch.tern.cpu_view(torch.ones(3, device="tern", requires_grad=True))
    with pytest.raises(BufferError, match="resolve_conj"):
        torch.tern.cpu_view(torch.ones(3, device="tern", dtype=torch.complex64).conj())
    with pytest.raises(RuntimeError, match="tern tensor"):
        torch.tern.cpu_view(torch.ones(3))
    assert torch.tern.cpu_view(torch.ones(0, 2, device="tern")).shape == (0, 2)


def test_threads_write_and_look_at_the_same_time():
    import threading

    x = torch.zeros(64, device="tern")

    def write():
        for _ in range(200):
            x.add_(1)

    def look():
        for _ in range(50):
            view = torch.tern.cpu_view(x)
            assert 0 <= view[0] <= 400
            del view

    threads = [threading.Thread(target=work) for work in (write, look, write, look)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert x.tolist() == [400] * 64


# ---- data loaders ----
@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_loader_with_workers_and_pinned_memory(context):
    torch.ones(3, device="tern").sum().item()  # the device is open before the workers start
    data = TensorDataset(torch.arange(24.0).reshape(12, 2), torch.arange(12))
    loader = DataLoader(data, batch_size=4, num_workers=2, pin_memory=True, multiprocessing_context=context)
    total = torch.zeros((), device="tern")
    for x, y in loader:
        assert x.is_pinned() and y.is_pinned()
        total += x.to("tern", non_blocking=True).sum() + y.to("tern", non_blocking=True).sum()
    assert total.item() == 24 * 23 / 2 + 12 * 11 / 2


def test_pinned_memory_everywhere():
    assert torch.zeros(3).pin_memory().is_pinned() and torch.zeros(3).pin_memory("tern").is_pinned("tern")
    assert torch.empty(3, pin_memory=True).is_pinned() and torch.randn(3, pin_memory=True).is_pinned()
    assert not torch.zeros(3).is_pinned() and torch.ones(2, device="tern").cpu().is_pinned() is False
    with pytest.raises(RuntimeError, match="pin"):
        torch.ones(3, device="tern").pin_memory()
    back = torch.empty(3, pin_memory=True)
    back.copy_(torch.ones(3, device="tern"), non_blocking=True)
    torch.tern.synchronize()
    assert back.sum() == 3


# ---- other processes ----
def test_sharing_with_a_process_is_refused_in_words():
    from multiprocessing.reduction import ForkingPickler

    x = torch.ones(3, device="tern")
    for shared in (x, torch.nn.Parameter(x)):
        with pytest.raises(RuntimeError, match=r"TERN-STORAGE.*send tensor.cpu\(\)"):
            ForkingPickler.dumps(shared)
    assert len(ForkingPickler.dumps(x.cpu())) > 0


def test_a_spawned_process_has_a_device_of_its_own(tmp_path):
    script = tmp_path / "work.py"
    script.write_text(
        textwrap.dedent("""
        import torch
        import torch.multiprocessing as mp

        def work(rank, queue):
            queue.put((rank, torch.full((3,), float(rank), device="tern").sum().item()))

        if __name__ == "__main__":
            torch.ones(3, device="tern").sum().item()
            context = mp.get_context("spawn")
            queue = context.SimpleQueue()
            processes = [context.Process(target=work, args=(rank, queue)) for rank in range(2)]
            [p.start() for p in processes]
            results = dict(queue.get() for _ in processes)
            [p.join() for p in processes]
            assert results[0] == 0 and results[1] == 3 and [p.exitcode for p in processes] == [0, 0]
        """)
    )
    result = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
