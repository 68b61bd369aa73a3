/* SPDX-License-Identifier: MIT */

/* Man pages from the tables: what scdoc(5) reads. */

#include "manual.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include <kiln/api.h>

/* Text that scdoc is to take as it is, between two that mean something. */
static void plain(struct ki_bytes *out, const char *before, const char *text,
		  const char *behind)
{
	ki_bytes_add_string(out, before);
	for (; *text; text++)
		ki_bytes_printf(out,
				strchr("\\*_#-.|[]<`", *text) ? "\\%c" : "%c",
				*text);
	ki_bytes_add_string(out, behind);
}

/* "KEY [KEY]": words in capitals are what one puts there. */
static void arguments(struct ki_bytes *out, const char *text)
{
	char part[64];
	int size;

	for (; *text; text += size) {
		for (size = 0; isupper((unsigned char)text[size]); size++)
			;
		if (!size)
			size = 1;
		snprintf(part, sizeof(part), "%.*s", size, text);
		if (isupper((unsigned char)*part))
			ki_bytes_printf(out, "_%s_", part);
		else
			plain(out, "", part, "");
	}
}

static void title(struct ki_bytes *out, const struct ki_verb *verb)
{
	ki_bytes_printf(out, "kiln%s%s(1) \"kiln %d.%d.%d\"\n\n# NAME\n\n",
			verb ? "-" : "", verb ? verb->name : "",
			KILN_VERSION_MAJOR, KILN_VERSION_MINOR,
			KILN_VERSION_PATCH);
}

/* ---- Of a verb ------------------------------------------------------------- */

static void section_synopsis(struct ki_bytes *out, const struct ki_verb *verb)
{
	ki_bytes_printf(out, "# SYNOPSIS\n\n*kiln %s* [_OPTION_...]",
			verb->name);
	if ((verb->options & KI_HAS(STORE)) && !verb->is_wrapper)
		ki_bytes_add_string(out, " [_STORE_]");
	ki_bytes_add_string(out, *verb->arguments ? " " : "");
	arguments(out, verb->arguments);
	ki_bytes_add_string(out, "\n\n");
}

static void section_description(struct ki_bytes *out,
				const struct ki_verb *verb)
{
	ki_bytes_printf(out, "# DESCRIPTION\n\n%c",
			toupper((unsigned char)*verb->summary));
	plain(out, "", verb->summary + 1, ".\n\n");
	if (*verb->about)
		plain(out, "", verb->about, "\n");
}

static void section_options(struct ki_bytes *out, const struct ki_verb *verb)
{
	ki_bytes_add_string(out, "# OPTIONS\n\n");
	for (int i = 0; i < KI_N_OPTIONS; i++) {
		const struct ki_option_row *option = &ki_option_rows[i];

		if (!ki_manual_has(verb, i))
			continue;
		if (option->letter)
			ki_bytes_printf(out, "*\\-%c*, ", option->letter);
		plain(out, "*\\-\\-", option->name, "*");
		if (option->argument)
			plain(out, " _", option->argument, "_");
		plain(out, "\n\t", option->help, "\n\n");
	}
}

/* Those that this verb may end with; all if it is NULL. */
static void section_exits(struct ki_bytes *out, const struct ki_verb *verb)
{
	const int is_run = verb && verb->usage_status == KI_EXIT_RUN_FAILED;
	const struct ki_exit_row *row;

	ki_bytes_add_string(out, "# EXIT STATUS\n\n");
	if (is_run)
		ki_bytes_add_string(out, "The program's, or:\n\n");
	for (row = ki_exit_rows; row->word; row++) {
		if (verb && is_run != (row->number >= KI_EXIT_RUN_FAILED))
			continue;
		ki_bytes_printf(out, "*%d* ", row->number);
		plain(out, "", row->word, "\n");
		plain(out, "\t", row->meaning, "\n\n");
	}
}

/* "COMMAND # what it does" */
static void one_example(struct ki_bytes *out, char *line)
{
	char *what = strstr(line, " # ");

	if (what) {
		*what = '\0';
		what += 3;
		ki_bytes_printf(out, "%c", toupper((unsigned char)*what));
		plain(out, "", what + 1,
		      what[strlen(what) - 1] == '?' ? "\n\n" : ":\n\n");
	}
	ki_bytes_printf(out, "```\n%s\n```\n\n", line);
}

