"""Kernels chosen by estimate against kernels that were timed on a GPU: test_choice.py PRINT_ESTIMATES.

Of every recorded network, convolution by convolution: what the chosen kernel took, over what the fastest took, each in
the variant that it chooses itself.
"""

import collections
import math
import statistics
import sys
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
MEAN, WORST = 1.06, {"fp16": 1.2, "fp32": 1.3, "int8": 1.2}

if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
