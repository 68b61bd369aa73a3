/* SPDX-License-Identifier: MIT */

/*
 * S44, for live programs and kernels: every allocation fails in turn, once and
 * for good.  What is handed out is right, every handle is released once, no
 * failure but the runtime's own is kept, and nothing is left behind.  And hits
 * do not allocate at all, nor ask the system for anything.
 */

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/seccomp.h>

#include <kiln/program.h>

#include "fault/fault.h"
#include "harness/harness.h"

#define N_IMAGES  5
#define N_HANDLES 256
#define BINARY	  100

/* A runtime that allocates nothing, so that what fails is ours. */
struct handle {
	int is_program;
	int image; /* -1: free */
};

struct scene {
	struct fault fault;
	struct handle handles[N_HANDLES];
	int devices[2];
	uint32_t flags;
	uint64_t bytes_max;
	int has_kiln;
	int is_over; /* the shortage */
	struct kiln *kiln;
	struct kiln_programs *programs;
	const char *wrong; /* what went wrong, or NULL */
};

static struct handle *handle_new(struct scene *scene, int is_program, int image)
{
	for (size_t i = 0; i < N_HANDLES; i++) {
		if (scene->handles[i].image >= 0)
			continue;
		scene->handles[i] = (struct handle){ is_program, image };
		return &scene->handles[i];
	}
	scene->wrong = "too many handles";
	return &scene->handles[0];
}

static void release(void *context, void *handle)
{
	struct scene *scene = context;
	struct handle *of = handle;

	if (of->image < 0)
		scene->wrong = "a handle is released twice";
	of->image = -1;
}

static enum kiln_build_kind create_from_image(
	void *context, const struct kiln_program_image *image,
	const void *constants, size_t constants_size, void *const *devices,
	size_t n_devices, void **out_program,
	struct kiln_program_failure *out_failure)
{
	*out_program = handle_new(context, 1, *(const int *)image->data);
	return KILN_BUILD_OK;
}

static enum kiln_build_kind create_from_binary(
	void *context, void *const *devices, size_t n_devices,
	const void *const *binaries, const size_t *sizes, void **out_program,
	struct kiln_program_failure *out_failure)
{
	int image;

	memcpy(&image, binaries[0], sizeof(image));
	*out_program = handle_new(context, 1, image);
	return KILN_BUILD_OK;
}

/* The last image cannot be built. */
static enum kiln_build_kind build(void *context, void *program,
				  void *const *devices, size_t n_devices,
				  const char *compile_options,
				  const char *link_options,
				  struct kiln_program_failure *out_failure)
{
	out_failure->code = 7;
	return ((struct handle *)program)->image == N_IMAGES - 1
		       ? KILN_BUILD_FAILED
		       : KILN_BUILD_OK;
}

static enum kiln_build_kind create_kernel(
	void *context, void *program, const char *name, void **out_kernel,
	struct kiln_program_failure *out_failure)
{
	if (!strcmp(name, "none"))
		return KILN_BUILD_FAILED;
	*out_kernel = handle_new(context, 0, ((struct handle *)program)->image);
	return KILN_BUILD_OK;
}

static size_t binary_size(void *context, void *program, void *device)
{
	return BINARY;
}

static int binary(void *context, void *program, void *device, void *data,
		  size_t size)
{
	memset(data, 0, size);
	memcpy(data, &((struct handle *)program)->image, sizeof(int));
	return 1;
}

static char *device_string(void *context, void *device,
			   enum kiln_device_string which)
{
	return strdup(device == ((struct scene *)context)->devices ? "one"
								   : "other");
}

static enum kiln_status programs_new(struct scene *scene)
{
	const struct kiln_program_runtime runtime = {
		.size = sizeof(runtime),
		.context = scene,
		.create_from_image = create_from_image,
		.create_from_binary = create_from_binary,
		.build = build,
		.release_program = release,
		.create_kernel = create_kernel,
		.release_kernel = release,
		.binary_size = binary_size,
		.binary = binary,
		.device_string = device_string,
	};
	struct kiln_programs_options options;

	kiln_programs_options_init(&options);
	options.runtime = &runtime;
	options.kiln = scene->kiln;
	options.bytes_max = scene->bytes_max;
	options.flags = scene->flags;
	options.compile_options_append = "-a";
	return kiln_programs_new(&options, &scene->programs);
}

/* ---- One use of everything ------------------------------------------------- */

static enum kiln_status expect(struct scene *scene, enum kiln_status status,
			       enum kiln_status expected)
{
	if (status != expected && (status != KILN_E_NO_MEMORY ||
				   !scene->fault.n_fired || scene->is_over))
		scene->wrong = "not a status for this";
	return status;
}

