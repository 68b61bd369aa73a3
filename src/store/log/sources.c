/* SPDX-License-Identifier: MIT */

/*
 * NAME.src.NNNNNNNN.val: what was compiled, found by its BLAKE2b-256.
 *
 *	[ source | source | source | zeros        ]   up to 16 files of one size,
 *	  header, zstd frame, zeros to a unit         the newest is written to
 *
 * Nothing leads there: whoever wants one reads the headers of all files, some
 * ten milliseconds for as many as there may be (64 MiB), so that entries need no
 * bytes for it and a lost file is no damage.  A header says itself what it is;
 * behind one that is not sound the next may begin at any unit.  Who finds a
 * source has compared the digest, so it is no matter who wrote it.
 *
 * Files are made, filled and dropped under byte 0.  They are worth the room that
 * nothing else needs: a new one is made only where it fits, at the cost of older
 * ones, never of an entry, and room.c lets all of them go before it looks at a
 * segment.  A writer that died leaves a source that is not sound, or a passing
 * name; the next one goes on behind the last sound source if there are but zeros
 * there, else in a new file.  The same source twice, by two who kept it at the
 * same time, costs its bytes.
 */

#include "store/log/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <zstd.h>

#define WINDOW_BYTES ((size_t)64 << 10)
#define ZSTD_LEVEL   3

/* ---- Files ----------------------------------------------------------- */

static int source_path(const struct ki_log *log, uint32_t number,
		       char out[KI_PATH_MAX])
{
	return snprintf(out, KI_PATH_MAX, "%s/%s.src.%08x.val", log->directory,
			log->name, number) >= KI_PATH_MAX
		       ? -ENAMETOOLONG
		       : 0;
}

uint64_t ki_log_source_bytes(const struct log_census *census)
{
	uint64_t bytes = 0;
	size_t i;

	for (i = 0; i < census->n_sources; i++)
		bytes += census->sources[i].bytes;
	return bytes;
}

/* What cannot be unlinked still counts. */
int ki_log_drop_source(struct ki_log *log, struct log_census *census)
{
	char path[KI_PATH_MAX];
	int err;

	if (!census->n_sources)
		return 0;
	err = source_path(log, census->sources[0].number, path);
	if (!err)
		err = log->sys->unlink(log->sys, path);
	if (!err || err == -ENOENT)
		census->bytes -= census->sources[0].bytes;
	census->n_sources--;
	memmove(census->sources, census->sources + 1,
		census->n_sources * sizeof(*census->sources));
	return 1;
}

static uint64_t file_bytes(const struct log_limit_values *limits)
{
	uint64_t bytes = limits->bytes_max / 512 & ~(uint64_t)4095;

	if (!limits->bytes_max || bytes > LOG_SOURCE_FILE_BYTES_MAX)
		return LOG_SOURCE_FILE_BYTES_MAX;
	return bytes < LOG_SOURCE_FILE_BYTES_MIN ? LOG_SOURCE_FILE_BYTES_MIN
						 : bytes;
}

/* A 16th of a small bound. */
static size_t n_files_max(const struct log_limit_values *limits)
{
	uint64_t n = limits->bytes_max / 16 / file_bytes(limits);

	if (!limits->bytes_max || n > LOG_SOURCE_FILES_MAX)
		return LOG_SOURCE_FILES_MAX;
	return n ? (size_t)n : 1;
}

/* ---- Reading --------------------------------------------------------- */

/* Going through one file. */
struct scan {
	const struct ki_sys *sys;
	int fd;
	uint32_t number;
	uint64_t size;
	uint64_t offset; /* of what is looked at next */
	uint64_t end;	 /* behind the last that was sound */
	uint64_t window_at;
	size_t window_size;
	uint8_t window[WINDOW_BYTES];
};

static struct scan *scan_begin(struct ki_log *log, uint32_t number,
			       unsigned flags)
{
	const struct ki_sys *sys = log->sys;
	struct ki_file_info info;
	char path[KI_PATH_MAX];
	struct scan *scan;
	int fd;

	if (source_path(log, number, path))
		return NULL;
	fd = sys->open(sys, path, flags | ki_log_open_flags(log), 0);
	if (fd < 0)
		return NULL;
	scan = malloc(sizeof(*scan));
	if (!scan || sys->fstat(sys, fd, &info)) {
		(void)sys->close(sys, fd);
		free(scan);
		return NULL;
	}
	if (info.size > LOG_SOURCE_FILE_BYTES_MAX)
		info.size = LOG_SOURCE_FILE_BYTES_MAX;
	scan->sys = sys;
	scan->fd = fd;
	scan->number = number;
	scan->size = info.size;
	scan->offset = scan->end = 0;
	scan->window_size = 0;
	return scan;
}

