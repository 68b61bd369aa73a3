/* SPDX-License-Identifier: MIT */

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "harness/harness.h"

#include "key/key.h"
#include "store/sycl/helpers_test.h"

#define DEVICE	"OpenCL/pretend/1.0/2.0"
#define OPTIONS "-cl-fast"

struct kiln_tier *open_with(const char *directory, uint64_t bytes_max,
			    uint32_t flags)
{
	struct ki_store_options options = { .sys = &ki_sys_posix,
					    .directory = directory,
					    .bytes_max = bytes_max,
					    .flags = flags };
	struct kiln_tier *tier = NULL;

	assert_int_equal(ki_store_sycl_open(&options, &tier), KILN_OK);
	return tier;
}

struct kiln_tier *open_at(const char *directory, uint64_t bytes_max)
{
	return open_with(directory, bytes_max, 0);
}

struct ki_sycl *sycl_of(struct kiln_tier *tier)
{
	return (struct ki_sycl *)tier;
}

/* With NUL bytes in it. */
struct kiln_key *key_of(unsigned n)
{
	struct kiln_key *key = kiln_key_new();
	uint8_t image[LONG_IMAGE] = { 'i', 0, 'm', 0 };

	ki_put_u32(image + 4, n);
	kiln_key_add_string(key, "sycl.device", DEVICE);
	kiln_key_add_string(key, "sycl.options", OPTIONS);
	kiln_key_add(key, "sycl.spec", "1\0c", 3);
	kiln_key_add(key, "sycl.image", image, n < LONG ? 8 : sizeof(image));
	if (kiln_key_finish(key))
		abort();
	return key;
}

enum kiln_status put_flags(struct kiln_tier *tier, unsigned n, size_t size,
			   unsigned flags)
{
	struct kiln_key *key = key_of(n);
	char *value = malloc(size + 1);
	enum kiln_status status;

	memset(value, (int)(n % 251 + 1), size);
	status = tier->ops->put(tier, key, NULL, 0, value, size, flags);
	free(value);
	kiln_key_free(key);
	return status;
}

enum kiln_status put(struct kiln_tier *tier, unsigned n, size_t size)
{
	return put_flags(tier, n, size, 0);
}

enum kiln_status get_sized(struct kiln_tier *tier, unsigned n, size_t size)
{
	struct kiln_key *key = key_of(n);
	struct kiln_blob *blob = NULL;
	enum kiln_status status = tier->ops->get(tier, key, &blob, NULL);
	const uint8_t *data = status ? NULL : kiln_blob_data(blob);

	for (size_t i = 0; !status && i < kiln_blob_size(blob); i++)
		if (data[i] != n % 251 + 1)
			status = KILN_E_INVALID;
	if (!status && size && kiln_blob_size(blob) != size)
		status = KILN_E_INVALID;
	kiln_blob_unref(blob);
	kiln_key_free(key);
	return status;
}

enum kiln_status get(struct kiln_tier *tier, unsigned n)
{
	return get_sized(tier, n, 0);
}

/* ---- Files ---------------------------------------------------------------------------- */

static char *place_of(const char *directory, unsigned n)
{
	struct kiln_key *key = key_of(n);
	char place[KI_SYCL_PLACE_BYTES];
	struct ki_sycl_fields fields;

	ki_sycl_fields_of(key, &fields);
	ki_sycl_place(key, &fields, place);
	kiln_key_free(key);
	return harness_path(directory, place);
}

char *path_of(const char *directory, unsigned n, unsigned slot,
	      const char *suffix)
{
	char *place = place_of(directory, n), *path;

	if (asprintf(&path, "%s/%u%s", place, slot, suffix) < 0)
		abort();
	free(place);
	return path;
}

int exists(const char *directory, unsigned n, unsigned slot, const char *suffix)
{
	char *path = path_of(directory, n, slot, suffix);
	int result = !access(path, F_OK);

	free(path);
	return result;
}

void write_at(const char *directory, unsigned n, unsigned slot,
	      const char *suffix, const void *bytes, size_t size)
{
	char *place = place_of(directory, n);
	char *path = path_of(directory, n, slot, suffix);

	assert_int_equal(ki_make_directories(&ki_sys_posix, place), 0);
	harness_write(path, bytes, size);
	free(path);
	free(place);
}

void set_use(const char *directory, unsigned n, unsigned slot, int hours)
{
	char text[32];
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	snprintf(text, sizeof(text), "%lld%09ld",
		 (long long)now.tv_sec - hours * 3600LL, now.tv_nsec);
	write_at(directory, n, slot, "_access_time.txt", text, strlen(text));
}

static void write_src(const char *directory, unsigned n, unsigned slot)
{
	struct kiln_key *key = key_of(n);
	struct ki_sycl_fields fields;
	struct ki_bytes bytes;

	ki_sycl_fields_of(key, &fields);
	ki_bytes_init(&bytes);
	for (unsigned i = 0; i < KI_SYCL_N_FIELDS; i++) {
		ki_bytes_add_u64(&bytes, fields.of[i].size);
		ki_bytes_add(&bytes, fields.of[i].data, fields.of[i].size);
	}
	write_at(directory, n, slot, ".src", bytes.data, bytes.size);
	ki_bytes_fini(&bytes);
	kiln_key_free(key);
}

void plant_form(const char *directory, unsigned n, unsigned slot, size_t size,
		int hours, enum form form)
{
	char *value = malloc(size + 1);
	struct ki_bytes bytes;

	memset(value, (int)(n % 251 + 1), size);
	ki_bytes_init(&bytes);
	if (form != INTERIM)
		ki_bytes_add_u64(&bytes, form == NEWEST ? 1 : 2);
	ki_bytes_add_u64(&bytes, size);
	ki_bytes_add(&bytes, value, size);
	if (form == OLDER_OF_TWO) {
		ki_bytes_add_u64(&bytes, 5);
		ki_bytes_add(&bytes, "other", 5);
	}
	write_at(directory, n, slot, ".bin", bytes.data, bytes.size);
	write_src(directory, n, slot);
	if (hours >= 0)
		set_use(directory, n, slot, hours);
	ki_bytes_fini(&bytes);
	free(value);
}

void plant(const char *directory, unsigned n, unsigned slot, size_t size,
	   int hours)
{
	plant_form(directory, n, slot, size, hours, NEWEST);
}

char *sum_text(const char *directory)
{
	char *path = harness_path(directory, "cache_size.txt");
	size_t size;
	char *text = harness_read(path, &size);

	free(path);
	return text;
}

uint64_t sum_of(const char *directory)
{
	char *text = sum_text(directory);
	uint64_t sum;

	assert_non_null(text);
	sum = strtoull(text, NULL, 10);
	free(text);
	return sum;
}

static uint64_t n_bytes;
static unsigned n_found;
static const char *wanted;

static int add(const char *path, const struct stat *st, int type,
	       struct FTW *place)
{
	const char *dot = strrchr(path, '.');

	if (type == FTW_F && dot &&
	    (!strcmp(dot, ".bin") || !strcmp(dot, ".src")))
		n_bytes += (uint64_t)st->st_size;
	n_found += wanted && strstr(path + place->base, wanted) != NULL;
	return 0;
}

uint64_t bytes_on_disk(const char *directory)
{
	n_bytes = 0;
	assert_int_equal(nftw(directory, add, 16, FTW_PHYS), 0);
	return n_bytes;
}

unsigned n_names(const char *directory, const char *part)
{
	wanted = part;
	n_found = 0;
	assert_int_equal(nftw(directory, add, 16, FTW_PHYS), 0);
	wanted = NULL;
	return n_found;
}
