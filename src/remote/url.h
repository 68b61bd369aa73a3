/* SPDX-License-Identifier: MIT */
#ifndef KI_REMOTE_URL_H
#define KI_REMOTE_URL_H

/*
 * What KILN_REMOTE says: levels, of each the URLs of its shards, and words.
 *
 *	redis://cache.local,redis://cache2.local#ttl=7d s3://bucket/kiln#read-only
 *	`------------ a level, two shards ------------' `------- the next -------'
 *
 * Levels are separated by blanks, the nearest first; shards by commas; words
 * follow a `#`, separated by commas.
 *
 *	read-only       nothing is written there
 *	ttl=AGE         how long what is written stays (7d, 12h, seconds),
 *	                for Redis: other servers have rules of their own
 *	max-item=SIZE   nothing larger is read or written (64M)
 *	zstd=LEVEL      0 to 19, 0: not compressed (1)
 *	no-lease        nobody waits for another's build by this level
 *	ca=FILE         the certificates that https:// is verified with
 *	timeout=MS      of one request, 1 to 600000 (2000)
 *
 * Errors     A text names the thing and the remedy, and shows of a URL no more
 *            than scheme and host: people write passwords where none belong.
 * Ownership  Texts belong to the structure.  Nothing is written on failure but
 *            `why`.
 */

#include <stddef.h>
#include <stdint.h>

#include <kiln/kiln.h>

/* ---- One URL ------------------------------------------------------------ */

enum url_scheme { URL_REDIS, URL_UNIX, URL_HTTP, URL_HTTPS, URL_S3 };

struct url {
	enum url_scheme scheme;
	char *shown;   /* all of it: nothing secret can be in it */
	char *host;    /* in small letters, no brackets; s3: the bucket */
	unsigned port; /* redis, http, https: given, or the usual one */
	/*
	 * unix: the socket's; http: from the first "/" on, as it is; s3: the
	 * prefix, "" or ending in "/"; redis: "".
	 */
	char *path;
	unsigned database; /* redis, unix */
};

/* INVALID, NO_MEMORY. */
enum kiln_status ki_url_parse(const char *text, struct url *out_url, char *why,
			      size_t why_size);
void ki_url_fini(struct url *url); /* zeros are fine */

/* Whether `url` is what `prefix` names, or lies below it: the same server, and
   a path that ends where one of its parts does. */
int ki_url_is_below(const struct url *url, const struct url *prefix);

/* ---- Levels ------------------------------------------------------------- */

struct level {
	char **urls; /* each has been through ki_url_parse() */
	size_t n_urls;
	int is_read_only;
	int has_no_lease;
	uint64_t ttl_s; /* 0: for good */
	uint64_t item_bytes_max;
	int zstd_level;
	uint32_t timeout_ms;
	char *ca_file; /* NULL: the system's */
};

struct levels {
	struct level *levels;
	size_t n_levels;
};

#define LEVELS_MAX 8  /* of a configuration */
#define SHARDS_MAX 64 /* of a level */

/* INVALID, NO_MEMORY. */
enum kiln_status ki_levels_parse(const char *text, struct levels *out_levels,
				 char *why, size_t why_size);
void ki_levels_fini(struct levels *levels); /* zeros are fine */

#endif /* KI_REMOTE_URL_H */
