"""Replaces Hugging Face's `tokenizers` if it is not installed. It has what scripts/prepare_tokens.py uses, for GPT-2's
byte-level BPE (Sennrich et al. 2016, Radford et al. 2019), but is slower."""

import json
import re

# A word with the space before it. GPT-2's own pattern also uses classes of Unicode that Python's `re` does not have.
WORD = re.compile(r"'(?:s|t|re|ve|m|ll|d)| ?[^\W\d_]+| ?\d+| ?[^\s\w]+|\s+(?!\S)|\s+")


def symbols_of_bytes():
    """A printable character for each byte: the byte's own if it is printable, else one from 256 on."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + n) for n, byte in enumerate(others)}


class Encoding:
    def __init__(self, ids):
        self.ids = ids


class ByteLevelBPETokenizer:
    def __init__(self, vocab, merges):
        with open(vocab, encoding="utf-8") as file:
            self.ids = json.load(file)
        with open(merges, encoding="utf-8") as file:
            pairs = [tuple(line.split()) for line in file if line.strip() and not line.startswith("#version")]
        self.ranks = {pair: rank for rank, pair in enumerate(pairs)}
        self.symbols = symbols_of_bytes()

    def parts_of(self, word):
        parts = [self.symbols[byte] for byte in word.encode()]
        while len(parts) > 1:
            rank, at = min((self.ranks.get(pair, len(self.ranks)), n) for n, pair in enumerate(zip(parts, parts[1:])))
            if rank == len(self.ranks):
                break
            parts[at:at + 2] = [parts[at] + parts[at + 1]]
        return parts

    def encode(self, text):
        return Encoding([self.ids[part] for word in WORD.findall(text) for part in self.parts_of(word)])
