/* SPDX-License-Identifier: MIT */

/*
 * The include closure against a real compiler.  Trees of headers, sources and
 * options in odd spellings are made by chance; clang preprocesses them as PoCL
 * has it do; and where we answer with a closure at all:
 *
 *	- every file that clang reads is in it;
 *	- after a change anywhere in the tree, two equal closures mean two equal
 *	  outputs;
 *	- no output has a date or a time in it.
 *
 * Arguments: clang, cases (of a few trees each), the first one's seed.  A case
 * that fails is printed, with its seed.
 */

#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "harness/harness.h"

#include <kiln/inspect.h>

#include "front/opencl/include.h"

#define CHANGES	    3 /* of a tree, in each case */
#define TEXT_MAX    8192
#define WORDS_MAX   64
#define SOURCE	    "driver/source.cl"
#define DRIVER	    "driver"
#define COUNT_OF(a) (sizeof(a) / sizeof((a)[0]))

static const char *clang;
static uint64_t cases = 1, seed = 1, state;

static struct {
	unsigned refused, trees, built, equal, read;
} counts;

/* ---- Chance ---------------------------------------------------------- */

static size_t below(size_t n)
{
	return (size_t)(harness_random(&state) % n);
}

static int chance(size_t percent)
{
	return below(100) < percent;
}

#define ONE_OF(list) ((list)[below(COUNT_OF(list))])

/* ---- Texts ----------------------------------------------------------- */

struct text {
	char data[TEXT_MAX];
	size_t size;
};

static void put(struct text *text, const char *more)
{
	size_t size = strlen(more);

	if (text->size + size >= TEXT_MAX)
		return;
	memcpy(text->data + text->size, more, size + 1);
	text->size += size;
}

static void put_char(struct text *text, char c)
{
	char string[2] = { c, 0 };

	put(text, string);
}

static const char *const NEWLINES[] = { "\n", "\n", "\n",   "\n",
					"\n", "\n", "\r\n", "\r" };

static void put_splice(struct text *text)
{
	static const char *const BACKSLASHES[] = { "\\",    "\\",    "\\",
						   "\\ ",   "\\\t",  "\\\v",
						   "\?\?/", "\?\?/ " };

	put(text, ONE_OF(BACKSLASHES));
	put(text, chance(2) ? "\n\r" : ONE_OF(NEWLINES));
}

/* The same to a compiler, spelled otherwise. */
static void put_oddly(struct text *text, const char *line)
{
	static const char *const BLANKS[] = {
		" ",
		"\t",
		"  ",
		"\f",
		"/**/",
		"/* x */",
		"/* \n */",
		"/*\\\n*/",
		"/***\\\n/",
		"/*\"*/",
		"/*\?\?/\n*/",
		"/* // */",
		"/*'*\?\?/\r\n/",
	};
	static const char *const HASHES[] = { "#",  "#",     "#",
					      "%:", "\?\?=", "%\\\n:" };
	int odd = chance(50), percent = 5;

	for (; *line; line++) {
		/* Inside names most of them are refused. */
		if (strchr("\"<", *line))
			percent = chance(10) ? 5 : 0;
		if (odd && chance((size_t)percent))
			put_splice(text);
		if (*line == '\n')
			put(text, ONE_OF(NEWLINES));
		else if (*line == '#' && odd)
			put(text, ONE_OF(HASHES));
		else if (*line == ' ' && odd && chance(30))
			put(text, ONE_OF(BLANKS));
		else
			put_char(text, *line);
	}
}

static const char *const NAMES[] = {
	"a.h",	   "a.h",  "b.h",    "b.h",	   "c.h",     "d.h",
	"sub/d.h", "inc",  "../a.h", "./a.h",	   "inc/c.h", "other/a.h",
	"other",   "x//b", "a/*b.h", "../inc/b.h", "none.h",  "sub/../c.h",
};

static void put_include(struct text *text)
{
	static const char *const COMPUTED[] = {
		"M2S(P/c.h)",	"M2S(P/a.h)", "X",	"Y",   "F(inc,b.h)",
		"M2S( P/c.h )", "S(P)",	      "M2S(Q)", "X Y", "F(P,c.h)",
	};
	static const char *const ENDS[] = { "", " ", " // x", " /* y */",
					    " /* y\n */ int z;" };
	char line[128];

	if (chance(4))
		snprintf(line, sizeof(line), "#include %s\n", ONE_OF(COMPUTED));
	else if (chance(60))
		snprintf(line, sizeof(line), "# include \"%s\"%s\n",
			 ONE_OF(NAMES), ONE_OF(ENDS));
	else
		snprintf(line, sizeof(line), "#include <%s>%s\n", ONE_OF(NAMES),
			 ONE_OF(ENDS));
	put_oddly(text, line);
}

