/* SPDX-License-Identifier: MIT */

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "harness/harness.h"

#include "base/bytes.h"
#include "base/hash.h"
#include "front/opencl/job.h"
#include "front/opencl/tags.h"

static const char *const strings[] = { "kernel void k(", "global int *p) {}",
				       "" };
static const size_t lengths[] = { 14, 17, 0 };
static const char *const environment[] = { "POCL_DEVICES=pthread", "A=" };

/* Of all tests, until the last has ended. */
static struct ki_cl_recipe *recipes[1024];
static size_t n_recipes;
static pthread_mutex_t recipes_mutex = PTHREAD_MUTEX_INITIALIZER;

static struct ki_cl_recipe *keep(struct ki_cl_recipe *recipe)
{
	pthread_mutex_lock(&recipes_mutex);
	if (!recipe || n_recipes == sizeof(recipes) / sizeof(recipes[0]))
		abort();
	recipes[n_recipes++] = recipe;
	pthread_mutex_unlock(&recipes_mutex);
	return recipe;
}

static struct ki_cl_recipe *recipe_of(cl_uint n, const char *const *texts,
				      const size_t *sizes, const char *options)
{
	struct ki_cl_source *source = ki_cl_source_new(n, texts, sizes);
	struct ki_cl_recipe *recipe =
		ki_cl_recipe_build(source, NULL, 0, options);

	ki_cl_source_unref(source);
	return keep(recipe);
}

static struct ki_cl_recipe *il_of(enum ki_cl_recipe_kind kind)
{
	static const struct ki_cl_constant constants[] = {
		{ 7, 2, (const uint8_t *)"ab" },
		{ 3, 1, (const uint8_t *)"" },
	};
	struct ki_cl_source *source = ki_cl_source_new_il("\3\2\0il", 5);
	struct ki_cl_recipe *recipe =
		kind == KI_CL_BUILD
			? ki_cl_recipe_build(source, constants, 2, "-DIL")
			: ki_cl_recipe_compile(source, constants, 2, NULL, 0,
					       "-DIL");

	ki_cl_source_unref(source);
	return keep(recipe);
}

static struct ki_cl_recipe *object_of(void)
{
	struct ki_cl_source *source = ki_cl_source_new(3, strings, lengths);
	struct ki_cl_header headers[] = {
		{ "k.h", ki_cl_source_new(2, strings, lengths) },
		{ "k.h", source },
	};
	struct ki_cl_recipe *recipe =
		ki_cl_recipe_compile(source, NULL, 0, headers, 2, "-w");

	ki_cl_source_unref(headers[0].source);
	ki_cl_source_unref(source);
	return keep(recipe);
}

static struct ki_cl_recipe *link_of(struct ki_cl_recipe *a,
				    struct ki_cl_recipe *b, const char *options)
{
	const struct ki_cl_input inputs[] = { { .recipe = a },
					      { .recipe = b } };

	return keep(ki_cl_recipe_link(inputs, b ? 2 : 1, options));
}

static struct ki_cl_recipe *binary_of(int keeps)
{
	const unsigned char *binaries[] = { (const unsigned char *)"a\0b",
					    (const unsigned char *)"" };
	const size_t sizes[] = { 3, 0 };

	return keep(ki_cl_recipe_binary(binaries, sizes, 2, keeps, ""));
}

/* Something of every kind. */
static struct ki_cl_recipe *rich_recipe(void)
{
	struct ki_cl_recipe *library =
		link_of(object_of(), il_of(KI_CL_COMPILE), "-create-library");

	return link_of(library, binary_of(1), NULL);
}

static int free_recipes(void **state)
{
	while (n_recipes)
		ki_cl_recipe_unref(recipes[--n_recipes]);
	return 0;
}

static struct ki_cl_job job_of(const char *record)
{
	return (struct ki_cl_job){
		.record = record,
		.record_size = strlen(record),
		.platform_name = "Portable Computing Language",
		.driver = "pocl",
		.n_devices = 1,
		.recipe = recipe_of(3, strings, lengths,
				    "-cl-std=CL2.0 -DX=\"y z\""),
		.directory = "/somewhere",
		.environment = environment,
		.n_environment = 2,
		.application = "/usr/bin/app",
		.name_space = "",
		.created = 1700000000,
		.build_ns = 123456789,
		.stage = 1,
		.tries = 0,
		.writer_pid = 77,
		.writer_start = 777,
	};
}

static void free_paths(char **paths, size_t n_paths)
{
	while (n_paths)
		free(paths[--n_paths]);
	free(paths);
}

static size_t count_jobs(const char *spool)
{
	char **paths;
	size_t n_paths;

	assert_int_equal(ki_cl_jobs(spool, &paths, &n_paths), KILN_OK);
	free_paths(paths, n_paths);
	return n_paths;
}

static char *only_job(const char *spool)
{
	char **paths, *path;
	size_t n_paths;

	assert_int_equal(ki_cl_jobs(spool, &paths, &n_paths), KILN_OK);
	assert_int_equal(n_paths, 1);
	path = paths[0];
	free(paths);
	return path;
}

static unsigned count_names(const char *directory)
{
	const struct ki_sys *sys = &ki_sys_posix;
	struct ki_dir *dir;
	const char *name;
	unsigned n = 0;

	assert_int_equal(sys->opendir(sys, directory, &dir), 0);
	while (sys->readdir(sys, dir, &name) > 0)
		n++;
	sys->closedir(sys, dir);
	return n;
}

