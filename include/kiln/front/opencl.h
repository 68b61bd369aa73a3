/* SPDX-License-Identifier: MIT */
#ifndef KILN_FRONT_OPENCL_H
#define KILN_FRONT_OPENCL_H

/*
 * The program cache (<kiln/program.h>) for authors of OpenCL programs, in a
 * library of its own, libkiln-cl: what else takes the usual 150 lines of
 * clGetProgramInfo(), files and checks.
 *
 *	kiln_cl_open(context, NULL, &cl);
 *	kiln_cl_build_init(&build);
 *	build.source = text;
 *	build.options = "-cl-fast-relaxed-math";
 *	kiln_cl_program(cl, &build, &program, &failure);
 *	kiln_cl_kernel(cl, &build, "saxpy", &kernel, &failure);
 *	...
 *	clReleaseKernel(kernel);
 *	clReleaseProgram(program);
 *	kiln_cl_close(cl);
 *
 * What is handed out are the driver's own objects, one reference each, to be
 * released as always.  A program is built already and may be the same object
 * for all who ask for the same, so it must not be built again; kernels hold
 * their arguments, so everybody gets one of his own.
 *
 * At the next start the binary is found in the user's store by source, options,
 * include files, devices and compiler, and is the one that programs under `kiln
 * run` share.  It is handed to the driver only whole and with that very key; one
 * that the driver refuses, or whose kernels tell less than those built from
 * source (arguments' names, attributes), costs nothing but the build.  Only the
 * log of a program that was found is empty: warnings come when it is built.
 *
 * When    No binary is fetched from the driver while anything is built: some
 *         make all of a program's kernels then, which takes as long again, and
 *         have better ones once they have run.  kiln_cl_keep() does it when the
 *         program has time, else kiln_cl_close().  What ends without either
 *         keeps nothing.  On PoCL a first start so takes half as long again, at
 *         its end; KILN_CL_CLOSE_AT_ONCE leaves that to kiln-worker, and where
 *         none ever runs every start is a first one.
 * What    A build that cannot be kept is an ordinary build: its text has the time
 *         in it, it includes what cannot be found, the driver is one that kiln
 *         does not know, another OpenCL layer is in use.  In the last two cases
 *         it is still shared in memory; else each call builds, and for several
 *         kernels kiln_cl_program() once and clCreateKernel() are better.  Under
 *         `kiln run` the store is left to its layer.
 * Threads Everything may be called from any thread.
 * fork()  A child gets KILN_E_FORKED and can do nothing but close, which leaves
 *         the driver alone.
 */

#include <kiln/program.h>

#ifndef CL_TARGET_OPENCL_VERSION
#define CL_TARGET_OPENCL_VERSION 300
#endif
#include <CL/cl.h>

#ifdef __cplusplus
extern "C" {
#endif

struct kiln_cl;

/* Bits of kiln_cl_options.flags, beside KILN_PROGRAMS_*. */
#define KILN_CL_CLOSE_AT_ONCE                                                  \
	(1u                                                                    \
	 << 16) /* kiln_cl_close() fetches nothing: what is not kept by then
		      is left to kiln-worker if the store is the user's own
		      (`kiln wait`, or the next `kiln run`), else lost */

struct kiln_cl_options {
	size_t size;	    /* set by kiln_cl_options_init() */
	struct kiln *kiln;  /* the caller's, to outlive this; NULL: the user's
			       own, by environment and configuration files */
	uint64_t bytes_max; /* of programs kept alive; 0: no bound.  With one
			       the driver is asked for each binary's size, which
			       may take as long as the build did */
	uint32_t flags;	    /* KILN_PROGRAMS_*, KILN_CL_* */
	kiln_log_fn *log;   /* why there is no store, and what its trouble
			       is; NULL: silent */
	void *log_arg;
};

static inline void kiln_cl_options_init(struct kiln_cl_options *options)
{
	memset(options, 0, sizeof(*options));
	options->size = sizeof(*options);
}

/*
 * The cache of a context, which is retained until kiln_cl_close().  A store
 * that cannot be used, or is switched off (KILN_DISABLE), does not make this
 * fail: programs are then shared in memory, and in the first case by the servers
 * of KILN_REMOTE, if their helper runs.  `options` may be NULL.
 * Errors: NO_MEMORY, INVALID (not a context; an option is wrong).
 */
KILN_API enum kiln_status kiln_cl_open(cl_context context,
				       const struct kiln_cl_options *options,
				       struct kiln_cl **out_cl);
/*
 * Close; nobody is in a call.  Keeps what kiln_cl_keep() would; what was handed out
 * stays good.  Not from atexit() or a destructor: drivers may be gone by then.
 * NULL is fine.
 */
KILN_API void kiln_cl_close(struct kiln_cl *cl);

/*
 * Put into the store what was built since the last time and is not there: best
 * when its kernels have run and no time is short.  The programs stay alive until
 * then.  KILN_OK also if nothing could be kept.  Errors: INVALID, FORKED.
 */
KILN_API enum kiln_status kiln_cl_keep(struct kiln_cl *cl);

/* What is to be built: exactly one of source, il and binary. */
struct kiln_cl_build {
	size_t size;	    /* set by kiln_cl_build_init() */
	const char *source; /* NUL-ended */
	const void *il;	    /* SPIR-V */
	size_t il_size;
	const void *binary; /* for the devices named, all the same; never kept
			       in the store */
	size_t binary_size;
	const char *options; /* as clBuildProgram() takes them; NULL: none */
	const cl_device_id *devices; /* NULL: all of the context */
	cl_uint n_devices;
	/* Specialization constants of IL. */
	const cl_uint *constant_ids;
	const size_t *constant_sizes;
	const void *const *constants;
	size_t n_constants;
};

static inline void kiln_cl_build_init(struct kiln_cl_build *build)
{
	memset(build, 0, sizeof(*build));
	build->size = sizeof(*build);
}

/*
 * The program, built for these devices, which may be any of the context's and
 * in any order.  (The driver's list of its devices may have the others too, or
 * not.)  KILN_OK, or KILN_E_BUILD with *failure (initialised; NULL: not wanted):
 * its code is OpenCL's, its message the build log.  Errors: NO_MEMORY, INVALID,
 * FORKED.
 */
KILN_API enum kiln_status kiln_cl_program(struct kiln_cl *cl,
					  const struct kiln_cl_build *build,
					  cl_program *out_program,
					  struct kiln_program_failure *failure);

/*
 * A kernel of that program, the caller's own.  The same answers.  Each call looks
 * whether all that the program depends on is still the same, files too, which
 * takes 60 us to 250 us and longer with many includes: keep a kernel that is
 * launched often.
 */
KILN_API enum kiln_status kiln_cl_kernel(struct kiln_cl *cl,
					 const struct kiln_cl_build *build,
					 const char *name,
					 cl_kernel *out_kernel,
					 struct kiln_program_failure *failure);

/* What the cache of programs counted. */
KILN_API enum kiln_status kiln_cl_stats(struct kiln_cl *cl,
					struct kiln_programs_stats *out_stats);

#ifdef __cplusplus
}
#endif
#endif /* KILN_FRONT_OPENCL_H */
