/* SPDX-License-Identifier: MIT */

/*
 * What the arguments of compilers mean.  A compiler is a row of rules[]; what
 * a row does not list is not understood, and the command then not cached: an
 * option that we do not know may name a file.
 */

#include <elf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "wrap.h"

enum shape {
	ALONE,	/* the argument as it is */
	JOINED, /* its value follows at once */
	NEXT,	/* its value is the next argument */
};

enum role {
	PLAIN,
	INPUT,
	FOLDER, /* of includes */
	OUTPUT,
	BINARY,	  /* there must be an output's name */
	PRINTING, /* standard output is the output */
	LISTING,  /* it writes a list of includes */
	LIST,	  /* to this file */
	BASE,	  /* of the outputs' names */
	PLACE,	  /* their directory */
	INNER,	  /* options of a compiler inside, with folders */
	INNER_PLAIN,
};

struct ki_wrap_option {
	const char *name;
	enum shape shape;
	enum role role;
};

static const struct ki_wrap_option glslc_options[] = {
	{ "-o", NEXT, OUTPUT },
	{ "-c", ALONE, PLAIN },
	{ "-S", ALONE, PLAIN },
	{ "-g", ALONE, PLAIN },
	{ "-w", ALONE, PLAIN },
	{ "-O", ALONE, PLAIN },
	{ "-Os", ALONE, PLAIN },
	{ "-O0", ALONE, PLAIN },
	{ "-Werror", ALONE, PLAIN },
	{ "-E", ALONE, PRINTING },
	{ "-MD", ALONE, LISTING },
	{ "-MF", NEXT, LIST },
	{ "-MT", NEXT, PLAIN },
	{ "-x", NEXT, PLAIN },
	{ "-I", NEXT, FOLDER },
	{ "-I", JOINED, FOLDER },
	{ "-D", JOINED, PLAIN },
	{ "-std=", JOINED, PLAIN },
	{ "-mfmt=", JOINED, PLAIN },
	{ "--target-env=", JOINED, PLAIN },
	{ "--target-spv=", JOINED, PLAIN },
	{ "-fentry-point=", JOINED, PLAIN },
	{ "-fshader-stage=", JOINED, PLAIN },
	{ "-flimit=", JOINED, PLAIN },
	{ "-flimit-file", NEXT, INPUT },
	{ "-fauto-bind-uniforms", ALONE, PLAIN },
	{ "-fauto-map-locations", ALONE, PLAIN },
	{ "-fauto-combined-image-sampler", ALONE, PLAIN },
	{ "-fhlsl-16bit-types", ALONE, PLAIN },
	{ "-fhlsl_functionality1", ALONE, PLAIN },
	{ "-fhlsl-functionality1", ALONE, PLAIN },
	{ "-fhlsl-iomap", ALONE, PLAIN },
	{ "-fhlsl-offsets", ALONE, PLAIN },
	{ "-finvert-y", ALONE, PLAIN },
	{ "-fnan-clamp", ALONE, PLAIN },
	{ NULL, ALONE, PLAIN },
};

static const struct ki_wrap_option glslang_options[] = {
	{ "-o", NEXT, OUTPUT },
	{ "--depfile", NEXT, LIST },
	{ "-V", ALONE, BINARY },
	{ "-V", JOINED, BINARY },
	{ "-G", ALONE, BINARY },
	{ "-G", JOINED, BINARY },
	{ "-H", ALONE, BINARY },
	{ "--target-env", NEXT, BINARY },
	{ "--client", NEXT, BINARY },
	{ "-C", ALONE, PLAIN },
	{ "-D", ALONE, PLAIN },
	{ "-D", JOINED, PLAIN },
	{ "--D", NEXT, PLAIN },
	{ "--define-macro", NEXT, PLAIN },
	{ "-U", JOINED, PLAIN },
	{ "--U", NEXT, PLAIN },
	{ "--undef-macro", NEXT, PLAIN },
	{ "-E", ALONE, PLAIN },
	{ "-I", JOINED, FOLDER },
	{ "-Od", ALONE, PLAIN },
	{ "-Os", ALONE, PLAIN },
	{ "-R", ALONE, PLAIN },
	{ "-S", NEXT, PLAIN },
	{ "-d", ALONE, PLAIN },
	{ "-e", NEXT, PLAIN },
	{ "--entry-point", NEXT, PLAIN },
	{ "--source-entrypoint", NEXT, PLAIN },
	{ "-g", ALONE, PLAIN },
	{ "-g0", ALONE, PLAIN },
	{ "-gV", ALONE, PLAIN },
	{ "-gVS", ALONE, PLAIN },
	{ "-i", ALONE, PLAIN },
	{ "-l", ALONE, PLAIN },
	{ "-q", ALONE, PLAIN },
	{ "-r", ALONE, PLAIN },
	{ "-s", ALONE, PLAIN },
	{ "-w", ALONE, PLAIN },
	{ "-x", ALONE, PLAIN },
	{ "--quiet", ALONE, PLAIN },
	{ "--relaxed-errors", ALONE, PLAIN },
	{ "--suppress-warnings", ALONE, PLAIN },
	{ "--auto-map-bindings", ALONE, PLAIN },
	{ "--amb", ALONE, PLAIN },
	{ "--auto-map-locations", ALONE, PLAIN },
	{ "--aml", ALONE, PLAIN },
	{ "--invert-y", ALONE, PLAIN },
	{ "--iy", ALONE, PLAIN },
	{ "--nan-clamp", ALONE, PLAIN },
	{ "--keep-uncalled", ALONE, PLAIN },
	{ "--glsl-version", NEXT, PLAIN },
	{ NULL, ALONE, PLAIN },
};

