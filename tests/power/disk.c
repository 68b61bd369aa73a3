/* SPDX-License-Identifier: MIT */

/*
 * Files have numbers from 1; a name leads to a number.  Every change is an
 * event, and its number is its time.  Event 0 is the beginning.
 */

#include "power/disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/harness.h"
#include "harness/interpose.h"

#define PAGE   4096u
#define SECTOR 512u

enum what { WRITE, RESERVE, DIRECTORY, NAME, RENAME, REMOVE };

struct disk_event {
	enum what what;
	unsigned file;
	char *path;	 /* NAME, RENAME: the new one; REMOVE: the old one */
	char *from;	 /* RENAME */
	uint64_t offset; /* WRITE, RESERVE */
	uint64_t size;
	uint8_t *data; /* WRITE */
};

struct disk_file {
	unsigned synced; /* before this time */
	unsigned mode;
	uint64_t inode; /* as the store is told */
	struct timespec written;
};

/* A file after the loss, until a disk is begun there. */
struct kept {
	char *path;
	uint64_t inode;
	struct timespec written;
};

static struct kept *kept;
static unsigned n_kept;
static uint64_t last_inode;

struct disk_name {
	char *path; /* below the root */
	unsigned file;
};

struct disk_mapping {
	uint8_t *data;
	uint8_t *seen;
	size_t size;
	uint64_t offset;
	unsigned file;
};

/* ---- Memory ------------------------------------------------------------------ */

static void *checked(void *data)
{
	if (!data)
		abort();
	return data;
}

/* One more of an array that grows by doubling. */
#define APPEND(array, n)                                                       \
	(((n) & ((n)-1))                                                       \
		 ? (void)0                                                     \
		 : (void)((array) = checked(realloc(                           \
				  (array),                                     \
				  ((n) ? 2 * (n) : 1) * sizeof(*(array))))),   \
	 &(array)[(n)++])

static char *copy_string(const char *string)
{
	return checked(strdup(string));
}

/* ---- Names ------------------------------------------------------------------- */

/* The part below the root; NULL for what lies elsewhere. */
static const char *below(const struct disk *disk, const char *path)
{
	size_t size = strlen(disk->root);

	return !strncmp(path, disk->root, size) && path[size] == '/'
		       ? path + size + 1
		       : NULL;
}

struct names {
	struct disk_name *names;
	unsigned n;
};

static struct disk_name *find(const struct names *names, const char *path)
{
	for (unsigned i = 0; i < names->n; i++)
		if (!strcmp(names->names[i].path, path))
			return &names->names[i];
	return NULL;
}

static void set_name(struct names *names, const char *path, unsigned file)
{
	struct disk_name *name = find(names, path);

	if (!name) {
		name = APPEND(names->names, names->n);
		name->path = copy_string(path);
	}
	name->file = file;
}

/* Only if it still leads there. */
static void clear_name(struct names *names, const char *path, unsigned file)
{
	struct disk_name *name = find(names, path);

	if (!name || name->file != file)
		return;
	free(name->path);
	*name = names->names[--names->n];
}

static void free_names(struct names *names)
{
	while (names->n)
		free(names->names[--names->n].path);
	free(names->names);
}

static void apply(struct names *names, const struct disk_event *event)
{
	switch (event->what) {
	case NAME:
	case DIRECTORY:
		set_name(names, event->path, event->file);
		break;
	case RENAME:
		set_name(names, event->path, event->file);
		clear_name(names, event->from, event->file);
		break;
	case REMOVE:
		clear_name(names, event->path, event->file);
		break;
	default:
		break;
	}
}

/* ---- Writing down ------------------------------------------------------------ */

static struct disk *disk_of(const struct ki_sys *sys)
{
	return (struct disk *)(uintptr_t)sys;
}

static struct disk_event *note(struct disk *disk, enum what what, unsigned file)
{
	struct disk_event *event = APPEND(disk->events, disk->n_events);

