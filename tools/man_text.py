# SPDX-License-Identifier: MIT
"""Prose of comments and documents as scdoc(5) has it."""
import re

HANGING = re.compile(r'( {0,3}\S(?:.{0,40}?\S)?)( {2,})(?=\S)')
FUNCTION = re.compile(r'\b((?:kiln|cache)_\w+|[a-z]\w*_?\w*)\(\)')


def escape(text):
    """Text in which nothing means anything to scdoc."""
    return re.sub(r'([\\*_#|\[\]<`+~-])', r'\\\1', text)


def inline(text):
    """Escaped, but for `code`, *emphasis*, **strength** and functions()."""
    parts = re.split(r'(`[^`]+`|\*\*[^*]+\*\*|(?<![\w*])\*\w[^*]*\*(?!\w))',
                     text)
    made = []
    for part in parts:
        if part.startswith('`') and len(part) > 1:
            made.append('*' + escape(part.strip('`')) + '*')
        elif part.startswith('**') and len(part) > 2:
            made.append('*' + escape(part.strip('*')) + '*')
        elif part.startswith('*') and len(part) > 1:
            made.append('_' + escape(part.strip('*')) + '_')
        else:
            made.append(FUNCTION.sub(r'*\1*()', escape(part)))
    return ''.join(made)


def literal(lines):
    """Lines as they are."""
    return '```\n' + '\n'.join(lines) + '\n```\n\n'


def hanging(line):
    """('Threads', text, its column) of a line of a list of words, else None."""
    found = HANGING.match(line)
    if not found or found.group(1).rstrip().endswith(('.', ':', ',')):
        return None
    return found.group(1).strip(), line[found.end():], found.end()


def hanging_list(lines):
    """The items that begin here, and how many lines they take."""
    made, used = [], 0
    while used < len(lines) and hanging(lines[used]):
        word, text, column = hanging(lines[used])
        body = [text]
        used += 1
        while used < len(lines) and lines[used] and \
                lines[used].startswith(' ' * column):
            body.append(lines[used].strip())
            used += 1
        made.append(f'*{escape(word)}*\n\t' +
                    '\n\t'.join(map(inline, body)) + '\n\n')
        while used + 1 < len(lines) and not lines[used] and \
                hanging(lines[used + 1]):
            used += 1
    return ''.join(made), used


def is_list(lines):
    """Whether words in a column begin here, and not two spaces of a sentence."""
    first = hanging(lines[0])
    if not first:
        return False
    after = lines[1] if len(lines) > 1 else ''
    again = hanging(after)
    return after.startswith(' ' * first[2]) or \
        bool(again and again[2] == first[2]) or lines[0].startswith('  ')


def prose(lines):
    """Paragraphs, examples behind a tab, and lists of words."""
    made, i = '', 0
    while i < len(lines):
        if not lines[i].strip():
            i += 1
        elif lines[i].startswith('\t'):
            end = i
            while end < len(lines) and (not lines[end] or
                                        lines[end].startswith('\t')):
                end += 1
            made += literal([line[1:] for line in lines[i:end]]).replace(
                '\n\n```', '\n```')
            i = end
        elif is_list(lines[i:]):
            text, used = hanging_list(lines[i:])
            made += text
            i += used
        else:
            end = i
            while end < len(lines) and lines[end].strip() and \
                    not lines[end].startswith('\t') and \
                    (end == i or not is_list(lines[end:]) and
                     not lines[end].startswith('Errors:')):
                end += 1
            made += '\n'.join(inline(line.strip()) for line in lines[i:end])
            made += '\n\n'
            i = end
    return made
