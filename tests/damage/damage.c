/* SPDX-License-Identifier: MIT */

/*
 * S13.  damage KIND [--seed S] [--all]: a small store is damaged in every way at
 * every place, by flipped bytes, cuts, junk, lost, exchanged and mixed-up files.
 * Afterwards it opens, no byte is wrong, only what was hit is lost, and everything
 * can be put and found again.
 *
 * --all leaves no byte and no length out, and mixes up more.
 */

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/harness.h"

#include "conform/kinds.h"

#define BOUND	  ((uint64_t)256 << 10)
#define N_ENTRIES 12
#define REMOVED	  100
#define NEW	  200
#define FILES_MAX 64
#define BEFORE	  512 /* what stands before a value in its record */
#define BEHIND	  64
#define ALL	  ((1u << N_ENTRIES) - 1)

static const struct kind *kind;
static uint64_t chance = 1;
static int all;

/* Long enough to be met in one place only. */
static size_t size_of(unsigned n)
{
	return 16 + n * 13;
}

/* ---- The store, and where its entries lie --------------------------------------- */

struct file {
	char *path;
	char *data;
	size_t size;
	unsigned entries; /* a bit for each that lies in it */
	/* Of one that is known by its inode: its other name, and when it was
	   written. */
	char *kept;
	struct timespec times[2];
	int is_dirty;
};

static char *place, *directory, *keep;
static struct file files[FILES_MAX];
static unsigned n_files;
static struct {
	const struct file *file;
	size_t from, to; /* of the value */
} where[N_ENTRIES];

static enum kiln_status open_as(uint32_t flags, struct kiln_tier **out_tier)
{
	struct ki_store_options options = { .sys = &ki_sys_posix,
					    .directory = directory,
					    .bytes_max = BOUND,
					    .flags = flags };

	return kind->open(&options, out_tier);
}

static enum kiln_status remove_numbered(struct kiln_tier *tier, unsigned n)
{
	struct kiln_key *key = numbered_key(n);
	enum kiln_status status = tier->ops->remove(tier, key);

	kiln_key_free(key);
	return status;
}

static int read_one(const char *path, const struct stat *st, int what,
		    struct FTW *ftw)
{
	struct file *file = &files[n_files];

	if (what != FTW_F || !S_ISREG(st->st_mode))
		return 0;
	assert_true(n_files++ < FILES_MAX);
	*file = (struct file){ .path = strdup(path),
			       .times = { st->st_atim, st->st_mtim } };
	file->data = harness_read(path, &file->size);
	if (kind->is_named_by_inode &&
	    kind->is_named_by_inode(path + ftw->base)) {
		file->kept = harness_path(keep, path + ftw->base);
		assert_int_equal(link(path, file->kept), 0);
	}
	return 0;
}

static void locate(unsigned n)
{
	size_t size = size_of(n);
	char *value = malloc(size);

	fill_value(n, value, size);
	for (unsigned i = 0; i < n_files; i++) {
		char *found = NULL;

		if (files[i].size &&
		    (files[i].kept || !kind->is_named_by_inode))
			found = memmem(files[i].data, files[i].size, value,
				       size);
		if (!found)
			continue;
		where[n].file = &files[i];
		where[n].from = (size_t)(found - files[i].data);
		where[n].to = where[n].from + size;
		files[i].entries |= 1u << n;
	}
	free(value);
	assert_non_null(where[n].file);
}

static int make_store(void **state)
{
	struct kiln_tier *tier;

	place = harness_directory();
	directory = harness_path(place, "store");
	keep = harness_path(place, "keep");
	assert_int_equal(mkdir(keep, 0700), 0);
	assert_int_equal(open_as(0, &tier), KILN_OK);
	for (unsigned n = 0; n < N_ENTRIES; n++)
		assert_int_equal(put_numbered(tier, n, size_of(n), 0), KILN_OK);
	assert_int_equal(put_numbered(tier, REMOVED, 100, 0), KILN_OK);
	assert_int_equal(remove_numbered(tier, REMOVED), KILN_OK);
	tier->ops->close(tier);
	assert_int_equal(nftw(directory, read_one, 16, FTW_PHYS), 0);
	for (unsigned n = 0; n < N_ENTRIES; n++)
		locate(n);
	return 0;
}

static int free_store(void **state)
{
	harness_progress_end();
	while (n_files) {
		free(files[--n_files].path);
		free(files[n_files].kept);
		free(files[n_files].data);
	}
	free(keep);
	free(directory);
	free(place);
	return 0;
}

/* ---- Damage ------------------------------------------------------------------------ */

static void make_parent(const char *path)
{
	char *parent = strdup(path);

	*strrchr(parent, '/') = '\0';
	if (mkdir(parent, 0700) && strlen(parent) > strlen(directory)) {
		make_parent(parent);
		(void)mkdir(parent, 0700);
	}
	free(parent);
}

