/* SPDX-License-Identifier: MIT */

/* The variables of SYCL's caches (core/sycl.h) as options of programs, and of the
   kiln behind them. */

#include "program/environment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/sycl.h"

extern char **environ;

struct kiln_sycl_config {
	struct ki_sycl_environment environment; /* without its texts */
	char *texts[KI_SYCL_N_VARIABLES];	/* NULL: not set */
	char *url;				/* NULL: there is no place */
};

/* The environment may change. */
static enum kiln_status keep(struct kiln_sycl_config *config)
{
	struct ki_sycl_environment *environment = &config->environment;

	for (int i = 0; i < KI_SYCL_N_VARIABLES; i++) {
		if (environment->is_given[i]) {
			config->texts[i] = strdup(environment->text[i]);
			if (!config->texts[i])
				return KILN_E_NO_MEMORY;
		}
		environment->text[i] = NULL;
	}
	if (*environment->directory &&
	    asprintf(&config->url, "sycl:%s", environment->directory) < 0) {
		config->url = NULL;
		return KILN_E_NO_MEMORY;
	}
	return KILN_OK;
}

enum kiln_status ki_sycl_config_read(const char *const *variables,
				     struct kiln_sycl_config **out,
				     char **out_message)
{
	struct kiln_sycl_config *config = calloc(1, sizeof(*config));
	enum kiln_status status;

	if (!config)
		return KILN_E_NO_MEMORY;
	ki_sycl_environment_read(variables, &config->environment);
	if (config->environment.is_wrong) {
		if (out_message)
			*out_message = strdup(config->environment.wrong);
		status = KILN_E_INVALID;
	} else {
		status = keep(config);
	}
	if (status) {
		kiln_sycl_config_free(config);
		return status;
	}
	*out = config;
	return KILN_OK;
}

/* Programs with more rights than their user are told nothing. */
enum kiln_status kiln_sycl_config_read(struct kiln_sycl_config **out,
				       char **out_message)
{
	if (!out)
		return KILN_E_INVALID;
	if (out_message)
		*out_message = NULL;
	return ki_sycl_config_read(
		ki_process_is_secure() ? NULL : (const char *const *)environ,
		out, out_message);
}

void kiln_sycl_config_free(struct kiln_sycl_config *config)
{
	if (!config)
		return;
	for (int i = 0; i < KI_SYCL_N_VARIABLES; i++)
		free(config->texts[i]);
	free(config->url);
	free(config);
}

int kiln_sycl_config_is_persistent(const struct kiln_sycl_config *config)
{
	return config->environment.number[KI_SYCL_PERSISTENT] && config->url;
}

void kiln_sycl_config_programs(const struct kiln_sycl_config *config,
			       struct kiln_programs_options *options)
{
	options->bytes_max =
		config->environment.number[KI_SYCL_IN_MEM_THRESHOLD];
	options->image_bytes_min =
		config->environment.number[KI_SYCL_IMAGE_MIN];
	options->image_bytes_max =
		config->environment.number[KI_SYCL_IMAGE_MAX];
	options->compile_options_override = config->texts[KI_SYCL_COMPILE];
	options->link_options_override = config->texts[KI_SYCL_LINK];
	options->compile_options_append = config->texts[KI_SYCL_APPEND_COMPILE];
	options->link_options_append = config->texts[KI_SYCL_APPEND_LINK];
	if (!config->environment.number[KI_SYCL_IN_MEM])
		options->flags |= KILN_PROGRAMS_NO_MEMORY;
	if (!kiln_sycl_config_is_persistent(config))
		options->flags |= KILN_PROGRAMS_NO_STORE;
	if (config->environment.number[KI_SYCL_TRACE] & KI_SYCL_TRACE_MEMORY)
		options->flags |= KILN_PROGRAMS_TRACE;
	/* So that both find each other's entries. */
	options->flags |= KILN_PROGRAMS_WHOLE_IMAGES;
}

void kiln_sycl_config_kiln(const struct kiln_sycl_config *config,
			   struct kiln_options *options)
{
	options->store_url =
		kiln_sycl_config_is_persistent(config) ? config->url : NULL;
	options->store_bytes_max = config->environment.bytes_max;
	options->store_age_max_s = config->environment.age_max_s;
	/* Programs have it in memory. */
	options->flags |= KILN_OPEN_NO_MEMORY;
}
