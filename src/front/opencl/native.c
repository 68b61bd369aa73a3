/* SPDX-License-Identifier: MIT */

/*
 * What the driver builds, compiles and links itself: seen to its end, and what
 * may be kept of it.  A job asks kiln-worker for the binary; nothing here
 * calls for it.
 */

#include "front/opencl/layer.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "front/opencl/capture.h"
#include "front/opencl/job.h"

/*
 * One build, compilation or link by the driver.  It ends once: in the driver's
 * notification if there is one, else when the call returns.
 */
struct run {
	/* Fixed from the start. */
	const struct ki_cl_guest *guest; /* or NULL */
	cl_program handle;		 /* the application's; NULL: a link */
	void(CL_CALLBACK *notify)(cl_program program, void *user_data);
	void *user_data;
	uint64_t began_ns;
	int is_known;	 /* there is a program */
	unsigned change; /* of the program */
	unsigned n_sets; /* of its constants, before */
	/* What is linked, with the last change of each before: one reference
	   each, until it is over. */
	struct ki_cl_program **inputs;
	unsigned *changes;
	cl_uint n_inputs;
	/* Atomic. */
	_Atomic int is_over;
	_Atomic int is_notified;
	/* Under the lock: whoever takes them out owns them. */
	struct ki_cl_program *program; /* one reference, or NULL */
	struct ki_cl_capture *capture; /* one reference, or NULL */
	int is_listed;		       /* a link, by its handle */
	unsigned refs;	  /* the call's, the driver's or the stack's */
	struct run *next; /* among the refused */
};

/* Runs that a driver refused without a notification, which might yet come. */
static struct run *refused;

static uint64_t now_ns(void)
{
	return ki_sys_posix.monotonic_ns(&ki_sys_posix);
}

static void run_unref(struct run *run)
{
	int last;

	ki_mutex_lock(&ki_cl_lock);
	last = !--run->refs;
	ki_mutex_unlock(&ki_cl_lock);
	if (last)
		free(run);
}

/* What to keep, taken while its surroundings are those of its beginning; NULL
   without memory. */
static struct ki_cl_capture *capture_new(const struct ki_cl_guest *guest,
					 cl_platform_id platform,
					 struct ki_cl_made *made)
{
	const struct ki_cl_driver *driver =
		ki_cl_driver(guest->identities, platform);
	struct ki_cl_capture *capture = calloc(1, sizeof(*capture));
	char directory[KI_PATH_MAX];

	if (!capture)
		return NULL;
	capture->refs = 1;
	capture->made = ki_cl_made_ref(made);
	capture->directory =
		strdup(getcwd(directory, sizeof(directory)) ? directory : "");
	ki_bytes_init(&capture->environment);
	ki_cl_job_environment(driver, &capture->environment);
	if (!capture->directory || capture->environment.failed) {
		ki_cl_capture_unref(capture);
		return NULL;
	}
	return capture;
}

/* The strings of a block as an array to free(). */
static const char **split(const struct ki_bytes *block, uint32_t *out_n)
{
	const char **strings = calloc(block->size + 1, sizeof(*strings));
	size_t at;

	*out_n = 0;
	for (at = 0; strings && at < block->size;
	     at += strlen((const char *)block->data + at) + 1)
		strings[(*out_n)++] = (const char *)block->data + at;
	return strings;
}

