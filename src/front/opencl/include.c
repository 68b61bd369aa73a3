/* SPDX-License-Identifier: MIT */

/*
 * A walk over files, breadth first:
 *
 *	source -> scan -> directives -> places -> files -> scan -> ...
 *
 * Each place is looked at once, by its spelling.  A file is walked into once
 * for each folder that it is reached through, both known by device and inode:
 * includes are scanned without their conditionals, so guarded circles are
 * circles here, and "../a/x.h" in a/x.h would grow without end.
 *
 * Files are remembered with their scans; see KI_CL_SETTLE_NS for which.
 */

#include "front/opencl/include.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/hash.h"
#include "base/map.h"
#include "front/opencl/expand.h"
#include "front/opencl/scan.h"

/* ---- Files ----------------------------------------------------------- */

/* A file's content: counted, shared between keys. */
struct file {
	/* Fixed once made. */
	struct ki_file_info info;
	uint8_t digest[KI_BLAKE2B_BYTES];
	struct ki_cl_scan scan;
	/* Under includes->mutex. */
	size_t refs;
};

struct ki_cl_includes {
	const struct ki_sys *sys;
	struct ki_mutex mutex;
	/* Under mutex. */
	struct ki_map files; /* by device and inode, mixed */
	uint64_t n_read;
};

static void file_unref(struct ki_cl_includes *includes, struct file *file)
{
	int is_last;

	ki_mutex_lock(&includes->mutex);
	is_last = !--file->refs;
	ki_mutex_unlock(&includes->mutex);
	if (is_last) {
		ki_cl_scan_fini(&file->scan);
		free(file);
	}
}

struct ki_cl_includes *ki_cl_includes_new(const struct ki_sys *sys)
{
	struct ki_cl_includes *includes = calloc(1, sizeof(*includes));

	if (!includes)
		return NULL;
	includes->sys = sys;
	ki_mutex_init(&includes->mutex, KI_RANK_KEY);
	ki_map_init(&includes->files);
	return includes;
}

static void forget_all(struct ki_cl_includes *includes)
{
	struct ki_map old;
	struct file *file;
	size_t position = 0;

	ki_mutex_lock(&includes->mutex);
	old = includes->files;
	ki_map_init(&includes->files);
	ki_mutex_unlock(&includes->mutex);
	while ((file = ki_map_next(&old, &position)))
		file_unref(includes, file);
	ki_map_fini(&old);
}

void ki_cl_includes_free(struct ki_cl_includes *includes)
{
	if (!includes)
		return;
	forget_all(includes);
	ki_mutex_fini(&includes->mutex);
	free(includes);
}

size_t ki_cl_includes_remembered(struct ki_cl_includes *includes)
{
	size_t n;

	ki_mutex_lock(&includes->mutex);
	n = includes->files.n_used;
	ki_mutex_unlock(&includes->mutex);
	return n;
}

uint64_t ki_cl_includes_read(struct ki_cl_includes *includes)
{
	uint64_t n;

	ki_mutex_lock(&includes->mutex);
	n = includes->n_read;
	ki_mutex_unlock(&includes->mutex);
	return n;
}

static uintptr_t file_slot(const struct ki_file_info *info)
{
	uint64_t identity[2] = { info->device, info->inode };
	uintptr_t slot = (uintptr_t)ki_xxh3_64(identity, sizeof(identity));

	return slot ? slot : 1;
}

static int is_same_file(const struct ki_file_info *a,
			const struct ki_file_info *b)
{
	return a->device == b->device && a->inode == b->inode;
}

static int is_unchanged(const struct ki_file_info *a,
			const struct ki_file_info *b)
{
	return is_same_file(a, b) && a->size == b->size &&
	       a->mtime_ns == b->mtime_ns && a->ctime_ns == b->ctime_ns;
}

/* Whether a change after `now` is bound to leave other times behind. */
static int is_settled(const struct ki_file_info *info, uint64_t now)
{
	int64_t settled = (int64_t)now - KI_CL_SETTLE_NS;

	return info->mtime_ns < settled && info->ctime_ns < settled;
}

