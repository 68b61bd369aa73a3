/* SPDX-License-Identifier: MIT */

/*
 * As much of SPIR-V as tells how long the value of a specialization constant
 * is, which the interface leaves to the module: decorations, types and
 * constants all stand before the first function.
 */

#include "front/levelzero/ze.h"

#define MAGIC	     0x07230203u
#define HEADER_BYTES 20

enum {
	OP_TYPE_INT = 21,
	OP_TYPE_FLOAT = 22,
	OP_SPEC_CONSTANT_TRUE = 48,
	OP_SPEC_CONSTANT_FALSE = 49,
	OP_SPEC_CONSTANT = 50,
	OP_FUNCTION = 54,
	OP_DECORATE = 71,
	DECORATION_SPEC_ID = 1,
};

#define WORDS_MAX 4 /* of an instruction, that are looked at */

struct instruction {
	uint32_t code;
	uint32_t n; /* words, the first included */
	uint32_t words[WORDS_MAX];
};

/* Whether there is another one before the first function. */
static int next(struct ki_reader *reader, struct instruction *out)
{
	uint32_t first = ki_read_u32(reader), i;
	const uint8_t *rest;

	out->code = first & 0xffff;
	out->n = first >> 16;
	if (reader->failed || !out->n || out->code == OP_FUNCTION)
		return 0;
	rest = ki_read(reader, (size_t)(out->n - 1) * 4);
	for (i = 1; !reader->failed && i < out->n && i < WORDS_MAX; i++)
		out->words[i] = ki_get_u32(rest + (i - 1) * 4);
	return !reader->failed;
}

/* The identifier that has this number, or 0. */
static uint32_t decorated(struct ki_reader reader, uint32_t id)
{
	struct instruction op = { 0 };

	while (next(&reader, &op))
		if (op.code == OP_DECORATE && op.n == 4 &&
		    op.words[2] == DECORATION_SPEC_ID && op.words[3] == id)
			return op.words[1];
	return 0;
}

static size_t bytes_of_type(struct ki_reader reader, uint32_t type)
{
	struct instruction op = { 0 };
	uint32_t bits;

	while (next(&reader, &op)) {
		if ((op.code != OP_TYPE_INT && op.code != OP_TYPE_FLOAT) ||
		    op.n < 3 || op.words[1] != type)
			continue;
		bits = op.words[2];
		return bits == 8 || bits == 16 || bits == 32 || bits == 64
			       ? bits / 8
			       : 0;
	}
	return 0;
}

size_t ki_spirv_constant_bytes(const void *il, size_t size, uint32_t id)
{
	struct ki_reader reader = ki_reader(il, size), constants;
	struct instruction op = { 0 };
	uint32_t target;

	if (ki_read_u32(&reader) != MAGIC ||
	    !ki_read(&reader, HEADER_BYTES - 4))
		return 0;
	target = decorated(reader, id);
	constants = reader;
	while (target && next(&constants, &op)) {
		if (op.n < 3 || op.words[2] != target)
			continue;
		if (op.code == OP_SPEC_CONSTANT_TRUE ||
		    op.code == OP_SPEC_CONSTANT_FALSE)
			return 1;
		if (op.code == OP_SPEC_CONSTANT)
			return bytes_of_type(reader, op.words[1]);
	}
	return 0;
}
