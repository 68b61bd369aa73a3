/* SPDX-License-Identifier: MIT */

/*
 * Strict, and silent about what it refuses: of a text that is no URL only its
 * scheme is shown, and its host where that is one.  What passes has no user, no
 * password, no query but db=, so all of it can be shown anywhere.
 */

#include "remote/url.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

#define HOST_BYTES_MAX	 255
#define BUCKET_BYTES_MIN 3
#define BUCKET_BYTES_MAX 63
#define SOCKET_BYTES_MAX 107 /* of sun_path, without its NUL */
#define DATABASE_MAX	 1000000

#define ITEM_BYTES_DEFAULT ((uint64_t)64 << 20)
#define ITEM_BYTES_MAX	   ((uint64_t)1 << 30)
#define ZSTD_LEVEL_MAX	   19
#define TIMEOUT_MS_DEFAULT 2000
#define TIMEOUT_MS_MAX	   600000

#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGITS	"0123456789"
#define BLANKS	" \t\r\n"

/* clang-format off */
static const struct {
	const char *prefix;
	enum url_scheme scheme;
	unsigned port;
} schemes[] = {
	{ "redis://", URL_REDIS, 6379 },
	{ "unix:", URL_UNIX, 0 },
	{ "http://", URL_HTTP, 80 },
	{ "https://", URL_HTTPS, 443 },
	{ "s3://", URL_S3, 0 },
};
/* clang-format on */

#define N_SCHEMES (sizeof(schemes) / sizeof(*schemes))

/* Where a text is taken apart: what is refused is said into `why`. */
struct parser {
	struct url url;
	const char *prefix; /* the scheme, to be shown */
	char *why;
	size_t why_size;
};

__attribute__((format(printf, 2, 3))) static enum kiln_status refuse(
	struct parser *parser, const char *format, ...)
{
	va_list arguments;
	int n;

	n = snprintf(parser->why, parser->why_size, "%s%s: ", parser->prefix,
		     parser->url.host ? parser->url.host : "...");
	if (n < 0 || (size_t)n >= parser->why_size)
		return KILN_E_INVALID;
	va_start(arguments, format);
	(void)vsnprintf(parser->why + n, parser->why_size - (size_t)n, format,
			arguments);
	va_end(arguments);
	return KILN_E_INVALID;
}

/* ---- Parts of a URL ----------------------------------------------------- */

/* Digits and no more, at most `max`. */
static int parse_number(const char *text, size_t size, unsigned max,
			unsigned *out_number)
{
	unsigned long number = 0;
	size_t i;

	if (size == 0 || size > 7 || strspn(text, DIGITS) < size)
		return -EINVAL;
	for (i = 0; i < size; i++)
		number = number * 10 + (unsigned long)(text[i] - '0');
	if (number > max)
		return -ERANGE;
	*out_number = (unsigned)number;
	return 0;
}

static char *copy_lower(const char *text, size_t size)
{
	char *copy = strndup(text, size);
	size_t i;

	for (i = 0; copy && i < size; i++)
		if (copy[i] >= 'A' && copy[i] <= 'Z')
			copy[i] = (char)(copy[i] - 'A' + 'a');
	return copy;
}

/* A name or a number of version 4, or of version 6 in brackets. */
static enum kiln_status parse_host(struct parser *parser, const char **at)
{
	const char *text = *at;
	size_t size;

	if (*text == '[') {
		size = strspn(++text, "0123456789abcdefABCDEF:.");
		if (size == 0 || text[size] != ']')
			return refuse(parser, "no address between [ and ]");
		*at = text + size + 1;
	} else {
		size = strspn(text, LETTERS DIGITS ".-_");
		*at = text + size;
	}
	if (size == 0)
		return refuse(parser, "no host is named");
	if (size > HOST_BYTES_MAX ||
	    (**at && **at != ':' && **at != '/' && **at != '?'))
		return refuse(parser, "no name or address of a host: letters, "
				      "digits, dots and dashes; [...] around "
				      "an address of IPv6");
	parser->url.host = copy_lower(text, size);
	return parser->url.host ? KILN_OK : KILN_E_NO_MEMORY;
}

static enum kiln_status parse_port(struct parser *parser, const char **at)
{
	size_t size;

