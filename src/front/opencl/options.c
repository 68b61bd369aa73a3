/* SPDX-License-Identifier: MIT */

/*
 * One text is split into words by each reading; each word list goes through
 * one table of options.  A text without quotes and backslashes reads the same
 * in every way and is read once.
 */

#include "front/opencl/options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- Lists of words -------------------------------------------------- */

void ki_cl_words_fini(struct ki_cl_words *words)
{
	size_t i;

	for (i = 0; i < words->n; i++)
		free(words->words[i]);
	free(words->words);
	*words = (struct ki_cl_words){ 0 };
}

int ki_cl_words_have(const struct ki_cl_words *words, const char *word,
		     size_t size)
{
	size_t i;

	for (i = 0; i < words->n; i++)
		if (!strncmp(words->words[i], word, size) &&
		    !words->words[i][size])
			return 1;
	return 0;
}

int ki_cl_words_add(struct ki_cl_words *words, const char *word, size_t size)
{
	size_t capacity;
	char **grown;
	char *copy;

	if (ki_cl_words_have(words, word, size))
		return 0;
	if (words->n == KI_CL_WORDS_MAX)
		return -E2BIG;
	if (words->n == words->capacity) {
		capacity = words->capacity ? 2 * words->capacity : 8;
		grown = realloc(words->words, capacity * sizeof(*grown));
		if (!grown)
			return -ENOMEM;
		words->words = grown;
		words->capacity = capacity;
	}
	copy = strndup(word, size);
	if (!copy)
		return -ENOMEM;
	words->words[words->n++] = copy;
	return 0;
}

/* ---- Splitting ------------------------------------------------------- */

enum reading {
	READ_SHELL,  /* 'a b' "a b" a\ b */
	READ_DOUBLE, /* "a b" only; \" is a quote, other backslashes stay */
	READ_BLANK,  /* the same, and quotes become blanks (PoCL 3.1) */
	READ_RAW,    /* blanks split, nothing else has a meaning */
	N_READINGS
};

static int is_blank(char c)
{
	return c == ' ' || (c >= '\t' && c <= '\r');
}

/*
 * Take the next word from *text into `word`, which has room for all of the
 * text.  Returns whether there was one.
 */
static int next_word(enum reading reading, const char **text, char *word)
{
	const char *p = *text;
	char quote = 0;

	while (is_blank(*p))
		p++;
	if (!*p) {
		*text = p;
		return 0;
	}
	for (; *p && (quote || !is_blank(*p)); p++) {
		if (reading == READ_RAW) {
			*word++ = *p;
		} else if (*p == '\\' && p[1] && quote != '\'' &&
			   (reading == READ_SHELL || p[1] == '"')) {
			*word++ = *++p;
		} else if (quote ? *p == quote
				 : *p == '"' || (*p == '\'' &&
						 reading == READ_SHELL)) {
			quote = quote ? 0 : *p;
			if (reading == READ_BLANK)
				*word++ = ' ';
		} else {
			*word++ = *p;
		}
	}
	*word = 0;
	*text = p;
	return 1;
}

/* ---- Meaning --------------------------------------------------------- */

enum meaning {
	DIRECTORY,
	MACRO,
	UNDEFINE,
	FILE_FIRST,
	OPAQUE,
	WRITES,
};

/* How the argument follows. */
enum form {
	ALONE,	  /* -X */
	JOINED,	  /* -Xarg or -X arg */
	SEPARATE, /* -X arg */
	EQUALS,	  /* -X=arg or -X arg */
	PREFIX,	  /* anything that begins so */
};