static struct file *recall(struct ki_cl_includes *includes,
			   const struct ki_file_info *info)
{
	struct file *file;

	ki_mutex_lock(&includes->mutex);
	file = ki_map_get(&includes->files, file_slot(info));
	if (file && is_unchanged(&file->info, info))
		file->refs++;
	else
		file = NULL;
	ki_mutex_unlock(&includes->mutex);
	return file;
}

static void remember(struct ki_cl_includes *includes, struct file *file)
{
	struct file *before;

	if (ki_cl_includes_remembered(includes) >= KI_CL_REMEMBERED_MAX)
		forget_all(includes);
	ki_mutex_lock(&includes->mutex);
	before = ki_map_get(&includes->files, file_slot(&file->info));
	file->refs++;
	if (ki_map_put(&includes->files, file_slot(&file->info), file)) {
		file->refs--;
		before = NULL;
	}
	ki_mutex_unlock(&includes->mutex);
	if (before)
		file_unref(includes, before);
}

static int read_at_once(const struct ki_sys *sys, const char *path,
			struct ki_file_info *out_info, char **out_text)
{
	struct ki_file_info after;
	char *text = NULL, more;
	int fd, err;

	fd = sys->open(sys, path, KI_OPEN_READ, 0);
	if (fd < 0)
		return fd;
	err = sys->fstat(sys, fd, out_info);
	if (err)
		goto out;
	if (!S_ISREG(out_info->mode)) {
		err = -EINVAL;
		goto out;
	}
	if (out_info->size > KI_CL_INCLUDE_FILE_BYTES_MAX) {
		err = -EFBIG;
		goto out;
	}
	text = malloc((size_t)out_info->size + 1);
	err = text ? ki_pread_all(sys, fd, text, (size_t)out_info->size, 0)
		   : -ENOMEM;
	/* Files of /proc have no size, and more in them. */
	if (!err && sys->pread(sys, fd, &more, 1, out_info->size))
		err = -EAGAIN;
	if (!err)
		err = sys->fstat(sys, fd, &after);
	if (!err && !is_unchanged(out_info, &after))
		err = -EAGAIN;
out:
	(void)sys->close(sys, fd);
	if (err)
		free(text);
	else
		*out_text = text;
	return err;
}

/* Read and scan a file.  One that is being written is not waited for. */
static int read_file(struct ki_cl_includes *includes, const char *path,
		     struct file **out_file)
{
	const struct ki_sys *sys = includes->sys;
	uint64_t now = sys->realtime_ns(sys);
	struct file *file = calloc(1, sizeof(*file));
	char *text;
	int err;

	if (!file)
		return -ENOMEM;
	err = read_at_once(sys, path, &file->info, &text);
	if (err) {
		free(file);
		return err;
	}
	file->refs = 1;
	ki_blake2b(text, (size_t)file->info.size, file->digest);
	ki_cl_scan_init(&file->scan);
	ki_cl_scan_text(&file->scan, text, (size_t)file->info.size);
	free(text);
	ki_mutex_lock(&includes->mutex);
	includes->n_read++;
	ki_mutex_unlock(&includes->mutex);
	if (!file->scan.failed && is_settled(&file->info, now))
		remember(includes, file);
	*out_file = file;
	return 0;
}

/* 0 with a file, or why there is none. */
static int get_file(struct ki_cl_includes *includes, const char *path,
		    struct file **out_file)
{
	struct ki_file_info info;
	int err = includes->sys->stat(includes->sys, path, &info);

	if (err)
		return err;
	if (S_ISDIR(info.mode))
		return -EISDIR;
	if (!S_ISREG(info.mode))
		return -EINVAL;
	*out_file = recall(includes, &info);
	return *out_file ? 0 : read_file(includes, path, out_file);
}

/* ---- The walk -------------------------------------------------------- */

/* A file that was found, and where. */
struct found {
	struct file *file;
	struct ki_file_info folder_info;
	char *folder; /* to open with, "" or ending in '/' */
	char *label;  /* the same as the key has it */
	unsigned depth;
};

/* The first place of a file. */
struct hit {
	struct ki_file_info info;
	char *place;
};

