/* Numbers in and out; what both the stand-in and real drivers compile. */
#ifndef K
#define K 3
#endif

__kernel void scale(__global const int *in, __global int *out, int by)
{
	int i = get_global_id(0);
	out[i] = in[i] * by + K;
}

__kernel void keep(__global int *out, int least, int most)
{
	int i = get_global_id(0);
	out[i] = min(max(out[i], least), most);
	if (i > 5) {
		out[i] += K;
	}
}
