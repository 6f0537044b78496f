"""pipit bench."""

import itertools
import json
import os
import statistics
import unittest

import onnx_model
from command import MODEL, RUNTIME, UNSUPPORTED, USAGE, CommandTest, main

SHORT = ("--runs", "3", "--seconds", "0.2", "--quiet")


class Bench(CommandTest):
    def test_every_combination_has_a_row(self):
        model = self.write("flatten.onnx", onnx_model.flatten())
        result = self.json("bench", MODEL, model, "--batch", "2,1", "--threads", "1", "--threads", "2", *SHORT)
        keys = [(row["model"], row["batch"], row["threads"]) for row in result["results"]]
        self.assertEqual(keys, list(itertools.product((MODEL, str(model)), (2, 1), (1, 2))))
        for row in result["results"]:
            self.assertEqual((row["precision"], row["device"]), ("fp32", "cpu"))
            self.assertGreater(row["median_ms"], 0)
            self.assertLessEqual(row["median_ms"], row["p90_ms"])
            self.assertLessEqual(row["p90_ms"], row["p99_ms"])
            self.assertGreaterEqual(row["cv"], 0)
            self.assertIn(row["runs"], (1, 2, 3))
            self.assertAlmostEqual(row["images_per_s"], 1e3 * row["batch"] / row["median_ms"],
                                   delta=1e-6 * row["images_per_s"])
            self.assertGreater(row["load_ms"], 0)
            self.assertGreater(row["first_run_ms"], 0)
            self.assertGreater(row["peak_rss_bytes"], row["arena_bytes"])

    def test_a_plan_is_for_the_int8_rows(self):
        self.write_bmp("images/0.bmp", (1, 2, 3))
        self.pipit("calibrate", MODEL, "images", "--output", "plan.json", "--quiet")
        rows = self.json("bench", MODEL, "--precision", "fp32,int8", "--plan", "plan.json", *SHORT)["results"]
        self.assertEqual([row["precision"] for row in rows], ["fp32", "int8"])
        for arguments in (("--plan", "plan.json"), ("--precision", "fp32,int8")):
            self.assert_one_line_error(self.pipit("bench", MODEL, *arguments, code=USAGE), "--plan")

    def test_runs_alone_are_exact(self):
        row, = self.json("bench", MODEL, "--runs", "7", "--quiet")["results"]
        self.assertEqual(row["runs"], 7)

    def test_the_time_box_ends_the_runs(self):
        row, = self.json("bench", MODEL, "--seconds", "0.5", "--runs", "1000000", "--quiet")["results"]
        self.assertGreaterEqual(row["runs"], 1)
        self.assertLess(row["runs"], 1000000)
        self.assertLess(row["median_ms"] * row["runs"] / 2, 500 + 2 * row["p99_ms"])

    def test_a_model_that_fixes_its_batch(self):
        model = self.write("fixed.onnx", onnx_model.flatten((3, 3, 2, 2)))
        result = self.json("bench", model, *SHORT)
        self.assertEqual(result["results"][0]["batch"], 3)

    @unittest.skipIf(os.environ.get("PIPIT_SANITIZE"), "sanitizers keep freed memory")
    def test_peak_memory_is_of_the_row(self):
        # The second row needs far less than the first; a peak of the whole process could not fall.
        rows = self.json("bench", "resnet50", MODEL, "--runs", "1", "--quiet", "--threads", "1")["results"]
        if rows[1]["peak_rss_bytes"] >= rows[0]["peak_rss_bytes"]:
            try:
                with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
                    file.write("5")
            except OSError:
                self.skipTest("/proc/self/clear_refs cannot be written")
        self.assertLess(rows[1]["peak_rss_bytes"], rows[0]["peak_rss_bytes"] / 2)

    def test_peak(self):
        self.keep_ceilings(gflops=500, gb_per_s=10, threads=1)
        kept, = self.json("bench", MODEL, "--threads", "1", "--peak", *SHORT)["peaks"]
        self.assertEqual([round(kept[key], 6) for key in ("threads", "fp32_gflops", "read_gb_per_s")], [1, 500, 10])
        result = self.json("bench", MODEL, "--threads", "2,1,2", "--peak", *SHORT)
        self.assertEqual([peak["threads"] for peak in result["peaks"]], [1, 2])
        for peak in result["peaks"]:
            self.assertGreater(peak["fp32_gflops"], 1)
            self.assertGreater(peak["read_gb_per_s"], 0.1)
        text = self.pipit("bench", MODEL, "--threads", "1", "--peak", *SHORT).stdout
        self.assertRegex(text, r"(?m)^peak of 1 thread: [\d.]+ GFLOP/s in fp32, reading [\d.]+ GB/s$")

    def test_text(self):
        text = self.pipit("bench", MODEL, *SHORT).stdout
        title, row = text.splitlines()
        for word in ("model", "batch", "threads", "median ms", "p90", "p99", "cv", "images/s"):
            self.assertIn(word, title)
        self.assertRegex(row, rf"^{MODEL} +fp32 +1 +\d+ +\d+ +[\d.]+ ")


