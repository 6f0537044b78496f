"""pipit compare, and what bench says of things that ran in turns."""

import csv
import json
import lzma
import math
import pathlib
import random
import re
import subprocess

import onnx_model
from command import CHECK_FAILED, MODEL, OK, PIPIT, RUNTIME, USAGE, CommandTest, main


class Data(CommandTest):
    def setUp(self):
        super().setUp()
        self.random = random.Random(1)

    def times(self, ms, runs=200):
        """Of a quiet machine: 2 % of spread to the slower side, and a run in fifty interrupted."""
        return [ms * (1 + self.random.expovariate(50) + 0.5 * (self.random.random() < 0.02)) for _ in range(runs)]

    def bench(self, ms=7, runs=200, **more):
        row = {"model": "m", "device": "cpu", "precision": "fp32", "batch": 1, "threads": 2,
               "samples_ms": self.times(ms, runs), **more}
        return {"pipit": "0", "command": "bench", "schema": 1, "machine": "a CPU", "results": [row]}

    def profile(self, layers, runs=200):
        """layers: a list of (nodes, ms)."""
        entries = [{"name": nodes[0], "type": "Conv", "nodes": nodes, "samples_ms": self.times(ms, runs)}
                   for nodes, ms in layers]
        sums = [sum(all_of) for all_of in zip(*(entry["samples_ms"] for entry in entries))]
        return {"pipit": "0", "command": "profile", "schema": 1, "machine": "a CPU", "model": "m", "device": "cpu",
                "precision": "fp32", "batch": 1, "threads": 2, "samples_ms": sums, "layers": entries}

    def save(self, name, *documents):
        return self.write(name, "\n".join(json.dumps(document, indent=1) for document in documents) + "\n")

    def processes(self, make, ms=7, count=5, spread=0.004):
        """What `make` says of processes that differ by up to `spread`."""
        return [make(ms * (1 + spread * self.random.uniform(-1, 1))) for _ in range(count)]


