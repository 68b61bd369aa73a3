/* SPDX-License-Identifier: MIT */

/*
 * S59, the whole way: a pack from one store, and what programs that know nothing
 * of kiln have of it over another: on the driver stand-in, and on PoCL.
 */

#include "testing.h"
#include "harness/harness.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *program; /* kiln */
static const char *example;
static const char *driver; /* whose pack it is */
static const char *other_driver;

/* Made once, as the driver's builds take their time. */
static char *place;
static char *pack;

#define MORE_MAX 4

/* `kiln ARGUMENTS`. */
struct call {
	const char
		*directory; /* of its store; NULL: there is no place for one */
	const char *arguments[8];
	const char *more[MORE_MAX]; /* variables */
	const char *driver;	    /* NULL: the pack's */
};

/* Not even the driver's own cache knows anything. */
static struct ended ask(const struct call *call)
{
	const char *directory = call->directory;
	char *own = directory ? NULL : harness_directory();
	char dir[600], vendors[600], pocl[600];
	struct spawn spawn = { .program = program };
	size_t n = 0;

	snprintf(dir, sizeof(dir), "KILN_DIR=%s", directory ? directory : "");
	snprintf(vendors, sizeof(vendors), "OCL_ICD_VENDORS=%s",
		 call->driver ? call->driver : driver);
	snprintf(pocl, sizeof(pocl), "POCL_CACHE_DIR=%s/pocl",
		 directory ? directory : own);
	free(own);
	memcpy(spawn.arguments, call->arguments, sizeof(call->arguments));
	spawn.variables[n++] = "OPENCL_LAYERS";
	spawn.variables[n++] = "XDG_CONFIG_HOME=/nowhere";
	spawn.variables[n++] = "XDG_CACHE_HOME";
	spawn.variables[n++] = "KILN_PACKS";
	spawn.variables[n++] = dir;
	spawn.variables[n++] = vendors;
	spawn.variables[n++] = pocl;
	if (!directory)
		spawn.variables[n++] = "HOME";
	for (size_t i = 0; i < MORE_MAX && call->more[i]; i++)
		spawn.variables[n++] = call->more[i];
	return spawn_run(&spawn);
}

static int counter(const char *directory, const char *name)
{
	const struct call call = { directory, { "stats", "--json" } };
	struct ended ended = ask(&call);
	json_t *json = json_loads(ended.out, 0, NULL);
	const json_t *counters = json_object_get(json, "counters");
	int value = (int)json_integer_value(json_object_get(counters, name));

	assert_int_equal(status_of(&ended), 0);
	assert_true(json_is_object(counters));
	json_decref(json);
	ended_free(&ended);
	return value;
}

/* The program's answer is right, and kiln has said no more than `said`. */
static void assert_ran(struct ended ended, const char *said)
{
	if (status_of(&ended) || !*said != !*ended.err)
		print_message("# %d: %s", status_of(&ended), ended.err);
	assert_int_equal(status_of(&ended), 0);
	assert_string_equal(ended.out, "ok\n");
	assert_non_null(strstr(ended.err, said));
	assert_int_equal(!*said, !*ended.err);
	ended_free(&ended);
}

static void make_pack(void)
{
	const struct call run = { harness_path(place, "first"),
				  { "run", "--wait", example } };
	const struct call export = { run.directory, { "export", pack } };
	struct ended ended = ask(&run);

	assert_ran(ended, "");
	assert_int_equal(counter(run.directory, "builds"), 1);
	ended = ask(&export);
	assert_int_equal(status_of(&ended), 0);
	assert_memory_equal(ended.out, "1 entry in ", 11);
	ended_free(&ended);
	free((char *)run.directory);
}

static int set_up(void **state)
{
	place = harness_directory();
	pack = harness_path(place, "a.pack");
	make_pack();
	return 0;
}

static int tear_down(void **state)
{
	free(pack);
	free(place);
	return 0;
}

