/* SPDX-License-Identifier: MIT */

#include "sealer.h"

#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/status.h"
#include "loop.h"
#include "remote/protocol.h"
#include "sign/files.h"

struct sealer {
	/* Fixed after creation. */
	struct loop *loop;
	struct loop_fd *watched;
	struct ki_thread thread;
	int event_fd;
	const char *signing_key; /* or NULL */

	struct ki_mutex mutex;
	struct ki_cond changed;
	/* Under mutex. */
	struct ki_list todo, done;
	int ends;
};

/* ---- In the thread ------------------------------------------------------- */

static enum kiln_status seal_plain(const struct sealer *sealer,
				   struct seal *seal, const uint8_t *plain,
				   struct ki_bytes *bytes)
{
	struct ki_item item = {
		.user_version = seal->user_version,
		.record = plain,
		.metadata = plain + seal->record_size,
		.value = plain + seal->record_size + seal->metadata_size,
		.record_size = seal->record_size,
		.metadata_size = seal->metadata_size,
		.value_size = seal->value_size,
	};
	struct ki_item_seal how = { .zstd_level = seal->zstd_level };
	struct ki_sign_secret secret = { 0 };
	enum kiln_status status = KILN_OK;

	if (sealer->signing_key) {
		status = ki_sign_read_given(&ki_sys_posix, sealer->signing_key,
					    &secret, NULL);
		how.secret = &secret;
	}
	if (!status)
		status = ki_item_seal(&item, &how, bytes);
	ki_sign_secret_fini(&secret);
	return status;
}

/* Read, not mapped: whatever became of the memory, there is no signal. */
static enum kiln_status read_plain(const struct seal *seal, uint8_t **out_plain)
{
	size_t size =
		seal->record_size + seal->metadata_size + seal->value_size;
	uint8_t *plain = malloc(size ? size : 1);
	int err;

	if (!plain)
		return KILN_E_NO_MEMORY;
	err = ki_pread_all(&ki_sys_posix, seal->fd, plain, size, 0);
	if (err) {
		free(plain);
		return ki_status_from_errno(err);
	}
	*out_plain = plain;
	return KILN_OK;
}

static void make(const struct sealer *sealer, struct seal *seal)
{
	struct ki_bytes bytes;
	uint8_t *read = NULL;
	size_t size;

	ki_bytes_init(&bytes);
	seal->item = NULL;
	seal->status = seal->plain ? KILN_OK : read_plain(seal, &read);
	if (!seal->status)
		seal->status = seal_plain(sealer, seal,
					  read ? read : seal->plain, &bytes);
	free(read);
	if (!seal->status) {
		uint8_t *data = ki_bytes_take(&bytes, &size);

		seal->item = data ? item_new(data, size) : NULL;
		if (!seal->item)
			seal->status = KILN_E_NO_MEMORY;
	}
	ki_bytes_fini(&bytes);
}

/* The next job, when there is one; NULL: it is over. */
static struct seal *next(struct sealer *sealer)
{
	struct seal *seal = NULL;

	ki_mutex_lock(&sealer->mutex);
	while (ki_list_is_empty(&sealer->todo) && !sealer->ends)
		ki_cond_wait(&sealer->changed, &sealer->mutex);
	if (!sealer->ends) {
		seal = ki_container(sealer->todo.next, struct seal, link);
		ki_list_remove(&seal->link);
	}
	ki_mutex_unlock(&sealer->mutex);
	return seal;
}

static void work(void *arg)
{
	struct sealer *sealer = arg;
	struct seal *seal;

	while ((seal = next(sealer))) {
		make(sealer, seal);
		ki_mutex_lock(&sealer->mutex);
		ki_list_append(&sealer->done, &seal->link);
		ki_mutex_unlock(&sealer->mutex);
		(void)eventfd_write(sealer->event_fd, 1);
	}
}

/* ---- In the loop --------------------------------------------------------- */

static struct seal *take_done(struct sealer *sealer)
{
	struct seal *seal = NULL;

	ki_mutex_lock(&sealer->mutex);
	if (!ki_list_is_empty(&sealer->done)) {
		seal = ki_container(sealer->done.next, struct seal, link);
		ki_list_remove(&seal->link);
	}
	ki_mutex_unlock(&sealer->mutex);
	return seal;
}

static void on_done(void *arg, int fd, int events)
{
	struct sealer *sealer = arg;
	struct seal *seal;
	eventfd_t n;

	(void)eventfd_read(fd, &n);
	while ((seal = take_done(sealer)))
		seal->done(seal);
}

struct sealer *sealer_new(struct loop *loop, const char *signing_key)
{
	struct sealer *sealer = calloc(1, sizeof(*sealer));

	if (!sealer)
		return NULL;
	sealer->loop = loop;
	ki_list_init(&sealer->todo);
	ki_list_init(&sealer->done);
	sealer->signing_key = signing_key;
	sealer->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (sealer->event_fd < 0) {
		free(sealer);
		return NULL;
	}
	ki_mutex_init(&sealer->mutex, KI_RANK_FRONT);
	ki_cond_init(&sealer->changed);
	sealer->watched =
		loop_watch(loop, sealer->event_fd, LOOP_IN, on_done, sealer);
	if (sealer->watched && !ki_thread_start(&sealer->thread, work, sealer))
		return sealer;
	loop_unwatch(sealer->watched);
	ki_cond_fini(&sealer->changed);
	ki_mutex_fini(&sealer->mutex);
	(void)close(sealer->event_fd);
	free(sealer);
	return NULL;
}

void sealer_free(struct sealer *sealer)
{
	struct seal *seal;

	if (!sealer)
		return;
	ki_mutex_lock(&sealer->mutex);
	sealer->ends = 1;
	ki_cond_signal_all(&sealer->changed);
	ki_mutex_unlock(&sealer->mutex);
	ki_thread_join(&sealer->thread);
	while ((seal = take_done(sealer)))
		item_unref(seal->item);
	loop_unwatch(sealer->watched);
	ki_cond_fini(&sealer->changed);
	ki_mutex_fini(&sealer->mutex);
	(void)close(sealer->event_fd);
	free(sealer);
}

void sealer_begin(struct sealer *sealer, struct seal *seal)
{
	ki_mutex_lock(&sealer->mutex);
	ki_list_append(&sealer->todo, &seal->link);
	ki_cond_signal_all(&sealer->changed);
	ki_mutex_unlock(&sealer->mutex);
}
