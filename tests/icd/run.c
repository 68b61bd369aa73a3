/* SPDX-License-Identifier: MIT */

/*
 * Runs the body of a kernel, one work item after the other:
 *
 *	TYPE NAME = EXPRESSION;		NAME = EXPRESSION;
 *	NAME[EXPRESSION] = EXPRESSION;	(also += -= *=)
 *	NAME of a variable of the program's, likewise
 *	if (EXPRESSION) STATEMENT	return;		{ STATEMENTS }
 *
 * Expressions have C's operators but for ++, --, assignments and ?:, numbers,
 * casts, min, max and get_global_id() with its relatives.  Integers are 64
 * bits wide until they are stored.
 */

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "icd/icd.h"

#define LOCALS_MAX 16

struct number {
	bool floating;
	int64_t whole;
	double real;
};

struct local {
	char name[64];
	struct number value;
};

struct machine {
	const struct icd_code *code;
	const struct icd_value *values; /* NULL: only look whether it reads */
	unsigned char *scratch[16];	/* of __local arguments */
	const struct icd_range *range;
	size_t group[3];
	size_t item[3];
	const char *at;
	bool idle; /* reading a branch not taken */
	bool returned;
	bool failed;
	const char *message;
	unsigned n_locals;
	struct local locals[LOCALS_MAX];
};

static struct number expression(struct machine *m, int least);

static void complain(struct machine *m, const char *message)
{
	if (!m->failed)
		m->message = message;
	m->failed = true;
}

static bool live(const struct machine *m)
{
	return m->values && !m->idle && !m->failed && !m->returned;
}

static struct number whole(int64_t value)
{
	return (struct number){ .whole = value };
}

static struct number real(double value)
{
	return (struct number){ .floating = true, .real = value };
}

static double as_real(struct number n)
{
	return n.floating ? n.real : (double)n.whole;
}

static int64_t as_whole(struct number n)
{
	if (!n.floating)
		return n.whole;
	if (!(n.real > -9e18 && n.real < 9e18))
		return 0;
	return (int64_t)n.real;
}

static bool truth(struct number n)
{
	return n.floating ? n.real != 0 : n.whole != 0;
}

/* ---- Reading ------------------------------------------------------------ */

static void blanks(struct machine *m)
{
	while (isspace((unsigned char)*m->at))
		m->at++;
}

static size_t word_length(const char *text)
{
	size_t n = 0;

	while (isalnum((unsigned char)text[n]) || text[n] == '_')
		n++;
	return n;
}

static bool take(struct machine *m, const char *text)
{
	size_t length = strlen(text);

	blanks(m);
	if (strncmp(m->at, text, length))
		return false;
	m->at += length;
	return true;
}

static void expect(struct machine *m, const char *text)
{
	if (!take(m, text))
		complain(m, "syntax error");
}

static bool take_word(struct machine *m, const char *word)
{
	blanks(m);
	if (word_length(m->at) != strlen(word) ||
	    strncmp(m->at, word, strlen(word)))
		return false;
	m->at += strlen(word);
	return true;
}

/* A type: its name is stepped over and said to be real or not. */
static bool take_type(struct machine *m, bool *out_floating)
{
	static const char *const names[] = { "bool",  "char",	"uchar",
					     "short", "ushort", "int",
					     "uint",  "long",	"ulong",
					     "size_t" };

	while (take_word(m, "const") || take_word(m, "unsigned"))
		;
	*out_floating = true;
	if (take_word(m, "float") || take_word(m, "double"))
		return true;
	*out_floating = false;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (take_word(m, names[i]))
			return true;
	return false;
}

static struct local *find_local(struct machine *m, const char *name,
				size_t length)
{
	for (unsigned i = 0; i < m->n_locals; i++)
		if (strlen(m->locals[i].name) == length &&
		    !memcmp(m->locals[i].name, name, length))
			return &m->locals[i];
	return NULL;
}

static int find_argument(struct machine *m, const char *name, size_t length)
{
	for (unsigned i = 0; m->code && i < m->code->n_arguments; i++)
		if (strlen(m->code->arguments[i].name) == length &&
		    !memcmp(m->code->arguments[i].name, name, length))
			return (int)i;
	return -1;
}

static struct icd_variable *find_variable(struct machine *m, const char *name,
					  size_t length)
{
	return m->code ? icd_variable_find(m->code->unit, name, length) : NULL;
}

/* ---- Memory ------------------------------------------------------------- */

static struct number load(const struct icd_argument *type, const void *from)
{
	uint64_t bits = 0;
	float single;
	double twice;

