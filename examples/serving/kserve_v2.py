"""KServe's inference protocol v2 (Open Inference Protocol) with LitServe: requests in batches, one worker per device.

    python examples/serving/kserve_v2.py MODEL [PORT]

POST /v2/models/pipit/infer takes one tensor of type BYTES and shape [1], an image file in base64, and answers with the
classes from the most probable one on.
"""

import base64
import sys

import litserve
from starlette.responses import JSONResponse

import pipit

BATCH = 16


class Classify(litserve.LitAPI):
    def __init__(self, model: str) -> None:
        super().__init__(max_batch_size=BATCH, batch_timeout=0.01, api_path="/v2/models/pipit/infer")
        self.model = model

    def setup(self, device: str) -> None:
        self.classifier = pipit.Classifier(self.model, threads=1, batch=BATCH, device=device.partition(":")[0])

    def decode_request(self, request: dict) -> tuple[str, bytes]:
        return request.get("id", ""), base64.b64decode(request["inputs"][0]["data"][0])

    def predict(self, requests: list[tuple[str, bytes]]) -> list[tuple[str, int, list | pipit.Error]]:
        try:
            answers = self.classifier([image for _, image in requests], top=5)
        except pipit.Error as error:
            if len(requests) == 1:
                return [(requests[0][0], 1, error)]
            return [answer for request in requests for answer in self.predict([request])]
        return [(id, len(requests), answer) for (id, _), answer in zip(requests, answers, strict=True)]

    def encode_response(self, output: tuple[str, int, list | pipit.Error]) -> JSONResponse:
        id, together, answer = output
        if isinstance(answer, pipit.Error):
            return JSONResponse({"error": str(answer)}, 400)
        columns = (("class", "INT64", "index"), ("label", "BYTES", "label"), ("probability", "FP32", "probability"))
        outputs = [
            {"name": name, "datatype": kind, "shape": [len(answer)], "data": [getattr(one, field) for one in answer]}
            for name, kind, field in columns
        ]
        return JSONResponse({"model_name": "pipit", "id": id, "outputs": outputs}, headers={"batch": str(together)})


if __name__ == "__main__":
    server = litserve.LitServer(
        Classify(sys.argv[1]), accelerator="auto", timeout=False, healthcheck_path="/v2/health/ready"
    )
    server.run(port=int(sys.argv[2]) if len(sys.argv) > 2 else 8000, host="127.0.0.1", generate_client_file=False)
