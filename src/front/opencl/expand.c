/* SPDX-License-Identifier: MIT */

/*
 * Macro expansion over a list of tokens with hide sets: a token remembers, as
 * bits, the macros that it came out of.  Refused: one of those met again (in
 * corner cases compilers differ), token pasting, variable arguments, empty
 * results, strings inside arguments, names that compilers may define by
 * themselves.
 */

#include "front/opencl/expand.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define PARAMETERS_MAX 16
#define MACROS_MAX     64 /* in one expansion: bits of a hide set */

enum kind { WORD, NUMBER, QUOTED, SIGN };

struct token {
	const char *text;
	size_t size;
	uint64_t hidden;
	enum kind kind;
	int space; /* blanks before it */
};

struct tokens {
	struct token *tokens;
	size_t n;
	size_t capacity;
};

struct macro {
	const char *name;
	size_t name_size;
	int is_function;
	size_t n_parameters;
	struct {
		const char *text;
		size_t size;
	} parameters[PARAMETERS_MAX];
	struct tokens body;
	char *text; /* what the body's tokens point into */
};

/* What one expansion owns. */
struct expansion {
	const struct ki_cl_options *options;
	struct ki_cl_words *words;
	struct macro *macros[MACROS_MAX];
	size_t n_macros;
	char **strings; /* of tokens made here */
	size_t n_strings;
	size_t n_made; /* tokens, to bound the work */
	unsigned depth;
};

/* ---- Tokens ---------------------------------------------------------- */

static int push(struct tokens *list, const struct token *token)
{
	size_t capacity = list->capacity ? 2 * list->capacity : 16;
	struct token *grown;

	if (list->n == list->capacity) {
		grown = realloc(list->tokens, capacity * sizeof(*grown));
		if (!grown)
			return -ENOMEM;
		list->tokens = grown;
		list->capacity = capacity;
	}
	list->tokens[list->n++] = *token;
	return 0;
}

static int push_all(struct tokens *list, const struct tokens *more, size_t from)
{
	int err = 0;

	for (; from < more->n && !err; from++)
		err = push(list, &more->tokens[from]);
	return err;
}

static int is_word_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
	       (c >= '0' && c <= '9') || c == '_' || c == '$' ||
	       (unsigned char)c >= 0x80;
}

static int is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static size_t token_size(const char *p, enum kind *out_kind)
{
	size_t n = 1;

	if (is_digit(*p) || (*p == '.' && is_digit(p[1]))) {
		*out_kind = NUMBER;
		while (is_word_char(p[n]) || p[n] == '.' ||
		       ((p[n] == '+' || p[n] == '-') &&
			strchr("eEpP", p[n - 1])))
			n++;
	} else if (is_word_char(*p)) {
		*out_kind = WORD;
		while (is_word_char(p[n]))
			n++;
	} else if (*p == '"' || *p == '\'') {
		*out_kind = QUOTED;
		while (p[n] && p[n] != *p)
			n++;
		n += p[n] == *p;
	} else {
		*out_kind = SIGN;
	}
	return n;
}

static int tokenise(const char *text, struct tokens *list)
{
	struct token token = { 0 };
	const char *close;
	int err = 0;

	while (*text && !err) {
		if (*text == ' ' || (*text >= '\t' && *text <= '\r')) {
			token.space = 1;
			text++;
		} else if (!strncmp(text, "//", 2)) {
			break;
		} else if (!strncmp(text, "/*", 2)) {
			close = strstr(text + 2, "*/");
			if (!close)
				return -EINVAL;
			token.space = 1;
			text = close + 2;
		} else {
			token.text = text;
			token.size = token_size(text, &token.kind);
			if (memchr(text, '\\', token.size) ||
			    memchr(text, '$', token.size))
				return -EINVAL;
			text += token.size;
			err = push(list, &token);
			token.space = 0;
		}
	}
	return err;
}

static int is_sign(const struct token *token, char sign)
{
	return token->kind == SIGN && *token->text == sign;
}

static int is_text(const struct token *token, const char *text, size_t size)
{
	return token->size == size && !memcmp(token->text, text, size);
}

/* ---- Definitions ----------------------------------------------------- */

static void macro_free(struct macro *macro)
{
	if (!macro)
		return;
	free(macro->body.tokens);
	free(macro->text);
	free(macro);
}

static size_t word_size(const char *text)
{
	size_t n = 0;

	while (is_word_char(text[n]))
		n++;
	return n;
}

