/* SPDX-License-Identifier: MIT */

/*
 * The file is read into one piece of guarded memory and taken apart where it
 * lies: a word ends in a NUL that was a blank before, and no copy of it is made.
 *
 * Guarded memory needs sodium_init(), which nothing else in kiln calls (base/hash.c
 * says why): BLAKE2b is slower afterwards, in this process, which signs what it
 * uploads and has time for that.
 */

#include "credentials.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/text.h"

#include "remote/url.h"

#define FILE_BYTES_MAX (64u << 10)
#define WORDS_MAX      8

struct entry {
	struct url prefix;
	struct credential credential;
};

struct credentials {
	char *file;	   /* guarded: what `entries` point into */
	char *environment; /* guarded: what the two point into */
	struct entry *entries;
	size_t n_entries;
	struct credential s3, redis; /* of the environment */
};

/* ---- Guarded memory ----------------------------------------------------- */

static char *guarded_new(size_t size)
{
	return sodium_init() < 0 ? NULL : sodium_malloc(size);
}

char *credentials_keep(const char *secret)
{
	char *kept = guarded_new(strlen(secret) + 1);

	if (kept) {
		strcpy(kept, secret);
		(void)sodium_mprotect_readonly(kept);
	}
	return kept;
}

void credentials_forget(char *kept)
{
	sodium_free(kept);
}

/* ---- Reading the file --------------------------------------------------- */

static const char *why_not_own(const struct ki_file_info *info)
{
	if (!S_ISREG(info->mode))
		return "no regular file";
	if (info->uid != ki_user_id())
		return "of another user; copy it";
	if (info->mode & 077)
		return "open to others; run chmod 600 on it";
	if (info->n_links != 1)
		return "a file with several names; copy it";
	return NULL;
}

static enum kiln_status read_guarded(const struct ki_sys *sys, int fd,
				     struct credentials *credentials,
				     const char **out_why)
{
	struct ki_file_info info;

	*out_why = "not to be read";
	if (sys->fstat(sys, fd, &info))
		return KILN_E_IO;
	*out_why = why_not_own(&info);
	if (*out_why)
		return KILN_E_OWNER;
	*out_why = "larger than 64 KiB";
	if (info.size > FILE_BYTES_MAX)
		return KILN_E_INVALID;
	*out_why = "more than memory has room for";
	credentials->file = guarded_new((size_t)info.size + 1);
	if (!credentials->file)
		return KILN_E_NO_MEMORY;
	credentials->file[info.size] = '\0';
	*out_why = "not to be read";
	if (ki_pread_all(sys, fd, credentials->file, (size_t)info.size, 0))
		return KILN_E_IO;
	*out_why = "no text: there is a NUL in it";
	return strlen(credentials->file) == info.size ? KILN_OK
						      : KILN_E_INVALID;
}

static enum kiln_status read_file(const struct ki_sys *sys, const char *path,
				  struct credentials *credentials, char *why,
				  size_t why_size)
{
	int fd = sys->open(sys, path, KI_OPEN_READ | KI_OPEN_NOFOLLOW, 0);
	enum kiln_status status;
	const char *reason;

	if (fd == -ELOOP) {
		(void)snprintf(why, why_size,
			       "%s is a link: name the file itself", path);
		return KILN_E_OWNER;
	}
	if (fd < 0) {
		(void)snprintf(why, why_size, "%s: %s", path, strerror(-fd));
		return KILN_E_IO;
	}
	status = read_guarded(sys, fd, credentials, &reason);
	if (status)
		(void)snprintf(why, why_size, "%s is %s", path, reason);
	(void)sys->close(sys, fd);
	return status;
}

/* ---- Words of a line ---------------------------------------------------- */

struct line {
	const char *words[WORDS_MAX];
	size_t n_words;
};

static int is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

/* From behind the opening quote; NULL: there is no closing one. */
static char *unquote(char *text)
{
	char *out = text;

	for (; *text && *text != '"'; text++) {
		if (*text == '\\' && (text[1] == '"' || text[1] == '\\'))
			text++;
		*out++ = *text;
	}
	if (*text != '"' || (text[1] && !is_blank(text[1])))
		return NULL;
	*out = '\0';
	return text + 1;
}

