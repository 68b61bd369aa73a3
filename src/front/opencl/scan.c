/* SPDX-License-Identifier: MIT */

/*
 * The danger is to take for a comment or a string what a compiler does not,
 * and to overlook a directive in it.  Strings and character constants end at
 * their line's end, as in clang and gcc, so a stray quote hides nothing; what
 * would need a compiler's mind (raw strings, digit separators, a comment
 * begun behind #error or #warning, letters beyond ASCII in the code, of which
 * some are blanks to clang) makes the text unclear, and an unclear program is
 * not cached.
 *
 * Words may be made of pieces, a ## b.  Whatever is pasted begins with a piece
 * that the whole begins with, so the beginnings of dangerous words are as
 * dangerous.  All of them begin with two underscores: such pieces are rare.
 */

#include "front/opencl/scan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct cursor {
	const char *p;
	const char *end;
	int line_start; /* only blanks and comments since the newline */
	struct ki_cl_scan *scan;
};

static void find(struct ki_cl_scan *scan, unsigned flag)
{
	scan->flags |= flag;
}

/* ---- Phases 1 and 2 -------------------------------------------------- */

#define VARIANT_TRIGRAPHS     1u
#define VARIANT_BLANK_SPLICES 2u

/* What "??c" stands for, or 0. */
static char trigraph(char c)
{
	static const char FROM[] = "=/'()!<>-", TO[] = "#\\^[]|{}~";
	const char *at = c ? strchr(FROM, c) : NULL;

	return at ? TO[at - FROM] : 0;
}

/* Bytes of the newline at p: 0, 1 or 2. */
static size_t newline(const char *p, const char *end)
{
	if (p == end || (*p != '\n' && *p != '\r'))
		return 0;
	return p + 1 < end && *p == '\r' && p[1] == '\n' ? 2 : 1;
}

static int is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\v' || c == '\f' || c == 0;
}

/* Bytes of the rest of a splice whose backslash is before p: blanks and a
   newline; 0 if it is none. */
static size_t splice(const char *p, const char *end, unsigned variant)
{
	const char *start = p;
	size_t size;

	if (variant & VARIANT_BLANK_SPLICES)
		while (p < end && *p && is_blank(*p))
			p++;
	size = newline(p, end);
	return size ? (size_t)(p - start) + size : 0;
}

/* Whether compilers disagree on a splice, whose backslash is before p, in a way
   that no variant has: NULs for blanks (gcc), or "\n\r" taken for one end of a
   line (clang), which matters unless "\r\n" ends the next one. */
static int is_odd_splice(const char *p, const char *end)
{
	int has_nul = 0;

	for (; p < end && is_blank(*p); p++)
		has_nul |= !*p;
	if (!newline(p, end))
		return 0;
	return has_nul || (end - p > 1 && *p == '\n' && p[1] == '\r' &&
			   (end - p == 2 || p[2] != '\n'));
}

/* The variants that this text makes differ, as bits. */
static unsigned variants_of(struct ki_cl_scan *scan, const char *text,
			    size_t size)
{
	const char *end = text + size, *p;
	unsigned variants = 0;

	for (p = text; (p = memchr(p, '?', (size_t)(end - p))); p++)
		if (end - p > 2 && p[1] == '?' && trigraph(p[2])) {
			variants |= VARIANT_TRIGRAPHS | VARIANT_BLANK_SPLICES;
			if (p[2] == '/' && is_odd_splice(p + 3, end))
				find(scan, KI_CL_SCAN_UNCLEAR);
		}
	for (p = text; (p = memchr(p, '\\', (size_t)(end - p))); p++) {
		if (p + 1 < end && is_blank(p[1]) &&
		    splice(p + 1, end, VARIANT_BLANK_SPLICES))
			variants |= VARIANT_BLANK_SPLICES;
		if (is_odd_splice(p + 1, end))
			find(scan, KI_CL_SCAN_UNCLEAR);
	}
	return variants;
}

static size_t before_backslash(const char *p, const char *end)
{
	const char *backslash = memchr(p, '\\', (size_t)(end - p));

	return (size_t)((backslash ? backslash : end) - p);
}

