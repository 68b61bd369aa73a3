/* SPDX-License-Identifier: MIT */

#include "packs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "out.h"
#include "sys/sys.h"

#define VARIABLE  "KILN_PACKS"
#define PACKS_MAX 16 /* that a kiln takes */

static void tell(void *arg, enum kiln_log_level level, const char *line)
{
	if (level <= KILN_LOG_WARNING)
		ki_complain("%s: running without it", line);
}

/* As the program will have it; says why not. */
static int is_usable(const char *path, const struct kiln_config *config)
{
	enum kiln_status status = KILN_E_IO;
	struct kiln_options options;
	struct kiln *kiln;

	kiln_options_init(&options);
	kiln_config_options(config, &options);
	options.store_url = NULL;
	options.packs = path;
	options.log = tell;
	if (kiln_open(&options, &kiln))
		return 0;
	(void)kiln_pack_given(kiln, 0, &status);
	kiln_close(kiln);
	return status == KILN_OK;
}

static void add_path(struct ki_bytes *list, const char *path)
{
	if (list->size)
		ki_bytes_add_u8(list, ',');
	ki_bytes_add_string(list, path);
}

static int is_url(const char *name)
{
	return strstr(name, "://") != NULL;
}

/* As the program finds it, wherever that is; a URL stays what it is. */
static int find_path(char out[KI_PATH_MAX], const char *name)
{
	if (!is_url(name))
		return ki_absolute_path(out, name);
	if (strlen(name) >= KI_PATH_MAX)
		return -ENAMETOOLONG;
	strcpy(out, name);
	return 0;
}

/* A password may be in it. */
static const char *shown(const char *name)
{
	return is_url(name) && strpbrk(name, "@?") ? "--pack ..." : name;
}

/* 1 if it was added. */
static int add_pack(struct ki_bytes *list, const char *name,
		    const struct kiln_config *config)
{
	char path[KI_PATH_MAX];

	if (find_path(path, name)) {
		ki_complain("%s: the path is too long: running without it",
			    shown(name));
		return 0;
	}
	if (strchr(path, ',')) {
		ki_complain("%s: a comma separates packs and cannot be in the "
			    "path of one: running without it",
			    shown(path));
		return 0;
	}
	if (!is_usable(path, config))
		return 0;
	add_path(list, path);
	return 1;
}

static int count_paths(const char *list)
{
	int n = list && *list ? 1 : 0;

	for (; list && *list; list++)
		n += *list == ',';
	return n;
}

void ki_packs_set(const struct ki_command *command,
		  const struct kiln_config *config)
{
	const char *others = kiln_config_value(config, KILN_SET_PACKS);
	int n = count_paths(others);
	struct ki_bytes list;

	if (!ki_given(command, KI_OPTION_PACK))
		return;
	ki_bytes_init(&list);
	for (int i = 0; i < command->n_given; i++) {
		if (command->given[i].option != KI_OPTION_PACK)
			continue;
		if (n == PACKS_MAX)
			ki_complain("%s: more than %d packs: running without "
				    "it",
				    shown(command->given[i].value), PACKS_MAX);
		else
			n += add_pack(&list, command->given[i].value, config);
	}
	if (list.size && others)
		add_path(&list, others);
	ki_bytes_add_u8(&list, 0);
	if (list.failed ||
	    (list.size > 1 && setenv(VARIABLE, (const char *)list.data, 1)))
		ki_complain("running without packs: out of memory");
	ki_bytes_fini(&list);
}

const char *ki_packs_url(const struct ki_command *command)
{
	for (int i = 0; i < command->n_given; i++)
		if (command->given[i].option == KI_OPTION_PACK &&
		    is_url(command->given[i].value))
			return command->given[i].value;
	return NULL;
}

int ki_packs_want_remote(const struct kiln_options *options)
{
	return options->remote || (options->packs && is_url(options->packs));
}
