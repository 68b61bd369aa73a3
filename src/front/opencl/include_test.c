/* SPDX-License-Identifier: MIT */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/harness.h"

#include <kiln/inspect.h>

#include "front/opencl/expand.h"
#include "front/opencl/include.h"

/* ---- A clock of our own ---------------------------------------------- */

static uint64_t now_ns;

static uint64_t realtime(const struct ki_sys *sys)
{
	return now_ns ? now_ns : ki_sys_posix.realtime_ns(&ki_sys_posix);
}

static struct ki_sys test_sys;

/* ---- Calls that fail: the n-th from now, or it and all that follow --- */

static unsigned fail_in; /* 0: none */
static int fail_with, fail_lasts, has_failed;

static int failure(void)
{
	if (!fail_in)
		return 0;
	if (fail_in > 1) {
		fail_in--;
		return 0;
	}
	has_failed = 1;
	if (!fail_lasts)
		fail_in = 0;
	return fail_with;
}

static int fail_open(const struct ki_sys *sys, const char *path, unsigned flags,
		     unsigned mode)
{
	int err = failure();

	return err ? err : ki_sys_posix.open(sys, path, flags, mode);
}

static int fail_stat(const struct ki_sys *sys, const char *path,
		     struct ki_file_info *out_info)
{
	int err = failure();

	return err ? err : ki_sys_posix.stat(sys, path, out_info);
}

static int fail_fstat(const struct ki_sys *sys, int fd,
		      struct ki_file_info *out_info)
{
	int err = failure();

	return err ? err : ki_sys_posix.fstat(sys, fd, out_info);
}

static ssize_t fail_pread(const struct ki_sys *sys, int fd, void *data,
			  size_t size, uint64_t offset)
{
	int err = failure();

	return err ? err : ki_sys_posix.pread(sys, fd, data, size, offset);
}

/* What was to be closed is closed. */
static int fail_close(const struct ki_sys *sys, int fd)
{
	int err = failure();

	(void)ki_sys_posix.close(sys, fd);
	return err;
}

/* ---- Files, and the key that they make ------------------------------- */

static void write_text(const char *path, const char *text)
{
	harness_write(path, text, strlen(text));
}

/* Enter a fresh directory with these files: path, text, path, text... */
static char *enter(const char *const *files)
{
	char *directory = harness_directory();

	assert_int_equal(chdir(directory), 0);
	for (; files && files[0]; files += 2) {
		char path[256];

		snprintf(path, sizeof(path), "%s", files[0]);
		for (char *p = path; (p = strchr(p + 1, '/'));) {
			*p = 0;
			(void)mkdir(path, 0700);
			*p = '/';
		}
		write_text(path, files[1]);
	}
	return directory;
}

struct outcome {
	enum kiln_status status;
	enum kiln_counter reason;
	struct kiln_key *key;
};

static struct outcome outcome_of(struct ki_cl_includes *includes,
				 const char *text_of_options,
				 const char *source)
{
	struct outcome outcome = { .key = kiln_key_new() };
	struct ki_cl_options options;
	struct ki_cl_search search = { .options = &options };

	ki_cl_options_init(&options);
	ki_cl_options_read(&options, text_of_options);
	outcome.status =
		ki_cl_includes_add(includes, &search, source, strlen(source),
				   outcome.key, &outcome.reason);
	ki_cl_options_fini(&options);
	assert_int_equal(kiln_key_finish(outcome.key), KILN_OK);
	return outcome;
}

static const char *name_of(enum kiln_counter reason)
{
	return reason == KILN_COUNT_MISS_UNRESOLVED   ? "miss_unresolved"
	       : reason == KILN_COUNT_MISS_TIME_MACRO ? "miss_time_macro"
	       : reason == KILN_COUNT_MISS_DIRECTIVE  ? "miss_directive"
						      : "?";
}

/* The closure as text: labels joined by '|', '-' before what is absent; or
   the name of the counter that tells why there is none. */
static const char *closure_of(const char *options, const char *source,
			      char out[4096])
{
	struct ki_cl_includes *includes = ki_cl_includes_new(&test_sys);
	struct outcome outcome = outcome_of(includes, options, source);
	size_t position = 0, n = 0, size;
	struct kiln_field field;
	const void *record = kiln_key_record(outcome.key, &size);

	out[0] = 0;
	while (n < 4096 && !kiln_record_next(record, size, &position, &field))
		n += (size_t)snprintf(
			out + n, 4096 - n, "%s%s%.*s", n ? "|" : "",
			field.kind == KILN_FIELD_ABSENT ? "-" : "",
			(int)field.label_size - 8, field.label + 8);
	if (outcome.status == KILN_E_UNSUPPORTED)
		snprintf(out, 4096, "%s", name_of(outcome.reason));
	kiln_key_free(outcome.key);
	ki_cl_includes_free(includes);
	return out;
}

