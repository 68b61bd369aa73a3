/* SPDX-License-Identifier: MIT */

#include <errno.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "worker.h"

#define NS_PER_MS 1000000

static const int endings[] = { SIGTERM, SIGINT, SIGHUP };

int ki_waiter_init(struct ki_waiter *waiter)
{
	sigset_t set;
	size_t i;

	waiter->ended_by = 0;
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	for (i = 0; i < sizeof(endings) / sizeof(endings[0]); i++)
		sigaddset(&set, endings[i]);
	signal(SIGPIPE, SIG_IGN);
	/* Whoever started us may have ignored it: nothing would be reported. */
	signal(SIGCHLD, SIG_DFL);
	if (sigprocmask(SIG_BLOCK, &set, &waiter->old_mask))
		return -errno;
	for (i = 0; i < sizeof(endings) / sizeof(endings[0]); i++)
		sigdelset(&waiter->old_mask, endings[i]);
	waiter->fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return waiter->fd < 0 ? -errno : 0;
}

static void take_signals(struct ki_waiter *waiter)
{
	struct signalfd_siginfo info;

	while (read(waiter->fd, &info, sizeof(info)) == sizeof(info)) {
		if (info.ssi_signo != SIGCHLD)
			waiter->ended_by = (int)info.ssi_signo;
	}
}

void ki_waiter_wait(struct ki_waiter *waiter, uint64_t deadline_ns)
{
	const struct ki_sys *sys = &ki_sys_posix;
	struct pollfd pollfd = { .fd = waiter->fd, .events = POLLIN };
	uint64_t now_ns = sys->monotonic_ns(sys);
	uint64_t left_ms = 0;

	if (deadline_ns > now_ns)
		left_ms = (deadline_ns - now_ns) / NS_PER_MS + 1;
	if (left_ms > 60000)
		left_ms = 60000;
	(void)poll(&pollfd, 1, (int)left_ms);
	take_signals(waiter);
}

int ki_waiter_pause(struct ki_waiter *waiter, uint64_t ns)
{
	const struct ki_sys *sys = &ki_sys_posix;
	uint64_t deadline_ns = sys->monotonic_ns(sys) + ns;

	do {
		ki_waiter_wait(waiter, deadline_ns);
	} while (!waiter->ended_by && sys->monotonic_ns(sys) < deadline_ns);
	return waiter->ended_by != 0;
}

void ki_waiter_finish(struct ki_waiter *waiter)
{
	if (waiter->fd >= 0)
		(void)close(waiter->fd);
	if (!waiter->ended_by)
		return;
	signal(waiter->ended_by, SIG_DFL);
	(void)sigprocmask(SIG_SETMASK, &waiter->old_mask, NULL);
	(void)raise(waiter->ended_by);
}
