/* SPDX-License-Identifier: MIT */

/*
 * What is known of the application's programs and kernels.
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

struct ki_mutex ki_cl_lock = KI_MUTEX_INIT(PROGRAM);
struct ki_cond ki_cl_idle;

#define PLATFORMS_MAX 64
#define DEVICES_MAX   1024
#define AWAIT_NS      ((uint64_t)100 * 1000 * 1000)

/* Under the lock. */
static struct ki_map programs;
static struct ki_map kernels;
static struct ki_list shadows = { &shadows, &shadows };
static struct {
	cl_platform_id platform;
	unsigned bits;
} platforms[PLATFORMS_MAX];
static size_t n_platforms;
static unsigned bits_of_all;

/* ---- Programs ------------------------------------------------------------ */

static void program_free(struct ki_cl_program *program)
{
	ki_cl_capture_unref(program->capture);
	free(program->devices);
	free(program->strings);
	free(program->lengths);
	free(program);
}

/* One block for the pointers and the bytes behind them. */
static int copy_strings(struct ki_cl_program *program, cl_uint count,
			const char *const *strings, const size_t *lengths)
{
	size_t size = count * sizeof(char *);
	char *bytes;
	cl_uint i;

	program->lengths = calloc(count, sizeof(*program->lengths));
	if (!program->lengths)
		return -ENOMEM;
	for (i = 0; i < count; i++) {
		program->lengths[i] =
			lengths && lengths[i] ? lengths[i] : strlen(strings[i]);
		size += program->lengths[i] + 1;
	}
	program->strings = malloc(size);
	if (!program->strings)
		return -ENOMEM;
	bytes = (char *)(program->strings + count);
	for (i = 0; i < count; i++) {
		memcpy(bytes, strings[i], program->lengths[i]);
		bytes[program->lengths[i]] = '\0';
		program->strings[i] = bytes;
		bytes += program->lengths[i] + 1;
	}
	program->n_strings = count;
	return 0;
}

void ki_cl_program_add(cl_program handle, cl_context context, cl_uint count,
		       const char *const *strings, const size_t *lengths)
{
	struct ki_cl_program *program = calloc(1, sizeof(*program));
	struct ki_cl_program *stale;

	if (!program)
		return;
	program->handle = handle;
	program->context = context;
	program->refs = 1;
	program->app_refs = 1;
	program->listed = 1;
	if (copy_strings(program, count, strings, lengths)) {
		program_free(program);
		return;
	}
	ki_mutex_lock(&ki_cl_lock);
	stale = ki_map_get(&programs, (uintptr_t)handle);
	if (ki_map_put(&programs, (uintptr_t)handle, program)) {
		program_free(program);
		stale = NULL;
	} else if (stale) {
		stale->listed = 0;
	}
	ki_mutex_unlock(&ki_cl_lock);
	ki_cl_program_unref(stale);
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

int ki_cl_program_devices(struct ki_cl_program *program)
{
	cl_platform_id platform = NULL;
	cl_device_id *devices = NULL;
	cl_uint n = 0;
	int ours = 0, known;

	ki_mutex_lock(&ki_cl_lock);
	known = program->n_devices != 0;
	ki_mutex_unlock(&ki_cl_lock);
	if (known)
		return 0;
	if (ki_cl_next.clGetProgramInfo(program->handle, CL_PROGRAM_NUM_DEVICES,
					sizeof(n), &n, NULL) ||
	    !n || n > DEVICES_MAX)
		return -1;
	devices = calloc(n, sizeof(*devices));
	if (!devices ||
	    ki_cl_next.clGetProgramInfo(program->handle, CL_PROGRAM_DEVICES,
					n * sizeof(*devices), devices, NULL) ||
	    ki_cl_next.clGetDeviceInfo(devices[0], CL_DEVICE_PLATFORM,
				       sizeof(platform), &platform, NULL)) {
		free(devices);
		return -1;
	}
	ki_mutex_lock(&ki_cl_lock);
	if (!program->n_devices) {
		program->platform = platform;
		program->devices = devices;
		program->n_devices = n;
		ours = 1;
	}
	ki_mutex_unlock(&ki_cl_lock);
	if (!ours)
		free(devices);
	else if (platform_calls_back(platform))
		ask_for_callback(program);
	return 0;
}

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
	if (program->app_refs)
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
	program->is_busy = 0;
	if (program->owes_release) {
		program->owes_release = 0;
		ending.releases = 1;
		end_locked(program, &ending);
	}
	ki_cond_signal_all(&ki_cl_idle);
	ki_mutex_unlock(&ki_cl_lock);
	(void)finish_ending(program, &ending);
}