/* The text after phases 1 and 2; returns its size. */
static size_t clean(const char *text, size_t size, unsigned variant, char *out)
{
	const char *p = text, *end = text + size;
	char *start = out, c;
	size_t skip;

	if (size >= 3 && !memcmp(text, "\xef\xbb\xbf", 3))
		p += 3;
	while (p < end) {
		if (!(variant & VARIANT_TRIGRAPHS)) {
			skip = before_backslash(p, end);
			memcpy(out, p, skip);
			out += skip;
			p += skip;
			if (p == end)
				break;
		}
		c = *p++;
		if (c == '?' && (variant & VARIANT_TRIGRAPHS) && end - p > 1 &&
		    *p == '?' && trigraph(p[1])) {
			c = trigraph(p[1]);
			p += 2;
		}
		if (c == '\\') {
			skip = splice(p, end, variant);
			if (skip) {
				p += skip;
				continue;
			}
		}
		*out++ = c;
	}
	return (size_t)(out - start);
}

/* ---- Phase 3 --------------------------------------------------------- */

/* The letters of words, digits among them. */
static const char WORD_LETTERS[256] = {
	['$'] = 1,	   ['_'] = 1,	      ['0' ... '9'] = 1,
	['A' ... 'Z'] = 1, ['a' ... 'z'] = 1,
};

static int is_word(char c)
{
	return WORD_LETTERS[(unsigned char)c];
}

static int is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static int looks_at(const struct cursor *at, const char *text)
{
	size_t size = strlen(text);

	return (size_t)(at->end - at->p) >= size && !memcmp(at->p, text, size);
}

static int at_line_end(const struct cursor *at)
{
	return at->p == at->end || *at->p == '\n' || *at->p == '\r';
}

static void skip_line(struct cursor *at)
{
	while (!at_line_end(at))
		at->p++;
}

/* Skip a comment if there is one. */
static int skip_comment(struct cursor *at)
{
	const char *close;

	if (at->p == at->end || *at->p != '/')
		return 0;
	if (looks_at(at, "//")) {
		skip_line(at);
		return 1;
	}
	if (!looks_at(at, "/*"))
		return 0;
	close = memmem(at->p + 2, (size_t)(at->end - at->p - 2), "*/", 2);
	at->p = close ? close + 2 : at->end;
	return 1;
}

/* Blanks and comments, but not the end of the line. */
static void skip_blanks(struct cursor *at)
{
	while (at->p < at->end)
		if (is_blank(*at->p))
			at->p++;
		else if (!skip_comment(at))
			break;
}

static int has(const char *text, size_t size, const char *part)
{
	size_t length = strlen(part), i;

	for (i = 0; i + length <= size; i++)
		if (!strncasecmp(text + i, part, length))
			return 1;
	return 0;
}

static int ends_in(const char *text, size_t size, const char *part)
{
	size_t length = strlen(part);

	return size >= length &&
	       !strncasecmp(text + size - length, part, length);
}

/* Behind a backslash: the number of something that can be seen, or too many
   digits to tell. */
static int is_letter_by_number(const char *text, size_t size)
{
	static const char HEX[] = "0123456789abcdef";
	unsigned base = size && *text == 'x' ? 16 : 8, value = 0;
	size_t i = base == 16, n = 0;
	const char *digit;

	for (; i < size && text[i]; i++, n++) {
		digit = memchr(HEX, text[i] | (is_digit(text[i]) ? 0 : 0x20),
			       base);
		if (!digit || n == 3)
			break;
		value = value * base + (unsigned)(digit - HEX);
	}
	return n > 2 && base == 16 ? 1 : value >= ' ';
}

/* Whether the last `length` characters, a dot first, go on a symbol:
   "aligned.in" becomes a longer symbol, never a directive.  After a backslash
   the symbol might be a macro's argument, and end there. */
static int goes_on_a_symbol(const char *text, size_t size, size_t length)
{
	char before = size > length ? text[size - length - 1] : ' ';

	return (is_word(before) || before == '.') && !memchr(text, '\\', size);
}

/* Whether an assembler might make a directive that reads of what is in quotes,
   perhaps together with the next string. */
