"""The files of `--output`: JSON against its schema, CSV, traces, and the report as text and in a browser."""

import copy
import csv
import io
import json
import os
import re
import unittest
import unittest.mock

import onnx_model
from command import MODEL, RUNTIME, USAGE, CommandTest, main
from report_page import BROWSER, BrowserTest, Report
from schemas import DOCS, jsonschema, read_schema, strict, validator

HOSTILE = ('</script><script>document.title="broken"</script>', '<img src=x onerror=alert(1)>', '"quotes", commas',
           "=1+1", "\u202egnp.exe", "<!--", "&lt;", "😀 \u2028")


def keys_of(schema):
    if isinstance(schema, dict):
        yield from schema.get("properties", {})
        for part in schema.values():
            yield from keys_of(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from keys_of(part)


class Outputs(CommandTest):
    def profile(self, *arguments, model=MODEL, ends=("json", "csv", "html", "trace.json")):
        """Runs profile with one --output for each end; the texts of the files."""
        files = [self.folder / f"out.{end}" for end in ends]
        named = [word for file in files for word in ("--output", file)]
        self.pipit("profile", model, "--runs", "3", "--warmup", "1", *arguments, *named)
        return [file.read_bytes().decode() for file in files]

    def hostile_model(self):
        """Layers whose names try to leave whatever they are written into."""
        names = [*HOSTILE, b"bytes \xff\xfe that are no text"]
        nodes = []
        for i, name in enumerate(names):
            source = "x" if i == 0 else f"v{i - 1}"
            end = "y" if i + 1 == len(names) else f"v{i}"
            nodes.append(onnx_model.node("Softmax", [source], end, name=name, axis=1))
        return self.write("hostile.onnx", onnx_model.model((1, 4), nodes))


class Forms(Outputs):
    def test_endings(self):
        for name in ("out", "out.txt", "out.htm", "out.svg", "out.json.gz"):
            done = self.pipit("profile", "missing.onnx", "--output", name, code=USAGE)
            self.assert_one_line_error(done, "--output", ".trtexec.json")
        self.assert_one_line_error(self.pipit("bench", MODEL, "--output", "out.html", code=USAGE), "--output", ".csv")
        self.assert_one_line_error(
            self.pipit("profile", MODEL, "--output", "a.csv", "--output", "a.csv", code=USAGE), "twice")
        self.assert_one_line_error(
            self.pipit("profile", MODEL, "--output", "a.csv", "--output", "./a.csv", code=USAGE), "twice")
        self.assert_one_line_error(
            self.pipit("profile", MODEL, "--threads", "1,2", "--output", "a.trtexec.json", code=USAGE), "trtexec")
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_is_found_out_before(self):
        done = self.pipit("profile", "missing.onnx", "--output", "no/folder/out.html", code=RUNTIME)
        self.assert_one_line_error(done, "no/folder")
        model = self.write("model.csv", onnx_model.flatten((1, 3, 2, 2)))
        done = self.pipit("profile", model, "--output", model, code=USAGE)
        self.assert_one_line_error(done, "--output", "replace")
        times = self.write("a.json", "{}")
        self.assert_one_line_error(self.pipit("compare", times, times, "--output", times, code=USAGE), "--output", "replace")

    def test_nothing_is_left_of_a_failure(self):
        self.pipit("profile", self.write("no.onnx", "no model"), "--output", "out.html", code=RUNTIME)
        self.assertEqual([path.name for path in self.folder.iterdir()], ["no.onnx"])

    def test_json_is_that_of_stdout(self):
        done = self.pipit("profile", MODEL, "--runs", "2", "--json", "--output", "out.json")
        self.assertEqual((self.folder / "out.json").read_text(), done.stdout)

    def test_csv(self):
        self.keep_ceilings(gflops=1000, gb_per_s=1000)
        document, table = self.profile("--floor", ends=("json", "csv"))
        self.assertNotRegex(table, r"[^\r]\n")
        layers, rows = json.loads(document)["layers"], list(csv.DictReader(io.StringIO(table, newline="")))
        self.assertEqual(len(rows), len(layers))
        for row, layer in zip(rows, layers):
            self.assertEqual((row["model"], row["device"], row["precision"], row["batch"]), (MODEL, "cpu", "fp32", "1"))
            for key in ("index", "macs", "bytes", "median_ms", "p10_ms", "p90_ms", "share", "gflops", "done_macs",
                        "moved_bytes", "flop_per_byte", "floor_us", "x_floor", "share_of_limit"):
                self.assertEqual(float(row[key]), layer[key], key)
            for key in ("name", "type", "kernel", "geometry", "input_type", "output_type", "bound"):
                self.assertEqual(row[key], layer[key], key)
            self.assertEqual(row["input"], "x".join(map(str, layer["input"])))
            self.assertEqual(row["nodes"], " ".join(layer["nodes"]))
            self.assertEqual(float(row["kept"]), 1)
        table, = self.profile("--threads", "1,2", ends=("csv",))
        rows = list(csv.DictReader(io.StringIO(table, newline="")))
        self.assertEqual({row["threads"] for row in rows}, {"1", "2"})

    def test_csv_of_hostile_names(self):
        document, table = self.profile(model=self.hostile_model(), ends=("json", "csv"))
        names = [row["name"] for row in csv.DictReader(io.StringIO(table, newline=""))]
        self.assertEqual(len(names), len(json.loads(document)["layers"]))
        self.assertIn(HOSTILE[0], names)
        self.assertIn("'=1+1", names)  # a spreadsheet computes nothing
        self.assertNotRegex(table, "[\x00-\x09\x0b\x0c\x0e-\x1f\u202e]")

    def test_csv_of_formulas_in_disguise(self):
        # After blanks of any width, in full width, after a semicolon; what is not seen is written out.
        expected = {"=1": "'=1", "\u00a0=1": "\u00a0'=1", " \u3000@x": " \u3000'@x", "\uff1d1": "'\uff1d1", "\u22121": "'\u22121",
                    "a;=1+1;b": "a;'=1+1;b", "a; +1": "a; '+1", "a=1;b": "a=1;b", "z\u200be\u00adr\ufeffo": "z\\u200be\\u00adr\\ufeffo",
                    "\U000e0041tag": "\\U000e0041tag", "\u200b=1": "\\u200b=1"}
        names = list(expected)
        nodes = [onnx_model.node("Softmax", ["x" if i == 0 else f"v{i}"], "y" if i + 1 == len(names) else f"v{i + 1}", name=name,
                                 axis=1) for i, name in enumerate(names)]
        model = self.write("formulas.onnx", onnx_model.model((1, 4), nodes))
        document, table = self.profile(model=model, ends=("json", "csv"))
        rows = list(csv.DictReader(io.StringIO(table, newline="")))
        self.assertEqual([row["name"] for row in rows], list(expected.values()))
        self.assertEqual([layer["name"] for layer in json.loads(document)["layers"]], names)
        self.assertNotRegex(document + self.pipit("inspect", model).stdout, "[\u00ad\u200b\ufeff\U000e0041]")

    def check_trace(self, trace, result, process):
        events = [event for event in trace["traceEvents"] if event["pid"] == process]
        self.assertTrue(all(event["ph"] in ("M", "X", "C") for event in events))
        run, = [event for event in events if event.get("cat") == "run"]
        self.assertAlmostEqual(run["dur"], 1e3 * result["run"]["ms"], delta=1e-6)
        self.assertEqual(result["run"]["ms"], result["samples_ms"][result["run"]["index"]])
        layers = [event for event in events if event["ph"] == "X" and event["cat"] not in ("run", "micro-batch")]
        sums = [0] * len(result["layers"])
        end = 0
        for event in layers:
            layer = result["layers"][event["args"]["index"]]
            self.assertEqual((event["name"], event["cat"], event["args"]["kernel"]), (layer["name"], layer["type"], layer["kernel"]))
            self.assertGreaterEqual(event["ts"], end - 1e-6)
            end = event["ts"] + event["dur"]
            sums[layer["index"]] += event["dur"]
        self.assertLessEqual(end, run["ts"] + run["dur"] + 1e-6)
        # One real run: each layer took there what its sample of that run says.
        for total, layer in zip(sums, result["layers"]):
            self.assertAlmostEqual(total, 1e3 * layer["samples_ms"][result["run"]["index"]], delta=1e-3)
        counters = [event["args"]["live bytes"] for event in events if event["ph"] == "C"]
        self.assertEqual(len(counters), len(layers))
        self.assertLessEqual(max(counters), result["arena_bytes"])
        return events

    def test_trace(self):
        document, trace = map(json.loads, self.profile(ends=("json", "trace.json")))
        self.check_trace(trace, document, 1)
        self.assertEqual({event["pid"] for event in trace["traceEvents"]}, {1})
        nearest = min(document["samples_ms"], key=lambda ms: abs(ms - document["end_to_end_ms"]))
        self.assertEqual(document["run"]["ms"], nearest)

    def test_trace_of_micro_batches_and_settings(self):
        document, trace = map(json.loads, self.profile("--batch", "2,8", "--micro-batch", "2", ends=("json", "trace.json")))
        for process, result in enumerate(document["results"], 1):
            events = self.check_trace(trace, result, process)
            batches = [event for event in events if event.get("cat") == "micro-batch"]
            runs = result["micro_batch"]["runs"]
            self.assertEqual(runs, {2: 1, 8: 4}[result["batch"]])
            self.assertEqual(len(batches), runs if runs > 1 else 0)
            self.assertEqual(len(result["run"]["calls"]), runs * len(result["layers"]))

    def test_trtexec(self):
        document, profile = map(json.loads, self.profile(ends=("json", "trtexec.json")))
        count, *layers = profile
        self.assertEqual(count, {"count": 3})
        self.assertEqual(len(layers), len(document["layers"]))
        for entry, layer in zip(layers, document["layers"]):
            self.assertEqual(list(entry), ["name", "timeMs", "averageMs", "medianMs", "percentage"])
            self.assertEqual((entry["name"], entry["medianMs"]), (layer["name"], layer["median_ms"]))
            self.assertAlmostEqual(entry["timeMs"], sum(layer["samples_ms"]), delta=1e-9)
            self.assertAlmostEqual(entry["averageMs"], entry["timeMs"] / 3, delta=1e-9)
        self.assertAlmostEqual(sum(entry["percentage"] for entry in layers), 100, delta=1e-6)

    def test_bench_and_compare(self):
        timed = ("--runs", "4", "--precision", "fp32,int8-dynamic", "--output", "b.json", "--output", "b.csv")
        self.pipit("bench", MODEL, *timed)
        document = json.loads((self.folder / "b.json").read_text())
        rows = list(csv.DictReader(io.StringIO((self.folder / "b.csv").read_text())))
        self.assertEqual([row["precision"] for row in rows], ["fp32", "int8-dynamic"])
        for row, result in zip(rows, document["results"]):
            self.assertEqual(float(row["median_ms"]), result["median_ms"])
        self.profile(ends=("json",))
        self.pipit("compare", "out.json", "out.json", "--quiet", "--output", "c.json", "--output", "c.csv")
        comparison, = json.loads((self.folder / "c.json").read_text())["comparisons"]
        whole, *layers = csv.DictReader(io.StringIO((self.folder / "c.csv").read_text()))
        self.assertEqual((whole["row"], float(whole["ratio"])), ("run", 1))
        self.assertEqual([row["name"] for row in layers], [layer["name"] for layer in comparison["layers"]])


class Accuracy(Outputs):
    EVALUATED = {"command": "evaluate", "model": "m", "precision": "int8", "images": 50, "top1": 0.5, "top1_interval95": [0.4, 0.6],
                 "top5": 0.9, "top5_interval95": [0.8, 1], "images_per_s": 3}

    def test_is_shown(self):
        file = self.write("accuracy.json", json.dumps(self.EVALUATED))
        document, page = self.profile("--accuracy", file, ends=("json", "html"))
        expected = {key: value for key, value in self.EVALUATED.items() if key not in ("command", "images_per_s")}
        self.assertEqual(json.loads(document)["accuracy"], expected)
        self.assertEqual(json.loads(Report(page).scripts["data"])["accuracy"], expected)

    def test_other_files(self):
        for change in ({"command": "profile"}, {"top1": 2}, {"top5": "all"}, {"images": -1}, {"top1_interval95": [1]}, {"model": None},
                       {"top1_interval95": [1, 0]}, {"top5_interval95": [0.95, 1]}, {"against": "fp32"}):
            file = self.write("accuracy.json", json.dumps({**self.EVALUATED, **change}))
            self.assert_one_line_error(self.pipit("profile", MODEL, "--accuracy", file, code=RUNTIME), file, *change)
        self.assert_one_line_error(self.pipit("profile", MODEL, "--accuracy", self.write("a.json", "[" * 99), code=RUNTIME), "a.json")


@unittest.skipIf(jsonschema is None, "Python has no jsonschema")
class Schemas(Outputs):
    def check(self, name, document):
        schema = read_schema(name)
        validator(strict(schema)).validate(document)
        return schema

    def test_ceilings(self):
        patch = unittest.mock.patch.dict(os.environ, XDG_CACHE_HOME=str(self.folder))
        patch.start()
        self.addCleanup(patch.stop)
        self.check("ceilings", json.loads(self.pipit_with_notes("ceilings", "--threads", "1", "--json").stdout))

    def test_profile(self):
        self.keep_ceilings(gflops=1000, gb_per_s=1000)
        self.check("profile", self.json("profile", MODEL, "--runs", "2"))
        floor = self.json("profile", MODEL, "--runs", "2", "--floor", "--by", "type", "--batch", "8", "--micro-batch", "3",
                          "--autotune", "--tuning-cache", self.folder / "cache.json")
        schema = self.check("profile", floor)
        self.check("profile", self.json("profile", MODEL, "--runs", "2", "--precision", "fp32,int8-dynamic", "--batch", "1,2"))
        self.check("profile", self.json("profile", self.hostile_model(), "--runs", "2"))
        broken = copy.deepcopy(floor)
        for change in (lambda d: d.pop("layers"), lambda d: d["layers"][0].update(median_ms="1"), lambda d: d.update(schema=2),
                       lambda d: d["run"]["calls"][0].pop("ms")):
            document = copy.deepcopy(broken)
            change(document)
            with self.assertRaises(jsonschema.ValidationError):
                validator(schema).validate(document)

    def test_bench_and_compare(self):
        self.keep_ceilings(gflops=1000, gb_per_s=1000)
        self.check("bench", self.json("bench", MODEL, "--runs", "3", "--precision", "fp32,int8-dynamic", "--peak"))
        self.check("bench", self.json("bench", MODEL, "missing.onnx", "--runs", "3", code=RUNTIME))
        self.check("bench", self.json("bench", MODEL, "--streams", "1,2", "--threads", "2", "--runs", "3"))
        self.profile(ends=("json",))
        self.check("compare", self.json("compare", "out.json", "out.json", "--quiet"))


class Documents(unittest.TestCase):
    def test_every_key_is_explained(self):
        text = (DOCS / "json.md").read_text()
        for name in ("profile", "bench", "compare", "ceilings", "sweep-conv", "sweep-sparsity"):
            schema = json.loads((DOCS / "schemas" / f"{name}.schema.json").read_text())
            for key in sorted(set(keys_of(schema))):
                self.assertRegex(text, rf"`{re.escape(key)}`", name)


class Pages(Outputs):
    def check_page(self, page, document):
        """The page loads nothing, and its data are those of the document without the times of single runs of layers."""
        report = Report(page)
        for tag, attributes in report.elements:
            self.assertNotIn(tag, ("img", "iframe", "object", "embed", "base"))
            self.assertNotIn("src", attributes)
            self.assertFalse([key for key in attributes if key.startswith("on")], attributes)
            self.assertTrue(attributes.get("href", "#").startswith("#"))
        self.assertNotRegex(page, r"@import|url\(|https?://(?!www\.w3\.org/2000/svg)")
        self.assertEqual([attributes.get("id") for tag, attributes in report.elements if tag == "script"], ["data", None])
        policy, = [a["content"] for tag, a in report.elements if a.get("http-equiv") == "Content-Security-Policy"]
        self.assertIn("default-src 'none'", policy)
        for result in document.get("results", [document]):
            for layer in result["layers"]:
                layer.pop("samples_ms")
                layer.pop("timed", None)
        self.assertEqual(json.loads(report.scripts["data"]), document)
        self.assertNotRegex(report.scripts["data"], "[<>&]")

    def test_holds_the_profile(self):
        self.keep_ceilings(gflops=1000, gb_per_s=1000)
        document, page = self.profile("--floor", ends=("json", "html"))
        self.check_page(page, json.loads(document))

    def test_several_settings(self):
        document, page = self.profile("--threads", "1,2", ends=("json", "html"))
        self.check_page(page, json.loads(document))

    def test_hostile_names(self):
        document, page = self.profile(model=self.hostile_model(), ends=("json", "html"))
        names = [layer["name"] for layer in json.loads(document)["layers"]]
        self.assertEqual(names[:len(HOSTILE)], list(HOSTILE))
        self.assertEqual(names[-1], "bytes \ufffd\ufffd that are no text")
        self.check_page(page, json.loads(document))

    def test_is_small(self):
        self.pipit("profile", "resnet50", "--runs", "2", "--warmup", "0", "--output", "out.html")
        self.assertLess((self.folder / "out.html").stat().st_size, 400 << 10)

    def test_many_runs_stay_small(self):
        model = self.write("small.onnx", onnx_model.model((1, 4), [onnx_model.node("Softmax", ["x"], "y", axis=1)]))
        self.pipit("profile", model, "--runs", "30000", "--output", "out.html")
        self.assertLess((self.folder / "out.html").stat().st_size, 400 << 10)
        samples = json.loads(Report((self.folder / "out.html").read_text()).scripts["data"])["samples_ms"]
        self.assertEqual(len(samples), 1000)


@unittest.skipIf(BROWSER is None, "there is no Chromium")
class Browser(Outputs, BrowserTest):
    def test_draws_without_errors(self):
        self.keep_ceilings(gflops=1000, gb_per_s=1000)
        document, _ = self.profile("--floor", "--batch", "4", "--micro-batch", "2", ends=("json", "html"))
        layers = json.loads(document)["layers"]
        dom = self.browse(self.folder / "out.html", "--dump-dom")
        self.assertEqual(len(re.findall(r'<tr id="layer-\d+"', dom)), len(layers))
        self.assertIn(f"<title>{MODEL} · pipit profile</title>", dom)
        for place in ("timeline", "roofline", "memory", "runs"):
            self.assertRegex(dom, rf'(?s)<div id="{place}" class="chart"><svg[^>]* role="img" aria-label="[^"]+"')
        self.assertEqual(len(re.findall(r'<rect class="mark', re.search(r'(?s)id="timeline".*?</svg>', dom)[0])), 2 * len(layers))
        self.assertIn('aria-sort="ascending"', dom)
        self.assertNotRegex(re.sub(r"(?s)<script.*?</script>", "", dom), r"NaN|undefined|Infinity")

    def test_sorts_filters_and_switches(self):
        """What a reader would do, done by a script at the end of the page."""
        document, page = self.profile(ends=("json", "html"))
        layers = json.loads(document)["layers"]

        def rows_after(script):
            self.write("acted.html", page.replace("\nbegin();\n", "\nbegin();\n" + script + "\n"))
            dom = self.browse(self.folder / "acted.html", "--dump-dom")
            return dom, [int(index) for index in re.findall(r'<tr id="layer-(\d+)"', dom)]

        press = "[...document.querySelectorAll('#table thead button')].find((b) => b.textContent === '%s').click();"
        dom, rows = rows_after(press % "ms")
        times = [layers[row]["median_ms"] for row in rows]
        self.assertEqual(times, sorted(times, reverse=True))
        self.assertIn('aria-sort="descending"', dom)
        _, rows = rows_after((press % "ms") * 2)
        self.assertEqual([layers[row]["median_ms"] for row in rows], sorted(times))
        _, rows = rows_after(press % "Layer")
        self.assertEqual(sorted(rows), list(range(len(layers))))
        _, rows = rows_after("byId('filter').value = 'GEMM'; byId('filter').dispatchEvent(new Event('input'));")
        self.assertEqual(rows, [layer["index"] for layer in layers if "gemm" in (layer["name"] + layer["type"]).lower()])
        _, rows = rows_after("byId('type').value = 'Pool'; byId('type').dispatchEvent(new Event('change'));")
        self.assertEqual(rows, [layer["index"] for layer in layers if layer["type"] == "Pool"])
        dom, _ = rows_after("byId('theme').click(); zoomTo(results[0], [0, results[0].run.ms / 4]);")
        self.assertIn('data-theme="dark"', dom)
        marks = len(re.findall(r'<rect class="mark', re.search(r'(?s)id="timeline".*?</svg>', dom)[0]))
        self.assertTrue(0 < marks < len(layers), marks)

    def test_several_settings_and_hostile_names(self):
        self.profile("--threads", "1,2", ends=("html",))
        self.assertIn('<table id="joined"><thead>', self.browse(self.folder / "out.html", "--dump-dom"))
        self.profile(model=self.hostile_model(), ends=("html",))
        dom = self.browse(self.folder / "out.html", "--dump-dom")
        self.assertIn("<title>hostile.onnx · pipit profile</title>", re.sub(r"<title>[^<]*/", "<title>", dom))
        self.assertNotRegex(dom, "<img|\u202e|\x1b")
        self.assertIn("\\u202egnp.exe", dom)

    def test_light_and_dark(self):
        self.profile(ends=("html",))
        self.assertGreater(self.brightness(self.folder / "out.html"), 200)
        self.assertLess(self.brightness(self.folder / "out.html", "--force-dark-mode"), 70)


if __name__ == "__main__":
    main()
