/* SPDX-License-Identifier: MIT */

/*
 * What bash, zsh and fish complete behind `kiln`.  Shells differ in how they
 * are told, not in what: verbs first, then the options of the verb, then what
 * stands for an argument.  How is in completions/SHELL.in, where words between
 * two '@' stand for what comes from the tables.
 */

#include "manual.h"

#include <stdio.h>
#include <string.h>

/* Between single quotes of a shell, with a '\' before what is in `special`. */
static void quoted(struct ki_bytes *out, const char *text, const char *special)
{
	for (; *text; text++) {
		if (*text == '\'')
			ki_bytes_add_string(out, "'\\''");
		else if (strchr(special, *text))
			ki_bytes_printf(out, "\\%c", *text);
		else
			ki_bytes_printf(out, "%c", *text);
	}
}

/* As far as a shell has them before a directory: "log: file:" */
static void stores(struct ki_bytes *out)
{
	const char *text;

	for (text = KI_STORES; *text; text++)
		ki_bytes_printf(out, *text == ' ' ? ":%c" : "%c", *text);
	ki_bytes_add_string(out, ":");
}

static void bash_names(struct ki_bytes *out)
{
	const struct ki_verb *verb;

	for (verb = ki_verbs; verb->name; verb++)
		ki_bytes_printf(out, "%s ", verb->name);
}

/* "size|age" as "size age", up to what follows. */
static void choices(struct ki_bytes *out, const char *argument)
{
	for (; *argument && *argument != ' '; argument++)
		ki_bytes_printf(out, "%c", *argument == '|' ? ' ' : *argument);
}

/* Whether the first argument of a verb is one of several words. */
static int has_choice(const struct ki_verb *verb)
{
	return ki_manual_kind(verb->arguments) == KI_MANUAL_CHOICE;
}

/* ---- bash ---------------------------------------------------------------- */

static const char *bash_kind(const char *argument)
{
	switch (ki_manual_kind(argument)) {
	case KI_MANUAL_FILE:
		return "file";
	case KI_MANUAL_DIRECTORY:
		return "dir";
	case KI_MANUAL_STORE:
		return "store";
	case KI_MANUAL_CHOICE:
		return "words";
	default:
		return "none";
	}
}

static void bash_verb(struct ki_bytes *out, const struct ki_verb *verb)
{
	ki_bytes_printf(out, "	%s)	options='", verb->name);
	for (int i = 0; i < KI_N_OPTIONS; i++) {
		if (!ki_manual_has(verb, i))
			continue;
		if (ki_option_rows[i].letter)
			ki_bytes_printf(out, "-%c ", ki_option_rows[i].letter);
		ki_bytes_printf(out, "--%s ", ki_option_rows[i].name);
	}
	ki_bytes_add_string(out, "'\n		takes=' ");
	for (int i = 0; i < KI_N_OPTIONS; i++)
		if (ki_manual_has(verb, i) && ki_option_rows[i].argument)
			ki_bytes_printf(out, "--%s ", ki_option_rows[i].name);
	ki_bytes_printf(out, "'\n		kind=%s%s",
			!*verb->arguments && (verb->options & KI_HAS(STORE))
				? "store"
				: bash_kind(verb->arguments),
			verb->is_wrapper ? " wraps=1" : "");
	if (has_choice(verb)) {
		ki_bytes_add_string(out, " words='");
		choices(out, verb->arguments);
		ki_bytes_add_string(out, "'");
	}
	ki_bytes_add_string(out, " ;;\n");
}

/* What stands behind an option. */
static void bash_values(struct ki_bytes *out)
{
	for (int i = 0; i < KI_N_OPTIONS; i++) {
		const struct ki_option_row *option = &ki_option_rows[i];

		if (!option->argument)
			continue;
		ki_bytes_printf(out, "	--%s)	_kiln_of ", option->name);
		if (ki_manual_kind(option->argument) == KI_MANUAL_CHOICE) {
			ki_bytes_add_string(out, "words '");
			choices(out, option->argument);
			ki_bytes_add_string(out, "'");
		} else {
			ki_bytes_add_string(out, bash_kind(option->argument));
		}
		ki_bytes_add_string(out, "; return ;;\n");
	}
}

/* ---- zsh ----------------------------------------------------------------- */

