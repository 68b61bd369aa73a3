/* SPDX-License-Identifier: MIT */

/*
 * zeModuleCreate: look up, else let the driver build.
 *
 *	found      the driver makes the module from the entry's binary; it is the
 *	           driver's own, and so is its log handle
 *	refused    entry dropped, the driver builds as if there were none
 *	not found  the driver builds; capture.c fetches and puts later
 *
 * Who comes for the same meanwhile waits: flight.c.  Next: key.c, log.c,
 * capture.c.
 */

#include "front/levelzero/ze.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The call, as the program made it. */
struct call {
	const struct ki_guest *guest;
	ze_context_handle_t context;
	ze_device_handle_t device;
	const ze_module_desc_t *desc;
	ze_module_handle_t *module;
	ze_module_build_log_handle_t *log; /* or NULL */
	struct ki_ze_recipe recipe;
	struct kiln_key *key;
	struct ki_ze_flight *flight; /* or NULL: nobody waits for this one */
	uint64_t began_ns;
};

static uint64_t now_ns(void)
{
	return ki_sys_posix.monotonic_ns(&ki_sys_posix);
}

static ze_result_t pass_on(const struct call *call)
{
	return ki_ze_next.module_create(call->context, call->device, call->desc,
					call->module, call->log);
}

/* ---- From an entry ------------------------------------------------------------ */

/* What says nothing of the binary, but of the moment. */
static int is_of_the_moment(ze_result_t result)
{
	return result == ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY ||
	       result == ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY ||
	       result == ZE_RESULT_ERROR_DEVICE_LOST ||
	       result == ZE_RESULT_ERROR_UNINITIALIZED;
}

/* Let the log say what the build said.  0, or -1. */
static int answer_log(ze_module_build_log_handle_t log,
		      const struct kiln_blob *metadata)
{
	size_t size, own_size = 0;
	const void *text;
	char *own;
	int is_same;

	if (!log || kiln_metadata_find(kiln_blob_data(metadata),
				       kiln_blob_size(metadata),
				       KILN_META_BUILD_LOG, &text, &size))
		return -1;
	own = ki_ze_log_text(log, &own_size);
	is_same = own && own_size == size && !memcmp(own, text, size);
	free(own);
	return is_same ? 0 : ki_ze_log_set(log, text, size);
}

static ze_result_t make(const struct call *call, const struct kiln_blob *value,
			ze_module_handle_t *module,
			ze_module_build_log_handle_t *log)
{
	char *flags = ki_ze_recipe_flags(&call->recipe);
	const ze_module_desc_t desc = {
		.stype = ZE_STRUCTURE_TYPE_MODULE_DESC,
		.format = ZE_MODULE_FORMAT_NATIVE,
		.inputSize = kiln_blob_size(value),
		.pInputModule = kiln_blob_data(value),
		.pBuildFlags = flags && *flags ? flags : NULL,
	};
	ze_result_t result = ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;

	if (flags)
		result = ki_ze_next.module_create(call->context, call->device,
						  &desc, module, log);
	free(flags);
	return result;
}

/* Whether the entry has become the program's module. */
static int use(const struct call *call, const struct kiln_blob *value,
	       const struct kiln_blob *metadata, int *out_is_refused)
{
	ze_module_build_log_handle_t log = NULL;
	ze_module_handle_t module = NULL;
	ze_result_t result;

	result = make(call, value, &module, call->log ? &log : NULL);
	*out_is_refused = result && !is_of_the_moment(result);
	if (!result && (!call->log || !answer_log(log, metadata))) {
		*call->module = module;
		if (call->log)
			*call->log = log;
		return 1;
	}
	if (!result)
		(void)ki_ze_next.module_destroy(module);
	if (log)
		(void)ki_ze_log_destroy(log);
	return 0;
}

static void end_flight(struct call *call)
{
	ki_ze_flight_end(call->flight);
	call->flight = NULL;
}

static enum kiln_counter why_new(const struct call *call)
{
	enum kiln_counter reason = KILN_COUNT_MISS_NEW;
	struct kiln_key *family = NULL;

	if (!ki_ze_family_key(call->key, &family))
		reason = ki_family_reason(call->guest->kiln, call->key, family);
	kiln_key_free(family);
	return reason;
}

static int find(struct call *call)
{
	struct kiln_blob *value = NULL, *metadata = NULL;
	enum kiln_counter outcome;
	int is_found = 0, is_refused;

	if (!kiln_find_entry(call->guest->kiln, call->key, &value, &metadata,
			     &outcome)) {
		end_flight(call);
		is_found = use(call, value, metadata, &is_refused);
		if (!is_found)
			outcome = KILN_COUNT_MISS_REFUSED;
		if (!is_found && is_refused)
			(void)kiln_remove(call->guest->kiln, call->key);
	} else if (outcome == KILN_COUNT_MISS_NEW) {
		outcome = why_new(call);
	}
	kiln_count_lookup(call->guest->kiln, outcome, value, metadata);
	ki_guest_trace(call->guest, "levelzero", call->key,
		       is_found ? "hit" : kiln_counter_words(outcome),
		       call->began_ns, is_found ? value : NULL, metadata);
	kiln_blob_unref(value);
	kiln_blob_unref(metadata);
	return is_found;
}