	if (type->floating && type->element == 4) {
		memcpy(&single, from, sizeof(single));
		return real(single);
	}
	if (type->floating) {
		memcpy(&twice, from, sizeof(twice));
		return real(twice);
	}
	memcpy(&bits, from, type->element);
	if (type->has_sign && type->element < 8) {
		uint64_t sign = (uint64_t)1 << (8 * type->element - 1);
		bits = (bits ^ sign) - sign;
	}
	return whole((int64_t)bits);
}

static void store(const struct icd_argument *type, void *to, struct number n)
{
	float single = (float)as_real(n);
	double twice = as_real(n);
	int64_t bits = as_whole(n);

	if (type->floating && type->element == 4)
		memcpy(to, &single, sizeof(single));
	else if (type->floating)
		memcpy(to, &twice, sizeof(twice));
	else
		memcpy(to, &bits, type->element);
}

/* Where an element lies; NULL, and a complaint, if it lies nowhere. */
static unsigned char *element(struct machine *m, int index, int64_t at)
{
	const struct icd_argument *arg = &m->code->arguments[index];
	const struct icd_value *value = &m->values[index];
	unsigned char *base = m->scratch[index];
	size_t size = value->size;

	if (!base && value->mem) {
		base = value->mem->data;
		size = value->mem->size;
	}
	if (!base || at < 0 || (uint64_t)at >= size / arg->element) {
		complain(m, "access outside of a buffer");
		return NULL;
	}
	return base + (size_t)at * arg->element;
}

/* ---- Expressions -------------------------------------------------------- */

static struct number literal(struct machine *m)
{
	char *end, *real_end;
	long long value = (long long)strtoull(m->at, &end, 0);
	double fraction = strtod(m->at, &real_end);
	bool floating = real_end > end && m->at[1] != 'x' && m->at[1] != 'X';

	m->at = floating ? real_end : end;
	while (*m->at && strchr("uUlLfF", *m->at))
		m->at++;
	if (word_length(m->at))
		complain(m, "bad number");
	return floating ? real(fraction) : whole(value);
}

static struct number call(struct machine *m, const char *name, size_t length)
{
	struct number a = expression(m, 0), b;
	size_t d = (uint64_t)as_whole(a) < 3 ? (size_t)as_whole(a) : 3;
	size_t size, local, group, item;

#define IS(text) (length == strlen(text) && !memcmp(name, text, length))
	if (IS("min") || IS("max")) {
		expect(m, ",");
		b = expression(m, 0);
		expect(m, ")");
		if ((as_real(a) < as_real(b)) == IS("min"))
			return a;
		return b;
	}
	expect(m, ")");
	size = d < 3 && m->range ? m->range->global[d] : 1;
	local = d < 3 && m->range ? m->range->local[d] : 1;
	group = d < 3 ? m->group[d] : 0;
	item = d < 3 ? m->item[d] : 0;
	if (IS("get_global_id"))
		return whole((int64_t)(group * local + item +
				       (d < 3 && m->range ? m->range->offset[d]
							  : 0)));
	if (IS("get_local_id"))
		return whole((int64_t)item);
	if (IS("get_group_id"))
		return whole((int64_t)group);
	if (IS("get_global_size"))
		return whole((int64_t)size);
	if (IS("get_local_size"))
		return whole((int64_t)local);
	if (IS("get_num_groups"))
		return whole((int64_t)(size / local));
#undef IS
	complain(m, "call of an unknown function");
	return whole(0);
}

static struct number name(struct machine *m)
{
	size_t length = word_length(m->at);
	const char *word = m->at;
	struct local *local = find_local(m, word, length);
	int index = find_argument(m, word, length);
	struct icd_variable *variable = find_variable(m, word, length);
	struct number at;
	unsigned char *from;

	m->at += length;
	if (take(m, "("))
		return call(m, word, length);
	if (local)
		return local->value;
	if (index < 0 && variable)
		return live(m) ? load(&variable->type, variable->data)
			       : whole(0);
	if (index < 0) {
		complain(m, "use of an undeclared name");
		return whole(0);
	}
	if (!m->code->arguments[index].pointer)
		return live(m) ? load(&m->code->arguments[index],
				      m->values[index].bytes)
			       : whole(0);
	expect(m, "[");
	at = expression(m, 0);
	expect(m, "]");
	from = live(m) ? element(m, index, as_whole(at)) : NULL;
	return from ? load(&m->code->arguments[index], from) : whole(0);
}

static struct number bracket(struct machine *m)
{
	struct number n;
	bool floating;

	if (take_type(m, &floating)) {
		expect(m, ")");
		n = expression(m, 11);
		return floating ? real(as_real(n)) : whole(as_whole(n));
	}
	n = expression(m, 0);
	expect(m, ")");
	return n;
}

