/* SPDX-License-Identifier: MIT */
#ifndef KI_FRONT_OPENCL_LAYER_H
#define KI_FRONT_OPENCL_LAYER_H

/*
 * The inside of the layer: what its files share (README.md has the picture).
 *
 * `ki_cl_next` is the table below us, the only way to the driver.  Handles are
 * numbers here: they are looked up, never followed.
 */

#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_1_APIS
#define CL_USE_DEPRECATED_OPENCL_2_2_APIS
#include <CL/cl_icd.h>

#include <kiln/inspect.h>
#include <kiln/kiln.h>

#include "base/bytes.h"
#include "base/list.h"
#include "front/guest.h"
#include "front/opencl/key.h"
#include "front/opencl/recipe.h"
#include "sys/sys.h"

extern cl_icd_dispatch ki_cl_next;

/* ---- The kiln of this process (guest.c) ---------------------------------- */

/* Opened at the first use; fixed from then on. */
struct ki_cl_guest {
	const struct ki_guest *base;
	struct kiln *kiln;
	struct ki_cl_identities *identities;
	const char *spool;	/* NULL: no jobs */
	const char *name_space; /* or "" */
};

/* NULL if there is no caching in this process: switched off, set wrongly,
   without memory, or a forked child. */
const struct ki_cl_guest *ki_cl_guest(void);

/* Whether this process is a forked child of the one that loaded the layer. */
int ki_cl_is_child(void);

/* ---- Programs, shadows, kernels (program.c) ------------------------------ */

/* The devices of one build.  Fixed after creation, but for `refs`. */
struct ki_cl_targets {
	unsigned refs; /* under the lock */
	cl_uint n;
	cl_device_id *devices; /* each once, in the program's order */
	cl_uint n_given;
	cl_device_id *given; /* as the call had them; NULL if it had none */
	int is_partial;	     /* fewer than the program has */
	int is_in_order;     /* given as they are, or none at all */
};

/*
 * What a program is now: the outcome of its last build, compilation or link,
 * if all that were ever built have it.  Immutable, counted under the lock.
 */
struct ki_cl_made {
	const struct ki_cl_recipe *recipe; /* one reference */
	struct kiln_key *key;		   /* NULL: of an object's binary */
	uint64_t stamp;		       /* of the include files, as the key's */
	struct ki_cl_targets *targets; /* one reference; NULL: all devices */
	unsigned refs;
};

/*
 * What answers for an application's program.  From an entry:
 *	a build		a program made from the binary, built
 *	a compilation	no program until a link needs one: see
 *			ki_cl_shadow_load()
 *	a link		the application's own handle, made from the binary
 * or a twin: what the driver linked itself, where the handle is not that.
 */
struct ki_cl_shadow {
	/* Fixed after creation. */
	cl_context context;
	struct ki_cl_made *made; /* NULL: a twin; a build's has no source */
	char *options;		 /* as given; NULL if none were */
	cl_device_id *devices;	 /* of the program and of the binaries */
	cl_uint n_devices;
	int is_own; /* the program is the application's */
	struct kiln_blob *metadata;
	const void *logs; /* of the build that was captured */
	size_t logs_size;
	const void *kernels;
	size_t kernels_size;
	/* Under the lock. */
	cl_program program; /* fixed once it is there */
	unsigned refs;
	int is_made_too;	    /* by the driver, of H */
	struct ki_list link;	    /* of all shadows */
	struct kiln_blob *binaries; /* the entry's value, once asked for */
	int driver_has_told;	    /* it answers for binaries from now on */
};

/* What the driver made and of which the binary may be captured. */
struct ki_cl_capture {
	struct ki_cl_made *made;
	char *directory;
	struct ki_bytes environment; /* NAME=VALUE, NUL after each */
	uint64_t build_ns;
	uint64_t created; /* seconds since 1970 */
	unsigned refs;	  /* under the lock */
};

/* Who is at work on H besides the application's own calls: it stays until they
   are done. */
enum ki_cl_busy {
	KI_CL_IDLE = 0,
	KI_CL_FETCHED, /* in the background */
	KI_CL_CLAIMED, /* the driver makes it, for whichever thread */
};

