"""Where a program's time goes on the device: each kernel with the operators in it, the user's line, and how far it is from what the machine can do.

`tern profile script.py [arguments]` runs the script and writes a page; `with torch.tern.profile() as p:` does the same for a part of a program, then `p.rows()`, `p.table()`, `p.html()`.
A kernel's share of the limit is the time its arithmetic or its memory traffic would take at the machine's measured best (whichever is more), over the time it took. The engine
shows its kernels one by one; a PJRT plug-in shows whole programs, without arithmetic or traffic.
"""
import argparse
import collections
import dataclasses
import html
import json
import pathlib
import runpy
import sys
import time

import torch

from . import _C

# Below this many microseconds a kernel's fixed costs (handing out chunks, waking a thread) are what is seen.
_SMALL_US = 5.0


@dataclasses.dataclass
class Row:
    """All runs of one kernel: the same operators at the same line over the same sizes.

    kernel: the engine's name for it ("dot_general", "loop", "copy"); operators: PyTorch's, in order; line: "file:line (function)";
    count: runs; total_us, best_us: microseconds of all runs, and of the fastest; flops, bytes: of one run; bound: "compute", "memory" or "" where unknown;
    share: the fastest run's share of the limit, 0 to 1 (above 1: out of the caches); note: why it is not at the limit, as far as that can be said.
    """

    kernel: str
    operators: str
    line: str
    count: int
    total_us: float
    best_us: float
    flops: int
    bytes: int
    bound: str
    share: float
    note: str


class Profile:
    """Notes each kernel between entering and leaving. Not reentrant: there is one in a process."""

    def __enter__(self) -> "Profile":
        torch.tern.synchronize()
        self._compiled = _C.stats()["compiled"]
        self._compile_seconds = _C.stats()["compile_seconds"]
        _C.profile_start()
        self._start = time.perf_counter()
        return self

    def __exit__(self, *exception) -> None:
        try:
            torch.tern.synchronize()
        finally:
            self.seconds = time.perf_counter() - self._start
            _C.profile_stop()
            self.events, self.lost = _C.profile_events()
            self.programs_compiled = _C.stats()["compiled"] - self._compiled
            self.compile_seconds = _C.stats()["compile_seconds"] - self._compile_seconds
            self.peak_flops, self.peak_bytes = _C.device_limits()

    @property
    def kernel_seconds(self) -> float:
        return sum(e["end_ns"] - e["start_ns"] for e in self.events) * 1e-9

    def rows(self) -> list[Row]:
        """One for each kernel, those that took most time first."""
        groups = collections.defaultdict(list)
        for e in self.events:
            groups[e["kernel"], e["operators"], e["line"], e["flops"], e["bytes"]].append((e["end_ns"] - e["start_ns"]) * 1e-3)
        rows = []
        for (kernel, operators, line, flops, traffic), times in groups.items():
            bound, share = self._limit(flops, traffic, min(times))
            note = _note(kernel, bound, share, min(times))
            rows.append(Row(kernel, operators, line, len(times), sum(times), min(times), flops, traffic, bound, share, note))
        return sorted(rows, key=lambda row: -row.total_us)

    def _limit(self, flops: int, traffic: int, microseconds: float) -> tuple[str, float]:
        if not self.peak_flops or not self.peak_bytes or not (flops or traffic):
            return "", 0.0
        compute, memory = flops / self.peak_flops * 1e6, traffic / self.peak_bytes * 1e6
        return ("compute" if compute > memory else "memory"), max(compute, memory) / max(microseconds, 1e-3)

    def as_dict(self) -> dict:
        return {
            "device": torch.tern.get_device_name(),
            "seconds": self.seconds,
            "kernel_seconds": self.kernel_seconds,
            "compile_seconds": self.compile_seconds,
            "programs_compiled": self.programs_compiled,
            "peak_flops_per_second": self.peak_flops,
            "peak_bytes_per_second": self.peak_bytes,
            "events_lost": self.lost,
            "kernels": [dataclasses.asdict(row) for row in self.rows()],
        }

    def summary(self) -> str:
        busy = self.kernel_seconds / self.seconds if self.seconds else 0
        text = f"{self.seconds:.2f} s, of which kernels ran {busy:.0%}; {self.programs_compiled} programs made in {self.compile_seconds * 1e3:.0f} ms"
        if self.peak_flops:
            text += f"; this machine's limits: {self.peak_flops / 1e9:.0f} GFLOP/s, {self.peak_bytes / 1e9:.1f} GB/s"
        return text + (f"; {self.lost} more kernels were not noted" if self.lost else "")

    def table(self, most: int = 25):
        """A rich table of the `most` rows that took most time."""
        from rich.table import Table

        total = sum(row.total_us for row in self.rows()) or 1
        table = Table(title=self.summary(), title_justify="left")
        for name, justify in (("share of time", "right"), ("runs", "right"), ("best, us", "right"), ("of limit", "right"), ("kernel", "left"), ("operators", "left"), ("line", "left")):
            table.add_column(name, justify=justify, no_wrap=name in ("share of time", "of limit"))
        for row in self.rows()[:most]:
            limit = f"{row.share:.0%} {row.bound}" if row.bound else "-"
            table.add_row(f"{row.total_us / total:.1%}", str(row.count), f"{row.best_us:.1f}", limit, row.kernel, row.operators, row.line)
        return table

    def html(self) -> str:
        """The page, complete in itself."""
        return _page(self)


