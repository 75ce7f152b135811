"""Sixty-four entries of a row at once: the two things that take the longest when sizes are asked for.

Processors with AVX-512 VBMI2 take entries together by one instruction. LLVM makes right code of it for the others too,
but slow code: there the entries are listed one by one.
"""

from typing import Any

from llvmlite import binding, ir
from numba.core import types
from numba.extending import intrinsic

from gossamer.wire.kernels.bits import pointer_to

COMPILES = binding.llvm_version_info >= (20, 0, 0)  # and makes one instruction of it where there is one
COMPRESSES = COMPILES and bool(binding.get_host_cpu_features().get("avx512vbmi2", False))

LANES = 64
_bytes = ir.VectorType(ir.IntType(8), LANES)
_bits = ir.VectorType(ir.IntType(1), LANES)


def _splat(builder: Any, number: Any, vector: Any) -> Any:
    first = builder.insert_element(ir.Constant(vector, ir.Undefined), number, ir.IntType(32)(0))
    return builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES))


def _take_bytes(typing_context: Any, numbers: Any, offset: Any, shift: Any, word: Any, out: Any, at: Any) -> Any:
    """Of 64 numbers from `offset` on, take those that the bits of a word mark, and write the low byte of each, shifted
    right, to a uint8 array from `at` on. All 64 bytes from there on are written over."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        numbers, offset, shift, word, out, at = args
        lane = ir.IntType(signature.args[0].dtype.bitwidth)
        lanes = ir.VectorType(lane, LANES)
        source = pointer_to(context, builder, signature.args[0], numbers, offset, lanes)
        vector = builder.load(source, align=lane.width // 8)
        vector = builder.lshr(vector, _splat(builder, builder.trunc(shift, lane), lanes))
        target = pointer_to(context, builder, signature.args[4], out, at, _bytes)
        compress = builder.module.declare_intrinsic(
            "llvm.experimental.vector.compress.v64i8", fnty=ir.FunctionType(_bytes, [_bytes, _bits, _bytes])
        )
        marked = [builder.trunc(vector, _bytes), builder.bitcast(word, _bits), ir.Constant(_bytes, None)]
        builder.store(builder.call(compress, marked), target, align=1)
        return context.get_dummy_value()

    return types.void(numbers, types.intp, types.uint64, types.uint64, out, types.intp), generate


def _within(typing_context: Any, symbols: Any, offset: Any, low: Any, num_symbols: Any) -> Any:
    """Which of 64 bytes from `offset` on are from `low` up to so many symbols more, as the bits of a word."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        byte = ir.IntType(8)
        source = pointer_to(context, builder, signature.args[0], args[0], args[1], _bytes)
        above = builder.sub(builder.load(source, align=1), _splat(builder, builder.trunc(args[2], byte), _bytes))
        within = builder.icmp_unsigned("<", above, _splat(builder, builder.trunc(args[3], byte), _bytes))
        return builder.bitcast(within, ir.IntType(64))

    return types.uint64(symbols, types.intp, types.uint64, types.uint64), generate


take_bytes: Any = intrinsic(_take_bytes)
within: Any = intrinsic(_within)
