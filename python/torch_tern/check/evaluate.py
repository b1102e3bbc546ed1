"""From captured programs and a target to one row of the report."""
import pathlib
import re

from torch_tern.check import ahead, estimate, sharding
from torch_tern.check.targets import Target

_SCALE = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def _needed(message: str) -> int | None:
    """Bytes that the compiler says it would have needed, out of its message that there are not enough."""
    for pattern in (r"[Uu]sed ([\d.]+)([KMGT]?)i?B? of", r"total memory required[^(]*\(([^)]*)\)", r"allocat\w+ ([\d.]+)([KMGT]?)i?B"):
        found = re.search(pattern, message)
        if found:
            number = re.match(r"([\d.]+)([KMGT]?)", "".join(group or "" for group in found.groups()))
            if number:
                return int(float(number[1]) * _SCALE[number[2]])
    return None


def least_bytes(program: dict) -> int:
    """What a program holds at least, whatever a compiler does: its arguments, and those results that take no argument's storage over."""
    return sum(a["bytes"] for a in program["parameters"]) + sum(r["bytes"] for r in program["results"] if not r["replaced"])


def largest_tensors(program: dict, most: int = 8) -> list[dict]:
    arrays = [{**a, "kind": "argument"} for a in program["parameters"]] + [{**a, "kind": "intermediate"} for a in program["intermediates"]]
    arrays.sort(key=lambda a: -a["bytes"])
    return [{key: a[key] for key in ("bytes", "dtype", "dims", "kind", "operation", "line")} for a in arrays[:most]]


def _others(program: dict) -> int:
    """Bytes on the device beside the program's own arguments when it was launched."""
    return max(0, program["bytes_in_use"] - sum(a["bytes"] for a in program["parameters"]))


def _peak(report: dict) -> int:
    if report["peak_bytes"] > 0:
        return report["peak_bytes"]
    return report["argument_bytes"] + report["output_bytes"] - max(0, report["alias_bytes"]) + report["temporary_bytes"]


def _count(row: dict, target: Target, step: list[dict], reports: dict[int, dict], devices: int, gradient_bytes: int) -> None:
    """Flops, bytes and seconds of a step: the sum over its launches."""
    flops = traffic = seconds = compute = memory = 0.0
    compilers_flops, compilers_bytes, compilers_seconds = True, True, bool(reports)
    for program in step:
        report = reports.get(program["number"], {})
        own = sum(program["contraction_flops"].values()) + program["elementwise_flops"]
        told_flops, told_bytes, told_seconds = (report.get(key, -1) for key in ("flops", "bytes_accessed", "optimal_seconds"))
        compilers_flops &= told_flops > 0
        compilers_bytes &= told_bytes > 0
        compilers_seconds &= told_seconds > 0
        flops += told_flops * devices if told_flops > 0 else own
        bytes = told_bytes if told_bytes > 0 else program["traffic_bytes"] / devices
        traffic += bytes * devices
        # The arithmetic is bounded by matrices, whose dtypes only tern knows; the rest of it by memory.
        share = {dtype: n / devices for dtype, n in program["contraction_flops"].items()}
        one, two = estimate.roofline(target.chip, share, bytes)
        compute, memory, seconds = compute + one, memory + two, seconds + max(0.0, told_seconds)
    bound = max(compute, memory)
    exchange = estimate.all_reduce_seconds(target.chip, target.chips, gradient_bytes) if devices > 1 else 0.0
    row["flops"], row["bytes_accessed"] = flops, traffic
    row["arithmetic_intensity"] = flops / traffic if traffic else None
    row["bound"] = "arithmetic" if compute > memory else "memory"
    if compilers_seconds and seconds >= bound / 4:
        row["seconds_estimate"], row["estimate_basis"] = seconds, "the compiler's estimate"
    else:
        counts = "the compiler's bytes" if compilers_bytes else "tern's count of bytes"
        row["seconds_estimate"], row["estimate_basis"] = bound, f"roofline: at least, from {counts} and the chip's peaks"
    if devices > 1:
        row["exchange_seconds"] = exchange
        if exchange is None:
            row["notes"].append("the time that gradients travel between chips is not counted: the link's speed is not known")
        else:
            row["seconds_estimate"] += exchange
            row["estimate_basis"] += " + a ring of the gradients' bytes"
    row["seconds_range"] = [row["seconds_estimate"], row["seconds_estimate"] / estimate.REACHED]
    row["flops_basis"] = "compiler" if compilers_flops else "tern"


