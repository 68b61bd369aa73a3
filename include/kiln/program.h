/* SPDX-License-Identifier: MIT */
#ifndef KILN_PROGRAM_H
#define KILN_PROGRAM_H

/*
 * Programs and kernels of a context: live objects of a runtime, built once and
 * handed to everyone who asks for the same (seeds 001 and 003).
 *
 * A runtime (SYCL's, an OpenCL application's own layer) gives a table of
 * functions; kiln keeps what they make, by three maps:
 *
 *	programs   (image, specialization constants, set of devices, options)
 *	kernels    (program, name)
 *	fast       (specialization constants, device, name[, image, options])
 *
 * and behind them asks a kiln, if there is one, for the program's binary.
 *
 *	kiln_programs_new(&options, &programs);
 *	kiln_program_key_new(programs, &request, &program_key);
 *	kiln_kernel_key_new(program_key, device, "name", &kernel_key);
 *	...
 *	kiln_kernel_get(programs, kernel_key, &kernel, &failure);	(often)
 *	launch(kiln_kernel_handle(kernel));
 *	kiln_kernel_unref(kernel);
 *
 * Threads    Everything may be called from any thread.  Done programs and
 *            kernels are found without a lock.
 * Arguments  A kernel is handed to all who ask for the same.  Where the runtime
 *            keeps arguments in it, as OpenCL does, setting them and launching
 *            is for one thread at a time: hold a lock of your own, or create a
 *            kernel of your own from kiln_kernel_program().
 * Building   The first who asks builds, holding no lock; others wait for that
 *            one entry.  A failure, with its message and code, is given to
 *            everyone alike until the cache is wiped or freed (with a bound on
 *            bytes: of the newest 4096 or 16 MiB); one that is spurious each
 *            waiter tries again once, one at a time; short of memory or other
 *            resources, everything kept is dropped and, as far as nobody uses
 *            it, released, the build tried once more, and a second failure
 *            shared by those who wait, not kept.
 *            A build() that asks for what it is building gets KILN_E_INVALID.
 *            One that asks for something else waits for nobody, and so may
 *            build what another thread is building.
 * Lives      A program handed out holds one of the runtime's handles, a kernel
 *            its program.  Dropped from the cache they live until their last
 *            user lets go of them; who does so may be anybody, and calls the
 *            runtime's release.
 * fork()     As <kiln/kiln.h>: KILN_E_FORKED in the child, which may drop what
 *            it inherited: the runtime is not called there.
 * Ownership  As <kiln/kiln.h>; what is copied and what must stay is said where
 *            it is given.  Sizes are in bytes.
 */

#include <kiln/kiln.h>

