"""What notebooks show of results, tables and plots, and files for programs that draw models."""

from __future__ import annotations

import html.parser
import importlib.util
import json
import pathlib
import unittest
import xml.etree.ElementTree
from typing import Any

import numpy as np

import pipit
from support import MODEL, PackageTest, onnx_model, random


def installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


class Balanced(html.parser.HTMLParser):
    """Checks that elements are closed in order, and collects their names."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attributes: Any) -> None:
        self.seen.append(tag)
        if tag not in ("meta", "line", "circle", "path") and not any(name == "/" for name, _ in attributes):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: Any) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("line", "circle", "path"):
            if not self.open or self.open[-1] != tag:
                raise AssertionError(f"</{tag}> closes {self.open[-3:]}")
            self.open.pop()

    def handle_data(self, data: str) -> None:
        self.text += data


def small_model() -> bytes:
    """Conv "first" with "relu" behind it, and Conv "second", on [1, 8, 6, 6]."""
    nodes = [
        onnx_model.node("Conv", ["x", "w"], "a", "first"),
        onnx_model.node("Relu", ["a"], "b", "relu"),
        onnx_model.node("Conv", ["b", "w"], "y", "second"),
    ]
    weights = onnx_model.tensor("w", onnx_model.FLOAT, [8, 8, 1, 1], random(8, 8, 1, 1).tobytes())
    return onnx_model.model((1, 8, 6, 6), nodes, [weights])


class Notebooks(PackageTest):
    @classmethod
    def setUpClass(cls) -> None:
        cls.times = pipit.profile(MODEL, threads=1, runs=2, warmup=0)

    def check(self, result: Any, *texts: str) -> Balanced:
        shown = result._repr_html_()
        page = Balanced(shown)
        self.assertEqual(page.open, [])
        for word in ("script", "img", "link", "iframe"):
            self.assertNotIn(word, page.seen)
        self.assertNotRegex(shown, r"(?i)(href|src|url\(|@import)")
        for text in texts:
            self.assertIn(text, page.text)
        return page

    def test_a_profile_is_a_timeline_and_a_table(self) -> None:
        page = self.check(self.times, MODEL, "1 thread", "Conv · ", "more")
        self.assertEqual(page.seen.count("rect"), len(self.times.layers))
        self.assertEqual(page.seen.count("tr"), len(self.times.layers) + 2)  # a head for each of both parts
        for layer in self.times.layers:
            self.assertIn(layer.name, page.text)
        self.assertLess(len(self.times._repr_html_()), 40_000)

    def test_names_of_a_model_are_text(self) -> None:
        name = "<script>alert(1)</script>\u202e"
        nodes = [onnx_model.node("Relu", ["x"], "y", name)]
        page = self.check(pipit.load(onnx_model.model((2, 3), nodes), name="<b>").profile(runs=1))
        self.assertIn("<script>alert(1)</script>\\u202e", page.text)
        self.assertIn("<b>, fp32", page.text)

    def test_other_results(self) -> None:
        images, plan = self.images(8), self.folder / "plan.json"
        pipit.calibrate(MODEL, images, plan)
        difference = pipit.diff(MODEL, images, plan, share_limit=1)
        self.check(difference, "dB at the output", difference.layers[3].name)
        self.check(pipit.bench(MODEL, precision=["fp32", "bf16"], runs=2, threads=1), "fp32, batch 1", "over")
        self.check(
            pipit.sweep_convolutions(in_channels=8, out_channels=8, size=8, kernel=3, stride=1, batch=1, seconds=0.001),
            "1×8×8×8",
        )
        sweep = pipit.sweep_sparsity(layers="1x16x8x8:16x3x3", mode="k", keep=[1, 0.5], seconds=0.001)
        self.check(sweep, "1x16x8x8:16x3x3", "dense")
        xml.etree.ElementTree.fromstring(sweep.pareto_svg())
        difference.save(self.folder / "difference.html")
        self.assertEqual(Balanced((self.folder / "difference.html").read_text()).open, [])

    def test_results_of_searches_are_plots(self) -> None:
        pruned = pipit.prune(
            MODEL, self.images(8), self.folder / "out.onnx", keep=0.5, judge_by="model", importance="l1", refit=False
        )
        page = self.check(pruned, "times as fast", "chosen")
        self.assertIn("svg", page.seen)
        for name in ("pruned.svg", "pruned.html", "pruned.json"):
            pruned.save(self.folder / name)
        svg = xml.etree.ElementTree.parse(self.folder / "pruned.svg").getroot()
        self.assertTrue(svg.tag.endswith("svg"))
        with self.assertRaisesRegex(pipit.ArgumentError, "no plot of accuracy"):
            self.times.save(self.folder / "times.svg")

    @unittest.skipUnless(installed("pandas"), "pandas is not installed")
    def test_tables_of_pandas(self) -> None:
        table = self.times.to_pandas()
        self.assertEqual(len(table), len(self.times.layers))
        np.testing.assert_allclose(table["median_ms"], [layer.median_ms for layer in self.times.layers])
        rows = pipit.bench(MODEL, batch=[1, 2], runs=2, threads=1).to_pandas()
        self.assertEqual(list(rows["batch"]), [1, 2])

    @unittest.skipUnless(installed("matplotlib"), "matplotlib is not installed")
    def test_roofline(self) -> None:
        import matplotlib

        matplotlib.use("Agg")
        ax = self.times.plot_roofline()
        drawn = sum(len(one.get_offsets()) for one in ax.collections)
        self.assertEqual(drawn, sum(layer.flop_per_byte > 0 for layer in self.times.layers))
        self.assertIn(MODEL, ax.get_title())
        self.assertIs(self.times.plot_roofline(ax), ax)
        ax.figure.savefig(self.folder / "roofline.png")

    @unittest.skipIf(installed("matplotlib") and installed("pandas"), "matplotlib and pandas are installed")
    def test_without_these_libraries(self) -> None:
        if not installed("pandas"):
            with self.assertRaisesRegex(pipit.Error, "pip install pandas"):
                self.times.to_pandas()
        if not installed("matplotlib"):
            with self.assertRaisesRegex(pipit.Error, "pip install matplotlib"):
                self.times.plot_roofline()


class Overlays(PackageTest):
    def setUp(self) -> None:
        super().setUp()
        self.model, self.plan = self.folder / "model.onnx", self.folder / "plan.json"
        self.model.write_bytes(small_model())
        calibrator = pipit.Calibrator(self.model)
        calibrator.update(random(4, 8, 6, 6))
        calibrator.plan(self.plan)
        samples = self.folder / "samples"
        samples.mkdir()
        np.save(samples / "0.npy", random(8, 6, 6))
        self.times = pipit.profile(self.model, runs=2)
        self.difference = pipit.diff(self.model, samples, self.plan)

    def test_model_explorer(self) -> None:
        names = pipit.write_node_data(self.folder / "data.json", profile=self.times, difference=self.difference)
        self.assertEqual([name.rpartition("/")[2] for name in names], ["data.time.json", "data.sqnr.json"])
        times, sqnr = (json.loads(pathlib.Path(name).read_text()) for name in names)
        self.assertLessEqual({"first", "second"}, {*times["results"]})
        self.assertAlmostEqual(sum(one["value"] for one in times["results"].values()), self.times.layers_ms, places=6)
        self.assertEqual([stop["stop"] for stop in times["gradient"]], [0, 1])
        self.assertTrue({"first", "second"} >= {*sqnr["results"]} > set())
        for values, name in (({}, "data.json"), ({"profile": self.times}, "data.txt")):
            with self.assertRaises(pipit.ArgumentError):
                pipit.write_node_data(self.folder / name, **values)

    @unittest.skipUnless(installed("onnx"), "onnx is not installed")
    def test_netron(self) -> None:
        output = self.folder / "annotated.onnx"
        count = pipit.write_annotated_nodes(self.model, output, profile=self.times, difference=self.difference)
        self.assertEqual(count, 2)
        [graph] = [held for number, held in onnx_model.fields(output.read_bytes()) if number == 7]
        entries: dict[str, dict[str, str]] = {}
        for number, node in onnx_model.fields(graph):
            if number == 1:
                parts = list(onnx_model.fields(node))
                name = next(held for number, held in parts if number == 3).decode()
                own = [dict(onnx_model.fields(held)) for number, held in parts if number == 9]
                entries[name] = {one[1].decode(): one[2].decode() for one in own}
        self.assertEqual(entries["relu"], {})  # it became a part of the convolution
        self.assertEqual(float(entries["first"]["pipit.time_ms"]), float(f"{self.times.layers[0].median_ms:.6g}"))
        self.assertRegex(entries["second"]["pipit.sqnr_db"], r"^-?\d+\.\d\d$")
        values = random(1, 8, 6, 6)
        np.testing.assert_array_equal(pipit.load(output)(values), pipit.load(self.model)(values))
        again = self.folder / "again.onnx"
        pipit.write_annotated_nodes(output, again, profile=self.times, difference=self.difference)
        self.assertEqual(again.read_bytes(), output.read_bytes())

    @unittest.skipUnless(installed("onnx"), "onnx is not installed")
    def test_files_that_cannot_be_annotated(self) -> None:
        broken, other = self.folder / "broken.onnx", self.folder / "other.onnx"
        broken.write_bytes(self.model.read_bytes()[:-7])
        other.write_bytes(onnx_model.flatten())
        for model, error, message in (
            (MODEL, pipit.ArgumentError, "is no file"),
            (broken, pipit.Error, "not an ONNX model"),
            (other, pipit.Error, "has none of the . measured nodes"),
        ):
            with self.assertRaisesRegex(error, message):
                pipit.write_annotated_nodes(model, self.folder / "out.onnx", profile=self.times)
        with self.assertRaisesRegex(pipit.ArgumentError, "is the model itself"):
            pipit.write_annotated_nodes(self.model, self.model, profile=self.times)
        with self.assertRaisesRegex(pipit.ArgumentError, "nothing to write"):
            pipit.write_annotated_nodes(self.model, self.folder / "out.onnx")
        self.assertFalse((self.folder / "out.onnx").exists())


if __name__ == "__main__":
    unittest.main()
