"""Many runs of a model at once, without any threads of the caller."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pipit import _log, _pipit
from pipit._model import Model, _by_name
from pipit._options import load_options, model_name

if TYPE_CHECKING:
    from concurrent.futures import Future
    from typing import Unpack

    from numpy.typing import NDArray

    from pipit._types import LoadOptions, StrPath


class AsyncRunner:
    """Runs a model on many inputs at once: submit() queues a run and returns a future.

    Each of `streams` runs has threads and memory of its own, and all share the weights. Runs begin in the order of
    submission; their outputs have the same bits as those of Model. Any number of threads may submit. Futures are
    completed, and their callbacks called, in one thread of Python that belongs to the runner. Leaving a `with` block,
    and close(), wait for what was submitted. In a child of fork() a runner cannot be used.

    >>> import numpy as np, pipit
    >>> with pipit.AsyncRunner("resnet20-cifar10", threads=2) as runner:
    ...     futures = [runner.submit(np.zeros((1, 3, 32, 32), np.float32)) for _ in range(4)]
    ...     [future.result().shape for future in futures]
    [(1, 10), (1, 10), (1, 10), (1, 10)]
    """

    def __init__(
        self,
        model: StrPath | Model,
        *,
        streams: int | None = None,
        queue: int | None = None,
        **options: Unpack[LoadOptions],
    ) -> None:
        """Starts the streams.

        model: a Model, best loaded with as many threads as one stream has (threads=1), or a path or name, which is
        loaded for this use with the options of load(). streams: runs at once, 1 to 1024; unset: one for each thread,
        or for each GPU. threads: CPU threads of all streams together. queue: largest number of waiting runs; unset:
        four for each stream.

        Raises ArgumentError for options out of range and more streams than threads, Error if there is too little
        memory, and what load() does.
        """
        spread = _pipit.AsyncOptions()
        spread.streams, spread.queue = streams or 0, queue or 0
        if isinstance(model, Model):
            spread.threads = options.pop("threads", None) or 0
            if options:
                raise TypeError(
                    f"AsyncRunner() takes options of load() only for a model that is not loaded: {', '.join(options)}"
                )
            native = _pipit.make_runner(model._native, spread)
        else:
            native = _pipit.load_runner(model_name(model), load_options("AsyncRunner", options), spread)
            for note in native.model.notes:
                _log.note(note)
        self._native = native
        self._streams = native.streams
        self._queue = queue or 4 * self._streams
        self._inputs = tuple(info.name for info in native.model.inputs)
        self._outputs = native.model.outputs
        self._rooms: list[tuple[tuple[int, ...], Any]] | None = None
        self._under_way: deque[Future[Any]] = deque()
        worker = threading.Thread(target=_complete, args=(native,), name="pipit.AsyncRunner", daemon=True)
        worker.start()
        self._finalizer = weakref.finalize(self, _close, native, worker)

    def __enter__(self) -> AsyncRunner:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    @property
    def streams(self) -> int:
        """Number of runs that execute at once."""
        return self._streams

    @property
    def inputs(self) -> tuple[_pipit.TensorInfo, ...]:
        """What submit() takes: Model.inputs."""
        return self._native.model.inputs

    @property
    def outputs(self) -> tuple[_pipit.TensorInfo, ...]:
        """What a run returns: Model.outputs."""
        return self._outputs

    def submit(
        self,
        *arrays: Any,
        out: NDArray[Any] | list[NDArray[Any]] | tuple[NDArray[Any], ...] | None = None,
        **named: Any,
    ) -> Future[Any]:
        """Queues a run on one array for each input, as Model.__call__() takes them, and returns a future of its answer:
        the output's array, or a tuple of several outputs. Waits while the queue is full.

        The arrays are copied and may be changed at once. With `out`, the run writes to these arrays and reads the
        inputs where they are: none of them may be changed until the future is done. A queued run cannot be cancelled.
        Raises ArgumentError for arrays that do not fit and Error if the runner is closed; the future raises what
        Session.run() does.
        """
        from concurrent.futures import Future

        if named:
            arrays = _by_name(self._inputs, arrays, named)
        results = self._room() if out is None else [*out] if isinstance(out, (list, tuple)) else [out]
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        self._native.submit(future, arrays, results, out is None)
        return future

    def _room(self) -> list[NDArray[Any]]:
        """Arrays for the outputs of a run."""
        import numpy

        if self._rooms is None:
            self._rooms = [(output.shape, numpy.dtype(output.dtype)) for output in self._outputs]
        return [numpy.empty(shape, dtype) for shape, dtype in self._rooms]

    async def run(self, *arrays: Any, **named: Any) -> Any:
        """The same for asyncio: `await runner.run(x)`. Other tasks go on while the run waits and executes, also while
        the queue is full.

        >>> import asyncio, numpy as np, pipit
        >>> async def classify(runner):
        ...     pixels = np.zeros((1, 3, 32, 32), np.float32)
        ...     return await asyncio.gather(*(runner.run(pixels) for _ in range(3)))
        >>> with pipit.AsyncRunner("resnet20-cifar10", threads=1) as runner:
        ...     len(asyncio.run(classify(runner)))
        3
        """
        import asyncio

        under_way = self._under_way
        while len(under_way) >= self._queue:  # submit() would wait, and with it all tasks
            oldest = under_way.popleft()
            if not oldest.done():
                under_way.appendleft(oldest)
                await asyncio.wait([asyncio.wrap_future(oldest)])
        future = self.submit(*arrays, **named)
        under_way.append(future)
        return await asyncio.wrap_future(future)

    def map(self, inputs: Iterable[Any]) -> Iterator[Any]:
        """The answers to many inputs, in their order, while later ones are computed. Takes a few inputs more than it
        has answered, so both may be endless. An item is the array of the input, or a tuple with one for each.

        >>> import numpy as np, pipit
        >>> images = (np.full((1, 3, 32, 32), i, np.float32) for i in range(5))
        >>> with pipit.AsyncRunner("resnet20-cifar10", threads=1) as runner:
        ...     sum(1 for logits in runner.map(images))
        5
        """
        ahead = self._streams + self._queue
        futures: deque[Future[Any]] = deque()
        for item in inputs:
            futures.append(self.submit(*(item if isinstance(item, tuple) else (item,))))
            if len(futures) >= ahead:
                yield futures.popleft().result()
        while futures:
            yield futures.popleft().result()

    def close(self) -> None:
        """Waits until all submitted runs have ended and their futures are completed, and frees threads and memory.
        Later calls of submit() raise Error."""
        self._finalizer()


def _complete(native: _pipit.AsyncRunner) -> None:
    """Completes the futures of runs until the runner is closed."""
    while ended := native.completed():
        for future, results, error in ended:
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(results[0] if len(results) == 1 else tuple(results))
        # Nothing of a run is held while the next ones are awaited.
        del ended, future, results, error


def _close(native: _pipit.AsyncRunner, worker: threading.Thread) -> None:
    native.close()
    if worker is not threading.current_thread():  # a callback of a future may hold the last reference
        worker.join()
