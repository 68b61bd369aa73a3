/* SPDX-License-Identifier: MIT */

#include "harness/harness.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "loop.h"

static void make_pipe(int out_fds[2])
{
	assert_int_equal(pipe2(out_fds, O_CLOEXEC | O_NONBLOCK), 0);
}

static void close_pipe(int fds[2])
{
	(void)close(fds[0]);
	(void)close(fds[1]);
}

static void stop(void *arg)
{
	loop_stop(arg);
}

/* ---- Timers -------------------------------------------------------------- */

struct diary {
	struct loop *loop;
	char text[256];
	struct loop_timer *other;
};

struct entry {
	struct diary *diary;
	char letter;
};

static void write_letter(void *arg)
{
	struct entry *entry = arg;
	size_t size = strlen(entry->diary->text);

	entry->diary->text[size] = entry->letter;
	entry->diary->text[size + 1] = '\0';
}

static void timers_are_called_in_the_order_of_their_times(void **state)
{
	static const struct {
		char letter;
		uint32_t ms;
	} rows[] = { { 'd', 9 }, { 'a', 0 }, { 'c', 6 },
		     { 'b', 3 }, { 'e', 9 }, { 'f', 12 } };
	struct diary diary = { .loop = loop_new() };
	struct entry entries[6];

	for (size_t i = 0; i < 6; i++) {
		entries[i] = (struct entry){ &diary, rows[i].letter };
		assert_non_null(loop_after(diary.loop, rows[i].ms, write_letter,
					   &entries[i]));
	}
	loop_after(diary.loop, 20, stop, diary.loop);
	assert_int_equal(loop_run(diary.loop), 0);
	assert_string_equal(diary.text, "abcdef");
	loop_free(diary.loop);
}

static void timers_that_are_cancelled_in_any_order_are_not_called(void **state)
{
	struct diary diary = { .loop = loop_new() };
	struct loop_timer *timers[200];
	struct entry entry = { &diary, 'x' };

	srand(7);
	for (int i = 0; i < 200; i++)
		timers[i] = loop_after(diary.loop, (uint32_t)(rand() % 5),
				       write_letter, &entry);
	for (int i = 0; i < 200; i++) {
		int j = i + rand() % (200 - i);
		struct loop_timer *timer = timers[j];

		timers[j] = timers[i];
		if (i < 195)
			loop_cancel(timer);
	}
	loop_after(diary.loop, 8, stop, diary.loop);
	loop_run(diary.loop);
	assert_string_equal(diary.text, "xxxxx");
	loop_cancel(NULL);
	loop_free(diary.loop);
}

static void timers_that_are_moved_are_called_at_their_new_time(void **state)
{
	static const uint32_t ms[] = { 2, 10, 4, 6, 8 },
			      moved_ms[] = { 7, 1, 5, 9, 3 };
	struct diary diary = { .loop = loop_new() };
	struct loop_timer *timers[5];
	struct entry entries[5];

	loop_step(diary.loop);
	for (size_t i = 0; i < 5; i++) {
		entries[i] = (struct entry){ &diary, (char)('a' + i) };
		timers[i] = loop_after(diary.loop, ms[i], write_letter,
				       &entries[i]);
	}
	for (size_t i = 0; i < 5; i++)
		loop_move(timers[i], moved_ms[i]);
	loop_after(diary.loop, 20, stop, diary.loop);
	assert_int_equal(loop_run(diary.loop), 0);
	assert_string_equal(diary.text, "becad");
	loop_free(diary.loop);
}

struct mover {
	struct loop *loop;
	struct loop_timer *other;
	unsigned n_calls;
};

/* The same once more, without an end, but for the other timer. */
static void move_other(void *arg)
{
	struct mover *mover = arg;

	loop_after(mover->loop, 0, move_other, mover);
	if (++mover->n_calls == 1)
		loop_move(mover->other, 0);
}

/* As one that is set by a timer. */
static void a_timer_that_is_moved_by_a_timer_is_called_in_the_next_turn(
	void **state)
{
	struct mover mover = { .loop = loop_new() };

	loop_step(mover.loop);
	mover.other = loop_after(mover.loop, 60000, stop, mover.loop);
	loop_after(mover.loop, 0, move_other, &mover);
	assert_int_equal(loop_run(mover.loop), 0);
	assert_int_equal(mover.n_calls, 2);
	loop_free(mover.loop);
}

static void cancel_other(void *arg)
{
	struct diary *diary = arg;

	loop_cancel(diary->other);
	loop_after(diary->loop, 2, stop, diary->loop);
}

static void a_timer_cancels_another_that_is_due_at_once(void **state)
{
	struct diary diary = { .loop = loop_new() };
	struct entry entry = { &diary, 'x' };

	loop_after(diary.loop, 0, cancel_other, &diary);
	diary.other = loop_after(diary.loop, 0, write_letter, &entry);
	loop_run(diary.loop);
	assert_string_equal(diary.text, "");
	loop_free(diary.loop);
}

static void again(void *arg)
{
	struct diary *diary = arg;

	loop_after(diary->loop, 0, again, diary);
}

