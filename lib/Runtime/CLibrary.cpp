// libkdac.so: everything is in KdacRuntime; a library needs one source.
#include "kdac-c/kdac.h"