static void zsh_action(struct ki_bytes *out, const char *argument)
{
	switch (ki_manual_kind(argument)) {
	case KI_MANUAL_FILE:
		ki_bytes_add_string(out, "_files");
		break;
	case KI_MANUAL_DIRECTORY:
		ki_bytes_add_string(out, "_files -/");
		break;
	case KI_MANUAL_STORE:
		ki_bytes_add_string(out, "_kiln_store");
		break;
	case KI_MANUAL_CHOICE:
		ki_bytes_add_string(out, "(");
		choices(out, argument);
		ki_bytes_add_string(out, ")");
		break;
	case KI_MANUAL_PROGRAM:
	case KI_MANUAL_TEXT:
		break;
	}
}

/* '(-a --all)'{-a,--all}'[what it does]' */
static void zsh_option(struct ki_bytes *out, const struct ki_option_row *option)
{
	const char *name = option->name, *end = option->argument ? "=" : "";

	if (option->letter)
		ki_bytes_printf(out, "'(-%c --%s)'{-%c,--%s%s}'[",
				option->letter, name, option->letter, name,
				end);
	else
		ki_bytes_printf(out, "'--%s%s[", name, end);
	quoted(out, option->help, "[]:\\");
	ki_bytes_add_string(out, "]");
	if (option->argument) {
		ki_bytes_add_string(out, ":");
		quoted(out, option->argument, ":\\");
		ki_bytes_add_string(out, ":");
		zsh_action(out, option->argument);
	}
	ki_bytes_add_string(out, "'");
}

/* What is no option: a store, files, or a program with what is its own. */
static void zsh_rest(struct ki_bytes *out, const struct ki_verb *verb)
{
	if (verb->is_wrapper) {
		ki_bytes_add_string(out, " \\\n			"
					 "'(-)1:program:_command_names -e' "
					 "\\\n			"
					 "'*::arguments:_normal'");
	} else if (*verb->arguments) {
		ki_bytes_printf(out, " \\\n			'%c:",
				has_choice(verb) ? '1' : '*');
		quoted(out, verb->arguments, ":\\");
		ki_bytes_add_string(out, ":");
		zsh_action(out, verb->arguments);
		ki_bytes_add_string(out, "'");
		if (has_choice(verb))
			ki_bytes_add_string(out, " \\\n			"
						 "'*:NAME:_files'");
	} else if (verb->options & KI_HAS(STORE)) {
		ki_bytes_add_string(out, " \\\n			"
					 "'*:STORE:_kiln_store'");
	}
}

static void zsh_verb(struct ki_bytes *out, const struct ki_verb *verb)
{
	ki_bytes_printf(out, "	%s)\n		_arguments -s -S", verb->name);
	for (int i = 0; i < KI_N_OPTIONS; i++) {
		if (!ki_manual_has(verb, i))
			continue;
		ki_bytes_add_string(out, " \\\n			");
		zsh_option(out, &ki_option_rows[i]);
	}
	zsh_rest(out, verb);
	ki_bytes_add_string(out, " ;;\n");
}

static void zsh_names(struct ki_bytes *out)
{
	const struct ki_verb *verb;

	for (verb = ki_verbs; verb->name; verb++) {
		ki_bytes_printf(out, "		'%s:", verb->name);
		quoted(out, verb->summary, ":\\");
		ki_bytes_add_string(out, "'\n");
	}
}

/* ---- fish ---------------------------------------------------------------- */

/* What an option takes; "" if it takes nothing. */
static void fish_values(struct ki_bytes *out, const char *argument)
{
	switch (ki_manual_kind(argument)) {
	case KI_MANUAL_FILE:
		ki_bytes_add_string(out, " -rF");
		break;
	case KI_MANUAL_DIRECTORY:
		ki_bytes_add_string(out,
				    " -xa '(__fish_complete_directories)'");
		break;
	case KI_MANUAL_STORE:
		ki_bytes_add_string(out, " -xa '(__kiln_stores)'");
		break;
	case KI_MANUAL_CHOICE:
		ki_bytes_add_string(out, " -xa '");
		choices(out, argument);
		ki_bytes_add_string(out, "'");
		break;
	case KI_MANUAL_PROGRAM:
	case KI_MANUAL_TEXT:
		ki_bytes_add_string(out, " -x");
		break;
	}
}

