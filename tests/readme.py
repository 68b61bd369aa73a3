#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""readme.py PROGRAM SOURCE README: the example of README.md is examples/readme.c
to the letter, and does what it says.  TAP."""
import subprocess
import sys
import tempfile

program, source, readme = sys.argv[1:]
with open(source, encoding="utf-8") as file:
    shown = file.read().split("/* README begin */\n")[1]
    shown = shown.split("/* README end */\n")[0]

print("1..2")
with tempfile.TemporaryDirectory() as directory:
    runs = [subprocess.run([program, f"log:{directory}/store"], text=True,
                           check=False, stdout=subprocess.PIPE)
            for _ in range(2)]
cold = "compiling: kernel void noop(void) {}\n2 bytes of code\n"
warm = "2 bytes of code\n"
ok = [run.returncode for run in runs] == [0, 0] \
    and [run.stdout for run in runs] == [cold, warm]
print("ok" if ok else "not ok", "1 the second run compiles nothing")

with open(readme, encoding="utf-8") as file:
    ok = "```c\n" + shown + "```" in file.read()
print("ok" if ok else "not ok", "2 README.md shows this program")