static void take_byte(void *arg, int fd, int events)
{
	char byte;

	assert_int_equal(read(fd, &byte, 1), 1);
	loop_stop(arg);
}

static void a_timer_that_sets_itself_again_starves_nobody(void **state)
{
	struct diary diary = { .loop = loop_new() };
	int fds[2];

	make_pipe(fds);
	loop_after(diary.loop, 0, again, &diary);
	loop_watch(diary.loop, fds[0], LOOP_IN, take_byte, diary.loop);
	assert_int_equal(write(fds[1], "x", 1), 1);
	loop_run(diary.loop);
	loop_free(diary.loop);
	close_pipe(fds);
}

/* ---- Soon ---------------------------------------------------------------- */

struct repeat {
	struct loop *loop;
	struct loop_soon soon;
	unsigned n_calls, n_turns;
};

static void call_again(void *arg)
{
	struct repeat *repeat = arg;

	if (++repeat->n_calls < 100)
		loop_soon(repeat->loop, &repeat->soon);
}

static void count_turn(void *arg)
{
	struct repeat *repeat = arg;

	/* Of those that were called so far each had a turn of its own. */
	assert_int_equal(repeat->n_calls, repeat->n_turns);
	if (++repeat->n_turns == 50)
		loop_stop(repeat->loop);
	else
		loop_after(repeat->loop, 0, count_turn, repeat);
}

static void what_is_soon_is_called_once_in_its_order_and_not_if_cancelled(
	void **state)
{
	struct diary diary = { .loop = loop_new() };
	struct entry entries[] = { { &diary, 'a' },
				   { &diary, 'b' },
				   { &diary, 'c' },
				   { &diary, 'd' } };
	struct loop_soon soon[4];

	for (size_t i = 0; i < 4; i++) {
		loop_soon_init(&soon[i], write_letter, &entries[i]);
		loop_soon_cancel(&soon[i]);
		loop_soon(diary.loop, &soon[i]);
	}
	loop_soon(diary.loop, &soon[0]);
	loop_soon_cancel(&soon[2]);
	loop_after(diary.loop, 5, stop, diary.loop);
	assert_int_equal(loop_run(diary.loop), 0);
	assert_string_equal(diary.text, "abd");
	loop_free(diary.loop);
}

static void what_is_soon_again_and_again_lets_others_go_on(void **state)
{
	struct repeat repeat = { .loop = loop_new() };

	loop_soon_init(&repeat.soon, call_again, &repeat);
	loop_soon(repeat.loop, &repeat.soon);
	loop_after(repeat.loop, 0, count_turn, &repeat);
	assert_int_equal(loop_run(repeat.loop), 0);
	assert_in_range(repeat.n_calls, 49, 51);
	loop_soon_cancel(&repeat.soon);
	loop_free(repeat.loop);
}

/* It is not lost. */
static void what_is_soon_after_a_stop_is_called_when_the_loop_goes_on(
	void **state)
{
	struct diary diary = { .loop = loop_new() };
	struct entry entry = { &diary, 'a' };
	struct loop_soon first, second;

	loop_soon_init(&first, stop, diary.loop);
	loop_soon_init(&second, write_letter, &entry);
	loop_soon(diary.loop, &first);
	loop_soon(diary.loop, &second);
	assert_int_equal(loop_run(diary.loop), 0);
	assert_string_equal(diary.text, "");
	loop_soon(diary.loop, &first);
	assert_int_equal(loop_run(diary.loop), 0);
	assert_string_equal(diary.text, "a");
	loop_free(diary.loop);
}

/* ---- Descriptors --------------------------------------------------------- */

struct pair {
	struct loop *loop;
	int fds[2][2];
	struct loop_fd *watched[2];
	int n_calls;
};

/* Whoever is called first removes both and closes everything. */
static void remove_both(void *arg, int fd, int events)
{
	struct pair *pair = arg;

	pair->n_calls++;
	for (int i = 0; i < 2; i++) {
		loop_unwatch(pair->watched[i]);
		close_pipe(pair->fds[i]);
	}
	loop_after(pair->loop, 2, stop, pair->loop);
}

static void what_a_callback_removes_is_not_called_any_more(void **state)
{
	struct pair pair = { .loop = loop_new() };

	for (int i = 0; i < 2; i++) {
		make_pipe(pair.fds[i]);
		pair.watched[i] = loop_watch(pair.loop, pair.fds[i][0], LOOP_IN,
					     remove_both, &pair);
		assert_int_equal(write(pair.fds[i][1], "x", 1), 1);
	}
	loop_run(pair.loop);
	assert_int_equal(pair.n_calls, 1);
	loop_unwatch(NULL);
	loop_free(pair.loop);
}