static int same(const struct kiln_key *a, const struct kiln_key *b)
{
	return !memcmp(kiln_key_digest(a), kiln_key_digest(b),
		       KILN_DIGEST_BYTES);
}

static struct kiln_key *key_of(struct ki_cl_includes *includes,
			       const char *options, const char *source)
{
	struct outcome outcome = outcome_of(includes, options, source);

	assert_int_equal(outcome.status, KILN_OK);
	return outcome.key;
}

/* ---- Which files are in ---------------------------------------------- */

static const char *const FILES[] = {
	"a.h",
	"int a;\n",
	"inc/a.h",
	"int other_a;\n",
	"inc/b.h",
	"#include \"c.h\"\n",
	"inc/c.h",
	"int c;\n",
	"inc/sub/d.h",
	"#include \"../c.h\"\n#include \"e.h\"\n",
	"inc/sub/e.h",
	"#include <c.h>\n",
	"with blank/f.h",
	"int f;\n",
	"circle/g.h",
	"#include \"../circle/h.h\"\n",
	"circle/h.h",
	"#include \"../circle/g.h\"\n",
	"self.h",
	"#include \"self.h\"\n",
	"time.h",
	"__DATE__\n",
	"import.h",
	"#import \"a.h\"\n",
	"raw.h",
	"R\"(\"\n",
	"macro.h",
	"#define P inc\n",
	"asm.h",
	"#define A asm\n",
	"stack.h",
	"#pragma push_macro(\"P\")\n",
	NULL,
	NULL,
};

static const struct {
	const char *name;
	const char *options;
	const char *source;
	const char *closure;
} ROWS[] = {
	{ "nothing", "", "int x;", "" },
	{ "a file here", "", "#include \"a.h\"", "a.h" },
	{ "a file here, angled", "", "#include <a.h>", "a.h" },
	{ "a file nowhere", "", "#include \"x.h\"", "-x.h" },
	{ "a file in no directory", "-Iinc -Inone", "#include \"x.h\"",
	  "-x.h|-inc/x.h|-none/x.h" },
	{ "every place counts", "-Iinc", "#include \"a.h\"", "a.h|inc/a.h" },
	{ "nested, from the file's folder", "-Iinc", "#include <b.h>",
	  "-b.h|inc/b.h|inc/c.h|-c.h" },
	{ "nested without -I", "", "#include \"inc/b.h\"",
	  "inc/b.h|inc/c.h|-c.h" },
	{ "further up", "-Iinc", "#include \"sub/d.h\"",
	  "-sub/d.h|inc/sub/d.h|inc/sub/../c.h|-../c.h|-inc/../c.h|"
	  "inc/sub/e.h|-e.h|-inc/e.h|-c.h|inc/c.h|same inc/c.h" },
	{ "-I with blanks", "-I \"with blank\"", "#include \"f.h\"",
	  "-f.h|with blank/f.h" },
	{ "-I in quotes, joined", "-I\"with blank\"", "#include \"f.h\"",
	  "-f.h|with blank/f.h" },
	{ "-I as only some read it", "-DX=don't -Iinc", "#include <c.h>",
	  "-c.h|inc/c.h" },
	{ "-I of the same folder", "-I . -I ./", "#include \"a.h\"",
	  "a.h|./a.h|same ./a.h" },
	{ "the same file twice", "", "#include \"a.h\"\n#include <a.h>",
	  "a.h" },
	{ "under a false condition", "", "#if 0\n#include \"a.h\"\n#endif",
	  "a.h" },
	{ "-include", "-include a.h", "int x;", "a.h" },
	{ "a directory of that name", "", "#include \"inc\"", "-inc" },
	{ "a circle ends", "", "#include \"circle/g.h\"",
	  "circle/g.h|circle/../circle/h.h|-../circle/h.h|"
	  "circle/../circle/../circle/g.h|"
	  "same circle/../circle/../circle/g.h|-../circle/g.h" },
	{ "a file that includes itself", "", "#include \"self.h\"", "self.h" },
	{ "a time in an include", "", "#include \"time.h\"",
	  "miss_time_macro" },
	{ "a time in a file that is not found first", "-Iinc",
	  "#include \"inc/time.h\"", "-inc/time.h|-inc/inc/time.h" },
	{ "an import in an include", "", "#include \"import.h\"",
	  "miss_directive" },
	{ "an unclear include", "", "#include \"raw.h\"", "miss_unresolved" },
	{ "an opaque option", "@a.h", "int x;", "miss_unresolved" },
	{ "computed, unknown", "", "#include X", "miss_unresolved" },
	{ "computed, angled", "-DX=<a.h>", "#include X", "a.h" },
	{ "computed, quoted", "-DX=\\\"a.h\\\"", "#include X", "a.h" },
	{ "computed as hashcat does",
	  "-D M2S(x)=XM2S(x) -D XM2S(x)=#x -D P=inc", "#include M2S(P/c.h)",
	  "inc/c.h" },
	{ "computed, and defined by the source", "-DX=<a.h>",
	  "#define X <b.h>\n#include X", "miss_unresolved" },
	{ "computed, and a part defined by an include",
	  "-D M2S(x)=XM2S(x) -D XM2S(x)=#x -D P=inc",
	  "#include M2S(P/c.h)\n#include \"macro.h\"", "miss_unresolved" },
	{ "computed, and the folder's name defined by the source",
	  "-DX=<inc/c.h>", "#define inc x\n#include X", "miss_unresolved" },
	{ "an assembler in one text, its directive in another", "",
	  "#define S(x) #x\n#include \"asm.h\"\nA(S(.incbin 'a.h'))",
	  "miss_unresolved" },
	{ "an assembler in the options", "-DA=__asm__",
	  "A(\".in\" \"cbin 'a.h'\")", "miss_unresolved" },
	{ "an assembler alone", "-DA=__asm__", "#include \"asm.h\"\nA(\"nop\")",
	  "asm.h" },
	{ "computed, with definitions that come and go", "-DX=<a.h>",
	  "#include X\n#include \"stack.h\"", "miss_unresolved" },
	{ "computed, defined twice", "-DX=<a.h> -DX=<b.h>", "#include X",
	  "miss_unresolved" },
	{ "computed, taken away", "-DX=<a.h> -UX", "#include X",
	  "miss_unresolved" },
	{ "computed by what a compiler may define", "-DX=<__FOO__>",
	  "#include X", "miss_unresolved" },
};

