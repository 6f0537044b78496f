"""How long Ctrl-C takes to end long work: prints the time from the signal to KeyboardInterrupt for each tool.
Not a test: PYTHONPATH=build/python-package python3 python/tests/bench_interrupts.py [MODEL [IMAGES]]"""

from __future__ import annotations

import os
import pathlib
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable

import pipit
from support import MODEL, bmp, random_pixels

TIMES = 5


def delay(work: Callable[[], object]) -> float | None:
    """Milliseconds; None if the work ended before the signal."""
    sent = 0.0
    ended = threading.Event()

    def send() -> None:
        nonlocal sent
        if not ended.wait(random.uniform(0.05, 0.5)):
            sent = time.perf_counter()
            os.kill(os.getpid(), signal.SIGINT)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        work()
        ended.set()
        sender.join()
        if sent:
            time.sleep(1)  # the signal came just afterwards
    except KeyboardInterrupt:
        caught = time.perf_counter()
        sender.join()
        return (caught - sent) * 1e3
    return None


def main() -> None:
    model = sys.argv[1] if len(sys.argv) > 1 else MODEL
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        images = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else folder / "images"
        if len(sys.argv) <= 2:
            images.mkdir()
            for i in range(2000):
                (images / f"{i % 10}_{i}.bmp").write_bytes(bmp(random_pixels(i)))
        loaded = pipit.load(model)
        for title, work in (
            ("load, autotune", lambda: pipit.load(model, autotune=True, tuning_cache=folder / "times")),
            ("profile", lambda: loaded.profile(runs=100000)),
            ("calibrate", lambda: pipit.calibrate(model, images, folder / "plan.json")),
            ("Calibrator.update", lambda: pipit.Calibrator(model).update(images)),
            ("evaluate", lambda: pipit.evaluate(model, images)),
            ("tune", lambda: pipit.tune(model, images, folder / "tuned.json")),
            ("prune", lambda: pipit.prune(model, images, folder / "pruned.onnx", max_drop=1)),
            ("bench", lambda: pipit.bench(model, seconds=5)),
            ("classifier(list)", lambda: pipit.Classifier(model)([*images.iterdir()])),
            ("classifier(list), one run", lambda: pipit.Classifier(model, batch=2000)([*images.iterdir()])),
            ("classify_all", lambda: [*pipit.Classifier(model).classify_all(images.iterdir())]),
        ):
            times = [found for _ in range(TIMES) if (found := delay(work)) is not None]
            print(f"{title:20}", " ".join(f"{one:6.0f}" for one in sorted(times)), "ms", flush=True)


if __name__ == "__main__":
    main()
