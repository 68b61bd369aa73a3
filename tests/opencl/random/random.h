/* SPDX-License-Identifier: MIT */
#ifndef KILN_TESTS_RANDOM_H
#define KILN_TESTS_RANDOM_H

/*
 * What the parts of `random_calls` share.
 *
 *	calls.c		the threads, and what each does next
 *	program.c	programs: made, built, linked, asked, released
 *	kernel.c	kernels of them: made, launched, asked, released
 *	text.c		sources and options, from a small grammar
 *	say.c		one line for each answer
 *
 * Each thread has dice of its own, so what it does depends on the seed alone:
 * it owns what it makes, waits for its own callbacks, and shares devices, a
 * context and files that never change.
 */

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_1_APIS
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#define CL_USE_DEPRECATED_OPENCL_2_2_APIS
#include <CL/cl.h>
#include <CL/cl_ext.h>

#define DEVICES_MAX  4
#define PROGRAMS_MAX 7
#define KERNELS_MAX  5
#define FETCHED_MAX  3
#define N_SOURCES    24
#define N_ITEMS	     8

/* ---- The whole (fixed before the threads begin) --------------------------- */

struct everything {
	uint64_t seed;
	cl_platform_id platform;
	cl_context context;
	cl_device_id devices[DEVICES_MAX]; /* or all sub-devices of one */
	cl_uint n_devices;
	cl_device_id others[DEVICES_MAX]; /* of the platform, not of these */
	cl_uint n_others;
	unsigned version;  /* 30: what was not there is not called */
	int is_real;	   /* no stand-in: less may be asked of it */
	int unknown_calls; /* unknown extension functions are fetched */
	char *sources[N_SOURCES];
	const char *steps; /* "1,5,12": only these, and nothing together */
};
extern struct everything all;

/* ---- Callbacks ------------------------------------------------------------ */

/* Of one build; they live as long as the process. */
struct notice {
	struct notice *next;
	/* Under notice_mutex. */
	cl_program expected; /* NULL: a link's, not known yet */
	cl_program told;
	int n_calls;
	cl_build_status status;
	/* Fixed before the call. */
	cl_device_id device;
	unsigned step;
	int n_due; /* set after the call: 0 if it was refused */
};
extern pthread_mutex_t notice_mutex;
extern pthread_cond_t notice_cond;

/* ---- A thread ------------------------------------------------------------- */

/* A context and what is needed to launch in it; handles stay good while its
   queues live. */
struct world {
	cl_context context;
	int is_shared;
	int is_released; /* the application's reference has gone */
	cl_uint n_devices;
	cl_device_id devices[DEVICES_MAX];
	cl_command_queue queues[DEVICES_MAX];
	cl_mem in, out;
	unsigned n_users; /* programs and kernels */
	int n_gone;	  /* release callbacks of the context */
};

struct program {
	cl_program handle;
	unsigned n_refs; /* 0: the place is free */
	struct world *world;
	cl_uint n_devices;
	cl_device_id devices[DEVICES_MAX];
	int is_il;
	struct notice *pending;
	cl_uint refs_before; /* the pending build */
	int *n_gone;	     /* release callbacks so far, or NULL */
	unsigned n_builds;
	unsigned built_at; /* what n_changes was at the last one */
};

struct kernel {
	cl_kernel handle;
	unsigned n_refs;
	struct world *world;
	cl_program program; /* a number: it may be released */
	int kind;	    /* K of "kK", else -1 */
};

/* Binaries that were fetched, to make programs from. */
struct fetched {
	cl_uint n;
	cl_device_id devices[DEVICES_MAX];
	size_t sizes[DEVICES_MAX];
	unsigned char *bytes[DEVICES_MAX];
	struct world *world;
};

struct thread {
	unsigned index;
	unsigned n_steps;
	unsigned step;
	uint64_t dice;
	FILE *out;
	char *text;
	size_t size;
	struct world shared;
	struct world own;
	struct program programs[PROGRAMS_MAX];
	struct kernel kernels[KERNELS_MAX];
	struct fetched fetched[FETCHED_MAX];
	struct notice *notices;
	unsigned n_changes; /* of its header */
	int **gone;	    /* of all programs with a release callback */
	unsigned n_gone;
};

unsigned roll(struct thread *thread, unsigned n);
#define PICK(thread, array)                                                    \
	((array)[roll(thread, sizeof(array) / sizeof((array)[0]))])

/* ---- Saying (say.c) ------------------------------------------------------- */

void say(struct thread *thread, const char *what, long long value);
void say_text(struct thread *thread, const char *what, const char *text);

/* Any of the clGet*Info calls with what comes before `param_name` bound. */
struct question {
	cl_int (*ask)(const struct question *question, cl_uint what,
		      size_t size, void *value, size_t *out_size);
	cl_program program;
	cl_kernel kernel;
	cl_device_id device;
	cl_uint argument;
};
/* Ask in one of the ways there are, by dice, and say the answer; of some only
   that there was one. */
void ask(struct thread *thread, const struct question *question,
	 const char *name, cl_uint what, int is_private);

/* ---- Texts (text.c) ------------------------------------------------------- */

/* The program's number among the sources of this seed. */
char *source_new(uint64_t seed, unsigned number);
/* IL with constants 1 and 2. */
unsigned char *il_new(struct thread *thread, size_t *out_size);
/* Options, sometimes NULL; valid until the next call in this thread. */
const char *any_options(struct thread *thread);
const char *any_link_options(struct thread *thread);
/* The thread's own header, changed. */
void change_header(struct thread *thread);
/* Headers that all threads include: once, before they begin. */
void write_headers(unsigned n_threads);

/* ---- Programs and kernels ------------------------------------------------- */

void act_on_program(struct thread *thread);
void act_on_kernel(struct thread *thread);
/* Let go of everything, and say what callbacks there were. */
void programs_end(struct thread *thread);
void kernels_end(struct thread *thread);

/* A program that is there, none of its builds running; or NULL.  Rather one
   that fits, if `fits` is not NULL. */
struct program *any_program(struct thread *thread,
			    int (*fits)(const struct program *program));
/* Wait for the callback that is due, then until the driver's thread has let
   go, and say what it brought. */
void await(struct thread *thread, struct program *program);
void kernel_take(struct thread *thread, struct program *program,
		 cl_kernel handle);

/* ---- Worlds (calls.c) ----------------------------------------------------- */

struct world *any_world(struct thread *thread);
cl_uint references_of(cl_program program);

#endif /* KILN_TESTS_RANDOM_H */