static void every_place_where_a_file_may_be_is_in_the_key(void **state)
{
	char *directory = enter(FILES), text[4096];

	for (size_t i = 0; i < sizeof(ROWS) / sizeof(ROWS[0]); i++) {
		print_message("# %s\n", ROWS[i].name);
		assert_string_equal(
			closure_of(ROWS[i].options, ROWS[i].source, text),
			ROWS[i].closure);
	}
	free(directory);
}

/* #pragma once tells a second name from a copy. */
static void a_second_name_of_a_file_is_no_copy(void **state)
{
	static const char SOURCE[] = "#include \"a.h\"\n#include \"b.h\"\n";
	static const char TEXT[] = "#pragma once\nint x;\n";
	const char *const files[] = { "a.h", TEXT, "b.h", TEXT, NULL, NULL };
	struct ki_cl_includes *includes = ki_cl_includes_new(&test_sys);
	char *directory = enter(files);
	struct kiln_key *copy, *link;

	copy = key_of(includes, "", SOURCE);
	assert_int_equal(unlink("b.h"), 0);
	assert_int_equal(symlink("a.h", "b.h"), 0);
	link = key_of(includes, "", SOURCE);
	assert_false(same(copy, link));
	kiln_key_free(copy);
	kiln_key_free(link);
	ki_cl_includes_free(includes);
	free(directory);
}

/* S06 */
static void a_link_that_leads_elsewhere_changes_the_key(void **state)
{
	static const char SOURCE[] = "#include \"x.h\"\n";
	const char *const files[] = {
		"1/x.h", "int a;\n", "2/x.h", "int b;\n", NULL, NULL,
	};
	struct ki_cl_includes *includes = ki_cl_includes_new(&test_sys);
	char *directory = enter(files);
	struct kiln_key *first, *second;

	assert_int_equal(symlink("1", "inc"), 0);
	first = key_of(includes, "-Iinc", SOURCE);
	assert_int_equal(unlink("inc"), 0);
	assert_int_equal(symlink("2", "inc"), 0);
	second = key_of(includes, "-Iinc", SOURCE);
	assert_false(same(first, second));
	kiln_key_free(second);
	assert_int_equal(unlink("inc"), 0);
	assert_int_equal(mkdir("inc", 0700), 0);
	write_text("inc/x.h", "int a;\n"); /* S07: as if it were the link */
	second = key_of(includes, "-Iinc", SOURCE);
	assert_true(same(first, second));
	kiln_key_free(first);
	kiln_key_free(second);
	ki_cl_includes_free(includes);
	free(directory);
}