struct walk {
	struct ki_cl_includes *includes;
	const struct ki_cl_search *search;
	struct kiln_key *key;
	struct ki_map seen; /* places, by their hash or a free slot behind */
	size_t n_seen;
	struct found *found;
	size_t n_found;
	struct hit *hits;
	size_t n_hits;
	uint64_t bytes;
	uint64_t stamp;		     /* of the files found, in order */
	struct ki_cl_words expanded; /* words of computed includes */
	unsigned flags;		     /* KI_CL_SCAN_*, of all texts */
	enum kiln_counter reason;
	enum kiln_status status;
};

static void refuse(struct walk *walk, enum kiln_counter reason)
{
	if (walk->status)
		return;
	walk->status = KILN_E_UNSUPPORTED;
	walk->reason = reason;
}

static void fail(struct walk *walk, int err)
{
	if (err == -ENOMEM)
		walk->status = KILN_E_NO_MEMORY;
	else if (err)
		refuse(walk, KILN_COUNT_MISS_UNRESOLVED);
}

/* The label of a field: what does not fit is replaced by a digest. */
static void label_of(char label[KILN_LABEL_BYTES_MAX + 1], const char *kind,
		     const char *path)
{
	uint8_t digest[KI_BLAKE2B_BYTES];
	char hex[2 * KI_BLAKE2B_BYTES + 1];
	int n;

	n = snprintf(label, KILN_LABEL_BYTES_MAX + 1, "%s%s", kind, path);
	if (n >= 0 && (size_t)n <= KILN_LABEL_BYTES_MAX)
		return;
	ki_blake2b(path, strlen(path), digest);
	ki_hex(digest, sizeof(digest), hex);
	snprintf(label, KILN_LABEL_BYTES_MAX + 1, "%.20s%.120s...%s", kind,
		 path, hex);
}

static char *folder_of(const char *path)
{
	const char *slash = strrchr(path, '/');

	return strndup(path, slash ? (size_t)(slash - path) + 1 : 0);
}

static int folder_info_of(struct walk *walk, const char *folder,
			  struct ki_file_info *out_info)
{
	const struct ki_sys *sys = walk->includes->sys;

	return sys->stat(sys, *folder ? folder : ".", out_info);
}

static void add_hit(struct walk *walk, const struct ki_file_info *info,
		    const char *place)
{
	struct hit *grown =
		realloc(walk->hits, (walk->n_hits + 1) * sizeof(*grown));
	char *copy = strdup(place);

	if (grown)
		walk->hits = grown;
	if (!grown || !copy) {
		free(copy);
		fail(walk, -ENOMEM);
		return;
	}
	walk->hits[walk->n_hits++] =
		(struct hit){ .info = *info, .place = copy };
}

/*
 * Two names of one file are not two files with the same bytes: #pragma once
 * takes only the former for one.  So a place that has a file found before
 * tells where.
 */
static void add_alias(struct walk *walk, const struct ki_file_info *info,
		      const char *place)
{
	char label[KILN_LABEL_BYTES_MAX + 1];
	size_t i;

	for (i = 0; i < walk->n_hits; i++)
		if (is_same_file(&walk->hits[i].info, info))
			break;
	if (i == walk->n_hits) {
		add_hit(walk, info, place);
		return;
	}
	label_of(label, "include same ", place);
	kiln_key_add_string(walk->key, label, walk->hits[i].place);
}

/* Whether this file was walked into through the same folder. */
static int is_walked(const struct walk *walk, const struct file *file,
		     const struct ki_file_info *folder)
{
	size_t i;

	for (i = 0; i < walk->n_found; i++)
		if (is_same_file(&walk->found[i].file->info, &file->info) &&
		    is_same_file(&walk->found[i].folder_info, folder))
			return 1;
	return 0;
}

/* Queue a file.  Takes the reference in both outcomes. */
static void walk_into(struct walk *walk, struct file *file, const char *path,
		      const char *label, unsigned depth)
{
	struct found found = { .file = file, .depth = depth };
	struct found *grown;
	int err;

	found.folder = folder_of(path);
	found.label = folder_of(label);
	grown = realloc(walk->found,
			(walk->n_found + 1) * sizeof(*walk->found));
	if (grown)
		walk->found = grown;
	if (!grown || !found.folder || !found.label)
		err = -ENOMEM;
	else
		err = folder_info_of(walk, found.folder, &found.folder_info);
	if (err || is_walked(walk, file, &found.folder_info)) {
		free(found.folder);
		free(found.label);
		file_unref(walk->includes, file);
		fail(walk, err);
		return;
	}
	walk->found[walk->n_found++] = found;
}