static char *setting(const char *name, const char *value)
{
	char *text;

	assert_true(asprintf(&text, "%s=%s", name, value) > 0);
	return text;
}

static void the_first_run_with_a_pack_builds_nothing(void **state)
{
	char *list = setting("KILN_PACKS", pack);
	const struct call calls[] = {
		{ .arguments = { "run", "--pack", pack, example } },
		{ .arguments = { "run", "--wait", "--", example },
		  .more = { list } },
		/* Whatever it starts has it, too. */
		{ .arguments = { "run", "--pack", pack, "sh", "-c",
				 "\"$0\" && true", example } },
		{ .arguments = { "run", "--pack", pack, "--pack", pack,
				 example },
		  .more = { "KILN_PACKS=/nonexistent/other.pack" } },
	};

	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		struct call call = calls[i];

		call.directory = harness_directory();
		assert_ran(ask(&call), "");
		assert_int_equal(counter(call.directory, "builds"), 0);
		assert_int_equal(counter(call.directory, "hits_pack"), 1);
		assert_int_equal(counter(call.directory, "hits_store"), 0);
		assert_int_equal(counter(call.directory, "jobs_written"), 0);
		assert_int_equal(counter(call.directory, "puts"), 0);
		free((char *)call.directory);
	}
	free(list);
}

/* The log's lines that have these words. */
static int count_lines(const char *path, const char *words)
{
	char *text = harness_read(path, NULL), *line, *rest = text;
	int n = 0;

	while (rest && (line = strsep(&rest, "\n")))
		n += strstr(line, words) != NULL;
	free(text);
	return n;
}

/* Where nothing is counted, the log tells. */
static void it_serves_where_nothing_can_be_written(void **state)
{
	char *directory = harness_directory();
	char *path = harness_path(directory, "log");
	char *log = setting("KILN_LOG", path), *index;
	const struct call calls[] = {
		{ harness_path(directory, "store"),
		  { "run", "--pack", pack, example },
		  { log, "KILN_TRACE=1", "KILN_READONLY=1" } },
		{ NULL,
		  { "run", "--pack", pack, example },
		  { log, "KILN_TRACE=1" } },
	};

	for (int i = 0; i < 2; i++) {
		assert_ran(ask(&calls[i]), "");
		assert_int_equal(count_lines(path, " hit "), i + 1);
		assert_int_equal(count_lines(path, " miss"), 0);
	}
	index = harness_path(calls[0].directory, "kiln.idx");
	assert_int_equal(access(index, F_OK), -1);
	free(index);
	free((char *)calls[0].directory);
	free(log);
	free(path);
	free(directory);
}

/* Of the entry's bytes, the checks say so; of what is around it, nothing is lost. */
static void a_tampered_pack_costs_a_build_and_nothing_else(void **state)
{
	static const size_t places[] = { 1024 + 32, 1024 + 300 };
	char *path = harness_path(place, "tampered.pack"), *bytes;
	size_t size;

	bytes = harness_read(pack, &size);
	for (size_t i = 0; i < 3; i++) {
		struct call call = { harness_directory(),
				     { "run", "--pack", path, example },
				     { "KILN_SPOOL=0" } };
		size_t at = i < 2 ? places[i] : size / 3;

		bytes[at] ^= 0x44;
		harness_write(path, bytes, size);
		bytes[at] ^= 0x44;
		assert_int_equal(chmod(path, 0600), 0);
		assert_ran(ask(&call), "");
		assert_int_equal(counter(call.directory, "hits_pack") +
					 counter(call.directory, "builds"),
				 1);
		if (i < 2)
			assert_int_equal(
				counter(call.directory, "miss_damaged"), 1);
		free((char *)call.directory);
	}
	free(bytes);
	free(path);
}