def _note(kernel: str, bound: str, share: float, best_us: float) -> str:
    if kernel == "program":
        return "a whole program: this backend does not show its kernels"
    if best_us < _SMALL_US:
        return "small: what starting a kernel costs is what is seen"
    if not bound:
        return ""
    if share > 1:
        return "operands came from the caches, faster than from memory"
    if share >= 0.8:
        return "at the limit"
    if kernel == "copy":
        return "moves data only: another layout, or a result that must be an array of its own"
    if bound == "memory" and kernel in ("loop", "row reduction", "column reduction"):
        return "more arithmetic an element than its traffic hides (functions count as one operation), or too little data for all threads"
    return "below the limit: sizes that do not fill the kernel's blocks, or a kernel that can be better"


# ---- the page ----
_COLOURS = ["#4878a8", "#e49444", "#6a9f58", "#d1615d", "#85b6b2", "#a87c9f", "#967662", "#e7ca60", "#9c9c9c"]


def _page(profile: Profile) -> str:
    rows = profile.rows()
    total = sum(row.total_us for row in rows) or 1
    kinds = collections.Counter()
    lines = collections.Counter()
    for row in rows:
        kinds[row.kernel] += row.total_us
        lines[row.line or "(no line)"] += row.total_us
    colour = {kind: _COLOURS[min(i, len(_COLOURS) - 1)] for i, (kind, _) in enumerate(kinds.most_common())}
    body = "".join(
        f"<tr><td class=n>{row.total_us / total:.1%}<div class=bar style='width:{120 * row.total_us / total:.1f}px;background:{colour[row.kernel]}'></div></td>"
        f"<td class=n>{row.count}</td><td class=n>{row.best_us:.1f}</td><td class=n>{_limit_cell(row)}</td><td>{html.escape(row.kernel)}</td>"
        f"<td>{html.escape(row.operators)}</td><td>{html.escape(row.line)}</td><td class=n>{row.flops / 1e6:.2f}</td><td class=n>{row.bytes / 1e6:.2f}</td><td>{row.note}</td></tr>"
        for row in rows
    )
    return f"""<!doctype html><meta charset=utf-8><title>tern profile</title>
<style>
body {{ font: 14px system-ui, sans-serif; margin: 2em; max-width: 1500px; color: #222 }}
table {{ border-collapse: collapse }} td, th {{ padding: 3px 10px; text-align: left; vertical-align: top; border-bottom: 1px solid #eee }}
.n {{ text-align: right; font-variant-numeric: tabular-nums }} .bar {{ height: 5px; margin-top: 2px }} .stack {{ display: flex; height: 28px; margin: .3em 0 }}
.stack div {{ overflow: hidden; white-space: nowrap; color: white; font-size: 11px; line-height: 28px; padding-left: 3px; box-sizing: border-box }}
h2 {{ margin-top: 1.6em }} .quiet {{ color: #777 }}
</style>
<h1>Where the time goes</h1><p>{html.escape(torch.tern.get_device_name())} &middot; {html.escape(profile.summary())}</p>
<h2>By kernel</h2>{_stack(kinds, total, colour)}
<h2>By line</h2>{_stack(lines, total, {})}
<h2>One run of the program that took most time</h2>{_timeline(profile, colour)}
<h2>Kernels</h2>
<p class=quiet>Of limit: the time that the arithmetic, or the memory traffic if each operand came from memory once, would take at this machine's measured best, over the time of the fastest run.</p>
<table><tr><th class=n>time</th><th class=n>runs</th><th class=n>best, us</th><th class=n>of limit</th><th>kernel</th><th>operators</th><th>line</th><th class=n>MFLOP</th><th class=n>MB</th><th>why</th></tr>
{body}</table>
"""