/* Behind "NAME(": parameters and ")".  Returns what follows, or NULL. */
static const char *read_parameters(struct macro *macro, const char *p)
{
	size_t size;

	p += strspn(p, " ");
	if (*p == ')')
		return p + 1;
	for (;;) {
		p += strspn(p, " ");
		size = word_size(p);
		if (!size || macro->n_parameters == PARAMETERS_MAX)
			return NULL;
		macro->parameters[macro->n_parameters].text = p;
		macro->parameters[macro->n_parameters++].size = size;
		p += size + strspn(p + size, " ");
		if (*p == ')')
			return p + 1;
		if (*p++ != ',')
			return NULL;
	}
}

/* What compilers are known to make of -D: a line of a file, so a comment or
   the line's end would cut it short. */
static int read_definition(struct macro *macro)
{
	const char *p = macro->text + word_size(macro->text);
	size_t i;
	int err;

	if (strpbrk(macro->text, "\n\r\\$") || strstr(macro->text, "//") ||
	    strstr(macro->text, "/*") || strstr(macro->text, "??") ||
	    strstr(macro->text, "%:"))
		return -EINVAL;
	if (*p == '(') {
		macro->is_function = 1;
		p = read_parameters(macro, p + 1);
		if (!p)
			return -EINVAL;
	}
	if (*p && *p != '=')
		return -EINVAL;
	err = tokenise(*p ? p + 1 : "1", &macro->body);
	if (err)
		return err;
	for (i = 0; i + 1 < macro->body.n; i++)
		if (is_sign(&macro->body.tokens[i], '#') &&
		    is_sign(&macro->body.tokens[i + 1], '#'))
			return -EINVAL;
	return macro->body.n ? 0 : -EINVAL;
}

/* A name that some compiler defines by itself, or may. */
static int is_reserved(const char *name, size_t size)
{
	static const char *const NAMES[] = {
		"linux",    "unix",	"i386",	    "vax",	 "sun",
		"arm",	    "mips",	"sparc",    "NULL",	 "NAN",
		"INFINITY", "MAXFLOAT", "HUGE_VAL", "HUGE_VALF", NULL
	};
	static const char *const PREFIXES[] = {
		"_",	  "CL_",   "CLK_",  "cl_",	"M_",
		"FLT_",	  "cles_", "POCL_", "SPIR",	"AMD",
		"DBL_",	  "HALF_", "INT_",  "UINT_",	"LONG_",
		"ULONG_", "CHAR_", "SHRT_", "SCHAR_",	"UCHAR_",
		"USHRT_", "FP_",   "as_",   "convert_", NULL
	};
	size_t i;

	for (i = 0; NAMES[i]; i++)
		if (strlen(NAMES[i]) == size && !memcmp(name, NAMES[i], size))
			return 1;
	for (i = 0; PREFIXES[i]; i++)
		if (strlen(PREFIXES[i]) <= size &&
		    !memcmp(name, PREFIXES[i], strlen(PREFIXES[i])))
			return 1;
	return 0;
}

/* The only definition of a name in the options: *out_text is NULL if there is
   none.  -EINVAL if there are several, or it is taken away. */
static int find_definition(const struct ki_cl_options *options,
			   const char *name, size_t size, const char **out_text)
{
	const char *word;
	size_t i;

	*out_text = NULL;
	if (ki_cl_words_have(&options->undefined, name, size))
		return -EINVAL;
	for (i = 0; i < options->macros.n; i++) {
		word = options->macros.words[i];
		if (strncmp(word, name, size) || is_word_char(word[size]))
			continue;
		if (*out_text)
			return -EINVAL;
		*out_text = word;
	}
	return 0;
}

/* The macro of this name, or NULL; its place is its bit in hide sets. */
static int find_macro(struct expansion *expansion, const struct token *token,
		      struct macro **out_macro, uint64_t *out_bit)
{
	struct macro *macro;
	const char *text;
	size_t i;
	int err;

