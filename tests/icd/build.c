/* SPDX-License-Identifier: MIT */

/*
 * Building, compiling and linking.  A call checks its arguments and marks its
 * devices IN_PROGRESS under the mutex; then the work is done, in the calling
 * thread or, with a callback and KILN_TEST_ICD_ASYNC, in one of its own.
 */

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "icd/icd.h"

typedef void(CL_CALLBACK notify_fn)(cl_program program, void *user_data);

struct job {
	cl_program program;
	cl_program_binary_type type;
	char *options;
	cl_uint n_indices;
	cl_uint indices[ICD_DEVICES_MAX];
	unsigned n_headers;
	struct icd_header *headers;
	notify_fn *notify;
	void *user_data;
};

static void job_free(struct job *job)
{
	for (unsigned i = 0; i < job->n_headers; i++) {
		free((char *)job->headers[i].name);
		free((char *)job->headers[i].text);
	}
	free(job->headers);
	free(job->options);
	icd_program_unref(job->program);
	free(job);
}

/* ---- The work ----------------------------------------------------------- */

static bool has_word(const char *options, const char *word)
{
	size_t length = strlen(word);

	for (const char *at = options; (at = strstr(at, word)); at += length)
		if ((at == options || at[-1] == ' ') &&
		    (!at[length] || at[length] == ' '))
			return true;
	return false;
}

/* The options, with what clSetProgramSpecializationConstant set before. */
static char *all_options(cl_program program, const char *options)
{
	struct icd_text text = { 0 };

	icd_text_puts(&text, "");
	pthread_mutex_lock(&icd_mutex);
	for (struct icd_constant *c = program->constants; c; c = c->next) {
		const struct icd_constant *newer = program->constants;
		while (newer->id != c->id)
			newer = newer->next;
		if (newer == c)
			icd_text_printf(&text, "-DSPEC_%u=%llu ", c->id,
					(unsigned long long)c->value);
	}
	pthread_mutex_unlock(&icd_mutex);
	icd_text_puts(&text, options);
	return text.data;
}

static struct icd_unit *from_source(const struct job *job, struct icd_text *log)
{
	struct icd_text text = { 0 };
	char *options = all_options(job->program, job->options);
	struct icd_unit *unit = NULL;
	cl_int status = CL_BUILD_PROGRAM_FAILURE;

	if (options)
		status = icd_preprocess(job->program->source, options,
					job->headers, job->n_headers, &text,
					log);
	if (icd_flag("CRASH_BUILDS", false))
		abort();
	if (icd_flag("EXIT_BUILDS", false))
		_exit(0);
	icd_hog("HOG_MIB");
	icd_wait_while("WAIT_WHILE");
	if (icd_flag("FAIL_BUILDS", false)) {
		icd_text_puts(log, "program: error: told to fail\n");
		status = CL_BUILD_PROGRAM_FAILURE;
	}
	if (!status)
		unit = icd_parse(text.data, job->type, log);
	if (unit)
		unit->tells_arguments =
			has_word(job->options, "-cl-kernel-arg-info") ||
			has_word(job->options, "-g");
	if (icd_flag("WARN", false))
		icd_text_puts(log, "program: warning: told to warn\n");
	if (unit && !icd_cache_built(unit))
		icd_delay("BUILD_MS");
	if (unit)
		icd_cache_add(unit, "");
	free(options);
	free(text.data);
	return unit;
}

static struct icd_unit *from_binary(struct icd_unit *given,
				    struct icd_text *log)
{
	if (icd_flag("FAIL_BINARY_BUILDS", false)) {
		icd_text_puts(log, "binary: error: told to fail\n");
		return NULL;
	}
	icd_delay("BINARY_BUILD_MS");
	return icd_unit_again(given);
}

static cl_int build_one(const struct job *job, cl_uint index)
{
	struct icd_build *build = &job->program->builds[index];
	struct icd_text log = { 0 };
	struct icd_unit *unit;

	unit = job->program->origin == ICD_BINARY
		       ? from_binary(build->given, &log)
		       : from_source(job, &log);
	pthread_mutex_lock(&icd_mutex);
	icd_unit_unref(build->unit);
	build->unit = unit;
	free(build->log);
	build->log = log.data;
	free(build->kept);
	build->kept = NULL;
	build->kept_size = 0;
	free(build->specialised);
	build->specialised = NULL;
	build->status = unit ? CL_BUILD_SUCCESS : CL_BUILD_ERROR;
	pthread_mutex_unlock(&icd_mutex);
	return unit ? CL_SUCCESS : CL_BUILD_PROGRAM_FAILURE;
}

