/* SPDX-License-Identifier: MIT */

/*
 * What the processor can do, as far as compilers look.  Device names hide it
 * (PoCL calls every processor with AVX-512 the same), and code for more than
 * the processor has ends in SIGILL.
 *
 * On x86: CPUID leaf 1 without EBX, which holds the number of the core that
 * happens to run, leaf 7, leaf 0xD without what depends on XCR0 twice, and
 * XCR0 itself, which says what the system saves; leaf 7 sub-leaf 1 (AVX-VNNI,
 * bfloat16) and leaf 0x80000001 (LZCNT, which is BSR where it is missing: a
 * wrong result, and no signal), which a virtual machine may lack where all of
 * the others are equal.
 */

#include "front/opencl/device.h"

#include <stdio.h>

#if defined(__x86_64__) || defined(__i386__)

#include <cpuid.h>

static uint64_t read_xcr0(void)
{
	uint32_t low, high;

	__asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
	return (uint64_t)high << 32 | low;
}

void ki_cl_cpu_identity(char out[KI_CL_CPU_BYTES])
{
	unsigned a, b, c, d, n;
	unsigned one[3] = { 0 }, seven[3] = { 0 }, state[3] = { 0 };
	unsigned more[2] = { 0 }, extended[2] = { 0 };
	uint64_t xcr0 = 0;

	n = __get_cpuid_max(0, NULL);
	if (n >= 1) {
		__cpuid(1, a, b, c, d);
		one[0] = a;
		one[1] = c;
		one[2] = d;
		if (c & bit_OSXSAVE)
			xcr0 = read_xcr0();
	}
	if (n >= 7) {
		__cpuid_count(7, 0, a, b, c, d);
		seven[0] = b;
		seven[1] = c;
		seven[2] = d;
		if (a >= 1) {
			__cpuid_count(7, 1, a, b, c, d);
			more[0] = a;
			more[1] = d;
		}
	}
	if (n >= 0xd) {
		__cpuid_count(0xd, 0, a, b, c, d);
		state[0] = a;
		state[1] = d;
		__cpuid_count(0xd, 1, a, b, c, d);
		state[2] = a;
	}
	if (__get_cpuid(0x80000001, &a, &b, &c, &d)) {
		extended[0] = c;
		extended[1] = d;
	}
	snprintf(out, KI_CL_CPU_BYTES,
		 "x86 1:%08x,%08x,%08x 7:%08x,%08x,%08x d:%08x,%08x,%08x "
		 "xcr0:%016llx 7.1:%08x,%08x x1:%08x,%08x",
		 one[0], one[1], one[2], seven[0], seven[1], seven[2], state[0],
		 state[1], state[2], (unsigned long long)xcr0, more[0], more[1],
		 extended[0], extended[1]);
}

#else

#include <sys/auxv.h>

void ki_cl_cpu_identity(char out[KI_CL_CPU_BYTES])
{
	const char *platform = (const char *)getauxval(AT_PLATFORM);

	snprintf(out, KI_CL_CPU_BYTES, "%s %lx %lx", platform ? platform : "?",
		 getauxval(AT_HWCAP), getauxval(AT_HWCAP2));
}

#endif
