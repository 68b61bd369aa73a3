/* SPDX-License-Identifier: MIT */

/*
 *	0     head: magic, version, whether the rows are complete, sum
 *	64    rows of 192 bytes: name, quota, sum; account, sum
 *
 * A row is written in place by one write under the file's lock, and its two halves
 * vouch for themselves: an account that is not sound is counted anew, a name that is
 * not is no row.  Nobody else's row is written, so that a writer that dies, or whose
 * disk is full, spoils at most its own.  Bytes behind the last whole row are none.
 *
 * The file may go while somebody waits for its lock: who has it looks whether it is
 * still there.
 */

#include "store/quotas.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "store/store.h"

#define MAGIC	    0x5341544f5551494bull /* "KIQUOTAS" */
#define VERSION	    1
#define IS_COMPLETE ((uint64_t)1)
#define TRIES_MAX   16

struct head {
	uint64_t magic;
	uint64_t version;
	uint64_t flags;
	uint64_t reserved[4];
	uint64_t sum; /* XXH3-64 of this before */
};

struct row {
	char name[KILN_NAMESPACE_BYTES];
	uint64_t bytes_max;
	uint64_t sum_of_limit;
	uint64_t bytes;
	uint64_t turn;
	uint64_t n_evicted;
	uint64_t n_refused;
	uint64_t n_begun;
	uint64_t sum_of_account;
};

_Static_assert(sizeof(struct head) == 64, "format");
_Static_assert(sizeof(struct row) == 192, "format");

#define FILE_BYTES_MAX                                                         \
	(sizeof(struct head) + KILN_NAMESPACES_MAX * sizeof(struct row))

static uint64_t place_of(size_t i)
{
	return sizeof(struct head) + i * sizeof(struct row);
}

/* ---- Rows ------------------------------------------------------------------ */

/* In its place: a row that was copied elsewhere is none. */
static uint64_t sum_of_limit(const struct row *row, size_t i)
{
	uint64_t place = i;
	struct ki_piece pieces[] = {
		{ row, offsetof(struct row, sum_of_limit) },
		{ &place, sizeof(place) },
	};

	return ki_xxh3_64_pieces(pieces, 2);
}

static uint64_t sum_of_account(const struct row *row)
{
	struct ki_piece pieces[] = {
		{ row->name, sizeof(row->name) },
		{ &row->bytes, offsetof(struct row, sum_of_account) -
				       offsetof(struct row, bytes) },
	};

	return ki_xxh3_64_pieces(pieces, 2);
}

static void take_row(const struct row *from, size_t i, struct ki_quota *out)
{
	*out = (struct ki_quota){ .bytes = KILN_NAMESPACE_UNCOUNTED };
	if (from->sum_of_limit != sum_of_limit(from, i) ||
	    from->name[sizeof(from->name) - 1])
		return;
	memcpy(out->name, from->name, sizeof(out->name));
	out->bytes_max = from->bytes_max;
	if (from->sum_of_account != sum_of_account(from))
		return;
	out->bytes = from->bytes;
	out->turn = from->turn;
	out->n_begun = from->n_begun;
	out->n_evicted = from->n_evicted;
	out->n_refused = from->n_refused;
}

int ki_quotas_write(struct ki_quotas *quotas, const struct ki_quota *quota)
{
	const size_t i = (size_t)(quota - quotas->rows);
	struct row row = {
		.bytes_max = quota->bytes_max,
		.bytes = quota->bytes,
		.turn = quota->turn,
		.n_begun = quota->n_begun,
		.n_evicted = quota->n_evicted,
		.n_refused = quota->n_refused,
	};

	memcpy(row.name, quota->name, sizeof(row.name));
	row.sum_of_limit = sum_of_limit(&row, i);
	row.sum_of_account = sum_of_account(&row);
	return ki_pwrite_all(quotas->sys, quotas->fd, &row, sizeof(row),
			     place_of(i));
}

/* ---- The file -------------------------------------------------------------- */

static uint64_t sum_of_head(const struct head *head)
{
	return ki_xxh3_64(head, offsetof(struct head, sum));
}

int ki_quotas_write_head(struct ki_quotas *quotas)
{
	struct head head = {
		.magic = MAGIC,
		.version = VERSION,
		.flags = quotas->is_complete ? IS_COMPLETE : 0,
	};

	head.sum = sum_of_head(&head);
	return ki_pwrite_all(quotas->sys, quotas->fd, &head, sizeof(head), 0);
}

static int take_head(struct ki_quotas *quotas, const struct head *head,
		     size_t size)
{
	if (size < sizeof(*head) || head->magic != MAGIC ||
	    head->sum != sum_of_head(head))
		return -EBADMSG;
	if (head->version != VERSION)
		return -EINVAL;
	quotas->is_complete = !!(head->flags & IS_COMPLETE);
	return 0;
}

static int load(struct ki_quotas *quotas, uint64_t size)
{
	union {
		struct head head;
		uint8_t bytes[FILE_BYTES_MAX];
	} *file = malloc(sizeof(*file));
	int err;

	if (!file)
		return -ENOMEM;
	if (size > sizeof(*file))
		size = sizeof(*file);
	err = ki_pread_all(quotas->sys, quotas->fd, file, (size_t)size, 0);
	if (!err)
		err = take_head(quotas, &file->head, (size_t)size);
	while (!err && place_of(quotas->n + 1) <= size) {
		struct row row;

		memcpy(&row, file->bytes + place_of(quotas->n), sizeof(row));
		take_row(&row, quotas->n, &quotas->rows[quotas->n]);
		quotas->n++;
	}
	free(file);
	return err;
}

