#!/usr/bin/env python3
"""Runs the parts of tests/gpu.sh with finished binaries and writes what they found; see there.

Standard library only. Every command has a time limit, and in --quick all of them together have one.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import datetime
import itertools
import json
import os
import pathlib
import platform
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time

import cases as cases_part
import int8 as int8_part

HERE = pathlib.Path(__file__).resolve().parent
PARTS = ("tests", "models", "cases", "benchmarks", "int8", "peers", "sanitizer")
BENCHMARKS = [("resnet18", 1), ("resnet18", 32), ("resnet50", 1), ("resnet50", 32), ("resnet50", 128)]
OWN = "SmallShapes.*:ConvImplicitGemm.EveryKernelOnASmallProduct"
LIBRARIES = "SmallShapesOfLibraries.*"
MODEL_RUN = "pipit profile resnet20-cifar10 --device cuda --precision fp16 --runs 1 --warmup 1 --quiet --json".split()
# Tool, what it looks at, the command: kernels alone, and a whole model with its captured graph. Races and reads of
# unwritten memory are looked for in our own kernels only; the tests of kernels write all their memory first.
SANITIZER = [
    ("memcheck", "kernels", ["test_cuda", f"--gtest_filter={OWN}:{LIBRARIES}"]),
    ("racecheck", "kernels", ["test_cuda", f"--gtest_filter={OWN}"]),
    ("memcheck", "model", MODEL_RUN),
    ("initcheck", "model", [*MODEL_RUN, "--kernel", "simple_gemm"]),
    ("racecheck", "model", [*MODEL_RUN, "--kernel", "simple_gemm"]),
]
LIMITS = {  # seconds of one command
    False: {"tests": 900, "models": 300, "cases": 300, "benchmarks": 120, "int8": 120, "peers": 900, "sanitizer": 600, "all": 7200},
    True: {"tests": 120, "models": 90, "cases": 60, "benchmarks": 40, "int8": 40, "peers": 80, "sanitizer": 75, "all": 360},
}
PROCESSES = max(1, min(4, (os.cpu_count() or 1) // 2))  # of test_cuda at once: it waits for the CPU's references


class Run:
    """The commands of one run: their environment, their log, the time that is left."""

    def __init__(self, build: pathlib.Path, out: pathlib.Path, quick: bool, profile_options: list[str]):
        self.build, self.out, self.quick, self.limits, self.profile_options = build, out, quick, LIMITS[quick], profile_options
        self.end = time.monotonic() + self.limits["all"]
        self.binaries = {name: find(build, name) for name in ("pipit", "test_cuda")}
        self.environment = dict(os.environ)
        libraries = [str(folder) for folder in (build, build / "lib") if any(folder.glob("*.so*"))]
        before = [self.environment["LD_LIBRARY_PATH"]] if self.environment.get("LD_LIBRARY_PATH") else []
        if libraries:
            self.environment["LD_LIBRARY_PATH"] = ":".join(libraries + before)
        self.environment["PIPIT"] = str(self.binaries["pipit"])
        self.log = (out / "log.txt").open("w", encoding="utf-8", errors="replace")

    def __call__(self, part: str, *command, **variables) -> dict:
        """Runs one command within the part's limit, with these environment variables besides;
        {"code": None where it did not finish, "text", "seconds"}."""
        command = [str(self.binaries.get(word, word)) for word in map(str, command)]
        limit = min(self.limits[part], self.end - time.monotonic())
        if limit < 3:
            return {"code": None, "text": "", "seconds": 0.0, "problem": "not started: the time for all parts is used up"}
        begin = time.monotonic()
        # A session of its own, so that what a command started ends with it.
        environment = {**self.environment, **{name: str(value) for name, value in variables.items()}}
        process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, start_new_session=True)
        problem = ""
        try:
            text = process.communicate(timeout=limit)[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            text = process.communicate()[0]
            problem = f"stopped after {limit:.0f} s"
        text = text.decode("utf-8", "replace")
        seconds = time.monotonic() - begin
        code = None if problem else process.returncode
        self.log.write(f"$ {' '.join(command)}\n{text}\n[{problem or f'exit {code}'}, {seconds:.1f} s]\n\n")
        self.log.flush()
        print(f"gpu.sh: {part}: {' '.join(pathlib.Path(word).name if '/' in word else word for word in command)[:90]}: "
              f"{problem or f'exit {code}'}, {seconds:.1f} s", file=sys.stderr, flush=True)
        if code:
            problem = next((line for line in reversed(text.splitlines()) if line.strip()), "") or f"exit {code}"
        return {"code": code, "text": text, "seconds": round(seconds, 1), "problem": problem}


def find(build: pathlib.Path, name: str) -> pathlib.Path:
    for path in (build / name, build / "apps" / name, build / "tests" / name, build / "bin" / name):
        if path.is_file() and os.access(path, os.X_OK):
            return path.resolve()
    sys.exit(f"gpu.sh: there is no program {name} in {build}")


def json_of(text: str):
    """The JSON document in a command's output (notes may stand before it), or None."""
    start = text.find("{")
    try:
        return json.loads(text[start:]) if start >= 0 else None
    except json.JSONDecodeError:
        return None


