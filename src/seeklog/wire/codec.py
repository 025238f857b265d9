"""Kafka's messages, encoded and decoded by schemas.

A schema lists the fields that a structure has in one version. Numbers are big-endian. Strings, bytes and arrays begin
with their length: a 16-bit or 32-bit number, -1 for null, or in flexible versions an unsigned varint of the length plus
one, 0 for null. In flexible versions a structure ends with its tagged fields: their count, then for each its tag, its
size and its bytes.

`records` are never copied and never decoded. A decoded message has a view of them in the frame that it came in. An
encoder puts them between its own bytes as they are, so they may also be a slice of a file: anything with a length.

A length from outside is a claim: an array longer than the bytes that are left, or than MAX_ELEMENTS, is refused before
anything is allocated for it.
"""

import struct

import cython
from cython import Py_ssize_t, bint, longlong, p_uchar
from cython.cimports.seeklog.record.primitives import (
    buffer_pointer,
    bytes_at,
    copy,
    load_i16,
    load_i32,
    load_i64,
    new_buffer,
    pointer,
    resize,
    store_i16,
    store_i32,
    store_i64,
    text_at,
    view_of,
    view_pointer,
)
from cython.cimports.seeklog.wire.items import finished_items, new_items, put_item
from cython.cimports.seeklog.wire.kind import (
    BOOL,
    BYTES,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    STRUCT,
    UINT16,
    UUID,
    UUID_SIZE,
    UVARINT_SIZE_MAX,
)

from seeklog.errors import MalformedMessage, UsageError

# All arrays of a message together. An element costs some hundred bytes of memory, and as little as one in a frame.
MAX_ELEMENTS = 1_000_000
# Records up to this size are copied into the bytes around them: a part of its own costs more.
INLINE_MAX = cython.declare(Py_ssize_t, 2048)
_START_SIZE = cython.declare(Py_ssize_t, 512)
_FLOAT64 = struct.Struct(">d")
# By kind: numbers and UUIDs.
_SIZES = (1, 1, 2, 2, 4, 8, 8, UUID_SIZE)

_new_tuple = cython.declare(object, tuple.__new__)


class Struct(tuple):
    """A structure of a message: a named tuple with the fields of all versions, and a default for each."""

    __slots__ = ()
    # Set by `table`. Fields may have any other name.
    _names = ()
    _defaults = ()
    _positions: dict = {}  # noqa: RUF012

    def __new__(cls, **values):
        if not values:
            return _new_tuple(cls, cls._defaults)
        built = list(cls._defaults)
        positions = cls._positions
        try:
            for name, value in values.items():
                built[positions[name]] = value
        except KeyError as error:
            raise TypeError(
                f"{cls.__qualname__} has no field {error}; its fields are {', '.join(cls._names)}"
            ) from None
        return _new_tuple(cls, built)

    def __getnewargs_ex__(self):
        return (), dict(zip(self._names, self, strict=True))

    def replace(self, **values):
        """Return a copy with other values in some fields."""
        return type(self)(**{**dict(zip(self._names, self, strict=True)), **values})

    def __repr__(self):
        shown = (f"{name}={value!r}" for name, value in zip(self._names, self, strict=True))
        return f"{type(self).__qualname__}({', '.join(shown)})"


@cython.final
@cython.cclass
class Field:
    """A field in one version: its type, how its length is written, and its position in the structure."""

    def __init__(self, name, kind, index, *, schema, is_array, is_nullable, is_compact, tag, default):
        self.name = name
        self.kind = kind
        self.index = index
        self.schema = schema
        self.is_array = is_array
        self.is_nullable = is_nullable
        self.is_compact = is_compact
        # -1: not a tagged field.
        self.tag = tag
        self.default = default
        self.element_size_min = self._element_size_min()
        self.size_min = (1 if is_compact else 4) if is_array else self.element_size_min

    def _element_size_min(self):
        if self.kind < STRING:
            return _SIZES[self.kind]
        if self.kind != STRUCT:
            return 1 if self.is_compact else 2 if self.kind == STRING else 4
        if self.is_nullable and not self.is_array:
            return 1
        return cython.cast(Schema, self.schema).size_min


