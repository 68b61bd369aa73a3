/* SPDX-License-Identifier: MIT */

#include "sys/sys.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

struct start {
	ki_thread_fn *body;
	void *arg;
};

static void *run(void *arg)
{
	struct start start = *(struct start *)arg;

	free(arg);
	start.body(start.arg);
	return NULL;
}

int ki_thread_start(struct ki_thread *thread, ki_thread_fn *body, void *arg)
{
	struct start *start = malloc(sizeof(*start));
	sigset_t all, before;
	int err;

	if (!start)
		return -ENOMEM;
	*start = (struct start){ body, arg };

	/* The new thread inherits the mask: the program's handlers never run
	   on a thread that it does not know. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = -pthread_create(&thread->id, NULL, run, start);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (err)
		free(start);
	return err;
}

void ki_thread_join(struct ki_thread *thread)
{
	pthread_join(thread->id, NULL);
}

uint64_t ki_thread_id(void)
{
	return (uint64_t)syscall(SYS_gettid);
}

int ki_thread_is_alive(uint64_t id)
{
	return !syscall(SYS_tgkill, getpid(), (pid_t)id, 0) || errno != ESRCH;
}

void ki_thread_yield(void)
{
	sched_yield();
}

int ki_process_barrier_prepare(void)
{
	return !syscall(SYS_membarrier,
			MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0);
}

int ki_process_barrier(void)
{
	if (syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0))
		return -errno;
	return 0;
}