void ki_cl_program_await(struct ki_cl_program *program)
{
	uint64_t deadline;

	ki_mutex_lock(&ki_cl_lock);
	if (program->is_busy) {
		deadline = ki_sys_posix.monotonic_ns(&ki_sys_posix) + AWAIT_NS;
		while (program->is_busy &&
		       !ki_cond_wait_until(&ki_cl_idle, &ki_cl_lock, deadline))
			;
	}
	ki_mutex_unlock(&ki_cl_lock);
}

/* ---- Shadows ------------------------------------------------------------- */

void ki_cl_shadow_add(struct ki_cl_shadow *shadow)
{
	shadow->refs = 1;
	ki_mutex_lock(&ki_cl_lock);
	ki_list_append(&shadows, &shadow->link);
	ki_mutex_unlock(&ki_cl_lock);
}

void ki_cl_shadow_unref(struct ki_cl_shadow *shadow)
{
	int last;

	if (!shadow)
		return;
	ki_mutex_lock(&ki_cl_lock);
	last = !--shadow->refs;
	if (last)
		ki_list_remove(&shadow->link);
	ki_mutex_unlock(&ki_cl_lock);
	if (!last)
		return;
	(void)ki_cl_next.clReleaseProgram(shadow->program);
	kiln_blob_unref(shadow->metadata);
	kiln_blob_unref(shadow->binaries);
	kiln_key_free(shadow->key);
	free(shadow->options);
	free(shadow->devices);
	free(shadow);
}

struct ki_cl_shadow *ki_cl_shadow_of(struct ki_cl_program *program)
{
	struct ki_cl_shadow *shadow;

	ki_mutex_lock(&ki_cl_lock);
	shadow = program->shadow;
	if (shadow)
		shadow->refs++;
	ki_mutex_unlock(&ki_cl_lock);
	return shadow;
}

void ki_cl_program_shadow(struct ki_cl_program *program,
			  struct ki_cl_shadow *shadow)
{
	struct ki_cl_shadow *before;
	int hold = 0, kept;

	if (shadow) {
		ki_mutex_lock(&ki_cl_lock);
		hold = !program->holds;
		program->holds = 1;
		ki_mutex_unlock(&ki_cl_lock);
		if (hold)
			(void)ki_cl_next.clRetainProgram(program->handle);
	}
	ki_mutex_lock(&ki_cl_lock);
	before = program->shadow;
	/* The application may have let go meanwhile. */
	kept = !shadow || program->app_refs || program->n_shadow_kernels;
	if (kept)
		program->shadow = shadow;
	program->had_kernels = 0;
	ki_mutex_unlock(&ki_cl_lock);
	ki_cl_shadow_unref(kept ? before : shadow);
}

cl_uint ki_cl_shadows_in(cl_context context)
{
	struct ki_list *link;
	cl_uint n = 0;

	ki_mutex_lock(&ki_cl_lock);
	ki_list_for_each (link, &shadows)
		n += ki_container(link, struct ki_cl_shadow, link)->context ==
		     context;
	ki_mutex_unlock(&ki_cl_lock);
	return n;
}

struct ki_cl_program **ki_cl_shadowed(cl_platform_id platform, size_t *out_n)
{
	struct ki_cl_program **found = NULL, *program;
	size_t position = 0, n = 0;

	ki_mutex_lock(&ki_cl_lock);
	if (programs.n_used)
		found = calloc(programs.n_used, sizeof(*found));
	while (found && (program = ki_map_next(&programs, &position))) {
		if (!program->shadow ||
		    (platform && program->platform != platform))
			continue;
		program->refs++;
		found[n++] = program;
	}
	ki_mutex_unlock(&ki_cl_lock);
	*out_n = n;
	return found;
}

/* ---- Builds to capture --------------------------------------------------- */