/* /proc: a regular file of no size with something in it. */
static void a_file_with_more_than_its_size_is_refused(void **state)
{
	char *directory = enter(NULL), text[4096];

	assert_string_equal(
		closure_of("", "#include \"/proc/self/status\"", text),
		"miss_unresolved");
	free(directory);
}

/* The closure of a source and a header program. */
static enum kiln_status add_two(const char *options_text, const char *source,
				const char *header, struct kiln_key **out_key)
{
	struct ki_cl_includes *includes = ki_cl_includes_new(&test_sys);
	struct ki_cl_text texts[] = { { source, strlen(source) },
				      { header, strlen(header) } };
	struct ki_cl_options options;
	struct ki_cl_search search = { .options = &options };
	enum kiln_counter reason;
	enum kiln_status status;

	ki_cl_options_init(&options);
	ki_cl_options_read(&options, options_text);
	*out_key = kiln_key_new();
	status = ki_cl_includes_add_texts(includes, &search, texts, 2, *out_key,
					  &reason);
	assert_int_equal(kiln_key_finish(*out_key), KILN_OK);
	ki_cl_options_fini(&options);
	ki_cl_includes_free(includes);
	return status;
}

static void texts_of_one_program_count_as_one(void **state)
{
	static const struct {
		const char *name, *options, *source, *header;
		enum kiln_status status;
	} CASES[] = {
		{ "files of both", "", "int x;", "#include \"a.h\"", KILN_OK },
		{ "a name that the other defines", "-DX=<a.h>", "#include X",
		  "#define X <b.h>", KILN_E_UNSUPPORTED },
		{ "the other way round", "-DX=<a.h>", "#undef X", "#include X",
		  KILN_E_UNSUPPORTED },
		{ "an assembler that the other names", "",
		  "A(\".in\" \"cbin 'a.h'\");", "#define A asm",
		  KILN_E_UNSUPPORTED },
		{ "a time in the other", "", "int x;", "__DATE__",
		  KILN_E_UNSUPPORTED },
	};
	char *directory = enter(FILES);
	struct kiln_field field;
	struct kiln_key *key;
	const void *record;
	size_t size;

	for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
		print_message("# %s\n", CASES[i].name);
		assert_int_equal(add_two(CASES[i].options, CASES[i].source,
					 CASES[i].header, &key),
				 CASES[i].status);
		record = kiln_key_record(key, &size);
		if (!i)
			assert_int_equal(kiln_record_find(record, size,
							  "include a.h",
							  &field),
					 KILN_OK);
		kiln_key_free(key);
	}
	free(directory);
}

static void an_absolute_name_has_one_place(void **state)
{
	char *directory = enter(FILES), source[512], expected[512], text[4096];

	snprintf(source, sizeof(source), "#include \"%s/a.h\"", directory);
	snprintf(expected, sizeof(expected), "%s/a.h", directory);
	assert_string_equal(closure_of("-Iinc", source, text), expected);
	free(directory);
}

/* S15: what is no regular file is not opened. */
static void a_fifo_is_not_waited_for(void **state)
{
	char *directory = enter(NULL), text[4096];

	assert_int_equal(mkfifo("fifo.h", 0600), 0);
	assert_int_equal(symlink("loop.h", "loop.h"), 0);
	assert_int_equal(symlink("gone", "dangling.h"), 0);
	assert_string_equal(closure_of("", "#include \"fifo.h\"", text),
			    "miss_unresolved");
	assert_string_equal(closure_of("", "#include \"loop.h\"", text),
			    "miss_unresolved");
	assert_string_equal(closure_of("", "#include \"dangling.h\"", text),
			    "-dangling.h");
	free(directory);
}

static void the_drivers_folders_count_where_they_have_the_file(void **state)
{
	char *directory = enter(FILES);
	const char *folders[] = { "inc" };
	struct ki_cl_includes *includes = ki_cl_includes_new(&test_sys);
	struct ki_cl_options options = { 0 };
	struct ki_cl_search search = { .options = &options,
				       .driver_folders = folders,
				       .n_driver_folders = 1 };
	const char *sources[] = { "#include \"x.h\"", "#include \"c.h\"" };

	for (size_t i = 0; i < 2; i++) {
		struct kiln_key *key = kiln_key_new();
		enum kiln_counter reason;
		struct kiln_field field;
		const void *record;
		size_t size;

		assert_int_equal(
			ki_cl_includes_add(includes, &search, sources[i],
					   strlen(sources[i]), key, &reason),
			KILN_OK);
		assert_int_equal(kiln_key_finish(key), KILN_OK);
		record = kiln_key_record(key, &size);
		assert_int_equal(kiln_record_find(record, size,
						  "include (driver)/c.h",
						  &field),
				 i ? KILN_OK : KILN_MISS);
		assert_int_equal(kiln_record_find(record, size,
						  "include (driver)/x.h",
						  &field),
				 KILN_MISS);
		kiln_key_free(key);
	}
	ki_cl_includes_free(includes);
	free(directory);
}