	*event = (struct disk_event){ .what = what, .file = file };
	return event;
}

static void note_bytes(struct disk *disk, unsigned file, uint64_t offset,
		       const void *data, uint64_t size)
{
	struct disk_event *event = note(disk, WRITE, file);

	event->offset = offset;
	event->size = size;
	event->data = checked(malloc(size ? size : 1));
	memcpy(event->data, data, size);
}

static void note_name(struct disk *disk, enum what what, unsigned file,
		      const char *from, const char *path)
{
	struct names now = { disk->names, disk->n_names };
	struct disk_event *event = note(disk, what, file);

	event->path = copy_string(path);
	event->from = from ? copy_string(from) : NULL;
	apply(&now, event);
	disk->names = now.names;
	disk->n_names = now.n;
}

/* What was changed in mappings since the last look. */
static void note_mappings(struct disk *disk)
{
	for (unsigned i = 0; i < disk->n_mappings; i++) {
		struct disk_mapping *mapping = &disk->mappings[i];

		for (size_t at = 0; at < mapping->size; at += PAGE) {
			size_t size = mapping->size - at < PAGE
					      ? mapping->size - at
					      : PAGE;

			if (!memcmp(mapping->seen + at, mapping->data + at,
				    size))
				continue;
			memcpy(mapping->seen + at, mapping->data + at, size);
			note_bytes(disk, mapping->file, mapping->offset + at,
				   mapping->seen + at, size);
		}
	}
}

static unsigned new_file(struct disk *disk, unsigned mode)
{
	unsigned file = disk->n_files;

	*APPEND(disk->files, disk->n_files) =
		(struct disk_file){ .mode = mode, .inode = ++last_inode };
	return file;
}

static unsigned file_named(const struct disk *disk, const char *path)
{
	const struct names now = { disk->names, disk->n_names };
	const char *name = below(disk, path);
	const struct disk_name *found = name ? find(&now, name) : NULL;

	return found ? found->file : 0;
}

static unsigned file_of(const struct disk *disk, int fd)
{
	return fd >= 0 && fd < DISK_DESCRIPTORS ? disk->file_of[fd] : 0;
}

static void note_time(struct disk *disk, unsigned file, int fd)
{
	struct stat st;

	if (fstat(fd, &st))
		abort();
	disk->files[file].written = st.st_mtim;
}

/* ---- The calls --------------------------------------------------------------- */

static int disk_open(const struct ki_sys *sys, const char *path, unsigned flags,
		     unsigned mode)
{
	struct disk *disk = disk_of(sys);
	const char *name = below(disk, path);
	unsigned file;
	int fd;

	if (!strcmp(path, "/proc/sys/kernel/random/boot_id"))
		path = disk->boot_path;
	fd = real->open(real, path, flags, mode);
	if (fd < 0 || !name)
		return fd;
	note_mappings(disk);
	file = file_named(disk, path);
	if (!file && (flags & KI_OPEN_CREATE)) {
		file = new_file(disk, mode);
		note_name(disk, NAME, file, NULL, name);
	}
	if (fd >= DISK_DESCRIPTORS)
		abort();
	disk->file_of[fd] = file;
	return fd;
}

/* Nobody else is at work here: whoever waits has waited. */
static uint64_t slept_ns;

static void disk_sleep_ns(const struct ki_sys *sys, uint64_t ns)
{
	slept_ns += ns;
}

static uint64_t disk_monotonic_ns(const struct ki_sys *sys)
{
	return real->monotonic_ns(real) + slept_ns;
}

static int disk_close(const struct ki_sys *sys, int fd)
{
	struct disk *disk = disk_of(sys);

	note_mappings(disk);
	if (fd >= 0 && fd < DISK_DESCRIPTORS)
		disk->file_of[fd] = 0;
	return real->close(real, fd);
}

