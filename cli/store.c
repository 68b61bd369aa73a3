/* SPDX-License-Identifier: MIT */

#include "store.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "out.h"

const char *ki_status_words(enum kiln_status status)
{
	switch (status) {
	case KILN_OK:
		return "in use";
	case KILN_MISS:
		return "there is none";
	case KILN_EXISTS:
		return "it is there already";
	case KILN_END:
		return "the end";
	case KILN_E_NO_MEMORY:
		return "out of memory";
	case KILN_E_INVALID:
		return "an option is wrong";
	case KILN_E_IO:
		return "the system refuses";
	case KILN_E_FORMAT:
		return "damaged, or written by a newer kiln";
	case KILN_E_COLLISION:
		return "two keys have one digest";
	case KILN_E_FULL:
		return "full";
	case KILN_E_BUILD:
		return "the build failed";
	case KILN_E_TOO_LARGE:
		return "too large for the bound";
	case KILN_E_OWNER:
		return "it is not safe to load code from";
	case KILN_E_FORKED:
		return "opened before fork";
	case KILN_E_TIMEOUT:
		return "busy";
	case KILN_E_UNSUPPORTED:
		return "this kind of store cannot do that";
	case KILN_E_READONLY:
		return "read only";
	}
	return "unknown";
}

int ki_store_failed(enum kiln_status status, const char *what)
{
	ki_complain("%s: %s (%s)", what, ki_status_words(status),
		    kiln_status_name(status));
	return status == KILN_E_NO_MEMORY ? KI_EXIT_FAILED
					  : KI_EXIT_UNAVAILABLE;
}

/* ---- Settings ---------------------------------------------------------------- */

static int set_directory(struct ki_settings *settings)
{
	const char *why = "",
		   *path = kiln_config_directory(settings->config, &why);

	if (path && strlen(path) < sizeof(settings->directory)) {
		strcpy(settings->directory, path);
		return KI_EXIT_OK;
	}
	ki_complain("store: %s", path ? "the path is too long" : why);
	return KI_EXIT_UNAVAILABLE;
}

int ki_store_use(struct kiln_config *config, const char *url)
{
	char message[1024] = "";
	enum kiln_status status =
		kiln_config_use_store(config, url, message, sizeof(message));

	if (status == KILN_E_NO_MEMORY) {
		ki_complain("out of memory");
		return KI_EXIT_FAILED;
	}
	if (!status)
		return KI_EXIT_OK;
	if (strcmp(message, "it is not a store"))
		ki_complain("--store: %s", message);
	else
		ki_complain("--store: '%s' is no store; use log:DIR, "
			    "log:DIR#NAME, file:DIR, neo:[DIR][#WORD,...], "
			    "sycl:[DIR] or pack:FILE",
			    url);
	return KI_EXIT_USAGE;
}

/* With a spool whatever KILN_SPOOL says: of programs run without it. */
static int use_own(struct ki_settings *settings)
{
	int status = set_directory(settings);
	char name[24];

	if (status)
		return status;
	kiln_config_options(settings->config, &settings->options);
	snprintf(name, sizeof(name),
		 settings->options.flags & KILN_OPEN_SHARED ? "spool/%u"
							    : "spool",
		 ki_user_id());
	if (ki_path_join(settings->own_spool, settings->directory, name)) {
		ki_complain("store: the path is too long");
		return KI_EXIT_UNAVAILABLE;
	}
	settings->spool = settings->own_spool;
	return KI_EXIT_OK;
}

void ki_store_warn(const struct kiln_config *config)
{
	const char *warning;

	for (size_t i = 0; (warning = kiln_config_warning(config, i)); i++)
		ki_complain("%s", warning);
}

void ki_store_warn_of_foreign(const struct kiln_config *config)
{
	const char *warning, *name, *value, *origin;

	for (size_t i = 0; (warning = kiln_config_warning(config, i)); i++)
		for (size_t n = 0;
		     (name = kiln_config_foreign(config, n, &value, &origin));
		     n++)
			if (!strncmp(warning, name, strlen(name)))
				ki_complain("%s", warning);
}

