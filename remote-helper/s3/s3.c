/* SPDX-License-Identifier: MIT */

#include "remote-helper/s3/s3.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "remote-helper/http/http.h"

#define REGION_DEFAULT "us-east-1"

static int print_base(char **out, const struct url *url, const char *endpoint,
		      const char *region)
{
	size_t size;

	if (endpoint) {
		size = strlen(endpoint);
		size -= endpoint[size - 1] == '/';
		return asprintf(out, "%.*s/%s/%s", (int)size, endpoint,
				url->host, url->path);
	}
	/* The certificate is for one name before the service's. */
	if (strchr(url->host, '.'))
		return asprintf(out, "https://s3.%s.amazonaws.com/%s/%s",
				region, url->host, url->path);
	return asprintf(out, "https://%s.s3.%s.amazonaws.com/%s", url->host,
			region, url->path);
}

enum kiln_status s3_open(struct loop *loop, struct url *url,
			 const char *ca_file,
			 const struct credential *credential,
			 struct backend **out_backend)
{
	const char *endpoint = credential ? credential->endpoint : NULL;
	const char *region = credential && credential->region
				     ? credential->region
				     : REGION_DEFAULT;
	struct http_place place = { .scheme = "s3", .region = strdup(region) };

	if (!place.region ||
	    print_base(&place.base, url, endpoint, region) < 0) {
		free(place.region);
		return KILN_E_NO_MEMORY;
	}
	place.shown = url->shown;
	url->shown = NULL;
	return http_open_place(loop, &place, ca_file, credential, out_backend);
}