static int may_read(const char *text, size_t size)
{
	static const char *const PARTS[] = { ".inc", ".{",     ".i{",
					     ".in{", ".macro", NULL };
	static const char *const ENDS[] = { ".", ".i", ".in", NULL };
	size_t i;

	for (i = 0; ENDS[i]; i++)
		if (ends_in(text, size, ENDS[i]) &&
		    !goes_on_a_symbol(text, size, strlen(ENDS[i])))
			return 1;
	for (i = 0; PARTS[i]; i++)
		if (has(text, size, PARTS[i]))
			return 1;
	for (i = 0; i < size; i++)
		if (text[i] == '\\' &&
		    is_letter_by_number(text + i + 1, size - i - 1))
			return 1;
	return 0;
}

/* A string or character constant, to its end or to that of its line. */
static void skip_quoted(struct cursor *at, char quote)
{
	const char *text = at->p + 1;
	int closed = 0;
	size_t size;

	for (at->p++; !at_line_end(at) && !closed; at->p++) {
		closed = *at->p == quote;
		if (*at->p == '\\' && at->p + 1 < at->end &&
		    !newline(at->p + 1, at->end))
			at->p++;
	}
	size = (size_t)(at->p - text) - (size_t)closed;
	if (quote == '"' && may_read(text, size))
		find(at->scan, KI_CL_SCAN_ASM_READS);
	if (has(text, size, ".incbin") || has(text, size, ".include"))
		find(at->scan, KI_CL_SCAN_UNCLEAR);
}

static void skip_number(struct cursor *at)
{
	char c, last = 0;

	for (; at->p < at->end; at->p++) {
		c = *at->p;
		if (c == '\'' && at->p + 1 < at->end && is_word(at->p[1]))
			find(at->scan, KI_CL_SCAN_UNCLEAR);
		if (!is_word(c) && c != '.' &&
		    !((c == '+' || c == '-') && last && strchr("eEpP", last)))
			break;
		last = c;
	}
}

static size_t take_word(struct cursor *at, const char **out_word)
{
	*out_word = at->p;
	while (at->p < at->end && is_word(*at->p))
		at->p++;
	return (size_t)(at->p - *out_word);
}

static int is(const char *word, size_t size, const char *name)
{
	return strlen(name) == size && !memcmp(word, name, size);
}

static int is_one_of(const char *word, size_t size, const char *const *names)
{
	for (; *names; names++)
		if (is(word, size, *names))
			return 1;
	return 0;
}

static const char *const TIME_WORDS[] = { "__DATE__", "__TIME__",
					  "__TIMESTAMP__", NULL };
static const char *const HAS_WORDS[] = {
	"__has_include",   "__has_include_next",   "__has_embed",
	"__has_include__", "__has_include_next__", NULL
};
static const char *const RAW_WORDS[] = { "R", "u8R", "uR", "UR", "LR", NULL };
static const char *const ASM_WORDS[] = { "asm", "__asm", "__asm__", NULL };
static const char *const MACRO_STACK_WORDS[] = { "push_macro", "pop_macro",
						 NULL };

/* Whether a word is one of these, or what one of them begins with. */
static int begins_one_of(const char *word, size_t size,
			 const char *const *names)
{
	for (; *names; names++)
		if (size <= strlen(*names) && !memcmp(word, *names, size))
			return 1;
	return 0;
}

static unsigned flags_of_piece(const char *word, size_t size)
{
	if (!size)
		return 0;
	if (begins_one_of(word, size, TIME_WORDS))
		return KI_CL_SCAN_TIME;
	if (begins_one_of(word, size, HAS_WORDS))
		return KI_CL_SCAN_DIRECTIVE;
	if (is_one_of(word, size, MACRO_STACK_WORDS))
		return KI_CL_SCAN_MACRO_STACK;
	if (is_one_of(word, size, ASM_WORDS))
		return KI_CL_SCAN_ASM;
	return 0;
}

/* A '$' may or may not be a letter. */
static unsigned flags_of_word(const char *word, size_t size)
{
	unsigned flags = flags_of_piece(word, size);
	const char *dollar;
	size_t piece;

	while ((dollar = memchr(word, '$', size))) {
		piece = (size_t)(dollar - word);
		flags |= flags_of_piece(word, piece);
		word += piece + 1;
		size -= piece + 1;
		flags |= flags_of_piece(word, size);
	}
	return flags;
}