static const char *split(char *text, struct line *line)
{
	line->n_words = 0;
	for (;;) {
		while (is_blank(*text))
			*text++ = '\0';
		if (*text == '\0' || (*text == '#' && line->n_words == 0))
			return NULL;
		if (line->n_words == WORDS_MAX)
			return "too many words";
		if (*text == '"') {
			line->words[line->n_words++] = text + 1;
			text = unquote(text + 1);
			if (!text)
				return "a quotation that does not end where "
				       "its word ends";
			continue;
		}
		line->words[line->n_words++] = text;
		while (*text && !is_blank(*text))
			text++;
	}
}

/* Printable, so that nothing can end the header or the command it stands in. */
static int is_printable(const char *text, int may_have_blanks)
{
	if (*text == '\0')
		return 0;
	for (; *text; text++)
		if ((unsigned char)*text < ' ' || *text == 0x7f ||
		    (*text == ' ' && !may_have_blanks))
			return 0;
	return 1;
}

/* ---- Kinds -------------------------------------------------------------- */

/* Fills a credential with the words behind its kind, or says what is wrong. */
typedef const char *kind_fn(const struct line *line,
			    struct credential *credential);

static const char *take_basic(const struct line *line,
			      struct credential *credential)
{
	if (line->n_words != 4)
		return "behind `basic` belong a user and a password";
	if (strchr(line->words[2], ':'))
		return "a user with a colon cannot be";
	credential->user = line->words[2];
	credential->secret = line->words[3];
	return NULL;
}

static const char *take_bearer(const struct line *line,
			       struct credential *credential)
{
	if (line->n_words != 3 || !is_printable(line->words[2], 0))
		return "behind `bearer` belongs a token, without blanks";
	credential->secret = line->words[2];
	return NULL;
}

static const char *take_redis(const struct line *line,
			      struct credential *credential)
{
	if (line->n_words != 3 && line->n_words != 4)
		return "behind `redis` belongs a password, or a user and a "
		       "password";
	credential->user = line->n_words == 4 ? line->words[2] : NULL;
	credential->secret = line->words[line->n_words - 1];
	return NULL;
}

static int is_region(const char *text)
{
	return *text && strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-") ==
				strlen(text);
}

static int is_endpoint(const char *text)
{
	struct url url;
	char why[1];
	int is_http;

	if (ki_url_parse(text, &url, why, sizeof(why)))
		return 0;
	is_http = url.scheme == URL_HTTP || url.scheme == URL_HTTPS;
	ki_url_fini(&url);
	return is_http;
}

static const char *take_s3(const struct line *line,
			   struct credential *credential)
{
	const char **into[] = { &credential->user, &credential->secret,
				&credential->session };
	size_t i, n = 0;

	for (i = 2; i < line->n_words; i++) {
		const char *word = line->words[i];

		if (!strncmp(word, "region=", 7)) {
			credential->region = word + 7;
			if (!is_region(word + 7))
				return "region= names a region, such as "
				       "eu-central-1";
		} else if (!strncmp(word, "endpoint=", 9)) {
			credential->endpoint = word + 9;
			if (!is_endpoint(word + 9))
				return "endpoint= is a URL of http or https";
		} else if (n == 3 || !is_printable(word, 0)) {
			return "behind `s3` belong an access key, a secret, "
			       "perhaps a session token, region= and endpoint=";
		} else {
			*into[n++] = word;
		}
	}
	return n < 2 ? "behind `s3` belong an access key and a secret" : NULL;
}

#define OF(scheme) (1u << (scheme))

/* clang-format off */
static const struct {
	const char *name;
	kind_fn *take;
	unsigned schemes;
} kinds[] = {
	[CREDENTIAL_BASIC] = { "basic", take_basic,
		OF(URL_HTTP) | OF(URL_HTTPS) },
	[CREDENTIAL_BEARER] = { "bearer", take_bearer,
		OF(URL_HTTP) | OF(URL_HTTPS) },
	[CREDENTIAL_REDIS] = { "redis", take_redis,
		OF(URL_REDIS) | OF(URL_UNIX) },
	[CREDENTIAL_S3] = { "s3", take_s3, OF(URL_S3) },
};
/* clang-format on */

#define N_KINDS (sizeof(kinds) / sizeof(*kinds))