static ssize_t disk_pwritev(const struct ki_sys *sys, int fd,
			    const struct ki_piece *pieces, int n_pieces,
			    uint64_t offset)
{
	struct disk *disk = disk_of(sys);
	unsigned file = file_of(disk, fd);
	ssize_t n = real->pwritev(real, fd, pieces, n_pieces, offset);
	uint64_t rest = n > 0 ? (uint64_t)n : 0;
	uint8_t *data;
	size_t at = 0;

	note_mappings(disk);
	if (!rest || !file)
		return n;
	data = checked(malloc(rest));
	for (int i = 0; i < n_pieces && at < rest; i++) {
		size_t size =
			pieces[i].size < rest - at ? pieces[i].size : rest - at;

		if (size)
			memcpy(data + at, pieces[i].data, size);
		at += size;
	}
	note_bytes(disk, file, offset, data, rest);
	free(data);
	note_time(disk, file, fd);
	return n;
}

static int disk_fallocate(const struct ki_sys *sys, int fd, uint64_t offset,
			  uint64_t size)
{
	struct disk *disk = disk_of(sys);
	int err = real->fallocate(real, fd, offset, size);
	struct disk_event *event;

	note_mappings(disk);
	if (!err && file_of(disk, fd)) {
		event = note(disk, RESERVE, file_of(disk, fd));
		event->offset = offset;
		event->size = size;
	}
	return err;
}

static int disk_fsync(const struct ki_sys *sys, int fd)
{
	struct disk *disk = disk_of(sys);
	int err = real->fsync(real, fd);

	note_mappings(disk);
	if (!err && file_of(disk, fd))
		disk->files[file_of(disk, fd)].synced = disk->n_events;
	return err;
}

static int disk_link(const struct ki_sys *sys, const char *from, const char *to)
{
	struct disk *disk = disk_of(sys);
	int err = real->link(real, from, to);

	note_mappings(disk);
	if (!err && below(disk, to))
		note_name(disk, NAME, file_named(disk, from), NULL,
			  below(disk, to));
	return err;
}

static int disk_rename(const struct ki_sys *sys, const char *from,
		       const char *to)
{
	struct disk *disk = disk_of(sys);
	int err = real->rename(real, from, to);

	note_mappings(disk);
	if (!err && below(disk, to))
		note_name(disk, RENAME, file_named(disk, from),
			  below(disk, from), below(disk, to));
	return err;
}

static int disk_rename_new(const struct ki_sys *sys, const char *from,
			   const char *to)
{
	struct disk *disk = disk_of(sys);
	int err = real->rename_new(real, from, to);

	note_mappings(disk);
	if (!err && below(disk, to))
		note_name(disk, RENAME, file_named(disk, from),
			  below(disk, from), below(disk, to));
	return err;
}

static int disk_unlink(const struct ki_sys *sys, const char *path)
{
	struct disk *disk = disk_of(sys);
	int err = real->unlink(real, path);

	note_mappings(disk);
	if (!err && below(disk, path))
		note_name(disk, REMOVE, file_named(disk, path), NULL,
			  below(disk, path));
	return err;
}

static int disk_rmdir(const struct ki_sys *sys, const char *path)
{
	struct disk *disk = disk_of(sys);
	int err = real->rmdir(real, path);

	note_mappings(disk);
	if (!err && below(disk, path))
		note_name(disk, REMOVE, file_named(disk, path), NULL,
			  below(disk, path));
	return err;
}

static int disk_mkdir(const struct ki_sys *sys, const char *path, unsigned mode)
{
	struct disk *disk = disk_of(sys);
	int err = real->mkdir(real, path, mode);

	note_mappings(disk);
	if (!err && below(disk, path))
		note_name(disk, DIRECTORY, new_file(disk, S_IFDIR | mode), NULL,
			  below(disk, path));
	return err;
}

