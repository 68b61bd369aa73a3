/* SPDX-License-Identifier: MIT */
#ifndef KI_PROGRAM_RUNTIME_TEST_H
#define KI_PROGRAM_RUNTIME_TEST_H

/*
 * A small runtime for the tests of this module.  It compiles: what it makes of
 * an image depends on its bytes, the constants, the options and the device, and
 * can be computed by who wants to check it.  It counts what lives, notices what
 * is released twice or used afterwards, and fails as planned.
 *
 * While `probe` is set, every function of its own asks that cache for its
 * statistics: if a lock were held around it, that would never come back.
 */

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kiln/program.h>

#include "base/bytes.h"
#include "base/hash.h"

#define RT_DEVICES_MAX 64
#define RT_MAGIC       UINT64_C(0x6b696c6e70726f67)

enum rt_call { RT_CREATE, RT_BUILD, RT_BINARY, RT_KERNEL, RT_N_CALLS };

/* The n-th call of a kind (from 0) and so many after it fail. */
struct rt_plan {
	enum rt_call call;
	unsigned first;
	unsigned n;
	enum kiln_build_kind kind;
};

struct rt_device {
	char names[KILN_N_DEVICE_STRINGS][32];
	int is_silent; /* has no strings */
};

struct rt {
	struct kiln_program_runtime table;
	struct rt_device devices[RT_DEVICES_MAX];
	struct rt_plan plan;
	struct kiln_programs *probe;
	size_t pad; /* every binary is at least so long */
	int has_no_binary;
	unsigned n_sizes; /* asked for */
	int refuses;	  /* every binary */
	void (*in_build)(struct rt *rt, void *arg);
	void *in_build_arg;
	_Atomic unsigned calls[RT_N_CALLS];
	_Atomic int live_programs;
	_Atomic int live_kernels;
	_Atomic unsigned faults; /* misuse */
};

struct rt_program {
	uint64_t magic;
	_Atomic unsigned n_retained;
	struct rt *rt;
	uint8_t *image;
	size_t image_size;
	uint8_t *constants;
	size_t constants_size;
	size_t n_devices;
	void *devices[RT_DEVICES_MAX];
	uint8_t *binaries[RT_DEVICES_MAX];
	size_t sizes[RT_DEVICES_MAX];
	int is_from_binary;
	int is_built;
};

struct rt_kernel {
	uint64_t magic;
	_Atomic unsigned n_retained;
	struct rt_program *program;
	char name[64];
};

static inline void rt_probe(struct rt *rt)
{
	struct kiln_programs_stats stats;

	if (!rt->probe)
		return;
	kiln_programs_stats_init(&stats);
	if (kiln_programs_stats(rt->probe, &stats))
		atomic_fetch_add(&rt->faults, 1);
}

static inline enum kiln_build_kind rt_count(
	struct rt *rt, enum rt_call call, struct kiln_program_failure *failure)
{
	unsigned n = atomic_fetch_add(&rt->calls[call], 1);
	char words[64];

	rt_probe(rt);
	if (rt->plan.call != call || n < rt->plan.first ||
	    n - rt->plan.first >= rt->plan.n)
		return KILN_BUILD_OK;
	snprintf(words, sizeof(words), "planned, call %u", n);
	failure->code = -(int)rt->plan.kind - 10;
	failure->message = strdup(words);
	return rt->plan.kind;
}

static inline uint8_t *rt_copy(const void *data, size_t size)
{
	uint8_t *copied = malloc(size + 1);

	if (!copied)
		abort();
	if (size)
		memcpy(copied, data, size);
	return copied;
}

static inline struct rt_program *rt_new_program(struct rt *rt,
						void *const *devices,
						size_t n_devices)
{
	struct rt_program *program = calloc(1, sizeof(*program));

	if (!program || n_devices > RT_DEVICES_MAX)
		abort();
	program->magic = RT_MAGIC;
	program->rt = rt;
	program->n_devices = n_devices;
	memcpy(program->devices, devices, n_devices * sizeof(*devices));
	atomic_fetch_add(&rt->live_programs, 1);
	return program;
}

