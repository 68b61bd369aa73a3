/* SPDX-License-Identifier: MIT */

#include "remote-helper/http/answer.h"

/* clang-format off */
static const struct {
	long code;
	enum kiln_status status;
	const char *why;
} codes[] = {
	{ 301, KILN_E_UNSUPPORTED, "the server sends us elsewhere (301)" },
	{ 302, KILN_E_UNSUPPORTED, "the server sends us elsewhere (302)" },
	{ 303, KILN_E_UNSUPPORTED, "the server sends us elsewhere (303)" },
	{ 307, KILN_E_UNSUPPORTED, "the server sends us elsewhere (307)" },
	{ 308, KILN_E_UNSUPPORTED, "the server sends us elsewhere (308)" },
	{ 400, KILN_E_UNSUPPORTED, "the server refused the request (400)" },
	{ 401, KILN_E_OWNER, "the server asks for credentials (401)" },
	{ 403, KILN_E_OWNER, "the server refused the credentials (403)" },
	{ 405, KILN_E_UNSUPPORTED, "the server does not take PUT there (405)" },
	{ 407, KILN_E_OWNER, "the proxy asks for credentials (407)" },
	{ 408, KILN_E_TIMEOUT, "the server did not wait (408)" },
	{ 409, KILN_E_UNSUPPORTED,
	  "the folder of the URL is not on the server (409)" },
	{ 411, KILN_E_UNSUPPORTED, "the server refused the request (411)" },
	{ 413, KILN_E_TOO_LARGE, "the server takes nothing that large (413)" },
	{ 416, KILN_E_IO, "it ended before that range (416)" },
	{ 429, KILN_E_IO, "the server has too many requests (429)" },
	{ 500, KILN_E_IO, "the server failed (500)" },
	{ 501, KILN_E_UNSUPPORTED, "the server cannot do that (501)" },
	{ 502, KILN_E_IO, "the server behind a proxy failed (502)" },
	{ 503, KILN_E_IO, "the server is not ready (503)" },
	{ 504, KILN_E_TIMEOUT, "the server behind a proxy is late (504)" },
	{ 507, KILN_E_FULL, "the server is full (507)" },
};

static const struct {
	CURLcode failure;
	enum kiln_status status;
	const char *why;
} failures[] = {
	{ CURLE_OPERATION_TIMEDOUT, KILN_E_TIMEOUT, "no answer in time" },
	{ CURLE_OUT_OF_MEMORY, KILN_E_NO_MEMORY, "no memory" },
	{ CURLE_COULDNT_RESOLVE_HOST, KILN_E_IO,
	  "the host's name is not known" },
	{ CURLE_COULDNT_RESOLVE_PROXY, KILN_E_IO,
	  "the name of the proxy's host is not known" },
	{ CURLE_COULDNT_CONNECT, KILN_E_IO, "nobody listens there" },
	{ CURLE_PARTIAL_FILE, KILN_E_IO, "the answer was cut" },
	{ CURLE_GOT_NOTHING, KILN_E_IO, "the server hung up" },
	{ CURLE_RECV_ERROR, KILN_E_IO, "the connection broke" },
	{ CURLE_SEND_ERROR, KILN_E_IO, "the connection broke" },
	{ CURLE_WEIRD_SERVER_REPLY, KILN_E_FORMAT,
	  "what answers there is not HTTP" },
	{ CURLE_UNSUPPORTED_PROTOCOL, KILN_E_FORMAT,
	  "what answers there is not HTTP" },
	{ CURLE_WRITE_ERROR, KILN_E_FORMAT, "the answer has no end" },
	{ CURLE_SSL_CONNECT_ERROR, KILN_E_IO, "TLS failed" },
	{ CURLE_PEER_FAILED_VERIFICATION, KILN_E_IO,
	  "the server's certificate is not trusted here: ca=FILE says who "
	  "may sign one" },
	{ CURLE_SSL_CACERT_BADFILE, KILN_E_IO,
	  "the file of ca= is not there, or has no certificate" },
};
/* clang-format on */

#define N_CODES	   (sizeof(codes) / sizeof(*codes))
#define N_FAILURES (sizeof(failures) / sizeof(*failures))

static enum kiln_status find_code(long code, const char **out_why)
{
	for (size_t i = 0; i < N_CODES; i++) {
		if (codes[i].code != code)
			continue;
		*out_why = codes[i].why;
		return codes[i].status;
	}
	*out_why = code >= 500 ? "the server failed (5xx)"
			       : "the server answered what we did not ask for";
	return code >= 500 ? KILN_E_IO : KILN_E_UNSUPPORTED;
}

enum kiln_status answer_status(long code, enum web_method method, int is_range,
			       const char **out_why)
{
	*out_why = NULL;
	if (is_range && code == 200) {
		*out_why = "the server gives no ranges (200)";
		return KILN_E_UNSUPPORTED;
	}
	if (is_range && code == 412) {
		*out_why = "it has changed on the server (412)";
		return KILN_E_IO;
	}
	if (code == (is_range ? 206 : 200))
		return KILN_OK;
	if (method == WEB_PUT && (code == 201 || code == 202 || code == 204))
		return KILN_OK;
	if (method == WEB_PUT && code == 412)
		return KILN_EXISTS;
	if (method != WEB_PUT && (code == 404 || code == 410))
		return KILN_MISS;
	return find_code(code, out_why);
}

enum kiln_status answer_failure(CURLcode failure, const char **out_why)
{
	for (size_t i = 0; i < N_FAILURES; i++) {
		if (failures[i].failure != failure)
			continue;
		*out_why = failures[i].why;
		return failures[i].status;
	}
	*out_why = curl_easy_strerror(failure);
	return KILN_E_IO;
}