static void each_of_the_drivers_folders_is_looked_into(void **state)
{
	static const char *const labels[] = { "include (driver)/c.h",
					      "include (driver 2)/c.h" };
	const char *folders[] = { "nowhere", "inc" },
		   *swapped[] = { "inc", "none" };
	const char *const *lists[] = { swapped, folders };
	struct ki_cl_includes *includes = ki_cl_includes_new(&test_sys);
	struct ki_cl_options options = { 0 };
	char *directory = enter(FILES);
	size_t i;

	for (i = 0; i < 2; i++) {
		struct ki_cl_search search = { .options = &options,
					       .driver_folders = lists[i],
					       .n_driver_folders = 2 };
		struct kiln_key *key = kiln_key_new();
		enum kiln_counter reason;
		struct kiln_field field;
		const void *record;
		size_t size;

		assert_int_equal(ki_cl_includes_add(includes, &search,
						    "#include \"c.h\"", 14, key,
						    &reason),
				 KILN_OK);
		assert_int_equal(kiln_key_finish(key), KILN_OK);
		record = kiln_key_record(key, &size);
		assert_int_equal(
			kiln_record_find(record, size, labels[i], &field),
			KILN_OK);
		assert_int_equal(
			kiln_record_find(record, size, labels[!i], &field),
			KILN_MISS);
		kiln_key_free(key);
	}
	ki_cl_includes_free(includes);
	free(directory);
}

/* Header programs in files of the driver's: what is beside their folder is not
   known. */
static void names_do_not_lead_out_of_the_folder_of_header_programs(void **state)
{
	static const struct {
		const char *source;
		enum kiln_status status;
	} rows[] = {
		{ "#include \"x.h\"", KILN_OK },
		{ "#include \"a/../x.h\"", KILN_OK },
		{ "#include \"./a//./../x.h\"", KILN_OK },
		{ "#include \"..x.h\"", KILN_OK },
		{ "#include \"/../x.h\"", KILN_OK },
		{ "#include \"../x.h\"", KILN_E_UNSUPPORTED },
		{ "#include <../x.h>", KILN_E_UNSUPPORTED },
		{ "#include \"a/../../x.h\"", KILN_E_UNSUPPORTED },
		{ "#include \"./../a/x.h\"", KILN_E_UNSUPPORTED },
	};
	char *directory = enter(FILES);
	struct ki_cl_includes *includes = ki_cl_includes_new(&test_sys);
	struct ki_cl_options options = { 0 };
	size_t i;
	int has;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		for (has = 0; has < 2; has++) {
			struct ki_cl_search search = { .options = &options,
						       .has_header_files =
							       has };
			struct kiln_key *key = kiln_key_new();
			enum kiln_counter reason = KILN_COUNT_HITS_STORE;

			assert_int_equal(
				ki_cl_includes_add(
					includes, &search, rows[i].source,
					strlen(rows[i].source), key, &reason),
				has ? rows[i].status : KILN_OK);
			if (has && rows[i].status)
				assert_int_equal(reason,
						 KILN_COUNT_MISS_UNRESOLVED);
			kiln_key_free(key);
		}
	ki_cl_includes_free(includes);
	free(directory);
}

/* ---- Changes (S06) --------------------------------------------------- */

static void a_change_anywhere_changes_the_key(void **state)
{
	static const char SOURCE[] = "#include \"b.h\"\n";
	struct ki_cl_includes *includes = ki_cl_includes_new(&test_sys);
	char *directory = enter(FILES);
	struct kiln_key *before, *after;

	before = key_of(includes, "-Iinc", SOURCE);
	after = key_of(includes, "-Iinc", SOURCE);
	assert_true(same(before, after));
	kiln_key_free(after);

	write_text("inc/c.h", "int x;\n"); /* same size */
	after = key_of(includes, "-Iinc", SOURCE);
	assert_false(same(before, after));
	kiln_key_free(after);

	write_text("inc/c.h", "int c;\n");
	after = key_of(includes, "-Iinc", SOURCE);
	assert_true(same(before, after));
	kiln_key_free(after);

	assert_int_equal(unlink("inc/c.h"), 0);
	after = key_of(includes, "-Iinc", SOURCE);
	assert_false(same(before, after));
	kiln_key_free(after);

	write_text("inc/c.h", "int c;\n");
	write_text("b.h", ""); /* found before inc/b.h */
	after = key_of(includes, "-Iinc", SOURCE);
	assert_false(same(before, after));
	kiln_key_free(after);

	kiln_key_free(before);
	ki_cl_includes_free(includes);
	free(directory);
}

