/* SPDX-License-Identifier: MIT */

/* What a file is: each form put together here byte by byte, cut off at every
   place and changed at every place; and what compilers wrote, where there is
   any. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/harness.h"

#include "base/bytes.h"
#include "store/neo/neo.h"

/* ---- Binaries, as compilers put them together --------------------------------------- */

static void add_zeros(struct ki_bytes *bytes, size_t n)
{
	while (n--)
		ki_bytes_add_u8(bytes, 0);
}

/* A string with its NUL, filled up to words. */
static void add_words(struct ki_bytes *bytes, const char *text)
{
	ki_bytes_add(bytes, text, strlen(text) + 1);
	add_zeros(bytes, (size_t) - (ssize_t)(strlen(text) + 1) & 3);
}

static size_t words_of(const char *text)
{
	return strlen(text) / 4 + 1;
}

static void add_entry_point(struct ki_bytes *bytes, uint32_t model,
			    const char *name)
{
	ki_bytes_add_u32(bytes, (uint32_t)(3 + words_of(name)) << 16 | 15);
	ki_bytes_add_u32(bytes, model);
	ki_bytes_add_u32(bytes, 7);
	add_words(bytes, name);
}

static void make_spirv(struct ki_bytes *bytes)
{
	static const uint32_t header[] = { 0x07230203, 0x10000, 0, 9, 0 };

	for (unsigned i = 0; i < 5; i++)
		ki_bytes_add_u32(bytes, header[i]);
	ki_bytes_add_u32(bytes, 2 << 16 | 17); /* a capability */
	ki_bytes_add_u32(bytes, 6);
	add_entry_point(bytes, 6, "first");
	add_entry_point(bytes, 5, "shader");
	add_entry_point(bytes, 6, "second");
	ki_bytes_add_u32(bytes, 1 << 16 | 54); /* a function: no more of them */
	add_entry_point(bytes, 6, "late");
}

static void make_tokens(struct ki_bytes *bytes)
{
	static const char *const names[] = { "one", "another" };

	ki_bytes_add(bytes, "CTNI", 4);
	ki_bytes_add_u32(bytes, 1081);
	ki_bytes_add_u32(bytes, 18); /* the core */
	ki_bytes_add_u32(bytes, 8);
	ki_bytes_add_u32(bytes, 2);
	ki_bytes_add_u32(bytes, 0);
	ki_bytes_add_u32(bytes, 12); /* tokens of the program */
	add_zeros(bytes, 12);
	for (unsigned i = 0; i < 2; i++) {
		ki_bytes_add_u32(bytes, 0x1234);
		ki_bytes_add_u64(bytes, 0x5678);
		ki_bytes_add_u32(bytes, (uint32_t)words_of(names[i]) * 4);
		for (uint32_t part = 0; part < 5; part++)
			ki_bytes_add_u32(bytes, 4 * part);
		ki_bytes_add_u32(bytes, 0);
		add_words(bytes, names[i]);
		add_zeros(bytes, 4 + 8 + 12 + 16);
	}
}

struct part {
	const char *name;
	uint32_t type;
	const struct ki_bytes *bytes;
};