/* What the driver does not take from a pack the store has next time. */
static void a_refused_entry_is_made_anew(void **state)
{
	char *directory;
	struct call call = { .arguments = { "run", "--pack", pack, "--wait",
					    example },
			     .more = { "KILN_TEST_ICD_REFUSE_BINARIES=1" } };
	struct call again = { .arguments = { "run", "--", example } };

	if (*driver != '/')
		HARNESS_LEAVE_OUT("a driver of the world refuses nothing");
	directory = harness_directory();
	call.directory = again.directory = directory;
	assert_ran(ask(&call), "");
	assert_int_equal(counter(directory, "miss_refused"), 1);
	assert_int_equal(counter(directory, "jobs_done"), 1);
	assert_ran(ask(&again), "");
	assert_int_equal(counter(directory, "hits_store"), 1);
	free(directory);
}

static void a_pack_for_another_driver_is_no_hit(void **state)
{
	const struct call call = { .directory = harness_directory(),
				   .arguments = { "run", "--pack", pack,
						  example },
				   .more = { "KILN_SPOOL=0" },
				   .driver = other_driver };

	assert_ran(ask(&call), "");
	assert_int_equal(counter(call.directory, "builds"), 1);
	assert_int_equal(counter(call.directory, "hits_pack"), 0);
	free((char *)call.directory);
}

/* S37: a line, and the program runs. */
static void a_pack_that_others_can_write_is_not_used(void **state)
{
	char *path = harness_path(place, "open.pack"), *bytes;
	char *missing = harness_path(place, "missing.pack");
	const struct {
		const char *path, *said;
	} rows[] = { { path, "can be written by everyone" },
		     { missing, "missing.pack" },
		     { "a,b.pack", "comma" } };
	size_t size;

	bytes = harness_read(pack, &size);
	harness_write(path, bytes, size);
	assert_int_equal(chmod(path, 0666), 0);
	for (size_t i = 0; i < 3; i++) {
		const struct call call = { harness_directory(),
					   { "run", "--pack", rows[i].path,
					     example },
					   { "KILN_SPOOL=0" } };

		assert_ran(ask(&call), rows[i].said);
		assert_int_equal(counter(call.directory, "builds"), 1);
		free((char *)call.directory);
	}
	free(missing);
	free(bytes);
	free(path);
}

/* A store that the pack was merged into serves as well, and the order in which
   programs use entries is kept, and is no entry. */
static void imported_it_is_a_hit_of_the_store(void **state)
{
	const struct call import = { harness_directory(),
				     { "import", "--trust-unsigned", pack } };
	const struct call run = { import.directory,
				  { "run", "--wait", "--", example } };
	const struct call ls = { import.directory, { "ls", "--json" } };
	const struct call all = { import.directory,
				  { "ls", "--json", "--all" } };
	struct ended ended = ask(&import);
	json_t *json;

	assert_int_equal(status_of(&ended), 0);
	ended_free(&ended);
	assert_ran(ask(&run), "");
	assert_int_equal(counter(import.directory, "builds"), 0);
	assert_int_equal(counter(import.directory, "hits_store"), 1);
	ended = ask(&ls);
	json = json_loads(ended.out, 0, NULL);
	assert_int_equal(json_array_size(json_object_get(json, "entries")), 1);
	json_decref(json);
	ended_free(&ended);
	ended = ask(&all);
	json = json_loads(ended.out, 0, NULL);
	assert_int_equal(json_array_size(json_object_get(json, "entries")), 2);
	json_decref(json);
	ended_free(&ended);
	free((char *)import.directory);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_first_run_with_a_pack_builds_nothing),
		cmocka_unit_test(it_serves_where_nothing_can_be_written),
		cmocka_unit_test(
			a_tampered_pack_costs_a_build_and_nothing_else),
		cmocka_unit_test(a_refused_entry_is_made_anew),
		cmocka_unit_test(a_pack_for_another_driver_is_no_hit),
		cmocka_unit_test(a_pack_that_others_can_write_is_not_used),
		cmocka_unit_test(imported_it_is_a_hit_of_the_store),
	};

	if (argc < 5)
		return 77;
	program = argv[1];
	example = argv[2];
	driver = argv[3];
	other_driver = argv[4];
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
