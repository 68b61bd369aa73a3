/* SPDX-License-Identifier: MIT */

/*
 * Which files are entries, and where they lie.
 *
 * Only the end of a base name tells an entry; the originals look for the
 * extension anywhere in a path, and so take config.file for an entry where the
 * directory's own name has it.  Whether it is a file at all is for lstat to say:
 * a link is never followed, and one that leads nowhere stops nothing.
 */

#include "store/neo/neo.h"

#include <string.h>
#include <sys/stat.h>

#include "key/key.h"

#define N_DIGITS 16

static const char digits[] = "0123456789abcdef";
#define RENEWING "kiln.records.new"

static const char temporary_prefix[] = "cl_cache.";
#define TEMPORARY_LETTERS 6

static int ends_in(const char *name, size_t size, const char *suffix)
{
	const size_t suffix_size = strlen(suffix);

	return size > suffix_size &&
	       !memcmp(name + size - suffix_size, suffix, suffix_size);
}

enum ki_neo_kind ki_neo_kind_of(enum kiln_neo_layout layout, const char *name)
{
	const char *slash = strrchr(name, '/');
	const char *base = slash ? slash + 1 : name;
	const size_t size = strlen(base);

	if (ends_in(base, size, KILN_NEO_OPENCL) ||
	    ends_in(base, size, KILN_NEO_LEVEL_ZERO))
		return KI_NEO_ENTRY;
	if (ends_in(base, size, KILN_NEO_OCLOC))
		return layout == KILN_NEO_TREE || slash ? KI_NEO_ENTRY
							: KI_NEO_UNCOUNTED;
	if (!slash &&
	    size == sizeof(temporary_prefix) - 1 + TEMPORARY_LETTERS &&
	    !memcmp(base, temporary_prefix, sizeof(temporary_prefix) - 1))
		return KI_NEO_TEMPORARY;
	return strcmp(name, RENEWING) ? KI_NEO_FOREIGN : KI_NEO_RENEWING;
}

int ki_neo_path(const struct ki_neo *neo, const char *name,
		char out[KI_PATH_MAX])
{
	return ki_path_join(out, neo->directory, name);
}

static int is_digit(const char *name)
{
	return *name && !name[1] && strchr(digits, *name) != NULL;
}

static int is_in_fans(const char *name)
{
	const char first[] = { name[0], '\0' };
	const char second[] = { *first && name[1] == '/' ? name[2] : '\0',
				'\0' };

	return is_digit(first) && is_digit(second) && name[3] == '/';
}

int ki_neo_is_inside(const char *name)
{
	const char *base = is_in_fans(name) ? name + 4 : name;

	return !strchr(base, '/') && strcmp(base, ".") && strcmp(base, "..");
}

int ki_neo_is_name(const struct ki_neo *neo, const char *name)
{
	enum ki_neo_kind kind = ki_neo_kind_of(ki_neo_layout(neo), name);

	return (kind == KI_NEO_ENTRY || kind == KI_NEO_UNCOUNTED) &&
	       ki_neo_is_inside(name);
}

void ki_neo_name_key(const struct ki_neo *neo, const struct kiln_key *key,
		     const void *metadata, size_t metadata_size,
		     char out[KILN_NEO_NAME_BYTES])
{
	const char *extension = KILN_NEO_OPENCL;
	struct kiln_neo_state state;
	const void *front;
	size_t size;

	if (metadata_size &&
	    !kiln_metadata_find(metadata, metadata_size, KILN_META_FRONT,
				&front, &size) &&
	    size == 9 && !memcmp(front, "levelzero", 9))
		extension = KILN_NEO_LEVEL_ZERO;
	kiln_neo_begin(&state);
	kiln_neo_add(&state, key->record.data, key->record.size);
	(void)kiln_neo_name(kiln_neo_end(&state) & neo->name_mask, extension,
			    ki_neo_layout(neo), out);
}

/* ---- Directories ------------------------------------------------------------------ */

/* 0 if it is one, and no link to one; -ENOENT if there is none. */
static int check_directory(const struct ki_sys *sys, const char *path)
{
	struct ki_file_info info;
	int err = sys->lstat(sys, path, &info);

	if (err == -ENOTDIR || (!err && !S_ISDIR(info.mode)))
		err = -ENOENT;
	return err;
}

int ki_neo_check_fans(const struct ki_neo *neo, const char *name)
{
	char path[KI_PATH_MAX];
	int err = strchr(name, '/') ? ki_neo_path(neo, name, path) : 0;

	for (size_t i = 0; !err && name[i]; i++) {
		char *end = path + neo->directory_size + 1 + i;

		if (name[i] != '/')
			continue;
		*end = '\0';
		err = check_directory(neo->sys, path);
		*end = '/';
	}
	return err;
}

int ki_neo_look_again(const struct ki_neo *neo, const char *name,
		      struct ki_file_info *out_info)
{
	char path[KI_PATH_MAX];
	int err = ki_neo_path(neo, name, path);

	if (!err)
		err = neo->sys->lstat(neo->sys, path, out_info);
	if (err == -ENOTDIR || (!err && !S_ISREG(out_info->mode)))
		err = -ENOENT;
	return err;
}

int ki_neo_look(const struct ki_neo *neo, const char *name,
		struct ki_file_info *out_info)
{
	int err = ki_neo_check_fans(neo, name);

