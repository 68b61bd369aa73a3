/* SPDX-License-Identifier: MIT */

#include "harness/harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "remote/url.h"

/* In every URL that is refused; no message may have it. */
#define SECRET "hunter2"

static void a_url_is_taken_apart(void **state)
{
	static const struct {
		const char *text;
		enum url_scheme scheme;
		const char *host;
		unsigned port;
		const char *path;
		unsigned database;
	} rows[] = {
		{ "redis://cache", URL_REDIS, "cache", 6379, "", 0 },
		{ "redis://cache/", URL_REDIS, "cache", 6379, "", 0 },
		{ "redis://Cache.Local:7000/3", URL_REDIS, "cache.local", 7000,
		  "", 3 },
		{ "redis://10.0.0.1:7000", URL_REDIS, "10.0.0.1", 7000, "", 0 },
		{ "redis://[fe80::1]:7000/12", URL_REDIS, "fe80::1", 7000, "",
		  12 },
		{ "unix:/run/redis.sock", URL_UNIX, NULL, 0, "/run/redis.sock",
		  0 },
		{ "unix:/run/a%20b%2c.sock?db=4", URL_UNIX, NULL, 0,
		  "/run/a b,.sock", 4 },
		{ "http://cache", URL_HTTP, "cache", 80, "/", 0 },
		{ "http://cache:8080/ac/", URL_HTTP, "cache", 8080, "/ac/", 0 },
		{ "https://cache/a%3Fb", URL_HTTPS, "cache", 443, "/a%3Fb", 0 },
		{ "https://cache/%2E%2Ea/..b", URL_HTTPS, "cache", 443,
		  "/%2E%2Ea/..b", 0 },
		{ "https://[::1]/a", URL_HTTPS, "::1", 443, "/a", 0 },
		{ "s3://bucket", URL_S3, "bucket", 0, "", 0 },
		{ "s3://bucket/", URL_S3, "bucket", 0, "", 0 },
		{ "s3://my.bucket/a/b", URL_S3, "my.bucket", 0, "a/b/", 0 },
	};
	struct url url;
	char why[256];

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		if (ki_url_parse(rows[i].text, &url, why, sizeof(why)))
			fail_msg("%s: %s", rows[i].text, why);
		assert_int_equal(url.scheme, rows[i].scheme);
		if (rows[i].host)
			assert_string_equal(url.host, rows[i].host);
		else
			assert_null(url.host);
		assert_int_equal(url.port, rows[i].port);
		assert_string_equal(url.path, rows[i].path);
		assert_int_equal(url.database, rows[i].database);
		assert_string_equal(url.shown, rows[i].text);
		ki_url_fini(&url);
	}
}

