/* SPDX-License-Identifier: MIT */

/*
 * A pack of 1000 entries on a device where each call takes 20 ms, of which a
 * first start wants the first 100 in recorded order.  The 20 ms are not waited
 * for: what counts is how many calls there are and how many bytes they move, and
 * the time follows.  Sizes of values vary around their mean as those of kernels
 * do: a few are ten times as large as most.
 */

#include "block_pack.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kiln/pack.h>

#define N_ENTRIES 1000
#define N_FIRST	  100
#define CALL_MS	  20

/* What is far away has to be signed. */
static const char *const secret_key =
	"kiln-secret:bench:YmJiYmJiYmJiYmJiYmJiYmJiYmJiYmJiYmJiYmJiYmI=";
static const char *const public_key =
	"bench:LfBBJfABWvtHzoU674dyCU/5SYwUyxueEpc8KSfaD6Y=";

struct far {
	uint8_t *bytes;
	size_t size;
	uint64_t n_calls;
	uint64_t n_bytes;
};

static int64_t far_bytes(void *context)
{
	const struct far *far = context;

	return (int64_t)far->size;
}

static ssize_t far_read(uint64_t offset, void *buffer, size_t count,
			void *context)
{
	struct far *far = context;

	if (offset > far->size || count > far->size - offset)
		bench_fail("a read beyond the end of the pack");
	memcpy(buffer, far->bytes + offset, count);
	far->n_calls++;
	far->n_bytes += count;
	return (ssize_t)count;
}

/* ---- The pack --------------------------------------------------------------------- */

static struct kiln_key *key_of(unsigned n)
{
	struct kiln_key *key = kiln_key_new();
	char source[1000];

	/* As many bytes as a look-up of OpenCL has in its record. */
	memset(source, (int)('a' + n % 26), sizeof(source));
	kiln_key_add(key, "source", source, sizeof(source));
	kiln_key_add(key, "number", &n, sizeof(n));
	if (kiln_key_finish(key))
		bench_fail("no key");
	return key;
}

static size_t size_of(unsigned n, size_t mean)
{
	/* 9 of 10 are half the mean or less, one is near six times as much. */
	return n % 10 == 9 ? mean * 23 / 4 : mean * (n % 9 + 1) / 10;
}

static void fill(uint8_t *value, size_t size, unsigned n)
{
	for (size_t i = 0; i < size; i++)
		value[i] = (uint8_t)((i + n) * 2654435761u >> 13);
}

static void write_pack(const char *path, size_t mean)
{
	struct kiln_pack_writer_options options;
	struct kiln_pack_writer *writer;
	uint8_t *value = malloc(mean * 6);
	unsigned n;

	kiln_pack_writer_options_init(&options);
	options.signing_keys = &secret_key;
	options.n_signing_keys = 1;
	if (!value || kiln_pack_create(path, &options, &writer))
		bench_fail("no pack");
	for (n = 0; n < N_ENTRIES; n++) {
		struct kiln_key *key = key_of(n);
		size_t size = size_of(n, mean);

		fill(value, size, n);
		if (kiln_pack_add(writer, key, NULL, 0, value, size))
			bench_fail("entry %u is not added", n);
		kiln_key_free(key);
	}
	if (kiln_pack_finish(writer, NULL))
		bench_fail("the pack is not finished");
	free(value);
}

static void read_file(const char *path, struct far *far)
{
	FILE *file = fopen(path, "rb");
	long size = -1;

	if (file && !fseek(file, 0, SEEK_END))
		size = ftell(file);
	*far = (struct far){ .bytes = size > 0 ? malloc((size_t)size) : NULL,
			     .size = (size_t)size };
	if (!far->bytes || fseek(file, 0, SEEK_SET) ||
	    fread(far->bytes, 1, far->size, file) != far->size)
		bench_fail("%s cannot be read", path);
	fclose(file);
}

/* ---- Reading ---------------------------------------------------------------------- */

static struct kiln_tier *open_far(struct far *far)
{
	struct kiln_pack_device device;
	struct kiln_pack_options options;
	struct kiln_tier *tier;

	kiln_pack_options_init(&options);
	options.trusted_keys = &public_key;
	options.n_trusted_keys = 1;
	kiln_pack_device_init(&device);
	device.flags = KILN_PACK_REMOTE;
	device.bytes = far_bytes;
	device.read = far_read;
	device.context = far;
	far->n_calls = 0;
	far->n_bytes = 0;
	if (kiln_pack_open_device(&device, &options, &tier))
		bench_fail("the pack does not open");
	return tier;
}

static void get_and_compare(struct kiln_tier *tier, const struct kiln_key *key,
			    unsigned n, size_t mean)
{
	size_t size = size_of(n, mean);
	uint8_t *value = malloc(size);
	struct kiln_blob *blob;

	if (!value || tier->ops->get(tier, key, &blob, NULL))
		bench_fail("entry %u is not found", n);
	fill(value, size, n);
	if (kiln_blob_size(blob) != size ||
	    memcmp(kiln_blob_data(blob), value, size) != 0)
		bench_fail("entry %u has a wrong value", n);
	kiln_blob_unref(blob);
	free(value);
}

/* Open it and get the first ones, told beforehand which, or not. */
static void first_start(struct far *far, size_t mean, int is_told)
{
	const struct kiln_key *keys[N_FIRST];
	struct kiln_tier *tier = open_far(far);
	unsigned n;

	for (n = 0; n < N_FIRST; n++)
		keys[n] = key_of(n);
	if (is_told)
		tier->ops->prefetch(tier, keys, N_FIRST);
	for (n = 0; n < N_FIRST; n++)
		get_and_compare(tier, keys[n], n, mean);
	for (n = 0; n < N_FIRST; n++)
		kiln_key_free((struct kiln_key *)keys[n]);
	tier->ops->close(tier);
}

static void rows_of(struct bench *bench, const char *path, size_t mean,
		    const char *what)
{
	struct far far;
	char name[128];

	write_pack(path, mean);
	read_file(path, &far);
	remove(path);
	for (int is_told = 0; is_told < 2; is_told++) {
		const char *how = is_told ? ", told beforehand" : "";

		first_start(&far, mean, is_told);
		snprintf(name, sizeof(name), "pack, %s, first 100%s: calls",
			 what, how);
		bench_row_bar(bench, name, (double)far.n_calls, "", 25,
			      BENCH_LOWER);
		snprintf(name, sizeof(name),
			 "pack, %s, first 100%s: of the file", what, how);
		bench_row_bar(bench, name,
			      100 * (double)far.n_bytes / (double)far.size, "%",
			      15, BENCH_LOWER);
		snprintf(name, sizeof(name), "pack, %s, first 100%s: in all",
			 what, how);
		bench_row(bench, name, (double)far.n_calls * CALL_MS, "ms");
	}
	free(far.bytes);
}

void block_pack_rows(struct bench *bench)
{
	static const struct {
		const char *what;
		size_t mean;
	} rows[] = {
		{ "values of 4 KiB", 4096 },
		{ "values of 16 KiB", 16384 },
		{ "values of 64 KiB", 65536 },
	};
	char folder[BENCH_FOLDER_BYTES], path[BENCH_FOLDER_BYTES + 16];

	bench_make_folder(folder, (uint64_t)128 << 20);
	snprintf(path, sizeof(path), "%s/far.pack", folder);
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		rows_of(bench, path, rows[i].mean, rows[i].what);
	bench_remove_tree(folder);
}
