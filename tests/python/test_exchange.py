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
