"""Models whose files leave extents of their inputs open, as exporters of several frameworks write them."""

import os
import pathlib
import struct
import unittest

from command import RUNTIME, UNSUPPORTED, USAGE, CommandTest, main
from onnx_model import FLOAT, model, node, tensor

CASES = pathlib.Path(os.environ.get("PIPIT_TEST_DATA", "")) / "cases"


class OpenShapes(CommandTest):
    def setUp(self):
        super().setUp()
        self.write("question.onnx", model(("N", 3, "?", "?"), [node("GlobalAveragePool", ["x"], "y")]))

    def test_a_shape_is_asked_for_and_taken(self):
        done = self.pipit("inspect", "question.onnx", code=RUNTIME)
        self.assert_one_line_error(done, "question.onnx", "input 'x' is Nx3x?x?", "dimensions 2, 3", "--shape x=")
        result = self.json("inspect", "question.onnx", "--shape", "x=1x3x48x192")
        self.assertEqual(result["inputs"][0]["shape"], [1, 3, 48, 192])
        rows = self.json("bench", "question.onnx", "--runs", 1, "--shape", "x=2x3x8x9")["results"]
        self.assertEqual([row["batch"] for row in rows], [2])

    def test_shapes_that_are_none(self):
        for text in ("x", "=1x3", "x=", "x=1x", "x=x1", "x=1x0x3", "x=1x-3", "x=1x3x48x192x", "x=1x2x3x4x5x6x7", "x=1.5"):
            with self.subTest(text):
                done = self.pipit("inspect", "question.onnx", "--shape", text, code=USAGE)
                self.assert_one_line_error(done, "--shape", f"'{text}'")

    def test_shapes_that_do_not_fit(self):
        done = self.pipit("inspect", "question.onnx", "--shape", "x=1x4x8x8", code=RUNTIME)
        self.assert_one_line_error(done, "question.onnx", "'x' is Nx3x?x? in the file", "1x4x8x8")
        done = self.pipit("inspect", "question.onnx", "--shape", "z=1x3x8x8", code=RUNTIME)
        self.assert_one_line_error(done, "question.onnx", "'z'", "there are: x")
        done = self.pipit("profile", "question.onnx", "--batch", 2, "--shape", "x=3x3x8x8", code=USAGE)
        self.assert_one_line_error(done, "batch 2 contradicts the given dimensions or shapes", "3")

    def test_unsupported_operators_come_first(self):
        self.write("both.onnx", model(("N", 3, "?", "?"), [node("Frobnicate", ["x"], "y")]))
        done = self.pipit("inspect", "both.onnx", code=UNSUPPORTED)
        self.assert_one_line_error(done, "operator Frobnicate is not supported")

    def test_verify_takes_shapes_from_its_data(self):
        pixels = [float(i) for i in range(3 * 2 * 5)]
        means = [sum(pixels[10 * c:10 * c + 10]) / 10 for c in range(3)]
        self.write("test/model.onnx", (self.folder / "question.onnx").read_bytes())
        for name, shape, values in (("input_0", (1, 3, 2, 5), pixels), ("output_0", (1, 3, 1, 1), means)):
            data = tensor("x" if name == "input_0" else "y", FLOAT, shape, struct.pack(f"<{len(values)}f", *values))
            self.write(f"test/test_data_set_0/{name}.pb", data)
        self.assertEqual(self.json("verify", "test")["passed"], 1)

    @unittest.skipUnless("PIPIT_TEST_DATA" in os.environ, "PIPIT_TEST_DATA does not name a folder of models")
    def test_what_exporters_write(self):
        for name in ("minus1", "question", "anonymous", "named"):
            with self.subTest(name):
                result = self.json("inspect", CASES / f"dims-{name}.onnx", "--shape", "x=2x3x32x32")
                self.assertEqual(result["inputs"][0]["shape"], [2, 3, 32, 32])


if __name__ == "__main__":
    main()
