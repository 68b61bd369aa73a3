/* SPDX-License-Identifier: MIT */
#ifndef KI_TESTS_REMOTE_NODE_H
#define KI_TESTS_REMOTE_NODE_H

/*
 * A machine, as far as kiln can tell: a home, a store, settings, sockets and a
 * helper of its own.  Programs run on it as processes with its environment.
 *
 *	node = node_new();
 *	node_set(node, "KILN_REMOTE", url);
 *	node_start_helper(node);
 *	node_run(node, program, &arg);
 */

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <kiln/kiln.h>

struct node;

/* Where kiln and kiln-remote are; of all nodes. */
void node_programs(const char *kiln, const char *kiln_remote);

struct node *node_new(void);
void node_free(struct node *node); /* ends the helper */
const char *node_directory(const struct node *node);

/* A variable of the environment there; NULL: none of that name. */
void node_set(struct node *node, const char *name, const char *value);

/* ---- The helper ------------------------------------------------------------ */

/* As a program starts it; it is there when this returns. */
void node_start_helper(struct node *node);
/* Those that are started from now on have it preloaded, which a program that starts
   one cannot have them do. */
void node_preload_helper(struct node *node, const char *library);
/* The same; 0 unless that cannot be. */
int node_try_helper(struct node *node);
/* Its process, or 0. */
pid_t node_helper(struct node *node);
void node_kill_helper(struct node *node); /* SIGKILL, and until it is gone */
/* The path of its socket, or NULL; free() it. */
char *node_socket(const struct node *node);
/* Until all that was handed over is uploaded, or given up. */
void node_drain(struct node *node);
/* What it tells of itself, JSON; free() it. */
char *node_tell(struct node *node, uint32_t what);
/* Of that the first number of this name. */
uint64_t node_told(struct node *node, const char *name);

/* ---- Programs -------------------------------------------------------------- */

/* What a program returns is its exit status, which these return; of many, how many
   were not 0.  No asserts in there. */
typedef int node_program(unsigned index, void *arg);
int node_run(struct node *node, node_program *program, void *arg);
unsigned node_run_many(struct node *node, unsigned n, node_program *program,
		       void *arg);
/* In the background. */
pid_t node_start(struct node *node, node_program *program, void *arg);
int node_end(pid_t program);

/* Take on its environment. */
void node_enter(const struct node *node);

/* A tool with arguments, NULL at the end; what it says is in *out_text unless that
   is NULL. */
int node_tool(struct node *node, const char *const *arguments, char **out_text);

/* Memory that programs share with the test; zeros. */
void *node_shared(size_t size);

/* ---- In a program ---------------------------------------------------------- */

int node_start_helper_here(void); /* 0: it is there */
int node_start_helper_of(const struct kiln_options *options);
int node_drain_here(void); /* 0: all is uploaded */

/* As the settings say; NULL: it does not open. */
struct kiln *node_open_kiln(uint32_t flags);

/* What programs of these tests build: value number n, with `size` bytes. */
struct kiln_key *node_key(unsigned n);
void node_value(unsigned n, void *bytes, size_t size);
/* The name that it has on servers, and its end. */
#define NODE_NAME_BYTES 65
void node_name(unsigned n, char out_name[NODE_NAME_BYTES]);

struct node_use {
	size_t size;
	uint64_t build_ns;	    /* that a build takes at least */
	_Atomic unsigned *n_builds; /* counted when one begins; may be NULL */
	/* What became of it. */
	enum kiln_source source;
	uint64_t ns;
};

/* kiln_get_or_build() of value n.  0, or what is wrong: 1 an error, 2 a wrong
   value. */
int node_use(struct kiln *kiln, unsigned n, struct node_use *use);

uint64_t node_now_ns(void);

#endif /* KI_TESTS_REMOTE_NODE_H */
