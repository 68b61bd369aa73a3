/* SPDX-License-Identifier: MIT */

#include "upload.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "loop.h"
#include "sys/sys.h"

/* Smaller ones are sent unasked. */
#define HEAD_BYTES_MIN ((size_t)16 << 10)

const char *const uploads_names[UPLOADS_N_COUNTS] = {
#define UPLOADS_NAME(id, name) name,
	UPLOADS_COUNTS(UPLOADS_NAME)
#undef UPLOADS_NAME
};

struct upload {
	struct name_link by_name;
	struct ki_list link; /* of those that wait */
	struct uploads *uploads;
	struct seal seal;
	uint8_t *plain;
	uint64_t bytes; /* of the queue's */
	struct item *item;
	int item_zstd_level;
	int is_filling; /* the item is as it came */
	int replaces;	/* what is there */
	int is_active;
	unsigned todo;	/* levels, bits */
	unsigned later; /* of them: failed in this round */
	unsigned level;
	unsigned n_tries; /* rounds */
	int is_bad;	  /* somewhere */
	struct ask ask;
	struct loop_timer *retry;
	char text[NAME_TEXT_BYTES];
};

static void pump(struct uploads *uploads);
static void step(struct upload *upload);

/* ---- Its life ------------------------------------------------------------ */

void uploads_begin(struct uploads *uploads, struct loop *loop,
		   struct sources *sources, struct refused *refused,
		   struct sealer *sealer)
{
	*uploads = (struct uploads){ .loop = loop,
				     .sources = sources,
				     .refused = refused,
				     .sealer = sealer,
				     .retry_ms = UPLOAD_RETRY_MS };
	ki_list_init(&uploads->waiting);
}

static void free_upload(struct upload *upload)
{
	struct uploads *uploads = upload->uploads;

	names_remove(&uploads->names, &upload->by_name);
	ki_list_remove(&upload->link);
	loop_cancel(upload->retry);
	uploads->n--;
	uploads->n_active -= (unsigned)upload->is_active;
	uploads->bytes -= upload->bytes;
	if (upload->seal.fd >= 0)
		(void)close(upload->seal.fd);
	item_unref(upload->item);
	free(upload->plain);
	free(upload);
}

void uploads_finish(struct uploads *uploads)
{
	struct name_link *link;

	while ((link = names_any(&uploads->names)))
		free_upload(ki_container(link, struct upload, by_name));
	names_fini(&uploads->names);
}

static void finish(struct upload *upload)
{
	struct uploads *uploads = upload->uploads;
	uint8_t name[KI_REMOTE_NAME_BYTES];

	memcpy(name, upload->by_name.name, sizeof(name));
	if (!upload->is_bad)
		uploads->counts[upload->is_filling ? UPLOADS_FILLED
						   : UPLOADS_DONE]++;
	free_upload(upload);
	if (uploads->uploaded)
		uploads->uploaded(uploads->arg, name);
	pump(uploads);
	if (!uploads->n && uploads->emptied)
		uploads->emptied(uploads->arg);
}

/* ---- One level ----------------------------------------------------------- */

static struct source *source_of(const struct upload *upload)
{
	return sources_of(upload->uploads->sources, upload->level,
			  upload->by_name.name);
}

static void leave_level(struct upload *upload)
{
	upload->todo &= ~(1u << upload->level);
	step(upload);
}

static void drop(struct upload *upload, enum uploads_count why)
{
	upload->uploads->counts[why]++;
	upload->is_bad = 1;
	leave_level(upload);
}

static void try_again(void *arg)
{
	struct upload *upload = arg;

	upload->retry = NULL;
	upload->later = 0;
	ki_list_append(&upload->uploads->waiting, &upload->link);
	pump(upload->uploads);
}

/* After the other levels: none is held up by one that fails. */
static void retry(struct upload *upload)
{
	upload->later |= 1u << upload->level;
	step(upload);
}

/* The round is over.  Who waits for the next makes room for others. */
static void await_round(struct upload *upload)
{
	struct uploads *uploads = upload->uploads;
	uint32_t ms = uploads->retry_ms << 2 * upload->n_tries;

	if (upload->n_tries + 1 < UPLOAD_TRIES_MAX)
		upload->retry = loop_after(uploads->loop,
					   sources_jitter(uploads->sources, ms),
					   try_again, upload);
	if (!upload->retry) {
		upload->level = (unsigned)__builtin_ctz(upload->todo);
		drop(upload, UPLOADS_DROPPED_FAULT);
		return;
	}
	upload->n_tries++;
	uploads->counts[UPLOADS_RETRIED]++;
	uploads->n_active--;
	upload->is_active = 0;
	pump(uploads);
}