def machine(run: Run) -> dict:
    """The card, its driver and the libraries that pipit finds."""
    fields = ("name", "driver_version", "memory.total", "clocks.max.sm")
    found = {"date": datetime.date.today().isoformat(), "cpu": platform.processor() or platform.machine()}
    try:
        line = subprocess.run(["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader"],
                              capture_output=True, text=True, timeout=30, check=True).stdout.splitlines()[0]
        found.update(zip(("gpu", "driver", "memory", "max_clock"), (word.strip() for word in line.split(","))))
    except (OSError, subprocess.SubprocessError, IndexError) as e:
        found["gpu"] = f"unknown ({e})"
    version = run("benchmarks", "pipit", "--version")["text"]
    for key, pattern in (("pipit", r"^pipit (\S+)"), ("cuda", r"toolkit ([\d.]+)"), ("cublaslt", r"^cublaslt +(.+)"),
                         ("cudnn", r"^cudnn +(.+)")):
        if match := re.search(pattern, version, re.M):
            found[key] = match[1]
    if "cublaslt" not in found:  # pipit names its libraries where there is a GPU to use them
        cuda = re.search(r"^cuda +(.+)", version, re.M)
        found["problem"] = cuda[1] if cuda else "pipit --version failed"
    return found


def tests(run: Run) -> dict:
    """The GPU test suite. Reads the text, which survives a crash, unlike the report that is written at the end."""
    if run.environment.get("PIPIT_TEST_SEED") == "random":
        run.environment["PIPIT_TEST_SEED"] = str(random.randrange(1, 1 << 31))  # the same for all
    with concurrent.futures.ThreadPoolExecutor(PROCESSES) as pool:
        parts = list(pool.map(lambda part: run("tests", "test_cuda", "--gtest_color=no", GTEST_TOTAL_SHARDS=PROCESSES,
                                               GTEST_SHARD_INDEX=part), range(PROCESSES)))
    text = "\n".join(part["text"] for part in parts)
    ran = dict(re.findall(r"^\[ +(?:RUN) +\] (\S+)()", text, re.M))
    for verdict, name in re.findall(r"^\[ +(OK|FAILED|SKIPPED) +\] (\w[\w/.]*)[^\n]* \(\d+ ms\)$", text, re.M):
        ran[name] = verdict
    names = {v: sorted(n for n, got in ran.items() if got == v) for v in ("OK", "FAILED", "SKIPPED", "")}
    problem = next((part["problem"] for part in parts if part["code"] != 0), "")
    if not problem and not names["OK"]:
        problem = "no test ran"
    seed = re.search(r"PIPIT_TEST_SEED=(\d+)", text)
    return {"passed": len(names["OK"]), "failed": names["FAILED"], "skipped": names["SKIPPED"],
            "unfinished": names[""], "seconds": max(part["seconds"] for part in parts), "problem": problem,
            "seed": int(seed[1]) if seed else None}


