"""What PyTorch expects of a device besides operators: factories, storages, saving, generators, streams, events, pinned memory, memory figures."""
import copy
import io
import threading

import pytest
import torch

pytestmark = pytest.mark.fallback


def on_tern(*values):
    return torch.tensor(values, device="tern")


# ---- names ----
def test_names():
    assert torch.tern.is_available()
    assert torch.tern.device_count() == 2
    assert torch.accelerator.current_accelerator() == torch.device("tern")
    assert torch.accelerator.device_count() == 2
    assert torch.get_device_module("tern") is torch.tern
    assert torch.tern.get_device_name()
    assert on_tern(1.0).is_tern
    assert torch.ones(2).tern().device == torch.device("tern:0")
    assert torch.nn.Linear(2, 2).tern().weight.device.type == "tern"


def test_every_name_of_the_table_has_a_schema():
    from torch_tern import _C

    assert _C.missing_names() == []


def test_no_row_stands_in_the_way_of_autograd():
    """A row for a composite operator would take away its derivative."""
    from torch_tern import _C

    has = torch._C._dispatch_has_kernel_for_dispatch_key
    composite = [n for n in _C.native_names() if has("aten::" + n, "CompositeImplicitAutograd") and not has("aten::" + n, "CPU")]
    assert composite == []


# ---- devices ----
def test_current_device():
    assert torch.tern.current_device() == 0
    with torch.tern.device(1):
        assert torch.tern.current_device() == 1
        assert torch.empty(2, device="tern").device == torch.device("tern:1")
    assert torch.tern.current_device() == 0
    with torch.device("tern:1"):
        assert torch.ones(2).device == torch.device("tern:1")


def test_a_device_that_is_not_there():
    with pytest.raises(RuntimeError, match="tern:7 does not exist: there are 2 tern devices"):
        torch.empty(2, device="tern:7")
    with pytest.raises(RuntimeError, match="tern:5"):
        torch.tern.set_device(5)


def test_between_devices():
    x = torch.arange(6.0).reshape(2, 3)
    y = x.to("tern:0").to("tern:1")
    assert y.device == torch.device("tern:1")
    assert torch.equal((y.t() * 2).cpu(), x.t() * 2)
    with pytest.raises(RuntimeError, match="same device"):
        x.to("tern:0") + y
    with pytest.raises(RuntimeError, match="same device"):
        y + x
    y.copy_(x.to("tern:0") * 3)
    assert torch.equal(y.cpu(), x * 3)


# ---- factories and storages ----
def test_factories():
    assert torch.zeros(2, 3, device="tern").cpu().tolist() == [[0, 0, 0], [0, 0, 0]]
    assert torch.full((2,), 7, device="tern").cpu().tolist() == [7, 7]
    assert torch.arange(5, device="tern").cpu().tolist() == [0, 1, 2, 3, 4]
    assert torch.eye(2, device="tern").cpu().tolist() == [[1, 0], [0, 1]]
    assert torch.as_tensor([1, 2], device="tern").cpu().tolist() == [1, 2]
    assert torch.tensor(on_tern(1.0, 2.0).detach()).device.type == "tern"
    assert torch.empty(2, 3, 4, 5, device="tern", memory_format=torch.channels_last).stride() == (60, 1, 15, 3)
    assert torch.empty_strided((2, 3), (1, 2), device="tern").stride() == (1, 2)
    with pytest.raises(RuntimeError):
        torch.empty(-1, device="tern")
    with pytest.raises(RuntimeError, match="dense CPU tensors can be pinned"):
        torch.empty(2, device="tern", pin_memory=True)


def test_show():
    assert repr(torch.arange(3.0, device="tern")) == "tensor([0., 1., 2.], device='tern:0')"
    assert torch.arange(3.0, device="tern")[2].item() == 2
    assert on_tern(1, 2).tolist() == [1, 2]
    assert f"{on_tern(2.5)[0]:.1f}" == "2.5"
    assert bool(on_tern(1)) and int(on_tern(3)) == 3 and float(on_tern(0.5)) == 0.5
    assert list(on_tern(1, 2))[1] == 2


def test_numpy():
    with pytest.raises(TypeError, match="Tensor.cpu"):
        on_tern(1.0).numpy()
    assert on_tern(1.0, 2.0).numpy(force=True).tolist() == [1, 2]


def test_addresses_never_overlap():
    x, y = torch.ones(100, device="tern"), torch.ones(100, device="tern")
    first, second = sorted([x.data_ptr(), y.data_ptr()])
    assert first + 400 <= second
    assert x[3:].data_ptr() == x.data_ptr() + 12


