/* SPDX-License-Identifier: MIT */

#include "original.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define N_WAYS 4

struct line {
	struct line *newer, *older; /* a ring */
	uint64_t tag;
	uint8_t *data;
	uint8_t valid, dirty;
};

struct set {
	struct line lines[N_WAYS];
	struct line *sorted[N_WAYS]; /* the first n_used are, by tag */
	size_t n_used;
	struct line *newest; /* its `newer` is the oldest */
};

struct original {
	size_t size, line_size, n_sets;
	unsigned offset_bits, set_bits;
	cache_ops_t ops;
	pthread_mutex_t mutex;
	struct set *sets;
};

size_t original_bytes_per_line(void)
{
	return sizeof(struct set) / N_WAYS;
}

/* ---- Sets ----------------------------------------------------------------- */

static unsigned log_2(size_t n)
{
	unsigned bits = 0;

	while (n >>= 1)
		bits++;
	return bits;
}

static struct set *set_of(struct original *cache, uint64_t addr)
{
	const uint64_t mask = ((uint64_t)1 << cache->set_bits) - 1;

	return &cache->sets[addr >> cache->offset_bits & mask];
}

static uint64_t tag_of(const struct original *cache, uint64_t addr)
{
	return addr >> (cache->offset_bits + cache->set_bits);
}

static uint64_t addr_of(const struct original *cache, const struct set *set,
			const struct line *line)
{
	const uint64_t index = (uint64_t)(set - cache->sets);

	return (line->tag << cache->set_bits | index) << cache->offset_bits;
}

static int by_tag(const void *a, const void *b)
{
	const struct line *x = *(struct line *const *)a;
	const struct line *y = *(struct line *const *)b;

	return x->tag < y->tag ? -1 : x->tag > y->tag;
}

static void unlink_line(struct set *set, struct line *line)
{
	if (set->newest == line)
		set->newest = line->older == line ? NULL : line->older;
	line->newer->older = line->older;
	line->older->newer = line->newer;
}

static void link_newest(struct set *set, struct line *line)
{
	if (set->newest) {
		line->older = set->newest;
		line->newer = set->newest->newer;
		line->newer->older = line;
		line->older->newer = line;
	} else {
		line->newer = line->older = line;
	}
	set->newest = line;
}

static struct line *find(struct original *cache, uint64_t addr)
{
	struct set *set = set_of(cache, addr);
	struct line key = { .tag = tag_of(cache, addr) }, *at = &key, **found;

	found = bsearch(&at, set->sorted, set->n_used, sizeof(at), by_tag);
	if (!found || !(*found)->valid)
		return NULL;
	if (set->newest != *found) {
		at = *found;
		unlink_line(set, at);
		link_newest(set, at);
	}
	return *found;
}

/* ---- The device ------------------------------------------------------------ */

static int fetch(struct original *cache, uint64_t addr, uint8_t *data)
{
	size_t done = 0;

	while (done < cache->line_size) {
		const ssize_t n = cache->ops.readCb(addr + done, data + done,
						    cache->line_size - done,
						    cache->ops.ctx);

		if (n <= 0)
			return -EIO;
		done += (size_t)n;
	}
	return 0;
}

static int write_back(struct original *cache, const struct set *set,
		      struct line *line)
{
	const uint64_t addr = addr_of(cache, set, line);
	size_t done = 0;

	while (done < cache->line_size) {
		const ssize_t n = cache->ops.writeCb(
			addr + done, line->data + done, cache->line_size - done,
			cache->ops.ctx);

		if (n <= 0)
			return -EIO;
		done += (size_t)n;
	}
	line->dirty = 0;
	return 0;
}

/* A line goes, and is the next to be used; the table stays as it is. */
static void drop(struct set *set, struct line *line)
{
	unlink_line(set, line);
	link_newest(set, line);
	set->newest = line->older;
	free(line->data);
	line->data = NULL;
	line->tag = 0;
	line->valid = line->dirty = 0;
}

/* Room for a line: a new one, or the one used least recently. */
static struct line *take(struct original *cache, struct set *set)
{
	struct line *line = set->newest->newer;

	if (line->valid && line->dirty && write_back(cache, set, line))
		return NULL;
	if (!line->data)
		line->data = malloc(cache->line_size);
	if (!line->data)
		return NULL;
	if (set->n_used < N_WAYS && !line->valid)
		set->sorted[set->n_used++] = line;
	return line;
}

static int get(struct original *cache, uint64_t addr, int whole,
	       struct line **out_line)
{
	struct set *set = set_of(cache, addr);
	struct line *line = find(cache, addr);

	*out_line = line;
	if (line)
		return 0;
	line = take(cache, set);
	if (!line)
		return -ENOMEM;
	line->tag = tag_of(cache, addr);
	if (!whole && fetch(cache, addr & ~(uint64_t)(cache->line_size - 1),
			    line->data)) {
		drop(set, line);
		return -EIO;
	}
	line->valid = 1;
	line->dirty = 0;
	qsort(set->sorted, set->n_used, sizeof(*set->sorted), by_tag);
	unlink_line(set, line);
	link_newest(set, line);
	*out_line = line;
	return 0;
}