/* The header, what is in the sections, their names, the table. */
static void make_elf(struct ki_bytes *out, int is_64, unsigned type,
		     unsigned machine, const struct part *parts, unsigned n)
{
	const size_t header = is_64 ? 64 : 52, entry = is_64 ? 64 : 40;
	size_t offset = header, names = 1;
	struct ki_bytes text;

	ki_bytes_init(&text);
	ki_bytes_add_u8(&text, 0);
	for (unsigned i = 0; i < n; i++) {
		ki_bytes_add(&text, parts[i].name, strlen(parts[i].name) + 1);
		offset += parts[i].bytes->size;
	}
	offset += text.size;
	ki_bytes_add(out, "\177ELF", 4);
	ki_bytes_add_u8(out, is_64 ? 2 : 1);
	ki_bytes_add_u8(out, 1);
	ki_bytes_add_u8(out, 1);
	add_zeros(out, 9);
	ki_bytes_add_u16(out, (uint16_t)type);
	ki_bytes_add_u16(out, (uint16_t)machine);
	ki_bytes_add_u32(out, 1);
	add_zeros(out, is_64 ? 16 : 8);
	if (is_64)
		ki_bytes_add_u64(out, offset);
	else
		ki_bytes_add_u32(out, (uint32_t)offset);
	ki_bytes_add_u32(out, 0);
	ki_bytes_add_u16(out, (uint16_t)header);
	add_zeros(out, 4);
	ki_bytes_add_u16(out, (uint16_t)entry);
	ki_bytes_add_u16(out, (uint16_t)(n + 1));
	ki_bytes_add_u16(out, (uint16_t)n);
	for (unsigned i = 0; i < n; i++)
		ki_bytes_add(out, parts[i].bytes->data, parts[i].bytes->size);
	ki_bytes_add(out, text.data, text.size);
	offset = header;
	for (unsigned i = 0; i <= n; i++) {
		size_t size = i < n ? parts[i].bytes->size : text.size;

		ki_bytes_add_u32(out, i < n ? (uint32_t)names : 0);
		ki_bytes_add_u32(out, i < n ? parts[i].type : 3);
		add_zeros(out, is_64 ? 16 : 8);
		if (is_64) {
			ki_bytes_add_u64(out, offset);
			ki_bytes_add_u64(out, size);
		} else {
			ki_bytes_add_u32(out, (uint32_t)offset);
			ki_bytes_add_u32(out, (uint32_t)size);
		}
		add_zeros(out, is_64 ? 24 : 16);
		offset += size;
		if (i < n)
			names += strlen(parts[i].name) + 1;
	}
	ki_bytes_fini(&text);
}

static void make_opencl_elf(struct ki_bytes *out, int is_64)
{
	struct ki_bytes spirv, tokens;
	const struct part parts[] = {
		{ "SPIRV Object", 0xff000009, &spirv },
		{ "Intel(R) OpenCL Device Binary", 0xff000005, &tokens },
	};

	ki_bytes_init(&spirv);
	ki_bytes_init(&tokens);
	make_spirv(&spirv);
	make_tokens(&tokens);
	make_elf(out, is_64, 0xff04, 0, parts, 2);
	ki_bytes_fini(&spirv);
	ki_bytes_fini(&tokens);
}

static void add_note(struct ki_bytes *bytes, uint32_t type, uint32_t value)
{
	ki_bytes_add_u32(bytes, 8);
	ki_bytes_add_u32(bytes, 4);
	ki_bytes_add_u32(bytes, type);
	ki_bytes_add(bytes, "IntelGT", 8);
	ki_bytes_add_u32(bytes, value);
}

static const char ze_info[] = "---\n"
			      "version:         '1.20'\n"
			      "kernels:\n"
			      "  - name:            plain\n"
			      "    execution_env:\n"
			      "      name: not_a_kernel\n"
			      "    payload_arguments:\n"
			      "      - arg_type:        local_size\n"
			      "        name: nor_this\n"
			      "  - execution_env:\n"
			      "      simd_size:       32\n"
			      "    name:            'quoted one'\n"
			      "functions:\n"
			      "  - name:            helper\n"
			      "...\n";

static void make_zebin(struct ki_bytes *out, unsigned type, uint32_t note,
		       uint32_t value)
{
	struct ki_bytes text, info, notes;
	const struct part parts[] = {
		{ ".text.plain", 1, &text },
		{ ".ze_info", 0xff000011, &info },
		{ ".note.intelgt.compat", 7, &notes },
	};

	ki_bytes_init(&text);
	ki_bytes_init(&info);
	ki_bytes_init(&notes);
	add_zeros(&text, 64);
	ki_bytes_add(&info, ze_info, sizeof(ze_info) - 1);
	add_note(&notes, 3, 0x200000);
	add_note(&notes, note, value);
	make_elf(out, 1, type, 205, parts, 3);
	ki_bytes_fini(&text);
	ki_bytes_fini(&info);
	ki_bytes_fini(&notes);
}

