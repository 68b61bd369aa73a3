#include "shared.h"

__kernel void first(__global int *out)
{
	out[get_global_id(0)] = SHARED + 1;
}
