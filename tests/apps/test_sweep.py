"""pipit sweep: sparsity and conv."""

import csv
import fcntl
import json
import math
import os
import re
import resource
import signal
import statistics
import subprocess
import time
import xml.etree.ElementTree

from command import MODEL, PIPIT, RUNTIME, UNSUPPORTED, USAGE, CommandTest, main

LAYER = "1x16x9x9:24x3x3"
SMALL = ("--layer", LAYER, "--keep-ratio", "1,0.5,0.25", "--panel", "16")
# One convolution, whose rows are kept.
POINT = ("sweep", "conv", "--n", "1", "--in", "4", "--out", "8", "--size", "8", "--kernel", "1", "--stride", "1", "--seconds", "0",
         "--results", "rows.jsonl")
MODES = ("k", "k-panel", "channel", "block", "input", "input-panel")


def by_key(rows):
    return {(row["precision"], row["mode"], row["keep"]): row for row in rows}


class SweepTest(CommandTest):
    def killed(self, arguments, results, lines):
        """What a sweep leaves in `results` when it is killed once that many lines are there."""
        with subprocess.Popen([PIPIT, *arguments], cwd=self.folder, stdout=subprocess.DEVNULL) as process:
            until = time.monotonic() + 240
            while time.monotonic() < until and not (results.exists() and results.read_bytes().count(b"\n") >= lines):
                time.sleep(0.005)
            self.assertIsNone(process.poll(), "it was too fast to be killed")
            os.kill(process.pid, signal.SIGKILL)
        left = results.read_bytes()
        self.assertGreaterEqual(left.count(b"\n"), lines)
        return left