class Compare(Data):
    def compare(self, a, b, *arguments, code=OK):
        comparison, = self.json("compare", a, b, *arguments, code=code)["comparisons"]
        return comparison

    def test_the_same_is_no_difference(self):
        tries = 20
        same = 0
        for _ in range(tries):
            a, b = (self.save(name, *self.processes(self.bench)) for name in ("a.json", "b.json"))
            same += self.compare(a, b)["verdict"] == "no difference"
        self.assertGreaterEqual(same, tries - 2)

    def test_three_percent_are_found(self):
        a = self.save("a.json", *self.processes(self.bench))
        b = self.save("b.json", *self.processes(self.bench, 7 * 1.03))
        slower = self.compare(a, b)
        self.assertEqual(slower["verdict"], "slower")
        self.assertAlmostEqual(slower["ratio"], 1.03, delta=0.01)
        low, high = slower["interval95"]
        self.assertTrue(1.01 < low < slower["ratio"] < high < 1.05, (low, high))
        self.assertEqual((slower["repeats"], slower["repeats_are"], slower["margin"]), (5, "processes", 0))
        self.assertEqual(self.compare(b, a)["verdict"], "faster")
        self.compare(a, b, "--fail-above", "1", code=CHECK_FAILED)
        self.compare(a, b, "--fail-above", "10")
        self.compare(b, a, "--fail-above", "0")
        text = self.pipit("compare", a, b).stdout
        self.assertRegex(text, r"\Am, fp32, batch 1, 2 threads\nwhole run  7\.\d+ -> 7\.\d+ ms: 1\.0\d\d "
                               r"\[1\.0\d\d, 1\.0\d\d\], slower\n\Z")

    def test_what_would_be_shown(self):
        a, b = (self.save(name, *self.processes(self.bench, spread=0.1)) for name in ("a.json", "b.json"))
        self.assertRegex(self.pipit("compare", a, b).stdout,
                         r"no difference that this data can show \(\d+\.\d % or more it would; 3 % after about \d+ "
                         r"processes of each\)")

    def test_one_process_is_no_verdict(self):
        # Twice the time, with a thousand runs: what made it so may be another process on the machine.
        for count in (1, 2):
            a = self.save("a.json", *self.processes(self.bench, 7, count))
            b = self.save("it's b.json", *self.processes(self.bench, 14))
            found = self.compare(a, b, "--quiet")
            self.assertEqual((found["verdict"], found["interval95"], found["repeats"], found["repeats_are"]),
                             ("too few processes", None, count, "processes"))
            self.assertAlmostEqual(found["ratio"], 2, delta=0.05)
            self.compare(a, b, "--fail-above", "10", code=CHECK_FAILED)
            done = self.pipit_with_notes("compare", a, b)
            self.assertRegex(done.stdout, r"ms: \d\.\d+, too few processes to tell\n$")
            self.assertIn(f"  for i in{' 1 2 3'[:2 * (3 - count)]}; do pipit bench m --threads 2 --json >> {a}; pipit bench m "
                          f"--threads 2 --json >> '{str(b).replace(chr(39), chr(39) + chr(92) + chr(39) * 2)}'; done\n", done.stderr)

    def test_the_command_that_a_note_names(self):
        options = ("--precision", "int8-dynamic", "--batch", "2", "--threads", "1", "--runs", "3")
        for name in ("a.json", "b.json"):
            self.write(name, self.pipit("bench", MODEL, *options, "--quiet", "--json").stdout)
        note = self.pipit_with_notes("compare", "a.json", "b.json").stderr
        loop = re.search(r"(?m)^ *(for i in .*; done)$", note).group(1)
        self.assertIn("--precision int8-dynamic --batch 2 --threads 1", loop)
        subprocess.run(["bash", "-eu", "-c", f"pipit() {{ {PIPIT} \"$@\" --runs 3 --quiet; }}; {loop}"], cwd=self.folder,
                       check=True)
        done = self.pipit("compare", "a.json", "b.json")
        self.assertRegex(done.stdout, r"ms: \d\.\d+ \[")
        self.assertEqual(done.stderr, "")

    def test_the_command_that_measures_again_has_all_settings(self):
        rows = [{**self.bench()["results"][0], "precision": precision, "batch": batch, "model": model}
                for model in ("m", "other one") for precision in ("fp32", "int8") for batch in (1, 8)]
        a = self.save("a.json", {**self.bench(), "results": rows})
        done = self.pipit_with_notes("compare", a, a)
        self.assertIn(f"do pipit bench m 'other one' --precision fp32,int8 --batch 1,8 --threads 2 --json >> {a};", done.stderr)

    def test_processes_that_differ(self):
        # Each process is up to 4 % slower or faster: within one that cannot be seen.
        a = self.save("a.json", *self.processes(self.bench, 7, 6, 0.04))
        b = self.save("b.json", *self.processes(self.bench, 7 * 1.3, 6, 0.04))
        comparison = self.compare(a, b)
        self.assertEqual(comparison["verdict"], "slower")
        self.assertGreater(comparison["interval95"][1] / comparison["interval95"][0], 1.02)

    def test_layers_are_matched_by_their_nodes(self):
        first = [(["stem"], 2), (["expand"], 1), (["depthwise"], 1), (["head"], 3)]
        second = [(["stem"], 2), (["expand", "depthwise"], 1.5), (["cast"], 0.1), (["head"], 3.5)]
        files = []
        for name, layers in (("a.json", first), ("b.json", second)):
            self.random.seed(1)  # the same noise on both sides: what differs are the layers
            files.append(self.save(name, *self.processes(lambda x, own=layers: self.profile([(nodes, ms * x) for nodes, ms in own]), 1)))
        a, b = files
        layers = self.compare(a, b)["layers"]
        self.assertEqual([layer["name"] for layer in layers], ["stem", "expand", "cast", "head"])
        self.assertEqual([layer.get("verdict") for layer in layers], ["no difference", "faster", None, "slower"])
        self.assertAlmostEqual(layers[1]["ratio"], 0.75, delta=0.02)
        self.assertEqual(layers[2]["first_ms"], 0)
        text = self.pipit("compare", a, b).stdout
        self.assertRegex(text, r"(?m)^expand +Conv +2\.\d+ +1\.5\d+ +0\.7\d+ +\[0\.\d+, 0\.\d+\] +faster$")
        self.assertRegex(text, r"(?m)^cast +Conv +0\.1\d+$")

    def test_rows_of_both_files(self):
        def rows(*batches):
            result = self.bench()
            result["results"] = [dict(result["results"][0], batch=batch) for batch in batches]
            return result

        result = self.pipit_with_notes("compare", self.save("a.json", rows(1, 2, 4)), self.save("b.json", rows(2, 4, 8)),
                                       "--json")
        first = [comparison["first"] for comparison in json.loads(result.stdout)["comparisons"]]
        self.assertEqual(first, ["m, fp32, batch 2, 2 threads", "m, fp32, batch 4, 2 threads"])
        self.assertIn("have no counterpart", result.stderr)
        # One result each is compared whatever it is.
        other = self.save("b.json", self.bench(precision="int8", batch=8))
        self.assertEqual(self.compare(self.save("a.json", self.bench()), other, "--quiet")["second"], "m, int8, batch 8, 2 threads")
        done = self.pipit("compare", self.save("a.json", rows(1, 2)), other, code=RUNTIME)
        self.assert_one_line_error(done, "a.json", "b.json", "in common")

    def test_a_profile_with_itself(self):
        one = self.pipit("profile", MODEL, "--runs", "8", "--json").stdout
        path = self.write("a.json", one * 3)
        comparison = self.compare(path, path)
        self.assertEqual((comparison["ratio"], comparison["verdict"]), (1, "no difference"))
        self.assertEqual(len(comparison["layers"]), len(json.loads(one)["layers"]))
        path = self.write("b.json", self.pipit("bench", MODEL, "--runs", "8", "--quiet", "--json").stdout * 3)
        self.assertEqual(self.compare(path, path)["ratio"], 1)

    def test_other_machines_are_noted(self):
        a, b = self.save("a.json", self.bench()), self.save("b.json", dict(self.bench(), machine="another"))
        self.assertIn("another", self.pipit_with_notes("compare", a, b).stderr)
        self.assertEqual(self.pipit("compare", a, b, "--quiet").stderr, "")

    def test_what_is_no_such_file(self):
        good = self.save("a.json", self.bench())
        row = self.bench()["results"][0]
        for document, words in ((dict(self.bench(), schema=2), ("schema", "2")),
                                (dict(self.bench(), command="inspect"), ("pipit inspect",)),
                                (dict(self.bench(), results=[dict(row, error="no")]), ("error",)),
                                (dict(self.bench(), results=[dict(row, samples_ms=[])]), ("samples_ms",)),
                                (dict(self.bench(), results=[dict(row, samples_ms=[1, -1])]), ("-1",)),
                                (dict(self.bench(), results=[dict(row, samples_ms=[0, 1])]), ("positive",)),
                                (dict(self.bench(), results=[dict(row, samples_ms=7)]), ("samples_ms",)),
                                (dict(self.bench(), results=[dict(row, batch=-1)]), ("batch",)),
                                (dict(self.bench(), results=[3]), ("model",)), (dict(self.bench(), results=3), ("results",)),
                                ({}, ("command",)), ([], ("command",)), (7, ("command",))):
            with self.subTest(document):
                done = self.pipit("compare", good, self.save("b.json", document), code=RUNTIME)
                self.assert_one_line_error(done, *words)
        for text in ("", "{", json.dumps(self.bench())[:-3], json.dumps(self.bench()) + "}", "{" * 100000):
            done = self.pipit("compare", good, self.write("b.json", text), code=RUNTIME)
            self.assert_one_line_error(done, "b.json")
        self.assert_one_line_error(self.pipit("compare", good, "missing.json", code=RUNTIME), "missing.json")
        self.assert_one_line_error(self.pipit("compare", good, code=USAGE), "B")


