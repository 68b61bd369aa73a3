/* SPDX-License-Identifier: MIT */

#include "progress.h"

#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/text.h"
#include "out.h"
#include "sys/sys.h"

#define DRAW_NS	     100000000u
#define RATE_AFTER   300000000u /* before, a rate says nothing */
#define BAR_MIN	     8
#define BAR_MAX	     32
#define COLUMNS_ELSE 80

static uint64_t now_ns(void)
{
	return ki_sys_posix.monotonic_ns(&ki_sys_posix);
}

static int columns_of_stderr(void)
{
	struct winsize size;

	if (!ioctl(STDERR_FILENO, TIOCGWINSZ, &size) && size.ws_col)
		return size.ws_col;
	return COLUMNS_ELSE;
}

void ki_progress_begin(struct ki_progress *progress)
{
	*progress = (struct ki_progress){
		.is_shown = ki_out_has_progress(),
		.columns = columns_of_stderr(),
		.begun_ns = now_ns(),
	};
}

static void add_bar(struct ki_bytes *line, unsigned percent, int width)
{
	int full = (int)percent * width / 100, i;

	ki_bytes_add_u8(line, '[');
	for (i = 0; i < width; i++)
		ki_bytes_add_u8(line, i < full ? '=' : i == full ? '>' : ' ');
	ki_bytes_add_u8(line, ']');
}

/* "  61 %  412 MiB of 675 MiB  1.2 GiB/s  0.2 s left", less where it is
   narrow. */
static int describe(char *out, size_t size, int columns, uint64_t done,
		    uint64_t total, uint64_t spent_ns)
{
	double rate = (double)done * 1e9 / (double)(spent_ns ? spent_ns : 1);
	char read[32], all[32], speed[32] = "", left[32] = "";
	unsigned percent = (unsigned)((double)done * 100 / (double)total);
	int n;

	n = snprintf(out, size, " %3u %%", percent);
	if (columns < 40)
		return n;
	n += snprintf(out + n, size - (size_t)n, "  %s of %s",
		      ki_format_size(done, read, sizeof(read)),
		      ki_format_size(total, all, sizeof(all)));
	if (columns < 60 || spent_ns < RATE_AFTER || rate < 1)
		return n;
	ki_format_size((uint64_t)rate, speed, sizeof(speed));
	ki_format_duration((uint64_t)((double)(total - done) / rate * 1e9),
			   left, sizeof(left));
	return n + snprintf(out + n, size - (size_t)n, "  %s/s  %s left", speed,
			    left);
}

static void draw(const struct ki_progress *progress, uint64_t done,
		 uint64_t total)
{
	struct ki_bytes line;
	char text[160];
	int room, used = describe(text, sizeof(text), progress->columns, done,
				  total, now_ns() - progress->begun_ns);

	room = progress->columns - used - 3;
	ki_bytes_init(&line);
	ki_bytes_add_u8(&line, '\r');
	if (room >= BAR_MIN)
		add_bar(&line, (unsigned)((double)done * 100 / (double)total),
			room < BAR_MAX ? room : BAR_MAX);
	ki_bytes_add_string(&line, text);
	ki_bytes_add_string(&line, "\033[K");
	if (!line.failed)
		dprintf(STDERR_FILENO, "%.*s", (int)line.size,
			(const char *)line.data);
	ki_bytes_fini(&line);
}

void ki_progress_step(void *arg, uint64_t done, uint64_t total)
{
	struct ki_progress *progress = arg;
	uint64_t now = now_ns();

	if (!progress->is_shown || !total ||
	    (progress->drawn_ns && now - progress->drawn_ns < DRAW_NS))
		return;
	progress->drawn_ns = now;
	draw(progress, done < total ? done : total, total);
}

void ki_progress_finish(struct ki_progress *progress)
{
	if (progress->drawn_ns)
		dprintf(STDERR_FILENO, "\r\033[K");
	progress->drawn_ns = 0;
}
