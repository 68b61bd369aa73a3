/* SPDX-License-Identifier: MIT */

/*
 * The driver's binary:
 *
 *	"KILNBIN" and a zero byte
 *	u64	FNV-1a of everything behind it
 *	u32	program type	u32	1: kernel arguments may be told
 *	device name, driver version, specialisations, text: each u32 + bytes
 *
 * A damaged one is refused, believed, or kills the process, as
 * KILN_TEST_ICD_DAMAGED wants: drivers do all three.
 */

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "icd/icd.h"

static const char magic[8] = "KILNBIN";

static void put_string(struct icd_text *out, const char *string)
{
	uint32_t size = string ? (uint32_t)strlen(string) : 0;

	icd_text_add(out, &size, sizeof(size));
	icd_text_add(out, string, size);
}

static const char *driver_version(void)
{
	return icd_string("DRIVER_VERSION", ICD_VERSION);
}

bool icd_unit_write(const struct icd_unit *unit, cl_device_id device,
		    const char *specialised, struct icd_text *out)
{
	uint32_t words[2] = { unit->type, unit->tells_arguments };
	struct icd_text rest = { 0 };
	uint64_t sum;

	icd_text_add(&rest, words, sizeof(words));
	put_string(&rest, device->name);
	put_string(&rest, driver_version());
	put_string(&rest, specialised);
	put_string(&rest, unit->text);
	if (!rest.failed) {
		sum = icd_hash(rest.data, rest.size);
		icd_text_add(out, magic, sizeof(magic));
		icd_text_add(out, &sum, sizeof(sum));
		icd_text_add(out, rest.data, rest.size);
	}
	out->failed |= rest.failed;
	free(rest.data);
	return !out->failed;
}

struct reader {
	const unsigned char *at;
	size_t left;
	bool failed;
};

static void get(struct reader *reader, void *to, size_t size)
{
	memset(to, 0, size);
	if (reader->left < size) {
		reader->failed = true;
		return;
	}
	memcpy(to, reader->at, size);
	reader->at += size;
	reader->left -= size;
}

static char *get_string(struct reader *reader)
{
	uint32_t size;
	char *string;

	get(reader, &size, sizeof(size));
	if (reader->left < size)
		reader->failed = true;
	string = reader->failed ? NULL : malloc((size_t)size + 1);
	if (!string) {
		reader->failed = true;
		return NULL;
	}
	get(reader, string, size);
	string[size] = '\0';
	return string;
}

/* A driver whose binaries don't tell everything about their kernels. */
static void make_poor(struct icd_unit *unit)
{
	unit->tells_arguments = false;
	for (unsigned i = 0; i < unit->n_codes; i++) {
		unit->codes[i].attributes[0] = '\0';
		unit->codes[i].is_poor = true;
	}
}

static bool fits(const char *name, const char *version, cl_device_id device)
{
	return !strcmp(name, device->name) &&
	       !strcmp(version, driver_version());
}

static struct icd_unit *read_rest(struct reader *reader, cl_device_id device)
{
	struct icd_text log = { 0 };
	struct icd_unit *unit = NULL;
	uint32_t words[2];
	char *strings[4];

	get(reader, words, sizeof(words));
	for (int i = 0; i < 4; i++)
		strings[i] = get_string(reader);
	if (!reader->failed && fits(strings[0], strings[1], device))
		unit = icd_parse(strings[3], words[0], &log);
	if (unit) {
		unit->from_binary = true;
		unit->tells_arguments = words[1];
		unit->specialised = strings[2];
		strings[2] = NULL;
		if (icd_flag("POOR_BINARIES", true))
			make_poor(unit);
	}
	for (int i = 0; i < 4; i++)
		free(strings[i]);
	free(log.data);
	return unit;
}

struct icd_unit *icd_unit_read(const unsigned char *bytes, size_t size,
			       cl_device_id device)
{
	struct reader reader = { .at = bytes, .left = size };
	char name[sizeof(magic)];
	uint64_t sum;

	get(&reader, name, sizeof(name));
	get(&reader, &sum, sizeof(sum));
	if (!reader.failed && sum != icd_hash(reader.at, reader.left)) {
		const char *how = icd_string("DAMAGED", "reject");
		icd_count("damaged");
		if (!strcmp(how, "abort"))
			abort();
		if (strcmp(how, "accept"))
			return NULL;
	}
	if (reader.failed || memcmp(name, magic, sizeof(magic)))
		return NULL;
	return read_rest(&reader, device);
}

struct icd_unit *icd_unit_again(const struct icd_unit *unit)
{
	struct icd_text log = { 0 };
	struct icd_unit *copy = icd_parse(unit->text, unit->type, &log);

	free(log.data);
	if (!copy)
		return NULL;
	copy->from_binary = unit->from_binary;
	copy->tells_arguments = unit->tells_arguments;
	if (unit->specialised)
		copy->specialised = strdup(unit->specialised);
	for (unsigned i = 0; i < copy->n_codes; i++) {
		memcpy(copy->codes[i].attributes, unit->codes[i].attributes,
		       sizeof(copy->codes[i].attributes));
		memcpy(copy->codes[i].work_group, unit->codes[i].work_group,
		       sizeof(copy->codes[i].work_group));
	}
	return copy;
}

/* ---- The driver's disk cache ---------------------------------------------- */

static bool cache_path(const struct icd_unit *unit, char path[4096])
{
	const char *directory = icd_string("CACHE_DIR", NULL);

	if (directory)
		snprintf(path, 4096, "%s/%016llx", directory,
			 (unsigned long long)icd_hash(unit->text,
						      strlen(unit->text)));
	return directory != NULL;
}

bool icd_cache_built(const struct icd_unit *unit)
{
	char path[4096];

	return cache_path(unit, path) && !access(path, F_OK);
}

void icd_cache_lines(const struct icd_unit *unit, struct icd_text *out)
{
	char path[4096], part[1024];
	ssize_t n;
	int fd;

	if (!cache_path(unit, path))
		return;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	while ((n = read(fd, part, sizeof(part))) > 0)
		icd_text_add(out, part, (size_t)n);
	close(fd);
}

bool icd_cache_knows(const struct icd_unit *unit, const char *line)
{
	struct icd_text lines = { 0 };
	bool known;

	icd_cache_lines(unit, &lines);
	known = lines.data && strstr(lines.data, line);
	free(lines.data);
	return known;
}

void icd_cache_add(const struct icd_unit *unit, const char *line)
{
	char path[4096];
	size_t size = strlen(line);
	int fd;

	if (!cache_path(unit, path))
		return;
	fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (fd < 0)
		return;
	if (write(fd, line, size) != (ssize_t)size)
		abort();
	close(fd);
}
