/* SPDX-License-Identifier: MIT */

/* What a thread does with its programs. */

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "random.h"

#define IS_DUE(result)                                                         \
	((result) == CL_SUCCESS || (result) == CL_BUILD_PROGRAM_FAILURE ||     \
	 (result) == CL_COMPILE_PROGRAM_FAILURE ||                             \
	 (result) == CL_LINK_PROGRAM_FAILURE)

pthread_mutex_t notice_mutex = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t notice_cond = PTHREAD_COND_INITIALIZER;

/* ---- Callbacks ------------------------------------------------------------ */

static void CL_CALLBACK on_built(cl_program program, void *arg)
{
	struct notice *notice = arg;
	cl_build_status status = 1000;

	(void)clGetProgramBuildInfo(program, notice->device,
				    CL_PROGRAM_BUILD_STATUS, sizeof(status),
				    &status, NULL);
	pthread_mutex_lock(&notice_mutex);
	notice->told = program;
	notice->status = status;
	notice->n_calls++;
	pthread_cond_broadcast(&notice_cond);
	pthread_mutex_unlock(&notice_mutex);
}

static void CL_CALLBACK on_gone(cl_program program, void *arg)
{
	__atomic_add_fetch((int *)arg, 1, __ATOMIC_SEQ_CST);
}

static struct notice *notice_new(struct thread *thread, cl_device_id device)
{
	struct notice *notice = calloc(1, sizeof(*notice));

	notice->device = device;
	notice->step = thread->step;
	notice->next = thread->notices;
	thread->notices = notice;
	return notice;
}

/* The thread of the driver that called back lets go a little later. */
static void settle(cl_program program, cl_uint references)
{
	int i;

	for (i = 0; i < 2000 && references_of(program) > references; i++)
		poll(NULL, 0, 1);
}

/* Not for ever: some drivers forget those whose build failed. */
static void await_call(struct notice *notice)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += all.is_real ? 300000000 : 0;
	until.tv_sec += all.is_real ? until.tv_nsec / 1000000000 : 20;
	until.tv_nsec %= 1000000000;
	pthread_mutex_lock(&notice_mutex);
	while (!notice->n_calls &&
	       !pthread_cond_timedwait(&notice_cond, &notice_mutex, &until))
		;
	pthread_mutex_unlock(&notice_mutex);
}

void await(struct thread *thread, struct program *program)
{
	struct notice *notice = program->pending;

	if (!notice)
		return;
	program->pending = NULL;
	if (!notice->n_due)
		return;
	await_call(notice);
	settle(program->handle, program->refs_before);
	say(thread, "notified of it", notice->told == program->handle);
	say(thread, "status then", notice->status);
}

/* ---- What real drivers can take -------------------------------------------- */

static int is_built(const struct program *program)
{
	cl_build_status status;
	cl_uint i;

	for (i = 0; i < program->n_devices; i++)
		if (clGetProgramBuildInfo(program->handle, program->devices[i],
					  CL_PROGRAM_BUILD_STATUS,
					  sizeof(status), &status, NULL) ||
		    status)
			return 0;
	return 1;
}

static int has_source(const struct program *program)
{
	size_t size = 0;

	return !clGetProgramInfo(program->handle, CL_PROGRAM_SOURCE, 0, NULL,
				 &size) &&
	       size > 1;
}

static int can_be_linked(const struct program *program)
{
	cl_program_binary_type type;
	cl_uint i;

	for (i = 0; i < program->n_devices; i++)
		if (clGetProgramBuildInfo(program->handle, program->devices[i],
					  CL_PROGRAM_BINARY_TYPE, sizeof(type),
					  &type, NULL) ||
		    (type != CL_PROGRAM_BINARY_TYPE_COMPILED_OBJECT &&
		     type != CL_PROGRAM_BINARY_TYPE_LIBRARY))
			return 0;
	return is_built(program);
}

/* ---- Asking --------------------------------------------------------------- */

static cl_int ask_program(const struct question *question, cl_uint what,
			  size_t size, void *value, size_t *out_size)
{
	return clGetProgramInfo(question->program, what, size, value, out_size);
}

static cl_int ask_build(const struct question *question, cl_uint what,
			size_t size, void *value, size_t *out_size)
{
	return clGetProgramBuildInfo(question->program, question->device, what,
				     size, value, out_size);
}

