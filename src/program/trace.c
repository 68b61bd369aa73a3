/* SPDX-License-Identifier: MIT */

/*
 * What SYCL_CACHE_TRACE prints with 2 in it, in DPC++'s words, so that what reads
 * its traces reads ours.  An image's number is the beginning of its digest.  Where
 * it is printed, keys lead nowhere by themselves (ki_registry_set_hint), so that
 * each use comes by here.
 */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/bytes.h"
#include "program/program.h"

#define LINE_MAX_BYTES 4096

char *ki_trace_key(const struct kiln_program_key *key)
{
	const uint8_t *constants = key->constants;
	struct ki_bytes text;
	char *told = NULL;

	ki_bytes_init(&text);
	ki_bytes_printf(&text, "imageId = %llu,urDevice = ",
			(unsigned long long)ki_get_u64(key->image_name));
	for (size_t i = 0; i < key->n_devices; i++)
		ki_bytes_printf(&text, "%p,", key->handles[i]);
	ki_bytes_add_string(&text, ", serializedObj = ");
	for (size_t i = 0; i < key->constants_size; i++)
		ki_bytes_printf(&text, "%u,", constants[i]);
	ki_bytes_add_u8(&text, '\0');
	if (!text.failed)
		told = strdup((const char *)text.data);
	ki_bytes_fini(&text);
	return told;
}

static void print(const char *cache, const char *key, const char *what)
{
	char line[LINE_MAX_BYTES];

	snprintf(line, sizeof(line),
		 "[In-Memory Cache][Thread Id:%lu]%s[Key:{%.3000s}]: %s\n",
		 (unsigned long)pthread_self(), cache, key, what);
	(void)fputs(line, stderr);
}

void ki_trace_program(const struct kiln_program *program, const char *what)
{
	if (program->told)
		print("[Program Cache]", program->told, what);
}

void ki_trace_kernel(const struct kiln_program *program,
		     const struct kiln_key *key, const char *what)
{
	struct kiln_field field;
	size_t position = 0;
	char name[1024];
	int is_fast;

	if (!program->told)
		return;
	/* "fast" of a fast key, else "kernel of" before "name". */
	(void)kiln_record_next(key->record.data, key->record.size, &position,
			       &field);
	is_fast = field.label_size == 4;
	if (!is_fast)
		(void)kiln_record_next(key->record.data, key->record.size,
				       &position, &field);
	snprintf(name, sizeof(name), "Name = %.*s",
		 field.size < sizeof(name) ? (int)field.size : 1000,
		 (const char *)field.data);
	print(is_fast ? "[Kernel Cache][IsFastCache: 1]"
		      : "[Kernel Cache][IsFastCache: 0]",
	      name, what);
}
