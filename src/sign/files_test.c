/* SPDX-License-Identifier: MIT */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/harness.h"

#include "sign/files.h"

#define SYS (&ki_sys_posix)

static struct ki_sign_secret secret_of(const char *name, uint8_t seed_byte)
{
	uint8_t seed[KI_SIGN_SEED_BYTES];
	struct ki_sign_secret secret;

	memset(seed, seed_byte, sizeof(seed));
	assert_int_equal(ki_sign_secret_new(name, seed, &secret), KILN_OK);
	return secret;
}

/* A file with the text of a secret, in a directory of the test's own. */
static char *write_secret(const struct ki_sign_secret *secret)
{
	char *directory = harness_directory();
	char *path = harness_path(directory, "keys/ci.secret");
	char text[KI_SIGN_TEXT_BYTES];

	ki_sign_secret_print(secret, text);
	assert_int_equal(ki_sign_write(SYS, path, text, 0600, 0), KILN_OK);
	free(directory);
	return path;
}

static unsigned mode_of(const char *path)
{
	struct stat info;

	assert_int_equal(stat(path, &info), 0);
	return info.st_mode & 07777;
}

static void a_secret_is_its_users_alone(void **state)
{
	struct ki_sign_secret secret = secret_of("ci", 1), again;
	char *path = write_secret(&secret);
	char text[KI_SIGN_TEXT_BYTES] = "other";
	const char *why = NULL;

	assert_int_equal(mode_of(path), 0600);
	assert_int_equal(ki_sign_write(SYS, path, text, 0600, 0), KILN_EXISTS);
	assert_int_equal(ki_sign_read_secret(SYS, path, &again, &why), KILN_OK);
	assert_null(why);
	assert_memory_equal(&again, &secret, sizeof(again));
	*strrchr(path, '/') = '\0';
	assert_int_equal(mode_of(path), 0700);
	free(path);
}

static void a_secret_that_others_can_read_is_refused(void **state)
{
	static const unsigned modes[] = { 0640, 0604, 0660, 0602, 0620, 0610 };
	struct ki_sign_secret secret = secret_of("ci", 1), again = { 0 };
	static const struct ki_sign_secret nothing;
	char *path = write_secret(&secret);

	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		const char *why = NULL;

		assert_int_equal(chmod(path, modes[i]), 0);
		assert_int_equal(ki_sign_read_secret(SYS, path, &again, &why),
				 KILN_E_OWNER);
		assert_non_null(why);
		assert_memory_equal(&again, &nothing, sizeof(again));
	}
	free(path);
}

static void a_secret_behind_a_link_is_refused(void **state)
{
	struct ki_sign_secret secret = secret_of("ci", 1);
	char *path = write_secret(&secret);
	char *directory = harness_directory();
	char *link_path = harness_path(directory, "link.secret");

	assert_int_equal(symlink(path, link_path), 0);
	assert_int_equal(ki_sign_read_secret(SYS, link_path, &secret, NULL),
			 KILN_E_OWNER);
	free(link_path);
	free(directory);
	free(path);
}

static void what_is_no_secret_is_told_by_kind(void **state)
{
	struct ki_sign_secret secret = secret_of("ci", 1);
	char text[KI_SIGN_TEXT_BYTES];
	char *path = write_secret(&secret);
	const char *why = NULL;

	ki_sign_public_print(&secret.public, text);
	assert_int_equal(ki_sign_write(SYS, path, text, 0600, 1), KILN_OK);
	assert_int_equal(ki_sign_read_secret(SYS, path, &secret, &why),
			 KILN_E_FORMAT);
	assert_string_equal(why, "is no secret key");
	assert_int_equal(unlink(path), 0);
	assert_int_equal(ki_sign_read_secret(SYS, path, &secret, &why),
			 KILN_MISS);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(ki_sign_read_secret(SYS, path, &secret, &why),
			 KILN_E_FORMAT);
	free(path);
}

struct complaints {
	unsigned n;
	char why[128];
};

static void note(void *arg, const char *path, const char *why)
{
	struct complaints *complaints = arg;

	assert_non_null(path);
	complaints->n++;
	snprintf(complaints->why, sizeof(complaints->why), "%s", why);
}

static void put_public(const char *directory, const char *name,
		       const struct ki_sign_secret *secret, unsigned mode)
{
	char text[KI_SIGN_TEXT_BYTES], path[KI_PATH_MAX];

	ki_sign_public_print(&secret->public, text);
	assert_int_equal(ki_path_join(path, directory, name), 0);
	assert_int_equal(ki_sign_write(SYS, path, text, 0644, 1), KILN_OK);
	assert_int_equal(chmod(path, mode), 0);
}