static void a_number_used_again_is_not_taken_from_its_new_owner(void **state)
{
	struct loop *loop = loop_new();
	struct loop_fd *old, *new;
	int fds[2], others[2];

	make_pipe(fds);
	old = loop_watch(loop, fds[0], LOOP_IN, take_byte, loop);
	assert_non_null(old);
	close_pipe(fds);
	make_pipe(others);
	assert_int_equal(others[0], fds[0]);
	new = loop_watch(loop, others[0], LOOP_IN, take_byte, loop);
	assert_non_null(new);
	loop_change(old, LOOP_OUT);
	loop_unwatch(old);
	assert_int_equal(write(others[1], "x", 1), 1);
	loop_run(loop);
	loop_unwatch(new);
	loop_free(loop);
	close_pipe(others);
}

static void count(void *arg, int fd, int events)
{
	++*(int *)arg;
}

static void a_hang_up_is_told_to_who_waits_and_to_no_other(void **state)
{
	static const struct {
		int events;
		int is_told;
	} rows[] = { { 0, 0 }, { LOOP_IN, 1 }, { LOOP_HUP, 1 } };

	for (size_t i = 0; i < 3; i++) {
		struct loop *loop = loop_new();
		struct loop_fd *watched;
		int fds[2], n_calls = 0;

		make_pipe(fds);
		watched = loop_watch(loop, fds[0], LOOP_IN, count, &n_calls);
		loop_change(watched, rows[i].events);
		(void)close(fds[1]);
		loop_after(loop, 2, stop, loop);
		loop_run(loop);
		assert_int_equal(n_calls > 0, rows[i].is_told);
		loop_unwatch(watched);
		loop_free(loop);
		(void)close(fds[0]);
	}
}

/* ---- Steps --------------------------------------------------------------- */

static void stop_reading(void *arg, int fd, int events)
{
	char byte;

	assert_int_equal(read(fd, &byte, 1), 1);
	loop_stop(arg);
}

static void time_goes_by_steps_when_nothing_happens(void **state)
{
	struct loop *loop = loop_new();
	struct loop_fd *watched;
	uint64_t start_ns;
	int fds[2];

	make_pipe(fds);
	loop_step(loop);
	start_ns = loop_now_ns(loop);
	/* A day, exactly. */
	loop_after(loop, 86400000, stop, loop);
	assert_int_equal(loop_run(loop), 0);
	assert_int_equal(loop_now_ns(loop) - start_ns, 86400000000000);
	/* What happens takes none. */
	watched = loop_watch(loop, fds[0], LOOP_IN, stop_reading, loop);
	loop_after(loop, 1, stop, loop);
	assert_int_equal(write(fds[1], "", 1), 1);
	assert_int_equal(loop_run(loop), 0);
	assert_int_equal(loop_now_ns(loop) - start_ns, 86400000000000);
	assert_int_equal(loop_run(loop), 0);
	assert_int_equal(loop_now_ns(loop) - start_ns, 86400001000000);
	loop_unwatch(watched);
	loop_free(loop);
	close_pipe(fds);
}

static void a_file_that_cannot_be_waited_for_is_refused(void **state)
{
	struct loop *loop = loop_new();
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

	assert_null(loop_watch(loop, fd, LOOP_IN, count, NULL));
	(void)close(fd);
	loop_free(loop);
	loop_free(NULL);
}

static void run_again(void *arg)
{
	(void)loop_run(arg);
}

static void the_loop_is_not_run_by_what_it_calls(void **state)
{
	struct loop *loop = loop_new();
	struct loop_soon soon;
	int status;
	pid_t pid;

	loop_soon_init(&soon, run_again, loop);
	loop_soon(loop, &soon);
	loop_after(loop, 5, stop, loop);
	pid = fork();
	if (!pid) {
		(void)!freopen("/dev/null", "w", stderr);
		(void)signal(SIGABRT, SIG_DFL);
		(void)loop_run(loop);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	loop_soon_cancel(&soon);
	loop_free(loop);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(timers_are_called_in_the_order_of_their_times),
		cmocka_unit_test(
			timers_that_are_cancelled_in_any_order_are_not_called),
		cmocka_unit_test(
			timers_that_are_moved_are_called_at_their_new_time),
		cmocka_unit_test(
			a_timer_that_is_moved_by_a_timer_is_called_in_the_next_turn),
		cmocka_unit_test(a_timer_cancels_another_that_is_due_at_once),
		cmocka_unit_test(a_timer_that_sets_itself_again_starves_nobody),
		cmocka_unit_test(
			what_is_soon_is_called_once_in_its_order_and_not_if_cancelled),
		cmocka_unit_test(
			what_is_soon_again_and_again_lets_others_go_on),
		cmocka_unit_test(
			what_is_soon_after_a_stop_is_called_when_the_loop_goes_on),
		cmocka_unit_test(
			what_a_callback_removes_is_not_called_any_more),
		cmocka_unit_test(
			a_number_used_again_is_not_taken_from_its_new_owner),
		cmocka_unit_test(
			a_hang_up_is_told_to_who_waits_and_to_no_other),
		cmocka_unit_test(time_goes_by_steps_when_nothing_happens),
		cmocka_unit_test(a_file_that_cannot_be_waited_for_is_refused),
		cmocka_unit_test(the_loop_is_not_run_by_what_it_calls),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
