"""The part "cases" of tests/gpu.sh: on the GPU what the CPU is tested with.

ONNX's own tests, every test folder of $PIPIT_TEST_DATA/cases and every operator in every place (operator_cases.py, where
there is ONNX Runtime) go through `pipit verify` on both devices; models there without test data are loaded and run once
(`pipit profile`). A case that passes on the CPU must pass on the GPU or be
refused with a reason: what fails there, ends the process or does not end fails the check. In fp16 a wrong number is only
counted, since some tests hold numbers that halves do not.
"""

from __future__ import annotations

import concurrent.futures
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

DEBIAN = pathlib.Path("/usr/share/libonnx-testdata/data")
BATCH = 48  # test folders of one process
ENDS = {0: "passed", 3: "refused"}  # of a model that is run once
HALVES = ("--precision", "fp16", "--norm", "0.02")
# Single numbers near 0 say little after several layers; quantized graphs round ties of small numbers either way.
OPERATORS = {"floats": ("--norm", "1e-4"), "int8": ("--norm", "0.2")}
RUN_ONCE = "--runs 1 --warmup 1 --quiet --json".split()


def node_tests(run, temporary: str) -> pathlib.Path | None:
    """$PIPIT_NODE_TESTS (a folder, or an archive as --pack makes it), what --pack put beside the programs, or where
    Debian's libonnx-testdata puts them; archives are unpacked in `temporary`."""
    places = [pathlib.Path(os.environ["PIPIT_NODE_TESTS"])] if os.environ.get("PIPIT_NODE_TESTS") else [
        run.build / "node-tests.tar.xz", DEBIAN]
    place = next(filter(pathlib.Path.exists, places), None)
    if place is None or place.is_dir():
        return place
    shutil.unpack_archive(place, temporary)
    return pathlib.Path(temporary)


def operator_cases(folder: pathlib.Path) -> str:
    """Fills the folder; says why it stays empty, or nothing."""
    python = os.environ.get("PIPIT_PYTHON", sys.executable)
    script = pathlib.Path(__file__).with_name("operator_cases.py")
    done = subprocess.run([python, script, folder], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300,
                          check=False)
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["no reason given"])[-1]


def is_test(folder: pathlib.Path) -> bool:
    return (folder / "model.onnx").exists() and any(folder.glob("test_data_set_*"))


def test_folders(root: pathlib.Path) -> list[pathlib.Path]:
    return sorted({model.parent for model in root.rglob("model.onnx") if is_test(model.parent)})


def lone_models(root: pathlib.Path) -> list[pathlib.Path]:
    return sorted(model for model in root.rglob("*.onnx") if not is_test(model.parent))


def verify(run, json_of, folders: list[pathlib.Path], *options) -> dict[str, dict]:
    """By folder {"verdict", "note"}. Where a process does not end as it should, its folders get one each."""
    done = run("cases", "pipit", "verify", *folders, *options, "--json", "--quiet")
    document = json_of(done["text"]) if done["code"] in (0, 3, 4) else None
    if document:
        found = {test["test"]: {"verdict": test["verdict"], "note": test["note"]} for test in document["tests"]}
        return {str(folder): found[str(folder)] for folder in folders}
    if len(folders) == 1:
        return {str(folders[0]): {"verdict": "crashed", "note": done["problem"] or f"exit {done['code']}, no JSON"}}
    return {name: test for folder in folders for name, test in verify(run, json_of, [folder], *options).items()}


def run_once(run, model: pathlib.Path, *options) -> dict:
    done = run("cases", "pipit", "profile", model, *RUN_ONCE, *options)
    crashed = done["code"] is None or done["code"] < 0
    return {"verdict": "crashed" if crashed else ENDS.get(done["code"], "failed"), "note": done["problem"]}


def compare(cpu: dict[str, dict], gpu: dict[str, dict], strict: bool) -> dict:
    """What became on the GPU of the cases that pass on the CPU."""
    result = {"passed": 0, "as_constants": 0, "refused": {}, "failed": {}, "differ": [], "not_on_the_cpu": 0}
    for name, on_gpu in gpu.items():
        verdict, note = on_gpu["verdict"], on_gpu["note"]
        if verdict != "crashed" and cpu[name]["verdict"] != "passed":
            result["not_on_the_cpu"] += 1
        elif verdict == "passed":
            result["passed"] += 1
            result["as_constants"] += note.startswith("as constants")
        elif verdict in ("unsupported", "refused"):
            result["refused"][name] = note
        elif verdict == "failed" and not strict:
            result["differ"].append(name)
        else:
            result["failed"][name] = f"{verdict}: {note}"
    return result


def cases(run, json_of, processes: int) -> dict:
    with tempfile.TemporaryDirectory() as temporary, concurrent.futures.ThreadPoolExecutor(processes) as pool:
        return cases_of(run, json_of, pool, pathlib.Path(temporary))


def cases_of(run, json_of, pool, temporary: pathlib.Path) -> dict:
    result: dict = {"skipped": [], "problem": ""}

    def all_verified(folders, *options):
        batches = [folders[i:i + BATCH] for i in range(0, len(folders), BATCH)]
        found: dict = {}
        for part in pool.map(lambda batch: verify(run, json_of, batch, *options), batches):
            found.update(part)
        return found

    def all_run(models, *options):
        return dict(zip(map(str, models), pool.map(lambda model: run_once(run, model, *options), models)))

    def compared(name, files, ask, halves, strict_halves=False, options=()):
        cpu = ask(files, *options)
        result[f"{name}, fp32"] = compare(cpu, ask(files, "--device", "cuda", *options), True)
        if halves:
            result[f"{name}, fp16"] = compare(cpu, ask(files, "--device", "cuda", *halves), strict_halves)

    data = os.environ.get("PIPIT_TEST_DATA")
    roots = {"node": node_tests(run, str(temporary)), "data": pathlib.Path(data) / "cases" if data else None}
    for name, root in roots.items():
        if root is None or not root.is_dir():
            result["skipped"].append(f"{name}: no such folder (PIPIT_NODE_TESTS, PIPIT_TEST_DATA)")
            continue
        compared(f"{name}, verify", test_folders(root), all_verified, HALVES)
        if name == "data":
            compared(f"{name}, run", lone_models(root), all_run, HALVES[:2], True)
    if reason := operator_cases(temporary / "operators"):
        result["skipped"].append(f"operators: {reason}")
    else:
        for name, options in OPERATORS.items():
            compared(f"operators, {name}", test_folders(temporary / "operators" / name), all_verified,
                     HALVES if name == "floats" else (), options=options)
    parts = parts_of(result).values()
    if parts and not any(part["passed"] for part in parts):
        result["problem"] = "no case passed"
    return result


def parts_of(result: dict) -> dict[str, dict]:
    return {name: part for name, part in result.items() if isinstance(part, dict)}