static void set_age(const char *path, int64_t seconds)
{
	struct timespec times[2];

	assert_int_equal(clock_gettime(CLOCK_REALTIME, &times[0]), 0);
	times[0].tv_sec -= seconds;
	times[1] = times[0];
	assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

/* ---- What is written is what is read ----------------------------------- */

static void assert_equal_sources(const struct ki_cl_source *a,
				 const struct ki_cl_source *b)
{
	cl_uint i;

	assert_int_equal(a->n_strings, b->n_strings);
	assert_int_equal(a->il_size, b->il_size);
	if (a->il)
		assert_memory_equal(a->il, b->il, a->il_size);
	for (i = 0; i < a->n_strings; i++) {
		assert_int_equal(a->lengths[i], b->lengths[i]);
		assert_memory_equal(a->strings[i], b->strings[i],
				    a->lengths[i] + 1);
	}
}

static void assert_equal_recipes(const struct ki_cl_recipe *a,
				 const struct ki_cl_recipe *b)
{
	cl_uint i;

	assert_int_equal(a->kind, b->kind);
	assert_string_equal(a->options, b->options);
	assert_int_equal(a->has_options, b->has_options);
	assert_int_equal(!a->source, !b->source);
	if (a->source)
		assert_equal_sources(a->source, b->source);
	assert_int_equal(a->n_constants, b->n_constants);
	for (i = 0; i < a->n_constants; i++) {
		assert_int_equal(a->constants[i].id, b->constants[i].id);
		assert_int_equal(a->constants[i].size, b->constants[i].size);
		assert_memory_equal(a->constants[i].value,
				    b->constants[i].value,
				    a->constants[i].size);
	}
	assert_int_equal(a->n_headers, b->n_headers);
	for (i = 0; i < a->n_headers; i++) {
		assert_string_equal(a->headers[i].name, b->headers[i].name);
		assert_equal_sources(a->headers[i].source,
				     b->headers[i].source);
	}
	assert_int_equal(a->n_inputs, b->n_inputs);
	for (i = 0; i < a->n_inputs; i++)
		assert_equal_recipes(a->inputs[i].recipe, b->inputs[i].recipe);
	assert_int_equal(a->n_binaries, b->n_binaries);
	for (i = 0; i < a->n_binaries; i++) {
		assert_int_equal(a->binaries[i].size, b->binaries[i].size);
		assert_memory_equal(a->binaries[i].digest,
				    b->binaries[i].digest, KI_BLAKE2B_BYTES);
	}
}

static void assert_equal_jobs(const struct ki_cl_job *a,
			      const struct ki_cl_job *b)
{
	uint32_t i;

	assert_int_equal(a->record_size, b->record_size);
	assert_memory_equal(a->record, b->record, a->record_size);
	assert_string_equal(a->platform_name, b->platform_name);
	assert_string_equal(a->driver, b->driver);
	assert_int_equal(a->n_devices, b->n_devices);
	assert_equal_recipes(a->recipe, b->recipe);
	assert_string_equal(a->directory, b->directory);
	assert_int_equal(a->n_environment, b->n_environment);
	for (i = 0; i < a->n_environment; i++)
		assert_string_equal(a->environment[i], b->environment[i]);
	assert_string_equal(a->application, b->application);
	assert_string_equal(a->name_space, b->name_space);
	assert_int_equal(a->created, b->created);
	assert_int_equal(a->build_ns, b->build_ns);
	assert_int_equal(a->stage, b->stage);
	assert_int_equal(a->tries, b->tries);
	assert_int_equal(a->writer_pid, b->writer_pid);
	assert_int_equal(a->writer_start, b->writer_start);
}

static void round_trip(const struct ki_cl_job *job)
{
	char *directory = harness_directory();
	char *spool = harness_path(directory, "spool");
	struct ki_cl_job_file *file;
	char *path;

	assert_int_equal(ki_cl_job_write(spool, job), KILN_OK);
	path = only_job(spool);
	assert_int_equal(ki_cl_job_read(path, &file), KILN_OK);
	assert_equal_jobs(ki_cl_job(file), job);
	ki_cl_job_free(file);
	free(path);
	free(spool);
	free(directory);
}

static void every_field_comes_back_as_it_was_written(void **state)
{
	static const char zeros[] = "a\0b\0";
	static const char *const odd_strings[] = { zeros };
	static const size_t odd_lengths[] = { 4 };
	char *long_text = malloc(100001);
	struct ki_cl_job job = job_of("record");

	round_trip(&job);
	job.n_environment = 0;
	round_trip(&job);
	job.recipe = recipe_of(1, odd_strings, odd_lengths, "");
	round_trip(&job);
	job.directory = job.application = "";
	job.name_space = "\xff\xfe";
	round_trip(&job);
	memset(long_text, 'o', 100000);
	long_text[100000] = '\0';
	job.recipe = recipe_of(1, odd_strings, odd_lengths, long_text);
	round_trip(&job);
	job.n_devices = UINT32_MAX;
	job.created = job.build_ns = UINT64_MAX;
	job.stage = job.tries = UINT32_MAX;
	round_trip(&job);
	free(long_text);
}

static void every_kind_of_recipe_comes_back(void **state)
{
	struct ki_cl_job job = job_of("record");

	job.recipe = il_of(KI_CL_BUILD);
	round_trip(&job);
	job.recipe = object_of();
	round_trip(&job);
	job.recipe = il_of(KI_CL_COMPILE);
	round_trip(&job);
	job.recipe = link_of(object_of(), NULL, "");
	round_trip(&job);
	job.recipe = rich_recipe();
	round_trip(&job);
}

static void without_its_bytes_a_recipe_makes_no_job(void **state)
{
	char *spool = harness_directory();
	struct ki_cl_job job = job_of("record");

	job.recipe = link_of(object_of(), binary_of(0), "");
	assert_int_equal(ki_cl_job_write(spool, &job), KILN_E_UNSUPPORTED);
	assert_int_equal(count_names(spool), 0);
	free(spool);
}

/* ---- Recipes that nobody writes ------------------------------------------ */

/* A recipe of a kind with one field more. */
static void add_recipe(struct ki_bytes *bytes, uint64_t kind, uint16_t tag,
		       const void *data, size_t size)
{
	ki_cl_tag_add_number(bytes, 1, kind);
	ki_cl_tag_add_text(bytes, 2, "");
	if (tag)
		ki_cl_tag_add(bytes, tag, data, size);
}

static enum kiln_status read_recipe(struct ki_bytes *bytes)
{
	struct ki_cl_recipe *recipe = NULL;
	enum kiln_status status;

	assert_int_equal(bytes->failed, 0);
	status = ki_cl_recipe_read(bytes->data, bytes->size, &recipe);
	ki_cl_recipe_unref(recipe);
	ki_bytes_fini(bytes);
	return status;
}

static void what_does_not_belong_to_a_kind_is_damage(void **state)
{
	static const struct {
		const char *name;
		uint64_t kind;
		uint16_t tag;
		const char *data;
		size_t size;
		enum kiln_status status;
	} rows[] = {
		{ "a build", 1, 3, "k", 1, KILN_OK },
		{ "a build of an empty string", 1, 3, "", 0, KILN_OK },
		{ "a build of nothing", 1, 0, NULL, 0, KILN_E_FORMAT },
		{ "a kind of 0", 0, 3, "k", 1, KILN_E_FORMAT },
		{ "a newer kind", 5, 3, "k", 1, KILN_E_UNSUPPORTED },
		{ "a newer field", 1, 10, "k", 1, KILN_E_UNSUPPORTED },
		{ "the highest field", 1, 0xffff, "k", 1, KILN_E_UNSUPPORTED },
		{ "a second kind", 1, 1, "\1\0\0\0\0\0\0", 8, KILN_E_FORMAT },
		{ "second options", 1, 2, "", 1, KILN_E_FORMAT },
		{ "a link of a string", 3, 3, "k", 1, KILN_E_FORMAT },
		{ "a link of nothing", 3, 0, NULL, 0, KILN_E_FORMAT },
		{ "a link of an empty recipe", 3, 8, "", 0, KILN_E_FORMAT },
		{ "a build of an input", 1, 8, "", 0, KILN_E_FORMAT },
		{ "no binary", 4, 0, NULL, 0, KILN_E_FORMAT },
		{ "a binary", 4, 9, "b", 1, KILN_OK },
		{ "IL", 1, 4, "i", 1, KILN_OK },
		{ "a constant without IL", 1, 5, "\1\0\0\0v", 5,
		  KILN_E_FORMAT },
		{ "a name outside of a header", 2, 7, "n", 2, KILN_E_FORMAT },
		{ "an empty header", 2, 6, "", 0, KILN_E_FORMAT },
		{ "an input in a header", 2, 6, "\10\0\0\0\0\0\0", 8,
		  KILN_E_FORMAT },
		{ "a header in a header", 2, 6, "\6\0\0\0\0\0\0", 8,
		  KILN_E_FORMAT },
	};
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct ki_bytes bytes;

		print_message("# %s\n", rows[i].name);
		ki_bytes_init(&bytes);
		add_recipe(&bytes, rows[i].kind, rows[i].tag, rows[i].data,
			   rows[i].size);
		assert_int_equal(read_recipe(&bytes), rows[i].status);
	}
}

