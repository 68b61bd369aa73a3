/* SPDX-License-Identifier: MIT */

/*
 * Who closes at once leaves to kiln-worker what is not kept: a file for each
 * build, and no call of the driver.
 */

#include <stdlib.h>
#include <string.h>

#include "front/cl/cl.h"
#include "front/opencl/job.h"

/* The strings of a block as an array to free(). */
static const char **split(const struct ki_bytes *block, uint32_t *out_n)
{
	const char **strings = calloc(block->size + 1, sizeof(*strings));
	const char *text = (const char *)block->data;

	*out_n = 0;
	for (size_t at = 0; strings && at < block->size;
	     at += strlen(text + at) + 1)
		strings[(*out_n)++] = text + at;
	return strings;
}

void ki_cl_built_job(const struct kiln_cl *cl, const struct ki_cl_built *built)
{
	const struct ki_cl_driver *driver =
		ki_cl_driver(cl->identities, cl->platform);
	const char *name_space =
		kiln_config_value(cl->config, KILN_SET_NAMESPACE);
	char application[KI_PATH_MAX], platform[256] = "";
	struct ki_cl_job job = {
		.platform_name = platform,
		.driver = driver->name,
		.n_devices = built->n_devices,
		.recipe = built->recipe,
		.directory = built->directory,
		.application = application,
		.name_space = name_space ? name_space : "",
		.created = built->created,
		.build_ns = built->build_ns,
		.stage = driver->fetch_is_cheap ? KI_CL_STAGE_EARLY
						: KI_CL_STAGE_FULL,
	};
	const char **variables = split(&built->environment, &job.n_environment);
	enum kiln_status status;

	if (!variables)
		return;
	job.environment = variables;
	job.record = kiln_key_record(built->key, &job.record_size);
	if (ki_executable(application) < 0)
		application[0] = '\0';
	(void)clGetPlatformInfo(cl->platform, CL_PLATFORM_NAME,
				sizeof(platform) - 1, platform, NULL);
	status = ki_cl_job_write(cl->spool, &job);
	if (status == KILN_OK)
		kiln_count(cl->kiln, KILN_COUNT_JOBS_WRITTEN, 1);
	else if (status == KILN_E_FULL)
		kiln_count(cl->kiln, KILN_COUNT_JOBS_REFUSED, 1);
	free(variables);
}
