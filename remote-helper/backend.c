/* SPDX-License-Identifier: MIT */

#include "backend.h"

#include <stdio.h>

#include "credentials.h"
#include "remote/url.h"

#include "remote-helper/http/http.h"
#include "remote-helper/redis/redis.h"
#include "remote-helper/s3/s3.h"

enum kiln_status backend_open(struct loop *loop, const char *url,
			      const char *ca_file,
			      const struct credentials *credentials,
			      struct backend **out_backend, char *why,
			      size_t why_size)
{
	const struct credential *credential;
	struct url parsed;
	enum kiln_status status = ki_url_parse(url, &parsed, why, why_size);

	if (status)
		return status;
	credential = credentials_find(credentials, &parsed);
	switch (parsed.scheme) {
	case URL_REDIS:
	case URL_UNIX:
		status = redis_open(loop, &parsed, credential, out_backend);
		break;
	case URL_HTTP:
	case URL_HTTPS:
		status = http_open(loop, &parsed, ca_file, credential,
				   out_backend);
		break;
	case URL_S3:
		status = s3_open(loop, &parsed, ca_file, credential,
				 out_backend);
		break;
	}
	if (status == KILN_E_NO_MEMORY)
		(void)snprintf(why, why_size, "no memory");
	ki_url_fini(&parsed);
	return status;
}