/* `depth` links within each other; the innermost is a compilation. */
static struct ki_bytes nested(unsigned depth)
{
	struct ki_bytes inner, outer;

	ki_bytes_init(&inner);
	add_recipe(&inner, 2, 3, "k", 1);
	while (depth--) {
		ki_bytes_init(&outer);
		add_recipe(&outer, 3, 8, inner.data, inner.size);
		ki_bytes_fini(&inner);
		inner = outer;
	}
	return inner;
}

static void no_recipe_is_deeper_or_larger_than_allowed(void **state)
{
	struct ki_bytes bytes = nested(KI_CL_RECIPE_DEPTH_MAX - 1), input;
	unsigned n;

	assert_int_equal(read_recipe(&bytes), KILN_OK);
	bytes = nested(KI_CL_RECIPE_DEPTH_MAX);
	assert_int_equal(read_recipe(&bytes), KILN_E_FORMAT);
	bytes = nested(2000);
	assert_int_equal(read_recipe(&bytes), KILN_E_FORMAT);
	input = nested(0);
	for (n = KI_CL_RECIPE_NODES_MAX - 1; n <= KI_CL_RECIPE_NODES_MAX; n++) {
		ki_bytes_init(&bytes);
		add_recipe(&bytes, 3, 0, NULL, 0);
		for (unsigned i = 0; i < n; i++)
			ki_cl_tag_add(&bytes, 8, input.data, input.size);
		assert_int_equal(read_recipe(&bytes), n < KI_CL_RECIPE_NODES_MAX
							      ? KILN_OK
							      : KILN_E_FORMAT);
	}
	ki_bytes_fini(&input);
}

static void a_job_names_its_writer(void **state)
{
	char *spool = harness_directory();
	struct ki_cl_job job = job_of("record");
	struct ki_cl_job_file *file;
	char *path;

	job.writer_pid = 0;
	job.writer_start = 0;
	assert_int_equal(ki_cl_job_write(spool, &job), KILN_OK);
	path = only_job(spool);
	assert_int_equal(ki_cl_job_read(path, &file), KILN_OK);
	assert_true(ki_process_alive((int)ki_cl_job(file)->writer_pid,
				     ki_cl_job(file)->writer_start));
	assert_int_equal(ki_cl_job(file)->writer_pid, getpid());
	ki_cl_job_free(file);
	free(path);
	free(spool);
}