/* S06, edited twice within a tick: the times of the second edit are those of
   the first. */
static void a_fresh_file_is_read_again(void **state)
{
	static const char SOURCE[] = "#include \"x.h\"\n";
	struct ki_cl_includes *includes = ki_cl_includes_new(&test_sys);
	char *directory = enter(NULL);
	struct kiln_key *before, *after;
	struct ki_file_info info;

	write_text("x.h", "int a;\n");
	assert_int_equal(test_sys.stat(&test_sys, "x.h", &info), 0);
	now_ns = (uint64_t)info.ctime_ns + 1000;
	before = key_of(includes, "", SOURCE);
	assert_int_equal(ki_cl_includes_remembered(includes), 0);
	after = key_of(includes, "", SOURCE);
	assert_int_equal(ki_cl_includes_read(includes), 2);
	assert_true(same(before, after));
	kiln_key_free(after);

	write_text("x.h", "int b;\n"); /* as long */
	after = key_of(includes, "", SOURCE);
	assert_false(same(before, after));
	kiln_key_free(after);
	kiln_key_free(before);
	now_ns = 0;
	ki_cl_includes_free(includes);
	free(directory);
}

static void a_settled_file_is_read_once(void **state)
{
	static const char SOURCE[] = "#include \"x.h\"\n";
	struct ki_cl_includes *includes = ki_cl_includes_new(&test_sys);
	char *directory = enter(NULL);
	struct kiln_key *before, *after;
	struct ki_file_info info;

	write_text("x.h", "int a;\n");
	assert_int_equal(test_sys.stat(&test_sys, "x.h", &info), 0);
	now_ns = (uint64_t)info.ctime_ns + 2 * (uint64_t)KI_CL_SETTLE_NS;
	before = key_of(includes, "", SOURCE);
	assert_int_equal(ki_cl_includes_remembered(includes), 1);
	after = key_of(includes, "", SOURCE);
	assert_int_equal(ki_cl_includes_read(includes), 1);
	assert_true(same(before, after));
	kiln_key_free(after);

	write_text("x.h", "int bc;\n"); /* another size, whatever the clock */
	after = key_of(includes, "", SOURCE);
	assert_int_equal(ki_cl_includes_read(includes), 2);
	assert_false(same(before, after));
	kiln_key_free(after);

	kiln_key_free(before);
	now_ns = 0;
	ki_cl_includes_free(includes);
	free(directory);
}

/* S07 */
static void the_working_directory_is_not_in_the_key(void **state)
{
	static const char SOURCE[] = "#include \"sub/d.h\"\n#include <x.h>\n";
	struct ki_cl_includes *includes = ki_cl_includes_new(&test_sys);
	char *first = enter(FILES), *second;
	struct kiln_key *a, *b;

	a = key_of(includes, "-I inc", SOURCE);
	second = enter(FILES);
	b = key_of(includes, "-I inc", SOURCE);
	assert_true(same(a, b));
	kiln_key_free(a);
	kiln_key_free(b);
	ki_cl_includes_free(includes);
	free(first);
	free(second);
}

/* ---- Failing calls --------------------------------------------------- */

static unsigned count_descriptors(void)
{
	const char *name;
	struct ki_dir *dir;
	unsigned n = 0;

	assert_int_equal(
		ki_sys_posix.opendir(&ki_sys_posix, "/proc/self/fd", &dir), 0);
	while (ki_sys_posix.readdir(&ki_sys_posix, dir, &name) > 0)
		n++;
	ki_sys_posix.closedir(&ki_sys_posix, dir);
	return n;
}

