/* SPDX-License-Identifier: MIT */

/*
 * What is known of the application's programs and kernels, and their lives.
 *
 *	program H ----------- shadow S (of one build that was found)
 *	   ^   ^                 ^
 *	   |   +---- kernel -----+   made from S, known to belong to H
 *	   +-------- kernel          made from H
 *
 * The application's references to H are counted here as well as in the driver.
 * From its first shadow on, H has one more in the driver, ours: kernels of S
 * keep H alive just as its own would, and so its release callbacks come when
 * they would.  That one goes with the application's last or with the last
 * kernel of S, whichever is later, and S goes then too.
 *
 * A program is forgotten when the driver says that it is gone, where drivers
 * can (OpenCL 2.2), else at count 0 plus last kernel; always before the handle
 * could come again.
 */

#include "front/opencl/layer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "front/opencl/capture.h"

struct ki_mutex ki_cl_lock = KI_MUTEX_INIT(PROGRAM);
struct ki_cond ki_cl_idle;

#define PLATFORMS_MAX 64
#define AWAIT_NS      ((uint64_t)100 * 1000 * 1000)
#define AWAIT_LONG_NS ((uint64_t)10 * 1000 * 1000 * 1000)

/* Under the lock. */
static struct ki_map programs;
static struct ki_map kernels;
static struct {
	cl_platform_id platform;
	unsigned bits;
} platforms[PLATFORMS_MAX];
static size_t n_platforms;
static unsigned bits_of_all;
static unsigned n_walks;

/* ---- Programs ------------------------------------------------------------ */

static void program_free(struct ki_cl_program *program)
{
	cl_uint i;

	ki_cl_capture_unref(program->capture);
	ki_cl_made_unref(program->made);
	ki_cl_source_unref(program->source);
	for (i = 0; i < program->n_constants; i++)
		free((void *)(uintptr_t)program->constants[i].value);
	free(program->constants);
	free(program->devices);
	free(program->built);
	free(program);
}

struct ki_cl_program *ki_cl_program_new(cl_context context,
					struct ki_cl_source *source)
{
	struct ki_cl_program *program = calloc(1, sizeof(*program));

	if (!program) {
		ki_cl_source_unref(source);
		return NULL;
	}
	program->context = context;
	program->source = source;
	program->has_source = source != NULL;
	program->refs = 1;
	return program;
}

/* Take it out of the map; the map's reference is then the caller's. */
static int unlist_locked(struct ki_cl_program *program) KI_REQUIRES(&ki_cl_lock)
{
	if (!program->listed)
		return 0;
	program->listed = 0;
	ki_map_remove(&programs, (uintptr_t)program->handle);
	return 1;
}

void ki_cl_program_forget(cl_program handle)
{
	struct ki_cl_program *stale;

	if (!handle)
		return;
	ki_mutex_lock(&ki_cl_lock);
	stale = ki_map_get(&programs, (uintptr_t)handle);
	if (stale)
		(void)unlist_locked(stale);
	ki_mutex_unlock(&ki_cl_lock);
	ki_cl_program_unref(stale);
}

void ki_cl_program_unlist(struct ki_cl_program *program)
{
	int was_listed;

	ki_mutex_lock(&ki_cl_lock);
	was_listed = unlist_locked(program);
	ki_mutex_unlock(&ki_cl_lock);
	if (was_listed)
		ki_cl_program_unref(program);
}

struct ki_cl_program *ki_cl_program_get(cl_program handle)
{
	struct ki_cl_program *program;

	if (!handle)
		return NULL;
	ki_mutex_lock(&ki_cl_lock);
	program = ki_map_get(&programs, (uintptr_t)handle);
	if (program)
		program->refs++;
	ki_mutex_unlock(&ki_cl_lock);
	return program;
}

void ki_cl_program_ref(struct ki_cl_program *program)
{
	ki_mutex_lock(&ki_cl_lock);
	program->refs++;
	ki_mutex_unlock(&ki_cl_lock);
}

void ki_cl_program_unref(struct ki_cl_program *program)
{
	int last;

	if (!program)
		return;
	ki_mutex_lock(&ki_cl_lock);
	last = !--program->refs;
	ki_mutex_unlock(&ki_cl_lock);
	if (last)
		program_free(program);
}