#ifdef __cplusplus
extern "C" {
#endif

struct kiln_programs;	 /* the cache of one context */
struct kiln_program;	 /* counted */
struct kiln_kernel;	 /* counted */
struct kiln_program_key; /* a request, prepared */
struct kiln_kernel_key;

/* ---- What is asked for --------------------------------------------------- */

/* How a program comes to be; see kiln_program_is_cacheable(). */
enum kiln_program_origin {
	KILN_PROGRAM_IMAGE = 0,	  /* a device image: IL or native */
	KILN_PROGRAM_SOURCE = 1,  /* source text, built at run time */
	KILN_PROGRAM_LINKED = 2,  /* several programs linked */
	KILN_PROGRAM_INTEROP = 3, /* the user's own native object */
};

enum kiln_image_format {
	KILN_IMAGE_IL = 0,     /* SPIR-V and the like; also source text */
	KILN_IMAGE_NATIVE = 1, /* code of the device */
	KILN_IMAGE_OTHER = 2,  /* built, but never kept on disk */
};

/* The code.  A name of the image's own stands in the keys in memory for its
   bytes, which are else told apart by digest; on disk it is always the bytes. */
struct kiln_program_image {
	size_t size; /* of this structure */
	enum kiln_program_origin origin;
	enum kiln_image_format format;
	const void *data;
	size_t data_size;
	const void *id; /* a kernel-set id, say; NULL: none */
	size_t id_size;
	const char *compile_options; /* that came with it; NULL: none */
	const char *link_options;
	void *user; /* for the runtime's functions */
};

/* Bits of kiln_program_request.flags. */
/* Cached although it is built from source or linked: the caller says that the
   image and options are all it is made of. */
#define KILN_PROGRAM_KEEP (1u << 0)

struct kiln_program_request {
	size_t size;
	const struct kiln_program_image *image;
	const void *constants; /* specialization constants, serialized */
	size_t constants_size;
	void *const *devices; /* the runtime's; order and repetition are of no
				 account */
	size_t n_devices;
	const char *compile_options; /* given through the API; NULL: none */
	const char *link_options;
	uint32_t flags;
};

static inline void kiln_program_image_init(struct kiln_program_image *image)
{
	memset(image, 0, sizeof(*image));
	image->size = sizeof(*image);
}

static inline void kiln_program_request_init(
	struct kiln_program_request *request)
{
	memset(request, 0, sizeof(*request));
	request->size = sizeof(*request);
}

/*
 * Whether kiln_program_get() keeps such a program: 0 or 1.  By seeds 001 and
 * 003 one is that comes from a device image, with whatever options, and is
 * neither linked from others nor the user's; KILN_PROGRAM_KEEP adds those from
 * source and linked ones, never the user's.  A kernel is cacheable if and only
 * if its program is.
 */
KILN_API int kiln_program_is_cacheable(
	const struct kiln_program_request *request);

/* ---- The runtime --------------------------------------------------------- */

/* Of what a device's identity is made (seed 001). */
enum kiln_device_string {
	KILN_DEVICE_PLATFORM_NAME = 0,
	KILN_DEVICE_NAME = 1,
	KILN_DEVICE_VERSION = 2,
	KILN_DEVICE_DRIVER_VERSION = 3,
	KILN_N_DEVICE_STRINGS = 4,
};

/* Why a build failed. */
struct kiln_program_failure {
	size_t size; /* set by kiln_program_failure_init() */
	enum kiln_build_kind kind;
	int code;      /* the runtime's own */
	char *message; /* from malloc(), or NULL */
};

static inline void kiln_program_failure_init(
	struct kiln_program_failure *failure)
{
	memset(failure, 0, sizeof(*failure));
	failure->size = sizeof(*failure);
}

/* Drop what it holds; it may then be used again. */
KILN_API void kiln_program_failure_fini(struct kiln_program_failure *failure);

/*
 * What the runtime can do.  Handles are its own and never NULL.  The functions
 * may be called from any thread that calls kiln, several at a time, and with no
 * lock held; they may use kiln for other programs.  They must return, in the
 * process that called them: a longjmp() or an exception out of one is undefined
 * (what an exception says goes into *out_failure).  Those that make something
 * answer KILN_BUILD_OK or else the kind of failure, with code and message in
 * *out_failure (initialised) as far as known.  The table is copied; functions
 * and context must outlive whatever is handed out.
 *
 * All but retain_*, create_from_binary, binary_size, binary and device_string
 * are needed.  Without the last four nothing is kept on disk, without
 * binary_size programs count as large as their images.
 */
struct kiln_program_runtime {
	size_t size;
	void *context; /* first argument of all */

	/* A program of the image for these devices, not yet built.  The
	   constants are the request's. */
	enum kiln_build_kind (*create_from_image)(
		void *context, const struct kiln_program_image *image,
		const void *constants, size_t constants_size,
		void *const *devices, size_t n_devices, void **out_program,
		struct kiln_program_failure *out_failure);
	/* A program of one binary for each device, which build() will be called
	   for with the same options.  A refusal costs the binary, not the
	   call. */
	enum kiln_build_kind (*create_from_binary)(
		void *context, void *const *devices, size_t n_devices,
		const void *const *binaries, const size_t *sizes,
		void **out_program, struct kiln_program_failure *out_failure);
	enum kiln_build_kind (*build)(void *context, void *program,
				      void *const *devices, size_t n_devices,
				      const char *compile_options,
				      const char *link_options,
				      struct kiln_program_failure *out_failure);
	/* One reference more; NULL: kiln_program_retain() has none to give. */
	void (*retain_program)(void *context, void *program);
	void (*release_program)(void *context, void *program);

	enum kiln_build_kind (*create_kernel)(
		void *context, void *program, const char *name,
		void **out_kernel, struct kiln_program_failure *out_failure);
	void (*retain_kernel)(void *context, void *kernel); /* or NULL */
	void (*release_kernel)(void *context, void *kernel);

	/* How large the program's code for a device is; 0: none to be had.  Asked
	   behind a build only if there is a bound on bytes, or a store. */
	size_t (*binary_size)(void *context, void *program, void *device);
	/* Fills exactly that many bytes: 1, or 0 if it could not. */
	int (*binary)(void *context, void *program, void *device, void *data,
		      size_t size);

	/* One of a device's four strings, as malloc() gives it; NULL without
	   memory, or if the device cannot be asked (then nothing of it is kept
	   on disk, and it is like no other). */
	char *(*device_string)(void *context, void *device,
			       enum kiln_device_string which);

	/* 1: a program or kernel made for one device runs on every other with
	   the same four strings; 0: each wants its own. */
	int serves_identical;
};

/* ---- The cache of a context ---------------------------------------------- */

/* Bits of kiln_programs_options.flags. */
#define KILN_PROGRAMS_NO_MEMORY (1u << 0) /* SYCL_CACHE_IN_MEM=0 */
#define KILN_PROGRAMS_NO_STORE	(1u << 1) /* SYCL_CACHE_PERSISTENT=0 */
/* Short of resources, the half not used lately goes first, and there is one
   more retry. */
#define KILN_PROGRAMS_COLD_HALF (1u << 2)
/* Keys hold images byte by byte, as DPC++'s directories do, where they are short
   enough. */
#define KILN_PROGRAMS_WHOLE_IMAGES (1u << 3)
/* SYCL_CACHE_TRACE with 2 in it: what is kept, found and dropped is printed on the
   standard error.  Every use is much slower then. */
#define KILN_PROGRAMS_TRACE (1u << 4)

struct kiln_programs_options {
	size_t size;
	const struct kiln_program_runtime *runtime;
	struct kiln *kiln; /* the caller's, to outlive this; NULL: none */
	/* Of programs kept, by the sizes of their binaries; 0: no bound.  The
	   least recently used go first; among more than 1024 that is exact to
	   some milliseconds.  A larger one is returned and not kept. */
	uint64_t bytes_max;
	uint64_t image_bytes_min; /* of images kept on disk; 0: no bound */
	uint64_t image_bytes_max;
	/* SYCL_PROGRAM_COMPILE_OPTIONS and its like; NULL: not set.  An override
	   that is "" leaves none of the image's.  Copied. */
	const char *compile_options_override;
	const char *link_options_override;
	const char *compile_options_append;
	const char *link_options_append;
	uint32_t flags;
};

static inline void kiln_programs_options_init(
	struct kiln_programs_options *options)
{
	memset(options, 0, sizeof(*options));
	options->size = sizeof(*options);
	options->image_bytes_max = (uint64_t)1 << 30;
}

/* Make the cache of a context.  Errors: NO_MEMORY, INVALID. */
KILN_API enum kiln_status kiln_programs_new(
	const struct kiln_programs_options *options,
	struct kiln_programs **out_programs);

/* Free it; nobody is in a call, and keys are freed before.  Programs and
   kernels handed out stay good, and the runtime with them.  NULL is fine. */
KILN_API void kiln_programs_free(struct kiln_programs *programs);

/* Drop everything, kept failures too, and release what nobody uses.  What is in
   use stays good; what is being built meanwhile is kept after it; failures that
   the kiln behind keeps (its failure_policy) are its own.  INVALID, FORKED. */
KILN_API enum kiln_status kiln_programs_wipe(struct kiln_programs *programs);

/* Drop every program of an image, by its id or else by its bytes: it is being
   unloaded, and its id may be another's next.  No call for it is under way, and
   its keys are not used again.  INVALID, FORKED. */
KILN_API enum kiln_status kiln_programs_forget_image(
	struct kiln_programs *programs, const struct kiln_program_image *image);

/* ---- Keys ---------------------------------------------------------------- */

/*
 * A request's key: options composed, devices sorted into classes, everything
 * hashed.  The image's bytes, its id and `user` stay the caller's and must
 * remain until the key is freed; all else is copied.  A key may be used by many
 * threads at a time.  Errors: NO_MEMORY, INVALID, FORKED, TOO_LARGE (options).
 *
 * A device is known by its handle from then on: none may be another's later,
 * in the life of the cache.
 *
 * Options (seed 001): the environment's replace the image's; then what the API
 * gives; then the environment's that are appended; joined by one blank.
 */
KILN_API enum kiln_status kiln_program_key_new(
	struct kiln_programs *programs,
	const struct kiln_program_request *request,
	struct kiln_program_key **out_key);
/* Free a key, not while a call with it is under way.  NULL is fine. */
KILN_API void kiln_program_key_free(struct kiln_program_key *key);

/* A key for one kernel of such a program on one of its devices.  The program's key
   must remain until this one is freed; the name is copied.  Errors: NO_MEMORY,
   INVALID (not one of them), FORKED, TOO_LARGE (the name). */
KILN_API enum kiln_status kiln_kernel_key_new(
	const struct kiln_program_key *program_key, void *device,
	const char *name, struct kiln_kernel_key **out_key);
/* The same for a kernel's. */
KILN_API void kiln_kernel_key_free(struct kiln_kernel_key *key);

/* ---- Programs and kernels ------------------------------------------------ */

/*
 * The program, built if need be; one reference.  KILN_OK, or KILN_E_BUILD with
 * *failure (initialised; NULL: not wanted) saying why.  Errors: NO_MEMORY,
 * INVALID, FORKED.
 */
KILN_API enum kiln_status kiln_program_get(
	struct kiln_programs *programs, const struct kiln_program_key *key,
	struct kiln_program **out_program,
	struct kiln_program_failure *failure);

/*
 * The kernel, by the fast map; else its program is got as above, and the
 * kernel of it.  A hit counts as a use of the program.  The same answers.
 */
KILN_API enum kiln_status kiln_kernel_get(struct kiln_programs *programs,
					  const struct kiln_kernel_key *key,
					  struct kiln_kernel **out_kernel,
					  struct kiln_program_failure *failure);

/* A kernel of a program that the caller has; that program may have been dropped,
   and its cache freed: then it is a new one.  The same answers, and TOO_LARGE
   (the name). */
KILN_API enum kiln_status kiln_program_kernel(
	struct kiln_program *program, const char *name,
	struct kiln_kernel **out_kernel, struct kiln_program_failure *failure);

/*
 * The fast map as seed 001 has it, without a prepared key: a kernel that was
 * got before for these constants, this device and name.  KILN_MISS also where
 * programs of several images or options have given one.  As long as only one
 * has, that is the answer, whichever the caller means: for names that tell
 * images apart, as SYCL's do.  INVALID, FORKED.
 */
KILN_API enum kiln_status kiln_kernel_find(struct kiln_programs *programs,
					   const void *constants,
					   size_t constants_size, void *device,
					   const char *name,
					   struct kiln_kernel **out_kernel);

/* The runtime's handle; good until the reference goes. */
KILN_API void *kiln_program_handle(const struct kiln_program *program);
KILN_API void *kiln_kernel_handle(const struct kiln_kernel *kernel);
/* The handle with a reference of the runtime's own, which goes back to the
   runtime and not to kiln: for who hands out native objects.  NULL: the runtime
   cannot. */
KILN_API void *kiln_program_retain(struct kiln_program *program);
KILN_API void *kiln_kernel_retain(struct kiln_kernel *kernel);
/* A kernel's program; lives as long as the kernel. */
KILN_API struct kiln_program *kiln_kernel_program(
	const struct kiln_kernel *kernel);

/* Take a reference, or drop one.  All accept NULL; ref returns its argument. */
KILN_API struct kiln_program *kiln_program_ref(struct kiln_program *program);
KILN_API void kiln_program_unref(struct kiln_program *program);
KILN_API struct kiln_kernel *kiln_kernel_ref(struct kiln_kernel *kernel);
KILN_API void kiln_kernel_unref(struct kiln_kernel *kernel);

/* ---- Statistics ---------------------------------------------------------- */

struct kiln_programs_stats {
	size_t size;	     /* set by kiln_programs_stats_init() */
	uint64_t n_programs; /* kept now */
	uint64_t n_kernels;
	uint64_t bytes; /* of the programs' binaries; 0 without a bound */
	/* Since it was made. */
	uint64_t fast_hits;
	uint64_t kernel_hits;
	uint64_t program_hits;
	uint64_t builds;     /* build() called for an image */
	uint64_t from_store; /* made of binaries that were on disk */
	uint64_t build_failures;
	uint64_t evicted; /* programs */
	uint64_t resets;  /* everything dropped for want of resources */
};

static inline void kiln_programs_stats_init(struct kiln_programs_stats *stats)
{
	memset(stats, 0, sizeof(*stats));
	stats->size = sizeof(*stats);
}

KILN_API enum kiln_status kiln_programs_stats(struct kiln_programs *programs,
					      struct kiln_programs_stats *out);

/* ---- Environment --------------------------------------------------------- */

/*
 * SYCL_* as seed 001 documents them, or as DPC++ reads them
 * (SYCL_CACHE_DIALECT=dpcpp); docs/env.md has the table.  Fills what belongs to
 * the programs, and what belongs to the kiln behind them: its store
 * ("sycl:DIR"), bound, age.  Strings live until kiln_sycl_config_free().
 */
struct kiln_sycl_config;

/*
 * Read the environment.  A value that cannot be understood is KILN_E_INVALID,
 * and *out_message (malloc()ed, may be NULL) names the variable and what it
 * takes: here and never later.
 */
KILN_API enum kiln_status kiln_sycl_config_read(struct kiln_sycl_config **out,
						char **out_message);
KILN_API void kiln_sycl_config_free(struct kiln_sycl_config *config);

/* Whether a store is wanted and where one could be: 0 or 1. */
KILN_API int kiln_sycl_config_is_persistent(const struct kiln_sycl_config *);
/* Set in initialised options what the environment says. */
KILN_API void kiln_sycl_config_programs(const struct kiln_sycl_config *config,
					struct kiln_programs_options *options);
KILN_API void kiln_sycl_config_kiln(const struct kiln_sycl_config *config,
				    struct kiln_options *options);

#ifdef __cplusplus
}
#endif
#endif /* KILN_PROGRAM_H */
