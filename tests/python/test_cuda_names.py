"""torch.tern beside torch.cuda: every public name of torch.cuda works on torch.tern with the same arguments, or stands in ABSENT with the reason."""
import contextlib
import types

import pytest
import torch

LEGACY = "a typed tensor or storage class, which PyTorch advises against; use dtype= and device="
LIBRARY = "a handle of a CUDA library"
SENSOR = "a hardware sensor: no backend has one that means the same everywhere"
CAPTURE = "captures a CUDA graph: every tern program is recorded, fused and kept without being asked"
ALLOCATOR = "a device pointer or an allocator of cudaMalloc's kind; a tern tensor's memory is planned by the program it is in"
TYPE_NAMES = [f"{t}{k}" for t in ("BFloat16", "Bool", "Byte", "Char", "Double", "Float", "Half", "Int", "Long", "Short") for k in ("Tensor", "Storage")]

ABSENT = {
    **dict.fromkeys([*TYPE_NAMES, "ComplexDoubleStorage", "ComplexFloatStorage"], LEGACY),
    **dict.fromkeys(["cudart", "cudaStatus", "check_error", "current_blas_handle", "current_solver_handle", "gds", "has_magma", "nccl", "sparse", "tunable"], LIBRARY),
    **dict.fromkeys(["temperature", "power_draw", "clock_rate", "memory_usage"], SENSOR),
    **dict.fromkeys(["CUDAGraph", "graph", "graph_pool_handle", "graphs"], CAPTURE),
    **dict.fromkeys(["CudaError", "DeferredCudaCallError"], "raised by CUDA only"),
    **dict.fromkeys(["ExternalStream", "get_stream_from_external"], "a cudaStream_t of another library"),
    "GreenContext": "a partition of a CUDA device",
    "green_contexts": "a partition of a CUDA device",
    "jiterator": "compiles CUDA C++ strings",
    "profiler": "starts NVIDIA's profiler; torch.profiler shows tern",
    **dict.fromkeys(["MemPool", "use_mem_pool", "CUDAPluggableAllocator", "change_current_allocator"], ALLOCATOR),
    **dict.fromkeys(["caching_allocator_alloc", "caching_allocator_delete", "caching_allocator_disabled", "caching_allocator_enable"], ALLOCATOR),
}  # fmt: skip

# Imported into torch.cuda's namespace by accident of how it is written.
NOT_PUBLIC = {"Callable", "DEVICE_REQUIREMENT", "Device", "NewType", "Optional", "PYTORCH_RELEASES_CODE_CC", "TYPE_CHECKING", "cast", "classproperty", "importlib",
              "lru_cache", "os", "platform", "threading", "traceback", "warnings", "Any"}  # fmt: skip


def test_every_name_is_there_or_has_its_reason():
    public = {name for name in dir(torch.cuda) if not name.startswith("_")} - NOT_PUBLIC
    missing = {name for name in public if not hasattr(torch.tern, name)}
    missing |= {name for name in torch.cuda.memory.__all__ if not hasattr(torch.tern.memory, name)}
    assert missing - ABSENT.keys() == set()
    assert ABSENT.keys() - missing == set(), "these are there by now"


def test_modules_import_by_name():
    from torch.tern.amp import GradScaler, autocast, custom_bwd, custom_fwd  # noqa: F401
    from torch.tern.random import get_rng_state  # noqa: F401
    from torch.tern.streams import Event  # noqa: F401

    import torch.tern.nvtx

    assert isinstance(torch.tern.nvtx, types.ModuleType)


