"""Models that take arrays, not images: calibrate, diff, tune, quantize and evaluate with .npy and .npz files."""

import io
import json
import struct
import unittest.mock
import zipfile

import onnx_model
from command import RUNTIME, USAGE, CommandTest, main

CLASSES = 4
LENGTH = 6


def floats(values):
    return struct.pack(f"<{len(values)}f", *values)


def npy(shape, values):
    """What numpy.save() writes of 32-bit floats."""
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({''.join(f'{n}, ' for n in shape)}), }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + floats(values)


def npz(arrays, method=zipfile.ZIP_STORED):
    """What numpy.savez() and numpy.savez_compressed() write."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", method) as archive:
        for name, array in arrays.items():
            with archive.open(name + ".npy", "w", force_zip64=True) as member:
                member.write(array)
    return content.getvalue()


def long_npz(arrays, method=zipfile.ZIP_STORED):
    """As npz(), with all sizes and offsets in 64 bits, as for arrays of 4 GiB and more."""
    with unittest.mock.patch.object(zipfile, "ZIP64_LIMIT", -1):
        return npz(arrays, method)


def two_inputs(batch="N"):
    """y = the means of a 1-D convolution of `sound`, plus `state`."""
    o = onnx_model
    weights = floats([0.1 * (i % 7) - 0.3 for i in range(CLASSES * 2 * 3)])
    nodes = [o.node("Conv", ["sound", "w"], "c"), o.node("GlobalAveragePool", ["c"], "means"),
             o.node("Flatten", ["means"], "flat"), o.node("Add", ["flat", "state"], "y")]
    graph = (b"".join(o.field(1, one) for one in nodes) + o.field(2, "graph")
             + o.field(5, o.tensor("w", o.FLOAT, (CLASSES, 2, 3), weights))
             + o.field(11, o.value("sound", (batch, 2, LENGTH))) + o.field(11, o.value("state", (batch, CLASSES)))
             + o.field(12, o.field(1, "y")))
    return o.field(1, 8) + o.field(7, graph) + o.field(8, o.field(2, 17))


def sample(i):
    sound = [(0.7 * i + 0.37 * k) % 2 - 1 for k in range(2 * LENGTH)]
    state = [5.0 if k == i % CLASSES else 0.0 for k in range(CLASSES)]
    return {"sound": npy((2, LENGTH), sound), "state": npy((1, CLASSES), state)}


class Arrays(CommandTest):
    def setUp(self):
        super().setUp()
        self.write("model.onnx", two_inputs())
        for i in range(12):
            method = zipfile.ZIP_DEFLATED if i % 2 else zipfile.ZIP_STORED
            self.write(f"sounds/{i % CLASSES}/{i}.npz", npz(sample(i), method))

    def calibrate(self, *arguments):
        self.pipit("calibrate", *arguments, "--output", "plan.json", "--quiet")
        return json.loads((self.folder / "plan.json").read_text())

    def test_every_command_takes_several_inputs(self):
        plan = self.calibrate("model.onnx", "sounds", "--method", "minmax")
        self.assertIsNone(plan["preprocess"])
        self.assertEqual(plan["images"]["count"], 12)
        sound = next(tensor for tensor in plan["tensors"] if tensor["name"] == "sound")
        values = [v for i in range(12) for v in [(0.7 * i + 0.37 * k) % 2 - 1 for k in range(2 * LENGTH)]]
        self.assertAlmostEqual(sound["min"], min(values), places=6)
        self.assertAlmostEqual(sound["max"], max(values), places=6)
        for batch in (1, 5):
            difference = self.json("diff", "model.onnx", "sounds", "--plan", "plan.json", "--batch", batch)
            self.assertEqual(difference["images"], 12)
            self.assertGreater(difference["output"]["sqnr_db"], 20)
            right = self.json("evaluate", "model.onnx", "sounds", "--batch", batch)
            self.assertEqual((right["images"], right["top1"]), (12, 1.0))
            self.assertEqual(right["preprocessing"], {"source": "arrays"})
        self.assertIn("arrays as they are", self.pipit("evaluate", "model.onnx", "sounds", "--quiet").stdout)
        tuned = self.pipit_with_notes("tune", "model.onnx", "sounds", "--max-drop", 10, "--output", "mixed.json", "--json")
        self.assertEqual(json.loads(tuned.stdout)["unseen"]["drop_points"], 0)
        self.pipit_with_notes("calibrate", "model.onnx", "sounds", "--limit", 3, "--output", "some.json")
        self.pipit_with_notes("tune", "model.onnx", "sounds", "--plan", "some.json", "--max-drop", 10, "--judge-by",
                              "model", "--output", "mixed.json")
        self.pipit("quantize", "model.onnx", "--plan", "plan.json", "--output", "int8.onnx")
        self.assertNotIn(b"pipit.preprocess", (self.folder / "int8.onnx").read_bytes())
        self.assertEqual(self.json("evaluate", "int8.onnx", "sounds")["top1"], 1.0)

    def test_bench_runs_on_the_arrays_that_it_is_given(self):
        for name, array in sample(1).items():
            self.write(name + ".npy", array)
        both = ("--input", "sound=sound.npy", "--input", "state=state.npy")
        self.json("bench", "model.onnx", "--runs", 1, *both)
        done = self.pipit("bench", "model.onnx", "--runs", 1, "--input", "sound=state.npy", code=RUNTIME)
        self.assertIn("state.npy: an array of 1x4; the model takes 1x2x6", done.stderr)

    def test_classes_may_be_in_a_file(self):
        self.write("truth.csv", "".join(f"{i % CLASSES}/{i}.npz,{(i + (i == 3)) % CLASSES}\n" for i in range(12)))
        right = self.json("evaluate", "model.onnx", "sounds", "--truth", "truth.csv")
        self.assertEqual(right["top1_correct"], 11)

    def test_whole_runs_where_inputs_have_no_batch_in_common(self):
        o = onnx_model
        nodes = [o.node("Conv", ["x", "w"], "c"), o.node("Add", ["c", "bias"], "y")]
        graph = (b"".join(o.field(1, one) for one in nodes) + o.field(2, "graph")
                 + o.field(5, o.tensor("w", o.FLOAT, (1, 1, 1), floats([2.0])))
                 + o.field(11, o.value("x", (2, 1, 3))) + o.field(11, o.value("bias", (3,))) + o.field(12, o.field(1, "y")))
        self.write("whole.onnx", o.field(1, 8) + o.field(7, graph) + o.field(8, o.field(2, 17)))
        self.write("runs/0_0.npz", npz({"x": npy((2, 1, 3), [0, 1, 2, 3, 4, 5]), "bias": npy((3,), [1, 2, 3])}))
        plan = self.calibrate("whole.onnx", "runs", "--method", "minmax")
        self.assertEqual({t["name"]: t["max"] for t in plan["tensors"]}["x"], 5)  # both rows count
        self.assertEqual(self.json("diff", "whole.onnx", "runs", "--plan", "plan.json")["images"], 1)
        done = self.pipit("evaluate", "whole.onnx", "runs", code=RUNTIME)
        self.assert_one_line_error(done, "whole.onnx")

    def test_one_array_is_enough_for_one_input(self):
        self.write("one.onnx", onnx_model.model((1, 1, 4), [onnx_model.node("Conv", ["x", "w"], "y")],
                                                [onnx_model.tensor("w", 1, (1, 1, 1), floats([2.0]))]))
        for name, content in (("a.npy", npy((1, 4), [1, 2, 3, 4])), ("b.npy", npy((1, 1, 4), [1, 2, 3, 5])),
                              ("c.npz", npz({"arr_0": npy((1, 4), [1, 2, 3, -9])}))):
            self.write("arrays/" + name, content)
        plan = self.calibrate("one.onnx", "arrays", "--method", "minmax")
        self.assertEqual({t["name"]: (t["min"], t["max"]) for t in plan["tensors"]}["x"], (-9, 5))
        # A folder with images is one of images.
        self.write_bmp("arrays/image.bmp", (1, 2, 3))
        self.assertEqual(list(self.calibrate("one.onnx", "arrays")["images"]["files"]), ["image.bmp"])

    def test_archives_with_numbers_of_64_bits_are_read(self):
        short = self.calibrate("model.onnx", "sounds")
        for i in range(12):
            method = zipfile.ZIP_DEFLATED if i % 2 else zipfile.ZIP_STORED
            content = long_npz(sample(i), method)
            self.assertIn(b"PK\x06\x06", content)
            self.write(f"long/{i % CLASSES}/{i}.npz", content)
        self.assertEqual(self.calibrate("model.onnx", "long")["tensors"], short["tensors"])

        content = long_npz(sample(0))
        end, locator = content.index(b"PK\x06\x06"), content.index(b"PK\x06\x07")
        entry = content.index(b"PK\x01\x02")
        name, = struct.unpack("<H", content[entry + 28:entry + 30])
        extra = entry + 46 + name
        self.assertEqual(struct.unpack("<HH", content[extra:extra + 4]), (1, 24))  # both sizes, the offset

        def changed(at, form, *numbers):
            part = struct.pack(form, *numbers)
            return content[:at] + part + content[at + len(part):]

        huge = (1 << 64) - 1
        cases = (
            (changed(locator + 8, "<Q", huge), "not where its locator says"),
            (changed(locator + 8, "<Q", end - 1), "not where its locator says"),
            (changed(locator, "<I", 0)[:-6] + b"\xff" * 4 + content[-2:], "the archive's directory is not inside of it"),
            (changed(end + 16, "<I", 1), "in several parts"),
            (changed(end + 24, "<Q", huge), "in several parts"),
            (changed(end + 24, "<QQ", huge, huge), "the archive's directory is damaged"),
            (changed(end + 40, "<Q", huge), "the archive's directory is not inside of it"),
            (changed(end + 48, "<Q", huge), "the archive's directory is not inside of it"),
            (changed(extra, "<H", 2), "the archive's directory is damaged"),
            (changed(extra + 2, "<H", 16), "the archive's directory is damaged"),
            (changed(extra + 2, "<H", 25), "the archive's directory is damaged"),
            (changed(extra + 4, "<Q", huge), "expected 48 at most"),
            (changed(extra + 4, "<Q", 100), "two different sizes"),
            (changed(extra + 12, "<Q", huge), "ends after the end of the file"),
            (changed(extra + 20, "<Q", huge), "not where the archive's directory says"),
        )
        for i, (damaged, text) in enumerate(cases):
            with self.subTest(case=i):
                self.write("bad/0.npz", damaged)
                done = self.pipit("calibrate", "model.onnx", "bad", "--output", "p.json", code=RUNTIME)
                self.assert_one_line_error(done, "0.npz", text)

    def test_messages_say_what_is_wrong(self):
        good = sample(0)
        stored = npz(good)
        entry = stored.index(b"PK\x01\x02")
        cases = (
            (npz({"sound": good["sound"]}), ("no array 'state'", "there are: sound")),
            (npz({**good, "sound": npy((2, LENGTH + 1), [0] * 2 * (LENGTH + 1))}), ("sound", "2x7", "1x2x6")),
            (npz({**good, "sound": npy((1 << 20,), [0] * (1 << 20))}, zipfile.ZIP_DEFLATED), ("sound", "4194", "at most")),
            (npz({**good, "sound": good["sound"].replace(b"<f4", b"<i8")}), ("sound", "bytes")),
            (npz(good, zipfile.ZIP_BZIP2), ("sound", "neither stored nor deflated")),
            (good["sound"], ("one array", "2 inputs", ".npz")),
            (b"text", ("neither an array nor an archive",)),
            (stored[:-10], ("end is missing",)),
            (stored[:-6] + struct.pack("<I", len(stored)) + stored[-2:], ("directory",)),
            (stored[:entry + 8] + b"\x01" + stored[entry + 9:], ("encrypted",)),
            (stored[:entry + 42] + struct.pack("<I", 1) + stored[entry + 46:], ("not where",)),
            (stored[:entry + 24] + struct.pack("<I", 100) + stored[entry + 28:], ("two different sizes",)),
            (stored.replace(floats([5.0]), floats([6.0]), 1), ("checksum",)),
        )
        for content, texts in cases:
            self.write("bad/0.npz", content)
            done = self.pipit("calibrate", "model.onnx", "bad", "--output", "p.json", code=RUNTIME)
            self.assert_one_line_error(done, "0.npz", *texts)
        # A deflated member that unpacks to more than it says.
        deflated = npz(good, zipfile.ZIP_DEFLATED)
        entry = deflated.index(b"PK\x01\x02")
        size, = struct.unpack("<I", deflated[entry + 24:entry + 28])
        self.write("bad/0.npz", deflated[:entry + 24] + struct.pack("<I", size - 1) + deflated[entry + 28:])
        done = self.pipit("calibrate", "model.onnx", "bad", "--output", "p.json", code=RUNTIME)
        self.assert_one_line_error(done, "cannot be unpacked")

    def test_what_cannot_be_used_is_excluded_and_pixels_mean_nothing(self):
        self.write("sounds/0/x.npz", b"text")
        done = self.pipit_with_notes("calibrate", "model.onnx", "sounds", "--output", "p.json")
        self.assertIn("1 of 13 images cannot be used", done.stderr)
        self.pipit("calibrate", "model.onnx", "sounds", "--strict", "--output", "p.json", code=RUNTIME)
        for command in ("calibrate", "evaluate"):
            rest = ["--output", "p.json"] if command == "calibrate" else []
            done = self.pipit(command, "model.onnx", "sounds", "--resize", 8, *rest, code=USAGE)
            self.assert_one_line_error(done, "as they are")


if __name__ == "__main__":
    main()