/* Few words can be one of those above, or begin one. */
static int may_have_flags(const char *word, size_t size)
{
	switch (*word) {
	case '_':
		return size == 1 || word[1] == '_' || memchr(word, '$', size);
	case 'p':
		return size == 9 || size == 10 || memchr(word, '$', size);
	case 'a':
		return size == 3 || memchr(word, '$', size);
	default:
		return memchr(word, '$', size) != NULL;
	}
}

static void scan_word(struct cursor *at)
{
	const char *word;
	size_t size = take_word(at, &word);

	if (may_have_flags(word, size))
		find(at->scan, flags_of_word(word, size));
	if (at->p < at->end && *at->p == '"' &&
	    is_one_of(word, size, RAW_WORDS))
		find(at->scan, KI_CL_SCAN_UNCLEAR);
}

/* ---- Directives ------------------------------------------------------ */

static void add_include(struct ki_cl_scan *scan, char mark, const char *name,
			size_t size)
{
	char *word = malloc(size + 1);
	int err = -ENOMEM;

	if (word) {
		word[0] = mark;
		memcpy(word + 1, name, size);
		err = memchr(name, 0, size) ? -E2BIG
					    : ki_cl_words_add(&scan->includes,
							      word, size + 1);
		free(word);
	}
	if (err && !scan->failed)
		scan->failed = err;
}

/* Behind #include.  What is to be expanded is only noted: its words are then
   scanned like all others. */
static void scan_include(struct cursor *at)
{
	const char *name;
	char close;

	skip_blanks(at);
	if (at_line_end(at)) {
		find(at->scan, KI_CL_SCAN_UNCLEAR);
		return;
	}
	name = at->p;
	if (*name != '"' && *name != '<') {
		struct cursor rest = *at;

		skip_line(&rest);
		add_include(at->scan, '=', name, (size_t)(rest.p - name));
		return;
	}
	close = *name == '"' ? '"' : '>';
	for (at->p++; !at_line_end(at) && *at->p != close; at->p++)
		;
	/* To clang a backslash hides a quote, to gcc it does not. */
	if (at_line_end(at) || at->p == name + 1 ||
	    memchr(name, '\\', (size_t)(at->p - name))) {
		find(at->scan, KI_CL_SCAN_UNCLEAR);
		return;
	}
	add_include(at->scan, *name, name + 1, (size_t)(at->p - name - 1));
	at->p++;
}

/* The bit that stands for a name, and for few others. */
static unsigned mark_of(const char *name, size_t size)
{
	unsigned mark = 0;
	size_t i;

	for (i = 0; i < size; i++)
		mark = mark * 31 + (unsigned char)name[i];
	return mark % KI_CL_SCAN_MARKS;
}

/* Behind #define or #undef. */
static void scan_define(struct cursor *at)
{
	const char *word;
	unsigned mark;
	size_t size;

	skip_blanks(at);
	size = take_word(at, &word);
	mark = mark_of(word, size);
	at->scan->marks[mark / 64] |= (uint64_t)1 << mark % 64;
	ki_bytes_add(&at->scan->defines, word, size);
	ki_bytes_add_u8(&at->scan->defines, 0);
}

/* Behind #error and #warning: clang takes the rest of the line as it is, gcc
   lexes it, so they disagree on a comment that goes on in the next line. */
static void scan_message(struct cursor *at)
{
	struct cursor rest = *at;

	skip_line(&rest);
	if (memmem(at->p, (size_t)(rest.p - at->p), "/*", 2))
		find(at->scan, KI_CL_SCAN_UNCLEAR);
}

static void scan_pragma(struct cursor *at)
{
	static const char *const FILES[] = { "dependency", "include_alias",
					     "module", NULL };
	struct cursor rest = *at;
	const char *word;
	size_t size;

	while (!at_line_end(&rest)) {
		size = take_word(&rest, &word);
		if (is_one_of(word, size, FILES))
			find(at->scan, KI_CL_SCAN_DIRECTIVE);
		if (!size)
			rest.p++;
	}
}

/* Only what stands behind #include is taken: all other words are looked at once
   more like those of any line (R"( may stand anywhere). */
