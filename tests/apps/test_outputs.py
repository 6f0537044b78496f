"""No command replaces what it reads, whatever it is called, nor what pipit keeps in its cache."""

import json
import os
import subprocess
import unittest.mock

from command import MODEL, OK, PIPIT, USAGE, CommandTest, main
from onnx_model import flatten


class Outputs(CommandTest):
    def setUp(self):
        super().setUp()
        patch = unittest.mock.patch.dict(os.environ, XDG_CACHE_HOME=str(self.folder / "cache"))
        patch.start()
        self.addCleanup(patch.stop)
        self.write_bmp("images/0_a.bmp", (90, 120, 150))
        self.write_bmp("images/1_b.bmp", (190, 20, 150))
        self.write("labels.txt", "a\nb\n")
        self.write("model.onnx", flatten())
        self.write("plan.json", "plan")

    def commands(self, model):
        """With what each writes last, and an output of the form that it takes."""
        return {
            "bench": (["bench", model, "--output"], "json"),
            "profile": (["profile", model, "--output"], "json"),
            "quantize": (["quantize", model, "--plan", "plan.json", "--output"], "onnx"),
            "calibrate": (["calibrate", model, "images", "--output"], "json"),
            "annotate": (["annotate", model, "--labels", "labels.txt", "--output"], "onnx"),
            "tune": (["tune", model, "images", "--max-drop", "1", "--output"], "json"),
            "tune svg": (["tune", model, "images", "--max-drop", "1", "--output", "o.json", "--save-svg"], "svg"),
            "prune": (["prune", model, "images", "--keep-ratio", "0.5", "--output"], "onnx"),
            "prune svg": (["prune", model, "images", "--keep-ratio", "0.5", "--output", "o.onnx", "--save-svg"], "svg"),
            "sweep sparsity": (["sweep", "sparsity", model, "--output"], "json"),
        }

    def assert_refused(self, command, output):
        path = self.folder / output
        before = path.read_bytes() if path.exists() else None
        done = self.pipit(*command, output, code=USAGE)
        self.assert_one_line_error(done, output, "would replace")
        self.assertEqual(path.read_bytes() if path.exists() else None, before)

    def test_the_tuning_cache_of_the_same_run(self):
        self.write("there.json", "times")
        for name, (command, _) in self.commands(MODEL).items():
            if name.split()[0] not in ("bench", "profile", "tune", "prune"):
                continue
            for cache in ("there.json", "new.json", "images/../new.json"):
                with self.subTest(name, cache=cache):
                    output = cache.removeprefix("images/../")
                    self.assert_refused([*command[:-1], "--autotune", "--tuning-cache", cache, command[-1]], output)

    def test_a_pipe_waits_for_its_reader(self):
        os.mkfifo(self.folder / "pipe.json")
        with subprocess.Popen([PIPIT, "bench", MODEL, "--runs", "1", "--quiet", "--output", "pipe.json"], cwd=self.folder,
                              stdout=subprocess.DEVNULL) as process:
            document = json.loads((self.folder / "pipe.json").read_text())
        self.assertEqual((process.returncode, document["command"]), (OK, "bench"))
        self.assertTrue((self.folder / "pipe.json").is_fifo())

    def test_the_model_under_another_name(self):
        for form in ("json", "onnx", "svg"):
            (self.folder / f"link.{form}").symlink_to("model.onnx")
        for name, (command, form) in self.commands("model.onnx").items():
            with self.subTest(name):
                self.assert_refused(command, f"link.{form}")

    def test_an_image_under_another_name(self):
        for form in ("json", "onnx", "svg"):
            (self.folder / f"image.{form}").symlink_to("images/0_a.bmp")
        for name, (command, form) in self.commands(MODEL).items():
            if "images" in command:
                with self.subTest(name):
                    self.assert_refused(command, f"image.{form}")

    def test_what_pipit_keeps(self):
        """Also where the model that is read is another one, and before any was fetched."""
        kept = self.write("cache/pipit/efficientnet-lite0.onnx", flatten())
        for form in ("json", "onnx", "svg"):
            (self.folder / f"kept.{form}").symlink_to(kept)
        for model in ("efficientnet-lite0", "model.onnx"):
            for name, (command, form) in self.commands(model).items():
                with self.subTest(name, model=model):
                    self.assert_refused(command, f"kept.{form}")
        for path in ("cache/pipit/efficientnet-lite0.onnx", "cache/pipit/efficientnet-lite1.onnx"):
            self.assert_refused(self.commands("model.onnx")["quantize"][0], path)
        self.assert_refused(["bench", MODEL, "--against", "efficientnet-lite0", "--output"], "kept.json")
        for path in ("cache/pipit/tuning.json", "cache/pipit/ceilings.json"):
            self.write(path, "kept")
            self.assert_refused(self.commands("model.onnx")["bench"][0], path)


if __name__ == "__main__":
    main()