def test_set_and_resize():
    x = torch.ones(6, device="tern")
    assert torch.empty(0, device="tern").set_(x).shape == (6,)
    y = torch.empty(0, device="tern").set_(x.untyped_storage(), 2, (2, 2), (2, 1))
    x.mul_(3)
    assert y.cpu().tolist() == [[3, 3], [3, 3]]
    assert y.is_set_to(y.view(2, 2)) and not y.is_set_to(x)
    assert torch.empty(3, device="tern").set_().shape == (0,)
    z = torch.arange(4.0, device="tern")
    z.resize_(8)
    assert z[:4].cpu().tolist() == [0, 1, 2, 3]
    z.untyped_storage().resize_(0)
    assert z.untyped_storage().nbytes() == 0
    with pytest.raises(RuntimeError):
        torch.empty(0, device="tern").set_(torch.ones(2).untyped_storage())


def test_storage_keeps_contents_when_it_grows():
    x = torch.arange(4.0, device="tern") + 1
    x.untyped_storage().resize_(32)
    assert x.set_(x.untyped_storage(), 0, (8,), (1,)).cpu()[:4].tolist() == [1, 2, 3, 4]
    assert x.untyped_storage()[0] == 0  # the first byte of 1.0f


def test_storage_clone_and_fill():
    x = torch.arange(4, dtype=torch.uint8, device="tern")
    other = x.untyped_storage().clone()
    x.untyped_storage().fill_(9)
    assert x.cpu().tolist() == [9, 9, 9, 9]
    assert bytes(other.cpu()) == bytes([0, 1, 2, 3])


def test_pickle_of_parts():
    x = torch.arange(6.0, device="tern").reshape(2, 3)
    y = copy.deepcopy(x)
    x.add_(1)
    assert y.cpu().tolist() == [[0, 1, 2], [3, 4, 5]]


def test_swap_tensors():
    a, b = torch.ones(3, device="tern"), torch.zeros(3, device="tern")
    torch.utils.swap_tensors(a, b)
    assert a.cpu().tolist() == [0, 0, 0]


# ---- saving ----
def test_save_and_load_keeps_views():
    x = torch.randn(3, 4, device="tern")
    buffer = io.BytesIO()
    torch.save({"x": x, "row": x[1:]}, buffer)
    buffer.seek(0)
    back = torch.load(buffer)
    assert back["x"].device == torch.device("tern:0")
    assert torch.equal(back["x"].cpu(), x.cpu())
    back["x"].zero_()
    assert back["row"].cpu().abs().sum() == 0


@pytest.mark.parametrize("source", ["cpu", "tern"])
@pytest.mark.parametrize("target", ["cpu", "tern", "tern:1"])
def test_load_on_another_device(source, target):
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3)).to(source)
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    buffer.seek(0)
    state = torch.load(buffer, map_location=target, weights_only=True)
    assert {t.device for t in state.values()} == {torch.empty(0, device=target).device}
    other = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3)).to(target)
    other.load_state_dict(state)
    assert torch.equal(other[0].weight.cpu(), model[0].weight.cpu())


# ---- generators ----
def test_generator():
    one, other = torch.Generator(device="tern").manual_seed(3), torch.Generator(device="tern").manual_seed(3)
    assert one.initial_seed() == 3 and one.device.type == "tern"
    first = torch.rand(5, device="tern", generator=one)
    assert torch.equal(first, torch.rand(5, device="tern", generator=other))
    state = one.get_state()
    second = torch.rand(5, device="tern", generator=one)
    assert not torch.equal(first, second)
    one.set_state(state)
    assert torch.equal(second, torch.rand(5, device="tern", generator=one))
    with pytest.raises(RuntimeError):
        torch.rand(5, device="tern", generator=torch.Generator())


def test_a_generator_leaves_the_devices_stream_alone():
    torch.manual_seed(1)
    expected = [torch.rand(4, device="tern").cpu() for _ in range(2)]
    torch.manual_seed(1)
    first = torch.rand(4, device="tern").cpu()
    torch.rand(100, device="tern", generator=torch.Generator(device="tern"))
    assert torch.equal(torch.stack(expected), torch.stack([first, torch.rand(4, device="tern").cpu()]))