static int disk_map(const struct ki_sys *sys, int fd, uint64_t offset,
		    size_t size, unsigned flags, void **out_data)
{
	struct disk *disk = disk_of(sys);
	int err = real->map(real, fd, offset, size, flags, out_data);
	struct disk_mapping *mapping;

	note_mappings(disk);
	if (err || !(flags & KI_MAP_SHARED_WRITE) || !file_of(disk, fd))
		return err;
	mapping = APPEND(disk->mappings, disk->n_mappings);
	*mapping = (struct disk_mapping){ .data = *out_data,
					  .seen = checked(malloc(size)),
					  .size = size,
					  .offset = offset,
					  .file = file_of(disk, fd) };
	memcpy(mapping->seen, mapping->data, size);
	return 0;
}

static void disk_unmap(const struct ki_sys *sys, void *data, size_t size)
{
	struct disk *disk = disk_of(sys);

	note_mappings(disk);
	for (unsigned i = 0; i < disk->n_mappings; i++) {
		struct disk_mapping *mapping = &disk->mappings[i];
		uintptr_t from = (uintptr_t)mapping->data;

		if ((uintptr_t)data < from ||
		    (uintptr_t)data >= from + mapping->size)
			continue;
		/* Its begin may stay. */
		mapping->size = (uintptr_t)data - from;
		if (mapping->size)
			break;
		free(mapping->seen);
		*mapping = disk->mappings[--disk->n_mappings];
		break;
	}
	real->unmap(real, data, size);
}

static int told(const struct disk *disk, unsigned file, int err,
		struct ki_file_info *info)
{
	if (!err && file)
		info->inode = disk->files[file].inode;
	return err;
}

static int disk_fstat(const struct ki_sys *sys, int fd,
		      struct ki_file_info *out_info)
{
	const struct disk *disk = disk_of(sys);

	return told(disk, file_of(disk, fd), real->fstat(real, fd, out_info),
		    out_info);
}

static int disk_fidentify(const struct ki_sys *sys, int fd,
			  uint64_t *out_device, uint64_t *out_inode)
{
	const struct disk *disk = disk_of(sys);
	int err = real->fidentify(real, fd, out_device, out_inode);

	if (!err && file_of(disk, fd))
		*out_inode = disk->files[file_of(disk, fd)].inode;
	return err;
}

static int disk_stat(const struct ki_sys *sys, const char *path,
		     struct ki_file_info *out_info)
{
	const struct disk *disk = disk_of(sys);

	return told(disk, file_named(disk, path),
		    real->stat(real, path, out_info), out_info);
}

static int disk_lstat(const struct ki_sys *sys, const char *path,
		      struct ki_file_info *out_info)
{
	const struct disk *disk = disk_of(sys);

	return told(disk, file_named(disk, path),
		    real->lstat(real, path, out_info), out_info);
}

static int disk_lstat_in(const struct ki_sys *sys, struct ki_dir *dir,
			 const char *name, struct ki_file_info *out_info)
{
	const struct disk *disk = disk_of(sys);
	int err = real->lstat_in(real, dir, name, out_info);

	for (unsigned i = 0; !err && i < disk->n_names; i++) {
		const char *slash = strrchr(disk->names[i].path, '/');
		const char *base = slash ? slash + 1 : disk->names[i].path;

		if (!strcmp(base, name))
			return told(disk, disk->names[i].file, 0, out_info);
	}
	return err;
}

static int disk_random(const struct ki_sys *sys, void *data, size_t size)
{
	uint8_t *bytes = data;

	for (size_t i = 0; i < size; i++)
		bytes[i] = (uint8_t)harness_random(&disk_of(sys)->random);
	return 0;
}

/* ---- Beginning and end ------------------------------------------------------- */

/* Keep what a file is known by, over a loss. */
static void keep(const struct disk_file *file, int fd, const char *path)
{
	const struct timespec times[2] = { { .tv_nsec = UTIME_OMIT },
					   file->written };

	if (file->written.tv_sec && futimens(fd, times))
		abort();
	*APPEND(kept, n_kept) =
		(struct kept){ copy_string(path), file->inode, file->written };
}

