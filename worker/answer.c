/* SPDX-License-Identifier: MIT */

/*
 * A child's answer, in a file in memory that only the two know:
 *
 *	"kilnmade" verdict:u32 then four times size:u64 bytes
 *	(text, key record, metadata, value)
 *
 * A rebuild's child answers twice, and its last word may be the shorter one.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "worker.h"

#define MAGIC		 "kilnmade"
#define ANSWER_BYTES_MAX ((uint64_t)2 << 30)

const char *ki_verdict_word(enum ki_verdict verdict)
{
	static const char *const words[] = {
#define VERDICT_WORD(name, word) word,
		KI_VERDICTS(VERDICT_WORD)
#undef VERDICT_WORD
	};

	return words[verdict];
}

static int write_piece(int fd, const void *data, size_t size, uint64_t *offset)
{
	const struct ki_sys *sys = &ki_sys_posix;
	uint8_t number[8];
	int err;

	ki_put_u64(number, size);
	err = ki_pwrite_all(sys, fd, number, sizeof(number), *offset);
	if (!err && size)
		err = ki_pwrite_all(sys, fd, data, size, *offset + 8);
	*offset += 8 + size;
	return err;
}

int ki_answer_write(int fd, const struct ki_answer *answer)
{
	const struct ki_sys *sys = &ki_sys_posix;
	uint8_t header[12];
	uint64_t offset = sizeof(header);
	int err;

	memcpy(header, MAGIC, 8);
	ki_put_u32(header + 8, (uint32_t)answer->verdict);
	err = write_piece(fd, answer->text, strlen(answer->text), &offset);
	if (!err)
		err = write_piece(fd, answer->record, answer->record_size,
				  &offset);
	if (!err)
		err = write_piece(fd, answer->metadata, answer->metadata_size,
				  &offset);
	if (!err)
		err = write_piece(fd, answer->value, answer->value_size,
				  &offset);
	if (!err && ftruncate(fd, (off_t)offset))
		err = -errno;
	if (!err)
		err = ki_pwrite_all(sys, fd, header, sizeof(header), 0);
	return err;
}

static const void *read_piece(struct ki_reader *reader, size_t *out_size)
{
	*out_size = (size_t)ki_read_u64(reader);
	return ki_read(reader, *out_size);
}

static int take_answer(struct ki_reader reader, struct ki_answer *answer)
{
	const void *magic = ki_read(&reader, 8), *text;
	uint32_t verdict = ki_read_u32(&reader);
	size_t text_size;

	text = read_piece(&reader, &text_size);
	answer->record = read_piece(&reader, &answer->record_size);
	answer->metadata = read_piece(&reader, &answer->metadata_size);
	answer->value = read_piece(&reader, &answer->value_size);
	if (reader.failed || reader.size || memcmp(magic, MAGIC, 8) ||
	    verdict >= KI_N_VERDICTS || text_size >= sizeof(answer->text))
		return -EBADMSG;
	answer->verdict = (enum ki_verdict)verdict;
	memcpy(answer->text, text, text_size);
	answer->text[text_size] = '\0';
	return 0;
}

int ki_answer_read(int fd, struct ki_answer *out_answer, void **out_bytes)
{
	struct ki_answer answer;
	void *bytes;
	size_t size;
	int err = ki_read_whole(&ki_sys_posix, fd, ANSWER_BYTES_MAX, &bytes,
				&size);

	if (err)
		return err;
	err = take_answer(ki_reader(bytes, size), &answer);
	if (err) {
		free(bytes);
		return err;
	}
	*out_answer = answer;
	*out_bytes = bytes;
	return 0;
}
