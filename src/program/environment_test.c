/* SPDX-License-Identifier: MIT */

/* SYCL_* variables, in both dialects. */

#include "harness/harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "program/environment.h"

#define MAX_VARIABLES 5

/* What the variables come to, in words; or the message. */
static const char *read_as(const char *const *variables, char out[512])
{
	struct kiln_programs_options programs;
	struct kiln_sycl_config *config;
	struct kiln_options kiln;
	char *message = NULL;
	enum kiln_status status =
		ki_sycl_config_read(variables, &config, &message);

	if (status) {
		snprintf(out, 512, "%s %s", kiln_status_name(status),
			 message ? message : "");
		free(message);
		return out;
	}
	kiln_programs_options_init(&programs);
	kiln_options_init(&kiln);
	kiln_sycl_config_programs(config, &programs);
	kiln_sycl_config_kiln(config, &kiln);
	snprintf(out, 512,
		 "%s max %llu age %llu memory %s %llu images %llu-%llu",
		 kiln_sycl_config_is_persistent(config) ? kiln.store_url
							: "none",
		 (unsigned long long)kiln.store_bytes_max,
		 (unsigned long long)kiln.store_age_max_s,
		 programs.flags & KILN_PROGRAMS_NO_MEMORY ? "off" : "on",
		 (unsigned long long)programs.bytes_max,
		 (unsigned long long)programs.image_bytes_min,
		 (unsigned long long)programs.image_bytes_max);
	kiln_sycl_config_free(config);
	return out;
}

#define REST "memory on 0 images 0-1073741824"
#define SEED "max 8589934592 age 604800 " REST

static void variables_are_read_as_documented(void **state)
{
	static const struct {
		const char *variables[MAX_VARIABLES];
		const char *right;
	} rows[] = {
		{ { NULL }, "none " SEED },
		{ { "SYCL_CACHE_PERSISTENT=1" }, "none " SEED },
		{ { "SYCL_CACHE_DIR=/no/where" }, "none " SEED },
		{ { "SYCL_CACHE_PERSISTENT=1", "SYCL_CACHE_DIR=/no/where" },
		  "sycl:/no/where " SEED },
		{ { "SYCL_CACHE_PERSISTENT=1", "XDG_CACHE_HOME=/no/x",
		    "HOME=/no/h" },
		  "sycl:/no/x/libsycl_cache " SEED },
		{ { "SYCL_CACHE_PERSISTENT=1", "HOME=/no/h" },
		  "sycl:/no/h/.cache/libsycl_cache " SEED },
		{ { "SYCL_CACHE_PERSISTENT=1",
		    "XDG_CACHE_HOME=", "HOME=/no/h" },
		  "sycl:/no/h/.cache/libsycl_cache " SEED },
		{ { "SYCL_CACHE_PERSISTENT=1", "HOME=/" }, "none " SEED },
		{ { "SYCL_CACHE_PERSISTENT=1", "HOME=here" }, "none " SEED },
		{ { "SYCL_CACHE_PERSISTENT=" }, "none " SEED },
		{ { "SYCL_CACHE_MAX_SIZE=1" },
		  "none max 1048576 age 604800 " REST },
		{ { "SYCL_CACHE_MAX_SIZE=0", "SYCL_CACHE_THRESHOLD=0" },
		  "none max 0 age 0 " REST },
		{ { "SYCL_CACHE_THRESHOLD=2" },
		  "none max 8589934592 age 172800 " REST },
		{ { "SYCL_CACHE_EVICTION_DISABLE=" },
		  "none max 0 age 0 " REST },
		{ { "SYCL_CACHE_DIALECT=dpcpp" }, "none max 0 age 0 " REST },
		{ { "SYCL_CACHE_DIALECT=dpcpp", "SYCL_CACHE_MAX_SIZE=23000",
		    "SYCL_CACHE_THRESHOLD=2", "SYCL_CACHE_EVICTION_DISABLE=1" },
		  "none max 23000 age 0 " REST },
		{ { "SYCL_CACHE_DIALECT=seed" }, "none " SEED },
		{ { "SYCL_CACHE_IN_MEM=0" },
		  "none max 8589934592 age 604800 memory off 0 "
		  "images 0-1073741824" },
		{ { "SYCL_IN_MEM_CACHE_EVICTION_THRESHOLD=1024",
		    "SYCL_CACHE_MIN_DEVICE_IMAGE_SIZE=7",
		    "SYCL_CACHE_MAX_DEVICE_IMAGE_SIZE=0" },
		  "none max 8589934592 age 604800 memory on 1024 images 7-0" },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const char *variables[MAX_VARIABLES + 1] = { NULL };
		char words[512];

		memcpy(variables, rows[i].variables, sizeof(rows[i].variables));
		assert_string_equal(read_as(variables, words), rows[i].right);
	}
}

