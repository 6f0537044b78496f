"""--autotune, --tuning-cache and --kernel."""

import json
import os
import struct
import unittest.mock

from command import MODEL, RUNTIME, USAGE, CommandTest, main
from onnx_model import FLOAT, model, node, tensor


def pointwise_model(channels=16, size=14, count=4):
    """1x1 convolutions in a row. All but the first have more than one kernel that is no reference."""
    weights = tensor("w", FLOAT, (channels, channels, 1, 1), struct.pack("<f", 0.1) * channels * channels)
    names = ["x", *(f"v{i}" for i in range(1, count)), "y"]
    nodes = [node("Conv", [names[i], "w"], names[i + 1]) for i in range(count)]
    return model((1, channels, size, size), nodes, [weights])


class Tuning(CommandTest):
    def setUp(self):
        super().setUp()
        patch = unittest.mock.patch.dict(os.environ, XDG_CACHE_HOME=str(self.folder / "cache"))
        patch.start()
        self.addCleanup(patch.stop)
        self.model = self.write("model.onnx", pointwise_model())

    def layers(self, *options, model=None):
        return self.json("inspect", model or self.model, "--threads", "1", *options)["layers"]

    @staticmethod
    def convolutions(layers):
        """Those that have a choice."""
        return [layer for layer in layers if layer["type"] == "Conv"][1:]

    def files(self):
        return {str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file()}

    def test_order(self):
        for layer in self.layers():
            self.assertEqual(layer["chosen"], "order")
            self.assertNotIn("timed", layer)
        self.assertEqual(self.files(), {"model.onnx"})

    def test_default_times_nothing_and_touches_no_file(self):
        default = self.layers(model=MODEL)
        self.assertEqual({layer["chosen"] for layer in default}, {"order"})
        self.assertEqual(default, self.layers(model=MODEL))
        self.assertTrue(any(layer["kernel"].startswith("winograd") for layer in default))
        self.assertEqual(self.files(), {"model.onnx"})
        self.layers("--autotune")  # what the user's cache holds is for those who ask
        self.assertEqual({layer["chosen"] for layer in self.layers()}, {"order"})

    def test_a_named_file_decides_without_timing(self):
        measured = self.convolutions(self.layers("--autotune", "--tuning-cache", "times.json"))
        text = (self.folder / "times.json").read_text()
        other = self.write("other.onnx", pointwise_model(channels=24))
        named = self.convolutions(self.layers("--tuning-cache", "times.json"))
        self.assertEqual([layer["kernel"] for layer in named], [layer["kernel"] for layer in measured])
        self.assertEqual({layer["chosen"] for layer in named}, {"cache"})
        unknown = self.layers("--tuning-cache", "times.json", model=other)
        self.assertEqual({layer["chosen"] for layer in unknown}, {"order"})
        self.assertEqual((self.folder / "times.json").read_text(), text)
        done = self.pipit("inspect", self.model, "--tuning-cache", "none.json", code=RUNTIME)
        self.assert_one_line_error(done, "none.json", "no such tuning cache")

    def test_autotune_times_every_convolution_and_keeps_the_times(self):
        measured = self.layers("--autotune")
        for layer in self.convolutions(measured):
            self.assertEqual(layer["chosen"], "measurement")
            times = {(t["kernel"], t.get("variant")): t["ms"] for t in layer["timed"] if "ms" in t}
            self.assertGreater(len(times), 1)
            self.assertNotIn(("reference", None), times)
            # A later candidate wins only by more than 3 %, so the winner is within that of the best.
            winner = times[layer["kernel"], layer.get("variant")]
            self.assertLessEqual(winner, min(times.values()) / 0.97 * 1.001)
        cached = self.layers("--autotune")
        for before, after in zip(self.convolutions(measured), self.convolutions(cached)):
            self.assertEqual(after["chosen"], "cache")
            self.assertEqual(after["kernel"], before["kernel"])
            self.assertEqual(after["timed"], before["timed"])
        self.assertEqual(self.files(), {"model.onnx", "cache/pipit/tuning.json"})

    def test_profile_tells_too(self):
        layers = self.json("profile", self.model, "--runs", "1", "--autotune", "--threads", "1")["layers"]
        self.assertIn("measurement", {layer["chosen"] for layer in layers})

    def test_why_shows_the_times(self):
        text = self.pipit("inspect", self.model, "--autotune", "--why", "--threads", "1").stdout
        self.assertRegex(text, r"(?m)^ +\w+: by measurement$")
        self.assertRegex(text, r"(?m)^ +im2col_gemm: [\d.]+ ms$")

    def test_named_file_of_another_device(self):
        self.layers("--autotune", "--tuning-cache", "times.json")
        cache = json.loads((self.folder / "times.json").read_text())
        ((device, decisions),) = cache["devices"].items()
        cache["devices"] = {"an abacus": decisions}
        self.write("times.json", json.dumps(cache))
        done = self.pipit_with_notes("inspect", self.model, "--autotune", "--tuning-cache", "times.json", "--threads", "1")
        self.assert_one_line_error(done, "times.json", "an abacus", device)
        self.assertEqual(set(json.loads((self.folder / "times.json").read_text())["devices"]), {"an abacus", device})

    def test_cached_kernel_that_is_gone_is_timed_again(self):
        self.layers("--autotune", "--tuning-cache", "times.json")
        text = (self.folder / "times.json").read_text()
        cache = json.loads(text)
        for decisions in cache["devices"].values():
            for decision in decisions.values():
                decision["kernel"] = "abacus"
        self.write("times.json", json.dumps(cache))
        layers = self.layers("--autotune", "--tuning-cache", "times.json")
        self.assertEqual({layer["chosen"] for layer in self.convolutions(layers)}, {"measurement"})
        self.assertNotIn('"kernel": "abacus"', (self.folder / "times.json").read_text())

    def test_what_stands_in_the_place_of_the_lock_is_noted(self):
        (self.folder / "times.json.lock").symlink_to("nowhere")
        self.layers("--autotune", "--tuning-cache", "other.json")  # no note: --json without one
        done = self.pipit_with_notes("inspect", self.model, "--autotune", "--tuning-cache", "times.json", "--threads", "1")
        self.assert_one_line_error(done, "times.json.lock", "delete it", "may be lost")
        self.assertTrue(json.loads((self.folder / "times.json").read_text())["devices"])

    def test_corrupt_named_file_is_an_error(self):
        for content in (b"", b"{", b"[" * 100000, b"\xff\x00", b'{"format": "other"}'):
            with self.subTest(content[:20]):
                self.write("times.json", content)
                done = self.pipit("inspect", self.model, "--autotune", "--tuning-cache", "times.json", code=RUNTIME)
                self.assert_one_line_error(done, "times.json", "not a tuning cache")
                self.assertEqual((self.folder / "times.json").read_bytes(), content)

    def test_corrupt_default_file_is_a_note_and_replaced(self):
        self.write("cache/pipit/tuning.json", "{")
        done = self.pipit_with_notes("inspect", self.model, "--autotune", "--threads", "1")
        self.assert_one_line_error(done, "note", "tuning.json", "not a tuning cache")
        self.assertEqual({layer["chosen"] for layer in self.convolutions(self.layers("--autotune"))}, {"cache"})
        self.write("cache/pipit/tuning.json", "{")
        self.layers("--autotune", "--quiet")  # fails when anything is on stderr

    def test_file_that_cannot_be_written(self):
        done = self.pipit("inspect", self.model, "--autotune", "--tuning-cache", "/proc/times.json", code=RUNTIME)
        self.assert_one_line_error(done, "/proc/times.json")
        self.write("cache", "in the way")
        done = self.pipit_with_notes("inspect", self.model, "--autotune", "--threads", "1")
        self.assertIn("tuning.json", done.stderr)

    def test_a_kernel_for_one_type(self):
        for layer in self.layers("--kernel", "Conv=reference", model=MODEL):
            self.assertEqual(layer["kernel"] == "reference", layer["type"] == "Conv")
            self.assertEqual(layer["chosen"] == "preference", layer["type"] == "Conv")
        both = self.layers("--kernel", "reference", "--kernel", "Conv=im2col_gemm", model=MODEL)
        self.assertEqual({layer["kernel"] for layer in both}, {"im2col_gemm", "reference"})

    def test_kernels_that_refuse_leave_the_layer_to_the_next(self):
        layers = self.convolutions(self.layers("--kernel", "Conv=depthwise", "--why", model=MODEL))
        for layer in layers:
            self.assertNotEqual(layer["kernel"], "depthwise")
            self.assertEqual(layer["refused"][0]["kernel"], "depthwise")
        layers = self.convolutions(self.layers("--kernel", "depthwise", "--kernel", "im2col_gemm", model=MODEL))
        self.assertEqual({layer["kernel"] for layer in layers}, {"im2col_gemm"})

    def test_kernels_can_be_excluded(self):
        usual = {layer["kernel"] for layer in self.layers(model=MODEL)}
        for kernel in usual:
            layers = self.layers("--kernel", f"no-{kernel}", model=MODEL)
            self.assertNotIn(kernel, {layer["kernel"] for layer in layers})
        # Before every preference, and "winograd" is both of them.
        layers = self.layers("--kernel", "winograd", "--kernel", "Conv=no-winograd", "--why", model=MODEL)
        for layer in self.convolutions(layers):
            off = {r["kernel"].split(",")[0] for r in layer["refused"] if r["why"] == "switched off"}
            self.assertEqual(off, {"winograd_f2x2", "winograd_f4x4"})
        for layer in self.layers("--kernel", "Conv=no-reference", "--kernel", "reference", model=MODEL):
            self.assertEqual(layer["kernel"] == "reference", layer["type"] != "Conv")

    def test_fallback_is_for_gpus(self):
        plain, permitted = self.layers(model=MODEL), self.layers("--allow-fallback", model=MODEL)
        self.assertEqual([layer["type"] for layer in plain], [layer["type"] for layer in permitted])
        self.assertFalse(any(layer["kernel"].startswith("cpu:") for layer in permitted))

    def test_usage(self):
        for options, name in ((("--kernel", "Conv=gemm"), "im2col_gemm"),
                              (("--kernel", "Conv=no-gemm"), "winograd, winograd_f2x2"),
                              (("--kernel", "no-nonsense"), "pipit inspect --why"),
                              (("--kernel", "no-"), "pipit inspect --why"),
                              (("--kernel", "Convolution=tile"), "there is no layer type 'Convolution'"),
                              (("--no-autotune",), "--no-autotune"),
                              (("--tuning-cache",), "--tuning-cache")):
            with self.subTest(options):
                self.assert_one_line_error(self.pipit("inspect", MODEL, *options, code=USAGE), name)


if __name__ == "__main__":
    main()
