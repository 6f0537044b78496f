"""tests/gpu.sh on a machine without a GPU: stand-ins for the programs that it runs say what a GPU would."""

import json
import os
import pathlib
import subprocess
import unittest

from command import CHECK_FAILED, OK, RUNTIME, USAGE, CommandTest, main

SCRIPT = pathlib.Path(__file__).resolve().parent.parent / "gpu.sh"
SMI = 'echo "NVIDIA Test, 999.1, 143771 MiB, 1980 MHz"'
PIPIT = """case $1 in
  --version) printf 'pipit 0.1\\ncpu   2 threads\\ncuda  built with toolkit 13.0; Test\\ncublaslt  13.1\\ncudnn     9.14\\n' ;;
  verify) shift; end=0; tests=
    for folder in "$@"; do
      case $folder in
        *crash*) case "$*" in *cuda*) kill -SEGV $$ ;; esac; verdict=passed ;;
        *refused*) case "$*" in *cuda*) verdict=unsupported ;; *) verdict=passed ;; esac ;;
        *wrong*) case "$*" in *fp16*|*cpu*) verdict=passed ;; *cuda*) verdict=failed; end=4 ;; *) verdict=passed ;; esac ;;
        */*) verdict=passed ;;
        *) continue ;;
      esac
      tests="$tests{\\"test\\": \\"$folder\\", \\"verdict\\": \\"$verdict\\", \\"note\\": \\"because\\"},"
    done
    echo "{\\"tests\\": [${tests%,}]}"; exit $end ;;
  profile) case "$2" in *lone*) case "$*" in *fp16*) exit 3 ;; *) exit 0 ;; esac ;; esac
    [ "$2" != "$BROKEN_MODEL" ] || { echo "pipit: out of memory" >&2; exit 1; }
    case "$*" in
      *--help*) echo "  --autotune  --tuning-cache TEXT"; exit 0 ;;
      *--odd*) echo "no such option" >&2; exit 2 ;;
    esac
    cat profile.json ;;
esac"""
TESTS = """case "$*" in
  *gtest_filter*) echo "[  PASSED  ] 9 tests." ;;
  *) printf 'PIPIT_TEST_SEED=7\\n[ RUN      ] A.One\\n[       OK ] A.One (3 ms)\\n[ RUN      ] A.Two\\n'
     printf '[  SKIPPED ] A.Two (0 ms)\\n[ RUN      ] P/A.Three/0\\n'
     case $TEST_ENDS in
       fails) printf '[  FAILED  ] P/A.Three/0, where GetParam() = 1 (9 ms)\\n'; exit 1 ;;
       crashes) kill -SEGV $$ ;;
       hangs) sleep 60 & wait ;;
     esac
     printf '[       OK ] P/A.Three/0 (2 ms)\\n' ;;
esac"""
SANITIZER = """tool=$2; shift 4; "$@"
echo "========= ERROR SUMMARY: $([ "$tool" = "$DIRTY_TOOL" ] && echo 2 errors || echo 0 errors)"
[ "$tool" != "$DIRTY_TOOL" ] || exit 86"""
PROFILE = {"graph_ms": 0.5, "layers_ms": 0.6, "end_to_end_ms": 0.7, "read_ms": 80, "load_ms": 900,
           "first_run_ms": 20, "first_answer_ms": 1000.0,
           "device_memory_bytes": 200_000_000, "device_memory_peak_bytes": 300_000_000, "floor_ms": 0.25,
           "ceilings": {"arithmetic": [{"products": "fp16", "gflops": {"best": 750e3}}],
                        "memory": [{"name": "memory", "read_gb_per_s": {"best": 4200.0}}]},
           "layers": [{"index": 0, "name": "stem", "type": "Conv", "kernel": "implicit_gemm", "geometry": "7x7 s2 p3",
                       "input": [32, 3, 224, 224], "output": [32, 64, 112, 112], "macs": 5, "median_ms": 0.6,
                       "floor_us": 250.0, "x_floor": 2.4}]}