static inline enum kiln_build_kind rt_create_from_image(
	void *context, const struct kiln_program_image *image,
	const void *constants, size_t constants_size, void *const *devices,
	size_t n_devices, void **out_program,
	struct kiln_program_failure *failure)
{
	struct rt *rt = context;
	enum kiln_build_kind kind = rt_count(rt, RT_CREATE, failure);
	struct rt_program *program;

	if (kind)
		return kind;
	program = rt_new_program(rt, devices, n_devices);
	program->image = rt_copy(image->data, image->data_size);
	program->image_size = image->data_size;
	program->constants = rt_copy(constants, constants_size);
	program->constants_size = constants_size;
	*out_program = program;
	return KILN_BUILD_OK;
}

static inline enum kiln_build_kind rt_create_from_binary(
	void *context, void *const *devices, size_t n_devices,
	const void *const *binaries, const size_t *sizes, void **out_program,
	struct kiln_program_failure *failure)
{
	struct rt *rt = context;
	enum kiln_build_kind kind = rt_count(rt, RT_BINARY, failure);
	struct rt_program *program;

	if (!kind && rt->refuses)
		kind = KILN_BUILD_FAILED;
	for (size_t i = 0; i < n_devices && !kind; i++)
		if (sizes[i] < 8 || memcmp(binaries[i], "BINARY: ", 8))
			kind = KILN_BUILD_FAILED;
	if (kind)
		return kind;
	program = rt_new_program(rt, devices, n_devices);
	program->is_from_binary = 1;
	for (size_t i = 0; i < n_devices; i++) {
		program->binaries[i] = rt_copy(binaries[i], sizes[i]);
		program->sizes[i] = sizes[i];
	}
	*out_program = program;
	return KILN_BUILD_OK;
}

/* The code for a device: free() it. */
static inline uint8_t *rt_compile(const struct rt *rt, const void *image,
				  size_t image_size, const void *constants,
				  size_t constants_size, const char *compile,
				  const char *link, void *device,
				  size_t *out_size)
{
	const struct rt_device *of = device;
	const struct ki_piece pieces[] = {
		{ constants, constants_size },
		{ compile, strlen(compile) + 1 },
		{ link, strlen(link) + 1 },
		{ of->names, sizeof(of->names) },
	};
	uint64_t word = ki_xxh3_64_pieces(pieces, 4);
	struct ki_bytes bytes;

	ki_bytes_init(&bytes);
	ki_bytes_add(&bytes, "BINARY: ", 8);
	ki_bytes_add_u64(&bytes, word);
	for (size_t i = 0; i < image_size; i++)
		ki_bytes_add_u8(&bytes, (uint8_t)(((const uint8_t *)image)[i] ^
						  (word >> i % 8 * 8)));
	while (bytes.size < rt->pad)
		ki_bytes_add_u8(&bytes, 0);
	return ki_bytes_take(&bytes, out_size);
}

static inline enum kiln_build_kind rt_build(
	void *context, void *handle, void *const *devices, size_t n_devices,
	const char *compile, const char *link,
	struct kiln_program_failure *failure)
{
	struct rt *rt = context;
	struct rt_program *program = handle;
	enum kiln_build_kind kind = KILN_BUILD_OK;

	if (program->is_from_binary) {
		program->is_built = 1;
		return KILN_BUILD_OK;
	}
	kind = rt_count(rt, RT_BUILD, failure);
	if (rt->in_build)
		rt->in_build(rt, rt->in_build_arg);
	if (kind)
		return kind;
	for (size_t i = 0; i < n_devices; i++)
		program->binaries[i] = rt_compile(
			rt, program->image, program->image_size,
			program->constants, program->constants_size, compile,
			link, devices[i], &program->sizes[i]);
	program->is_built = 1;
	return KILN_BUILD_OK;
}

/* Whether a release was of one of these. */
static inline int rt_give_back(_Atomic unsigned *n_retained)
{
	unsigned n = atomic_load(n_retained);

	while (n && !atomic_compare_exchange_weak(n_retained, &n, n - 1))
		;
	return n != 0;
}

static inline void rt_retain_program(void *context, void *handle)
{
	struct rt_program *program = handle;

	rt_probe(context);
	atomic_fetch_add(&program->n_retained, 1);
}

