"""Kernels chosen by estimate against kernels that were timed on a GPU: test_choice.py PRINT_ESTIMATES.

Of every recorded network, convolution by convolution: what the chosen kernel took, over what the fastest took, each in
the variant that it chooses itself.
"""

import collections
import json
import math
import pathlib
import statistics
import subprocess
import sys
import tempfile
import unittest

import recorded

PROGRAM = ""


class Choice(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.document = recorded.load()
        layers = [(i, key, times) for i, (key, times) in enumerate(cls.document["layers"]) if recorded.described(key)]
        cls.choices = {}
        cls.unknown = set()
        for (index, key, times), candidates in zip(layers, recorded.estimates(PROGRAM, [key for _, key, _ in layers])):
            timed = []
            for candidate, variants in candidates:
                cls.unknown |= {kernel for _, kernel, us, _ in variants if us is None}
                if (us := recorded.chosen_time(times, candidate, variants)) is not None:
                    timed.append((us, candidate))
            if timed:
                cls.choices[index] = (timed[0][0], min(timed)[0])

    def test_every_kernel_has_constants(self):
        self.assertEqual(self.unknown, set())

    def ratios(self):
        """By (precision, batch) the networks' ratios of the chosen to the fastest."""
        found = collections.defaultdict(dict)
        for name, network in self.document["networks"].items():
            model, precision, batch = name.split()
            of = [(self.choices[int(i)], count) for i, count in network["layers"].items() if int(i) in self.choices]
            if of:
                found[precision, batch][model] = sum(c[0] * n for c, n in of) / sum(c[1] * n for c, n in of)
        return found

    def test_networks_take_little_longer_than_with_the_fastest_kernels(self):
        for (precision, batch), networks in sorted(self.ratios().items()):
            mean = math.exp(statistics.mean(map(math.log, networks.values())))
            worst = max(networks, key=networks.get)
            text = f"{precision}, batch {batch}: {mean:.3f} in the mean of {len(networks)} networks, {worst} {networks[worst]:.3f}"
            print(text)
            self.assertLess(mean, MEAN, text)
            self.assertLess(networks[worst], WORST[precision], text)


# What is left is the difference between times alone and in networks, and layers that a library computes far more slowly
# than it does others like them.
class Packing(unittest.TestCase):
    KEY = ("Conv{{2 [1 1 1 ][2 2 1 ][1 1 1 ][0 0 0 ][0 0 0 ]0 }1 {0 inf }}; f16 1x64x28x28 nhwc, constant f32 32x64x1x1, "
           "constant f32 32 -> f16 1x32x14x14 nhwc; fp16")

    def test_layers_times_and_networks(self):
        def step(us, nodes=1, geometry="1x1 s2 +relu", kernel="spread_gemm"):
            return {"nodes": ["n"] * nodes, "type": "Conv", "kernel": kernel, "variant": "", "input": [1, 64, 28, 28],
                    "output": [1, 32, 14, 14], "geometry": geometry, "us": us}

        steps = [step(3), step(5), step(4), step(9, nodes=2), step(7, geometry="1x1 s2 +relu +add"), step(0.1)]
        row = {"model": "net", "precision": "fp16", "batch": 1, "machine": "a card", "rule": {"steps": steps}, "layers": [self.KEY]}
        documents = [{"date": "2026-01-01", "networks": [row], "layers": {self.KEY: {"spread_gemm 64x32/1": 2.3456}}},
                     {"date": "2026-01-02", "networks": [], "layers": {self.KEY: {"spread_gemm 64x32/1": 2.3}}}]
        with tempfile.TemporaryDirectory() as folder:
            files = [pathlib.Path(folder) / f"{i}.json" for i in range(2)]
            for file, document in zip(files, documents):
                file.write_text(json.dumps(document), encoding="utf-8")
            out = pathlib.Path(folder) / "packed.json.xz"
            script = pathlib.Path(__file__).with_name("pack_layers.py")
            subprocess.run([sys.executable, script, *files, "--out", out], check=True, stderr=subprocess.DEVNULL)
            packed = recorded.load(out)
        self.assertEqual(packed["layers"], [[self.KEY, {"spread_gemm 64x32/1": 2.3, "spread_gemm in its network": 4.0}]])
        self.assertEqual(packed["networks"], {"net fp16 1": {"layers": {"0": 1}, "not_recorded": 0}})
        self.assertEqual((packed["machine"], packed["date"]), ("a card", "2026-01-02"))


MEAN, WORST = 1.06, {"fp16": 1.2, "fp32": 1.3, "int8": 1.2}

if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
