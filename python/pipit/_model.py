"""Models and sessions: arrays in, arrays out."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pipit import _device, _log, _pipit, _torch
from pipit._errors import ArgumentError
from pipit._options import absolute, assign, load_options, model_name, recipe

if TYPE_CHECKING:
    from typing import Unpack

    import torch

    from pipit._types import LoadOptions, StrPath


class Session:
    """Memory for runs of a model. Only one thread at a time may use a session; a second one gets Error."""

    __slots__ = ("_empty", "_inputs", "_native", "_on_gpu", "_outputs")

    def __init__(
        self,
        native: _pipit.Session,
        inputs: Sequence[str],
        outputs: Sequence[_pipit.TensorInfo],
        on_gpu: bool = False,
    ) -> None:
        import numpy

        self._native = native
        self._inputs = inputs
        self._empty = numpy.empty
        self._outputs = [(output.shape, numpy.dtype(output.dtype)) for output in outputs]
        self._on_gpu = on_gpu

    def run(self, *arrays: Any, out: Any = None, stream: Any = None, **named: Any) -> list[Any]:
        """Runs the model on one array for each input, by position or by name.

        Arrays must have exactly the type and shape of Model.inputs. They are NumPy arrays, or any with DLPack or the
        buffer protocol, in CPU memory; they are not copied, unless they are not row-major.
        Returns an array for each of Model.outputs; with `out`, writes to these arrays and returns them. On the CPU the
        last layer usually writes there directly if their memory is aligned to 64 bytes. Other threads can run
        meanwhile. Raises ArgumentError, naming the input or output, for arrays that do not fit, and Error for an output
        that overlaps an input or another output.

        Of a model on a GPU all arrays may be in the memory of that GPU (contiguous tensors of PyTorch, arrays of CuPy,
        all with DLPack). Then the run is queued on `stream` and run() returns without waiting for it; outputs are `out`
        or a DeviceArray each, for torch.from_dlpack(). stream: a handle (cudaStream_t) or a torch.cuda.Stream; by
        default torch's current stream if an array is a tensor of PyTorch, else that of a DeviceArray, else CUDA's
        legacy default stream. Inputs must stay valid until the run has ended. A later call raises errors in the values
        of inputs.

        >>> import numpy as np, pipit
        >>> session = pipit.load("resnet20-cifar10").session()
        >>> logits = np.empty((1, 10), np.float32)
        >>> session.run(np.zeros((1, 3, 32, 32), np.float32), out=logits)[0] is logits
        True
        """
        if named:
            arrays = _by_name(self._inputs, arrays, named)
        results = None if out is None else [*out] if isinstance(out, (list, tuple)) else [out]
        if self._on_gpu and (
            stream is not None or any(map(_device.on_gpu, arrays)) or (results and any(map(_device.on_gpu, results)))
        ):
            handle = _device.handle_of(stream, [*arrays, *(results or ())])
            arrays = _device.ordered(arrays, stream, handle)
            if results is None:
                return self._native.run_on_device(arrays, None, handle)
            self._native.run_on_device(arrays, _device.ordered(results, stream, handle), handle)
            return results
        if stream is not None:
            raise ArgumentError(f"stream={stream!r}: the model runs on the CPU, which has no streams")
        if results is None:
            empty = self._empty
            results = [empty(shape, dtype) for shape, dtype in self._outputs]
        self._native.run(arrays, results)
        return results


def _by_name(inputs: Sequence[str], arrays: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[Any, ...]:
    """The arrays in the order of the inputs; the first inputs are given by position."""
    left = inputs[len(arrays) :]
    for name in named:
        if name not in left:
            raise ArgumentError(f"unexpected input '{name}'; the model has {', '.join(inputs)}")
    for name in left:
        if name not in named:
            raise ArgumentError(f"no array for input '{name}'; the model has {', '.join(inputs)}")
    return arrays + tuple(named[name] for name in left)


class Model:
    """A model with kernels chosen, weights packed and memory planned; load() makes one.

    Immutable: any number of threads may call one at once, and a child of fork() may call it on a CPU. A pickle stores
    how it was loaded, not the weights of a file: another process loads it again and gives the same bits.
    """

    __slots__ = ("_gpus", "_inputs", "_native", "_recipe", "_sessions")

    def __init__(
        self,
        model: StrPath | bytes | torch.nn.Module,
        *,
        name: str | None = None,
        example: Any = None,
        **options: Unpack[LoadOptions],
    ) -> None:
        """See load()."""
        native_options = load_options("load", options)
        if _torch.is_module(model):
            name = name or type(model).__name__
            model = _torch.exported(model, example, options.get("batch"))
        elif example is not None:
            raise ArgumentError(f"example is for a torch.nn.Module; the model is of type {type(model).__name__}")
        if isinstance(model, (bytes, bytearray, memoryview)):
            model = bytes(model)
            native = _pipit.load_bytes(model, name or "model.onnx", native_options)
        else:
            model = model_name(model)
            native = _pipit.load(model, native_options)
            model = absolute(model)
        gpus = [*native_options.gpus] or [0] if native_options.device == "cuda" else []
        self._adopt(native, (_again, (model, name, recipe(options))), gpus)
        for note in self._native.notes:
            _log.note(note)

    def _adopt(self, native: _pipit.CompiledModel, recipe: tuple[Any, tuple[Any, ...]], gpus: list[int]) -> None:
        self._native = native
        self._gpus = gpus
        self._recipe = recipe
        self._inputs = tuple(info.name for info in self._native.inputs)
        self._sessions: deque[Session] = deque()

    def __reduce__(self) -> tuple[Any, ...]:
        return self._recipe

    def __repr__(self) -> str:
        def tensors(infos: Sequence[_pipit.TensorInfo]) -> str:
            return ", ".join(f"{info.name} {info.dtype}{list(info.shape)}" for info in infos)

        return f"<pipit.Model {self.name}: {tensors(self.inputs)} -> {tensors(self.outputs)}>"

    @property
    def name(self) -> str:
        """As given to load()."""
        return self._native.name

    @property
    def inputs(self) -> tuple[_pipit.TensorInfo, ...]:
        """What run() takes, in the order of the file: name, dtype (NumPy's name) and shape of each."""
        return self._native.inputs

    @property
    def outputs(self) -> tuple[_pipit.TensorInfo, ...]:
        """What run() returns, in the order of the file."""
        return self._native.outputs

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the user, one sentence each; load() has logged them."""
        return self._native.notes

    @property
    def metadata(self) -> dict[str, str]:
        """The metadata in the model's file."""
        return self._native.metadata

    def session(self, device: int = 0) -> Session:
        """Allocates the memory for runs, on GPU `device` of those that have a copy. Raises Error if there is no such
        device or too little memory."""
        gpu = self._gpus[device] if 0 <= device < len(self._gpus) else -1
        return Session(self._native.session(device, gpu), self._inputs, self._native.outputs, on_gpu=bool(self._gpus))

    def __call__(self, *arrays: Any, **named: Any) -> Any:
        """Runs the model as Session.run() does, with a session that no other thread uses. Returns the output's array,
        or a tuple of several outputs. Arguments are also those of Session.run(): `out` and `stream`.

        >>> import numpy as np, pipit
        >>> model = pipit.load("resnet20-cifar10", batch=2)
        >>> model(np.zeros((2, 3, 32, 32), np.float32)).shape
        (2, 10)
        >>> model(input=np.zeros((1, 3, 32, 32), np.float32))
        Traceback (most recent call last):
            ...
        pipit.ArgumentError: input 'input': its shape is (1, 3, 32, 32); expected (2, 3, 32, 32)
        """
        results = self._run(arrays, named)
        return results[0] if len(results) == 1 else tuple(results)

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, Any]) -> list[Any]:
        """The same with the arguments of ONNX Runtime: names of outputs, or None for all, and arrays by input.

        >>> import numpy as np, pipit
        >>> model = pipit.load("resnet20-cifar10")
        >>> [logits] = model.run(["logits"], {"input": np.zeros((1, 3, 32, 32), np.float32)})
        """
        results = self._run(_by_name(self._inputs, (), feeds), {})
        if output_names is None:
            return results
        known = [info.name for info in self.outputs]
        for name in output_names:
            if name not in known:
                raise ArgumentError(f"unknown output '{name}'; the model has {', '.join(known)}")
        return [results[known.index(name)] for name in output_names]

    def _run(self, arrays: tuple[Any, ...], named: Mapping[str, Any]) -> list[Any]:
        try:
            session = self._sessions.pop()
        except IndexError:
            session = self.session()
        try:
            return session.run(*arrays, **named)
        finally:
            self._sessions.append(session)

    def reshaped(
        self,
        *,
        batch: int | None = None,
        shapes: Mapping[str, Sequence[int]] | None = None,
        dimensions: Mapping[str, int] | None = None,
        same_kernels: bool = True,
    ) -> Model:
        """The same model for other shapes: batch, shapes and dimensions as in load(), instead of those given there.

        On the CPU both share the packed weights that are equal. same_kernels: layers run with the kernels of this model
        wherever these accept the shapes, so all weights are shared; otherwise kernels are chosen for the new shapes. A
        model that was loaded from bytes is loaded again. Raises what load() does.
        """
        given = {"batch": batch, "shapes": shapes, "dimensions": dimensions}
        make, arguments = self._recipe
        if make is _again and isinstance(arguments[0], bytes):
            onnx, name, options = arguments
            return Model(onnx, name=name, **{**options, **given})
        native = _pipit.RunShapes()
        assign("reshaped", given, native)
        recipe = (_reshaped, (self._recipe, {**given, "same_kernels": same_kernels}))
        return _derived(self, self._native.reshaped(native, same_kernels), recipe)

    def with_batch(self, batch: int) -> Model:
        """The same model for another number of samples, which shares the packed weights. Raises what load() does.

        >>> import numpy as np, pipit
        >>> model = pipit.load("resnet20-cifar10")
        >>> model.with_batch(4)(np.zeros((4, 3, 32, 32), np.float32)).shape
        (4, 10)
        """
        make, arguments = self._recipe
        if make is _again and isinstance(arguments[0], bytes):
            options = arguments[2]
            samples = self.inputs[0].shape[:1]
            shapes = {
                name: (batch, *shape[1:]) if tuple(shape[:1]) == samples else shape
                for name, shape in options.get("shapes", {}).items()
            }
            return self.reshaped(batch=batch, shapes=shapes, dimensions=options.get("dimensions"))
        return _derived(self, self._native.with_batch(batch), (_with_batch, (self._recipe, batch)))

    def inspect(self, why: bool = False) -> _pipit.InspectedModel:
        """The model as it will run: layers, kernels and why they were chosen, memory.

        why: to_dict() includes the kernels that refused, and estimates; the members always do.

        >>> import pipit
        >>> found = pipit.load("resnet20-cifar10").inspect()
        >>> found.layers[0].type, found.scores
        ('Conv', 'logits')
        """
        return _pipit.inspect(self._native, why)

    def profile(
        self, *arrays: Any, runs: int = 50, warmup: int = 10, device: int = 0, floors: bool = False
    ) -> _pipit.Profile:
        """Times every layer on these inputs; without inputs, on random numbers, always the same.

        Returns medians over `runs` runs in milliseconds, after `warmup` others. floors: also the least possible times
        of layers, from the machine's ceilings, which are measured unless they are stored. Raises what run() does, and
        Error for runs < 1.

        >>> import pipit
        >>> times = pipit.load("resnet20-cifar10").profile(runs=3, warmup=1)
        >>> times.layers[0].type, times.runs
        ('Conv', 3)
        """
        options = _pipit.ProfileOptions()
        options.runs, options.warmup, options.device, options.floors = runs, warmup, device, floors
        return _pipit.profile(self._native, arrays, options)