static inline void rt_release_program(void *context, void *handle)
{
	struct rt *rt = context;
	struct rt_program *program = handle;

	rt_probe(rt);
	if (program->magic != RT_MAGIC) {
		atomic_fetch_add(&rt->faults, 1);
		return;
	}
	if (rt_give_back(&program->n_retained))
		return;
	program->magic = 0;
	for (size_t i = 0; i < program->n_devices; i++)
		free(program->binaries[i]);
	free(program->image);
	free(program->constants);
	free(program);
	atomic_fetch_sub(&rt->live_programs, 1);
}

static inline enum kiln_build_kind rt_create_kernel(
	void *context, void *handle, const char *name, void **out_kernel,
	struct kiln_program_failure *failure)
{
	struct rt *rt = context;
	struct rt_program *program = handle;
	enum kiln_build_kind kind = rt_count(rt, RT_KERNEL, failure);
	struct rt_kernel *kernel;

	if (program->magic != RT_MAGIC || !program->is_built)
		atomic_fetch_add(&rt->faults, 1);
	if (!kind && !strcmp(name, "none such")) {
		failure->code = -46;
		failure->message = strdup("no such kernel");
		return KILN_BUILD_FAILED;
	}
	if (kind)
		return kind;
	kernel = calloc(1, sizeof(*kernel));
	if (!kernel)
		abort();
	kernel->magic = RT_MAGIC;
	kernel->program = program;
	snprintf(kernel->name, sizeof(kernel->name), "%s", name);
	atomic_fetch_add(&rt->live_kernels, 1);
	*out_kernel = kernel;
	return KILN_BUILD_OK;
}

static inline void rt_retain_kernel(void *context, void *handle)
{
	struct rt_kernel *kernel = handle;

	rt_probe(context);
	atomic_fetch_add(&kernel->n_retained, 1);
}

static inline void rt_release_kernel(void *context, void *handle)
{
	struct rt *rt = context;
	struct rt_kernel *kernel = handle;

	rt_probe(rt);
	/* A kernel never outlives its program. */
	if (kernel->magic != RT_MAGIC || kernel->program->magic != RT_MAGIC) {
		atomic_fetch_add(&rt->faults, 1);
		return;
	}
	if (rt_give_back(&kernel->n_retained))
		return;
	kernel->magic = 0;
	free(kernel);
	atomic_fetch_sub(&rt->live_kernels, 1);
}

static inline size_t rt_find_device(const struct rt_program *program,
				    void *device)
{
	size_t i = 0;

	while (i < program->n_devices && program->devices[i] != device)
		i++;
	return i;
}

static inline size_t rt_binary_size(void *context, void *handle, void *device)
{
	struct rt *rt = context;
	struct rt_program *program = handle;
	size_t i = rt_find_device(program, device);

	rt_probe(rt);
	if (i == program->n_devices) {
		atomic_fetch_add(&rt->faults, 1);
		return 0;
	}
	return rt->has_no_binary ? 0 : program->sizes[i];
}

static inline int rt_binary(void *context, void *handle, void *device,
			    void *data, size_t size)
{
	struct rt *rt = context;
	struct rt_program *program = handle;
	size_t i = rt_find_device(program, device);

	rt_probe(rt);
	if (i == program->n_devices || size != program->sizes[i]) {
		atomic_fetch_add(&rt->faults, 1);
		return 0;
	}
	memcpy(data, program->binaries[i], size);
	return 1;
}

static inline char *rt_device_string(void *context, void *device,
				     enum kiln_device_string which)
{
	const struct rt_device *of = device;

	rt_probe(context);
	return of->is_silent ? NULL : strdup(of->names[which]);
}

/* Devices of one platform, each another one. */
static inline void rt_init(struct rt *rt)
{
	*rt = (struct rt){
		.table = {
			.size = sizeof(rt->table),
			.context = rt,
			.create_from_image = rt_create_from_image,
			.create_from_binary = rt_create_from_binary,
			.build = rt_build,
			.retain_program = rt_retain_program,
			.release_program = rt_release_program,
			.create_kernel = rt_create_kernel,
			.retain_kernel = rt_retain_kernel,
			.release_kernel = rt_release_kernel,
			.binary_size = rt_binary_size,
			.binary = rt_binary,
			.device_string = rt_device_string,
		},
	};
	for (unsigned i = 0; i < RT_DEVICES_MAX; i++) {
		struct rt_device *device = &rt->devices[i];

		strcpy(device->names[KILN_DEVICE_PLATFORM_NAME], "small");
		snprintf(device->names[KILN_DEVICE_NAME],
			 sizeof(device->names[0]), "device %u", i);
		strcpy(device->names[KILN_DEVICE_VERSION], "1.0");
		strcpy(device->names[KILN_DEVICE_DRIVER_VERSION], "7.1");
	}
}