static void add_member(struct ki_bytes *out, const char *name,
		       const struct ki_bytes *bytes)
{
	ki_bytes_printf(out, "%-16s%-12d%-6d%-6d%-8d%-10zu`\n", name, 0, 0, 0,
			644, bytes->size);
	ki_bytes_add(out, bytes->data, bytes->size);
	if (bytes->size & 1)
		ki_bytes_add_u8(out, '\n');
}

static void make_archive(struct ki_bytes *out)
{
	struct ki_bytes padding, zebin;

	ki_bytes_init(&padding);
	ki_bytes_init(&zebin);
	ki_bytes_add(&padding, "odd", 3);
	make_zebin(&zebin, 0xff12, 1, 1274);
	ki_bytes_add_string(out, "!<arch>\n");
	add_member(out, "pad_0/", &padding);
	add_member(out, "20.1.4/", &zebin);
	ki_bytes_fini(&padding);
	ki_bytes_fini(&zebin);
}

/* kiln's own entry of a program for two devices. */
static void make_devices(struct ki_bytes *out)
{
	struct ki_bytes first;

	ki_bytes_init(&first);
	make_opencl_elf(&first, 1);
	ki_bytes_add(out, "KCLB", 4);
	ki_bytes_add_u32(out, 1);
	ki_bytes_add_u32(out, 2);
	ki_bytes_add_u32(out, 0);
	ki_bytes_add_u64(out, first.size);
	ki_bytes_add_u64(out, 1);
	ki_bytes_add(out, first.data, first.size);
	add_zeros(out, (8 - first.size % 8) % 8 + 8);
	ki_bytes_fini(&first);
}

enum {
	EMPTY,
	OTHER,
	BITCODE,
	SPIRV,
	TOKENS,
	ELF,
	ELF_32,
	REL,
	EXE,
	CORE,
	IP,
	UNKNOWN,
	ARCHIVE,
	DEVICES,
	FOREIGN_ELF,
	N_CASES
};

static void make(unsigned number, struct ki_bytes *out)
{
	ki_bytes_init(out);
	switch (number) {
	case OTHER:
		ki_bytes_add_string(out, "no binary of any kind");
		break;
	case BITCODE:
		ki_bytes_add(out, "BC\xc0\xde....", 8);
		break;
	case SPIRV:
		make_spirv(out);
		break;
	case TOKENS:
		make_tokens(out);
		break;
	case ELF:
	case ELF_32:
		make_opencl_elf(out, number == ELF);
		break;
	case REL:
		make_zebin(out, 1, 1, 29);
		break;
	case EXE:
		make_zebin(out, 0xff12, 1, 1275);
		break;
	case CORE:
		make_zebin(out, 0xff12, 2, 0x0c08);
		break;
	case IP:
		make_zebin(out, 0xff12, 6, 12u << 22 | 55u << 14 | 8);
		break;
	case UNKNOWN:
		make_zebin(out, 0xff13, 1, 4711);
		break;
	case ARCHIVE:
		make_archive(out);
		break;
	case DEVICES:
		make_devices(out);
		break;
	case FOREIGN_ELF:
		make_elf(out, 1, 2, 62, NULL, 0);
		break;
	}
}

