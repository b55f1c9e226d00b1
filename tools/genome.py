#!/usr/bin/env python3
"""Prints a genome without any meaning, the same for each seed: genome.py MILLION_BASES [SEED] > genome.fa"""

import random
import sys

bases = int(float(sys.argv[1]) * 1_000_000)
chance = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
print(">genome")
while bases > 0:
    line = min(80, bases)
    print("".join(chance.choices("ACGT", k=line)))
    bases -= line
