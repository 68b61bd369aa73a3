/* SPDX-License-Identifier: MIT */

/*
 * Capturing inside the program, without costing it anything: binaries that it
 * fetched itself are kept, and where drivers have them at hand a thread
 * fetches them once the program has built nothing and made no kernel for two
 * seconds.  One fetch that takes more than 10 ms ends that for its driver.
 *
 * Stages.  The layer does not see launches.  What the application fetches
 * counts as early, always.  What the thread fetches counts as full if kernels
 * were made of the program: those have been there for two seconds.
 *
 * While the thread works on a program, that is busy: the application's last
 * release of it is kept back until then, and a rebuild waits a little.  At
 * exit a fetch that runs is given 50 ms.
 */

#include "front/opencl/layer.h"

#include <stdlib.h>
#include <string.h>

#include "front/opencl/capture.h"
#include "front/opencl/job.h"
#include "front/opencl/kept.h"

#define MS	     ((uint64_t)1000 * 1000)
#define QUIET_NS     (2000 * MS)
#define FETCH_NS_MAX (10 * MS)
#define EXIT_NS_MAX  (50 * MS)
#define WAITING_MAX  256

/* Under ki_cl_lock. */
static struct ki_cl_program *waiting[WAITING_MAX]; /* one reference each */
static size_t n_waiting;
static struct ki_cl_program *current; /* being fetched */
static uint64_t touched_ns;
static int is_running, is_stopping, is_hooked;
static struct ki_cond wake;
static struct ki_thread thread;

static uint64_t now_ns(void)
{
	return ki_sys_posix.monotonic_ns(&ki_sys_posix);
}

/* Whether files and settings are still those of the key (they may have changed
   between the look-up and the driver's reading), and the build still the
   program's last. */
static int is_still(const struct ki_cl_guest *guest,
		    struct ki_cl_program *program,
		    const struct ki_cl_capture *capture)
{
	return ki_cl_is_captured(program, capture) &&
	       ki_cl_is_unchanged(guest, program, capture->made);
}

/* Where the driver's binaries are good whenever they are fetched, nobody need
   make this one again. */
static void drop_job(const struct ki_cl_guest *guest,
		     const struct ki_cl_program *program,
		     const struct kiln_key *key)
{
	const void *record;
	size_t size;

	if (!guest->spool ||
	    !ki_cl_driver(guest->identities, program->platform)->fetch_is_cheap)
		return;
	record = kiln_key_record(key, &size);
	ki_cl_job_remove(guest->spool, record, size);
}

/* Where a job is left, the worker does that. */
static void keep_sources(const struct ki_cl_guest *guest,
			 const struct ki_cl_program *program,
			 const struct ki_cl_capture *capture,
			 struct kiln_metadata *metadata)
{
	const void *record;
	size_t size;

	if (guest->spool &&
	    !ki_cl_driver(guest->identities, program->platform)->fetch_is_cheap)
		return;
	record = kiln_key_record(capture->made->key, &size);
	ki_cl_keep_sources(guest->kiln, capture->made->recipe, record, size,
			   capture->directory, metadata);
}

