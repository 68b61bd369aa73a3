/* SPDX-License-Identifier: MIT */

#include "base/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int shift_of(char unit)
{
	switch (unit) {
	case '\0':
		return 0;
	case 'k':
	case 'K':
		return 10;
	case 'm':
	case 'M':
		return 20;
	case 'g':
	case 'G':
		return 30;
	case 't':
	case 'T':
		return 40;
	default:
		return -1;
	}
}

/* The number that `text` begins with, and what follows it. */
static int take_number(const char **text, uint64_t *out_value)
{
	uint64_t value = 0;

	if (**text < '0' || **text > '9')
		return -EINVAL;
	for (; **text >= '0' && **text <= '9'; ++*text) {
		unsigned digit = (unsigned)(**text - '0');
		if (value > (UINT64_MAX - digit) / 10)
			return -ERANGE;
		value = value * 10 + digit;
	}
	*out_value = value;
	return 0;
}

int ki_parse_size(const char *text, uint64_t *out_bytes)
{
	uint64_t value;
	int shift, err = take_number(&text, &value);

	if (err)
		return err;
	shift = shift_of(*text);
	if (shift < 0 || (*text && text[1]))
		return -EINVAL;
	if (value > UINT64_MAX >> shift)
		return -ERANGE;
	*out_bytes = value << shift;
	return 0;
}

int ki_parse_age(const char *text, uint64_t *out_seconds)
{
	static const char letters[] = "smhdw";
	static const uint64_t seconds[] = { 1, 60, 3600, 86400, 604800 };
	const char *letter = letters;
	uint64_t value;
	int err = take_number(&text, &value);

	if (err)
		return err;
	if (*text)
		letter = strchr(letters, *text);
	if (!letter || (*text && text[1]))
		return -EINVAL;
	if (value > UINT64_MAX / seconds[letter - letters])
		return -ERANGE;
	*out_seconds = value * seconds[letter - letters];
	return 0;
}

int ki_parse_bool(const char *text, int *out_value)
{
	static const char *const yes[] = { "1", "true", "on" };
	static const char *const no[] = { "0", "false", "off" };
	size_t i;

	for (i = 0; i < 3; i++) {
		if (!strcmp(text, yes[i])) {
			*out_value = 1;
			return 0;
		}
		if (!strcmp(text, no[i])) {
			*out_value = 0;
			return 0;
		}
	}
	return -EINVAL;
}

const char *ki_format_size(uint64_t bytes, char *out, size_t size)
{
	static const char *const units[] = { "KiB", "MiB", "GiB", "TiB" };
	double value = (double)bytes;
	int i = -1;

	if (bytes < 1024) {
		snprintf(out, size, "%" PRIu64 " bytes", bytes);
		return out;
	}
	while (value >= 1023.95 && i < 3) {
		value /= 1024;
		i++;
	}
	snprintf(out, size, value < 9.995 ? "%.2f %s" : "%.1f %s", value,
		 units[i < 0 ? 0 : i]);
	return out;
}

const char *ki_format_age(uint64_t seconds, char *out, size_t size)
{
	if (seconds < 60)
		snprintf(out, size, "just now");
	else if (seconds < 3600)
		snprintf(out, size, "%" PRIu64 " min ago", seconds / 60);
	else if (seconds < 2 * 86400)
		snprintf(out, size, "%" PRIu64 " h ago", seconds / 3600);
	else
		snprintf(out, size, "%" PRIu64 " days ago", seconds / 86400);
	return out;
}

const char *ki_format_duration(uint64_t ns, char *out, size_t size)
{
	double s = (double)ns / 1e9;

	if (ns < 1000000)
		snprintf(out, size, "%.1f us", (double)ns / 1e3);
	else if (s < 1)
		snprintf(out, size, "%.1f ms", s * 1e3);
	else if (s < 120)
		snprintf(out, size, "%.1f s", s);
	else if (s < 7200)
		snprintf(out, size, "%.1f min", s / 60);
	else
		snprintf(out, size, "%.1f h", s / 3600);
	return out;
}

/* ---- Variables ------------------------------------------------------------- */

const char *ki_find_variable(const char *const *list, const char *name)
{
	const size_t size = strlen(name);

	for (; list && *list; list++)
		if (!strncmp(*list, name, size) && (*list)[size] == '=')
			return *list + size + 1;
	return NULL;
}

char *ki_tame_text(char *text)
{
	for (char *c = text; *c; c++)
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			*c = '?';
	return text;
}
