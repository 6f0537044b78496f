#!/usr/bin/env python3
"""Prints what tests/gpu.sh found (its summary.json) as the tables of docs/benchmarks/gpu.md.

    report.py SUMMARY.json                  the machine, the verdicts, benchmarks and peers
    report.py SUMMARY.json resnet50-b32     every layer of one benchmark, from profiles.json beside the summary
"""

from __future__ import annotations

import json
import pathlib
import sys

NAMES = {"resnet18": "ResNet-18", "resnet50": "ResNet-50"}


def table(titles: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def title(row: dict) -> str:
    tuned = ", autotuned" if row.get("autotuned") else ""
    return f"{NAMES.get(row['model'], row['model'])}, batch {row['batch']}{tuned}"


def number(value, digits: int, unit: str = "") -> str:
    return "" if value is None else f"{value:.{digits}f}{unit}"


def megabytes(value) -> str:
    return "" if value is None else f"{value / 1e6:.0f}"


def spread(s: dict, digits: int) -> str:
    return f"{s['median']:.{digits}f} [{s['min']:.{digits}f}, {s['max']:.{digits}f}]"


def machine(m: dict) -> str:
    parts = [("", "gpu"), ("driver ", "driver"), ("CUDA ", "cuda"), ("cuDNN ", "cudnn"), ("cuBLASLt ", "cublaslt"),
             ("pipit ", "pipit")]
    return f"{m['date']}: " + ", ".join(prefix + m[key] for prefix, key in parts if m.get(key))


def benchmarks(rows: list[dict]) -> str:
    cells = []
    for r in rows:
        if "problem" in r:
            cells.append([title(r), f"failed: {r['problem']}", "", "", "", "", ""])
            continue
        over = r["graph_ms"] / r["floor_ms"] if r.get("graph_ms") and r.get("floor_ms") else None
        cells.append([title(r), number(r["graph_ms"], 3), number(r.get("floor_ms"), 3), number(over, 1),
                      number(r["end_to_end_ms"], 2),
                      f"{megabytes(r['device_memory_bytes'])} / {megabytes(r['device_memory_peak_bytes'])}",
                      f"{number(r['first_answer_ms'], 0)} ({number(r.get('read_ms'), 0)})"])
    return table(["fp16", "graph ms", "floor ms", "× floor", "with copies ms", "memory now / at worst, MB",
                  "first answer ms (of it making the model)"], cells)


def kernels(rows: list[dict]) -> str:
    """Which kernels ran, for how long, and how far each is from its floor, per model."""
    cells = []
    for r in rows:
        for name, k in sorted(r.get("kernels", {}).items(), key=lambda item: -item[1]["ms"]):
            over = k["ms"] / k["floor_ms"] if k["floor_ms"] else None
            cells.append([title(r), name, str(k["layers"]), number(k["ms"], 3), number(k["floor_ms"], 3), number(over, 1)])
    return table(["fp16", "layer, kernel", "layers", "ms", "floor ms", "× floor"], cells)


def int8(rows: list[dict]) -> str:
    cells = []
    for r in rows:
        if "problem" in r:
            cells.append([title(r), f"failed: {r['problem']}", "", "", "", ""])
            continue
        memory = " / ".join(megabytes(r[p]["device_memory_peak_bytes"]) for p in ("fp16", "int8"))
        cells.append([title(r), number(r["fp16"]["graph_ms"], 3), number(r["int8"]["graph_ms"], 3),
                      number(r["ratio"], 2), memory, str(len(r["slower"]))])
    return table(["INT8", "fp16 ms", "INT8 ms", "fp16 / INT8", "memory at worst, MB: fp16 / INT8", "layers slower in INT8"],
                 cells)


def peers(result: dict) -> str:
    engines = list(dict.fromkeys(engine for row in result["results"] for engine in row["peers"]))
    titles = ["fp16", "pipit ms"] + [f"{e} {what}" for e in engines for what in ("ms", "/ pipit")]
    titles += ["memory at worst, MB: " + " / ".join(["pipit", *engines])]
    cells = []
    for row in result["results"]:
        cell = [title(row), spread(row["pipit_ms"], 3)]
        for engine in engines:
            peer = row["peers"].get(engine)
            cell += [spread(peer["ms"], 3), spread(peer["ratio"], 2)] if peer else ["", ""]
        memory = [row["pipit_memory_peak_bytes"]]
        memory += [row["peers"].get(engine, {}).get("memory_peak_bytes") for engine in engines]
        cells.append(cell + [" / ".join(megabytes(m) or "–" for m in memory)])
    return table(titles, cells)


def verdicts(s: dict) -> list[str]:
    lines = []
    if t := s.get("tests"):
        lines.append(f"GPU tests: {t['passed']} passed, {len(t['failed'])} failed, {len(t['skipped'])} skipped "
                     f"(seed {t['seed']})" + (f"; {t['problem']}" if t["problem"] else "") + ".")
    if t := s.get("models"):
        skipped = f" Skipped: {'; '.join(t['skipped'])}." if t["skipped"] else ""
        lines.append(f"Whole models against the CPU: {t['passed']} passed, {len(t['failed'])} failed.{skipped}")
    for r in s.get("sanitizer", []):
        lines.append(f"compute-sanitizer {r['tool']}, {r['subject']}: {r['status']}"
                     + (f" ({r['problem']})" if r["problem"] else "") + ".")
    return lines


def report(s: dict) -> str:
    options = f"`pipit profile` with {s['profile_options']}." if s.get("profile_options") else ""
    parts = [machine(s["machine"]), options, "\n".join(f"- {line}" for line in verdicts(s))]
    if rows := s.get("benchmarks"):
        first = next((r["ceilings"] for r in rows if r.get("ceilings")), None)
        if first:
            parts.append("The card's ceilings, measured in the same run: " + ", ".join(
                [f"{a['products']} {a['gflops']['best'] / 1e3:.0f} TFLOP/s" for a in first["arithmetic"]]
                + [f"{m['name']} {m['read_gb_per_s']['best'] / 1e3:.2f} TB/s (read)" for m in first["memory"]]) + ".")
        parts += [benchmarks(rows), kernels(rows)]
    if rows := s.get("int8"):
        parts.append(int8(rows))
    if p := s.get("peers"):
        if p["results"]:
            parts += [f"PyTorch {p['torch']}, cuDNN {p['cudnn']}, in the same run: median over rounds [range].", peers(p)]
        if p.get("left_out"):
            parts.append(f"No time was left for {', '.join(p['left_out'])}.")
        if p["skipped"] or p["problem"]:
            parts.append(f"Peers: {p['skipped'] or p['problem']}.")
    return "\n\n".join(part for part in parts if part)


def layers(profile: dict) -> str:
    """Which kernel ran each layer, and how far it is from its floor."""
    rows = []
    for layer in profile["layers"]:
        shapes = ["x".join(map(str, layer[key])) for key in ("input", "output")]
        rows.append([str(layer["index"]), layer["name"], f"{layer['type']} {layer['geometry']}".strip(), *shapes,
                     layer["kernel"], number(1e3 * layer["median_ms"], 1), number(layer.get("floor_us"), 1),
                     number(layer.get("x_floor"), 1)])
    return table(["#", "layer", "what", "input", "output", "kernel", "us", "floor us", "× floor"], rows)


def main(arguments: list[str]) -> int:
    if len(arguments) not in (1, 2) or arguments[0].startswith("-"):
        print(__doc__.strip(), file=sys.stderr)
        return 2
    path = pathlib.Path(arguments[0])
    try:
        if len(arguments) == 1:
            print(report(json.loads(path.read_text())))
            return 0
        path = path.with_name("profiles.json")
        profiles = json.loads(path.read_text())
        if arguments[1] not in profiles:
            print(f"report.py: {path} has no {arguments[1]}; it has {', '.join(profiles) or 'none'}", file=sys.stderr)
            return 2
        print(layers(profiles[arguments[1]]))
    except (OSError, json.JSONDecodeError, KeyError, TypeError) as e:
        print(f"report.py: {path} was not written by tests/gpu.sh: {e!r}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
