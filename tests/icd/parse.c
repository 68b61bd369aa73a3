/* SPDX-License-Identifier: MIT */

/*
 * Kernels out of preprocessed text:
 *
 *	[__attribute__((...))] __kernel [__attribute__((...))] void NAME
 *	(ARGUMENTS) [__attribute__((...))] { BODY }
 *	__global TYPE NAME = NUMBER;
 *
 * and nothing else at the top level.  The body stays text; run.c understands
 * it, and is asked here whether it does.
 */

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "icd/icd.h"

struct parser {
	const char *at;
	struct icd_text *log;
	bool failed;
};

static void complain(struct parser *parser, const char *message)
{
	if (!parser->failed)
		icd_text_printf(parser->log, "program: error: %s at '%.20s'\n",
				message, parser->at);
	parser->failed = true;
}

static void blanks(struct parser *parser)
{
	while (isspace((unsigned char)*parser->at))
		parser->at++;
}

static size_t word_length(const char *text)
{
	size_t n = 0;

	while (isalnum((unsigned char)text[n]) || text[n] == '_')
		n++;
	return n;
}

static bool word_is(const char *word, size_t length, const char *text)
{
	return strlen(text) == length && !memcmp(word, text, length);
}

/* Step over this word, with or without its underscores. */
static bool take_word(struct parser *parser, const char *text)
{
	size_t length = word_length(parser->at);

	if (!word_is(parser->at, length, text) &&
	    !(length > 2 && !memcmp(parser->at, "__", 2) &&
	      word_is(parser->at + 2, length - 2, text)))
		return false;
	parser->at += length;
	blanks(parser);
	return true;
}

static bool take(struct parser *parser, char c)
{
	if (*parser->at != c)
		return false;
	parser->at++;
	blanks(parser);
	return true;
}

static void expect(struct parser *parser, char c)
{
	char message[] = "expected 'x'";

	message[10] = c;
	if (!parser->failed && !take(parser, c))
		complain(parser, message);
}

static void take_name(struct parser *parser, char name[64])
{
	size_t length = word_length(parser->at);

	if (!length || length > 63 || isdigit((unsigned char)*parser->at)) {
		complain(parser, "expected a name");
		return;
	}
	memcpy(name, parser->at, length);
	name[length] = '\0';
	parser->at += length;
	blanks(parser);
}

/* The text up to the bracket that closes the one just taken. */
static const char *balanced(struct parser *parser, char open, char close,
			    size_t *out_length)
{
	const char *start = parser->at;
	int depth = 1;

	for (; *parser->at; parser->at++) {
		depth += *parser->at == open;
		depth -= *parser->at == close;
		if (depth)
			continue;
		*out_length = (size_t)(parser->at - start);
		parser->at++;
		blanks(parser);
		return start;
	}
	complain(parser, "a bracket is not closed");
	*out_length = 0;
	return start;
}

/* ---- Attributes --------------------------------------------------------- */

static void attribute(struct parser *parser, struct icd_code *code)
{
	size_t length, used = strlen(code->attributes);
	const char *text;
	int n;

	expect(parser, '(');
	expect(parser, '(');
	if (parser->failed)
		return;
	text = balanced(parser, '(', ')', &length);
	expect(parser, ')');
	snprintf(code->attributes + used, sizeof(code->attributes) - used,
		 "%s%.*s", used ? " " : "", (int)length, text);
	n = sscanf(text, "reqd_work_group_size ( %zu , %zu , %zu )",
		   &code->work_group[0], &code->work_group[1],
		   &code->work_group[2]);
	if (n == 1 || n == 2)
		complain(parser, "bad reqd_work_group_size");
}

static void attributes(struct parser *parser, struct icd_code *code)
{
	while (!parser->failed && take_word(parser, "attribute__"))
		attribute(parser, code);
}

/* ---- Arguments ---------------------------------------------------------- */

static const struct type {
	const char *name;
	size_t size;
	bool floating;
	bool has_sign;
} types[] = {
	{ "bool", 1, false, false },	  { "char", 1, false, true },
	{ "uchar", 1, false, false },	  { "short", 2, false, true },
	{ "ushort", 2, false, false },	  { "int", 4, false, true },
	{ "uint", 4, false, false },	  { "long", 8, false, true },
	{ "ulong", 8, false, false },	  { "size_t", 8, false, false },
	{ "float", 4, true, true },	  { "double", 8, true, true },
	{ "sampler_t", 8, false, false },
};

static bool qualifier(struct parser *parser, struct icd_argument *argument)
{
	static const struct {
		const char *word;
		cl_kernel_arg_address_qualifier address;
		cl_kernel_arg_type_qualifier type;
	} rows[] = {
		{ "global", CL_KERNEL_ARG_ADDRESS_GLOBAL, 0 },
		{ "constant", CL_KERNEL_ARG_ADDRESS_CONSTANT, 0 },
		{ "local", CL_KERNEL_ARG_ADDRESS_LOCAL, 0 },
		{ "private", CL_KERNEL_ARG_ADDRESS_PRIVATE, 0 },
		{ "const", 0, CL_KERNEL_ARG_TYPE_CONST },
		{ "restrict", 0, CL_KERNEL_ARG_TYPE_RESTRICT },
		{ "volatile", 0, CL_KERNEL_ARG_TYPE_VOLATILE },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		if (!take_word(parser, rows[i].word))
			continue;
		if (rows[i].address)
			argument->address = rows[i].address;
		argument->qualifiers |= rows[i].type;
		return true;
	}
	return false;
}

