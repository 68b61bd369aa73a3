/* SPDX-License-Identifier: MIT */

/* One line for each answer, without handles and addresses. */

#include <stdlib.h>
#include <string.h>

#include "random.h"

void say(struct thread *thread, const char *what, long long value)
{
	fprintf(thread->out, "%u %s: %lld\n", thread->step, what, value);
}

static void put_bytes(FILE *out, const unsigned char *bytes, size_t size)
{
	size_t i;

	for (i = 0; i < size && i < 200; i++)
		if (bytes[i] >= 32 && bytes[i] < 127)
			putc(bytes[i], out);
		else
			fprintf(out, "\\%02x", bytes[i]);
	if (size > 200)
		fprintf(out, "...");
}

void say_text(struct thread *thread, const char *what, const char *text)
{
	fprintf(thread->out, "%u %s: '", thread->step, what);
	put_bytes(thread->out, (const unsigned char *)text,
		  text ? strlen(text) : 0);
	fprintf(thread->out, "'\n");
}

/* A sum in place of what is long: the beginning alone could be equal. */
static unsigned sum(const unsigned char *bytes, size_t size)
{
	unsigned value = 0;
	size_t i;

	for (i = 0; i < size; i++)
		value = value * 31 + bytes[i];
	return value;
}

static void say_answer(struct thread *thread, const char *name, cl_int result,
		       const unsigned char *bytes, size_t told, int is_private)
{
	fprintf(thread->out, "%u %s: %d", thread->step, name, result);
	if (!result && is_private)
		fprintf(thread->out, " %s", told > 1 ? "some" : "none");
	else if (!result)
		fprintf(thread->out, " %zu/%08x ", told, sum(bytes, told));
	if (!result && !is_private)
		put_bytes(thread->out, bytes, told);
	putc('\n', thread->out);
}

void ask(struct thread *thread, const struct question *question,
	 const char *name, cl_uint what, int is_private)
{
	size_t room = 1 << 20, told = 0, told_now = 0;
	unsigned char *bytes = calloc(1, room);
	cl_int result;

	switch (roll(thread, 6)) {
	case 0:
		result = question->ask(question, what, 0, NULL, &told);
		fprintf(thread->out, "%u %s size: %d %zu\n", thread->step, name,
			result, is_private ? told > 1 : told);
		break;
	case 1:
		result = question->ask(question, what, roll(thread, 2), bytes,
				       roll(thread, 2) ? &told : NULL);
		fprintf(thread->out, "%u %s small: %d\n", thread->step, name,
			result);
		break;
	case 2:
		result = question->ask(question, what, 0, NULL, NULL);
		fprintf(thread->out, "%u %s nowhere: %d\n", thread->step, name,
			result);
		break;
	case 3:
		/* Just enough. */
		result = question->ask(question, what, 0, NULL, &told);
		if (!result)
			result = question->ask(question, what, told, bytes,
					       &told_now);
		say_answer(thread, name, result, bytes, told < room ? told : 0,
			   is_private);
		break;
	default:
		result = question->ask(question, what, room, bytes, &told);
		say_answer(thread, name, result, bytes, told < room ? told : 0,
			   is_private);
		break;
	}
	free(bytes);
}