/* The driver says that the program is gone. */
static void CL_CALLBACK forget(cl_program handle, void *arg)
{
	struct ki_cl_program *program = arg;
	int was_listed;

	ki_mutex_lock(&ki_cl_lock);
	was_listed = unlist_locked(program);
	ki_mutex_unlock(&ki_cl_lock);
	if (was_listed)
		ki_cl_program_unref(program);
	ki_cl_program_unref(program); /* the callback's own */
}

static int platform_calls_back(cl_platform_id platform)
{
	char version[1024] = "";
	unsigned major = 0, minor = 0;

	return ki_cl_next.clSetProgramReleaseCallback &&
	       !ki_cl_next.clGetPlatformInfo(platform, CL_PLATFORM_VERSION,
					     sizeof(version) - 1, version,
					     NULL) &&
	       sscanf(version, "OpenCL %u.%u", &major, &minor) == 2 &&
	       (major > 2 || (major == 2 && minor >= 2));
}

/* The driver's word on when the program is gone, if it gives it. */
static void ask_for_callback(struct ki_cl_program *program)
{
	ki_mutex_lock(&ki_cl_lock);
	program->refs++;
	program->dies_by_callback = 1;
	ki_mutex_unlock(&ki_cl_lock);
	if (!ki_cl_next.clSetProgramReleaseCallback(program->handle, forget,
						    program))
		return;
	ki_mutex_lock(&ki_cl_lock);
	program->refs--;
	program->dies_by_callback = 0;
	ki_mutex_unlock(&ki_cl_lock);
}

int ki_cl_program_list(struct ki_cl_program *program, cl_program handle)
{
	struct ki_cl_program *stale = NULL;
	int is_new;

	ki_mutex_lock(&ki_cl_lock);
	is_new = !program->handle;
	if (is_new) {
		stale = ki_map_get(&programs, (uintptr_t)handle);
		is_new = !ki_map_put(&programs, (uintptr_t)handle, program);
	}
	if (is_new) {
		program->handle = handle;
		program->refs++;
		program->app_refs = 1;
		program->listed = 1;
		if (stale)
			stale->listed = 0;
	}
	ki_mutex_unlock(&ki_cl_lock);
	if (!is_new)
		return 0;
	ki_cl_program_unref(stale);
	if (program->is_linked && platform_calls_back(program->platform))
		ask_for_callback(program);
	return 1;
}

void ki_cl_program_add(cl_program handle, cl_context context,
		       struct ki_cl_source *source)
{
	struct ki_cl_program *program = NULL;

	if (source)
		program = ki_cl_program_new(context, source);
	if (program)
		(void)ki_cl_program_list(program, handle);
	else
		ki_cl_program_forget(handle);
	ki_cl_program_unref(program);
}

/* The driver's word on platform and devices, the array from malloc(). */
static int ask_for_devices(cl_program handle, cl_platform_id *out_platform,
			   cl_device_id **out_devices, cl_uint *out_n)
{
	cl_device_id *devices;
	cl_uint n = 0;

	if (ki_cl_next.clGetProgramInfo(handle, CL_PROGRAM_NUM_DEVICES,
					sizeof(n), &n, NULL) ||
	    !n || n > KI_CL_DEVICES_MAX)
		return -1;
	devices = calloc(n, sizeof(*devices));
	if (!devices ||
	    ki_cl_next.clGetProgramInfo(handle, CL_PROGRAM_DEVICES,
					n * sizeof(*devices), devices, NULL) ||
	    ki_cl_next.clGetDeviceInfo(devices[0], CL_DEVICE_PLATFORM,
				       sizeof(*out_platform), out_platform,
				       NULL)) {
		free(devices);
		return -1;
	}
	*out_devices = devices;
	*out_n = n;
	return 0;
}

int ki_cl_program_devices(struct ki_cl_program *program)
{
	cl_platform_id platform = NULL;
	cl_device_id *devices = NULL;
	unsigned char *built;
	cl_uint n = 0;
	int ours = 0, known;

	ki_mutex_lock(&ki_cl_lock);
	known = program->n_devices != 0;
	ki_mutex_unlock(&ki_cl_lock);
	if (known)
		return 0;
	if (ask_for_devices(program->handle, &platform, &devices, &n))
		return -1;
	built = calloc(n, 1);
	if (!built) {
		free(devices);
		return -1;
	}
	ki_mutex_lock(&ki_cl_lock);
	if (!program->n_devices) {
		program->platform = platform;
		program->devices = devices;
		program->built = built;
		program->n_devices = n;
		ours = 1;
	}
	ki_mutex_unlock(&ki_cl_lock);
	if (ours && platform_calls_back(platform))
		ask_for_callback(program);
	if (!ours) {
		free(devices);
		free(built);
	}
	return 0;
}