static struct number primary(struct machine *m)
{
	struct number n;

	if (m->failed)
		return whole(0);
	if (take(m, "("))
		return bracket(m);
	if (take(m, "!"))
		return whole(!truth(expression(m, 11)));
	if (take(m, "~"))
		return whole(~as_whole(expression(m, 11)));
	if (take(m, "+"))
		return expression(m, 11);
	if (take(m, "-")) {
		n = expression(m, 11);
		return n.floating ? real(-n.real)
				  : whole((int64_t)(0 - (uint64_t)n.whole));
	}
	if (isdigit((unsigned char)*m->at) || *m->at == '.')
		return literal(m);
	if (word_length(m->at))
		return name(m);
	complain(m, "expected an expression");
	return whole(0);
}

static const struct operation {
	const char *text;
	int level;
	char code;
} operations[] = {
	{ "||", 1, 'o' }, { "&&", 2, 'a' }, { "==", 6, '=' }, { "!=", 6, '!' },
	{ "<<", 8, 'l' }, { ">>", 8, 'r' }, { "<=", 7, 'L' }, { ">=", 7, 'G' },
	{ "<", 7, '<' },  { ">", 7, '>' },  { "|", 3, '|' },  { "^", 4, '^' },
	{ "&", 5, '&' },  { "+", 9, '+' },  { "-", 9, '-' },  { "*", 10, '*' },
	{ "/", 10, '/' }, { "%", 10, '%' },
};

static struct number apply_real(char code, double a, double b)
{
	switch (code) {
	case '+':
		return real(a + b);
	case '-':
		return real(a - b);
	case '*':
		return real(a * b);
	case '/':
		return real(b != 0 ? a / b : 0);
	case '<':
		return whole(a < b);
	case '>':
		return whole(a > b);
	case 'L':
		return whole(a <= b);
	case 'G':
		return whole(a >= b);
	case '=':
		return whole(a == b);
	default:
		return whole(a != b);
	}
}

static struct number apply(struct machine *m, char code, struct number x,
			   struct number y)
{
	int64_t a = as_whole(x), b = as_whole(y);
	uint64_t ua = (uint64_t)a, ub = (uint64_t)b;

	if (code == 'o')
		return whole(truth(x) || truth(y));
	if (code == 'a')
		return whole(truth(x) && truth(y));
	if ((x.floating || y.floating) && strchr("+-*/<>LG=!", code))
		return apply_real(code, as_real(x), as_real(y));
	switch (code) {
	case '+':
		return whole((int64_t)(ua + ub));
	case '-':
		return whole((int64_t)(ua - ub));
	case '*':
		return whole((int64_t)(ua * ub));
	case '/':
	case '%':
		if (!b || (a == INT64_MIN && b == -1)) {
			if (live(m))
				complain(m, "division by zero");
			return whole(0);
		}
		return whole(code == '/' ? a / b : a % b);
	case 'l':
		return whole((int64_t)(ua << (ub & 63)));
	case 'r':
		return whole(a >> (ub & 63));
	case '|':
		return whole(a | b);
	case '^':
		return whole(a ^ b);
	case '&':
		return whole(a & b);
	case '<':
		return whole(a < b);
	case '>':
		return whole(a > b);
	case 'L':
		return whole(a <= b);
	case 'G':
		return whole(a >= b);
	case '=':
		return whole(a == b);
	default:
		return whole(a != b);
	}
}

static const struct operation *next_operation(struct machine *m)
{
	blanks(m);
	for (size_t i = 0; i < sizeof(operations) / sizeof(operations[0]);
	     i++) {
		size_t length = strlen(operations[i].text);
		if (!strncmp(m->at, operations[i].text, length))
			return &operations[i];
	}
	return NULL;
}

/* Operators bind when their level is above `least`. */
static struct number expression(struct machine *m, int least)
{
	struct number left = primary(m);
	const struct operation *op;

	while (!m->failed && (op = next_operation(m)) && op->level > least) {
		m->at += strlen(op->text);
		left = apply(m, op->code, left, expression(m, op->level));
	}
	return left;
}

/* ---- Statements --------------------------------------------------------- */

static struct number assigned(struct machine *m, struct number old)
{
	static const char codes[] = "+-*";
	struct number n;

	for (size_t i = 0; i < 3; i++) {
		char text[3] = { codes[i], '=', '\0' };
		if (!take(m, text))
			continue;
		n = expression(m, 0);
		return apply(m, codes[i], old, n);
	}
	expect(m, "=");
	return expression(m, 0);
}

