/* SPDX-License-Identifier: MIT */

/*
 * Random calls from several threads, by a seed, and what each answers.
 *
 *	random-calls SEED STEPS THREADS [ONLY [STEP,STEP,...]]
 *
 * Run natively, cold and warm it must print the same.  A run of fewer steps
 * does the same but less of it; ONLY is the one thread that does anything, of
 * which nothing but these steps if there is a list.  What threads share at the end is asked only what must hold in any order.  It
 * writes its headers to inc/ in the working directory.
 */

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "random.h"

#define THREADS_MAX 8
#define STORMED	    3

struct everything all;

/* ---- Dice ----------------------------------------------------------------- */

/* Of its own for each step, so that others can be left out. */
static void begin_step(struct thread *thread, unsigned number)
{
	thread->step = number;
	thread->dice = (all.seed * 1000 + thread->index) * 100000 + number;
}

unsigned roll(struct thread *thread, unsigned n)
{
	uint64_t x = thread->dice += 0x9e3779b97f4a7c15u;

	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return (unsigned)((x ^ (x >> 31)) % n);
}

cl_uint references_of(cl_program program)
{
	cl_uint n = 0;

	(void)clGetProgramInfo(program, CL_PROGRAM_REFERENCE_COUNT, sizeof(n),
			       &n, NULL);
	return n;
}

/* ---- Worlds --------------------------------------------------------------- */

static void CL_CALLBACK on_context_error(const char *words, const void *data,
					 size_t size, void *arg)
{
}

static void CL_CALLBACK on_context_gone(cl_context context, void *arg)
{
	__atomic_add_fetch((int *)arg, 1, __ATOMIC_SEQ_CST);
}

/* Queues and buffers in a context. */
static void world_fill(struct world *world, cl_context context)
{
	int in[N_ITEMS] = { 3, 1, 4, 1, 5, 9, 2, 6 };
	cl_uint i;

	world->context = context;
	world->n_devices = all.n_devices;
	memcpy(world->devices, all.devices, sizeof(all.devices));
	for (i = 0; i < world->n_devices; i++)
		world->queues[i] = clCreateCommandQueue(
			context, world->devices[i], 0, NULL);
	world->in = clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, sizeof(in),
				   in, NULL);
	world->out = clCreateBuffer(context, 0, sizeof(in), NULL, NULL);
}

static void world_empty(struct world *world)
{
	cl_uint i;

	clReleaseMemObject(world->in);
	clReleaseMemObject(world->out);
	for (i = 0; i < world->n_devices; i++)
		clReleaseCommandQueue(world->queues[i]);
	world->context = NULL;
}

static void world_open(struct thread *thread)
{
	struct world *world = &thread->own;
	cl_int result = 1;
	cl_context context;

	memset(world, 0, sizeof(*world));
	context = clCreateContext(NULL, all.n_devices, all.devices,
				  on_context_error, NULL, &result);
	say(thread, "context", result);
	if (all.version >= 30)
		say(thread, "on context release",
		    clSetContextDestructorCallback(context, on_context_gone,
						   &world->n_gone));
	world_fill(world, context);
}

static void world_release(struct thread *thread)
{
	struct world *world = &thread->own;

	if (world->is_released)
		return;
	say(thread, "release context", clReleaseContext(world->context));
	world->is_released = 1;
}

/* What is left of a context that was released before. */
static void world_close(struct thread *thread)
{
	struct world *world = &thread->own;
	int n = 0, i;

	world_empty(world);
	if (all.version < 30)
		return;
	for (i = 0; i < 2000; i++) {
		n = __atomic_load_n(&world->n_gone, __ATOMIC_SEQ_CST);
		if (n)
			break;
		poll(NULL, 0, 1);
	}
	say(thread, "context gone", n);
}

struct world *any_world(struct thread *thread)
{
	struct world *own = &thread->own;

	if (roll(thread, 2))
		return &thread->shared;
	if (own->context && own->is_released && !own->n_users)
		world_close(thread);
	if (!own->context)
		world_open(thread);
	return own->is_released ? &thread->shared : own;
}

