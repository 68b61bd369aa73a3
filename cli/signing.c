/* SPDX-License-Identifier: MIT */

#include "signing.h"

#include <string.h>

#include "out.h"
#include "sign/files.h"

static int complain(enum kiln_status status, const char *name, const char *path,
		    const char *why)
{
	if (status == KILN_MISS)
		ki_complain("there is no key '%s' (%s); 'kiln key new %s' "
			    "makes one",
			    name, path, name);
	else
		ki_complain("%s %s (%s)", path, why, kiln_status_name(status));
	return status == KILN_MISS ? KI_EXIT_NOT_FOUND : KI_EXIT_UNAVAILABLE;
}

static int add_file(struct ki_signing *signing, const char *name,
		    const char *path)
{
	const char *why = "cannot be read";
	struct ki_sign_secret secret;
	enum kiln_status status;

	if (signing->n == KILN_PACK_SIGNATURES_MAX) {
		ki_complain("--key: at most %d keys can sign a pack",
			    KILN_PACK_SIGNATURES_MAX);
		return KI_EXIT_USAGE;
	}
	status = ki_sign_read_secret(&ki_sys_posix, path, &secret, &why);
	if (status)
		return complain(status, name, path, why);
	ki_sign_secret_print(&secret, signing->room[signing->n]);
	ki_sign_secret_fini(&secret);
	signing->texts[signing->n] = signing->room[signing->n];
	signing->n++;
	return KI_EXIT_OK;
}

static int add_named(struct ki_signing *signing, const char *name,
		     const struct ki_settings *settings)
{
	const char *directory = kiln_config_user_directory(settings->config);
	char path[KI_PATH_MAX];

	if (!ki_sign_name_is_good(name, strlen(name))) {
		ki_complain("--key: '%s' is not the name of a key", name);
		return KI_EXIT_USAGE;
	}
	if (!directory) {
		ki_complain("--key: without HOME and XDG_CONFIG_HOME there "
			    "are no keys");
		return KI_EXIT_UNAVAILABLE;
	}
	if (ki_sign_path(path, directory, KI_SIGN_KEYS, name, KI_SIGN_SECRET)) {
		ki_complain("--key: the path of '%s' is too long", name);
		return KI_EXIT_UNAVAILABLE;
	}
	return add_file(signing, name, path);
}

int ki_signing_load(struct ki_signing *signing,
		    const struct ki_command *command,
		    const struct ki_settings *settings)
{
	const char *usual = settings->options.signing_key;
	int status = KI_EXIT_OK;

	memset(signing, 0, sizeof(*signing));
	for (int i = 0; i < command->n_given && !status; i++)
		if (command->given[i].option == KI_OPTION_KEY)
			status = add_named(signing, command->given[i].value,
					   settings);
	if (!ki_given(command, KI_OPTION_KEY) && usual)
		status = add_file(signing, KI_SIGN_DEFAULT, usual);
	return status;
}

void ki_signing_fini(struct ki_signing *signing)
{
	ki_sign_wipe(signing, sizeof(*signing));
}

int ki_signing_is_trusted(const struct ki_settings *settings, const char *path)
{
	struct kiln_pack_options options;
	struct kiln_tier *tier;

	kiln_pack_options_init(&options);
	options.flags = KILN_PACK_SIGNED | KILN_PACK_ANY_OWNER;
	options.trusted_keys = settings->options.trusted_keys;
	options.n_trusted_keys = settings->options.n_trusted_keys;
	if (kiln_pack_open(path, &options, &tier))
		return 0;
	tier->ops->close(tier);
	return 1;
}