/* Ask for this build's binary: a file, and no compiler's code. */
static void write_job(const struct ki_cl_guest *guest,
		      const struct ki_cl_program *program,
		      const struct ki_cl_capture *capture)
{
	const struct ki_cl_driver *driver =
		ki_cl_driver(guest->identities, program->platform);
	char application[KI_PATH_MAX], platform[256] = "";
	struct ki_cl_job job = {
		.platform_name = platform,
		.driver = driver->name,
		.recipe = capture->made->recipe,
		.directory = capture->directory,
		.application = application,
		.name_space = guest->name_space,
		.created = capture->created,
		.build_ns = capture->build_ns,
		.stage = driver->fetch_is_cheap ? KI_CL_STAGE_EARLY
						: KI_CL_STAGE_FULL,
	};
	const char **variables =
		split(&capture->environment, &job.n_environment);
	enum kiln_status status;

	if (!variables)
		return;
	job.environment = variables;
	(void)ki_cl_devices_of(program, capture->made->targets, &job.n_devices);
	job.record = kiln_key_record(capture->made->key, &job.record_size);
	if (ki_executable(application) < 0)
		application[0] = '\0';
	(void)ki_cl_next.clGetPlatformInfo(program->platform, CL_PLATFORM_NAME,
					   sizeof(platform) - 1, platform,
					   NULL);
	status = ki_cl_job_write(guest->spool, &job);
	if (status == KILN_OK)
		kiln_count(guest->kiln, KILN_COUNT_JOBS_WRITTEN, 1);
	else if (status == KILN_E_FULL)
		kiln_count(guest->kiln, KILN_COUNT_JOBS_REFUSED, 1);
	free(variables);
}

void ki_cl_ask_for_better(const struct ki_cl_guest *guest,
			  const struct ki_cl_program *program,
			  struct ki_cl_made *made, uint64_t build_ns)
{
	struct ki_cl_capture *capture =
		capture_new(guest, program->platform, made);

	if (!capture)
		return;
	capture->build_ns = build_ns;
	capture->created =
		ki_sys_posix.realtime_ns(&ki_sys_posix) / 1000000000u;
	write_job(guest, program, capture);
	ki_cl_capture_unref(capture);
}

static int fetch_is_cheap(const struct ki_cl_guest *guest,
			  cl_platform_id platform)
{
	return ki_cl_driver(guest->identities, platform)->fetch_is_cheap &&
	       !(ki_cl_platform_bits(platform) & KI_CL_FETCH_IS_SLOW);
}

/* What is worth keeping (taken over): nothing here asks for its binary. */
static void keep(const struct ki_cl_guest *guest, struct ki_cl_program *program,
		 unsigned change, struct ki_cl_capture *capture,
		 uint64_t build_ns)
{
	const char *why;
	int is_in_order;

	/* What the driver has loaded meanwhile may not be what was asked. */
	if (ki_cl_platform_status(guest->identities, program->platform, &why)) {
		ki_cl_capture_unref(capture);
		return;
	}
	capture->build_ns = build_ns;
	capture->created =
		ki_sys_posix.realtime_ns(&ki_sys_posix) / 1000000000u;
	if (guest->spool && ki_cl_recipe_is_whole(capture->made->recipe))
		write_job(guest, program, capture);
	ki_cl_program_become(program, change, capture->made);
	is_in_order =
		!capture->made->targets || capture->made->targets->is_in_order;
	if (ki_cl_program_capture(program, change, capture) && is_in_order &&
	    fetch_is_cheap(guest, program->platform))
		ki_cl_background_add(program);
}

/* Whether all devices have it built. */
static int is_built(const struct ki_cl_program *program,
		    const struct ki_cl_targets *targets)
{
	cl_build_status status;
	cl_uint n, i;
	const cl_device_id *devices = ki_cl_devices_of(program, targets, &n);

	for (i = 0; i < n; i++)
		if (ki_cl_next.clGetProgramBuildInfo(
			    program->handle, devices[i],
			    CL_PROGRAM_BUILD_STATUS, sizeof(status), &status,
			    NULL) ||
		    status != CL_BUILD_SUCCESS)
			return 0;
	return 1;
}

static void count_build(const struct ki_cl_guest *guest, uint64_t build_ns,
			int has_failed)
{
	kiln_note_build(guest->kiln, 0);
	kiln_count(guest->kiln, KILN_COUNT_BUILDS, 1);
	kiln_count(guest->kiln, KILN_COUNT_BUILD_NS, build_ns);
	if (has_failed)
		kiln_count(guest->kiln, KILN_COUNT_BUILD_FAILURES, 1);
}

static void let_inputs_go(struct run *run)
{
	while (run->n_inputs)
		ki_cl_program_unref(run->inputs[--run->n_inputs]);
	free(run->inputs);
	free(run->changes);
	run->inputs = NULL;
	run->changes = NULL;
}