static cl_int work(struct job *job)
{
	cl_int status = CL_SUCCESS;

	icd_delay("START_MS");
	for (cl_uint i = 0; i < job->n_indices; i++) {
		cl_int one = build_one(job, job->indices[i]);
		if (one)
			status = one;
	}
	if (job->notify)
		job->notify(job->program, job->user_data);
	job_free(job);
	return status;
}

static void *work_thread(void *arg)
{
	work(arg);
	return NULL;
}

static cl_int start(struct job *job)
{
	pthread_attr_t detached;
	pthread_t thread;
	int err;

	if (!job->notify || !icd_flag("ASYNC", false))
		return work(job);
	pthread_attr_init(&detached);
	pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
	err = pthread_create(&thread, &detached, work_thread, job);
	pthread_attr_destroy(&detached);
	return err ? work(job) : CL_SUCCESS;
}

/* ---- Checks ------------------------------------------------------------- */

static cl_int pick_devices(struct job *job, cl_uint n, const cl_device_id *list)
{
	cl_program program = job->program;

	if (!list != !n || n > ICD_DEVICES_MAX)
		return CL_INVALID_VALUE;
	if (!list) {
		n = program->n_devices;
		list = program->devices;
	}
	for (cl_uint i = 0; i < n; i++) {
		cl_uint at = 0;
		while (at < program->n_devices &&
		       program->devices[at] != list[i])
			at++;
		if (at == program->n_devices)
			return CL_INVALID_DEVICE;
		job->indices[job->n_indices++] = at;
	}
	return CL_SUCCESS;
}

/* Each device once, in the order of the call. */
static void note_last(struct job *job)
{
	cl_program program = job->program;

	program->n_last = 0;
	for (cl_uint i = 0; i < job->n_indices; i++) {
		cl_uint j = 0;
		while (j < program->n_last &&
		       program->last[j] != job->indices[i])
			j++;
		if (j == program->n_last)
			program->last[program->n_last++] = job->indices[i];
	}
}

/* Mark the devices, unless somebody uses the program. */
static cl_int mark(struct job *job)
{
	cl_program program = job->program;
	cl_int status = CL_SUCCESS;

	pthread_mutex_lock(&icd_mutex);
	if (program->n_kernels)
		status = CL_INVALID_OPERATION;
	for (cl_uint i = 0; i < job->n_indices; i++) {
		struct icd_build *build = &program->builds[job->indices[i]];
		if (build->status == CL_BUILD_IN_PROGRESS)
			status = CL_INVALID_OPERATION;
		else if (program->origin == ICD_BINARY && !build->given)
			status = CL_INVALID_BINARY;
	}
	if (!status)
		note_last(job);
	for (cl_uint i = 0; !status && i < job->n_indices; i++) {
		struct icd_build *build = &program->builds[job->indices[i]];
		build->status = CL_BUILD_IN_PROGRESS;
		free(build->options);
		build->options = strdup(job->options);
	}
	pthread_mutex_unlock(&icd_mutex);
	return status;
}

static cl_int check_options(const char *options, cl_int otherwise)
{
	struct icd_text text = { 0 }, log = { 0 };
	cl_int status = icd_preprocess("", options, NULL, 0, &text, &log);

	free(text.data);
	free(log.data);
	return status ? otherwise : CL_SUCCESS;
}

static struct job *job_new(cl_program program, cl_program_binary_type type,
			   const char *options)
{
	struct job *job = calloc(1, sizeof(*job));

	if (!job)
		return NULL;
	icd_ref(program);
	job->program = program;
	job->type = type;
	job->options = strdup(options ? options : "");
	return job;
}

/* ---- Build -------------------------------------------------------------- */

static const char *origin_name(cl_program program)
{
	return program->origin == ICD_BINARY ? "build-binary"
	       : program->origin == ICD_IL   ? "build-il"
					     : "build-source";
}