static void argument_type(struct parser *parser, struct icd_argument *argument)
{
	bool is_unsigned = take_word(parser, "unsigned");
	char name[66] = "u";
	size_t i;

	if (is_unsigned && !isalpha((unsigned char)*parser->at))
		strcpy(name + 1, "int");
	else
		take_name(parser, name + 1);
	for (i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (!strcmp(types[i].name, is_unsigned ? name : name + 1))
			break;
	if (i == sizeof(types) / sizeof(types[0])) {
		complain(parser, "unknown type before");
		return;
	}
	argument->element = types[i].size;
	argument->floating = types[i].floating;
	argument->has_sign = types[i].has_sign;
	strcpy(argument->type, types[i].name);
}

static void argument(struct parser *parser, struct icd_code *code)
{
	struct icd_argument *arg = &code->arguments[code->n_arguments];

	if (code->n_arguments == 16) {
		complain(parser, "too many arguments");
		return;
	}
	arg->address = CL_KERNEL_ARG_ADDRESS_PRIVATE;
	while (qualifier(parser, arg))
		;
	argument_type(parser, arg);
	while (!parser->failed && qualifier(parser, arg))
		;
	if (take(parser, '*')) {
		arg->pointer = true;
		strcat(arg->type, "*");
		while (qualifier(parser, arg))
			;
	}
	if (!parser->failed)
		take_name(parser, arg->name);
	/* Only pointers keep qualifiers of what they point to. */
	if (!arg->pointer)
		arg->qualifiers = 0;
	code->n_arguments++;
}

static void kernel(struct parser *parser, struct icd_code *code)
{
	const char *body;
	size_t length;

	attributes(parser, code);
	if (!take_word(parser, "kernel"))
		complain(parser, "expected a kernel");
	attributes(parser, code);
	if (!parser->failed && !take_word(parser, "void"))
		complain(parser, "expected 'void'");
	attributes(parser, code);
	if (!parser->failed)
		take_name(parser, code->name);
	expect(parser, '(');
	if (!parser->failed && !take(parser, ')')) {
		do
			argument(parser, code);
		while (!parser->failed && take(parser, ','));
		expect(parser, ')');
	}
	attributes(parser, code);
	expect(parser, '{');
	if (parser->failed)
		return;
	body = balanced(parser, '{', '}', &length);
	code->body = strndup(body, length);
	if (!code->body)
		complain(parser, "out of memory");
	else if (!parser->failed && !icd_run(code, NULL, NULL, parser->log))
		parser->failed = true;
}

/* ---- Units -------------------------------------------------------------- */

struct icd_variable *icd_variable_find(struct icd_unit *unit, const char *name,
				       size_t length)
{
	for (unsigned i = 0; unit && i < unit->n_variables; i++)
		if (word_is(name, length, unit->variables[i].type.name))
			return &unit->variables[i];
	return NULL;
}

/* Its value is a whole number. */
static void unit_variable(struct parser *parser, struct icd_unit *unit)
{
	struct icd_variable *variable = &unit->variables[unit->n_variables];
	long long value = 0;
	char *end;

	if (unit->n_variables == ICD_VARIABLES_MAX) {
		complain(parser, "too many variables");
		return;
	}
	argument_type(parser, &variable->type);
	if (!parser->failed)
		take_name(parser, variable->type.name);
	if (!parser->failed && take(parser, '=')) {
		value = strtoll(parser->at, &end, 0);
		if (end == parser->at)
			complain(parser, "expected a number");
		parser->at = end;
		blanks(parser);
	}
	expect(parser, ';');
	if (variable->type.floating)
		complain(parser, "variables are whole numbers");
	memcpy(variable->data, &value, sizeof(value));
	unit->n_variables++;
}

static void unit_kernel(struct parser *parser, struct icd_unit *unit)
{
	struct icd_code *codes =
		realloc(unit->codes, (unit->n_codes + 1) * sizeof(*codes));
	struct icd_code *code;

	if (!codes) {
		complain(parser, "out of memory");
		return;
	}
	unit->codes = codes;
	code = &codes[unit->n_codes++];
	memset(code, 0, sizeof(*code));
	code->unit = unit;
	kernel(parser, code);
	for (unsigned i = 0; i + 1 < unit->n_codes; i++)
		if (!strcmp(unit->codes[i].name, code->name))
			complain(parser, "a kernel is defined twice, before");
}

struct icd_unit *icd_parse(const char *text, cl_program_binary_type type,
			   struct icd_text *log)
{
	struct parser parser = { .at = text, .log = log };
	struct icd_unit *unit = calloc(1, sizeof(*unit));

	if (!unit)
		return NULL;
	atomic_init(&unit->refs, 1);
	unit->type = type;
	unit->text = strdup(text);
	parser.failed = !unit->text;
	blanks(&parser);
	while (!parser.failed && *parser.at)
		if (take_word(&parser, "global"))
			unit_variable(&parser, unit);
		else if (!take(&parser, ';'))
			unit_kernel(&parser, unit);
	if (parser.failed) {
		icd_unit_unref(unit);
		return NULL;
	}
	return unit;
}

struct icd_unit *icd_unit_ref(struct icd_unit *unit)
{
	if (unit)
		atomic_fetch_add(&unit->refs, 1);
	return unit;
}

void icd_unit_unref(struct icd_unit *unit)
{
	if (!unit || atomic_fetch_sub(&unit->refs, 1) != 1)
		return;
	for (unsigned i = 0; i < unit->n_codes; i++)
		free(unit->codes[i].body);
	free(unit->codes);
	free(unit->specialised);
	free(unit->text);
	free(unit);
}
