"""Arrays in the memory of a GPU. What needs one, with PyTorch, is skipped elsewhere."""

from __future__ import annotations

import ctypes
import gc
import importlib.util
import threading
import unittest
from typing import Any

import numpy as np

import pipit
from pipit import _device
from support import MODEL, PackageTest, onnx_model, random

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment, unused-ignore]
NO_GPU = "torch is not installed" if torch is None else "torch finds no GPU" if not torch.cuda.is_available() else ""


def works_on_gpu() -> str:
    """Empty, or why this build runs nothing on a GPU."""
    try:
        pipit.load(MODEL, device="cuda")
        return ""
    except pipit.Error as error:
        return str(error)


class ElsewhereArray:
    """Says that it is in the memory of a GPU."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 1

    def __dlpack__(self, **options: Any) -> Any:
        raise BufferError("the memory is not to be had")


class LabelledArray:
    """Memory of NumPy that says that it is on a GPU: what is checked before a run is the same."""

    def __init__(self, array: np.ndarray[Any, Any], device: tuple[int, int] = (2, 0)) -> None:
        self.array, self.device, self.streams = array, device, []  # type: tuple[Any, tuple[int, int], list[Any]]

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None) -> Any:
        self.streams.append(stream)
        capsule = self.array.__dlpack__(max_version=max_version)
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        # Of DLPack's structs: the tensor comes first, since version 1 after 32 bytes; its device after the address.
        if max_version is None:
            device = pointer(capsule, b"dltensor") + 8
        else:
            device = pointer(capsule, b"dltensor_versioned") + 32 + 8
        (ctypes.c_int32 * 2).from_address(device)[:] = self.device
        return capsule


class Stream:
    def __init__(self, **members: Any) -> None:
        self.__dict__.update(members)


class Protocol:
    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, 77


class WithoutGpu(PackageTest):
    def test_handles_of_streams(self) -> None:
        for stream, handle in (
            (0, 0),
            (2, 2),
            (Stream(cuda_stream=5), 5),
            (Stream(ptr=6), 6),
            (Protocol(), 77),
            (None, 0),
        ):
            self.assertEqual(_device.handle_of(stream, [np.zeros(1)]), handle)
        for wrong in (-1, True, "0", 1.5, Stream(cuda_stream=None)):
            with self.assertRaisesRegex(pipit.ArgumentError, "expected a stream's handle"):
                _device.handle_of(wrong, [])

    def test_a_model_on_the_cpu_refuses_arrays_of_a_gpu(self) -> None:
        model = pipit.load(onnx_model.model((2, 3), [onnx_model.node("Flatten", ["x"], "y")]))
        with self.assertRaisesRegex(
            pipit.ArgumentError,
            "input 'x': expected an array in the CPU's memory .*; got ElsewhereArray in the memory of cuda:1; the "
            "memory is not to be had",
        ):
            model(ElsewhereArray())
        with self.assertRaisesRegex(pipit.ArgumentError, "output 'y': .* got ElsewhereArray in the memory of cuda:1"):
            model.session().run(np.zeros((2, 3), np.float32), out=ElsewhereArray())
        with self.assertRaisesRegex(pipit.ArgumentError, "stream=0: the model runs on the CPU, which has no streams"):
            model(np.zeros((2, 3), np.float32), stream=0)

    def test_arrays_of_a_gpu_are_checked(self) -> None:
        model = pipit.load(onnx_model.model((2, 3), [onnx_model.node("Flatten", ["x"], "y")]))
        session = pipit.Session(model._native.session(0, 0), ["x"], model.outputs, on_gpu=True)
        x, y = np.zeros((2, 3), np.float32), np.zeros((2, 3), np.float32)
        good, out, read_only = LabelledArray(x), LabelledArray(y), y.copy()
        read_only.flags.writeable = False
        for given, into, message in (
            (LabelledArray(x.astype(np.float64)), out, "input 'x': its type is float64; expected float32"),
            (LabelledArray(x[:1]), out, "input 'x': its shape is (1, 3); expected (2, 3)"),
            (
                LabelledArray(np.zeros((3, 2), np.float32).T),
                out,
                "input 'x': its strides are (1, 2) elements for shape (2, 3); expected a contiguous array in row-major "
                "order",
            ),
            (
                LabelledArray(x, (2, 1)),
                out,
                "input 'x': it is in the memory of cuda:1; expected the memory of cuda:0, as for all arrays of the run",
            ),
            (
                x,
                out,
                "input 'x': it is in the CPU's memory; expected the memory of cuda:0, as for all arrays of the run",
            ),
            (
                good,
                y,
                "output 'y': it is in the CPU's memory; expected the memory of cuda:0, as for all arrays of the run",
            ),
            (good, LabelledArray(y.astype(np.int64)), "output 'y': its type is int64; expected float32"),
            (
                good,
                LabelledArray(read_only),
                "output 'y': expected a writable array with DLPack in the memory of cuda:0; got a capsule of memory "
                "that is only to be read, or no tensor",
            ),
            (good, [out, out], "got 2 outputs; the model has 1: y"),
        ):
            with self.assertRaises(pipit.ArgumentError) as caught:
                session.run(given, out=into)
            self.assertEqual(str(caught.exception), message)
        good.streams.clear()
        with self.assertRaisesRegex(pipit.Error, "GPU memory needs a model on a GPU"):
            session.run(good, out=out, stream=5)
        self.assertEqual((good.streams, out.streams[-1]), ([5], 5))
        with self.assertRaisesRegex(pipit.Error, "GPU memory needs a model on a GPU"):
            session.run(good, out=out)
        self.assertEqual(good.streams[-1], 1)  # the legacy default stream


@unittest.skipIf(NO_GPU, NO_GPU)
class OnGpu(PackageTest):
    @classmethod
    def setUpClass(cls) -> None:
        reason = works_on_gpu()
        if reason:
            raise unittest.SkipTest(reason)
        cls.model = pipit.load(MODEL, device="cuda", batch=2)
        cls.pixels = random(2, 3, 32, 32)
        cls.logits = cls.model(cls.pixels)
        cls.on_gpu = torch.from_numpy(cls.pixels).cuda()

    def same(self, found: Any, logits: Any = None) -> None:
        found = torch.from_dlpack(found).cpu().numpy()
        np.testing.assert_array_equal(found, self.logits if logits is None else logits)

    def test_tensors_in_and_arrays_out(self) -> None:
        for _ in range(4):  # the first run, the captured one, replays
            found = self.model(self.on_gpu)
            self.assertIsInstance(found, pipit.DeviceArray)
            self.assertEqual((found.shape, found.dtype, found.device), ((2, 10), "float32", 0))
            self.assertEqual(found.__dlpack_device__(), (2, 0))
            self.assertIn("logits: float32[2, 10] on cuda:0", repr(found))
            self.same(found)
        self.same(self.model.run(["logits"], {"input": self.on_gpu})[0])
        self.same(self.model(input=self.on_gpu.requires_grad_()))
        self.on_gpu.requires_grad_(False)

    def test_nothing_is_copied(self) -> None:
        found = self.model(self.on_gpu)
        shared = torch.from_dlpack(found)
        shared.zero_()
        again = torch.from_dlpack(found)
        self.assertEqual(shared.data_ptr(), again.data_ptr())
        self.assertEqual(float(again.abs().sum()), 0)
        pixels = self.on_gpu.clone()
        session = self.model.session()
        for sign in (1, -1, 1):
            pixels.copy_(sign * self.on_gpu)
            self.same(session.run(pixels)[0], self.model(sign * self.pixels))

    def test_outputs_are_written_where_they_are_wanted(self) -> None:
        session = self.model.session()
        room = torch.empty(21, device="cuda")
        for out in (torch.empty(2, 10, device="cuda"), room[1:].view(2, 10)):
            for _ in range(3):
                out.zero_()
                self.assertIs(session.run(self.on_gpu, out=out)[0], out)
                self.same(out)
        earlier = self.model(self.on_gpu)
        torch.from_dlpack(earlier).zero_()
        self.assertIs(session.run(self.on_gpu, out=[earlier])[0], earlier)
        self.same(earlier)

    def test_memory_is_the_callers_as_long_as_it_is_held(self) -> None:
        session = self.model.session()
        inputs = [torch.from_numpy(random(2, 3, 32, 32, seed=seed)).cuda() for seed in range(12)]
        expected = [self.model(pixels.cpu().numpy()) for pixels in inputs]
        for _ in range(3):
            held = [torch.from_dlpack(session.run(pixels)[0]) for pixels in inputs]
            for found, right in zip(held, expected, strict=True):
                self.same(found, right)
            addresses = {found.data_ptr() for found in held}
            self.assertEqual(len(addresses), len(held))
            del held, found
            gc.collect()
        self.assertIn(torch.from_dlpack(session.run(inputs[0])[0]).data_ptr(), addresses)
        [last] = session.run(inputs[1])
        del session
        self.same(last, expected[1])

    def test_runs_on_the_current_stream(self) -> None:
        self.assertEqual(self.model(self.on_gpu).stream, 0)
        side = torch.cuda.Stream()
        busy = torch.randn(4096, 4096, device="cuda")
        for given in (None, side, side.cuda_stream):
            pixels = torch.zeros_like(self.on_gpu)
            torch.cuda.synchronize()
            with torch.cuda.stream(side):
                for _ in range(20):
                    busy = (busy @ busy).clamp(-1, 1)
                pixels.copy_(self.on_gpu)  # late: only a run on this stream reads it
                found = self.model(pixels, stream=given)
                self.assertEqual(found.stream, side.cuda_stream)
            # On the default stream, which from_dlpack() makes wait.
            self.same(torch.from_dlpack(found))

    def test_a_stream_waits_for_tensors_of_the_current_one(self) -> None:
        busy = torch.randn(4096, 4096, device="cuda")
        side = torch.cuda.Stream()
        pixels = torch.zeros_like(self.on_gpu)
        torch.cuda.synchronize()
        for _ in range(20):
            busy = (busy @ busy).clamp(-1, 1)
        pixels.copy_(self.on_gpu)  # on the default stream, late
        found = self.model(pixels, stream=side)
        self.same(found)
        chained = self.model(self.on_gpu, stream=side)
        self.assertEqual(chained.stream, side.cuda_stream)
        torch.cuda.synchronize()

    def test_a_model_takes_the_output_of_another(self) -> None:
        identity = onnx_model.model((2, 10), [onnx_model.node("Flatten", ["x"], "y")])
        second = pipit.load(identity, device="cuda")
        side = torch.cuda.Stream()
        for stream in (None, side):
            first = self.model(self.on_gpu, stream=stream)
            found = second(first)
            self.assertEqual(found.stream, first.stream)
            self.same(found)

    def test_runs_in_the_cpus_memory_are_as_before(self) -> None:
        session = self.model.session()
        for _ in range(3):
            self.same(session.run(self.on_gpu)[0])
            np.testing.assert_array_equal(session.run(self.pixels)[0], self.logits)
            np.testing.assert_array_equal(session.run(torch.from_numpy(self.pixels))[0], self.logits)

    def test_threads(self) -> None:
        inputs = [torch.from_numpy(random(2, 3, 32, 32, seed=seed)).cuda() for seed in range(4)]
        expected = [self.model(pixels.cpu().numpy()) for pixels in inputs]
        wrong: list[int] = []

        def work(i: int) -> None:
            with torch.cuda.stream(torch.cuda.Stream()):
                for _ in range(50):
                    found = torch.from_dlpack(self.model(inputs[i])).cpu().numpy()
                    if not (found == expected[i]).all():
                        wrong.append(i)

        torch.cuda.synchronize()
        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_refuses_arrays_that_do_not_fit(self) -> None:
        on_gpu, session = self.on_gpu, self.model.session()
        for given, message in (
            (on_gpu.double(), "input 'input': its type is float64; expected float32"),
            (on_gpu[:1], r"input 'input': its shape is \(1, 3, 32, 32\); expected \(2, 3, 32, 32\)"),
            (
                on_gpu.transpose(2, 3),
                r"input 'input': its strides are \(3072, 1024, 1, 32\) elements for shape \(2, 3, 32, 32\); expected a "
                "contiguous",
            ),
        ):
            with self.assertRaisesRegex(pipit.ArgumentError, message):
                session.run(given)
        good = torch.empty(2, 10, device="cuda")
        with self.assertRaisesRegex(
            pipit.ArgumentError, "input 'input': it is in the CPU's memory; expected the memory of cuda:0"
        ):
            session.run(self.pixels, out=good)
        with self.assertRaisesRegex(
            pipit.ArgumentError, "output 'logits': it is in the CPU's memory; expected the memory of cuda:0"
        ):
            session.run(on_gpu, out=np.empty((2, 10), np.float32))
        with self.assertRaisesRegex(pipit.ArgumentError, "output 'logits': its type is float16; expected float32"):
            session.run(on_gpu, out=good.half())
        with self.assertRaisesRegex(pipit.ArgumentError, "output 'logits': its strides are"):
            session.run(on_gpu, out=torch.empty(10, 2, device="cuda").T)
        with self.assertRaisesRegex(pipit.ArgumentError, "got 2 outputs; the model has 1: logits"):
            session.run(on_gpu, out=[good, good])
        with self.assertRaisesRegex(pipit.ArgumentError, "the CPU's memory"):
            session.run(self.pixels, stream=0)
        with self.assertRaisesRegex(pipit.ArgumentError, "got Tensor in the memory of cuda:0"):
            pipit.load(MODEL, batch=2)(on_gpu)
        with self.assertRaises(BufferError):
            self.model(on_gpu).__dlpack__(copy=True)
        self.same(session.run(on_gpu)[0])

    @unittest.skipIf(importlib.util.find_spec("cupy") is None, "cupy is not installed")
    def test_cupy(self) -> None:
        import cupy

        pixels = cupy.asarray(self.pixels)
        for stream in (None, cupy.cuda.Stream(non_blocking=True)):
            found = cupy.from_dlpack(self.model(pixels, stream=stream))
            np.testing.assert_array_equal(cupy.asnumpy(found), self.logits)
            out = cupy.empty((2, 10), cupy.float32)
            self.model(pixels, stream=stream, out=out)
            if stream is not None:
                stream.synchronize()
            np.testing.assert_array_equal(cupy.asnumpy(out), self.logits)

    def test_a_module_on_the_gpu(self) -> None:
        torch.manual_seed(1)
        net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten()).cuda().eval()
        found = pipit.load(net, example=self.on_gpu, device="cuda")(self.on_gpu)
        with torch.no_grad():
            right = net.double()(self.on_gpu.double()).float()
        torch.testing.assert_close(torch.from_dlpack(found), right, rtol=1e-3, atol=1e-3)


if __name__ == "__main__":
    unittest.main()