/* ---- Sources ------------------------------------------------------------- */

/* What the driver gives back. */
static struct ki_cl_source *ask_for_source(cl_program handle)
{
	struct ki_cl_source *source = NULL;
	const char *string;
	char *text = NULL;
	size_t size = 0;

	if (ki_cl_next.clGetProgramInfo(handle, CL_PROGRAM_SOURCE, 0, NULL,
					&size) ||
	    size < 2)
		return NULL;
	text = malloc(size);
	if (text &&
	    !ki_cl_next.clGetProgramInfo(handle, CL_PROGRAM_SOURCE, size, text,
					 NULL) &&
	    memchr(text, 0, size) == text + size - 1) {
		string = text;
		source = ki_cl_source_new(1, &string, NULL);
	}
	free(text);
	return source;
}

/* Whether both are the same to a compiler. */
static int same_text(const struct ki_cl_source *one,
		     const struct ki_cl_source *many)
{
	const char *text = one->strings[0];
	size_t size = one->lengths[0];
	cl_uint i;

	for (i = 0; i < many->n_strings; i++) {
		if (many->lengths[i] > size ||
		    memcmp(text, many->strings[i], many->lengths[i]) != 0)
			return 0;
		text += many->lengths[i];
		size -= many->lengths[i];
	}
	return !size;
}

static struct ki_cl_source *kept_source(struct ki_cl_program *program)
{
	struct ki_cl_source *source;

	ki_mutex_lock(&ki_cl_lock);
	source = ki_cl_source_ref(program->source);
	ki_mutex_unlock(&ki_cl_lock);
	return source;
}

/* Replace what is kept by `with`, if that is `what` still (references are taken
   over). */
static void keep_source(struct ki_cl_program *program,
			const struct ki_cl_source *what,
			struct ki_cl_source *with)
{
	struct ki_cl_source *before = with;

	ki_mutex_lock(&ki_cl_lock);
	if (program->source == what) {
		before = program->source;
		program->source = with;
	}
	ki_mutex_unlock(&ki_cl_lock);
	ki_cl_source_unref(before);
}

struct ki_cl_source *ki_cl_program_source(struct ki_cl_program *program)
{
	struct ki_cl_source *source = kept_source(program);

	if (source || !program->has_source)
		return source;
	source = ask_for_source(program->handle);
	keep_source(program, NULL, ki_cl_source_ref(source));
	return source;
}

void ki_cl_program_lend_source(struct ki_cl_program *program)
{
	struct ki_cl_source *source = kept_source(program), *theirs = NULL;

	if (source && !source->il)
		theirs = ask_for_source(program->handle);
	if (theirs && same_text(theirs, source))
		keep_source(program, source, NULL);
	ki_cl_source_unref(theirs);
	ki_cl_source_unref(source);
}

/* ---- Recipes ------------------------------------------------------------- */

/* Where the constant is or goes, NULL without memory. */
static struct ki_cl_constant *place_locked(struct ki_cl_program *program,
					   cl_uint id) KI_REQUIRES(&ki_cl_lock)
{
	struct ki_cl_constant *grown;
	cl_uint i;

	for (i = 0; i < program->n_constants; i++)
		if (program->constants[i].id == id)
			return &program->constants[i];
	grown = realloc(program->constants,
			(program->n_constants + 1) * sizeof(*grown));
	if (!grown)
		return NULL;
	program->constants = grown;
	grown += program->n_constants++;
	*grown = (struct ki_cl_constant){ .id = id };
	return grown;
}

void ki_cl_program_constant(struct ki_cl_program *program, cl_uint id,
			    size_t size, const void *value)
{
	uint8_t *copy = malloc(size ? size : 1);
	struct ki_cl_constant *place;

	if (copy)
		memcpy(copy, value, size);
	ki_mutex_lock(&ki_cl_lock);
	place = place_locked(program, id);
	if (place && copy) {
		const uint8_t *before = place->value;

		place->value = copy;
		place->size = size;
		copy = (uint8_t *)(uintptr_t)before;
	} else {
		program->native = 1; /* nobody knows any more */
	}
	ki_mutex_unlock(&ki_cl_lock);
	free(copy);
}