static void publish(const struct ki_cl_guest *guest,
		    struct ki_cl_program *program,
		    const struct ki_cl_capture *capture,
		    const struct ki_bytes *value, enum ki_cl_stage stage)
{
	char application[KI_PATH_MAX];
	cl_uint n_devices;
	const cl_device_id *devices =
		ki_cl_devices_of(program, capture->made->targets, &n_devices);
	struct kiln_metadata *metadata = kiln_metadata_new();
	enum kiln_status status = KILN_E_NO_MEMORY;

	kiln_metadata_add_u64(metadata, KILN_META_CREATED, capture->created);
	kiln_metadata_add_u64(metadata, KILN_META_BUILD_TIME,
			      capture->build_ns);
	kiln_metadata_add_string(metadata, KILN_META_OPTIONS,
				 capture->made->recipe->options);
	kiln_metadata_add_string(metadata, KILN_META_DIRECTORY,
				 capture->directory);
	kiln_metadata_add(metadata, KILN_META_ENVIRONMENT,
			  capture->environment.data, capture->environment.size);
	if (ki_executable(application) >= 0)
		kiln_metadata_add_string(metadata, KILN_META_APPLICATION,
					 application);
	if (*guest->name_space)
		kiln_metadata_add_string(metadata, KILN_META_NAMESPACE,
					 guest->name_space);
	if (metadata)
		keep_sources(guest, program, capture, metadata);
	/* Last: whatever was asked of the program must be of the build. */
	if (metadata &&
	    ki_cl_describe(&ki_cl_next, program->handle, devices, n_devices,
			   metadata) != KILN_E_NO_MEMORY &&
	    is_still(guest, program, capture))
		status = ki_cl_publish(guest->kiln, capture->made->key,
				       value->data, value->size, metadata,
				       stage);
	if (status >= 0)
		drop_job(guest, program, capture->made->key);
	kiln_metadata_free(metadata);
}

/* ---- What the application fetched ---------------------------------------- */

void ki_cl_capture_fetched(struct ki_cl_program *program,
			   struct ki_cl_capture *capture,
			   unsigned char *const *binaries, size_t n)
{
	const struct ki_cl_guest *guest = ki_cl_guest();
	struct ki_bytes value;
	size_t *sizes = NULL, answered = 0;
	const struct ki_cl_targets *targets = capture->made->targets;
	const cl_device_id *devices;
	cl_uint n_devices;

	/* In an order of the call's own, nobody can tell whose they are. */
	if (!guest || (targets && !targets->is_in_order))
		return;
	devices = ki_cl_devices_of(program, targets, &n_devices);
	sizes = calloc(program->n_devices, sizeof(*sizes));
	if (!sizes ||
	    ki_cl_next.clGetProgramInfo(
		    program->handle, CL_PROGRAM_BINARY_SIZES,
		    program->n_devices * sizeof(*sizes), sizes, &answered) ||
	    answered > n * sizeof(*sizes))
		goto out;
	if (ki_cl_pack_fetched(&ki_cl_next, program->handle, devices, n_devices,
			       (const unsigned char *const *)binaries, sizes,
			       (cl_uint)(answered / sizeof(*sizes)), &value))
		goto out;
	publish(guest, program, capture, &value, KI_CL_STAGE_EARLY);
	ki_bytes_fini(&value);
	ki_cl_program_captured(program, capture);
out:
	free(sizes);
}

/* ---- The thread ---------------------------------------------------------- */

static void fetch(struct ki_cl_program *program, struct ki_cl_capture *capture,
		  enum ki_cl_stage stage)
{
	const struct ki_cl_guest *guest = ki_cl_guest();
	uint64_t began_ns = now_ns();
	cl_uint n;
	const cl_device_id *devices =
		ki_cl_devices_of(program, capture->made->targets, &n);
	struct ki_bytes value;

	if (!guest ||
	    ki_cl_fetch(&ki_cl_next, program->handle, devices, n, &value))
		return;
	if (now_ns() - began_ns > FETCH_NS_MAX)
		ki_cl_platform_set(program->platform, KI_CL_FETCH_IS_SLOW);
	publish(guest, program, capture, &value, stage);
	ki_bytes_fini(&value);
	ki_cl_program_captured(program, capture);
}

/* The next program in the queue whose build can still be fetched, busy. */
static struct ki_cl_program *take_locked(struct ki_cl_capture **out_capture,
					 enum ki_cl_stage *out_stage)
	KI_REQUIRES(&ki_cl_lock)
{
	struct ki_cl_program *program = waiting[0];

	memmove(waiting, waiting + 1, --n_waiting * sizeof(waiting[0]));
	*out_capture = program->capture;
	*out_stage =
		program->had_kernels ? KI_CL_STAGE_FULL : KI_CL_STAGE_EARLY;
	if (program->capture && program->app_refs && !program->is_busy) {
		program->capture->refs++;
		program->is_busy = KI_CL_FETCHED;
		current = program;
	}
	return program;
}