/* Open, and locked where there are locks.  -ESTALE: it was removed meanwhile. */
static int open_file(struct ki_quotas *quotas, const char *path, unsigned flags,
		     enum ki_quotas_mode mode, uint64_t deadline_ns,
		     struct ki_file_info *out_info)
{
	const unsigned permissions = flags & KILN_OPEN_SHARED ? 0660 : 0600;
	const struct ki_sys *sys = quotas->sys;
	unsigned how = KI_OPEN_READ | ki_open_flags(flags);
	int err;

	if (mode == KI_QUOTAS_CHANGE || mode == KI_QUOTAS_MAKE)
		how |= KI_OPEN_WRITE;
	if (mode == KI_QUOTAS_MAKE)
		how |= KI_OPEN_CREATE;
	quotas->fd = sys->open(sys, path, how, permissions);
	if (quotas->fd < 0)
		return quotas->fd;
	ki_fork_close_add(&quotas->place, quotas->fd);
	if (mode == KI_QUOTAS_MAKE && (flags & KILN_OPEN_SHARED))
		(void)sys->chmod(sys, path, permissions);
	if (mode != KI_QUOTAS_PEEK &&
	    ki_lock_until(sys, quotas->fd,
			  mode == KI_QUOTAS_LOOK ? KI_LOCK_SHARED
						 : KI_LOCK_EXCLUSIVE,
			  0, 1, deadline_ns) == -ETIMEDOUT)
		return -ETIMEDOUT;
	err = sys->fstat(sys, quotas->fd, out_info);
	if (err)
		return err;
	if (!S_ISREG(out_info->mode))
		return -EINVAL;
	return out_info->n_links ? 0 : -ESTALE;
}

static void close_file(struct ki_quotas *quotas)
{
	if (quotas->fd < 0)
		return;
	ki_fork_close_remove(&quotas->place);
	(void)quotas->sys->close(quotas->sys, quotas->fd);
	quotas->fd = -1;
}

int ki_quotas_open(const struct ki_sys *sys, const char *path, unsigned flags,
		   enum ki_quotas_mode mode, uint64_t deadline_ns,
		   struct ki_quotas **out_quotas)
{
	struct ki_quotas *quotas = calloc(1, sizeof(*quotas));
	struct ki_file_info info;
	int tries, err = -ESTALE;

	if (!quotas)
		return -ENOMEM;
	quotas->sys = sys;
	for (tries = 0; err == -ESTALE && tries < TRIES_MAX; tries++) {
		err = open_file(quotas, path, flags, mode, deadline_ns, &info);
		if (err)
			close_file(quotas);
	}
	if (!err)
		err = load(quotas, info.size);
	if (err == -EBADMSG && mode == KI_QUOTAS_MAKE)
		err = ki_quotas_write_head(quotas);
	if (err) {
		ki_quotas_close(quotas);
		return err;
	}
	*out_quotas = quotas;
	return 0;
}

void ki_quotas_close(struct ki_quotas *quotas)
{
	close_file(quotas);
	free(quotas);
}

/* ---- Names ----------------------------------------------------------------- */

struct ki_quota *ki_quotas_find(struct ki_quotas *quotas, const char *name)
{
	for (size_t i = 0; i < quotas->n; i++)
		if (!strcmp(quotas->rows[i].name, name))
			return &quotas->rows[i];
	return NULL;
}

/* One that says nothing, or of those without a quota of their own the smallest. */
static struct ki_quota *find_place(struct ki_quotas *quotas)
{
	struct ki_quota *place = NULL;

	for (size_t i = 0; i < quotas->n; i++) {
		struct ki_quota *row = &quotas->rows[i];

		if (!*row->name)
			return row;
		if (!row->bytes_max && (!place || row->bytes < place->bytes))
			place = row;
	}
	return quotas->n < KILN_NAMESPACES_MAX ? &quotas->rows[quotas->n]
					       : place;
}

struct ki_quota *ki_quotas_add(struct ki_quotas *quotas, const char *name)
{
	struct ki_quota *row = find_place(quotas);

	if (!row)
		return NULL;
	if (row == &quotas->rows[quotas->n]) {
		quotas->n++;
	} else if (quotas->is_complete) {
		/* Whoever had it may come back. */
		quotas->is_complete = 0;
		if (ki_quotas_write_head(quotas))
			return NULL;
	}
	*row = (struct ki_quota){ .bytes = quotas->is_complete
						   ? 0
						   : KILN_NAMESPACE_UNCOUNTED };
	strcpy(row->name, name);
	return row;
}

uint64_t ki_quotas_limit(struct ki_quotas *quotas, const struct ki_quota *row)
{
	const struct ki_quota *others;

	if (row->bytes_max)
		return row->bytes_max;
	others = ki_quotas_find(quotas, KILN_NAMESPACE_OTHERS);
	return others ? others->bytes_max : 0;
}