static const struct kiln_neo_description expected[N_CASES] = {
	[EMPTY] = { .form = KILN_NEO_EMPTY },
	[OTHER] = { .form = KILN_NEO_OTHER },
	[BITCODE] = { .form = KILN_NEO_BITCODE },
	[SPIRV] = { .form = KILN_NEO_SPIRV,
		    .has_il = 1,
		    .n_kernels = 2,
		    .kernels = "first second" },
	[TOKENS] = { .form = KILN_NEO_PATCH_TOKENS,
		     .device = "Gen12 LP",
		     .n_kernels = 2,
		     .kernels = "one another" },
	[ELF] = { .form = KILN_NEO_OPENCL_ELF,
		  .elf_type = 0xff04,
		  .has_il = 1,
		  .device = "Gen12 LP",
		  .n_kernels = 2,
		  .kernels = "one another" },
	[ELF_32] = { .form = KILN_NEO_OPENCL_ELF,
		     .elf_type = 0xff04,
		     .has_il = 1,
		     .device = "Gen12 LP",
		     .n_kernels = 2,
		     .kernels = "one another" },
	[REL] = { .form = KILN_NEO_ZEBIN,
		  .elf_type = 1,
		  .device = "Tiger Lake",
		  .n_kernels = 2,
		  .kernels = "plain quoted?one" },
	[EXE] = { .form = KILN_NEO_ZEBIN,
		  .elf_type = 0xff12,
		  .device = "Lunar Lake",
		  .n_kernels = 2,
		  .kernels = "plain quoted?one" },
	[CORE] = { .form = KILN_NEO_ZEBIN,
		   .elf_type = 0xff12,
		   .device = "Xe HPC",
		   .n_kernels = 2,
		   .kernels = "plain quoted?one" },
	[IP] = { .form = KILN_NEO_ZEBIN,
		 .elf_type = 0xff12,
		 .device = "IP 12.55.8",
		 .n_kernels = 2,
		 .kernels = "plain quoted?one" },
	[UNKNOWN] = { .form = KILN_NEO_ZEBIN,
		      .elf_type = 0xff13,
		      .device = "product 4711",
		      .n_kernels = 2,
		      .kernels = "plain quoted?one" },
	[ARCHIVE] = { .form = KILN_NEO_ARCHIVE,
		      .device = "Battlemage",
		      .n_kernels = 2,
		      .kernels = "plain quoted?one" },
	[DEVICES] = { .form = KILN_NEO_OPENCL_ELF,
		      .elf_type = 0xff04,
		      .has_il = 1,
		      .device = "Gen12 LP",
		      .n_kernels = 2,
		      .kernels = "one another" },
	[FOREIGN_ELF] = { .form = KILN_NEO_OTHER_ELF, .elf_type = 2 },
};

static void assert_same(const struct kiln_neo_description *a,
			const struct kiln_neo_description *b)
{
	assert_int_equal(a->form, b->form);
	assert_int_equal(a->elf_type, b->elf_type);
	assert_int_equal(a->has_il, b->has_il);
	assert_int_equal(a->is_cut, b->is_cut);
	assert_string_equal(a->device, b->device);
	assert_int_equal(a->n_kernels, b->n_kernels);
	assert_string_equal(a->kernels, b->kernels);
}

/* ---- Tests ------------------------------------------------------------------------------ */

static void each_form_is_told_with_device_and_kernels(void **state)
{
	char *directory = harness_directory();
	char *path = harness_path(directory, "file");

	for (unsigned i = 0; i < N_CASES; i++) {
		struct kiln_neo_description found;
		struct ki_bytes bytes;

		make(i, &bytes);
		assert_int_equal(bytes.failed, 0);
		kiln_neo_describe_bytes(bytes.data, bytes.size, &found);
		assert_same(&found, &expected[i]);
		harness_write(path, bytes.size ? bytes.data : (void *)"",
			      bytes.size);
		assert_int_equal(kiln_neo_describe_file(path, &found), KILN_OK);
		assert_same(&found, &expected[i]);
		ki_bytes_fini(&bytes);
	}
	free(path);
	free(directory);
}