static void one_key_has_one_job(void **state)
{
	char *spool = harness_directory();
	struct ki_cl_job job = job_of("record"), other = job_of("another");

	assert_int_equal(ki_cl_job_write(spool, &job), KILN_OK);
	job.recipe = recipe_of(3, strings, lengths, "-DOTHER");
	assert_int_equal(ki_cl_job_write(spool, &job), KILN_EXISTS);
	assert_int_equal(ki_cl_job_write(spool, &other), KILN_OK);
	assert_int_equal(count_jobs(spool), 2);
	assert_int_equal(count_names(spool), 2);
	free(spool);
}

static int write_in_process(unsigned index, void *spool)
{
	struct ki_cl_job job = job_of("record");

	return ki_cl_job_write(spool, &job) != KILN_OK;
}

static void a_job_that_nobody_need_make_goes(void **state)
{
	char *spool = harness_directory();
	struct ki_cl_job job = job_of("record");

	ki_cl_job_remove(spool, job.record, job.record_size);
	assert_int_equal(ki_cl_job_write(spool, &job), KILN_OK);
	ki_cl_job_remove(spool, "another", 7);
	assert_int_equal(count_jobs(spool), 1);
	ki_cl_job_remove(spool, job.record, job.record_size);
	assert_int_equal(count_names(spool), 0);
	free(spool);
}

/* In this spool, for this key; also what another process wrote. */
static void a_process_knows_what_it_has_written(void **state)
{
	char *spool = harness_directory(), *other = harness_directory();
	struct ki_cl_job job = job_of("record");
	uint8_t digest[KILN_DIGEST_BYTES];

	ki_xxh3_128(job.record, job.record_size, digest);
	assert_false(ki_cl_job_was_written(spool, digest));
	assert_int_equal(ki_cl_job_write(spool, &job), KILN_OK);
	assert_true(ki_cl_job_was_written(spool, digest));
	assert_false(ki_cl_job_was_written(other, digest));
	ki_cl_job_remove(spool, job.record, job.record_size);
	assert_false(ki_cl_job_was_written(spool, digest));
	assert_int_equal(
		harness_processes(1, write_in_process, spool, HARNESS_HANG_S),
		0);
	assert_false(ki_cl_job_was_written(spool, digest));
	assert_int_equal(ki_cl_job_write(spool, &job), KILN_EXISTS);
	assert_true(ki_cl_job_was_written(spool, digest));
	digest[0] ^= 1;
	assert_false(ki_cl_job_was_written(spool, digest));
	free(other);
	free(spool);
}

static void tries_are_written_down_at_once_or_not_at_all(void **state)
{
	char *spool = harness_directory();
	struct ki_cl_job job = job_of("record");
	struct ki_cl_job_file *file;
	char *path;

	assert_int_equal(ki_cl_job_write(spool, &job), KILN_OK);
	path = only_job(spool);
	assert_int_equal(ki_cl_job_set_tries(path, &job, 2), KILN_OK);
	assert_int_equal(ki_cl_job_read(path, &file), KILN_OK);
	job.tries = 2;
	assert_equal_jobs(ki_cl_job(file), &job);
	ki_cl_job_free(file);
	assert_int_equal(count_names(spool), 1);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(ki_cl_job_set_tries(path, &job, 1), KILN_MISS);
	assert_int_equal(ki_cl_job_read(path, &file), KILN_MISS);
	assert_int_equal(count_names(spool), 0);
	free(path);
	free(spool);
}

