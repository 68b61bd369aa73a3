/* SPDX-License-Identifier: MIT */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/harness.h"

#include "front/opencl/scan.h"

#define TIME	  KI_CL_SCAN_TIME
#define DIRECTIVE KI_CL_SCAN_DIRECTIVE
#define UNCLEAR	  KI_CL_SCAN_UNCLEAR
#define STACK	  KI_CL_SCAN_MACRO_STACK
#define ASM	  KI_CL_SCAN_ASM
#define READS	  KI_CL_SCAN_ASM_READS

static const struct {
	const char *name;
	const char *text;
	const char *includes; /* joined by | */
	unsigned flags;
} ROWS[] = {
	{ "nothing", "kernel void f() {}\n", "", 0 },
	{ "quoted", "#include \"a.h\"\n", "\"a.h", 0 },
	{ "angled", "#include <a.h>\n", "<a.h", 0 },
	{ "no newline at the end", "#include <a.h>", "<a.h", 0 },
	{ "blanks everywhere", " \t # \t include \t \"a.h\" \n", "\"a.h", 0 },
	{ "no blank", "#include\"a.h\"\n#include<b.h>", "\"a.h|<b.h", 0 },
	{ "a digraph", "%:include \"a.h\"\n", "\"a.h", 0 },
	{ "a trigraph", "\?\?=include \"a.h\"\n", "\"a.h", 0 },
	{ "comments around", "/* x */ # /* y */ include /* z */ \"a.h\" // w",
	  "\"a.h", 0 },
	{ "behind a comment over lines", "/* x\n y */ #include \"a.h\"\n",
	  "\"a.h", 0 },
	{ "in a comment", "/* \n#include \"a.h\"\n*/\n", "", 0 },
	{ "in a line comment", "// #include \"a.h\"\n", "", 0 },
	{ "a line comment continued", "// x \\\n#include \"a.h\"\n", "", 0 },
	{ "a line comment perhaps continued by a trigraph",
	  "// x \?\?/\n#include \"a.h\"\n", "\"a.h", 0 },
	{ "a line comment perhaps continued by a blank behind the backslash",
	  "// x \\ \n#include \"a.h\"\n", "\"a.h", 0 },
	{ "spliced", "#inc\\\nlude \"a\\\n.h\"\n", "\"a.h", 0 },
	{ "spliced with returns", "#inc\\\r\nlude \"a.h\"\r\n", "\"a.h", 0 },
	{ "spliced by a trigraph", "#inc\?\?/\nlude \"a.h\"\n", "\"a.h", 0 },
	{ "returns alone end lines", "int a;\r#include \"a.h\"\r", "\"a.h", 0 },
	{ "in a string", "char *s = \"#include <a.h>\";\n", "", 0 },
	{ "not at the start of a line", "x #include <a.h>\n", "", 0 },
	{ "a string does not hide a comment",
	  "\"/*\"\n#include \"a.h\"\n\"*/\"\n", "\"a.h", 0 },
	{ "nor does a character", "'\"'\n#include \"a.h\"\n'\"'\n", "\"a.h",
	  0 },
	{ "an escaped quote", "\"\\\"/*\"\n#include \"a.h\"\n\"*/\"", "\"a.h",
	  0 },
	{ "a stray quote ends with its line", "don't\n#include \"a.h\"\n'",
	  "\"a.h", 0 },
	{ "under conditions that are false",
	  "#if 0\n#include \"a.h\"\n#else\n#include \"b.h\"\n#endif\n",
	  "\"a.h|\"b.h", 0 },
	{ "twice the same", "#include \"a.h\"\n#include \"a.h\"\n", "\"a.h",
	  0 },
	{ "quoted and angled are two", "#include \"a.h\"\n#include <a.h>\n",
	  "\"a.h|<a.h", 0 },
	{ "what looks like a comment in a name", "#include <a//b.h>\n",
	  "<a//b.h", 0 },
	{ "and the other one", "#include \"a/*b.h\"\n#include \"c.h\"\n",
	  "\"a/*b.h|\"c.h", 0 },
	{ "a name with blanks", "#include \" a b.h\"\n", "\" a b.h", 0 },
	{ "a mark before the text", "\xef\xbb\xbf#include \"a.h\"\n", "\"a.h",
	  0 },
	{ "computed", "#include M2S(P/a.h)\n", "=M2S(P/a.h)", 0 },
	{ "an unfinished name", "#include \"a.h\n", "", UNCLEAR },
	{ "an unfinished angled name", "#include <a.h\n", "", UNCLEAR },
	{ "an empty name", "#include \"\"\n", "", UNCLEAR },
	{ "no name", "#include\n", "", UNCLEAR },
	{ "import", "#import \"a.h\"\n", "", DIRECTIVE },
	{ "include_next", "#include_next <a.h>\n", "", DIRECTIVE },
	{ "embed", "# embed \"a.bin\"\n", "", DIRECTIVE },
	{ "has_include", "#if __has_include(<a.h>)\n#endif\n", "", DIRECTIVE },
	{ "has_include behind defined", "#ifdef __has_include\n#endif\n", "",
	  DIRECTIVE },
	{ "import in a string", "\"#import\" \"__has_include\"\n", "", 0 },
	{ "import in a comment", "/* #import\n#import <a.h> */", "", 0 },
	{ "a pragma that reads", "#pragma GCC dependency \"a.h\"\n", "",
	  DIRECTIVE },
	{ "a pragma that does not", "#pragma OPENCL EXTENSION x : enable\n", "",
	  0 },
	{ "date", "char *s = __DATE__;\n", "", TIME },
	{ "time", "__TIME__", "", TIME },
	{ "timestamp in a macro", "#define X __TIMESTAMP__\n", "", TIME },
	{ "date, spliced", "__DA\\\nTE__", "", TIME },
	{ "date in a string", "\"__DATE__\" '__TIME__'", "", 0 },
	{ "date in a comment", "// __DATE__\n/* __TIME__ */", "", 0 },
	{ "words that contain date",
	  "x__DATE__ __DATE__x __DATE___ _DATE_ DATE_ TE TIME __d __DAB", "",
	  0 },
	{ "date, to be pasted", "#define P(a) a##TE__\nP(__DA)\n", "", TIME },
	{ "an end of time", "P(__, TIME__)", "", TIME },
	{ "date in three pieces", "P(_, _DAT, E__)", "", TIME },
	{ "has_include in pieces", "#if P(__has, _include)(<a.h>)\n#endif\n",
	  "", DIRECTIVE },
	{ "date before a dollar", "__DATE__$x", "", TIME },
	{ "date behind dollars", "x$$__DATE__", "", TIME },
	{ "date among bytes beyond ASCII", "__DATE__\xc2\xa0;", "",
	  TIME | UNCLEAR },
	{ "a blank beyond ASCII before a directive",
	  "\xc2\xa0#include \"a.h\"\n", "", UNCLEAR },
	{ "the same by its number", "\\u00a0#include \"a.h\"\n", "", UNCLEAR },
	{ "bytes beyond ASCII in a string and a comment",
	  "\"\xc3\xa4\" /* \xc3\xa4 */ // \xc3\xa4\n#include \"\xc3\xa4.h\"",
	  "\"\xc3\xa4.h", 0 },
	{ "a mark in the middle", "int a;\n\xef\xbb\xbf#include <a.h>\n", "",
	  UNCLEAR },
	{ "a splice with a vertical tab", "#inc\\\v\nlude \"a.h\"\n", "\"a.h",
	  0 },
	{ "a splice whose line ends the other way round",
	  "#inc\\\n\rlude \"a.h\"\n", "", UNCLEAR },
	{ "the same by a trigraph, with a blank",
	  "#inc\?\?/ \n\rlude \"a.h\"\n", "", UNCLEAR },
	{ "a splice before an empty line that ends in two",
	  "// a \\\n\r\n#include \"a.h\"\n", "\"a.h", 0 },
	{ "an escaped quote in a name", "#include \"a\\\"b.h\"\n", "",
	  UNCLEAR },
	{ "date in a number", "1__DATE__", "", 0 },
	{ "date behind include", "#include \"a.h\" __DATE__\n", "\"a.h", TIME },
	{ "a raw string", "R\"(\n/*\n)\"\n#include \"a.h\"\n", "", UNCLEAR },
	{ "a raw string behind a hash", "#R\"x(\"/*\"\n#include \"a.h\"\n", "",
	  UNCLEAR },
	{ "a raw string behind define", "#define R\"(\n/*\n", "", UNCLEAR },
	{ "a word that ends in R", "FOR\"x\"\n", "", 0 },
	{ "a macro named R", "R (x)\n", "", 0 },
	{ "a digit separator", "int a = 1'000;\n", "", UNCLEAR },
	{ "a comment begun behind error", "#error a /* b\n#include \"a.h\"\n",
	  "", UNCLEAR },
	{ "an apostrophe behind error", "#error don't\n#include \"a.h\"\n",
	  "\"a.h", 0 },
	{ "an assembler that reads", "__asm__(\".incbin \\\"x\\\"\");\n", "",
	  UNCLEAR },
	{ "an assembler that does not", "__asm__(\"nop\");\n", "", ASM },
	{ "an assembler, of pieces", "asm(\".in\" \"cbin 'x'\");\n", "",
	  ASM | READS },
	{ "an assembler, of pieces after a blank",
	  "asm(\"nop; .in\" \"cbin 'x'\");\n", "", ASM | READS },
	{ "an assembler, of pieces of a symbol",
	  "asm(\"wmma.load.\" S \".shared.in\" \"c;\");\n", "", ASM },
	{ "an assembler, of pieces behind an argument",
	  "asm(\"\\\\x.in\" \"cbin 'x'\");\n", "", ASM | READS },
	{ "an assembler, of letters by number", "asm(\"\\056incbin 'x'\")", "",
	  ASM | READS },
	{ "an assembler, of tokens", "#define S(x) #x\nasm(S(.INCBIN 'x'))", "",
	  ASM | READS },
	{ "an assembler, of letters by more digits", "asm(\"\\x0002Eincbin\")",
	  "", ASM | READS },
	{ "an assembler beside numbers",
	  "asm(\"\"); s = \"\\05\\013\\x1F9\\0\";", "", ASM | READS },
	{ "an assembler beside lesser numbers",
	  "asm(\"\"); \"\\05\\013\\x1F\\0\"", "", ASM },
	{ "characters beside an assembler", "asm(\"\"); x = '.' + '\\x02';", "",
	  ASM },
	{ "text with points", "printf(\"done.\"); a.increment++;", "", READS },
	{ "push_macro", "#pragma push_macro(\"X\")\n#define push_macro\n", "",
	  STACK },
	{ "a lone hash", "#\n#include \"a.h\"\n# 12 \"x.cl\"\n", "\"a.h", 0 },
	{ "a comment without end", "#include \"a.h\"\n/* x", "\"a.h", 0 },
};

