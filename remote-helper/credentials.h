/* SPDX-License-Identifier: MIT */
#ifndef KIR_CREDENTIALS_H
#define KIR_CREDENTIALS_H

/*
 * Who this user is for servers.  From a file that is the user's alone, one line
 * for each URL or all that lie below it; of two that fit, the longer counts:
 *
 *	https://cache.example/kiln  basic  USER PASSWORD
 *	https://cdn.example/        bearer TOKEN
 *	redis://cache.local         redis  [USER] PASSWORD
 *	s3://bucket                 s3     ACCESS SECRET [SESSION] [region=R] [endpoint=URL]
 *
 * Words are separated by blanks; one with blanks is written in double quotes, in
 * which \" and \\ stand for " and \.  Lines may be empty or begin with `#`.
 *
 * Where the file has none, the environment: AWS_ACCESS_KEY_ID,
 * AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION and AWS_ENDPOINT_URL for
 * every s3://, REDISCLI_AUTH for every redis:// and unix:.
 *
 * Secrets    All of it is in memory of sodium_malloc(), read-only once it is
 *            filled, wiped at the end.  Messages name the file and the line.
 * Threads    Once loaded, everybody's.
 */

#include <stddef.h>

#include <kiln/kiln.h>

#include "sys/sys.h"

struct url;
struct credentials;

enum credential_kind {
	CREDENTIAL_BASIC,
	CREDENTIAL_BEARER,
	CREDENTIAL_REDIS,
	CREDENTIAL_S3
};

struct credential {
	enum credential_kind kind;
	const char *user;   /* s3: the access key; NULL: none */
	const char *secret; /* the password, the token; s3: NULL for none */
	/* s3; NULL: none. */
	const char *session;
	const char *region;
	const char *endpoint;
};

/*
 * `path` NULL: no file, only the environment.  `environment` as environ is, or
 * NULL.  OWNER: somebody else can read the file; INVALID: a line that cannot
 * be; IO (none is there); NO_MEMORY.
 */
enum kiln_status credentials_load(const struct ki_sys *sys, const char *path,
				  const char *const *environment,
				  struct credentials **out_credentials,
				  char *why, size_t why_size);
void credentials_free(struct credentials *credentials); /* NULL is fine */

/* The one for this URL, good as long as the credentials are; NULL: none.
   `credentials` may be NULL. */
const struct credential *credentials_find(const struct credentials *credentials,
					  const struct url *url);

/* A secret of another kind in such memory; NULL: there is none. */
char *credentials_keep(const char *secret);
void credentials_forget(char *kept); /* NULL is fine */

/*
 * Overwrite the values in this process's own environment, that of KILN_SIGNING_KEY
 * too, and remove their names: for when everything that needs them has been made.
 */
void credentials_wipe_environment(void);

#endif /* KIR_CREDENTIALS_H */
