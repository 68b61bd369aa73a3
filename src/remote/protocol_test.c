/* SPDX-License-Identifier: MIT */

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/harness.h"

#include "base/hash.h"
#include "remote/protocol.h"
#include "sys/sys.h"

/* ---- Frames ----------------------------------------------------------------- */

static void a_frame_comes_back_as_it_was_put(void **state)
{
	static const int16_t statuses[] = { KILN_OK, KILN_EXISTS,
					    KILN_E_TIMEOUT, KILN_E_UNSUPPORTED,
					    INT16_MIN };

	for (size_t i = 0; i < sizeof(statuses) / sizeof(*statuses); i++) {
		struct ki_frame frame = { .size = 0,
					  .type = KI_FRAME_LEASED,
					  .flags = 3,
					  .status = statuses[i],
					  .id = UINT64_MAX - i };
		uint8_t bytes[KI_FRAME_BYTES];
		struct ki_frame found;

		ki_frame_put(bytes, &frame);
		assert_int_equal(ki_frame_get(bytes, &found), KILN_OK);
		assert_int_equal(found.type, frame.type);
		assert_int_equal(found.flags, frame.flags);
		assert_int_equal(found.status, frame.status);
		assert_int_equal(found.id, frame.id);
	}
}

static void a_frame_has_the_bytes_of_the_document(void **state)
{
	static const uint8_t expected[KI_FRAME_BYTES] = {
		0x28, 0,    0,	  0,	KI_FRAME_GET, 0, 0, 0,
		0x08, 0x07, 0x06, 0x05, 0x04,	      3, 2, 1,
	};
	struct ki_frame frame = { .size = KI_FRAME_GET_BYTES,
				  .type = KI_FRAME_GET,
				  .id = 0x0102030405060708 };
	uint8_t bytes[KI_FRAME_BYTES];

	ki_frame_put(bytes, &frame);
	assert_memory_equal(bytes, expected, sizeof(expected));
}

static void a_frame_whose_size_cannot_be_is_refused(void **state)
{
	static const struct {
		uint8_t type;
		uint32_t size;
		enum kiln_status status;
	} rows[] = {
		{ 0, 0, KILN_E_FORMAT },
		{ KI_FRAME_DRAINED + 1, 0, KILN_E_FORMAT },
		{ 255, 0, KILN_E_FORMAT },
		{ KI_FRAME_HELLO, 23, KILN_E_FORMAT },
		{ KI_FRAME_HELLO, 24, KILN_OK },
		{ KI_FRAME_HELLO, KI_REMOTE_BODY_MAX, KILN_OK },
		{ KI_FRAME_HELLO, KI_REMOTE_BODY_MAX + 1, KILN_E_FORMAT },
		{ KI_FRAME_GET, 39, KILN_E_FORMAT },
		{ KI_FRAME_GET, 40, KILN_OK },
		{ KI_FRAME_GET, 41, KILN_E_FORMAT },
		{ KI_FRAME_ITEM, 199, KILN_E_FORMAT },
		{ KI_FRAME_ITEM, 200, KILN_OK },
		{ KI_FRAME_ITEM, KI_REMOTE_ITEM_MAX + 8, KILN_OK },
		{ KI_FRAME_ITEM, KI_REMOTE_ITEM_MAX + 9, KILN_E_FORMAT },
		{ KI_FRAME_ITEM, UINT32_MAX, KILN_E_FORMAT },
		{ KI_FRAME_PREFETCH, 0, KILN_E_FORMAT },
		{ KI_FRAME_PREFETCH, 33, KILN_E_FORMAT },
		{ KI_FRAME_PREFETCH, 32, KILN_OK },
		{ KI_FRAME_PREFETCH, 32 * KI_REMOTE_NAMES_MAX, KILN_OK },
		{ KI_FRAME_PREFETCH, 32 * KI_REMOTE_NAMES_MAX + 32,
		  KILN_E_FORMAT },
		{ KI_FRAME_LEASED, 1, KILN_E_FORMAT },
		{ KI_FRAME_OPEN, KI_REMOTE_TEXT_MAX + 1, KILN_E_FORMAT },
		{ KI_FRAME_TOLD, KI_REMOTE_BODY_MAX + 1, KILN_E_FORMAT },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct ki_frame frame = { .size = rows[i].size,
					  .type = rows[i].type };
		uint8_t bytes[KI_FRAME_BYTES];
		struct ki_frame found;

		ki_frame_put(bytes, &frame);
		assert_int_equal(ki_frame_get(bytes, &found), rows[i].status);
	}
}

