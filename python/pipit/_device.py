"""Arrays in the memory of a GPU, and the CUDA streams that runs are queued on."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

from pipit._errors import ArgumentError
from pipit._pipit import DeviceArray

# DLPack's numbers of devices: CUDA, and managed memory of CUDA.
_CUDA = (2, 13)
# Handles of CUDA's default streams. The array API standard has no 0, which would mean either of them.
_LEGACY_STREAM = 1


def on_gpu(array: object) -> bool:
    """Whether it is an array in the memory of a GPU."""
    device = getattr(array, "__dlpack_device__", None)
    return device is not None and device()[0] in _CUDA


def tensors(arrays: Iterable[object]) -> list[Any]:
    """Those that are tensors of PyTorch."""
    torch = sys.modules.get("torch")
    kind = getattr(torch, "Tensor", None)
    return [] if kind is None else [array for array in arrays if isinstance(array, kind)]


def handle_of(stream: object, arrays: Sequence[object]) -> int:
    """The handle (cudaStream_t) of a stream: a number, or an object of torch, cupy or cuda.core.

    None: torch's current stream on the GPU of the first tensor of torch; else the stream of the first DeviceArray; else
    CUDA's legacy default stream.
    """
    if stream is None:
        for tensor in tensors(arrays):
            import torch

            return int(torch.cuda.current_stream(tensor.device).cuda_stream)
        return next((array.stream for array in arrays if isinstance(array, DeviceArray)), 0)
    if isinstance(stream, int) and not isinstance(stream, bool) and stream >= 0:
        return stream
    for name in ("cuda_stream", "ptr"):  # torch.cuda.Stream, cupy.cuda.Stream
        handle = getattr(stream, name, None)
        if isinstance(handle, int):
            return handle
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        return int((protocol() if callable(protocol) else protocol)[1])
    raise ArgumentError(
        f"stream={stream!r}: expected a stream's handle (an integer, 0 or more), a torch.cuda.Stream, or an object "
        "with __cuda_stream__"
    )


def ordered(arrays: Sequence[Any], stream: object, handle: int) -> tuple[Any, ...]:
    """The arrays, or their DLPack capsules where the library that made them lets the stream wait for their contents."""
    of_torch = tensors(arrays)

    def one(array: Any) -> Any:
        if any(array is tensor for tensor in of_torch):
            if stream is None:  # the run is on torch's current stream
                return array
            array = array.detach()  # without gradients there is nothing that DLPack could lose
        if not on_gpu(array):
            return array
        try:
            return array.__dlpack__(stream=handle or _LEGACY_STREAM, max_version=(1, 0))
        except TypeError:  # before the array API standard of 2023
            return array.__dlpack__(stream=handle or _LEGACY_STREAM)

    return tuple(map(one, arrays))