/* ConfigTests.cpp, and what sto*() would take for a number. */
static void bad_values_are_errors_that_name_the_variable(void **state)
{
	static const struct {
		const char *variable, *right;
	} rows[] = {
		{ "SYCL_CACHE_PERSISTENT=2",
		  "SYCL_CACHE_PERSISTENT: \"2\" is not 0 or 1" },
		{ "SYCL_CACHE_PERSISTENT=01",
		  "SYCL_CACHE_PERSISTENT: \"01\" is not 0 or 1" },
		{ "SYCL_CACHE_PERSISTENT=true",
		  "SYCL_CACHE_PERSISTENT: \"true\" is not 0 or 1" },
		{ "SYCL_CACHE_IN_MEM=yes",
		  "SYCL_CACHE_IN_MEM: \"yes\" is not 0 or 1" },
		{ "SYCL_CACHE_MAX_SIZE=-1",
		  "SYCL_CACHE_MAX_SIZE: \"-1\" is not a whole number, without "
		  "a unit" },
		{ "SYCL_CACHE_MAX_SIZE=1K",
		  "SYCL_CACHE_MAX_SIZE: \"1K\" is not a whole number, without "
		  "a unit" },
		{ "SYCL_CACHE_MAX_SIZE= 7",
		  "SYCL_CACHE_MAX_SIZE: \" 7\" is not a whole number, without "
		  "a unit" },
		{ "SYCL_CACHE_MAX_SIZE=99999999999999999999",
		  "SYCL_CACHE_MAX_SIZE: \"99999999999999999999\" is not a "
		  "number of that kind: it is too large" },
		{ "SYCL_IN_MEM_CACHE_EVICTION_THRESHOLD=a",
		  "SYCL_IN_MEM_CACHE_EVICTION_THRESHOLD: \"a\" is not a whole "
		  "number, without a unit" },
		{ "SYCL_IN_MEM_CACHE_EVICTION_THRESHOLD=-1",
		  "SYCL_IN_MEM_CACHE_EVICTION_THRESHOLD: \"-1\" is not a whole "
		  "number, without a unit" },
		{ "SYCL_CACHE_THRESHOLD=2.5",
		  "SYCL_CACHE_THRESHOLD: \"2.5\" is not a whole number, "
		  "without a unit" },
		{ "SYCL_CACHE_MIN_DEVICE_IMAGE_SIZE=0x10",
		  "SYCL_CACHE_MIN_DEVICE_IMAGE_SIZE: \"0x10\" is not a whole "
		  "number, without a unit" },
		{ "SYCL_CACHE_DIR=here",
		  "SYCL_CACHE_DIR: \"here\" is not a path from the root" },
		{ "SYCL_CACHE_DIALECT=intel",
		  "SYCL_CACHE_DIALECT: \"intel\" is not seed or dpcpp" },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const char *variables[] = { rows[i].variable, NULL };
		char words[512], right[512];

		snprintf(right, sizeof(right), "KILN_E_INVALID %s",
			 rows[i].right);
		assert_string_equal(read_as(variables, words), right);
	}
}

/* The limit of a directory that DPC++ bounds is read as DPC++ reads it. */
static void dpcpps_own_directory_has_dpcpps_dialect(void **state)
{
	char *directory = harness_directory();
	char *size = harness_path(directory, "cache_size.txt");
	char where[300], words[512], right[512];
	const char *variables[] = { "SYCL_CACHE_PERSISTENT=1", where,
				    "SYCL_CACHE_MAX_SIZE=9000", NULL, NULL };

	snprintf(where, sizeof(where), "SYCL_CACHE_DIR=%s", directory);
	harness_write(size, "0", 1);
	snprintf(right, sizeof(right), "sycl:%s max 9000 age 0 " REST,
		 directory);
	assert_string_equal(read_as(variables, words), right);
	variables[3] = "SYCL_CACHE_DIALECT=seed";
	snprintf(right, sizeof(right),
		 "sycl:%s max 9437184000 age 604800 " REST, directory);
	assert_string_equal(read_as(variables, words), right);
	free(size);
	free(directory);
}

static void options_of_the_environment_reach_programs(void **state)
{
	static const char *const variables[] = {
		"SYCL_PROGRAM_COMPILE_OPTIONS=-c",
		"SYCL_PROGRAM_LINK_OPTIONS=",
		"SYCL_PROGRAM_APPEND_COMPILE_OPTIONS=-a b",
		"SYCL_CACHE_TRACE=2",
		NULL,
	};
	struct kiln_programs_options options;
	struct kiln_sycl_config *config;

	assert_int_equal(ki_sycl_config_read(variables, &config, NULL),
			 KILN_OK);
	kiln_programs_options_init(&options);
	kiln_sycl_config_programs(config, &options);
	assert_string_equal(options.compile_options_override, "-c");
	assert_string_equal(options.link_options_override, "");
	assert_string_equal(options.compile_options_append, "-a b");
	assert_null(options.link_options_append);
	assert_true(options.flags & KILN_PROGRAMS_TRACE);
	kiln_sycl_config_free(config);
	kiln_sycl_config_free(NULL);
}

static void the_process_has_an_environment_too(void **state)
{
	struct kiln_sycl_config *config;
	char *message = "x";

	assert_int_equal(setenv("SYCL_CACHE_IN_MEM", "maybe", 1), 0);
	assert_int_equal(kiln_sycl_config_read(&config, &message),
			 KILN_E_INVALID);
	assert_string_equal(message,
			    "SYCL_CACHE_IN_MEM: \"maybe\" is not 0 or 1");
	free(message);
	assert_int_equal(unsetenv("SYCL_CACHE_IN_MEM"), 0);
	assert_int_equal(kiln_sycl_config_read(&config, &message), KILN_OK);
	assert_null(message);
	kiln_sycl_config_free(config);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(variables_are_read_as_documented),
		cmocka_unit_test(bad_values_are_errors_that_name_the_variable),
		cmocka_unit_test(dpcpps_own_directory_has_dpcpps_dialect),
		cmocka_unit_test(options_of_the_environment_reach_programs),
		cmocka_unit_test(the_process_has_an_environment_too),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