static void use_kernel(struct scene *scene, const struct kiln_kernel_key *key,
		       const int *image, enum kiln_status expected)
{
	struct kiln_program_failure failure;
	struct kiln_kernel *kernel;
	enum kiln_status status;

	kiln_program_failure_init(&failure);
	status = expect(
		scene, kiln_kernel_get(scene->programs, key, &kernel, &failure),
		expected);
	kiln_program_failure_fini(&failure);
	if (status)
		return;
	if (((struct handle *)kiln_kernel_handle(kernel))->image != *image)
		scene->wrong = "another image's kernel";
	kiln_kernel_unref(kernel);
}

static void use_image(struct scene *scene, const int *image, size_t n_devices)
{
	void *devices[] = { &scene->devices[0], &scene->devices[1] };
	enum kiln_status expected =
		*image == N_IMAGES - 1 ? KILN_E_BUILD : KILN_OK;
	struct kiln_program_image of;
	struct kiln_program_request request;
	struct kiln_program_key *key;
	struct kiln_kernel_key *kernel_key = NULL, *none = NULL;

	kiln_program_image_init(&of);
	kiln_program_request_init(&request);
	of.data = image;
	of.data_size = sizeof(*image);
	request.image = &of;
	request.devices = devices;
	request.n_devices = n_devices;
	if (expect(scene, kiln_program_key_new(scene->programs, &request, &key),
		   KILN_OK))
		return;
	if (!expect(scene,
		    kiln_kernel_key_new(key, devices[0], "k", &kernel_key),
		    KILN_OK)) {
		use_kernel(scene, kernel_key, image, expected);
		use_kernel(scene, kernel_key, image, expected);
	}
	if (!expect(scene, kiln_kernel_key_new(key, devices[0], "none", &none),
		    KILN_OK))
		use_kernel(scene, none, image, KILN_E_BUILD);
	kiln_kernel_key_free(kernel_key);
	kiln_kernel_key_free(none);
	kiln_program_key_free(key);
}

static void use_all(struct scene *scene)
{
	static const int images[N_IMAGES] = { 0, 1, 2, 3, 4 };
	struct kiln_program_image of;
	struct kiln_kernel *kernel;

	use_image(scene, &images[1], 2);
	for (int i = 0; i < N_IMAGES; i++)
		use_image(scene, &images[i], 1);
	if (!kiln_kernel_find(scene->programs, NULL, 0, &scene->devices[0], "k",
			      &kernel))
		kiln_kernel_unref(kernel);
	kiln_program_image_init(&of);
	of.data = &images[1];
	of.data_size = sizeof(images[1]);
	(void)expect(scene, kiln_programs_forget_image(scene->programs, &of),
		     KILN_OK);
	use_image(scene, &images[1], 1);
}

/* What could not be found would be built again, and kept twice.  One image is
   never built. */
static void expect_each_once(struct scene *scene)
{
	struct kiln_programs_stats stats;

	kiln_programs_stats_init(&stats);
	if (kiln_programs_stats(scene->programs, &stats))
		scene->wrong = "no statistics";
	else if (stats.n_programs > N_IMAGES - 1)
		scene->wrong = "a program is kept twice";
}

/* A cache's life, in a thread that is new to it. */
static void *live(void *arg)
{
	struct scene *scene = arg;

	fault_arm(&scene->fault);
	if (expect(scene, programs_new(scene), KILN_OK)) {
		fault_disarm(&scene->fault);
		return NULL;
	}
	use_all(scene);
	(void)expect(scene, kiln_programs_wipe(scene->programs), KILN_OK);
	use_all(scene);
	fault_disarm(&scene->fault);
	/* The shortage is over: it is as good as ever. */
	scene->is_over = 1;
	use_all(scene);
	expect_each_once(scene);
	kiln_programs_free(scene->programs);
	for (size_t i = 0; i < N_HANDLES; i++)
		if (scene->handles[i].image >= 0)
			scene->wrong = "a handle is not released";
	return NULL;
}

static void run(struct scene *scene)
{
	struct kiln_options options;
	pthread_t thread;

	scene->wrong = NULL;
	scene->is_over = 0;
	scene->kiln = NULL;
	for (size_t i = 0; i < N_HANDLES; i++)
		scene->handles[i].image = -1;
	kiln_options_init(&options);
	if (scene->has_kiln && kiln_open(&options, &scene->kiln))
		abort();
	if (pthread_create(&thread, NULL, live, scene))
		abort();
	pthread_join(thread, NULL);
	kiln_close(scene->kiln);
}