@cython.final
@cython.cclass
class Schema:
    """The fields of a structure in one version."""

    def __init__(self, kind, fields, *, is_flexible):
        self.type = kind
        self.defaults = kind._defaults
        self.fields = [field for field in fields if field.tag < 0]
        self.field_count = len(self.fields)
        self.tagged = sorted((field for field in fields if field.tag >= 0), key=lambda field: field.tag)
        self.is_flexible = is_flexible
        self.size_min = sum(field.size_min for field in self.fields) + (1 if is_flexible else 0)


# ---------------------------------------------------------------- decoding


@cython.final
@cython.cclass
class _Reader:
    """The bytes of a message, and the position of the next field."""

    def __init__(self, data, at):
        self.view = view_of(data)
        self.p = view_pointer(self.view)
        self.end = len(self.view)
        self.at = at
        self.elements_left = MAX_ELEMENTS
        if not 0 <= at <= self.end:
            raise UsageError(f"position {at} is outside of {self.end} bytes")

    def need(self, size):
        # Written as a subtraction: `at + size` could overflow on a hostile length.
        if size > self.end - self.at:
            raise MalformedMessage(f"the message ends at byte {self.end}; {size} bytes are missing from {self.at} on")
        return 0

    def uvarint(self):
        """Return an unsigned varint of up to 32 bits."""
        p: p_uchar = self.p
        at: Py_ssize_t = self.at
        value: longlong = 0
        shift: cython.int = 0
        byte: longlong
        while shift < 7 * UVARINT_SIZE_MAX:
            if at >= self.end:
                raise MalformedMessage(f"the message ends inside the varint at byte {self.at}")
            byte = p[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value > 0xFFFFFFFF:
                    break
                self.at = at
                return value
            shift += 7
        raise MalformedMessage(f"the varint at byte {self.at} is larger than 32 bits")

    def length(self, field, width):
        """Return the length of a string, of bytes or of an array, -1 for null."""
        size: longlong
        if field.is_compact:
            size = self.uvarint() - 1
        else:
            self.need(width)
            size = load_i16(self.p, self.at) if width == 2 else load_i32(self.p, self.at)
            self.at += width
        if size < 0 and (size != -1 or not field.is_nullable):
            raise MalformedMessage(f"the length of {field.name} before byte {self.at} is {size}")
        return size


def decode(schema: Schema, data, at: Py_ssize_t = 0):
    """Return the structure that begins at a position, and the position after it. Raises `MalformedMessage`."""
    reader: _Reader = _Reader(data, at)
    found = read_struct(reader, schema)
    return found, reader.at


@cython.cfunc
def read_struct(reader: _Reader, schema: Schema):
    values = new_items(schema.type, schema.defaults)
    field: Field
    index: Py_ssize_t
    for index in range(schema.field_count):
        field = cython.cast(Field, schema.fields[index])
        put_item(values, field.index, read_array(reader, field) if field.is_array else read_value(reader, field))
    if schema.is_flexible:
        if reader.at < reader.end and reader.p[reader.at] == 0:
            reader.at += 1
        else:
            read_tags(reader, schema, values)
    return finished_items(schema.type, values)


@cython.cfunc
def read_value(reader: _Reader, field: Field):
    """Return a value that is not an array, or one element of an array."""
    kind: cython.int = field.kind
    at: Py_ssize_t = reader.at
    if kind < STRING:
        reader.need(field.element_size_min)
        reader.at = at + field.element_size_min
        if kind == INT32:
            return load_i32(reader.p, at)
        if kind == INT64:
            return load_i64(reader.p, at)
        if kind == INT16:
            return load_i16(reader.p, at)
        if kind == BOOL:
            return reader.p[at] != 0
        if kind == INT8:
            return load_i8(reader.p, at)
        if kind == UINT16:
            return load_i16(reader.p, at) & 0xFFFF
        if kind == UUID:
            return bytes_at(reader.p, at, UUID_SIZE)
        return _FLOAT64.unpack(bytes_at(reader.p, at, 8))[0]
    if kind == STRUCT:
        if field.is_nullable and not field.is_array:
            reader.need(1)
            reader.at = at + 1
            if load_i8(reader.p, at) < (1 if field.tag >= 0 else 0):
                return None
        return read_struct(reader, field.schema)
    return read_sized(reader, field)


@cython.cfunc
@cython.inline
def load_i8(p: p_uchar, at: Py_ssize_t) -> cython.int:
    value: cython.int = p[at]
    return value - ((value & 0x80) << 1)


@cython.cfunc
def read_sized(reader: _Reader, field: Field):
    size: longlong = reader.length(field, 2 if field.kind == STRING else 4)
    if size < 0:
        return None
    reader.need(size)
    at: Py_ssize_t = reader.at
    reader.at = at + size
    if field.kind == RECORDS:
        return reader.view[at : at + size]
    if field.kind == BYTES:
        return bytes_at(reader.p, at, size)
    try:
        return text_at(reader.p, at, size)
    except UnicodeDecodeError:
        raise MalformedMessage(f"{field.name} at byte {at} is not UTF-8") from None


@cython.cfunc
def read_array(reader: _Reader, field: Field):
    count: longlong = reader.length(field, 4)
    if count < 0:
        return None
    if count > (reader.end - reader.at) // max(field.element_size_min, 1):
        left: Py_ssize_t = reader.end - reader.at
        raise MalformedMessage(f"{count} elements of {field.name} cannot fit into the {left} bytes from {reader.at} on")
    reader.elements_left -= count
    if reader.elements_left < 0:
        raise MalformedMessage(f"the message has more than {MAX_ELEMENTS:,} elements")
    schema: Schema = field.schema
    if field.kind == STRUCT:
        return [read_struct(reader, schema) for _ in range(count)]
    return [read_value(reader, field) for _ in range(count)]


@cython.cfunc
def read_tags(reader: _Reader, schema: Schema, values):
    """Read the tagged fields. Unknown ones are skipped."""
    count: longlong = reader.uvarint()
    whole: Py_ssize_t = reader.end
    tag: longlong
    size: longlong
    field: Field
    for _ in range(count):
        tag = reader.uvarint()
        size = reader.uvarint()
        reader.need(size)
        # A field ends where its size says, whatever it contains.
        reader.end = reader.at + size
        for field in schema.tagged:
            if field.tag == tag:
                put_item(
                    values, field.index, read_array(reader, field) if field.is_array else read_value(reader, field)
                )
                if reader.at != reader.end:
                    raise MalformedMessage(f"{field.name} ends at byte {reader.at}, its tag at {reader.end}")
                break
        reader.at = reader.end
        reader.end = whole


# ---------------------------------------------------------------- encoding


@cython.final
@cython.cclass
class _Writer:
    """The bytes of a message so far: finished parts, and a buffer for the part in progress."""

    def __init__(self):
        self.parts = []
        self.start(_START_SIZE)

    def start(self, size):
        self.buffer = new_buffer(size)
        self.p = buffer_pointer(self.buffer)
        self.capacity = size
        self.at = 0

    def need(self, size):
        if size > self.capacity - self.at:
            self.capacity = max(2 * self.capacity, self.at + size)
            resize(self.buffer, self.capacity)
            self.p = buffer_pointer(self.buffer)
        return 0

    def put_bytes(self, data):
        size: Py_ssize_t = len(data)
        self.need(size)
        copy(self.p, self.at, pointer(data), 0, size)
        self.at += size

    def put_uvarint(self, value):
        self.need(UVARINT_SIZE_MAX)
        while value >= 0x80:
            self.p[self.at] = (value & 0x7F) | 0x80
            self.at += 1
            value >>= 7
        self.p[self.at] = value
        self.at += 1
        return 0

    def put_length(self, field, size, width):
        """Write the length of a string, of bytes or of an array, -1 for null."""
        if size < 0 and not field.is_nullable:
            raise UsageError(f"{field.name} cannot be None in this version")
        if field.is_compact:
            return self.put_uvarint(size + 1)
        self.need(width)
        if width == 2:
            if size > 0x7FFF:
                raise UsageError(f"{field.name} has {size:,} bytes; a string may have 32,767")
            store_i16(self.p, self.at, size)
        else:
            store_i32(self.p, self.at, size)
        self.at += width
        return 0

    def finish_part(self):
        resize(self.buffer, self.at)
        self.parts.append(bytes(self.buffer))


def encode_parts(schema: Schema, value, head: bytes = b""):
    """Return a message as the buffers to send one after the other, after `head`. Records are parts as they are."""
    writer: _Writer = _Writer()
    if head:
        writer.put_bytes(head)
    write_struct(writer, schema, value)
    writer.finish_part()
    return writer.parts


def encode(schema: Schema, value):
    """Return a message as bytes. Its records must be in memory."""
    parts = encode_parts(schema, value)
    return parts[0] if len(parts) == 1 else b"".join(parts)


@cython.cfunc
def write_struct(writer: _Writer, schema: Schema, value):
    if type(value) is not schema.type:
        raise UsageError(f"{value!r} is not a {schema.type.__qualname__}")
    field: Field
    for field in schema.fields:
        item = cython.cast(tuple, value)[field.index]
        if field.is_array:
            write_array(writer, field, item)
        else:
            write_value(writer, field, item)
    if schema.is_flexible:
        write_tags(writer, schema, value)


@cython.cfunc
def write_value(writer: _Writer, field: Field, value):
    kind: cython.int = field.kind
    if kind < FLOAT64:
        write_number(writer, field, value)
    elif kind == STRING:
        if value is None:
            writer.put_length(field, -1, 2)
            return
        encoded: bytes = value.encode()
        writer.put_length(field, len(encoded), 2)
        writer.put_bytes(encoded)
    elif kind == STRUCT:
        if field.is_nullable and not field.is_array:
            writer.need(1)
            # Kafka marks a null structure by -1, but by 0 in a tagged field.
            writer.p[writer.at] = 1 if value is not None else 0 if field.tag >= 0 else 0xFF
            writer.at += 1
            if value is None:
                return
        write_struct(writer, field.schema, value)
    elif kind == UUID:
        if len(value) != UUID_SIZE:
            raise UsageError(f"{field.name} must have {UUID_SIZE} bytes, not {len(value)}")
        writer.put_bytes(value)
    elif kind == FLOAT64:
        writer.put_bytes(_FLOAT64.pack(value))
    elif value is None:
        writer.put_length(field, -1, 4)
    else:
        writer.put_length(field, len(value), 4)
        if len(value) > INLINE_MAX or not isinstance(value, (bytes, bytearray, memoryview)):
            writer.finish_part()
            writer.parts.append(value)
            writer.start(_START_SIZE)
        else:
            writer.put_bytes(bytes(value))


@cython.cfunc
def write_number(writer: _Writer, field: Field, value):
    kind: cython.int = field.kind
    number: longlong = value
    fits: bint
    writer.need(8)
    if kind == INT32:
        fits = -0x80000000 <= number <= 0x7FFFFFFF
        store_i32(writer.p, writer.at, number)
    elif kind == INT64:
        fits = True
        store_i64(writer.p, writer.at, number)
    elif kind == INT16:
        fits = -0x8000 <= number <= 0x7FFF
        store_i16(writer.p, writer.at, number)
    elif kind == UINT16:
        fits = 0 <= number <= 0xFFFF
        store_i16(writer.p, writer.at, number)
    else:
        fits = 0 <= number <= 1 if kind == BOOL else -0x80 <= number <= 0x7F
        writer.p[writer.at] = number & 0xFF
    if not fits:
        raise UsageError(f"{field.name} cannot be {value}")
    writer.at += field.element_size_min


@cython.cfunc
def write_array(writer: _Writer, field: Field, values):
    if values is None:
        writer.put_length(field, -1, 4)
        return
    writer.put_length(field, len(values), 4)
    for value in values:
        write_value(writer, field, value)


@cython.cfunc
def write_tags(writer: _Writer, schema: Schema, value):
    """Write the tagged fields that are not their defaults, in the order of their tags."""
    field: Field
    present: list = []
    for field in schema.tagged:
        item = cython.cast(tuple, value)[field.index]
        # An empty list is the default too.
        if item != field.default and not (field.is_array and field.default == () and item == []):
            present.append(field)
    writer.put_uvarint(len(present))
    for field in present:
        inner: _Writer = _Writer()
        item = cython.cast(tuple, value)[field.index]
        if field.is_array:
            write_array(inner, field, item)
        else:
            write_value(inner, field, item)
        inner.finish_part()
        content: bytes = b"".join(inner.parts)
        writer.put_uvarint(field.tag)
        writer.put_uvarint(len(content))
        writer.put_bytes(content)
