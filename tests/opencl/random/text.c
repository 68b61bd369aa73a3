/* SPDX-License-Identifier: MIT */

/*
 * Sources, by number: kernels k0 to k2, whose arguments depend on their number
 * alone so that they can be launched, behind a prologue that makes the whole
 * valid, broken, a warning, large, or dependent on what it includes.
 */

#include <stdlib.h>
#include <string.h>

#include "random.h"

#define LARGE 60000

static unsigned throw(uint64_t * dice, unsigned n)
{
	*dice = *dice * 6364136223846793005u + 1442695040888963407u;
	return (unsigned)(*dice >> 33) % n;
}

static void put_expression(FILE *out, uint64_t *dice)
{
	static const char *const operators[] = { "+", "-", "*", "^", "|" };

	fprintf(out, "K %s %u", operators[throw(dice, 5)], throw(dice, 100));
	if (throw(dice, 2))
		fprintf(out, " %s i", operators[throw(dice, 5)]);
}

static void put_kernel(FILE *out, uint64_t *dice, unsigned number)
{
	static const char *const arguments[] = {
		"__global int *out",
		"__global int *out, __global const int *in, int d",
		"__global int *restrict out, __local int *room, short d",
	};
	static const char *const more[] = { "", " + in[i] * d", " + d" };
	static const char *const attributes[] = {
		"",
		"",
		"__attribute__((reqd_work_group_size(4, 1, 1))) ",
		"__attribute__((vec_type_hint(int))) ",
		"__attribute__((work_group_size_hint(8, 1, 1))) ",
	};

	fprintf(out, "%s__kernel void k%u(%s)\n", attributes[throw(dice, 5)],
		number, arguments[number]);
	fprintf(out, "{\n\tint i = get_global_id(0);\n\tout[i] = (");
	put_expression(out, dice);
	fprintf(out, ")%s;\n}\n", more[number]);
}

static void put_prologue(FILE *out, uint64_t *dice, unsigned number)
{
	unsigned i;

	fprintf(out, "/* %u */\n", number);
	switch (throw(dice, 18)) {
	case 0:
		fprintf(out, "#include \"part.h\"\n");
		break;
	case 1:
		fprintf(out, "#include OWN\n");
		break;
	case 2:
		fprintf(out, "#include \"given.h\"\n");
		break;
	case 3:
		fprintf(out, "#warning look out\n");
		break;
	case 4:
		for (i = 0; i < LARGE / 60; i++)
			fprintf(out, "/* %56u */\n", throw(dice, 1000));
		break;
	default:
		break;
	}
	fprintf(out, "#ifndef K\n#define K %u\n#endif\n", throw(dice, 9));
}

char *source_new(uint64_t seed, unsigned number)
{
	uint64_t dice = seed * 1000003 + number;
	unsigned kernels, i;
	size_t size = 0;
	char *text = NULL;
	FILE *out = open_memstream(&text, &size);

	throw(&dice, 2);
	kernels = throw(&dice, 2) ? 1u << throw(&dice, 3) : 1 + throw(&dice, 7);
	put_prologue(out, &dice, number);
	for (i = 0; i < 3; i++)
		if (kernels & (1u << i))
			put_kernel(out, &dice, i);
	if (!throw(&dice, 16))
		fprintf(out, "__kernel void broken(__global int *out)\n"
			     "{ out[0] = nowhere; }\n");
	fclose(out);
	return text;
}

unsigned char *il_new(struct thread *thread, size_t *out_size)
{
	static const uint32_t magic = 0x07230203u;
	size_t size = 0;
	char *text = NULL;
	FILE *out = open_memstream(&text, &size);

	fprintf(out,
		"....................__kernel void k1(__global int *out, "
		"__global const int *in, int d)\n"
		"{ int i = get_global_id(0);\n"
		"out[i] = in[i] * SPEC_1 + d * %u",
		roll(thread, 3));
	if (roll(thread, 2))
		fprintf(out, " + SPEC_2");
	fprintf(out, "; }\n");
	fclose(out);
	memcpy(text, &magic, sizeof(magic));
	*out_size = size;
	return (unsigned char *)text;
}

const char *any_options(struct thread *thread)
{
	static const char *const plain[] = {
		"",
		"-DK=2",
		"-DK=2",
		" -DK=2  ",
		"-D K=3",
		"-cl-kernel-arg-info",
		"-cl-kernel-arg-info -DK=2",
		"-g",
		"-g -DK=4",
		"-w",
		"-Werror",
		"-cl-fast-relaxed-math",
		"-cl-std=CL1.2",
		"-DK=nowhere",
		"-DK=6 -DK=7",
		"--wrong",
		"-I",
		"-Iinc",
		"-I inc -DK=5",
		"-I \"inc\"",
	};
	const char *options;
	static _Thread_local char made[200];

	switch (roll(thread, 8)) {
	case 0:
		return NULL;
	case 1:
		snprintf(made, sizeof(made), "-Iinc -DOWN=\\\"own%u.h\\\"",
			 thread->index);
		return made;
	case 2:
		snprintf(made, sizeof(made), "-Iinc -DOWN=<own%u.h> -DM%u",
			 thread->index, roll(thread, 4));
		return made;
	default:
		options = PICK(thread, plain);
		/* PoCL looks for the folder behind the end. */
		return all.is_real && !strcmp(options, "-I") ? "" : options;
	}
}

const char *any_link_options(struct thread *thread)
{
	static const char *const plain[] = {
		NULL,
		"",
		"",
		"-create-library",
		"-create-library -enable-link-options",
		"-cl-fast-relaxed-math",
		"--wrong",
	};

	return PICK(thread, plain);
}

static void write_text(const char *name, const char *text)
{
	FILE *file = fopen(name, "w");

	if (!file || fputs(text, file) < 0 || fclose(file)) {
		fprintf(stderr, "random-calls: cannot write %s\n", name);
		exit(2);
	}
}

static void write_own(unsigned index, unsigned value)
{
	char name[40], text[80];

	snprintf(name, sizeof(name), "inc/own%u.h", index);
	snprintf(text, sizeof(text),
		 "#include \"part.h\"\n#undef K\n"
		 "#define K %u\n",
		 value);
	write_text(name, text);
}

/* Of equal size, so that only a reader tells; no build may be reading it. */
void change_header(struct thread *thread)
{
	unsigned value = 10 + roll(thread, 5), i;

	for (i = 0; i < PROGRAMS_MAX; i++)
		if (thread->programs[i].n_refs)
			await(thread, &thread->programs[i]);
	write_own(thread->index, value);
	thread->n_changes++;
	say(thread, "header", value);
}

void write_headers(unsigned n_threads)
{
	unsigned i;

	write_text("inc/part.h", "#define PART 5\n");
	for (i = 0; i < n_threads; i++)
		write_own(i, 10);
}