cl_int CL_API_CALL clBuildProgram(
	cl_program program, cl_uint n_devices, const cl_device_id *devices,
	const char *options,
	void(CL_CALLBACK *pfn_notify)(cl_program program, void *user_data),
	void *user_data)
{
	struct job *job;
	cl_int status;

	if (!icd_is(program, ICD_PROGRAM))
		return CL_INVALID_PROGRAM;
	if (!pfn_notify && user_data)
		return CL_INVALID_VALUE;
	if (program->origin == ICD_LINKED || program->origin == ICD_BUILT_IN)
		return CL_INVALID_OPERATION;
	job = job_new(program, CL_PROGRAM_BINARY_TYPE_EXECUTABLE, options);
	if (!job || !job->options)
		return CL_OUT_OF_HOST_MEMORY;
	job->notify = pfn_notify;
	job->user_data = user_data;
	status = pick_devices(job, n_devices, devices);
	if (!status)
		status = check_options(job->options, CL_INVALID_BUILD_OPTIONS);
	if (!status)
		status = mark(job);
	if (status) {
		job_free(job);
		return status;
	}
	icd_count("%s", origin_name(program));
	return start(job);
}

/* ---- Compile ------------------------------------------------------------ */

static cl_int take_headers(struct job *job, cl_uint n,
			   const cl_program *programs, const char **names)
{
	if ((n && (!programs || !names)) || (!n && (programs || names)))
		return CL_INVALID_VALUE;
	if (!n)
		return CL_SUCCESS;
	job->headers = calloc(n, sizeof(*job->headers));
	if (!job->headers)
		return CL_OUT_OF_HOST_MEMORY;
	for (cl_uint i = 0; i < n; i++) {
		if (!icd_is(programs[i], ICD_PROGRAM) ||
		    programs[i]->origin != ICD_SOURCE)
			return CL_INVALID_PROGRAM;
		if (!names[i])
			return CL_INVALID_VALUE;
		job->n_headers = i + 1;
		job->headers[i].name = strdup(names[i]);
		job->headers[i].text = strdup(programs[i]->source);
		if (!job->headers[i].name || !job->headers[i].text)
			return CL_OUT_OF_HOST_MEMORY;
	}
	return CL_SUCCESS;
}

cl_int CL_API_CALL clCompileProgram(
	cl_program program, cl_uint n_devices, const cl_device_id *devices,
	const char *options, cl_uint n_headers, const cl_program *headers,
	const char **names,
	void(CL_CALLBACK *pfn_notify)(cl_program program, void *user_data),
	void *user_data)
{
	struct job *job;
	cl_int status;

	if (!icd_is(program, ICD_PROGRAM))
		return CL_INVALID_PROGRAM;
	if (!pfn_notify && user_data)
		return CL_INVALID_VALUE;
	if (program->origin != ICD_SOURCE && program->origin != ICD_IL)
		return CL_INVALID_OPERATION;
	job = job_new(program, CL_PROGRAM_BINARY_TYPE_COMPILED_OBJECT, options);
	if (!job || !job->options)
		return CL_OUT_OF_HOST_MEMORY;
	job->notify = pfn_notify;
	job->user_data = user_data;
	status = pick_devices(job, n_devices, devices);
	if (!status)
		status = take_headers(job, n_headers, headers, names);
	if (!status)
		status = check_options(job->options,
				       CL_INVALID_COMPILER_OPTIONS);
	if (!status)
		status = mark(job);
	if (status) {
		job_free(job);
		return status;
	}
	icd_count("compile");
	status = start(job);
	return status == CL_BUILD_PROGRAM_FAILURE ? CL_COMPILE_PROGRAM_FAILURE
						  : status;
}

/* ---- Link --------------------------------------------------------------- */

/* What an input brings for a device; counted, NULL if nothing. */
static struct icd_unit *input_unit(cl_program input, cl_device_id device)
{
	struct icd_unit *unit = NULL;

	pthread_mutex_lock(&icd_mutex);
	for (cl_uint i = 0; i < input->n_devices; i++)
		if (input->devices[i] == device)
			unit = input->builds[i].unit ? input->builds[i].unit
						     : input->builds[i].given;
	if (unit && unit->type == CL_PROGRAM_BINARY_TYPE_EXECUTABLE)
		unit = NULL;
	if (unit && unit->from_binary && icd_flag("REFUSE_OBJECTS", false))
		unit = NULL;
	icd_unit_ref(unit);
	pthread_mutex_unlock(&icd_mutex);
	return unit;
}

