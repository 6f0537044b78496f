"""Every command on a terminal of 80 columns: tables and notes fit it, --wide shows all, the next command is named."""

import json
import re
import struct

import onnx_model
from command import MODEL, NESTED_SUBCOMMANDS, OTHER_SUBCOMMANDS, RUNTIME, SUBCOMMANDS, CommandTest, main

COLUMNS = 80
LONG = "/a/name/that/no/terminal/has/room/for/in/a/table/of/numbers"
SWEEPS = {"conv": ("--n", "1", "--in", "8", "--out", "8", "--size", "9", "--kernel", "1,3", "--seconds", "0", "--backend", "auto,depthwise"),
          "sparsity": ("--layer", "1x16x9x9:24x3x3", "--mode", "k,channel", "--keep-ratio", "1,0.5", "--seconds", "0")}


class Terminal(CommandTest):
    def setUp(self):
        super().setUp()
        for i in range(24):
            kind = ("frog", "ship", "cat")[i % 3]
            self.write_bmp(f"images/{kind}/{i}.bmp", (i * 37 % 256, i * 91 % 256, 9 * i))

    def long_model(self):
        """Layers whose names differ in the middle only."""
        nodes = [onnx_model.node("Softmax", ["x" if i == 0 else f"v{i - 1}"], "y" if i == 3 else f"v{i}", name=f"{LONG[:32]}{i}{LONG[32:]}", axis=1)
                 for i in range(4)]
        return self.write("long.onnx", onnx_model.model((1, 4), nodes))

    def see(self, *arguments, code=0, next_command=True):
        """What is on a terminal when the command is done, after its lines were measured."""
        shown = self.on_a_terminal(COLUMNS, *arguments, notes=True, code=code)
        # Commands to be copied stay whole.
        lines = [line for line in shown.splitlines() if not line.startswith(("  pipit ", "  for i in "))]
        self.assertEqual([line for line in lines if len(line) > COLUMNS], [], arguments)
        self.assertEqual([line for line in shown.splitlines() if line != line.rstrip()], [], arguments)
        if next_command:
            self.assertRegex(shown, r"pipit: next: (pipit [^\n]*|[^:]*:\n  pipit [^\n]*)\n\Z")
        return shown

    def test_every_command(self):
        self.keep_ceilings(gflops=1000, gb_per_s=1000)
        model, plan = self.write("conv.onnx", onnx_model.flatten((1, 3, 32, 32))), self.folder / "plan.json"
        self.pipit_with_notes("calibrate", MODEL, "images", "--output", plan, "--limit", 4)
        for name in ("a.json", "b.json"):
            self.write(name, "".join(self.pipit("bench", MODEL, "--runs", "3", "--json", silent=False).stdout for _ in range(3)))
        for name, file, numbers in (("x", "input_0.pb", (1, 2, 3, 4)), ("y", "output_0.pb", (0.0320586, 0.0871443, 0.2368828, 0.6439142))):
            self.write(f"test/test_data_set_0/{file}", onnx_model.tensor(name, onnx_model.FLOAT, (1, 4), struct.pack("<4f", *numbers)))
        self.write("test/model.onnx", onnx_model.model((1, 4), [onnx_model.node("Softmax", ["x"], "y", name=LONG, axis=1)]))
        commands = {
            "classify": [(MODEL, "images", "--profile", "--runs", 2), (model, "images/cat/2.bmp")],
            "evaluate": [(MODEL, "images"), (MODEL, "images", "--precision", "int8", "--plan", plan, "--against", "fp32", "--max-drop", 100)],
            "inspect": [(MODEL,), (MODEL, "--why"), (self.long_model(), "--why")],
            "verify": [("test",)],
            "profile": [(MODEL, "--runs", 2), (MODEL, "--runs", 2, "--floor", "--memory"), (MODEL, "--runs", 2, "--by", "kernel"),
                        (MODEL, "--runs", 2, "--threads", "1,2", "--precision", "fp32,int8-dynamic"),
                        (MODEL, "--runs", 2, "--threads", "1,2", "--precision", "fp32,fp16", "--batch", "1,2", "--top", 2)],
            "bench": [(MODEL, "--runs", 3, "--peak"), (MODEL, "--runs", 3, "--precision", "fp32,fp16"), (MODEL, "--runs", 3, "--streams", "1,2")],
            "calibrate": [(MODEL, "images", "--output", "p.json"), ("--merge", plan, "--output", "p.json")],
            "quantize": [(MODEL, "--plan", plan, "--output", "q.onnx")],
            "annotate": [(model, "--preset", "torchvision", "--output", "a.onnx")],
            "diff": [(MODEL, "images", "--plan", plan), (MODEL, "images", "--plan", plan, "--fast")],
            "tune": [(MODEL, "images", "--max-drop", 100, "--output", "mixed.json", "--limit", 8)],
            "prune": [(MODEL, "images", "--keep-ratio", 0.5, "--output", "p.onnx", "--precision", "int8")],
            "sweep": [(name, *options) for name, options in SWEEPS.items()],
            "compare": [("a.json", "b.json")],
            "models": [()],
            "doctor": [()],
            "ceilings": [("--kept",)],
        }
        # fetch needs a network or what test_fetch.py puts in its place; help is all about what to type.
        self.assertEqual(set(commands), {*SUBCOMMANDS, *OTHER_SUBCOMMANDS, *NESTED_SUBCOMMANDS} - {"fetch", "help"})
        for name, calls in commands.items():
            for arguments in calls:
                with self.subTest(name, arguments=arguments):
                    self.see(name, *arguments)
        self.see("bench", MODEL, "missing.onnx", "--runs", 3, code=RUNTIME)
        self.see("help", next_command=False)
        for name in ("inspect", "doctor", "models"):
            arguments = (name, MODEL) if name in SUBCOMMANDS else (name,)
            self.assertNotIn("next:", self.on_a_terminal(COLUMNS, *arguments, "--quiet", notes=True))

    def test_text_goes_on_below_a_word_that_is_too_long(self):
        long = "x" * 100
        shown = self.on_a_terminal(COLUMNS, "inspect", long, notes=True, code=RUNTIME).splitlines()
        self.assertEqual(shown[0], f"pipit: {long}:")
        self.assertRegex(shown[1], "^ {7}there is no such file")
        self.assertLessEqual(max(map(len, shown[1:])), COLUMNS)

    def test_too_few_processes(self):
        self.write("a.json", self.pipit("bench", MODEL, "--runs", "3", "--json", silent=False).stdout)
        self.assertRegex(self.see("compare", "a.json", "a.json", next_command=False), r"(?m)^  for i in 1 2; do pipit bench .* done$")

    def test_names_can_be_told_apart(self):
        shown = self.see("inspect", self.long_model())
        self.assertEqual(re.findall(r"(?m)^\d  \.\.\.\S*(\d)\S* ", shown), list("0123"))
        self.assertIn(f"0  {LONG[:32]}0{LONG[32:]}  Softmax", self.on_a_terminal(COLUMNS, "inspect", self.long_model(), "--wide"))

    def test_wide(self):
        for arguments in (("models",), ("sweep", "conv", *SWEEPS["conv"]), ("sweep", "sparsity", *SWEEPS["sparsity"]),
                          ("bench", MODEL, "--runs", 3), ("classify", MODEL, "images/cat/2.bmp", "--profile")):
            with self.subTest(arguments):
                piped = self.pipit_with_notes(*arguments).stdout
                wide = self.on_a_terminal(COLUMNS, *arguments, "--wide")
                narrow = self.on_a_terminal(COLUMNS, *arguments)

                def titles(text):
                    return next(line.split() for line in text.splitlines() if re.search(r" ms|size", line))

                self.assertEqual(titles(wide), titles(piped))
                self.assertLess(len(titles(narrow)), len(titles(wide)))

    def test_columns_without_content_are_left_out(self):
        titles = self.pipit_with_notes("bench", MODEL, "--runs", 3).stdout.splitlines()[0]
        self.assertNotIn("error", titles)
        failed = self.pipit("bench", MODEL, "missing.onnx", "--runs", 3, code=RUNTIME).stdout.splitlines()[0]
        self.assertIn("error", failed)
        self.assertEqual(json.loads(self.pipit_with_notes("bench", MODEL, "--runs", 3, "--json").stdout)["results"][0].get("error"), None)


if __name__ == "__main__":
    main()