CALLS = [
    ("can_device_access_peer", (0, 1), bool),
    ("current_device", (), int),
    ("current_stream", (), torch.Stream),
    ("current_stream", ("tern:1",), torch.Stream),
    ("default_stream", (1,), torch.Stream),
    ("device_count", (), int),
    ("device_memory_used", (), int),
    ("empty_cache", (), type(None)),
    ("get_arch_list", (), list),
    ("get_device_name", (torch.device("tern:1"),), str),
    ("get_device_name", (None,), str),
    ("get_gencode_flags", (), str),
    ("get_rng_state", (), torch.Tensor),
    ("get_rng_state", ("tern:1",), torch.Tensor),
    ("get_rng_state_all", (), list),
    ("get_sync_debug_mode", (), int),
    ("init", (), type(None)),
    ("initial_seed", (), int),
    ("ipc_collect", (), type(None)),
    ("is_available", (), bool),
    ("is_bf16_supported", (), bool),
    ("is_current_stream_capturing", (), bool),
    ("is_initialized", (), bool),
    ("is_tf32_supported", (), bool),
    ("manual_seed", (3,), type(None)),
    ("manual_seed_all", (3,), type(None)),
    ("mem_get_info", (), tuple),
    ("seed", (), type(None)),
    ("seed_all", (), type(None)),
    ("set_device", ("tern:0",), type(None)),
    ("set_stream", (None,), type(None)),
    ("synchronize", (torch.device("tern"),), type(None)),
    ("utilization", (), int),
]


@pytest.mark.parametrize("name, arguments, type_", CALLS, ids=lambda value: value if isinstance(value, str) else "")
def test_calls(name, arguments, type_):
    assert isinstance(getattr(torch.tern, name)(*arguments), type_)


def test_properties():
    properties = torch.tern.get_device_properties(0)
    assert properties.name == "cpu" and properties.total_memory > 0 and properties.multi_processor_count >= 1
    assert torch.bfloat16 in torch.accelerator.get_device_capability()["supported_dtypes"]
    assert torch.qint8 not in torch.accelerator.get_device_capability()["supported_dtypes"]


def test_device_contexts():
    x = torch.ones(2, device="tern:1")
    with torch.tern.device_of(x):
        assert torch.tern.current_device() == 1
    with torch.tern.device_of(torch.ones(2)), torch.tern.device(None), torch.tern.device(-1):
        assert torch.tern.current_device() == 0
    with torch.accelerator.device_index(1):
        assert torch.accelerator.current_device_index() == 1
    assert torch.accelerator.current_device_index() == 0
    with pytest.raises(ValueError, match="tern device"):
        torch.tern.device("cpu")


def test_default_generators():
    torch.tern.manual_seed(5)
    one = torch.rand(3, device="tern")
    torch.tern.default_generators[0].manual_seed(5)
    assert torch.equal(one, torch.rand(3, device="tern", generator=torch.tern.default_generators[0]))
    assert len(torch.tern.default_generators) == 2
    assert torch.tern.default_generators[0].initial_seed() == torch.tern.initial_seed() == 5


def test_amp_spelled_as_cuda():
    from torch.tern.amp import GradScaler, autocast, custom_bwd, custom_fwd

    class Double(torch.autograd.Function):
        @staticmethod
        @custom_fwd(cast_inputs=torch.float32)
        def forward(ctx, x):
            assert x.dtype == torch.float32
            return x * 2

        @staticmethod
        @custom_bwd
        def backward(ctx, gradient):
            return gradient * 2

    x = torch.ones(4, 4, device="tern", requires_grad=True)
    scaler = GradScaler(init_scale=2.0)
    with autocast():
        y = Double.apply(x @ x)
        assert (x @ x).dtype == torch.float16
    scaler.scale(y.sum()).backward()
    assert x.grad.cpu().tolist() == [[32.0] * 4] * 4
    with autocast(dtype=torch.bfloat16, enabled=True):
        assert (x @ x).dtype == torch.bfloat16


