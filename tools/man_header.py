# SPDX-License-Identifier: MIT
"""A public header as man pages: its comments are the text.

What stands together, without an empty line between, is one page; so is what
begins with "The same".  A comment that stands alone belongs to its section.
"""
import re

from man_text import escape, inline, literal, prose

DIVIDER = re.compile(r'/\* -{4} (.*?) -+ \*/')
FUNCTION = re.compile(r'\b((?:kiln|cache)_\w+)\s*\(')
CONTINUES = ('The same', 'The way back')


class Group:
    """A comment and what it is about: functions and types."""
    def __init__(self, comment):
        self.comment = comment
        self.functions = []     # (name, prototype)
        self.types = []         # (name, code)


class Section:
    """What stands behind a divider."""
    def __init__(self, title):
        self.title = title
        self.text = []
        self.groups = []


def comment_of(lines, i):
    """The comment that begins at line i, and the line behind it."""
    end = i
    while '*/' not in lines[end]:
        end += 1
    whole = '\n'.join(lines[i:end + 1])[2:].split('*/')[0].split('\n')
    text = [re.sub(r'^ \* ?|^   |^ ', '', line, count=1).rstrip()
            for line in whole]
    return text, end + 1


def declaration_of(lines, i):
    """The code that begins at line i, and the line behind it."""
    end = depth = 0
    for end in range(i, len(lines)):
        line = lines[end]
        depth += line.count('{') - line.count('}')
        if lines[i].startswith('#'):
            if not line.endswith('\\'):
                break
        elif not depth and re.search(r'(;|^\})\s*(/\*.*\*/)?$', line):
            break
    return lines[i:end + 1], end + 1


def add_declaration(group, code):
    """A function by its prototype, anything else that has a name by its code."""
    text = '\n'.join(code).expandtabs(8)
    first = code[0]
    if first.startswith('#define'):
        name = re.match(r'#define\s+(\w+)', first)
        group.types.append((name.group(1), text))
    elif re.match(r'(struct|enum|typedef)\b', first):
        names = re.findall(r'\b(?:struct|enum) (\w+) \{', first) or \
            re.findall(r'\b(\w+)\)?\(', text) or re.findall(r'\b(\w+);$', text)
        if names and not re.match(r'struct \w+;', first):
            group.types.append((names[0], text))
    elif FUNCTION.search(text):
        text = re.sub(r'^(KILN_API|static inline) ', '', text)
        if first.startswith('static'):
            text = text.split('\n{')[0] + ';'
        text = ' '.join(text.split()).replace('( ', '(')
        group.functions.append((FUNCTION.search(text).group(1), text))


def parse(path):
    """The comment on top, and the sections."""
    with open(path, encoding='utf-8') as file:
        lines = file.read().split('\n')
    sections, group, essay, i = [Section('')], None, None, 0
    while i < len(lines):
        line = lines[i]
        if DIVIDER.match(line):
            sections.append(Section(DIVIDER.match(line).group(1)))
            group = None
        elif line.startswith('/*') and 'SPDX' not in line and \
                not re.search(r'\*/.*\S', line):
            text, i = comment_of(lines, i)
            if essay is None:
                essay = text
            elif i < len(lines) and not lines[i].strip():
                sections[-1].text += text + ['']
            else:
                group = Group(text)
                sections[-1].groups.append(group)
            continue
        elif not line.strip():
            group = None
        elif re.match(r'(#define \w+(\(\w+\))?\s+\S|struct |enum |typedef '
                      r'|static inline |KILN_API |\w.*\bcache_\w+\()', line):
            if group is None:
                group = Group([])
                sections[-1].groups.append(group)
            code, i = declaration_of(lines, i)
            add_declaration(group, code)
            continue
        i += 1
    return essay or [], sections


def pages(section):
    """Groups of a section that share a page."""
    made = []
    for group in section.groups:
        if not group.functions:
            continue
        if made and ' '.join(group.comment).strip().startswith(CONTINUES):
            made[-1].append(group)
        else:
            made.append([group])
    return made


def sentence(groups, title):
    """The first sentence, for the line that whatis(1) shows."""
    text = ' '.join(' '.join(groups[0].comment).split())
    text = re.split(r'(?<=[a-z0-9)"])[.;:](?: |$)', text)[0].rstrip('.')
    if len(text) > 100:
        text = text[:100].rsplit(',' if ',' in text[40:100] else ' ', 1)[0]
    if not text:
        is_init = groups[0].functions[0][0].endswith('_init')
        text = 'set defaults' if is_init else title
    if not text[1:2].isupper():
        text = text[:1].lower() + text[1:]
    return text.replace('`', '').replace('*', '')


def statuses(path):
    """Meanings of enum kiln_status, by name."""
    with open(path, encoding='utf-8') as file:
        body = re.search(r'enum kiln_status \{(.*?)\};', file.read(), re.S)
    return {name: meaning or name.split('_E_')[1].lower().replace('_', ' ')
            for name, meaning in
            re.findall(r'(KILN_(?!OK)\w+) = -?\d+,(?:\s*/\* (.*?) \*/)?',
                       body.group(1))}


def returns(groups, meanings):
    """The statuses that a page names, with what they mean."""
    if not any(prototype.startswith('enum kiln_status ')
               for group in groups for _, prototype in group.functions):
        return ''
    text = ' '.join(' '.join(group.comment) for group in groups)
    made = '# RETURN VALUE\n\n*KILN\\_OK*\n\tdone\n\n'
    for name, meaning in meanings.items():
        if re.search(rf'\b({name}|{name.removeprefix("KILN_E_")})\b', text):
            made += f'*{escape(name)}*\n\t{inline(meaning)}\n\n'
    return made


def is_named(group, code, functions):
    """Whether code names a type of this group, or its comment a function."""
    about = ' '.join(group.comment)
    for name, _ in group.types:
        if name != 'kiln_status' and re.search(rf'\b{name}\b', code):
            return True
    return not group.functions and bool(group.types) and \
        any(f'{name}()' in about for name in functions)


def is_flag_of(group, chosen):
    """Bits of what is in a chosen structure, and bits of the same name."""
    about = ' '.join(group.comment)
    mine = [name for name, code in group.types if code.startswith('#')]
    for other in chosen:
        for name, code in other.types:
            if f'{name}.flags' in about or code.startswith('#define') and \
                    any(flag.rsplit('_', 1)[0].startswith(
                        '_'.join(name.split('_')[:2]) + '_') or
                        flag.split('_')[:2] == name.split('_')[:2]
                        for flag in mine):
                return True
    return False


def types_of(groups, sections):
    """Groups with the types that prototypes name, and what these consist of."""
    functions = [function for group in groups for function in group.functions]
    names = [name for name, _ in functions]
    every = [group for section in sections for group in section.groups
             if group.types]
    code = ' '.join(prototype for _, prototype in functions)
    chosen = [group for group in every if group in groups or
              is_named(group, code, names)]
    chosen += [group for group in every if group not in chosen and
               is_flag_of(group, chosen)]
    code = ' '.join(code for group in chosen for _, code in group.types
                    if code.startswith('struct'))
    return [group for group in every if group in chosen or
            is_named(group, code, []) and
            not group.types[0][1].startswith('struct')]
