/* SPDX-License-Identifier: MIT */

/*
 * One try, in a process of its own: the job's environment and directory are
 * this process's, limits are set.
 *
 *	load the OpenCL loader, find the driver
 *	find devices that give exactly the key's device fields, in order; where
 *	a device was split, split one here
 *	compute the key: it must be the job's, byte for byte
 *	build, compile or link
 *	compute the key again: an include may have changed in between
 *	fetch, describe, answer
 *
 * A rebuild (ki_worker_make_again) takes the devices that are most like those of
 * the entry, and whatever key comes out.  It is answered before the build begins,
 * so that the worker knows what it was that did not end; after the build it must
 * be the same.
 *
 * It ends by _exit(): what drivers do at exit is none of our business.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <kiln/inspect.h>

#include "base/hash.h"
#include "front/opencl/capture.h"
#include "front/opencl/key.h"
#include "front/opencl/produce.h"
#include "loader.h"
#include "plan.h"
#include "worker.h"

/* How like a device must be to the entry's, by its fields of the key. */
enum likeness { SAME, SAME_NAME, SAME_TYPE, N_LIKENESSES };

struct make {
	const struct ki_cl_job *job;
	const struct ki_item *item; /* of a rebuild, or NULL */
	int answer_fd;
	enum likeness likeness;
	struct kiln_key *key; /* of a rebuild, before the build */
	const void *wanted;   /* the record that the key must have */
	size_t wanted_size;
	struct ki_cl_recipe *empty; /* of an empty source */
	cl_icd_dispatch calls;
	struct ki_cl_identities *identities;
	cl_platform_id platform;
	cl_device_id *devices; /* job->n_devices of them */
	uint64_t stamp;	       /* of the include files, before the build */
	struct ki_answer answer;
};

/* The first reason to be found stays. */
static int give_up(struct make *make, enum ki_verdict verdict, const char *text)
{
	make->answer.verdict = verdict;
	snprintf(make->answer.text, sizeof(make->answer.text), "%s", text);
	return 0;
}

static struct ki_cl_recipe *recipe_of_nothing(void)
{
	static const char *const strings[] = { "" };
	struct ki_cl_source *source = ki_cl_source_new(1, strings, NULL);
	struct ki_cl_recipe *recipe = NULL;

	if (source)
		recipe = ki_cl_recipe_build(source, NULL, 0, "");
	ki_cl_source_unref(source);
	return recipe;
}

static int load(struct make *make)
{
	const char *why;

	if (ki_worker_load(&make->calls, &why))
		return give_up(make, KI_VERDICT_ABSENT, why);
	make->identities = ki_cl_identities_new(&make->calls);
	make->empty = recipe_of_nothing();
	return make->identities && make->empty
		       ? 1
		       : give_up(make, KI_VERDICT_WORKER, "memory");
}

/* ---- Devices ----------------------------------------------------------- */

static int is_device_field(const struct kiln_field *field)
{
	static const char prefix[] = "device ";

	return field->label_size >= sizeof(prefix) - 1 &&
	       !memcmp(field->label, prefix, sizeof(prefix) - 1);
}

static int next_device_field(const void *record, size_t size, size_t *position,
			     struct kiln_field *out_field)
{
	while (!kiln_record_next(record, size, position, out_field)) {
		if (is_device_field(out_field))
			return 1;
	}
	return 0;
}

static int equal_fields(const struct kiln_field *a, const struct kiln_field *b)
{
	return a->kind == b->kind && a->local == b->local &&
	       a->label_size == b->label_size && a->size == b->size &&
	       a->original_size == b->original_size &&
	       !memcmp(a->label, b->label, a->label_size) &&
	       (!a->size || !memcmp(a->data, b->data, a->size));
}

/* Whether the wanted record's device fields begin with those of `key`. */
static int begins_with_devices_of(const struct ki_cl_job *job,
				  const struct kiln_key *key)
{
	size_t size, position = 0, wanted_position = 0;
	const void *record = kiln_key_record(key, &size);
	struct kiln_field field, wanted;

	while (next_device_field(record, size, &position, &field)) {
		if (!next_device_field(job->record, job->record_size,
				       &wanted_position, &wanted) ||
		    !equal_fields(&field, &wanted))
			return 0;
	}
	return wanted_position > 0;
}

