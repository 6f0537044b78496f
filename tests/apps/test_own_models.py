"""Models as people have them: other inputs than one image of floats, other outputs than one row of scores, files that
are no models, and what others publish with them."""

import json
import struct

from command import RUNTIME, USAGE, CommandTest, main
from onnx_model import BOOL, FLOAT, INT64, UINT8, field, node, tensor, value

PLAIN = ("--mean", "0,0,0", "--std", "1,1,1", "--resize", "0", "--crop", "2", "--scores", "softmax")


def graph_model(inputs, nodes, outputs=("y",), tensors=(), metadata=None):
    graph = (b"".join(field(1, one) for one in nodes) + field(2, "graph") + b"".join(field(5, one) for one in tensors)
             + b"".join(field(11, one) for one in inputs) + b"".join(field(12, field(1, one)) for one in outputs))
    entries = b"".join(field(14, field(1, key) + field(2, text)) for key, text in (metadata or {}).items())
    return field(1, 8) + field(7, graph) + field(8, field(2, 17)) + entries


def floats(name, *values, shape=None):
    return tensor(name, FLOAT, [len(values)] if shape is None else shape, struct.pack(f"<{len(values)}f", *values))


def integers(name, *values):
    return tensor(name, INT64, [len(values)], struct.pack(f"<{len(values)}q", *values))


# 12 pixels' values from 0 to 255 become scores that are probabilities, whatever the pixels: shares of their sum.
SHARES = [node("ReduceSum", ["flat", "axes"], "sum", keepdims=1), node("Div", ["flat", "sum"], "y")]
AXES = integers("axes", -1)


