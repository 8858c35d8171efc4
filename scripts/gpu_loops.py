#!/usr/bin/env python3
"""Counts the machine instructions that a pass through the main loop of a tensor-core kernel takes. Reads cubins for sm_90, and prints a Markdown table.

A kernel's main loop is the loop with the most products (HMMA). The path through it that is counted has the most products, then the most powers of two
(MUFU), and then the fewest instructions: nothing is masked and nothing is copied. "With dropout" is the path that besides has the most exchanges
between lanes (SHFL), and then the most multiplications of the random generator. A loop inside the path counts once. NVIDIA does not document the
encoding of instructions; the test compiles a kernel and compares."""

import collections
import pathlib
import re
import struct
import subprocess
import sys

# The lowest 12 bits of an instruction of 16 bytes, on sm_90.
HMMA, MUFU, SHFL, BRA, EXIT, IMAD_WIDE = 0x23C, 0x308, 0xF89, 0x947, 0x94D, 0x825
PHILOX = (0xD2511F53, 0xCD9E8D57)  # the generator's factors (common/rng.h)
ALWAYS = 7  # the predicate of an instruction that has none


def kernels_of(cubin):
    """Yields the name and the instructions of each kernel of an ELF file."""
    data = cubin.read_bytes()
    if data[:4] != b"\x7fELF" or data[49] != 90:
        sys.exit(f"gpu_loops.py: {cubin} is not a cubin for sm_90")
    at, = struct.unpack_from("<Q", data, 40)
    count, names = struct.unpack_from("<HH", data, 60)
    sections = [struct.unpack_from("<IIQQQQ", data, at + 64 * i) for i in range(count)]
    for name, _, _, _, begin, size in sections:
        start = sections[names][4] + name
        text = data[start:data.index(b"\0", start)].decode()
        if text.startswith(".text."):
            yield text.removeprefix(".text."), [int.from_bytes(data[i:i + 16], "little") for i in range(begin, begin + size, 16)]


def kind_of(word):
    kind = word & 0xFFF
    return "philox" if kind == IMAD_WIDE and word >> 32 & 0xFFFFFFFF in PHILOX else kind


def target_of(at, word):
    """Returns the place to which a branch goes. It is stored as a distance in units of 4 bytes."""
    high = word >> 34 & (1 << 48) - 1
    return at + 1 + ((high - (high >> 47 << 48) << 8 | word >> 16 & 0xFF) >> 2)


def next_of(at, word):
    always = word >> 12 & 0xF == ALWAYS
    if word & 0xFFF == BRA:
        return [target_of(at, word)] if always and word >> 87 & 0xF == ALWAYS else [at + 1, target_of(at, word)]
    return [] if word & 0xFFF == EXIT and always else [at + 1]


def best_path(code, begin, end, wanted):
    """Returns the kinds of instructions on the path from `begin` to `end` that has the most of wanted[0], then of wanted[1] and so on, and
    then the fewest instructions. Branches backwards are not taken."""
    best = {begin: ((0,) * (len(wanted) + 1), None)}
    for at in range(begin, end):
        if at in best:
            score = tuple(n + (kind_of(code[at]) == kind) for n, kind in zip(best[at][0], wanted)) + (best[at][0][-1] - 1,)
            for after in next_of(at, code[at]):
                if at < after <= end and (after not in best or score > best[after][0]):
                    best[after] = (score, at)
    path = [end] if end in best else []
    while path and path[-1] != begin:
        path.append(best[path[-1]][1])
    return collections.Counter(kind_of(code[at]) for at in path)


def row_of(code):
    """Returns the products, and the instructions without and with dropout; None if there is no loop with products."""
    loops = [(target_of(at, word), at) for at, word in enumerate(code) if word & 0xFFF == BRA and target_of(at, word) <= at]
    paths = [[best_path(code, begin, end, wanted) for wanted in ((HMMA, MUFU), (HMMA, MUFU, SHFL, "philox"))] for begin, end in loops]
    plain, dropout = max(paths, key=lambda pair: (pair[0][HMMA], -pair[0].total()), default=({}, {}))
    return (plain[HMMA], plain.total(), dropout.total()) if plain and plain[HMMA] else None


def short_name(name):
    text = subprocess.run(["c++filt", name], capture_output=True, text=True, check=True).stdout.strip()
    text = re.sub(r"\(\w+(?:::\w+)*\)(?=\d)", "", re.sub(r"^void ", "", text))  # (Type)1, a template's argument
    return re.sub(r"\(.*", "", text).split("::")[-1]


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit("usage: scripts/gpu_loops.py CUBIN...")
    print("| kernel | products | instructions | per product | with dropout | per product |\n| --- | ---: | ---: | ---: | ---: | ---: |")
    for cubin in map(pathlib.Path, sys.argv[1:]):
        rows = sorted((short_name(name), row_of(code)) for name, code in kernels_of(cubin))
        for name, (products, plain, dropout) in (row for row in rows if row[1]):
            print(f"| {name} | {products} | {plain} | {plain / products:.1f} | {dropout} | {dropout / products:.1f} |")


if __name__ == "__main__":
    main()
