/* SPDX-License-Identifier: MIT */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "harness/harness.h"

#include "worker.h"

static const struct ki_answer made = {
	.verdict = KI_VERDICT_MADE,
	.record = "the record",
	.record_size = 10,
	.metadata = "",
	.metadata_size = 0,
	.value = "the\0value",
	.value_size = 9,
};

static int written(const struct ki_answer *answer)
{
	int fd = memfd_create("answer", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(ki_answer_write(fd, answer), 0);
	return fd;
}

static void an_answer_arrives_as_it_was_given(void **state)
{
	struct ki_answer refused = { .verdict = KI_VERDICT_BUILD,
				     .text = "-11: no such thing" };
	struct ki_answer answer;
	void *bytes;
	int fd = written(&made);

	assert_int_equal(ki_answer_read(fd, &answer, &bytes), 0);
	assert_int_equal(answer.verdict, KI_VERDICT_MADE);
	assert_string_equal(answer.text, "");
	assert_int_equal(answer.record_size, 10);
	assert_memory_equal(answer.record, made.record, 10);
	assert_int_equal(answer.metadata_size, 0);
	assert_int_equal(answer.value_size, 9);
	assert_memory_equal(answer.value, made.value, 9);
	free(bytes);
	close(fd);
	fd = written(&refused);
	assert_int_equal(ki_answer_read(fd, &answer, &bytes), 0);
	assert_string_equal(answer.text, refused.text);
	assert_string_equal(ki_verdict_word(answer.verdict), "build");
	assert_int_equal(answer.value_size, 0);
	free(bytes);
	close(fd);
}

/* A rebuild's child says what it builds, and then how that ended. */
static void the_last_of_two_answers_counts_however_short(void **state)
{
	struct ki_answer refused = { .verdict = KI_VERDICT_BUILD,
				     .text = "-11",
				     .record = made.record,
				     .record_size = made.record_size };
	struct ki_answer answer;
	void *bytes;
	int fd = written(&made);

	assert_int_equal(ki_answer_write(fd, &refused), 0);
	assert_int_equal(ki_answer_read(fd, &answer, &bytes), 0);
	assert_int_equal(answer.verdict, KI_VERDICT_BUILD);
	assert_string_equal(answer.text, "-11");
	assert_int_equal(answer.record_size, made.record_size);
	assert_int_equal(answer.value_size, 0);
	free(bytes);
	close(fd);
}

/* What a child left that died while it wrote. */
static void half_an_answer_is_none(void **state)
{
	int fd = written(&made);
	off_t size = lseek(fd, 0, SEEK_END);
	struct ki_answer answer;
	void *bytes;

	while (size-- > 0) {
		assert_int_equal(ftruncate(fd, size), 0);
		assert_int_equal(ki_answer_read(fd, &answer, &bytes), -EBADMSG);
	}
	close(fd);
}

static void no_byte_of_an_answer_leads_out_of_it(void **state)
{
	int fd = written(&made);
	off_t size = lseek(fd, 0, SEEK_END), i;

	for (i = 0; i < size; i++) {
		struct ki_answer answer;
		unsigned char byte, other;
		void *bytes;

		assert_int_equal(pread(fd, &byte, 1, i), 1);
		other = (unsigned char)~byte;
		assert_int_equal(pwrite(fd, &other, 1, i), 1);
		if (!ki_answer_read(fd, &answer, &bytes)) {
			assert_true(answer.verdict < KI_N_VERDICTS);
			assert_int_equal(answer.record_size +
						 answer.metadata_size +
						 answer.value_size,
					 19);
			free(bytes);
		}
		assert_int_equal(pwrite(fd, &byte, 1, i), 1);
	}
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_answer_arrives_as_it_was_given),
		cmocka_unit_test(the_last_of_two_answers_counts_however_short),
		cmocka_unit_test(half_an_answer_is_none),
		cmocka_unit_test(no_byte_of_an_answer_leads_out_of_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
