"""No layer takes less than its floor: on built-in networks, and on models that each memory binds.

Times of a busy machine must not fail it. A ceiling is the best of several measurements, before and after the profiles,
and a layer may be faster by what half of their rounds are slower by: where something else ran meanwhile the check is
weak, and never wrong. How floors count is held against counts by hand in tests/pipit/test_floors.cpp.
"""

import json
import os
import subprocess

import onnx_model
from command import MODEL, OK, PIPIT, CommandTest, main

MEASUREMENTS = 1  # before the profiles, and as many after them
# Clocks tick, and a p10 of 30 runs is one of the three fastest.
LEAST_MARGIN = 0.02


def rates_of(ceilings):
    """(bound, name) -> rate, of all that floors are made of."""
    rates = {("compute", a["products"], a["unit"]): a["gflops"] for a in ceilings["arithmetic"]}
    for memory in ceilings["memory"]:
        for loop in ("read", "write", "copy", "add"):
            rates[memory["name"], loop, ""] = memory[f"{loop}_gb_per_s"]
    return rates


class Floors(CommandTest):
    isa = ""

    def run_pipit(self, *arguments):
        environment = {**os.environ, "XDG_CACHE_HOME": str(self.folder), "PIPIT_ISA": self.isa,
                       "PIPIT_SHORT_MEASUREMENTS": "0"}
        done = subprocess.run([PIPIT, *map(str, arguments), "--threads", "1", "--json", "--quiet"], cwd=self.folder,
                              env=environment, capture_output=True, text=True, timeout=300, check=False)
        self.assertEqual(done.returncode, OK, done.stderr)
        return json.loads(done.stdout)

    def models(self):
        """Element-wise layers, pools, slices and products of sizes that lie in every cache and beyond all of them."""
        tanh = [onnx_model.node("Tanh", ["x"], "y")]
        for name, elements in (("l1", 1 << 11), ("l2", 1 << 16), ("l3", 1 << 20), ("memory", 1 << 24)):
            yield self.write(f"{name}.onnx", onnx_model.model((1, elements), tanh))
            add = [onnx_model.node("Add", ["x", "x"], "a"), onnx_model.node("Relu", ["a"], "y")]
            yield self.write(f"{name}-add.onnx", onnx_model.model((1, elements), add))
        image = (1, 64, 56, 56)
        for name, node in {
                "pool": onnx_model.node("MaxPool", ["x"], "y", kernel_shape=[1, 1], strides=[2, 2]),
                "global": onnx_model.node("GlobalAveragePool", ["x"], "y"),
                "softmax": onnx_model.node("Softmax", ["x"], "y", axis=1),
                "transpose": onnx_model.node("Transpose", ["x"], "y", perm=[0, 2, 3, 1])}.items():
            yield self.write(f"{name}.onnx", onnx_model.model(image, [node]))

    def test_hold(self):
        settings = [(MODEL,), (MODEL, "--precision", "int8-dynamic"), (MODEL, "--precision", "fp16"),
                    (MODEL, "--batch", "7", "--micro-batch", "2"), (MODEL, "--kernel", "no-winograd"), ("resnet18",),
                    ("resnet18", "--precision", "int8-dynamic"), ("resnet18", "--precision", "w8")]
        bounds = self.bounds_that_hold(settings + [(model,) for model in self.models()])
        self.assertIn("compute", bounds)
        self.assertGreaterEqual(len(bounds), 3)  # memory itself only where the last cache holds less than 128 MiB

    def test_hold_on_any_cpu(self):
        self.isa = "baseline"
        self.assertIn("compute", self.bounds_that_hold([(MODEL,), (MODEL, "--precision", "int8-dynamic")]))

    def bounds_that_hold(self, settings):
        """Profiles them, and holds all layers against their floors; returns what binds some of them."""
        measured = [self.run_pipit("ceilings")["ceilings"] for _ in range(MEASUREMENTS)]
        profiles = [(setting, self.run_pipit("profile", *setting, "--runs", "30", "--floor")) for setting in settings]
        measured += [self.run_pipit("ceilings")["ceilings"] for _ in range(MEASUREMENTS)]
        used = rates_of(profiles[0][1]["ceilings"])
        rates = [rates_of(ceilings) for ceilings in measured]

        # By what a floor of that bound is too high: the ceiling that it used against the best that was seen; and how
        # far rounds of it lie apart.
        too_high, margins = {}, {}
        for key, rate in used.items():
            best = max(one[key]["best"] for one in rates)
            bound = key[0]
            too_high[bound] = max(too_high.get(bound, 1), best / rate["best"])
            spread = 1 - min(one[key]["median"] for one in rates) / best
            margins[bound] = max(margins.get(bound, LEAST_MARGIN), spread)
        bounds = set()
        for setting, profile in profiles:
            for layer in profile["layers"]:
                if layer["bound"] is None:
                    continue
                bounds.add(layer["bound"])
                floor = 1e-3 * layer["floor_us"] / too_high[layer["bound"]]
                self.assertGreaterEqual(layer["p10_ms"], floor * (1 - margins[layer["bound"]]),
                                        f"{setting}: {layer['name']}, {layer['kernel']}, {layer['bound']}, margins {margins}")
        return bounds


if __name__ == "__main__":
    main()
