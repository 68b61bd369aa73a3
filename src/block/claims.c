/* SPDX-License-Identifier: MIT */

/*
 * Who may do what with which blocks, who may call the device, and the calls.
 */

#include "block/inside.h"

#include <limits.h>

/* A thread that is inside a function of the device waits for nothing: what it
   would wait for may wait for it. */
static int is_inside_locked(struct kiln_block *b) KI_REQUIRES(b->mutex)
{
	size_t i;

	for (i = 0; i < b->n_calls; i++)
		if (b->calls[i].is_used &&
		    pthread_equal(b->calls[i].thread, pthread_self()))
			return 1;
	return 0;
}

static void wait_locked(struct kiln_block *b) KI_REQUIRES(b->mutex)
{
	b->n_waiting++;
	ki_cond_wait(&b->changed, &b->mutex);
	b->n_waiting--;
}

static int is_claimed_locked(struct kiln_block *b, uint64_t first, uint64_t end)
	KI_REQUIRES(b->mutex)
{
	const struct claim *claim;

	for (claim = b->claims; claim; claim = claim->next)
		if (claim->first < end && first < claim->end)
			return 1;
	return 0;
}

int ki_block_claim(struct kiln_block *b, struct claim *claim, uint64_t first,
		   uint64_t end, int waits)
{
	int err = 0;

	ki_mutex_lock(&b->mutex);
	while (!err && is_claimed_locked(b, first, end)) {
		if (!waits)
			err = -EAGAIN;
		else if (is_inside_locked(b))
			err = -EDEADLK;
		else
			wait_locked(b);
	}
	if (!err) {
		*claim = (struct claim){ b->claims, first, end };
		b->claims = claim;
	}
	ki_mutex_unlock(&b->mutex);
	return err;
}

void ki_block_unclaim(struct kiln_block *b, struct claim *claim)
{
	struct claim **link;

	ki_mutex_lock(&b->mutex);
	for (link = &b->claims; *link != claim; link = &(*link)->next)
		;
	*link = claim->next;
	ki_cond_signal_all(&b->changed);
	ki_mutex_unlock(&b->mutex);
}

void ki_block_claim_less(struct kiln_block *b, struct claim *claim,
			 uint64_t end)
{
	ki_mutex_lock(&b->mutex);
	claim->end = end;
	ki_cond_signal_all(&b->changed);
	ki_mutex_unlock(&b->mutex);
}

int ki_block_is_busy(struct kiln_block *b)
{
	int result;

	ki_mutex_lock(&b->mutex);
	result = b->claims || b->n_waiting;
	ki_mutex_unlock(&b->mutex);
	return result;
}

static struct call *free_call_locked(struct kiln_block *b) KI_REQUIRES(b->mutex)
{
	size_t i;

	for (i = 0; i < b->n_calls; i++)
		if (!b->calls[i].is_used)
			return &b->calls[i];
	return NULL;
}

int ki_block_call(struct kiln_block *b, struct call **out_call)
{
	struct call *call;
	int err = 0;

	ki_mutex_lock(&b->mutex);
	while (!(call = free_call_locked(b)) && !err) {
		if (is_inside_locked(b))
			err = -EDEADLK;
		else
			wait_locked(b);
	}
	if (!err) {
		call->is_used = 1;
		call->thread = pthread_self();
		*out_call = call;
	}
	ki_mutex_unlock(&b->mutex);
	return err;
}

void ki_block_uncall(struct kiln_block *b, struct call *call)
{
	if (!call)
		return;
	ki_mutex_lock(&b->mutex);
	call->is_used = 0;
	ki_cond_signal_all(&b->changed);
	ki_mutex_unlock(&b->mutex);
}

static int note_failure(struct kiln_block *b, ssize_t result)
{
	store(&b->device_error, result);
	add(&b->stats.errors, 1);
	return -EIO;
}

int ki_block_device_read(struct kiln_block *b, uint64_t offset, void *buffer,
			 size_t count)
{
	size_t done = 0;
	ssize_t n;

	while (done < count) {
		add(&b->stats.read_calls, 1);
		n = b->device.read(offset + done, (uint8_t *)buffer + done,
				   count - done, b->device.context);
		if (n <= 0 || (size_t)n > count - done)
			return note_failure(b, n);
		done += (size_t)n;
		add(&b->stats.read_bytes, (uint64_t)n);
	}
	return 0;
}

int ki_block_device_write(struct kiln_block *b, uint64_t offset,
			  const void *buffer, size_t count)
{
	size_t done = 0;
	ssize_t n;

	while (done < count) {
		add(&b->stats.write_calls, 1);
		n = b->device.write(offset + done,
				    (const uint8_t *)buffer + done,
				    count - done, b->device.context);
		if (n <= 0 || (size_t)n > count - done)
			return note_failure(b, n);
		done += (size_t)n;
		add(&b->stats.write_bytes, (uint64_t)n);
	}
	return 0;
}