static void show_program(struct thread *thread, const struct program *program)
{
	static const struct {
		const char *name;
		cl_uint what;
	} rows[] = {
		{ "REFERENCE_COUNT", CL_PROGRAM_REFERENCE_COUNT },
		{ "NUM_DEVICES", CL_PROGRAM_NUM_DEVICES },
		{ "SOURCE", CL_PROGRAM_SOURCE },
		{ "IL", CL_PROGRAM_IL },
		{ "NUM_KERNELS", CL_PROGRAM_NUM_KERNELS },
		{ "KERNEL_NAMES", CL_PROGRAM_KERNEL_NAMES },
		{ "CTORS", CL_PROGRAM_SCOPE_GLOBAL_CTORS_PRESENT },
		{ "DTORS", CL_PROGRAM_SCOPE_GLOBAL_DTORS_PRESENT },
		{ "unknown", 0x4242 },
	};
	const struct question question = { .ask = ask_program,
					   .program = program->handle };
	unsigned i = roll(thread, sizeof(rows) / sizeof(rows[0]));

	ask(thread, &question, rows[i].name, rows[i].what, 0);
}

/* What is said of handles: whose they are. */
static void show_handles(struct thread *thread, const struct program *program)
{
	cl_device_id devices[DEVICES_MAX] = { NULL };
	cl_context context = NULL;
	size_t told = 0;

	say(thread, "CONTEXT",
	    clGetProgramInfo(program->handle, CL_PROGRAM_CONTEXT,
			     sizeof(context), &context, NULL));
	say(thread, "  is its", context == program->world->context);
	say(thread, "DEVICES",
	    clGetProgramInfo(program->handle, CL_PROGRAM_DEVICES,
			     sizeof(devices), devices, &told));
	say(thread, "  told", (long long)told);
	say(thread, "  are its",
	    !memcmp(devices, program->devices,
		    program->n_devices * sizeof(devices[0])));
}

static cl_device_id any_device(struct thread *thread,
			       const struct program *program)
{
	unsigned i = roll(thread, 12);

	if (i == 0)
		return NULL;
	if (i == 1 && all.n_others)
		return all.others[0];
	return program->devices[i % program->n_devices];
}

static void show_build(struct thread *thread, const struct program *program)
{
	static const struct {
		const char *name;
		cl_uint what;
		int is_private; /* on real drivers: paths and such */
	} rows[] = {
		{ "STATUS", CL_PROGRAM_BUILD_STATUS, 0 },
		{ "OPTIONS", CL_PROGRAM_BUILD_OPTIONS, 0 },
		{ "LOG", CL_PROGRAM_BUILD_LOG, 1 },
		{ "BINARY_TYPE", CL_PROGRAM_BINARY_TYPE, 0 },
		{ "GLOBALS", CL_PROGRAM_BUILD_GLOBAL_VARIABLE_TOTAL_SIZE, 0 },
		{ "unknown", 0x4242, 0 },
	};
	const struct question question = {
		.ask = ask_build,
		.program = program->handle,
		.device = any_device(thread, program),
	};
	unsigned i = roll(thread, sizeof(rows) / sizeof(rows[0]));

	ask(thread, &question, rows[i].name, rows[i].what,
	    rows[i].is_private && all.is_real);
}

/* ---- Binaries ------------------------------------------------------------- */

static void fetched_fini(struct fetched *fetched)
{
	cl_uint i;

	for (i = 0; i < fetched->n; i++)
		free(fetched->bytes[i]);
	memset(fetched, 0, sizeof(*fetched));
}