	*out_macro = NULL;
	for (i = 0; i < expansion->n_macros; i++)
		if (is_text(token, expansion->macros[i]->name,
			    expansion->macros[i]->name_size))
			goto found;
	err = find_definition(expansion->options, token->text, token->size,
			      &text);
	if (err || !text)
		return err || !is_reserved(token->text, token->size) ? err
								     : -EINVAL;
	if (expansion->n_macros == MACROS_MAX)
		return -EINVAL;
	macro = calloc(1, sizeof(*macro));
	if (macro)
		macro->text = strdup(text);
	if (!macro || !macro->text) {
		free(macro);
		return -ENOMEM;
	}
	macro->name = macro->text;
	macro->name_size = word_size(macro->text);
	expansion->macros[expansion->n_macros++] = macro;
	err = read_definition(macro);
	if (err)
		return err;
found:
	*out_macro = expansion->macros[i];
	*out_bit = (uint64_t)1 << i;
	return 0;
}

/* ---- Expansion ------------------------------------------------------- */

static int expand(struct expansion *expansion, const struct tokens *in,
		  struct tokens *out);

static int keep_string(struct expansion *expansion, char *string)
{
	char **grown = realloc(expansion->strings,
			       (expansion->n_strings + 1) * sizeof(*grown));

	if (!grown) {
		free(string);
		return -ENOMEM;
	}
	expansion->strings = grown;
	expansion->strings[expansion->n_strings++] = string;
	return 0;
}

/* The tokens as they are spelled, one blank where there were some.  NULL if
   there is no memory. */
static char *spell(const struct tokens *list, size_t from, size_t to)
{
	size_t i, size = 0;
	char *text, *p;

	for (i = from; i < to; i++)
		size += list->tokens[i].size + 1;
	text = p = malloc(size + 3);
	if (!text)
		return NULL;
	for (i = from; i < to; i++) {
		if (i > from && list->tokens[i].space)
			*p++ = ' ';
		memcpy(p, list->tokens[i].text, list->tokens[i].size);
		p += list->tokens[i].size;
	}
	*p = 0;
	return text;
}

/* #x */
static int stringify(struct expansion *expansion, const struct tokens *argument,
		     struct token *out)
{
	size_t i, size;
	char *text;
	int err;

	for (i = 0; i < argument->n; i++)
		if (argument->tokens[i].kind == QUOTED)
			return -EINVAL;
	text = spell(argument, 0, argument->n);
	if (!text)
		return -ENOMEM;
	size = strlen(text);
	memmove(text + 1, text, size);
	text[0] = text[size + 1] = '"';
	text[size + 2] = 0;
	err = keep_string(expansion, text);
	if (err)
		return err;
	*out = (struct token){ .text = text, .size = size + 2, .kind = QUOTED };
	return 0;
}

static int parameter_of(const struct macro *macro, const struct token *token)
{
	size_t i;

	for (i = 0; token->kind == WORD && i < macro->n_parameters; i++)
		if (is_text(token, macro->parameters[i].text,
			    macro->parameters[i].size))
			return (int)i;
	return -1;
}

/* The body with its arguments in place. */
static int substitute(struct expansion *expansion, const struct macro *macro,
		      const struct tokens *arguments, struct tokens *out)
{
	const struct tokens *body = &macro->body;
	struct token token;
	size_t i, start;
	int parameter, space, err = 0;

	for (i = 0; i < body->n && !err; i++) {
		token = body->tokens[i];
		space = token.space;
		start = out->n;
		if (macro->is_function && is_sign(&token, '#')) {
			parameter =
				++i < body->n
					? parameter_of(macro, &body->tokens[i])
					: -1;
			if (parameter < 0)
				return -EINVAL;
			err = stringify(expansion, &arguments[parameter],
					&token);
			if (!err)
				err = push(out, &token);
		} else if ((parameter = parameter_of(macro, &token)) >= 0) {
			err = expand(expansion, &arguments[parameter], out);
			if (!err && out->n == start)
				err = -EINVAL;
		} else {
			err = push(out, &token);
		}
		if (!err)
			out->tokens[start].space = space;
	}
	return err;
}

/*
 * The arguments behind a function-like macro's name, from the '(' at *position
 * to behind the ')'.
 */
static int take_arguments(const struct macro *macro, const struct tokens *in,
			  size_t *position, struct tokens *arguments)
{
	size_t n = 0, i = *position + 1;
	unsigned depth = 0;
	int err = 0;

	for (; i < in->n && !err; i++) {
		const struct token *token = &in->tokens[i];

		if (is_sign(token, ')') && !depth--)
			break;
		if (is_sign(token, '('))
			depth++;
		if (is_sign(token, ',') && !depth)
			n++;
		else if (n < macro->n_parameters)
			err = push(&arguments[n], token);
		if (n >= macro->n_parameters)
			return -EINVAL;
	}
	if (!err && (i == in->n ||
		     (macro->n_parameters && n + 1 != macro->n_parameters)))
		err = -EINVAL;
	*position = i + 1;
	return err;
}