/* ---- What else there is --------------------------------------------------- */

typedef cl_int count_kernels_fn(cl_program program, cl_uint *out_count);

static void fetch_call(struct thread *thread)
{
	static const char *const names[] = { "clGetPlatformInfo",
					     "clCreateProgramWithILKHR",
					     "clNoSuchFunctionKILN" };
	const char *name = PICK(thread, names);
	struct program *program;
	count_kernels_fn *count;
	cl_uint n = 0;

	if (!all.unknown_calls || roll(thread, 2)) {
		say(thread, name,
		    clGetExtensionFunctionAddressForPlatform(all.platform,
							     name) != NULL);
		return;
	}
	program = any_program(thread, NULL);
	count = (count_kernels_fn *)clGetExtensionFunctionAddressForPlatform(
		all.platform, "clCountProgramKernelsKILN");
	if (count && program) {
		say(thread, "counted", count(program->handle, &n));
		say(thread, "  n", n);
	}
}

static void act_otherwise(struct thread *thread)
{
	switch (roll(thread, 6)) {
	case 0:
		say(thread, "unload", clUnloadPlatformCompiler(all.platform));
		break;
	case 1:
		fetch_call(thread);
		break;
	case 2:
		if (thread->own.context)
			world_release(thread);
		break;
	case 3:
		say(thread, "no program",
		    clBuildProgram(NULL, 0, NULL, NULL, NULL, NULL));
		say(thread, "no kernel", clReleaseKernel(NULL));
		break;
	default:
		change_header(thread);
		break;
	}
}

static void step(struct thread *thread)
{
	unsigned what = roll(thread, 12);

	if (!what)
		act_otherwise(thread);
	else if (what < 8)
		act_on_program(thread);
	else
		act_on_kernel(thread);
}

/* Whether "1,5,12" has the number. */
static int is_among(const char *numbers, unsigned number)
{
	char *end = NULL;

	for (; *numbers; numbers = *end ? end + 1 : end)
		if (strtoul(numbers, &end, 10) == number)
			return 1;
	return 0;
}

static void *alone(void *arg)
{
	struct thread *thread = arg;
	unsigned i;

	for (i = 0; i < thread->n_steps; i++) {
		begin_step(thread, i);
		if (!all.steps || is_among(all.steps, i))
			step(thread);
	}
	kernels_end(thread);
	programs_end(thread);
	if (thread->own.context) {
		world_release(thread);
		world_close(thread);
	}
	return NULL;
}

/* ---- Together ------------------------------------------------------------- */

static struct {
	cl_program programs[STORMED];
	cl_kernel kernel; /* of the first, which can't be built then */
	int n_calls, n_due, n_wrong;
	int n_gone;
} storm;

static void CL_CALLBACK on_storm_built(cl_program program, void *arg)
{
	__atomic_add_fetch(&storm.n_calls, 1, __ATOMIC_SEQ_CST);
	if (program != *(cl_program *)arg)
		__atomic_add_fetch(&storm.n_wrong, 1, __ATOMIC_SEQ_CST);
}

static void CL_CALLBACK on_storm_gone(cl_program program, void *arg)
{
	__atomic_add_fetch(&storm.n_gone, 1, __ATOMIC_SEQ_CST);
}

static void storm_build(struct thread *thread, unsigned i)
{
	cl_int result =
		clBuildProgram(storm.programs[i], 0, NULL, any_options(thread),
			       on_storm_built, &storm.programs[i]);

	if (!result || result == CL_BUILD_PROGRAM_FAILURE)
		__atomic_add_fetch(&storm.n_due, 1, __ATOMIC_SEQ_CST);
}

static void storm_kernel(cl_program program)
{
	cl_kernel kernel = clCreateKernel(program, "k1", NULL), clone;
	cl_program of = NULL;

	if (!kernel)
		return;
	clone = all.version >= 21 ? clCloneKernel(kernel, NULL) : NULL;
	(void)clGetKernelInfo(kernel, CL_KERNEL_PROGRAM, sizeof(of), &of, NULL);
	if (of != program)
		__atomic_add_fetch(&storm.n_wrong, 1, __ATOMIC_SEQ_CST);
	clReleaseKernel(kernel);
	if (clone)
		clReleaseKernel(clone);
}