def test_nvtx_shows_in_the_profiler():
    with torch.profiler.profile() as profile:
        assert torch.tern.nvtx.range_push("outer") == 0 and torch.tern.nvtx.range_push("inner") == 1
        assert torch.tern.nvtx.range_pop() == 1 and torch.tern.nvtx.range_pop() == 0 and torch.tern.nvtx.range_pop() == -2
        torch.tern.nvtx.range_end(torch.tern.nvtx.range_start("by number"))
        torch.tern.nvtx.mark("instant")
        with torch.tern.nvtx.range("step {}", 3):
            pass
    assert {"outer", "inner", "by number", "instant", "step 3"} <= {event.key for event in profile.key_averages()}


def test_sync_debug_mode():
    x = torch.ones(3, device="tern")
    try:
        torch.tern.set_sync_debug_mode("warn")
        assert torch.tern.get_sync_debug_mode() == 1
        with pytest.warns(UserWarning, match=r"synchronizing tern operation.*\n.*test_cuda_names"):
            x[0].item()
        torch.tern.set_sync_debug_mode("error")
        for read in (x.cpu, x.nonzero, x[0].item):
            with pytest.raises(RuntimeError, match="synchronizing tern operation"):
                read()
        x + x  # deferred: no wait
    finally:
        torch.tern.set_sync_debug_mode(0)
    with pytest.raises(RuntimeError, match="debug_mode"):
        torch.tern.set_sync_debug_mode("loud")


def test_graphed_callables_are_the_callables():
    layer = torch.nn.Linear(3, 2).to("tern")
    x = torch.ones(4, 3, device="tern")
    assert torch.equal(torch.tern.make_graphed_callables(layer, (x,))(x), layer(x))


# ---- torch.accelerator ----
ACCELERATOR = {
    "current_accelerator": lambda f: f() == torch.device("tern"),
    "current_device_idx": lambda f: f() == 0,
    "current_device_index": lambda f: f() == 0,
    "current_stream": lambda f: f().device == torch.device("tern:0") and f("tern:1").device == torch.device("tern:1"),
    "device_count": lambda f: f() == 2,
    "device_index": lambda f: isinstance(f(1), contextlib.AbstractContextManager | f),
    "empty_cache": lambda f: f() is None,
    "empty_host_cache": lambda f: f() is None,
    "get_device_capability": lambda f: torch.float32 in f()["supported_dtypes"],
    "get_memory_info": lambda f: 0 < f()[0] <= f()[1],
    "is_available": lambda f: f() is True,
    "max_memory_allocated": lambda f: f() >= torch.accelerator.memory_allocated(),
    "max_memory_reserved": lambda f: f() >= torch.accelerator.memory_reserved(),
    "memory_allocated": lambda f: f() >= 4096,
    "memory_reserved": lambda f: f() >= torch.accelerator.memory_allocated(),
    "memory_stats": lambda f: f()["allocated_bytes.all.current"] == torch.accelerator.memory_allocated(),
    "reset_accumulated_memory_stats": lambda f: f() is None,
    "reset_peak_memory_stats": lambda f: f() is None,
    "set_device_idx": lambda f: f(0) is None,
    "set_device_index": lambda f: f(0) is None,
    "set_stream": lambda f: f(torch.Stream("tern:0")) is None and f(torch.tern.default_stream()) is None,
    "synchronize": lambda f: f() is None and f("tern:1") is None,
}
# Graph: capture, as in ABSENT above; PyTorch says "Graph is not supported on device type: tern".
NOT_FUNCTIONS = {"Any", "Graph", "cache", "deprecated", "graphs", "memory", "torch"}


def test_torch_accelerator_is_complete():
    assert {name for name in dir(torch.accelerator) if not name.startswith("_")} - NOT_FUNCTIONS == ACCELERATOR.keys()


@pytest.mark.parametrize("name", ACCELERATOR)
@pytest.mark.filterwarnings("ignore:.*deprecated:FutureWarning")
def test_torch_accelerator(name):
    held = torch.ones(1024, device="tern")
    torch.tern.synchronize()
    assert ACCELERATOR[name](getattr(torch.accelerator, name))
    assert held.sum() == 1024