/* 1: looked at before; 0: not, and noted now; -ENOMEM. */
static int see(struct walk *walk, const char *place)
{
	uintptr_t slot = (uintptr_t)ki_xxh3_64(place, strlen(place));
	const char *there;
	char *copy;

	for (;; slot++) {
		if (!slot)
			slot++;
		there = ki_map_get(&walk->seen, slot);
		if (!there)
			break;
		if (!strcmp(there, place))
			return 1;
	}
	copy = strdup(place);
	if (!copy || ki_map_put(&walk->seen, slot, copy)) {
		free(copy);
		return -ENOMEM;
	}
	walk->n_seen++;
	return 0;
}

static void stamp(struct walk *walk, const struct ki_file_info *info)
{
	const uint64_t times[] = { walk->stamp,
				   info->device,
				   info->inode,
				   info->size,
				   (uint64_t)info->mtime_ns,
				   (uint64_t)info->ctime_ns };

	walk->stamp = ki_xxh3_64(times, sizeof(times));
}

enum doubt { CERTAIN, DOUBTFUL };

/* Look at one place and put into the key what is there. */
static void look_at(struct walk *walk, enum doubt doubt, const char *path,
		    const char *place, unsigned depth)
{
	char label[KILN_LABEL_BYTES_MAX + 1];
	struct file *file;
	int err;

	if (walk->status)
		return;
	err = see(walk, place);
	if (err) {
		fail(walk, err < 0 ? err : 0);
		return;
	}
	if (walk->n_seen > KI_CL_INCLUDE_FILES_MAX) {
		refuse(walk, KILN_COUNT_MISS_UNRESOLVED);
		return;
	}
	label_of(label, "include ", place);
	err = get_file(walk->includes, path, &file);
	if (err == -ENOENT || err == -ENOTDIR || err == -EISDIR) {
		if (doubt == CERTAIN)
			kiln_key_add_absent(walk->key, label);
		return;
	}
	if (err) {
		fail(walk, err);
		return;
	}
	kiln_key_add_known_digest(walk->key, label, file->info.size,
				  file->digest);
	add_alias(walk, &file->info, place);
	stamp(walk, &file->info);
	walk->bytes += file->info.size;
	if (walk->bytes > KI_CL_INCLUDE_BYTES_MAX ||
	    depth > KI_CL_INCLUDE_DEPTH_MAX) {
		file_unref(walk->includes, file);
		refuse(walk, KILN_COUNT_MISS_UNRESOLVED);
		return;
	}
	walk_into(walk, file, path, place, depth);
}

/* FOLDER/NAME, for a folder from options ("" is none). */
static void look_in(struct walk *walk, enum doubt doubt, const char *folder,
		    const char *folder_label, const char *name, unsigned depth)
{
	size_t size = strlen(folder);
	const char *slash = size && folder[size - 1] != '/' ? "/" : "";
	char path[KI_PATH_MAX], place[KI_PATH_MAX];
	int n, m;

	n = snprintf(path, sizeof(path), "%s%s%s", folder, slash, name);
	m = snprintf(place, sizeof(place), "%s%s%s", folder_label, slash, name);
	if (n < 0 || (size_t)n >= sizeof(path) || m < 0 ||
	    (size_t)m >= sizeof(place))
		refuse(walk, KILN_COUNT_MISS_UNRESOLVED);
	else
		look_at(walk, doubt, path, place, depth);
}

/* Whether a name leads out of the folder that it is looked for in. */
static int leads_out(const char *name)
{
	size_t size;
	int depth = 0;

	for (; *name && depth >= 0; name += size + (name[size] == '/')) {
		size = strcspn(name, "/");
		if (size == 2 && !memcmp(name, "..", 2))
			depth--;
		else if (size && (size != 1 || *name != '.'))
			depth++;
	}
	return depth < 0;
}