/* ---- Calls ------------------------------------------------------------------ */

struct original *original_init(size_t size, size_t line_size, size_t n_lines,
			       const cache_ops_t *ops)
{
	struct original *cache;

	if (!size || !line_size || !n_lines || n_lines % N_WAYS)
		return NULL;
	cache = calloc(1, sizeof(*cache));
	if (!cache)
		return NULL;
	cache->size = size;
	cache->line_size = line_size;
	cache->n_sets = n_lines / N_WAYS;
	cache->offset_bits = log_2(line_size);
	cache->set_bits = log_2(cache->n_sets);
	cache->ops = *ops;
	cache->sets = calloc(cache->n_sets, sizeof(*cache->sets));
	if (!cache->sets) {
		free(cache);
		return NULL;
	}
	pthread_mutex_init(&cache->mutex, NULL);
	for (size_t i = 0; i < cache->n_sets; i++) {
		for (size_t way = 0; way < N_WAYS; way++)
			link_newest(&cache->sets[i],
				    &cache->sets[i].lines[way]);
	}
	return cache;
}

static ssize_t access_lines(struct original *cache, uint64_t addr, uint8_t *out,
			    const uint8_t *in, size_t count, int policy)
{
	size_t done = 0;
	int err;

	if (addr + count > cache->size && addr < cache->size)
		count = (size_t)(cache->size - addr);
	while (done < count) {
		const size_t offset =
			(size_t)(addr + done) & (cache->line_size - 1);
		const size_t left = count - done;
		const size_t n = left < cache->line_size - offset
					 ? left
					 : cache->line_size - offset;
		struct line *line;

		err = get(cache, addr + done, in && n == cache->line_size,
			  &line);
		if (err)
			return err;
		if (in) {
			memcpy(line->data + offset, in + done, n);
			line->dirty = 1;
		} else {
			memcpy(out + done, line->data + offset, n);
		}
		if (in && policy == LIBCACHE_WRITE_THROUGH &&
		    write_back(cache, set_of(cache, addr + done), line))
			return -EIO;
		done += n;
	}
	return (ssize_t)done;
}

ssize_t original_read(struct original *cache, uint64_t addr, void *buffer,
		      size_t count)
{
	ssize_t n;

	if (!buffer || addr > cache->size)
		return -EINVAL;
	pthread_mutex_lock(&cache->mutex);
	n = access_lines(cache, addr, buffer, NULL, count, 0);
	pthread_mutex_unlock(&cache->mutex);
	return n;
}

ssize_t original_write(struct original *cache, uint64_t addr,
		       const void *buffer, size_t count, int policy)
{
	ssize_t n;

	if (!buffer || addr > cache->size ||
	    (policy != LIBCACHE_WRITE_BACK && policy != LIBCACHE_WRITE_THROUGH))
		return -EINVAL;
	pthread_mutex_lock(&cache->mutex);
	n = access_lines(cache, addr, NULL, buffer, count, policy);
	pthread_mutex_unlock(&cache->mutex);
	return n;
}

enum { FLUSH = 1, DROP = 2 };

/* Goes along the addresses, not along the lines. */
static int walk(struct original *cache, uint64_t begin, uint64_t end, int what)
{
	int err = 0;

	if (begin > end || begin > cache->size)
		return -EINVAL;
	if (begin < cache->size && end > cache->size)
		end = cache->size;
	pthread_mutex_lock(&cache->mutex);
	begin &= ~(uint64_t)(cache->line_size - 1);
	for (; begin < end && !err; begin += cache->line_size) {
		struct line *line = find(cache, begin);

		if (line && (what & FLUSH) && line->dirty)
			err = write_back(cache, set_of(cache, begin), line);
		if (line && (what & DROP) && !err)
			drop(set_of(cache, begin), line);
	}
	pthread_mutex_unlock(&cache->mutex);
	return err;
}

int original_flush(struct original *cache, uint64_t begin, uint64_t end)
{
	return walk(cache, begin, end, FLUSH);
}

int original_invalidate(struct original *cache, uint64_t begin, uint64_t end)
{
	return walk(cache, begin, end, DROP);
}

int original_clean(struct original *cache, uint64_t begin, uint64_t end)
{
	return walk(cache, begin, end, FLUSH | DROP);
}

int original_deinit(struct original *cache)
{
	for (size_t i = 0; i < cache->n_sets; i++) {
		struct set *set = &cache->sets[i];

		for (size_t way = 0; way < N_WAYS; way++) {
			struct line *line = &set->lines[way];

			if (line->valid && line->dirty &&
			    write_back(cache, set, line))
				return -EIO;
			drop(set, line);
		}
	}
	pthread_mutex_destroy(&cache->mutex);
	free(cache->sets);
	free(cache);
	return 0;
}