	if (**at != ':')
		return KILN_OK;
	size = strcspn(++*at, "/?");
	if (parse_number(*at, size, 65535, &parser->url.port) ||
	    parser->url.port == 0)
		return refuse(parser, "the port is a number from 1 to 65535");
	*at += size;
	return KILN_OK;
}

static enum kiln_status parse_database(struct parser *parser, const char *text)
{
	if (parse_number(text, strlen(text), DATABASE_MAX,
			 &parser->url.database))
		return refuse(parser, "the database is a number");
	return KILN_OK;
}

/* "?..." is for nobody: passwords come that way, and nothing here needs it. */
static enum kiln_status refuse_query(struct parser *parser)
{
	return refuse(parser, "nothing may follow a `?` here; a ? of the path "
			      "is written %%3F");
}

/* Whether a path has a part that is "." or "..", or one that is empty. */
static int has_odd_part(const char *path)
{
	size_t size;

	for (; *path; path += size) {
		size = strcspn(path, "/");
		if (size == 0 || (size <= 2 && !strncmp(path, "..", size)))
			return 1;
		if (path[size] == '/')
			size++;
	}
	return 0;
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* %XX becomes the byte; a NUL or half of one: -1. */
static int unescape(char *text)
{
	char *out = text;

	for (; *text; text++) {
		if (*text != '%') {
			*out++ = *text;
			continue;
		}
		if (hex_digit(text[1]) < 0 || hex_digit(text[2]) < 0)
			return -1;
		*out = (char)(hex_digit(text[1]) << 4 | hex_digit(text[2]));
		if (*out++ == '\0')
			return -1;
		text += 2;
	}
	*out = '\0';
	return 0;
}

/* As a server may read it: with its %XX as what they stand for. */
static enum kiln_status parse_path(struct parser *parser, const char *text,
				   const char *letters)
{
	enum kiln_status status = KILN_OK;
	char *plain;

	if (strchr(text, '?'))
		return refuse_query(parser);
	if (text[strspn(text, letters)])
		return refuse(parser, "a letter of the path that has to be "
				      "written as %%XX, or cannot be there");
	plain = strdup(text);
	if (!plain)
		return KILN_E_NO_MEMORY;
	if (unescape(plain))
		status = refuse(parser, "a %% without two digits behind it");
	else if (has_odd_part(plain))
		status = refuse(parser, "a part of the path that is empty, `.` "
					"or `..`");
	free(plain);
	return status;
}

/* ---- Schemes ------------------------------------------------------------ */

static enum kiln_status parse_redis(struct parser *parser, const char *text)
{
	enum kiln_status status = parse_host(parser, &text);

	if (!status)
		status = parse_port(parser, &text);
	if (!status && *text == '?')
		status = refuse_query(parser);
	if (!status && text[0] == '/' && text[1])
		status = parse_database(parser, text + 1);
	if (status)
		return status;
	parser->url.path = strdup("");
	return parser->url.path ? KILN_OK : KILN_E_NO_MEMORY;
}

static enum kiln_status parse_unix(struct parser *parser, const char *text)
{
	size_t size = strcspn(text, "?");
	const char *query = text + size;
	enum kiln_status status = KILN_OK;

	if (*text != '/')
		return refuse(parser, "the path of a socket begins with /, "
				      "as in unix:/run/redis.sock");
	if (*query && strncmp(query, "?db=", 4) != 0)
		return refuse(parser, "only ?db=NUMBER may follow the path");
	if (*query)
		status = parse_database(parser, query + 4);
	if (status)
		return status;
	parser->url.path = strndup(text, size);
	if (!parser->url.path)
		return KILN_E_NO_MEMORY;
	if (unescape(parser->url.path))
		return refuse(parser, "a %% without two digits behind it");
	if (strlen(parser->url.path) > SOCKET_BYTES_MAX)
		return refuse(parser,
			      "the path of a socket has at most %d "
			      "bytes; make a link to its directory",
			      SOCKET_BYTES_MAX);
	return KILN_OK;
}

static enum kiln_status parse_http(struct parser *parser, const char *text)
{
	enum kiln_status status = parse_host(parser, &text);

	if (!status)
		status = parse_port(parser, &text);
	if (!status && *text == '?')
		status = refuse_query(parser);
	if (!status && *text == '/')
		status = parse_path(parser, text + 1,
				    LETTERS DIGITS "/-._~!$&'()*+;=:%");
	if (status)
		return status;
	parser->url.path = strdup(*text ? text : "/");
	return parser->url.path ? KILN_OK : KILN_E_NO_MEMORY;
}

static enum kiln_status parse_s3(struct parser *parser, const char *text)
{
	size_t size = strspn(text, "abcdefghijklmnopqrstuvwxyz" DIGITS ".-");
	enum kiln_status status = KILN_OK;
	int is_open;

	if (size < BUCKET_BYTES_MIN || size > BUCKET_BYTES_MAX ||
	    (text[size] && text[size] != '/'))
		return refuse(parser,
			      "the name of a bucket has %d to %d small "
			      "letters, digits, dots and dashes",
			      BUCKET_BYTES_MIN, BUCKET_BYTES_MAX);
	parser->url.host = strndup(text, size);
	if (!parser->url.host)
		return KILN_E_NO_MEMORY;
	text += size;
	if (*text == '/')
		text++;
	status = parse_path(parser, text, LETTERS DIGITS "/-._");
	if (status)
		return status;
	is_open = *text && text[strlen(text) - 1] != '/';
	if (asprintf(&parser->url.path, "%s%s", text, is_open ? "/" : "") < 0) {
		parser->url.path = NULL;
		return KILN_E_NO_MEMORY;
	}
	return KILN_OK;
}

static enum kiln_status parse_scheme(struct parser *parser, const char *text)
{
	size_t i;

	if (!strncmp(text, "rediss://", 9)) {
		parser->prefix = "rediss://";
		return refuse(parser,
			      "TLS to Redis is not in kiln-remote: let stunnel "
			      "listen here and speak TLS to the server, and "
			      "write redis://localhost:PORT");
	}
	for (i = 0; i < N_SCHEMES; i++)
		if (!strncmp(text, schemes[i].prefix,
			     strlen(schemes[i].prefix)))
			break;
	if (i == N_SCHEMES) {
		parser->prefix = "";
		return refuse(parser, "a URL begins with redis://, unix:/, "
				      "http://, https:// or s3://");
	}
	parser->prefix = schemes[i].prefix;
	parser->url.scheme = schemes[i].scheme;
	parser->url.port = schemes[i].port;
	if (strchr(text, '@'))
		return refuse(parser, "a user or a password in a URL would be "
				      "seen by everybody: write them into the "
				      "file that KILN_REMOTE_CREDENTIALS names "
				      "(an @ of a path is %%40)");
	text += strlen(schemes[i].prefix);
	switch (schemes[i].scheme) {
	case URL_REDIS:
		return parse_redis(parser, text);
	case URL_UNIX:
		return parse_unix(parser, text);
	case URL_HTTP:
	case URL_HTTPS:
		return parse_http(parser, text);
	case URL_S3:
		return parse_s3(parser, text);
	}
	return KILN_E_INVALID;
}

/* Printable ASCII without blanks. */
static int is_plain(const char *text)
{
	for (; *text; text++)
		if (*text <= ' ' || *text > '~')
			return 0;
	return 1;
}

enum kiln_status ki_url_parse(const char *text, struct url *out_url, char *why,
			      size_t why_size)
{
	struct parser parser = { .prefix = "",
				 .why = why,
				 .why_size = why_size };
	enum kiln_status status;

	if (!is_plain(text))
		return refuse(&parser,
			      "a URL with a blank or a letter that is "
			      "not ASCII: write it as %%XX, and a host "
			      "as xn--...");
	status = parse_scheme(&parser, text);
	if (!status) {
		parser.url.shown = strdup(text);
		if (!parser.url.shown)
			status = KILN_E_NO_MEMORY;
	}
	if (status == KILN_E_NO_MEMORY)
		(void)snprintf(why, why_size, "no memory");
	if (status)
		ki_url_fini(&parser.url);
	else
		*out_url = parser.url;
	return status;
}

void ki_url_fini(struct url *url)
{
	free(url->shown);
	free(url->host);
	free(url->path);
	*url = (struct url){ 0 };
}

int ki_url_is_below(const struct url *url, const struct url *prefix)
{
	size_t size = strlen(prefix->path);

	if (url->scheme != prefix->scheme || url->port != prefix->port ||
	    (url->host && strcmp(url->host, prefix->host) != 0) ||
	    strncmp(url->path, prefix->path, size) != 0)
		return 0;
	return size == 0 || prefix->path[size - 1] == '/' ||
	       url->path[size] == '/' || url->path[size] == '\0';
}

/* ---- Words of a level --------------------------------------------------- */

/* 0, or an errno: the value cannot be. */
typedef int word_fn(struct level *level, const char *value);

static int word_read_only(struct level *level, const char *value)
{
	level->is_read_only = 1;
	return 0;
}

static int word_no_lease(struct level *level, const char *value)
{
	level->has_no_lease = 1;
	return 0;
}

static int word_ttl(struct level *level, const char *value)
{
	if (ki_parse_age(value, &level->ttl_s) || level->ttl_s == 0 ||
	    level->ttl_s > UINT32_MAX)
		return -EINVAL;
	return 0;
}

static int is_redis(const char *url)
{
	return !strncmp(url, "redis://", 8) || !strncmp(url, "unix:", 5);
}

/* Elsewhere a time to live would be taken and nothing would go. */
static enum kiln_status check_ttl(const struct level *level, char *why,
				  size_t why_size)
{
	if (level->ttl_s == 0)
		return KILN_OK;
	for (size_t i = 0; i < level->n_urls; i++) {
		if (is_redis(level->urls[i]))
			continue;
		(void)snprintf(why, why_size,
			       "#ttl= is for Redis: other servers remove what "
			       "is old by a rule of their own, such as a "
			       "bucket's lifecycle rule; leave it out");
		return KILN_E_INVALID;
	}
	return KILN_OK;
}

static int word_item(struct level *level, const char *value)
{
	if (ki_parse_size(value, &level->item_bytes_max) ||
	    level->item_bytes_max == 0 ||
	    level->item_bytes_max > ITEM_BYTES_MAX)
		return -EINVAL;
	return 0;
}

static int word_zstd(struct level *level, const char *value)
{
	unsigned number;

	if (parse_number(value, strlen(value), ZSTD_LEVEL_MAX, &number))
		return -EINVAL;
	level->zstd_level = (int)number;
	return 0;
}

static int word_ca(struct level *level, const char *value)
{
	if (*value != '/' || level->ca_file)
		return -EINVAL;
	level->ca_file = strdup(value);
	return level->ca_file ? 0 : -ENOMEM;
}

static int word_timeout(struct level *level, const char *value)
{
	unsigned number;

	if (parse_number(value, strlen(value), TIMEOUT_MS_MAX, &number) ||
	    number == 0)
		return -EINVAL;
	level->timeout_ms = number;
	return 0;
}

/* clang-format off */
static const struct {
	const char *name; /* ending in "=" where there is a value */
	word_fn *fn;
	const char *remedy;
} words[] = {
	{ "read-only", word_read_only, NULL },
	{ "no-lease", word_no_lease, NULL },
	{ "ttl=", word_ttl, "an age, such as 7d, 12h or 3600" },
	{ "max-item=", word_item, "a size from 1 to 1G, such as 64M" },
	{ "zstd=", word_zstd, "0 (not compressed) to 19" },
	{ "ca=", word_ca, "one file, from the root on" },
	{ "timeout=", word_timeout, "milliseconds, 1 to 600000" },
};
/* clang-format on */

#define N_WORDS (sizeof(words) / sizeof(*words))

static enum kiln_status parse_word(struct level *level, const char *word,
				   char *why, size_t why_size)
{
	size_t i, size = strcspn(word, "=");
	int error;

	size += word[size] == '=';
	for (i = 0; i < N_WORDS; i++)
		if (strlen(words[i].name) == size &&
		    !strncmp(words[i].name, word, size))
			break;
	if (i == N_WORDS) {
		/* What does not look like a word may be half a password. */
		if (size > 32 || strspn(word, LETTERS "-=") < size)
			size = 0;
		(void)snprintf(
			why, why_size,
			"#%.*s is not known: read-only, ttl=, max-item=, "
			"zstd=, no-lease, ca= and timeout= are",
			(int)size, word);
		return KILN_E_INVALID;
	}
	error = words[i].fn(level, word + size);
	if (error == -ENOMEM)
		return KILN_E_NO_MEMORY;
	if (error) {
		(void)snprintf(why, why_size, "#%s is %s", words[i].name,
			       words[i].remedy);
		return KILN_E_INVALID;
	}
	return KILN_OK;
}

/* ---- Levels ------------------------------------------------------------- */

/* One more, that `text` names and that is parsed to see whether it can be. */
static enum kiln_status add_url(struct level *level, const char *text,
				char *why, size_t why_size)
{
	struct url url = { 0 };
	char **urls;
	enum kiln_status status;

	if (level->n_urls == SHARDS_MAX) {
		(void)snprintf(why, why_size, "at most %d URLs", SHARDS_MAX);
		return KILN_E_INVALID;
	}
	status = ki_url_parse(text, &url, why, why_size);
	if (status)
		return status;
	ki_url_fini(&url);
	urls = realloc(level->urls, (level->n_urls + 1) * sizeof(*urls));
	if (!urls)
		return KILN_E_NO_MEMORY;
	level->urls = urls;
	urls[level->n_urls] = strdup(text);
	if (!urls[level->n_urls])
		return KILN_E_NO_MEMORY;
	level->n_urls++;
	return KILN_OK;
}

static enum kiln_status parse_level(struct level *level, char *text, char *why,
				    size_t why_size)
{
	char *at, *hash = strchr(text, '#');
	enum kiln_status status = KILN_OK;

	*level = (struct level){ .item_bytes_max = ITEM_BYTES_DEFAULT,
				 .zstd_level = 1,
				 .timeout_ms = TIMEOUT_MS_DEFAULT };
	if (hash)
		*hash++ = '\0';
	for (at = text; !status && at;) {
		char *url = strsep(&at, ",");

		status = add_url(level, url, why, why_size);
	}
	for (at = hash; !status && at;) {
		char *word = strsep(&at, ",");

		status = parse_word(level, word, why, why_size);
	}
	return status ? status : check_ttl(level, why, why_size);
}

/* Says which level it was. */
static void name_level(size_t number, char *why, size_t why_size)
{
	char text[512];

	(void)snprintf(text, sizeof(text), "%s", why);
	(void)snprintf(why, why_size, "level %zu: %s", number, text);
}

static enum kiln_status add_level(struct levels *levels, char *text, char *why,
				  size_t why_size)
{
	struct level *grown;
	enum kiln_status status;

	if (levels->n_levels == LEVELS_MAX) {
		(void)snprintf(why, why_size, "at most %d levels", LEVELS_MAX);
		return KILN_E_INVALID;
	}
	grown = realloc(levels->levels,
			(levels->n_levels + 1) * sizeof(*levels->levels));
	if (!grown)
		return KILN_E_NO_MEMORY;
	levels->levels = grown;
	status = parse_level(&grown[levels->n_levels++], text, why, why_size);
	if (status == KILN_E_INVALID)
		name_level(levels->n_levels, why, why_size);
	return status;
}

enum kiln_status ki_levels_parse(const char *text, struct levels *out_levels,
				 char *why, size_t why_size)
{
	struct levels levels = { 0 };
	char *copy = strdup(text), *at = copy;
	enum kiln_status status = copy ? KILN_OK : KILN_E_NO_MEMORY;

	while (!status && at) {
		char *level = strsep(&at, BLANKS);

		if (*level)
			status = add_level(&levels, level, why, why_size);
	}
	if (!status && levels.n_levels == 0) {
		(void)snprintf(why, why_size, "no URL");
		status = KILN_E_INVALID;
	}
	if (status == KILN_E_NO_MEMORY)
		(void)snprintf(why, why_size, "no memory");
	if (status)
		ki_levels_fini(&levels);
	else
		*out_levels = levels;
	free(copy);
	return status;
}

void ki_levels_fini(struct levels *levels)
{
	size_t i, j;

	for (i = 0; i < levels->n_levels; i++) {
		for (j = 0; j < levels->levels[i].n_urls; j++)
			free(levels->levels[i].urls[j]);
		free(levels->levels[i].urls);
		free(levels->levels[i].ca_file);
	}
	free(levels->levels);
	*levels = (struct levels){ 0 };
}
