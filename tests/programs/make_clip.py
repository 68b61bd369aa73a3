# SPDX-License-Identifier: MIT
"""in.yuv: 20 frames of 320x240, 4:2:0, a gradient that moves."""
WIDTH, HEIGHT, FRAMES = 320, 240, 20

with open("in.yuv", "wb") as file:
    for frame in range(FRAMES):
        for y in range(HEIGHT):
            file.write(bytes((x + y + 3 * frame) % 256 for x in range(WIDTH)))
        file.write(bytes([128]) * (WIDTH * HEIGHT // 2))
