/* SPDX-License-Identifier: MIT */

#include "names.h"

#include <stdlib.h>
#include <string.h>

#define BUCKETS_FIRST 64

static size_t bucket_of(const struct names *names, const uint8_t *name)
{
	return (size_t)ki_get_u64(name) & (names->n_buckets - 1);
}

void names_fini(struct names *names)
{
	free(names->buckets);
	*names = (struct names){ 0 };
}

static struct name_link *find_from(struct name_link *link, const uint8_t *name)
{
	while (link && memcmp(link->name, name, KI_REMOTE_NAME_BYTES))
		link = link->next;
	return link;
}

struct name_link *names_find(const struct names *names,
			     const uint8_t name[KI_REMOTE_NAME_BYTES])
{
	if (!names->n)
		return NULL;
	return find_from(names->buckets[bucket_of(names, name)], name);
}

struct name_link *names_next(const struct name_link *link)
{
	return find_from(link->next, link->name);
}

/* From the oldest to the newest, so that their order stays. */
static void move_chain(struct names *names, struct name_link *link)
{
	struct name_link **bucket;

	if (!link)
		return;
	move_chain(names, link->next);
	bucket = &names->buckets[bucket_of(names, link->name)];
	link->next = *bucket;
	*bucket = link;
}

static int grow(struct names *names)
{
	size_t n = names->n_buckets ? 2 * names->n_buckets : BUCKETS_FIRST;
	struct name_link **buckets = calloc(n, sizeof(struct name_link *));
	struct names old = *names;

	if (!buckets)
		return 0;
	names->buckets = buckets;
	names->n_buckets = n;
	for (size_t i = 0; i < old.n_buckets; i++)
		move_chain(names, old.buckets[i]);
	free(old.buckets);
	return 1;
}

/* Where it cannot grow it is slower. */
int names_add(struct names *names, struct name_link *link,
	      const uint8_t name[KI_REMOTE_NAME_BYTES])
{
	struct name_link **bucket;

	if (names->n >= names->n_buckets && !grow(names) && !names->n_buckets)
		return 0;
	memcpy(link->name, name, KI_REMOTE_NAME_BYTES);
	bucket = &names->buckets[bucket_of(names, name)];
	link->next = *bucket;
	*bucket = link;
	names->n++;
	return 1;
}

void names_remove(struct names *names, struct name_link *link)
{
	struct name_link **at = &names->buckets[bucket_of(names, link->name)];

	while (*at != link)
		at = &(*at)->next;
	*at = link->next;
	names->n--;
}

struct name_link *names_after(const struct names *names,
			      const struct name_link *link)
{
	size_t i = link ? bucket_of(names, link->name) + 1 : 0;

	if (link && link->next)
		return link->next;
	for (; names->n && i < names->n_buckets; i++)
		if (names->buckets[i])
			return names->buckets[i];
	return NULL;
}

struct name_link *names_any(const struct names *names)
{
	return names_after(names, NULL);
}