/* ---- Names ------------------------------------------------------------------ */

static void a_name_is_the_records_digest_and_of_a_version_another(void **state)
{
	uint8_t digest[32], name[32], other[32];

	ki_blake2b("record", 6, digest);
	ki_remote_name(digest, 0, name);
	assert_memory_equal(name, digest, 32);
	ki_remote_name(digest, 1, name);
	assert_memory_not_equal(name, digest, 32);
	ki_remote_name(digest, 2, other);
	assert_memory_not_equal(name, other, 32);
	ki_remote_name(digest, 1, digest);
	assert_memory_equal(name, digest, 32);
}

/* ---- Where the helper is ---------------------------------------------------- */

static void socket_of(const struct ki_remote_place *place,
		      char out[KI_PATH_MAX])
{
	assert_int_equal(ki_remote_socket(place, out, KI_PATH_MAX), KILN_OK);
}

static void every_part_of_a_configuration_has_its_own_socket(void **state)
{
	char *directory = harness_directory();
	const struct ki_remote_place rows[] = {
		{ "redis://a", NULL, NULL, "signed", directory },
		{ "redis://b", NULL, NULL, "signed", directory },
		{ "redis://a", "", NULL, "signed", directory },
		{ "redis://a", "/c", NULL, "signed", directory },
		{ "redis://a", NULL, "/c", "signed", directory },
		{ "redis://a", NULL, NULL, "transport", directory },
		{ "redis://", "a", NULL, "signed", directory },
	};
	enum { N = sizeof(rows) / sizeof(*rows) };
	char paths[N][KI_PATH_MAX], again[KI_PATH_MAX];

	for (size_t i = 0; i < N; i++) {
		socket_of(&rows[i], paths[i]);
		socket_of(&rows[i], again);
		assert_string_equal(paths[i], again);
		assert_int_equal(strlen(paths[i]), strlen(directory) + 45);
		for (size_t j = 0; j < i; j++)
			assert_string_not_equal(paths[i], paths[j]);
	}
	assert_int_equal(ki_remote_socket(&rows[0], again, strlen(paths[0])),
			 KILN_E_INVALID);
	free(directory);
}

/* Whatever is set where the tests run. */
static void forget_environment(void)
{
	for (size_t i = 0; ki_remote_variables[i]; i++)
		unsetenv(ki_remote_variables[i]);
}

static void credentials_of_the_environment_have_their_own_socket(void **state)
{
	char *directory = harness_directory();
	char *below = harness_path(directory, "run");
	char *elsewhere = harness_path(directory, "other");
	char *salt = harness_path(below, "salt");
	struct ki_remote_place place = { .remote = "redis://a",
					 .trust = "signed",
					 .directory = below };
	char without[KI_PATH_MAX], one[KI_PATH_MAX], two[KI_PATH_MAX];
	struct stat info;

	forget_environment();
	socket_of(&place, without);
	assert_int_equal(stat(salt, &info), -1);

	setenv("REDISCLI_AUTH", "one", 1);
	socket_of(&place, one);
	assert_int_equal(stat(salt, &info), 0);
	assert_int_equal(info.st_mode & 0777, 0600);
	assert_int_equal(info.st_size, 32);
	assert_string_not_equal(without, one);
	socket_of(&place, two);
	assert_string_equal(one, two);

	setenv("REDISCLI_AUTH", "two", 1);
	socket_of(&place, two);
	assert_string_not_equal(one, two);

	/* The same password elsewhere: nobody can compare. */
	setenv("REDISCLI_AUTH", "one", 1);
	place.directory = elsewhere;
	socket_of(&place, two);
	assert_string_not_equal(strrchr(one, '/'), strrchr(two, '/'));

	harness_write(salt, "short", 5);
	place.directory = below;
	assert_int_equal(ki_remote_socket(&place, two, sizeof(two)), KILN_E_IO);
	unsetenv("REDISCLI_AUTH");
	free(salt);
	free(below);
	free(elsewhere);
	free(directory);
}

