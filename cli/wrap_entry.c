/* SPDX-License-Identifier: MIT */

/* Results and lists of paths as bytes: docs/formats/wrap.md. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "wrap.h"

#define RESULT_MAGIC 0x3152574b /* "KWR1" */
#define SETS_MAGIC   0x3153574b /* "KWS1" */

static void add_sized(struct ki_bytes *out, const void *data, size_t size)
{
	ki_bytes_add_u64(out, size);
	ki_bytes_add(out, data, size);
}

static const void *read_sized(struct ki_reader *reader, size_t *out_size)
{
	uint64_t size = ki_read_u64(reader);

	*out_size = 0;
	if (size > reader->size) {
		reader->failed = 1;
		return NULL;
	}
	*out_size = (size_t)size;
	return ki_read(reader, (size_t)size);
}

/* A copy as a string; NULL for what is none. */
static char *read_string(struct ki_reader *reader)
{
	size_t size;
	const void *data = read_sized(reader, &size);

	if (reader->failed || !size || size >= KI_PATH_MAX ||
	    memchr(data, 0, size))
		return NULL;
	return strndup(data, size);
}

/* ---- Results ----------------------------------------------------------------- */

int ki_wrap_encode(const struct ki_wrap_result *result, struct ki_bytes *out)
{
	size_t i;

	ki_bytes_add_u32(out, RESULT_MAGIC);
	ki_bytes_add_u32(out, (uint32_t)WEXITSTATUS(result->wait_status));
	for (i = 0; i < 2; i++)
		add_sized(out, result->streams[i].data,
			  result->streams[i].size);
	ki_bytes_add_u32(out, (uint32_t)result->n_outputs);
	for (i = 0; i < result->n_outputs; i++) {
		const struct ki_wrap_output *output = &result->outputs[i];

		add_sized(out, output->path, strlen(output->path));
		ki_bytes_add_u32(out, output->mode);
		add_sized(out, output->data, output->size);
	}
	return out->failed;
}

static int decode_output(const struct ki_wrap_command *command,
			 struct ki_reader *reader,
			 struct ki_wrap_output *output)
{
	output->path = read_string(reader);
	output->mode = ki_read_u32(reader);
	output->data = read_sized(reader, &output->size);
	return reader->failed || !output->path || output->mode & ~0777u ||
			       !ki_wrap_is_output(command, output->path)
		       ? -EINVAL
		       : 0;
}

int ki_wrap_decode(const struct ki_wrap_command *command, const void *data,
		   size_t size, struct ki_wrap_result *out_result)
{
	struct ki_reader reader = ki_reader(data, size);
	uint32_t magic, status, n;
	const void *stream;
	size_t i;

	memset(out_result, 0, sizeof(*out_result));
	magic = ki_read_u32(&reader);
	status = ki_read_u32(&reader);
	for (i = 0; i < 2; i++) {
		stream = read_sized(&reader, &size);
		ki_bytes_init(&out_result->streams[i]);
		ki_bytes_add(&out_result->streams[i], stream, size);
		if (out_result->streams[i].failed)
			return -ENOMEM;
	}
	n = ki_read_u32(&reader);
	if (reader.failed || magic != RESULT_MAGIC || status > 255 ||
	    n > KI_WRAP_OUTPUTS_MAX)
		return -EINVAL;
	out_result->wait_status = W_EXITCODE((int)status, 0);
	for (i = 0; i < n; i++) {
		out_result->n_outputs++;
		if (decode_output(command, &reader, &out_result->outputs[i]))
			return -EINVAL;
	}
	return reader.size ? -EINVAL : 0;
}

/* ---- Lists of paths ------------------------------------------------------------ */

int ki_wrap_sets_encode(const struct ki_wrap_sets *sets, struct ki_bytes *out)
{
	const struct ki_wrap_path *path;
	size_t i, j;

	ki_bytes_add_u32(out, SETS_MAGIC);
	ki_bytes_add_u32(out, (uint32_t)sets->n);
	for (i = 0; i < sets->n; i++) {
		ki_bytes_add_u32(out, (uint32_t)sets->sets[i].n);
		for (j = 0; j < sets->sets[i].n; j++) {
			path = &sets->sets[i].paths[j];
			ki_bytes_add_u8(out, (uint8_t)path->is_library);
			add_sized(out, path->path, strlen(path->path));
		}
	}
	return out->failed;
}

static int decode_set(struct ki_reader *reader, struct ki_wrap_paths *set)
{
	uint32_t n = ki_read_u32(reader), i;

	for (i = 0; i < n && !reader->failed && !set->failed; i++) {
		int is_library = ki_read_u8(reader);
		char *path = read_string(reader);

		if (!path)
			return -EINVAL;
		ki_wrap_paths_add(set, path, strlen(path), is_library != 0);
		free(path);
	}
	return reader->failed ? -EINVAL : set->failed;
}

int ki_wrap_sets_decode(const void *data, size_t size,
			struct ki_wrap_sets *out_sets)
{
	struct ki_reader reader = ki_reader(data, size);
	uint32_t magic = ki_read_u32(&reader), n = ki_read_u32(&reader), i;

	memset(out_sets, 0, sizeof(*out_sets));
	if (reader.failed || magic != SETS_MAGIC || n > KI_WRAP_SETS_MAX)
		return -EINVAL;
	for (i = 0; i < n; i++) {
		out_sets->n++;
		if (decode_set(&reader, &out_sets->sets[i]))
			return -EINVAL;
	}
	return reader.size ? -EINVAL : 0;
}

void ki_wrap_sets_fini(struct ki_wrap_sets *sets)
{
	size_t i;

	for (i = 0; i < sets->n; i++)
		ki_wrap_paths_fini(&sets->sets[i]);
	sets->n = 0;
}
