"""Spark's XXHASH64 over columns of Arrow, a column at a time.

What a result is about is this hash of its window and keys, and both kernels must say the same. A null leaves the hash
as it is; texts are hashed together with all others of the same length.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.diagram.columnar.kinds import Kind, NotProven

_SEED = 42
_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(n)
    for n in (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
)
_STRIPE = 32
_LONG_DECIMAL = 18

Words = np.ndarray  # of uint64, which wrap


def require_hashable(kind: Kind) -> None:
    """Spark hashes the bytes of long decimals, which this does not."""
    if kind.decimal and kind.precision > _LONG_DECIMAL:
        raise NotProven(f"a key of {kind}")


def hashed(columns: Sequence[pa.Array], rows: int) -> pa.Array:
    """The hash of a struct of some columns, for each row."""
    found = np.full(rows, _SEED, np.uint64)
    with np.errstate(over="ignore"):
        for column in columns:
            known = ~np.asarray(column.is_null())
            if known.all():
                found = _with(found, column)
            else:
                found[known] = _with(found[known], column.filter(pa.array(known)))
    return pa.array(found.view(np.int64))


def _with(seed: Words, column: pa.Array) -> Words:
    """Some hashes, each continued with a value."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _texts(seed, column.cast(pa.large_string()))
    if pa.types.is_decimal(kind):
        return _long(seed, np.frombuffer(column.buffers()[1], np.uint64)[::2][column.offset :][: len(column)])
    if pa.types.is_floating(kind):
        values = column.to_numpy(zero_copy_only=False)
        values = np.where(values == 0, 0, values).astype(values.dtype)  # one zero
        values[np.isnan(values)] = np.nan  # and one NaN
        return _int(seed, values.view(np.uint32)) if values.itemsize == 4 else _long(seed, values.view(np.uint64))
    if pa.types.is_timestamp(kind) or pa.types.is_int64(kind):
        return _long(seed, pc.cast(column, pa.int64()).to_numpy().view(np.uint64))
    # Booleans, dates and small numbers.
    if pa.types.is_date32(kind):
        column = column.cast(pa.int32())
    return _int(seed, pc.cast(column, pa.int32()).to_numpy().view(np.uint32))


def _turned(words: Words, by: int) -> Words:
    return (words << np.uint64(by)) | (words >> np.uint64(64 - by))


def _round(lane: Words, word: Words) -> Words:
    return _turned(lane + word * _P2, 31) * _P1


def _eight(found: Words, word: Words) -> Words:
    return _turned(found ^ _round(np.zeros_like(found), word), 27) * _P1 + _P4


def _four(found: Words, word: Words) -> Words:
    return _turned(found ^ (word * _P1), 23) * _P2 + _P3


def _mixed(found: Words) -> Words:
    found = (found ^ (found >> np.uint64(33))) * _P2
    found = (found ^ (found >> np.uint64(29))) * _P3
    return np.asarray(found ^ (found >> np.uint64(32)))


def _long(seed: Words, values: Words) -> Words:
    return _mixed(_eight(seed + _P5 + np.uint64(8), values))


def _int(seed: Words, values: np.ndarray) -> Words:
    return _mixed(_four(seed + _P5 + np.uint64(4), values.astype(np.uint64)))


def _texts(seed: Words, column: pa.LargeStringArray) -> Words:
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, np.int64)[column.offset : column.offset + len(column) + 1]
    octets = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    lengths = np.diff(ends)
    found = np.empty(len(column), np.uint64)
    for length in np.unique(lengths).tolist():
        some = np.flatnonzero(lengths == length)
        found[some] = _bytes(seed[some], octets[ends[some][:, None] + np.arange(length)])
    return found


def _bytes(seed: Words, rows: np.ndarray) -> Words:
    """Texts of one length, a row of bytes each."""
    length, at = rows.shape[1], 0

    def word(kind: str, size: int) -> Words:
        return np.ascontiguousarray(rows[:, at : at + size]).view(kind)[:, 0].astype(np.uint64)

    if length >= _STRIPE:
        lanes = [seed + _P1 + _P2, seed + _P2, seed.copy(), seed - _P1]
        while at <= length - _STRIPE:
            for n, lane in enumerate(lanes):
                lanes[n] = _round(lane, word("<u8", 8))
                at += 8
        found = np.zeros_like(seed)
        for lane, by in zip(lanes, (1, 7, 12, 18), strict=True):
            found += _turned(lane, by)
        for lane in lanes:
            found = (found ^ _round(np.zeros_like(lane), lane)) * _P1 + _P4
    else:
        found = seed + _P5
    found = found + np.uint64(length)
    while at + 8 <= length:
        found = _eight(found, word("<u8", 8))
        at += 8
    if at + 4 <= length:
        found = _four(found, word("<u4", 4))
        at += 4
    while at < length:
        found = _turned(found ^ (word("u1", 1) * _P5), 11) * _P1
        at += 1
    return _mixed(found)
