"""Memory figures, who holds what, the history and its snapshot, and torch.tern.stats()."""
import gc
import inspect
import os
import pickle

import pytest
import torch
from torch.cuda import _memory_viz

MIB = 1 << 20


@pytest.fixture(autouse=True)
def _nothing_left_over():
    gc.collect()  # an earlier test's tensors in a reference cycle would be freed in the midst of this one
    torch.tern.synchronize()
    yield
    torch.tern.memory.record_memory_history(None)


def this_line(offset=0):
    return inspect.currentframe().f_back.f_lineno + offset


# ---- figures ----
def test_allocated_follows_tensors_that_nobody_has_read():
    before = torch.tern.memory_allocated()
    x = torch.ones(MIB, device="tern")
    assert torch.tern.memory_allocated() - before == 4 * MIB
    y = x + 1
    assert torch.accelerator.memory_allocated() - before == 8 * MIB
    del x
    assert torch.tern.memory_allocated() - before == 4 * MIB
    del y
    assert torch.tern.memory_allocated() == before


def test_peak_reserved_and_cache():
    torch.tern.empty_cache()
    torch.tern.reset_peak_memory_stats()
    before = torch.tern.memory_allocated()
    assert torch.tern.max_memory_allocated() == before
    x = torch.ones(2 * MIB, device="tern")
    torch.tern.synchronize()
    del x
    assert torch.tern.max_memory_allocated() - before == torch.accelerator.max_memory_allocated() - before == 8 * MIB
    assert torch.tern.memory_reserved() - torch.tern.memory_allocated() >= 8 * MIB  # kept for reuse
    assert torch.tern.max_memory_reserved() >= torch.tern.max_memory_allocated()
    torch.tern.empty_cache()
    assert torch.tern.memory_reserved() - torch.tern.memory_allocated() < 8 * MIB
    torch.tern.reset_peak_memory_stats()
    assert torch.tern.max_memory_allocated() == before


def test_free_and_total():
    free, total = torch.tern.mem_get_info()
    x = torch.ones(MIB, device="tern")
    assert torch.tern.mem_get_info() == (free - 4 * MIB, total) == torch.accelerator.get_memory_info(0)
    assert x[0].item() == 1


def test_stats_have_cudas_keys_and_add_up():
    torch.tern.reset_accumulated_memory_stats()
    for _ in range(3):
        torch.ones(MIB, device="tern").sum(0, keepdim=True).expand(MIB).contiguous()[0].item()
    stats = torch.tern.memory_stats()
    assert stats == torch.accelerator.memory_stats(0)
    for family in ("allocation", "segment", "active", "allocated_bytes", "reserved_bytes", "active_bytes", "requested_bytes"):
        for pool in ("all", "large_pool"):
            current, peak, made, freed = (stats[f"{family}.{pool}.{part}"] for part in ("current", "peak", "allocated", "freed"))
            assert made - freed == current <= peak, family
    assert stats["allocated_bytes.all.allocated"] >= 12 * MIB
    assert {"inactive_split_bytes.all.peak", "num_ooms", "num_alloc_retries", "num_device_alloc", "oversize_segments.current"} <= set(stats)
    assert torch.tern.memory_stats_as_nested_dict()["allocated_bytes"]["all"]["peak"] == stats["allocated_bytes.all.peak"]
    ooms = stats["num_ooms"]
    with pytest.raises(torch.OutOfMemoryError):
        torch.tern.memory.memory_stats()  # figures are asked between the error and its end
        torch.empty(1 << 42, dtype=torch.uint8, device="tern")
    assert torch.tern.memory_stats()["num_ooms"] >= ooms


def test_devices_are_counted_apart():
    before = [torch.tern.memory_allocated(i) for i in range(2)]
    x = torch.ones(MIB, device="tern:1")
    assert [torch.tern.memory_allocated(f"tern:{i}") - before[i] for i in range(2)] == [0, 4 * MIB]
    assert x[0].item() == 1


# ---- who holds what ----
def test_live_tensors_and_summary():
    kept, line = [torch.full((3, MIB), float(i), device="tern") for i in range(4)], this_line()
    row = torch.tern.live_tensors()[0]
    assert (row["bytes"], row["count"], row["dtype"], row["shape"]) == (48 * MIB, 4, "f32", (3, MIB))
    assert f"test_memory.py:{line} " in row["line"]
    text = torch.tern.memory_summary()
    assert "Allocated memory" in text and f"48.00 MiB  f32[3, {MIB}] x 4" in text and f"test_memory.py:{line} " in text
    assert "live tensors" not in torch.tern.memory_summary(abbreviated=True)
    assert kept[3][0, 0].item() == 3


# ---- history ----
def a_little_work():
    x = torch.ones(MIB, device="tern")
    torch.tern.synchronize()
    y = x * 2
    torch.tern.synchronize()
    del x
    return y