/* ---- What tests ask for ---------------------------------------------------- */

/* A request with room for what it points to. */
struct ask {
	struct kiln_program_image image;
	struct kiln_program_request request;
	char text[64];
	void *devices[RT_DEVICES_MAX];
};

/* For an image of some bytes by number, and a device. */
static inline void ask_init(struct ask *ask, struct rt *rt, unsigned image,
			    unsigned device)
{
	memset(ask, 0, sizeof(*ask));
	kiln_program_image_init(&ask->image);
	kiln_program_request_init(&ask->request);
	snprintf(ask->text, sizeof(ask->text), "image %u", image);
	ask->image.data = ask->text;
	ask->image.data_size = strlen(ask->text);
	ask->request.image = &ask->image;
	ask->devices[0] = &rt->devices[device];
	ask->request.devices = ask->devices;
	ask->request.n_devices = 1;
}

static inline struct kiln_program_key *ask_key(struct kiln_programs *programs,
					       const struct ask *ask)
{
	struct kiln_program_key *key;

	if (kiln_program_key_new(programs, &ask->request, &key))
		abort();
	return key;
}

static inline struct kiln_kernel_key *ask_kernel(
	const struct kiln_program_key *program_key, void *device,
	const char *name)
{
	struct kiln_kernel_key *key;

	if (kiln_kernel_key_new(program_key, device, name, &key))
		abort();
	return key;
}

/* Whether a program is what should come of the request, for its first
   device. */
static inline int ask_is_right(const struct rt *rt, const struct ask *ask,
			       const struct kiln_program *program,
			       const char *compile, const char *link)
{
	const struct rt_program *made = kiln_program_handle(program);
	size_t i = rt_find_device(made, ask->devices[0]), size;
	uint8_t *right =
		rt_compile(rt, ask->image.data, ask->image.data_size,
			   ask->request.constants, ask->request.constants_size,
			   compile, link, ask->devices[0], &size);
	int is_right = made->magic == RT_MAGIC && made->is_built &&
		       i < made->n_devices && made->sizes[i] == size &&
		       !memcmp(made->binaries[i], right, size);

	free(right);
	return is_right;
}

static inline struct kiln_programs *rt_programs(
	struct rt *rt, struct kiln_programs_options options)
{
	struct kiln_programs *programs;

	options.runtime = &rt->table;
	if (kiln_programs_new(&options, &programs))
		abort();
	rt->probe = programs;
	return programs;
}

static inline struct kiln_programs_options rt_options(void)
{
	struct kiln_programs_options options;

	kiln_programs_options_init(&options);
	return options;
}

static inline void rt_free(struct rt *rt, struct kiln_programs *programs)
{
	rt->probe = NULL;
	kiln_programs_free(programs);
}

static inline struct kiln_programs_stats rt_stats(
	struct kiln_programs *programs)
{
	struct kiln_programs_stats stats;

	kiln_programs_stats_init(&stats);
	if (kiln_programs_stats(programs, &stats))
		abort();
	return stats;
}

/* Everything released, each once. */
static inline int rt_is_clean(struct rt *rt)
{
	return !atomic_load(&rt->live_programs) &&
	       !atomic_load(&rt->live_kernels) && !atomic_load(&rt->faults);
}

static inline unsigned rt_calls(struct rt *rt, enum rt_call call)
{
	return atomic_load(&rt->calls[call]);
}

/* Get and let go of a program: what came of it. */
static inline enum kiln_status rt_get(struct kiln_programs *programs,
				      const struct ask *ask)
{
	struct kiln_program_key *key = ask_key(programs, ask);
	struct kiln_program *program;
	enum kiln_status status =
		kiln_program_get(programs, key, &program, NULL);

	if (!status)
		kiln_program_unref(program);
	kiln_program_key_free(key);
	return status;
}

#endif /* KI_PROGRAM_RUNTIME_TEST_H */