/* Whether all that the driver could look at while it was at work was what the
   key has: other threads set constants and compile what is linked. */
static int is_of_key(const struct run *run, struct ki_cl_program *program)
{
	int same = ki_cl_program_sets(program) == run->n_sets;
	cl_uint i;

	for (i = 0; i < run->n_inputs && same; i++)
		same = ki_cl_program_changes(run->inputs[i]) == run->changes[i];
	return same;
}

/* The end, whoever sees it first. */
static void end_run(struct run *run, cl_int result)
{
	struct ki_cl_program *program;
	struct ki_cl_capture *capture;
	uint64_t build_ns = now_ns() - run->began_ns;
	int has_failed;

	if (atomic_exchange(&run->is_over, 1))
		return;
	ki_mutex_lock(&ki_cl_lock);
	program = run->program;
	capture = run->capture;
	run->program = NULL;
	run->capture = NULL;
	if (program)
		program->n_runs--;
	ki_mutex_unlock(&ki_cl_lock);
	has_failed = result || (run->notify && capture &&
				!is_built(program, capture->made->targets));
	if (run->guest)
		count_build(run->guest, build_ns, has_failed);
	if (capture && !has_failed && is_of_key(run, program))
		keep(run->guest, program, run->change, capture, build_ns);
	else
		ki_cl_capture_unref(capture);
	let_inputs_go(run);
	ki_cl_program_unref(program);
}

/* A link's program can be known by its handle now, once: whoever is notified
   may release it, and it may come again. */
static void list_linked(struct run *run, cl_program handle)
{
	struct ki_cl_program *program;
	int is_listed;

	ki_mutex_lock(&ki_cl_lock);
	is_listed = run->is_listed;
	run->is_listed = handle != NULL;
	program = run->program;
	if (program)
		program->refs++;
	ki_mutex_unlock(&ki_cl_lock);
	if (program && handle)
		(void)ki_cl_program_list(program, handle);
	else if (!run->is_known && !is_listed)
		ki_cl_program_forget(handle);
	ki_cl_program_unref(program);
}

/* A twin's own handle is not the application's. */
static void CL_CALLBACK on_done(cl_program handle, void *arg)
{
	struct run *run = arg;

	if (atomic_exchange(&run->is_notified, 1))
		return;
	if (!run->handle)
		list_linked(run, handle);
	end_run(run, CL_SUCCESS);
	run->notify(run->handle ? run->handle : handle, run->user_data);
	run_unref(run);
}

/* The driver failed, and may or may not notify still: the run waits for it
   where it can be found, as long as the process lives, since nothing says when
   a driver can no longer call. */
static void park(struct run *run)
{
	ki_mutex_lock(&ki_cl_lock);
	run->refs++;
	run->next = refused;
	refused = run;
	ki_mutex_unlock(&ki_cl_lock);
}

/* A shadow does not answer while the driver is at work; if that was no build
   it answers again, else it goes, and with it what could be captured. */
struct aside {
	struct ki_cl_program *program; /* or NULL */
	cl_program handle;	       /* whom the driver is given */
	struct ki_cl_shadow *shadow;
	struct ki_cl_made *made;
	struct ki_cl_capture *capture;
	uint64_t mark;
	unsigned change;
	int had_kernels;
};

/* What the driver has on record of the builds of H, or of its twin. */
static uint64_t mark_of(struct ki_cl_program *program, cl_program handle)
{
	uint64_t mark = 0;
	cl_uint i;

	if (ki_cl_program_devices(program))
		return 0;
	for (i = 0; i < program->n_devices; i++) {
		cl_build_status status = CL_BUILD_NONE;
		char options[4096] = "";
		struct ki_piece pieces[] = { { &mark, sizeof(mark) },
					     { &status, sizeof(status) },
					     { options, sizeof(options) } };

		(void)ki_cl_next.clGetProgramBuildInfo(
			handle, program->devices[i], CL_PROGRAM_BUILD_STATUS,
			sizeof(status), &status, NULL);
		(void)ki_cl_next.clGetProgramBuildInfo(
			handle, program->devices[i], CL_PROGRAM_BUILD_OPTIONS,
			sizeof(options) - 1, options, NULL);
		mark = ki_xxh3_64_pieces(pieces, 3);
	}
	return mark;
}