static void files_and_the_spool_are_for_this_user_alone(void **state)
{
	char *directory = harness_directory();
	char *spool = harness_path(directory, "a/spool");
	struct ki_cl_job job = job_of("record");
	mode_t mask = umask(0);
	struct stat st;
	char *path;

	assert_int_equal(ki_cl_job_write(spool, &job), KILN_OK);
	umask(mask);
	path = only_job(spool);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_int_equal(stat(spool, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	free(path);
	free(spool);
	free(directory);
}

static void in_a_shared_store_each_user_has_a_spool_of_his_own(void **state)
{
	char *store = harness_directory();
	char *parent = harness_path(store, "spool");
	char name[16];
	struct ki_cl_job job = job_of("record");
	struct stat st;
	char *spool;

	assert_int_equal(chmod(store, 02770), 0);
	snprintf(name, sizeof(name), "%u", (unsigned)geteuid());
	spool = harness_path(parent, name);
	assert_int_equal(ki_cl_job_write(spool, &job), KILN_OK);
	assert_int_equal(stat(parent, &st), 0);
	assert_int_equal(st.st_mode & 01777, 01770);
	assert_int_equal(stat(spool, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	free(spool);
	free(parent);
	free(store);
}

/* ---- Damage ------------------------------------------------------------ */

/* Bytes to a file's header, sealed as a writer would. */
static void *seal(const void *fields, size_t size, uint32_t version)
{
	uint8_t *bytes = malloc(40 + size);

	memcpy(bytes, "kilnjob\n", 8);
	ki_put_u32(bytes + 8, version);
	ki_put_u32(bytes + 12, 0);
	ki_put_u64(bytes + 16, size);
	memcpy(bytes + 40, fields, size);
	ki_put_u64(bytes + 24, ki_xxh3_64(bytes + 40, size));
	ki_put_u64(bytes + 32, ki_xxh3_64(bytes, 32));
	return bytes;
}

static enum kiln_status parse_copy(const void *bytes, size_t size)
{
	struct ki_cl_job_file *file = NULL;
	void *copy = malloc(size ? size : 1);
	enum kiln_status status;

	memcpy(copy, bytes, size);
	status = ki_cl_job_parse(copy, size, &file);
	if (status)
		free(copy);
	ki_cl_job_free(file);
	return status;
}

static char *written(size_t *out_size)
{
	char *spool = harness_directory();
	struct ki_cl_job job = job_of("record");
	char *path, *bytes;

	job.recipe = rich_recipe();
	assert_int_equal(ki_cl_job_write(spool, &job), KILN_OK);
	path = only_job(spool);
	bytes = harness_read(path, out_size);
	free(path);
	free(spool);
	return bytes;
}

/* S13 */
static void any_flipped_bit_is_damage(void **state)
{
	size_t size, i;
	char *bytes = written(&size);

	assert_int_equal(parse_copy(bytes, size), KILN_OK);
	for (i = 0; i < size * 8; i++) {
		bytes[i / 8] ^= (char)(1 << i % 8);
		assert_int_equal(parse_copy(bytes, size), KILN_E_FORMAT);
		bytes[i / 8] ^= (char)(1 << i % 8);
	}
	free(bytes);
}

/* S13 */
static void any_other_length_is_damage(void **state)
{
	size_t size, i;
	char *bytes = written(&size);
	char *longer = calloc(1, size + 8);

	memcpy(longer, bytes, size);
	for (i = 0; i < size; i++)
		assert_int_equal(parse_copy(bytes, i), KILN_E_FORMAT);
	for (i = size + 1; i <= size + 8; i++)
		assert_int_equal(parse_copy(longer, i), KILN_E_FORMAT);
	free(longer);
	free(bytes);
}

/* Behind right checksums: cut anywhere, every byte changed. */
static void well_sealed_nonsense_is_never_a_job_that_hurts(void **state)
{
	size_t size, i;
	char *bytes = written(&size);
	char *sealed;

	for (i = 0; i < size - 40; i++) {
		sealed = seal(bytes + 40, i, 2);
		assert_int_equal(parse_copy(sealed, 40 + i), KILN_E_FORMAT);
		free(sealed);
		bytes[40 + i] ^= 0x55;
		sealed = seal(bytes + 40, size - 40, 2);
		(void)parse_copy(sealed, size);
		free(sealed);
		bytes[40 + i] ^= 0x55;
	}
	free(bytes);
}

/* S17 */
static void what_a_newer_kiln_wrote_is_told_from_damage(void **state)
{
	static const uint8_t unknown[] = { 16, 0, 0, 0, 0, 0, 0, 0 };
	size_t size;
	char *bytes = written(&size);
	char *longer = malloc(size - 40 + sizeof(unknown));
	char *sealed = seal(bytes + 40, size - 40, 3);

	assert_int_equal(parse_copy(sealed, size), KILN_E_UNSUPPORTED);
	free(sealed);
	memcpy(longer, bytes + 40, size - 40);
	memcpy(longer + size - 40, unknown, sizeof(unknown));
	sealed = seal(longer, size - 40 + sizeof(unknown), 2);
	assert_int_equal(parse_copy(sealed, size + sizeof(unknown)),
			 KILN_E_UNSUPPORTED);
	free(sealed);
	free(longer);
	free(bytes);
}

/* ---- Bounds and ages --------------------------------------------------- */

static void a_full_spool_refuses(void **state)
{
	char *spool = harness_directory();
	struct ki_cl_job job = job_of("record");
	size_t length = (size_t)20 << 20;
	char *source = calloc(1, length);
	const char *pointer = source;
	char record[2] = "a";
	uint8_t digest[KILN_DIGEST_BYTES];

	job.recipe = recipe_of(1, &pointer, &length, "");
	for (; record[0] < 'd'; record[0]++) {
		job.record = record;
		job.record_size = 1;
		assert_int_equal(ki_cl_job_write(spool, &job), KILN_OK);
	}
	job.record = record;
	assert_int_equal(ki_cl_job_write(spool, &job), KILN_E_FULL);
	assert_int_equal(count_names(spool), 3);
	ki_xxh3_128(record, 1, digest);
	assert_true(ki_cl_job_was_written(spool, digest));
	length = 1000;
	job.recipe = recipe_of(1, &pointer, &length, "");
	assert_int_equal(ki_cl_job_write(spool, &job), KILN_OK);
	free(source);
	free(spool);
}

/* A process does not count at each job, but it notices in time. */
static void many_small_jobs_stay_within_the_bound(void **state)
{
	char *spool = harness_directory();
	struct ki_cl_job job = job_of("record");
	size_t length = (size_t)300 << 10, n = 0;
	char *source = calloc(1, length);
	const char *pointer = source;
	enum kiln_status status = KILN_OK;

	job.recipe = recipe_of(1, &pointer, &length, "");
	job.record = &n;
	job.record_size = sizeof(n);
	for (; status == KILN_OK && n < 300; n++)
		status = ki_cl_job_write(spool, &job);
	assert_int_equal(status, KILN_E_FULL);
	assert_in_range(count_jobs(spool), 200, KI_CL_SPOOL_BYTES_MAX / length);
	assert_int_equal(count_names(spool), count_jobs(spool));
	free(source);
	free(spool);
}

static unsigned n_walks;

static int counting_opendir(const struct ki_sys *sys, const char *path,
			    struct ki_dir **out_dir)
{
	n_walks++;
	return ki_sys_posix.opendir(&ki_sys_posix, path, out_dir);
}

/* Counting a spool of thousands of jobs takes tens of milliseconds: not at
   each build, however full it is. */
static void a_spool_that_is_nearly_full_is_not_counted_each_time(void **state)
{
	static const struct {
		off_t bytes_left;
		unsigned n_written;
		unsigned walks_max;
	} rows[] = {
		{ 60 << 20, 200, 2 }, { 12 << 20, 200, 3 }, { 4 << 20, 200, 5 },
		{ 8192, 2, 2 },	      { -4096, 0, 1 },
	};
	struct ki_sys sys = ki_sys_posix;
	struct ki_cl_job job = job_of("record");
	unsigned i, n, n_written;

	sys.opendir = counting_opendir;
	job.record_size = sizeof(n);
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char *spool = harness_directory();
		char *other = harness_path(
			spool, "00000000000000000000000000000000.job");

		harness_write(other, "", 0);
		assert_int_equal(truncate(other, (off_t)KI_CL_SPOOL_BYTES_MAX -
							 rows[i].bytes_left),
				 0);
		n_walks = n_written = 0;
		for (n = 0; n < 200; n++) {
			job.record = &n;
			n_written += ki_cl_job_write_on(&sys, spool, &job) ==
				     KILN_OK;
		}
		assert_int_equal(n_written, rows[i].n_written);
		assert_in_range(n_walks, 1, rows[i].walks_max);
		free(other);
		free(spool);
	}
}

static void a_job_larger_than_any_spool_is_refused(void **state)
{
	char *spool = harness_directory();
	struct ki_cl_job job = job_of("record");
	size_t length = (size_t)KI_CL_SPOOL_BYTES_MAX;
	char *source = calloc(1, length);
	const char *pointer = source;

	job.recipe = recipe_of(1, &pointer, &length, "");
	assert_int_equal(ki_cl_job_write(spool, &job), KILN_E_FULL);
	assert_int_equal(count_names(spool), 0);
	free(source);
	free(spool);
}

struct writers {
	const char *spool;
	char *source;
	int same_key;
};

/* Exit status: 0 written, 1 there already, 2 full, 3 anything else. */
static int write_large(unsigned index, void *arg)
{
	struct writers *writers = arg;
	struct ki_cl_job job = job_of("record");
	size_t length = (size_t)20 << 20;
	const char *pointer = writers->source;
	char record[2] = { (char)('a' + index), 0 };

	if (!writers->same_key) {
		job.record = record;
		job.record_size = 1;
	} else {
		length = 1000;
	}
	job.recipe = recipe_of(1, &pointer, &length, "");
	switch (ki_cl_job_write(writers->spool, &job)) {
	case KILN_OK:
	case KILN_EXISTS:
	case KILN_E_FULL:
		return 0;
	default:
		return 3;
	}
}

static void the_bound_holds_when_many_write_at_once(void **state)
{
	char *spool = harness_directory();
	struct writers writers = { .spool = spool,
				   .source = calloc(1, (size_t)20 << 20) };

	assert_int_equal(
		harness_processes(6, write_large, &writers, HARNESS_HANG_S), 0);
	assert_true(count_jobs(spool) <= 3);
	assert_int_equal(count_names(spool), count_jobs(spool));
	free(writers.source);
	free(spool);
}

static void many_writers_of_one_key_leave_one_job(void **state)
{
	char *spool = harness_directory();
	struct writers writers = { .spool = spool,
				   .source = calloc(1, 1000),
				   .same_key = 1 };
	struct ki_cl_job_file *file;
	char *path;

	assert_int_equal(
		harness_processes(8, write_large, &writers, HARNESS_HANG_S), 0);
	assert_int_equal(harness_threads(4, write_large, &writers), 0);
	assert_int_equal(count_names(spool), 1);
	path = only_job(spool);
	assert_int_equal(ki_cl_job_read(path, &file), KILN_OK);
	ki_cl_job_free(file);
	free(path);
	free(writers.source);
	free(spool);
}

static void the_oldest_comes_first_and_the_too_old_goes(void **state)
{
	static const struct {
		const char *record;
		int64_t age_s;
		int stays;
	} rows[] = {
		{ "now", 0, 1 },
		{ "six days", 6 * 24 * 3600, 1 },
		{ "eight days", 8 * 24 * 3600, 0 },
		{ "a day ahead", -24 * 3600, 1 }, /* S33 */
		{ "ten years ahead", -3650ll * 24 * 3600, 0 },
		{ "an hour", 3600, 1 },
	};
	static const char *const order[] = { "six days", "an hour", "now",
					     "a day ahead" };
	char *spool = harness_directory();
	char **paths;
	size_t n_paths, i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct ki_cl_job job = job_of(rows[i].record);
		uint8_t digest[16];
		char name[64];
		char *path;

		assert_int_equal(ki_cl_job_write(spool, &job), KILN_OK);
		ki_xxh3_128(job.record, job.record_size, digest);
		ki_hex(digest, sizeof(digest), name);
		strcat(name, ".job");
		path = harness_path(spool, name);
		set_age(path, rows[i].age_s);
		free(path);
	}
	assert_int_equal(ki_cl_jobs(spool, &paths, &n_paths), KILN_OK);
	assert_int_equal(n_paths, 4);
	for (i = 0; i < n_paths; i++) {
		struct ki_cl_job_file *file;

		assert_int_equal(ki_cl_job_read(paths[i], &file), KILN_OK);
		assert_memory_equal(ki_cl_job(file)->record, order[i],
				    strlen(order[i]));
		ki_cl_job_free(file);
	}
	free_paths(paths, n_paths);
	assert_int_equal(count_names(spool), 4);
	free(spool);
}

#define NAME "0123456789abcdef0123456789abcdef.job"

/* S15, S33 */
static void only_dead_old_temporaries_and_old_jobs_are_removed(void **state)
{
	char *spool = harness_directory();
	char alive[128];
	size_t i;
	struct {
		const char *name;
		int64_t age_s;
		int stays;
	} rows[] = {
		{ NAME ".1.1.0.tmp", 0, 1 },
		{ NAME ".1.1.1.tmp", 700, 0 },
		{ NAME ".nonsense.tmp", 700, 0 },
		{ alive, 700, 1 },
		{ "notes.txt", 100 * 24 * 3600, 1 },
		{ "0123.job", 100 * 24 * 3600, 1 },
		{ NAME "x", 100 * 24 * 3600, 1 },
		{ ".nfs0001", 100 * 24 * 3600, 1 },
		{ "other.tmp", 100 * 24 * 3600, 1 },
	};

	snprintf(alive, sizeof(alive), NAME ".%d.%llu.0.tmp", (int)getpid(),
		 (unsigned long long)ki_process_start(getpid()));
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char *path = harness_path(spool, rows[i].name);

		harness_write(path, "x", 1);
		set_age(path, rows[i].age_s);
		free(path);
	}
	assert_int_equal(count_jobs(spool), 0);
	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		char *path = harness_path(spool, rows[i].name);

		assert_int_equal(!access(path, F_OK), rows[i].stays);
		free(path);
	}
	free(spool);
}

