"""What all Python tests share: tern with two devices, and no hidden fallback: an operator served by PyTorch's CPU kernel fails the test unless the test is
marked `fallback`."""
import os
import signal

os.environ.setdefault("TERN_DEVICE_COUNT", "2")
os.environ["TERN_CACHE_DIR"] = "off"  # nothing that an earlier run compiled

import pytest
import torch

import torch_tern  # noqa: F401  registers the device
from torch_tern import _C


def pytest_configure(config):
    # A run in the background may have been started with Ctrl-C ignored, and the programs that the tests start would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line("markers", "fallback: the test may use PyTorch's CPU kernels")


@pytest.fixture(autouse=True)
def _fallbacks_are_errors(request):
    _C.set_setting("TERN_FALLBACK", "allow" if request.node.get_closest_marker("fallback") else "error")
    yield
    _C.set_setting("TERN_FALLBACK", "allow")
    torch.tern.set_mode("fused")
    torch.tern.set_device(0)