static const struct ki_wrap_option ocloc_options[] = {
	{ "-file", NEXT, INPUT },
	{ "-device", NEXT, PLAIN },
	{ "-output", NEXT, BASE },
	{ "-out_dir", NEXT, PLACE },
	{ "-options", NEXT, INNER },
	{ "-internal_options", NEXT, INNER_PLAIN },
	{ "-32", ALONE, PLAIN },
	{ "-64", ALONE, PLAIN },
	{ "-llvm_text", ALONE, PLAIN },
	{ "-llvm_input", ALONE, PLAIN },
	{ "-spirv_input", ALONE, PLAIN },
	{ "-q", ALONE, PLAIN },
	{ "-spv_only", ALONE, PLAIN },
	{ "-cpp_file", ALONE, PLAIN },
	{ "-gen_file", ALONE, PLAIN },
	{ "-output_no_suffix", ALONE, PLAIN },
	{ "-revision_id", NEXT, PLAIN },
	{ "-exclude_ir", ALONE, PLAIN },
	{ "--format", NEXT, PLAIN },
	{ "-config", NEXT, PLAIN },
	{ NULL, ALONE, PLAIN },
};

static const char *const none[] = { NULL };

static const struct ki_wrap_rule rules[] = {
	{ .name = "glslc",
	  .options = glslc_options,
	  .variables = none,
	  .dependencies = (const char *const[]){ "-MD", "-MF", "%", NULL },
	  .companions = none },
	{ .name = "glslangValidator",
	  .options = glslang_options,
	  .variables = none,
	  .dependencies = (const char *const[]){ "--depfile", "%", NULL },
	  .companions = none },
	{ .name = "ocloc",
	  .options = ocloc_options,
	  .variables = (const char *const[]){ "IGC_*", "VISA_*", "NEO*",
					      "Override*", NULL },
	  .companions = (const char *const[]){ "_options.txt",
					       "_internal_options.txt", NULL },
	  .endings = (const char *const[]){ ".bin", ".spv", ".gen", ".ll",
					    ".bc", ".dbg", ".cpp", NULL },
	  .subcommand = "compile",
	  .has_time_macros = 1 },
};

static const char *last_part(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static const struct ki_wrap_rule *find_rule(const char *compiler)
{
	const char *name = last_part(compiler);
	size_t i;

	for (i = 0; i < sizeof(rules) / sizeof(*rules); i++)
		if (!strcmp(rules[i].name, name))
			return &rules[i];
	return NULL;
}

/* ---- The compiler's file ----------------------------------------------------- */

/* With a privilege of its own it would not say what it loads. */
static int is_program(const char *path)
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
		return strlen(name) < KI_PATH_MAX && is_program(name)
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
		if (!ki_path_join(out, directory, name) && is_program(out))
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

/* Options inside one argument: words, of which -I names folders. */
static int take_inner(struct ki_wrap_command *command, const char *value)
{
	char *copy, *word, *rest = NULL;

	/* Quotes would need the same reader as the compiler's, and what it
	   includes unasked is in no source. */
	if (strpbrk(value, "\"'\\") || strstr(value, "-include") ||
	    strstr(value, "__DATE") || strstr(value, "__TIME") ||
	    command->n_words == KI_WRAP_INPUTS_MAX)
		return -1;
	copy = strdup(value);
	if (!copy)
		return -1;
	command->words[command->n_words++] = copy;
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

static int take(struct ki_wrap_command *command, enum role role,
		const char *value)
{
	switch (role) {
	case PLAIN:
		return 0;
	case INPUT:
		return add(command->inputs, &command->n_inputs,
			   KI_WRAP_INPUTS_MAX, value);
	case FOLDER:
		return add(command->folders, &command->n_folders,
			   KI_WRAP_FOLDERS_MAX, value);
	case OUTPUT:
		command->is_named = 1;
		if (!strcmp(value, "-"))
			return 0;
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
		if (option->shape == JOINED
			    ? !strncmp(argument, option->name, size) &&
				      argument[size]
			    : !strcmp(argument, option->name))
			return option;
	}
	return NULL;
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
	if (option->shape == JOINED)
		value += strlen(option->name);
	if (option->shape == NEXT)
		value = *++argument;
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
	if (command->is_named || command->is_printing)
		return NULL;
	/* A compiler without binaries by default only looks at the source. */
	if (strcmp(command->rule->name, "glslc") && !command->is_binary)
		return NULL;
	return "the output has no name";
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
	if (command->rule->subcommand && *argument &&
	    !strcmp(*argument, command->rule->subcommand))
		argument++;
	*out_why = "an argument is not understood";
	while (argument && *argument)
		argument = take_argument(command, argument);
	if (!argument)
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