/* Of the last device of these. */
static int has_same_field(const struct ki_cl_job *job,
			  const struct kiln_key *key, cl_uint n_devices,
			  const char *what)
{
	struct kiln_field field, wanted;
	char label[64];
	size_t size;
	const void *record = kiln_key_record(key, &size);

	snprintf(label, sizeof(label), "device %u %s", n_devices - 1, what);
	return !kiln_record_find(record, size, label, &field) &&
	       !kiln_record_find(job->record, job->record_size, label,
				 &wanted) &&
	       equal_fields(&field, &wanted);
}

static int is_like(const struct make *make, const struct kiln_key *key,
		   cl_uint n_devices)
{
	const char *what = make->likeness == SAME_NAME ? "name" : "vendor id";

	if (make->likeness == SAME)
		return begins_with_devices_of(make->job, key);
	return has_same_field(make->job, key, n_devices, "type") &&
	       has_same_field(make->job, key, n_devices, what);
}

/* Whether the first n devices chosen may be the job's; an empty source gives
   the same device fields as the real one. */
static int fits(struct make *make, cl_uint n_devices)
{
	struct ki_cl_build build = {
		.platform = make->platform,
		.devices = make->devices,
		.n_devices = n_devices,
		.recipe = make->empty,
	};
	struct kiln_key *key = NULL;
	enum kiln_counter reason;
	int result;

	if (ki_cl_key(make->identities, &build, &key, &reason))
		return 0;
	result = is_like(make, key, n_devices);
	kiln_key_free(key);
	return result;
}

static int is_chosen(const struct make *make, cl_uint n_chosen,
		     cl_device_id device)
{
	while (n_chosen) {
		if (make->devices[--n_chosen] == device)
			return 1;
	}
	return 0;
}

/*
 * Devices of equal identity are as good as each other, so the first that fits
 * in each place is right.
 */
static int choose(struct make *make, const cl_device_id *all, cl_uint n_all)
{
	cl_uint n, i;

	for (n = 0; n < make->job->n_devices; n++) {
		for (i = 0; i < n_all; i++) {
			if (is_chosen(make, n, all[i]))
				continue;
			make->devices[n] = all[i];
			if (fits(make, n + 1))
				break;
		}
		if (i == n_all)
			return 0;
	}
	return 1;
}

static int all_are_processors(const struct make *make)
{
	cl_uint i;

	for (i = 0; i < make->job->n_devices; i++) {
		cl_device_type type = 0;

		(void)make->calls.clGetDeviceInfo(make->devices[i],
						  CL_DEVICE_TYPE, sizeof(type),
						  &type, NULL);
		if (!(type & CL_DEVICE_TYPE_CPU))
			return 0;
	}
	return 1;
}

/* Sub-devices are like their device but for their number of units: as many of
   each as are wanted, behind the n devices that there are.  They live until
   the process ends. */
static cl_uint split(struct make *make, cl_device_id *all, cl_uint n)
{
	static const cl_device_partition_property how[] = {
		CL_DEVICE_PARTITION_EQUALLY, 1, 0
	};
	cl_uint n_wanted = make->job->n_devices, n_all = n, i, n_parts;

	for (i = 0; i < n; i++) {
		cl_device_id *parts;

		n_parts = 0;
		(void)make->calls.clGetDeviceInfo(
			all[i], CL_DEVICE_PARTITION_MAX_SUB_DEVICES,
			sizeof(n_parts), &n_parts, NULL);
		if (n_parts < 2 ||
		    make->calls.clCreateSubDevices(all[i], how, 0, NULL,
						   &n_parts) ||
		    !n_parts)
			continue;
		parts = calloc(n_parts, sizeof(*parts));
		if (parts && !make->calls.clCreateSubDevices(
				     all[i], how, n_parts, parts, NULL)) {
			if (n_parts > n_wanted)
				n_parts = n_wanted;
			memcpy(all + n_all, parts, n_parts * sizeof(*parts));
			n_all += n_parts;
		}
		free(parts);
	}
	return n_all;
}

