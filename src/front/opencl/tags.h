/* SPDX-License-Identifier: MIT */
#ifndef KI_FRONT_OPENCL_TAGS_H
#define KI_FRONT_OPENCL_TAGS_H

/*
 * Tagged fields, as jobs have them: tag (2), zero (2), length (4), data.  The
 * data of a field may be fields in turn.
 */

#include <errno.h>

#include "base/bytes.h"

#define KI_CL_TAG_HEADER_BYTES 8

/* Begin a field of which the size is not known yet; its place, for
   ki_cl_tag_finish(). */
static inline size_t ki_cl_tag_begin(struct ki_bytes *bytes, uint16_t tag)
{
	ki_bytes_add_u16(bytes, tag);
	ki_bytes_add_u16(bytes, 0);
	ki_bytes_add_u32(bytes, 0);
	return bytes->size;
}

static inline void ki_cl_tag_finish(struct ki_bytes *bytes, size_t place)
{
	if (bytes->failed)
		return;
	if (bytes->size - place > UINT32_MAX)
		bytes->failed = -EFBIG;
	else
		ki_put_u32(bytes->data + place - 4,
			   (uint32_t)(bytes->size - place));
}

static inline void ki_cl_tag_add(struct ki_bytes *bytes, uint16_t tag,
				 const void *data, size_t size)
{
	size_t place = ki_cl_tag_begin(bytes, tag);

	ki_bytes_add(bytes, data, size);
	ki_cl_tag_finish(bytes, place);
}

/* With its NUL, so that readers can point into the file. */
static inline void ki_cl_tag_add_text(struct ki_bytes *bytes, uint16_t tag,
				      const char *text)
{
	ki_cl_tag_add(bytes, tag, text, strlen(text) + 1);
}

static inline void ki_cl_tag_add_number(struct ki_bytes *bytes, uint16_t tag,
					uint64_t value)
{
	uint8_t data[8];

	ki_put_u64(data, value);
	ki_cl_tag_add(bytes, tag, data, sizeof(data));
}

struct ki_cl_tag {
	uint16_t tag; /* never 0 */
	const void *data;
	size_t size;
};

/* The next field; 0 if there is none, or none that is whole. */
static inline int ki_cl_tag_next(struct ki_reader *reader,
				 struct ki_cl_tag *out_tag)
{
	uint16_t zero;

	out_tag->tag = ki_read_u16(reader);
	zero = ki_read_u16(reader);
	out_tag->size = ki_read_u32(reader);
	out_tag->data = ki_read(reader, out_tag->size);
	return !reader->failed && !zero && out_tag->tag;
}

static inline int ki_cl_tag_text(const struct ki_cl_tag *tag,
				 const char **out_text)
{
	if (!tag->size || memchr(tag->data, '\0', tag->size) !=
				  (const char *)tag->data + tag->size - 1)
		return 0;
	*out_text = tag->data;
	return 1;
}

static inline int ki_cl_tag_number(const struct ki_cl_tag *tag,
				   uint64_t *out_value)
{
	if (tag->size != 8)
		return 0;
	*out_value = ki_get_u64(tag->data);
	return 1;
}

#endif /* KI_FRONT_OPENCL_TAGS_H */