/* An application's program: from source, from IL, from an object's binary, or
   linked. */
struct ki_cl_program {
	/* Fixed after creation. */
	cl_program handle;
	cl_context context;
	int has_source; /* or IL */
	int is_linked;
	/* Fixed after ki_cl_program_devices(). */
	cl_platform_id platform;
	cl_device_id *devices;
	cl_uint n_devices;
	/* Under the lock. */
	unsigned refs;			  /* of the layer */
	unsigned app_refs;		  /* of the application */
	struct ki_cl_source *source;	  /* see ki_cl_program_source() */
	struct ki_cl_constant *constants; /* of IL, by number */
	cl_uint n_constants;
	unsigned n_setting;		 /* threads that set one now */
	unsigned n_sets;		 /* begun so far */
	unsigned n_kernels;		 /* living, of either program */
	unsigned n_shadow_kernels;	 /* of these, those of a shadow */
	struct ki_cl_shadow *of_kernels; /* their shadow: one reference */
	struct ki_cl_shadow *shadow;	 /* answers for the program, or NULL */
	struct ki_cl_made *made;	 /* what it is, or NULL: not known */
	struct ki_cl_capture *capture;	 /* of its last build, or NULL */
	unsigned char *built; /* for each device: ever; NULL: linked */
	unsigned n_runs;      /* builds by the driver, not over yet */
	unsigned n_changes;   /* of what it is, so far */
	unsigned walk;	      /* the last that met it */
	int listed;	      /* can be found by handle */
	int dies_by_callback; /* the driver will say when */
	int holds;	      /* we keep one reference in the driver */
	int native;	      /* for good */
	int is_busy;	      /* enum ki_cl_busy */
	int owes_release;     /* the application's last, kept back */
	int had_kernels;      /* since its last build, or their like */
};

struct ki_cl_kernel {
	cl_kernel handle;
	struct ki_cl_program *program; /* one reference */
	struct ki_cl_shadow *shadow;   /* one reference; NULL: native */
	unsigned app_refs;	       /* under the lock */
};

/* One lock for all of it; never held while anybody is called. */
extern struct ki_mutex ki_cl_lock;
extern struct ki_cond ki_cl_idle; /* no program is busy any more */

/* One that has no handle yet: one reference, or NULL.  The source's reference
   is taken over. */
struct ki_cl_program *ki_cl_program_new(cl_context context,
					struct ki_cl_source *source);
/* It can be found by this handle from now on, and the application has its first
   reference: 1, or 0 if it has one already or there is no memory. */
int ki_cl_program_list(struct ki_cl_program *program, cl_program handle);
/* Both at once; without memory it stays unknown, thus native. */
void ki_cl_program_add(cl_program handle, cl_context context,
		       struct ki_cl_source *source);
/* There is no such program after all. */
void ki_cl_program_unlist(struct ki_cl_program *program);
/* A handle that is new, of a program that is not kept track of.  None should
   be known by it, unless a driver forgot to say that one was gone. */
void ki_cl_program_forget(cl_program handle);
/* One reference, or NULL if it is not known. */
struct ki_cl_program *ki_cl_program_get(cl_program handle);
void ki_cl_program_ref(struct ki_cl_program *program);
void ki_cl_program_unref(struct ki_cl_program *program);

/* Learn platform and devices from the driver: 0, or -1 if it would not say. */
int ki_cl_program_devices(struct ki_cl_program *program);

/*
 * Its source or IL: one reference, or NULL if it has none or without memory.
 * The driver keeps every source too, and gives it back.  What it gives back as
 * it was need not be kept here, once an entry answers for the program.
 */
struct ki_cl_source *ki_cl_program_source(struct ki_cl_program *program);
void ki_cl_program_lend_source(struct ki_cl_program *program);

/* Around the driver's call that sets a constant of IL: not while the program
   is claimed. */
void ki_cl_program_begin_set(struct ki_cl_program *program);
void ki_cl_program_end_set(struct ki_cl_program *program);
/* How often that has begun; whether the constants that the driver has are now
   those of a recipe. */
unsigned ki_cl_program_sets(struct ki_cl_program *program);
int ki_cl_program_is_set_as(struct ki_cl_program *program,
			    const struct ki_cl_recipe *recipe);