/* The most like ones, for a rebuild: those of another driver have other
   versions, and other names perhaps. */
static int choose_like(struct make *make, const cl_device_id *all,
		       cl_uint n_all)
{
	for (make->likeness = SAME;; make->likeness++) {
		if (choose(make, all, n_all))
			return 1;
		if (!make->item || make->likeness == N_LIKENESSES - 1)
			return 0;
	}
}

static int find_devices(struct make *make)
{
	cl_uint n = 0, n_wanted = make->job->n_devices;
	cl_device_id *all;
	int found;

	if (make->calls.clGetDeviceIDs(make->platform, CL_DEVICE_TYPE_ALL, 0,
				       NULL, &n) ||
	    !n)
		return give_up(make, KI_VERDICT_CHANGED, "device: none here");
	all = calloc((size_t)n * (n_wanted + 1), sizeof(cl_device_id));
	make->devices = calloc(n_wanted, sizeof(cl_device_id));
	found = all && make->devices &&
		!make->calls.clGetDeviceIDs(make->platform, CL_DEVICE_TYPE_ALL,
					    n, all, NULL) &&
		(choose_like(make, all, n) ||
		 choose_like(make, all, split(make, all, n)));
	free(all);
	if (!found)
		return give_up(make, KI_VERDICT_CHANGED,
			       "device: none here is the same");
	if (!all_are_processors(make))
		return give_up(make, KI_VERDICT_DEVICE,
			       "no worker builds for devices other than CPUs");
	return 1;
}

/* ---- The key ----------------------------------------------------------- */

/* The label of the first field that differs. */
static int explain_change(struct make *make, const struct kiln_key *key)
{
	size_t size, position = 0, wanted_position = 0;
	const void *record = kiln_key_record(key, &size);
	struct kiln_field field, wanted;
	char label[KILN_LABEL_BYTES_MAX + 1];

	while (!kiln_record_next(make->wanted, make->wanted_size,
				 &wanted_position, &wanted)) {
		if (kiln_record_next(record, size, &position, &field) ||
		    !equal_fields(&field, &wanted)) {
			memcpy(label, wanted.label, wanted.label_size);
			label[wanted.label_size] = '\0';
			return give_up(make, KI_VERDICT_CHANGED, label);
		}
	}
	return give_up(make, KI_VERDICT_CHANGED, "more fields than before");
}

/*
 * A compiler's library that is loaded only in the build may turn out to be
 * another than the key says.  Not the job's fault: it is tried once more.
 */
static int check_platform(struct make *make)
{
	const char *why = "";

	if (ki_cl_platform_status(make->identities, make->platform, &why))
		return give_up(make, KI_VERDICT_WORKER, why);
	return 1;
}

static int is_among(const uint8_t *digests, size_t n, const uint8_t *digest)
{
	size_t i;

	for (i = 0; i < n; i++)
		if (!memcmp(digests + i * KILN_DIGEST_BYTES, digest,
			    KILN_DIGEST_BYTES))
			return 1;
	return 0;
}

/*
 * The first key of a rebuild is the one that is wanted from then on, if it is
 * wanted at all.  Whether it is only asked for by digest is no matter: nothing is
 * used that is not compared as a whole.
 */
static int want_key(struct make *make, struct kiln_key *key)
{
	const struct ki_item *item = make->item;
	uint8_t digest[KILN_DIGEST_BYTES];
	struct ki_answer early = { .verdict = KI_VERDICT_BUILDING,
				   .text = "it ended in its build" };

	make->key = kiln_key_ref(key);
	make->wanted = kiln_key_record(key, &make->wanted_size);
	ki_xxh3_128(make->wanted, make->wanted_size, digest);
	if (is_among(item->known, item->n_known, digest))
		return give_up(make, KI_VERDICT_CURRENT, "");
	make->answer.record = early.record = make->wanted;
	make->answer.record_size = early.record_size = make->wanted_size;
	if (is_among(item->denied, item->n_denied, digest))
		return give_up(make, KI_VERDICT_DENIED, "");
	return !ki_answer_write(make->answer_fd, &early)
		       ? 1
		       : give_up(make, KI_VERDICT_WORKER, "no memory");
}

