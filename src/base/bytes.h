/* SPDX-License-Identifier: MIT */
#ifndef KI_BASE_BYTES_H
#define KI_BASE_BYTES_H

/*
 * Bytes that grow, bytes that are read with bounds, and numbers in them.
 * Everything kiln writes to disk is little-endian and framed by length; these
 * are the only functions that put it together and take it apart.
 */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* ---- Writing ------------------------------------------------------------ */

/*
 * A growing array of bytes.  Adding cannot fail: a shortage of memory, or
 * growth past `limit`, is remembered in `failed`, and later additions do
 * nothing.  Look at `failed` once, at the end.
 */
struct ki_bytes {
	uint8_t *data;
	size_t size;
	size_t capacity;
	size_t limit; /* 0: none */
	int failed;   /* 0, or -ENOMEM, or -EFBIG */
};

void ki_bytes_init(struct ki_bytes *bytes);
void ki_bytes_fini(struct ki_bytes *bytes);
void ki_bytes_clear(struct ki_bytes *bytes); /* keeps the memory */

/* Room for `size` more bytes, counted in; NULL on failure. */
void *ki_bytes_grow(struct ki_bytes *bytes, size_t size);
void ki_bytes_add(struct ki_bytes *bytes, const void *data, size_t size);
void ki_bytes_add_string(struct ki_bytes *bytes, const char *string);
void ki_bytes_add_u8(struct ki_bytes *bytes, uint8_t value);
void ki_bytes_add_u16(struct ki_bytes *bytes, uint16_t value);
void ki_bytes_add_u32(struct ki_bytes *bytes, uint32_t value);
void ki_bytes_add_u64(struct ki_bytes *bytes, uint64_t value);
void ki_bytes_printf(struct ki_bytes *bytes, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Hand the memory over (free() it); NULL if failed or empty. */
uint8_t *ki_bytes_take(struct ki_bytes *bytes, size_t *out_size);

/* ---- Reading ------------------------------------------------------------ */

/*
 * Takes bytes from the front.  Running over the end sets `failed` and yields
 * zeros and NULL: check it once, after the last.
 */
struct ki_reader {
	const uint8_t *data;
	size_t size;
	int failed;
};

static inline struct ki_reader ki_reader(const void *data, size_t size)
{
	return (struct ki_reader){ .data = (const uint8_t *)data,
				   .size = size };
}

const void *ki_read(struct ki_reader *reader, size_t size);
uint8_t ki_read_u8(struct ki_reader *reader);
uint16_t ki_read_u16(struct ki_reader *reader);
uint32_t ki_read_u32(struct ki_reader *reader);
uint64_t ki_read_u64(struct ki_reader *reader);

/* ---- Numbers in place --------------------------------------------------- */

static inline uint16_t ki_get_u16(const void *p)
{
	const uint8_t *b = (const uint8_t *)p;
	return (uint16_t)(b[0] | b[1] << 8);
}

static inline uint32_t ki_get_u32(const void *p)
{
	const uint8_t *b = (const uint8_t *)p;
	return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 |
	       (uint32_t)b[3] << 24;
}

static inline uint64_t ki_get_u64(const void *p)
{
	const uint8_t *b = (const uint8_t *)p;
	return (uint64_t)ki_get_u32(b) | (uint64_t)ki_get_u32(b + 4) << 32;
}

static inline void ki_put_u16(void *p, uint16_t value)
{
	uint8_t *b = (uint8_t *)p;
	b[0] = (uint8_t)value;
	b[1] = (uint8_t)(value >> 8);
}

static inline void ki_put_u32(void *p, uint32_t value)
{
	ki_put_u16(p, (uint16_t)value);
	ki_put_u16((uint8_t *)p + 2, (uint16_t)(value >> 16));
}

static inline void ki_put_u64(void *p, uint64_t value)
{
	ki_put_u32(p, (uint32_t)value);
	ki_put_u32((uint8_t *)p + 4, (uint32_t)(value >> 32));
}

#endif /* KI_BASE_BYTES_H */
