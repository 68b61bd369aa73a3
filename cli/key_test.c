/* SPDX-License-Identifier: MIT */

/* kiln key, as a shell sees it. */

#include "testing.h"
#include "harness/harness.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sign/files.h"

static const char *program;

/* Another home: another user, as far as keys are concerned. */
static struct ended key(const char *home, const char *action, const char *name,
			const char *option)
{
	char variable[KI_PATH_MAX];
	struct spawn spawn = { .program = program };
	struct ended ended;

	snprintf(variable, sizeof(variable), "XDG_CONFIG_HOME=%s", home);
	spawn.arguments[0] = "key";
	spawn.arguments[1] = action;
	spawn.arguments[2] = name ? name : option;
	spawn.arguments[3] = name ? option : NULL;
	spawn.variables[0] = variable;
	spawn.variables[1] = "COLUMNS";
	spawn.variables[2] = "KILN_SIGNING_KEY";
	spawn.variables[3] = "KILN_CONFIG";
	ended = spawn_run(&spawn);
	/* Whatever is done: no secret leaves its file. */
	assert_null(strstr(ended.out, "kiln-secret"));
	assert_null(strstr(ended.err, "kiln-secret"));
	return ended;
}

static int status_of_key(const char *home, const char *action, const char *name)
{
	struct ended ended = key(home, action, name, NULL);
	int status = status_of(&ended);

	ended_free(&ended);
	return status;
}

static char *shown(const char *home, const char *name)
{
	struct ended ended = key(home, "show", name, NULL);
	char *out = ended.out;

	assert_int_equal(status_of(&ended), 0);
	ended.out = NULL;
	ended_free(&ended);
	return out;
}

static json_t *list(const char *home)
{
	struct ended ended = key(home, "ls", NULL, "--json");
	json_t *json = json_loads(ended.out, 0, NULL);

	assert_int_equal(status_of(&ended), 0);
	assert_int_equal(json_integer_value(json_object_get(json, "schema")),
			 1);
	ended_free(&ended);
	return json;
}

/* How many keys, and of the first: "ann signs user". */
static void assert_keys(const char *home, size_t n, const char *first)
{
	json_t *json = list(home), *keys = json_object_get(json, "keys");
	json_t *one = json_array_get(keys, 0);
	const char *by = json_string_value(json_object_get(one, "trusted"));
	char words[256];

	assert_int_equal(json_array_size(keys), n);
	if (first) {
		snprintf(words, sizeof(words), "%s%s %s",
			 json_string_value(json_object_get(one, "name")),
			 json_is_true(json_object_get(one, "signs")) ? " signs"
								     : "",
			 by ? by : "-");
		assert_string_equal(words, first);
	}
	json_decref(json);
}

static char *below(const char *home, const char *path)
{
	char *kiln = harness_path(home, "kiln");
	char *out = harness_path(kiln, path);

	free(kiln);
	return out;
}

static unsigned mode_of(const char *path)
{
	struct stat info;

	return stat(path, &info) ? 0 : info.st_mode & 07777;
}

static void a_new_key_signs_and_is_trusted_on_request(void **state)
{
	char *home = harness_directory();
	char *secret = below(home, "keys/ann.secret");
	char *public = below(home, "keys/ann.public");
	struct ki_sign_public parsed;
	char *text;

	assert_keys(home, 0, NULL);
	assert_int_equal(status_of_key(home, "new", "ann"), 0);
	assert_int_equal(mode_of(secret), 0600);
	assert_int_not_equal(mode_of(public), 0);
	assert_keys(home, 1, "ann signs -");
	text = shown(home, "ann");
	assert_int_equal(ki_sign_public_parse(text, &parsed), KILN_OK);
	assert_string_equal(parsed.name, "ann");
	free(text);
	assert_int_equal(status_of_key(home, "trust", "ann"), 0);
	assert_int_equal(status_of_key(home, "trust", "ann"), 0);
	assert_keys(home, 1, "ann signs user");
	/* What it signs with is not taken away by a second of its name. */
	assert_int_equal(status_of_key(home, "new", "ann"), 1);
	assert_keys(home, 1, "ann signs user");
	assert_int_equal(status_of_key(home, "distrust", "ann"), 0);
	assert_keys(home, 1, "ann signs -");
	assert_int_equal(status_of_key(home, "distrust", "ann"), 3);
	free(public);
	free(secret);
	free(home);
}

