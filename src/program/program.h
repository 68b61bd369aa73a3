/* SPDX-License-Identifier: MIT */
#ifndef KI_PROGRAM_PROGRAM_H
#define KI_PROGRAM_PROGRAM_H

/*
 * The inside of <kiln/program.h>, for the files of this folder.
 *
 *	ki_memory	one table for all maps, by labelled keys:
 *			program, kernel (program's number, name), fast
 *	the registry	what is kept, under one mutex: which program has which
 *			kernels, how much it all takes, who goes next
 *
 * What is in the registry is in the table, and the registry has a reference of
 * its own.  It is put into the table first, and taken out of both under the
 * mutex; whoever adds to a program that has gone meanwhile takes that back.  So
 * when something has been dropped nobody finds it any more, whoever dropped it,
 * but for who was in a call for it.
 */

#include <stdatomic.h>

#include <kiln/program.h>

#include "base/blob.h"
#include "base/hash.h"
#include "base/list.h"
#include "base/map.h"
#include "key/key.h"
#include "memory/find.h"
#include "memory/memory.h"
#include "program/lru.h"
#include "program/seeds.h"
#include "sys/sys.h"

/* What programs and kernels need of the cache that made them, and outlives
   it. */
struct ki_home {
	/* Fixed. */
	struct kiln_program_runtime runtime;
	uint64_t fork_counter;
	/* Atomic. */
	_Atomic size_t refs;
	struct kiln_programs *_Atomic programs; /* NULL: freed */
};

/* In a forked child the runtime's objects are the parent's, and its locks may
   be held by threads that are not there: it is not called. */
static inline int ki_home_is_inherited(const struct ki_home *home)
{
	return atomic_load(&ki_fork_counter) != home->fork_counter;
}

struct ki_device {
	void *handle;
	uint32_t unit;	/* what a program is made for: a device, or a class */
	uint32_t class; /* of identical devices */
};

/* All that were asked for: made anew for each that is new. */
struct ki_devices {
	struct ki_devices *older; /* may still be read */
	size_t n;
	struct ki_device of[];
};

/*
 * What a prepared key leads to, so that a hit need not look anything up.
 *
 *	(a) It is set under the mutex, to what the registry has for this key:
 *	    the whole key was compared for that.
 *	(b) It is cleared under the mutex when that goes out of the registry,
 *	    which holds its reference, and so does the table, until a grace
 *	    period has passed since.
 *	(c) Whoever ends the counting by threads clears `counter`, and gathers
 *	    what they have counted after a grace period.
 *
 * So within a pin what a hint says lives, by (b), and is what the key asks for,
 * by (a); while `counter` is set, a reference may be counted in the thread's
 * slot, by (c).
 */
struct ki_hint {
	/* Atomic. */
	struct kiln_blob *_Atomic blob; /* NULL: look it up */
	/* Under mutex. */
	struct ki_list link; /* of the program */
};

/* The blob that memory counts is the object's beginning. */
struct kiln_program {
	struct kiln_blob blob;
	/* Fixed. */
	struct ki_home *home;
	void *handle;
	uint64_t number; /* never that of another of the same cache */
	uint64_t bytes;
	struct kiln_key *key;  /* NULL: it was never to be kept */
	struct kiln_key *base; /* the same without devices */
	uint32_t *units;       /* sorted */
	size_t n_units;
	uint8_t image[KI_BLAKE2B_BYTES];
	char *told; /* in traces; NULL: it is in none */
	/* Atomic. */
	_Atomic int is_kept;
	/* Under mutex: of the registry. */
	struct ki_list all;
	struct kiln_program *next_wide; /* for several devices, of one base */
	struct ki_list links;		/* what goes when it goes */
	struct ki_list failed;		/* kernels */
	struct ki_list hints; /* of keys that lead to it or to its kernels */
	/* Atomic, written by hits: ki_lru_touch(). */
	_Alignas(64) struct ki_lru_item lru;
};

struct kiln_kernel {
	struct kiln_blob blob;
	/* Fixed; the first is in the blob's cache line. */
	void *handle;
	struct kiln_program *program;
	/* Under mutex: of the registry. */
	struct ki_list givers; /* ki_seed_giver */
};