/* Longer names first where one begins another. */
static const struct option {
	const char *name;
	enum form form;
	enum meaning meaning;
} OPTIONS[] = {
	{ "-include-p", PREFIX, OPAQUE },
	{ "-include", JOINED, FILE_FIRST },
	{ "--include-directory", EQUALS, DIRECTORY },
	{ "--include-", PREFIX, OPAQUE },
	{ "--include", EQUALS, FILE_FIRST },
	{ "-imacros", JOINED, FILE_FIRST },
	{ "--imacros", EQUALS, FILE_FIRST },
	{ "-isystem-after", JOINED, DIRECTORY },
	{ "-isystem", JOINED, DIRECTORY },
	{ "-cxx-isystem", JOINED, DIRECTORY },
	{ "-c-isystem", JOINED, DIRECTORY },
	{ "-stdlib++-isystem", JOINED, DIRECTORY },
	{ "-internal-isystem", JOINED, DIRECTORY },
	{ "-internal-externc-isystem", JOINED, DIRECTORY },
	{ "-iquote", JOINED, DIRECTORY },
	{ "-idirafter", JOINED, DIRECTORY },
	{ "-I-", ALONE, OPAQUE },
	{ "-I=", PREFIX, OPAQUE },
	{ "-I", JOINED, DIRECTORY },
	{ "-D", JOINED, MACRO },
	{ "--define-macro", EQUALS, MACRO },
	{ "-U", JOINED, UNDEFINE },
	{ "--undefine-macro", EQUALS, UNDEFINE },
	{ "-F", PREFIX, OPAQUE },
	{ "-iframework", PREFIX, OPAQUE },
	{ "-iprefix", PREFIX, OPAQUE },
	{ "-iwith", PREFIX, OPAQUE },
	{ "-ivfsoverlay", PREFIX, OPAQUE },
	{ "-isysroot", PREFIX, OPAQUE },
	{ "--sysroot", PREFIX, OPAQUE },
	{ "-resource-dir", PREFIX, OPAQUE },
	{ "-working-directory", PREFIX, OPAQUE },
	{ "-fmodule", PREFIX, OPAQUE },
	{ "-fplugin", PREFIX, OPAQUE },
	{ "-fprofile", PREFIX, OPAQUE },
	{ "-fsanitize-", PREFIX, OPAQUE },
	{ "-fxray", PREFIX, OPAQUE },
	{ "-mlink-b", PREFIX, OPAQUE },
	{ "-load", PREFIX, OPAQUE },
	{ "-finclude-default-header", PREFIX, OPAQUE },
	{ "-chain-include", PREFIX, OPAQUE },
	{ "-remap", PREFIX, OPAQUE },
	{ "-traditional", PREFIX, OPAQUE },
	{ "-mllvm", PREFIX, OPAQUE },
	{ "-config", PREFIX, OPAQUE },
	{ "--config", PREFIX, OPAQUE },
	{ "-Xclang", PREFIX, OPAQUE },
	{ "-Xpreprocessor", PREFIX, OPAQUE },
	{ "-Xassembler", PREFIX, OPAQUE },
	{ "-Xlinker", PREFIX, OPAQUE },
	{ "-Wp,", PREFIX, OPAQUE },
	{ "-Wa,", PREFIX, OPAQUE },
	{ "-Wl,", PREFIX, OPAQUE },
	{ "@", PREFIX, OPAQUE },
	{ "-save-temps", PREFIX, WRITES },
	{ "--save-temps", PREFIX, WRITES },
	{ "-fdump", PREFIX, WRITES },
	{ "-dump", PREFIX, WRITES },
	{ "-MD", PREFIX, WRITES },
	{ "-MF", PREFIX, WRITES },
	{ "-dependency-", PREFIX, WRITES },
	{ "-header-include-file", PREFIX, WRITES },
	{ "-opt-record-file", PREFIX, WRITES },
	{ "-fsave-optimization-record", PREFIX, WRITES },
	{ "-ftime-trace", PREFIX, WRITES },
	{ "-stats-file", PREFIX, WRITES },
	{ "-serialize-diagnostic", PREFIX, WRITES },
	{ "--serialize-diagnostic", PREFIX, WRITES },
	{ "-diagnostic-log-file", PREFIX, WRITES },
	{ "-split-dwarf", PREFIX, WRITES },
	{ "-coverage", PREFIX, WRITES },
};

/* The option that a word is, and where its argument begins (NULL: it is the
   next word). */
