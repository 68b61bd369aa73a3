/* SPDX-License-Identifier: MIT */

/*
 * Where an entry lies: four directories, each named by a hash in decimal, and a
 * number in the last of them.  Nothing else of kiln's is looked for by these
 * hashes, so it has two: the device's, and one of 16 by its digest.  (Three more
 * for each entry cost more than all the rest of a store.)
 *
 * The hash is what libstdc++ has for std::hash<std::string>, Murmur's of 64 bits
 * with one seed.  Nothing depends on it but finding: an entry is told by its
 * .src, and kiln's own by kiln.records.
 *
 * A key that says device, options, constants and image by their bytes, and
 * nothing else, lives where DPC++ looks for them.  "sycl.compile", the compiler's
 * part of the options, may stand beside: where it is all of them it says nothing
 * new.  Otherwise what lies there is of one split or another, and .src does not say
 * of which.  Every other key lives under the device "kiln", where DPC++ only ever
 * comes to evict: there is no .src, as kiln.records has the whole key, and there
 * are no lock files.  No device of DPC++'s is called so: theirs have three slashes.
 */

#include "store/sycl/sycl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "key/key.h"

/* ---- The hash --------------------------------------------------------------------- */

#define MURMUR_SEED  0xc70f6907u
#define MURMUR_TIMES 0xc6a4a7935bd1e995u
#define MURMUR_SHIFT 47

/* Numbers of kiln's places: of nine digits at most, with some to spare. */
#define NUMBERS_MAX 900000000u

static uint64_t mix(uint64_t x)
{
	return x ^ x >> MURMUR_SHIFT;
}

uint64_t ki_sycl_hash(const void *data, size_t size)
{
	const uint8_t *bytes = data;
	uint64_t hash = MURMUR_SEED ^ size * MURMUR_TIMES;

	for (; size >= 8; size -= 8, bytes += 8)
		hash = (hash ^
			mix(ki_get_u64(bytes) * MURMUR_TIMES) * MURMUR_TIMES) *
		       MURMUR_TIMES;
	if (size) {
		uint64_t rest = 0;

		while (size--)
			rest = rest << 8 | bytes[size];
		hash = (hash ^ rest) * MURMUR_TIMES;
	}
	return mix(mix(hash) * MURMUR_TIMES);
}

/* ---- Fields ------------------------------------------------------------------------ */

static const char *const labels[KI_SYCL_N_FIELDS] = {
	[KI_SYCL_DEVICE] = "sycl.device",
	[KI_SYCL_OPTIONS] = "sycl.options",
	[KI_SYCL_SPEC] = "sycl.spec",
	[KI_SYCL_IMAGE] = "sycl.image",
};
static const char compile_label[] = "sycl.compile";

static int is_label(const struct kiln_field *field, const char *label)
{
	return field->label_size == strlen(label) &&
	       !memcmp(field->label, label, field->label_size);
}

static int is_same(const struct ki_piece *a, const struct ki_piece *b)
{
	return a->size == b->size && !memcmp(a->data, b->data, a->size);
}

/* All four by their bytes and once, and nothing beside them but that. */
static int find_all(const void *record, size_t size,
		    struct ki_sycl_fields *fields, struct ki_piece *compile)
{
	unsigned n_seen[KI_SYCL_N_FIELDS] = { 0 };
	struct kiln_field field;
	size_t position = 0;

	*compile = (struct ki_piece){ NULL, 0 };
	while (!kiln_record_next(record, size, &position, &field)) {
		const int is_compile = is_label(&field, compile_label);
		unsigned i = 0;

		while (i < KI_SYCL_N_FIELDS && !is_label(&field, labels[i]))
			i++;
		if (field.kind != KILN_FIELD_BYTES ||
		    (is_compile ? compile->data != NULL
				: i == KI_SYCL_N_FIELDS || n_seen[i]++))
			return 0;
		*(is_compile ? compile : &fields->of[i]) =
			(struct ki_piece){ field.data, field.size };
	}
	for (unsigned i = 0; i < KI_SYCL_N_FIELDS; i++)
		if (!n_seen[i])
			return 0;
	return fields->of[KI_SYCL_DEVICE].size != 4 ||
	       memcmp(fields->of[KI_SYCL_DEVICE].data, "kiln", 4) != 0;
}

void ki_sycl_fields_of(const struct kiln_key *key,
		       struct ki_sycl_fields *out_fields)
{
	const void *record = key->record.data;
	const size_t size = key->record.size;
	struct ki_piece compile;

	out_fields->is_shared =
		find_all(record, size, out_fields, &compile) &&
		(!compile.data ||
		 is_same(&compile, &out_fields->of[KI_SYCL_OPTIONS]));
	if (out_fields->is_shared)
		return;
	out_fields->of[KI_SYCL_DEVICE] = (struct ki_piece){ "kiln", 4 };
	out_fields->of[KI_SYCL_OPTIONS] = (struct ki_piece){ "", 0 };
	out_fields->of[KI_SYCL_SPEC] = (struct ki_piece){ "", 0 };
	out_fields->of[KI_SYCL_IMAGE] = (struct ki_piece){ record, size };
}

void ki_sycl_fields_in(const void *record, size_t size,
		       struct ki_sycl_fields *out_fields)
{
	struct ki_piece compile;

	out_fields->is_shared = find_all(record, size, out_fields, &compile);
}

static unsigned long long hash_of(const struct ki_sycl_fields *fields,
				  enum ki_sycl_field field)
{
	return ki_sycl_hash(fields->of[field].data, fields->of[field].size);
}