static void take_back(struct disk *disk, unsigned file, const char *path)
{
	for (unsigned i = 0; i < n_kept; i++)
		if (!strcmp(kept[i].path, path)) {
			disk->files[file].inode = kept[i].inode;
			disk->files[file].written = kept[i].written;
			free(kept[i].path);
			kept[i] = kept[--n_kept];
			return;
		}
}

static void take_over_file(struct disk *disk, unsigned file, const char *path)
{
	struct disk_event *event = note(disk, RESERVE, file);
	size_t size;
	char *data = harness_read(path, &size);

	if (!data)
		abort();
	event->size = size;
	note_bytes(disk, file, 0, data, size);
	free(data);
	take_back(disk, file, path);
}

static void take_over(struct disk *disk, const char *directory)
{
	DIR *dir = opendir(directory);
	const struct dirent *entry;
	struct stat st;

	if (!dir)
		abort();
	while ((entry = readdir(dir))) {
		char *path;
		unsigned file;

		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		path = harness_path(directory, entry->d_name);
		if (lstat(path, &st))
			abort();
		file = new_file(disk, st.st_mode);
		note_name(disk, S_ISDIR(st.st_mode) ? DIRECTORY : NAME, file,
			  NULL, below(disk, path));
		if (S_ISDIR(st.st_mode))
			take_over(disk, path);
		else
			take_over_file(disk, file, path);
		free(path);
	}
	closedir(dir);
}

static void name_boot(struct disk *disk, unsigned boot)
{
	char text[64];

	snprintf(text, sizeof(text), "%08x-0000-4000-8000-%012x\n", boot + 1,
		 boot + 1);
	if (asprintf(&disk->boot_path, "%s.boot", disk->root) < 0)
		abort();
	harness_write(disk->boot_path, text, strlen(text));
}

void disk_begin(struct disk *disk, const char *directory, unsigned boot,
		uint64_t random)
{
	*disk = (struct disk){ .sys = *real,
			       .root = copy_string(directory),
			       .random = random };
	INTERPOSE_CHANGES(&disk->sys, disk);
	INTERPOSE(&disk->sys, disk, rename_new);
	INTERPOSE(&disk->sys, disk, fsync);
	INTERPOSE(&disk->sys, disk, unmap);
	INTERPOSE(&disk->sys, disk, random);
	INTERPOSE(&disk->sys, disk, fstat);
	INTERPOSE(&disk->sys, disk, fidentify);
	disk->sys.fmeasure = disk_fstat;
	disk->sys.measure = disk_lstat;
	INTERPOSE(&disk->sys, disk, stat);
	INTERPOSE(&disk->sys, disk, lstat);
	INTERPOSE(&disk->sys, disk, lstat_in);
	INTERPOSE(&disk->sys, disk, monotonic_ns);
	INTERPOSE(&disk->sys, disk, sleep_ns);
	name_boot(disk, boot);
	(void)new_file(disk, 0); /* 0 stands for none */
	take_over(disk, directory);
	for (unsigned i = 0; i < disk->n_files; i++)
		disk->files[i].synced = disk->n_events;
}

void disk_end(struct disk *disk)
{
	struct names names = { disk->names, disk->n_names };

	for (unsigned i = 0; i < disk->n_events; i++) {
		free(disk->events[i].path);
		free(disk->events[i].from);
		free(disk->events[i].data);
	}
	free_names(&names);
	free(disk->events);
	free(disk->files);
	free(disk->mappings);
	free(disk->root);
	(void)unlink(disk->boot_path);
	free(disk->boot_path);
}

unsigned disk_now(struct disk *disk)
{
	note_mappings(disk);
	return disk->n_events;
}

/* ---- Names after the loss ---------------------------------------------------- */