	return err ? err : ki_neo_look_again(neo, name, out_info);
}

enum kiln_neo_layout ki_neo_detect(const struct ki_sys *sys,
				   const char *directory)
{
	char path[KI_PATH_MAX], name[2] = { 0 };

	for (unsigned i = 0; i < N_DIGITS; i++) {
		name[0] = digits[i];
		if (!ki_path_join(path, directory, name) &&
		    !check_directory(sys, path))
			return KILN_NEO_TREE;
	}
	return KILN_NEO_FLAT;
}

void ki_neo_detect_again(struct ki_neo *neo)
{
	if (neo->is_detected && ki_neo_layout(neo) == KILN_NEO_FLAT &&
	    ki_neo_detect(neo->sys, neo->directory) == KILN_NEO_TREE)
		__atomic_store_n(&neo->layout, KILN_NEO_TREE, __ATOMIC_RELAXED);
}

static int make_directory(const struct ki_neo *neo, const char *path)
{
	const struct ki_sys *sys = neo->sys;
	int err = sys->mkdir(sys, path, 0775);

	if (!err && (neo->flags & KILN_OPEN_SHARED))
		err = sys->chmod(sys, path, 02770);
	if (err == -EEXIST) {
		err = check_directory(sys, path);
		if (err == -ENOENT)
			err = -ENOTDIR;
	}
	return err;
}

int ki_neo_make_directories(const struct ki_neo *neo, const char *name)
{
	char path[KI_PATH_MAX];
	const char *why = NULL;
	int err;

	if (ki_directory_check(neo->sys, neo->directory, neo->flags, 1, &why))
		return -EACCES;
	err = ki_neo_path(neo, name, path);
	for (size_t i = neo->directory_size + 1; !err && path[i]; i++) {
		if (path[i] != '/')
			continue;
		path[i] = '\0';
		err = make_directory(neo, path);
		path[i] = '/';
	}
	return err;
}

/* ---- Walking ----------------------------------------------------------------------- */

struct walk {
	const struct ki_neo *neo;
	enum kiln_neo_layout layout;
	ki_neo_visit_fn *visit;
	void *arg;
};

/* The root "", or "a/b": no link to one, for who follows that evicts somebody
   else's files. */
static int open_directory(const struct ki_neo *neo, const char *name,
			  struct ki_dir **out_dir)
{
	char path[KI_PATH_MAX];
	int err = ki_neo_path(neo, name, path);

	if (!err && *name)
		err = check_directory(neo->sys, path);
	return err ? err : neo->sys->opendir(neo->sys, path, out_dir);
}

static int walk_one(const struct walk *walk, const char *directory,
		    unsigned *out_fans)
{
	const struct ki_sys *sys = walk->neo->sys;
	const int is_root = !*directory;
	const int is_leftover = is_root && walk->layout == KILN_NEO_TREE;
	char name[KI_RECORDS_NAME_MAX + 1];
	size_t at = strlen(directory);
	struct ki_dir *dir;
	const char *base;
	int more, err = open_directory(walk->neo, directory, &dir);

	if (err)
		return err == -ENOENT ? 0 : err;
	memcpy(name, directory, at);
	if (!is_root)
		name[at++] = '/';
	while ((more = sys->readdir(sys, dir, &base)) > 0) {
		const size_t size = strlen(base);
		enum ki_neo_kind kind;

		if (at + size >= sizeof(name))
			continue;
		memcpy(name + at, base, size + 1);
		if (out_fans && is_digit(base))
			*out_fans |= 1u << (strchr(digits, *base) - digits);
		kind = ki_neo_kind_of(walk->layout, name);
		if (kind == KI_NEO_FOREIGN)
			continue;
		err = walk->visit(walk->arg, name, kind, is_leftover);
		if (err)
			break;
	}
	sys->closedir(sys, dir);
	return err ? err : more;
}

/* The sixteen directories in one of the root's. */
static int walk_fan(const struct walk *walk, char digit)
{
	char path[KI_PATH_MAX], name[] = { digit, '\0', '\0', '\0' };
	int has_unread = 0, err = ki_neo_path(walk->neo, name, path);

	if (!err)
		err = check_directory(walk->neo->sys, path);
	if (err)
		return err == -ENOENT ? 0 : err;
	name[1] = '/';
	for (unsigned i = 0; !err && i < N_DIGITS; i++) {
		name[2] = digits[i];
		err = walk_one(walk, name, NULL);
		has_unread |= err == -EACCES;
		if (err == -EACCES)
			err = 0;
	}
	return !err && has_unread ? -EACCES : err;
}

int ki_neo_walk(const struct ki_neo *neo, ki_neo_visit_fn *visit, void *arg)
{
	const struct walk walk = { neo, ki_neo_layout(neo), visit, arg };
	unsigned fans = 0;
	int has_unread = 0, err = walk_one(&walk, "", &fans);

	if (err == -EACCES)
		return -EPERM;
	for (unsigned i = 0; !err && i < N_DIGITS; i++) {
		if (fans & 1u << i)
			err = walk_fan(&walk, digits[i]);
		has_unread |= err == -EACCES;
		if (err == -EACCES)
			err = 0;
	}
	return !err && has_unread ? -EACCES : err;
}
