"""pipit verify."""

import os
import pathlib
import shutil
import struct
import unittest

from command import CHECK_FAILED, RUNTIME, UNSUPPORTED, CommandTest, main

CONFORMANCE = pathlib.Path("/usr/share/libonnx-testdata/data/node")


@unittest.skipUnless(CONFORMANCE.is_dir(), f"no {CONFORMANCE} (Debian's libonnx-testdata)")
class Verify(CommandTest):
    def copy(self, name):
        shutil.copytree(CONFORMANCE / name, self.folder / "tests" / name)

    def spoil_relu(self):
        """Adds 1 to one of the 3x4x5 floats that test_relu expects."""
        path = self.folder / "tests/test_relu/test_data_set_0/output_0.pb"
        data = bytearray(path.read_bytes())
        start = data.index(b"\x4a\xf0\x01") + 3  # TensorProto.raw_data, 240 bytes
        struct.pack_into("<f", data, start + 80, struct.unpack_from("<f", data, start + 80)[0] + 1)
        path.write_bytes(data)

    def test_passes(self):
        self.copy("test_relu")
        self.copy("test_add")
        result = self.json("verify", "tests")
        self.assertEqual((result["passed"], result["failed"], result["unsupported"]), (2, 0, 0))
        self.assertEqual([pathlib.Path(test["test"]).name for test in result["tests"]], ["test_add", "test_relu"])
        for test in result["tests"]:
            self.assertEqual((test["verdict"], test["note"]), ("passed", ""))
            self.assertLess(test["max_error"], 1e-6)
        self.assertIn("passed 2 failed 0 unsupported 0", self.pipit("verify", "tests").stdout)

    def test_a_difference_fails(self):
        self.copy("test_relu")
        self.spoil_relu()
        result = self.json("verify", "tests", code=CHECK_FAILED)
        (test,) = result["tests"]
        self.assertEqual((result["failed"], test["verdict"]), (1, "failed"))
        self.assertAlmostEqual(test["max_error"], 1, delta=1e-6)
        self.json("verify", "tests", "--atol", "1.01")

    def test_expected_values_in_bfloat16(self):
        self.copy("test_relu")
        path = self.folder / "tests/test_relu/test_data_set_0/output_0.pb"
        data = path.read_bytes()
        start = data.index(b"\x4a\xf0\x01")  # TensorProto.raw_data, 240 bytes
        floats = data[start + 3:start + 243]
        halves = b"".join(floats[i + 2:i + 4] for i in range(0, 240, 4))  # cut off, not rounded
        path.write_bytes(data[:start].replace(b"\x10\x01", b"\x10\x10", 1) + b"\x4a\x78" + halves + data[start + 243:])
        (test,) = self.json("verify", "tests")["tests"]
        self.assertGreater(test["relative_error"], 1e-3)
        self.json("verify", "tests", "--rtol", "1e-3", code=CHECK_FAILED)

    def test_two_tensors_of_one_name(self):
        self.copy("test_relu")
        data = self.folder / "tests/test_relu/test_data_set_0"
        shutil.copy(data / "input_0.pb", data / "input_1.pb")
        (test,) = self.json("verify", "tests", code=CHECK_FAILED)["tests"]
        self.assertRegex(test["note"], "input_1.pb: its tensor is named 'x' as that of input_0.pb")

    def test_unsupported(self):
        self.copy("test_nonmaxsuppression_limit_output_size")
        result = self.json("verify", "tests", code=UNSUPPORTED)
        self.assertEqual((result["passed"], result["unsupported"]), (0, 1))
        self.assertIn("NonMaxSuppression", result["tests"][0]["note"])
        self.copy("test_relu")
        self.assertEqual(self.json("verify", "tests")["passed"], 1)

    def test_one_broken_folder_does_not_stop_the_others(self):
        self.copy("test_relu")
        tests = self.folder / "tests"
        (tests / "loop").symlink_to("loop")  # no folder, and asking what it is fails
        (tests / "test_broken/test_data_set_0").mkdir(parents=True)
        (tests / "test_broken/model.onnx").symlink_to("model.onnx")
        (tests / "test_linked").symlink_to("test_relu")
        closed = 0
        if os.geteuid() != 0:  # root may read every folder
            closed = 1
            (tests / "closed").mkdir(mode=0)
            self.addCleanup((tests / "closed").chmod, 0o700)
        result = self.json("verify", "tests", code=CHECK_FAILED)
        self.assertEqual((result["passed"], result["failed"]), (2, 1 + closed))
        for test in result["tests"]:
            if test["verdict"] == "failed":
                self.assertIn(test["test"], test["note"])

    def test_folders(self):
        (self.folder / "empty").mkdir()
        for name in ("missing", "empty", "x" * 300):
            with self.subTest(name):
                self.assert_one_line_error(self.pipit("verify", name, code=RUNTIME), name)


if __name__ == "__main__":
    main()