void ki_cl_program_begin_set(struct ki_cl_program *program)
{
	ki_mutex_lock(&ki_cl_lock);
	while (program->is_busy == KI_CL_CLAIMED && !ki_cl_is_child())
		ki_cond_wait(&ki_cl_idle, &ki_cl_lock);
	program->n_setting++;
	program->n_sets++;
	ki_mutex_unlock(&ki_cl_lock);
}

void ki_cl_program_end_set(struct ki_cl_program *program)
{
	ki_mutex_lock(&ki_cl_lock);
	program->n_setting--;
	ki_cond_signal_all(&ki_cl_idle);
	ki_mutex_unlock(&ki_cl_lock);
}

unsigned ki_cl_program_sets(struct ki_cl_program *program)
{
	unsigned n;

	ki_mutex_lock(&ki_cl_lock);
	n = program->n_sets;
	ki_mutex_unlock(&ki_cl_lock);
	return n;
}

static int has_constant(const struct ki_cl_recipe *recipe,
			const struct ki_cl_constant *constant)
{
	cl_uint i;

	for (i = 0; i < recipe->n_constants; i++)
		if (recipe->constants[i].id == constant->id)
			return recipe->constants[i].size == constant->size &&
			       !memcmp(recipe->constants[i].value,
				       constant->value, constant->size);
	return 0;
}

int ki_cl_program_is_set_as(struct ki_cl_program *program,
			    const struct ki_cl_recipe *recipe)
{
	cl_uint i;
	int same;

	ki_mutex_lock(&ki_cl_lock);
	same = !program->n_setting &&
	       program->n_constants == recipe->n_constants;
	for (i = 0; i < program->n_constants && same; i++)
		same = has_constant(recipe, &program->constants[i]);
	ki_mutex_unlock(&ki_cl_lock);
	return same;
}

const struct ki_cl_recipe *ki_cl_program_recipe(
	struct ki_cl_program *program, enum ki_cl_recipe_kind kind,
	const struct ki_cl_header *headers, cl_uint n_headers,
	const char *options)
{
	struct ki_cl_source *source = ki_cl_program_source(program);
	const struct ki_cl_recipe *recipe;

	if (!source)
		return NULL;
	/* Constants are few; under the lock they stay as they are. */
	ki_mutex_lock(&ki_cl_lock);
	recipe = kind == KI_CL_COMPILE
			 ? ki_cl_recipe_compile(source, program->constants,
						program->n_constants, headers,
						n_headers, options)
			 : ki_cl_recipe_build(source, program->constants,
					      program->n_constants, options);
	ki_mutex_unlock(&ki_cl_lock);
	ki_cl_source_unref(source);
	return recipe;
}

/* ---- The application's references ---------------------------------------- */

cl_int ki_cl_program_retain(struct ki_cl_program *program)
{
	cl_int result = ki_cl_next.clRetainProgram(program->handle);

	if (!result) {
		ki_mutex_lock(&ki_cl_lock);
		program->app_refs++;
		ki_mutex_unlock(&ki_cl_lock);
	}
	return result;
}

/* What must follow, outside the lock, when a reference or a kernel went. */
struct ending {
	int releases;		     /* of H, in the driver */
	int unlisted;		     /* the map's reference is ours */
	struct ki_cl_shadow *shadow; /* the program's reference is ours */
};

/* Called whenever something that kept the program alive has gone. */
static void end_locked(struct ki_cl_program *program, struct ending *ending)
	KI_REQUIRES(&ki_cl_lock)
{
	if (program->app_refs || program->is_busy)
		return;
	if (!program->n_shadow_kernels) {
		ending->shadow = program->shadow;
		program->shadow = NULL;
		if (program->holds) {
			program->holds = 0;
			ending->releases++;
		}
	}
	if (!program->n_kernels && !program->dies_by_callback)
		ending->unlisted = unlist_locked(program);
}

static cl_int finish_ending(struct ki_cl_program *program,
			    struct ending *ending)
{
	cl_int result = CL_SUCCESS;

	while (ending->releases--) {
		cl_int err = ki_cl_next.clReleaseProgram(program->handle);

		result = result ? result : err;
	}
	ki_cl_shadow_unref(ending->shadow);
	if (ending->unlisted)
		ki_cl_program_unref(program);
	return result;
}

