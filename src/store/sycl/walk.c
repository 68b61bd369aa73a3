/* SPDX-License-Identifier: MIT */

/*
 * Finding all entries: directories down to the fourth level, by their names.  What
 * has no name of the format is passed over, and so is every link: who follows one
 * takes somebody else's files for entries.
 *
 *	d/i/s/o/<n>.*
 *	<kiln>/<fan>/<n>.*
 *	ext_kernel_compiler/d/o/s/<n>.*		of kernel_compiler
 *	ext_kernel_compiler/<key>/ir.*
 */

#include "store/sycl/sycl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define LEVELS 4
#define EXT    "ext_kernel_compiler"

/* ---- A place --------------------------------------------------------------------------- */

static int by_n(const void *a, const void *b)
{
	const struct ki_sycl_slot *x = a, *y = b;

	return x->n < y->n ? -1 : x->n > y->n;
}

/* One slot for all parts of an entry. */
static size_t merge(struct ki_sycl_slot *slots, size_t n)
{
	size_t n_merged = 0;

	if (n)
		qsort(slots, n, sizeof(*slots), by_n);
	for (size_t i = 0; i < n; i++) {
		if (n_merged && slots[n_merged - 1].n == slots[i].n)
			slots[n_merged - 1].has |= slots[i].has;
		else
			slots[n_merged++] = slots[i];
	}
	return n_merged;
}

int ki_sycl_read_place(const struct ki_sycl *sycl, const char *place,
		       struct ki_sycl_slots *out_slots)
{
	const struct ki_sys *sys = sycl->sys;
	struct ki_bytes bytes;
	char path[KI_PATH_MAX];
	struct ki_dir *dir;
	const char *base;
	size_t size;
	int more, err = ki_sycl_path(sycl, place, path);

	*out_slots = (struct ki_sycl_slots){ NULL, 0 };
	if (!err)
		err = sys->opendir(sys, path, &dir);
	if (err)
		return err == -ENOENT || err == -ENOTDIR ? 0 : err;
	ki_bytes_init(&bytes);
	while ((more = sys->readdir(sys, dir, &base)) > 0) {
		struct ki_sycl_slot slot;

		slot.has = ki_sycl_part(base, &slot.n);
		if (slot.has)
			ki_bytes_add(&bytes, &slot, sizeof(slot));
	}
	sys->closedir(sys, dir);
	err = more ? more : bytes.failed;
	if (err) {
		ki_bytes_fini(&bytes);
		return err;
	}
	out_slots->slots = (void *)ki_bytes_take(&bytes, &size);
	ki_bytes_fini(&bytes);
	if (out_slots->slots)
		out_slots->n = merge(out_slots->slots,
				     size / sizeof(struct ki_sycl_slot));
	return 0;
}

/* ---- Any directory ---------------------------------------------------------------------- */

static unsigned level_of(const char *name)
{
	unsigned level = *name != '\0';

	for (; *name; name++)
		level += *name == '/';
	return level;
}

static int is_ext(const char *name)
{
	const size_t size = sizeof(EXT) - 1;

	return !strncmp(name, EXT, size) && (!name[size] || name[size] == '/');
}

/* On which level entries lie. */
static unsigned last_level(const char *name)
{
	return ki_sycl_is_own(name) || !strcmp(name, KI_SYCL_OWN) ? 2 : LEVELS;
}

static int is_hash(const char *base)
{
	const size_t n = strspn(base, "0123456789");

	return n && n <= 20 && !base[n];
}

static int leads_down(const char *directory, unsigned level, const char *base)
{
	if (level >= last_level(directory))
		return 0;
	if (is_hash(base) || (!level && !strcmp(base, EXT)))
		return 1;
	return level == 1 && is_ext(directory) && !strchr(base, '.');
}

static unsigned part_of_ir(const char *base)
{
	if (!strcmp(base, "ir.bin"))
		return KI_SYCL_BIN;
	if (!strcmp(base, "ir_access_time.txt"))
		return KI_SYCL_ACCESS;
	return strcmp(base, "ir.lock") ? 0 : KI_SYCL_LOCK;
}

struct opened {
	const char *name;
	unsigned level;
	ki_sycl_below_fn *below;
	void *arg;
	struct ki_bytes slots;
	unsigned ir;
};

