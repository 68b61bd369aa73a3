/* SPDX-License-Identifier: MIT */

/* Who we are, who else is alive, and which boot this is. */

#include "sys/sys.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

int ki_process_id(void)
{
	return (int)getpid();
}

/*
 * Field 22 of /proc/PID/stat, counted behind the last ')': the command's name
 * may hold anything.  Who is dead and was not waited for yet has state Z or X.
 */
uint64_t ki_process_start(int pid)
{
	const struct ki_sys *sys = &ki_sys_posix;
	char path[64], text[1024];
	unsigned long long start = 0;
	char *place;
	ssize_t n;
	int fd, field;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	fd = sys->open(sys, path, KI_OPEN_READ, 0);
	if (fd < 0)
		return 0;
	n = sys->pread(sys, fd, text, sizeof(text) - 1, 0);
	(void)sys->close(sys, fd);
	if (n <= 0)
		return 0;
	text[n] = '\0';
	place = strrchr(text, ')');
	if (place && place[1] && (place[2] == 'Z' || place[2] == 'X'))
		return 0;
	for (field = 2; place && field < 22; field++)
		place = strchr(place + 1, ' ');
	if (!place || sscanf(place, " %llu", &start) != 1)
		return 0;
	return start;
}

uint64_t ki_process_age_ns(uint64_t start)
{
	const uint64_t ticks_s = (uint64_t)sysconf(_SC_CLK_TCK);
	const uint64_t start_ns = start / ticks_s * 1000000000 +
				  start % ticks_s * (1000000000 / ticks_s);
	struct timespec now;
	uint64_t now_ns;

	clock_gettime(CLOCK_BOOTTIME, &now);
	now_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
	return now_ns > start_ns ? now_ns - start_ns : 0;
}

int ki_process_alive(int pid, uint64_t start)
{
	uint64_t now = ki_process_start(pid);

	return now && now == start;
}

uint32_t ki_user_id(void)
{
	return geteuid();
}

uint32_t ki_group_id(void)
{
	return getegid();
}

/*
 * Read from /etc/group itself: getgrgid() would load name service plugins
 * into a program that did not ask for them.  A group that is not listed there
 * counts as shared.
 */
int ki_group_is_private(uint32_t gid)
{
	char *text, *line, *rest;
	void *data;
	size_t size;
	int err, is_private = 0;

	if (gid != getegid())
		return 0;
	err = ki_read_file(&ki_sys_posix, "/etc/group", 1 << 20, &data, &size);
	if (err)
		return err == -EMFILE || err == -ENFILE || err == -ENOMEM ? err
									  : 0;
	text = data;
	for (line = strtok_r(text, "\n", &rest); line;
	     line = strtok_r(NULL, "\n", &rest)) {
		char *number = strchr(line, ':');
		char *members;

		number = number ? strchr(number + 1, ':') : NULL;
		members = number ? strchr(number + 1, ':') : NULL;
		if (members && strtoul(number + 1, NULL, 10) == gid)
			is_private = members[1] == '\0' && gid == geteuid();
	}
	free(data);
	return is_private;
}

int ki_process_is_secure(void)
{
	return getauxval(AT_SECURE) != 0;
}

const char *ki_environment(const char *name)
{
	return ki_process_is_secure() ? NULL : getenv(name);
}

int ki_executable(char out[KI_PATH_MAX])
{
	ssize_t n = readlink("/proc/self/exe", out, KI_PATH_MAX - 1);

	if (n < 0)
		return -errno;
	out[n] = '\0';
	return 0;
}

uint64_t ki_file_size_max(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_FSIZE, &limit) || limit.rlim_cur == RLIM_INFINITY)
		return UINT64_MAX;
	return limit.rlim_cur;
}

int ki_absolute_path(char out[KI_PATH_MAX], const char *path)
{
	char directory[KI_PATH_MAX];

	if (*path == '/') {
		if (strlen(path) >= KI_PATH_MAX)
			return -ENAMETOOLONG;
		strcpy(out, path);
		return 0;
	}
	if (!getcwd(directory, sizeof(directory)))
		return -errno;
	return ki_path_join(out, directory, path);
}

