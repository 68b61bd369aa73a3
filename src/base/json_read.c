/* SPDX-License-Identifier: MIT */

#include "base/json_read.h"

#include <string.h>

#include "base/json.h"

/* Where reading is; failed: `at` is NULL. */
struct cursor {
	const char *at, *end;
};

static void skip_blanks(struct cursor *c)
{
	while (c->at && c->at < c->end && memchr(" \t\r\n", *c->at, 4))
		c->at++;
}

static int take(struct cursor *c, char wanted)
{
	if (!c->at || c->at == c->end || *c->at != wanted)
		return 0;
	c->at++;
	return 1;
}

static void expect(struct cursor *c, char wanted)
{
	if (!take(c, wanted))
		c->at = NULL;
}

static void skip_string(struct cursor *c)
{
	expect(c, '"');
	while (c->at && c->at < c->end && *c->at != '"') {
		if ((unsigned char)*c->at < ' ') {
			c->at = NULL;
			return;
		}
		c->at += *c->at == '\\' ? 2 : 1;
	}
	if (c->at > c->end)
		c->at = NULL;
	expect(c, '"');
}

/* true, false, null, numbers: what they may be made of. */
static void skip_word(struct cursor *c)
{
	const char *begin = c->at;

	while (c->at < c->end && *c->at &&
	       strchr("+-.0123456789abcdefghijklmnopqrstuvwxyzE", *c->at))
		c->at++;
	if (c->at == begin)
		c->at = NULL;
}

static void skip_value(struct cursor *c, int depth);

static void skip_members(struct cursor *c, char closer, int depth)
{
	skip_blanks(c);
	if (take(c, closer))
		return;
	do {
		if (closer == '}') {
			skip_blanks(c);
			skip_string(c);
			skip_blanks(c);
			expect(c, ':');
		}
		skip_value(c, depth);
		skip_blanks(c);
	} while (take(c, ','));
	expect(c, closer);
}

static void skip_value(struct cursor *c, int depth)
{
	skip_blanks(c);
	if (!c->at || c->at == c->end || depth == KI_JSON_DEPTH_MAX)
		c->at = NULL;
	else if (*c->at == '"')
		skip_string(c);
	else if (take(c, '{'))
		skip_members(c, '}', depth + 1);
	else if (take(c, '['))
		skip_members(c, ']', depth + 1);
	else
		skip_word(c);
}

/* The next value, if there is one. */
static struct ki_json_value take_value(struct cursor *c)
{
	const char *begin;

	skip_blanks(c);
	begin = c->at;
	skip_value(c, 0);
	if (!c->at)
		return (struct ki_json_value){ 0 };
	return (struct ki_json_value){ begin, (size_t)(c->at - begin) };
}

int ki_json_parse(const char *text, size_t size,
		  struct ki_json_value *out_value)
{
	struct cursor c = { text, text + size };
	struct ki_json_value value = take_value(&c);

	skip_blanks(&c);
	if (!value.size || c.at != c.end)
		return 0;
	*out_value = value;
	return 1;
}

/* Inside of an object or an array. */
static struct cursor enter(const struct ki_json_value *value, char opener)
{
	struct cursor c = { NULL, NULL };

	if (value->size && *value->text == opener)
		c = (struct cursor){ value->text + 1,
				     value->text + value->size };
	return c;
}

struct ki_json_value ki_json_member(const struct ki_json_value *object,
				    const char *name)
{
	struct cursor c = enter(object, '{');
	struct ki_json_value key, value;
	size_t size = strlen(name);

	while (c.at) {
		key = take_value(&c);
		skip_blanks(&c);
		expect(&c, ':');
		value = take_value(&c);
		if (value.size && key.size == size + 2 &&
		    !memcmp(key.text + 1, name, size))
			return value;
		skip_blanks(&c);
		expect(&c, ',');
	}
	return (struct ki_json_value){ 0 };
}

struct ki_json_value ki_json_first(const struct ki_json_value *array)
{
	struct cursor c = enter(array, '[');

	return take_value(&c);
}

struct ki_json_value ki_json_after(const struct ki_json_value *array,
				   const struct ki_json_value *element)
{
	struct cursor c = { element->text + element->size,
			    array->text + array->size };

	skip_blanks(&c);
	expect(&c, ',');
	return take_value(&c);
}

uint64_t ki_json_number_of(const struct ki_json_value *value)
{
	uint64_t number = 0;

	for (size_t i = 0; i < value->size; i++) {
		unsigned digit = (unsigned)(value->text[i] - '0');

		if (digit > 9)
			return 0;
		if (__builtin_mul_overflow(number, 10, &number) ||
		    __builtin_add_overflow(number, digit, &number))
			return UINT64_MAX;
	}
	return number;
}

int ki_json_is_true(const struct ki_json_value *value)
{
	return value->size == 4 && !memcmp(value->text, "true", 4);
}

static unsigned hex_of(const char *digits)
{
	unsigned value = 0;

	for (int i = 0; i < 4; i++) {
		char c = digits[i];

		value = value << 4 |
			(unsigned)(c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
	}
	return value;
}

/* The character behind a backslash at `at`; how long it is written. */
static char unescape(const char *at, const char *end, size_t *out_size)
{
	static const char letters[] = "b\bf\fn\nr\rt\t";
	const char *found;
	unsigned value;

	*out_size = 2;
	if (at[1] == 'u') {
		if (end - at < 6)
			return '?';
		*out_size = 6;
		value = hex_of(at + 2);
		return value < 128 ? (char)value : '?';
	}
	for (found = letters; *found; found += 2)
		if (*found == at[1])
			return found[1];
	return at[1];
}

const char *ki_json_text_of(const struct ki_json_value *value, char *out,
			    size_t size)
{
	const char *at, *end;
	size_t n = 0, step;

	*out = '\0';
	if (value->size < 2 || *value->text != '"')
		return out;
	at = value->text + 1;
	end = value->text + value->size - 1;
	for (; at < end && n + 1 < size; at += step) {
		step = 1;
		out[n++] = *at == '\\' ? unescape(at, end, &step) : *at;
	}
	out[n] = '\0';
	return out;
}