static const char *joined(const struct ki_cl_words *words, char out[4096])
{
	size_t n = 0;

	out[0] = 0;
	for (size_t i = 0; i < words->n; i++)
		n += (size_t)snprintf(out + n, 4096 - n, "%s%s", i ? "|" : "",
				      words->words[i]);
	return out;
}

static void every_directive_is_found_and_nothing_else(void **state)
{
	char text[4096];

	for (size_t i = 0; i < sizeof(ROWS) / sizeof(ROWS[0]); i++) {
		struct ki_cl_scan scan;
		size_t size = strlen(ROWS[i].text);
		char *exact = malloc(size); /* the end is the end */

		memcpy(exact, ROWS[i].text, size);
		ki_cl_scan_init(&scan);
		ki_cl_scan_text(&scan, exact, size);
		print_message("# %s\n", ROWS[i].name);
		assert_int_equal(scan.failed, 0);
		if (!(ROWS[i].flags & UNCLEAR))
			assert_string_equal(joined(&scan.includes, text),
					    ROWS[i].includes);
		assert_int_equal(scan.flags & ROWS[i].flags, ROWS[i].flags);
		if (!(ROWS[i].flags & (UNCLEAR | STACK)))
			assert_int_equal(scan.flags, ROWS[i].flags);
		ki_cl_scan_fini(&scan);
		free(exact);
	}
}