static void scan_end(struct scan *scan)
{
	if (scan)
		(void)scan->sys->close(scan->sys, scan->fd);
	free(scan);
}

/* NULL: these bytes cannot be read. */
static const uint8_t *look(struct scan *scan, size_t size)
{
	ssize_t n;

	if (scan->window_size < size || scan->offset < scan->window_at ||
	    scan->offset - scan->window_at > scan->window_size - size) {
		scan->window_at = scan->offset;
		scan->window_size = 0;
		n = scan->sys->pread(scan->sys, scan->fd, scan->window,
				     WINDOW_BYTES, scan->offset);
		if (n < 0 || (size_t)n < size)
			return NULL;
		scan->window_size = (size_t)n;
	}
	return scan->window + (scan->offset - scan->window_at);
}

static int is_sound(const struct scan *scan, const struct log_source *source)
{
	return source->magic == LOG_SOURCE_MAGIC &&
	       source->file == scan->number &&
	       source->header_sum ==
		       ki_xxh3_64(source,
				  offsetof(struct log_source, header_sum)) &&
	       source->plain_size <= LOG_SOURCE_BYTES_MAX &&
	       source->stored_size <= scan->size &&
	       log_source_bytes(source) <= scan->size - scan->offset;
}

/* The next sound header, and where its frame is.  Of a file that cannot be read
   the rest is passed over: a bad medium takes its time for each error. */
static int scan_next(struct scan *scan, struct log_source *out_source,
		     uint64_t *out_offset)
{
	const uint8_t *bytes;

	while (scan->offset + sizeof(*out_source) <= scan->size) {
		bytes = look(scan, sizeof(*out_source));
		if (!bytes)
			return 0;
		memcpy(out_source, bytes, sizeof(*out_source));
		if (!is_sound(scan, out_source)) {
			scan->offset += LOG_UNIT;
			continue;
		}
		*out_offset = scan->offset + sizeof(*out_source);
		scan->offset += log_source_bytes(out_source);
		scan->end = scan->offset;
		if (!out_source->flags)
			return 1;
	}
	return 0;
}

/* The frame, from malloc(); NULL: it is not what was written, or no memory. */
static void *read_frame(const struct scan *scan,
			const struct log_source *source, uint64_t offset)
{
	void *frame = malloc((size_t)source->stored_size + 1);

	if (frame && (ki_pread_all(scan->sys, scan->fd, frame,
				   (size_t)source->stored_size, offset) ||
		      ki_xxh3_64(frame, (size_t)source->stored_size) !=
			      source->body_sum)) {
		free(frame);
		frame = NULL;
	}
	return frame;
}

/* KILN_MISS: the frame does not hold what the header says. */
static enum kiln_status unpack(const struct log_source *source,
			       const void *frame, struct kiln_blob **out_blob)
{
	uint8_t digest[KI_BLAKE2B_BYTES];
	size_t size = (size_t)source->plain_size;
	struct kiln_blob *blob;
	void *data;

	blob = ki_blob_new(size, &data);
	if (!blob)
		return KILN_E_NO_MEMORY;
	if (ZSTD_decompress(data, size, frame, (size_t)source->stored_size) ==
	    size) {
		ki_blake2b(data, size, digest);
		if (!memcmp(digest, source->digest, sizeof(digest))) {
			*out_blob = blob;
			return KILN_OK;
		}
	}
	kiln_blob_unref(blob);
	return KILN_MISS;
}

static enum kiln_status find_in(struct ki_log *log, uint32_t number,
				const uint8_t *digest,
				struct kiln_blob **out_blob)
{
	struct scan *scan = scan_begin(log, number, KI_OPEN_READ);
	enum kiln_status status = KILN_MISS;
	struct log_source source;
	uint64_t offset;
	void *frame;

	while (scan && status == KILN_MISS &&
	       scan_next(scan, &source, &offset)) {
		if (memcmp(source.digest, digest, sizeof(source.digest)))
			continue;
		frame = read_frame(scan, &source, offset);
		if (frame)
			status = unpack(&source, frame, out_blob);
		free(frame);
	}
	scan_end(scan);
	return status;
}

