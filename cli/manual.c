/* SPDX-License-Identifier: MIT */

/*
 * What the tables of options.h and verbs.c say, for people and for shells.
 * Runs while kiln is built; it is not installed.
 *
 *	manual verbs		their names
 *	manual page [VERB]	a man page, as source for scdoc
 *	manual bash|zsh|fish	what the shell completes; the template is read
 */

#include "manual.h"

#include <string.h>

#include "out.h"

static void names(struct ki_bytes *out)
{
	const struct ki_verb *verb;

	for (verb = ki_verbs; verb->name; verb++)
		ki_bytes_printf(out, "%s\n", verb->name);
}

static int write_page(struct ki_bytes *out, const char *name)
{
	const struct ki_verb *verb = name ? ki_verb_find(name) : NULL;

	if (name && !verb)
		return -1;
	ki_manual_page(out, verb);
	return 0;
}

enum ki_manual_kind ki_manual_kind(const char *argument)
{
	static const struct {
		const char *word;
		enum ki_manual_kind kind;
	} words[] = {
		{ "FILE", KI_MANUAL_FILE },
		{ "DIR", KI_MANUAL_DIRECTORY },
		{ "STORE", KI_MANUAL_STORE },
		{ "URL", KI_MANUAL_STORE },
		{ "[--] PROGRAM", KI_MANUAL_PROGRAM },
	};

	if (*argument == '[' && argument[1] != '-')
		argument++;
	if (*argument >= 'a' && *argument <= 'z' && strchr(argument, '|'))
		return KI_MANUAL_CHOICE;
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (!strncmp(argument, words[i].word, strlen(words[i].word)))
			return words[i].kind;
	return KI_MANUAL_TEXT;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	struct ki_bytes out;
	int err = 0;

	ki_bytes_init(&out);
	if (!strcmp(what, "verbs"))
		names(&out);
	else if (!strcmp(what, "page"))
		err = write_page(&out, argv[2]);
	else
		err = ki_manual_shell(&out, what, stdin);
	if (err) {
		ki_bytes_fini(&out);
		ki_complain("manual: verbs, page [VERB], bash, zsh or fish");
		return KI_EXIT_USAGE;
	}
	return ki_out_write(&out, KI_EXIT_OK);
}
