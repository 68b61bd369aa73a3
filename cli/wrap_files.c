/* SPDX-License-Identifier: MIT */

/*
 * The files that a run of a compiler depends on: lists of their paths, and the state
 * that they are in.
 *
 * A driver's run has thousands of paths, most of which are places where nothing is:
 * each is found by its hash, and what is not there makes one field of a key.
 */

#include <elf.h>
#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/hash.h"
#include "wrap.h"

#define SYS		(&ki_sys_posix)
#define NOTES_MAX	((size_t)1 << 16)
#define PIECE_BYTES	((size_t)256 << 10)
#define DIGESTS_MAX	64
#define HEADERS_MAX	64
#define LIBRARY_MAX	((size_t)1 << 30)
#define CLOCK_COARSE_NS 20000000 /* what a file's time may lag behind */

/* ---- Lists of paths ---------------------------------------------------------- */

static size_t *slot_of(const struct ki_wrap_paths *paths, const char *path,
		       size_t size)
{
	size_t at = ki_xxh3_64(path, size) & (paths->n_slots - 1);
	const char *other;

	while (paths->slots[at]) {
		other = paths->paths[paths->slots[at] - 1].path;
		if (!strncmp(other, path, size) && !other[size])
			break;
		at = (at + 1) & (paths->n_slots - 1);
	}
	return &paths->slots[at];
}

/* Room for one more, in at most half of the slots. */
static int grow(struct ki_wrap_paths *paths)
{
	size_t n_slots = paths->n_slots ? 2 * paths->n_slots : 64, i;
	struct ki_wrap_path *more;

	if (2 * (paths->n + 1) <= paths->n_slots)
		return 0;
	more = realloc(paths->paths, n_slots / 2 * sizeof(*more));
	if (!more)
		return -ENOMEM;
	paths->paths = more;
	free(paths->slots);
	paths->slots = calloc(n_slots, sizeof(*paths->slots));
	paths->n_slots = paths->slots ? n_slots : 0;
	for (i = 0; paths->slots && i < paths->n; i++)
		*slot_of(paths, more[i].path, strlen(more[i].path)) = i + 1;
	return paths->slots ? 0 : -ENOMEM;
}

void ki_wrap_paths_add(struct ki_wrap_paths *paths, const char *path,
		       size_t size, int is_library)
{
	size_t *slot;
	char *copy;

	if (!paths->failed)
		paths->failed = size >= KI_PATH_MAX ? -E2BIG : grow(paths);
	if (paths->failed)
		return;
	slot = slot_of(paths, path, size);
	if (*slot)
		return;
	copy = paths->n < KI_WRAP_PATHS_MAX ? strndup(path, size) : NULL;
	if (!copy) {
		paths->failed = paths->n < KI_WRAP_PATHS_MAX ? -ENOMEM : -E2BIG;
		return;
	}
	paths->paths[paths->n].path = copy;
	paths->paths[paths->n].is_library = is_library;
	*slot = ++paths->n;
}

void ki_wrap_paths_fini(struct ki_wrap_paths *paths)
{
	size_t i;

	for (i = 0; i < paths->n; i++)
		free(paths->paths[i].path);
	free(paths->paths);
	free(paths->slots);
	memset(paths, 0, sizeof(*paths));
}

int ki_wrap_is_recent(const struct ki_wrap_paths *paths, int64_t begun_ns)
{
	struct ki_file_info info;
	size_t i;

	for (i = 0; i < paths->n; i++)
		if (!SYS->stat(SYS, paths->paths[i].path, &info) &&
		    (info.ctime_ns >= begun_ns ||
		     info.mtime_ns + CLOCK_COARSE_NS >= begun_ns))
			return 1;
	return 0;
}

/* ---- States ------------------------------------------------------------------ */

/* In the notes of a program header. */
static int find_build_id(const uint8_t *notes, size_t size, const uint8_t **out,
			 size_t *out_size)
{
	struct ki_reader reader = ki_reader(notes, size);

	while (reader.size && !reader.failed) {
		uint32_t name_size = ki_read_u32(&reader);
		uint32_t data_size = ki_read_u32(&reader);
		uint32_t type = ki_read_u32(&reader);
		const uint8_t *name, *data;

		if (name_size > size || data_size > size)
			return -1;
		name = ki_read(&reader, (name_size + 3) & ~(uint32_t)3);
		data = ki_read(&reader, (data_size + 3) & ~(uint32_t)3);
		if (name && data && type == NT_GNU_BUILD_ID && name_size == 4 &&
		    !memcmp(name, "GNU", 4) && data_size) {
			*out = data;
			*out_size = data_size;
			return 0;
		}
	}
	return -1;
}