static void work_on_one(void) KI_REQUIRES(&ki_cl_lock)
{
	struct ki_cl_capture *capture;
	struct ki_cl_program *program;
	enum ki_cl_stage stage;
	int is_worth;

	program = take_locked(&capture, &stage);
	is_worth = current == program;
	ki_mutex_unlock(&ki_cl_lock);
	if (is_worth) {
		if (!(ki_cl_platform_bits(program->platform) &
		      KI_CL_FETCH_IS_SLOW))
			fetch(program, capture, stage);
		ki_cl_program_rest(program);
		ki_cl_capture_unref(capture);
	}
	ki_cl_program_unref(program);
	ki_mutex_lock(&ki_cl_lock);
	current = NULL;
	ki_cond_signal_all(&ki_cl_idle);
}

static void work(void *arg)
{
	ki_mutex_lock(&ki_cl_lock);
	while (!is_stopping) {
		uint64_t due_ns = touched_ns + QUIET_NS;

		if (!n_waiting)
			ki_cond_wait(&wake, &ki_cl_lock);
		else if (now_ns() < due_ns)
			(void)ki_cond_wait_until(&wake, &ki_cl_lock, due_ns);
		else
			work_on_one();
	}
	ki_mutex_unlock(&ki_cl_lock);
}

static void at_exit(void)
{
	if (!ki_cl_is_child())
		ki_cl_background_stop();
}

void ki_cl_background_init(void)
{
	ki_cond_init(&wake);
	ki_cond_init(&ki_cl_idle);
}

/* No thread without its end: 0, or -1 without memory. */
static int hook_exit(void)
{
	int must;

	ki_mutex_lock(&ki_cl_lock);
	must = !is_hooked;
	is_hooked = 1;
	ki_mutex_unlock(&ki_cl_lock);
	if (!must || !atexit(at_exit))
		return 0;
	ki_mutex_lock(&ki_cl_lock);
	is_hooked = 0;
	ki_mutex_unlock(&ki_cl_lock);
	return -1;
}

void ki_cl_background_add(struct ki_cl_program *program)
{
	/* As late as can be: before what the driver registered until now. */
	if (hook_exit())
		return;
	ki_mutex_lock(&ki_cl_lock);
	touched_ns = now_ns();
	if (n_waiting < WAITING_MAX && !is_stopping) {
		program->refs++;
		waiting[n_waiting++] = program;
		/* Under the lock, which it waits for: whoever ends it may find
		   it begun, or not, but not half. */
		if (!is_running)
			is_running = !ki_thread_start(&thread, work, NULL);
	}
	ki_mutex_unlock(&ki_cl_lock);
}

void ki_cl_background_touch(void)
{
	ki_mutex_lock(&ki_cl_lock);
	if (n_waiting)
		touched_ns = now_ns();
	ki_mutex_unlock(&ki_cl_lock);
}

void ki_cl_background_stop(void)
{
	uint64_t deadline = now_ns() + EXIT_NS_MAX;
	int may_join;

	ki_mutex_lock(&ki_cl_lock);
	is_stopping = 1;
	ki_cond_signal_all(&wake);
	while (current &&
	       !ki_cond_wait_until(&ki_cl_idle, &ki_cl_lock, deadline))
		;
	may_join = is_running && !current;
	is_running = 0;
	ki_mutex_unlock(&ki_cl_lock);
	if (may_join)
		ki_thread_join(&thread);
}

void ki_cl_background_forget(void)
{
	ki_cl_background_init();
	ki_mutex_lock(&ki_cl_lock);
	if (current)
		current->is_busy = KI_CL_IDLE;
	current = NULL;
	n_waiting = 0;
	is_running = 0;
	ki_mutex_unlock(&ki_cl_lock);
}