/* Binaries differ from run to run; that there are some does not. */
static void fetch(struct thread *thread, const struct program *program)
{
	struct fetched *fetched = &PICK(thread, thread->fetched);
	unsigned char *places[DEVICES_MAX] = { NULL };
	size_t told = 0;
	cl_uint i;

	if (!is_built(program) && (all.is_real || roll(thread, 4)))
		return;
	fetched_fini(fetched);
	fetched->world = program->world;
	fetched->n = program->n_devices;
	memcpy(fetched->devices, program->devices, sizeof(program->devices));
	say(thread, "BINARY_SIZES",
	    clGetProgramInfo(program->handle, CL_PROGRAM_BINARY_SIZES,
			     sizeof(fetched->sizes), fetched->sizes, &told));
	say(thread, "  told", (long long)told);
	for (i = 0; i < fetched->n; i++) {
		say(thread, "  some", fetched->sizes[i] > 0);
		fetched->bytes[i] = calloc(1, fetched->sizes[i] + 1);
		if (all.is_real || roll(thread, 12))
			places[i] = fetched->bytes[i];
	}
	say(thread, "BINARIES",
	    clGetProgramInfo(program->handle, CL_PROGRAM_BINARIES,
			     fetched->n * sizeof(places[0]), places, &told));
	say(thread, "  told", (long long)told);
	for (i = 0; i < fetched->n; i++)
		if (!places[i])
			fetched->sizes[i] = 0;
}

/* ---- Making --------------------------------------------------------------- */

static void program_take(struct thread *thread, struct world *world,
			 cl_program handle, cl_uint n,
			 const cl_device_id *devices)
{
	struct program *program = thread->programs;

	if (!handle)
		return;
	while (program->n_refs)
		program++;
	memset(program, 0, sizeof(*program));
	program->handle = handle;
	program->n_refs = 1;
	program->world = world;
	world->n_users++;
	program->n_devices = n;
	memcpy(program->devices, devices, n * sizeof(devices[0]));
	if (roll(thread, 3) == 0 && all.version >= 22) {
		program->n_gone = calloc(1, sizeof(int));
		thread->gone = realloc(thread->gone,
				       (thread->n_gone + 1) * sizeof(int *));
		thread->gone[thread->n_gone++] = program->n_gone;
		say(thread, "on release",
		    clSetProgramReleaseCallback(handle, on_gone,
						program->n_gone));
	}
}

static struct program *program_of(struct thread *thread, cl_program handle)
{
	struct program *program = thread->programs;

	while (!program->n_refs || program->handle != handle)
		program++;
	return program;
}

static void from_source(struct thread *thread, struct world *world)
{
	const char *text = PICK(thread, all.sources);
	size_t half = strlen(text) / 2;
	const char *both[] = { text, text + half };
	size_t lengths[] = { half, 0 };
	cl_int result = 1;
	cl_program handle;

	if (roll(thread, 4))
		handle = clCreateProgramWithSource(world->context, 1, &text,
						   NULL, &result);
	else
		handle = clCreateProgramWithSource(world->context, 2, both,
						   lengths, &result);
	say(thread, "source", result);
	program_take(thread, world, handle, world->n_devices, world->devices);
}

typedef cl_program CL_API_CALL with_il_fn(cl_context context, const void *il,
					  size_t size, cl_int *result);

static void from_il(struct thread *thread, struct world *world)
{
	with_il_fn *with_il = clCreateProgramWithIL;
	unsigned char *il;
	cl_int result = 1;
	cl_program handle;
	size_t size;

	if (roll(thread, 2))
		with_il =
			(with_il_fn *)clGetExtensionFunctionAddressForPlatform(
				all.platform, "clCreateProgramWithILKHR");
	say(thread, "has IL", with_il != NULL);
	if (!with_il)
		return;
	il = il_new(thread, &size);
	handle = with_il(world->context, il, roll(thread, 8) ? size : 7,
			 &result);
	say(thread, "IL", result);
	free(il);
	program_take(thread, world, handle, world->n_devices, world->devices);
	if (handle)
		program_of(thread, handle)->is_il = 1;
}

static void from_binary(struct thread *thread)
{
	struct fetched *fetched = &PICK(thread, thread->fetched);
	cl_int statuses[DEVICES_MAX] = { 0 }, result = 1;
	cl_uint first, n, i;
	cl_program handle;

	if (!fetched->n || fetched->world->is_released)
		return;
	if (!all.is_real && !roll(thread, 6) && fetched->sizes[0])
		fetched->bytes[0][fetched->sizes[0] / 2] ^= 1;
	first = roll(thread, 3) ? 0 : roll(thread, fetched->n);
	n = fetched->n - first;
	for (i = 0; all.is_real && i < n; i++)
		if (!fetched->sizes[first + i])
			return;
	handle = clCreateProgramWithBinary(
		fetched->world->context, n, fetched->devices + first,
		fetched->sizes + first,
		(const unsigned char **)fetched->bytes + first, statuses,
		&result);
	say(thread, "binary", result);
	for (i = 0; i < n; i++)
		say(thread, "  of it", statuses[i]);
	program_take(thread, fetched->world, handle, n,
		     fetched->devices + first);
}