static int load(struct ki_settings *settings, const char *url, unsigned flags)
{
	char message[1024] = "out of memory";
	const int is_looking = (flags & KI_STORE_LOOK) == KI_STORE_LOOK;
	enum kiln_status status =
		is_looking ? kiln_config_load_to_look(&settings->config,
						      message, sizeof(message))
			   : kiln_config_load(&settings->config, message,
					      sizeof(message));

	if (status) {
		ki_complain("%s", message);
		return KI_EXIT_USAGE;
	}
	return url ? ki_store_use(settings->config, url) : KI_EXIT_OK;
}

int ki_settings_load(struct ki_settings *settings,
		     const struct ki_command *command, unsigned flags)
{
	const char *url = command->values[KI_OPTION_STORE];
	int status;

	memset(settings, 0, sizeof(*settings));
	kiln_options_init(&settings->options);
	status = load(settings, url, flags);
	if (status)
		return status;
	ki_store_warn(settings->config);
	if (url)
		return use_own(settings);

	kiln_config_options(settings->config, &settings->options);
	if (kiln_config_number(settings->config, KILN_SET_DISABLE)) {
		ki_complain(
			"KILN_DISABLE turns caching off (from: %s)",
			kiln_config_origin(settings->config, KILN_SET_DISABLE));
		return KI_EXIT_UNAVAILABLE;
	}
	status = set_directory(settings);
	if (status)
		return status;
	settings->spool = kiln_config_spool(settings->config);
	return KI_EXIT_OK;
}

void ki_settings_fini(struct ki_settings *settings)
{
	kiln_config_free(settings->config);
}

/* ---- The store --------------------------------------------------------- */

static int open_with(struct ki_settings *settings, unsigned flags,
		     struct kiln **out_kiln)
{
	struct kiln_options options = settings->options;
	enum kiln_status status;

	options.flags |= flags;
	options.memory_bytes_max = 1; /* nothing is asked for twice */
	options.packs = NULL;	      /* the store alone is meant */
	options.remote = NULL;
	status = kiln_open(&options, out_kiln);
	if (status)
		return ki_store_failed(status, options.store_url);
	status = kiln_store_status(*out_kiln);
	if (!status)
		return KI_EXIT_OK;
	kiln_close(*out_kiln);
	*out_kiln = NULL;
	return ki_store_failed(status, options.store_url);
}

int ki_store_is_pack(const struct ki_settings *settings)
{
	const char *url = settings->options.store_url;

	return url && !strncmp(url, "pack:", 5);
}

/* A pack is there before it is named, and stays as it is. */
static int check_pack(const struct ki_settings *settings, unsigned flags,
		      int is_there)
{
	if (!(flags & KILN_OPEN_READONLY)) {
		ki_complain("%s is a pack and never changed; 'kiln export' "
			    "writes another",
			    settings->directory);
		return KI_EXIT_UNAVAILABLE;
	}
	if (!is_there) {
		ki_complain("there is no pack %s", settings->directory);
		return KI_EXIT_NOT_FOUND;
	}
	return KI_EXIT_OK;
}

int ki_store_make(struct ki_settings *settings, struct kiln **out_kiln)
{
	int status = ki_store_is_pack(settings) ? check_pack(settings, 0, 1)
						: KI_EXIT_OK;

	*out_kiln = NULL;
	return status ? status : open_with(settings, 0, out_kiln);
}

int ki_store_open(struct ki_settings *settings, unsigned flags,
		  struct kiln **out_kiln)
{
	const struct ki_sys *sys = &ki_sys_posix;
	struct kiln_store_info store;
	struct ki_file_info info;
	int err, status;

	*out_kiln = NULL;
	err = sys->stat(sys, settings->directory, &info);
	if (ki_store_is_pack(settings)) {
		status = check_pack(settings, flags, !err);
		if (status)
			return status;
	}
	if (err == -ENOENT)
		return KI_EXIT_OK;
	if (err) {
		ki_complain("%s: %s", settings->directory, strerror(-err));
		return KI_EXIT_UNAVAILABLE;
	}
	/* Without writing first: a directory of jobs alone stays one. */
	status = open_with(settings, flags | KI_STORE_LOOK, out_kiln);
	if (status)
		return status;
	if (kiln_store_info(*out_kiln, &store) == KILN_MISS) {
		kiln_close(*out_kiln);
		*out_kiln = NULL;
		return KI_EXIT_OK;
	}
	if ((flags & KI_STORE_LOOK) == KI_STORE_LOOK)
		return KI_EXIT_OK;
	kiln_close(*out_kiln);
	*out_kiln = NULL;
	return open_with(settings, flags, out_kiln);
}