/* Every place where `name`, included from `from` (NULL: the source), may be. */
static void look_for(struct walk *walk, char mark, const char *name,
		     const char *folder, const char *folder_label,
		     unsigned depth)
{
	const struct ki_cl_search *search = walk->search;
	const struct ki_cl_words *words;
	char driver_label[32] = "(driver)";
	size_t i;

	if (*name == '/') {
		look_at(walk, CERTAIN, name, name, depth);
		return;
	}
	if (search->has_header_files && leads_out(name)) {
		refuse(walk, KILN_COUNT_MISS_UNRESOLVED);
		return;
	}
	if (mark == '"' && *folder)
		look_in(walk, CERTAIN, folder, folder_label, name, depth);
	look_at(walk, CERTAIN, name, name, depth);
	words = &search->options->directories;
	for (i = 0; i < words->n; i++)
		look_in(walk, CERTAIN, words->words[i], words->words[i], name,
			depth);
	words = &search->options->doubtful_directories;
	for (i = 0; i < words->n; i++)
		look_in(walk, DOUBTFUL, words->words[i], words->words[i], name,
			depth);
	for (i = 0; i < search->n_driver_folders; i++) {
		if (i)
			snprintf(driver_label, sizeof(driver_label),
				 "(driver %zu)", i + 1);
		look_in(walk, DOUBTFUL, search->driver_folders[i], driver_label,
			name, depth);
	}
}

static void check_flags(struct walk *walk, const struct ki_cl_scan *scan)
{
	if (scan->failed)
		fail(walk, scan->failed);
	if (scan->flags & KI_CL_SCAN_UNCLEAR)
		refuse(walk, KILN_COUNT_MISS_UNRESOLVED);
	if (scan->flags & KI_CL_SCAN_DIRECTIVE)
		refuse(walk, KILN_COUNT_MISS_DIRECTIVE);
	if (scan->flags & KI_CL_SCAN_TIME)
		refuse(walk, KILN_COUNT_MISS_TIME_MACRO);
	walk->flags |= scan->flags;
}

/* An include whose name is to be made by macros. */
static void look_for_computed(struct walk *walk, const char *text,
			      const char *folder, const char *folder_label,
			      unsigned depth)
{
	char *name;
	int err = ki_cl_expand(walk->search->options, text, &walk->expanded,
			       &name);

	if (err) {
		fail(walk, err);
		return;
	}
	look_for(walk, *name, name + 1, folder, folder_label, depth);
	free(name);
}

static void walk_scan(struct walk *walk, const struct ki_cl_scan *scan,
		      const char *folder, const char *folder_label,
		      unsigned depth)
{
	const char *word;
	size_t i;

	check_flags(walk, scan);
	for (i = 0; i < scan->includes.n && !walk->status; i++) {
		word = scan->includes.words[i];
		if (*word == '=')
			look_for_computed(walk, word + 1, folder, folder_label,
					  depth + 1);
		else
			look_for(walk, *word, word + 1, folder, folder_label,
				 depth + 1);
	}
}

/* Computed includes were expanded with what the options define: no text may
   define any of those words again. */
static void check_expanded(struct walk *walk, const struct ki_cl_scan *scan)
{
	size_t i;

	for (i = 0; i < walk->expanded.n && !walk->status; i++)
		if (ki_cl_scan_defines(scan, walk->expanded.words[i],
				       strlen(walk->expanded.words[i])))
			refuse(walk, KILN_COUNT_MISS_UNRESOLVED);
}

static void check_driver_headers(struct walk *walk)
{
	struct file *file;
	size_t i;
	int err;

	for (i = 0; i < walk->search->n_driver_headers; i++) {
		err = get_file(walk->includes, walk->search->driver_headers[i],
			       &file);
		if (!err) {
			check_expanded(walk, &file->scan);
			file_unref(walk->includes, file);
		} else if (err != -ENOENT) {
			fail(walk, err);
		}
	}
}

