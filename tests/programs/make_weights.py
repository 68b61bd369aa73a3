# SPDX-License-Identifier: MIT
"""weights.txt: a network for leela-zero with one residual block of 32 channels
and weights that mean nothing."""
import random

CHANNELS, PLANES, BOARD = 32, 18, 361

chance = random.Random(1)
lines = ["1"]


def weights(count):
    lines.append(" ".join(f"{chance.uniform(-.1, .1):.4f}"
                          for _ in range(count)))


def convolution(inputs, outputs, size):
    weights(inputs * outputs * size * size)
    weights(outputs)
    weights(outputs)
    lines.append(" ".join(["1"] * outputs))


convolution(PLANES, CHANNELS, 3)
convolution(CHANNELS, CHANNELS, 3)
convolution(CHANNELS, CHANNELS, 3)
convolution(CHANNELS, 2, 1)
weights(BOARD * 2 * (BOARD + 1))
weights(BOARD + 1)
convolution(CHANNELS, 1, 1)
weights(BOARD * 256)
weights(256)
weights(256)
weights(1)
with open("weights.txt", "w", encoding="ascii") as file:
    file.write("\n".join(lines) + "\n")