/* ---- Odd spools -------------------------------------------------------- */

static void a_spool_that_is_missing_has_no_jobs(void **state)
{
	char *directory = harness_directory();
	char *spool = harness_path(directory, "none");

	assert_int_equal(count_jobs(spool), 0);
	assert_int_equal(access(spool, F_OK), -1);
	free(spool);
	free(directory);
}

/* S28, S37 */
static void a_spool_that_is_not_ours_alone_is_refused(void **state)
{
	char *directory = harness_directory();
	char *real = harness_path(directory, "real");
	char *link = harness_path(directory, "link");
	char *file = harness_path(directory, "file");
	struct ki_cl_job job = job_of("record");
	char **paths;
	size_t n_paths;

	assert_int_equal(mkdir(real, 0700), 0);
	assert_int_equal(symlink(real, link), 0);
	harness_write(file, "x", 1);
	assert_int_equal(ki_cl_job_write(link, &job), KILN_E_OWNER);
	assert_int_equal(ki_cl_jobs(link, &paths, &n_paths), KILN_E_OWNER);
	assert_int_equal(ki_cl_job_write(file, &job), KILN_E_OWNER);
	assert_int_equal(chmod(real, 0707), 0);
	assert_int_equal(ki_cl_job_write(real, &job), KILN_E_OWNER);
	if (!geteuid()) {
		assert_int_equal(chmod(real, 0700), 0);
		assert_int_equal(chown(real, 65534, (gid_t)-1), 0);
		assert_int_equal(ki_cl_job_write(real, &job), KILN_E_OWNER);
		assert_int_equal(ki_cl_jobs(real, &paths, &n_paths),
				 KILN_E_OWNER);
	}
	assert_int_equal(count_names(real), 0);
	free(file);
	free(link);
	free(real);
	free(directory);
}