static cl_int link_one(struct icd_build *build, cl_device_id device,
		       cl_program_binary_type type, cl_uint n,
		       const cl_program *inputs)
{
	struct icd_text text = { 0 }, log = { 0 };
	bool tells = false;
	cl_uint found = 0;

	for (cl_uint i = 0; i < n; i++) {
		struct icd_unit *unit = input_unit(inputs[i], device);
		if (!unit)
			continue;
		found++;
		tells |= unit->tells_arguments;
		icd_text_puts(&text, unit->text);
		icd_unit_unref(unit);
	}
	if (found == n && text.data)
		build->unit = icd_parse(text.data, type, &log);
	if (build->unit)
		build->unit->tells_arguments = tells;
	build->log = log.data;
	build->status = build->unit ? CL_BUILD_SUCCESS : CL_BUILD_ERROR;
	free(text.data);
	if (found < n)
		return CL_INVALID_OPERATION;
	return build->unit ? CL_SUCCESS : CL_LINK_PROGRAM_FAILURE;
}

static cl_program linked_new(cl_context context, cl_uint n,
			     const cl_device_id *devices, const char *options)
{
	cl_program program = icd_new(ICD_PROGRAM, sizeof(*program));
	cl_uint places[ICD_DEVICES_MAX];

	if (!program)
		return NULL;
	icd_ref(context);
	program->context = context;
	program->origin = ICD_LINKED;
	icd_program_take_devices(program, n, devices, places);
	for (cl_uint i = 0; i < n; i++)
		program->builds[i].options = strdup(options);
	icd_program_hold_devices(program);
	return program;
}

static cl_int check_link(cl_context context, cl_uint *n,
			 const cl_device_id **devices, cl_uint n_inputs,
			 const cl_program *inputs)
{
	if (!*devices != !*n || !n_inputs || !inputs)
		return CL_INVALID_VALUE;
	for (cl_uint i = 0; i < *n; i++)
		if (!icd_is((*devices)[i], ICD_DEVICE) ||
		    icd_context_find(context, (*devices)[i]) < 0)
			return CL_INVALID_DEVICE;
	for (cl_uint i = 0; i < n_inputs; i++)
		if (!icd_is(inputs[i], ICD_PROGRAM))
			return CL_INVALID_PROGRAM;
	if (!*devices) {
		*n = context->n_devices;
		*devices = context->devices;
	}
	return CL_SUCCESS;
}

cl_program CL_API_CALL clLinkProgram(
	cl_context context, cl_uint n_devices, const cl_device_id *devices,
	const char *options, cl_uint n_inputs, const cl_program *inputs,
	void(CL_CALLBACK *pfn_notify)(cl_program program, void *user_data),
	void *user_data, cl_int *errcode_ret)
{
	cl_program_binary_type type = CL_PROGRAM_BINARY_TYPE_EXECUTABLE;
	cl_program program = NULL;
	cl_int status, one, unused;

	if (!errcode_ret)
		errcode_ret = &unused;
	if (!options)
		options = "";
	*errcode_ret = CL_INVALID_CONTEXT;
	if (!icd_is(context, ICD_CONTEXT))
		return NULL;
	*errcode_ret = CL_INVALID_VALUE;
	if (!pfn_notify && user_data)
		return NULL;
	status = check_link(context, &n_devices, &devices, n_inputs, inputs);
	if (!status)
		status = check_options(options, CL_INVALID_LINKER_OPTIONS);
	if (has_word(options, "-create-library"))
		type = CL_PROGRAM_BINARY_TYPE_LIBRARY;
	if (!status)
		program = linked_new(context, n_devices, devices, options);
	if (!status && !program)
		status = CL_OUT_OF_HOST_MEMORY;
	*errcode_ret = status;
	if (status)
		return NULL;
	icd_count("link");
	icd_delay("LINK_MS");
	for (cl_uint i = 0; i < n_devices; i++) {
		one = link_one(&program->builds[i], program->devices[i], type,
			       n_inputs, inputs);
		if (one && !status)
			status = one;
	}
	*errcode_ret = status;
	if (status == CL_INVALID_OPERATION) {
		icd_program_unref(program);
		return NULL;
	}
	if (pfn_notify)
		pfn_notify(program, user_data);
	return program;
}

cl_int CL_API_CALL clUnloadPlatformCompiler(cl_platform_id platform)
{
	icd_count("unload-compiler");
	return icd_is(platform, ICD_PLATFORM) ? CL_SUCCESS
					      : CL_INVALID_PLATFORM;
}

cl_int CL_API_CALL clUnloadCompiler(void)
{
	icd_count("unload-compiler");
	return CL_SUCCESS;
}
