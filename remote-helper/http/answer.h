/* SPDX-License-Identifier: MIT */
#ifndef KIR_HTTP_ANSWER_H
#define KIR_HTTP_ANSWER_H

/* What answers mean, of servers and of libcurl. */

#include <curl/curl.h>

#include "remote-helper/http/web.h"

/* `out_why` is in this program's words: what a server says is never passed on.
   It is NULL where nothing is wrong. */
enum kiln_status answer_status(long code, enum web_method method, int is_range,
			       const char **out_why);

/* Of a transfer that came to no good end. */
enum kiln_status answer_failure(CURLcode failure, const char **out_why);

#endif /* KIR_HTTP_ANSWER_H */
