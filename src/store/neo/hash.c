/* SPDX-License-Identifier: MIT */

/*
 * The hash of Intel's driver: Bob Jenkins' mix of 1996 over words of four bytes,
 * 64 of its 96 bits.  Nothing is framed by its length, and zeros at the front of
 * a tail are lost ("\0ab" is "ab"): names may meet, which is why nobody here
 * believes in one.
 */

#include <kiln/neo.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"

void kiln_neo_begin(struct kiln_neo_state *state)
{
	*state = (struct kiln_neo_state){ .a = 0x428a2f98,
					  .high = 0x71374491,
					  .low = 0xb5c0fbcf };
}

static void step(uint32_t *x, uint32_t y, uint32_t z, uint32_t shifted)
{
	*x = (*x - y - z) ^ shifted;
}

static struct kiln_neo_state mixed(struct kiln_neo_state state, uint32_t word)
{
	uint32_t a = state.a ^ word, b = state.high, c = state.low;

	step(&a, b, c, c >> 13);
	step(&b, c, a, a << 8);
	step(&c, a, b, b >> 13);
	step(&a, b, c, c >> 12);
	step(&b, c, a, a << 16);
	step(&c, a, b, b >> 5);
	step(&a, b, c, c >> 3);
	step(&b, c, a, a << 10);
	step(&c, a, b, b >> 15);
	return (struct kiln_neo_state){ a, b, c };
}

void kiln_neo_add(struct kiln_neo_state *state, const void *data, size_t size)
{
	struct kiln_neo_state now = *state;
	const uint8_t *bytes = data;
	uint32_t tail = 0;

	if (!bytes)
		return;
	for (; size >= 4; size -= 4, bytes += 4)
		now = mixed(now, ki_get_u32(bytes));
	for (size_t i = 0; i < size; i++)
		tail = (tail | bytes[i]) << 8;
	*state = size ? mixed(now, tail) : now;
}

uint64_t kiln_neo_end(const struct kiln_neo_state *state)
{
	return (uint64_t)state->high << 32 | state->low;
}

/* ---- What a driver hashes ---------------------------------------------------- */

static void add_mark(struct kiln_neo_state *state)
{
	kiln_neo_add(state, "----", 4);
}

static void add_u64(struct kiln_neo_state *state, uint64_t value)
{
	uint8_t bytes[8];

	ki_put_u64(bytes, value);
	kiln_neo_add(state, bytes, sizeof(bytes));
}

static void add_decimal(struct kiln_neo_state *state, uint64_t value)
{
	char text[24];

	snprintf(text, sizeof(text), "%" PRIu64, value);
	kiln_neo_add(state, text, strlen(text));
}

static void add_compiler(struct kiln_neo_state *state,
			 const struct kiln_neo_fields *fields)
{
	add_mark(state);
	kiln_neo_add(state, fields->igc_revision, fields->igc_revision_size);
	add_u64(state, fields->igc_library_size);
	add_u64(state, (uint64_t)fields->igc_library_mtime);
	if (fields->release < KILN_NEO_26_32)
		return;
	add_mark(state);
	kiln_neo_add(state, fields->igc_registry_keys,
		     fields->igc_registry_keys_size);
}

static void add_constants(struct kiln_neo_state *state,
			  const struct kiln_neo_fields *fields)
{
	uint8_t word[4];

	add_mark(state);
	for (size_t i = 0; i < fields->n_constants; i++) {
		ki_put_u32(word, fields->constant_ids[i]);
		kiln_neo_add(state, word, sizeof(word));
	}
	for (size_t i = 0; i < fields->n_constants; i++)
		add_u64(state, fields->constant_values[i]);
}

static void add_platform(struct kiln_neo_state *state,
			 const struct kiln_neo_platform *platform)
{
	uint8_t bytes[32];

	ki_put_u32(bytes, platform->product);
	ki_put_u32(bytes + 4, platform->pch_product);
	ki_put_u32(bytes + 8, platform->display_core);
	ki_put_u32(bytes + 12, platform->render_core);
	ki_put_u32(bytes + 16, platform->platform_type);
	ki_put_u16(bytes + 20, platform->device_id);
	ki_put_u16(bytes + 22, platform->revision_id);
	ki_put_u16(bytes + 24, platform->pch_device_id);
	ki_put_u16(bytes + 26, platform->pch_revision_id);
	ki_put_u32(bytes + 28, platform->gt_type);
	add_mark(state);
	kiln_neo_add(state, bytes, sizeof(bytes));
}

uint64_t kiln_neo_hash(const struct kiln_neo_fields *fields)
{
	struct kiln_neo_state state;
	uint8_t word[4];

	if (!fields || fields->size != sizeof(*fields))
		return 0;
	kiln_neo_begin(&state);
	if (fields->release >= KILN_NEO_24_13)
		add_compiler(&state, fields);
	add_mark(&state);
	kiln_neo_add(&state, fields->input, fields->input_size);
	add_mark(&state);
	kiln_neo_add(&state, fields->options, fields->options_size);
	add_mark(&state);
	kiln_neo_add(&state, fields->internal_options,
		     fields->internal_options_size);
	if (fields->release >= KILN_NEO_24_13)
		add_constants(&state, fields);
	add_platform(&state, &fields->platform);
	add_mark(&state);
	add_decimal(&state, fields->feature_hash);
	add_mark(&state);
	add_decimal(&state, fields->workaround_hash);
	if (fields->release >= KILN_NEO_24_26) {
		ki_put_u32(word, fields->ip_version);
		add_mark(&state);
		kiln_neo_add(&state, word, sizeof(word));
	}
	return kiln_neo_end(&state);
}

/* ---- Names ------------------------------------------------------------------- */

const char *kiln_neo_name(uint64_t hash, const char *extension,
			  enum kiln_neo_layout layout,
			  char out[KILN_NEO_NAME_BYTES])
{
	static const char digits[] = "0123456789abcdef";
	const size_t size = strlen(extension) + 1;
	char *at = out;

	if (layout == KILN_NEO_TREE)
		for (unsigned i = 0; i < 2; i++) {
			*at++ = digits[hash >> (60 - 4 * i) & 15];
			*at++ = '/';
		}
	for (unsigned i = 0; i < 16; i++)
		*at++ = digits[hash >> (60 - 4 * i) & 15];
	if (size > (size_t)(out + KILN_NEO_NAME_BYTES - at))
		return NULL;
	memcpy(at, extension, size);
	return out;
}