/* Arguments that are wrong are no build. */
static int is_refusal(cl_int result)
{
	return result == CL_INVALID_VALUE || result == CL_INVALID_DEVICE ||
	       result == CL_INVALID_OPERATION || result == CL_INVALID_PROGRAM;
}

/* Of wrong options some drivers say the same, for others the build has failed:
   then the program remembers. */
static int never_began(const struct aside *aside, cl_int result)
{
	if (result == CL_INVALID_BUILD_OPTIONS ||
	    result == CL_INVALID_COMPILER_OPTIONS)
		return mark_of(aside->program, aside->handle) == aside->mark;
	return is_refusal(result);
}

static struct aside put_aside(struct ki_cl_program *program, cl_program handle)
{
	struct aside aside = { .program = program, .handle = handle };

	if (!program)
		return aside;
	aside.shadow = ki_cl_shadow_of(program);
	aside.made = ki_cl_made_of(program, NULL);
	aside.capture = ki_cl_capture_of(program);
	ki_mutex_lock(&ki_cl_lock);
	aside.had_kernels = program->had_kernels;
	ki_mutex_unlock(&ki_cl_lock);
	if (aside.shadow || aside.made)
		aside.mark = mark_of(program, handle);
	if (aside.shadow)
		ki_cl_program_shadow(program, NULL);
	aside.change = ki_cl_program_change(program);
	return aside;
}

/* What could be captured before still can. */
static void put_capture_back(const struct aside *aside)
{
	struct ki_cl_program *program = aside->program;

	if (aside->capture)
		(void)ki_cl_program_capture(program, aside->change,
					    aside->capture);
	ki_mutex_lock(&ki_cl_lock);
	if (program->n_changes == aside->change)
		program->had_kernels |= aside->had_kernels;
	ki_mutex_unlock(&ki_cl_lock);
}

static void put_back(struct aside *aside, cl_int result)
{
	int is_unchanged =
		(aside->shadow || aside->made) && never_began(aside, result);

	if (is_unchanged)
		ki_cl_program_become(aside->program, aside->change,
				     aside->made);
	if (is_unchanged && aside->shadow)
		ki_cl_program_shadow(aside->program, aside->shadow);
	else
		ki_cl_shadow_unref(aside->shadow);
	if (is_unchanged)
		put_capture_back(aside);
	else
		ki_cl_capture_unref(aside->capture);
	ki_cl_made_unref(aside->made);
}

/* ---- The call ------------------------------------------------------------ */

/* `run` NULL: the driver notifies the application by itself. */
static cl_int call_driver(const struct ki_cl_request *request, struct run *run,
			  cl_program *out_linked)
{
	int is_seen = run && request->notify;
	void(CL_CALLBACK * notify)(cl_program program, void *user_data) =
		is_seen ? on_done : request->notify;
	void *arg = is_seen ? run : request->user_data;
	cl_program handle = request->twin ? request->twin : request->handle;
	cl_int result = CL_SUCCESS;

	switch (request->kind) {
	case KI_CL_COMPILE:
		return ki_cl_next.clCompileProgram(
			handle, request->n_devices, request->devices,
			request->options, request->n_programs,
			request->programs, request->names, notify, arg);
	case KI_CL_LINK:
		*out_linked = ki_cl_next.clLinkProgram(
			request->context, request->n_devices, request->devices,
			request->options, request->n_programs,
			request->programs, notify, arg, &result);
		return result;
	default:
		return ki_cl_next.clBuildProgram(handle, request->n_devices,
						 request->devices,
						 request->options, notify, arg);
	}
}