/* Damage leaves no trace but the bytes. */
static void write_file(struct file *file, const char *data, size_t size)
{
	if (file->kept && access(file->path, F_OK))
		assert_int_equal(link(file->kept, file->path), 0);
	if (!file->kept || file->is_dirty || data != file->data)
		harness_write(file->path, data, size);
	if (file->kept)
		assert_int_equal(
			utimensat(AT_FDCWD, file->path, file->times, 0), 0);
	file->is_dirty = data != file->data || size != file->size;
}

/* As it was, but for two files, which are someone else's job. */
static void put_back(const struct file *but, const struct file *and)
{
	if (!access(directory, F_OK))
		harness_remove(directory);
	assert_int_equal(mkdir(directory, 0700), 0);
	for (unsigned i = 0; i < n_files; i++) {
		make_parent(files[i].path);
		if (&files[i] != but && &files[i] != and)
			write_file(&files[i], files[i].data, files[i].size);
	}
}

/* Entries of a file that bytes [from, to) may belong to. */
static unsigned hit_by(const struct file *file, size_t from, size_t to)
{
	unsigned hit = 0;

	if (!file->entries)
		return ALL;
	for (unsigned n = 0; n < N_ENTRIES; n++)
		if (where[n].file == file && from < where[n].to + BEHIND &&
		    to + BEFORE > where[n].from)
			hit |= 1u << n;
	return hit;
}

static void complain(const struct file *file, size_t at, const char *what,
		     unsigned n, int status)
{
	fail_msg("%s, byte %zu: %s: entry %u, status %d", file->path, at, what,
		 n, status);
}

/* Lost ones.  Those that are not may be lost are not. */
static unsigned look(struct kiln_tier *tier, const struct file *file, size_t at,
		     unsigned may_be_lost)
{
	unsigned lost = 0;

	for (unsigned n = 0; n < N_ENTRIES; n++) {
		int status = get_numbered(tier, n);

		if (status != KILN_OK && status != KILN_MISS &&
		    status != KILN_E_FORMAT)
			complain(file, at, "not an answer", n, status);
		if (status && !(may_be_lost & 1u << n))
			complain(file, at, "lost, though not hit", n, status);
		lost |= (unsigned)!!status << n;
	}
	if (get_numbered(tier, REMOVED) == KILN_OK)
		complain(file, at, "removed, and back", REMOVED, KILN_OK);
	return lost;
}

/* 0 if the name of what was lost is still taken. */
static int use(struct kiln_tier *tier, const struct file *file, size_t at,
	       unsigned n, size_t size)
{
	int status = put_numbered(tier, n, size, 0);

	if (status == KILN_E_COLLISION && kind->may_collide)
		return 0;
	if (status != KILN_OK && status != KILN_EXISTS)
		complain(file, at, "cannot be put", n, status);
	status = get_numbered(tier, n);
	if (status)
		complain(file, at, "put, and not there", n, status);
	return 1;
}

static void check(const struct file *file, size_t at, uint32_t flags,
		  unsigned may_be_lost, unsigned n_lost_max)
{
	struct kiln_tier *tier;
	enum kiln_status status = open_as(flags, &tier);
	unsigned lost;

	if (status)
		complain(file, at, "does not open", 0, status);
	lost = look(tier, file, at, may_be_lost);
	if ((unsigned)__builtin_popcount(lost) > n_lost_max)
		complain(file, at, "more than one is lost", lost, 0);
	if (!(flags & KILN_OPEN_READONLY)) {
		(void)use(tier, file, at, NEW, 500);
		for (unsigned n = 0; n < N_ENTRIES; n++)
			if ((lost & 1u << n) &&
			    use(tier, file, at, n, size_of(n)))
				lost &= ~(1u << n);
		(void)look(tier, file, at, lost);
	}
	tier->ops->close(tier);
}

/* ---- Ways of it ---------------------------------------------------------------------- */

static void flip(struct file *file, size_t at, unsigned bit)
{
	char *data = memcpy(malloc(file->size), file->data, file->size);

	put_back(file, NULL);
	data[at] ^= (char)(1 << bit);
	write_file(file, data, file->size);
	free(data);
}

/* Zeros far from anything are tried less often. */
static void a_flipped_byte_costs_one_entry_at_most(void **state)
{
	static const uint32_t ways[] = { 0, KILN_OPEN_GUEST, KILN_OPEN_COPY };
	unsigned i, n = 0;
	size_t at;

	for (i = 0; i < n_files; i++)
		for (at = 0; at < files[i].size; at++) {
			if (!all && !files[i].data[at] && at % 97)
				continue;
			harness_progress(files[i].path, at, files[i].size);
			flip(&files[i], at, n % 8);
			check(&files[i], at, ways[n % 3],
			      hit_by(&files[i], at, at + 1), 1);
			n++;
		}
}

static void a_flipped_byte_hurts_no_reader(void **state)
{
	unsigned i, n = 0;
	size_t at;

	for (i = 0; i < n_files; i++)
		for (at = 0; at < files[i].size; at += all ? 1 : 1 + n % 5) {
			n++;
			if (!all && !files[i].data[at] && at % 197)
				continue;
			harness_progress(files[i].path, at, files[i].size);
			flip(&files[i], at, n % 8);
			check(&files[i], at, KILN_OPEN_READONLY, ALL,
			      N_ENTRIES);
		}
}