/* Each time in memory of exactly that size, for the sanitizers. */
static void describe_copy(const struct ki_bytes *bytes, size_t size,
			  size_t change, struct kiln_neo_description *found)
{
	uint8_t *copy = malloc(size ? size : 1);

	if (size)
		memcpy(copy, bytes->data, size);
	if (change < size)
		copy[change] ^= 0xff;
	kiln_neo_describe_bytes(copy, size, found);
	assert_true(memchr(found->kernels, '\0', sizeof(found->kernels)));
	free(copy);
}

static void what_is_cut_off_anywhere_is_said_to_be(void **state)
{
	for (unsigned i = 0; i < N_CASES; i++) {
		const int is_elf = expected[i].elf_type && i != DEVICES &&
				   i != FOREIGN_ELF;
		struct kiln_neo_description found;
		struct ki_bytes bytes;

		make(i, &bytes);
		for (size_t size = 0; size < bytes.size; size++) {
			describe_copy(&bytes, size, SIZE_MAX, &found);
			if ((is_elf || i == TOKENS) && size >= 4)
				assert_true(found.is_cut);
		}
		ki_bytes_fini(&bytes);
	}
}

static void no_changed_byte_leads_out_of_a_file(void **state)
{
	for (unsigned i = 0; i < N_CASES; i++) {
		struct kiln_neo_description found;
		struct ki_bytes bytes;

		make(i, &bytes);
		for (size_t at = 0; at < bytes.size; at++)
			describe_copy(&bytes, bytes.size, at, &found);
		ki_bytes_fini(&bytes);
	}
}

/* An archive in an archive in an archive ... */
static void what_is_nested_without_end_has_one(void **state)
{
	struct kiln_neo_description found;
	struct ki_bytes inner, outer;

	make(ARCHIVE, &inner);
	for (unsigned depth = 0; depth < 40; depth++) {
		ki_bytes_init(&outer);
		ki_bytes_add_string(&outer, "!<arch>\n");
		add_member(&outer, "x/", &inner);
		ki_bytes_fini(&inner);
		inner = outer;
	}
	kiln_neo_describe_bytes(inner.data, inner.size, &found);
	assert_int_equal(found.form, KILN_NEO_ARCHIVE);
	assert_int_equal(found.n_kernels, 0);
	ki_bytes_fini(&inner);
}

static void more_kernels_than_fit_are_counted(void **state)
{
	struct kiln_neo_description found;
	struct ki_bytes info, out;
	const struct part parts[] = { { ".ze_info", 0xff000011, &info } };

	ki_bytes_init(&info);
	ki_bytes_init(&out);
	ki_bytes_add_string(&info, "kernels:\n");
	for (unsigned i = 0; i < 1000; i++)
		ki_bytes_printf(&info, "- name: kernel_%u\n", i);
	make_elf(&out, 1, 0xff12, 205, parts, 1);
	kiln_neo_describe_bytes(out.data, out.size, &found);
	assert_int_equal(found.n_kernels, 1000);
	assert_true(strlen(found.kernels) > sizeof(found.kernels) - 16);
	assert_memory_equal(found.kernels, "kernel_0 kernel_1 ", 18);
	ki_bytes_fini(&info);
	ki_bytes_fini(&out);
}

static void only_regular_files_are_opened(void **state)
{
	char *directory = harness_directory();
	char *pipe = harness_path(directory, "pipe");
	char *link = harness_path(directory, "link");
	char *file = harness_path(directory, "file");
	struct kiln_neo_description found;

	harness_write(file, "text", 4);
	assert_int_equal(mkfifo(pipe, 0600), 0);
	assert_int_equal(symlink("file", link), 0);
	assert_int_equal(kiln_neo_describe_file(file, &found), KILN_OK);
	assert_int_equal(kiln_neo_describe_file(link, &found), KILN_MISS);
	assert_int_equal(kiln_neo_describe_file(pipe, &found), KILN_MISS);
	assert_int_equal(kiln_neo_describe_file(directory, &found), KILN_MISS);
	assert_int_equal(unlink(file), 0);
	assert_int_equal(kiln_neo_describe_file(file, &found), KILN_MISS);
	free(file);
	free(link);
	free(pipe);
	free(directory);
}