/* S15 */
static void links_fifos_and_directories_with_a_jobs_name_are_left(void **state)
{
	static const char fifo_name[] = "00000000000000000000000000000001.job";
	static const char dir_name[] = "00000000000000000000000000000002.job";
	static const char link_name[] = "00000000000000000000000000000003.job";
	char *spool = harness_directory();
	char *fifo = harness_path(spool, fifo_name);
	char *dir = harness_path(spool, dir_name);
	char *link = harness_path(spool, link_name);
	struct ki_cl_job_file *file;

	assert_int_equal(mkfifo(fifo, 0600), 0);
	assert_int_equal(mkdir(dir, 0700), 0);
	assert_int_equal(symlink("/etc/passwd", link), 0);
	assert_int_equal(count_jobs(spool), 0);
	assert_int_equal(ki_cl_job_read(fifo, &file), KILN_E_OWNER);
	assert_int_equal(ki_cl_job_read(dir, &file), KILN_E_OWNER);
	assert_int_equal(ki_cl_job_read(link, &file), KILN_E_OWNER);
	assert_int_equal(count_names(spool), 3);
	free(link);
	free(dir);
	free(fifo);
	free(spool);
}

/* A job past RLIMIT_FSIZE would be a SIGXFSZ for the program (S29). */
static int write_beyond_file_limit(unsigned index, void *arg)
{
	struct rlimit limit = { 100, 100 };
	struct ki_cl_job job = job_of("record");

	if (setrlimit(RLIMIT_FSIZE, &limit))
		return 1;
	return ki_cl_job_write(arg, &job) != KILN_E_FULL;
}

static void a_limit_on_file_sizes_is_respected(void **state)
{
	char *spool = harness_directory();

	assert_int_equal(harness_processes(1, write_beyond_file_limit, spool,
					   HARNESS_HANG_S),
			 0);
	assert_int_equal(count_names(spool), 0);
	free(spool);
}

/*
 * The real system, but the n-th call that may fail fails.  A close that fails
 * has closed; a write that fails has written half.
 */
struct faulty {
	struct ki_sys sys;
	int left;
	int err;
};

static int fails(const struct ki_sys *sys)
{
	struct faulty *faulty = (struct faulty *)(uintptr_t)sys;

	return faulty->left-- == 0;
}

static int err_of(const struct ki_sys *sys)
{
	return ((const struct faulty *)sys)->err;
}

static int faulty_open(const struct ki_sys *sys, const char *path,
		       unsigned flags, unsigned mode)
{
	return fails(sys) ? err_of(sys)
			  : ki_sys_posix.open(sys, path, flags, mode);
}