static void put_garbage(struct text *text)
{
	static const char *const PIECES[] = {
		"/*",  "*/",	  "//", "\"", "'",    "\\", "\n",
		" ",   "#",	  "<",	">",  "\?\?", "/",  "=",
		"%:",  "R",	  "(",	")",  "\\\n", "*",  "include",
		"a.h", "\"a.h\"", "0",	"x",  "u8",
	};
	size_t n = 1 + below(8);

	while (n--)
		put(text, ONE_OF(PIECES));
	put(text, "\n");
}

static const char *const LINES[] = {
	"int x;\n",
	"kernel void f() {}\n",
	"don't\n",
	"\"a /* b\n",
	"'\"' '/*'\n",
	"\"\\\"/*\"\n",
	"'/* \\\n",
	"/* #include \"a.h\" */\n",
	"// #include \"a.h\"\n",
	"// x \\\n#include \"b.h\"\n",
	"// x \?\?/\n#include \"b.h\"\n",
	"/*\n#include \"c.h\"\n*/ int y;\n",
	"#pragma once\n",
	"#pragma once\n",
	"#define G X\n",
	"#define N\n",
	"#undef N\n",
	"x #include \"a.h\"\n",
	"#define L #include \"a.h\"\n",
	"/* */ # /* */ include \"a.h\"\n",
	"#if 0\n#error don't\n#endif\n",
	"#line 5 \"other/z.h\"\n#include \"a.h\"\n",
	"#\n",
	"# 3 \"inc/y.h\"\n",
	"#ifdef G\n#include G\n#endif\n",
	"a##b \"#include <a.h>\"\n",
	"#define J(a,b) a##b\n",
	"J(x,y) __LINE__\n",
	"L\"a\" u8\"/*\"\n",
};

/* Each is a reason to refuse, mostly: not too often. */
static const char *const REFUSED[] = {
	"#define X \"b.h\"\n",
	"#define P other\n",
	"#undef P\n",
	"#pragma push_macro(\"X\")\n",
	"#import \"a.h\"\n",
	"#include_next <a.h>\n",
	"#__include_macros <a.h>\n",
	"#if __has_include(\"b.h\")\nint has_b;\n#endif\n",
	"#define H(a) a##e\n#if H(__has_includ)(<c.h>)\nint h;\n#endif\n",
	"__DATE__\n",
	"__TIME__ x\n",
	"__TIMESTAMP__\n",
	"J(__DA,TE__)\n",
	"J(__,TIME__)\n",
	"#define D J(J(_,_TI),ME__)\nD\n",
	"\xc2\xa0#include \"b.h\"\n",
	"#include\xc2\xa0<b.h>\n",
	"R\"(\n/*\n)\"\n#include \"b.h\"\n//*/\n",
	"1'000\n",
	"#include \"a\\\"b.h\"\n",
	"#warning a /* b\n",
	"#if 0\n#error a /* b\n#include \"a.h\"\n*/\n#endif\n",
	"/*\n",
	"#include\n",
	"#include <a.h\n",
	"#include \"\"\n",
};

static void put_line(struct text *text, unsigned depth)
{
	static const char *const CONDITIONS[] = {
		"#if 0\n",
		"#if 1\n",
		"#ifdef K\n",
		"#ifndef N\n",
		"#if defined(G) && 1\n",
		"#if K /* x */ + 0\n",
	};
	size_t kind = below(100);

	if (kind < 50) {
		put_include(text);
	} else if (kind < 80) {
		put_oddly(text, ONE_OF(LINES));
	} else if (kind < 88 && depth < 3) {
		put_oddly(text, ONE_OF(CONDITIONS));
		put_line(text, depth + 1);
		if (chance(50)) {
			put_oddly(text, "#else // x\n");
			put_line(text, depth + 1);
		}
		put_oddly(text, "#endif\n");
	} else if (kind < 91) {
		put_garbage(text);
	} else if (chance(10)) {
		put_oddly(text, ONE_OF(REFUSED));
	}
}