static void section_examples(struct ki_bytes *out, const struct ki_verb *verb)
{
	const char *text = verb->examples;
	char line[256];
	size_t size;

	if (!text)
		return;
	ki_bytes_add_string(out, "# EXAMPLES\n\n");
	for (; *text; text += size + (text[size] == '\n')) {
		size = strcspn(text, "\n");
		snprintf(line, sizeof(line), "%.*s", (int)size, text);
		one_example(out, line);
	}
}

static void page_of_verb(struct ki_bytes *out, const struct ki_verb *verb)
{
	title(out, verb);
	ki_bytes_printf(out, "kiln-%s - ", verb->name);
	plain(out, "", verb->summary, "\n\n");
	section_synopsis(out, verb);
	section_description(out, verb);
	section_options(out, verb);
	section_exits(out, verb);
	section_examples(out, verb);
	ki_bytes_add_string(out, "# SEE ALSO\n\n*kiln*(1), *kiln.conf*(5), "
				 "*kiln*(7)\n");
}

/* ---- Of the tool ------------------------------------------------------------ */

static void section_verbs(struct ki_bytes *out)
{
	const struct ki_verb *verb;

	ki_bytes_add_string(out, "# VERBS\n\nEach has a page of its own.\n\n");
	for (verb = ki_verbs; verb->name; verb++) {
		ki_bytes_printf(out, "*kiln\\-%s*(1)\n", verb->name);
		plain(out, "\t", verb->summary, "\n\n");
	}
}

static void page_of_tool(struct ki_bytes *out)
{
	title(out, NULL);
	ki_bytes_add_string(
		out,
		"kiln - show, explain and repair caches of what is compiled "
		"at run time\n\n"
		"# SYNOPSIS\n\n"
		"*kiln* _VERB_ [_OPTION_...] [_ARGUMENT_...]++\n"
		"*kiln run* [*\\-\\-wait*] [*\\-\\-*] _PROGRAM_ "
		"[_ARGUMENT_...]++\n"
		"*kiln* *\\-\\-help* | *\\-\\-version*\n\n"
		"# DESCRIPTION\n\n"
		"Kiln keeps what compilers make while programs run, so that "
		"the next start\nfinds it made.  *kiln run* gives that to a "
		"program that nobody changes; the other\nverbs show what is "
		"cached, say why something was not found, and look after the\n"
		"store.\n\n"
		"Results go to standard output, everything else to standard "
		"error.  With\n*\\-\\-json* a verb prints one object whose "
		"member _schema_ is a number: members\nmay be added to a "
		"schema, and keep their meaning.\n\n");
	section_verbs(out);
	ki_bytes_add_string(
		out,
		"# STORES AND KEYS\n\n"
		"A _STORE_ is written _log:DIR_, kiln's own kind, _file:DIR_, "
		"one file for each\nentry, _neo:DIR_, a cache of Intel's "
		"compute runtime, _sycl:DIR_, one of\nDPC\\+\\+, or "
		"_pack:FILE_, which is read only.  Without one, verbs are "
		"about the\nstore that the settings name; "
		"*kiln\\-config*(1) shows it.\n\n"
		"A _KEY_ is the hexadecimal digest that *kiln\\-ls*(1) shows, "
		"or the first digits of\nit, at least six, if no other key "
		"begins so.\n\n");
	section_exits(out, NULL);
	ki_bytes_add_string(out,
			    "Of *kiln run*: the program's, or one of the last "
			    "three.\n\n"
			    "# ENVIRONMENT\n\n"
			    "*kiln.conf*(5) has all settings.  _NO\\_COLOR_, "
			    "_TERM_ and _COLUMNS_ say\nwhether and how wide to "
			    "draw.\n\n"
			    "# SEE ALSO\n\n"
			    "*kiln.conf*(5), *kiln*(7), *libkiln*(3)\n");
}

void ki_manual_page(struct ki_bytes *out, const struct ki_verb *verb)
{
	if (verb)
		page_of_verb(out, verb);
	else
		page_of_tool(out);
}