static const char *parse_kind(const struct line *line, struct entry *entry)
{
	size_t i;

	for (i = 0; i < N_KINDS; i++)
		if (!strcmp(line->words[1], kinds[i].name))
			break;
	if (i == N_KINDS)
		return "the second word is basic, bearer, redis or s3";
	if (!(kinds[i].schemes & OF(entry->prefix.scheme)))
		return "basic and bearer are for http:// and https://, redis "
		       "for redis:// and unix:, s3 for s3://";
	entry->credential.kind = (enum credential_kind)i;
	for (size_t j = 2; j < line->n_words; j++)
		if (!is_printable(line->words[j], 1))
			return "a word that is empty, or with a control "
			       "character";
	return kinds[i].take(line, &entry->credential);
}

/* ---- Lines -------------------------------------------------------------- */

static int is_same(const struct url *a, const struct url *b)
{
	return ki_url_is_below(a, b) && ki_url_is_below(b, a);
}

static const char *check_new(const struct credentials *credentials,
			     const struct url *prefix)
{
	for (size_t i = 0; i < credentials->n_entries; i++)
		if (is_same(&credentials->entries[i].prefix, prefix))
			return "a line before it is for the same URL";
	return NULL;
}

static struct entry *add_entry(struct credentials *credentials)
{
	struct entry *grown =
		realloc(credentials->entries,
			(credentials->n_entries + 1) * sizeof(*grown));

	if (!grown)
		return NULL;
	credentials->entries = grown;
	grown += credentials->n_entries;
	*grown = (struct entry){ 0 };
	return grown;
}

/* NULL: it is in, or there was nothing to take.  `text` is for a reason that
   has to be put together. */
static const char *parse_line(struct credentials *credentials, char *content,
			      char *text, size_t text_size)
{
	struct entry *entry;
	struct line line;
	const char *wrong = split(content, &line);

	if (wrong || line.n_words == 0)
		return wrong;
	if (line.n_words < 3)
		return "a URL, basic, bearer, redis or s3, and the words of "
		       "that belong in a line";
	entry = add_entry(credentials);
	if (!entry)
		return "no memory";
	if (ki_url_parse(line.words[0], &entry->prefix, text, text_size))
		return text;
	wrong = check_new(credentials, &entry->prefix);
	if (!wrong)
		wrong = parse_kind(&line, entry);
	if (wrong)
		ki_url_fini(&entry->prefix);
	else
		credentials->n_entries++;
	return wrong;
}

static enum kiln_status parse_file(struct credentials *credentials,
				   const char *path, char *why, size_t why_size)
{
	char *at = credentials->file, text[512];
	unsigned number;

	for (number = 1; at; number++) {
		char *content = strsep(&at, "\n");
		const char *wrong =
			parse_line(credentials, content, text, sizeof(text));

		if (!wrong)
			continue;
		(void)snprintf(why, why_size, "%s:%u: %s", path, number, wrong);
		return KILN_E_INVALID;
	}
	return KILN_OK;
}

/* ---- The environment ---------------------------------------------------- */

static const char *const variables[] = {
	"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
	"AWS_REGION",	     "AWS_ENDPOINT_URL",      "REDISCLI_AUTH",
};

#define N_VARIABLES (sizeof(variables) / sizeof(*variables))

/* All of them, in guarded memory; values[i] NULL: not set, or empty. */
static enum kiln_status copy_variables(struct credentials *credentials,
				       const char *const *environment,
				       const char *values[N_VARIABLES])
{
	size_t i, size = 0;
	char *at;

	for (i = 0; i < N_VARIABLES; i++) {
		values[i] = ki_find_variable(environment, variables[i]);
		if (values[i] && *values[i])
			size += strlen(values[i]) + 1;
		else
			values[i] = NULL;
	}
	if (size == 0)
		return KILN_OK;
	at = credentials->environment = guarded_new(size);
	if (!at)
		return KILN_E_NO_MEMORY;
	for (i = 0; i < N_VARIABLES; i++) {
		if (!values[i])
			continue;
		size = strlen(values[i]) + 1;
		memcpy(at, values[i], size);
		values[i] = at;
		at += size;
	}
	return KILN_OK;
}

static const char *check_variables(const char *const values[N_VARIABLES])
{
	for (size_t i = 0; i < N_VARIABLES; i++)
		if (values[i] && !is_printable(values[i], i == N_VARIABLES - 1))
			return variables[i];
	if (values[3] && !is_region(values[3]))
		return variables[3];
	if (values[4] && !is_endpoint(values[4]))
		return variables[4];
	return NULL;
}