static int add_notes(struct kiln_key *key, int fd, uint64_t offset,
		     uint64_t size)
{
	const uint8_t *build_id;
	size_t build_id_size;
	uint8_t *notes;
	int err;

	if (!size || size > NOTES_MAX)
		return -1;
	notes = malloc(size);
	err = !notes || ki_pread_all(SYS, fd, notes, size, offset) ||
	      find_build_id(notes, size, &build_id, &build_id_size);
	if (!err)
		kiln_key_add_local(key, "build-id", build_id, build_id_size);
	free(notes);
	return err ? -1 : 0;
}

/* The program headers of a 64-bit ELF file of this machine's byte order: how many;
   0: it is none. */
static size_t read_headers(int fd, Elf64_Phdr headers[HEADERS_MAX])
{
	Elf64_Ehdr elf;

	if (ki_pread_all(SYS, fd, &elf, sizeof(elf), 0) ||
	    memcmp(elf.e_ident, ELFMAG, SELFMAG) ||
	    elf.e_ident[EI_CLASS] != ELFCLASS64 ||
	    elf.e_phentsize != sizeof(*headers) || elf.e_phnum > HEADERS_MAX ||
	    ki_pread_all(SYS, fd, headers, elf.e_phnum * sizeof(*headers),
			 elf.e_phoff))
		return 0;
	return elf.e_phnum;
}

/* -1: it has none. */
static int add_build_id(struct kiln_key *key, int fd)
{
	Elf64_Phdr headers[HEADERS_MAX];
	size_t n = read_headers(fd, headers), i;

	for (i = 0; i < n; i++)
		if (headers[i].p_type == PT_NOTE &&
		    !add_notes(key, fd, headers[i].p_offset,
			       headers[i].p_filesz))
			return 0;
	return -1;
}

int ki_wrap_has_loader(const char *path)
{
	Elf64_Phdr headers[HEADERS_MAX];
	int fd = SYS->open(SYS, path, KI_OPEN_READ, 0);
	size_t n, i;

	if (fd < 0)
		return 0;
	n = read_headers(fd, headers);
	SYS->close(SYS, fd);
	for (i = 0; i < n; i++)
		if (headers[i].p_type == PT_INTERP)
			return 1;
	return 0;
}

/*
 * Digests of large programs without a build-id, by which file that was: a look-up
 * asks for the state of the same ones with each list, and those of nvcc are 145 MB.
 * Not of a file that has just been written: it may be written again within a tick.
 */
static struct digest {
	struct ki_file_info info;
	uint8_t bytes[16];
} digests[DIGESTS_MAX];
static size_t n_digests;

static struct digest *find_digest(const struct ki_file_info *info)
{
	size_t i;

	for (i = 0; i < n_digests; i++)
		if (!memcmp(&digests[i].info, info,
			    offsetof(struct ki_file_info, atime_ns)))
			return &digests[i];
	return NULL;
}

static void note_digest(const struct ki_file_info *info,
			const uint8_t bytes[16])
{
	int64_t now = (int64_t)SYS->realtime_ns(SYS);

	if (n_digests == DIGESTS_MAX || info->ctime_ns + CLOCK_COARSE_NS >= now)
		return;
	digests[n_digests].info = *info;
	memcpy(digests[n_digests++].bytes, bytes, 16);
}

/* In pieces that stay in a processor's cache, and are read: what is mapped ends us
   when it is cut short meanwhile. */