/* One use of a macro, its name at in->tokens[*position]: what it stands for,
   then all that follows, as a new list to go on with. */
static int replace(struct expansion *expansion, const struct macro *macro,
		   uint64_t bit, const struct tokens *in, size_t position,
		   struct tokens *out)
{
	struct tokens arguments[PARAMETERS_MAX] = { { 0 } };
	const struct token name = in->tokens[position++];
	uint64_t hidden = name.hidden;
	size_t i;
	int err = 0;

	if (macro->is_function) {
		err = take_arguments(macro, in, &position, arguments);
		if (!err)
			hidden &= in->tokens[position - 1].hidden;
	}
	if (!err)
		err = substitute(expansion, macro, arguments, out);
	for (i = 0; i < out->n && !err; i++)
		out->tokens[i].hidden |= hidden | bit;
	if (!err)
		out->tokens[0].space = name.space;
	if (!err)
		err = push_all(out, in, position);
	for (i = 0; i < PARAMETERS_MAX; i++)
		free(arguments[i].tokens);
	return err;
}

/* Expand all of `in` and add it to `out`. */
static int expand(struct expansion *expansion, const struct tokens *in,
		  struct tokens *out)
{
	struct tokens rest = { 0 }, next;
	struct macro *macro;
	struct token *token;
	uint64_t bit = 0;
	size_t i;
	int err;

	if (++expansion->depth > KI_CL_EXPAND_DEPTH_MAX)
		return -EINVAL;
	err = push_all(&rest, in, 0);
	for (i = 0; i < rest.n && !err; i++) {
		token = &rest.tokens[i];
		macro = NULL;
		if (++expansion->n_made > KI_CL_EXPAND_TOKENS_MAX) {
			err = -EINVAL;
			break;
		}
		if (token->kind == WORD) {
			err = ki_cl_words_add(expansion->words, token->text,
					      token->size);
			if (!err)
				err = find_macro(expansion, token, &macro,
						 &bit);
		}
		if (err)
			break;
		if (macro && (token->hidden & bit)) {
			err = -EINVAL;
			break;
		}
		if (!macro ||
		    (macro->is_function &&
		     (i + 1 == rest.n || !is_sign(&rest.tokens[i + 1], '(')))) {
			err = push(out, token);
			continue;
		}
		next = (struct tokens){ 0 };
		err = replace(expansion, macro, bit, &rest, i, &next);
		free(rest.tokens);
		rest = next;
		i = (size_t)-1;
	}
	free(rest.tokens);
	expansion->depth--;
	return err;
}

/* ---- The name -------------------------------------------------------- */

static int name_of(const struct tokens *list, char **out_name)
{
	size_t i, last = list->n - 1;
	char *name;

	if (!list->n)
		return -EINVAL;
	if (list->n == 1 && *list->tokens[0].text == '"' &&
	    list->tokens[0].size > 2) {
		name = spell(list, 0, 1);
		if (!name)
			return -ENOMEM;
		name[list->tokens[0].size - 1] = 0;
		*out_name = name;
		return 0;
	}
	if (last < 2 || !is_sign(&list->tokens[0], '<') ||
	    !is_sign(&list->tokens[last], '>'))
		return -EINVAL;
	for (i = 1; i <= last; i++)
		if (list->tokens[i].space ||
		    (i < last && is_sign(&list->tokens[i], '>')))
			return -EINVAL;
	*out_name = spell(list, 0, last);
	return *out_name ? 0 : -ENOMEM;
}

int ki_cl_expand(const struct ki_cl_options *options, const char *text,
		 struct ki_cl_words *words, char **out_name)
{
	struct expansion expansion = { .options = options, .words = words };
	struct tokens in = { 0 }, out = { 0 };
	size_t i;
	int err;

	err = tokenise(text, &in);
	if (!err)
		err = expand(&expansion, &in, &out);
	if (!err)
		err = name_of(&out, out_name);
	for (i = 0; i < expansion.n_macros; i++)
		macro_free(expansion.macros[i]);
	for (i = 0; i < expansion.n_strings; i++)
		free(expansion.strings[i]);
	free(expansion.strings);
	free(in.tokens);
	free(out.tokens);
	return err == -ENOMEM ? err : err ? -EINVAL : 0;
}