static void put_done(void *arg, const struct outcome *outcome)
{
	struct upload *upload = arg;

	switch (outcome->status) {
	case KILN_OK:
		refused_forget(upload->uploads->refused, upload->by_name.name,
			       upload->level);
		/* fall through */
	case KILN_EXISTS:
		leave_level(upload);
		return;
	case KILN_E_TOO_LARGE:
		drop(upload, UPLOADS_DROPPED_LARGE);
		return;
	case KILN_E_READONLY:
		drop(upload, UPLOADS_DROPPED_READONLY);
		return;
	case KILN_E_OWNER:
	case KILN_E_FULL:
	case KILN_E_UNSUPPORTED:
		drop(upload, UPLOADS_DROPPED_FAULT);
		return;
	default:
		retry(upload);
	}
}

static int is_refused(const struct upload *upload)
{
	return refused_has(upload->uploads->refused, upload->by_name.name,
			   upload->level);
}

static void put(struct upload *upload)
{
	upload->ask.done = put_done;
	upload->ask.arg = upload;
	source_put(source_of(upload), &upload->ask, upload->text,
		   upload->item->bytes, upload->item->size,
		   !upload->replaces && !is_refused(upload));
}

static void head_done(void *arg, const struct outcome *outcome)
{
	struct upload *upload = arg;

	if (outcome->status == KILN_OK)
		leave_level(upload);
	else if (upload->uploads->sources->is_closing)
		drop(upload, UPLOADS_DROPPED_FAULT);
	else
		put(upload);
}

static void send(struct upload *upload)
{
	struct source *source = source_of(upload);

	if (upload->item->size > source->settings->item_bytes_max) {
		drop(upload, UPLOADS_DROPPED_LARGE);
		return;
	}
	if (!source_lets_write(source)) {
		if (source_takes_nothing(source))
			drop(upload, UPLOADS_DROPPED_READONLY);
		else
			retry(upload);
		return;
	}
	/* The probe of a source that failed is what failed: a put. */
	if (upload->item->size < HEAD_BYTES_MIN || upload->replaces ||
	    is_refused(upload) || source->writes.state != BREAKER_CLOSED) {
		put(upload);
		return;
	}
	upload->ask.done = head_done;
	upload->ask.arg = upload;
	source_head(source, &upload->ask, upload->text, 0);
}

/* ---- Sealing ------------------------------------------------------------- */

static void sealed(struct seal *seal)
{
	struct upload *upload = ki_container(seal, struct upload, seal);

	if (!seal->status) {
		upload->item = seal->item;
		upload->item_zstd_level = seal->zstd_level;
		send(upload);
		return;
	}
	upload->todo = 1u << upload->level;
	drop(upload, seal->status == KILN_E_TOO_LARGE ? UPLOADS_DROPPED_LARGE
		     : seal->status == KILN_E_OWNER || seal->status == KILN_MISS
			     ? UPLOADS_DROPPED_UNSIGNED
			     : UPLOADS_DROPPED_BAD);
}

static int is_sealed_for(const struct upload *upload,
			 const struct level *settings)
{
	return upload->item &&
	       (upload->is_filling ||
		upload->item_zstd_level == settings->zstd_level);
}

/* The next level that is still to be written. */
static void step(struct upload *upload)
{
	const unsigned now = upload->todo & ~upload->later;
	const struct level *settings;

	if (!upload->todo || upload->uploads->sources->is_closing) {
		finish(upload);
		return;
	}
	if (!now) {
		await_round(upload);
		return;
	}
	upload->level = (unsigned)__builtin_ctz(now);
	settings = upload->uploads->sources->levels[upload->level].settings;
	if (is_sealed_for(upload, settings)) {
		send(upload);
		return;
	}
	item_unref(upload->item);
	upload->item = NULL;
	upload->seal.zstd_level = settings->zstd_level;
	upload->seal.done = sealed;
	sealer_begin(upload->uploads->sealer, &upload->seal);
}

/* ---- The queue ----------------------------------------------------------- */

static void pump(struct uploads *uploads)
{
	struct upload *upload;

	if (uploads->is_pumping)
		return;
	uploads->is_pumping = 1;
	while (uploads->n_active < UPLOADS_ACTIVE_MAX &&
	       !ki_list_is_empty(&uploads->waiting)) {
		upload = ki_container(uploads->waiting.next, struct upload,
				      link);
		ki_list_remove(&upload->link);
		upload->is_active = 1;
		uploads->n_active++;
		step(upload);
	}
	uploads->is_pumping = 0;
}

static unsigned levels_to_write(const struct uploads *uploads, unsigned end)
{
	unsigned todo = 0;

	for (unsigned i = 0; i < end; i++)
		if (sources_is_written(uploads->sources, i))
			todo |= 1u << i;
	return todo;
}