static int digest_pieces(int fd, uint64_t size, uint8_t out[16])
{
	struct ki_bytes sums;
	void *piece = malloc(PIECE_BYTES);
	int err = piece ? 0 : -ENOMEM;
	uint64_t at;

	ki_bytes_init(&sums);
	for (at = 0; at < size && !err; at += PIECE_BYTES) {
		size_t n = size - at < PIECE_BYTES ? (size_t)(size - at)
						   : PIECE_BYTES;
		uint8_t sum[16];

		err = ki_pread_all(SYS, fd, piece, n, at);
		if (err)
			break;
		ki_xxh3_128(piece, n, sum);
		ki_bytes_add(&sums, sum, sizeof(sum));
	}
	if (!err)
		err = sums.failed;
	if (!err)
		ki_xxh3_128(sums.data, sums.size, out);
	ki_bytes_fini(&sums);
	free(piece);
	return err;
}

static int digest_library(int fd, const struct ki_file_info *info,
			  uint8_t out[16])
{
	const struct digest *known = find_digest(info);
	int err;

	if (known) {
		memcpy(out, known->bytes, 16);
		return 0;
	}
	if (!info->size || info->size > LIBRARY_MAX)
		return -EINVAL;
	err = digest_pieces(fd, info->size, out);
	if (!err)
		note_digest(info, out);
	return err;
}

static int add_library(struct kiln_key *key, int fd,
		       const struct ki_file_info *info)
{
	uint8_t digest[16];
	int err;

	if (!add_build_id(key, fd))
		return 0;
	err = digest_library(fd, info, digest);
	if (!err)
		kiln_key_add_local(key, "content", digest, sizeof(digest));
	return err;
}

static int add_file(struct kiln_key *key, int fd, size_t size)
{
	char *data;
	int err;

	if (size > KI_WRAP_INPUT_MAX)
		return -EFBIG;
	data = malloc(size + 1);
	err = data ? ki_pread_all(SYS, fd, data, size, 0) : -ENOMEM;
	if (!err)
		kiln_key_add_digest(key, "content", data, size);
	free(data);
	return err;
}

/* A program finds others, and a library its like, beside where it really is. */
static int add_real_path(struct kiln_key *key, const char *path)
{
	char real[PATH_MAX];

	if (!realpath(path, real))
		return -errno;
	kiln_key_add_local(key, "real path", real, strlen(real));
	return 0;
}

static int add_what_is_there(struct kiln_key *key, int fd, const char *path,
			     int is_library)
{
	struct ki_file_info info;
	int err = SYS->fstat(SYS, fd, &info);

	if (err)
		return err;
	if (S_ISDIR(info.mode)) {
		kiln_key_add_string(key, "content", "a directory");
		return 0;
	}
	if (!S_ISREG(info.mode))
		return -EINVAL;
	if (!is_library)
		return add_file(key, fd, info.size);
	err = add_library(key, fd, &info);
	return err ? err : add_real_path(key, path);
}

/* 1: there is none.  One that may not be read is none to the compiler, either. */
static int add_state(struct kiln_key *key, const char *path, int is_library)
{
	int fd = SYS->open(SYS, path, KI_OPEN_READ, 0), err;

	if (fd == -ENOENT || fd == -ENOTDIR || fd == -ENAMETOOLONG)
		return 1;
	if (fd < 0 && fd != -EACCES)
		return fd;
	kiln_key_add_local(key, "path", path, strlen(path));
	if (fd < 0) {
		kiln_key_add_string(key, "content", "not to be read");
		return 0;
	}
	err = add_what_is_there(key, fd, path, is_library);
	SYS->close(SYS, fd);
	return err;
}

int ki_wrap_add_state(struct kiln_key *key, const char *path, int is_library)
{
	int err = add_state(key, path, is_library);

	if (err <= 0)
		return err;
	kiln_key_add_local(key, "path", path, strlen(path));
	kiln_key_add_absent(key, "content");
	return 0;
}

int ki_wrap_add_states(struct kiln_key *key, const struct ki_wrap_paths *paths)
{
	struct ki_bytes absent;
	int err = 0;
	size_t i;

	ki_bytes_init(&absent);
	for (i = 0; i < paths->n && err >= 0; i++) {
		const struct ki_wrap_path *path = &paths->paths[i];

		err = add_state(key, path->path, path->is_library);
		if (err > 0)
			ki_bytes_add(&absent, path->path,
				     strlen(path->path) + 1);
	}
	if (err >= 0)
		err = absent.failed;
	if (!err)
		kiln_key_add_digest(key, "paths without a file", absent.data,
				    absent.size);
	ki_bytes_fini(&absent);
	return err;
}
