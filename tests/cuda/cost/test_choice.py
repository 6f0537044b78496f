"""Kernels chosen by estimate against kernels that were timed on a GPU: test_choice.py PRINT_ESTIMATES.

Of every recorded network, convolution by convolution: what the chosen kernel and variant took, over what the fastest of
all that were timed took, in networks (recorded.as_in_networks). Of every recorded chain of layers: what the cheaper of the chain and of its layers' kernels
took, by the estimates, over what the faster took.
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
        layers = [(i, key, times) for i, (key, times) in enumerate(recorded.as_in_networks(cls.document)) if recorded.described(key)]
        cls.choices, cls.unknown, cls.not_timed, cls.first_untimed = {}, set(), 0, collections.Counter()
        for (index, key, times), candidates in zip(layers, recorded.estimates(PROGRAM, [key for _, key, _ in layers])):
            chosen = None
            alone = [us for name, us in times.items() if recorded.is_choice(name)]
            for place, (candidate, variants) in enumerate(candidates):
                cls.unknown |= {kernel for _, kernel, us, _ in variants if us is None}
                named = sorted(variants[1:], key=lambda variant: variant[2]) or variants
                timed = [us for variant, *_ in named if (us := recorded.time_of(times, candidate, variant)) is not None]
                if place == 0 and alone and not timed:
                    cls.first_untimed[candidate] += 1
                if timed and chosen is None:
                    chosen = timed[0]
                    cls.not_timed += recorded.time_of(times, candidate, named[0][0]) is None
            if chosen is not None:
                cls.choices[index] = (chosen, min(alone))

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
            beyond = sum(ratio > 1.02 for ratio in networks.values())
            text = (f"{precision}, batch {batch}: {mean:.3f} in the mean of {len(networks)} networks, {beyond} beyond 1.02, "
                    f"{worst} {networks[worst]:.3f}")
            print(text)
            self.assertLess(mean, MEAN, text)
            self.assertLess(networks[worst], WORST[precision], text)

    def test_what_is_chosen_was_timed(self):
        self.assertLess(self.not_timed, 0.02 * len(self.choices))
        # Of cudnn the choice by measurement times only what comes first in its own order.
        self.assertLessEqual(set(self.first_untimed), {"cudnn"}, f"candidates without times that would run recorded layers: {self.first_untimed}")

    def test_chains_are_taken_where_they_are_faster(self):
        times = dict(recorded.as_in_networks(self.document))
        totals = collections.defaultdict(lambda: [0, 0.0, 0.0, 0.0])
        chains = self.document["chains"]
        for (kernel, keys, _, us), (together, apart) in zip(chains, recorded.chain_estimates(PROGRAM, [c[:3] for c in chains])):
            self.assertIsNotNone(together, f"{kernel} of {keys}")
            self.assertIsNotNone(together[2], f"{together[1]} has constants")
            # What was not recorded of single layers is what it is estimated to take.
            took = sum(self.time_of_single(times.get(keys[node], {}), kernel_of) or estimate for node, kernel_of, estimate in apart)
            row = totals[kernel]
            row[0] += 1
            row[1] += us if together[2] <= sum(estimate for *_, estimate in apart) else took
            row[2] += min(us, took)
            row[3] += took
        for kernel, (count, chosen, fastest, apart) in sorted(totals.items()):
            text = f"{kernel}: {chosen / fastest:.3f} of the faster in {count} recorded chains; layers one by one {apart / fastest:.3f}"
            print(text)
            self.assertLess(chosen / fastest, CHAINS, text)

    @staticmethod
    def time_of_single(times, kernel):
        """The fastest variant of a candidate; of "made_up", which stands for all that only nvcc compiles, the fastest
        kernel."""
        return min((us for name, us in times.items() if kernel in (name.split()[0], "made_up") and recorded.is_choice(name)), default=None)


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
        self.assertEqual(packed["layers"], [[self.KEY, {"spread_gemm 64x32/1": 2.3, "spread_gemm 64x32/1 in its network": 4.0}]])
        self.assertEqual(packed["networks"], {"net fp16 1": {"layers": {"0": 1}, "not_recorded": 0}})
        self.assertEqual((packed["machine"], packed["date"]), ("a card", "2026-01-02"))


# What is left is the difference between times alone and in networks, layers that a library computes far more slowly
# than others like them, and noise: the fastest of several times is lower than what its kernel takes on average.
MEAN, WORST, CHAINS = 1.032, {"fp16": 1.11, "fp32": 1.06, "int8": 1.10}, 1.045

if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
