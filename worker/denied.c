/* SPDX-License-Identifier: MIT */

/*
 * The list of keys whose builds crashed or took too long in a rebuild, as text in
 * the spool (docs/formats/job.md), so that people can read it:
 *
 *	kiln-denied 1 CHECK
 *	DIGEST SECONDS REASON TEXT
 *	...
 *
 * A key has the compiler in it: with another driver nothing is denied.
 */

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "worker.h"

#define NAME	   "rebuild.denied"
#define MAGIC	   "kiln-denied 1 "
#define DIGITS	   (2 * KILN_DIGEST_BYTES)
#define LINE_BYTES (DIGITS + 24 + 16 + KI_DENIED_TEXT_BYTES)
#define BYTES_MAX  ((size_t)64 << 10)

static_assert(KI_DENIED_MAX * LINE_BYTES + 64 <= BYTES_MAX, "bounded");

/* ---- Reading ----------------------------------------------------------- */

static int parse_digest(const char *text, uint8_t out[KILN_DIGEST_BYTES])
{
	unsigned byte;
	size_t i;

	if (strspn(text, "0123456789abcdef") != DIGITS)
		return 0;
	for (i = 0; i < KILN_DIGEST_BYTES; i++) {
		if (sscanf(text + 2 * i, "%2x", &byte) != 1)
			return 0;
		out[i] = (uint8_t)byte;
	}
	return 1;
}

static int parse_line(const char *line, struct ki_denied_row *out_row)
{
	char digits[DIGITS + 1];
	int at = 0;

	*out_row = (struct ki_denied_row){ .when = 0 };
	if (sscanf(line, "%32[0-9a-f] %" SCNu64 " %15[a-z] %n", digits,
		   &out_row->when, out_row->reason, &at) != 3 ||
	    !parse_digest(digits, out_row->digest))
		return 0;
	snprintf(out_row->text, sizeof(out_row->text), "%s", line + at);
	return 1;
}

static void parse(char *text, struct ki_denied *denied)
{
	char check[32], *line = strchr(text, '\n'), *rest;

	if (!line || strncmp(text, MAGIC, strlen(MAGIC)))
		return;
	*line++ = '\0';
	snprintf(check, sizeof(check), "%016" PRIx64,
		 ki_xxh3_64(line, strlen(line)));
	if (strcmp(text + strlen(MAGIC), check))
		return;
	for (line = strtok_r(line, "\n", &rest);
	     line && denied->n < KI_DENIED_MAX;
	     line = strtok_r(NULL, "\n", &rest))
		if (parse_line(line, &denied->rows[denied->n]))
			denied->n++;
}

void ki_denied_read(struct ki_denied *denied, const char *spool)
{
	char path[KI_PATH_MAX];
	void *data;
	size_t size;

	denied->n = 0;
	if (ki_path_join(path, spool, NAME) ||
	    ki_read_file(&ki_sys_posix, path, BYTES_MAX, &data, &size))
		return;
	parse(data, denied);
	free(data);
}

const struct ki_denied_row *ki_denied_find(
	const struct ki_denied *denied, const uint8_t digest[KILN_DIGEST_BYTES])
{
	size_t i;

	for (i = 0; i < denied->n; i++)
		if (!memcmp(denied->rows[i].digest, digest, KILN_DIGEST_BYTES))
			return &denied->rows[i];
	return NULL;
}

/* ---- Changing ---------------------------------------------------------- */

void ki_denied_remove(struct ki_denied *denied,
		      const uint8_t digest[KILN_DIGEST_BYTES])
{
	const struct ki_denied_row *row = ki_denied_find(denied, digest);
	size_t i;

	if (!row)
		return;
	i = (size_t)(row - denied->rows);
	denied->n--;
	memmove(denied->rows + i, denied->rows + i + 1,
		(denied->n - i) * sizeof(*row));
}

void ki_denied_add(struct ki_denied *denied, const struct ki_denied_row *row)
{
	ki_denied_remove(denied, row->digest);
	if (denied->n == KI_DENIED_MAX)
		ki_denied_remove(denied, denied->rows[0].digest);
	denied->rows[denied->n++] = *row;
}

/* A line stays one. */
static void add_text(struct ki_bytes *bytes, const char *text)
{
	for (; *text; text++)
		ki_bytes_add_u8(bytes, (unsigned char)*text < ' '
					       ? ' '
					       : (uint8_t)*text);
	ki_bytes_add_u8(bytes, '\n');
}

static void encode(const struct ki_denied *denied, struct ki_bytes *bytes)
{
	struct ki_bytes lines;
	char digits[DIGITS + 1];
	size_t i;

	ki_bytes_init(&lines);
	for (i = 0; i < denied->n; i++) {
		const struct ki_denied_row *row = &denied->rows[i];

		ki_hex(row->digest, KILN_DIGEST_BYTES, digits);
		ki_bytes_printf(&lines, "%s %" PRIu64 " %s ", digits, row->when,
				row->reason);
		add_text(&lines, row->text);
	}
	ki_bytes_printf(bytes, MAGIC "%016" PRIx64 "\n",
			ki_xxh3_64(lines.data, lines.size));
	ki_bytes_add(bytes, lines.data, lines.size);
	if (lines.failed)
		bytes->failed = lines.failed;
	ki_bytes_fini(&lines);
}

int ki_denied_write(const struct ki_denied *denied, const char *spool)
{
	const struct ki_sys *sys = &ki_sys_posix;
	char path[KI_PATH_MAX], passing[KI_PATH_MAX];
	struct ki_bytes bytes;
	int fd, err = ki_path_join(path, spool, NAME);

	if (err || ki_path_join(passing, spool, NAME ".tmp"))
		return -ENAMETOOLONG;
	ki_bytes_init(&bytes);
	encode(denied, &bytes);
	err = bytes.failed;
	/* Who died in the middle left it. */
	(void)sys->unlink(sys, passing);
	fd = sys->open(sys, passing,
		       KI_OPEN_WRITE | KI_OPEN_CREATE | KI_OPEN_EXCLUSIVE |
			       KI_OPEN_NOFOLLOW,
		       0600);
	if (fd < 0)
		err = fd;
	if (!err)
		err = ki_pwrite_all(sys, fd, bytes.data, bytes.size, 0);
	if (fd >= 0 && sys->close(sys, fd) && !err)
		err = -EIO;
	if (!err)
		err = sys->rename(sys, passing, path);
	if (err)
		(void)sys->unlink(sys, passing);
	ki_bytes_fini(&bytes);
	return err;
}