static void an_embedded_nul_ends_nothing(void **state)
{
	static const char TEXT[] = "int a;\0\n#include \"a.h\"\n__DATE__";
	struct ki_cl_scan scan;

	ki_cl_scan_init(&scan);
	ki_cl_scan_text(&scan, TEXT, sizeof(TEXT) - 1);
	assert_int_equal(scan.includes.n, 1);
	assert_int_equal(scan.flags, TIME);
	ki_cl_scan_fini(&scan);
}

static void names_that_are_defined_are_known(void **state)
{
	static const char TEXT[] = "#define A 1\n#undef  B\n# define /**/ C(x)"
				   " x\n/*\n#define D\n*/\n";
	struct ki_cl_scan scan;

	ki_cl_scan_init(&scan);
	ki_cl_scan_text(&scan, TEXT, sizeof(TEXT) - 1);
	assert_true(ki_cl_scan_defines(&scan, "A", 1));
	assert_true(ki_cl_scan_defines(&scan, "B", 1));
	assert_true(ki_cl_scan_defines(&scan, "C", 1));
	assert_false(ki_cl_scan_defines(&scan, "D", 1));
	assert_false(ki_cl_scan_defines(&scan, "AB", 2));
	ki_cl_scan_fini(&scan);
}

static void words_of_options_raise_flags(void **state)
{
	assert_int_equal(ki_cl_scan_words("-DX=__DATE__"), TIME);
	assert_int_equal(ki_cl_scan_words("-DX(a)=__has_include(a)"),
			 DIRECTIVE);
	assert_int_equal(ki_cl_scan_words("-D__DATE__X -I x"), 0);
	assert_int_equal(ki_cl_scan_words(""), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_directive_is_found_and_nothing_else),
		cmocka_unit_test(an_embedded_nul_ends_nothing),
		cmocka_unit_test(names_that_are_defined_are_known),
		cmocka_unit_test(words_of_options_raise_flags),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
