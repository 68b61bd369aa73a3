/* SPDX-License-Identifier: MIT */
#ifndef KIR_URL_H
#define KIR_URL_H

/*
 * What KILN_REMOTE says.  Programs take it apart, too, to name what is wrong with it at
 * once, so that is the library's (remote/url.h); here are its functions by the names
 * that this folder has, which needs no prefix.
 */

#include "remote/url.h"

static inline enum kiln_status url_parse(const char *text, struct url *out_url,
					 char *why, size_t why_size)
{
	return ki_url_parse(text, out_url, why, why_size);
}

static inline void url_fini(struct url *url)
{
	ki_url_fini(url);
}

static inline int url_is_below(const struct url *url, const struct url *prefix)
{
	return ki_url_is_below(url, prefix);
}

static inline enum kiln_status levels_parse(const char *text,
					    struct levels *out_levels,
					    char *why, size_t why_size)
{
	return ki_levels_parse(text, out_levels, why, why_size);
}

static inline void levels_fini(struct levels *levels)
{
	ki_levels_fini(levels);
}

#endif /* KIR_URL_H */