/* The driver has taken a constant of IL. */
void ki_cl_program_constant(struct ki_cl_program *program, cl_uint id,
			    size_t size, const void *value);
/* What a build or compilation of its source makes: NULL without memory. */
const struct ki_cl_recipe *ki_cl_program_recipe(
	struct ki_cl_program *program, enum ki_cl_recipe_kind kind,
	const struct ki_cl_header *headers, cl_uint n_headers,
	const char *options);

/* The application's references come and go. */
cl_int ki_cl_program_retain(struct ki_cl_program *program);
cl_int ki_cl_program_release(struct ki_cl_program *program);
/* Nothing of it is looked up any more. */
void ki_cl_program_stay_native(struct ki_cl_program *program);
/* Variables of what answers for it may have changed, as by kernels. */
void ki_cl_program_is_used(struct ki_cl_program *program);
/* Have H for oneself, unless the driver is at work on it already (-1). */
int ki_cl_program_claim(struct ki_cl_program *program);
/* The end of being busy: the thread that fetched or claimed calls this. */
void ki_cl_program_rest(struct ki_cl_program *program);
/* The driver is about to build H: nobody may claim it until n_runs is 0. */
void ki_cl_program_enter(struct ki_cl_program *program);
/* Wait, ten seconds at most, until the background leaves it alone. */
void ki_cl_program_await(struct ki_cl_program *program);

/* A number for a walk over programs, and the next one of a platform (NULL: of
   any) that has a shadow and was not met in it: one reference, or NULL. */
unsigned ki_cl_walk_begin(void);
struct ki_cl_program *ki_cl_walk_shadowed(cl_platform_id platform,
					  unsigned walk);

/* ---- What a program is now (outcome.c) ----------------------------------- */

/* Takes references of its own on recipe, key and targets. */
struct ki_cl_made *ki_cl_made_new(const struct ki_cl_recipe *recipe,
				  struct kiln_key *key, uint64_t stamp,
				  struct ki_cl_targets *targets);
struct ki_cl_made *ki_cl_made_ref(struct ki_cl_made *made);
void ki_cl_made_unref(struct ki_cl_made *made);
/* One reference, or NULL if that is not known; and the number of the last
   change, where that is asked for. */
struct ki_cl_made *ki_cl_made_of(struct ki_cl_program *program,
				 unsigned *out_change);

/* It becomes something else: nothing is known any more.  The number of this
   change. */
unsigned ki_cl_program_change(struct ki_cl_program *program);
/* How many there have been. */
unsigned ki_cl_program_changes(struct ki_cl_program *program);
/* It has become this, unless it has changed again. */
void ki_cl_program_become(struct ki_cl_program *program, unsigned change,
			  struct ki_cl_made *made);

/* The shadow that answers now: one reference, or NULL. */
struct ki_cl_shadow *ki_cl_shadow_of(struct ki_cl_program *program);
/* Let a shadow (whose reference is taken over), or nobody, answer. */
void ki_cl_program_shadow(struct ki_cl_program *program,
			  struct ki_cl_shadow *shadow);
/* It does not answer any more, if it still did. */
void ki_cl_program_unshadow(struct ki_cl_program *program,
			    struct ki_cl_shadow *shadow);
void ki_cl_shadow_add(struct ki_cl_shadow *shadow); /* refs: 1 */
void ki_cl_shadow_unref(struct ki_cl_shadow *shadow);
/* How many shadows a context has. */
cl_uint ki_cl_shadows_in(cl_context context);
/* How many are for a device: 0, or one reference to one of them as well. */
cl_uint ki_cl_shadows_on(cl_device_id device, struct ki_cl_shadow **out_one);
/* The build that may be captured: one reference, or NULL. */
struct ki_cl_capture *ki_cl_capture_of(struct ki_cl_program *program);
/* Whether it is that still: no other build has begun since. */
int ki_cl_is_captured(struct ki_cl_program *program,
		      const struct ki_cl_capture *capture);
/* Replace it (takes the reference over), unless the program has changed again:
   whether it did. */
int ki_cl_program_capture(struct ki_cl_program *program, unsigned change,
			  struct ki_cl_capture *capture);
