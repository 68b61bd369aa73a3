/* SPDX-License-Identifier: MIT */

/*
 * A command line, understood by the row of its compiler in wrap_tables.c: what goes
 * in, what comes out, where includes may be.
 */

#include <elf.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "wrap_tables.h"

static const char *last_part(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static const struct ki_wrap_rule *find_rule(const char *compiler)
{
	const char *name = last_part(compiler);
	const struct ki_wrap_rule *rule = ki_wrap_rules;

	while (rule->name && strcmp(rule->name, name))
		rule++;
	return rule->name ? rule : NULL;
}

/* ---- The compiler's file ----------------------------------------------------- */

/* With a privilege of its own it would not say what it loads. */
int ki_wrap_is_program(const char *path)
{
	struct ki_file_info info;

	return !ki_sys_posix.stat(&ki_sys_posix, path, &info) &&
	       S_ISREG(info.mode) && !(info.mode & (S_ISUID | S_ISGID)) &&
	       !access(path, X_OK);
}

/* A script's interpreter, and what that starts, would not be known. */
static int is_script(const char *path)
{
	const struct ki_sys *sys = &ki_sys_posix;
	int fd = sys->open(sys, path, KI_OPEN_READ, 0);
	char magic[SELFMAG];
	int err;

	if (fd < 0)
		return 1;
	err = ki_pread_all(sys, fd, magic, sizeof(magic), 0);
	sys->close(sys, fd);
	return err || memcmp(magic, ELFMAG, SELFMAG) != 0;
}

static int find_program(const char *name, char out[KI_PATH_MAX])
{
	const char *path = getenv("PATH"), *end;
	char directory[KI_PATH_MAX];
	size_t size;

	if (strchr(name, '/'))
		return strlen(name) < KI_PATH_MAX && ki_wrap_is_program(name)
		       ? strcpy(out, name),
		       0 : -1;
	for (; path && *path; path = *end ? end + 1 : end) {
		end = path + strcspn(path, ":");
		size = (size_t)(end - path);
		/* An empty part is the working directory, of old. */
		if (!size || size >= sizeof(directory))
			return -1;
		memcpy(directory, path, size);
		directory[size] = '\0';
		if (!ki_path_join(out, directory, name) &&
		    ki_wrap_is_program(out))
			return 0;
	}
	return -1;
}

/* ---- Arguments ----------------------------------------------------------------- */

static int add(const char **list, size_t *n, size_t max, const char *value)
{
	if (*n == max)
		return -1;
	list[(*n)++] = value;
	return 0;
}

/* A copy that lives as long as the command; NULL: no room. */
static char *own(struct ki_wrap_command *command, const char *text, size_t size)
{
	char *copy = command->n_words < KI_WRAP_INPUTS_MAX ? strndup(text, size)
							   : NULL;

	if (copy)
		command->words[command->n_words++] = copy;
	return copy;
}

/* Options inside one argument: words, of which -I names folders. */
static int take_inner(struct ki_wrap_command *command, const char *value)
{
	char *copy, *word, *rest = NULL;

	/* Quotes would need the same reader as the compiler's, and what it
	   includes unasked is in no source. */
	if (strpbrk(value, "\"'\\") || strstr(value, "-include") ||
	    strstr(value, "__DATE") || strstr(value, "__TIME"))
		return -1;
	copy = own(command, value, strlen(value));
	if (!copy)
		return -1;
	for (word = strtok_r(copy, " \t", &rest); word;
	     word = strtok_r(NULL, " \t", &rest)) {
		if (strncmp(word, "-I", 2))
			continue;
		word = word[2] ? word + 2 : strtok_r(NULL, " \t", &rest);
		if (!word || add(command->folders, &command->n_folders,
				 KI_WRAP_FOLDERS_MAX, word))
			return -1;
	}
	return 0;
}

static int take_base(struct ki_wrap_command *command, const char *value)
{
	if (!*value || strchr(value, '/') ||
	    strlen(value) >= sizeof(command->base))
		return -1;
	strcpy(command->base, value);
	return 0;
}

/* Words between commas, each of them a known one. */
static int take_words(const char *const *known, const char *value)
{
	const char *const *pattern;
	char word[64];
	size_t size;

	for (;; value += size + 1) {
		size = strcspn(value, ",");
		if (!size || size >= sizeof(word))
			return -1;
		memcpy(word, value, size);
		word[size] = '\0';
		for (pattern = known; *pattern; pattern++)
			if (!fnmatch(*pattern, word, 0))
				break;
		if (!*pattern || strpbrk(word, " \t\"'\\"))
			return -1;
		if (!value[size])
			return 0;
	}
}

/* "-ptx": its output ends in ".ptx". */
static int take_ending(struct ki_wrap_command *command, const char *option)
{
	const char *name = option + strspn(option, "-");

	if (*command->ending && strcmp(command->ending + 1, name))
		return -1;
	snprintf(command->ending, sizeof(command->ending), ".%s", name);
	return 0;
}

/* The device that is there, or the time. */
static int asks_the_machine(const char *argument)
{
	return strstr(argument, "native") || strstr(argument, "__DATE__") ||
	       strstr(argument, "__TIME");
}

static int take(struct ki_wrap_command *command, enum role role,
		const char *value)
{
	switch (role) {
	case PLAIN:
		return command->rule->programs && asks_the_machine(value) ? -1
									  : 0;
	case INPUT:
		return add(command->inputs, &command->n_inputs,
			   KI_WRAP_INPUTS_MAX, value);
	case FOLDER:
		/* Some take it for the end of a folder's name. */
		if (command->rule->programs && strchr(value, ','))
			return -1;
		return add(command->folders, &command->n_folders,
			   KI_WRAP_FOLDERS_MAX, value);
	case OUTPUT:
		command->is_named++;
		if (!strcmp(value, "-"))
			return command->rule->programs ? -1 : 0;
		return add(command->outputs, &command->n_outputs,
			   KI_WRAP_OUTPUTS_MAX, value);
	case LIST:
		command->lists_includes = 1;
		return add(command->outputs, &command->n_outputs,
			   KI_WRAP_OUTPUTS_MAX, value);
	case BINARY:
		command->is_binary = 1;
		return 0;
	case PRINTING:
		command->is_printing = 1;
		return 0;
	case LISTING:
		command->lists_includes |= 2;
		return 0;
	case BASE:
		return take_base(command, value);
	case PLACE:
		command->directory = value;
		return 0;
	case INNER:
		return take_inner(command, value);
	case INNER_PLAIN:
		return strstr(value, "-I") ? -1 : take_inner(command, value);
	case ENDING:
		return take_ending(command, value);
	case HOST_WORDS:
		return take_words(ki_wrap_host_words, value);
	case PTXAS_WORDS:
		return take_words(ki_wrap_ptxas_words, value);
	}
	return -1;
}

static const struct ki_wrap_option *match(const struct ki_wrap_rule *rule,
					  const char *argument)
{
	const struct ki_wrap_option *option;
	size_t size;

	for (option = rule->options; option->name; option++) {
		size = strlen(option->name);
		if (strncmp(argument, option->name, size))
			continue;
		if (option->shape == JOINED ? argument[size] != '\0'
					    : !argument[size])
			return option;
		if (option->shape == VALUE && argument[size] == '=')
			return option;
	}
	return NULL;
}

/* What an option is about; NULL: its value is missing.  `*argument` goes on to the
   last that was taken. */
static const char *value_of(const struct ki_wrap_option *option,
			    char *const **argument)
{
	const char *rest = **argument + strlen(option->name);

	switch (option->shape) {
	case ALONE:
		return **argument;
	case JOINED:
		return rest;
	case VALUE:
		if (*rest)
			return rest + 1;
		break;
	case NEXT:
		break;
	}
	return *++*argument;
}

/* Takes one argument, or two; NULL if it is not understood. */
static char *const *take_argument(struct ki_wrap_command *command,
				  char *const *argument)
{
	const struct ki_wrap_option *option;
	const char *value = *argument;

	if (**argument == '@' || !strcmp(*argument, "-") || !**argument)
		return NULL;
	if (**argument != '-')
		return command->rule->endings || take(command, INPUT, value)
			       ? NULL
			       : argument + 1;
	option = match(command->rule, value);
	if (!option)
		return NULL;
	value = value_of(option, &argument);
	return value && !take(command, option->role, value) ? argument + 1
							    : NULL;
}

/* "DIR/NAME.cl" makes NAME_WORD.bin. */
static int set_base(struct ki_wrap_command *command)
{
	const char *name = last_part(command->inputs[0]);
	const char *dot = strrchr(name, '.');
	size_t size = dot ? (size_t)(dot - name) : strlen(name);

	if (!command->directory)
		command->directory = ".";
	if (*command->base)
		return 0;
	if (command->n_inputs != 1 || !size || size >= sizeof(command->base))
		return -1;
	memcpy(command->base, name, size);
	return 0;
}

/* "DIR/NAME.cu" makes NAME.ptx where it runs. */
static const char *name_output(struct ki_wrap_command *command)
{
	const char *name = last_part(command->inputs[0]);
	size_t size = strlen(name), end = strlen(command->rule->source_ending);
	char path[KI_PATH_MAX];
	const char *output;

	if (command->n_inputs != 1 || size <= end || size >= sizeof(path) ||
	    strcmp(name + size - end, command->rule->source_ending))
		return "it is not one source";
	if (!*command->ending)
		return "what comes out is not known";
	if (command->is_named)
		return command->is_named == 1 ? NULL : "it names two outputs";
	snprintf(path, sizeof(path), "%.*s%s", (int)(size - end), name,
		 command->ending);
	output = own(command, path, strlen(path));
	return output && !add(command->outputs, &command->n_outputs,
			      KI_WRAP_OUTPUTS_MAX, output)
		       ? NULL
		       : "it has too many outputs";
}

/* Whether all that it writes is known by name, and why not. */
static const char *check_outputs(struct ki_wrap_command *command)
{
	if (!command->n_inputs)
		return "it names no input";
	if (command->rule->endings)
		return set_base(command) ? "its outputs have no known names"
					 : NULL;
	if (command->lists_includes == 2)
		return "the list of includes has no name";
	if (command->rule->source_ending)
		return name_output(command);
	if (command->is_named || command->is_printing)
		return NULL;
	/* A compiler without binaries by default only looks at the source. */
	if (strcmp(command->rule->name, "glslc") && !command->is_binary)
		return NULL;
	return "the output has no name";
}

/* Arguments that stand in a variable, as words between blanks. */
static int take_flags(struct ki_wrap_command *command, const char *variable)
{
	const char *flags = variable ? getenv(variable) : NULL;
	char *words[KI_WRAP_INPUTS_MAX + 1], *rest = NULL, *copy;
	char *const *argument = words;
	size_t n = 0;

	if (!flags)
		return 0;
	copy = strpbrk(flags, "\"'\\") ? NULL
				       : own(command, flags, strlen(flags));
	if (!copy)
		return -1;
	for (words[n] = strtok_r(copy, " \t\n", &rest); words[n];
	     words[n] = strtok_r(NULL, " \t\n", &rest))
		if (++n == KI_WRAP_INPUTS_MAX)
			return -1;
	while (argument && *argument)
		argument = take_argument(command, argument);
	return argument ? 0 : -1;
}

static int has_refused_variable(const struct ki_wrap_rule *rule)
{
	const char *const *name = rule->refused;

	while (name && *name)
		if (getenv(*name++))
			return 1;
	return 0;
}

int ki_wrap_parse(struct ki_wrap_command *command, char *const *argv,
		  const char **out_why)
{
	char *const *argument = argv + 1;

	memset(command, 0, sizeof(*command));
	command->argv = argv;
	command->rule = find_rule(argv[0]);
	*out_why = "no rule for this compiler";
	if (!command->rule)
		return -1;
	*out_why = "no such program";
	if (find_program(argv[0], command->compiler))
		return -1;
	*out_why = "the compiler is a script";
	if (is_script(command->compiler))
		return -1;
	*out_why = "a variable is not understood";
	if (has_refused_variable(command->rule) ||
	    take_flags(command, command->rule->flags_before))
		return -1;
	if (command->rule->subcommand && *argument &&
	    !strcmp(*argument, command->rule->subcommand))
		argument++;
	*out_why = "an argument is not understood";
	while (argument && *argument)
		argument = take_argument(command, argument);
	if (!argument)
		return -1;
	*out_why = "a variable is not understood";
	if (take_flags(command, command->rule->flags_after))
		return -1;
	*out_why = check_outputs(command);
	return *out_why ? -1 : 0;
}

void ki_wrap_command_fini(struct ki_wrap_command *command)
{
	size_t i;

	for (i = 0; i < command->n_words; i++)
		free(command->words[i]);
	command->n_words = 0;
}