class OwnModels(CommandTest):
    def setUp(self):
        super().setUp()
        self.image = self.write_bmp("image.bmp", (40, 90, 200), side=2)

    def shares(self, *arguments):
        """The probabilities of an image's classes in their order."""
        result = json.loads(self.pipit_with_notes("classify", *arguments, *PLAIN, "--topk", 30000, "--json").stdout)
        (image,) = result["images"]
        return [one["probability"] for one in sorted(image["top"], key=lambda one: one["class"])]

    def assert_shares(self, got, pixels):
        self.assertEqual(len(got), len(pixels))
        for a, b in zip(got, pixels):
            self.assertAlmostEqual(a, b / sum(pixels), delta=1e-5)

    def pixels(self, planes):
        """Of image.bmp (write_bmp's gradient), as [C, H, W] or [H, W, C]."""
        at = [[[c + 2 * (x - y) for c in (40, 90, 200)] for x in range(2)] for y in (1, 0)]  # from the bottom up
        if planes:
            return [at[y][x][c] for c in range(3) for y in range(2) for x in range(2)]
        return [at[y][x][c] for y in range(2) for x in range(2) for c in range(3)]

    def test_bytes_are_taken_as_they_are(self):
        for shape, planes in ((["N", 2, 2, 3], False), (["N", 3, 2, 2], True)):
            cast = [node("Cast", ["u"], "f", to=1), node("Flatten", ["f"], "flat"), *SHARES]
            self.write("bytes.onnx", graph_model([value("u", shape, UINT8)], cast, tensors=[AXES]))
            self.assert_shares(self.shares("bytes.onnx", "image.bmp"), self.pixels(planes))

    def test_one_image_without_a_batch(self):
        flat = [node("Reshape", ["x", "all"], "flat"), *SHARES]
        self.write("chw.onnx", graph_model([value("x", [3, 2, 2])], flat, tensors=[AXES, integers("all", -1)]))
        self.assert_shares(self.shares("chw.onnx", "image.bmp"), self.pixels(True))
        for last in ([12], [12, 1, 1], [1, 1, 12]):
            nodes = [node("Flatten", ["x"], "flat"), *SHARES[:1], node("Div", ["flat", "sum"], "z"),
                     node("Reshape", ["z", "last"], "y")]
            self.write("row.onnx", graph_model([value("x", [1, 3, 2, 2])], nodes,
                                               tensors=[AXES, integers("last", *last)]))
            self.assert_shares(self.shares("row.onnx", "image.bmp"), self.pixels(True))

    def test_a_fixed_batch(self):
        self.write("three.onnx", graph_model([value("x", [3, 3, 2, 2])], [node("Flatten", ["x"], "flat"), *SHARES],
                                             tensors=[AXES]))
        self.assert_shares(self.shares("three.onnx", "image.bmp"), self.pixels(True))
        images = [self.write_bmp(f"{i}.bmp", (10 * i, 90, 200), side=2).name for i in range(1, 6)]
        result = json.loads(self.pipit_with_notes("classify", "three.onnx", *images, *PLAIN, "--profile", "--runs", 1,
                                                  "--json").stdout)
        self.assertEqual([one["path"] for one in result["images"]], images)
        for i in range(5):
            (alone,) = json.loads(self.pipit_with_notes("classify", "three.onnx", images[i], *PLAIN,
                                                        "--json").stdout)["images"]
            self.assertEqual(alone["top"], result["images"][i]["top"])

    def test_scores_that_are_not_the_first_output(self):
        nodes = [node("Flatten", ["x"], "flat"), node("ArgMax", ["flat"], "label", axis=1, keepdims=0), *SHARES,
                 node("Neg", ["x"], "features")]
        inputs = [value("x", ["N", 3, 2, 2])]
        self.write("second.onnx", graph_model(inputs, nodes, ["label", "features", "y"], [AXES]))
        self.assert_shares(self.shares("second.onnx", "image.bmp"), self.pixels(True))
        self.assert_shares(self.shares("second.onnx", "image.bmp", "--output", "y"), self.pixels(True))
        done = self.pipit("classify", "second.onnx", "image.bmp", "--output", "z", code=RUNTIME)
        self.assert_one_line_error(done, "no graph output has the name 'z'", "label, features, y")
        self.write("none.onnx", graph_model(inputs, nodes, ["label", "features"], [AXES]))
        done = self.pipit("classify", "none.onnx", "image.bmp", code=RUNTIME)
        self.assert_one_line_error(done, "output 'label' is i64 1", "'features' is f32 1x3x2x2")

    def test_more_inputs_than_the_image(self):
        nodes = [node("Flatten", ["x"], "flat"), *SHARES[:1], node("Div", ["flat", "sum"], "z"),
                 node("Where", ["mask", "z", "other"], "y")]
        inputs = [value("x", ["N", 3, 2, 2]), value("mask", [1], BOOL), value("other", [12]), value("unused", [4], 8)]
        self.write("many.onnx", graph_model(inputs, nodes, tensors=[AXES]))
        done = self.pipit("classify", "many.onnx", "image.bmp", *PLAIN, code=RUNTIME)
        self.assert_one_line_error(done, "3 inputs, expected one image", "'mask' bool 1", "--value NAME=NUMBER")
        header = repr({"descr": "<f4", "fortran_order": False, "shape": (12,)}).encode()
        other = [0.5] + [0.0] * 11
        self.write("other.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header
                   + struct.pack("<12f", *other))
        rest = ("--input", "other=other.npy")
        self.assert_shares(self.shares("many.onnx", "image.bmp", "--value", "mask=true", *rest), self.pixels(True))
        self.assertEqual(self.shares("many.onnx", "image.bmp", "--value", "mask=0", *rest), other)
        for wrong in ("mask", "mask=x", "=1", "mask="):
            self.pipit("classify", "many.onnx", "image.bmp", "--value", wrong, code=USAGE)
        for wrong in ("other", "=other.npy"):
            self.pipit("classify", "many.onnx", "image.bmp", "--input", wrong, code=USAGE)

    def test_values_of_all_types_are_drawn(self):
        nodes = [node("Gather", ["table", "i"], "row"), node("Where", ["c", "row", "zero"], "y")]
        inputs = [value("i", [3], INT64), value("c", [3, 2], BOOL)]
        self.write("types.onnx", graph_model(inputs, nodes, tensors=[floats("table", *range(8), shape=[4, 2]),
                                                                     floats("zero", 0)]))
        (row,) = self.json("bench", "types.onnx", "--seconds", 0)["results"]
        self.assertGreater(row["median_ms"], 0)
        self.json("profile", "types.onnx", "--runs", 1)
        header = repr({"descr": "<i8", "fortran_order": False, "shape": (3,)}).encode()
        self.write("i.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header
                   + struct.pack("<3q", 3, 2, 1))
        self.json("profile", "types.onnx", "--runs", 1, "--input", "i=i.npy")
        done = self.pipit("profile", "types.onnx", "--runs", 1, "--input", "i.npy", code=RUNTIME)
        self.assert_one_line_error(done, "it has 2 inputs: give --input NAME=FILE.npy for i, c")

    def test_a_model_in_the_cache_of_hugging_face(self):
        """Names are links into one folder; what is said of the model lies above its own."""
        blobs, snapshot = self.folder / "hub/blobs", self.folder / "hub/snapshots/1/onnx"
        for folder in (blobs, snapshot):
            folder.mkdir(parents=True)
        external = (field(1, 12) + field(2, FLOAT) + field(8, "w") + field(14, 1)
                    + field(13, field(1, "location") + field(2, "model.onnx_data")))
        nodes = [node("Flatten", ["x"], "f"), node("Mul", ["f", "w"], "flat"), *SHARES]
        (blobs / "aa").write_bytes(graph_model([value("x", ["N", 3, 2, 2])], nodes, tensors=[AXES, external]))
        (blobs / "bb").write_bytes(struct.pack("<12f", *[2.0] * 12) + b"more than is used")
        (snapshot / "model.onnx").symlink_to("../../../blobs/aa")
        (snapshot / "model.onnx_data").symlink_to("../../../blobs/bb")
        self.write("hub/snapshots/1/config.json", json.dumps({"id2label": {str(i): f"thing {i}" for i in range(12)}}))
        self.write("hub/snapshots/1/preprocessor_config.json", json.dumps(
            {"do_resize": True, "size": {"height": 2, "width": 2}, "resample": 2, "do_normalize": True,
             "image_mean": [0.25, 0.25, 0.25], "image_std": [0.5, 0.5, 0.5]}))
        model = snapshot / "model.onnx"
        self.assert_shares(self.shares(model, "image.bmp"), self.pixels(True))
        done = self.pipit_with_notes("classify", model, "image.bmp", "--scores", "logits")
        self.assertIn("thing 11", done.stdout)
        self.assertRegex(done.stdout, r"preprocessing stored in preprocessor_config.json: stretched to 2x2, .*mean 0.25")
        self.assertIn("labels are from config.json", done.stderr)
        text = self.pipit("inspect", model).stdout
        self.assertIn("labels  12: thing 0, ..., thing 11 (from config.json)", text)
        self.assertIn("preprocessing  stored in preprocessor_config.json", text)

    def test_labels_and_size_by_ultralytics(self):
        names = {i: f"it's {i}" for i in range(12)}
        metadata = {"names": repr(names), "imgsz": "[2, 2]", "task": "classify"}
        self.write("yolo.onnx", graph_model([value("x", ["N", 3, 2, 2])], [node("Flatten", ["x"], "flat"), *SHARES],
                                            tensors=[AXES], metadata=metadata))
        done = self.pipit_with_notes("classify", "yolo.onnx", "image.bmp", "--scores", "softmax")
        self.assertIn("it's 8", done.stdout)
        self.assertIn("preprocessing stored in the metadata of Ultralytics: short side 2", done.stdout)

    def test_what_is_no_model_is_called_by_its_name(self):
        self.write("page.onnx", "<!DOCTYPE html>\n<html></html>")
        self.write("lfs.onnx", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n")
        for name, what in (("page.onnx", "a web page (HTML)"), ("lfs.onnx", "git lfs pull")):
            self.assert_one_line_error(self.pipit("inspect", name, code=RUNTIME), f"{name}: not an ONNX model, but", what)


if __name__ == "__main__":
    main()
