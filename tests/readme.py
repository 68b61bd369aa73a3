#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""readme.py PROGRAM SOURCE ROOT KILN: what the documents claim and can be asked
cheaply.  The example of README.md is examples/readme.c to the letter and does what
it says; links lead somewhere; verbs, options and settings that are named exist.
TAP."""
import glob
import os
import re
import subprocess
import sys
import tempfile

program, source, root, kiln = sys.argv[1:]

# Where people look first: what is named here must exist.
PAGES = ["README.md", "ARCHITECTURE.md", "HACKING.md", "SECURITY.md",
         "CHANGES.md", "docs/migrating.md", "docs/caveats.md",
         "docs/levelzero.md"]
FOLDERS = ["*.md", "docs/*.md", "docs/*/*.md", "src/**/README.md",
           "cli/README.md", "worker/README.md", "cmake/README.md"]
FENCE = re.compile(r"^```.*?^```$", re.M | re.S)
n_tests = 0


def read(path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        return file.read()


def report(faults, name):
    """faults: what is wrong, a line each; none if it is right."""
    global n_tests
    n_tests += 1
    print("not ok" if faults else "ok", n_tests, name)
    for fault in faults:
        print("#", fault)


def check_example():
    shown = read(source).split("/* README begin */\n")[1]
    shown = shown.split("/* README end */\n")[0]
    with tempfile.TemporaryDirectory() as directory:
        runs = [subprocess.run([program, f"log:{directory}/store"], text=True,
                               check=False, stdout=subprocess.PIPE)
                for _ in range(2)]
    cold = "compiling: kernel void noop(void) {}\n2 bytes of code\n"
    warm = "2 bytes of code\n"
    found = [(run.returncode, run.stdout) for run in runs]
    report([] if found == [(0, cold), (0, warm)] else [str(found)],
           "the second run compiles nothing")
    report([] if "```c\n" + shown + "```" in read("README.md") else [source],
           "README.md shows this program")


# ---- Links -------------------------------------------------------------------


def anchor(heading):
    """As forges make it of a heading: letters, digits, - and _, in lower case."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def check_links():
    faults = []
    n_links = 0
    for pattern in FOLDERS:
        for path in glob.glob(os.path.join(root, pattern), recursive=True):
            page = os.path.relpath(path, root)
            if re.search(r"^(<{7}|>{7}) ", read(page), re.M):
                faults.append(f"{page}: has marks of a merge")
            text = FENCE.sub("", read(page))
            for link in re.findall(r"\]\(([^)\s]+)\)", text):
                if re.match(r"[a-z]+:", link):
                    continue
                n_links += 1
                target, _, part = link.partition("#")
                target = os.path.normpath(
                    os.path.join(os.path.dirname(page), target)
                    if target else page)
                if not os.path.exists(os.path.join(root, target)):
                    faults.append(f"{page}: there is no {target}")
                elif part and part not in map(anchor, re.findall(
                        r"^#+ (.*)$", FENCE.sub("", read(target)), re.M)):
                    faults.append(f"{page}: {target} has no '{part}'")
    report(faults or ([] if n_links else ["no link was found"]),
           "links between documents lead somewhere")


# ---- Verbs, options, settings --------------------------------------------------


def help_of(*verb):
    return subprocess.run([kiln, *verb, "--help"], text=True, check=True,
                          stdout=subprocess.PIPE).stdout


def commands(text):
    """Each `kiln VERB ...` of a code span or of a line in a block, as words."""
    blocks = "\n".join(re.findall(r"^```\n(.*?)^```$", text, re.M | re.S))
    spans = re.findall(r"`([^`]+)`", FENCE.sub("", text))
    for line in blocks.splitlines() + spans:
        line = " ".join(line.split()).split(" # ")[0]
        match = re.match(r"(?:\$ )?(?:time )?(?:[A-Z_]+=\S+ )*kiln (.*)", line)
        if match:
            yield match.group(1).split(" -- ")[0].split(" | ")[0].split()


def check_commands():
    verbs = re.findall(r"^  (\w+) ", help_of().split("verbs:")[1].split(
        "exit status")[0], re.M)
    helps = {verb: help_of(verb) for verb in verbs}
    faults = []
    seen = set()
    for page in PAGES:
        for words in commands(read(page)):
            if words[0].startswith("-"):
                continue
            if words[0] not in helps:
                faults.append(f"{page}: there is no verb {words[0]}")
                continue
            if page == "README.md":
                seen.add(words[0])
            for option in words[1:]:
                if option.startswith("--") and not re.search(
                        re.escape(option) + r"\b", helps[words[0]]):
                    faults.append(f"{page}: {words[0]} has no {option}")
    report(faults, "verbs and options that are named exist")
    report(sorted(set(verbs) - seen), "README.md shows every verb")


def check_names():
    """KILN_* and kiln_*() are settings of docs/env.md or of a public header."""
    known = read("docs/env.md")
    for path in glob.glob(os.path.join(root, "include/**/*.h"), recursive=True):
        known += read(os.path.relpath(path, root))
    faults = []
    for page in PAGES:
        for name in re.findall(r"`(KILN_[A-Z0-9_]*[A-Z0-9]|kiln_\w+)\b(?!\*)",
                               read(page)):
            if not re.search(r"\b" + name + r"\b", known):
                faults.append(f"{page}: nothing is called {name}")
    report(faults, "settings and functions that are named exist")


def check_dev():
    usage = re.findall(r"^\t\./dev (\w+)", read("dev"), re.M)
    faults = [f"{page}: ./dev {verb}" for page in PAGES
              for verb in re.findall(r"\./dev ([a-z]+)", read(page))
              if verb not in usage]
    report(faults, "verbs of ./dev that are named exist")


check_example()
check_links()
check_commands()
check_names()
check_dev()
print(f"1..{n_tests}")
