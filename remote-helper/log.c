/* SPDX-License-Identifier: MIT */

#include "log.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "sys/sys.h"

#define LINE_BYTES_MAX 512

/* A process has one log. */
static int log_fd = -1;

void log_open(const char *path)
{
	if (path)
		log_fd = ki_sys_posix.open(
			&ki_sys_posix, path,
			KI_OPEN_WRITE | KI_OPEN_CREATE | KI_OPEN_APPEND, 0600);
}

/* In one call: others write to the same file. */
void log_line(const char *format, ...)
{
	char line[LINE_BYTES_MAX];
	va_list list;
	int n, m;

	if (log_fd < 0)
		return;
	n = snprintf(line, sizeof(line), "kiln-remote[%d]: ", ki_process_id());
	va_start(list, format);
	m = vsnprintf(line + n, sizeof(line) - (size_t)n - 1, format, list);
	va_end(list);
	if (m < 0)
		return;
	n = (int)strlen(line);
	for (int i = 0; i < n; i++)
		if ((unsigned char)line[i] < ' ' || line[i] == 0x7f)
			line[i] = '?';
	line[n++] = '\n';
	(void)!write(log_fd, line, (size_t)n);
}