def test_seeds():
    torch.manual_seed(7)
    assert torch.tern.initial_seed() == 7
    a = torch.rand(4, device="tern")
    state = torch.tern.get_rng_state()
    b = torch.rand(4, device="tern")
    torch.tern.set_rng_state(state)
    assert torch.equal(b, torch.rand(4, device="tern"))
    torch.tern.manual_seed(7)
    assert torch.equal(a, torch.rand(4, device="tern"))
    with torch.random.fork_rng(device_type="tern"):
        torch.rand(4, device="tern")
        torch.manual_seed(99)
    assert torch.tern.initial_seed() == 7


def test_devices_draw_alike():
    torch.manual_seed(5)
    assert torch.equal(torch.rand(4, device="tern:0").cpu(), torch.rand(4, device="tern:1").cpu())


# ---- streams and events ----
def test_streams_and_events():
    stream = torch.Stream(device="tern")
    with stream:
        assert torch.accelerator.current_stream() == stream
        x = torch.ones(4, device="tern") * 2
    first, second = torch.Event(device="tern", enable_timing=True), torch.Event(device="tern", enable_timing=True)
    first.record()
    y = x * 2
    second.record()
    second.synchronize()
    assert first.query() and first.elapsed_time(second) >= 0
    stream.wait_event(second)
    stream.synchronize()
    torch.accelerator.synchronize()
    torch.tern.synchronize("tern:0")
    x.record_stream(stream)
    assert y.sum().item() == 16
    assert torch.tern.current_stream().device == torch.device("tern:0")
    with torch.tern.stream(torch.Stream(device="tern:1")):
        assert torch.tern.current_device() == 1


def heavy_work():
    x = torch.randn(700, 700, device="tern")
    torch.tern.synchronize()
    for _ in range(6):
        x = x @ x * 0.0378
    return x


def test_asking_an_event_does_not_wait():
    event, stream = torch.tern.Event(), torch.tern.current_stream()
    x = heavy_work()
    event.record()
    programs = torch.tern.stats()["programs"]
    assert not event.query()  # hands the work over, and is past it before the work is
    assert not stream.query()
    event.synchronize()
    assert event.query() and stream.query()
    assert torch.tern.stats()["programs"] == programs + 1
    assert x.isfinite().all()


def test_an_event_is_a_position():
    early, late = torch.tern.Event(), torch.tern.Event()
    x = torch.ones(3, device="tern") + 1
    early.record()
    early.synchronize()
    y = heavy_work()
    late.record()
    assert early.query() and not late.query()
    late.synchronize()
    assert early.query() and late.query() and x.sum() == 6 and y is not None


def test_recording_an_event_cuts_no_program():
    torch.tern.synchronize()
    before = torch.tern.stats()["programs"]
    x = torch.ones(3, device="tern")
    for _ in range(5):
        x = x + 1
        torch.tern.current_stream().record_event()
    assert x.sum() == 18
    assert torch.tern.stats()["programs"] == before + 1


def test_times_are_the_devices():
    events = [torch.tern.Event(enable_timing=True) for _ in range(3)]
    torch.tern.synchronize()
    events[0].record()
    events[1].record()
    x = heavy_work()
    events[2].record()
    with pytest.raises(RuntimeError, match="completed"):  # as torch.cuda: PyTorch asks before it calls the device
        events[0].elapsed_time(events[2])
    events[2].synchronize()
    nothing, work = events[0].elapsed_time(events[1]), events[0].elapsed_time(events[2])
    assert 0 <= nothing < work  # not the time at which it was recorded: that is all but nothing
    assert events[2].query() and x is not None


def test_an_event_again_and_between_devices():
    event = torch.tern.Event(enable_timing=True)
    for index in (0, 1):
        with torch.tern.device(index):
            fresh = torch.tern.Event()
            torch.ones(2, device="tern") + 1
            fresh.record()
            torch.tern.current_stream(1 - index).wait_event(fresh)
            fresh.synchronize()
    event.record()
    event.record()
    event.synchronize()
    assert event.query() and torch.tern.Event().query()
    assert isinstance(event, torch.tern.Event) and not isinstance(torch.tern.current_stream(), torch.tern.Event)
    with pytest.raises(NotImplementedError, match="own process"):
        torch.tern.Event(interprocess=True)


def test_stream_objects():
    stream = torch.tern.Stream(priority=-1)
    other = torch.tern.Stream("tern:1")
    assert other.device == torch.device("tern:1") and torch.tern.Stream.priority_range() == (0, 0)
    with torch.tern.stream(stream), torch.tern.stream(None):
        assert torch.tern.current_stream() == stream != torch.tern.default_stream()
        assert isinstance(torch.tern.current_stream(), torch.tern.Stream)
    assert torch.tern.current_stream() == torch.tern.default_stream()
    stream.wait_stream(torch.tern.current_stream())
    with pytest.raises(RuntimeError, match="tern:9"):
        torch.tern.Stream("tern:9")


