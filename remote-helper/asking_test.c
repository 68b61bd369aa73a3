/* SPDX-License-Identifier: MIT */

#include "harness/harness.h"

#include "asking_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static unsigned n_answers, n_wanted;

void asking_init(struct asking *asking)
{
	*asking = (struct asking){ .loop = loop_new(),
				   .timeout_ms = HARNESS_HANG_S * 1000,
				   .body_max = (uint64_t)64 << 20 };
	assert_non_null(asking->loop);
}

void asking_open(struct asking *asking, const char *directory, const char *url,
		 const char *line, const char *ca)
{
	char why[512] = "", *path = harness_path(directory, "credentials");

	if (line) {
		harness_write(path, line, strlen(line));
		assert_int_equal(chmod(path, 0600), 0);
	}
	if (credentials_load(&ki_sys_posix, line ? path : NULL, NULL,
			     &asking->credentials, why, sizeof(why)) ||
	    backend_open(asking->loop, url, ca, asking->credentials,
			 &asking->backend, why, sizeof(why)))
		fail_msg("%s", why);
	free(path);
}

void asking_close_backend(struct asking *asking)
{
	asking->backend->ops->close(asking->backend);
	asking->backend = NULL;
	credentials_free(asking->credentials);
	asking->credentials = NULL;
}

void asking_close(struct asking *asking)
{
	if (asking->backend)
		asking_close_backend(asking);
	loop_free(asking->loop);
}

/* ---- Answers ------------------------------------------------------------ */

void asking_done(void *arg, const struct outcome *outcome)
{
	struct answer *answer = arg;

	if (outcome->why)
		assert_null(strstr(outcome->why, ASKING_SECRET));
	answer->outcome = *outcome;
	answer->n_calls++;
	if (++n_answers == n_wanted)
		loop_stop(answer->asking->loop);
}

static void hang(void *arg)
{
	fail_msg("no answer");
}

void asking_wait(struct asking *asking, unsigned n)
{
	struct loop_timer *guard;

	n_wanted = n;
	if (n_answers < n_wanted) {
		guard = loop_after(asking->loop, HARNESS_HANG_S * 1000, hang,
				   NULL);
		assert_int_equal(loop_run(asking->loop), 0);
		loop_cancel(guard);
	}
	assert_int_equal(n_answers, n);
	n_answers = n_wanted = 0;
}

static struct outcome wait_for(struct asking *asking, struct answer *answer)
{
	asking_wait(asking, 1);
	assert_int_equal(answer->n_calls, 1);
	return answer->outcome;
}

void asking_expect(const struct outcome *outcome, enum kiln_status status,
		   const char *body, size_t size)
{
	if (outcome->status != status)
		fail_msg("%s instead of %s: %s",
			 kiln_status_name(outcome->status),
			 kiln_status_name(status),
			 outcome->why ? outcome->why : "no reason");
	if (!body) {
		assert_null(outcome->body);
		return;
	}
	assert_non_null(outcome->body);
	assert_int_equal(outcome->body_size, size);
	assert_memory_equal(outcome->body, body, size);
	free(outcome->body);
}

/* ---- Questions ---------------------------------------------------------- */

struct outcome asking_get(struct asking *asking, const char *name)
{
	struct answer answer = { .asking = asking };
	void *const args[] = { &answer };

	asking->backend->ops->get(asking->backend, &name, 1, asking->body_max,
				  asking->timeout_ms, asking_done, args);
	return wait_for(asking, &answer);
}

struct outcome asking_head(struct asking *asking, const char *name)
{
	struct answer answer = { .asking = asking };

	asking->backend->ops->head(asking->backend, name, asking->timeout_ms,
				   asking_done, &answer);
	return wait_for(asking, &answer);
}

struct outcome asking_put(struct asking *asking, const char *name,
			  const void *body, size_t size, uint64_t ttl_s,
			  int only_new)
{
	struct answer answer = { .asking = asking };

	asking->backend->ops->put(asking->backend, name, body, size, ttl_s,
				  only_new, asking->timeout_ms, asking_done,
				  &answer);
	return wait_for(asking, &answer);
}

struct outcome asking_range(struct asking *asking, const char *name,
			    uint64_t offset, uint32_t size, char tag[128])
{
	struct answer answer = { .asking = asking };

	asking->backend->ops->range(asking->backend, name, offset, size, tag,
				    asking->timeout_ms, asking_done, &answer);
	return wait_for(asking, &answer);
}

struct outcome asking_lease(struct asking *asking, const char *name,
			    const char *token, uint32_t ttl_ms)
{
	struct answer answer = { .asking = asking };

	asking->backend->ops->lease(asking->backend, name, token, ttl_ms,
				    asking->timeout_ms, asking_done, &answer);
	return wait_for(asking, &answer);
}

struct outcome asking_renew(struct asking *asking, const char *name,
			    const char *token, uint32_t ttl_ms)
{
	struct answer answer = { .asking = asking };

	asking->backend->ops->renew(asking->backend, name, token, ttl_ms,
				    asking->timeout_ms, asking_done, &answer);
	return wait_for(asking, &answer);
}

struct outcome asking_release(struct asking *asking, const char *name,
			      const char *token)
{
	struct answer answer = { .asking = asking };

	asking->backend->ops->release(asking->backend, name, token,
				      asking->timeout_ms, asking_done, &answer);
	return wait_for(asking, &answer);
}

enum kiln_status asking_get_status(struct asking *asking, const char *name)
{
	struct outcome outcome = asking_get(asking, name);

	free(outcome.body);
	return outcome.status;
}

enum kiln_status asking_put_status(struct asking *asking, const char *name,
				   const char *body)
{
	return asking_put(asking, name, body, strlen(body), 0, 0).status;
}
