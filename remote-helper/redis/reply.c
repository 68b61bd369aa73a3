/* SPDX-License-Identifier: MIT */

#include "remote-helper/redis/reply.h"

#include <string.h>

/* clang-format off */
static const struct error {
	const char *begins;
	enum kiln_status status;
	enum reply_end ends_link;
	const char *why;
} errors[] = {
	{ "NOAUTH", KILN_E_OWNER, REPLY_ENDS,
	  "the server asks for a password (NOAUTH)" },
	{ "WRONGPASS", KILN_E_OWNER, REPLY_ENDS,
	  "the server refused user or password (WRONGPASS)" },
	{ "NOPERM", KILN_E_OWNER, REPLY_STAYS,
	  "the user may not do that on the server (NOPERM)" },
	{ "DENIED", KILN_E_OWNER, REPLY_ENDS,
	  "the server is in protected mode: it needs a password (DENIED)" },
	{ "ERR invalid password", KILN_E_OWNER, REPLY_ENDS,
	  "the server refused the password" },
	{ "ERR AUTH", KILN_E_OWNER, REPLY_ENDS,
	  "the server has no password, but one is configured here" },
	{ "ERR Client sent AUTH", KILN_E_OWNER, REPLY_ENDS,
	  "the server has no password, but one is configured here" },
	{ "OOM", KILN_E_FULL, REPLY_STAYS, "the server's memory is full (OOM)" },
	{ "MISCONF", KILN_E_FULL, REPLY_STAYS,
	  "the server cannot save and takes nothing (MISCONF)" },
	{ "READONLY", KILN_E_READONLY, REPLY_ENDS_IDLE,
	  "the server is a replica and takes nothing (READONLY)" },
	{ "LOADING", KILN_E_IO, REPLY_STAYS, "the server is loading (LOADING)" },
	{ "BUSY", KILN_E_IO, REPLY_STAYS, "the server runs a script (BUSY)" },
	{ "MASTERDOWN", KILN_E_IO, REPLY_ENDS,
	  "the server has lost its master (MASTERDOWN)" },
	{ "CLUSTERDOWN", KILN_E_IO, REPLY_STAYS, "the cluster is down (CLUSTERDOWN)" },
	{ "TRYAGAIN", KILN_E_IO, REPLY_STAYS, "the cluster is moving keys (TRYAGAIN)" },
	{ "MOVED", KILN_E_UNSUPPORTED, REPLY_STAYS,
	  "the server is one node of a cluster: name a cluster proxy (MOVED)" },
	{ "ASK", KILN_E_UNSUPPORTED, REPLY_STAYS,
	  "the server is one node of a cluster: name a cluster proxy (ASK)" },
	{ "CROSSSLOT", KILN_E_UNSUPPORTED, REPLY_STAYS,
	  "the cluster refused the command (CROSSSLOT)" },
	{ "WRONGTYPE", KILN_E_FORMAT, REPLY_STAYS,
	  "something else lies under the name (WRONGTYPE)" },
	{ "ERR max number of clients", KILN_E_IO, REPLY_ENDS,
	  "the server has too many clients" },
	{ "ERR unknown command", KILN_E_UNSUPPORTED, REPLY_STAYS,
	  "the server does not know the command" },
	{ "ERR DB index", KILN_E_UNSUPPORTED, REPLY_ENDS,
	  "the server has no such database" },
	{ "ERR invalid DB index", KILN_E_UNSUPPORTED, REPLY_ENDS,
	  "the server has no such database" },
	{ "ERR SELECT", KILN_E_UNSUPPORTED, REPLY_ENDS,
	  "the server has but one database" },
	{ "ERR string exceeds", KILN_E_TOO_LARGE, REPLY_STAYS,
	  "the server takes nothing that large" },
	{ "", KILN_E_UNSUPPORTED, REPLY_STAYS, "the server answered with an error" },
};
/* clang-format on */

static const struct error *find_error(const redisReply *reply)
{
	const struct error *error = errors;

	while (strncmp(reply->str, error->begins, strlen(error->begins)) != 0)
		error++;
	return error;
}

static struct outcome of_get(redisReply *reply)
{
	struct outcome outcome = { .body = (uint8_t *)reply->str,
				   .body_size = reply->len,
				   .total_bytes = reply->len };

	if (reply->type == REDIS_REPLY_NIL)
		return (struct outcome){ .status = KILN_MISS };
	if (reply->type != REDIS_REPLY_STRING)
		return (struct outcome){ .status = KILN_E_FORMAT };
	reply->str = NULL;
	return outcome;
}

static struct outcome of_length(const redisReply *reply)
{
	if (reply->type != REDIS_REPLY_INTEGER || reply->integer < 0)
		return (struct outcome){ .status = KILN_E_FORMAT };
	if (reply->integer == 0)
		return (struct outcome){ .status = KILN_MISS };
	return (struct outcome){ .total_bytes = (uint64_t)reply->integer };
}

static struct outcome of_set(const redisReply *reply)
{
	if (reply->type == REDIS_REPLY_NIL)
		return (struct outcome){ .status = KILN_EXISTS };
	if (reply->type == REDIS_REPLY_STATUS && !strcmp(reply->str, "OK"))
		return (struct outcome){ .status = KILN_OK };
	return (struct outcome){ .status = KILN_E_FORMAT };
}

static struct outcome of_script(const redisReply *reply, enum kiln_status no)
{
	if (reply->type != REDIS_REPLY_INTEGER)
		return (struct outcome){ .status = KILN_E_FORMAT };
	return (struct outcome){ .status = reply->integer == 1 ? KILN_OK : no };
}

static struct outcome of_answer(enum question question, redisReply *reply)
{
	switch (question) {
	case QUESTION_GREETING:
	case QUESTION_SET:
		return of_set(reply);
	case QUESTION_GET:
		return of_get(reply);
	case QUESTION_LENGTH:
		return of_length(reply);
	case QUESTION_SCRIPT:
		return of_script(reply, KILN_MISS);
	case QUESTION_LEASE:
		return of_script(reply, KILN_EXISTS);
	}
	return (struct outcome){ .status = KILN_E_FORMAT };
}

struct outcome reply_outcome(enum question question, redisReply *reply)
{
	struct outcome outcome;

	if (reply->type == REDIS_REPLY_ERROR) {
		const struct error *error = find_error(reply);

		return (struct outcome){ .status = error->status,
					 .why = error->why };
	}
	outcome = of_answer(question, reply);
	if (outcome.status == KILN_E_FORMAT)
		outcome.why = "the server's answer is of another kind than "
			      "Redis gives";
	return outcome;
}

enum reply_end reply_ends_link(const redisReply *reply)
{
	return reply->type == REDIS_REPLY_ERROR ? find_error(reply)->ends_link
						: REPLY_STAYS;
}
