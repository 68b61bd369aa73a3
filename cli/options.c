/* SPDX-License-Identifier: MIT */

#include "options.h"

#include <stdio.h>
#include <string.h>

const struct ki_option_row ki_option_rows[KI_N_OPTIONS] = {
#define OPTION_ROW(id, name, letter, argument, help)                           \
	{ name, letter, argument, help },
	KI_OPTIONS(OPTION_ROW)
#undef OPTION_ROW
};

const struct ki_exit_row ki_exit_rows[] = {
#define EXIT_ROW(id, number, word, meaning) { number, word, meaning },
	KI_EXITS(EXIT_ROW)
#undef EXIT_ROW
		{ 0, NULL, NULL },
};

const struct ki_verb *ki_verb_find(const char *name)
{
	const struct ki_verb *verb;

	for (verb = ki_verbs; verb->name; verb++)
		if (!strcmp(verb->name, name))
			return verb;
	return NULL;
}

/* ---- Parsing ------------------------------------------------------------- */

/* The option that "json" or "store=URL" spells, or -1. */
static int find_name(const struct ki_verb *verb, const char *text,
		     const char **out_value)
{
	size_t length = strcspn(text, "=");
	int i;

	*out_value = text[length] ? text + length + 1 : NULL;
	for (i = 0; i < KI_N_OPTIONS; i++)
		if (verb->options & (uint64_t)1 << i &&
		    strlen(ki_option_rows[i].name) == length &&
		    !strncmp(ki_option_rows[i].name, text, length))
			return i;
	return -1;
}

static int find_letter(const struct ki_verb *verb, char letter)
{
	int i;

	for (i = 0; i < KI_N_OPTIONS; i++)
		if (verb->options & (uint64_t)1 << i &&
		    ki_option_rows[i].letter == letter)
			return i;
	return -1;
}

static int has_none(const struct ki_command *command, const char *option,
		    int size, char *message, size_t message_size)
{
	snprintf(message, message_size, "%s has no option '%.*s'",
		 command->verb->name, size, option);
	return -1;
}

/* `value`: what stands in the same word, or NULL. */
static int take_option(struct ki_command *command, int id, const char *value,
		       char ***arguments, char *message, size_t message_size)
{
	if (value && !ki_option_rows[id].argument) {
		snprintf(message, message_size, "--%s takes no argument",
			 ki_option_rows[id].name);
		return -1;
	}
	if (!value && ki_option_rows[id].argument) {
		value = *++*arguments;
		if (!value) {
			snprintf(message, message_size, "--%s needs %s",
				 ki_option_rows[id].name,
				 ki_option_rows[id].argument);
			return -1;
		}
	}
	if (command->n_given == KI_GIVEN_MAX) {
		snprintf(message, message_size, "more than %d options",
			 KI_GIVEN_MAX);
		return -1;
	}
	command->values[id] = value ? value : "";
	command->given[command->n_given].option = (enum ki_option)id;
	command->given[command->n_given++].value = command->values[id];
	return 0;
}

/* "-al": several that take nothing; "-j2", "-j 2": the last may take something. */
static int parse_letters(struct ki_command *command, char ***arguments,
			 char *message, size_t message_size)
{
	const char *text = **arguments + 1, *value;
	char option[3] = "-";
	int id, err = 0;

	for (; *text && !err; text += value ? strlen(text) : 1) {
		id = find_letter(command->verb, *text);
		option[1] = *text;
		if (id < 0)
			return has_none(command, option, 2, message,
					message_size);
		value = ki_option_rows[id].argument && text[1] ? text + 1
							       : NULL;
		err = take_option(command, id, value, arguments, message,
				  message_size);
	}
	return err;
}

static int parse_option(struct ki_command *command, char ***arguments,
			char *message, size_t message_size)
{
	const char *text = **arguments, *value;
	int id;

	if (text[1] != '-')
		return parse_letters(command, arguments, message, message_size);
	id = find_name(command->verb, text + 2, &value);
	return id < 0 ? has_none(command, text, (int)strlen(text), message,
				 message_size)
		      : take_option(command, id, value, arguments, message,
				    message_size);
}

/* "neo:DIR" where keys may stand: these have no ':'. */
static int is_store(const struct ki_verb *verb, const char *text)
{
	const size_t size = strspn(text, "abcdefghijklmnopqrstuvwxyz");

	return (verb->options & KI_HAS(STORE)) && !verb->is_wrapper && size &&
	       text[size] == ':';
}