/* Without which no entry is found, though it holds none. */
static int is_needed(const struct file *file)
{
	return kind->is_named_by_inode && strstr(file->path, "kiln.records");
}

static size_t length_step(const struct file *file, size_t size)
{
	if (all)
		return 1;
	return size > 4096 && !file->entries ? 509 : 31;
}

static void a_cut_file_costs_what_was_cut_off(void **state)
{
	for (unsigned i = 0; i < n_files; i++) {
		struct file *file = &files[i];
		unsigned entries = file->entries;

		for (size_t size = 0; size < file->size;
		     size += length_step(file, size)) {
			char *cut;

			harness_progress(file->path, size, file->size);
			put_back(file, NULL);
			cut = memcpy(malloc(size + 1), file->data, size);
			write_file(file, cut, size);
			free(cut);
			check(file, size, size % 2 ? KILN_OPEN_GUEST : 0,
			      entries || is_needed(file)
				      ? hit_by(file, size, file->size)
				      : 0,
			      N_ENTRIES);
		}
		put_back(file, NULL);
		check(file, 0, 0, is_needed(file) ? ALL : entries, N_ENTRIES);
	}
}

/* An entry alone in its file may insist on the file's end. */
static void appended_junk_costs_the_one_entry_at_most(void **state)
{
	char junk[8192];

	memset(junk, 0x5a, sizeof(junk));
	for (unsigned i = 0; i < n_files; i++)
		for (size_t n = 1; n <= sizeof(junk); n *= 2) {
			struct file *file = &files[i];
			unsigned entries = file->entries;
			char *data = malloc(file->size + n);

			memcpy(data, file->data, file->size);
			memcpy(data + file->size, junk, n);
			put_back(file, NULL);
			write_file(file, data, file->size + n);
			check(file, file->size, 0,
			      entries & (entries - 1) ? 0 : entries, 1);
			free(data);
		}
}

static size_t draw(size_t n)
{
	return n ? (size_t)(harness_random(&chance) % n) : 0;
}

/* Bytes of one place, perhaps a whole record, at another. */
static void mixed_up_bytes_cost_what_they_hit(void **state)
{
	const unsigned n_rounds = all ? 20000 : 600;

	for (unsigned round = 0; round < n_rounds; round++) {
		struct file *to = &files[draw(n_files)];
		const struct file *from = &files[draw(n_files)];
		size_t size = draw(draw(2) ? 64 : 1024), at, source;
		char *data;

		harness_progress("mixed up", round, n_rounds);
		if (to->size <= size || from->size <= size)
			continue;
		at = draw(to->size - size);
		source = draw(from->size - size);
		if (draw(2)) {
			at &= ~(size_t)63;
			source &= ~(size_t)63;
		}
		data = malloc(to->size);
		memcpy(data, to->data, to->size);
		memcpy(data + at, from->data + source, size);
		put_back(to, NULL);
		write_file(to, data, to->size);
		check(to, at, 0, hit_by(to, at, at + size), N_ENTRIES);
		free(data);
	}
}

static void exchanged_files_cost_what_is_in_them(void **state)
{
	for (unsigned i = 0; i < n_files; i++)
		for (unsigned k = 0; k < n_files; k++) {
			struct file *a = &files[i], *b = &files[k];

			put_back(a, b);
			write_file(a, b->data, b->size);
			if (i < k)
				write_file(b, a->data, a->size);
			check(a, 0, 0,
			      i == k ? 0
			      : a->entries && b->entries
				      ? a->entries | b->entries
				      : ALL,
			      N_ENTRIES);
		}
}

static int read_arguments(int argc, char **argv)
{
	kind = argc > 1 ? kind_find(argv[1]) : NULL;
	for (int i = 2; i < argc; i++) {
		if (!strcmp(argv[i], "--all"))
			all = 1;
		else if (!strcmp(argv[i], "--seed") && i + 1 < argc)
			chance = strtoull(argv[++i], NULL, 10);
		else
			return 0;
	}
	return kind && kind->persists;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_flipped_byte_costs_one_entry_at_most),
		cmocka_unit_test(a_flipped_byte_hurts_no_reader),
		cmocka_unit_test(a_cut_file_costs_what_was_cut_off),
		cmocka_unit_test(appended_junk_costs_the_one_entry_at_most),
		cmocka_unit_test(mixed_up_bytes_cost_what_they_hit),
		cmocka_unit_test(exchanged_files_cost_what_is_in_them),
	};

	if (!read_arguments(argc, argv)) {
		fprintf(stderr, "usage: damage KIND [--seed S] [--all]\n");
		return 2;
	}
	return _cmocka_run_group_tests(kind->name, tests,
				       sizeof(tests) / sizeof(tests[0]),
				       make_store, free_store);
}