enum kiln_status ki_log_find_source(
	struct kiln_tier *tier, const uint8_t digest[KILN_SOURCE_DIGEST_BYTES],
	struct kiln_blob **out_source)
{
	struct ki_log *log = (struct ki_log *)tier;
	_Atomic uint64_t *stripe = ki_log_enter(log);
	struct log_census census;
	struct log_index *index;
	size_t i, n = 0;
	enum kiln_status status = ki_log_current(log, LOG_READ, &index);

	if (!status)
		status = ki_log_census_take(log, 0, &census);
	if (!status) {
		status = KILN_MISS;
		for (i = census.n_sources; i-- > 0 && status == KILN_MISS &&
					   n++ < LOG_SOURCE_FILES_MAX;)
			status = find_in(log, census.sources[i].number, digest,
					 out_source);
		ki_log_census_fini(&census);
	}
	ki_log_leave(log, stripe);
	return status;
}

static void check_file(struct ki_log *log, uint32_t number,
		       struct kiln_verify_report *report)
{
	struct scan *scan = scan_begin(log, number, KI_OPEN_READ);
	struct log_source source;
	uint64_t offset;
	void *frame;

	while (scan && scan_next(scan, &source, &offset)) {
		frame = read_frame(scan, &source, offset);
		if (frame)
			report->n_sources++;
		else
			report->n_sources_torn++;
		free(frame);
	}
	scan_end(scan);
}

void ki_log_check_sources(struct ki_log *log, const struct log_census *census,
			  struct kiln_verify_report *report)
{
	size_t i, n = 0;

	for (i = census->n_sources; i-- > 0 && n++ < LOG_SOURCE_FILES_MAX;)
		check_file(log, census->sources[i].number, report);
}

/* ---- What is there already ------------------------------------------- */

static int by_digest(const void *a, const void *b)
{
	const struct kiln_kept *const *x = a, *const *y = b;

	return memcmp((*x)->digest, (*y)->digest, sizeof((*x)->digest));
}

static int is_at(const void *digest, const void *b)
{
	const struct kiln_kept *const *source = b;

	return memcmp(digest, (*source)->digest, sizeof((*source)->digest));
}

/* Sources to keep, in order of digests: equal ones side by side. */
struct keeping {
	struct kiln_kept **sources;
	size_t n;
	struct log_source *headers; /* of each */
	void **frames;		    /* NULL: not to be written */
	enum kiln_status status;    /* the first reason why one is not kept */
};

static void note(struct keeping *keeping, enum kiln_status status)
{
	if (!keeping->status)
		keeping->status = status;
}

/* All of this digest. */
static void mark(struct keeping *keeping, size_t i)
{
	const uint8_t *digest = keeping->sources[i]->digest;

	while (i && !memcmp(keeping->sources[i - 1]->digest, digest,
			    KI_BLAKE2B_BYTES))
		i--;
	for (; i < keeping->n &&
	       !memcmp(keeping->sources[i]->digest, digest, KI_BLAKE2B_BYTES);
	     i++)
		keeping->sources[i]->is_kept = 1;
}

static void mark_kept_in(struct keeping *keeping, struct scan *scan)
{
	struct kiln_kept **found;
	struct log_source source;
	uint64_t offset;
	void *frame;

	while (scan_next(scan, &source, &offset)) {
		found = bsearch(source.digest, keeping->sources, keeping->n,
				sizeof(*found), is_at);
		if (!found || (*found)->is_kept)
			continue;
		frame = read_frame(scan, &source, offset);
		if (frame)
			mark(keeping, (size_t)(found - keeping->sources));
		free(frame);
	}
}

static int all_are_kept(const struct keeping *keeping)
{
	size_t i;

	for (i = 0; i < keeping->n; i++)
		if (!keeping->sources[i]->is_kept)
			return 0;
	return 1;
}

/* Without a lock: files only grow. */
static enum kiln_status mark_kept(struct ki_log *log, struct keeping *keeping)
{
	struct log_census census;
	enum kiln_status status = ki_log_census_take(log, 0, &census);
	size_t i, n = 0;

	if (status)
		return status;
	for (i = census.n_sources;
	     i-- > 0 && n++ < LOG_SOURCE_FILES_MAX && !all_are_kept(keeping);) {
		struct scan *scan =
			scan_begin(log, census.sources[i].number, KI_OPEN_READ);

		if (scan)
			mark_kept_in(keeping, scan);
		scan_end(scan);
	}
	ki_log_census_fini(&census);
	return KILN_OK;
}

/* ---- Writing --------------------------------------------------------- */

static enum kiln_status pack(const struct kiln_kept *source, uint64_t bytes_max,
			     struct log_source *out_header, void **out_frame)
{
	size_t room = ZSTD_compressBound(source->size), size;
	void *frame, *smaller;