static void built_in(struct thread *thread, struct world *world)
{
	static const char *const names[] = { "kiln_fill", "kiln_copy;kiln_fill",
					     "nothing" };
	cl_int result = 1;
	cl_program handle = clCreateProgramWithBuiltInKernels(
		world->context, world->n_devices, world->devices,
		PICK(thread, names), &result);

	say(thread, "built in", result);
	program_take(thread, world, handle, world->n_devices, world->devices);
}

/* Calls that make nothing. */
static void make_nothing(struct thread *thread, struct world *world)
{
	const char *none = NULL;
	cl_int result = 1;

	if (roll(thread, 2))
		clCreateProgramWithSource(world->context, 0, NULL, NULL,
					  &result);
	else
		clCreateProgramWithSource(world->context, 1, &none, NULL,
					  &result);
	say(thread, "nothing", result);
	clCreateProgramWithSource(NULL, 1, &none, NULL, &result);
	say(thread, "nowhere", result);
}

static void make(struct thread *thread)
{
	struct world *world = any_world(thread);
	unsigned how = roll(thread, 16);

	if (how == 0)
		make_nothing(thread, world);
	else if (how <= 2)
		from_binary(thread);
	else if (how <= 4 && !all.is_real)
		from_il(thread, world);
	else if (how == 5 && !all.is_real)
		built_in(thread, world);
	else
		from_source(thread, world);
}

/* ---- Building ------------------------------------------------------------- */

/* What it was built of may be another text by now: then some devices would keep
   the old one, which a cache cannot have made again (README of the layer). */
static int is_outdated(const struct thread *thread,
		       const struct program *program)
{
	return program->n_builds && program->built_at != thread->n_changes;
}

/* Devices for a build: all, some, some twice, turned, foreign, none. */
static cl_uint pick_devices(struct thread *thread, struct program *program,
			    cl_device_id *list,
			    const cl_device_id **out_devices)
{
	cl_uint n = 1 + roll(thread, program->n_devices), i;
	int all_of_them = roll(thread, 3) || is_outdated(thread, program);

	*out_devices = NULL;
	program->n_builds++;
	program->built_at = thread->n_changes;
	if (all_of_them)
		return 0;
	*out_devices = list;
	for (i = 0; i < n; i++)
		list[i] = program->devices[(i + program->n_devices - 1) %
					   program->n_devices];
	if (!roll(thread, 16) && all.n_others)
		list[0] = all.others[0];
	return roll(thread, 16) ? n : 0;
}

static struct notice *any_notice(struct thread *thread, struct program *program,
				 const cl_device_id *devices)
{
	struct notice *notice;

	if (roll(thread, 3))
		return NULL;
	notice = notice_new(thread, devices ? devices[0] : program->devices[0]);
	program->refs_before = references_of(program->handle);
	program->pending = notice;
	return notice;
}

/* The callback is waited for now or later; what the call itself answers
   depends on whether the driver's builds are asynchronous, not on luck. */
static void conclude(struct thread *thread, struct program *program,
		     struct notice *notice, const char *what, cl_int result)
{
	say(thread, what, result);
	if (!notice)
		return;
	notice->n_due = IS_DUE(result);
	if (!notice->n_due || roll(thread, 2))
		await(thread, program);
}

static void build(struct thread *thread, struct program *program)
{
	cl_device_id list[DEVICES_MAX];
	const cl_device_id *devices;
	cl_uint n = pick_devices(thread, program, list, &devices);
	const char *options = any_options(thread);
	struct notice *notice;
	int ours;

	if (!roll(thread, 20)) {
		say(thread, "build for nobody",
		    clBuildProgram(program->handle, n, devices, options, NULL,
				   &ours));
		return;
	}
	notice = any_notice(thread, program, devices);
	conclude(thread, program, notice, "build",
		 clBuildProgram(program->handle, n, devices, options,
				notice ? on_built : NULL, notice));
}

