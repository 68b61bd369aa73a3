#define OFFSET 41