/* Something in the table that belongs to a program. */
struct ki_link {
	struct ki_list link;  /* of the program */
	struct ki_link *next; /* of equal hash */
	struct kiln_key *key; /* in the table */
	struct kiln_blob *blob;
	struct ki_seed_giver giver; /* of the fast map */
	int is_fast;
};

/* What failed for good, and memory keeps: a program, or a kernel of one, with
   which it goes. */
struct ki_failed {
	struct ki_list age; /* of all, oldest first */
	struct ki_list of_program;
	struct kiln_key *key;
	uint64_t bytes;
	uint8_t image[KI_BLAKE2B_BYTES];
};

enum ki_programs_count {
	KI_COUNT_FAST_HITS,
	KI_COUNT_PROGRAM_HITS,
	KI_COUNT_KERNEL_HITS,
	KI_N_HITS,
	KI_COUNT_BUILDS = KI_N_HITS,
	KI_COUNT_FROM_STORE,
	KI_COUNT_BUILD_FAILURES,
	KI_COUNT_EVICTED,
	KI_COUNT_RESETS,
	KI_N_COUNTS
};

#define KI_PROGRAM_STRIPES 8

struct ki_program_stripe {
	_Alignas(64) _Atomic uint64_t hits[KI_N_HITS];
};

struct kiln_programs {
	/* Fixed after new: what hits read comes first. */
	uint64_t fork_counter;
	struct ki_memory *memory;
	int owner;	/* column of hits in slots, or -1 */
	int keeps_time; /* hits mark when they were */
	struct ki_home *home;
	struct kiln *kiln; /* or NULL */
	uint64_t bytes_max;
	uint64_t image_bytes_min;
	uint64_t image_bytes_max;
	char *compile_override; /* these or NULL */
	char *link_override;
	char *compile_append;
	char *link_append;
	uint32_t flags;
	/* Atomic. */
	_Alignas(64) _Atomic uint64_t next_number;
	_Atomic uint64_t counts[KI_N_COUNTS];
	struct ki_program_stripe stripes[KI_PROGRAM_STRIPES]; /* no column */
	/* Under mutex. */
	struct ki_mutex mutex;
	struct ki_devices *_Atomic devices; /* read without it; or NULL */
	char **classes; /* what each is told apart by: ask() in devices.c */
	size_t n_classes;
	struct ki_lru lru;
	struct ki_list all;
	struct ki_list failed;
	struct ki_map wide;  /* hash of base: the first for several devices */
	struct ki_map links; /* hash of key: the first ki_link */
	struct ki_seeds seeds;
	uint64_t n_programs;
	uint64_t n_kernels;
	uint64_t n_failed;
	uint64_t failed_bytes;
	uint64_t bytes;
};

/* Of kept failures, where there is a bound on bytes. */
#define KI_PROGRAM_FAILURES_MAX	     4096
#define KI_PROGRAM_FAILURE_BYTES_MAX ((uint64_t)16 << 20)

struct kiln_program_key {
	struct kiln_programs *programs;
	struct ki_hint hint;
	struct kiln_key *key;
	struct kiln_key *base;
	struct kiln_program_image image; /* option strings: not used */
	void *constants;
	size_t constants_size;
	char *compile_options; /* composed */
	char *link_options;
	/* One for each unit, sorted. */
	struct ki_device *devices;
	void **handles;
	uint32_t *units;
	size_t n_devices;
	uint8_t image_name[KI_BLAKE2B_BYTES];
	int is_cacheable;
};

struct kiln_kernel_key {
	struct kiln_programs *programs;
	struct ki_hint hint;
	struct kiln_key *key;
	const struct kiln_program_key *program_key;
	char *name;
	uint32_t unit;
};

static inline int ki_programs_are_forked(const struct kiln_programs *programs)
{
	return atomic_load_explicit(&ki_fork_counter, memory_order_relaxed) !=
	       programs->fork_counter;
}

static inline int ki_is_same_key(const struct kiln_key *a,
				 const struct kiln_key *b)
{
	return a->digest_low == b->digest_low &&
	       a->digest_high == b->digest_high &&
	       a->record.size == b->record.size &&
	       !memcmp(a->record.data, b->record.data, a->record.size);
}

/* Never 0. */
static inline uintptr_t ki_hash_of(const struct kiln_key *key)
{
	return (uintptr_t)key->digest_low | 1;
}