static void storm_ask(struct thread *thread, cl_program program)
{
	static const cl_uint what[] = { CL_PROGRAM_REFERENCE_COUNT,
					CL_PROGRAM_KERNEL_NAMES,
					CL_PROGRAM_NUM_KERNELS,
					CL_PROGRAM_BINARY_SIZES };
	char answer[4096];

	(void)clGetProgramInfo(program, PICK(thread, what), sizeof(answer),
			       answer, NULL);
	(void)clGetProgramBuildInfo(program, all.devices[0],
				    CL_PROGRAM_BUILD_LOG, sizeof(answer),
				    answer, NULL);
}

static void *together(void *arg)
{
	struct thread *thread = arg;
	unsigned i, n = all.steps ? 0 : thread->n_steps / 4;

	begin_step(thread, thread->n_steps);

	while (n--) {
		i = roll(thread, STORMED);
		clRetainProgram(storm.programs[i]);
		switch (roll(thread, 6)) {
		case 0:
		case 1:
			/* Not all drivers can take that. */
			if (!all.is_real)
				storm_build(thread, i);
			break;
		case 2:
			storm_ask(thread, storm.programs[i]);
			break;
		case 3:
			if (storm.kernel) {
				clRetainKernel(storm.kernel);
				clReleaseKernel(storm.kernel);
			}
			break;
		case 4:
			if (!all.is_real)
				clUnloadPlatformCompiler(all.platform);
			break;
		default:
			storm_kernel(storm.programs[i]);
			break;
		}
		clReleaseProgram(storm.programs[i]);
	}
	return NULL;
}

static void storm_begin(void)
{
	unsigned i;

	for (i = 0; i < STORMED; i++) {
		const char *text = all.sources[i];

		storm.programs[i] = clCreateProgramWithSource(
			all.context, 1, &text, NULL, NULL);
		(void)clBuildProgram(storm.programs[i], 0, NULL, "-DK=2", NULL,
				     NULL);
		if (all.version >= 22)
			(void)clSetProgramReleaseCallback(storm.programs[i],
							  on_storm_gone, NULL);
	}
	storm.kernel = clCreateKernel(storm.programs[0], "k0", NULL);
}

static int count_of(const int *count)
{
	return __atomic_load_n(count, __ATOMIC_SEQ_CST);
}

static void wait_for(const int *count, int n)
{
	int i;

	for (i = 0; i < 2000 && count_of(count) < n; i++)
		poll(NULL, 0, 1);
}

static void storm_end(void)
{
	cl_uint references;
	unsigned i, j;

	wait_for(&storm.n_calls, storm.n_due);
	printf("notices: %d\n", count_of(&storm.n_calls) - storm.n_due);
	printf("wrong: %d\n", count_of(&storm.n_wrong));
	if (storm.kernel)
		printf("release kernel: %d\n", clReleaseKernel(storm.kernel));
	for (i = 0; i < STORMED; i++) {
		for (j = 0; j < 2000; j++) {
			references = references_of(storm.programs[i]);
			if (references == 1)
				break;
			poll(NULL, 0, 1);
		}
		printf("references: %u\n", references);
		printf("release: %d\n", clReleaseProgram(storm.programs[i]));
	}
	if (all.version >= 22)
		wait_for(&storm.n_gone, STORMED);
	printf("gone: %d\n", count_of(&storm.n_gone));
}

/* ---- Main ----------------------------------------------------------------- */

/* Sub-devices of the first device take the place of all. */
static void partition(void)
{
	const cl_device_partition_property how[] = {
		CL_DEVICE_PARTITION_EQUALLY, 2, 0
	};
	cl_device_id parts[DEVICES_MAX];
	cl_uint n = 0;

	if (clCreateSubDevices(all.devices[0], how, DEVICES_MAX, parts, &n))
		return;
	all.others[0] = all.devices[0];
	all.n_others = 1;
	all.n_devices = n;
	memcpy(all.devices, parts, n * sizeof(parts[0]));
}

