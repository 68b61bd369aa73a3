/* SPDX-License-Identifier: MIT */

/*
 * Counting what lies in the directory.
 *
 * The bound is a sum over the directory, taken anew each time: nothing that a
 * killed process left can be missed, and nothing is trusted.  Under byte 0 a
 * passing name is always someone's leftover.
 */

#include "store/log/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "store/quotas.h"

uint64_t ki_log_other_bytes(void)
{
	return KI_COUNTERS_BYTES + KI_LOCKS_BYTES + LOG_SLACK_BYTES;
}

/* "0000002a.val" */
static int parse_number(const char *text, uint32_t *out_number)
{
	uint32_t number = 0;
	int i;

	for (i = 0; i < 8; i++) {
		char c = text[i];

		if (c >= '0' && c <= '9')
			number = number << 4 | (uint32_t)(c - '0');
		else if (c >= 'a' && c <= 'f')
			number = number << 4 | (uint32_t)(c - 'a' + 10);
		else
			return 0;
	}
	*out_number = number;
	return !strcmp(text + 8, ".val");
}

/* "src.0000002a.val" */
int ki_log_is_source(const char *rest, uint32_t *out_number)
{
	return !strncmp(rest, "src.", 4) && parse_number(rest + 4, out_number);
}

/* "tmp.1234.5"; other things may belong to a store named NAME.tmp. */
static int is_temporary(const char *rest)
{
	size_t n;

	if (strncmp(rest, "tmp.", 4))
		return 0;
	rest += 4;
	n = strspn(rest, "0123456789");
	if (!n || rest[n] != '.')
		return 0;
	rest += n + 1;
	n = strspn(rest, "0123456789");
	return n && !rest[n];
}

static int add_file(struct log_file **files, size_t *n, size_t *n_max,
		    const struct log_file *file)
{
	size_t n_more = *n_max ? *n_max * 2 : 64;
	struct log_file *more;

	if (*n == *n_max) {
		more = realloc(*files, n_more * sizeof(*more));
		if (!more)
			return -ENOMEM;
		*files = more;
		*n_max = n_more;
	}
	(*files)[(*n)++] = *file;
	return 0;
}

int ki_log_census_add(struct log_census *census, uint32_t number, uint64_t size,
		      uint64_t bytes, uint64_t inode)
{
	const struct log_file file = {
		.number = number, .size = size, .bytes = bytes, .inode = inode
	};

	return add_file(&census->files, &census->n_files, &census->n_files_max,
			&file);
}

int ki_log_census_add_source(struct log_census *census, uint32_t number,
			     const struct ki_file_info *info)
{
	const struct log_file file = { .number = number,
				       .size = info->size,
				       .bytes = ki_log_counted(info) };
	int err = add_file(&census->sources, &census->n_sources,
			   &census->n_sources_max, &file);

	if (!err)
		census->bytes += file.bytes;
	return err;
}

uint64_t ki_log_counted(const struct ki_file_info *info)
{
	return info->size > info->blocks_bytes ? info->size
					       : info->blocks_bytes;
}

/* The files of a directory inside ours (damaged entries). */
static int count_inside(const struct ki_sys *sys, const char *path,
			uint64_t *bytes)
{
	struct ki_file_info info;
	struct ki_dir *dir;
	const char *name;
	int err = sys->opendir(sys, path, &dir);

	if (err)
		return err;
	while ((err = sys->readdir(sys, dir, &name)) > 0) {
		err = sys->lstat_in(sys, dir, name, &info);
		if (err && err != -ENOENT)
			break;
		if (!err && S_ISREG(info.mode))
			*bytes += ki_log_counted(&info);
	}
	sys->closedir(sys, dir);
	return err;
}

