/* Of the stand-in's IL: what follows the header of a SPIR-V module. */
#ifndef SPEC_0
#define SPEC_0 3
#endif
#ifndef SPEC_1
#define SPEC_1 5
#endif

__kernel void special(__global const int *in, __global int *out, int by)
{
	int i = get_global_id(0);
	out[i] = in[i] * SPEC_0 + by * SPEC_1;
}
