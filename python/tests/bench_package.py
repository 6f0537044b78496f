"""What the package adds to the library: prints the time that a call of a model without layers takes, and that importing
takes. Not a test: PYTHONPATH=build/python-package python3 python/tests/bench_package.py"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np

import pipit
from support import onnx_model


def quantiles(run: Callable[[], object], unit: float, runs: int) -> str:
    times = []
    for _ in range(runs):
        begin = time.perf_counter()
        run()
        times.append((time.perf_counter() - begin) * unit)
    times.sort()
    return f"median {times[runs // 2]:8.2f}   tenths {times[runs // 10]:8.2f} {times[runs * 9 // 10]:8.2f}"


def main() -> None:
    model = pipit.load(onnx_model.model((1, 10), [onnx_model.node("Flatten", ["x"], "y")]), threads=1)
    session, scores, out = model.session(), np.zeros((1, 10), np.float32), np.empty((1, 10), np.float32)
    print("model(x), us            ", quantiles(lambda: model(scores), 1e6, 20000))
    print("session.run(x), us      ", quantiles(lambda: session.run(scores), 1e6, 20000))
    print("session.run(x, out), us ", quantiles(lambda: session.run(scores, out=out), 1e6, 20000))
    for name in ("pipit", "numpy"):
        program = f"import time; begin = time.process_time(); import {name}; print(time.process_time() - begin)"
        taken = sorted(float(subprocess.check_output([sys.executable, "-c", program])) * 1e3 for _ in range(11))
        print(f"import {name}, CPU ms      median {taken[5]:8.2f}   least {taken[0]:8.2f}")


if __name__ == "__main__":
    main()