static int take_inputs(struct run *run, const struct ki_cl_request *request)
{
	cl_uint n = request->n_programs, i;

	run->inputs = calloc(n, sizeof(struct ki_cl_program *));
	run->changes = calloc(n, sizeof(*run->changes));
	if (!run->inputs || !run->changes) {
		let_inputs_go(run);
		return -1;
	}
	for (i = 0; i < n; i++) {
		ki_cl_program_ref(request->inputs[i]);
		run->inputs[i] = request->inputs[i];
		run->changes[i] = request->changes[i];
	}
	run->n_inputs = n;
	return 0;
}

/* `here` (not to be freed) for what has ended when the call returns; NULL
   without memory. */
static struct run *run_new(struct run *here, const struct ki_cl_guest *guest,
			   struct ki_cl_program *program,
			   const struct ki_cl_request *request,
			   struct ki_cl_made *made)
{
	struct run *run = request->notify ? calloc(1, sizeof(*run)) : here;

	if (!run)
		return NULL;
	run->guest = guest;
	run->program = program;
	run->is_known = program != NULL;
	if (guest && program && made)
		run->capture = capture_new(guest, program->platform, made);
	run->handle = request->kind == KI_CL_LINK ? NULL : request->handle;
	run->notify = request->notify;
	run->user_data = request->user_data;
	run->refs = 2;
	/* Without memory for that, nothing is kept. */
	if (run->capture && request->inputs && take_inputs(run, request)) {
		ki_cl_capture_unref(run->capture);
		run->capture = NULL;
	}
	return run;
}

/* Without memory for a run nobody sees the end of what has a notification: it
   is at work on the program for good, and a link's is not known. */
static cl_int run_unseen(struct ki_cl_program *program,
			 const struct ki_cl_request *request,
			 cl_program *out_linked)
{
	struct aside aside;
	cl_int result;

	if (request->kind == KI_CL_LINK) {
		result = call_driver(request, NULL, out_linked);
		ki_cl_program_forget(*out_linked);
		return result;
	}
	if (!program)
		return call_driver(request, NULL, out_linked);
	ki_cl_program_enter(program);
	aside = put_aside(program, request->handle);
	ki_cl_mark_built(program, request->n_devices, request->devices);
	result = call_driver(request, NULL, out_linked);
	put_back(&aside, result);
	if (result) {
		ki_mutex_lock(&ki_cl_lock);
		program->n_runs--;
		ki_mutex_unlock(&ki_cl_lock);
	}
	ki_cl_program_unref(program);
	return result;
}

/* The same of a twin, of which the application knows nothing: it is notified
   when the call is over. */
static cl_int run_unseen_twin(struct ki_cl_program *program,
			      const struct ki_cl_request *request,
			      cl_program *out_linked)
{
	struct ki_cl_request quiet = *request;
	cl_int result;

	quiet.notify = NULL;
	quiet.user_data = NULL;
	result = ki_cl_run(NULL, program, &quiet, NULL, out_linked);
	if (!is_refusal(result))
		request->notify(request->handle, request->user_data);
	return result;
}

/* The program is entered: nobody sets its constants at this moment. */
static void note_sets(struct run *run, struct ki_cl_program *program)
{
	run->n_sets = ki_cl_program_sets(program);
	if (!run->capture ||
	    ki_cl_program_is_set_as(program, run->capture->made->recipe))
		return;
	ki_cl_capture_unref(run->capture);
	run->capture = NULL;
}

cl_int ki_cl_run(const struct ki_cl_guest *guest, struct ki_cl_program *program,
		 const struct ki_cl_request *request, struct ki_cl_made *made,
		 cl_program *out_linked)
{
	struct run here = { 0 };
	struct run *run = run_new(&here, guest, program, request, made);
	struct aside aside;
	cl_int result;

	if (!run && request->twin)
		return run_unseen_twin(program, request, out_linked);
	if (!run)
		return run_unseen(program, request, out_linked);
	if (program) {
		ki_cl_program_enter(program);
		note_sets(run, program);
	}
	aside = put_aside(program,
			  request->twin ? request->twin : request->handle);
	run->change = aside.change;
	run->began_ns = now_ns();
	if (guest)
		kiln_note_build(guest->kiln, 1);

	/* Whoever is notified may build for others at once. */
	if (program && request->notify)
		ki_cl_mark_built(program, request->n_devices, request->devices);

	result = call_driver(request, run, out_linked);

	if (program && !is_refusal(result))
		ki_cl_mark_built(program, request->n_devices, request->devices);
	if (request->kind == KI_CL_LINK)
		list_linked(run, *out_linked);
	put_back(&aside, result);
	if (result || !request->notify)
		end_run(run, result);
	if (result && request->notify && !atomic_load(&run->is_notified))
		park(run);
	run_unref(run);
	/* What was put back while others ended all shadows. */
	if (program && result &&
	    (ki_cl_platform_bits(program->platform) & KI_CL_NO_SHADOWS))
		(void)ki_cl_go_native(program);
	return result;
}