/* One name of the directory; `rest` is what follows "NAME.". */
static int take(struct ki_log *log, struct ki_dir *dir, const char *name,
		const char *rest, int clean, struct log_census *census)
{
	const struct ki_sys *sys = log->sys;
	struct ki_file_info info;
	char path[KI_PATH_MAX];
	uint32_t number;
	int err;

	err = sys->lstat_in(sys, dir, name, &info);
	if (err)
		return err == -ENOENT ? 0 : err;
	if (!strcmp(rest, "quarantine") && S_ISDIR(info.mode) &&
	    !(log->flags & KILN_OPEN_OWN_FILES)) {
		err = ki_path_join(path, log->directory, name);
		if (!err)
			err = count_inside(sys, path,
					   &census->quarantine_bytes);
		census->bytes += census->quarantine_bytes;
		return err;
	}
	if (!S_ISREG(info.mode))
		return 0;
	if (is_temporary(rest) && clean &&
	    !ki_path_join(path, log->directory, name) &&
	    !sys->unlink(sys, path)) {
		census->n_cleaned++;
		return 0;
	}
	if (!strcmp(rest, "spare") && info.n_links > 1) {
		/* A segment by now, whose old name was left: none to use. */
		if (clean && !ki_path_join(path, log->directory, name) &&
		    !sys->unlink(sys, path))
			census->n_cleaned++;
	} else if (!strcmp(rest, "spare")) {
		census->has_spare = 1;
		census->spare_size = info.size;
		census->spare_bytes = ki_log_counted(&info);
		census->bytes += ki_log_counted(&info);
	} else if (parse_number(rest, &number)) {
		err = ki_log_census_add(census, number, info.size,
					ki_log_counted(&info),
					info.n_links > 1 ? info.inode : 0);
		if (!err)
			census->files[census->n_files - 1].mtime_ns =
				info.mtime_ns;
		return err;
	} else if (ki_log_is_source(rest, &number)) {
		return ki_log_census_add_source(census, number, &info);
	} else if (!strcmp(rest, KI_QUOTAS_END)) {
		census->has_quotas = 1;
		census->bytes += ki_log_counted(&info);
	} else if (!strcmp(rest, "idx") ||
		   (is_temporary(rest) && info.n_links == 1)) {
		/* With more links it counts under its other name. */
		census->bytes += ki_log_counted(&info);
	}
	return 0;
}

static int older_first(const void *a, const void *b)
{
	const struct log_file *x = a, *y = b;

	return x->number == y->number		     ? 0
	       : log_is_before(x->number, y->number) ? -1
						     : 1;
}

/* A large file that is being moved has two names for a moment, and for longer
   if the mover dies. */
static int has_inode(const struct log_census *census, size_t n, uint64_t inode)
{
	size_t i;

	for (i = 0; inode && i < n; i++)
		if (census->files[i].inode == inode)
			return 1;
	return 0;
}

int ki_log_census_has_inode(const struct log_census *census, uint64_t inode)
{
	return has_inode(census, census->n_files, inode);
}

void ki_log_census_remove(struct log_census *census, size_t i)
{
	struct log_file file = census->files[i];

	census->n_files--;
	memmove(census->files + i, census->files + i + 1,
		(census->n_files - i) * sizeof(*census->files));
	if (!ki_log_census_has_inode(census, file.inode))
		census->bytes -= file.bytes;
}

static void count_segments(struct log_census *census)
{
	size_t i;

	for (i = 0; i < census->n_files; i++)
		if (!has_inode(census, i, census->files[i].inode))
			census->bytes += census->files[i].bytes;
}

enum kiln_status ki_log_census_take(struct ki_log *log, int clean,
				    struct log_census *out_census)
{
	const struct ki_sys *sys = log->sys;
	size_t name_size = strlen(log->name);
	struct ki_dir *dir;
	const char *name;
	int err;

	*out_census = (struct log_census){
		.bytes = KI_COUNTERS_BYTES + KI_LOCKS_BYTES,
		.move_bytes_left = UINT64_MAX,
	};
	err = sys->opendir(sys, log->directory, &dir);
	if (err)
		return ki_log_status(err);
	while ((err = sys->readdir(sys, dir, &name)) > 0) {
		if (strncmp(name, log->name, name_size) ||
		    name[name_size] != '.')
			continue;
		err = take(log, dir, name, name + name_size + 1, clean,
			   out_census);
		if (err)
			break;
	}
	sys->closedir(sys, dir);
	if (err) {
		ki_log_census_fini(out_census);
		return ki_log_status(err);
	}
	if (out_census->n_files)
		qsort(out_census->files, out_census->n_files,
		      sizeof(*out_census->files), older_first);
	if (out_census->n_sources)
		qsort(out_census->sources, out_census->n_sources,
		      sizeof(*out_census->sources), older_first);
	count_segments(out_census);
	return KILN_OK;
}

void ki_log_census_fini(struct log_census *census)
{
	free(census->files);
	census->files = NULL;
	census->n_files = 0;
	free(census->sources);
	census->sources = NULL;
	census->n_sources = 0;
}