static void declaration(struct machine *m, bool floating)
{
	size_t length;
	struct local *local;
	struct number n;

	blanks(m);
	length = word_length(m->at);
	if (!length || length > 63 || m->n_locals == LOCALS_MAX) {
		complain(m, "bad declaration");
		return;
	}
	local = &m->locals[m->n_locals];
	memset(local, 0, sizeof(*local));
	memcpy(local->name, m->at, length);
	m->at += length;
	expect(m, "=");
	n = expression(m, 0);
	local->value = floating ? real(as_real(n)) : whole(as_whole(n));
	m->n_locals++;
	expect(m, ";");
}

static void assignment(struct machine *m)
{
	size_t length = word_length(m->at);
	struct local *local = find_local(m, m->at, length);
	int index = find_argument(m, m->at, length);
	struct icd_variable *variable = find_variable(m, m->at, length);
	const struct icd_argument *arg;
	unsigned char *to = NULL;
	struct number n = whole(0), at;

	if (!local && index < 0 && variable) {
		m->at += length;
		n = assigned(m, load(&variable->type, variable->data));
		if (live(m))
			store(&variable->type, variable->data, n);
		expect(m, ";");
		return;
	}
	if (!local && (index < 0 || !m->code->arguments[index].pointer)) {
		complain(m, "assignment to an unknown name");
		return;
	}
	m->at += length;
	if (local) {
		n = assigned(m, local->value);
		if (live(m))
			local->value = n;
		expect(m, ";");
		return;
	}
	arg = &m->code->arguments[index];
	expect(m, "[");
	at = expression(m, 0);
	expect(m, "]");
	if (live(m))
		to = element(m, index, as_whole(at));
	n = assigned(m, to ? load(arg, to) : whole(0));
	if (to && live(m))
		store(arg, to, n);
	expect(m, ";");
}

static void statement(struct machine *m)
{
	bool floating, idle = m->idle;
	struct number n;

	if (take(m, ";"))
		return;
	if (take(m, "{")) {
		while (!m->failed && !take(m, "}"))
			statement(m);
	} else if (take_word(m, "return")) {
		expect(m, ";");
		if (live(m))
			m->returned = true;
	} else if (take_word(m, "if")) {
		expect(m, "(");
		n = expression(m, 0);
		expect(m, ")");
		m->idle = idle || !truth(n);
		statement(m);
		m->idle = idle;
	} else if (take_type(m, &floating)) {
		declaration(m, floating);
	} else if (word_length(m->at)) {
		assignment(m);
	} else {
		complain(m, "expected a statement");
	}
}

static void body(struct machine *m)
{
	m->at = m->code->body;
	m->returned = false;
	m->n_locals = 0;
	blanks(m);
	while (!m->failed && !m->returned && *m->at) {
		statement(m);
		blanks(m);
	}
}

static void work_group(struct machine *m)
{
	const size_t *local = m->range->local;

	for (m->item[2] = 0; m->item[2] < local[2]; m->item[2]++)
		for (m->item[1] = 0; m->item[1] < local[1]; m->item[1]++)
			for (m->item[0] = 0; m->item[0] < local[0];
			     m->item[0]++)
				body(m);
}

static void work(struct machine *m)
{
	const size_t *global = m->range->global, *local = m->range->local;

	for (m->group[2] = 0; m->group[2] < global[2] / local[2]; m->group[2]++)
		for (m->group[1] = 0; m->group[1] < global[1] / local[1];
		     m->group[1]++)
			for (m->group[0] = 0;
			     m->group[0] < global[0] / local[0] && !m->failed;
			     m->group[0]++)
				work_group(m);
}

bool icd_run(const struct icd_code *code, const struct icd_value *values,
	     const struct icd_range *range, struct icd_text *log)
{
	struct machine m = { .code = code, .values = values, .range = range };

	for (unsigned i = 0; values && i < code->n_arguments; i++) {
		if (code->arguments[i].address != CL_KERNEL_ARG_ADDRESS_LOCAL)
			continue;
		m.scratch[i] = calloc(1, values[i].size);
		if (!m.scratch[i])
			complain(&m, "out of memory");
	}
	if (values)
		work(&m);
	else
		body(&m);
	if (m.failed && log)
		icd_text_printf(log, "%s: error: %s at '%.20s'\n", code->name,
				m.message, m.at);
	for (unsigned i = 0; i < 16; i++)
		free(m.scratch[i]);
	return !m.failed;
}

bool icd_constant(const char *text, long long *out_value)
{
	struct machine m = { .at = text };
	struct number n = expression(&m, 0);

	blanks(&m);
	if (m.failed || *m.at)
		return false;
	*out_value = as_whole(n);
	return true;
}
