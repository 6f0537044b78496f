"""The servers of examples/serving, asked over loopback by several clients at once."""

from __future__ import annotations

import base64
import http.client
import importlib.util
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
import unittest
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pipit
from support import MODEL, ROOT, PackageTest, bmp, random_pixels

EXAMPLES = ROOT / "examples/serving"
CLIENTS = 8
Answer = tuple[int, list[tuple[int, str]]]


def missing(*modules: str) -> bool:
    return any(importlib.util.find_spec(module) is None for module in modules)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


class Serving(PackageTest):
    def setUp(self) -> None:
        super().setUp()
        self.images = [bmp(random_pixels(seed)) for seed in range(24)]
        classifier = pipit.Classifier(MODEL, threads=1, batch=16)
        self.expected = [[(one.index, one.label) for one in answer] for answer in classifier(self.images)]

    def start(self, example: str) -> None:
        """Starts the server and waits until it answers or ends."""
        self.port = free_port()
        self.log = self.folder / "log"
        environment = {
            **os.environ,
            "PYTHONPATH": str(pathlib.Path(pipit.__file__).parents[1]),
            "RAY_raylet_start_wait_time_s": "900",
            "RAY_worker_register_timeout_seconds": "900",
            "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "900",
            "RAY_USAGE_STATS_ENABLED": "0",
        }
        with open(self.log, "wb") as log:
            self.server = subprocess.Popen(
                [sys.executable, EXAMPLES / example, MODEL, str(self.port)],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=self.folder,
            )
        self.addCleanup(self.stop)
        while True:
            try:
                if self.post("/v2/health/ready" if example == "kserve_v2.py" else "/", b"")[0] not in (404, 503):
                    return
            except OSError:
                pass
            if self.server.poll() is not None:
                self.fail(f"{example} ended with {self.server.returncode}:\n{self.log.read_text()}")
            time.sleep(0.2)

    def stop(self) -> None:
        self.server.send_signal(signal.SIGINT)
        self.server.wait()

    def post(self, path: str, body: bytes, **headers: str) -> tuple[int, Any, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        try:
            connection.request("POST" if body else "GET", path, body or None, headers)
            answer = connection.getresponse()
            return answer.status, answer.read(), answer.headers
        finally:
            connection.close()

    def ask_all(
        self, ask: Callable[[bytes], tuple[int, Any, Any]], top: Callable[[Any], list[tuple[int, str]]]
    ) -> None:
        """Several clients at once, one of which sends what is no image."""
        with ThreadPoolExecutor(CLIENTS) as clients:
            answers = list(clients.map(ask, [*self.images[:10], b"no image", *self.images[10:]]))
        status, body, _ = answers.pop(10)
        self.assertEqual(status, 400, body)
        self.assertIn("not a JPEG", json.loads(body)["error"])
        for (status, body, headers), expected in zip(answers, self.expected, strict=True):
            self.assertEqual(status, 200, body)
            self.assertEqual(top(json.loads(body)), expected)
            self.assertIn(int(headers["batch"]), range(1, 17))

    @unittest.skipIf(missing("ray", "ray.serve", "starlette"), "Ray Serve is not installed: pip install 'ray[serve]'")
    def test_ray_serve(self) -> None:
        self.start("ray_serve.py")
        self.ask_all(lambda image: self.post("/", image), lambda body: [(one["index"], one["label"]) for one in body])

    @unittest.skipIf(missing("litserve"), "LitServe is not installed: pip install litserve")
    def test_kserve_v2(self) -> None:
        self.start("kserve_v2.py")

        def ask(image: bytes) -> tuple[int, Any, Any]:
            tensor = {"name": "image", "datatype": "BYTES", "shape": [1], "data": [base64.b64encode(image).decode()]}
            body = json.dumps({"id": "7", "inputs": [tensor]}).encode()
            return self.post("/v2/models/pipit/infer", body, **{"Content-Type": "application/json"})

        def top(body: Any) -> list[tuple[int, str]]:
            self.assertEqual((body["model_name"], body["id"]), ("pipit", "7"))
            outputs = {output["name"]: output for output in body["outputs"]}
            self.assertEqual(
                {name: output["datatype"] for name, output in outputs.items()},
                {"class": "INT64", "label": "BYTES", "probability": "FP32"},
            )
            self.assertEqual(outputs["class"]["shape"], [5])
            return list(zip(outputs["class"]["data"], outputs["label"]["data"], strict=True))

        self.ask_all(ask, top)


if __name__ == "__main__":
    if missing("ray") and missing("litserve"):
        print("SKIP: neither Ray Serve nor LitServe is installed: pip install 'ray[serve]' litserve")
        sys.exit(77)
    unittest.main()