static void fish_option(struct ki_bytes *out, const struct ki_verb *verb,
			const struct ki_option_row *option)
{
	ki_bytes_printf(out,
			"complete -c kiln -n '__kiln_is %s' "
			"-l %s",
			verb->name, option->name);
	if (option->letter)
		ki_bytes_printf(out, " -s %c", option->letter);
	if (option->argument)
		fish_values(out, option->argument);
	ki_bytes_add_string(out, " -d '");
	quoted(out, option->help, "\\");
	ki_bytes_add_string(out, "'\n");
}

/* One of the words first, then files. */
static void fish_choice(struct ki_bytes *out, const struct ki_verb *verb)
{
	ki_bytes_printf(out,
			"complete -c kiln -n '__kiln_is %s; and not "
			"__fish_seen_subcommand_from ",
			verb->name);
	choices(out, verb->arguments);
	ki_bytes_add_string(out, "' -xa '");
	choices(out, verb->arguments);
	ki_bytes_printf(out,
			"'\ncomplete -c kiln -n '__kiln_is %s; and "
			"__fish_seen_subcommand_from ",
			verb->name);
	choices(out, verb->arguments);
	ki_bytes_add_string(out, "' -F\n");
}

static void fish_rest(struct ki_bytes *out, const struct ki_verb *verb)
{
	const char *what = NULL;

	if (has_choice(verb))
		fish_choice(out, verb);
	else if (verb->is_wrapper)
		what = "-xa '(__fish_complete_subcommand)'";
	else if (ki_manual_kind(verb->arguments) == KI_MANUAL_FILE)
		what = "-F";
	else if (!*verb->arguments && (verb->options & KI_HAS(STORE)))
		what = "-xa '(__kiln_stores)'";
	if (what)
		ki_bytes_printf(out,
				"complete -c kiln -n "
				"'__kiln_is %s' %s\n",
				verb->name, what);
}

static void fish_names(struct ki_bytes *out)
{
	const struct ki_verb *verb;

	for (verb = ki_verbs; verb->name; verb++) {
		ki_bytes_printf(
			out,
			"complete -c kiln -n __fish_use_subcommand -a %s -d '",
			verb->name);
		quoted(out, verb->summary, "\\");
		ki_bytes_add_string(out, "'\n");
	}
}

static void fish_verb(struct ki_bytes *out, const struct ki_verb *verb)
{
	for (int i = 0; i < KI_N_OPTIONS; i++)
		if (ki_manual_has(verb, i))
			fish_option(out, verb, &ki_option_rows[i]);
	fish_rest(out, verb);
}

/* ---- Templates ------------------------------------------------------------- */

static const struct shell {
	const char *name;
	void (*names)(struct ki_bytes *out);
	void (*verb)(struct ki_bytes *out, const struct ki_verb *verb);
} shells[] = {
	{ "bash", bash_names, bash_verb },
	{ "zsh", zsh_names, zsh_verb },
	{ "fish", fish_names, fish_verb },
};

/* What stands for the word between two '@'; 0, or -1 if nothing does. */
static int fill(struct ki_bytes *out, const struct shell *shell,
		const char *word)
{
	const struct ki_verb *verb;

	if (!strcmp(word, "stores"))
		stores(out);
	else if (!strcmp(word, "names"))
		shell->names(out);
	else if (!strcmp(word, "values"))
		bash_values(out);
	else if (!strcmp(word, "verbs"))
		for (verb = ki_verbs; verb->name; verb++)
			shell->verb(out, verb);
	else
		return -1;
	return 0;
}

static int fill_line(struct ki_bytes *out, const struct shell *shell,
		     char *line)
{
	char *begin = strchr(line, '@'), *end;

	/* "$@" is the shell's. */
	end = begin ? strchr(begin + 1, '@') : NULL;
	if (!end) {
		ki_bytes_add_string(out, line);
		return 0;
	}
	*begin = *end = '\0';
	ki_bytes_add_string(out, line);
	if (fill(out, shell, begin + 1))
		return -1;
	/* What fills whole lines has ended them. */
	if (*line || end[1] != '\n')
		ki_bytes_add_string(out, end + 1);
	return 0;
}

int ki_manual_shell(struct ki_bytes *out, const char *name, FILE *template)
{
	char line[512];

	for (size_t i = 0; i < sizeof(shells) / sizeof(shells[0]); i++) {
		if (strcmp(shells[i].name, name))
			continue;
		while (fgets(line, sizeof(line), template))
			if (fill_line(out, &shells[i], line))
				return -1;
		return 0;
	}
	return -1;
}