static enum kiln_status take_environment(struct credentials *credentials,
					 const char *const *environment,
					 char *why, size_t why_size)
{
	const char *values[N_VARIABLES], *wrong;
	enum kiln_status status =
		copy_variables(credentials, environment, values);

	if (status)
		return status;
	wrong = check_variables(values);
	if (wrong) {
		(void)snprintf(
			why, why_size,
			"the environment's %s is something else than its "
			"name says",
			wrong);
		return KILN_E_INVALID;
	}
	/* Half a pair is for other programs, which look elsewhere too. */
	if (!values[0] || !values[1])
		values[0] = values[1] = values[2] = NULL;
	credentials->s3 = (struct credential){ .kind = CREDENTIAL_S3,
					       .user = values[0],
					       .secret = values[1],
					       .session = values[2],
					       .region = values[3],
					       .endpoint = values[4] };
	credentials->redis = (struct credential){ .kind = CREDENTIAL_REDIS,
						  .secret = values[5] };
	return KILN_OK;
}

/* What a line of the file leaves open, the environment may say. */
static void complete(struct credentials *credentials)
{
	const struct credential *environment = &credentials->s3;

	for (size_t i = 0; i < credentials->n_entries; i++) {
		struct credential *own = &credentials->entries[i].credential;

		if (own->kind != CREDENTIAL_S3)
			continue;
		if (!own->region)
			own->region = environment->region;
		if (!own->endpoint)
			own->endpoint = environment->endpoint;
	}
}

/* ---- Outside ------------------------------------------------------------ */

enum kiln_status credentials_load(const struct ki_sys *sys, const char *path,
				  const char *const *environment,
				  struct credentials **out_credentials,
				  char *why, size_t why_size)
{
	struct credentials *credentials = calloc(1, sizeof(*credentials));
	enum kiln_status status = credentials ? KILN_OK : KILN_E_NO_MEMORY;

	if (!status)
		status = take_environment(credentials, environment, why,
					  why_size);
	if (!status && path)
		status = read_file(sys, path, credentials, why, why_size);
	if (!status && path)
		status = parse_file(credentials, path, why, why_size);
	if (status == KILN_E_NO_MEMORY)
		(void)snprintf(why, why_size, "no memory");
	if (status) {
		credentials_free(credentials);
		return status;
	}
	complete(credentials);
	if (credentials->file)
		(void)sodium_mprotect_readonly(credentials->file);
	if (credentials->environment)
		(void)sodium_mprotect_readonly(credentials->environment);
	*out_credentials = credentials;
	return KILN_OK;
}

void credentials_free(struct credentials *credentials)
{
	if (!credentials)
		return;
	for (size_t i = 0; i < credentials->n_entries; i++)
		ki_url_fini(&credentials->entries[i].prefix);
	free(credentials->entries);
	sodium_free(credentials->file);
	sodium_free(credentials->environment);
	free(credentials);
}

static const struct credential *find_in_environment(
	const struct credentials *credentials, const struct url *url)
{
	if (url->scheme == URL_S3)
		return &credentials->s3;
	if ((url->scheme == URL_REDIS || url->scheme == URL_UNIX) &&
	    credentials->redis.secret)
		return &credentials->redis;
	return NULL;
}

const struct credential *credentials_find(const struct credentials *credentials,
					  const struct url *url)
{
	const struct entry *best = NULL;

	if (!credentials)
		return NULL;
	for (size_t i = 0; i < credentials->n_entries; i++) {
		const struct entry *entry = &credentials->entries[i];

		if (ki_url_is_below(url, &entry->prefix) &&
		    (!best ||
		     strlen(entry->prefix.path) > strlen(best->prefix.path)))
			best = entry;
	}
	return best ? &best->credential : find_in_environment(credentials, url);
}

static void wipe_variable(const char *name)
{
	char *value = getenv(name);

	if (value)
		sodium_memzero(value, strlen(value));
	(void)unsetenv(name);
}

void credentials_wipe_environment(void)
{
	for (size_t i = 0; i < N_VARIABLES; i++)
		wipe_variable(variables[i]);
	wipe_variable("KILN_SIGNING_KEY");
}