/* Whatever fails, the key is the right one or there is none. */
static void a_failing_call_never_changes_a_key(void **state)
{
	static const char SOURCE[] = "#include \"b.h\"\n#include <x.h>\n";
	static const int ERRORS[] = { -EIO, -EACCES, -ENOMEM };
	char *directory = enter(FILES);
	unsigned descriptors = count_descriptors();
	struct ki_cl_includes *includes;
	struct kiln_key *right;

	includes = ki_cl_includes_new(&ki_sys_posix);
	right = key_of(includes, "-Iinc", SOURCE);
	ki_cl_includes_free(includes);
	for (unsigned i = 0; i < 6; i++) {
		has_failed = 1;
		fail_with = ERRORS[i / 2];
		fail_lasts = (int)i % 2;
		for (unsigned n = 1; has_failed; n++) {
			struct outcome outcome;

			includes = ki_cl_includes_new(&test_sys);
			has_failed = 0;
			fail_in = n;
			outcome = outcome_of(includes, "-Iinc", SOURCE);
			fail_in = 0;
			if (!outcome.status)
				assert_true(same(right, outcome.key));
			else if (outcome.status == KILN_E_UNSUPPORTED)
				assert_int_equal(outcome.reason,
						 KILN_COUNT_MISS_UNRESOLVED);
			else
				assert_int_equal(outcome.status,
						 KILN_E_NO_MEMORY);
			kiln_key_free(outcome.key);

			/* And nothing wrong is remembered. */
			outcome = outcome_of(includes, "-Iinc", SOURCE);
			assert_int_equal(outcome.status, KILN_OK);
			assert_true(same(right, outcome.key));
			kiln_key_free(outcome.key);
			ki_cl_includes_free(includes);
		}
	}
	assert_int_equal(count_descriptors(), descriptors);
	kiln_key_free(right);
	free(directory);
}

/* ---- Limits ---------------------------------------------------------- */

static void limits_end_in_no_caching(void **state)
{
	char *directory = enter(NULL), name[64], text[4096];
	size_t size = KI_CL_INCLUDE_FILE_BYTES_MAX + 1;
	char *large = malloc(size);

	for (int i = 0; i < KI_CL_INCLUDE_DEPTH_MAX + 2; i++) {
		snprintf(name, sizeof(name), "%d.h", i);
		snprintf(text, sizeof(text), "#include \"%d.h\"\n", i + 1);
		write_text(name, text);
	}
	assert_string_equal(closure_of("", "#include \"0.h\"", text),
			    "miss_unresolved");
	assert_string_not_equal(closure_of("", "#include \"150.h\"", text),
				"miss_unresolved");
	memset(large, '\n', size);
	harness_write("large.h", large, size);
	assert_string_equal(closure_of("", "#include \"large.h\"", text),
			    "miss_unresolved");

	large[0] = 0;
	for (size_t i = 0, n = 0; i <= KI_CL_INCLUDE_FILES_MAX; i++)
		n += (size_t)snprintf(large + n, size - n,
				      "#include \"n%zu\"\n", i);
	assert_string_equal(closure_of("", large, text), "miss_unresolved");
	free(large);
	free(directory);
}

static void a_long_name_has_a_label_all_the_same(void **state)
{
	char *directory = enter(NULL), name[300], source[400];
	struct ki_cl_includes *includes = ki_cl_includes_new(&test_sys);
	struct kiln_key *a, *b;

	memset(name, 'x', sizeof(name) - 1);
	for (size_t i = 10; i < sizeof(name) - 1; i += 10)
		name[i] = '/';
	name[sizeof(name) - 1] = 0;
	snprintf(source, sizeof(source), "#include \"%s\"\n", name);
	a = key_of(includes, "", source);
	name[sizeof(name) - 2] = 'y';
	snprintf(source, sizeof(source), "#include \"%s\"\n", name);
	b = key_of(includes, "", source);
	assert_false(same(a, b));
	kiln_key_free(a);
	kiln_key_free(b);
	ki_cl_includes_free(includes);
	free(directory);
}

/* ---- Expansion ------------------------------------------------------- */

