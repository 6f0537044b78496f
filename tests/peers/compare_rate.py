#!/usr/bin/env python3
"""How often `pipit compare` calls one and the same build different, and how often it finds a difference that is there.

Record many processes of one build, then ask. Half of each drawn group stands for another build; with --slower all its
times are multiplied.

    for i in $(seq 1000); do pipit profile resnet20-cifar10 --threads 1 --runs 30 --json; done > many.json
    PIPIT=build/pipit python3 tests/peers/compare_rate.py many.json
    PIPIT=build/pipit python3 tests/peers/compare_rate.py many.json --slower 1.03

FILE holds documents of one command: profile, bench or sweep, in the order in which they ran. Printed are shares of the
comparisons with 95 % intervals: in turns from 20 sections of the recording, between which load differs; of random draws
Wilson's, as if these were independent, though they share processes.
"""

import argparse
import json
import math
import os
import pathlib
import random
import statistics
import subprocess
import tempfile


SECTIONS = 20


def documents(text):
    decoder = json.JSONDecoder()
    at = 0
    while at < len(text):
        document, end = decoder.raw_decode(text, at)
        yield document
        at = end
        while at < len(text) and text[at].isspace():
            at += 1


def slowed(value, factor):
    """The document with all samples_ms multiplied."""
    if isinstance(value, list):
        return [slowed(entry, factor) for entry in value]
    if not isinstance(value, dict):
        return value
    return {key: [factor * ms for ms in entry] if key == "samples_ms" else slowed(entry, factor) for key, entry in value.items()}


def wilson(count, of, z=1.96):
    share = count / of
    middle = (share + z * z / (2 * of)) / (1 + z * z / of)
    half = z * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of)) / (1 + z * z / of)
    return f"{100 * share:.1f} % [{100 * (middle - half):.1f}, {100 * (middle + half):.1f}]"


def share_text(found, order):
    """found: (where in the recording, from 0 to 1; whether) of each comparison."""
    if order == "random":
        return wilson(sum(shown for _, shown in found), len(found))
    sections = [[] for _ in range(SECTIONS)]
    for where, shown in found:
        sections[min(int(where * SECTIONS), SECTIONS - 1)].append(shown)
    shares = [statistics.fmean(section) for section in sections if section]
    half = 1.96 * statistics.stdev(shares) / math.sqrt(len(shares)) if len(shares) > 1 else math.nan
    return f"{100 * statistics.fmean(shown for _, shown in found):.1f} +- {100 * half:.1f} %"


def drawn(processes, count, order, rng):
    """Two groups of `processes` of `count` that were recorded, and where in the recording."""
    if order == "random":
        both = rng.sample(range(count), 2 * processes)
        return both[:processes], both[processes:], 0
    begin = rng.randrange(count - 2 * processes + 1)
    both = range(begin, begin + 2 * processes)
    return both[::2], both[1::2], begin / count


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--processes", default="3,6", help="on each side")
    parser.add_argument("--comparisons", type=int, default=1000)
    parser.add_argument("--order", choices=("turns", "random"), default="turns", help="turns: processes that followed each other")
    parser.add_argument("--slower", type=float, default=1, help="what the second side's times are multiplied with")
    options = parser.parse_args()
    recorded = list(documents(options.file.read_text()))
    first = [json.dumps(document) for document in recorded]
    second = [json.dumps(slowed(document, options.slower)) for document in recorded]
    print(f"{len(recorded)} processes, {options.comparisons} comparisons each, {options.order}, second side times {options.slower:g}")
    wanted = {"slower"} if options.slower > 1 else {"slower", "faster"}
    with tempfile.TemporaryDirectory() as folder:
        a, b = pathlib.Path(folder, "a.json"), pathlib.Path(folder, "b.json")
        for processes in map(int, options.processes.split(",")):
            rng = random.Random(1)
            whole, any_layer, either = [], [], []
            layers = of_layers = 0
            for _ in range(options.comparisons):
                *sides, where = drawn(processes, len(recorded), options.order, rng)
                for path, texts, side in zip((a, b), (first, second), sides):
                    path.write_text("\n".join(texts[i] for i in side))
                done = subprocess.run([os.environ.get("PIPIT", "pipit"), "compare", a, b, "--json", "--quiet"], check=True,
                                      capture_output=True, text=True)
                comparison = json.loads(done.stdout)["comparisons"][0]
                verdicts = [layer["verdict"] in wanted for layer in comparison.get("layers", ()) if "verdict" in layer]
                of_layers += len(verdicts)
                layers += sum(verdicts)
                whole.append((where, comparison["verdict"] in wanted))
                any_layer.append((where, any(verdicts)))
                either.append((where, comparison["verdict"] in wanted or any(verdicts)))
            print(f"{processes} against {processes}: whole {share_text(whole, options.order)}", end="")
            if of_layers:
                print(f", any layer or row {share_text(any_layer, options.order)}, either {share_text(either, options.order)}, single ones"
                      f" {100 * layers / of_layers:.2f} %", end="")
            print(flush=True)


if __name__ == "__main__":
    main()