/* On success the answer's record is the wanted one, computed here. */
static int check_key(struct make *make)
{
	const struct ki_cl_job *job = make->job;
	uint64_t stamp = 0;
	struct ki_cl_build build = {
		.platform = make->platform,
		.devices = make->devices,
		.n_devices = job->n_devices,
		.out_stamp = &stamp,
		.recipe = job->recipe,
	};
	struct kiln_key *key = NULL;
	enum kiln_counter reason;
	int is_first = !make->answer.record, equal;
	const void *record;
	size_t size;

	if (ki_cl_key(make->identities, &build, &key, &reason))
		return give_up(make, KI_VERDICT_CHANGED,
			       kiln_counter_words(reason));
	if (make->item && is_first && !want_key(make, key)) {
		kiln_key_free(key);
		return 0;
	}
	record = kiln_key_record(key, &size);
	equal = size == make->wanted_size &&
		!memcmp(record, make->wanted, size);
	if (!equal) {
		(void)explain_change(make, key);
	} else if (!is_first && stamp != make->stamp) {
		/* Written to and back again: not the job's fault. */
		equal = give_up(make, KI_VERDICT_WORKER,
				"an include was written to meanwhile");
	} else {
		make->answer.record = make->wanted;
		make->answer.record_size = size;
		make->stamp = stamp;
	}
	kiln_key_free(key);
	return equal;
}

/* ---- Building ---------------------------------------------------------- */

static int explain_failure(struct make *make, cl_program program, cl_int err)
{
	char log[sizeof(make->answer.text)] = "";
	size_t size = 0;

	if (program)
		(void)make->calls.clGetProgramBuildInfo(
			program, make->devices[0], CL_PROGRAM_BUILD_LOG, 0,
			NULL, &size);
	if (size > 1) {
		char *whole = calloc(1, size + 1);

		if (whole && !make->calls.clGetProgramBuildInfo(
				     program, make->devices[0],
				     CL_PROGRAM_BUILD_LOG, size, whole, NULL))
			snprintf(log, sizeof(log), "%d: %.300s", err, whole);
		free(whole);
	}
	if (!*log)
		snprintf(log, sizeof(log), "%d", err);
	return give_up(make, KI_VERDICT_BUILD, log);
}

static void add_metadata(const struct ki_cl_job *job,
			 struct kiln_metadata *metadata)
{
	const struct ki_sys *sys = &ki_sys_posix;
	struct ki_bytes environment;
	uint32_t i;

	kiln_metadata_add_u64(metadata, KILN_META_CREATED,
			      sys->realtime_ns(sys) / 1000000000);
	kiln_metadata_add_u64(metadata, KILN_META_BUILD_TIME, job->build_ns);
	kiln_metadata_add_string(metadata, KILN_META_OPTIONS,
				 job->recipe->options);
	kiln_metadata_add_string(metadata, KILN_META_DIRECTORY, job->directory);
	kiln_metadata_add_string(metadata, KILN_META_APPLICATION,
				 job->application);
	if (*job->name_space)
		kiln_metadata_add_string(metadata, KILN_META_NAMESPACE,
					 job->name_space);
	ki_bytes_init(&environment);
	for (i = 0; i < job->n_environment; i++)
		ki_bytes_add(&environment, job->environment[i],
			     strlen(job->environment[i]) + 1);
	if (!environment.failed)
		kiln_metadata_add(metadata, KILN_META_ENVIRONMENT,
				  environment.data, environment.size);
	ki_bytes_fini(&environment);
}

/* What the answer points to lives until the process ends. */
static int fetch(struct make *make, cl_program program)
{
	static struct ki_bytes value;
	struct kiln_metadata *metadata = kiln_metadata_new();
	cl_uint n_devices = make->job->n_devices;
	enum kiln_status status;

	ki_bytes_init(&value);
	status = ki_cl_fetch(&make->calls, program, make->devices, n_devices,
			     &value);
	if (status)
		return give_up(make, KI_VERDICT_FETCH,
			       kiln_status_name(status));
	status = ki_cl_describe(&make->calls, program, make->devices, n_devices,
				metadata);
	if (status && status != KILN_E_UNSUPPORTED)
		return give_up(make, KI_VERDICT_FETCH,
			       kiln_status_name(status));
	add_metadata(make->job, metadata);
	status = kiln_metadata_bytes(metadata, &make->answer.metadata,
				     &make->answer.metadata_size);
	if (status)
		return give_up(make, KI_VERDICT_FETCH,
			       kiln_status_name(status));
	make->answer.value = value.data;
	make->answer.value_size = value.size;
	return 1;
}