static void compile(struct thread *thread, struct program *program)
{
	static const char *const names[] = { "given.h", "part.h", "other.h" };
	cl_program headers[2];
	const char *as[2];
	cl_device_id list[DEVICES_MAX];
	const cl_device_id *devices;
	cl_uint n = pick_devices(thread, program, list, &devices);
	cl_uint n_headers = roll(thread, 3), i;
	const char *options = any_options(thread);
	struct notice *notice;

	if (all.is_real && !has_source(program))
		return;
	for (i = 0; i < n_headers; i++) {
		struct program *header = any_program(thread, has_source);

		if (!header || (all.is_real && !has_source(header)))
			header = program;
		headers[i] = header->handle;
		as[i] = PICK(thread, names);
	}
	notice = any_notice(thread, program, devices);
	conclude(thread, program, notice, "compile",
		 clCompileProgram(program->handle, n, devices, options,
				  n_headers, n_headers ? headers : NULL,
				  n_headers ? as : NULL,
				  notice ? on_built : NULL, notice));
}

static int has_room(const struct thread *thread)
{
	unsigned i;

	for (i = 0; i < PROGRAMS_MAX; i++)
		if (!thread->programs[i].n_refs)
			return 1;
	return 0;
}

/* The first input is this program, so its context. */
static void link_programs(struct thread *thread, struct program *program)
{
	struct world *world = program->world;
	cl_uint n_inputs = 1, n_more = roll(thread, 3), i;
	const char *options = any_link_options(thread);
	struct notice *notice = NULL;
	cl_program inputs[3], handle;
	cl_int result = 1;
	int of_all = roll(thread, 4) > 0;

	if (!has_room(thread) || world->is_released)
		return;
	if (!can_be_linked(program) && (all.is_real || roll(thread, 8))) {
		compile(thread, program);
		return;
	}
	inputs[0] = program->handle;
	for (i = 0; i < n_more; i++) {
		struct program *input = any_program(thread, can_be_linked);

		/* Twice the same is wrong, and seldom tried. */
		if (!input || input->world != world ||
		    (all.is_real && !can_be_linked(input)) ||
		    (input == program && roll(thread, 8)))
			continue;
		inputs[n_inputs++] = input->handle;
	}
	if (!roll(thread, 3))
		notice = notice_new(thread, world->devices[0]);
	handle = clLinkProgram(world->context, of_all ? 0 : 1,
			       of_all ? NULL : world->devices, options,
			       n_inputs, inputs, notice ? on_built : NULL,
			       notice, &result);
	say(thread, "link", result);
	say(thread, "  a program", handle != NULL);
	if (notice && handle) {
		notice->n_due = 1;
		await_call(notice);
		settle(handle, 1);
		say(thread, "  notified of it", notice->told == handle);
		say(thread, "  status then", notice->status);
	}
	program_take(thread, world, handle, of_all ? world->n_devices : 1,
		     world->devices);
}

static void set_constant(struct thread *thread, struct program *program)
{
	cl_long value = roll(thread, 3);
	cl_uint id = 1 + roll(thread, 3);

	if (all.is_real)
		return;
	say(thread, "constant",
	    clSetProgramSpecializationConstant(
		    program->handle, id, roll(thread, 8) ? sizeof(value) : 0,
		    roll(thread, 8) ? &value : NULL));
}

/* ---- Kernels of it -------------------------------------------------------- */

static void make_kernel(struct thread *thread, struct program *program)
{
	static const char *const names[] = {
		"k0", "k1", "k2", "k0", "k1", "k2", "kiln_fill", "broken", "no",
	};
	const char *name = roll(thread, 24) ? PICK(thread, names) : NULL;
	cl_int result = 1;
	cl_kernel handle = clCreateKernel(program->handle, name, &result);

	say_text(thread, "kernel", name);
	say(thread, "  made", result);
	kernel_take(thread, program, handle);
}

static void make_kernels(struct thread *thread, struct program *program)
{
	cl_uint room = roll(thread, 5), n = 0, i;
	cl_kernel handles[8] = { NULL };
	cl_int result = clCreateKernelsInProgram(program->handle, room,
						 room ? handles : NULL,
						 roll(thread, 4) ? &n : NULL);

	say(thread, "kernels", result);
	say(thread, "  n", n);
	for (i = 0; !result && i < room && handles[i]; i++)
		kernel_take(thread, program, handles[i]);
}