class Streams(CommandTest):
    def test_throughput_is_of_all_streams(self):
        options = ("--batch", "2", "--runs", "8", "--quiet")
        shares = self.json("bench", MODEL, "--threads", "3,2,1", *options)["results"]
        result = self.json("bench", MODEL, "--threads", "3", "--streams", "1,2,3", *options)
        self.assertEqual([row["streams"] for row in result["results"]], [1, 2, 3])
        for row, share in zip(result["results"], shares):
            streams, times = row["streams"], row["samples_ms"]
            self.assertEqual(len(times), 8 * streams)  # turn by turn, in each a run of every stream
            turns = [2e3 * sum(1 / ms for ms in times[i:i + streams]) for i in range(0, len(times), streams)]
            self.assertAlmostEqual(row["images_per_s"] / statistics.median(turns), 1, delta=0.2)
            self.assertTrue(min(turns) * 0.999 <= row["images_per_s_p10"] <= row["images_per_s"] <= row["images_per_s_p90"]
                            <= max(turns) * 1.001, row)
            self.assertEqual(row["arena_bytes"], streams * share["arena_bytes"])
        for comparison, row in zip(result["comparisons"], result["results"][1:]):
            self.assertEqual(comparison["what"], "time over runs")
            self.assertTrue(comparison["second"].endswith(f"batch 2, 3 threads, {row['streams']} streams"), comparison)
            self.assertAlmostEqual(comparison["second_ms"] * row["images_per_s"], 2e3, delta=1)
        self.assertNotIn("streams", self.json("bench", MODEL, *SHORT)["results"][0])

    def test_turns_end_after_the_time(self):
        row, = self.json("bench", MODEL, "--streams", "2", "--threads", "2", "--seconds", "0.5", "--quiet")["results"]
        self.assertGreaterEqual(row["runs"], 2)
        # Beside other work turns have gaps, and no turn has more than its streams can have run.
        self.assertTrue(0 < row["images_per_s"] <= 1.01 * 2e3 / min(row["samples_ms"]), row["images_per_s"])

    def test_each_needs_a_thread(self):
        done = self.pipit("bench", MODEL, "--streams", "1,3", "--threads", "2", *SHORT, "--json", code=RUNTIME)
        rows = json.loads(done.stdout)["results"]
        self.assertIn("3 streams and 2 threads", rows[1]["error"])
        self.assertIn("--threads 3", rows[1]["error"])
        self.assertIn("images_per_s_p10", rows[0])

    def test_text(self):
        text = self.pipit("bench", MODEL, "--streams", "1,2", "--threads", "2", "--runs", "4", "--quiet").stdout.splitlines()
        self.assertRegex(text[0], r"threads +streams +runs +median ms +p90 +p99 +cv +images/s +p10 to p90 ")
        self.assertRegex(text[2], rf"^{MODEL} +fp32 +1 +2 +2 +8 .*%  +[\d.]+ +[\d.]+ to [\d.]+ ")
        self.assertRegex(text[-1], r"^time over runs  [\d.]+ -> [\d.]+ ms: ")

    def test_compare_pairs_them_apart(self):
        document = self.pipit("bench", MODEL, "--streams", "1,2", "--threads", "2", "--runs", "4", "--quiet", "--json").stdout
        path = self.write("a.json", document * 3)
        pairs = self.json("compare", path, path)["comparisons"]
        self.assertEqual([(pair["second"], pair["ratio"], pair["repeats"]) for pair in pairs],
                         [(f"{MODEL}, fp32, batch 1, 2 threads{more}", 1, 3) for more in ("", ", 2 streams")])


class Failures(CommandTest):
    def test_do_not_lose_the_other_rows(self):
        fixed = self.write("fixed.onnx", onnx_model.flatten((3, 3, 2, 2)))
        done = self.pipit("bench", "missing.onnx", MODEL, fixed, "--batch", "1,3", "--json", *SHORT, code=RUNTIME)
        rows = json.loads(done.stdout)["results"]
        self.assertEqual(["error" in row for row in rows], [True, True, False, False, True, False])
        self.assertIn("missing.onnx", rows[0]["error"])
        self.assertIn("fixes the batch at 3", rows[4]["error"])
        for row in rows:
            self.assertNotEqual("error" in row, "median_ms" in row)
        self.assertEqual(len([line for line in done.stderr.splitlines() if line.startswith("pipit: ")]), 3)

    def test_unsupported_only_is_its_own_exit_code(self):
        model = self.write("odd.onnx", onnx_model.model((1, 3, 2, 2), [onnx_model.node("NoSuchOperator", ["x"], "y")]))
        done = self.pipit("bench", model, MODEL, *SHORT, code=UNSUPPORTED)
        self.assertIn("NoSuchOperator", done.stdout)  # the row tells
        self.assertRegex(done.stdout, rf"(?m)^{MODEL} +fp32 +1 ")
        self.pipit("bench", model, "missing.onnx", *SHORT, code=RUNTIME)

    def test_usage(self):
        for arguments, names in ((("--batch", "1,0"), "--batch"), (("--threads", "1,x"), "--threads"),
                                 (("--precision", "fp32,fp8"), "--precision"), (("--seconds", "nan"), "--seconds"),
                                 (("--seconds", "-1"), "--seconds"), (("--runs", "0"), "--runs"),
                                 (("--dim", "N"), "--dim"), (("--streams", "1,0"), "--streams")):
            with self.subTest(arguments):
                done = self.pipit("bench", MODEL, *arguments, code=USAGE)
                self.assertEqual(done.stdout, "")
                self.assert_one_line_error(done, names)


if __name__ == "__main__":
    main()