/* ---- options.c ------------------------------------------------------------- */

/* Parts joined by one blank, NULL and empty ones left out; NULL: no memory. */
char *ki_options_join(const char *const *parts, size_t n_parts);

/* ---- devices.c ------------------------------------------------------------- */

/* What is known of a device: 1 or 0.  No lock is taken. */
static inline int ki_device_look(struct kiln_programs *programs, void *handle,
				 struct ki_device *out_device)
{
	const struct ki_devices *devices =
		atomic_load_explicit(&programs->devices, memory_order_acquire);

	for (size_t i = 0; devices && i < devices->n; i++) {
		if (devices->of[i].handle == handle) {
			*out_device = devices->of[i];
			return 1;
		}
	}
	return 0;
}
/* The same, asking the runtime at the first time.  KILN_E_NO_MEMORY. */
enum kiln_status ki_device_find(struct kiln_programs *programs, void *handle,
				struct ki_device *out_device);
/* The four strings of a class, or NULL; lives as long as the cache. */
const char *ki_device_identity(struct kiln_programs *programs, uint32_t class);
void ki_devices_fini(struct kiln_programs *programs);

/* ---- keys.c ---------------------------------------------------------------- */

/* What an image is told apart by when it is unloaded. */
void ki_image_name(const struct kiln_program_image *image,
		   uint8_t out[KI_BLAKE2B_BYTES]);

/* ---- trace.c --------------------------------------------------------------- */

static inline int ki_programs_are_traced(const struct kiln_programs *programs)
{
	return __builtin_expect(programs->flags & KILN_PROGRAMS_TRACE, 0);
}

/* From malloc(); NULL: no memory. */
char *ki_trace_key(const struct kiln_program_key *key);
/* One line each, of programs that are traced. */
void ki_trace_program(const struct kiln_program *program, const char *what);
void ki_trace_kernel(const struct kiln_program *program,
		     const struct kiln_key *key, const char *what);

/* ---- failure.c ------------------------------------------------------------- */

void ki_failure_from_result(struct kiln_program_failure *failure,
			    const struct kiln_build_result *result);
void ki_result_from_failure(struct kiln_build_result *result,
			    const struct kiln_program_failure *failure);
/* Hand over, or drop where it is not wanted. */
void ki_failure_give(struct kiln_program_failure *out,
		     struct kiln_program_failure *failure);

/* ---- object.c -------------------------------------------------------------- */

struct ki_home *ki_home_ref(struct ki_home *home);
void ki_home_unref(struct ki_home *home);

/* Takes the handle, also without memory (then it is released): NULL. */
struct kiln_program *ki_program_new(struct kiln_programs *programs,
				    const struct kiln_program_key *key,
				    void *handle);
struct kiln_kernel *ki_kernel_new(struct kiln_program *program, void *handle);

/* ---- registry.c ------------------------------------------------------------ */

/* Put what was just built where others find it, and make what is too much
   go. */
void ki_registry_keep(struct kiln_programs *programs,
		      struct kiln_program *program);
/* The same for what goes with its program: a kernel, by its own key or in the
   fast map (then with a seed), or another key of the program. */
void ki_registry_keep_link(struct kiln_programs *programs,
			   struct kiln_program *program,
			   const struct kiln_key *key,
			   const struct ki_seed_key *seed,
			   struct kiln_blob *blob);
/* Failures that memory keeps: of a program, and of a kernel. */
void ki_registry_note_failure(struct kiln_programs *programs,
			      const struct kiln_program_key *key,
			      const struct kiln_program_failure *failure);
void ki_registry_note_kernel(struct kiln_programs *programs,
			     struct kiln_program *program,
			     const struct kiln_key *key,
			     const struct kiln_program_failure *failure);

/* Let a key lead to what it has just found, if that is kept: the program, or a
   kernel of it. */
void ki_registry_set_hint(struct kiln_programs *programs,
			  struct kiln_program *program,
			  const struct kiln_key *key,
			  const struct ki_hint *hint, struct kiln_blob *blob);
void ki_registry_end_hint(struct kiln_programs *programs, struct ki_hint *hint);

/* A kept program of the same, for these devices and more; or NULL. */
struct kiln_program *ki_registry_find_wider(struct kiln_programs *programs,
					    const struct kiln_program_key *key);