	if (source->size > LOG_SOURCE_BYTES_MAX)
		return KILN_E_TOO_LARGE;
	frame = malloc(room);
	if (!frame)
		return KILN_E_NO_MEMORY;
	size = ZSTD_compress(frame, room, source->data, source->size,
			     ZSTD_LEVEL);
	if (ZSTD_isError(size) || size + sizeof(*out_header) > bytes_max) {
		free(frame);
		return ZSTD_isError(size) ? KILN_E_NO_MEMORY : KILN_E_TOO_LARGE;
	}
	smaller = realloc(frame, size);
	*out_frame = smaller ? smaller : frame;
	*out_header = (struct log_source){
		.magic = LOG_SOURCE_MAGIC,
		.plain_size = source->size,
		.stored_size = size,
		.body_sum = ki_xxh3_64(*out_frame, size),
	};
	memcpy(out_header->digest, source->digest, sizeof(out_header->digest));
	return KILN_OK;
}

static void pack_all(struct keeping *keeping, uint64_t bytes_max)
{
	size_t i;

	for (i = 0; i < keeping->n; i++) {
		const struct kiln_kept *source = keeping->sources[i];
		int is_again = i && !by_digest(&keeping->sources[i - 1],
					       &keeping->sources[i]);

		if (!source->is_kept && !is_again && !keeping->frames[i])
			note(keeping,
			     pack(source, bytes_max, &keeping->headers[i],
				  &keeping->frames[i]));
	}
}

/* The file that is written to, under byte 0. */
struct writer {
	struct ki_log *log;
	struct log_census *census;
	struct log_limit_values limits;
	int fd; /* -1: none yet */
	uint32_t number;
	uint64_t size;
	uint64_t offset;
};

static void close_file(struct writer *writer)
{
	if (writer->fd >= 0)
		(void)writer->log->sys->close(writer->log->sys, writer->fd);
	writer->fd = -1;
}

static int is_over(const struct writer *writer, uint64_t bytes)
{
	return writer->limits.bytes_max &&
	       bytes + file_bytes(&writer->limits) + LOG_SLACK_BYTES >
		       writer->limits.bytes_max;
}

/* KILN_E_FULL: not even without the older ones. */
static enum kiln_status make_room(struct writer *writer)
{
	struct log_census *census = writer->census;

	if (is_over(writer, census->bytes - ki_log_source_bytes(census)))
		return KILN_E_FULL;
	while ((census->n_sources >= n_files_max(&writer->limits) ||
		is_over(writer, census->bytes)) &&
	       ki_log_drop_source(writer->log, census))
		;
	return is_over(writer, census->bytes) ? KILN_E_FULL : KILN_OK;
}

static enum kiln_status begin_file(struct writer *writer)
{
	const struct ki_sys *sys = writer->log->sys;
	struct log_census *census = writer->census;
	char passing[KI_PATH_MAX], path[KI_PATH_MAX];
	struct ki_file_info info;
	enum kiln_status status = make_room(writer);
	int fd, err;

	close_file(writer);
	if (status)
		return status;
	writer->number =
		census->n_sources
			? census->sources[census->n_sources - 1].number + 1
			: 1;
	err = source_path(writer->log, writer->number, path);
	if (!err)
		err = ki_log_temporary(writer->log, file_bytes(&writer->limits),
				       passing, &fd);
	if (err)
		return ki_log_status(err);
	err = sys->fstat(sys, fd, &info);
	if (!err)
		err = ki_log_census_add_source(census, writer->number, &info);
	if (!err)
		err = sys->rename_new(sys, passing, path);
	if (err) {
		(void)sys->close(sys, fd);
		(void)sys->unlink(sys, passing);
		return ki_log_status(err);
	}
	writer->fd = fd;
	writer->size = info.size;
	writer->offset = 0;
	return KILN_OK;
}

/* Go on behind what the newest has. */
static void open_newest(struct writer *writer)
{
	const struct log_census *census = writer->census;
	struct log_source source;
	struct scan *scan = NULL;
	uint64_t offset;

	if (census->n_sources)
		scan = scan_begin(writer->log,
				  census->sources[census->n_sources - 1].number,
				  KI_OPEN_READ | KI_OPEN_WRITE);
	if (!scan)
		return;
	while (scan_next(scan, &source, &offset))
		;
	writer->fd = scan->fd;
	writer->number = scan->number;
	writer->size = scan->size;
	writer->offset = scan->end;
	free(scan);
}

