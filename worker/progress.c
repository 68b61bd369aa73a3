/* SPDX-License-Identifier: MIT */

/* One event, one line, one write: readers see whole lines. */

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "worker.h"

#define TEXT_BYTES_MAX 300

/* One line of what a compiler said in many. */
static void flatten(const char *text, char out[TEXT_BYTES_MAX])
{
	size_t n = 0;

	for (; *text && n < TEXT_BYTES_MAX - 1; text++) {
		char c = (unsigned char)*text < ' ' ? ' ' : *text;

		if (c != ' ' || (n && out[n - 1] != ' '))
			out[n++] = c;
	}
	out[n] = '\0';
}

static void add_words(struct ki_bytes *line, const struct ki_event *event,
		      const char *text)
{
	int i;

	ki_bytes_add_string(line, event->event);
	if (event->name)
		ki_bytes_printf(line, " %s", event->name);
	if (event->reason)
		ki_bytes_printf(line, " %s", event->reason);
	for (i = 0; i < KI_EVENT_NUMBERS && event->number_names[i]; i++)
		ki_bytes_printf(line, " %llu",
				(unsigned long long)event->numbers[i]);
	if (*text)
		ki_bytes_printf(line, " %s", text);
}

/* The writer's lines as one: a line's end inside a string is escaped. */
static void add_joined(struct ki_bytes *line, const struct ki_bytes *lines)
{
	size_t i = 0;

	while (i < lines->size) {
		uint8_t c = lines->data[i++];

		if (c != '\n') {
			ki_bytes_add_u8(line, c);
			continue;
		}
		while (i < lines->size && lines->data[i] == ' ')
			i++;
		if (line->size && line->data[line->size - 1] == ',')
			ki_bytes_add_u8(line, ' ');
	}
}

static void add_object(struct ki_bytes *line, const struct ki_event *event,
		       const char *text)
{
	struct ki_bytes lines;
	struct ki_json json;
	int i;

	ki_bytes_init(&lines);
	ki_json_begin(&json, &lines);
	ki_json_object(&json, NULL);
	ki_json_string(&json, "event", event->event);
	if (event->name)
		ki_json_string(&json, "name", event->name);
	if (event->reason)
		ki_json_string(&json, "reason", event->reason);
	for (i = 0; i < KI_EVENT_NUMBERS && event->number_names[i]; i++)
		ki_json_number(&json, event->number_names[i],
			       event->numbers[i]);
	if (*text)
		ki_json_string(&json, "text", text);
	ki_json_end(&json);
	if (lines.failed)
		line->failed = lines.failed;
	else
		add_joined(line, &lines);
	ki_bytes_fini(&lines);
}

static int write_all(int fd, const uint8_t *data, size_t size)
{
	while (size) {
		ssize_t n = write(fd, data, size);

		if (n < 0 && errno != EINTR)
			return -errno;
		if (n > 0) {
			data += n;
			size -= (size_t)n;
		}
	}
	return 0;
}

void ki_progress_emit(struct ki_progress *progress,
		      const struct ki_event *event)
{
	char text[TEXT_BYTES_MAX];
	struct ki_bytes line;

	if (progress->fd < 0)
		return;
	flatten(event->text ? event->text : "", text);
	ki_bytes_init(&line);
	if (progress->json)
		add_object(&line, event, text);
	else
		add_words(&line, event, text);
	ki_bytes_add_u8(&line, '\n');
	if (!line.failed && write_all(progress->fd, line.data, line.size))
		progress->fd = -1;
	ki_bytes_fini(&line);
}
