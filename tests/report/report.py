#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""report.py KILN STORE CHROMIUM: the page of `kiln report` as a browser draws it,
and as a keyboard and a screen reader meet it.  TAP."""
import os
import re
import subprocess
import sys
import tempfile

from browser import Browser

kiln, maker, chromium = sys.argv[1:]
WIDTHS = {"desktop": 1280, "phone": 360}
PLOT = 150

cases = []


def case(function):
    cases.append(function)
    return function


def report(directory, what):
    store = os.path.join(directory, what)
    page = os.path.join(directory, what + ".html")
    if what != "none":
        subprocess.run([maker, store, what], check=True)
    subprocess.run([kiln, "report", "--store", "log:" + store, page],
                   check=True, env={"PATH": "/", "XDG_CONFIG_HOME": "/none"})
    return page


def same(found, expected, what):
    if found != expected:
        raise AssertionError(f"{what}: {found!r}, not {expected!r}")


def near(found, expected, what, by=1.0):
    if abs(found - expected) > by:
        raise AssertionError(f"{what}: {found}, not {expected}")


def rectangles(browser, chart, kind):
    return browser.evaluate(
        f"""[...document.querySelectorAll('#{chart} svg rect.{kind}')].map(r =>
            {{const b = r.getBoundingClientRect();
              return [b.x + scrollX, b.y + scrollY, b.width, b.height]}})""")


def colour(browser, selector, which):
    text = browser.evaluate(
        f"getComputedStyle(document.querySelector('{selector}')).{which}")
    return tuple(int(n) for n in re.findall(r"\d+", text)[:3])


def luminance(rgb):
    parts = [c / 255 for c in rgb]
    parts = [c / 12.92 if c <= .03928 else ((c + .055) / 1.055) ** 2.4
             for c in parts]
    return .2126 * parts[0] + .7152 * parts[1] + .0722 * parts[2]


def contrast(a, b):
    light, dark = sorted((luminance(a), luminance(b)), reverse=True)
    return (light + .05) / (dark + .05)


# ---- What is drawn ----------------------------------------------------------

@case
def columns_stand_for_the_hits_of_each_day(browser, pages):
    for width in WIDTHS.values():
        browser.show(pages["full"], width, 900, "light")
        bars = rectangles(browser, "ratio", "bar")
        tracks = rectangles(browser, "ratio", "track")
        same(len(bars), 2, "days with look-ups")
        near(bars[0][3], PLOT * .75, "three days ago")
        near(bars[1][3], PLOT * .6, "today")
        for bar, track in zip(bars, tracks):
            near(bar[1] + bar[3], track[1] + track[3], "where it stands")
            near(bar[0], track[0], "beside its track")
        svg = browser.evaluate("document.querySelector('#ratio svg')"
                               ".getBoundingClientRect().width")
        near(bars[1][0] - bars[0][0], svg * 3 / 31, "three days between")


@case
def hours_are_drawn_while_a_store_is_young(browser, pages):
    browser.show(pages["young"], 1280, 900, "light")
    same(len(rectangles(browser, "ratio", "bar")), 1, "hours with look-ups")
    same(browser.evaluate("document.querySelectorAll('#ratio tbody tr').length"),
         48, "hours")


@case
def bars_stand_for_reasons_sizes_and_times(browser, pages):
    browser.show(pages["full"], 1280, 900, "light")
    whole = rectangles(browser, "misses", "track")[0][2]
    widths = [bar[2] for bar in rectangles(browser, "misses", "bar")]
    same(len(widths), 3, "reasons")
    for found, part in zip(widths, (1, 1 / 3, 1 / 3)):
        near(found, whole * part, "a reason's bar")
    widths = [bar[2] for bar in rectangles(browser, "slowest", "bar")]
    for found, part in zip(widths, (1, .5, 1 / 6)):
        near(found, whole * part, "a build's bar")
    same(len(widths), 3, "builds that took time")
    widths = [bar[2] for bar in rectangles(browser, "use", "bar")]
    for found, part in zip(widths, (1, .25)):
        near(found, whole * part, "what an application saved")


@case
def namespaces_have_bars_and_their_quotas(browser, pages):
    browser.show(pages["full"], 360, 900, "light")
    rows = browser.evaluate(
        """[...document.querySelectorAll('#namespaces tbody tr')].map(
            r => [...r.children].map(e => e.textContent))""")
    same(len(rows), 2, "namespaces")
    same([rows[0][0]] + rows[0][4:], ["ordinary", "512.0 KiB", "0"],
         "one with a quota")
    same(rows[1][4], "none", "one without")
    same(rows[1][0].startswith("script>"), True, "a hostile name")
    widths = [bar[2] for bar in rectangles(browser, "namespaces", "bar")]
    same(len(widths), 2, "bars")
    same(widths, sorted(widths, reverse=True), "the largest first")
    same(browser.evaluate(
        "document.querySelector('#namespaces svg').getAttribute('role')"),
        "img", "for who does not see it")
    browser.evaluate("document.querySelector('#namespaces summary').focus()")
    browser.press("\r", 13)
    same(browser.evaluate(
        "document.querySelector('#namespaces details').open"), True,
        "Enter opens the numbers")
    same(browser.evaluate("document.documentElement.scrollWidth"), 360,
         "no wider than the screen")


@case
def colours_are_seen_where_the_bars_are(browser, pages):
    for scheme in ("light", "dark"):
        browser.show(pages["full"], 1280, 900, scheme)
        bar = rectangles(browser, "ratio", "bar")[1]
        track = rectangles(browser, "ratio", "track")[1]
        middle = bar[0] + bar[2] / 2
        same(browser.pixel(middle, bar[1] + bar[3] / 2),
             colour(browser, ".bar", "fill"), f"{scheme}: in the bar")
        same(browser.pixel(middle, track[1] + 10),
             colour(browser, ".track", "fill"), f"{scheme}: above it")
        same(browser.pixel(2, 2), colour(browser, "body", "backgroundColor"),
             f"{scheme}: the ground")


# ---- For whom ---------------------------------------------------------------

@case
def nothing_is_wider_than_the_screen(browser, pages):
    for page in pages.values():
        for name, width in WIDTHS.items():
            browser.show(page, width, 700, "light")
            browser.evaluate("document.querySelectorAll('details')"
                             ".forEach(d => d.open = true)")
            same(browser.evaluate("document.documentElement.scrollWidth"),
                 width, name)
            sizes = browser.evaluate(
                """[...document.querySelectorAll(
                    'p,dd,dt,td,th,summary,text,a,span')].map(
                    e => parseFloat(getComputedStyle(e).fontSize))""")
            if min(sizes) < 14:
                raise AssertionError(f"{name}: {min(sizes)} px of text")


@case
def texts_in_drawings_do_not_run_into_each_other(browser, pages):
    browser.show(pages["full"], 360, 700, "light")
    pairs = browser.evaluate(
        """[...document.querySelectorAll('svg')].flatMap(s => {
            const t = [...s.querySelectorAll('text')].map(
                e => e.getBoundingClientRect());
            return t.filter((_, i) => i % 2 == 0).map(
                (b, i) => [b.left, b.right, t[2 * i + 1].left,
                           t[2 * i + 1].right])})""")
    for left, middle, second, right in pairs:
        if left < 0 or middle > second or right > 360:
            raise AssertionError(f"{left} {middle} {second} {right}")


@case
def both_schemes_can_be_read(browser, pages):
    for scheme in ("light", "dark"):
        browser.show(pages["full"], 1280, 900, scheme)
        ground = colour(browser, "body", "backgroundColor")
        same(luminance(ground) > .5, scheme == "light", scheme)
        for selector, which in (("body", "color"), (".about", "color"),
                                ("a", "color"), ("svg text", "fill")):
            found = contrast(colour(browser, selector, which), ground)
            if found < 4.5:
                raise AssertionError(f"{scheme} {selector}: {found:.1f}")
        for a, b in ((".bar", "body"), (".bar", ".track")):
            found = contrast(colour(browser, a, "fill"),
                             colour(browser, b, "fill") if b != "body"
                             else ground)
            if found < 3:
                raise AssertionError(f"{scheme} {a} on {b}: {found:.1f}")


@case
def a_screen_reader_has_names_and_tables(browser, pages):
    browser.show(pages["full"], 1280, 900, "light")
    browser.evaluate("document.querySelectorAll('details')"
                     ".forEach(d => d.open = true)")
    nodes = [(node["role"]["value"], node.get("name", {}).get("value", ""),
              node.get("description", {}).get("value", ""))
             for node in browser.call("Accessibility.getFullAXTree")["nodes"]
             if not node["ignored"] and "role" in node]
    images = [name for role, name, _ in nodes if role in ("img", "image")]
    same(len(images), 10, "drawings")
    for name in images:
        if "The numbers are in the table below." not in name:
            raise AssertionError(f"a drawing is called {name!r}")
    tables = [name for role, name, _ in nodes if role == "table"]
    same(len(tables), 11, "tables")
    same("" in tables, False, "a table without a name")
    regions = [name for role, name, _ in nodes if role == "region"]
    same("" in regions, False, "a section without a name")
    roles = [role for role, _, _ in nodes]
    for role in ("main", "banner", "navigation", "columnheader", "rowheader"):
        same(role in roles, True, role)
    same(browser.evaluate("[...document.querySelectorAll('h1,h2,h3')].map("
                          "h => h.tagName).join(' ')"),
         "H1" + " H2" * 12, "headings")
    same(browser.evaluate("document.documentElement.lang"), "en", "language")


@case
def the_keyboard_goes_through_it_in_order(browser, pages):
    browser.show(pages["full"], 1280, 900, "light")
    wanted = browser.evaluate(
        """[...document.querySelectorAll('a,summary,[tabindex]')].filter(
            e => !e.closest('details:not([open])') || e.matches('summary')
        ).map(e => e.textContent.slice(0, 40))""")
    found = []
    for _ in wanted:
        browser.press("Tab", 9)
        found.append(browser.evaluate(
            "document.activeElement.textContent.slice(0, 40)"))
        outline = browser.evaluate(
            "getComputedStyle(document.activeElement).outlineStyle")
        same(outline, "solid", f"the mark on {found[-1]!r}")
    same(found, wanted, "the order")
    browser.show(pages["full"], 1280, 900, "light")
    browser.evaluate("document.querySelector('#ratio summary').focus()")
    browser.press("\r", 13)
    same(browser.evaluate("document.querySelector('#ratio details').open"),
         True, "Enter opens the numbers")


@case
def links_lead_somewhere(browser, pages):
    browser.show(pages["full"], 1280, 900, "light")
    same(browser.evaluate(
        """[...document.querySelectorAll('a')].filter(a => !document
            .querySelector(a.getAttribute('href'))).length"""), 0, "dead links")


@case
def paper_gets_dark_on_white_and_the_numbers(browser, pages):
    browser.show(pages["full"], 1280, 900, "dark")
    browser.call("Emulation.setEmulatedMedia", media="print")
    same(colour(browser, "body", "backgroundColor"), (255, 255, 255), "paper")
    same(colour(browser, "body", "color"), (0, 0, 0), "ink")
    height = browser.evaluate("document.querySelector('#ratio table')"
                              ".getBoundingClientRect().height")
    same(height > 100, True, "the table is printed")
    browser.call("Emulation.setEmulatedMedia", media="")


# ---- What comes from elsewhere ----------------------------------------------

@case
def hostile_names_are_only_text(browser, pages):
    browser.show(pages["full"], 1280, 900, "light")
    same(browser.evaluate("document.scripts.length"), 0, "scripts")
    same(browser.evaluate("document.querySelectorAll('b').length"), 0,
         "elements out of options")
    name = browser.evaluate(
        """[...document.querySelectorAll('#applications tbody th')].map(
            e => e.textContent).find(t => t.includes('script'))""")
    same(name, "/opt/</title></svg><script>alert(1)</script>\"'&"
         "\ufffd\ufffd\ufffd", "the name")
    with open(pages["full"], "rb") as file:
        text = file.read()
    for bad in (b"<script", b"\x1b", b"\xff", b"\xe2\x80\xae", b"src=",
                b"http:", b"https:", b"url("):
        same(bad in text, False, f"{bad!r} in the page")
    text.decode()


@case
def the_console_is_clean_and_the_network_is_left_alone(browser, pages):
    for page in pages.values():
        for width in WIDTHS.values():
            browser.show(page, width, 900, "dark")
            found, asked = browser.noise()
            same(found, [], "on the console")
            same(asked, ["file://" + page], "asked for")


@case
def a_cache_that_never_was_has_a_page(browser, pages):
    browser.show(pages["none"], 360, 700, "light")
    same(browser.evaluate("document.querySelectorAll('rect.bar').length > 0"),
         True, "the time saved, nothing, is drawn")
    same(browser.evaluate("document.body.textContent.includes('Nothing yet.')"),
         True, "it says so")


def main():
    failed = 0
    with tempfile.TemporaryDirectory() as directory:
        pages = {what: report(directory, what)
                 for what in ("full", "young", "none")}
        browser = Browser(chromium, os.path.join(directory, "profile"))
        print(f"1..{len(cases)}")
        try:
            for number, function in enumerate(cases, 1):
                name = function.__name__.replace("_", " ")
                try:
                    function(browser, pages)
                    print(f"ok {number} {name}")
                except AssertionError as error:
                    failed += 1
                    print(f"not ok {number} {name}\n# {error}")
        finally:
            browser.close()
    return failed > 0


sys.exit(main())
