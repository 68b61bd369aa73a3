/* SPDX-License-Identifier: MIT */

/*
 * clBuildProgram.
 *
 *	key -> kiln_get_entry -> program from binary -> built: it answers for H
 *	 |          | no              | no, any reason
 *	 |          |                 +-> entry dropped
 *	 |          v                 v
 *	 +------> the driver builds H; a job asks kiln-worker for the binary
 *	no key
 *
 * A build that is not cached (another subset of devices, an include that
 * cannot be resolved, ...) is the driver's alone, and its reason is counted.
 * The driver's own checks stay in force: a call with arguments that it would
 * refuse is passed on, so that it does.
 */

#include "front/opencl/layer.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "front/opencl/capture.h"
#include "front/opencl/job.h"

/* What clBuildProgram was given. */
struct request {
	cl_program handle;
	cl_uint n_devices;
	const cl_device_id *devices;
	const char *options;
	void(CL_CALLBACK *notify)(cl_program program, void *user_data);
	void *user_data;
};

/* ---- The driver's build -------------------------------------------------------- */

/*
 * One build by the driver.  It ends once: in the driver's notification if
 * there is one, else when the call returns.
 */
struct run {
	/* Fixed from the start. */
	const struct ki_cl_guest *guest; /* or NULL */
	void(CL_CALLBACK *notify)(cl_program program, void *user_data);
	void *user_data;
	uint64_t began_ns;
	/* Atomic. */
	_Atomic int is_over;
	_Atomic int is_notified;
	/* Under the lock: whoever takes them out owns them. */
	struct ki_cl_program *program; /* one reference, or NULL */
	struct ki_cl_capture *capture; /* one reference, or NULL */
	unsigned refs;		       /* the call's, the driver's */
	struct run *next;	       /* among the refused */
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

static void add_variables(struct ki_bytes *bytes, const char *const *names)
{
	for (; names && *names; names++) {
		const char *value = ki_environment(*names);

		if (value) {
			ki_bytes_printf(bytes, "%s=%s", *names, value);
			ki_bytes_add_u8(bytes, 0);
		}
	}
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
		.n_devices = program->n_devices,
		.strings = program->strings,
		.lengths = program->lengths,
		.n_strings = program->n_strings,
		.options = capture->options,
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
	job.record = kiln_key_record(capture->key, &job.record_size);
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

static int fetch_is_cheap(const struct ki_cl_guest *guest,
			  cl_platform_id platform)
{
	return ki_cl_driver(guest->identities, platform)->fetch_is_cheap &&
	       !(ki_cl_platform_bits(platform) & KI_CL_FETCH_IS_SLOW);
}

/* A build worth keeping (taken over): nothing here asks for its binary. */
static void keep(const struct ki_cl_guest *guest, struct ki_cl_program *program,
		 struct ki_cl_capture *capture, uint64_t build_ns)
{
	const char *why;

	/* What the driver has loaded meanwhile may not be what was asked. */
	if (ki_cl_platform_status(guest->identities, program->platform, &why)) {
		ki_cl_capture_unref(capture);
		return;
	}
	capture->build_ns = build_ns;
	capture->created =
		ki_sys_posix.realtime_ns(&ki_sys_posix) / 1000000000u;
	if (guest->spool)
		write_job(guest, program, capture);
	ki_cl_program_capture(program, capture);
	if (fetch_is_cheap(guest, program->platform))
		ki_cl_background_add(program);
}

/* Whether all devices have it built. */
static int is_built(const struct ki_cl_program *program)
{
	cl_build_status status;
	cl_uint i;

	for (i = 0; i < program->n_devices; i++)
		if (ki_cl_next.clGetProgramBuildInfo(
			    program->handle, program->devices[i],
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

/* The end of a build, whoever sees it first. */
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
	has_failed = result || (run->notify && capture && !is_built(program));
	if (run->guest)
		count_build(run->guest, build_ns, has_failed);
	if (capture && !has_failed)
		keep(run->guest, program, capture, build_ns);
	else
		ki_cl_capture_unref(capture);
	ki_cl_program_unref(program);
}

static void CL_CALLBACK on_built(cl_program handle, void *arg)
{
	struct run *run = arg;

	if (atomic_exchange(&run->is_notified, 1))
		return;
	end_run(run, CL_SUCCESS);
	run->notify(handle, run->user_data);
	run_unref(run);
}

/* The driver failed, and may or may not notify still: the run waits for it
   where it can be found. */
static void park(struct run *run)
{
	ki_mutex_lock(&ki_cl_lock);
	run->refs++;
	run->next = refused;
	refused = run;
	ki_mutex_unlock(&ki_cl_lock);
}

/*
 * Whether a build that was refused leaves what was built before: its
 * arguments were wrong, so it never began.
 */
static int never_began(cl_int result)
{
	return result == CL_INVALID_VALUE || result == CL_INVALID_DEVICE ||
	       result == CL_INVALID_OPERATION || result == CL_INVALID_PROGRAM;
}

/* The shadow does not answer while the driver builds. */
static struct ki_cl_shadow *put_shadow_aside(struct ki_cl_program *program)
{
	struct ki_cl_shadow *shadow = program ? ki_cl_shadow_of(program) : NULL;

	if (shadow)
		ki_cl_program_shadow(program, NULL);
	return shadow;
}

static cl_int call_driver(const struct request *request, struct run *run)
{
	return ki_cl_next.clBuildProgram(
		request->handle, request->n_devices, request->devices,
		request->options, request->notify ? on_built : NULL,
		request->notify ? run : request->user_data);
}

/* Let the driver build: `capture` (taken over, may be NULL) is what may be
   kept of it, `program` may be unknown. */
static cl_int build_natively(const struct ki_cl_guest *guest,
			     struct ki_cl_program *program,
			     const struct request *request,
			     struct ki_cl_capture *capture)
{
	struct ki_cl_shadow *shadow;
	struct run *run = calloc(1, sizeof(*run));
	cl_int result;

	if (!run) {
		ki_cl_capture_unref(capture);
		return CL_OUT_OF_HOST_MEMORY;
	}
	if (program) {
		ki_cl_program_await(program);
		ki_cl_program_capture(program, NULL);
		ki_mutex_lock(&ki_cl_lock);
		program->refs++;
		program->n_runs++;
		ki_mutex_unlock(&ki_cl_lock);
	}
	shadow = put_shadow_aside(program);
	run->guest = guest;
	run->program = program;
	run->capture = capture;
	run->notify = request->notify;
	run->user_data = request->user_data;
	run->began_ns = now_ns();
	run->refs = request->notify ? 2 : 1;
	if (guest)
		kiln_note_build(guest->kiln, 1);

	result = call_driver(request, run);

	if (shadow && never_began(result))
		ki_cl_program_shadow(program, shadow);
	else
		ki_cl_shadow_unref(shadow);
	if (result || !request->notify)
		end_run(run, result);
	if (result && request->notify && !atomic_load(&run->is_notified))
		park(run);
	run_unref(run);
	return result;
}

int ki_cl_go_native(struct ki_cl_program *program)
{
	struct ki_cl_shadow *shadow = ki_cl_shadow_of(program);
	const struct ki_cl_guest *guest = ki_cl_guest();
	cl_int result;

	if (!shadow)
		return 0;
	if (guest)
		kiln_note_build(guest->kiln, 1);
	result = ki_cl_next.clBuildProgram(program->handle, 0, NULL,
					   shadow->options, NULL, NULL);
	if (guest)
		kiln_note_build(guest->kiln, 0);
	if (!result)
		ki_cl_program_shadow(program, NULL);
	ki_cl_shadow_unref(shadow);
	return result ? -1 : 0;
}

/* ---- From an entry ---------------------------------------------------------------- */

/* Whether the options ask for what only the source can tell. */
static int wants_kernels(const char *options)
{
	static const char *const flags[] = { "-cl-kernel-arg-info", "-g" };
	size_t i, size;

	while (options && *options) {
		options += strspn(options, " \t\n\r\v\f");
		size = strcspn(options, " \t\n\r\v\f");
		for (i = 0; i < 2; i++)
			if (size == strlen(flags[i]) &&
			    !memcmp(options, flags[i], size))
				return 1;
		options += size;
	}
	return 0;
}

/* S, made from the entry's binaries; NULL if the driver will not. */
static cl_program load_binaries(const struct ki_cl_program *program,
				const void *value, size_t size)
{
	const unsigned char **binaries =
		calloc(program->n_devices, sizeof(*binaries));
	size_t *sizes = calloc(program->n_devices, sizeof(*sizes));
	cl_program loaded = NULL;
	cl_int result = CL_SUCCESS;

	if (!binaries || !sizes ||
	    ki_cl_unpack(value, size, program->n_devices, binaries, sizes))
		goto out;
	loaded = ki_cl_next.clCreateProgramWithBinary(
		program->context, program->n_devices, program->devices, sizes,
		binaries, NULL, &result);
	if (loaded && result) {
		(void)ki_cl_next.clReleaseProgram(loaded);
		loaded = NULL;
	}
out:
	free(binaries);
	free(sizes);
	return loaded;
}

static void describe_shadow(struct ki_cl_shadow *shadow,
			    struct kiln_blob *metadata)
{
	const void *bytes = kiln_blob_data(metadata);
	size_t size = kiln_blob_size(metadata);

	shadow->metadata = kiln_blob_ref(metadata);
	(void)kiln_metadata_find(bytes, size, KILN_META_BUILD_LOG,
				 &shadow->logs, &shadow->logs_size);
	(void)kiln_metadata_find(bytes, size, KILN_META_KERNELS,
				 &shadow->kernels, &shadow->kernels_size);
}

/* A built shadow with one reference; NULL if it cannot be had.  The options
   are copied first: nothing may fail once the driver has built. */
static struct ki_cl_shadow *make_shadow(const struct ki_cl_program *program,
					const char *options,
					struct kiln_blob *value,
					struct kiln_blob *metadata)
{
	struct ki_cl_shadow *shadow = calloc(1, sizeof(*shadow));
	size_t size = program->n_devices * sizeof(*shadow->devices);

	if (!shadow)
		return NULL;
	shadow->context = program->context;
	shadow->devices = malloc(size);
	shadow->options = options ? strdup(options) : NULL;
	if (!shadow->devices || (options && !shadow->options))
		goto failed;
	memcpy(shadow->devices, program->devices, size);
	shadow->n_devices = program->n_devices;
	shadow->program = load_binaries(program, kiln_blob_data(value),
					kiln_blob_size(value));
	if (!shadow->program)
		goto failed;
	if (ki_cl_next.clBuildProgram(shadow->program, shadow->n_devices,
				      shadow->devices, options, NULL, NULL)) {
		(void)ki_cl_next.clReleaseProgram(shadow->program);
		goto failed;
	}
	describe_shadow(shadow, metadata);
	ki_cl_shadow_add(shadow);
	return shadow;
failed:
	free(shadow->options);
	free(shadow->devices);
	free(shadow);
	return NULL;
}

static void trace(const struct ki_cl_guest *guest, const char *what,
		  const struct kiln_key *key, uint64_t began_ns)
{
	char hex[2 * KILN_DIGEST_BYTES + 1] = "-";

	if (!guest->trace)
		return;
	if (key)
		ki_hex(kiln_key_digest(key), KILN_DIGEST_BYTES, hex);
	ki_cl_log(guest, "opencl: %s %s %llu us", hex, what,
		  (unsigned long long)(now_ns() - began_ns) / 1000);
}

static uint64_t count_of(struct kiln *kiln, enum kiln_counter counter)
{
	struct kiln_stats stats;

	kiln_stats_init(&stats);
	return kiln_stats(kiln, &stats) ? 0 : stats.counters[counter];
}

/*
 * Why the key was not found: the first thing that differs from the latest
 * build of the same source.  What the library has counted by itself (the entry
 * is damaged, the store cannot be used) is not counted again.
 */
static enum kiln_counter count_miss(struct kiln *kiln,
				    const struct kiln_key *key,
				    uint64_t n_damaged)
{
	enum kiln_counter reason = KILN_COUNT_MISS_NEW;
	struct kiln_blob *record = NULL, *metadata = NULL;
	struct kiln_key *family = NULL;

	if (kiln_store_status(kiln) != KILN_OK)
		return KILN_COUNT_MISS_UNAVAILABLE;
	if (count_of(kiln, KILN_COUNT_MISS_DAMAGED) != n_damaged)
		return KILN_COUNT_MISS_DAMAGED;
	if (!ki_cl_family_key(key, &family) &&
	    !kiln_peek(kiln, family, &record, &metadata))
		reason = ki_cl_miss_reason(key, kiln_blob_data(record),
					   kiln_blob_size(record));
	kiln_count(kiln, reason, 1);
	kiln_blob_unref(record);
	kiln_blob_unref(metadata);
	kiln_key_free(family);
	return reason;
}

/* Look the key up and let what is found answer: CL_SUCCESS, or -1. */
static int build_from_entry(const struct ki_cl_guest *guest,
			    struct ki_cl_program *program,
			    const struct request *request,
			    const struct kiln_key *key, uint64_t began_ns)
{
	struct kiln_blob *value = NULL, *metadata = NULL;
	struct ki_cl_shadow *shadow = NULL;
	uint64_t n_damaged = count_of(guest->kiln, KILN_COUNT_MISS_DAMAGED);
	int result = -1;

	if (kiln_get_entry(guest->kiln, key, &value, &metadata)) {
		trace(guest,
		      kiln_counter_words(
			      count_miss(guest->kiln, key, n_damaged)),
		      key, began_ns);
		return -1;
	}
	if (wants_kernels(request->options)) {
		const void *kernels;
		size_t size;

		if (kiln_metadata_find(kiln_blob_data(metadata),
				       kiln_blob_size(metadata),
				       KILN_META_KERNELS, &kernels, &size)) {
			kiln_count(guest->kiln, KILN_COUNT_MISS_UNSUPPORTED, 1);
			trace(guest, "entry without kernels", key, began_ns);
			goto out;
		}
	}
	shadow = make_shadow(program, request->options, value, metadata);
	if (!shadow) {
		(void)kiln_remove(guest->kiln, key);
		kiln_count(guest->kiln, KILN_COUNT_MISS_REFUSED, 1);
		trace(guest, kiln_counter_words(KILN_COUNT_MISS_REFUSED), key,
		      began_ns);
		goto out;
	}
	ki_cl_program_capture(program, NULL);
	ki_cl_program_shadow(program, shadow);
	if (ki_cl_platform_bits(program->platform) & KI_CL_NO_SHADOWS)
		(void)ki_cl_go_native(program);
	trace(guest, "hit", key, began_ns);
	result = CL_SUCCESS;
out:
	kiln_blob_unref(value);
	kiln_blob_unref(metadata);
	return result;
}

/* ---- The call ---------------------------------------------------------------------- */

/* Arguments that any driver takes; the others are its to refuse. */
static int is_plain(const struct request *request)
{
	return !request->n_devices == !request->devices &&
	       (request->notify || !request->user_data);
}

enum coverage { ALL_DEVICES, SOME_DEVICES, FOREIGN_DEVICES };

static enum coverage coverage_of(const struct ki_cl_program *program,
				 const struct request *request)
{
	cl_uint i, j, n_found = 0;

	if (!request->n_devices)
		return ALL_DEVICES;
	for (i = 0; i < request->n_devices; i++) {
		for (j = 0; j < program->n_devices; j++)
			if (program->devices[j] == request->devices[i])
				break;
		if (j == program->n_devices)
			return FOREIGN_DEVICES;
	}
	for (j = 0; j < program->n_devices; j++)
		for (i = 0; i < request->n_devices; i++)
			if (program->devices[j] == request->devices[i]) {
				n_found++;
				break;
			}
	return n_found == program->n_devices ? ALL_DEVICES : SOME_DEVICES;
}

/* Count and trace a build that is the driver's alone. */
static void pass_over(const struct ki_cl_guest *guest, enum kiln_counter reason,
		      const char *why)
{
	kiln_count(guest->kiln, reason, 1);
	trace(guest, why ? why : kiln_counter_words(reason), NULL, now_ns());
}

enum kiln_status ki_cl_build_key(const struct ki_cl_guest *guest,
				 const struct ki_cl_program *program,
				 const char *options, struct kiln_key **out_key,
				 enum kiln_counter *out_reason)
{
	const struct ki_cl_build build = {
		.platform = program->platform,
		.devices = program->devices,
		.n_devices = program->n_devices,
		.strings = program->strings,
		.lengths = program->lengths,
		.n_strings = program->n_strings,
		.options = options ? options : "",
	};

	return ki_cl_key(guest->identities, &build, out_key, out_reason);
}

/* The key, or NULL after having counted why there is none. */
static struct kiln_key *key_of(const struct ki_cl_guest *guest,
			       const struct ki_cl_program *program,
			       const struct request *request)
{
	enum kiln_counter reason = KILN_COUNT_MISS_UNSUPPORTED;
	struct kiln_key *key = NULL;
	const char *why = NULL;

	if (ki_cl_platform_bits(program->platform) & KI_CL_NO_SHADOWS) {
		pass_over(guest, reason, "an unknown extension is in use");
		return NULL;
	}
	if (ki_cl_build_key(guest, program, request->options, &key, &reason)) {
		(void)ki_cl_platform_status(guest->identities,
					    program->platform, &why);
		pass_over(guest, reason, why);
		return NULL;
	}
	return key;
}

/* What to keep of a build, taken while its surroundings are those of its
   beginning; NULL without memory. */
static struct ki_cl_capture *capture_new(const struct ki_cl_guest *guest,
					 const struct ki_cl_program *program,
					 struct kiln_key *key,
					 const char *options)
{
	const struct ki_cl_driver *driver =
		ki_cl_driver(guest->identities, program->platform);
	struct ki_cl_capture *capture = calloc(1, sizeof(*capture));
	char directory[KI_PATH_MAX];

	if (!capture)
		return NULL;
	capture->refs = 1;
	capture->key = kiln_key_ref(key);
	capture->options = strdup(options ? options : "");
	capture->directory =
		strdup(getcwd(directory, sizeof(directory)) ? directory : "");
	ki_bytes_init(&capture->environment);
	add_variables(&capture->environment, driver->code_variables);
	add_variables(&capture->environment, driver->place_variables);
	add_variables(&capture->environment, ki_cl_loader_variables);
	add_variables(&capture->environment, ki_cl_loader_variables);
	if (!capture->options || !capture->directory ||
	    capture->environment.failed) {
		ki_cl_capture_unref(capture);
		return NULL;
	}
	return capture;
}

/* Whether kernels, or a build that still runs, stand in the way of a new one;
   the driver says so by itself, unless the kernels are of a shadow. */
static int is_in_use(struct ki_cl_program *program, int *out_of_shadow)
{
	int found;

	ki_mutex_lock(&ki_cl_lock);
	found = program->n_kernels || program->n_runs;
	*out_of_shadow = program->n_shadow_kernels != 0;
	ki_mutex_unlock(&ki_cl_lock);
	return found;
}

/* A subset of its devices: the rest keeps what it has, so the driver must have
   built it all. */
static cl_int build_subset(const struct ki_cl_guest *guest,
			   struct ki_cl_program *program,
			   const struct request *request)
{
	(void)ki_cl_go_native(program);
	ki_mutex_lock(&ki_cl_lock);
	program->native = 1;
	ki_mutex_unlock(&ki_cl_lock);
	return build_natively(guest, program, request, NULL);
}

static cl_int build_known(const struct ki_cl_guest *guest,
			  struct ki_cl_program *program,
			  const struct request *request)
{
	uint64_t began_ns = now_ns();
	enum coverage coverage;
	struct kiln_key *key;
	cl_int result;
	int of_shadow, is_native;

	if (!is_plain(request) || ki_cl_program_devices(program))
		return build_natively(guest, program, request, NULL);
	coverage = coverage_of(program, request);
	if (coverage == FOREIGN_DEVICES)
		return build_natively(guest, program, request, NULL);
	if (is_in_use(program, &of_shadow))
		return of_shadow
			       ? CL_INVALID_OPERATION
			       : build_natively(guest, program, request, NULL);
	ki_mutex_lock(&ki_cl_lock);
	is_native = program->native;
	ki_mutex_unlock(&ki_cl_lock);
	if (coverage == SOME_DEVICES || is_native) {
		pass_over(guest, KILN_COUNT_MISS_UNSUPPORTED,
			  "some of the devices");
		return build_subset(guest, program, request);
	}

	key = key_of(guest, program, request);
	if (!key)
		return build_natively(guest, program, request, NULL);
	result = build_from_entry(guest, program, request, key, began_ns);
	if (result)
		result = build_natively(
			guest, program, request,
			capture_new(guest, program, key, request->options));
	else if (request->notify)
		request->notify(request->handle, request->user_data);
	kiln_key_free(key);
	return result;
}

cl_int CL_API_CALL ki_clBuildProgram(
	cl_program handle, cl_uint num_devices, const cl_device_id *device_list,
	const char *options,
	void(CL_CALLBACK *pfn_notify)(cl_program program, void *user_data),
	void *user_data)
{
	const struct request request = {
		.handle = handle,
		.n_devices = num_devices,
		.devices = device_list,
		.options = options,
		.notify = pfn_notify,
		.user_data = user_data,
	};
	struct ki_cl_program *program = ki_cl_program_get(handle);
	const struct ki_cl_guest *guest = ki_cl_guest();
	cl_int result;

	if (program && guest) {
		result = build_known(guest, program, &request);
	} else {
		if (guest)
			pass_over(guest, KILN_COUNT_MISS_UNSUPPORTED, NULL);
		result = build_natively(guest, program, &request, NULL);
	}
	ki_cl_program_unref(program);
	return result;
}

/* ---- Not handled yet: compiling and linking ------------------------------------------ */

static void count_unsupported(void)
{
	const struct ki_cl_guest *guest = ki_cl_guest();

	if (guest)
		pass_over(guest, KILN_COUNT_MISS_UNSUPPORTED, NULL);
}

cl_int CL_API_CALL ki_clCompileProgram(
	cl_program handle, cl_uint num_devices, const cl_device_id *device_list,
	const char *options, cl_uint num_input_headers,
	const cl_program *input_headers, const char **header_include_names,
	void(CL_CALLBACK *pfn_notify)(cl_program program, void *user_data),
	void *user_data)
{
	struct ki_cl_program *program = ki_cl_program_get(handle);
	struct ki_cl_capture *capture = NULL;
	struct ki_cl_shadow *shadow = NULL;
	int of_shadow = 0;
	cl_int result = CL_INVALID_OPERATION;

	count_unsupported();
	if (program && is_in_use(program, &of_shadow) && of_shadow)
		goto out;
	if (program) {
		ki_cl_program_await(program);
		capture = ki_cl_capture_of(program);
		shadow = put_shadow_aside(program);
	}
	result = ki_cl_next.clCompileProgram(
		handle, num_devices, device_list, options, num_input_headers,
		input_headers, header_include_names, pfn_notify, user_data);
	if (shadow && never_began(result)) {
		ki_cl_program_shadow(program, shadow);
		shadow = NULL;
	} else if (capture && !never_began(result)) {
		ki_cl_program_captured(program, capture);
	}
out:
	ki_cl_capture_unref(capture);
	ki_cl_shadow_unref(shadow);
	ki_cl_program_unref(program);
	return result;
}

cl_program CL_API_CALL ki_clLinkProgram(
	cl_context context, cl_uint num_devices,
	const cl_device_id *device_list, const char *options,
	cl_uint num_input_programs, const cl_program *input_programs,
	void(CL_CALLBACK *pfn_notify)(cl_program program, void *user_data),
	void *user_data, cl_int *errcode_ret)
{
	cl_program linked;
	cl_uint i;

	count_unsupported();
	for (i = 0; input_programs && i < num_input_programs; i++) {
		struct ki_cl_program *program =
			ki_cl_program_get(input_programs[i]);

		if (program)
			(void)ki_cl_go_native(program);
		ki_cl_program_unref(program);
	}
	linked = ki_cl_next.clLinkProgram(
		context, num_devices, device_list, options, num_input_programs,
		input_programs, pfn_notify, user_data, errcode_ret);
	ki_cl_program_forget(linked);
	return linked;
}
