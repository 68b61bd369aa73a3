# SPDX-License-Identifier: MIT
"""A tree of OpenCL headers as programs have them: one folder for -I, a header
that includes its neighbour, and one with a blank in its folder's name."""
import os

FILES = {
    "include/scale.h": '#include "detail/factor.h"\n'
                       "#define SCALE(x) ((x) * FACTOR)\n",
    "include/detail/factor.h": "#ifndef FACTOR\n#define FACTOR 3\n#endif\n",
    "with blank/shift.h": "#define SHIFT(x) ((x) + 7)\n",
}

for name, text in FILES.items():
    os.makedirs(os.path.dirname(name), exist_ok=True)
    with open(name, "w", encoding="utf-8") as file:
        file.write(text)