static const struct option *option_of(const char *word, const char **out_arg)
{
	size_t i, size;

	for (i = 0; i < sizeof(OPTIONS) / sizeof(OPTIONS[0]); i++) {
		size = strlen(OPTIONS[i].name);
		if (strncmp(word, OPTIONS[i].name, size))
			continue;
		*out_arg = word[size] ? word + size : NULL;
		switch (OPTIONS[i].form) {
		case PREFIX:
		case JOINED:
			return &OPTIONS[i];
		case EQUALS:
			if (word[size] == '=')
				*out_arg = word + size + 1;
			if (!word[size] || word[size] == '=')
				return &OPTIONS[i];
			break;
		case ALONE:
		case SEPARATE:
			if (!word[size])
				return &OPTIONS[i];
			break;
		}
	}
	return NULL;
}

static void keep(struct ki_cl_options *options, struct ki_cl_words *words,
		 const char *word)
{
	int err = ki_cl_words_add(words, word, strlen(word));

	if (err && !options->failed)
		options->failed = err;
}

/* Without the blanks around name and body, which mean nothing.  What a reading
   without any quoting makes of quotes compiles nowhere. */
static void keep_macro(struct ki_cl_options *options, enum reading reading,
		       const char *argument)
{
	size_t name, size = strlen(argument);
	const char *body;
	char *text;

	if (reading == READ_RAW)
		return;
	while (size && is_blank(*argument)) {
		argument++;
		size--;
	}
	while (size && is_blank(argument[size - 1]))
		size--;
	text = strndup(argument, size);
	if (!text) {
		options->failed = -ENOMEM;
		return;
	}
	name = strcspn(text, "=");
	if (text[name]) {
		for (body = text + name + 1; is_blank(*body); body++)
			;
		memmove(text + name + 1, body, strlen(body) + 1);
	}
	keep(options, &options->macros, text);
	free(text);
}

static void understand(struct ki_cl_options *options, enum reading reading,
		       enum meaning meaning, const char *argument)
{
	switch (meaning) {
	case DIRECTORY:
		if (reading == READ_SHELL)
			keep(options, &options->directories, argument);
		else if (!ki_cl_words_have(&options->directories, argument,
					   strlen(argument)))
			keep(options, &options->doubtful_directories, argument);
		break;
	case MACRO:
		keep_macro(options, reading, argument);
		break;
	case UNDEFINE:
		keep(options, &options->undefined, argument);
		break;
	case FILE_FIRST:
		keep(options, &options->files, argument);
		break;
	case OPAQUE:
		options->opaque = 1;
		break;
	case WRITES:
		options->writes = 1;
		break;
	}
}

static void read_as(struct ki_cl_options *options, enum reading reading,
		    const char *text, char *word)
{
	const struct option *option;
	const char *argument;

	while (next_word(reading, &text, word)) {
		option = option_of(word, &argument);
		if (!option)
			continue;
		if (option->meaning == OPAQUE || option->meaning == WRITES)
			argument = "";
		else if (!argument && next_word(reading, &text, word))
			argument = word;
		if (argument)
			understand(options, reading, option->meaning, argument);
	}
}

/* ---- The whole ------------------------------------------------------- */

void ki_cl_options_init(struct ki_cl_options *options)
{
	*options = (struct ki_cl_options){ 0 };
}

void ki_cl_options_fini(struct ki_cl_options *options)
{
	ki_cl_words_fini(&options->directories);
	ki_cl_words_fini(&options->doubtful_directories);
	ki_cl_words_fini(&options->macros);
	ki_cl_words_fini(&options->undefined);
	ki_cl_words_fini(&options->files);
}

void ki_cl_options_read(struct ki_cl_options *options, const char *text)
{
	int plain = !strpbrk(text, "\"'\\");
	size_t size = strlen(text);
	enum reading reading;
	char *word;

	if (size > KI_CL_OPTIONS_BYTES_MAX) {
		options->failed = -E2BIG;
		return;
	}
	word = malloc(size + 1);
	if (!word) {
		options->failed = -ENOMEM;
		return;
	}
	for (reading = READ_SHELL; reading < N_READINGS; reading++) {
		read_as(options, reading, text, word);
		if (plain)
			break;
	}
	free(word);
}
