"""torch.profiler with the device: each kernel that ran, the operators fused in it and the user's line, in the tables and in the Chrome trace."""
import json

import torch
from torch.profiler import ProfilerActivity, profile, record_function


def kernels(profiler, tmp_path):
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    return [event for event in events if event.get("cat") == "kernel"]


def test_the_device_is_an_activity():
    assert "TERN" in {activity.name for activity in torch.profiler.supported_activities()}


def test_fused_operators_are_one_kernel_with_their_names_and_line(tmp_path):
    x = torch.randn(64, 64, device="tern")
    torch.tern.synchronize()
    with profile() as profiler:
        y = (x * 2).relu() + 1
        assert y.sum().item() > 0
    rows = kernels(profiler, tmp_path)
    fused = next(row for row in rows if "relu" in row["args"]["operators"])
    assert int(fused["args"]["bytes"]) > 0 and "test_profiler.py" in fused["args"]["line"] and "test_profiler.py" in fused["name"]
    assert fused["dur"] > 0 and fused["name"].startswith("tern::row reduction(mul relu add")
    (table_row,) = [event for event in profiler.key_averages() if event.key == fused["name"]]
    assert table_row.device_time_total > 0 and table_row.count == 1
    assert fused["name"] in profiler.key_averages().table(sort_by="self_device_time_total", max_name_column_width=120)


def test_equal_kernels_of_many_steps_are_one_row(tmp_path):
    layer = torch.nn.Linear(32, 8).to("tern")
    optimizer = torch.optim.SGD(layer.parameters(), 0.1)
    x = torch.randn(16, 32, device="tern")
    with profile() as profiler:
        for _ in range(4):
            optimizer.zero_grad()
            layer(x).square().mean().backward()
            optimizer.step()
    products = [event for event in profiler.key_averages() if event.key.startswith("tern::dot_general(addmm)")]
    assert [event.count for event in products] == [4]


def test_kernels_lie_inside_the_profiled_time(tmp_path):
    x = torch.randn(300, 300, device="tern")
    torch.tern.synchronize()
    with profile() as profiler, record_function("my block"):
        (x @ x).sum().item()
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    block = next(event for event in events if event.get("name") == "my block" and event["ph"] == "X" and event["cat"] == "user_annotation")
    product = next(event for event in events if event.get("cat") == "kernel" and "mm" in event["args"]["operators"])
    slack = 1000  # microseconds: two clocks
    assert block["ts"] - slack <= product["ts"] and product["ts"] + product["dur"] <= block["ts"] + block["dur"] + slack


def test_without_the_device_there_are_no_device_events(tmp_path):
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        (torch.ones(3, device="tern") * 2).cpu()
    assert kernels(profiler, tmp_path) == []
    assert "aten::mul" in [event.key for event in profiler.key_averages()]


def test_a_schedule_and_both_devices(tmp_path):
    with profile(schedule=torch.profiler.schedule(wait=1, warmup=1, active=2)) as profiler:
        for step in range(4):
            with torch.tern.device(step % 2):
                (torch.full((4,), float(step), device="tern") * 3).sum().item()
            profiler.step()
    assert {row["pid"] for row in kernels(profiler, tmp_path)} == {0, 1}
    # The profile is over: nothing is watched any more.
    (torch.ones(3, device="tern") * 2).cpu()


def test_an_error_in_profiled_code_is_the_programs_own(tmp_path):
    table = torch.arange(3.0, device="tern")
    try:
        with profile() as profiler:
            table[torch.tensor([7], device="tern")].sum().item()
    except IndexError:
        pass
    assert isinstance(kernels(profiler, tmp_path), list)
    assert table.sum() == 3