/* The one kernel of a seed key, or NULL: by lock. */
struct kiln_kernel *ki_registry_find_seed(struct kiln_programs *programs,
					  const struct ki_seed_key *seed);

enum ki_drop { KI_DROP_ALL, KI_DROP_COLD_HALF };
/* `spared` (or NULL) stays; of ALL its kernels go.  What nobody uses has been
   released afterwards. */
void ki_registry_drop(struct kiln_programs *programs, enum ki_drop what,
		      struct kiln_program *spared);
void ki_registry_drop_image(struct kiln_programs *programs,
			    const uint8_t image[KI_BLAKE2B_BYTES]);
void ki_registry_init(struct kiln_programs *programs);
void ki_registry_fini(struct kiln_programs *programs);

/* ---- persist.c ------------------------------------------------------------- */

/*
 * A program's handle, from disk or else built; the flight is the caller's.
 * KILN_BUILD_OK, or why not, with *failure.
 */
enum kiln_build_kind ki_program_fetch(struct kiln_programs *programs,
				      const struct kiln_program_key *key,
				      struct ki_flight *flight,
				      void **out_handle,
				      struct kiln_program_failure *failure);

/* ---- programs.c ------------------------------------------------------------ */

static inline void ki_programs_count(struct kiln_programs *programs,
				     enum ki_programs_count which)
{
	atomic_fetch_add_explicit(&programs->counts[which], 1,
				  memory_order_relaxed);
}

/* Hits, by threads. */
static inline void ki_programs_count_hit(struct kiln_programs *programs,
					 struct ki_slot *slot,
					 enum ki_programs_count which)
{
	size_t stripe = (uintptr_t)slot / 64 % KI_PROGRAM_STRIPES;
	int owner = programs->owner;

	if (__builtin_expect(owner >= 0 && slot, 1))
		(void)ki_memory_raise(which == KI_COUNT_FAST_HITS
					      ? &slot->hits[owner]
					      : &slot->looks[owner][which - 1],
				      1);
	else
		atomic_fetch_add_explicit(
			&programs->stripes[stripe].hits[which], 1,
			memory_order_relaxed);
}

/* The quick way: the object's blob, or NULL, after which ki_programs_look() may
   find it. */
static inline struct kiln_blob *ki_programs_glance(
	struct kiln_programs *programs, const struct ki_hint *hint,
	struct ki_slot *slot, enum ki_programs_count which)
{
	struct kiln_blob *blob;

	ki_slot_pin(slot);
	blob = atomic_load(&hint->blob);
	if (__builtin_expect(
		    blob &&
			    atomic_load_explicit(&blob->counter,
						 memory_order_acquire) &&
			    ki_slot_take(slot, ki_slot_place(blob), blob),
		    1))
		ki_programs_count_hit(programs, slot, which);
	else
		blob = NULL;
	ki_slot_leave(slot);
	return blob;
}
struct kiln_blob *ki_programs_look(struct kiln_programs *programs,
				   const struct kiln_key *key,
				   enum ki_programs_count which);

static inline void ki_program_touch(struct kiln_programs *programs,
				    struct kiln_program *program)
{
	if (programs->keeps_time)
		ki_lru_touch(&programs->lru, &program->lru);
}

/*
 * Short of resources at the n-th time (from 0): make room.  1: try again; 0:
 * that was all.
 */
int ki_programs_relieve(struct kiln_programs *programs, unsigned n,
			struct kiln_program *spared);

/* kiln_program_get() and so on, from entry.c: the thread's slot, or NULL. */
enum kiln_status ki_program_get(struct kiln_programs *programs,
				const struct kiln_program_key *key,
				struct kiln_program **out_program,
				struct kiln_program_failure *failure,
				struct ki_slot *slot);
enum kiln_status ki_kernel_find(struct kiln_programs *programs,
				const void *constants, size_t constants_size,
				void *device, const char *name,
				struct kiln_kernel **out_kernel,
				struct ki_slot *slot);
enum kiln_status ki_kernel_get(struct kiln_programs *programs,
			       const struct kiln_kernel_key *key,
			       struct kiln_kernel **out_kernel,
			       struct kiln_program_failure *failure,
			       struct ki_slot *slot);

#endif /* KI_PROGRAM_PROGRAM_H */