/* It is done with, unless a later build has taken its place. */
void ki_cl_program_captured(struct ki_cl_program *program,
			    struct ki_cl_capture *capture);
void ki_cl_capture_unref(struct ki_cl_capture *capture);

/* ---- Kernels (program.c) -------------------------------------------------- */

/* Remember a kernel: 0 or -ENOMEM. */
int ki_cl_kernel_add(struct ki_cl_program *program, struct ki_cl_shadow *shadow,
		     cl_kernel handle);
/* What a kernel belongs to: 1, with one reference to each (the shadow is NULL
   for a native one); 0 if not known. */
int ki_cl_kernel_of(cl_kernel handle, struct ki_cl_program **out_program,
		    struct ki_cl_shadow **out_shadow);
/* The driver's name of a kernel, from malloc(), or NULL.  To be asked only
   where the program has asked something of this kernel. */
char *ki_cl_kernel_name(cl_kernel kernel, char *few, size_t n_few);
cl_int ki_cl_kernel_retain(cl_kernel handle);
cl_int ki_cl_kernel_release(cl_kernel handle);

/* ---- Platforms (program.c) ----------------------------------------------- */

enum ki_cl_platform_bit {
	KI_CL_NO_SHADOWS = 1,	 /* an unknown extension was handed out */
	KI_CL_FETCH_IS_SLOW = 2, /* one took too long */
	/* Whether what has kernels may be built; neither: not known yet. */
	KI_CL_KERNELS_FORBID = 4,
	KI_CL_KERNELS_ALLOW = 8,
};
unsigned ki_cl_platform_bits(cl_platform_id platform);
/* NULL: all platforms, those not seen yet included. */
void ki_cl_platform_set(cl_platform_id platform, unsigned bits);

/* ---- Devices of builds (targets.c) --------------------------------------- */

/* Whether these are the program's, which knows its devices. */
int ki_cl_has_devices(const struct ki_cl_program *program, cl_uint n_given,
		      const cl_device_id *given);
/* One reference, or NULL without memory.  They are the program's. */
struct ki_cl_targets *ki_cl_targets_new(const struct ki_cl_program *program,
					cl_uint n_given,
					const cl_device_id *given);
struct ki_cl_targets *ki_cl_targets_ref(struct ki_cl_targets *targets);
void ki_cl_targets_unref(struct ki_cl_targets *targets);
/* The targets' devices (NULL: all of the program's). */
const cl_device_id *ki_cl_devices_of(const struct ki_cl_program *program,
				     const struct ki_cl_targets *targets,
				     cl_uint *out_n);

/* Whether a build for these leaves nothing that was built before. */
int ki_cl_covers(const struct ki_cl_program *program,
		 const struct ki_cl_targets *targets);
/* A build for these has begun, whoever did it. */
void ki_cl_mark_built(struct ki_cl_program *program, cl_uint n_given,
		      const cl_device_id *given);

/* Of all devices, in their order: else drivers have their own ways of telling
   how many binaries there are, and in which. */
int ki_cl_is_usual(const struct ki_cl_shadow *shadow);
/* Whether only the driver can answer about a device (NULL: about whichever):
   it is one of the program's and none of the shadow's. */
int ki_cl_is_other_device(const struct ki_cl_program *program,
			  const struct ki_cl_shadow *shadow,
			  cl_device_id device);
/* The driver's own kernel of the same name for such a question, to be released;
   else NULL. */
cl_kernel ki_cl_other_kernel(struct ki_cl_program *program,
			     struct ki_cl_shadow *shadow, cl_device_id device,
			     cl_kernel kernel);

/* ---- Building and compiling (build.c) ------------------------------------ */

/* What clBuildProgram, clCompileProgram or clLinkProgram was given. */
struct ki_cl_request {
	enum ki_cl_recipe_kind kind;
	cl_program handle;  /* NULL: a link */
	cl_program twin;    /* NULL, or whom the driver is given instead */
	cl_context context; /* of a link */
	cl_uint n_devices;
	const cl_device_id *devices;
	const char *options;
	/* Header programs and their names, or what is linked. */
	cl_uint n_programs;
	const cl_program *programs;
	const char **names;
	/* Of a link that was planned: its inputs, and the last change of each
	   before that; else NULL. */
	struct ki_cl_program *const *inputs;
	const unsigned *changes;
	void(CL_CALLBACK *notify)(cl_program program, void *user_data);
	void *user_data;
};