def models(run: Run) -> dict:
    """Whole models on the GPU against the CPU, through the command (tests/apps/test_gpu_models.py)."""
    done = run("models", sys.executable, HERE.parent / "apps" / "test_gpu_models.py", "-v")
    skipped = sorted(set(re.findall(r"^SKIP: (.*)$", done["text"], re.M)))
    verdicts = re.findall(r"^(test_\w+).*\.\.\. (ok|FAIL|ERROR|skipped)", done["text"], re.M)
    failed = sorted({name for name, verdict in verdicts if verdict in ("FAIL", "ERROR")})
    problem = "" if done["code"] in (0, 77) else done["problem"]
    return {"passed": sum(verdict == "ok" for _, verdict in verdicts), "failed": failed, "skipped": skipped,
            "seconds": done["seconds"], "problem": problem}


def cases(run: Run) -> dict:
    return cases_part.cases(run, json_of, PROCESSES)


def sanitizer(run: Run) -> list[dict]:
    cuda = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    tool_path = next(filter(None, map(shutil.which, (
        "compute-sanitizer", f"{cuda}/bin/compute-sanitizer", f"{cuda}/compute-sanitizer/compute-sanitizer"))), None)
    results = []
    for tool, subject, command in SANITIZER:
        result = {"tool": tool, "subject": subject, "status": "skipped", "errors": None, "problem": ""}
        results.append(result)
        if tool_path is None:
            result["problem"] = "compute-sanitizer was not found"
            continue
        done = run("sanitizer", tool_path, "--tool", tool, "--error-exitcode", "86", *command)
        summary = re.search(r"^=+ (?:ERROR|RACECHECK) SUMMARY: (\d+)", done["text"], re.M)
        result["errors"] = int(summary[1]) if summary else None
        result["seconds"] = done["seconds"]
        ran = subject == "model" or re.search(r"^\[  PASSED  \] [1-9]", done["text"], re.M)
        if done["code"] == 0 and summary and result["errors"] == 0 and ran:
            result["status"] = "clean"
        elif done["code"] is None and not done["seconds"]:
            result["problem"] = done["problem"]
        elif re.search(r"[Dd]evice not supported", done["text"]):
            result["problem"] = "compute-sanitizer does not support the device"
        else:
            result["status"] = "failed"
            result["problem"] = done["problem"] or (
                f"{summary[0].strip('= ')}" if summary else "no summary") + ("" if ran else "; no test passed")
    return results


def benchmarks(run: Run) -> tuple[list[dict], dict]:
    """Every model and batch with the kernels chosen by rule and, unless --quick, by measurement as well."""
    rows, profiles = [], {}
    run("benchmarks", "pipit", "ceilings", "--device", "cuda", "--quiet")  # kept for all that follow
    help_text = run("benchmarks", "pipit", "profile", "--help")["text"]
    cache = ["--tuning-cache", run.out / "tuning.json"] if "--tuning-cache" in help_text else []
    for (model, batch), tuned in itertools.product(BENCHMARKS, (False,) if run.quick else (False, True)):
        tuning = ["--autotune", *cache] if tuned else []
        done = run("benchmarks", "pipit", "profile", model, *"--device cuda --precision fp16 --json --quiet".split(),
                   "--runs", 50, "--warmup", 10, "--batch", batch, "--floor", *tuning, *run.profile_options)
        document = json_of(done["text"]) if done["code"] == 0 else None
        row = {"model": model, "batch": batch, "precision": "fp16", "autotuned": tuned}
        rows.append(row)
        if document is None:
            row["problem"] = done["problem"] or "the output is no JSON"
            continue
        profiles[f"{model}-b{batch}{'-autotuned' if tuned else ''}"] = document
        for key in ("graph_ms", "layers_ms", "end_to_end_ms", "read_ms", "load_ms", "first_run_ms",
                    "first_answer_ms", "device_memory_bytes",
                    "device_memory_peak_bytes", "floor_ms", "ceilings"):
            row[key] = document.get(key)
        kernels: dict = {}
        for layer in document["layers"]:
            entry = kernels.setdefault(f"{layer['type']} {layer['kernel']}", {"layers": 0, "ms": 0.0, "floor_ms": 0.0})
            entry["layers"] += 1
            entry["ms"] += layer["median_ms"]
            entry["floor_ms"] += layer.get("floor_us", 0) / 1e3
        row["kernels"] = kernels
    return rows, profiles