cl_int ki_cl_program_release(struct ki_cl_program *program)
{
	struct ending ending = { 0 };

	ki_mutex_lock(&ki_cl_lock);
	if (!program->app_refs) {
		ki_mutex_unlock(&ki_cl_lock);
		return CL_INVALID_PROGRAM;
	}
	if (!--program->app_refs && program->is_busy) {
		program->owes_release = 1;
	} else {
		ending.releases = 1;
		end_locked(program, &ending);
	}
	ki_mutex_unlock(&ki_cl_lock);
	return finish_ending(program, &ending);
}

void ki_cl_program_rest(struct ki_cl_program *program)
{
	struct ending ending = { 0 };

	ki_mutex_lock(&ki_cl_lock);
	program->is_busy = KI_CL_IDLE;
	ending.releases = program->owes_release;
	program->owes_release = 0;
	end_locked(program, &ending);
	ki_cond_signal_all(&ki_cl_idle);
	ki_mutex_unlock(&ki_cl_lock);
	(void)finish_ending(program, &ending);
}

/* Wait until nobody is at work or sets a constant, but for a fetch no longer
   than that, and not for threads that a forked child does not have: 0, or -1 if
   somebody still is. */
static int await_locked(struct ki_cl_program *program, uint64_t fetch_ns)
	KI_REQUIRES(&ki_cl_lock)
{
	uint64_t deadline = 0;

	while ((program->is_busy || program->n_setting) && !ki_cl_is_child()) {
		if (program->is_busy != KI_CL_FETCHED) {
			ki_cond_wait(&ki_cl_idle, &ki_cl_lock);
			continue;
		}
		if (!deadline)
			deadline = ki_sys_posix.monotonic_ns(&ki_sys_posix) +
				   fetch_ns;
		if (ki_cond_wait_until(&ki_cl_idle, &ki_cl_lock, deadline))
			break;
	}
	return program->is_busy ? -1 : 0;
}

void ki_cl_program_await(struct ki_cl_program *program)
{
	ki_mutex_lock(&ki_cl_lock);
	(void)await_locked(program, AWAIT_LONG_NS);
	ki_mutex_unlock(&ki_cl_lock);
}

void ki_cl_program_enter(struct ki_cl_program *program)
{
	ki_mutex_lock(&ki_cl_lock);
	(void)await_locked(program, AWAIT_NS);
	program->refs++;
	program->n_runs++;
	ki_mutex_unlock(&ki_cl_lock);
}

void ki_cl_program_stay_native(struct ki_cl_program *program)
{
	ki_mutex_lock(&ki_cl_lock);
	program->native = 1;
	ki_mutex_unlock(&ki_cl_lock);
}

void ki_cl_program_is_used(struct ki_cl_program *program)
{
	ki_mutex_lock(&ki_cl_lock);
	program->had_kernels = 1;
	ki_mutex_unlock(&ki_cl_lock);
}

int ki_cl_program_claim(struct ki_cl_program *program)
{
	int err;

	ki_mutex_lock(&ki_cl_lock);
	err = await_locked(program, AWAIT_NS) || program->n_runs ? -1 : 0;
	if (!err)
		program->is_busy = KI_CL_CLAIMED;
	ki_mutex_unlock(&ki_cl_lock);
	return err;
}

unsigned ki_cl_walk_begin(void)
{
	unsigned walk;

	ki_mutex_lock(&ki_cl_lock);
	walk = ++n_walks;
	ki_mutex_unlock(&ki_cl_lock);
	return walk;
}

struct ki_cl_program *ki_cl_walk_shadowed(cl_platform_id platform,
					  unsigned walk)
{
	struct ki_cl_program *program;
	size_t position = 0;

	ki_mutex_lock(&ki_cl_lock);
	while ((program = ki_map_next(&programs, &position)))
		if (program->shadow && program->walk != walk &&
		    (!platform || program->platform == platform))
			break;
	if (program) {
		program->walk = walk;
		program->refs++;
	}
	ki_mutex_unlock(&ki_cl_lock);
	return program;
}

/* ---- Kernels ------------------------------------------------------------- */