/* Row by row: the text, and a word of what is said about it. */
static void a_url_that_cannot_be_is_refused_with_a_remedy(void **state)
{
	static const char *const rows[][2] = {
		{ "", "begins with redis://" },
		{ SECRET, "begins with redis://" },
		{ "ftp://" SECRET, "begins with redis://" },
		{ "REDIS://" SECRET, "begins with redis://" },
		{ "rediss://host/" SECRET, "stunnel" },
		{ "redis://me:" SECRET "@host", "KILN_REMOTE_CREDENTIALS" },
		{ "redis://:" SECRET "@host/0", "KILN_REMOTE_CREDENTIALS" },
		{ "http://" SECRET "@host", "KILN_REMOTE_CREDENTIALS" },
		{ "s3://key:" SECRET "@bucket", "KILN_REMOTE_CREDENTIALS" },
		{ "unix:/" SECRET "@", "KILN_REMOTE_CREDENTIALS" },
		{ "redis://:" SECRET, "no host" },
		{ "redis://", "no host" },
		{ "redis://host:" SECRET, "port" },
		{ "redis://host:0", "port" },
		{ "redis://host:65536", "port" },
		{ "redis://host:99999999999999999999", "port" },
		{ "redis://host/" SECRET, "database" },
		{ "redis://host/-1", "database" },
		{ "redis://host?password=" SECRET, "`?`" },
		{ "redis://ho^st", "host" },
		{ "redis://[zz]", "between" },
		{ "redis://[::1", "between" },
		{ "unix:run/" SECRET, "begins with /" },
		{ "unix://" SECRET "?password=x", "?db=" },
		{ "unix:/run/x?db=" SECRET, "database" },
		{ "unix:/run/%zz" SECRET, "two digits" },
		{ "unix:/run/%00" SECRET, "two digits" },
		{ "unix:/12345678901234567890123456789012345678901234567890"
		  "12345678901234567890123456789012345678901234567890123456"
		  "7890",
		  "107" },
		{ "http://host/?token=" SECRET, "`?`" },
		{ "http://host?" SECRET, "`?`" },
		{ "http://host/a//" SECRET, "empty" },
		{ "http://host/../" SECRET, "`..`" },
		{ "http://host/./" SECRET, "`.`" },
		{ "http://host/%2e%2e/" SECRET, "`..`" },
		{ "http://host/a/.%2E/" SECRET, "`..`" },
		{ "https://host/a/%2e/" SECRET, "`.`" },
		{ "http://host/a%2f..%2f" SECRET, "`..`" },
		{ "http://host/a%2F/" SECRET, "empty" },
		{ "http://host/%zz" SECRET, "two digits" },
		{ "http://host/%00" SECRET, "two digits" },
		{ "http://host/" SECRET "%2", "two digits" },
		{ "http://host/<" SECRET, "%XX" },
		{ "http://host/ " SECRET, "blank" },
		{ "http://h\xc3\xb6st/" SECRET, "xn--" },
		{ "http://host/\r\n" SECRET, "blank" },
		{ "s3://ab", "bucket" },
		{ "s3://Bucket/" SECRET, "bucket" },
		{ "s3://bucket/a%20" SECRET, "%XX" },
		{ "s3://bucket/a/?" SECRET, "`?`" },
	};
	struct url url;
	char why[512];

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		assert_int_equal(
			ki_url_parse(rows[i][0], &url, why, sizeof(why)),
			KILN_E_INVALID);
		if (!strstr(why, rows[i][1]))
			fail_msg("%s: %s", rows[i][0], why);
		assert_null(strstr(why, SECRET));
	}
}

static void a_reason_fits_into_any_room(void **state)
{
	char why[64];
	struct url url;

	for (size_t size = 1; size < sizeof(why); size++) {
		memset(why, 'x', sizeof(why));
		assert_int_equal(
			ki_url_parse("redis://host:x", &url, why, size),
			KILN_E_INVALID);
		assert_true(strlen(why) < size);
		assert_int_equal(why[size], 'x');
	}
}

static void a_url_is_below_what_names_its_server_and_path(void **state)
{
	static const struct {
		const char *url, *prefix;
		int is_below;
	} rows[] = {
		{ "http://host/a", "http://host", 1 },
		{ "http://host:80/a", "http://HOST/a", 1 },
		{ "http://host/a/b", "http://host/a", 1 },
		{ "http://host/a/b", "http://host/a/", 1 },
		{ "http://host/ab", "http://host/a", 0 },
		{ "http://host.evil/a", "http://host", 0 },
		{ "http://host:8080/a", "http://host", 0 },
		{ "https://host/a", "http://host", 0 },
		{ "http://host/", "http://host/a", 0 },
		{ "redis://host/3", "redis://host", 1 },
		{ "redis://host:6380", "redis://host", 0 },
		{ "unix:/run/a.sock?db=1", "unix:/run/a.sock", 1 },
		{ "unix:/run/a.sock2", "unix:/run/a.sock", 0 },
		{ "s3://bucket/a/b", "s3://bucket/a", 1 },
		{ "s3://bucket/ab", "s3://bucket/a", 0 },
		{ "s3://bucket2", "s3://bucket", 0 },
	};
	struct url url, prefix;
	char why[256];

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		assert_int_equal(ki_url_parse(rows[i].url, &url, why, 256), 0);
		assert_int_equal(
			ki_url_parse(rows[i].prefix, &prefix, why, 256), 0);
		if (ki_url_is_below(&url, &prefix) != rows[i].is_below)
			fail_msg("%s, %s", rows[i].url, rows[i].prefix);
		ki_url_fini(&url);
		ki_url_fini(&prefix);
	}
}

/* ---- Levels ------------------------------------------------------------- */

