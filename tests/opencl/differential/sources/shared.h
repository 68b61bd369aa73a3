#define SHARED 5