static const struct {
	const char *name;
	const char *options;
	const char *text;
	const char *expected; /* NULL: refused */
} EXPANSIONS[] = {
	{ "hashcat",
	  "-D INCLUDE_PATH=/usr/share/hashcat/OpenCL -D XM2S(x)=#x "
	  "-D M2S(x)=XM2S(x)",
	  "M2S(INCLUDE_PATH/inc_vendor.h)",
	  "\"/usr/share/hashcat/OpenCL/inc_vendor.h" },
	{ "a closing slash", "-D P=/x/ -D XM2S(x)=#x -D M2S(x)=XM2S(x)",
	  "M2S(P/a.h)", "\"/x//a.h" },
	{ "a folder in quotes", "-D P=\"/x/\" -D XM2S(x)=#x -D M2S(x)=XM2S(x)",
	  "M2S(P/a.h)", "\"/x//a.h" },
	{ "blanks around the argument", "-DS(x)=#x", "S( a.h )", "\"a.h" },
	{ "blanks inside are one blank", "-DS(x)=#x", "S(a  b)", "\"a b" },
	{ "a comment is a blank", "-DS(x)=#x", "S(a/**/b) // c", "\"a b" },
	{ "not expanded before #", "-DS(x)=#x -DA=b", "S(A)", "\"A" },
	{ "two arguments", "-DS(x)=#x -DT(x,y)=S(x/y)", "T(a,b.h)", "\"a/b.h" },
	{ "nested parentheses", "-DS(x)=#x", "S(f(a,b))", "\"f(a,b)" },
	{ "angled through two names", "-DA=B -DB=<c.h>", "A", "<c.h" },
	{ "angled in the source", "-DA=b", "<", NULL },
	{ "a blank inside angles", "-DA=b", "A <a .h>", NULL },
	{ "itself", "-DA=A", "A", NULL },
	{ "each other", "-DA=B -DB=A", "A", NULL },
	{ "one that comes out of itself", "-DA=<A> -DB=A", "B", NULL },
	{ "a dollar", "-DA$=<a.h> -DS(x)=#x -DB=$", "S(a$b)", NULL },
	{ "a digraph in a body", "-DS(x)=%:x", "S(a)", NULL },
	{ "a name of a driver's", "-DS(x)=#x -DT(x)=S(x)", "T(POCL_X)", NULL },
	{ "a function without arguments", "-DS()=<a.h>", "S()", "<a.h" },
	{ "a function's name alone", "-DS(x)=#x", "S", NULL },
	{ "too few arguments", "-DS(x,y)=#x", "S(a)", NULL },
	{ "too many arguments", "-DS(x)=#x", "S(a,b)", NULL },
	{ "no end", "-DS(x)=#x", "S(a", NULL },
	{ "pasting", "-DS(x)=x##y", "S(a)", NULL },
	{ "variable arguments", "-DS(...)=#x", "S(a)", NULL },
	{ "an empty body", "-DA=", "A", NULL },
	{ "an empty argument", "-DS(x)=<x>", "S()", NULL },
	{ "a string in an argument", "-DS(x)=#x", "S(\"a\")", NULL },
	{ "a comment in a body", "-DA=</x//y.h>", "A", NULL },
	{ "a name that gcc defines", "-DS(x)=#x", "S(/usr/linux/a.h)",
	  "\"/usr/linux/a.h" },
	{ "the same, where it would be expanded", "-DS(x)=#x -DT(x)=S(x)",
	  "T(/usr/linux/a.h)", NULL },
	{ "more behind the name", "-DA=<a.h>", "A b", NULL },
	{ "doubtful quotes", "-DS(x)=#x -DT(x)=S(x) -DP=a\"b\"c", "T(P)",
	  NULL },
};

static void names_are_expanded_or_refused(void **state)
{
	for (size_t i = 0; i < sizeof(EXPANSIONS) / sizeof(EXPANSIONS[0]);
	     i++) {
		struct ki_cl_words words = { 0 };
		struct ki_cl_options options;
		char *name = NULL;
		int err;

		ki_cl_options_init(&options);
		ki_cl_options_read(&options, EXPANSIONS[i].options);
		err = ki_cl_expand(&options, EXPANSIONS[i].text, &words, &name);
		print_message("# %s: %d\n", EXPANSIONS[i].name, err);
		assert_int_equal(err != 0, !EXPANSIONS[i].expected);
		if (!err)
			assert_string_equal(name, EXPANSIONS[i].expected);
		free(name);
		ki_cl_words_fini(&words);
		ki_cl_options_fini(&options);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_place_where_a_file_may_be_is_in_the_key),
		cmocka_unit_test(a_second_name_of_a_file_is_no_copy),
		cmocka_unit_test(a_link_that_leads_elsewhere_changes_the_key),
		cmocka_unit_test(a_file_with_more_than_its_size_is_refused),
		cmocka_unit_test(texts_of_one_program_count_as_one),
		cmocka_unit_test(an_absolute_name_has_one_place),
		cmocka_unit_test(a_fifo_is_not_waited_for),
		cmocka_unit_test(
			the_drivers_folders_count_where_they_have_the_file),
		cmocka_unit_test(each_of_the_drivers_folders_is_looked_into),
		cmocka_unit_test(
			names_do_not_lead_out_of_the_folder_of_header_programs),
		cmocka_unit_test(a_change_anywhere_changes_the_key),
		cmocka_unit_test(a_fresh_file_is_read_again),
		cmocka_unit_test(a_settled_file_is_read_once),
		cmocka_unit_test(the_working_directory_is_not_in_the_key),
		cmocka_unit_test(a_failing_call_never_changes_a_key),
		cmocka_unit_test(limits_end_in_no_caching),
		cmocka_unit_test(a_long_name_has_a_label_all_the_same),
		cmocka_unit_test(names_are_expanded_or_refused),
	};

	test_sys = ki_sys_posix;
	test_sys.realtime_ns = realtime;
	test_sys.open = fail_open;
	test_sys.stat = fail_stat;
	test_sys.fstat = fail_fstat;
	test_sys.pread = fail_pread;
	test_sys.close = fail_close;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