static int has_room(const struct uploads *uploads, uint64_t bytes)
{
	return uploads->n < UPLOADS_MAX &&
	       (!uploads->n || uploads->bytes + bytes <= UPLOADS_BYTES_MAX);
}

/* NULL, and counted, if it cannot be queued. */
static struct upload *new_upload(struct uploads *uploads, const uint8_t *name,
				 uint64_t bytes, unsigned todo)
{
	struct upload *upload;

	if (!todo)
		return NULL;
	if (names_find(&uploads->names, name)) {
		uploads->counts[UPLOADS_TWICE]++;
		return NULL;
	}
	upload = has_room(uploads, bytes) ? calloc(1, sizeof(*upload)) : NULL;
	if (upload && !names_add(&uploads->names, &upload->by_name, name)) {
		free(upload);
		upload = NULL;
	}
	if (!upload) {
		uploads->counts[UPLOADS_DROPPED_FULL]++;
		return NULL;
	}
	upload->uploads = uploads;
	upload->bytes = bytes;
	upload->todo = todo;
	upload->seal.fd = -1;
	ki_list_init(&upload->link);
	ki_list_init(&upload->seal.link);
	ki_hex(name, KI_REMOTE_NAME_BYTES, upload->text);
	uploads->n++;
	uploads->bytes += bytes;
	uploads->counts[UPLOADS_QUEUED]++;
	return upload;
}

static void enqueue(struct upload *upload)
{
	ki_list_append(&upload->uploads->waiting, &upload->link);
	pump(upload->uploads);
}

void uploads_fill(struct uploads *uploads,
		  const uint8_t name[KI_REMOTE_NAME_BYTES], unsigned level,
		  struct item *item)
{
	struct upload *upload;

	upload = new_upload(uploads, name, item->size,
			    levels_to_write(uploads, level));
	if (!upload)
		return;
	upload->item = item_ref(item);
	upload->is_filling = 1;
	enqueue(upload);
}

/* ---- What programs hand over --------------------------------------------- */

/* Memory whose size and bytes nobody can change any more. */
static int is_sealed_memory(int fd, uint64_t size)
{
	int wanted = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat info;

	return seals >= 0 && (seals & wanted) == wanted && !fstat(fd, &info) &&
	       S_ISREG(info.st_mode) && (uint64_t)info.st_size == size;
}

/* Small ones are read at once: the queue is longer than a table of descriptors. */
static int hold(struct upload *upload, const struct upload_put *request,
		size_t size)
{
	struct seal *seal = &upload->seal;

	seal->user_version = request->user_version;
	seal->record_size = (size_t)request->record_size;
	seal->metadata_size = (size_t)request->metadata_size;
	seal->value_size = (size_t)request->value_size;
	if (size > UPLOAD_KEPT_BYTES_MAX) {
		seal->fd = request->fd;
		return 1;
	}
	upload->plain = malloc(size ? size : 1);
	seal->plain = upload->plain;
	return upload->plain && !ki_pread_all(&ki_sys_posix, request->fd,
					      upload->plain, size, 0);
}

static enum kiln_status accept(struct uploads *uploads,
			       const struct upload_put *request, int *out_keeps)
{
	uint64_t size = request->record_size + request->metadata_size +
			request->value_size;
	struct upload *upload;

	if (request->record_size > KI_REMOTE_ITEM_MAX ||
	    request->metadata_size > KI_REMOTE_ITEM_MAX ||
	    request->value_size > KI_REMOTE_ITEM_MAX ||
	    size > KI_REMOTE_ITEM_MAX || !is_sealed_memory(request->fd, size))
		return KILN_E_FORMAT;
	if (!uploads->sealer) {
		uploads->counts[UPLOADS_DROPPED_UNSIGNED]++;
		return KILN_OK;
	}
	upload = new_upload(
		uploads, request->name, size,
		levels_to_write(uploads, (unsigned)uploads->sources->n_levels));
	if (!upload)
		return KILN_OK;
	if (!hold(upload, request, (size_t)size)) {
		uploads->counts[UPLOADS_DROPPED_BAD]++;
		free_upload(upload);
		return KILN_OK;
	}
	upload->replaces = request->replaces;
	*out_keeps = upload->seal.fd >= 0;
	enqueue(upload);
	return KILN_OK;
}

enum kiln_status uploads_put(struct uploads *uploads,
			     const struct upload_put *request)
{
	int keeps = 0;
	enum kiln_status status = accept(uploads, request, &keeps);

	if (!keeps)
		(void)close(request->fd);
	return status;
}

int uploads_has(const struct uploads *uploads,
		const uint8_t name[KI_REMOTE_NAME_BYTES])
{
	return names_find(&uploads->names, name) != NULL;
}
