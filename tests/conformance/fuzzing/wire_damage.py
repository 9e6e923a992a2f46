"""Damage to the bytes of a model file, blindly or field by field (protobuf.dev, "Encoding")."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

_VARINT, _FIXED64, _BYTES, _GROUP, _FIXED32 = 0, 1, 2, 3, 5
_SIZES = {_FIXED64: 8, _FIXED32: 4}
_DESCENT = 0.8
"""How often a field that may be a message is entered: most of a model lies four messages deep."""
_NUMBERS = (0, 1, 2, 127, 2**31 - 1, 2**31, 2**32, 2**62, 2**63 - 1, 2**63, 2**64 - 1)


@dataclass(frozen=True)
class Field:
    """A field of a protobuf message. `content` is the payload, without the length of one of bytes."""

    number: int
    wire: int
    content: bytes

    def encoded(self) -> bytes:
        length = varint(len(self.content)) if self.wire == _BYTES else b""
        return varint(self.number << 3 | self.wire) + length + self.content


def varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[position] & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if data[position - 1] < 0x80:
            return value, position


def fields_of(data: bytes) -> list[Field] | None:
    """The fields of a message; None for bytes that are no message."""
    found, position = [], 0
    try:
        while position < len(data):
            tag, start = _read_varint(data, position)
            number, wire = tag >> 3, tag & 7
            if wire == _VARINT:
                position = _read_varint(data, start)[1]
            elif wire == _BYTES:
                size, start = _read_varint(data, start)
                position = start + size
            else:
                position = start + _SIZES[wire]
            if position > len(data) or not number:
                return None
            found.append(Field(number, wire, data[start:position]))
    except (IndexError, KeyError):
        return None
    return found


def _somewhere(data: bytes, random: Random, change: Callable[[list[Field], int], None]) -> bytes:
    """The message with one of its fields changed, at any depth; the lengths around it fit."""
    fields = fields_of(data) or [Field(15, _BYTES, data)]
    weights = [len(field.content) + 1 for field in fields]
    at = random.choices(range(len(fields)), weights)[0]
    inner = fields_of(fields[at].content) if fields[at].wire == _BYTES else None
    if inner and random.random() < _DESCENT:
        fields[at] = replace(fields[at], content=_somewhere(fields[at].content, random, change))
    else:
        change(fields, at)
    return b"".join(field.encoded() for field in fields)


def flip_bytes(data: bytes, random: Random, other: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 4, 16))):
        changed[random.randrange(len(changed))] = random.randrange(256)
    return bytes(changed)


def flip_bit(data: bytes, random: Random, _: bytes) -> bytes:
    changed = bytearray(data)
    changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


def cut_short(data: bytes, random: Random, _: bytes) -> bytes:
    return data[: random.randrange(1, len(data))]


def remove_a_stretch(data: bytes, random: Random, _: bytes) -> bytes:
    start = random.randrange(len(data))
    return data[:start] + data[start + random.randrange(1, 40) :]


def splice_another_model(data: bytes, random: Random, other: bytes) -> bytes:
    """A stretch of another model in place of one of this."""
    start, size = random.randrange(len(other)), random.randrange(4, 200)
    place = random.randrange(len(data))
    return data[:place] + other[start : start + size] + data[place + size * random.randrange(2) :]


def join_another_model(data: bytes, random: Random, other: bytes) -> bytes:
    """Concatenated messages merge: lists are joined, the last of other fields stays."""
    return data + other if random.random() < 0.5 else data + other[: random.randrange(len(other))]


def double_a_field(data: bytes, random: Random, _: bytes) -> bytes:
    return _somewhere(data, random, lambda fields, at: fields.insert(random.randrange(len(fields)), fields[at]))


def remove_a_field(data: bytes, random: Random, _: bytes) -> bytes:
    return _somewhere(data, random, lambda fields, at: fields.pop(at) and None)


def exchange_fields(data: bytes, random: Random, _: bytes) -> bytes:
    def change(fields: list[Field], at: int) -> None:
        other = random.randrange(len(fields))
        fields[at], fields[other] = fields[other], fields[at]

    return _somewhere(data, random, change)


def renumber_a_field(data: bytes, random: Random, _: bytes) -> bytes:
    def change(fields: list[Field], at: int) -> None:
        fields[at] = replace(fields[at], number=random.choice((random.randrange(1, 21), 2**29 - 1)))

    return _somewhere(data, random, change)


def change_a_wire_type(data: bytes, random: Random, _: bytes) -> bytes:
    def change(fields: list[Field], at: int) -> None:
        fields[at] = replace(fields[at], wire=random.choice((_VARINT, _FIXED64, _BYTES, _GROUP, _FIXED32)))

    return _somewhere(data, random, change)


def change_a_number(data: bytes, random: Random, _: bytes) -> bytes:
    def change(fields: list[Field], at: int) -> None:
        numbers = [i for i, field in enumerate(fields) if field.wire == _VARINT]
        place = random.choice(numbers) if numbers else at
        fields[place] = Field(fields[place].number, _VARINT, varint(random.choice(_NUMBERS)))

    return _somewhere(data, random, change)


def make_text_invalid(data: bytes, random: Random, _: bytes) -> bytes:
    """Bytes that are no UTF-8, in a field that may be a name."""

    def change(fields: list[Field], at: int) -> None:
        texts = [i for i, field in enumerate(fields) if field.wire == _BYTES and field.content]
        place = random.choice(texts) if texts else at
        fields[place] = replace(fields[place], wire=_BYTES, content=fields[place].content[:-1] + b"\xff")

    return _somewhere(data, random, change)


def exchange_a_message(data: bytes, random: Random, other: bytes) -> bytes:
    """A field of another model, from any depth, in place of one of this."""
    donated: list[Field] = []
    _somewhere(other, random, lambda fields, at: donated.append(fields[at]))

    def change(fields: list[Field], at: int) -> None:
        fields[at] = replace(donated[0], number=fields[at].number)

    return _somewhere(data, random, change)


BYTE_DAMAGES = (
    flip_bytes, flip_bit, cut_short, remove_a_stretch, splice_another_model, join_another_model, double_a_field,
    remove_a_field, exchange_fields, renumber_a_field, change_a_wire_type, change_a_number, make_text_invalid,
    exchange_a_message,
)  # fmt: skip
"""Each makes a mutant from the bytes of a model and of another one."""