def int8(run: Run) -> tuple[list[dict], dict]:
    return int8_part.int8(run, json_of)


def peers(run: Run) -> dict:
    python = os.environ.get("PIPIT_PYTHON", sys.executable)
    path = run.out / "peers.json"
    path.unlink(missing_ok=True)
    done = run("peers", python, HERE.parent / "peers" / "gpu.py", run.binaries["pipit"], "--json", path,
               f"--profile-options={shlex.join(run.profile_options)}",
               *(["--rounds", "3", "--seconds", 0.7 * run.limits["peers"]] if run.quick else ["--rounds", "7", "--compile"]))
    result = {"seconds": done["seconds"], "skipped": "", "problem": "", "results": []}
    if path.exists():  # also what there was when the time ran out
        result.update(json.loads(path.read_text()))
    if done["code"] == 77:
        result["skipped"] = done["problem"]
    elif done["code"] != 0:
        result["problem"] = done["problem"]
    return result


def checks_of(summary: dict) -> list[dict]:
    """What decides about the exit code: {"name", "ok", "detail"} each."""
    checks = []

    def check(name, ok, detail=""):
        checks.append({"name": name, "ok": bool(ok), "detail": detail})

    for part in ("tests", "models"):
        if result := summary.get(part):
            bad = result["failed"] + [f"{name} (unfinished)" for name in result.get("unfinished", [])]
            check(part, not result["problem"] and not bad, "; ".join(filter(None, [result["problem"], *bad])))
    if result := summary.get("cases"):
        bad = [f"{name}: {what}" for part in cases_part.parts_of(result).values() for name, what in part["failed"].items()]
        check("cases", not result["problem"] and not bad, "; ".join(filter(None, [result["problem"], *bad])))
    for row in summary.get("benchmarks", []):
        tuned = " autotuned" if row["autotuned"] else ""
        check(f"benchmark {row['model']} batch {row['batch']}{tuned}", "problem" not in row, row.get("problem", ""))
    for row in summary.get("int8", []):
        tuned = " autotuned" if row["autotuned"] else ""
        check(f"int8 {row['model']} batch {row['batch']}{tuned}", "problem" not in row, row.get("problem", ""))
    if "peers" in summary:
        check("peers", not summary["peers"]["problem"], summary["peers"]["problem"])
    for row in summary.get("sanitizer", []):
        check(f"{row['tool']} {row['subject']}", row["status"] != "failed", row["problem"])
    return checks


def write(path: pathlib.Path, document) -> None:
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(json.dumps(document, indent=1) + "\n")
    temporary.replace(path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--profile-options", default="", type=shlex.split)
    a = parser.parse_args()
    only = a.only.split(",")
    if unknown := set(only) - set(PARTS):
        parser.error(f"--only: there is no part '{', '.join(sorted(unknown))}'; there are {', '.join(PARTS)}")
    out = a.out or a.build / "gpu"
    out.mkdir(parents=True, exist_ok=True)
    run = Run(a.build.resolve(), out, a.quick, a.profile_options)
    summary: dict = {"quick": a.quick, "profile_options": shlex.join(a.profile_options), "machine": machine(run)}
    if problem := summary["machine"].get("problem"):
        print(f"gpu.sh: no GPU that pipit can use: {problem}", file=sys.stderr)
        return 1
    profiles: dict = {}
    for part in PARTS:
        if part not in only:
            continue
        result = globals()[part](run)
        if part in ("benchmarks", "int8"):
            result, found = result
            profiles.update(found)
            write(out / "profiles.json", profiles)
        summary[part] = result
        summary["checks"] = checks_of(summary)
        write(out / "summary.json", summary)
    failed = [check for check in summary["checks"] if not check["ok"]]
    for check in failed:
        print(f"gpu.sh: FAILED {check['name']}: {check['detail']}", file=sys.stderr)
    print(f"gpu.sh: {len(summary['checks'])} checks, {len(failed)} failed; {out / 'summary.json'}", file=sys.stderr)
    return 4 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