/* The key of a recipe for these devices (NULL: all) of a program, which are
   known; as ki_cl_key(). */
enum kiln_status ki_cl_recipe_key(const struct ki_cl_guest *guest,
				  const struct ki_cl_program *program,
				  const struct ki_cl_targets *targets,
				  const struct ki_cl_recipe *recipe,
				  struct kiln_key **out_key,
				  uint64_t *out_stamp,
				  enum kiln_counter *out_reason);

/* Whether what a compiler reads and what is set is still what it was when this
   was made, its inputs too: else the driver would make something else. */
int ki_cl_is_unchanged(const struct ki_cl_guest *guest,
		       const struct ki_cl_program *program,
		       const struct ki_cl_made *made);

/* What the program is to become (takes the reference to the recipe over; NULL:
   that is not known); NULL after having counted why it is not cached. */
struct ki_cl_made *ki_cl_plan(const struct ki_cl_guest *guest,
			      const struct ki_cl_program *program,
			      struct ki_cl_targets *targets,
			      const struct ki_cl_recipe *recipe);

/* Look it up, count that, and have it made from what is found: one reference,
   or NULL. */
struct ki_cl_shadow *ki_cl_find(const struct ki_cl_guest *guest,
				const struct ki_cl_program *program,
				struct ki_cl_made *made, const char *options,
				uint64_t began_ns);
/* Let it (whose reference is taken over) answer. */
void ki_cl_answer_with(struct ki_cl_program *program,
		       struct ki_cl_shadow *shadow);

/* Count and trace a build that is the driver's alone; `why` NULL: in the words
   of the counter. */
void ki_cl_pass_over(const struct ki_cl_guest *guest, enum kiln_counter reason,
		     const char *why);

/* Whether kernels, or a build that still runs, stand in the way of a new one:
   the driver says so by itself, unless all kernels are of the shadow (one
   reference, or NULL). */
int ki_cl_is_in_use(struct ki_cl_program *program,
		    struct ki_cl_shadow **out_shadow);

/* ---- The driver's own (native.c, remake.c) ------------------------------- */

/* Let the driver do it.  If `made` is not NULL, the program is that afterwards,
   and its binary may be kept.  `guest` and `program` may be NULL; of a link
   the program is new and not listed, and *out_linked is the driver's answer. */
cl_int ki_cl_run(const struct ki_cl_guest *guest, struct ki_cl_program *program,
		 const struct ki_cl_request *request, struct ki_cl_made *made,
		 cl_program *out_linked);

/* Leave a job for what was found: its entry was fetched early, and its build took
   so long.  There is a spool, and somebody makes a better one. */
void ki_cl_ask_for_better(const struct ki_cl_guest *guest,
			  const struct ki_cl_program *program,
			  struct ki_cl_made *made, uint64_t build_ns);

/* Let the driver build or compile what the shadow answers for, which goes on
   answering.  0, or -1 if it would not. */
int ki_cl_make_too(struct ki_cl_program *program, struct ki_cl_shadow *shadow);
/* The same, then do without the shadow, unless it has made kernels.  What was
   linked is the driver's own already. */
int ki_cl_go_native(struct ki_cl_program *program);

/* The driver makes a new program by a recipe: NULL if it will not. */
cl_program ki_cl_remake(cl_platform_id platform,
			const struct ki_cl_recipe *recipe, cl_context context,
			cl_uint n_devices, const cl_device_id *devices);
/* It builds or compiles one that is there, for these devices (NULL: all). */
cl_int ki_cl_make_again(struct ki_cl_program *program,
			const struct ki_cl_recipe *recipe, const char *options,
			const struct ki_cl_targets *targets);

/* ---- Shadows from entries (shadow.c) ------------------------------------- */

/* How a shadow's program was made, with its source: one reference, or NULL
   without memory. */
struct ki_cl_made *ki_cl_shadow_made(struct ki_cl_program *program,
				     const struct ki_cl_shadow *shadow);