void ki_sycl_place(const struct kiln_key *key,
		   const struct ki_sycl_fields *fields,
		   char out[KI_SYCL_PLACE_BYTES])
{
	if (!fields->is_shared) {
		snprintf(out, KI_SYCL_PLACE_BYTES, "%s/%u", KI_SYCL_OWN,
			 (unsigned)(key->digest_high % KI_SYCL_N_FANS));
		return;
	}
	snprintf(out, KI_SYCL_PLACE_BYTES, "%llu/%llu/%llu/%llu",
		 hash_of(fields, KI_SYCL_DEVICE),
		 hash_of(fields, KI_SYCL_IMAGE), hash_of(fields, KI_SYCL_SPEC),
		 hash_of(fields, KI_SYCL_OPTIONS));
}

uint32_t ki_sycl_first_number(const struct kiln_key *key)
{
	return (uint32_t)(key->digest_low % NUMBERS_MAX);
}

/* ---- Paths -------------------------------------------------------------------------- */

int ki_sycl_path(const struct ki_sycl *sycl, const char *name,
		 char out[KI_PATH_MAX])
{
	return ki_path_join(out, sycl->directory, name);
}

int ki_sycl_path_of(const struct ki_sycl *sycl, const char *name,
		    const char *suffix, char out[KI_PATH_MAX])
{
	int err = ki_path_join(out, sycl->directory, name);
	size_t size;

	if (err)
		return err;
	size = strlen(out);
	if (size + strlen(suffix) >= KI_PATH_MAX)
		return -ENAMETOOLONG;
	memcpy(out + size, suffix, strlen(suffix) + 1);
	return 0;
}

static size_t n_digits(const char *name)
{
	return strspn(name, "0123456789");
}

/* As a count is printed: no zeros before it, and not above a billion. */
static size_t read_number(const char *name, uint32_t *out_n)
{
	const size_t n = n_digits(name);

	if (!n || n > 9 || (n > 1 && *name == '0'))
		return 0;
	*out_n = (uint32_t)strtoul(name, NULL, 10);
	return n;
}

unsigned ki_sycl_part(const char *base, uint32_t *out_n)
{
	static const struct {
		const char *suffix;
		unsigned part;
	} parts[] = { { ".bin", KI_SYCL_BIN },
		      { ".src", KI_SYCL_SRC },
		      { "_access_time.txt", KI_SYCL_ACCESS },
		      { ".lock", KI_SYCL_LOCK },
		      { "_access_time.txt.lock", KI_SYCL_USE_LOCK } };
	const size_t n = read_number(base, out_n);

	for (size_t i = 0; n && i < sizeof(parts) / sizeof(parts[0]); i++)
		if (!strcmp(base + n, parts[i].suffix))
			return parts[i].part;
	return 0;
}

int ki_sycl_is_own(const char *name)
{
	return !strncmp(name, KI_SYCL_OWN "/", sizeof(KI_SYCL_OWN));
}

int ki_sycl_is_name(const char *name)
{
	const unsigned n_directories = ki_sycl_is_own(name) ? 2 : 4;
	uint32_t number;

	for (unsigned i = 0; i < n_directories; i++) {
		const size_t n = n_digits(name);

		if (!n || n > 20 || name[n] != '/')
			return 0;
		name += n + 1;
	}
	return ki_sycl_part(name, &number) == KI_SYCL_BIN;
}

void ki_sycl_stem(const char *name, char out[KI_SYCL_NAME_BYTES])
{
	snprintf(out, KI_SYCL_NAME_BYTES, "%.*s", (int)(strlen(name) - 4),
		 name);
}

int ki_sycl_look(const struct ki_sycl *sycl, const char *name,
		 const char *suffix, struct ki_file_info *out_info)
{
	char path[KI_PATH_MAX];
	int err = ki_sycl_path_of(sycl, name, suffix, path);

	if (!err)
		err = sycl->sys->lstat(sycl->sys, path, out_info);
	if (err == -ENOTDIR || (!err && !S_ISREG(out_info->mode)))
		err = -ENOENT;
	return err;
}

/* ---- Directories ---------------------------------------------------------------------- */

static int make_directory(const struct ki_sycl *sycl, const char *path)
{
	const struct ki_sys *sys = sycl->sys;
	int err = sys->mkdir(sys, path, 0775);

	if (!err && (sycl->flags & KILN_OPEN_SHARED))
		err = sys->chmod(sys, path, 02770);
	return err == -EEXIST ? 0 : err;
}

int ki_sycl_is_elsewhere(const struct ki_sycl *sycl, const char *place)
{
	const struct ki_sys *sys = sycl->sys;
	struct ki_file_info info;
	char path[KI_PATH_MAX];

	if (ki_sycl_path_of(sycl, place, "/", path))
		return 1;
	for (size_t i = sycl->directory_size + 1; path[i]; i++) {
		int err;

		if (path[i] != '/')
			continue;
		path[i] = '\0';
		err = sys->lstat(sys, path, &info);
		path[i] = '/';
		if (err)
			return err != -ENOENT;
		if (!S_ISDIR(info.mode))
			return 1;
	}
	return 0;
}

int ki_sycl_make_place(const struct ki_sycl *sycl, const char *place)
{
	char path[KI_PATH_MAX];
	const char *why = NULL;
	int err;

	if (ki_directory_check(sycl->sys, sycl->directory, sycl->flags, 1,
			       &why))
		return -EACCES;
	err = ki_sycl_path_of(sycl, place, "/", path);
	for (size_t i = sycl->directory_size + 1; !err && path[i]; i++) {
		if (path[i] != '/')
			continue;
		path[i] = '\0';
		err = make_directory(sycl, path);
		path[i] = '/';
	}
	return err;
}