static void every_form_and_type_has_a_name(void **state)
{
	assert_string_equal(kiln_neo_form_name(KILN_NEO_ZEBIN), "zebin");
	assert_string_equal(kiln_neo_form_name((enum kiln_neo_form)99),
			    "unknown");
	assert_string_equal(kiln_neo_elf_type_name(0xff04),
			    "ET_OPENCL_EXECUTABLE");
	assert_string_equal(kiln_neo_elf_type_name(0xff12), "ET_ZEBIN_EXE");
	assert_string_equal(kiln_neo_elf_type_name(0), "");
}

/* ---- What compilers wrote ------------------------------------------------------------------ */

#define FLAT  "neo_25.05_flat/"
#define OCLOC "ocloc_22.43_debian12/"

static const struct {
	const char *name;
	struct kiln_neo_description is;
} reals[] = {
	{ FLAT "4c2e2716b7f7afef.l0_cache",
	  { KILN_NEO_OPENCL_ELF, 0xff04, 1, 0, "Gen12 LP", 1, "vadd" } },
	{ FLAT "9cc964a4787bae7b.cl_cache",
	  { KILN_NEO_OPENCL_ELF, 0xff04, 1, 0, "Gen12 LP", 1, "saxpy" } },
	{ OCLOC "449ac28816c82739.ocloc_cache",
	  { KILN_NEO_SPIRV, 0, 1, 0, "", 1, "saxpy" } },
	{ OCLOC "ca413bba6cefebe3.ocloc_cache",
	  { KILN_NEO_PATCH_TOKENS, 0, 0, 0, "Gen12 LP", 1, "saxpy" } },
	{ OCLOC "084076beb34758e1.ocloc_cache",
	  { KILN_NEO_OPENCL_ELF, 0xff04, 1, 0, "Gen12 LP", 1, "saxpy" } },
};

static void what_compilers_wrote_is_told(void **state)
{
	const char *root = getenv("KILN_TEST_NEO_DATA");

	if (!root || access(root, R_OK)) {
		print_message("# not tried: no real directories here "
			      "(KILN_TEST_NEO_DATA)\n");
		return;
	}
	for (size_t i = 0; i < sizeof(reals) / sizeof(*reals); i++) {
		char *path = harness_path(root, reals[i].name);
		struct kiln_neo_description found;

		assert_int_equal(kiln_neo_describe_file(path, &found), KILN_OK);
		assert_same(&found, &reals[i].is);
		free(path);
	}
}

/* The corpus of tests/fuzz is written by `test_neo_describe DIRECTORY`. */
static int write_corpus(const char *directory)
{
	for (unsigned i = 0; i < N_CASES; i++) {
		char name[16], *path;
		struct ki_bytes bytes;

		snprintf(name, sizeof(name), "form-%02u", i);
		path = harness_path(directory, name);
		make(i, &bytes);
		if (bytes.size)
			harness_write(path, bytes.data, bytes.size);
		ki_bytes_fini(&bytes);
		free(path);
	}
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_form_is_told_with_device_and_kernels),
		cmocka_unit_test(what_is_cut_off_anywhere_is_said_to_be),
		cmocka_unit_test(no_changed_byte_leads_out_of_a_file),
		cmocka_unit_test(what_is_nested_without_end_has_one),
		cmocka_unit_test(more_kernels_than_fit_are_counted),
		cmocka_unit_test(only_regular_files_are_opened),
		cmocka_unit_test(every_form_and_type_has_a_name),
		cmocka_unit_test(what_compilers_wrote_is_told),
	};

	if (argc > 1)
		return write_corpus(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