/* One reference, or NULL if the driver will not have the binaries, which are
   of no use then, or something has run out.  Of a link, the program is new and
   not listed; its handle is then the shadow's. */
struct ki_cl_shadow *ki_cl_shadow_new(const struct ki_cl_program *program,
				      struct ki_cl_made *made,
				      const char *options,
				      struct kiln_blob *value,
				      struct kiln_blob *metadata,
				      int *out_is_refused);

/* A compiled object as a program of the driver's, for a link: NULL if it cannot
   be had. */
cl_program ki_cl_shadow_load(struct ki_cl_shadow *shadow);

/* What the driver links itself for what was linked from an entry: one
   reference, or NULL if it would not. */
struct ki_cl_shadow *ki_cl_twin_new(const struct ki_cl_program *program,
				    const struct ki_cl_shadow *shadow);
/* Have the driver link what was linked from an entry; that answers from now on.
   0, or -1 if it would not. */
int ki_cl_make_twin(struct ki_cl_program *program);

/* Who can answer what an entry cannot, and the shadow that this is (one
   reference, or NULL): objects and libraries must then be the driver's. */
cl_program ki_cl_answerer(struct ki_cl_program *program,
			  struct ki_cl_shadow **out_shadow);

/* The binaries that it was made from, an entry's value: borrowed, as long as
   the shadow; NULL if the driver has to tell.  Always the same answer. */
const struct kiln_blob *ki_cl_shadow_binaries(struct ki_cl_shadow *shadow);

/* Whether a program is asked to tell what only its source can. */
int ki_cl_wants_kernels(const struct ki_cl_recipe *recipe);

/* ---- Capturing (background.c) -------------------------------------------- */

/* The application fetched all binaries itself, into these buffers.  `capture`
   was the program's before it did. */
void ki_cl_capture_fetched(struct ki_cl_program *program,
			   struct ki_cl_capture *capture,
			   unsigned char *const *binaries, size_t n);
/* Fetch in a while, from a thread: for drivers where that is cheap. */
void ki_cl_background_add(struct ki_cl_program *program);
/* A kernel was made: the while begins anew. */
void ki_cl_background_touch(void);
void ki_cl_background_init(void);
/* End the thread; waits at most 50 ms. */
void ki_cl_background_stop(void);
/* In a forked child there is no thread. */
void ki_cl_background_forget(void);

/* ---- Calls that the layer takes over ------------------------------------- */

/* clang-format off */
#define KI_CL_CALLS(X) \
	X(clCreateProgramWithSource) X(clCreateProgramWithBinary) \
	X(clCreateProgramWithBuiltInKernels) X(clCreateProgramWithIL) \
	X(clSetProgramSpecializationConstant) \
	X(clRetainProgram) X(clReleaseProgram) \
	X(clBuildProgram) X(clCompileProgram) X(clLinkProgram) \
	X(clGetProgramInfo) X(clGetProgramBuildInfo) \
	X(clCreateKernel) X(clCreateKernelsInProgram) \
	X(clRetainKernel) X(clReleaseKernel) X(clCloneKernel) \
	X(clGetKernelInfo) X(clGetKernelArgInfo) \
	X(clGetKernelWorkGroupInfo) X(clGetKernelSubGroupInfo) \
	X(clGetKernelSubGroupInfoKHR) \
	X(clGetContextInfo) X(clGetDeviceInfo) \
	X(clGetExtensionFunctionAddress) \
	X(clGetExtensionFunctionAddressForPlatform)
/* clang-format on */

/* ki_clBuildProgram and so on, each of the type in <CL/cl_icd.h>. */
#define KI_CL_DECLARE(name) extern __typeof__(*(cl_api_##name)0) ki_##name;
KI_CL_CALLS(KI_CL_DECLARE)
#undef KI_CL_DECLARE

/* Ours for a name of the list above that the table below us has, or NULL. */
void *ki_cl_own_call(const char *name);

/* Ours for a vendor's function that is given a program, or NULL; `address` is
   the driver's own (vendor.c). */
void *ki_cl_vendor_call(cl_platform_id platform, const char *name,
			void *address);

#endif /* KI_FRONT_OPENCL_LAYER_H */