static int take_name(struct opened *opened, const char *base)
{
	char name[KI_SYCL_NAME_BYTES];
	struct ki_sycl_slot slot;

	if (leads_down(opened->name, opened->level, base)) {
		int n = snprintf(name, sizeof(name), "%s%s%s", opened->name,
				 opened->level ? "/" : "", base);

		/* With room for an entry below. */
		return n < 0 || (size_t)n >= sizeof(name) - 32 || !opened->below
			       ? 0
			       : opened->below(opened->arg, name);
	}
	if (opened->level == 2 && is_ext(opened->name))
		opened->ir |= part_of_ir(base);
	slot.has = opened->level == last_level(opened->name)
			   ? ki_sycl_part(base, &slot.n)
			   : 0;
	if (slot.has)
		ki_bytes_add(&opened->slots, &slot, sizeof(slot));
	return opened->slots.failed;
}

/* No link to one. */
static int open_directory(const struct ki_sycl *sycl, const char *name,
			  struct ki_dir **out_dir)
{
	const struct ki_sys *sys = sycl->sys;
	struct ki_file_info info;
	char path[KI_PATH_MAX];
	int err = *name ? ki_sycl_path(sycl, name, path)
			: ki_sycl_path_of(sycl, "", "", path);

	if (!err && *name) {
		err = sys->lstat(sys, path, &info);
		if (!err && !S_ISDIR(info.mode))
			err = -ENOENT;
	}
	return err ? err : sys->opendir(sys, path, out_dir);
}

static int visit_slots(struct opened *opened, ki_sycl_visit_fn *visit)
{
	struct ki_sycl_slot *slots = (void *)opened->slots.data;
	const size_t n = merge(slots, opened->slots.size / sizeof(*slots));
	char stem[KI_SYCL_NAME_BYTES];
	int err = 0;

	if (opened->ir) {
		snprintf(stem, sizeof(stem), "%s/ir", opened->name);
		err = visit(opened->arg, stem, opened->ir);
	}
	for (size_t i = 0; !err && i < n; i++) {
		snprintf(stem, sizeof(stem), "%s/%u", opened->name,
			 (unsigned)slots[i].n);
		err = visit(opened->arg, stem, slots[i].has);
	}
	return err;
}

int ki_sycl_open_one(const struct ki_sycl *sycl, const char *name,
		     ki_sycl_below_fn *below, ki_sycl_visit_fn *visit,
		     void *arg)
{
	const struct ki_sys *sys = sycl->sys;
	struct opened opened = { .name = name,
				 .level = level_of(name),
				 .below = below,
				 .arg = arg };
	struct ki_dir *dir;
	const char *base;
	int more = 0, err = open_directory(sycl, name, &dir);

	if (err)
		return err == -ENOENT || err == -ENOTDIR ? 0 : err;
	ki_bytes_init(&opened.slots);
	while (!err && (more = sys->readdir(sys, dir, &base)) > 0)
		err = take_name(&opened, base);
	sys->closedir(sys, dir);
	if (!err)
		err = more;
	if (!err)
		err = visit_slots(&opened, visit);
	ki_bytes_fini(&opened.slots);
	return err;
}

/* ---- All of them ------------------------------------------------------------------------- */

struct walk {
	ki_sycl_visit_fn *visit;
	void *arg;
	struct ki_bytes names; /* of directories, each with its NUL */
};

static int note_below(void *arg, const char *name)
{
	struct walk *walk = arg;

	ki_bytes_add(&walk->names, name, strlen(name) + 1);
	return walk->names.failed;
}

static int pass_on(void *arg, const char *stem, unsigned has)
{
	struct walk *walk = arg;

	return walk->visit(walk->arg, stem, has);
}

/* The last name that was noted, and then not any more. */
static int take_last(struct ki_bytes *names, char out[KI_SYCL_NAME_BYTES])
{
	size_t at = names->size;

	if (!at)
		return 0;
	for (at--; at && names->data[at - 1]; at--)
		;
	snprintf(out, KI_SYCL_NAME_BYTES, "%s", (char *)names->data + at);
	names->size = at;
	return 1;
}

int ki_sycl_walk(const struct ki_sycl *sycl, ki_sycl_visit_fn *visit, void *arg)
{
	struct walk walk = { .visit = visit, .arg = arg };
	char name[KI_SYCL_NAME_BYTES] = "";
	int err, has_unread = 0;

	ki_bytes_init(&walk.names);
	err = ki_sycl_open_one(sycl, "", note_below, pass_on, &walk);
	if (err == -EACCES)
		err = -EPERM;
	while (!err && take_last(&walk.names, name)) {
		err = ki_sycl_open_one(sycl, name, note_below, pass_on, &walk);
		has_unread |= err == -EACCES;
		if (err == -EACCES)
			err = 0;
	}
	ki_bytes_fini(&walk.names);
	return !err && has_unread ? -EACCES : err;
}
