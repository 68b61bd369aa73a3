/* SPDX-License-Identifier: MIT */

/*
 * kiln top: what happens in a store, on a terminal, once a second (live.c).
 * Attributes but no colours: NO_COLOR has nothing to switch off.
 *
 * Whoever sends SIGTERM or SIGHUP, or presses Ctrl-C, wishes it to leave, as with
 * q: the terminal is put back first.
 */

#include <errno.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "live.h"
#include "out.h"
#include "verbs.h"

#define INTERVAL_MS 1000

#if KI_HAS_NCURSES

#include <curses.h>

#include <term.h> /* after curses.h */

static volatile sig_atomic_t is_leaving;

static void leave(int signal)
{
	is_leaving = 1;
}

static void draw_lines(const struct ki_bytes *text, int n_lines)
{
	const char *line = (const char *)text->data, *end;

	for (int y = 0; y < n_lines && (end = strchr(line, '\n')); y++) {
		attrset(y == 0 ? A_BOLD : A_NORMAL);
		/* The heads of lists, each behind an empty line. */
		if (y > 1 && line[-2] == '\n')
			attrset(A_REVERSE);
		mvaddnstr(y, 0, line, (int)(end - line));
		line = end + 1;
	}
}

static void draw(const struct ki_live *live, int is_paused)
{
	struct ki_bytes text;

	ki_bytes_init(&text);
	if (LINES > 1)
		ki_live_frame(live, &text, COLS, LINES - 1);
	ki_bytes_add_u8(&text, 0);
	werase(stdscr);
	if (!text.failed)
		draw_lines(&text, LINES - 1);
	attrset(A_DIM);
	mvaddnstr(LINES - 1, 0,
		  is_paused ? "q quit  p go on  r count from now (paused)"
			    : "q quit  p pause  r count from now",
		  COLS - 1);
	attrset(A_NORMAL);
	wrefresh(stdscr);
	ki_bytes_fini(&text);
}

/* Until it is time for the next look, or a key wants something. */
static void take_key(struct ki_live *live, int *is_paused)
{
	switch (getch()) {
	case 'q':
	case 'Q':
	case 27: /* Escape */
		is_leaving = 1;
		break;
	case 'p':
	case ' ':
		*is_paused = !*is_paused;
		break;
	case 'r':
		ki_live_reset(live);
		break;
	}
}

/* The list of a large store takes its time: counters are shown before. */
static int look(struct ki_live *live)
{
	int status = ki_live_look(live);

	if (status)
		return status;
	draw(live, 0);
	return ki_live_survey(live);
}

static int go_on(struct ki_live *live)
{
	int is_paused = 0, status = KI_EXIT_OK;
	uint64_t due = 0, now;

	while (!is_leaving && !status) {
		now = ki_sys_posix.monotonic_ns(&ki_sys_posix);
		if (now >= due && !is_paused) {
			status = look(live);
			due = now + (uint64_t)INTERVAL_MS * 1000000;
		}
		if (status)
			break;
		draw(live, is_paused);
		now = ki_sys_posix.monotonic_ns(&ki_sys_posix);
		timeout(is_paused || now >= due
				? INTERVAL_MS
				: (int)((due - now) / 1000000) + 1);
		take_key(live, &is_paused);
	}
	return status;
}

/* Whether the cursor can be placed: on a dumb one ncurses would print blanks. */
static int can_draw(void)
{
	int error, can;

	if (setupterm(NULL, STDOUT_FILENO, &error) != OK)
		return 0;
	can = tigetstr("cup") != NULL;
	(void)del_curterm(cur_term);
	return can;
}

static SCREEN *open_screen(void)
{
	const char *term = getenv("TERM");
	SCREEN *screen;

	setlocale(LC_CTYPE, "");
	screen = can_draw() ? newterm(NULL, stdout, stdin) : NULL;
	if (!screen)
		ki_complain("top draws on a terminal, and this one (TERM=%s) "
			    "cannot be drawn on; 'kiln stats' tells once",
			    term ? term : "");
	return screen;
}

static int show(struct ki_live *live)
{
	const struct sigaction leaving = { .sa_handler = leave };
	SCREEN *screen = open_screen();
	int status;

	if (!screen)
		return KI_EXIT_UNAVAILABLE;
	(void)sigaction(SIGINT, &leaving, NULL);
	(void)sigaction(SIGTERM, &leaving, NULL);
	(void)sigaction(SIGHUP, &leaving, NULL);
	cbreak();
	noecho();
	keypad(stdscr, TRUE);
	curs_set(0);
	set_escdelay(50);
	status = go_on(live);
	endwin();
	delscreen(screen);
	return status;
}

#else

static int show(struct ki_live *live)
{
	ki_complain("this kiln was built without ncurses, which top draws "
		    "with; 'kiln stats' tells once");
	return KI_EXIT_UNAVAILABLE;
}

#endif

/* One interval, for scripts. */
static int measure(struct ki_live *live)
{
	struct ki_bytes out;
	int status = ki_live_look(live);

	if (!status) {
		(void)poll(NULL, 0, INTERVAL_MS);
		status = ki_live_look(live);
	}
	if (!status)
		status = ki_live_survey(live);
	if (status)
		return status;
	ki_bytes_init(&out);
	ki_live_json(live, &out);
	return ki_out_write(&out, KI_EXIT_OK);
}

int ki_verb_top(const struct ki_command *command)
{
	int is_json = ki_given(command, KI_OPTION_JSON);
	struct ki_settings settings = { 0 };
	struct ki_live live;
	int status;

	if (!is_json && (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))) {
		ki_complain("top draws on a terminal, and there is none; "
			    "'kiln stats' tells once, 'kiln top --json' of one "
			    "second");
		return KI_EXIT_UNAVAILABLE;
	}
	status = ki_live_init(&live, &settings);
	if (!status)
		status = ki_settings_load(&settings, command, KI_STORE_LOOK);
	if (!status)
		status = is_json ? measure(&live) : show(&live);
	ki_live_fini(&live);
	ki_settings_fini(&settings);
	return status;
}