static void make_text(struct text *text, size_t lines)
{
	text->size = 0;
	text->data[0] = 0;
	if (chance(3))
		put(text, "\xef\xbb\xbf");
	while (lines--)
		put_line(text, 0);
	if (chance(20) && text->size)
		text->data[--text->size] = 0;
}

/* ---- Trees ----------------------------------------------------------- */

static const char *const FOLDERS[] = { "inc", "inc/sub", "other", DRIVER };

static const char *const FILES[] = {
	"a.h",	     "b.h",	    "inc/a.h",	   "inc/b.h",
	"inc/c.h",   "inc/d.h",	    "inc/sub/d.h", "other/a.h",
	"other/c.h", "inc/sub/a.h", "other/d.h",   DRIVER "/b.h",
};

static void write_header(const char *path)
{
	struct text text;

	make_text(&text, below(4));
	harness_write(path, text.data, text.size);
}

static void change(size_t which)
{
	const char *path = FILES[which], *from = FILES[which ^ 1];
	size_t size;
	char *data;

	harness_remove(path);
	switch (below(8)) {
	case 0:
		break;
	case 1:
		assert_int_equal(mkdir(path, 0700), 0);
		break;
	case 2:
		(void)!link(from, path);
		break;
	case 3: /* the same bytes, but another file */
		data = harness_read(from, &size);
		if (data)
			harness_write(path, data, size);
		free(data);
		break;
	default:
		write_header(path);
	}
}

static void make_tree(void)
{
	for (size_t i = 0; i < COUNT_OF(FOLDERS); i++)
		harness_remove(FOLDERS[i]);
	for (size_t i = 0; i < COUNT_OF(FOLDERS); i++)
		assert_int_equal(mkdir(FOLDERS[i], 0700), 0);
	for (size_t i = 0; i < COUNT_OF(FILES); i++) {
		harness_remove(FILES[i]);
		if (chance(80))
			write_header(FILES[i]);
	}
}

/* ---- Options --------------------------------------------------------- */

/* As a text, and the words of it, '|' between them. */
static const struct {
	const char *text;
	const char *words;
} OPTIONS[] = {
	{ "-Iinc", "-Iinc" },
	{ "-I inc", "-I|inc" },
	{ "-I\tinc/sub", "-I|inc/sub" },
	{ "-I\"inc\"", "-Iinc" },
	{ "-I 'other'", "-I|other" },
	{ "-I./inc/", "-I./inc/" },
	{ "-I oth\\er", "-I|other" },
	{ "-isystem other", "-isystem|other" },
	{ "-iquote inc", "-iquote|inc" },
	{ "-idirafter other", "-idirafter|other" },
	{ "-include a.h", "-include|a.h" },
	{ "-include inc/c.h", "-include|inc/c.h" },
	{ "-imacros b.h", "-imacros|b.h" },
	{ "-DX=<a.h>", "-DX=<a.h>" },
	{ "-D X=\\\"b.h\\\"", "-D|X=\"b.h\"" },
	{ "-DX='\"c.h\"'", "-DX=\"c.h\"" },
	{ "-DY=X", "-DY=X" },
	{ "-DY=<inc/c.h>", "-DY=<inc/c.h>" },
	{ "-DY=Y", "-DY=Y" },
	{ "-D F(a,b)=<a/b>", "-D|F(a,b)=<a/b>" },
	{ "-DK", "-DK" },
	{ "-DK=0", "-DK=0" },
	{ "-DQ=P/a.h", "-DQ=P/a.h" },
	{ "-DS(x)=#x", "-DS(x)=#x" },
	{ "-UX", "-UX" },
	{ "-DNAME=\"a b\"", "-DNAME=a b" },
};

static void add_words(const char *words[WORDS_MAX], size_t *n, const char *list,
		      char *copy)
{
	char *position = NULL, *word;

	strcpy(copy, list);
	for (word = strtok_r(copy, "|", &position); word;
	     word = strtok_r(NULL, "|", &position))
		words[(*n)++] = word;
}