static int build(struct make *make)
{
	const struct ki_cl_job *job = make->job;
	cl_context_properties properties[] = {
		CL_CONTEXT_PLATFORM, (cl_context_properties)make->platform, 0
	};
	cl_program program;
	cl_context context;
	cl_int err;

	context = make->calls.clCreateContext(properties, job->n_devices,
					      make->devices, NULL, NULL, &err);
	if (!context)
		return give_up(make, KI_VERDICT_BUILD, "no context");
	program = ki_cl_produce(&make->calls, make->platform, job->recipe,
				context, make->devices, job->n_devices, &err);
	if (err)
		return explain_failure(make, program, err);
	if (!program)
		return give_up(make, KI_VERDICT_BUILD, "no program");
	return check_platform(make) && check_key(make) && fetch(make, program);
}

/* ---- The platform ------------------------------------------------------ */

static int try_platform(struct make *make)
{
	if (!ki_cl_driver(make->identities, make->platform)->worker_may_build)
		return give_up(make, KI_VERDICT_DRIVER,
			       "no worker builds with this driver");
	return check_platform(make) && find_devices(make) && check_key(make) &&
	       build(make);
}

static int is_driver_of_job(struct make *make)
{
	return !strcmp(ki_cl_driver(make->identities, make->platform)->name,
		       make->job->driver);
}

static int has_includes(const struct ki_cl_job *job)
{
	struct kiln_field field;
	size_t position = 0;

	while (!kiln_record_next(job->record, job->record_size, &position,
				 &field))
		if (ki_field_begins(&field, "include "))
			return 1;
	return 0;
}

/* What includes nothing is the same from anywhere: the key does not have the
   directory, and is computed here all the same. */
static int enter_directory(struct make *make)
{
	const struct ki_cl_job *job = make->job;

	if (!chdir(job->directory) || (!has_includes(job) && !chdir("/")))
		return 1;
	return give_up(make, KI_VERDICT_DIRECTORY, job->directory);
}

static int make_job(struct make *make)
{
	cl_platform_id platforms[64];
	cl_uint n_platforms = 0, i;

	if (!enter_directory(make))
		return 0;
	if (!load(make))
		return 0;
	if (make->calls.clGetPlatformIDs(64, platforms, &n_platforms))
		n_platforms = 0;
	(void)give_up(make, KI_VERDICT_ABSENT, "this driver is not here");
	for (i = 0; i < n_platforms && i < 64; i++) {
		make->platform = platforms[i];
		if (is_driver_of_job(make) && try_platform(make))
			return 1;
	}
	return 0;
}

static int answer(struct make *make, int fd)
{
	(void)prctl(PR_SET_NAME, "kiln-worker");
	make->answer_fd = fd;
	make->wanted = make->job->record;
	make->wanted_size = make->job->record_size;
	if (make_job(make)) {
		make->answer.verdict = KI_VERDICT_MADE;
		make->answer.text[0] = '\0';
	}
	return ki_answer_write(fd, &make->answer) ? EXIT_FAILURE : EXIT_SUCCESS;
}

int ki_worker_make(const char *path, int fd)
{
	static struct make make;
	struct ki_cl_job_file *file;

	if (ki_cl_job_read(path, &file))
		return EXIT_FAILURE;
	make.job = ki_cl_job(file);
	return answer(&make, fd);
}

int ki_worker_make_again(int item_fd, int fd)
{
	static struct make make;
	static struct ki_item item;

	if (ki_item_read(item_fd, &item))
		return EXIT_FAILURE;
	(void)close(item_fd);
	make.item = &item;
	make.job = item.job;
	return answer(&make, fd);
}