static unsigned below_chance(uint64_t *random, unsigned n)
{
	return n ? (unsigned)(harness_random(random) % n) : 0;
}

/* A moment from `first` to `last`, more often a late one. */
static unsigned moment(uint64_t *random, unsigned first, unsigned last)
{
	unsigned span = last - first;

	if (below_chance(random, 2) && span > 40)
		return last - below_chance(random, 40);
	return first + below_chance(random, span + 1);
}

static int is_of_names(const struct disk_event *event)
{
	return event->what != WRITE && event->what != RESERVE;
}

/* Some arrived out of order, so that any may be missing. */
static void lose_some(const struct disk *disk, struct names *names,
		      unsigned first, unsigned last, uint64_t *random)
{
	unsigned one_in = 2 + below_chance(random, 20);

	for (unsigned i = first; i < last; i++) {
		const struct disk_event *event = &disk->events[i];

		if (!is_of_names(event))
			continue;
		if (below_chance(random, one_in))
			apply(names, event);
		else if (event->what == RENAME && below_chance(random, 2))
			set_name(names, event->path, event->file);
	}
}

static void keep_names(const struct disk *disk, struct names *names,
		       unsigned n_safe, unsigned power_off, uint64_t *random)
{
	unsigned until = power_off;

	if (below_chance(random, 2))
		until = moment(random, n_safe, power_off);
	for (unsigned i = 0; i < until; i++)
		if (is_of_names(&disk->events[i]))
			apply(names, &disk->events[i]);
	if (until < power_off && below_chance(random, 2))
		lose_some(disk, names, until, power_off, random);
}

/* ---- Bytes after the loss ---------------------------------------------------- */

enum how { AS_OF, TORN, SCATTERED };

struct fate {
	enum how how;
	unsigned first, last; /* moments */
	uint64_t tear;	      /* TORN: sectors from here on are of `first` */
	uint64_t sector;
	uint64_t seed;
};

static struct fate draw_fate(unsigned safe, unsigned power_off,
			     uint64_t *random)
{
	struct fate fate = {
		.how = AS_OF,
		.first = safe,
		.last = power_off,
		.sector = below_chance(random, 2) ? SECTOR : PAGE,
	};

	switch (below_chance(random, 8)) {
	case 0: /* the names alone */
		fate.last = safe;
		break;
	case 1:
	case 2:
		fate.last = moment(random, safe, power_off);
		break;
	case 3:
	case 4:
		fate.how = TORN;
		fate.first = moment(random, safe, power_off);
		fate.tear = below_chance(random, 128);
		break;
	case 5:
	case 6:
		fate.how = SCATTERED;
		break;
	default: /* all of it */
		break;
	}
	fate.seed = harness_random(random);
	return fate;
}

static unsigned moment_of(const struct fate *fate, uint64_t offset)
{
	uint64_t sector = offset / fate->sector, state = fate->seed ^ sector;

	switch (fate->how) {
	case TORN:
		return sector < fate->tear ? fate->last : fate->first;
	case SCATTERED:
		return below_chance(&state, 3)
			       ? fate->last
			       : moment(&state, fate->first, fate->last);
	default:
		return fate->last;
	}
}

static uint64_t size_at(const struct disk *disk, unsigned file, unsigned until)
{
	uint64_t size = 0;

	for (unsigned i = 0; i < until; i++) {
		const struct disk_event *event = &disk->events[i];

		if (event->file == file && !is_of_names(event) &&
		    event->offset + event->size > size)
			size = event->offset + event->size;
	}
	return size;
}

/* A write, as far as its sectors arrived. */
static void lay_down(uint8_t *bytes, uint64_t size, const struct fate *fate,
		     const struct disk_event *event, unsigned time)
{
	uint64_t end = event->offset + event->size, at = event->offset, next;

	for (; at < end && at < size; at = next) {
		next = (at / SECTOR + 1) * SECTOR;
		if (next > end)
			next = end;
		if (next > size)
			next = size;
		if (time < moment_of(fate, at))
			memcpy(bytes + at, event->data + (at - event->offset),
			       next - at);
	}
}