int ki_cl_kernel_add(struct ki_cl_program *program, struct ki_cl_shadow *shadow,
		     cl_kernel handle)
{
	struct ki_cl_kernel *kernel = calloc(1, sizeof(*kernel));
	struct ki_cl_shadow *before = NULL;

	if (!kernel)
		return -ENOMEM;
	kernel->handle = handle;
	kernel->program = program;
	kernel->shadow = shadow;
	kernel->app_refs = 1;
	ki_mutex_lock(&ki_cl_lock);
	if (ki_map_put(&kernels, (uintptr_t)handle, kernel)) {
		ki_mutex_unlock(&ki_cl_lock);
		free(kernel);
		return -ENOMEM;
	}
	program->refs++;
	program->n_kernels++;
	program->had_kernels = 1;
	if (shadow) {
		shadow->refs++;
		program->n_shadow_kernels++;
		/* A thread that was late may add one of an earlier shadow. */
		before = program->of_kernels;
		shadow->refs++;
		program->of_kernels = shadow;
	}
	ki_mutex_unlock(&ki_cl_lock);
	ki_cl_shadow_unref(before);
	return 0;
}

int ki_cl_kernel_of(cl_kernel handle, struct ki_cl_program **out_program,
		    struct ki_cl_shadow **out_shadow)
{
	struct ki_cl_kernel *kernel;

	ki_mutex_lock(&ki_cl_lock);
	kernel = ki_map_get(&kernels, (uintptr_t)handle);
	if (kernel) {
		kernel->program->refs++;
		if (kernel->shadow)
			kernel->shadow->refs++;
		*out_program = kernel->program;
		*out_shadow = kernel->shadow;
	}
	ki_mutex_unlock(&ki_cl_lock);
	return kernel != NULL;
}

cl_int ki_cl_kernel_retain(cl_kernel handle)
{
	cl_int result = ki_cl_next.clRetainKernel(handle);
	struct ki_cl_kernel *kernel;

	if (result)
		return result;
	ki_mutex_lock(&ki_cl_lock);
	kernel = ki_map_get(&kernels, (uintptr_t)handle);
	if (kernel)
		kernel->app_refs++;
	ki_mutex_unlock(&ki_cl_lock);
	return result;
}

cl_int ki_cl_kernel_release(cl_kernel handle)
{
	struct ending ending = { 0 };
	struct ki_cl_shadow *of_kernels = NULL;
	struct ki_cl_program *program;
	struct ki_cl_kernel *kernel;
	cl_int result;

	ki_mutex_lock(&ki_cl_lock);
	kernel = ki_map_get(&kernels, (uintptr_t)handle);
	if (!kernel || --kernel->app_refs) {
		ki_mutex_unlock(&ki_cl_lock);
		return ki_cl_next.clReleaseKernel(handle);
	}
	ki_map_remove(&kernels, (uintptr_t)handle);
	program = kernel->program;
	program->n_kernels--;
	if (kernel->shadow && !--program->n_shadow_kernels) {
		of_kernels = program->of_kernels;
		program->of_kernels = NULL;
	}
	end_locked(program, &ending);
	ki_mutex_unlock(&ki_cl_lock);

	result = ki_cl_next.clReleaseKernel(handle);
	(void)finish_ending(program, &ending);
	ki_cl_shadow_unref(of_kernels);
	ki_cl_shadow_unref(kernel->shadow);
	ki_cl_program_unref(program);
	free(kernel);
	return result;
}

/* ---- Platforms ----------------------------------------------------------- */

unsigned ki_cl_platform_bits(cl_platform_id platform)
{
	unsigned bits;
	size_t i;

	ki_mutex_lock(&ki_cl_lock);
	bits = bits_of_all;
	for (i = 0; i < n_platforms; i++)
		if (platforms[i].platform == platform)
			bits |= platforms[i].bits;
	ki_mutex_unlock(&ki_cl_lock);
	return bits;
}

void ki_cl_platform_set(cl_platform_id platform, unsigned bits)
{
	size_t i;

	ki_mutex_lock(&ki_cl_lock);
	for (i = 0; i < n_platforms; i++)
		if (platforms[i].platform == platform)
			break;
	if (!platform || i == PLATFORMS_MAX) {
		bits_of_all |= bits;
	} else {
		if (i == n_platforms)
			platforms[n_platforms++].platform = platform;
		platforms[i].bits |= bits;
	}
	ki_mutex_unlock(&ki_cl_lock);
}