class GpuScript(CommandTest):
    def setUp(self):
        super().setUp()
        self.write("profile.json", json.dumps(PROFILE) + "\n")
        for name, body in {"bin/nvidia-smi": SMI, "build/pipit": PIPIT, "build/test_cuda": TESTS,
                           "bin/compute-sanitizer": SANITIZER}.items():
            self.write(name, f"#!/bin/sh\n{body}\n").chmod(0o755)

    def script(self, *arguments, code=OK, data=None, **environment):
        """Runs the script on the stand-ins; returns what it wrote to stderr, and the summary if there is one."""
        environment = {**os.environ, "PATH": f"{self.folder}/bin:{os.environ['PATH']}", **environment}
        # A Python without them, whatever this one has.
        for module in ("torch", "onnxruntime"):
            self.write(f"without/{module}.py", f"raise ImportError('no {module} here')\n")
        environment.update(PYTHONPATH=str(self.folder / "without"))
        environment.pop("PIPIT_TEST_DATA", None)  # the stand-ins know no photographs
        if data:
            environment["PIPIT_TEST_DATA"] = str(data)
        done = subprocess.run([SCRIPT, *map(str, arguments)], cwd=self.folder, env=environment, text=True,
                              capture_output=True, timeout=250, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        summary = self.folder / "out/summary.json"
        return done, json.loads(summary.read_text()) if summary.exists() else None

    def run_parts(self, *parts, **keywords):
        return self.script("--build", "build", "--out", "out", "--only", ",".join(parts), **keywords)[1]

    def failed(self, summary):
        return [check["name"] for check in summary["checks"] if not check["ok"]]

    def case(self, name):
        self.write(f"data/cases/{name}/model.onnx", "")
        self.write(f"data/cases/{name}/test_data_set_0/output_0.pb", "")

    def run_cases(self, **keywords):
        return self.run_parts("cases", PIPIT_NODE_TESTS=str(self.folder / "none"), data=self.folder / "data", **keywords)

    def test_cases(self):
        for name in ("good", "refused"):
            self.case(name)
        self.write("data/cases/lone.onnx", "")
        summary = self.run_cases()
        self.assertEqual(self.failed(summary), [])
        found = summary["cases"]["data, verify, fp32"]
        self.assertEqual((found["passed"], found["failed"]), (1, {}))
        self.assertEqual(list(found["refused"].values()), ["because"])
        self.assertEqual(summary["cases"]["data, run, fp32"]["passed"], 1)
        self.assertEqual(len(summary["cases"]["data, run, fp16"]["refused"]), 1)
        self.assertEqual([reason.partition(":")[0] for reason in summary["cases"]["skipped"]], ["node", "operators"])

    def test_cases_that_fail_or_crash(self):
        for name in ("good", "crash", "wrong"):
            self.case(name)
        summary = self.run_cases(code=CHECK_FAILED)
        self.assertEqual(self.failed(summary), ["cases"])
        found = summary["cases"]["data, verify, fp32"]
        self.assertEqual(found["passed"], 1)
        self.assertEqual({pathlib.Path(name).name: what.partition(":")[0] for name, what in found["failed"].items()},
                         {"crash": "crashed", "wrong": "failed"})

    def test_all_parts(self):
        done, summary = self.script("--build", "build", "--out", "out", "--quick")
        self.assertEqual(self.failed(summary), [])
        self.assertEqual({key: summary["machine"][key] for key in ("gpu", "driver", "cuda", "cudnn")},
                         {"gpu": "NVIDIA Test", "driver": "999.1", "cuda": "13.0", "cudnn": "9.14"})
        self.assertEqual(summary["tests"]["passed"], 2)
        self.assertEqual(summary["tests"]["skipped"], ["A.Two"])
        self.assertEqual(summary["tests"]["seed"], 7)
        self.assertEqual({row["status"] for row in summary["sanitizer"]}, {"clean"})
        self.assertEqual(len(summary["benchmarks"]), 5)  # by rule only
        for row in summary["benchmarks"]:
            self.assertEqual(row["graph_ms"], 0.5)
            self.assertEqual(row["kernels"]["Conv implicit_gemm"], {"layers": 1, "ms": 0.6, "floor_ms": 0.25})
        self.assertEqual([(row["model"], row["batch"], row["ratio"], row["slower"]) for row in summary["int8"]],
                         [("resnet50", 32, 1.0, [])])
        self.assertIn("no torch here", summary["peers"]["skipped"])
        self.assertEqual(sorted(p.name for p in (self.folder / "out").iterdir()),
                         ["log.txt", "profiles.json", "summary.json"])
        self.assertIn("0 failed", done.stderr)
        tables = self.script("--report", "out/summary.json")[0].stdout
        self.assertIn("NVIDIA Test, driver 999.1", tables)
        self.assertIn("in the same run: fp16 750 TFLOP/s, memory 4.20 TB/s (read).", tables)
        self.assertRegex(tables, r"\| ResNet-50, batch 32 \| 0\.500 \| 0\.250 \| 2\.0 \| 0\.70 \| 200 / 300 \| 1000 \(80\) \|")

        layers = self.script("--report", "out/summary.json", "resnet18-b1")[0].stdout
        self.assertIn("| 0 | stem | Conv 7x7 s2 p3 | 32x3x224x224 | 32x64x112x112 | implicit_gemm | 600.0 | 250.0 | 2.4 |",
                      layers)
        self.script("--report", "out/summary.json", "resnet18-b3", code=USAGE)

    def test_a_failing_test_fails_the_run_but_not_the_other_parts(self):
        summary = self.run_parts("tests", "benchmarks", code=CHECK_FAILED, TEST_ENDS="fails")
        self.assertEqual(summary["tests"]["failed"], ["P/A.Three/0"])
        self.assertEqual(self.failed(summary), ["tests"])
        self.assertEqual([row["autotuned"] for row in summary["benchmarks"]], 5 * [False, True])

    def test_a_crash_names_the_test(self):
        summary = self.run_parts("tests", code=CHECK_FAILED, TEST_ENDS="crashes")
        self.assertEqual(summary["tests"]["unfinished"], ["P/A.Three/0"])
        self.assertEqual(self.failed(summary), ["tests"])

    def test_sanitizer_errors_and_benchmark_errors_fail(self):
        summary = self.run_parts("sanitizer", "benchmarks", code=CHECK_FAILED, DIRTY_TOOL="racecheck",
                                 BROKEN_MODEL="resnet50")
        self.assertEqual(self.failed(summary), [
            *(f"benchmark resnet50 batch {batch}{tuned}" for batch in (1, 32, 128) for tuned in ("", " autotuned")),
            "racecheck kernels", "racecheck model"])
        self.assertEqual(summary["benchmarks"][-1]["problem"], "pipit: out of memory")
        self.assertIn("failed: pipit: out of memory", self.script("--report", "out/summary.json")[0].stdout)

    def test_profile_options_reach_every_timed_profile(self):
        _, summary = self.script("--build", "build", "--out", "out", "--only", "benchmarks", "--profile-options",
                                 "--odd 3", code=CHECK_FAILED)
        self.assertEqual(summary["profile_options"], "--odd 3")
        self.assertEqual(len(self.failed(summary)), 10)

    def test_no_gpu(self):
        self.write("build/pipit", "#!/bin/sh\nprintf 'pipit 0.1\\ncuda  built with toolkit 13.0; no GPU was found\\n'\n")
        done, summary = self.script("--build", "build", "--out", "out", code=RUNTIME)
        self.assertIn("no GPU was found", done.stderr)
        self.assertIsNone(summary)

    def test_usage(self):
        self.assertIn("--quick", self.script("--help")[0].stdout)
        self.script("--fast", code=USAGE)
        self.script("--build", code=USAGE)
        self.script("--build", "build", "--only", "everything", code=USAGE)
        self.script("--build", "nowhere", code=RUNTIME)
        self.script("--report", code=USAGE)
        self.script("--report", "profile.json", code=RUNTIME)


if __name__ == "__main__":
    main()