void ki_cl_capture_unref(struct ki_cl_capture *capture)
{
	int last;

	if (!capture)
		return;
	ki_mutex_lock(&ki_cl_lock);
	last = !--capture->refs;
	ki_mutex_unlock(&ki_cl_lock);
	if (!last)
		return;
	kiln_key_free(capture->key);
	ki_bytes_fini(&capture->environment);
	free(capture->options);
	free(capture->directory);
	free(capture);
}

struct ki_cl_capture *ki_cl_capture_of(struct ki_cl_program *program)
{
	struct ki_cl_capture *capture;

	ki_mutex_lock(&ki_cl_lock);
	capture = program->capture;
	if (capture)
		capture->refs++;
	ki_mutex_unlock(&ki_cl_lock);
	return capture;
}

int ki_cl_is_captured(struct ki_cl_program *program,
		      const struct ki_cl_capture *capture)
{
	int is_captured;

	ki_mutex_lock(&ki_cl_lock);
	is_captured = program->capture == capture;
	ki_mutex_unlock(&ki_cl_lock);
	return is_captured;
}

void ki_cl_program_capture(struct ki_cl_program *program,
			   struct ki_cl_capture *capture)
{
	struct ki_cl_capture *before;

	ki_mutex_lock(&ki_cl_lock);
	before = program->capture;
	program->capture = capture;
	program->had_kernels = 0;
	ki_mutex_unlock(&ki_cl_lock);
	ki_cl_capture_unref(before);
}

void ki_cl_program_captured(struct ki_cl_program *program,
			    struct ki_cl_capture *capture)
{
	int was = 0;

	ki_mutex_lock(&ki_cl_lock);
	if (program->capture == capture) {
		program->capture = NULL;
		was = 1;
	}
	ki_mutex_unlock(&ki_cl_lock);
	if (was)
		ki_cl_capture_unref(capture);
}

/* ---- Kernels ------------------------------------------------------------- */

static void kernel_free(struct ki_cl_kernel *kernel)
{
	free(kernel->name);
	free(kernel);
}

int ki_cl_kernel_add(struct ki_cl_program *program, struct ki_cl_shadow *shadow,
		     cl_kernel handle, const char *name)
{
	struct ki_cl_kernel *kernel = calloc(1, sizeof(*kernel));

	if (!kernel)
		return -ENOMEM;
	kernel->handle = handle;
	kernel->program = program;
	kernel->shadow = shadow;
	kernel->app_refs = 1;
	if (shadow) {
		kernel->name = strdup(name);
		if (!kernel->name)
			goto no_memory;
	}
	ki_mutex_lock(&ki_cl_lock);
	if (ki_map_put(&kernels, (uintptr_t)handle, kernel)) {
		ki_mutex_unlock(&ki_cl_lock);
		goto no_memory;
	}
	program->refs++;
	program->n_kernels++;
	program->had_kernels = 1;
	if (shadow) {
		shadow->refs++;
		program->n_shadow_kernels++;
		program->of_kernels = shadow;
	}
	ki_mutex_unlock(&ki_cl_lock);
	return 0;
no_memory:
	kernel_free(kernel);
	return -ENOMEM;
}

int ki_cl_kernel_of(cl_kernel handle, struct ki_cl_program **out_program,
		    struct ki_cl_shadow **out_shadow, char **out_name)
{
	struct ki_cl_kernel *kernel;
	char *name = NULL;
	int known;

	ki_mutex_lock(&ki_cl_lock);
	kernel = ki_map_get(&kernels, (uintptr_t)handle);
	if (kernel && kernel->shadow)
		name = strdup(kernel->name);
	known = kernel && (name || !kernel->shadow);
	if (known) {
		kernel->program->refs++;
		if (kernel->shadow)
			kernel->shadow->refs++;
		*out_program = kernel->program;
		*out_shadow = kernel->shadow;
		*out_name = name;
	}
	ki_mutex_unlock(&ki_cl_lock);
	return known;
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
	if (kernel->shadow && !--program->n_shadow_kernels)
		program->of_kernels = NULL;
	end_locked(program, &ending);
	ki_mutex_unlock(&ki_cl_lock);

	result = ki_cl_next.clReleaseKernel(handle);
	(void)finish_ending(program, &ending);
	ki_cl_shadow_unref(kernel->shadow);
	ki_cl_program_unref(program);
	kernel_free(kernel);
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