static void what_a_helper_is_given_names_its_socket(void **state)
{
	char *directory = harness_directory();
	const struct ki_remote_place place = { .remote = "redis://a",
					       .trust = "signed",
					       .directory = directory };
	char without[KI_PATH_MAX], with[KI_PATH_MAX], other[KI_PATH_MAX];

	forget_environment();
	socket_of(&place, without);
	for (size_t i = 0; ki_remote_variables[i]; i++) {
		setenv(ki_remote_variables[i], "one", 1);
		socket_of(&place, with);
		assert_string_not_equal(with, without);
		setenv(ki_remote_variables[i], "two", 1);
		socket_of(&place, other);
		assert_string_not_equal(with, other);
		unsetenv(ki_remote_variables[i]);
	}
	/* What it is not given makes no difference to it. */
	setenv("HOME", "/elsewhere", 1);
	setenv("LD_PRELOAD", "", 1);
	socket_of(&place, with);
	assert_string_equal(with, without);
	free(directory);
}

/* Nor is a link followed to a directory that is. */
static void no_salt_is_taken_from_where_others_may_write_or_read(void **state)
{
	static const mode_t modes[] = { 0755, 0730, 0701, 0777 };
	char *directory = harness_directory();
	char *below = harness_path(directory, "run");
	char *link = harness_path(directory, "link");
	char *salt = harness_path(below, "salt");
	struct ki_remote_place place = { .remote = "redis://a",
					 .trust = "signed",
					 .directory = below };
	char path[KI_PATH_MAX];

	setenv("REDISCLI_AUTH", "one", 1);
	assert_int_equal(mkdir(below, 0700), 0);
	for (size_t i = 0; i < sizeof(modes) / sizeof(*modes); i++) {
		assert_int_equal(chmod(below, modes[i]), 0);
		assert_int_equal(ki_remote_socket(&place, path, sizeof(path)),
				 KILN_E_OWNER);
		assert_int_equal(access(salt, F_OK), -1);
	}
	assert_int_equal(chmod(below, 0700), 0);
	socket_of(&place, path);
	assert_int_equal(symlink(below, link), 0);
	place.directory = link;
	assert_int_equal(ki_remote_socket(&place, path, sizeof(path)),
			 KILN_E_OWNER);
	unsetenv("REDISCLI_AUTH");
	free(salt);
	free(link);
	free(below);
	free(directory);
}

static int name_a_socket(unsigned index, void *arg)
{
	char **paths = arg;
	struct ki_remote_place place = { .remote = "redis://a",
					 .trust = "signed",
					 .directory = paths[0] };
	char path[KI_PATH_MAX], first[KI_PATH_MAX] = "";

	setenv("REDISCLI_AUTH", "one", 1);
	if (ki_remote_socket(&place, path, sizeof(path)))
		return 1;
	if (!symlink(path, paths[1]))
		return 0;
	return readlink(paths[1], first, sizeof(first) - 1) < 0 ||
	       strcmp(first, path) != 0;
}

static void all_who_start_together_find_the_same_salt(void **state)
{
	char *directory = harness_directory();
	char *below = harness_path(directory, "run");
	char *first = harness_path(directory, "first");
	char *paths[] = { below, first };

	assert_int_equal(
		harness_processes(8, name_a_socket, paths, HARNESS_HANG_S), 0);
	free(first);
	free(below);
	free(directory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_frame_comes_back_as_it_was_put),
		cmocka_unit_test(a_frame_has_the_bytes_of_the_document),
		cmocka_unit_test(a_frame_whose_size_cannot_be_is_refused),
		cmocka_unit_test(
			a_name_is_the_records_digest_and_of_a_version_another),
		cmocka_unit_test(
			every_part_of_a_configuration_has_its_own_socket),
		cmocka_unit_test(
			credentials_of_the_environment_have_their_own_socket),
		cmocka_unit_test(what_a_helper_is_given_names_its_socket),
		cmocka_unit_test(
			no_salt_is_taken_from_where_others_may_write_or_read),
		cmocka_unit_test(all_who_start_together_find_the_same_salt),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