class SweepSparsity(SweepTest):
    def test_every_mode_and_precision(self):
        result = self.json("sweep", "sparsity", *SMALL, "--seconds", "0", "--precision", "fp32,fp16,int8", "--block", "8",
                           "--output", "s.csv", "--save-svg", "s.svg")
        rows = by_key(result["rows"])
        self.assertEqual(set(rows), {(p, m, k) for p in ("fp32", "fp16", "int8")
                                     for m, k in [("dense", 1.0)] + [(m, k) for m in MODES for k in (0.5, 0.25)]})
        for (precision, mode, keep), row in rows.items():
            with self.subTest(precision=precision, mode=mode, keep=keep):
                low, high = row["ms_quartiles"]
                self.assertTrue(0 < low <= row["ms"] <= high, row)
                self.assertGreater(row["speedup"], 0)
                self.assertGreaterEqual(row["turns"], 7)
                error = row["error"]
                self.assertLessEqual(error["mae"], error["max_error"])
                self.assertTrue(0 <= error["top10"] <= 1)
                # 3 blocks of 8 outputs: 2 stay, then 1.
                kept = {("block", 0.5): 1 / 3, ("block", 0.25): 1 / 3}.get((mode, keep), keep)
                self.assertAlmostEqual(row["kept"], kept, delta=1e-6)
                if mode == "dense":
                    self.assertLess(error["relative_l2"], {"fp32": 1e-5, "fp16": 2e-3, "int8": 0.05}[precision])
                else:
                    self.assertTrue(0.1 < error["relative_l2"] < 1, row)
                self.assertEqual("refit" in row, mode in ("k", "k-panel", "input", "input-panel"))
                if "refit" in row and precision == "fp32":
                    # Least squares on these very columns, up to its ridge.
                    self.assertLess(row["refit"]["relative_l2"], 1.01 * error["relative_l2"])
        # What was removed is the same in all precisions that remove the same.
        self.assertAlmostEqual(rows["fp32", "input", 0.5]["error"]["relative_l2"],
                               rows["fp16", "input", 0.5]["error"]["relative_l2"], delta=1e-3)
        # Panels may lose other rows each.
        self.assertLess(rows["fp32", "k-panel", 0.5]["error"]["relative_l2"],
                        rows["fp32", "k", 0.5]["error"]["relative_l2"])
        with open(self.folder / "s.csv", newline="", encoding="utf-8") as file:
            table = list(csv.DictReader(file))
        self.assertEqual([(row["precision"], row["mode"], float(row["keep"])) for row in table], list(rows))
        self.assertEqual([float(row["mae"]) for row in table], [row["error"]["mae"] for row in result["rows"]])
        svg = (self.folder / "s.svg").read_text()
        self.assertEqual(svg.count("<circle"), len(rows))
        self.assertEqual(svg.count("<polyline"), 3)  # a front for each precision
        # Each of another colour, and with a number that is explained below.
        self.assertEqual(len(set(re.findall(r'<polyline[^>]* stroke="([^"]+)"', svg))), 3)
        for number, precision in enumerate(("fp16", "fp32", "int8"), 1):
            self.assertIn(f">{number}  {LAYER} {precision}</text>", svg)
            self.assertIn(f">{number}</text>", svg)
        self.assertIn("output", svg)

    def test_goes_on_after_a_kill(self):
        arguments = ["sweep", "sparsity", *SMALL, "--seconds", "0.05", "--results", "rows.jsonl"]
        path = self.folder / "rows.jsonl"
        before = self.killed(arguments, path, 4)
        whole = before[:before.rfind(b"\n") + 1]
        path.write_bytes(whole + b'{"layer":"1x16x9x9:24x3x3","precision":"fp')  # cut off
        self.assertIn("--resume", self.pipit(*arguments, code=RUNTIME).stderr)
        result = self.json(*arguments, "--resume")
        after = path.read_bytes()
        self.assertTrue(after.startswith(whole))
        lines = [json.loads(line) for line in after.splitlines()]
        self.assertEqual(lines[1:], result["rows"])
        self.assertEqual(len(by_key(lines[1:])), len(lines) - 1)
        self.assertEqual(len(lines), 1 + 1 + len(MODES) * 2)
        self.json(*arguments, "--resume")
        self.assertEqual(path.read_bytes(), after, "nothing is left to do")
        other = self.pipit(*arguments, "--resume", "--group", "2", code=RUNTIME)
        self.assert_one_line_error(other, "rows.jsonl", "another sweep")
        self.assertEqual(path.read_bytes(), after)
        path.write_bytes(after + b"[1]\n")
        self.assert_one_line_error(self.pipit(*arguments, "--resume", code=RUNTIME), f"line {len(lines) + 1}")
        start = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        path.write_bytes(after + b"[" * 30_000_000 + b"\n")
        self.assert_one_line_error(self.pipit(*arguments, "--resume", code=RUNTIME), f"line {len(lines) + 1}")
        took = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - start  # of a CPU, however busy it is
        self.assertLess(took, 20, "nesting is refused where it begins")

    def test_layers_of_a_model(self):
        result = self.json("sweep", "sparsity", MODEL, "--mode", "k-panel", "--keep-ratio", "0.5", "--seconds", "0",
                           "--importance", "l2", "--no-refit")
        rows = result["rows"]
        self.assertEqual(len({row["layer"] for row in rows}), len(rows))
        self.assertGreaterEqual(len(rows), 18)
        for row in rows:
            self.assertAlmostEqual(row["kept"], 0.5, delta=0.01)
            self.assertNotIn("refit", row)

    def test_a_quantized_model(self):
        self.write_bmp("images/cat/0.bmp", (1, 2, 3))
        self.pipit_with_notes("calibrate", MODEL, "images", "--output", "plan.json")
        self.pipit("quantize", MODEL, "--plan", "plan.json", "--output", "int8.onnx")
        self.assert_one_line_error(self.pipit("sweep", "sparsity", "int8.onnx", code=UNSUPPORTED), "int8.onnx is quantized")

    def test_text(self):
        text = self.pipit("sweep", "sparsity", "--layer", LAYER, "--mode", "k", "--keep-ratio", "1,0.5", "--seconds", "0").stdout
        self.assertRegex(text, rf"(?m)^{LAYER}  fp32 +k +0\.50 ")
        self.assertEqual(len(text.splitlines()), 3)

    def test_fits_its_terminal(self):
        command = ("sweep", "sparsity", "--layer", "1x16x9x9:24x3x3", "--keep-ratio", "1,0.5", "--mode", "k,channel", "--seconds", "0.01")
        lines = self.on_a_terminal(80, *command).splitlines()
        self.assertLessEqual(max(map(len, lines)), 80)
        self.assertEqual(lines[0].split(), "layer precision mode keep ms x dense rel. L2 refit L2".split())
        self.assertIn("quartiles", self.on_a_terminal(80, *command, "--wide"))

    def test_usage(self):
        for spec in ("1x16x9x9", "1x16x9:24x3x3", "1x16x9x9:24x3x3:q2", "1x16x9x9:24x3x3:s0", "1x16x9x9:24x3x3:",
                     "0x16x9x9:24x3x3", "99999x99999x99x99:24x3x3", ""):
            self.assert_one_line_error(self.pipit("sweep", "sparsity", "--layer", spec, code=USAGE), "--layer", spec)
        for arguments in (("--resume",), ("--keep-ratio", "0.01"), ("--keep-ratio", "nan"), ("--seconds", "nan"), ("--keep-ratio", "2"), ("--mode", "rows"), ("--panel", "7"),
                          (MODEL, "--layer", LAYER)):
            self.assert_one_line_error(self.pipit("sweep", "sparsity", *arguments, code=USAGE), arguments[0]
                                       if arguments[0] != MODEL else "--layer")
        for arguments, message in (
                (("--batch", "2"), "--batch: is for MODEL"),
                (("--mode", "k,channel", "--block", "16"), "--block: is for --mode block, not k, channel"),
                (("--mode", "channel,block,input", "--group", "0"), "--group"),
                (("--mode", "k,input", "--panel", "32"), "--panel: is for --mode k-panel, input-panel"),
                (("--mode", "channel,block", "--no-refit"), "--no-refit"),
                (("--mode", "channel", "--importance", "activation"), "--importance: activation is for --mode k")):
            self.assert_one_line_error(self.pipit("sweep", "sparsity", *arguments, code=USAGE), message)
        self.assert_one_line_error(self.pipit("sweep", code=USAGE), "subcommand")
        for option in ("--json", "--threads", "--device", "--precision", "Examples"):
            self.assertIn(option, self.pipit("sweep", "sparsity", "--help").stdout)



