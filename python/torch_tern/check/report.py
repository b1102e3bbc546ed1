"""What `tern check` shows: a table, JSON, or a page of HTML with pictures."""
import html
import io
import json

_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def number(value: float | None, unit: str = "") -> str:
    """2.31 G"""
    if value is None:
        return "?"
    for scale, letter in _UNITS:
        if abs(value) >= scale:
            return f"{value / scale:.3g} {letter}{unit}"
    return f"{value:.3g} {unit}".strip()


def size(value: int | None) -> str:
    """Bytes in powers of 1024: 1.5 GiB."""
    if value is None:
        return "?"
    for power, letter in ((4, "Ti"), (3, "Gi"), (2, "Mi"), (1, "Ki")):
        if abs(value) >= 1024**power:
            return f"{value / 1024**power:.3g} {letter}B"
    return f"{value} B"


def seconds(value: float | None) -> str:
    if value is None:
        return "?"
    for scale, unit in ((1, "s"), (1e-3, "ms"), (1e-6, "us")):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value * 1e9:.3g} ns"


def _verdict(row: dict) -> str:
    if row["compiles"] is None and row["message"].startswith("the compiler did not end"):
        return "no answer"
    return {True: "yes", False: "no", None: "not compiled"}[row["compiles"]]


def _fits(row: dict) -> str:
    if row["fits"] is None:
        return "?"
    over = (row["peak_bytes"] or 0) - row["limit_bytes"]
    return "yes" if row["fits"] else f"no, {size(over)} over" if over > 0 else "no"


_BASIS = (("the compiler", "compiler"), ("roofline", "roofline"))
COLUMNS = ("target", "compiles", "fits", "peak", "memory", "arguments", "temporary", "flops", "flops/byte", "a step", "by", "compile")


def cells(row: dict) -> list[str]:
    intensity = row.get("arithmetic_intensity")
    basis = next((short for start, short in _BASIS if row["estimate_basis"].startswith(start)), "")
    name = row["target"] + (f" {row['sweep']}" if row.get("sweep") else "")
    return [
        name, _verdict(row), _fits(row), size(row["peak_bytes"]), size(row["limit_bytes"]), size(row["argument_bytes"]), size(row["temporary_bytes"]),
        number(row["flops"]), "?" if intensity is None else f"{intensity:.3g}", (">= " if basis == "roofline" else "") + seconds(row["seconds_estimate"]), basis,
        "" if row["compile_seconds"] is None else seconds(row["compile_seconds"]),
    ]  # fmt: skip


def facts(rows: list[dict], capture: dict) -> list[str]:
    """What is true of the program on any target, then what there is to say of single ones."""
    lines = [f"{' '.join(capture['arguments'])}: {capture['ended']}; {len(capture['step'])} programs a step, {len(capture['programs'])} distinct ones in all"]
    if capture["error"]:
        lines.append("the script: " + capture["error"].strip())
    if capture["fallbacks"]:
        lines.append("would fall back to the host: " + ", ".join(f"{name} ({count} times, {line or 'unknown line'})" for name, line, count in capture["fallbacks"][:12]))
    seen = set()
    for row in rows:
        for text in [row["message"], *row["notes"]]:
            if text and text not in seen:
                seen.add(text)
                first = text.strip().splitlines()
                lines.append(f"{row['target']}: " + " ".join(first[:6])[:700])
    shown = next((row for row in rows if row["fits"] is False), rows[0] if rows else None)
    if shown and shown["largest"]:
        lines.append("the largest tensors of a step:")
        for a in shown["largest"][:6]:
            dims = "x".join(map(str, a["dims"])) or "scalar"
            lines.append(f"  {size(a['bytes']):>9}  {a['dtype']}[{dims}]  {a['kind']}, {a['operation']}  {a['line']}")
    return lines


