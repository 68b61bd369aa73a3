/* SPDX-License-Identifier: MIT */

/*
 * Loaded images tell their build-ids from memory, so a file that was replaced
 * since is no matter.  Contents are read in pieces, never mapped: inside a
 * program that did not ask for us a bad medium must be an error, not SIGBUS.
 * A content's digest is the digest of the digests of its pieces.
 */

#include "front/image.h"

#include <elf.h>
#include <errno.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/hash.h"

#define PIECE_BYTES	   ((size_t)256 << 10)
#define CONTENT_BYTES_MAX  ((uint64_t)1 << 30)
#define NOTES_BYTES_MAX	   ((size_t)64 << 10)
#define SEGMENTS_MAX	   128
#define BUILD_ID_BYTES_MAX 64

const char *ki_last_part(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* ---- Build-ids ------------------------------------------------------- */

/* "build-id HEX" from notes, or "". */
static void read_notes(const uint8_t *notes, size_t size,
		       char out[KI_IDENTITY_BYTES])
{
	struct ki_reader reader = ki_reader(notes, size);
	uint32_t name_size, id_size, type;
	const uint8_t *name, *id;

	out[0] = 0;
	while (reader.size >= sizeof(ElfW(Nhdr))) {
		name_size = ki_read_u32(&reader);
		id_size = ki_read_u32(&reader);
		type = ki_read_u32(&reader);
		if (name_size > size || id_size > size)
			return;
		name = ki_read(&reader, (name_size + 3) & ~(size_t)3);
		id = ki_read(&reader, (id_size + 3) & ~(size_t)3);
		if (reader.failed)
			return;
		if (type != NT_GNU_BUILD_ID || name_size != 4 ||
		    memcmp(name, "GNU", 4) || !id_size ||
		    id_size > BUILD_ID_BYTES_MAX)
			continue;
		strcpy(out, "build-id ");
		ki_hex(id, id_size, out + strlen(out));
		return;
	}
}

/* ---- Loaded images --------------------------------------------------- */

/* Whether the loaded segments have these bytes. */
static int is_loaded(const struct dl_phdr_info *info, ElfW(Addr) at,
		     size_t size)
{
	int i;

	for (i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *segment = &info->dlpi_phdr[i];

		if (segment->p_type == PT_LOAD && at >= segment->p_vaddr &&
		    size <= segment->p_memsz &&
		    at - segment->p_vaddr <= segment->p_memsz - size)
			return 1;
	}
	return 0;
}

/* The dynamic section's addresses are absolute once the loader has been over
   them, which it does not do for all. */
static ElfW(Addr) absolute(const struct dl_phdr_info *info, ElfW(Addr) address)
{
	return address < info->dlpi_addr ? address + info->dlpi_addr : address;
}

static int read_dynamic(const struct dl_phdr_info *info,
			const ElfW(Dyn) * dynamic, size_t n,
			struct ki_image *image)
{
	const char *strings = NULL;
	size_t i, n_needed = 0;
	char **place;

	for (i = 0; i < n && dynamic[i].d_tag != DT_NULL; i++)
		if (dynamic[i].d_tag == DT_STRTAB)
			strings = (const char *)absolute(info,
							 dynamic[i].d_un.d_ptr);
	if (!strings ||
	    !is_loaded(info, (ElfW(Addr))strings - info->dlpi_addr, 1))
		return 0;
	for (i = 0; i < n && dynamic[i].d_tag != DT_NULL; i++) {
		if (dynamic[i].d_tag == DT_SONAME && !image->name)
			place = &image->name;
		else if (dynamic[i].d_tag == DT_NEEDED &&
			 n_needed + 1 < KI_NEEDED_MAX)
			place = &image->needed[n_needed++];
		else
			continue;
		*place = strdup(strings + dynamic[i].d_un.d_val);
		if (!*place)
			return -ENOMEM;
	}
	return 0;
}

static int read_segments(const struct dl_phdr_info *info,
			 struct ki_image *image)
{
	int i, err = 0;

	image->start = UINTPTR_MAX;
	for (i = 0; i < info->dlpi_phnum && !err; i++) {
		const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
		uintptr_t at = info->dlpi_addr + segment->p_vaddr;

		if (segment->p_type == PT_LOAD) {
			if (at < image->start)
				image->start = at;
			if (at + segment->p_memsz > image->end)
				image->end = at + segment->p_memsz;
		} else if (!is_loaded(info, segment->p_vaddr,
				      segment->p_memsz)) {
			continue;
		} else if (segment->p_type == PT_NOTE && !*image->build_id) {
			read_notes((const uint8_t *)at, segment->p_memsz,
				   image->build_id);
		} else if (segment->p_type == PT_DYNAMIC) {
			err = read_dynamic(info, (const ElfW(Dyn) *)at,
					   segment->p_memsz / sizeof(ElfW(Dyn)),
					   image);
		}
	}
	return err;
}

static int take_image(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct ki_images *images = arg;
	struct ki_image *grown;

	if (images->n == KI_IMAGES_MAX) {
		images->failed = -ENOMEM;
		return 1;
	}
	if (images->n == images->capacity) {
		images->capacity = images->capacity ? 2 * images->capacity : 64;
		grown = realloc(images->images,
				images->capacity * sizeof(*grown));
		if (!grown) {
			images->failed = -ENOMEM;
			return 1;
		}
		images->images = grown;
	}
	grown = &images->images[images->n++];
	memset(grown, 0, sizeof(*grown));
	grown->path = strdup(info->dlpi_name ? info->dlpi_name : "");
	images->failed = grown->path ? read_segments(info, grown) : -ENOMEM;
	if (!images->failed && !grown->name) {
		grown->name = strdup(ki_last_part(grown->path));
		images->failed = grown->name ? 0 : -ENOMEM;
	}
	return images->failed;
}

void ki_images_take(struct ki_images *images)
{
	*images = (struct ki_images){ 0 };
	(void)dl_iterate_phdr(take_image, images);
}

void ki_images_fini(struct ki_images *images)
{
	size_t i, j;

	for (i = 0; i < images->n; i++) {
		free(images->images[i].path);
		free(images->images[i].name);
		for (j = 0; images->images[i].needed[j]; j++)
			free(images->images[i].needed[j]);
	}
	free(images->images);
	*images = (struct ki_images){ 0 };
}

static int take_loaded(struct dl_phdr_info *info, size_t size, void *arg)
{
	*(uint64_t *)arg = info->dlpi_adds;
	return 1;
}

uint64_t ki_images_loaded(void)
{
	uint64_t loaded = 0;

	(void)dl_iterate_phdr(take_loaded, &loaded);
	return loaded;
}

const struct ki_image *ki_image_at(const struct ki_images *images,
				   const void *address)
{
	size_t i;

	for (i = 0; i < images->n; i++)
		if ((uintptr_t)address >= images->images[i].start &&
		    (uintptr_t)address < images->images[i].end)
			return &images->images[i];
	return NULL;
}

const struct ki_image *ki_image_named(const struct ki_images *images,
				      const char *name)
{
	const char *last = ki_last_part(name);
	size_t i;

	for (i = 0; i < images->n; i++)
		if (*images->images[i].path &&
		    (!strcmp(images->images[i].name, last) ||
		     !strcmp(ki_last_part(images->images[i].path), last)))
			return &images->images[i];
	return NULL;
}

/* ---- Files ----------------------------------------------------------- */

static int read_build_id(const struct ki_sys *sys, int fd,
			 char out[KI_IDENTITY_BYTES])
{
	ElfW(Phdr) segments[SEGMENTS_MAX];
	ElfW(Ehdr) header;
	uint8_t *notes;
	size_t i;
	int err;

	out[0] = 0;
	err = ki_pread_all(sys, fd, &header, sizeof(header), 0);
	if (err)
		return err == -ENODATA ? 0 : err;
	if (memcmp(header.e_ident, ELFMAG, SELFMAG) ||
	    header.e_phentsize != sizeof(segments[0]) ||
	    header.e_phnum > SEGMENTS_MAX)
		return 0;
	err = ki_pread_all(sys, fd, segments,
			   header.e_phnum * sizeof(segments[0]),
			   header.e_phoff);
	for (i = 0; i < header.e_phnum && !err && !*out; i++) {
		if (segments[i].p_type != PT_NOTE ||
		    segments[i].p_filesz > NOTES_BYTES_MAX)
			continue;
		notes = malloc(segments[i].p_filesz + 1);
		err = notes ? ki_pread_all(sys, fd, notes, segments[i].p_filesz,
					   segments[i].p_offset)
			    : -ENOMEM;
		if (!err)
			read_notes(notes, segments[i].p_filesz, out);
		free(notes);
	}
	return err == -ENODATA ? 0 : err;
}

typedef void digest_fn(const void *data, size_t size, uint8_t *out);

static void digest_xxh3(const void *data, size_t size, uint8_t *out)
{
	ki_xxh3_128(data, size, out);
}

/* The digest of the content's digests, `digest_size` bytes each. */
static int read_content(const struct ki_sys *sys, int fd, uint64_t size,
			digest_fn *digest, size_t digest_size, uint8_t *out)
{
	uint8_t *piece =
		malloc(size < PIECE_BYTES ? (size_t)size + 1 : PIECE_BYTES);
	struct ki_bytes digests;
	uint64_t at;
	int err = piece ? 0 : -ENOMEM;

	ki_bytes_init(&digests);
	for (at = 0; at < size && !err; at += PIECE_BYTES) {
		size_t part = size - at < PIECE_BYTES ? (size_t)(size - at)
						      : PIECE_BYTES;
		uint8_t *place = ki_bytes_grow(&digests, digest_size);

		err = place ? ki_pread_all(sys, fd, piece, part, at) : -ENOMEM;
		if (!err)
			digest(piece, part, place);
	}
	if (!err)
		digest(digests.data ? digests.data : piece, digests.size, out);
	ki_bytes_fini(&digests);
	free(piece);
	return err;
}

static int open_file(const struct ki_sys *sys, const char *path,
		     uint64_t *out_size)
{
	struct ki_file_info info;
	int fd = sys->open(sys, path, KI_OPEN_READ, 0);
	int err;

	if (fd < 0)
		return fd;
	err = sys->fstat(sys, fd, &info);
	if (!err && (info.mode & 0170000) != 0100000)
		err = -EINVAL;
	if (!err && info.size > CONTENT_BYTES_MAX)
		err = -EFBIG;
	if (err) {
		(void)sys->close(sys, fd);
		return err;
	}
	*out_size = info.size;
	return fd;
}

int ki_library_identity(const struct ki_sys *sys, const char *path,
			char out[KI_IDENTITY_BYTES])
{
	uint8_t digest[KI_BLAKE2B_BYTES];
	uint64_t size;
	int fd = open_file(sys, path, &size);
	int err;

	if (fd < 0)
		return fd;
	err = read_build_id(sys, fd, out);
	if (!err && !*out) {
		err = read_content(sys, fd, size, ki_blake2b, sizeof(digest),
				   digest);
		strcpy(out, "blake2b ");
		if (!err)
			ki_hex(digest, sizeof(digest), out + strlen(out));
	}
	(void)sys->close(sys, fd);
	return err;
}

int ki_data_identity(const struct ki_sys *sys, const char *path,
		     char out[KI_IDENTITY_BYTES])
{
	char hex[2 * 16 + 1];
	uint8_t digest[16];
	uint64_t size;
	int fd = open_file(sys, path, &size);
	int err;

	if (fd < 0)
		return fd;
	err = read_content(sys, fd, size, digest_xxh3, sizeof(digest), digest);
	(void)sys->close(sys, fd);
	if (err)
		return err;
	ki_hex(digest, sizeof(digest), hex);
	snprintf(out, KI_IDENTITY_BYTES, "xxh3 %s %llu", hex,
		 (unsigned long long)size);
	return 0;
}
