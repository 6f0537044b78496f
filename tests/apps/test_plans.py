"""What commands say of the plan that they are given: slips in it, files that are none, images prepared otherwise."""

import json
import os

from command import CHECK_FAILED, MODEL, OK, RUNTIME, CommandTest, main


class Plans(CommandTest):
    def setUp(self):
        super().setUp()
        for i in range(4):
            self.write_bmp(f"images/{i}_a.bmp", (40 * i, 250 - 30 * i, 60 + 20 * i))
        self.pipit("calibrate", MODEL, "images", "--output", "plan.json", "--quiet")
        self.plan = json.loads((self.folder / "plan.json").read_text())

    def refused(self, *words, **changes):
        self.write("changed.json", json.dumps(self.plan | changes))
        self.assert_refused("changed.json", *words)

    def assert_refused(self, plan, *words):
        done = self.pipit("inspect", MODEL, "--precision", "int8", "--plan", plan, code=RUNTIME)
        self.assert_one_line_error(done, plan, *words)
        self.assertNotIn("exception", done.stderr)

    def test_slips_of_people_who_edit_are_refused(self):
        self.refused("no key 'kep'; did you mean 'keep'?", kep={})
        first, *others = self.plan["tensors"]
        self.refused(f"tensor '{first['name']}'", "no key 'skale'; did you mean 'scale'?",
                     tensors=[first | {"skale": 1}, *others])
        # A misspelled name would lose its scale.
        name = others[3]["name"]
        self.plan.pop("histograms")
        self.write("changed.json", json.dumps(self.plan | {
            "tensors": [first, *others[:3], others[3] | {"name": name + "x"}, *others[4:]]}))
        done = self.pipit("inspect", MODEL, "--precision", "int8", "--plan", "changed.json", code=RUNTIME)
        self.assert_one_line_error(done, f"'{name}x'", f"did you mean '{name}'")

    def test_images_that_were_changed_are_refused(self):
        images = self.plan["images"]
        self.refused("'images'", "'count' must be 4", images=images | {"count": 5})
        self.refused("'images'", "'hash' must be", images=images | {"hash": images["files"]["0_a.bmp"]})
        self.refused("'images'", "0_a.bmp", "32 hexadecimal", images=images | {"files": {"0_a.bmp": "guess"}})
        self.refused("preprocess", "crop", preprocess={"resize": 32})

    def test_plans_of_the_first_version_say_what_to_do(self):
        self.refused("version 1", "calibrate the model again", pipit_precision_plan=1)

    def test_files_that_are_no_plans(self):
        self.write("broken.json", '{\n  "keep": {,\n')
        self.assert_refused("broken.json", "line 2, column 12", "syntax error")
        self.write("list.json", "[1, 2]")
        self.assert_refused("list.json", "a JSON object")
        self.write("huge.json", '{"pipit_precision_plan": 1e999}')
        self.assert_refused("huge.json", "1e999")
        os.mkfifo(self.folder / "pipe")
        for path, words in (("pipe", "pipe"), ("/dev/zero", "device"), ("images", "folder"), ("none", "no such file")):
            with self.subTest(path):
                self.assert_refused(path, words)
                if path != "none":
                    done = self.pipit("inspect", path, code=RUNTIME)
                    self.assert_one_line_error(done, path, "is a folder" if path == "images" else "not a regular file")

    def test_images_prepared_otherwise_are_told_of(self):
        int8 = ("--precision", "int8", "--plan", "plan.json")
        commands = (("evaluate", MODEL, "more", *int8), ("classify", MODEL, "images/1_a.bmp", *int8),
                    ("diff", MODEL, "images", "--fast", "--plan", "plan.json"),
                    ("tune", MODEL, "more", "--plan", "plan.json", "--max-drop", 100, "--output", "mixed.json"))
        for i in range(4):
            self.write_bmp(f"more/{i}_a.bmp", (10 * i, 150 - 30 * i, 90 + 20 * i))
        for command in commands:
            with self.subTest(command[0]):
                same = self.json(*command)
                self.assertEqual(same["preprocess_differences"], [])
                other = (*command, "--resize", 40, "--bgr", "--std", "1,1,1")
                # Other images of the same network: the promise of tune may well break.
                code = CHECK_FAILED if command[0] == "tune" and not same["passed"] else OK
                done = self.pipit(*other, "--json", code=code, silent=False)
                note, = [line for line in done.stderr.splitlines() if "prepared differently" in line]
                for words in ("pipit: note: ", "plan.json", "resize 40 instead of", "bgr true instead of false", "std [1"):
                    self.assertIn(words, note)
                self.assertEqual(len(json.loads(done.stdout)["preprocess_differences"]), 3)
                self.pipit(*other, "--quiet", code=code)
        self.assertNotIn("preprocess_differences", self.json("classify", MODEL, "images/1_a.bmp"))

    def test_a_model_prepared_otherwise_is_told_of_when_it_is_written(self):
        self.pipit("calibrate", MODEL, "images", "--output", "plan.json", "--quiet", "--bgr")
        done = self.pipit_with_notes("quantize", MODEL, "--plan", "plan.json", "--output", "q.onnx")
        self.assert_one_line_error(done, "note", "bgr false instead of true")


if __name__ == "__main__":
    main()