class Recorded(Data):
    """100 tries on two virtual cores that other machines share, kept as free as could be: in each, five processes of a
    build (a), of the same build (b), and of one that was made to take 3 % longer (c), in turns, 20 runs of ResNet-20 with
    a batch of four in each; a line for each process, in microseconds."""

    def setUp(self):
        super().setUp()
        with lzma.open(pathlib.Path(__file__).parent / "recorded_times.txt.xz", "rt") as file:
            lines = file.read().splitlines()
        self.tries = []
        for i in range(0, len(lines), 15):
            self.tries.append({side: [] for side in "abc"})
            for line in lines[i:i + 15]:
                side, *times = line.split()
                self.tries[-1][side].append([int(time) / 1000 for time in times])

    def verdict(self, tries, first, second, processes=5):
        files = []
        for name, side in (("a.json", first), ("b.json", second)):
            row = self.bench()["results"][0]
            files.append(self.save(name, *(dict(self.bench(), results=[dict(row, samples_ms=times)])
                                           for one in tries for times in one[side][:processes])))
        comparison, = self.json("compare", *files, "--quiet")["comparisons"]
        self.assertEqual((comparison["repeats"], comparison["repeats_are"]), (processes * len(tries), "processes"))
        return comparison["verdict"]

    def test_a_build_with_itself(self):
        self.assertEqual(len(self.tries), 100)
        for processes in (3, 5):
            verdicts = [self.verdict([one], "a", "b", processes) for one in self.tries]
            self.assertGreaterEqual(verdicts.count("no difference"), 95, processes)
        # Single processes of it take 0.6 to 1.7 times as long as each other: nothing may be said of them.
        self.assertEqual({self.verdict([one], "a", "b", 1) for one in self.tries}, {"too few processes"})

    def test_three_percent(self):
        # Cores came and went while this was recorded: processes of one build differ by up to 80 %, and 5 of each seldom
        # show 3 %. They never show the contrary, and 100 of each nearly always show it.
        self.assertLessEqual([self.verdict([one], "a", "c") for one in self.tries].count("faster"), 2)
        groups = [self.tries[i:i + 20] for i in range(0, 100, 20)]
        self.assertGreaterEqual([self.verdict(group, "a", "c") for group in groups].count("slower"), 4)
        self.assertEqual([self.verdict(group, "a", "b") for group in groups].count("no difference"), 5)


