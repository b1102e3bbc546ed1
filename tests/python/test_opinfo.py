"""PyTorch's own operator samples (OpInfo), f32, forward: every operator gives the CPU's values on tern, natively or through the fallback.

A sample of the samples: the first of each operator here, more of them in the full run (TERN_OPINFO_SAMPLES)."""
import os
import warnings

import pytest
import torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    op_db = pytest.importorskip("torch.testing._internal.common_methods_invocations").op_db

from operators import assert_same, map_tensors, to_tern

SAMPLES = int(os.environ.get("TERN_OPINFO_SAMPLES", "2"))

# Random: compared in distribution elsewhere. Uninitialised: nothing to compare. Or samples that name the CPU and mean it.
RANDOM = ("rand", "bernoulli", "multinomial", "normal", "uniform", "exponential", "geometric", "cauchy", "dropout", "rrelu", "fractional_max_pool",
          "scaled_dot_product_attention", "multi_head_attention_forward")  # fmt: skip
OTHER = ("empty", "sparse", "jiterator", "tensor_split", "svd_lowrank", "pca_lowrank")
# Up to a sign or a phase, so not equal; their products are tested by the operators that use them.
NOT_UNIQUE = ("linalg.eig", "linalg.svd", "svd", "geqrf", "ormqr")


def wanted(op):
    skip = RANDOM + OTHER + NOT_UNIQUE
    return torch.float32 in op.dtypes and op.name != "to" and not any(part in op.name for part in skip)


def on_tern(value):
    return map_tensors(to_tern, value)


@pytest.mark.fallback
@pytest.mark.parametrize("op", [op for op in op_db if wanted(op)], ids=lambda op: op.name + (f".{op.variant_test_name}" if op.variant_test_name else ""))
def test_like_cpu(op):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number, sample in zip(range(SAMPLES), op.sample_inputs("cpu", torch.float32, requires_grad=False)):
            try:
                reference = op(sample.input, *sample.args, **sample.kwargs)
            except RuntimeError:
                continue
            kwargs = {key: "tern" if key == "device" else on_tern(value) for key, value in sample.kwargs.items()}
            if not any(isinstance(v, torch.Tensor) for v in (sample.input, *sample.args)) and "device" not in kwargs and not isinstance(sample.input, (list, tuple)):
                continue
            got = op(on_tern(sample.input), *on_tern(sample.args), **kwargs)
            assert_same(got, reference, f"{op.name}, sample {number}")
