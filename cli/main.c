/* SPDX-License-Identifier: MIT */

/*
 * kiln, the tool.  The tables of options.h and verbs.c say what there is; a
 * verb is one function in a file of its name and returns the exit status.
 */

#include <stdio.h>
#include <string.h>

#include <kiln/inspect.h>

#include "out.h"
#include "verbs.h"

static int print_version(void)
{
	unsigned version = kiln_version();
	struct ki_bytes out;

	ki_bytes_init(&out);
	ki_bytes_printf(&out,
			"kiln %d.%d.%d\nlibrary %u.%u.%u\n"
			"stores: " KI_STORES "\n"
			"programs: opencl levelzero d3d12\n",
			KILN_VERSION_MAJOR, KILN_VERSION_MINOR,
			KILN_VERSION_PATCH, version >> 16, version >> 8 & 0xff,
			version & 0xff);
	return ki_out_write(&out, KI_EXIT_OK);
}

static int print_help(const struct ki_verb *verb)
{
	struct ki_bytes out;

	ki_bytes_init(&out);
	ki_help(&out, verb);
	return ki_out_write(&out, KI_EXIT_OK);
}

static int help(const char *name)
{
	const struct ki_verb *verb = name ? ki_verb_find(name) : NULL;

	if (!name || verb)
		return print_help(verb);
	ki_complain("there is no verb '%s'; see 'kiln --help'", name);
	return KI_EXIT_USAGE;
}

int main(int argc, char **argv)
{
	const struct ki_verb *verb;
	struct ki_command command;
	char message[512];

	if (argc < 2) {
		ki_complain("what? See 'kiln --help'");
		return KI_EXIT_USAGE;
	}
	if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V"))
		return print_version();
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") ||
	    !strcmp(argv[1], "help"))
		return help(argv[2]);
	verb = ki_verb_find(argv[1]);
	if (!verb) {
		ki_complain("there is no verb '%s'; see 'kiln --help'",
			    argv[1]);
		return KI_EXIT_USAGE;
	}
	if (ki_command_parse(&command, verb, argv + 2, message,
			     sizeof(message))) {
		ki_complain("%s; see 'kiln %s --help'", message, verb->name);
		return verb->usage_status;
	}
	if (ki_given(&command, KI_OPTION_HELP))
		return print_help(verb);
	return verb->body(&command);
}