/* ---- Without what answers ------------------------------------------------ */

/* Whether the driver has to make what the shadow answers for. */
static int needs_making(const struct ki_cl_shadow *shadow)
{
	return shadow && !shadow->is_own && shadow->made;
}

/* What is made again must be what the shadow stands for: a header may have
   been written since.  Then the shadow goes on answering. */
static cl_int make_the_same(const struct ki_cl_guest *guest,
			    struct ki_cl_program *program,
			    struct ki_cl_shadow *shadow)
{
	struct ki_cl_made *made = ki_cl_shadow_made(program, shadow);
	cl_int result = CL_INVALID_OPERATION;

	if (!made)
		return CL_OUT_OF_HOST_MEMORY;
	if (!guest || ki_cl_is_unchanged(guest, program, made)) {
		if (guest)
			kiln_note_build(guest->kiln, 1);
		result = ki_cl_make_again(program, made->recipe,
					  shadow->options, made->targets);
		if (guest)
			kiln_note_build(guest->kiln, 0);
	}
	if (!result && guest && !ki_cl_is_unchanged(guest, program, made))
		result = CL_INVALID_OPERATION;
	ki_cl_made_unref(made);
	return result;
}

/* The program is claimed. */
static int make_too_claimed(struct ki_cl_program *program,
			    struct ki_cl_shadow *shadow)
{
	int is_made;

	ki_mutex_lock(&ki_cl_lock);
	is_made = shadow->is_made_too;
	ki_mutex_unlock(&ki_cl_lock);
	if (is_made)
		return 0;
	if (make_the_same(ki_cl_guest(), program, shadow))
		return -1;
	ki_mutex_lock(&ki_cl_lock);
	shadow->is_made_too = 1;
	ki_mutex_unlock(&ki_cl_lock);
	return 0;
}

int ki_cl_make_too(struct ki_cl_program *program, struct ki_cl_shadow *shadow)
{
	int err;

	if (!needs_making(shadow) || ki_cl_program_claim(program))
		return -1;
	err = make_too_claimed(program, shadow);
	ki_cl_program_rest(program);
	return err;
}

/* Other threads build, claim or release the program at the same time, or have
   let another shadow answer.  Kernels leave their mark in variables of the
   program they were made from: where a shadow's have been, it goes on making
   them. */
static int go_native_claimed(struct ki_cl_program *program)
{
	struct ki_cl_shadow *shadow = ki_cl_shadow_of(program);
	int err = 0, had_kernels;

	if (needs_making(shadow)) {
		err = make_too_claimed(program, shadow);
		ki_mutex_lock(&ki_cl_lock);
		had_kernels = program->had_kernels;
		ki_mutex_unlock(&ki_cl_lock);
		if (!err && !had_kernels)
			ki_cl_program_unshadow(program, shadow);
	}
	ki_cl_shadow_unref(shadow);
	return err;
}

int ki_cl_go_native(struct ki_cl_program *program)
{
	struct ki_cl_shadow *shadow = ki_cl_shadow_of(program);
	int is_needed = needs_making(shadow), err;

	ki_cl_shadow_unref(shadow);
	if (!is_needed)
		return 0;
	if (ki_cl_program_claim(program))
		return -1;
	err = go_native_claimed(program);
	ki_cl_program_rest(program);
	return err;
}