def check(target: Target, capture: dict, folder: pathlib.Path, compile_seconds: float, batch: int | None = None) -> dict:
    """One row: what the target's compiler says of the step's programs, against the chip's memory and peaks.

    `capture` and `folder` are what script.py wrote. Never raises for what a compiler does: that is in the row's message."""
    programs = {program["number"]: program for program in capture["programs"]}
    step = [programs[number] for number in capture["step"]]
    distinct = list(dict.fromkeys(capture["step"]))
    row = {
        "target": target.name, "chip": target.chip.name, "chips": target.chips, "compiles": None, "fits": None, "peak_bytes": None,
        "limit_bytes": target.memory_limit, "argument_bytes": None, "output_bytes": None, "temporary_bytes": None, "other_bytes": 0, "flops": None,
        "seconds_estimate": None, "estimate_basis": "", "message": "", "compile_seconds": None, "programs_in_step": len(step), "distinct_in_step": len(distinct),
        "distinct_programs": len(programs), "fallbacks": [{"operator": n, "line": line, "count": c} for n, line, c in capture["fallbacks"]], "largest": [],
        "compiler": "", "notes": [], "partitions": 1,
    }  # fmt: skip
    if not step:
        row["message"] = capture["error"] or "the script recorded no program on the device: does it use torch.accelerator.current_accelerator()?"
        return row
    biggest = max((programs[n] for n in distinct), key=lambda p: least_bytes(p) + sum(a["bytes"] for a in p["intermediates"][:2]))
    row["largest"] = largest_tensors(biggest)
    refused = [p for p in step if not p["file"]]
    if refused:
        row.update(compiles=False, message=refused[0]["refusal"])
        _count(row, target, step, {}, 1, 0)
        return row

    partitions, files = target.chips * target.chip.devices if target.chips > 1 else 1, {n: folder / programs[n]["file"] for n in distinct}
    if partitions > 1:
        files, notes = sharding.data_parallel(programs, files, partitions, batch, folder)
        row["notes"] += notes
    row["partitions"] = partitions
    reports: dict[int, dict] = {}
    heaviest = max(distinct, key=lambda n: least_bytes(programs[n]) + _others(programs[n]))
    least = (least_bytes(programs[heaviest]) + _others(programs[heaviest])) // partitions
    if least > 1.1 * target.memory_limit:  # the table rounds
        # A compiler would take its time to say the same.
        row.update(fits=False, peak_bytes=least, message=f"not compiled: what a step is given and what it returns take {least} bytes, and the device has {target.memory_limit}")
        row["largest"] = largest_tensors(programs[heaviest])
    elif target.plugin:
        result = ahead.compile_ahead(target, list(files.values()), partitions, compile_seconds)
        row["compiler"] = " ".join(result.get("platform", "").split())[:120]
        if result.get("memory_limit"):
            row["limit_bytes"] = result["memory_limit"]
        if "error" in result:
            row.update(compiles=None if result.get("unanswered") else False, message=result["error"])
        else:
            reports = dict(zip(files, result["programs"]))
    else:
        row["message"] = f"not compiled: {target.missing}"
    failed = {n: r for n, r in reports.items() if r["error"]}
    good = {n: r for n, r in reports.items() if not r["error"]}
    if reports:
        row["compiles"] = not failed
        row["compile_seconds"] = sum(r["compile_seconds"] for r in reports.values())
    for number, report in good.items():
        peak = _peak(report) + _others(programs[number]) // partitions
        if row["peak_bytes"] is None or peak > row["peak_bytes"]:
            row.update(peak_bytes=peak, argument_bytes=report["argument_bytes"], output_bytes=report["output_bytes"], temporary_bytes=report["temporary_bytes"])
            row["other_bytes"] = _others(programs[number]) // partitions
    for number, report in failed.items():
        row["message"] = report["error"]
        if report["code"] == "OUT_OF_MEMORY":
            row["fits"] = False
            needed = _needed(report["error"]) or least_bytes(programs[number]) // partitions
            row["peak_bytes"] = max(row["peak_bytes"] or 0, needed, least_bytes(programs[number]) // partitions)
        row["largest"] = largest_tensors(programs[number])
    if not reports:
        row["peak_bytes"] = max(least_bytes(programs[n]) + _others(programs[n]) for n in distinct) // partitions
        row["notes"].append("memory: arguments and results alone, at least")
    if row["fits"] is None and row["peak_bytes"] is not None and (good or row["peak_bytes"] > row["limit_bytes"]):
        row["fits"] = row["peak_bytes"] <= row["limit_bytes"]
    if row["fits"] is False and not row["message"]:
        row["message"] = f"needs {row['peak_bytes'] - row['limit_bytes']} bytes more than the chip has"
    if capture["error"]:
        row["notes"].append("the script ended with an error: " + capture["error"].strip().splitlines()[-1])
    if not capture["repeats"] and capture["steps"]:
        row["notes"].append("steps do not repeat: a static-shape compiler would compile again and again")
    if capture["placeholders_read"]:
        row["notes"].append(f"{capture['placeholders_read']} values that the script read were zeros (nothing is computed with --no-values)")
    _count(row, target, step, good, partitions, capture.get("gradient_bytes", 0))
    return row