/* What the options' macros bring into the texts. */
static void check_macros(struct walk *walk)
{
	const struct ki_cl_words *macros = &walk->search->options->macros;
	struct ki_cl_scan scan;
	size_t i;

	ki_cl_scan_init(&scan);
	for (i = 0; i < macros->n; i++)
		ki_cl_scan_text(&scan, macros->words[i],
				strlen(macros->words[i]));
	walk->flags |= scan.flags & (KI_CL_SCAN_ASM | KI_CL_SCAN_ASM_READS);
	fail(walk, scan.failed);
	ki_cl_scan_fini(&scan);
}

static void walk_all(struct walk *walk, const struct ki_cl_scan *texts,
		     size_t n_texts)
{
	const struct ki_cl_words *files = &walk->search->options->files;
	struct found found;
	size_t i;

	for (i = 0; i < files->n; i++)
		look_for(walk, '"', files->words[i], "", "", 1);
	check_macros(walk);
	for (i = 0; i < n_texts; i++)
		walk_scan(walk, &texts[i], "", "", 0);
	for (i = 0; i < walk->n_found && !walk->status; i++) {
		found = walk->found[i];
		walk_scan(walk, &found.file->scan, found.folder, found.label,
			  found.depth);
	}
	if (walk->expanded.n && (walk->flags & KI_CL_SCAN_MACRO_STACK))
		refuse(walk, KILN_COUNT_MISS_UNRESOLVED);
	if ((walk->flags & KI_CL_SCAN_ASM) &&
	    (walk->flags & KI_CL_SCAN_ASM_READS))
		refuse(walk, KILN_COUNT_MISS_UNRESOLVED);
	for (i = 0; i < n_texts; i++)
		check_expanded(walk, &texts[i]);
	for (i = 0; i < walk->n_found; i++)
		check_expanded(walk, &walk->found[i].file->scan);
	if (walk->expanded.n && !walk->status)
		check_driver_headers(walk);
}

static void walk_fini(struct walk *walk)
{
	size_t i, position = 0;
	char *place;

	for (i = 0; i < walk->n_found; i++) {
		file_unref(walk->includes, walk->found[i].file);
		free(walk->found[i].folder);
		free(walk->found[i].label);
	}
	free(walk->found);
	for (i = 0; i < walk->n_hits; i++)
		free(walk->hits[i].place);
	free(walk->hits);
	while ((place = ki_map_next(&walk->seen, &position)))
		free(place);
	ki_map_fini(&walk->seen);
	ki_cl_words_fini(&walk->expanded);
}

enum kiln_status ki_cl_includes_add_texts(struct ki_cl_includes *includes,
					  const struct ki_cl_search *search,
					  const struct ki_cl_text *texts,
					  size_t n_texts, struct kiln_key *key,
					  enum kiln_counter *out_reason)
{
	struct walk walk = { .includes = includes,
			     .search = search,
			     .key = key };
	struct ki_cl_scan *scans = calloc(n_texts + 1, sizeof(*scans));
	size_t i;

	if (!scans)
		return KILN_E_NO_MEMORY;
	ki_map_init(&walk.seen);
	for (i = 0; i < n_texts; i++) {
		ki_cl_scan_init(&scans[i]);
		ki_cl_scan_text(&scans[i], texts[i].text, texts[i].size);
	}
	fail(&walk, search->options->failed);
	if (search->options->opaque)
		refuse(&walk, KILN_COUNT_MISS_UNRESOLVED);
	walk_all(&walk, scans, n_texts);
	walk_fini(&walk);
	for (i = 0; i < n_texts; i++)
		ki_cl_scan_fini(&scans[i]);
	free(scans);
	if (walk.status == KILN_E_UNSUPPORTED)
		*out_reason = walk.reason;
	if (search->out_stamp)
		*search->out_stamp = walk.stamp;
	return walk.status;
}

enum kiln_status ki_cl_includes_add(struct ki_cl_includes *includes,
				    const struct ki_cl_search *search,
				    const char *source, size_t size,
				    struct kiln_key *key,
				    enum kiln_counter *out_reason)
{
	struct ki_cl_text text = { .text = source, .size = size };

	return ki_cl_includes_add_texts(includes, search, &text, 1, key,
					out_reason);
}