static void levels_have_shards_and_words(void **state)
{
	struct levels levels;
	struct level *level;
	char why[256];

	if (ki_levels_parse(" redis://a,redis://b#ttl=7d,max-item=1M\t"
			    "https://c/x#read-only,no-lease,zstd=0,ca=/ca.pem,"
			    "timeout=50\n",
			    &levels, why, sizeof(why)))
		fail_msg("%s", why);
	assert_int_equal(levels.n_levels, 2);
	level = &levels.levels[0];
	assert_int_equal(level->n_urls, 2);
	assert_string_equal(level->urls[0], "redis://a");
	assert_string_equal(level->urls[1], "redis://b");
	assert_int_equal(level->ttl_s, 7 * 24 * 3600);
	assert_int_equal(level->item_bytes_max, 1 << 20);
	assert_int_equal(level->zstd_level, 1);
	assert_int_equal(level->timeout_ms, 2000);
	assert_false(level->is_read_only || level->has_no_lease);
	assert_null(level->ca_file);
	level = &levels.levels[1];
	assert_int_equal(level->n_urls, 1);
	assert_int_equal(level->ttl_s, 0);
	assert_int_equal(level->item_bytes_max, 64 << 20);
	assert_int_equal(level->zstd_level, 0);
	assert_int_equal(level->timeout_ms, 50);
	assert_true(level->is_read_only && level->has_no_lease);
	assert_string_equal(level->ca_file, "/ca.pem");
	ki_levels_fini(&levels);
	if (ki_levels_parse("unix:/a,redis://b#ttl=60", &levels, why,
			    sizeof(why)))
		fail_msg("%s", why);
	assert_int_equal(levels.levels[0].ttl_s, 60);
	ki_levels_fini(&levels);
}

static void levels_that_cannot_be_are_refused_by_number(void **state)
{
	static const char *const rows[][2] = {
		{ "", "no URL" },
		{ " \t\n", "no URL" },
		{ "redis://a redis://b:x", "level 2: redis://b: " },
		{ "redis://a,", "level 1: " },
		{ "redis://a,redis://:" SECRET "@b", "CREDENTIALS" },
		{ "redis://a:b," SECRET "@b", "level 1: redis://a: " },
		{ "#ttl=1", "level 1: " },
		{ "redis://a#", "read-only" },
		{ "redis://a#ttl", "is not known" },
		{ "redis://a#flat", "#flat is not known" },
		{ "redis://a#password=" SECRET, "#password= is not known" },
		{ "redis://a#x1" SECRET, "# is not known" },
		{ "redis://a#read-only=1", "is not known" },
		{ "redis://a#ttl=" SECRET, "7d" },
		{ "redis://a#ttl=0", "7d" },
		{ "redis://a#ttl=-1", "7d" },
		{ "http://a/" SECRET "#ttl=7d", "#ttl= is for Redis" },
		{ "https://a#ttl=7d,read-only", "lifecycle rule" },
		{ "redis://a s3://bucket#zstd=0,ttl=7d", "level 2: #ttl=" },
		{ "redis://a,http://b#ttl=7d", "level 1: #ttl= is for Redis" },
		{ "s3://bucket#ttl=soon", "7d" },
		{ "redis://a#max-item=0", "64M" },
		{ "redis://a#max-item=2G", "64M" },
		{ "redis://a#zstd=20", "19" },
		{ "redis://a#zstd=x", "19" },
		{ "redis://a#ca=ca.pem", "from the root" },
		{ "redis://a#timeout=0", "milliseconds" },
		{ "redis://a#timeout=600001", "milliseconds" },
		{ "redis://1 redis://2 redis://3 redis://4 redis://5 redis://6 "
		  "redis://7 redis://8 redis://9",
		  "at most 8" },
	};
	struct levels levels;
	char why[512];

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		assert_int_equal(
			ki_levels_parse(rows[i][0], &levels, why, sizeof(why)),
			KILN_E_INVALID);
		if (!strstr(why, rows[i][1]))
			fail_msg("%s: %s", rows[i][0], why);
		assert_null(strstr(why, SECRET));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_url_is_taken_apart),
		cmocka_unit_test(a_url_that_cannot_be_is_refused_with_a_remedy),
		cmocka_unit_test(a_reason_fits_into_any_room),
		cmocka_unit_test(a_url_is_below_what_names_its_server_and_path),
		cmocka_unit_test(levels_have_shards_and_words),
		cmocka_unit_test(levels_that_cannot_be_are_refused_by_number),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