def test_history_names_operations_and_lines():
    old = torch.ones(5, device="tern") + 1
    torch.tern.synchronize()
    torch.tern.memory.record_memory_history()
    y, start = a_little_work(), inspect.getsourcelines(a_little_work)[1]
    snapshot = torch.tern.memory.snapshot()
    trace = snapshot["device_traces"][0]
    made = [e for e in trace if e["action"] == "alloc" and e["size"] == 4 * MIB]
    assert [[f["name"] for f in e["frames"]] for e in made] == [["aten::fill_.Scalar", "a_little_work"], ["aten::mul.Tensor", "a_little_work"]]
    assert [e["frames"][1]["line"] for e in made] == [start + 1, start + 3]
    assert made[0]["frames"][1]["filename"] == __file__
    freed = [e["addr"] for e in trace if e["action"] == "free_completed"]
    assert made[0]["addr"] in freed and made[1]["addr"] not in freed
    # The segments are what is alive: y, under the address of its event, and what was made before the history began.
    alive = {s["address"]: s for s in snapshot["segments"] if s["device"] == 0}
    assert alive[made[1]["addr"]]["total_size"] == 4 * MIB and any(s["total_size"] == 20 for s in alive.values())
    torch.tern.memory.record_memory_history(None)
    assert len(y + 1) == MIB and len(torch.tern.memory.snapshot()["device_traces"][0]) == len(trace)
    assert old.sum().item() == 10


def test_history_is_bounded():
    torch.tern.memory.record_memory_history(max_entries=4)
    for _ in range(20):
        a_little_work()
    assert sum(e["action"] != "free_requested" for e in torch.tern.memory.snapshot()["device_traces"][0]) <= 4


def test_the_visualiser_takes_the_snapshot(tmp_path):
    torch.tern.memory._record_memory_history("all", stacks="python", max_entries=1000)
    kept = a_little_work()
    torch.tern.memory._dump_snapshot(tmp_path / "snapshot.pickle")
    snapshot = pickle.loads((tmp_path / "snapshot.pickle").read_bytes())
    assert "4.0MiB" in _memory_viz.trace(snapshot) and "del " in _memory_viz.trace(snapshot)
    assert "total_reserved" in _memory_viz.segsum(snapshot)
    graph = []
    _memory_viz.memory(snapshot, format_flamegraph=graph.append)
    _memory_viz.segments(snapshot, format_flamegraph=graph.append)
    assert len(graph) == 2 and "a_little_work" in graph[0]
    for page in (_memory_viz.trace_plot(snapshot), _memory_viz.segment_plot(snapshot), _memory_viz.trace_plot(snapshot, filter_freed=True)):
        assert "snapshot.pickle" in page
    assert kept[0].item() == 2


# ---- statistics ----
def test_stats_count_operations_programs_and_hits():
    x = torch.ones(4, device="tern")
    torch.tern.synchronize()
    torch.tern.reset_stats()
    for _ in range(3):
        (x * 2 + 1).sum().item()
    stats = torch.tern.stats()
    assert stats["operations"] == 9 and stats["programs"] == 3 and stats["compiled"] + stats["cache_hits"] == 3 and stats["cache_hits"] >= 2


@pytest.mark.fallback
def test_stats_list_fallbacks_by_operator_and_line():
    torch.tern.reset_stats()
    for _ in range(3):
        torch.linalg.lu_factor(torch.eye(3, device="tern"))
    line = this_line(-1)
    row = torch.tern.stats()["fallbacks_by_operator"][0]
    assert row["operator"] == "aten::linalg_lu_factor_ex.out" or row["operator"].startswith("aten::linalg_lu_factor_ex")
    assert f"test_memory.py:{line} " in row["line"] and row["count"] == 3
    assert torch.tern.fallbacks()[0] == tuple(row.values())
    torch.tern.reset_stats()
    assert torch.tern.stats()["fallbacks_by_operator"] == [] and torch.tern.stats()["fallbacks"] == 0


# ---- a part of the device's memory, and pinned host memory ----
def test_a_fraction_of_the_memory():
    _, total = torch.tern.mem_get_info()
    try:
        torch.tern.set_per_process_memory_fraction(64 * 2**20 / total)
        assert abs(torch.tern.get_per_process_memory_fraction() * total - 64 * 2**20) < 4096
        with pytest.raises(torch.OutOfMemoryError, match="may hold 64.00? MiB"):
            torch.empty(32 << 20, device="tern")
        kept = torch.ones(6 << 20, device="tern") + 1
        with pytest.raises(torch.OutOfMemoryError, match="the limit is 64.00? MiB .set for this process"):
            values, places = kept.sort()
            values[0].item()
        assert kept[0].item() == 2 and torch.tern.mem_get_info()[1] == total
    finally:
        torch.tern.set_per_process_memory_fraction(1.0)
    assert torch.ones(32 << 20, device="tern")[0].item() == 1
    for wrong in (0, -1, 1.5, float("nan")):
        with pytest.raises(ValueError, match="above 0 and at most 1"):
            torch.tern.set_per_process_memory_fraction(wrong)


def test_pinned_memory_has_figures():
    torch.tern.reset_peak_host_memory_stats()
    before = torch.tern.host_memory_stats()
    pinned = torch.ones(1000).pin_memory()
    during = torch.tern.host_memory_stats()
    assert during["active_bytes.current"] - before["active_bytes.current"] == 4000 and during["num_host_alloc"] == before["num_host_alloc"] + 1
    del pinned
    after = torch.tern.memory.host_memory_stats_as_nested_dict()
    assert after["active_bytes"]["current"] == before["active_bytes.current"] and after["active_bytes"]["peak"] == during["active_bytes.current"]
    torch.tern.reset_accumulated_host_memory_stats()
    assert torch.tern.host_memory_stats()["allocated_bytes.freed"] == 0
    assert torch.tern.memory_cached() == torch.tern.memory_reserved() and torch.tern.memory.get_allocator_backend() == "tern"
    assert f"{os.getpid()} uses" in torch.tern.list_gpu_processes()