static void complain_of_more(const struct ki_verb *verb, const char *argument,
			     char *message, size_t message_size)
{
	if ((verb->options & KI_HAS(STORE)) && *argument == '/')
		snprintf(message, message_size,
			 "%s: '%s' is too much; as a store it is 'log:%s'",
			 verb->name, argument, argument);
	else
		snprintf(message, message_size, "%s: '%s' is too much",
			 verb->name, argument);
}

int ki_command_parse(struct ki_command *command, const struct ki_verb *verb,
		     char **arguments, char *message, size_t message_size)
{
	char **next = arguments;
	int only_arguments = 0;

	memset(command, 0, sizeof(*command));
	command->verb = verb;
	command->arguments = arguments;
	for (; *next; next++) {
		if (!only_arguments && !strcmp(*next, "--")) {
			only_arguments = 1;
		} else if (!only_arguments && **next == '-' && (*next)[1]) {
			if (parse_option(command, &next, message, message_size))
				return -1;
		} else if (!only_arguments && is_store(verb, *next)) {
			if (ki_given(command, KI_OPTION_STORE)) {
				snprintf(message, message_size,
					 "%s: '%s' is too much: a store is "
					 "named already",
					 verb->name, *next);
				return -1;
			}
			command->values[KI_OPTION_STORE] = *next;
		} else {
			arguments[command->n_arguments++] = *next;
			only_arguments |= verb->is_wrapper;
		}
	}
	arguments[command->n_arguments] = NULL;

	if (ki_given(command, KI_OPTION_HELP))
		return 0;
	if (command->n_arguments < verb->n_arguments_min) {
		snprintf(message, message_size, "%s needs %s", verb->name,
			 verb->arguments);
		return -1;
	}
	if (verb->n_arguments_max >= 0 &&
	    command->n_arguments > verb->n_arguments_max) {
		complain_of_more(verb, arguments[verb->n_arguments_max],
				 message, message_size);
		return -1;
	}
	return 0;
}

/* ---- Help ---------------------------------------------------------------- */

static void describe_option(struct ki_bytes *out,
			    const struct ki_option_row *option)
{
	char left[48], letter[8] = "    ";

	if (option->letter)
		snprintf(letter, sizeof(letter), "-%c, ", option->letter);
	snprintf(left, sizeof(left), "%s--%s%s%s", letter, option->name,
		 option->argument ? " " : "",
		 option->argument ? option->argument : "");
	ki_bytes_printf(out, "  %-22s %s\n", left, option->help);
}

static void help_verb(struct ki_bytes *out, const struct ki_verb *verb)
{
	int i;

	ki_bytes_printf(
		out, "usage: kiln %s [OPTION...]%s%s%s\n\n%s.\n", verb->name,
		(verb->options & KI_HAS(STORE)) && !verb->is_wrapper
			? " [STORE]"
			: "",
		*verb->arguments ? " " : "", verb->arguments, verb->summary);
	if (*verb->about)
		ki_bytes_printf(out, "\n%s", verb->about);
	ki_bytes_add_string(out, "\noptions:\n");
	for (i = 0; i < KI_N_OPTIONS; i++)
		if (verb->options & (uint64_t)1 << i)
			describe_option(out, &ki_option_rows[i]);
}

static void help_all(struct ki_bytes *out)
{
	const struct ki_exit_row *row;
	const struct ki_verb *verb;

	ki_bytes_add_string(
		out,
		"usage: kiln VERB [OPTION...] [ARGUMENT...]\n"
		"       kiln run [--wait] [--] PROGRAM [ARGUMENT...]\n\n"
		"kiln keeps what compilers make while programs run, so that\n"
		"the next start finds it made.\n\n"
		"verbs:\n");
	for (verb = ki_verbs; verb->name; verb++)
		ki_bytes_printf(out, "  %-8s %s\n", verb->name, verb->summary);
	ki_bytes_add_string(
		out, "\n'kiln VERB --help' has the options of a verb.\n\n"
		     "exit status; of 'kiln run': the program's, or the last "
		     "three:\n");
	for (row = ki_exit_rows; row->word; row++)
		ki_bytes_printf(out, "  %-8d %s\n", row->number, row->word);
}

void ki_help(struct ki_bytes *out, const struct ki_verb *verb)
{
	if (verb)
		help_verb(out, verb);
	else
		help_all(out);
}