/* The text of some options, and clang's whole command line. */
static void make_options(struct text *text, const char *words[WORDS_MAX])
{
	static char copies[16][128];
	static const char *const PATHS[] = { "-DP=inc", "-DP=other",
					     "-DP=\"inc\"" };
	size_t n = 0, i, option;

	words[n++] = clang;
	add_words(words, &n, "-cc1|-E|-P|-x|cl|-cl-std=CL1.2|-I.", copies[0]);
	text->size = 0;
	text->data[0] = 0;
	for (i = 1; i <= 6; i++) {
		if (chance(40))
			continue;
		option = below(COUNT_OF(OPTIONS));
		put(text, OPTIONS[option].text);
		put(text, " ");
		add_words(words, &n, OPTIONS[option].words, copies[i]);
	}
	if (chance(60)) {
		put(text, "-D XM2S(x)=#x -D M2S(x)=XM2S(x) ");
		add_words(words, &n, "-DXM2S(x)=#x|-DM2S(x)=XM2S(x)",
			  copies[7]);
		option = below(COUNT_OF(PATHS));
		put(text, PATHS[option]);
		add_words(words, &n, option == 1 ? PATHS[1] : PATHS[0],
			  copies[8]);
	}
	add_words(words, &n,
		  "-MG|-sys-header-deps|-dependency-file|read|-MT|x|-o|"
		  "output|" SOURCE,
		  copies[9]);
	words[n] = NULL;
}

/* ---- The two answers ------------------------------------------------- */

/* Whether clang succeeds; its output in `output`, what it read in `read`. */
static int run_clang(const char *const words[])
{
	int status, fd;
	pid_t pid;

	(void)unlink("read");
	(void)unlink("output");
	pid = fork();
	if (!pid) {
		fd = open("/dev/null", O_RDWR);
		dup2(fd, 0);
		dup2(fd, 1);
		dup2(fd, 2);
		execv(clang, (char *const *)(uintptr_t)words);
		_exit(127);
	}
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) != 127);
	return !WEXITSTATUS(status);
}

static struct kiln_key *closure_of(struct ki_cl_includes *includes,
				   const char *text, const struct text *source)
{
	static const char *const folders[] = { DRIVER };
	struct ki_cl_options options;
	struct ki_cl_search search = { .options = &options,
				       .driver_folders = folders,
				       .n_driver_folders = 1 };
	struct kiln_key *key = kiln_key_new();
	enum kiln_counter reason;
	enum kiln_status status;

	ki_cl_options_init(&options);
	ki_cl_options_read(&options, text);
	status = ki_cl_includes_add(includes, &search, source->data,
				    source->size, key, &reason);
	ki_cl_options_fini(&options);
	if (!status) {
		assert_int_equal(kiln_key_finish(key), KILN_OK);
		return key;
	}
	assert_int_equal(status, KILN_E_UNSUPPORTED);
	kiln_key_free(key);
	return NULL;
}

/* Whether a file is at a place that the key has with a digest. */
static int is_in(const struct kiln_key *key, const char *path)
{
	struct stat wanted, there;
	struct kiln_field field;
	size_t position = 0, size;
	const void *record = kiln_key_record(key, &size);
	char place[512];
	const char *name;

	/* -MG: what is not there, or is a folder, is named too. */
	if (stat(path, &wanted) || !S_ISREG(wanted.st_mode))
		return 1;
	while (!kiln_record_next(record, size, &position, &field)) {
		if (field.kind != KILN_FIELD_DIGEST)
			continue;
		snprintf(place, sizeof(place), "%.*s",
			 (int)field.label_size - 8, field.label + 8);
		name = place;
		if (!strncmp(place, "(driver)/", 9)) {
			memcpy(place + 2, DRIVER, strlen(DRIVER));
			name = place + 2;
		}
		if (!stat(name, &there) && there.st_dev == wanted.st_dev &&
		    there.st_ino == wanted.st_ino)
			return 1;
	}
	return 0;
}

/* What clang read and the key has not; NULL if there is nothing. */
static const char *missing(const struct kiln_key *key)
{
	static char result[256];
	char *text = harness_read("read", NULL), *position = NULL, *word;

	result[0] = 0;
	for (word = text ? strtok_r(text, " \\\n", &position) : NULL; word;
	     word = strtok_r(NULL, " \\\n", &position)) {
		if (word[strlen(word) - 1] == ':' || !strcmp(word, SOURCE))
			continue;
		counts.read++;
		if (!is_in(key, word))
			snprintf(result, sizeof(result), "%s", word);
	}
	free(text);
	return *result ? result : NULL;
}