static void another_users_key_is_trusted_by_text_and_by_file(void **state)
{
	char *ann = harness_directory(), *bob = harness_directory();
	char *file = below(ann, "keys/ann.public"), *text;

	assert_int_equal(status_of_key(ann, "new", "ann"), 0);
	text = shown(ann, "ann");
	text[strcspn(text, "\n")] = '\0';
	assert_int_equal(status_of_key(bob, "trust", text), 0);
	assert_keys(bob, 1, "ann user");
	assert_int_equal(status_of_key(bob, "distrust", "ann"), 0);
	assert_keys(bob, 0, NULL);
	assert_int_equal(status_of_key(bob, "trust", file), 0);
	assert_keys(bob, 1, "ann user");
	free(text);
	free(file);
	free(bob);
	free(ann);
}

static void a_rotated_key_leaves_the_old_one_trusted_until_it_is_not(
	void **state)
{
	char *home = harness_directory(), *old, *both, *line;
	char id[2 * KI_SIGN_ID_BYTES + 1];
	struct ki_sign_public parsed;

	assert_int_equal(status_of_key(home, "rotate", "ann"), 3);
	assert_int_equal(status_of_key(home, "new", "ann"), 0);
	assert_int_equal(status_of_key(home, "trust", "ann"), 0);
	old = shown(home, "ann");
	assert_int_equal(status_of_key(home, "rotate", "ann"), 0);
	assert_keys(home, 2, "ann signs user");
	both = shown(home, "ann");
	line = strstr(both, old);
	assert_non_null(line);
	assert_ptr_not_equal(line, both);
	assert_int_equal(ki_sign_public_parse(old, &parsed), KILN_OK);
	ki_hex(parsed.id, sizeof(parsed.id), id);
	assert_int_equal(status_of_key(home, "distrust", id), 0);
	{
		json_t *json = list(home),
		       *keys = json_object_get(json, "keys");
		json_t *second = json_array_get(keys, 1);

		assert_int_equal(json_array_size(keys), 2);
		assert_string_equal(
			json_string_value(json_object_get(second, "id")), id);
		assert_true(json_is_false(json_object_get(second, "signs")));
		assert_true(json_is_null(json_object_get(second, "trusted")));
		json_decref(json);
	}
	assert_keys(home, 2, "ann signs user");
	free(both);
	free(old);
	free(home);
}

static void what_is_not_to_be_trusted_is_refused(void **state)
{
	static const struct {
		const char *action;
		const char *name;
		int status;
	} rows[] = {
		{ "trust", "/nonexistent.public", 1 },
		{ "trust",
		  "ann:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", 1 },
		{ "trust",
		  "kiln-secret:a:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
		  2 },
		{ "distrust", "ann", 3 },
		{ "show", "ann", 3 },
		{ "new", "../ann", 2 },
		{ "new", "", 2 },
		{ "new", NULL, 2 },
		{ "ls", "ann", 2 },
		{ "steal", "ann", 2 },
	};
	char *home = harness_directory(), *ann = harness_directory();
	char *file = below(ann, "keys/ann.public");
	char *secret = below(ann, "keys/ann.secret");

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		assert_int_equal(
			status_of_key(home, rows[i].action, rows[i].name),
			rows[i].status);
	assert_int_equal(status_of_key(ann, "new", "ann"), 0);
	assert_int_equal(status_of_key(home, "trust", secret), 1);
	assert_int_equal(chmod(file, 0666), 0);
	assert_int_equal(status_of_key(home, "trust", file), 1);
	assert_keys(home, 0, NULL);
	free(secret);
	free(file);
	free(ann);
	free(home);
}

static void a_secret_that_others_can_read_does_not_sign(void **state)
{
	char *home = harness_directory();
	char *secret = below(home, "keys/ann.secret");

	assert_int_equal(status_of_key(home, "new", "ann"), 0);
	assert_int_equal(chmod(secret, 0640), 0);
	assert_keys(home, 1, "ann -");
	assert_int_equal(status_of_key(home, "rotate", "ann"), 1);
	assert_int_equal(chmod(secret, 0600), 0);
	assert_keys(home, 1, "ann signs -");
	free(secret);
	free(home);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_new_key_signs_and_is_trusted_on_request),
		cmocka_unit_test(
			another_users_key_is_trusted_by_text_and_by_file),
		cmocka_unit_test(
			a_rotated_key_leaves_the_old_one_trusted_until_it_is_not),
		cmocka_unit_test(what_is_not_to_be_trusted_is_refused),
		cmocka_unit_test(a_secret_that_others_can_read_does_not_sign),
	};

	program = argc > 1 ? argv[1] : "kiln";
	return cmocka_run_group_tests(tests, NULL, NULL);
}
