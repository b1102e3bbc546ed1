"""PyTorch's own operator samples (op_db) as the judge: every operator, every dtype that its CPU kernels take, on tern against the CPU.

For each operator and dtype: forward, in place, gradients, out=, non-contiguous inputs and wrong inputs. A check is right natively, right by the fallback, or wrong;
each operator runs in a child process of its own, so that a crash or a hang is a row of the table and not its end.

    python tests/python/opinfo_sweep.py --dtypes float32 --json build/operators.json --markdown docs/operators.md

Random operators are compared under torch.tern.rng("cpu"), which draws PyTorch CPU's numbers, and run once more with tern's own for whether they are native."""

# ruff: noqa: BLE001, S112 (whatever an operator raises is a verdict)
import argparse
import collections
import fnmatch
import json
import os
import select
import signal
import sys
import time
import warnings

os.environ.setdefault("TERN_FALLBACK", "allow")
os.environ.setdefault("TERN_DEVICE_COUNT", "2")

import torch_tern  # noqa: F401  registers the device
from operators import copy_to, map_tensors, tensors_in
from torch_tern import _C

import torch
from torch.utils._python_dispatch import TorchDispatchMode

CHECKS = ("forward", "inplace", "gradient", "out", "noncontiguous", "errors")
WORST = ("native", "fallback", "wrong", "hang", "crash")  # in this order
# Looked at by shape and dtype only: what they hold is whatever lay in memory.
UNINITIALISED = ("empty", "new_empty", "empty_like", "empty_strided", "new_empty_strided", "empty_permuted", "resize_", "resize_as_")
# Of equal elements any may come first, so places are compared by what they point at, elsewhere; here values, dtypes and shapes.
UNORDERED = ("sort", "argsort", "topk", "kthvalue", "median", "nanmedian", "mode")
# PyTorch's CPU takes these from f32 tables beyond 5; tern's are right to the last digits (test_ops_special.py asks mpmath).
SEVEN_DIGITS = ("special.bessel_j0", "special.bessel_j1", "special.bessel_y0", "special.bessel_y1")
# Statistics of half-precision inputs are kept in f32, as CUDA does; the CPU keeps them in halves.
STATISTICS = ("native_layer_norm", "native_group_norm", "native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update")
NAMES = {"bool": "bool", "bfloat16": "bf16", "float16": "f16", "float32": "f32", "float64": "f64", "complex64": "c64", "complex128": "c128", "complex32": "c32",
         "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64"}  # fmt: skip


# Not right yet, and why: rows of the table like the others, but no failure of the sweep.
KNOWN = {
    ("mode", "gradient"): "which of many equal elements the CPU's unstable sort finds decides where the gradient goes",
    ("linspace", "forward"): "bf16: PyTorch's vectors round each step to bf16 on some processors; tern rounds once",
    ("multinomial", "errors"): "negative and infinite probabilities: to refuse them, their values would have to be read",
}


class Wrong(Exception):
    pass


def short(dtype):
    name = str(dtype).split(".")[-1]
    return NAMES.get(name, name)


def title(op):
    return op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")


# ---- inputs and results ----


def transfer(tensor):
    if tensor.is_conj():
        return transfer(tensor.conj()).conj()
    if tensor.is_neg():
        return torch._neg_view(transfer(torch._neg_view(tensor)))
    return copy_to("tern", tensor)


