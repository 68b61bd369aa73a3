# SPDX-License-Identifier: MIT
"""The Markdown of docs/ as scdoc(5) has it: headings, paragraphs, lists, tables
and code.  A row of a table becomes its first cell, what the others say of it,
and below that its last cell."""
import re

from man_text import escape, inline, literal

PAGES = {'env.md': 'kiln.conf'}


def linked(text):
    """[text](page.md) as the page."""
    def page(found):
        name = found.group(2).split('/')[-1].split('#')[0]
        if not name.endswith('.md'):
            return found.group(1)
        name = PAGES.get(name, 'kiln-' + name.removesuffix('.md'))
        return f'`{name}`(5)'
    return re.sub(r'\[([^]]+)\]\(([^)]+)\)', page, text)


def words(text):
    """Prose of one line."""
    return inline(linked(text))


def cells(line):
    """Of a row of a table."""
    return [cell.strip().replace('\\|', '|') for cell in
            re.split(r'(?<!\\)\|', line.strip().strip('|'))]


def table(lines):
    """Rows as a list of words."""
    titles, made = cells(lines[0]), ''
    for line in lines[2:]:
        row = cells(line)
        between = [f'{escape(title)}: {words(cell)}' for title, cell in
                   list(zip(titles, row))[1:-1] if cell]
        made += '*' + escape(row[0].replace('`', '')) + '*'
        made += (' (' + '; '.join(between) + ')' if between else '') + '\n\t'
        made += (words(row[-1]) or '\\-') + '\n\n'
    return made


def items(lines):
    """A list, with what goes on in the next line."""
    made = ''
    for line in lines:
        found = re.match(r'([-*]|\d+\.) +(.*)', line)
        if found:
            made += ('. ' if found.group(1)[0].isdigit() else '- ')
            made += words(found.group(2)) + '\n'
        else:
            made += '  ' + words(line.strip()) + '\n'
    return made + '\n'


def block(lines):
    """What stands between empty lines."""
    first = lines[0]
    if first.startswith('|'):
        return table(lines)
    if first.startswith('    '):
        return literal([line.removeprefix('    ') for line in lines])
    if re.match(r'([-*]|\d+\.) ', first):
        return items(lines)
    if first.startswith('#'):
        depth = len(first) - len(first.lstrip('#')) - 1
        title = first.lstrip('# ')
        return '#' * depth + ' ' + (title.upper() if depth == 1 else title) + \
            '\n\n' + (block(lines[1:]) if lines[1:] else '')
    for n, line in enumerate(lines):
        if n and (line.startswith('|') or re.match(r'([-*]|\d+\.) ', line)):
            return block(lines[:n]) + block(lines[n:])
    return '\n'.join(map(words, lines)) + '\n\n'


def convert(text):
    """The title, and the rest."""
    title, made, waiting = '', '', []
    lines = text.split('\n') + ['']
    i = 0
    while i < len(lines):
        line = lines[i]
        if line.startswith('# ') and not title:
            title = line[2:]
        elif line.startswith('```'):
            made += block(waiting) if waiting else ''
            waiting = []
            end = lines.index('```', i + 1)
            made += literal(lines[i + 1:end])
            i = end
        elif line.strip():
            waiting.append(line)
        elif waiting:
            made += block(waiting)
            waiting = []
        i += 1
    return title, made