int ki_boot_id(const struct ki_sys *sys, uint8_t out[16])
{
	char text[64];
	size_t n_digits = 0;
	ssize_t n, i;
	int fd;

	memset(out, 0, 16);
	fd = sys->open(sys, "/proc/sys/kernel/random/boot_id", KI_OPEN_READ, 0);
	if (fd < 0)
		return fd;
	n = sys->pread(sys, fd, text, sizeof(text), 0);
	(void)sys->close(sys, fd);
	if (n < 0)
		return (int)n;
	for (i = 0; i < n && n_digits < 32; i++) {
		char c = text[i];
		unsigned digit;

		if (c >= '0' && c <= '9')
			digit = (unsigned)(c - '0');
		else if (c >= 'a' && c <= 'f')
			digit = (unsigned)(c - 'a' + 10);
		else
			continue;
		out[n_digits / 2] |= (uint8_t)(digit << (n_digits % 2 ? 0 : 4));
		n_digits++;
	}
	return n_digits ? 0 : -ENODATA;
}

uint64_t ki_process_name(const struct ki_sys *sys, struct ki_process *self)
{
	uint64_t name = self->name, start, where[3] = { 0 };
	struct ki_file_info info;

	if (name)
		return name;
	start = ki_process_start(ki_process_id());
	if (!start || ki_boot_id(sys, (uint8_t *)where) ||
	    sys->stat(sys, "/proc/self/ns/pid", &info))
		return 0;
	where[2] = info.inode;
	name = ki_xxh3_64(where, sizeof(where)) << 32 |
	       (uint32_t)ki_process_id();
	self->start = start;
	self->name = name;
	return name;
}

int ki_process_is_dead(const struct ki_sys *sys, struct ki_process *self,
		       uint64_t name, uint64_t start)
{
	uint64_t me = ki_process_name(sys, self);

	return me && name && name >> 32 == me >> 32 &&
	       (uint32_t)name <= INT32_MAX &&
	       !ki_process_alive((int)(uint32_t)name, start);
}

static int read_number(const struct ki_sys *sys, const char *path,
		       uint64_t *out_value)
{
	char text[32], *end;
	ssize_t n;
	int fd = sys->open(sys, path, KI_OPEN_READ, 0);

	if (fd < 0)
		return fd;
	n = sys->pread(sys, fd, text, sizeof(text) - 1, 0);
	(void)sys->close(sys, fd);
	if (n <= 0)
		return -ENODATA;
	text[n] = '\0';
	*out_value = strtoull(text, &end, 10);
	return end == text ? -EINVAL : 0; /* "max" is no number */
}

/* memory.current less inactive_file: what the kernel could not simply drop. */
int ki_cgroup_memory_percent(const struct ki_sys *sys)
{
	uint64_t limit, current, inactive = 0;
	char text[KI_PATH_MAX], path[KI_PATH_MAX * 2];
	char *group, *line;
	ssize_t n;
	int fd;

	fd = sys->open(sys, "/proc/self/cgroup", KI_OPEN_READ, 0);
	if (fd < 0)
		return -1;
	n = sys->pread(sys, fd, text, sizeof(text) - 1, 0);
	(void)sys->close(sys, fd);
	if (n <= 0)
		return -1;
	text[n] = '\0';
	group = strstr(text, "0::");
	if (!group)
		return -1;
	group += 3;
	group[strcspn(group, "\n")] = '\0';

	snprintf(path, sizeof(path), "/sys/fs/cgroup%s/memory.max", group);
	if (read_number(sys, path, &limit) || !limit)
		return -1;
	snprintf(path, sizeof(path), "/sys/fs/cgroup%s/memory.current", group);
	if (read_number(sys, path, &current))
		return -1;
	snprintf(path, sizeof(path), "/sys/fs/cgroup%s/memory.stat", group);
	fd = sys->open(sys, path, KI_OPEN_READ, 0);
	if (fd >= 0) {
		n = sys->pread(sys, fd, text, sizeof(text) - 1, 0);
		(void)sys->close(sys, fd);
		if (n > 0) {
			text[n] = '\0';
			line = strstr(text, "\ninactive_file ");
			if (line)
				inactive = strtoull(line + 15, NULL, 10);
		}
	}
	current -= inactive < current ? inactive : current;
	return (int)(current / (limit / 100 + 1));
}