def on_tern(value, op=None):
    if op == "tensor_split":  # its sizes are a CPU tensor on every device
        return (on_tern(value[0]), value[1], value[2])
    if isinstance(value, torch.Tensor):
        return transfer(value)
    if isinstance(value, (str, torch.device)) and str(value) == "cpu":
        return torch.device("tern")
    if isinstance(value, dict):
        return {key: on_tern(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        items = [on_tern(item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def is_dense(sample):
    return all(t.layout == torch.strided and not t.is_quantized and not t.is_meta for t in tensors_in([sample.input, sample.args, sample.kwargs]))


def has_tern(sample):
    values = [sample.input, *sample.args, *sample.kwargs.values()]
    return any(True for _ in tensors_in(values)) or any(isinstance(v, (str, torch.device)) and str(v) == "cpu" for v in values)


def tolerance(op, dtype, factor=1):
    """torch.testing's for the dtype, or what the operator's own entry allows itself anywhere. Gradients are sums of many of those: factor."""
    defaults = {torch.float16: (1e-3, 1e-3), torch.bfloat16: (1.6e-2, 1e-3), torch.float32: (1e-5, 1e-5), torch.complex64: (1e-5, 1e-5)}
    rtol, atol = defaults.get(dtype, (1e-7, 1e-7))
    if op.name in SEVEN_DIGITS:
        rtol, atol = max(rtol, 1e-5), max(atol, 1e-6)
    for decorator in op.decorators:
        for override in getattr(decorator, "decorators", [decorator]):
            for kind, allowed in getattr(override, "overrides", {}).items():
                if kind == dtype and hasattr(allowed, "rtol"):
                    rtol, atol = max(rtol, allowed.rtol), max(atol, allowed.atol)
    return factor * rtol, factor * atol


def as_close(ours, theirs, truth, rtol, atol):
    """Whether ours is no farther from what f64 gives than the CPU is, in the worst element."""
    if truth is None or truth.shape != theirs.shape or not (theirs.is_floating_point() or theirs.is_complex()):
        return False
    wide = torch.complex128 if theirs.is_complex() else torch.float64
    ours, theirs, truth = ours.to(wide), theirs.to(wide), truth.to(wide)
    allowed = (theirs - truth).abs().nan_to_num(0, 0).max() * 1.5 + atol
    same = (ours == truth) | (ours.isnan() & truth.isnan()) | (ours == theirs) | (ours.isnan() & theirs.isnan())
    return bool((same | ((ours - truth).abs() <= allowed + rtol * truth.abs())).all())


def compare(op, ours, theirs, what, values=True, strides=True, device=True, factor=1, truth=None):
    if not isinstance(theirs, (torch.Tensor, list, tuple, dict)):
        if isinstance(theirs, float) and abs(ours - theirs) <= 1e-5 * abs(theirs) + 1e-5 or ours == theirs or f"{ours}{theirs}" == "nannan":
            return
        if isinstance(theirs, torch.device) or theirs is None:
            return
        raise Wrong(f"{what}: {ours!r}, not {theirs!r}")
    ours, theirs = list(tensors_in(ours)), list(tensors_in(theirs))
    if len(ours) != len(theirs):
        raise Wrong(f"{what}: {len(ours)} tensors, not {len(theirs)}")
    exact = None
    for number, (mine, reference) in enumerate(zip(ours, theirs)):
        if device and mine.device.type != "tern":
            raise Wrong(f"{what}: result on {mine.device}")
        if op.name in STATISTICS and number and mine.dtype != reference.dtype and reference.dtype in (torch.float16, torch.bfloat16):
            mine = mine.to(reference.dtype)
        if mine.dtype != reference.dtype:
            raise Wrong(f"{what}: dtype {mine.dtype}, not {reference.dtype}")
        if mine.layout != reference.layout:
            raise Wrong(f"{what}: layout {mine.layout}, not {reference.layout}")
        if mine.shape != reference.shape:
            raise Wrong(f"{what}: shape {tuple(mine.shape)}, not {tuple(reference.shape)}")
        if mine.layout != torch.strided:
            mine, reference = mine.to_dense(), reference.to_dense()
        if strides and reference.numel():
            for size, stride, other in zip(reference.shape, mine.stride(), reference.stride()):
                if size != 1 and stride != other:
                    raise Wrong(f"{what}: strides {mine.stride()}, not {reference.stride()} (shape {tuple(mine.shape)})")
        if values and not (op.name in UNORDERED and reference.dtype == torch.int64):
            is_real = reference.dtype.is_floating_point and reference.dtype.itemsize > 1
            rtol, atol = tolerance(op, reference.dtype, factor) if is_real or reference.dtype.is_complex else (0, 0)
            mine, reference = mine.detach().cpu().resolve_conj(), reference.detach().resolve_conj()
            try:
                torch.testing.assert_close(mine, reference, rtol=rtol, atol=atol, equal_nan=True)
            except AssertionError as error:
                if truth and exact is None:
                    exact = list(tensors_in(truth()))
                if exact and as_close(mine, reference, exact[number].detach(), rtol, atol):
                    continue
                raise Wrong(f"{what}: {str(error)[:300]}") from None


# ---- which operators of aten served a call ----


def is_functional(schema):
    return not any(a.alias_info and a.alias_info.is_write for a in schema.arguments)


class Seen(TorchDispatchMode):
    """The functional operators that reached the device's dispatcher, below autograd and below PyTorch's compositions of others."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "aten" and is_functional(func._schema):
            self.names.add(str(func).removeprefix("aten.").removesuffix(".default"))
        return func(*args, **(kwargs or {}))


def seen_natively(function, arguments):
    """Names of the operators that function(*arguments) calls; none where any of them was served by a CPU kernel."""
    seen = Seen()
    _C.reset_stats()
    try:
        with seen:
            function(*arguments)
            torch.tern.synchronize()
    except Exception:
        return set()
    return set() if _C.fallbacks() else seen.names


def foreach_schemas():
    """The same of PyTorch's database of operators on lists."""
    from torch.testing._internal import common_methods_invocations as database

    names = set()
    for op in (op for group in vars(database) if group.startswith("foreach_") and group.endswith("_op_db") for op in getattr(database, group)):
        for number, sample in enumerate(op.sample_inputs("cpu", torch.float32)):
            if number == 4:
                break
            try:
                values = map_tensors(lambda t: copy_to("tern", t), (sample.input, sample.args, sample.kwargs))
            except Exception:
                continue
            names |= seen_natively(lambda x, args, kwargs: op.method_variant(x, *args, **kwargs), values)  # noqa: B023
    return names


# ---- the checks of one operator and dtype ----


class Judge:
    def __init__(self, op, dtype, limit):
        self.op, self.dtype, self.limit = op, dtype, limit
        self.values = op.name not in UNINITIALISED
        self.fallbacks, self.schemas = collections.Counter(), set()

    def samples(self, requires_grad=False, limit=None):
        torch.manual_seed(1)
        for number, sample in enumerate(self.op.sample_inputs("cpu", self.dtype, requires_grad=requires_grad)):
            if (limit or self.limit) and number >= (limit or self.limit):
                break
            if is_dense(sample) and has_tern(sample):
                yield number, sample

    def both(self, function, theirs, ours, what):
        """function on the CPU's and on tern's inputs: (reference, result), or None where both refuse."""
        torch.manual_seed(7)
        try:
            reference = function(*theirs)
        except Exception as error:
            try:
                function(*ours)
                torch.tern.synchronize()
            except type(error):
                return None
            except Exception as other:
                if isinstance(other, (RuntimeError, ValueError, TypeError, IndexError)) and isinstance(error, (RuntimeError, ValueError, TypeError, IndexError)):
                    return None
                raise Wrong(f"{what}: {type(other).__name__} {other}, not {type(error).__name__} {error}") from None
            return None  # the CPU's kernel lacks what tern has
        torch.manual_seed(7)
        _C.reset_stats()
        try:
            with torch.tern.rng("cpu"):
                result = function(*ours)
                torch.tern.synchronize()
        except Exception as error:
            raise Wrong(f"{what}: {type(error).__name__} {str(error)[:300]}") from None
        self.fallbacks.update({name for name, _, _ in _C.fallbacks()})
        return reference, result

    def truth(self, function, theirs):
        """The same in f64, where the operator has it."""

        def widen(t):
            wide = torch.complex128 if t.is_complex() else torch.float64
            return t.detach().to(wide).requires_grad_(t.requires_grad) if t.is_floating_point() or t.is_complex() else t

        def run():
            torch.manual_seed(7)
            try:
                return function(*map_tensors(widen, theirs))
            except Exception:
                return []

        return run if self.dtype in (torch.float32, torch.float16, torch.bfloat16, torch.complex64) and self.values else None

    def call(self, sample):
        return lambda x, args, kwargs: self.op(x, *args, **kwargs)

    def pair(self, sample):
        theirs = (map_tensors(self.copy, sample.input), map_tensors(self.copy, sample.args), map_tensors(self.copy, sample.kwargs))
        return theirs, on_tern((sample.input, sample.args, sample.kwargs), self.op.name)

    @staticmethod
    def copy(tensor):
        return tensor if tensor.is_conj() or tensor.is_neg() else copy_to("cpu", tensor)

    def forward(self):
        count = 0
        for number, sample in self.samples():
            theirs, ours = self.pair(sample)
            found = self.both(self.call(sample), theirs, ours, f"sample {number}")
            count += 1
            if found and number < 2:
                self.schemas |= seen_natively(self.call(sample), self.pair(sample)[1])
            if found:
                truth = self.truth(lambda x, args, kwargs: sample.output_process_fn_grad(self.op(x, *args, **kwargs)), self.pair(sample)[0])  # noqa: B023
                compare(self.op, sample.output_process_fn_grad(found[1]), sample.output_process_fn_grad(found[0]), f"sample {number}", self.values, truth=truth)
        return count

    def inplace(self):
        variant, count = self.op.inplace_variant, 0
        if variant is None:
            return 0
        for number, sample in self.samples():
            if not isinstance(sample.input, torch.Tensor) or sample.broadcasts_input:
                continue
            theirs, ours = self.pair(sample)
            found = self.both(lambda x, args, kwargs: variant(x, *args, **kwargs), theirs, ours, f"in place, sample {number}")
            count += 1
            if found:
                compare(self.op, found[1], found[0], f"in place, sample {number}", self.values, truth=self.truth(self.call(sample), self.pair(sample)[0]))
                if found[1] is not ours[0]:
                    raise Wrong(f"in place, sample {number}: another tensor was returned")
        return count

    def gradient(self):
        op, count = self.op, 0
        if not op.supports_autograd or self.dtype not in op.supported_backward_dtypes("cpu"):
            return 0
        for number, sample in self.samples(requires_grad=True):
            if not any(t.requires_grad for t in tensors_in([sample.input, sample.args, sample.kwargs])):
                continue

            def gradients(x, args, kwargs):
                leaves = [t for t in tensors_in([x, args, kwargs]) if t.requires_grad]
                results = sample.output_process_fn_grad(op(x, *args, **kwargs))  # noqa: B023
                results = [t for t in tensors_in(results) if t.requires_grad]
                if not results:
                    return []
                weights = [torch.linspace(0.5, 1.5, t.numel()).reshape(t.shape).to(t.dtype).to(t.device) for t in results]
                return [g for g in torch.autograd.grad(results, leaves, weights, allow_unused=True) if g is not None]

            theirs, ours = self.pair(sample)
            found = self.both(gradients, theirs, ours, f"gradient, sample {number}")
            count += 1
            if found and number < 2:
                self.schemas |= seen_natively(gradients, self.pair(sample)[1])
            if found:
                compare(op, found[1], found[0], f"gradient, sample {number}", self.values, strides=False, factor=10, truth=self.truth(gradients, self.pair(sample)[0]))
        return count

    def out(self):
        op, count = self.op, 0
        if not op.supports_out:
            return 0
        for number, sample in self.samples(limit=4):
            theirs, ours = self.pair(sample)
            try:
                torch.manual_seed(7)
                reference = op(*theirs[:1], *theirs[1], **theirs[2])
            except Exception:
                continue
            single = isinstance(reference, torch.Tensor)
            for form in ("same", "strided", "empty"):

                def target(t, device):
                    if form == "same":  # noqa: B023
                        return torch.full_like(t, 1).to(device)
                    if form == "strided":  # noqa: B023
                        return torch.ones([*t.shape, 2], dtype=t.dtype, device=device).select(-1, 0)
                    return torch.empty(0, dtype=t.dtype, device=device)

                def run(x, args, kwargs, targets):
                    returned = op(x, *args, out=targets[0] if single else tuple(targets), **kwargs)  # noqa: B023
                    return targets, returned

                results = list(tensors_in(reference))
                found = self.both(run, (*theirs, [target(t, "cpu") for t in results]), (*ours, [target(t, "tern") for t in results]), f"out= {form}, sample {number}")
                count += 1
                if found:
                    what, truth = f"out= {form}, sample {number}", self.truth(self.call(sample), self.pair(sample)[0])
                    try:
                        compare(op, found[1][0], found[0][0], what, self.values, truth=truth)
                    except Wrong:  # the CPU's own out= is wrong for some strided targets: then as the functional form
                        compare(op, found[1][0], results, what, self.values, strides=False, truth=truth)
        return count

    def noncontiguous(self):
        count = 0
        for number, sample in self.samples(limit=self.limit and max(2, self.limit // 2)):
            if not any(t.numel() > 1 for t in tensors_in([sample.input, sample.args, sample.kwargs])):
                continue
            torch.manual_seed(3)
            strided = sample.noncontiguous()
            theirs, ours = self.pair(strided)
            found = self.both(self.call(sample), theirs, ours, f"non-contiguous, sample {number}")
            count += 1
            if found:
                truth = self.truth(lambda x, args, kwargs: sample.output_process_fn_grad(self.op(x, *args, **kwargs)), self.pair(strided)[0])  # noqa: B023
                what = f"non-contiguous, sample {number}"
                compare(self.op, sample.output_process_fn_grad(found[1]), sample.output_process_fn_grad(found[0]), what, self.values, truth=truth)
        return count

    def errors(self):
        """Whatever the CPU refuses, tern refuses with an error of the same type."""
        op, count = self.op, 0
        if op.error_inputs_func is None or self.dtype != min(op.supported_dtypes("cpu"), key=lambda d: (d != torch.float32, str(d))):
            return 0
        for number, wrong in enumerate(op.error_inputs("cpu")):
            sample = wrong.sample_input
            if not is_dense(sample) or not has_tern(sample):
                continue
            theirs, ours = self.pair(sample)
            try:
                op(theirs[0], *theirs[1], **theirs[2])
                continue  # an error of other devices
            except Exception as error:
                expected = error
            count += 1
            try:
                op(ours[0], *ours[1], **ours[2])
                torch.tern.synchronize()
            except type(expected):
                continue
            except Exception as error:
                raise Wrong(f"wrong input {number}: {type(error).__name__} {str(error)[:150]}, not {type(expected).__name__} {str(expected)[:150]}") from None
            raise Wrong(f"wrong input {number}: accepted, but the CPU says {type(expected).__name__} {str(expected)[:150]}")
        return count

    def run(self, check):
        self.fallbacks.clear()
        try:
            count = getattr(self, check)()
        except Wrong as error:
            return {"verdict": "wrong", "detail": str(error), "fallbacks": sorted(self.fallbacks)}
        if not count:
            return None
        return {"verdict": "fallback" if self.fallbacks else "native", "fallbacks": sorted(self.fallbacks), "schemas": sorted(self.schemas)}


# ---- children ----


def child(op, dtypes, limit, skip, write):
    """One operator: a line of JSON before and after each check."""
    for dtype in dtypes:
        for check in CHECKS:
            if (short(dtype), check) in skip:
                continue
            os.write(write, (json.dumps({"begin": [short(dtype), check]}) + "\n").encode())
            try:
                verdict = Judge(op, dtype, limit).run(check)
            except Exception as error:
                verdict = {"verdict": "wrong", "detail": f"{type(error).__name__}: {str(error)[:300]}", "fallbacks": []}
            os.write(write, (json.dumps({"end": [short(dtype), check], "result": verdict}) + "\n").encode())


class Job:
    """A child at work on one operator; started again behind the check that killed it."""

    def __init__(self, op, dtypes, limit, timeout):
        self.op, self.dtypes, self.limit, self.timeout = op, dtypes, limit, timeout
        self.rows = {short(d): {} for d in dtypes}
        self.skip, self.current, self.text = set(), None, b""
        self.start()

    def start(self):
        read, write = os.pipe()
        pid = os.fork()
        if not pid:
            os.close(read)
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
            code = 1
            try:
                child(self.op, self.dtypes, self.limit, self.skip, write)
                code = 0
            finally:
                os._exit(code)
        os.close(write)
        self.pid, self.pipe, self.heard = pid, read, time.monotonic()

    def take(self):
        """Reads what came; True when the operator is done."""
        piece = os.read(self.pipe, 1 << 16)
        self.heard = time.monotonic()
        self.text += piece
        *lines, self.text = self.text.split(b"\n")
        for line in lines:
            message = json.loads(line)
            if "begin" in message:
                self.current = tuple(message["begin"])
                continue
            dtype, check = message["end"]
            self.skip.add((dtype, check))
            self.current = None
            if message["result"]:
                self.rows[dtype][check] = message["result"]
        if piece:
            return False
        os.close(self.pipe)
        _, status = os.waitpid(self.pid, 0)
        if not status:
            return True
        return self.died("crash", f"ended with {signal.Signals(status & 127).name if status & 127 else status >> 8}")

    def died(self, verdict, detail):
        if self.current is None:
            return True
        self.rows[self.current[0]][self.current[1]] = {"verdict": verdict, "detail": detail, "fallbacks": []}
        self.skip.add(self.current)
        self.current, self.text = None, b""
        self.start()
        return False

    def watch(self):
        if time.monotonic() - self.heard < self.timeout:
            return False
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.pipe)
        return self.died("hang", f"nothing for {self.timeout} s")


def sweep(ops, dtypes, limit=10, jobs=1, timeout=60, progress=None):
    """Rows {operator: {dtype: {check: result}}}. The device must not have been used in this process, which forks."""
    queue, running, table = list(ops), [], {}
    while queue or running:
        while queue and len(running) < jobs:
            op = queue.pop(0)
            wanted = sorted((d for d in op.supported_dtypes("cpu") if dtypes is None or d in dtypes), key=str)
            if wanted:
                running.append(Job(op, wanted, limit, timeout))
        ready, _, _ = select.select([job.pipe for job in running], [], [], 1.0)
        for job in list(running):
            if job.take() if job.pipe in ready else job.watch():
                running.remove(job)
                table[title(job.op)] = job.rows
                if progress:
                    progress(job, len(table), len(ops))
    return table


# ---- the report ----


def verdict_of(checks):
    return max((result["verdict"] for result in checks.values()), key=WORST.index, default=None)


def functional_schemas():
    """tern's own names, without in-place and out= forms."""
    names = set()
    for name in _C.native_names():
        base, _, overload = name.partition(".")
        packet = getattr(torch.ops.aten, base, None)
        schema = getattr(packet, overload or "default")._schema if packet is not None else None
        if schema and is_functional(schema):
            names.add(name)
    return names


def native_schemas(table):
    """Distinct functional operators of aten that were seen to run without a CPU kernel anywhere."""
    return {name for dtypes in table.values() for checks in dtypes.values() for result in checks.values() for name in result.get("schemas", [])}


def summary(table):
    rows = [(op, dtype, verdict_of(checks)) for op, dtypes in table.items() for dtype, checks in dtypes.items()]
    rows = [row for row in rows if row[2]]
    counts = collections.Counter(verdict for _, _, verdict in rows)
    reasons = collections.Counter()
    for dtypes in table.values():
        for checks in dtypes.values():
            reasons.update({name for result in checks.values() for name in result["fallbacks"]})
    return rows, counts, reasons


def markdown(table):
    rows, counts, reasons = summary(table)
    total = max(1, len(rows))
    right, native = counts["native"] + counts["fallback"], counts["native"]
    order = [d for d in ("bool", "u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64", "c32", "c64", "c128") if any(d in r for r in table.values())]
    marks = {"native": "native", "fallback": "CPU", "wrong": "**wrong**", "hang": "**hang**", "crash": "**crash**", None: ""}
    lines = [
        "# Operators",
        "",
        "Every entry of PyTorch's own operator database (`op_db`), on tern against PyTorch CPU, for every dtype the CPU has: forward, in place, gradients, `out=`,",
        "non-contiguous inputs and wrong inputs. Made by `make operators`; `build/operators.json` has each check and each difference.",
        "",
        f"- PyTorch {torch.__version__.split('+')[0]}: {len(table)} operators, {len(rows)} rows of operator and dtype.",
        f"- Right at all: {right} of {len(rows)} ({100 * right / total:.2f} %).",
        f"- Right natively, every check without PyTorch's CPU kernels: {native} of {len(rows)} ({100 * native / total:.1f} %).",
        f"- Distinct functional schemas of aten that ran natively here (seen below autograd, with the lists' own operators): {len(native_schemas(table) | foreach_schemas())}.",
        f"- Of them one row of `src/aten` each: {len(functional_schemas())}; the others are views, factories and compositions of these. Rows in all forms (in place, out=): {len(_C.native_names())}.",
        "",
        "`native`: every check ran on the device. `CPU`: at least one call was served by PyTorch's CPU kernel on the device's memory; counted in `torch.tern.fallbacks()`.",
        "",
        "| operator | " + " | ".join(order) + " |",
        "|---|" + "---|" * len(order),
    ]
    for op in sorted(table):
        lines.append(f"| {op} | " + " | ".join(marks[verdict_of(table[op].get(d, {}))] for d in order) + " |")
    wrong = [(op, dtype) for op, dtype, verdict in rows if verdict not in ("native", "fallback")]
    if wrong:
        lines += ["", "## Not right", "", "| operator | dtype | check | what |", "|---|---|---|---|"]
        for op, dtype in wrong:
            for check, result in table[op][dtype].items():
                if "detail" in result:
                    text = " ".join(result["detail"].split()).replace("|", "\\|")[:200]
                    lines.append(f"| {op} | {dtype} | {check} | {text} |")
    if reasons:
        lines += ["", "## What the CPU kernels served", "", "| schema | rows |", "|---|---|"]
        lines += [f"| {name.removeprefix('aten::')} | {count} |" for name, count in sorted(reasons.items(), key=lambda item: (-item[1], item[0]))]
    return "\n".join(lines) + "\n"


def operators(pattern="*", shard=(0, 1)):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    patterns = pattern.split(",")
    found = [op for op in op_db if any(fnmatch.fnmatch(title(op), p) or fnmatch.fnmatch(op.name, p) for p in patterns)]
    return found[shard[0] :: shard[1]]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dtypes", default="all", help="names of torch's dtypes, with commas; default all")
    parser.add_argument("--operators", default="*", help="patterns of names, with commas")
    parser.add_argument("--shard", default="0/1", help="I/N: every Nth operator from the Ith")
    parser.add_argument("--samples", type=int, default=10, help="at most so many per operator, dtype and check; 0: all")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--timeout", type=int, default=60, help="seconds for one check")
    parser.add_argument("--json", help="where the table goes; given tables are merged first")
    parser.add_argument("--merge", nargs="*", default=[], help="tables of other shards; with no operator to run where --operators is ''")
    parser.add_argument("--markdown")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    dtypes = None if options.dtypes == "all" else {getattr(torch, name) for name in options.dtypes.split(",")}
    shard = tuple(int(part) for part in options.shard.split("/"))
    table = {}
    for path in options.merge:
        with open(path) as file:
            for op, rows in json.load(file).items():
                table.setdefault(op, {}).update(rows)

    def progress(job, done, total):
        text = " ".join(f"{dtype}:{verdict_of(checks)}" for dtype, checks in job.rows.items())
        print(f"[{done}/{total}] {title(job.op)} {text}", flush=True)
        for dtype, checks in job.rows.items():
            for check, result in checks.items():
                if "detail" in result:
                    print(f"    {dtype} {check}: {result['verdict']}: {' '.join(result['detail'].split())[:400]}", flush=True)

    ops = operators(options.operators, shard) if options.operators else []
    for op, rows in sweep(ops, dtypes, options.samples, options.jobs, options.timeout, progress).items():
        table.setdefault(op, {}).update(rows)
    _, counts, reasons = summary(table)
    print(dict(counts), *(f"{count} {name}" for name, count in reasons.most_common(40)), sep="\n")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(table, file, indent=0)
    if options.markdown:
        with open(options.markdown, "w") as file:
            file.write(markdown(table))
    failed = any(
        result["verdict"] not in ("native", "fallback") and (op, check) not in KNOWN
        for op, dtypes in table.items()
        for checks in dtypes.values()
        for check, result in checks.items()
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