static int set_up(struct thread *dice)
{
	char name[1024] = "", version[1024] = "";
	unsigned major = 0, minor = 0;
	cl_int result;

	if (clGetPlatformIDs(1, &all.platform, NULL) ||
	    clGetPlatformInfo(all.platform, CL_PLATFORM_NAME, sizeof(name),
			      name, NULL) ||
	    clGetPlatformInfo(all.platform, CL_PLATFORM_VERSION,
			      sizeof(version), version, NULL) ||
	    sscanf(version, "OpenCL %u.%u", &major, &minor) != 2 ||
	    clGetDeviceIDs(all.platform, CL_DEVICE_TYPE_ALL, DEVICES_MAX,
			   all.devices, &all.n_devices))
		return -1;
	all.version = 10 * major + minor;
	all.is_real = strstr(name, "kiln") == NULL;
	if (all.n_devices > DEVICES_MAX)
		all.n_devices = DEVICES_MAX;
	all.unknown_calls = roll(dice, 10) == 0;
	if (all.n_devices > 2) {
		all.others[0] = all.devices[--all.n_devices];
		all.n_others = 1;
	}
	if (!all.is_real && roll(dice, 4) == 0)
		partition();
	all.context = clCreateContext(NULL, all.n_devices, all.devices,
				      on_context_error, NULL, &result);
	return all.context ? 0 : -1;
}

static void run_threads(struct thread *threads, unsigned n, unsigned only,
			void *(*body)(void *arg))
{
	pthread_t ids[THREADS_MAX];
	unsigned i;

	for (i = 0; i < n; i++)
		if (only == n || only == i)
			pthread_create(&ids[i], NULL, body, &threads[i]);
	for (i = 0; i < n; i++)
		if (only == n || only == i)
			pthread_join(ids[i], NULL);
}

static void show(struct thread *thread)
{
	fclose(thread->out);
	printf("thread %u\n%s", thread->index, thread->text);
	free(thread->text);
	while (thread->notices) {
		struct notice *notice = thread->notices;

		thread->notices = notice->next;
		free(notice);
	}
}

static void thread_init(struct thread *thread, unsigned index, unsigned n_steps)
{
	thread->index = index;
	thread->n_steps = n_steps;
	thread->out = open_memstream(&thread->text, &thread->size);
	world_fill(&thread->shared, all.context);
}

int main(int argc, char **argv)
{
	static struct thread threads[THREADS_MAX];
	struct thread dice = { 0 };
	unsigned n_threads, only, i;

	if (argc < 4) {
		fprintf(stderr, "random-calls: SEED STEPS THREADS ...\n");
		return 2;
	}
	all.seed = dice.dice = strtoull(argv[1], NULL, 10);
	n_threads = (unsigned)atoi(argv[3]);
	if (n_threads > THREADS_MAX)
		n_threads = THREADS_MAX;
	all.steps = argc > 5 ? argv[5] : NULL;
	only = argc > 4 ? (unsigned)atoi(argv[4]) : n_threads;
	if (set_up(&dice)) {
		fprintf(stderr, "random-calls: no OpenCL\n");
		return 2;
	}
	(void)mkdir("inc", 0700);
	write_headers(n_threads);
	for (i = 0; i < N_SOURCES; i++)
		all.sources[i] = source_new(all.seed, i);
	for (i = 0; i < n_threads; i++)
		thread_init(&threads[i], i, (unsigned)atoi(argv[2]));
	if (all.unknown_calls)
		printf("unknown functions\n");
	run_threads(threads, n_threads, only, alone);
	storm_begin();
	run_threads(threads, n_threads, only, together);
	for (i = 0; i < n_threads; i++) {
		show(&threads[i]);
		world_empty(&threads[i].shared);
	}
	storm_end();
	printf("release context: %d\n", clReleaseContext(all.context));
	for (i = 0; i < N_SOURCES; i++)
		free(all.sources[i]);
	return 0;
}