/* What the medium held before: bytes of another file of this store. */
static void lay_down_leftovers(const struct disk *disk, uint8_t *bytes,
			       uint64_t size, unsigned power_off,
			       uint64_t *random)
{
	unsigned i = below_chance(random, power_off);
	const struct fate all = { .last = UINT32_MAX, .sector = SECTOR };

	for (; i < power_off; i++)
		if (disk->events[i].what == WRITE) {
			struct disk_event event = disk->events[i];

			event.offset = 0;
			lay_down(bytes, size, &all, &event, 0);
			return;
		}
}

static uint8_t *keep_bytes(const struct disk *disk, unsigned file,
			   unsigned power_off, uint64_t *random,
			   uint64_t *out_size)
{
	unsigned safe = disk->files[file].synced;
	struct fate fate;
	uint64_t size;
	uint8_t *bytes;

	if (safe > power_off)
		safe = power_off;
	fate = draw_fate(safe, power_off, random);
	size = size_at(disk, file,
		       below_chance(random, 3) ? power_off : fate.last);
	bytes = checked(calloc(1, size + 1));
	if (!below_chance(random, 8))
		lay_down_leftovers(disk, bytes, size, power_off, random);
	for (unsigned i = 0; i < power_off; i++)
		if (disk->events[i].what == WRITE &&
		    disk->events[i].file == file)
			lay_down(bytes, size, &fate, &disk->events[i],
				 i < safe ? 0 : i);
	*out_size = size;
	return bytes;
}

static void make_file(const struct disk *disk, unsigned file, const char *path,
		      unsigned power_off, uint64_t *random)
{
	uint64_t size;
	uint8_t *bytes = keep_bytes(disk, file, power_off, random, &size);
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
		      disk->files[file].mode & 0777);

	/* No file where its directory is lost. */
	if (fd >= 0) {
		if (below_chance(random, 2)
			    ? ftruncate(fd, (off_t)size)
			    : (size && fallocate(fd, 0, 0, (off_t)size)))
			abort();
		for (uint64_t at = 0; at < size; at += PAGE) {
			static const uint8_t zeros[PAGE];
			size_t n = size - at < PAGE ? size - at : PAGE;

			if (memcmp(bytes + at, zeros, n) != 0 &&
			    pwrite(fd, bytes + at, n, (off_t)at) != (ssize_t)n)
				abort();
		}
		keep(&disk->files[file], fd, path);
		close(fd);
	}
	free(bytes);
}

static int by_path(const void *a, const void *b)
{
	const struct disk_name *x = a, *y = b;

	return strcmp(x->path, y->path);
}

unsigned disk_power_off(struct disk *disk, uint64_t *random, const char *to)
{
	unsigned now = disk_now(disk), n_safe = disk->files[0].synced;
	unsigned power_off = n_safe + below_chance(random, now - n_safe + 1);
	struct names names = { NULL, 0 };

	if (mkdir(to, 0700))
		abort();
	keep_names(disk, &names, n_safe, power_off, random);
	/* Directories come before what is in them. */
	if (names.n)
		qsort(names.names, names.n, sizeof(*names.names), by_path);
	for (unsigned i = 0; i < names.n; i++) {
		const struct disk_name *name = &names.names[i];
		char *path = harness_path(to, name->path);
		unsigned k = 0;

		while (names.names[k].file != name->file)
			k++;
		if (S_ISDIR(disk->files[name->file].mode)) {
			(void)mkdir(path, disk->files[name->file].mode & 07777);
		} else if (k < i) {
			char *first = harness_path(to, names.names[k].path);

			(void)link(first, path);
			free(first);
		} else {
			make_file(disk, name->file, path, power_off, random);
		}
		free(path);
	}
	free_names(&names);
	return power_off;
}