/* ---- The driver's build ------------------------------------------------------- */

static void add_directory(struct kiln_metadata *metadata)
{
	char *directory = getcwd(NULL, 0);

	if (directory)
		kiln_metadata_add_string(metadata, KILN_META_DIRECTORY,
					 directory);
	free(directory);
}

static struct kiln_metadata *describe(const struct call *call, const char *log,
				      size_t log_size, uint64_t build_ns)
{
	struct kiln_metadata *metadata = kiln_metadata_new();
	char *flags = ki_ze_recipe_flags(&call->recipe);
	char application[KI_PATH_MAX];
	struct ki_bytes environment;

	ki_bytes_init(&environment);
	ki_ze_environment(&environment);
	kiln_metadata_add_string(metadata, KILN_META_FRONT, "levelzero");
	kiln_metadata_add_u64(
		metadata, KILN_META_CREATED,
		(uint64_t)ki_sys_posix.realtime_ns(&ki_sys_posix) / 1000000000);
	kiln_metadata_add_u64(metadata, KILN_META_BUILD_TIME, build_ns);
	kiln_metadata_add_string(metadata, KILN_META_OPTIONS,
				 flags ? flags : "");
	kiln_metadata_add(metadata, KILN_META_BUILD_LOG, log, log_size);
	kiln_metadata_add(metadata, KILN_META_ENVIRONMENT, environment.data,
			  environment.size);
	add_directory(metadata);
	if (ki_executable(application) >= 0)
		kiln_metadata_add_string(metadata, KILN_META_APPLICATION,
					 application);
	if (*call->guest->name_space)
		kiln_metadata_add_string(metadata, KILN_META_NAMESPACE,
					 call->guest->name_space);
	ki_bytes_fini(&environment);
	free(flags);
	return metadata;
}

static void count_build(const struct call *call, uint64_t build_ns,
			ze_result_t result)
{
	struct kiln *kiln = call->guest->kiln;

	kiln_count(kiln, KILN_COUNT_BUILDS, 1);
	kiln_count(kiln, KILN_COUNT_BUILD_NS, build_ns);
	if (result)
		kiln_count(kiln, KILN_COUNT_BUILD_FAILURES, 1);
}

/* The log is asked for in any case: a later program may want it. */
static ze_result_t build(struct call *call)
{
	ze_module_build_log_handle_t own = NULL;
	ze_module_build_log_handle_t *log = call->log ? call->log : &own;
	struct kiln_metadata *metadata = NULL;
	uint64_t began_ns = now_ns(), build_ns;
	ze_result_t result;
	size_t size = 0;
	char *text;

	kiln_note_build(call->guest->kiln, 1);
	result = ki_ze_next.module_create(call->context, call->device,
					  call->desc, call->module, log);
	build_ns = now_ns() - began_ns;
	kiln_note_build(call->guest->kiln, 0);
	count_build(call, build_ns, result);
	text = result ? NULL : ki_ze_log_text(*log, &size);
	if (text)
		metadata = describe(call, text, size, build_ns);
	free(text);
	if (own)
		(void)ki_ze_next.log_destroy(own);
	if (metadata) {
		ki_ze_capture(call->guest, call->context, *call->module,
			      call->key, metadata, call->flight);
		call->flight = NULL;
	}
	return result;
}

/* ---- The call ------------------------------------------------------------------ */

/* Arguments with which a driver may succeed; the others are its to refuse. */
static int is_plain(const struct call *call)
{
	return call->context && call->device && call->desc && call->module &&
	       ki_ze_next.log_string && ki_ze_next.log_destroy;
}

/* Whether there may be an entry. */
static int plan(struct call *call)
{
	const char *why = "";
	enum kiln_status status = ki_ze_recipe(call->desc, &call->recipe, &why);

	if (!status)
		status = ki_ze_key(&call->recipe, call->device, &call->key,
				   &why);
	if (!status)
		return 1;
	kiln_count(call->guest->kiln, KILN_COUNT_MISS_UNSUPPORTED, 1);
	ki_guest_trace(call->guest, "levelzero", NULL, why, call->began_ns,
		       NULL, NULL);
	return 0;
}

ze_result_t ZE_APICALL ki_ze_module_create(
	ze_context_handle_t context, ze_device_handle_t device,
	const ze_module_desc_t *desc, ze_module_handle_t *out_module,
	ze_module_build_log_handle_t *out_log)
{
	struct call call = {
		.guest = ki_ze_is_child() ? NULL : ki_guest(NULL),
		.context = context,
		.device = device,
		.desc = desc,
		.module = out_module,
		.log = out_log,
		.began_ns = now_ns(),
	};
	ze_result_t result = ZE_RESULT_SUCCESS;

	if (!call.guest || !is_plain(&call))
		return pass_on(&call);
	if (!plan(&call)) {
		result = pass_on(&call);
	} else {
		call.flight = ki_ze_flight_begin(call.guest, call.key);
		if (!find(&call))
			result = build(&call);
		end_flight(&call);
	}
	kiln_key_free(call.key);
	ki_ze_recipe_fini(&call.recipe);
	return result;
}
