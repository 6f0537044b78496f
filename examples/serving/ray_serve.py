"""Ray Serve: concurrent requests are batched and classified in one run.

python examples/serving/ray_serve.py MODEL [PORT]
curl --data-binary @photo.jpg http://127.0.0.1:8000/
"""

import asyncio
import sys

from ray import serve
from starlette.requests import Request
from starlette.responses import JSONResponse

import pipit

BATCH = 16


@serve.deployment(num_replicas=1, ray_actor_options={"num_cpus": 1}, max_ongoing_requests=4 * BATCH)
class Classify:
    def __init__(self, model: str) -> None:
        self.classifier = pipit.Classifier(model, threads=1, batch=BATCH)

    @serve.batch(max_batch_size=BATCH, batch_wait_timeout_s=0.01)
    async def together(self, images: list[bytes]) -> list[JSONResponse]:
        return await asyncio.to_thread(self.answers, images)

    def answers(self, images: list[bytes]) -> list[JSONResponse]:
        try:
            found = self.classifier(images, top=5)
        except pipit.Error as error:
            if len(images) == 1:
                return [JSONResponse({"error": str(error)}, 400)]
            return [answer for image in images for answer in self.answers([image])]
        return [
            JSONResponse([one.to_dict() for one in answer], headers={"batch": str(len(images))}) for answer in found
        ]

    async def __call__(self, request: Request) -> JSONResponse:
        return await self.together(await request.body())


if __name__ == "__main__":
    serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[2]) if len(sys.argv) > 2 else 8000})
    serve.run(Classify.bind(sys.argv[1]), blocking=True)