static void one_bad_file_does_not_take_trust_from_the_others(void **state)
{
	struct ki_sign_secret a = secret_of("a", 1), b = secret_of("b", 2);
	struct ki_sign_secret evil = secret_of("evil", 3);
	struct complaints complaints = { 0 };
	struct ki_sign_trust trust = { 0 };
	char *directory = harness_directory();
	char *secret_path = harness_path(directory, "wrong.public");
	char text[KI_SIGN_TEXT_BYTES];

	put_public(directory, "a.public", &a, 0644);
	put_public(directory, "b.public", &b, 0600);
	put_public(directory, "evil.public", &evil, 0646);
	put_public(directory, "evil.public.tmp", &evil, 0644);
	put_public(directory, "evil", &evil, 0644);
	assert_int_equal(
		ki_sign_read_trusted(SYS, directory, &trust, note, &complaints),
		KILN_OK);
	assert_int_equal(trust.n_keys, 2);
	assert_non_null(ki_sign_trust_find(&trust, a.public.id));
	assert_non_null(ki_sign_trust_find(&trust, b.public.id));
	assert_int_equal(complaints.n, 1);
	assert_string_equal(complaints.why, "can be written by everyone");
	ki_sign_trust_fini(&trust);

	/* A secret where a public key belongs is told, and not what it is. */
	ki_sign_secret_print(&a, text);
	assert_int_equal(ki_sign_write(SYS, secret_path, text, 0600, 0),
			 KILN_OK);
	assert_int_equal(ki_sign_read_public(SYS, secret_path, &trust, NULL),
			 KILN_E_FORMAT);
	assert_int_equal(trust.n_keys, 0);
	free(secret_path);
	free(directory);
}

static void a_directory_that_anybody_can_write_is_left_out(void **state)
{
	struct ki_sign_secret a = secret_of("a", 1);
	struct complaints complaints = { 0 };
	struct ki_sign_trust trust = { 0 };
	char *directory = harness_directory();

	put_public(directory, "a.public", &a, 0644);
	assert_int_equal(chmod(directory, 0777), 0);
	assert_int_equal(
		ki_sign_read_trusted(SYS, directory, &trust, note, &complaints),
		KILN_OK);
	assert_int_equal(trust.n_keys, 0);
	assert_int_equal(complaints.n, 1);
	assert_int_equal(ki_sign_read_trusted(SYS, "/nonexistent/kiln", &trust,
					      note, &complaints),
			 KILN_OK);
	assert_int_equal(complaints.n, 1);
	free(directory);
}

/* As root, whose files others' are not. */
static void the_keys_of_someone_else_are_left_out(void **state)
{
	struct ki_sign_secret a = secret_of("a", 1);
	struct ki_sign_trust trust = { 0 };
	char *directory, *path;
	const char *why = NULL;

	if (geteuid()) {
		HARNESS_LEAVE_OUT("only root can give files away");
		return;
	}
	directory = harness_directory();
	path = harness_path(directory, "a.public");
	put_public(directory, "a.public", &a, 0644);
	assert_int_equal(chown(path, 12345, 12345), 0);
	assert_int_equal(ki_sign_read_public(SYS, path, &trust, &why),
			 KILN_E_OWNER);
	assert_string_equal(why, "belongs to someone else");
	free(path);
	path = write_secret(&a);
	assert_int_equal(chown(path, 12345, 12345), 0);
	assert_int_equal(ki_sign_read_secret(SYS, path, &a, &why),
			 KILN_E_OWNER);
	free(path);
	free(directory);
}

static int fail_fsync(const struct ki_sys *sys, int fd)
{
	return -ENOSPC;
}

static void a_write_that_fails_leaves_what_was_there(void **state)
{
	struct ki_sign_secret secret = secret_of("ci", 1), again;
	struct ki_sys sys = ki_sys_posix;
	char *path = write_secret(&secret);
	struct complaints complaints = { 0 };
	struct ki_sign_trust trust = { 0 };

	sys.fsync = fail_fsync;
	assert_int_equal(ki_sign_write(&sys, path, "rubbish", 0600, 1),
			 KILN_E_FULL);
	assert_int_equal(ki_sign_read_secret(SYS, path, &again, NULL), KILN_OK);
	assert_memory_equal(&again, &secret, sizeof(again));
	*strrchr(path, '/') = '\0';
	/* Nothing else is left there: the directory goes once it has gone. */
	assert_int_equal(
		ki_sign_read_trusted(SYS, path, &trust, note, &complaints),
		KILN_OK);
	assert_int_equal(complaints.n, 0);
	strcat(path, "/ci.secret");
	assert_int_equal(unlink(path), 0);
	*strrchr(path, '/') = '\0';
	assert_int_equal(rmdir(path), 0);
	free(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_secret_is_its_users_alone),
		cmocka_unit_test(a_secret_that_others_can_read_is_refused),
		cmocka_unit_test(a_secret_behind_a_link_is_refused),
		cmocka_unit_test(what_is_no_secret_is_told_by_kind),
		cmocka_unit_test(
			one_bad_file_does_not_take_trust_from_the_others),
		cmocka_unit_test(
			a_directory_that_anybody_can_write_is_left_out),
		cmocka_unit_test(the_keys_of_someone_else_are_left_out),
		cmocka_unit_test(a_write_that_fails_leaves_what_was_there),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
