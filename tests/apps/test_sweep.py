"""pipit sweep sparsity."""

import csv
import json
import os
import signal
import subprocess
import time

from command import MODEL, PIPIT, RUNTIME, USAGE, CommandTest, main

LAYER = "1x16x9x9:24x3x3"
SMALL = ("--layer", LAYER, "--keep", "1,0.5,0.25")
MODES = ("k", "k-panel", "channel", "block", "input")


def by_key(rows):
    return {(row["precision"], row["mode"], row["keep"]): row for row in rows}


class SweepSparsity(CommandTest):
    def test_every_mode_and_precision(self):
        result = self.json("sweep", "sparsity", *SMALL, "--seconds", "0", "--precision", "fp32,fp16,int8", "--block", "8",
                           "--csv", "s.csv", "--save-svg", "s.svg")
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
                self.assertEqual("refit" in row, mode in ("k", "k-panel", "input"))
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
        self.assertIn("output", svg)

    def test_goes_on_after_a_kill(self):
        arguments = ["sweep", "sparsity", *SMALL, "--seconds", "0.05", "--results", "rows.jsonl"]
        path = self.folder / "rows.jsonl"
        with subprocess.Popen([PIPIT, *arguments], cwd=self.folder, stdout=subprocess.DEVNULL) as process:
            until = time.monotonic() + 60
            while time.monotonic() < until and not (path.exists() and path.read_bytes().count(b"\n") >= 4):
                time.sleep(0.005)
            os.kill(process.pid, signal.SIGKILL)
        before = path.read_bytes()
        whole = before[:before.rfind(b"\n") + 1]
        self.assertGreaterEqual(whole.count(b"\n"), 4)
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
        other = self.pipit(*arguments, "--resume", "--panel", "32", code=RUNTIME)
        self.assert_one_line_error(other, "rows.jsonl", "another sweep")
        self.assertEqual(path.read_bytes(), after)
        path.write_bytes(after + b"[1]\n")
        self.assert_one_line_error(self.pipit(*arguments, "--resume", code=RUNTIME), f"line {len(lines) + 1}")

    def test_layers_of_a_model(self):
        result = self.json("sweep", "sparsity", MODEL, "--mode", "k-panel", "--keep", "0.5", "--seconds", "0",
                           "--importance", "l2", "--no-refit")
        rows = result["rows"]
        self.assertEqual(len({row["layer"] for row in rows}), len(rows))
        self.assertGreaterEqual(len(rows), 18)
        for row in rows:
            self.assertAlmostEqual(row["kept"], 0.5, delta=0.01)
            self.assertNotIn("refit", row)

    def test_text(self):
        text = self.pipit("sweep", "sparsity", "--layer", LAYER, "--mode", "k", "--keep", "1,0.5", "--seconds", "0").stdout
        self.assertRegex(text, rf"(?m)^{LAYER}  fp32 +k +0\.50 ")
        self.assertEqual(len(text.splitlines()), 3)

    def test_usage(self):
        for spec in ("1x16x9x9", "1x16x9:24x3x3", "1x16x9x9:24x3x3:q2", "1x16x9x9:24x3x3:s0", "1x16x9x9:24x3x3:",
                     "0x16x9x9:24x3x3", "99999x99999x99x99:24x3x3"):
            self.assert_one_line_error(self.pipit("sweep", "sparsity", "--layer", spec, code=USAGE), "--layer", spec)
        for arguments in (("--resume",), ("--keep", "0.01"), ("--keep", "2"), ("--mode", "rows"), ("--panel", "7"),
                          (MODEL, "--layer", LAYER)):
            self.assert_one_line_error(self.pipit("sweep", "sparsity", *arguments, code=USAGE), arguments[0]
                                       if arguments[0] != MODEL else "--layer")
        self.assert_one_line_error(self.pipit("sweep", code=USAGE), "subcommand")
        for option in ("--json", "--threads", "--device", "--precision", "Examples"):
            self.assertIn(option, self.pipit("sweep", "sparsity", "--help").stdout)


if __name__ == "__main__":
    main()