static int faulty_close(const struct ki_sys *sys, int fd)
{
	int err = ki_sys_posix.close(sys, fd);

	return fails(sys) ? err_of(sys) : err;
}

static ssize_t faulty_pwritev(const struct ki_sys *sys, int fd,
			      const struct ki_piece *pieces, int n_pieces,
			      uint64_t offset)
{
	struct ki_piece half = { pieces[0].data, pieces[0].size / 2 };

	if (!fails(sys))
		return ki_sys_posix.pwritev(sys, fd, pieces, n_pieces, offset);
	(void)ki_sys_posix.pwritev(sys, fd, &half, 1, offset);
	return err_of(sys);
}

static int faulty_lstat(const struct ki_sys *sys, const char *path,
			struct ki_file_info *out_info)
{
	return fails(sys) ? err_of(sys)
			  : ki_sys_posix.lstat(sys, path, out_info);
}

static int faulty_link(const struct ki_sys *sys, const char *from,
		       const char *to)
{
	return fails(sys) ? err_of(sys) : ki_sys_posix.link(sys, from, to);
}

static int faulty_mkdir(const struct ki_sys *sys, const char *path,
			unsigned mode)
{
	return fails(sys) ? err_of(sys) : ki_sys_posix.mkdir(sys, path, mode);
}

static int faulty_opendir(const struct ki_sys *sys, const char *path,
			  struct ki_dir **out_dir)
{
	return fails(sys) ? err_of(sys)
			  : ki_sys_posix.opendir(sys, path, out_dir);
}

/* S29, S30, S39: a typed answer and nothing half written. */
static void a_call_that_fails_leaves_a_whole_job_or_none(void **state)
{
	static const struct {
		int err;
		enum kiln_status status;
	} rows[] = {
		{ -ENOSPC, KILN_E_FULL },    { -EDQUOT, KILN_E_FULL },
		{ -EROFS, KILN_E_READONLY }, { -EACCES, KILN_E_IO },
		{ -EPERM, KILN_E_IO },	     { -ENOMEM, KILN_E_NO_MEMORY },
	};
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct ki_cl_job job = job_of("record");
		int n, failed;

		for (n = 0, failed = 1; failed; n++) {
			struct faulty faulty = { .sys = ki_sys_posix,
						 .left = n,
						 .err = rows[i].err };
			char *directory = harness_directory();
			char *spool = harness_path(directory, "spool");
			enum kiln_status status;

			faulty.sys.open = faulty_open;
			faulty.sys.close = faulty_close;
			faulty.sys.pwritev = faulty_pwritev;
			faulty.sys.lstat = faulty_lstat;
			faulty.sys.link = faulty_link;
			faulty.sys.mkdir = faulty_mkdir;
			faulty.sys.opendir = faulty_opendir;
			status = ki_cl_job_write_on(&faulty.sys, spool, &job);
			failed = faulty.left < 0;
			if (status) {
				assert_true(status < 0);
				assert_true(status == rows[i].status ||
					    status == KILN_E_IO);
				assert_int_equal(count_jobs(spool), 0);
			} else {
				assert_int_equal(count_jobs(spool), 1);
			}
			if (!access(spool, F_OK))
				assert_int_equal(count_names(spool), !status);
			free(spool);
			free(directory);
			assert_true(n < 100);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_field_comes_back_as_it_was_written),
		cmocka_unit_test(every_kind_of_recipe_comes_back),
		cmocka_unit_test(without_its_bytes_a_recipe_makes_no_job),
		cmocka_unit_test(what_does_not_belong_to_a_kind_is_damage),
		cmocka_unit_test(no_recipe_is_deeper_or_larger_than_allowed),
		cmocka_unit_test(a_job_names_its_writer),
		cmocka_unit_test(one_key_has_one_job),
		cmocka_unit_test(a_job_that_nobody_need_make_goes),
		cmocka_unit_test(a_process_knows_what_it_has_written),
		cmocka_unit_test(tries_are_written_down_at_once_or_not_at_all),
		cmocka_unit_test(files_and_the_spool_are_for_this_user_alone),
		cmocka_unit_test(
			in_a_shared_store_each_user_has_a_spool_of_his_own),
		cmocka_unit_test(any_flipped_bit_is_damage),
		cmocka_unit_test(any_other_length_is_damage),
		cmocka_unit_test(
			well_sealed_nonsense_is_never_a_job_that_hurts),
		cmocka_unit_test(what_a_newer_kiln_wrote_is_told_from_damage),
		cmocka_unit_test(a_full_spool_refuses),
		cmocka_unit_test(many_small_jobs_stay_within_the_bound),
		cmocka_unit_test(
			a_spool_that_is_nearly_full_is_not_counted_each_time),
		cmocka_unit_test(a_job_larger_than_any_spool_is_refused),
		cmocka_unit_test(the_bound_holds_when_many_write_at_once),
		cmocka_unit_test(many_writers_of_one_key_leave_one_job),
		cmocka_unit_test(the_oldest_comes_first_and_the_too_old_goes),
		cmocka_unit_test(
			only_dead_old_temporaries_and_old_jobs_are_removed),
		cmocka_unit_test(a_spool_that_is_missing_has_no_jobs),
		cmocka_unit_test(a_spool_that_is_not_ours_alone_is_refused),
		cmocka_unit_test(
			links_fifos_and_directories_with_a_jobs_name_are_left),
		cmocka_unit_test(a_limit_on_file_sizes_is_respected),
		cmocka_unit_test(a_call_that_fails_leaves_a_whole_job_or_none),
	};

	return cmocka_run_group_tests(tests, NULL, free_recipes);
}