class Sweeps(Data):
    POINTS = [{"n": n, "in": 3, "out": 8, "size": size, "kernel": 3, "stride": 1, "precision": "int8", "backend": "auto"}
              for n in (1, 4, 8, 16) for size in (32, 33, 34, 35, 36, 37, 38, 39)]

    def row(self, point, ms, **more):
        times = self.times(ms, 60)
        return {**point, "runs": "tile", "ms": ms, "ms_quartiles": [min(ms, *times), max(ms, *times)], "turns": 600, "samples_ms": times,
                "against": [], "mae": 0, "max_error": 0, "relative_l2": 0, "macs": 1, "bytes": 1, "arena_bytes": 1, **more}

    def sweep(self, slowdown=lambda i: 1, points=None):
        settings = {"pipit_sweep_conv": 3, "device": "a CPU", "threads": 2, "base": "fp32"}
        return [settings] + [self.row(point, 0.1 * (i + 1) * slowdown(i)) for i, point in enumerate(points or self.POINTS)]

    def sweeps(self, slowdown=lambda i: 1, count=5, **more):
        """Of processes that differ by up to 0.4 %."""
        own = [1 + 0.004 * self.random.uniform(-1, 1) for _ in range(count)]
        return [self.sweep(lambda i, own=one: own * slowdown(i), **more) for one in own]

    def lines(self, name, *sweeps):
        return self.write(name, "".join(json.dumps(line) + "\n" for sweep in sweeps for line in sweep))

    def compare(self, a, b, *arguments, code=OK):
        comparison, = self.json("compare", a, b, *arguments, "--quiet", code=code)["comparisons"]
        return comparison

    def test_the_same_is_no_difference(self):
        rows = whole = 0
        for _ in range(20):
            found = self.compare(self.lines("a", *self.sweeps()), self.lines("b", *self.sweeps()))
            rows += all(layer["verdict"] == "no difference" for layer in found["layers"])
            whole += found["verdict"] == "no difference"
        self.assertGreaterEqual(rows, 18)
        self.assertGreaterEqual(whole, 18)

    def test_what_became_slower(self):
        # Every fourth row by a fifth: 1.047 in the geometric mean.
        a, b = self.lines("a", *self.sweeps()), self.lines("b", *self.sweeps(lambda i: 1 if i % 4 else 1.2))
        found = self.compare(a, b)
        self.assertEqual([layer["verdict"] == "slower" for layer in found["layers"]], [i % 4 == 0 for i in range(32)])
        self.assertEqual((found["what"], found["verdict"], found["repeats"], found["repeats_are"]),
                         ("geometric mean", "slower", 5, "processes"))
        logs = [math.log(layer["ratio"]) for layer in found["layers"]]
        self.assertAlmostEqual(math.log(found["ratio"]), sum(logs) / 32, delta=0.003)
        self.assertAlmostEqual(found["ratio"], 1.2 ** 0.25, delta=0.01)
        self.assertEqual((found["layers"][0]["name"], found["layers"][0]["type"], found["layers"][0]["repeats"]),
                         ("1x3x32x32:8x3x3", "int8", 5))
        self.compare(a, b, "--fail-above", "3", code=CHECK_FAILED)
        self.compare(a, b, "--fail-above", "10")
        self.compare(b, a, "--fail-above", "0")
        text = self.pipit("compare", a, b).stdout.splitlines()
        self.assertEqual(text[0], "sweep conv, 32 rows, 2 threads")
        self.assertRegex(text[2], r"^\S+ +int8 +\d.\d+ +\d.\d+ +1\.2\d\d +\[1\.\d+, 1\.\d+\] +slower$")
        self.assertEqual(len([line for line in text if "slower" in line]), 8 + 2)
        self.assertEqual(text[12], "... and 12 rows between")
        self.assertEqual(text[-2], "32 rows on both sides: 8 slower, 0 faster, 24 no difference that this data can show")
        self.assertRegex(text[-1], r"^geometric mean  [\d.]+ -> [\d.]+ ms: 1\.04\d \[1\.0\d\d, 1\.0\d\d\], slower$")
        self.pipit("compare", a, b, "--output", "c.csv")
        with open(self.folder / "c.csv", newline="", encoding="utf-8") as file:
            whole, *layers = csv.DictReader(file)
        self.assertEqual((whole["row"], float(whole["ratio"])), ("geometric mean", found["ratio"]))
        self.assertEqual([float(row["ratio_high"]) for row in layers], [row["interval95"][1] for row in found["layers"]])

    def test_the_ratio_is_that_of_the_times_that_are_shown(self):
        # In two of four processes a row takes half as long; beside others the geometric mean hardly moves.
        def processes(fast):
            return [self.sweep(lambda i, p=p: 0.5 if i == 0 and p < fast else 1, points=self.POINTS[:4]) for p in range(4)]

        found = self.compare(self.lines("a", *processes(2)), self.lines("b", *processes(1)))
        self.assertAlmostEqual(found["second_ms"] / found["first_ms"], found["ratio"], delta=0.01)

    def test_rows_without_counterpart(self):
        first, second = self.sweep(points=self.POINTS[:12]), self.sweep(points=self.POINTS[2:14])
        second[5] = {**self.POINTS[6], "problem": "out of memory"}
        done = self.pipit_with_notes("compare", self.lines("a", first), self.lines("b", second), "--json")
        self.assertIn("3 of 12 rows of", done.stderr)
        comparison, = json.loads(done.stdout)["comparisons"]
        self.assertEqual((comparison["repeats"], len(comparison["layers"])), (1, 14))
        self.assertEqual([(row["first_ms"] > 0, row["second_ms"] > 0) for row in comparison["layers"][9:]],
                         [(True, False)] * 3 + [(False, True)] * 2)
        done = self.pipit("compare", "a", self.lines("b", self.sweep(points=self.POINTS[20:])), code=RUNTIME)
        self.assert_one_line_error(done, "no configuration")

    def test_one_process_is_no_verdict(self):
        a, b = self.lines("a", *self.sweeps()), self.lines("b.jsonl", self.sweep(lambda i: 2))
        found = self.compare(a, b)
        self.assertEqual({one["verdict"] for one in (found, *found["layers"])}, {"too few processes"})
        self.assertAlmostEqual(found["ratio"], 2, delta=0.02)
        self.compare(a, b, "--fail-above", "10", code=CHECK_FAILED)
        done = self.pipit_with_notes("compare", a, b)
        self.assertIn(f"  for i in 1 2; do pipit sweep conv --json >> {a}; pipit sweep conv --json >> {b}; done", done.stderr)
        done = self.pipit_with_notes("compare", a, self.write("b.csv", pathlib.Path(b).read_text()))
        self.assertIn(f"for i in 1 2 3; do pipit sweep conv --json >> {a}; pipit sweep conv --json >> {self.folder}/b.csv.json; done",
                      done.stderr)
        self.assertEqual(done.stdout.splitlines()[-2], "32 rows on both sides, 32 with too few processes to tell")

    def test_tables_of_profiles_are_not_read(self):
        self.write("p.csv", "model,node\nm,n\n")
        self.save("p.json", self.profile([(["n"], 1)]))
        self.assert_one_line_error(self.pipit("compare", "p.csv", "p.json", code=RUNTIME), "p.csv", "--output FILE.json")

    def test_what_sweeps_write(self):
        grid = ("sweep", "conv", "--n", "1", "--in", "3", "--out", "8", "--size", "8,9", "--stride", "1", "--kernel", "1,3,5,7",
                "--seconds", "0.01")
        (self.folder / "a.json").write_text(self.pipit(*grid, "--results", "a.jsonl", "--output", "a.csv", "--json").stdout)
        for one in ("a.jsonl", "a.csv", "a.json"):
            found = self.compare(one, "a.json")
            self.assertEqual((found["ratio"], len(found["layers"])), (1, 8))
        # JSON of further processes is appended to any of them but CSV.
        for name in ("a.jsonl", "a.json"):
            with open(self.folder / name, "a", encoding="utf-8") as file:
                file.writelines(self.pipit(*grid, "--json").stdout for _ in range(2))
        found = self.compare("a.jsonl", "a.jsonl")
        self.assertEqual((found["ratio"], found["verdict"], found["repeats"]), (1, "no difference", 3))
        self.compare("a.jsonl", "a.json")
        pruned = ("sweep", "sparsity", "--layer", "1x16x9x9:24x3x3", "--keep-ratio", "1,0.5", "--mode", "k", "--seconds", "0.01")
        self.pipit(*pruned, "--results", "s.jsonl", "--output", "s.csv")
        found = self.compare("s.jsonl", "s.csv")
        self.assertEqual([(row["type"], row["ratio"]) for row in found["layers"]], [("fp32, dense", 1), ("fp32, k, keep 0.5", 1)])
        self.assert_one_line_error(self.pipit("compare", "s.jsonl", "a.csv", code=RUNTIME), "sweep sparsity", "sweep conv")
        self.assert_one_line_error(self.pipit("compare", "a.csv", self.save("p.json", self.profile([(["x"], 1)])), code=RUNTIME),
                                   "a.csv", "p.json")

    def test_other_machines_are_noted(self):
        other = self.sweep()
        other[0] = {**other[0], "threads": 1}
        self.assertIn("1 thread", self.pipit_with_notes("compare", self.lines("a", self.sweep()), self.lines("b", other)).stderr)
        self.assert_one_line_error(self.pipit("compare", "a", self.lines("b", self.sweep(), other), code=RUNTIME), "b", "1")

    def test_what_is_no_such_file(self):
        good = self.lines("a", self.sweep())
        settings, row = self.sweep()[:2]
        for lines, words in (([{**settings, "pipit_sweep_conv": 1}, row], ("form", "1")), ([settings], ("no row",)),
                             ([settings, {**row, "samples_ms": []}], ("samples_ms",)),
                             ([settings, {**row, "samples_ms": [0]}], ("positive",)), ([settings, {**row, "n": "x"}], ('"n"',)),
                             ([settings, [1]], ('"n"',)), ([{"pipit_sweep_conv": 3}], ("device",))):
            with self.subTest(lines):
                self.assert_one_line_error(self.pipit("compare", good, self.lines("b", lines), code=RUNTIME), *words)
        titles = "device,threads,n,in,out,size,kernel,stride,precision,backend,ms,ms_low,ms_high,turns,samples_ms"
        for text, word in ((titles, "no row"), (titles + "\na,2,1", "3 cells"), (titles + "\na,2,1,1,1,1,1,1,int8,auto,1,1,1,3,x", "samples_ms"),
                           (titles + "\na,2,1,1,1,1,1,1,int8,auto,3,1,2,3,1", "outside of")):
            self.assert_one_line_error(self.pipit("compare", good, self.write("b", text), code=RUNTIME), "b", word)
        for text in ("", "{", json.dumps(settings)[:40]):
            for names in (("a", "b"), ("b", "a")):
                self.write("b", text)
                self.assert_one_line_error(self.pipit("compare", *names, code=RUNTIME), "pipit: b: ", "line")


