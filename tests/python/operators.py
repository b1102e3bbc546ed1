"""The comparison with PyTorch CPU that the operator tests share: values, dtype, sizes, strides and gradients."""
import torch

TOLERANCES = {torch.float64: (1e-9, 1e-10), torch.float32: (1e-4, 1e-5), torch.float16: (5e-3, 1e-3), torch.bfloat16: (3e-2, 1e-2)}


def map_tensors(function, value):
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, (list, tuple)):
        items = [map_tensors(function, item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, dict):
        return {key: map_tensors(function, item) for key, item in value.items()}
    return value


def tensors_in(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, dict):
        yield from tensors_in(list(value.values()))


def copy_to(device, tensor):
    """A copy with the same strides over a storage of the same size, so that views stay views; requires_grad is kept."""
    view = tensor.detach()
    elements = view.untyped_storage().nbytes() // view.element_size()
    flat = view.as_strided((elements,), (1,), 0).clone().to(device)
    return flat.as_strided(view.size(), view.stride(), view.storage_offset()).requires_grad_(tensor.requires_grad)


def to_tern(tensor):
    return copy_to("tern", tensor)


def assert_same(ours, theirs, what="", strides=True, tolerances=TOLERANCES):
    ours, theirs = list(tensors_in(ours)), list(tensors_in(theirs))
    assert len(ours) == len(theirs), f"{what}: {len(ours)} results, not {len(theirs)}"
    for i, (mine, reference) in enumerate(zip(ours, theirs)):
        where = f"{what}, result {i}"
        assert mine.device.type == "tern", f"{where} is on {mine.device}"
        assert mine.dtype == reference.dtype, f"{where}: dtype {mine.dtype}, not {reference.dtype}"
        assert mine.shape == reference.shape, f"{where}: shape {tuple(mine.shape)}, not {tuple(reference.shape)}"
        # The stride of a dimension of size 1 means nothing.
        if strides and reference.numel():
            for size, stride, other in zip(reference.shape, mine.stride(), reference.stride()):
                assert size == 1 or stride == other, f"{where}: strides {mine.stride()}, not {reference.stride()}"
        rtol, atol = tolerances.get(reference.dtype, (0, 0))
        torch.testing.assert_close(mine.detach().cpu(), reference.detach(), rtol=rtol, atol=atol, equal_nan=True, msg=lambda text: f"{where}: {text}")  # noqa: B023


def compare(function, *arguments, gradients=True, strides=True, what=""):
    """Runs function(*arguments) on the CPU and on tern. The arguments are CPU tensors or plain values."""
    theirs_in = map_tensors(lambda t: copy_to("cpu", t), arguments)
    ours_in = map_tensors(to_tern, arguments)
    theirs, ours = function(*theirs_in), function(*ours_in)
    assert_same(ours, theirs, what, strides)
    # What an in-place operator changed.
    assert_same(
        [t for t in tensors_in(ours_in) if not t.requires_grad], [t for t in tensors_in(theirs_in) if not t.requires_grad], f"{what}: argument", strides
    )
    if not gradients or not any(t.requires_grad for t in tensors_in(theirs)):
        return
    for results in (theirs, ours):
        loss = 0
        for result in tensors_in(results):
            if result.requires_grad:
                weights = torch.linspace(0.5, 1.5, result.numel(), dtype=torch.float64).reshape(result.shape).to(result.dtype).to(result.device)
                loss = loss + (result * weights).sum()
        loss.backward()
    assert_same(
        [t.grad for t in tensors_in(ours_in) if t.grad is not None],
        [t.grad for t in tensors_in(theirs_in) if t.grad is not None],
        f"{what}: gradient",
        strides=False,
    )