static void scan_directive(struct cursor *at)
{
	static const char *const REFUSED[] = { "import", "include_next",
					       "embed", "__include_macros",
					       NULL };
	struct cursor rest = *at;
	const char *word;
	size_t size;

	skip_blanks(&rest);
	size = take_word(&rest, &word);
	if (is(word, size, "include")) {
		scan_include(&rest);
		at->p = rest.p;
	} else if (is_one_of(word, size, REFUSED)) {
		find(at->scan, KI_CL_SCAN_DIRECTIVE);
	} else if (is(word, size, "define") || is(word, size, "undef")) {
		scan_define(&rest);
	} else if (is(word, size, "error") || is(word, size, "warning")) {
		scan_message(&rest);
	} else if (is(word, size, "pragma")) {
		scan_pragma(&rest);
	}
}

/* A letter by its number: some are blanks, some are part of a word. */
static int is_odd_backslash(const struct cursor *at)
{
	return *at->p == '\\' && at->p + 1 < at->end && at->p[1] &&
	       strchr("uUN", at->p[1]);
}

static void scan_token(struct cursor *at)
{
	int line_start = at->line_start;
	char c = *at->p;

	if (newline(at->p, at->end)) {
		at->line_start = 1;
		at->p++;
		return;
	}
	if (is_blank(c)) {
		while (++at->p < at->end && is_blank(*at->p))
			;
		return;
	}
	if (skip_comment(at))
		return;
	at->line_start = 0;
	if (line_start && (c == '#' || looks_at(at, "%:"))) {
		at->p += c == '#' ? 1 : 2;
		scan_directive(at);
	} else if (c == '"' || c == '\'') {
		skip_quoted(at, c);
	} else if (is_digit(c) ||
		   (c == '.' && at->p + 1 < at->end && is_digit(at->p[1]))) {
		skip_number(at);
	} else if (is_word(c)) {
		scan_word(at);
	} else {
		if ((unsigned char)c >= 0x80 || is_odd_backslash(at))
			find(at->scan, KI_CL_SCAN_UNCLEAR);
		if (c == '.' && at->end - at->p >= 4 &&
		    !strncasecmp(at->p, ".inc", 4))
			find(at->scan, KI_CL_SCAN_ASM_READS);
		at->p++;
	}
}

static void scan_clean(struct ki_cl_scan *scan, const char *text, size_t size)
{
	struct cursor at = {
		.p = text, .end = text + size, .line_start = 1, .scan = scan
	};

	while (at.p < at.end)
		scan_token(&at);
}

/* ---- The whole ------------------------------------------------------- */

void ki_cl_scan_init(struct ki_cl_scan *scan)
{
	*scan = (struct ki_cl_scan){ 0 };
	ki_bytes_init(&scan->defines);
}

void ki_cl_scan_fini(struct ki_cl_scan *scan)
{
	ki_cl_words_fini(&scan->includes);
	ki_bytes_fini(&scan->defines);
}

void ki_cl_scan_text(struct ki_cl_scan *scan, const char *text, size_t size)
{
	unsigned variants, variant;
	char *cleaned;

	if (!size)
		return;
	cleaned = malloc(size);
	if (!cleaned) {
		scan->failed = -ENOMEM;
		return;
	}
	variants = variants_of(scan, text, size);
	for (variant = 0; variant <= variants; variant++)
		if (!(variant & ~variants))
			scan_clean(scan, cleaned,
				   clean(text, size, variant, cleaned));
	free(cleaned);
	if (scan->defines.failed && !scan->failed)
		scan->failed = scan->defines.failed;
}

int ki_cl_scan_defines(const struct ki_cl_scan *scan, const char *name,
		       size_t size)
{
	const char *names = (const char *)scan->defines.data;
	unsigned mark = mark_of(name, size);
	size_t at;

	if (!(scan->marks[mark / 64] & (uint64_t)1 << mark % 64))
		return 0;
	for (at = 0; at < scan->defines.size; at += strlen(names + at) + 1)
		if (is(name, size, names + at))
			return 1;
	return 0;
}

unsigned ki_cl_scan_words(const char *text)
{
	struct cursor at = { .p = text, .end = text + strlen(text) };
	unsigned flags = 0;
	const char *word;
	size_t size;

	while (at.p < at.end) {
		size = take_word(&at, &word);
		flags |= flags_of_word(word, size);
		if (!size)
			at.p++;
	}
	return flags;
}