def _again(model: str | bytes, name: str | None, options: LoadOptions) -> Model:
    return Model(model, name=name, **options)


def _derived(model: Model, native: _pipit.CompiledModel, recipe: tuple[Any, tuple[Any, ...]]) -> Model:
    other = object.__new__(type(model))
    other._adopt(native, recipe, model._gpus)
    return other


def _reshaped(recipe: tuple[Any, tuple[Any, ...]], given: Mapping[str, Any]) -> Model:
    make, arguments = recipe
    return make(*arguments).reshaped(**given)  # type: ignore[no-any-return]


def _with_batch(recipe: tuple[Any, tuple[Any, ...]], batch: int) -> Model:
    make, arguments = recipe
    return make(*arguments).with_batch(batch)  # type: ignore[no-any-return]


def load(
    model: StrPath | bytes | torch.nn.Module,
    *,
    name: str | None = None,
    example: Any = None,
    **options: Unpack[LoadOptions],
) -> Model:
    """Reads and compiles a model.

    model: the path of an ONNX file, a name that `pipit models` lists, or the bytes of an ONNX file that refers to no
    other files; messages call it `name`. Or a torch.nn.Module, which PyTorch exports to memory as it computes in
    evaluation mode now, for the shapes of `example`: a tensor, a sequence for several arguments, or a mapping by name.
    Options: device='cpu' | 'cuda' | 'cuda:N', precision='fp32',
    plan=PATH (for 'int8'), threads=, batch=, shapes={INPUT: SHAPE}, values={INPUT: NUMBERS}, and those that
    pipit.LoadOptions lists. Notes go to the logger "pipit".

    Raises Error, with the file and what is wrong with it; UnsupportedError, with all reasons, for a model that cannot
    run; ArgumentError for invalid options.

    >>> import pipit
    >>> model = pipit.load("resnet20-cifar10", threads=1)
    >>> model.inputs[0].shape
    (1, 3, 32, 32)
    """
    return Model(model, name=name, example=example, **options)