static int has_empty_room(const struct writer *writer, uint64_t bytes)
{
	const struct ki_sys *sys = writer->log->sys;
	uint64_t at = writer->offset, end = at + bytes;
	uint8_t piece[4096];

	if (writer->fd < 0 || bytes > writer->size || at > writer->size - bytes)
		return 0;
	for (; at < end; at += sizeof(piece)) {
		size_t n = end - at < sizeof(piece) ? (size_t)(end - at)
						    : sizeof(piece);
		if (ki_pread_all(sys, writer->fd, piece, n, at) || piece[0] ||
		    memcmp(piece, piece + 1, n - 1))
			return 0;
	}
	return 1;
}

static enum kiln_status write_one(struct writer *writer,
				  struct log_source *header, void *frame)
{
	const struct ki_sys *sys = writer->log->sys;
	struct ki_piece pieces[] = { { header, sizeof(*header) },
				     { frame, (size_t)header->stored_size } };
	enum kiln_status status = KILN_OK;
	uint64_t offset;

	if (!has_empty_room(writer, log_source_bytes(header)))
		status = begin_file(writer);
	if (status)
		return status;
	header->file = writer->number;
	header->header_sum =
		ki_xxh3_64(header, offsetof(struct log_source, header_sum));
	offset = writer->offset;
	writer->offset += log_source_bytes(header);
	return ki_log_status(
		ki_pwritev_all(sys, writer->fd, pieces, 2, offset));
}

static enum kiln_status write_locked(struct ki_log *log,
				     struct log_index *index, void *arg)
{
	struct keeping *keeping = arg;
	struct log_census census;
	struct writer writer = { .log = log, .census = &census, .fd = -1 };
	enum kiln_status status = ki_log_census_take(log, 1, &census);
	size_t i;

	if (status)
		return status;
	ki_log_limits_get(log, index, &writer.limits);
	open_newest(&writer);
	for (i = 0; i < keeping->n && !status; i++) {
		if (!keeping->frames[i] || keeping->sources[i]->is_kept)
			continue;
		status = write_one(&writer, &keeping->headers[i],
				   keeping->frames[i]);
		if (!status)
			mark(keeping, i);
	}
	close_file(&writer);
	ki_log_census_fini(&census);
	return status;
}

/* Packed before the lock is asked for. */
static enum kiln_status keep(struct ki_log *log, struct log_index *index,
			     void *arg)
{
	struct keeping *keeping = arg;
	struct log_limit_values limits;
	struct ki_lock lock;
	enum kiln_status status = mark_kept(log, keeping);

	if (status || all_are_kept(keeping))
		return status;
	ki_log_limits_get(log, index, &limits);
	pack_all(keeping, file_bytes(&limits));
	status = ki_log_structure_begin(log, &lock, LOG_ROLL_TIMEOUT_MS);
	if (status)
		return status;
	status = ki_log_is_current_locked(log, index)
			 ? write_locked(log, index, keeping)
			 : LOG_AGAIN;
	ki_log_structure_end(log, &lock);
	return status;
}

static int keeping_init(struct keeping *keeping, struct kiln_kept *sources,
			size_t n)
{
	size_t i;

	*keeping = (struct keeping){
		.sources = calloc(n, sizeof(*keeping->sources)),
		.headers = calloc(n, sizeof(*keeping->headers)),
		.frames = calloc(n, sizeof(*keeping->frames)),
	};
	if (!keeping->sources || !keeping->headers || !keeping->frames)
		return 0;
	for (i = 0; i < n; i++)
		keeping->sources[i] = &sources[i];
	qsort(keeping->sources, n, sizeof(*keeping->sources), by_digest);
	keeping->n = n;
	return 1;
}

static void keeping_fini(struct keeping *keeping)
{
	size_t i;

	for (i = 0; i < keeping->n; i++)
		free(keeping->frames[i]);
	free(keeping->frames);
	free(keeping->headers);
	free(keeping->sources);
}

enum kiln_status ki_log_keep_sources(struct kiln_tier *tier,
				     struct kiln_kept *sources,
				     size_t n_sources)
{
	struct ki_log *log = (struct ki_log *)tier;
	struct keeping keeping;
	enum kiln_status status = KILN_E_NO_MEMORY;

	if (!n_sources)
		return KILN_OK;
	if (keeping_init(&keeping, sources, n_sources))
		status = ki_log_change(log, LOG_WRITE, keep, &keeping);
	if (!status)
		status = keeping.status;
	keeping_fini(&keeping);
	return status;
}
