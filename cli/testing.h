/* SPDX-License-Identifier: MIT */
#ifndef KI_CLI_TESTING_H
#define KI_CLI_TESTING_H

/* Starting the tool in tests, with an environment of its own. */

#include <sys/types.h>

#define VARIABLES_MAX 24

struct spawn {
	const char *program;
	const char *arguments[16]; /* without argv[0]; ends with NULL */
	/* NAME=VALUE sets, NAME unsets; ends with NULL. */
	const char *variables[VARIABLES_MAX];
	const char *directory;	   /* NULL: where we are */
	int closed;		   /* bit n: descriptor n is closed */
	int has_group;		   /* a process group of its own */
	void (*before)(void *arg); /* in the child, at last */
	void *arg;
};

struct spawned {
	pid_t pid;
	int out; /* what it writes */
	int err;
};

/* Aborts where the system refuses. */
struct spawned spawn_start(const struct spawn *spawn);

struct ended {
	int wait_status;
	char *out; /* from malloc() */
	char *err;
};
/* Read both to the end, then wait. */
struct ended spawn_finish(struct spawned *spawned);
struct ended spawn_run(const struct spawn *spawn);
void ended_free(struct ended *ended);

/* Exit status; 1000 + signal when killed. */
int status_of(const struct ended *ended);

/* Everything up to the end; closes it. */
char *read_to_end(int fd);
/* One line without its newline into `out`; 0 at the end. */
int read_line(int fd, char *out, size_t size);

#endif /* KI_CLI_TESTING_H */
