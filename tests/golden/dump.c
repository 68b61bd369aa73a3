/* SPDX-License-Identifier: MIT */

/*
 * dump FOLDER DOCUMENTS: the entries that docs/formats shows byte by byte are
 * those of the golden stores, to the letter.  When a store is written anew,
 * what this prints goes into the document.
 */

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/harness.h"

#include "base/bytes.h"
#include "conform/kinds.h"
#include "store/log/format.h"
#include "store/pack/pack.h"

#define NUMBER 0 /* of the key that is shown */

static const char *folder, *documents;

/* "    00000000: 4b4c 5231 ...  KLR1" */
static void dump_line(struct ki_bytes *out, const uint8_t *data, size_t offset,
		      size_t size)
{
	size_t i;

	ki_bytes_printf(out, "    %08zx:", offset);
	for (i = 0; i < 16; i++) {
		if (i < size)
			ki_bytes_printf(out, i % 2 ? "%02x" : " %02x",
					data[offset + i]);
		else
			ki_bytes_add_string(out, i % 2 ? "  " : "   ");
	}
	ki_bytes_add_string(out, "  ");
	for (i = 0; i < size; i++) {
		uint8_t c = data[offset + i];

		ki_bytes_add_u8(out, c >= 0x20 && c < 0x7f ? c : '.');
	}
	ki_bytes_add_string(out, "\n");
}

/* From `begin` to before `end`. */
static char *dump_part(const uint8_t *data, size_t begin, size_t end)
{
	struct ki_bytes out;
	size_t offset;
	char *text;

	ki_bytes_init(&out);
	for (offset = begin; offset < end; offset += 16)
		dump_line(&out, data, offset,
			  end - offset < 16 ? end - offset : 16);
	ki_bytes_add_u8(&out, 0);
	assert_false(out.failed);
	text = strdup((const char *)out.data);
	ki_bytes_fini(&out);
	return text;
}

static char *dump(const uint8_t *data, size_t size)
{
	return dump_part(data, 0, size);
}

static void assert_shown(const char *document, const char *text)
{
	char *path = harness_path(documents, document);
	char *shown = harness_read(path, NULL);

	assert_non_null(shown);
	if (!strstr(shown, text))
		fail_msg("%s has to show:\n%s", path, text);
	free(shown);
	free(path);
}

static char *read_golden(const char *name, size_t *out_size)
{
	char *path = harness_path(folder, name);
	char *data = harness_read(path, out_size);

	assert_non_null(data);
	free(path);
	return data;
}

static void the_entry_of_a_file_is_a_real_one(void **state)
{
	struct kiln_key *key = numbered_key(NUMBER);
	char digits[2 * KILN_DIGEST_BYTES + 1], name[128];
	char *data, *text;
	size_t size;

	ki_hex(kiln_key_digest(key), KILN_DIGEST_BYTES, digits);
	snprintf(name, sizeof(name), "file/kiln.files/%.2s/%s", digits, digits);
	data = read_golden(name, &size);
	text = dump((const uint8_t *)data, size);
	assert_shown("file.md", text);
	free(text);
	free(data);
	kiln_key_free(key);
}

/* The first segment's number and bytes. */
static uint8_t *first_segment(uint32_t *out_number, size_t *out_size)
{
	char *pattern = harness_path(folder, "log/kiln.*.val"), *data;
	glob_t found;
	unsigned number;

	assert_int_equal(glob(pattern, 0, NULL, &found), 0);
	assert_int_equal(
		sscanf(strrchr(found.gl_pathv[0], '/'), "/kiln.%8x", &number),
		1);
	data = harness_read(found.gl_pathv[0], out_size);
	assert_non_null(data);
	*out_number = number;
	globfree(&found);
	free(pattern);
	return (uint8_t *)data;
}

static uint64_t word_leading_to(uint32_t number, uint32_t units)
{
	size_t size, i;
	char *index = read_golden("log/kiln.idx", &size);
	uint64_t word = 0, n_words;
	struct log_fixed fixed;

	memcpy(&fixed, index, sizeof(fixed));
	n_words = fixed.n_buckets * LOG_WORDS;
	assert_true(LOG_HEADER_BYTES + n_words * sizeof(word) <= size);
	for (i = 0; i < n_words; i++) {
		memcpy(&word, index + LOG_HEADER_BYTES + i * sizeof(word),
		       sizeof(word));
		if (word && log_word_units(word) == units &&
		    ((word >> LOG_OFFSET_BITS) & LOG_SEGMENT_MASK) ==
			    (number & LOG_SEGMENT_MASK))
			break;
	}
	assert_true(i < n_words);
	free(index);
	return word;
}

static void the_record_of_a_log_is_a_real_one(void **state)
{
	struct log_record record;
	char word_text[64];
	uint32_t number;
	uint64_t word;
	size_t size;
	uint8_t *data = first_segment(&number, &size);
	char *text;

	memcpy(&record, data, sizeof(record));
	assert_int_equal(record.magic, LOG_RECORD_MAGIC);
	assert_true(log_record_bytes(&record) <= size);
	text = dump(data, (size_t)log_record_bytes(&record));
	assert_shown("log.md", text);
	free(text);

	word = word_leading_to(number, 0);
	snprintf(word_text, sizeof(word_text), "`%04x %02x %05x %06x`",
		 log_word_tag(word), (unsigned)(word >> 40 & 0xff),
		 (unsigned)(word >> LOG_OFFSET_BITS & LOG_SEGMENT_MASK),
		 log_word_units(word));
	assert_shown("log.md", word_text);
	free(data);
}

/* A part of the golden pack, which pack.md shows. */
static void assert_part_shown(const uint8_t *pack, size_t begin, size_t end)
{
	char *text = dump_part(pack, begin, end);

	assert_shown("pack.md", text);
	free(text);
}

static void the_bytes_of_a_pack_are_real_ones(void **state)
{
	struct ki_pack_root root;
	size_t size, index, table;
	char *data = read_golden("pack/golden.pack", &size);
	const uint8_t *pack = (const uint8_t *)data;

	assert_true(size > KI_PACK_ROOT_BYTES);
	assert_int_equal(ki_pack_root_read(pack, &root), KILN_OK);
	assert_int_equal(root.file_bytes, size);
	index = (size_t)root.index_offset[0];
	table = index + (size_t)root.n_pages * KI_PACK_PAGE_BYTES;
	assert_int_equal(root.n_signatures, 1);
	assert_part_shown(pack, 0,
			  KI_PACK_SIGNED_BYTES + 8 + KI_SIGNATURE_BYTES);
	assert_part_shown(pack, index, index + 16 + KI_PACK_ENTRY_BYTES);
	assert_part_shown(pack, table, table + KI_PACK_TABLE_BYTES);
	free(data);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_record_of_a_log_is_a_real_one),
		cmocka_unit_test(the_entry_of_a_file_is_a_real_one),
		cmocka_unit_test(the_bytes_of_a_pack_are_real_ones),
	};

	if (argc != 3) {
		fprintf(stderr, "usage: dump FOLDER DOCUMENTS\n");
		return 2;
	}
	folder = argv[1];
	documents = argv[2];
	return cmocka_run_group_tests(tests, NULL, NULL);
}