class InTurns(Data):
    def test_another_model(self):
        result = self.json("bench", MODEL, "--against", MODEL, "--seconds", "0.3", "--threads", "1", "--quiet")
        self.assertEqual([row["model"] for row in result["results"]], [MODEL, MODEL])
        comparison, = result["comparisons"]
        self.assertTrue(0.3 < comparison["ratio"] < 3, comparison)  # beside any load
        self.assertEqual(comparison["first"], f"{MODEL}, fp32, batch 1, 1 thread")
        for row in result["results"]:
            self.assertEqual(row["runs"], len(row["samples_ms"]))
            self.assertGreater(row["peak_rss_bytes"], row["arena_bytes"])
        text = self.pipit("bench", MODEL, "--against", MODEL, "--seconds", "0.2", "--quiet").stdout
        self.assertRegex(text, r"(?m)^whole run  [\d.]+ -> [\d.]+ ms: [\d.]+")

    def test_precisions(self):
        result = self.json("bench", MODEL, "--precision", "fp32,int8-dynamic,w8", "--batch", "1,2", "--runs", "4", "--quiet")
        self.assertEqual(len(result["results"]), 6)
        self.assertEqual({row["runs"] for row in result["results"]}, {4})
        pairs = [(comparison["first"].split(", ")[1:3], comparison["second"].split(", ")[1:3])
                 for comparison in result["comparisons"]]
        self.assertEqual(pairs, [(["fp32", f"batch {batch}"], [precision, f"batch {batch}"])
                                 for batch in (1, 2) for precision in ("int8-dynamic", "w8")])

    def test_slower_than_allowed(self):
        # A thousand times the work cannot be mistaken.
        self.write("flatten.onnx", onnx_model.flatten())
        options = ("--runs", "30", "--quiet", "--fail-above", "10")
        self.assertFalse(self.json("bench", MODEL, "--against", "flatten.onnx", *options)["failed"])
        options = ("flatten.onnx", "--against", MODEL, *options)
        self.assertTrue(self.json("bench", *options, code=CHECK_FAILED)["failed"])
        # What two runs cannot tell is not let through.
        done = self.pipit("bench", MODEL, "--against", MODEL, "--runs", "2", "--fail-above", "10", code=CHECK_FAILED)
        self.assertIn("too few runs to tell", done.stdout)
        self.assert_one_line_error(self.pipit("bench", MODEL, "--fail-above", "3", code=USAGE), "--against")

    def test_failures_are_rows(self):
        done = self.pipit("bench", MODEL, "--against", "missing.onnx", "--runs", "2", "--quiet", "--json", code=RUNTIME)
        result = json.loads(done.stdout)
        self.assertEqual(["error" in row for row in result["results"]], [False, True])
        self.assertNotIn("comparisons", result)


if __name__ == "__main__":
    main()
