/* SPDX-License-Identifier: MIT */
#ifndef KIR_ASKING_TEST_H
#define KIR_ASKING_TEST_H

/*
 * A backend of its own with a loop of its own, asked one thing after the other:
 * each call runs the loop until the answer is there.  No answer says a word of
 * the secrets that were given.
 */

#include "backend.h"
#include "credentials.h"
#include "loop.h"

#define ASKING_NAME                                                            \
	"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
/* In every test's credentials; no message may have it. */
#define ASKING_SECRET "hunter2-Zq9"

struct asking {
	struct loop *loop;
	struct backend *backend;
	struct credentials *credentials;
	uint32_t timeout_ms;
	uint64_t body_max;
};

/* First: the loop alone, for servers of the test's own. */
void asking_init(struct asking *asking);
/* `line`: a line for the file of credentials, written into `directory`; NULL:
   none.  `ca` NULL: the system's. */
void asking_open(struct asking *asking, const char *directory, const char *url,
		 const char *line, const char *ca);
void asking_close_backend(struct asking *asking);
void asking_close(struct asking *asking);

/* The caller frees the body. */
struct outcome asking_get(struct asking *asking, const char *name);
struct outcome asking_head(struct asking *asking, const char *name);
struct outcome asking_put(struct asking *asking, const char *name,
			  const void *body, size_t size, uint64_t ttl_s,
			  int only_new);
struct outcome asking_range(struct asking *asking, const char *name,
			    uint64_t offset, uint32_t size, char tag[128]);
struct outcome asking_lease(struct asking *asking, const char *name,
			    const char *token, uint32_t ttl_ms);
struct outcome asking_renew(struct asking *asking, const char *name,
			    const char *token, uint32_t ttl_ms);
struct outcome asking_release(struct asking *asking, const char *name,
			      const char *token);

/* Their statuses alone. */
enum kiln_status asking_get_status(struct asking *asking, const char *name);
enum kiln_status asking_put_status(struct asking *asking, const char *name,
				   const char *body);

/* For requests of the test's own: an answer, and the loop until `n` are there. */
struct answer {
	struct asking *asking;
	unsigned n_calls;
	struct outcome outcome;
};
done_fn asking_done;
void asking_wait(struct asking *asking, unsigned n);

/* Fail unless the outcome is the one. */
void asking_expect(const struct outcome *outcome, enum kiln_status status,
		   const char *body, size_t size);

#endif /* KIR_ASKING_TEST_H */