def test_an_untimed_event_has_no_time():
    first, second = torch.Event(device="tern"), torch.Event(device="tern")
    first.record(), second.record()
    with pytest.raises((RuntimeError, ValueError)):
        first.elapsed_time(second)


# ---- pinned memory ----
def test_pinned_memory():
    x = torch.zeros(30).pin_memory()
    assert x.is_pinned() and x[10:].is_pinned() and not torch.zeros(3).is_pinned()
    other = torch.ones(3).pin_memory()
    assert other.is_pinned() and x.is_pinned()
    y = other.to("tern", non_blocking=True)
    other.zero_()  # a copy is a snapshot, whatever non_blocking says
    assert y.cpu().tolist() == [1, 1, 1]


def test_data_loader_pins():
    data = torch.utils.data.DataLoader(torch.arange(8.0), batch_size=4, pin_memory=True)
    assert [batch.to("tern", non_blocking=True).sum().item() for batch in data] == [6, 22]


# ---- memory ----
def test_memory_figures():
    torch.accelerator.synchronize()
    before = torch.accelerator.memory_allocated()
    x = torch.ones(1 << 20, device="tern")
    torch.accelerator.synchronize()
    assert torch.accelerator.memory_allocated() - before >= 4 << 20
    assert torch.tern.max_memory_allocated() >= torch.tern.memory_allocated() > 0
    free, total = torch.tern.mem_get_info()
    assert 0 < free <= total
    del x
    torch.accelerator.synchronize()
    torch.accelerator.empty_cache()
    assert torch.accelerator.memory_allocated() <= before + (1 << 20)


# ---- threads ----
def test_autograd_runs_each_device_in_a_thread():
    a = torch.ones(3, device="tern:0", requires_grad=True)
    b = torch.ones(3, device="tern:1", requires_grad=True)
    seen = set()
    for x in (a * a, b * b):
        x.register_hook(lambda g: seen.add((threading.get_ident(), str(g.device))))
        x.sum().backward()
    assert {device for _, device in seen} == {"tern:0", "tern:1"}
    assert a.grad.cpu().tolist() == [2, 2, 2] and b.grad.device == torch.device("tern:1")


# ---- the wider PyTorch ----
def test_autocast():
    a = torch.randn(3, 4, device="tern")
    with torch.autocast("tern", dtype=torch.bfloat16):
        assert (a @ a.t()).dtype == torch.bfloat16
        assert a.exp().dtype == torch.float32
        assert torch.normal(0.0, 1.0, (2,), device="tern").dtype == torch.float32
    with torch.autocast("tern", dtype=torch.float16):
        assert torch.nn.functional.linear(a, a).dtype == torch.float16


def test_checkpoint():
    layer = torch.nn.Linear(4, 2).to("tern")
    x = torch.randn(3, 4, device="tern", requires_grad=True)
    torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False).sum().backward()
    again = x.detach().clone().requires_grad_()
    layer(again).sum().backward()
    assert torch.equal(x.grad, again.grad)


def test_vmap_and_grad():
    x = torch.randn(3, 4, device="tern")
    assert torch.allclose(torch.func.vmap(torch.func.grad(lambda v: (v * v).sum()))(x).cpu(), 2 * x.cpu())


def test_profiler():
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        (torch.ones(3, device="tern") * 2).cpu()
    assert "aten::mul" in [event.key for event in profile.key_averages()]




def test_moving_a_module_keeps_its_parameters_identity():
    """Tied weights stay tied and an optimizer made before goes on, as with PyTorch's own devices."""
    first, second = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
    second.weight = first.weight
    model = torch.nn.Sequential(first, second)
    opt = torch.optim.SGD(model.parameters(), 0.1)
    weight = first.weight
    model(torch.ones(1, 3)).sum().backward()
    for device in ("tern", "cpu", "tern"):
        model.to(device)
        assert first.weight is second.weight is weight and weight.device.type == weight.grad.device.type == device
        before = weight.detach().clone()
        opt.step()
        torch.testing.assert_close(weight.detach(), before - 0.1 * weight.grad)
        model(torch.ones(1, 3, device=device)).sum().backward()
    x = torch.nn.Parameter(torch.ones(2))
    x.data = torch.zeros(2, device="tern")
    assert x.device.type == "tern" and x.tolist() == [0, 0]
    with pytest.raises(RuntimeError, match="incompatible tensor type"):
        x.data = torch.zeros(2).to_sparse()