static void every_allocation_of_the_programs_may_fail(void **state)
{
	static const struct {
		uint64_t bytes_max;
		uint32_t flags;
		int has_kiln;
	} rows[] = {
		{ 0, 0, 0 },
		{ 2 * BINARY, KILN_PROGRAMS_COLD_HALF, 0 },
		{ 0, 0, 1 },
		{ 0, KILN_PROGRAMS_NO_MEMORY, 1 },
	};
	static struct scene scene;

	for (size_t r = 0; r < sizeof(rows) / sizeof(*rows); r++) {
		scene.bytes_max = rows[r].bytes_max;
		scene.flags = rows[r].flags;
		scene.has_kiln = rows[r].has_kiln;
		/* What is made once for a thread stays. */
		fault_begin(&scene.fault, 0);
		run(&scene);
		for (fault_begin(&scene.fault, -ENOMEM);
		     fault_next(&scene.fault);) {
			const long n_blocks = fault_n_blocks();
			unsigned n = scene.fault.n;

			run(&scene);
			if (scene.wrong)
				fail_msg("row %zu, call %u (%s): %s", r, n,
					 scene.fault.fired, scene.wrong);
			if (fault_n_blocks() != n_blocks)
				fail_msg("row %zu, call %u (%s): %ld left", r,
					 n, scene.fault.fired,
					 fault_n_blocks() - n_blocks);
		}
	}
}

/* ---- What hits do not do ---------------------------------------------------- */

struct hits {
	struct kiln_programs *programs;
	struct kiln_program_key *key;
	struct kiln_kernel_key *kernel_key;
	void *device;
};

static void hits_begin(struct hits *hits, struct scene *scene,
		       uint64_t bytes_max)
{
	static const int image;
	struct kiln_program_image of;
	struct kiln_program_request request;
	void *device = &scene->devices[0];

	for (size_t i = 0; i < N_HANDLES; i++)
		scene->handles[i].image = -1;
	scene->bytes_max = bytes_max;
	kiln_program_image_init(&of);
	kiln_program_request_init(&request);
	of.data = &image;
	of.data_size = sizeof(image);
	request.image = &of;
	request.devices = &device;
	request.n_devices = 1;
	if (programs_new(scene) ||
	    kiln_program_key_new(scene->programs, &request, &hits->key) ||
	    kiln_kernel_key_new(hits->key, device, "k", &hits->kernel_key))
		abort();
	hits->programs = scene->programs;
	hits->device = device;
}

static int hit_all(const struct hits *hits)
{
	struct kiln_program *program;
	struct kiln_kernel *kernel;

	if (kiln_kernel_get(hits->programs, hits->kernel_key, &kernel, NULL))
		return 0;
	kiln_kernel_unref(kernel);
	if (kiln_program_get(hits->programs, hits->key, &program, NULL))
		return 0;
	kiln_program_unref(program);
	if (kiln_kernel_find(hits->programs, NULL, 0, hits->device, "k",
			     &kernel))
		return 0;
	kiln_kernel_unref(kernel);
	return 1;
}

static void hits_allocate_nothing(void **state)
{
	static struct scene scene;
	struct hits hits;

	hits_begin(&hits, &scene, 1000);
	assert_true(hit_all(&hits));
	fault_begin(&scene.fault, -ENOMEM);
	assert_true(fault_next(&scene.fault));
	fault_arm(&scene.fault);
	for (int i = 0; i < 100; i++)
		if (!hit_all(&hits))
			scene.wrong = "no hit";
	fault_disarm(&scene.fault);
	assert_null(scene.wrong);
	assert_int_equal(scene.fault.n_calls, 0);
	kiln_kernel_key_free(hits.kernel_key);
	kiln_program_key_free(hits.key);
	kiln_programs_free(scene.programs);
}

/* In a process that would be killed for any but to write and to end. */
static int hit_without_a_system(unsigned index, void *arg)
{
	static struct scene scene;
	struct hits hits;
	int is_wrong = 0;

	/* Without a bound: there, the processor's clock is forbidden too. */
	hits_begin(&hits, &scene, 0);
	if (!hit_all(&hits))
		return 1;
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT))
		return 2;
	for (int i = 0; i < 100; i++)
		is_wrong |= !hit_all(&hits);
	return (int)syscall(SYS_exit, is_wrong);
}

static void hits_ask_the_system_for_nothing(void **state)
{
	if (!HARNESS_FORKS_AMONG_THREADS)
		HARNESS_LEAVE_OUT("the sanitizer asks it for things");
	assert_int_equal(harness_processes(1, hit_without_a_system, NULL,
					   HARNESS_HANG_S),
			 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_allocation_of_the_programs_may_fail),
		cmocka_unit_test(hits_allocate_nothing),
		cmocka_unit_test(hits_ask_the_system_for_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