def _limit_cell(row: Row) -> str:
    if not row.bound:
        return "-"
    shade = "#2a7" if row.share >= 0.8 else "#c80" if row.share >= 0.4 else "#c33"
    return f"<span style='color:{shade}'>{row.share:.0%}</span> {row.bound}"


def _stack(parts: collections.Counter, total: float, colour: dict) -> str:
    cells = ""
    for i, (name, part) in enumerate(parts.most_common(12)):
        text = html.escape(name)
        shade = colour.get(name, _COLOURS[i % len(_COLOURS)])
        cells += f"<div style='width:{100 * part / total:.2f}%;background:{shade}' title='{text}: {part / 1e3:.2f} ms, {part / total:.1%}'>{text} {part / total:.0%}</div>"
    return f"<div class=stack>{cells}</div>"


def _timeline(profile: Profile, colour: dict) -> str:
    """The last run of the program with the most time, to scale, as SVG; what lies between the kernels is white."""
    time_of = collections.Counter()
    for e in profile.events:
        time_of[e["program"]] += e["end_ns"] - e["start_ns"]
    if not time_of:
        return "<p>Nothing ran on the device.</p>"
    events = [e for e in profile.events if e["program"] == time_of.most_common(1)[0][0]]
    # A run starts where the program's first kernel comes again.
    first = (events[0]["kernel"], events[0]["operators"], events[0]["flops"], events[0]["bytes"])
    starts = [i for i, e in enumerate(events) if (e["kernel"], e["operators"], e["flops"], e["bytes"]) == first]
    period = max((b - a for a, b in zip(starts, starts[1:])), default=len(events))
    run = events[-period:]
    begin, end = run[0]["start_ns"], run[-1]["end_ns"]
    scale = 1400 / max(end - begin, 1)
    bars = "".join(
        f"<rect x='{(e['start_ns'] - begin) * scale:.1f}' y='0' width='{max((e['end_ns'] - e['start_ns']) * scale, 0.3):.1f}' height='46' fill='{colour.get(e['kernel'], '#999')}'>"
        f"<title>{html.escape(e['kernel'])}: {html.escape(e['operators'])}\n{html.escape(e['line'])}\n{(e['end_ns'] - e['start_ns']) / 1e3:.1f} us</title></rect>"
        for e in run
    )
    return f"<svg width='1400' height='46' style='background:#f4f4f4'>{bars}</svg><p class=quiet>{len(run)} kernels in {(end - begin) / 1e6:.2f} ms; the pointer shows each.</p>"


# ---- the command ----
def arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Runs a script as `python` would and shows where its time on the device went, kernel by kernel, beside what the machine can do."
    parser.add_argument("--html", metavar="FILE", default="tern-profile.html", help="the page to write (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    parser.add_argument("--rows", type=int, default=25, help="rows of the table (default: %(default)s); the page and JSON have all")
    parser.add_argument("script", help="a PyTorch program; it takes torch.accelerator.current_accelerator() or 'tern' as its device")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the script's own arguments")


def run(options: argparse.Namespace) -> int:
    script = pathlib.Path(options.script)
    if not script.is_file():
        print(f"tern profile: there is no script {script}", file=sys.stderr)
        return 2
    before, path = sys.argv, sys.path[:]
    sys.argv = [str(script), *options.arguments]
    sys.path.insert(0, str(script.resolve().parent))
    status = 0
    profile = Profile()
    try:
        with profile:
            runpy.run_path(str(script), run_name="__main__")
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        sys.argv, sys.path[:] = before, path
    pathlib.Path(options.html).write_text(profile.html())
    if options.json:
        print(json.dumps(profile.as_dict(), indent=1))
    else:
        from rich.console import Console

        console = Console() if sys.stdout.isatty() else Console(width=160)
        console.print(profile.table(options.rows))
        console.print(f"the page: {options.html}")
    return status
