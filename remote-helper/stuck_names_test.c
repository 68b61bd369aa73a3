/* SPDX-License-Identifier: MIT */

#include "stuck_names_test.h"

#include <dlfcn.h>
#include <netdb.h>
#include <pthread.h>
#include <string.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t released = PTHREAD_COND_INITIALIZER;
static unsigned n_calls;
static int is_released;

typedef int getaddrinfo_fn(const char *, const char *, const struct addrinfo *,
			   struct addrinfo **);

static void wait_for_release(void)
{
	(void)pthread_mutex_lock(&mutex);
	n_calls++;
	while (!is_released)
		(void)pthread_cond_wait(&released, &mutex);
	(void)pthread_mutex_unlock(&mutex);
}

/* Before that of libc, for libcurl too. */
__attribute__((visibility("default"))) int getaddrinfo(
	const char *host, const char *service, const struct addrinfo *hints,
	struct addrinfo **out)
{
	getaddrinfo_fn *real;

	*(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
	if (host && !strcmp(host, STUCK_NAME)) {
		wait_for_release();
		return EAI_AGAIN;
	}
	return real(host, service, hints, out);
}

unsigned stuck_names_n_calls(void)
{
	unsigned n;

	(void)pthread_mutex_lock(&mutex);
	n = n_calls;
	(void)pthread_mutex_unlock(&mutex);
	return n;
}

void stuck_names_release(void)
{
	(void)pthread_mutex_lock(&mutex);
	is_released = 1;
	(void)pthread_cond_broadcast(&released);
	(void)pthread_mutex_unlock(&mutex);
}