def table(rows: list[dict]) -> str:
    """With rich where it is installed, else in plain columns."""
    body = [cells(row) for row in rows]
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        widths = [max(len(line[i]) for line in [list(COLUMNS), *body]) for i in range(len(COLUMNS))]
        return "\n".join("  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths)).rstrip() for line in [list(COLUMNS), *body])
    shown = Table()
    for i, column in enumerate(COLUMNS):
        shown.add_column(column, justify="left" if i < 3 or column == "by" else "right", no_wrap=True)
    for row, line in zip(rows, body):
        style = "red" if row["compiles"] is False or row["fits"] is False else "yellow" if row["compiles"] is None else "green"
        shown.add_row(*line, style=style)
    text = io.StringIO()
    import sys

    Console(file=text, force_terminal=sys.stdout.isatty(), width=190).print(shown)
    return text.getvalue().rstrip()


def as_json(rows: list[dict]) -> str:
    return json.dumps(rows, indent=2)


def _picture(rows: list[dict]) -> str:
    """Memory against the chip's, and the step on each chip's roofline, as one inline SVG; "" without matplotlib."""
    try:
        import matplotlib

        matplotlib.use("svg")
        import matplotlib.pyplot as plt
    except ImportError:
        return ""
    from torch_tern.check import targets

    figure, (memory, roof) = plt.subplots(1, 2, figsize=(12, 0.5 * len(rows) + 2.5))
    names = [row["target"] + (f" {row['sweep']}" if row.get("sweep") else "") for row in rows]
    for place, row in enumerate(rows):
        share = (row["peak_bytes"] or 0) / row["limit_bytes"]
        memory.barh(place, min(share, 3), color="tab:red" if share > 1 else "tab:green" if row["compiles"] else "tab:olive")
        memory.text(min(share, 3) + 0.02, place, f"{size(row['peak_bytes'])} of {size(row['limit_bytes'])}", va="center", fontsize=8)
    memory.axvline(1, color="black", linewidth=1)
    memory.set_yticks(range(len(names)), names)
    memory.set_xlim(0, max(1.6, *(min((row["peak_bytes"] or 0) / row["limit_bytes"], 3) + 0.9 for row in rows)))
    memory.invert_yaxis()
    memory.set_title("peak memory / the device's memory")
    for row in rows:
        if not row.get("arithmetic_intensity"):
            continue
        chip = targets.parse(row["target"]).chip
        peak, bandwidth = chip.bf16_tflops / chip.devices, chip.bandwidth_gbps / chip.devices / 1e3
        ridge = peak / bandwidth
        line = roof.plot([0.1, ridge, 1e5], [0.1 * bandwidth, peak, peak], linewidth=1)[0]
        reached = row["flops"] / max(1, row["partitions"]) / row["seconds_estimate"] / 1e12 if row["seconds_estimate"] else 0
        roof.plot([row["arithmetic_intensity"]], [reached], "o", color=line.get_color(), label=row["target"] + (f" {row['sweep']}" if row.get("sweep") else ""))
    roof.set(xscale="log", yscale="log", xlabel="floating-point operations per byte", ylabel="10^12 operations a second", title="roofline (bf16 peak, one device)")
    roof.legend(fontsize=7)
    figure.tight_layout()
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    plt.close(figure)
    return text.getvalue()[text.getvalue().index("<svg") :]


def page(rows: list[dict], capture: dict) -> str:
    """A page that needs nothing else."""
    head = "".join(f"<th>{html.escape(column)}</th>" for column in COLUMNS)
    body = ""
    for row in rows:
        kind = "bad" if row["compiles"] is False or row["fits"] is False else "open" if row["compiles"] is None else "good"
        body += f'<tr class="{kind}">' + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells(row)) + "</tr>\n"
    notes = html.escape("\n".join(facts(rows, capture)))
    return (
        "<!doctype html><meta charset=utf-8><title>tern check</title><style>body{font:14px sans-serif;margin:2em}table{border-collapse:collapse}"
        "td,th{border:1px solid #bbb;padding:3px 8px;text-align:right}td:first-child{text-align:left}.bad{background:#fdd}.good{background:#dfd}.open{background:#ffd}"
        f"pre{{white-space:pre-wrap}}</style><h1>tern check {html.escape(' '.join(capture['arguments']))}</h1>\n"
        f"<table><tr>{head}</tr>\n{body}</table>\n{_picture(rows)}\n<pre>{notes}</pre>\n"
    )
