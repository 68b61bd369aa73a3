/* SPDX-License-Identifier: MIT */
#ifndef KI_FRONT_OPENCL_JOB_H
#define KI_FRONT_OPENCL_JOB_H

/*
 * A job asks kiln-worker to repeat a build outside the program and to publish
 * its binary.  It is one file in the spool (docs/formats/job.md), mode 0600,
 * made as a temporary and renamed: complete or not there.  A spool holds at
 * most 64 MiB and nothing older than 7 days; beyond that a job is refused.
 * (A process that has counted the spool writes 1/16 of the room that was left
 * before it counts again, 256 KiB at least and 1 MiB at most, so very many at
 * once may pass 64 MiB by that much each; what found no room is refused for ten
 * seconds without counting.)
 */

#include <stddef.h>
#include <stdint.h>

#include <kiln/kiln.h>

#include "base/bytes.h"
#include "front/opencl/recipe.h"
#include "sys/sys.h"

#define KI_CL_SPOOL_BYTES_MAX ((uint64_t)64 << 20)
#define KI_CL_JOB_SECONDS_MAX ((uint64_t)7 * 24 * 3600)

struct ki_cl_job {
	const void *record; /* key record of the wanted entry */
	size_t record_size;
	const char *platform_name; /* CL_PLATFORM_NAME, for messages */
	const char *driver;	   /* ki_cl_driver()->name */
	uint32_t n_devices;	   /* of the build */
	const struct ki_cl_recipe *recipe;
	const char *directory; /* working directory of the build */
	/* NAME=VALUE: variables that change code or place the driver's caches,
	   and no others. */
	const char *const *environment;
	uint32_t n_environment;
	const char *application; /* executable */
	const char *name_space;	 /* or "" */
	uint64_t created;	 /* seconds since 1970 */
	uint64_t build_ns;	 /* of the application's own build */
	uint32_t stage;		 /* the stage that is wanted */
	uint32_t tries;		 /* so far; at most 2 */
	/* Whose build it was; while that process lives and the job is new, it
	   may still launch what the driver's own cache then has (the worker
	   waits).  0: the process that writes the job. */
	uint32_t writer_pid;
	uint64_t writer_start; /* ki_process_start() */
};

/*
 * Variables by which the loader finds drivers, NULL-ended: with those of the
 * driver they make up a job's environment.
 */
extern const char *const ki_cl_loader_variables[];

/* All of these that are set now, as KILN_META_ENVIRONMENT has them. */
struct ki_cl_driver;
void ki_cl_job_environment(const struct ki_cl_driver *driver,
			   struct ki_bytes *bytes);

/*
 * Write a job into the spool, which is made if need be.  The name comes from
 * the key's digest, so one key has one job: KILN_EXISTS if it is there.
 * KILN_E_FULL (the spool's bound, or no space), KILN_E_READONLY, KILN_E_IO,
 * KILN_E_NO_MEMORY, KILN_E_OWNER (a symlink, someone else's, or writable by
 * others), KILN_E_UNSUPPORTED (not all bytes of the recipe were kept).  No
 * driver call; holds no descriptor afterwards.
 */
enum kiln_status ki_cl_job_write(const char *spool,
				 const struct ki_cl_job *job);

/* Whether this process has tried to write one for the key there already: true as far as
   a small table goes, and until it is removed.  What had no room is another process's:
   each hit would else look at a full spool.  A hash and a look. */
int ki_cl_job_was_written(const char *spool,
			  const uint8_t digest[KILN_DIGEST_BYTES]);

/* ki_cl_job_write() on a given system: for tests. */
enum kiln_status ki_cl_job_write_on(const struct ki_sys *sys, const char *spool,
				    const struct ki_cl_job *job);

/* As the file has it, behind what is there: for who hands a job on otherwise.
   NO_MEMORY, TOO_LARGE. */
enum kiln_status ki_cl_job_bytes(const struct ki_cl_job *job,
				 struct ki_bytes *bytes);

/* Make the spool, for what else lies there.  Errors as above. */
enum kiln_status ki_cl_spool_make(const char *spool);

/* The entry is there: nobody need make it.  No job is fine. */
void ki_cl_job_remove(const char *spool, const void *record,
		      size_t record_size);

/*
 * Read one; free it with ki_cl_job_free().  KILN_MISS if it is not there,
 * KILN_E_FORMAT if damaged, KILN_E_UNSUPPORTED if a newer kiln wrote it,
 * KILN_E_OWNER if it is not this user's.
 */
struct ki_cl_job_file;
enum kiln_status ki_cl_job_read(const char *path,
				struct ki_cl_job_file **out_file);
/* The same from bytes, from malloc(), which are taken if it is KILN_OK. */
enum kiln_status ki_cl_job_parse(void *bytes, size_t size,
				 struct ki_cl_job_file **out_file);
const struct ki_cl_job *ki_cl_job(const struct ki_cl_job_file *file);
void ki_cl_job_free(struct ki_cl_job_file *file);

/* Write down how often a job was tried: the file is replaced at once or stays
   as it was.  KILN_MISS if it is gone. */
enum kiln_status ki_cl_job_set_tries(const char *path,
				     const struct ki_cl_job *job,
				     uint32_t tries);

/*
 * List the jobs of a spool, oldest first: paths, from malloc() each, in a
 * malloc()ed array.  Foreign files are left alone; jobs past their age and
 * temporaries of dead writers are removed.  A spool that is not there has no
 * jobs.  KILN_E_OWNER, KILN_E_IO, KILN_E_NO_MEMORY.
 */
enum kiln_status ki_cl_jobs(const char *spool, char ***out_paths,
			    size_t *out_n_paths);

#endif /* KI_FRONT_OPENCL_JOB_H */
