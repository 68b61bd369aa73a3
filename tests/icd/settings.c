/* SPDX-License-Identifier: MIT */

/*
 * Behaviour from the environment, read at every call so that a test may change
 * it on the way; the file that counts calls; answers to information queries.
 */

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "icd/icd.h"

static const char *setting(const char *name)
{
	char variable[80];

	snprintf(variable, sizeof(variable), "KILN_TEST_ICD_%s", name);
	return getenv(variable);
}

const char *icd_string(const char *name, const char *otherwise)
{
	const char *value = setting(name);

	return value && *value ? value : otherwise;
}

unsigned icd_number(const char *name, unsigned otherwise)
{
	const char *value = icd_string(name, NULL);

	return value ? (unsigned)strtoul(value, NULL, 10) : otherwise;
}

bool icd_flag(const char *name, bool otherwise)
{
	return icd_number(name, otherwise) != 0;
}

void icd_delay(const char *name)
{
	unsigned ms = icd_number(name, 0);
	struct timespec rest = {
		.tv_sec = ms / 1000,
		.tv_nsec = (long)(ms % 1000) * 1000000,
	};

	while (ms && nanosleep(&rest, &rest))
		;
}

void icd_wait_while(const char *name)
{
	const char *path = icd_string(name, NULL);
	struct timespec rest = { .tv_nsec = 5000000 };

	while (path && !access(path, F_OK))
		nanosleep(&rest, NULL);
}

/* A page of each is used, and nothing given back. */
void icd_hog(const char *name)
{
	unsigned mib = icd_number(name, 0);

	for (; mib; mib--) {
		char *data = malloc((size_t)1 << 20);

		if (!data)
			abort();
		*(volatile char *)data = 1;
	}
}

void icd_count(const char *format, ...)
{
	const char *path = icd_string("CALLS", NULL);
	char line[256];
	va_list args;
	int size, fd;

	if (!path)
		return;
	va_start(args, format);
	size = vsnprintf(line, sizeof(line) - 1, format, args);
	va_end(args);
	if (size < 0)
		return;
	if ((size_t)size > sizeof(line) - 2)
		size = sizeof(line) - 2;
	line[size++] = '\n';
	fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (fd < 0)
		return;
	if (write(fd, line, (size_t)size) != size)
		abort();
	close(fd);
}

cl_int icd_answer(const void *from, size_t from_size, size_t size, void *value,
		  size_t *out_size)
{
	if (value) {
		if (size < from_size && out_size && icd_flag("TELL", false))
			*out_size = from_size;
		if (size < from_size)
			return CL_INVALID_VALUE;
		if (from_size)
			memcpy(value, from, from_size);
	}
	if (out_size)
		*out_size = from_size;
	return CL_SUCCESS;
}

cl_int icd_answer_string(const char *string, size_t size, void *value,
			 size_t *out_size)
{
	if (!string)
		string = "";
	return icd_answer(string, strlen(string) + 1, size, value, out_size);
}

cl_int icd_answer_uint(cl_uint number, size_t size, void *value,
		       size_t *out_size)
{
	return icd_answer(&number, sizeof(number), size, value, out_size);
}

cl_int icd_answer_ulong(cl_ulong number, size_t size, void *value,
			size_t *out_size)
{
	return icd_answer(&number, sizeof(number), size, value, out_size);
}

cl_int icd_answer_size(size_t number, size_t size, void *value,
		       size_t *out_size)
{
	return icd_answer(&number, sizeof(number), size, value, out_size);
}

cl_int icd_answer_pointer(const void *pointer, size_t size, void *value,
			  size_t *out_size)
{
	return icd_answer(&pointer, sizeof(pointer), size, value, out_size);
}

void icd_text_add(struct icd_text *text, const void *data, size_t size)
{
	if (text->failed)
		return;
	if (text->room - text->size < size + 1) {
		size_t room = (text->size + size + 64) * 2;
		char *grown = realloc(text->data, room);
		if (!grown) {
			text->failed = true;
			return;
		}
		text->data = grown;
		text->room = room;
	}
	if (size)
		memcpy(text->data + text->size, data, size);
	text->size += size;
	text->data[text->size] = '\0';
}

void icd_text_puts(struct icd_text *text, const char *string)
{
	icd_text_add(text, string, strlen(string));
}

void icd_text_printf(struct icd_text *text, const char *format, ...)
{
	char line[1024];
	va_list args;

	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	icd_text_puts(text, line);
}

uint64_t icd_hash(const void *data, size_t size)
{
	const unsigned char *bytes = data;
	uint64_t hash = 14695981039346656037u;

	for (size_t i = 0; i < size; i++)
		hash = (hash ^ bytes[i]) * 1099511628211u;
	return hash;
}
