"""Writes small ONNX models: the few messages of protobuf that a test needs, by hand."""

import struct

FLOAT, UINT8, INT64, BOOL, FLOAT16 = 1, 2, 7, 9, 10


def varint(value):
    """Negative numbers as the 64 bits of their two's complement."""
    value &= (1 << 64) - 1
    data = b""
    while value > 0x7F:
        data += bytes([value & 0x7F | 0x80])
        value >>= 7
    return data + bytes([value])


def field(number, value):
    """One field: an integer, or the bytes of a string or message."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def tensor(name, dtype, shape, data):
    return b"".join(field(1, extent) for extent in shape) + field(2, dtype) + field(8, name) + field(9, data)


def npy(shape, values):
    """A .npy file of 32-bit floats."""
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {tuple(shape)}, }}"
    header += " " * (63 - (10 + len(header)) % 64) + "\n"
    return (b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode()
            + struct.pack(f"<{len(values)}f", *values))


def value(name, shape, dtype=FLOAT):
    """A graph input; strings in its shape are symbolic extents."""
    dims = b"".join(field(1, field(2 if isinstance(extent, str) else 1, extent)) for extent in shape)
    return field(1, name) + field(2, field(1, field(1, dtype) + field(2, dims)))


def node(op, inputs, output, name="", **attributes):
    """Attributes are integers, lists of integers, numbers or texts."""
    def attribute(key, held):
        if isinstance(held, int):
            return field(1, key) + field(3, held) + field(20, 2)
        if isinstance(held, float):
            return field(1, key) + varint(2 << 3 | 5) + struct.pack("<f", held) + field(20, 1)
        if isinstance(held, str):
            return field(1, key) + field(4, held) + field(20, 3)
        return field(1, key) + b"".join(field(8, one) for one in held) + field(20, 7)

    return (b"".join(field(1, one) for one in inputs) + field(2, output) + field(3, name or output) + field(4, op)
            + b"".join(field(5, attribute(key, held)) for key, held in attributes.items()))


def model(shape, nodes, tensors=(), metadata=None, input_name="x"):
    """A model from input `input_name` to output "y"."""
    graph = (b"".join(field(1, one) for one in nodes) + field(2, "graph") + b"".join(field(5, one) for one in tensors)
             + field(11, value(input_name, shape)) + field(12, field(1, "y")))
    entries = b"".join(field(14, field(1, key) + field(2, text)) for key, text in (metadata or {}).items())
    return field(1, 8) + field(7, graph) + field(8, field(2, 17)) + entries


def flatten(shape=("N", 3, 2, 2), **more):
    """A classifier of 12 classes whose scores are the pixels of a 2x2 image."""
    return model(shape, [node("Flatten", [more.get("input_name", "x")], "y")], **more)


def fields(message):
    """Number and content (bytes, or the integer) of every field of a message; numbers of fixed size are bytes."""
    at = 0

    def read_varint():
        nonlocal at
        result, shift = 0, 0
        while True:
            byte = message[at]
            at += 1
            result |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return result

    while at < len(message):
        key = read_varint()
        kind = key & 7
        if kind == 0:
            content = read_varint()
        else:
            length = read_varint() if kind == 2 else {1: 8, 5: 4}[kind]
            content = message[at:at + length]
            at += length
        yield key >> 3, content


def initializers(data):
    """Shape and values of every float32 initializer that holds its data in raw bytes, by name."""
    found = {}
    for entry in fields(dict(fields(data))[7]):
        if entry[0] != 5:
            continue
        held = list(fields(entry[1]))
        parts = dict(held)
        if parts.get(2) != FLOAT or 9 not in parts:
            continue
        shape = []
        for number, content in held:
            if number == 1:  # one extent, or all of them packed
                shape += [content] if isinstance(content, int) else list(unpacked(content))
        found[parts[8].decode()] = (shape, struct.unpack(f"<{len(parts[9]) // 4}f", parts[9]))
    return found


def unpacked(content):
    """The varints of a packed field."""
    result, shift = 0, 0
    for byte in content:
        result |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield result
            result, shift = 0, 0


def as_nhwc(data, shape):
    """The model with its input as TensorFlow's exporter writes it: `shape` = [N, H, W, C], followed by a Transpose."""
    changed = b""
    for number, content in fields(data):
        if number == 7:
            graph = list(fields(content))
            (name,) = [text for number, text in fields(dict(graph)[11]) if number == 1]
            graph = [(number, value("nhwc", shape) if number == 11 else one) for number, one in graph]
            perm = field(1, "perm") + b"".join(field(8, axis) for axis in (0, 3, 1, 2)) + field(20, 7)
            transpose = node("Transpose", ["nhwc"], name.decode()) + field(5, perm)
            content = b"".join(field(*entry) for entry in [(1, transpose), *graph])
        changed += field(number, content)
    return changed


def with_field(message, number, change):
    """The message with `change` applied to what field `number` holds."""
    return b"".join(field(n, change(content) if n == number else content) for n, content in fields(message))


def as_float16(data):
    """The model with its float32 initializers, inputs and outputs in float16."""
    def tensor_in_half(message):
        held = dict(fields(message))
        if held[2] != FLOAT:
            return message
        halves = struct.pack(f"<{len(held[9]) // 4}e", *struct.unpack(f"<{len(held[9]) // 4}f", held[9]))
        return with_field(with_field(message, 2, lambda _: FLOAT16), 9, lambda _: halves)

    def value_in_half(message):
        return with_field(message, 2, lambda kind: with_field(kind, 1, lambda it: with_field(it, 1, lambda _: FLOAT16)))

    def graph_in_half(graph):
        for number, change in ((5, tensor_in_half), (11, value_in_half), (12, value_in_half)):
            graph = with_field(graph, number, change)
        return graph

    return with_field(data, 7, graph_in_half)