/* ---- Lives ---------------------------------------------------------------- */

static void program_release(struct thread *thread, struct program *program)
{
	say(thread, "release", clReleaseProgram(program->handle));
	if (!--program->n_refs)
		program->world->n_users--;
}

/* The last reference goes while the driver may still be building. */
static void release_early(struct thread *thread, struct program *program)
{
	struct notice *notice = notice_new(thread, program->devices[0]);
	cl_int result = clBuildProgram(program->handle, 0, NULL,
				       any_options(thread), on_built, notice);

	notice->n_due = IS_DUE(result);
	say(thread, "build and release", result);
	while (program->n_refs)
		program_release(thread, program);
}

struct program *any_program(struct thread *thread,
			    int (*fits)(const struct program *program))
{
	struct program *program = NULL;
	unsigned i;

	/* Seldom any: what does not fit is to be tried too. */
	for (i = roll(thread, 6); i < 7; i++) {
		program = &PICK(thread, thread->programs);
		if (!program->n_refs)
			continue;
		await(thread, program);
		if (!fits || fits(program))
			return program;
	}
	return program->n_refs ? program : NULL;
}

static void act(struct thread *thread, struct program *program)
{
	if (program->is_il && !roll(thread, 3))
		set_constant(thread, program);
	if (!roll(thread, 3) && can_be_linked(program)) {
		link_programs(thread, program);
		return;
	}
	switch (roll(thread, 36)) {
	case 0:
		say(thread, "retain", clRetainProgram(program->handle));
		program->n_refs++;
		break;
	case 1:
	case 2:
	case 3:
		program_release(thread, program);
		break;
	case 4:
		release_early(thread, program);
		break;
	case 5:
		set_constant(thread, program);
		break;
	case 6:
	case 7:
	case 8:
		compile(thread, program);
		break;
	case 9:
	case 10:
	case 11:
		link_programs(thread, program);
		break;
	case 12:
	case 13:
		fetch(thread, program);
		break;
	case 14:
		show_handles(thread, program);
		break;
	case 15:
	case 16:
		show_program(thread, program);
		break;
	case 17:
	case 18:
		show_build(thread, program);
		break;
	case 19:
	case 20:
	case 30:
		make_kernels(thread, program);
		break;
	case 21:
	case 22:
	case 23:
	case 24:
	case 25:
	case 26:
	case 27:
	case 28:
	case 29:
		make_kernel(thread, program);
		break;
	default:
		build(thread, program);
		break;
	}
}

void act_on_program(struct thread *thread)
{
	struct program *program = &PICK(thread, thread->programs);

	if (program->n_refs) {
		await(thread, program);
		act(thread, program);
	} else {
		make(thread);
	}
}

/* Each callback once, however long it takes; those of refused calls never. */
static void say_notices(struct thread *thread)
{
	struct notice *notice;
	unsigned n = 0;

	for (notice = thread->notices; notice; notice = notice->next) {
		if (notice->n_due)
			await_call(notice);
		pthread_mutex_lock(&notice_mutex);
		n += (unsigned)notice->n_due;
		if (notice->n_calls != notice->n_due)
			fprintf(thread->out, "called %d times from step %u\n",
				notice->n_calls, notice->step);
		pthread_mutex_unlock(&notice_mutex);
	}
	say(thread, "notices", n);
}

void programs_end(struct thread *thread)
{
	unsigned i;

	for (i = 0; i < PROGRAMS_MAX; i++) {
		struct program *program = &thread->programs[i];

		if (!program->n_refs)
			continue;
		await(thread, program);
		while (program->n_refs)
			program_release(thread, program);
	}
	for (i = 0; i < FETCHED_MAX; i++)
		fetched_fini(&thread->fetched[i]);
	say_notices(thread);
	for (i = 0; i < thread->n_gone; i++) {
		int n, tries = 0;

		while (!(n = __atomic_load_n(thread->gone[i],
					     __ATOMIC_SEQ_CST)) &&
		       tries++ < 2000)
			poll(NULL, 0, 1);
		say(thread, "gone", n);
		free(thread->gone[i]);
	}
	free(thread->gone);
}