class SweepConv(SweepTest):
    GRID = ("--n", "1,2", "--in", "3,8", "--out", "8", "--size", "9,16", "--kernel", "1,3", "--stride", "1,2", "--seconds", "0")

    def test_every_combination(self):
        result = self.json("sweep", "conv", *self.GRID, "--precision", "fp32,fp16,int8", "--base", "fp32,fp16", "--output", "c.csv",
                           "--save-svg", "c.svg")
        rows = result["rows"]
        shapes = {tuple(row[name] for name in ("n", "in", "out", "size", "kernel", "stride")) for row in rows}
        self.assertEqual((len(rows), len(shapes), result["combinations"], result["bases"]), (96, 32, 32, ["fp32", "fp16"]))
        for row in rows:
            with self.subTest(row):
                # Nothing is held against itself.
                self.assertEqual([base["base"] for base in row["against"]],
                                 [base for base in ("fp32", "fp16") if base != row["precision"]])
                for base in row["against"]:
                    low, high = base["speedup_interval95"]
                    self.assertTrue(0 < low <= base["speedup"] <= high)
                    self.assertGreater(base["ms"], 0)
                    self.assertNotIn("cached_ms", base)
                low, high = row["ms_quartiles"]
                self.assertTrue(0 < low <= row["ms"] <= high)
                self.assertLess(row["relative_l2"], {"fp32": 1e-5, "fp16": 2e-3, "int8": 0.05}[row["precision"]])
                self.assertGreater(row["relative_l2"], 0)
                self.assertLessEqual(row["mae"], row["max_error"])
                side = -(-row["size"] // row["stride"])
                outputs = row["n"] * row["out"] * side ** 2
                self.assertEqual(row["macs"], outputs * row["in"] * row["kernel"] ** 2)
                size = {"fp32": 4, "fp16": 2, "int8": 1}[row["precision"]]
                elements = row["n"] * row["in"] * row["size"] ** 2 + row["out"] * row["in"] * row["kernel"] ** 2 + outputs
                self.assertEqual(row["bytes"], size * elements)
                self.assertNotIn("floor_ms", row)
        # All that take turns in a layer have as many, and one base has one kernel and time for all rows.
        for shape in shapes:
            mine = [row for row in rows if tuple(row[name] for name in ("n", "in", "out", "size", "kernel", "stride")) == shape]
            self.assertEqual(len({row["turns"] for row in mine}), 1)
            self.assertEqual(len({(base["runs"], base["ms"]) for row in mine for base in row["against"] if base["base"] == "fp32"}), 1)
        self.assertEqual([(s["precision"], s["base"]) for s in result["summaries"]],
                         [("fp32", "fp16"), ("fp16", "fp32"), ("int8", "fp32"), ("int8", "fp16")])

        def at_least(summary, row):
            return [base["speedup_interval95"][0] for base in row["against"]
                    if (row["precision"], base["base"]) == (summary["precision"], summary["base"])]

        def speedups(summary, **wanted):
            return [base["speedup"] for row in rows if row["precision"] == summary["precision"]
                    and all(row[key] == value for key, value in wanted.items())
                    for base in row["against"] if base["base"] == summary["base"]]

        def check_mean(mean, values):
            logarithms = list(map(math.log, values))
            self.assertEqual(mean["layers"], len(values))
            self.assertAlmostEqual(math.log(mean["speedup_geometric_mean"]), statistics.fmean(logarithms))
            # Student's t for 31 and 15 degrees of freedom at 95 %.
            half = {32: 2.03951, 16: 2.13145}[len(values)] * statistics.stdev(logarithms) / math.sqrt(len(values))
            low, high = map(math.log, mean["interval95"])
            self.assertAlmostEqual(low, statistics.fmean(logarithms) - half, places=4)
            self.assertAlmostEqual(high, statistics.fmean(logarithms) + half, places=4)

        for summary in result["summaries"]:
            mine = speedups(summary)
            self.assertEqual(summary["did_not_run"], 0)
            check_mean(summary, mine)
            self.assertEqual(set(summary["by"]), {"n", "in", "size", "kernel", "stride"})  # --out has one value
            for extent, means in summary["by"].items():
                self.assertEqual([mean["value"] for mean in means], sorted({row[extent] for row in rows}))
                for mean in means:
                    check_mean(mean, speedups(summary, **{extent: mean["value"]}))
            self.assertEqual([best["size"] for best in summary["best_by_size"]], [9, 16])
            for best in summary["best_by_size"]:
                self.assertEqual(at_least(summary, best)[0],
                                 max(low for row in rows if row["size"] == best["size"] for low in at_least(summary, row)))
        with open(self.folder / "c.csv", newline="", encoding="utf-8") as file:
            table = list(csv.DictReader(file))

        def flat(row):
            against = {base["base"]: base for base in row["against"]}
            of_base = [(against[b]["runs"], against[b]["speedup_interval95"][1]) if b in against else ("", None) for b in ("fp32", "fp16")]
            return row["runs"], row["ms"], row["bytes"], of_base

        self.assertEqual([(row["runs"], float(row["ms"]), int(row["bytes"]),
                           [(row[f"{b}_runs"], float(row[f"{b}_speedup_high"] or "nan") if row[f"{b}_runs"] else None)
                            for b in ("fp32", "fp16")]) for row in table],
                         [flat(row) for row in rows])
        svg = xml.etree.ElementTree.parse(self.folder / "c.svg").getroot()
        cells = [e for e in svg.iter() if e.tag.endswith("rect")]
        self.assertEqual(len(cells), 1 + 4 * 2 * 2)

    def test_floors(self):
        self.keep_ceilings(100, 50)
        row, = self.json("sweep", "conv", "--n", "1", "--in", "16", "--out", "32", "--size", "32", "--kernel", "3", "--stride", "1",
                         "--seconds", "0", "--precision", "fp32", "--backend", "reference", "--floor")["rows"]
        self.assertEqual((row["runs"], row["binds"]), ("reference", "compute"))
        self.assertAlmostEqual(row["floor_ms"], 1e3 * 2 * 32 * 32 * 32 * 16 * 9 / 100e9, delta=1e-6)
        self.assertAlmostEqual(row["share_of_limit"], row["floor_ms"] / row["ms"])

    def test_another_file_is_left_as_it_is(self):
        small = ("--n", "1", "--in", "1", "--out", "8", "--size", "32", "--kernel", "1", "--stride", "1", "--seconds", "0")
        for name, content in (("notes.txt", "no line ends here"), ("one.json", '{"a": 1}'), ("two.txt", "a\nb")):
            (self.folder / name).write_text(content)
            for command in (("conv", *small), ("sparsity", "--layer", "1x8x8x8:8x1x1", "--seconds", "0")):
                done = self.pipit("sweep", *command, "--results", name, "--resume", code=RUNTIME)
                self.assert_one_line_error(done, name)
                self.assertEqual((self.folder / name).read_text(), content)
        # A first line that a kill cut off is another matter.
        self.json("sweep", "conv", *small, "--results", "rows.jsonl")
        whole = (self.folder / "rows.jsonl").read_text()
        (self.folder / "rows.jsonl").write_text(whole[:20])
        again = self.json("sweep", "conv", *small, "--results", "rows.jsonl", "--resume")
        self.assertEqual(len(again["rows"]), 1)
        self.assertTrue((self.folder / "rows.jsonl").read_text().startswith(whole.split("\n")[0] + "\n"))

    def test_goes_on_after_a_kill(self):
        arguments = ["sweep", "conv", "--n", "1", "--size", "32", "--kernel", "1,3", "--sample", "8", "--seconds", "0.05",
                     "--results", "rows.jsonl"]
        before = self.killed(arguments, self.folder / "rows.jsonl", 3)
        result = self.json(*arguments, "--resume")
        after = (self.folder / "rows.jsonl").read_bytes()
        self.assertTrue(after.startswith(before[:before.rfind(b"\n") + 1]))
        lines = [json.loads(line) for line in after.splitlines()]
        self.assertEqual(len(lines), 1 + 8)
        self.assertCountEqual(lines[1:], result["rows"])

    def test_a_larger_sample_holds_a_smaller_one(self):
        small = ("--size", "32", "--kernel", "1,3", "--seconds", "0", "--results", "rows.jsonl")
        first = self.json("sweep", "conv", *small, "--n", "1", "--sample", "3")
        before = (self.folder / "rows.jsonl").read_bytes()
        more = self.json("sweep", "conv", *small, "--n", "1", "--sample", "5", "--resume")
        self.assertTrue((self.folder / "rows.jsonl").read_bytes().startswith(before))
        for row in first["rows"]:
            self.assertIn(row, more["rows"])
        self.assertEqual((len(more["rows"]), more["sample"]), (5, 5))
        other = self.pipit("sweep", "conv", *small, "--sample", "5", "--resume", "--base", "fp16", code=RUNTIME)
        self.assert_one_line_error(other, "rows.jsonl", "another sweep")
        # A row cut off by a kill is measured again; what is no row is an error.
        text = (self.folder / "rows.jsonl").read_bytes()
        self.write("rows.jsonl", text[:-30])
        again = self.json("sweep", "conv", *small, "--n", "1", "--sample", "5", "--resume")
        self.assertEqual(again["rows"][:4], more["rows"][:4])
        self.assertNotIn("problem", again["rows"][4])
        impossible = text.splitlines()[1].replace(b'"n":1', b'"n":-5')
        self.assertIn(b'"n":-5', impossible)
        for row in (b'{"n":1}', impossible):
            self.write("rows.jsonl", text + row + b"\n")
            self.assert_one_line_error(self.pipit("sweep", "conv", *small, "--sample", "5", "--resume", code=RUNTIME), "line 7")

    def test_rows_of_another_machine_or_version_do_not_go_on(self):
        result = self.json(*POINT)
        first, row = (self.folder / "rows.jsonl").read_text().splitlines()
        settings = json.loads(first)
        self.assertEqual((settings["machine"], settings["pipit"]), (result["machine"], result["pipit"]))
        self.assertTrue(settings["machine"].startswith(f"{settings['device']}, {settings['threads']} threads, "))
        for key in ("machine", "pipit"):
            for other in ({**settings, key: "another"}, {k: v for k, v in settings.items() if k != key}):
                self.write("rows.jsonl", f"{json.dumps(other)}\n{row}\n")
                self.assert_one_line_error(self.pipit(*POINT, "--resume", code=RUNTIME), "another sweep", f'"{key}" is ')
        # Nor are those of one file compared with each other as of one machine.
        self.write("two.json", json.dumps(result) + json.dumps({**result, "machine": "another"}))
        self.write("one.json", json.dumps(result))
        self.assert_one_line_error(self.pipit("compare", "two.json", "one.json", code=RUNTIME), "two.json: rows of ", "another")

    def test_values_that_no_sweep_writes(self):
        result = self.json(*POINT)
        first, row = (self.folder / "rows.jsonl").read_text().splitlines()
        row = json.loads(row)
        self.assertTrue(row["against"])
        wrong = [("ms", -5), ("ms", 0), ("ms", "1"), ("ms", None), ("ms_quartiles", [5, 1]), ("ms_quartiles", []), ("turns", 1e300),
                 ("turns", 0.5), ("samples_ms", []), ("samples_ms", [-1]), ("n", 1e300), ("runs", 3), ("against", 5), ("bytes", -1),
                 ("mae", -0.1), ("precision", [])]
        edited = [(key, {**row, key: value}) for key, value in wrong]
        edited += [(key, {k: v for k, v in row.items() if k != key}) for key in ("samples_ms", "against", "mae", "in")]
        base = row["against"][0]
        edited += [(key, {**row, "against": [{**base, key: value}]}) for key, value in (
            ("speedup", 0), ("speedup", -3), ("speedup_interval95", [5, 1]), ("speedup_interval95", [1]), ("ms", -1))]
        for key, changed in edited:
            with self.subTest(key=key, changed=changed.get(key)):
                self.write("rows.jsonl", f"{first}\n{json.dumps(changed)}\n")
                done = self.pipit(*POINT, "--resume", code=RUNTIME)
                self.assert_one_line_error(done, "rows.jsonl: line 2: no row of a sweep: ", f'"{key}"')
                self.assertNotIn("json.exception", done.stderr)
                self.write("sweep.json", json.dumps({**result, "rows": [changed]}))
                done = self.pipit("profile", MODEL, "--runs", 1, "--sweep", "sweep.json", "--output", "r.html", code=RUNTIME)
                self.assert_one_line_error(done, "sweep.json: ", f'"{key}"')
                self.assertNotIn("json.exception", done.stderr)
        for key, value in (("bases", 3), ("bases", [1]), ("bases", []), ("rows", []), ("threads", "2"), ("rows", {}), ("threads", 0)):
            with self.subTest(key=key, value=value):
                self.write("sweep.json", json.dumps({**result, key: value}))
                done = self.pipit("profile", MODEL, "--runs", 1, "--sweep", "sweep.json", "--output", "r.html", code=RUNTIME)
                self.assert_one_line_error(done, "sweep.json: ", key)
                self.assertNotIn("json.exception", done.stderr)

    def test_one_sweep_at_a_time_writes_a_file(self):
        with open(self.folder / "rows.jsonl", "wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            self.assert_one_line_error(self.pipit(*POINT, "--resume", code=RUNTIME), "rows.jsonl: another sweep is writing it")
        self.assertEqual((self.folder / "rows.jsonl").read_bytes(), b"")
        self.assertEqual(len(self.json(*POINT, "--resume")["rows"]), 1)

    def test_the_usual_grid(self):
        result = self.json("sweep", "conv", "--sample", "1", "--seconds", "0", "--seed", "4")
        self.assertEqual((result["combinations"], result["bases"], len(result["rows"])), (3686, ["fp32"], 1))
        self.assertIn("--all", self.pipit("sweep", "conv", "--in", "64", "--out", "8", code=USAGE).stderr)

    def test_what_does_not_run_is_a_row(self):
        point = ("--n", "1", "--in", "8", "--out", "8", "--size", "12", "--kernel", "3", "--stride", "1", "--seconds", "0")
        rows = self.json("sweep", "conv", *point, "--backend", "auto,reference,depthwise")["rows"]
        self.assertEqual([row["backend"] for row in rows], ["auto", "reference", "depthwise"])
        self.assertEqual(rows[1]["runs"], "reference")
        self.assertIn("not a depthwise convolution", rows[2]["problem"])
        text = self.pipit("sweep", "conv", *point, "--backend", "depthwise", code=UNSUPPORTED).stdout
        self.assertIn("1 layer did not run: depthwise: not a depthwise", text)
        done = self.pipit("sweep", "conv", *point, "--backend", "auto,none-of-that-name", code=USAGE)
        self.assert_one_line_error(done, "--backend", "none-of-that-name")
        huge = ("--n", "16", "--in", "32", "--out", "32", "--size", "3000", "--kernel", "3", "--stride", "1", "--all")
        row, = self.json("sweep", "conv", *huge, code=UNSUPPORTED)["rows"]
        self.assertIn("2^31 elements", row["problem"])

    def test_nothing_counts_twice(self):
        point = ("--n", "1,1", "--in", "8", "--out", "8", "--size", "12", "--kernel", "3", "--stride", "1", "--seconds", "0")
        result = self.json("sweep", "conv", *point, "--precision", "int8,fp16,int8", "--backend", "auto,tile,auto", "--base", "fp32,fp16,fp32")
        self.assertEqual([(row["precision"], row["backend"]) for row in result["rows"]],
                         [(p, b) for p in ("int8", "fp16") for b in ("auto", "tile")])
        self.assertEqual(result["bases"], ["fp32", "fp16"])
        self.assertEqual({summary["layers"] for summary in result["summaries"]}, {1})

    def test_files_do_not_replace_each_other(self):
        (self.folder / "link").symlink_to(self.folder, target_is_directory=True)
        for command in (("conv", "--sample", "1"), ("sparsity", "--layer", LAYER)):
            for first, second in (("--output", "--results"), ("--save-svg", "--output"), ("--save-svg", "--results")):
                done = self.pipit("sweep", *command, first, "a.json", second, "link/a.json", code=USAGE)
                self.assert_one_line_error(done, first, "a.json", second)
                self.assertFalse((self.folder / "a.json").exists())

    def test_another_sweep_says_what_differs(self):
        point = ("--n", "1", "--in", "8", "--out", "8", "--size", "12", "--kernel", "3", "--stride", "1", "--seconds", "0",
                 "--results", "rows.jsonl")
        self.json("sweep", "conv", *point)
        lines = (self.folder / "rows.jsonl").read_text()
        done = self.pipit("sweep", "conv", *point, "--resume", "--base", "fp16,fp32", code=RUNTIME)
        self.assert_one_line_error(done, 'another sweep: "bases" is ["fp32"] there, ["fp16","fp32"] here; name')
        version = json.loads(lines.splitlines()[0])["pipit_sweep_conv"]
        (self.folder / "rows.jsonl").write_text(lines.replace(f'"pipit_sweep_conv":{version}', f'"pipit_sweep_conv":{version - 1}', 1))
        done = self.pipit("sweep", "conv", *point, "--resume", code=RUNTIME)
        self.assert_one_line_error(done, f'another sweep: "pipit_sweep_conv" is {version - 1} there, {version} here; name')

    def test_text_and_usage(self):
        text = self.pipit("sweep", "conv", "--n", "1", "--in", "3", "--out", "8", "--size", "9", "--seconds", "0", "--kernel",
                          "1,3").stdout
        self.assertRegex(text, r"\Aint8 against fp32: 4 layers, [\d.]+ times as fast in the geometric mean \[[\d.]+, [\d.]+\]; "
                               r"\d faster, \d slower, \d not certain\n     9 x 9    at best ")
        self.assertRegex(text, r"(?m)^window 3 +2 +[\d.]+ \[[\d.]+, [\d.]+\]$")
        self.assertRegex(text, r"(?m)^1x3x9x9:8x3x3:s2  \S+ +int8 ")
        for arguments in (("--resume",), ("--n", "0"), ("--kernel", "a"), ("--size", "1,,2"), ("--precision", "fp8"),
                          ("--base", "w4"), ("--base", "cudnn"), ("--base", "fp32,cudnn-best"), ("--seconds", "-1"), ("--sample", "-1")):
            self.assertIn(arguments[0], self.pipit("sweep", "conv", *arguments, code=USAGE).stderr)


if __name__ == "__main__":
    main()