static int has_time(const char *output)
{
	char year[16];
	time_t now = time(NULL);
	const char *p;

	strftime(year, sizeof(year), " %Y\"", gmtime(&now));
	if (strstr(output, year))
		return 1;
	for (p = output; (p = strchr(p, ':')); p++)
		if (p - output >= 3 && p[-3] == '"' &&
		    isdigit((unsigned char)p[1]))
			return 1;
	return 0;
}

/* ---- Cases ----------------------------------------------------------- */

struct answer {
	struct kiln_key *key;
	char *output; /* NULL: clang failed */
};

static void print_bytes(const char *name, const char *data, size_t size)
{
	print_message("# %s: ", name);
	for (size_t i = 0; i < size; i++)
		print_message(data[i] >= ' ' && data[i] <= '~' &&
					      data[i] != '\\'
				      ? "%c"
				      : "\\%03o",
			      (unsigned char)data[i]);
	print_message("\n");
}

static void print_case(const char *options, const struct text *source,
		       const char *why)
{
	print_message("# seed %llu: %s\n", (unsigned long long)seed, why);
	print_bytes("options", options, strlen(options));
	print_bytes("source", source->data, source->size);
	for (size_t i = 0; i < COUNT_OF(FILES); i++) {
		size_t size;
		char *data = harness_read(FILES[i], &size);

		if (data)
			print_bytes(FILES[i], data, size);
		free(data);
	}
}

/* NULL, or what is wrong with this answer, given those before. */
static const char *judge(const struct answer *answers, size_t n)
{
	const struct answer *last = &answers[n];
	const char *name = missing(last->key);
	size_t i;

	if (name)
		return name;
	if (last->output && has_time(last->output))
		return "a time";
	for (i = 0; i < n; i++) {
		if (!answers[i].key ||
		    memcmp(kiln_key_digest(answers[i].key),
			   kiln_key_digest(last->key), KILN_DIGEST_BYTES))
			continue;
		counts.equal++;
		if (!answers[i].output != !last->output ||
		    (last->output && strcmp(answers[i].output, last->output)))
			return "another output by the same key";
	}
	return NULL;
}

static int run_case(struct ki_cl_includes *includes)
{
	struct answer answers[CHANGES + 1] = { { 0 } };
	const char *words[WORDS_MAX], *why = NULL;
	struct text options, source;
	size_t n, which = 0;

	make_tree();
	make_options(&options, words);
	make_text(&source, 1 + below(6));
	harness_write(SOURCE, source.data, source.size);
	for (n = 0; n <= CHANGES && !why; n++) {
		if (n == 1 || (n && chance(40)))
			which = below(COUNT_OF(FILES));
		if (n)
			change(which);
		counts.trees++;
		answers[n].key = closure_of(includes, options.data, &source);
		if (!answers[n].key) {
			counts.refused++;
			continue;
		}
		if (run_clang(words)) {
			answers[n].output = harness_read("output", NULL);
			counts.built++;
		}
		why = judge(answers, n);
	}
	if (why)
		print_case(options.data, &source, why);
	for (n = 0; n <= CHANGES; n++) {
		kiln_key_free(answers[n].key);
		free(answers[n].output);
	}
	return !why;
}

static void what_clang_reads_is_in_the_key(void **unused)
{
	struct ki_cl_includes *includes;
	unsigned failed = 0;
	char *directory;

	if (!clang)
		HARNESS_LEAVE_OUT("no clang: nothing is compared");
	directory = harness_directory();
	assert_int_equal(chdir(directory), 0);
	includes = ki_cl_includes_new(&ki_sys_posix);
	for (; cases; cases--, seed++) {
		state = seed;
		failed += !run_case(includes);
	}
	ki_cl_includes_free(includes);
	print_message("# trees %u, refused %u, built %u, equal keys %u, "
		      "files read %u\n",
		      counts.trees, counts.refused, counts.built, counts.equal,
		      counts.read);
	assert_int_equal(failed, 0);
	assert_true(counts.refused < counts.trees);
	free(directory);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_clang_reads_is_in_the_key),
	};

	if (argc > 1 && *argv[1])
		clang = argv[1];
	if (argc > 2)
		cases = strtoull(argv[2], NULL, 10);
	if (argc > 3)
		seed = strtoull(argv[3], NULL, 10);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
