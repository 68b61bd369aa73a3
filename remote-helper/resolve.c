/* SPDX-License-Identifier: MIT */

/*
 *	resolver_begin    a job, a thread that nobody joins, an eventfd
 *	thread            getaddrinfo(), is_done, the eventfd
 *	loop              takes what came of it, frees the job
 *
 * A resolver that goes before its thread is done leaves it the job to free.
 */

#include "resolve.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "sys/sys.h"

struct job {
	/* Fixed. */
	char *host;
	char service[8];
	int eventfd;
	/* Under mutex. */
	struct ki_mutex mutex;
	int is_done;
	int is_left; /* the resolver has gone */
	struct addrinfo *found;
};

struct resolver {
	struct loop *loop;
	const char *host;
	unsigned port;
	struct job *job;
	struct loop_fd *watched;
	resolved_fn *fn;
	void *arg;
};

int address_parse(const char *host, unsigned port, struct address *out_address)
{
	struct sockaddr_in v4 = { .sin_family = AF_INET,
				  .sin_port = htons((uint16_t)port) };
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6,
				   .sin6_port = htons((uint16_t)port) };

	if (inet_pton(AF_INET, host, &v4.sin_addr) == 1) {
		memcpy(&out_address->bytes, &v4, sizeof(v4));
		out_address->size = sizeof(v4);
		return 1;
	}
	if (inet_pton(AF_INET6, host, &v6.sin6_addr) == 1) {
		memcpy(&out_address->bytes, &v6, sizeof(v6));
		out_address->size = sizeof(v6);
		return 1;
	}
	return 0;
}

static void job_free(struct job *job)
{
	if (job->found)
		freeaddrinfo(job->found);
	if (job->eventfd >= 0)
		(void)close(job->eventfd);
	ki_mutex_fini(&job->mutex);
	free(job->host);
	free(job);
}

static void work(void *arg)
{
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM,
					.ai_flags = AI_ADDRCONFIG |
						    AI_NUMERICSERV };
	const uint64_t one = 1;
	struct job *job = arg;
	struct addrinfo *found = NULL;
	int is_left;

	if (getaddrinfo(job->host, job->service, &hints, &found))
		found = NULL;
	ki_mutex_lock(&job->mutex);
	job->found = found;
	job->is_done = 1;
	is_left = job->is_left;
	if (!is_left && write(job->eventfd, &one, sizeof(one)) < 0)
		abort();
	ki_mutex_unlock(&job->mutex);
	if (is_left)
		job_free(job);
}

static struct job *job_new(const char *host, unsigned port)
{
	struct job *job = calloc(1, sizeof(*job));

	if (!job)
		return NULL;
	ki_mutex_init(&job->mutex, KI_RANK_SYS);
	job->host = strdup(host);
	job->eventfd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	(void)snprintf(job->service, sizeof(job->service), "%u", port % 65536);
	if (job->host && job->eventfd >= 0)
		return job;
	job_free(job);
	return NULL;
}

static size_t copy_addresses(const struct addrinfo *found,
			     struct address addresses[ADDRESSES_MAX])
{
	size_t n = 0;

	for (; found && n < ADDRESSES_MAX; found = found->ai_next) {
		if (found->ai_addrlen > sizeof(addresses[n].bytes))
			continue;
		memcpy(&addresses[n].bytes, found->ai_addr, found->ai_addrlen);
		addresses[n++].size = found->ai_addrlen;
	}
	return n;
}

static void on_done(void *arg, int fd, int events)
{
	struct resolver *resolver = arg;
	struct job *job = resolver->job;
	struct address addresses[ADDRESSES_MAX];
	resolved_fn *fn = resolver->fn;
	size_t n;

	/* The thread lets go of the mutex after it has told us. */
	ki_mutex_lock(&job->mutex);
	n = copy_addresses(job->found, addresses);
	ki_mutex_unlock(&job->mutex);
	loop_unwatch(resolver->watched);
	resolver->watched = NULL;
	resolver->job = NULL;
	resolver->fn = NULL;
	job_free(job);
	if (fn)
		fn(resolver->arg, n ? KILN_OK : KILN_E_IO, addresses, n);
}

static enum kiln_status start(struct resolver *resolver)
{
	struct ki_thread thread;
	struct job *job = job_new(resolver->host, resolver->port);

	if (!job)
		return KILN_E_NO_MEMORY;
	resolver->watched = loop_watch(resolver->loop, job->eventfd, LOOP_IN,
				       on_done, resolver);
	if (!resolver->watched || ki_thread_start(&thread, work, job)) {
		loop_unwatch(resolver->watched);
		resolver->watched = NULL;
		job_free(job);
		return KILN_E_NO_MEMORY;
	}
	(void)pthread_detach(thread.id);
	resolver->job = job;
	return KILN_OK;
}

enum kiln_status resolver_begin(struct resolver *resolver, resolved_fn *fn,
				void *arg)
{
	enum kiln_status status = KILN_OK;

	if (!resolver->job)
		status = start(resolver);
	if (status)
		return status;
	resolver->fn = fn;
	resolver->arg = arg;
	return KILN_OK;
}

void resolver_forget(struct resolver *resolver)
{
	resolver->fn = NULL;
}

struct resolver *resolver_new(struct loop *loop, const char *host,
			      unsigned port)
{
	struct resolver *resolver = calloc(1, sizeof(*resolver));

	if (!resolver)
		return NULL;
	*resolver =
		(struct resolver){ .loop = loop, .host = host, .port = port };
	return resolver;
}

void resolver_free(struct resolver *resolver)
{
	struct job *job;
	int is_done;

	if (!resolver)
		return;
	job = resolver->job;
	if (job) {
		loop_unwatch(resolver->watched);
		ki_mutex_lock(&job->mutex);
		is_done = job->is_done;
		job->is_left = 1;
		ki_mutex_unlock(&job->mutex);
		if (is_done)
			job_free(job);
	}
	free(resolver);
}
